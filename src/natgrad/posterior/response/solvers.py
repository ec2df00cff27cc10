"""Solve (I − J V) x = b by conjugate gradients or with the matrix; eliminate blocks that do not meet; finish at the optimum."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotAtMaximum
from natgrad.inference.conjugate import Search, conjugate_step
from natgrad.posterior.response.operator import FLAT, SMALL, Linearised, Operator

__all__ = [
    "FLAT",
    "LEFT",
    "Dense",
    "Eliminated",
    "Settled",
    "Solution",
    "at_optimum",
    "conjugate_gradients",
    "matrix_of",
    "still_to_go",
    "to_eliminate",
    "unresolved_gain",
]

# (I − J V) x = b solved: by conjugate gradients, or with the matrix where it is small and asked for often.
#
# Both say in words what is wrong with the state that they were given: not a maximum of the bound, or flat along some direction.

Floats = npt.NDArray[np.float64]
# A curvature that is not flat whatever rounding did to it.
CLEARLY = 1e-5
# Rounding of a product, as a part of what was added up.
EPSILON = 1e-13
# The part of a right-hand side along a flat direction that counts as rounding.
ROUNDING = 1e-6
# For conjugate gradients: how flat a direction looks from a fit that is not quite there, and what counts as rounding then.
NEARLY_FLAT, NOT_ALONG = 1e-4, 1e-5


class Solution(NamedTuple):
    """x, the products by J it took, the part of b that is left, and the dλ along which the bound rises, if one was met."""

    x: Floats
    iterations: int
    residual: float
    rising: Floats | None = None


def conjugate_gradients(
    operator: Operator, b: Floats, tol: float, limit: int, *, truncate: float | None = None, rising: bool = False
) -> Solution:
    """Find x with ‖b − (I − J V) x‖ ≤ tol ‖b‖ in the norm of W V.

    Raises `NotAtMaximum` where the operator is not positive. With ``truncate`` it ends where the curvature is within so much of
    zero, with what it has; with ``rising`` also where it is below, and says along what.
    """
    image = operator.fisher(b)
    first = operator.inner(b, image)
    if not np.isfinite(first):
        raise NotAtMaximum("linear response met numbers that are not finite: q is at the border of its parameters")
    if first <= 0.0:
        return Solution(b.copy(), 0, 0.0)
    at = Search(np.zeros_like(b), b, b, image, first, 0)
    best, iteration = (at.x, first), 0
    while at.size > tol**2 * first and iteration < limit:
        iteration += 1
        p, v_p = at.direction, at.image
        bent = p - operator.curvature(v_p)
        along = operator.inner(v_p, bent)
        curvature = along / operator.inner(p, v_p)
        noise = EPSILON * float(np.abs(operator.weighed(v_p)) @ (np.abs(p) + np.abs(p - bent)))
        if abs(along) <= noise or (truncate is not None and abs(curvature) <= truncate):
            break  # in the first case the rest is rounding, and no direction means anything
        if rising and curvature < 0.0:
            return Solution(at.x if iteration > 1 else b.copy(), iteration, float(np.sqrt(at.size / first)), p)
        if at.size < best[1]:
            best = at.x, at.size
        flat = abs(curvature) <= max(NEARLY_FLAT, operator.flat)
        if flat and best[1] <= max(NOT_ALONG, operator.flat) ** 2 * first:
            # A function that does not change along a flat direction, but for rounding, which is all that is left: as in `Dense`.
            at = at._replace(x=best[0], size=0.0)
            break
        check_curvature(operator, curvature, v_p)
        at = conjugate_step(at, bent, along, operator.fisher, lambda r, v_r: max(operator.inner(r, v_r), 0.0))
    # What V does not see of b is not seen by the norm either: one more product gives it back exactly.
    return Solution(b + operator.curvature(operator.fisher(at.x)), iteration, float(np.sqrt(at.size / first)))


def check_curvature(operator: Operator, curvature: float, direction: Floats) -> None:
    """Raise where the bound rises, or does not change for all that is known, along a direction dμ."""
    if curvature > operator.flat:
        return
    where = _most_in(operator, direction)
    if curvature < -operator.flat:
        raise NotAtMaximum(
            f"the fit is not at a maximum of the bound: it rises along a direction of {where} (curvature {curvature:.2g}; 1 is "
            "that of independent factors). It stopped at a saddle, or on its way: call fit.continue_fit(), or try other starts"
        )
    far = ""
    if operator.flat > CLEARLY:
        far = (
            f", as far as a state tells that is not at its optimum (curvature {curvature:.1g} ± {operator.flat:.1g}: "
            "fit.continue_fit() with a smaller tol tells more)"
        )
    raise NotAtMaximum(
        f"the bound is flat along a direction of {where}{far}: it can be changed without changing what the data say, as factors "
        "can be rotated. Its variance has no value; ask for functions that do not change along it, such as predictions: "
        'lr.std(lambda m: m["u"][0] @ m["v"][1])'
    )


def _most_in(operator: Operator, direction: Floats) -> str:
    """The blocks that a direction moves most."""
    total = float(np.linalg.norm(direction)) or 1.0
    parts = {name: float(np.linalg.norm(direction[place])) / total for name, place in operator.places.items()}
    return " and ".join(repr(name) for name, part in parts.items() if part > 0.1)


class Dense:
    """The matrix of the operator in its symmetric form, Ṽ^½ (I − Ṽ^½ H Ṽ^½)⁻¹ Ṽ^½ with Ṽ = V W⁻¹.

    Where I − Ṽ^½ H Ṽ^½ is clearly positive its inverse serves; elsewhere eigenvectors, which say what rises or is flat.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator, n = operator, operator.size
        self.jacobian = operator.jacobian
        weights = np.ones(n) if operator.weights is None else operator.weights
        roots = []
        for name, place in operator.places.items():
            fisher = operator.fisher_matrix(name)
            fisher = 0.5 * (fisher + fisher.T)
            if operator.weights is not None:
                mine = weights[place]
                inverse = np.sqrt(np.divide(1.0, mine, out=np.zeros_like(mine), where=mine > 0))
                fisher = fisher * inverse[:, None] * inverse
            roots.append(_root(fisher, operator.free_directions(name), place, n))
        self.root = np.concatenate(roots, axis=1)
        hessian = self.jacobian if operator.weights is None else weights[:, None] * self.jacobian
        bent = self.root.T @ (0.5 * (hessian + hessian.T)) @ self.root
        self.weights, self._bent = weights, np.eye(len(bent)) - bent
        self._whole: Floats | None = None
        if _is_clearly_positive(self._bent):
            self._whole = self.jacobian @ (self.root @ np.linalg.solve(self._bent, self.root.T))

    @cached_property
    def _modes(self) -> tuple[Floats, Floats]:
        """Curvatures and their directions."""
        curvatures, modes = np.linalg.eigh(self._bent)
        return curvatures, modes

    def solve(self, b: Floats) -> Solution:
        """Find x = b + J Ṽ^½ (I − K)⁻¹ Ṽ^½ W b."""
        if self._whole is not None and self.is_clear:
            return Solution(b + self._whole @ (self.weights * b), 0, 0.0)
        level = self.operator.flat
        self._check_above(level)
        parts, curvatures = self._parts(b), self._modes[0]
        flat = curvatures <= level
        if flat.any() and np.abs(parts[flat]).max() > max(ROUNDING, level) * np.abs(parts).max():
            worst = int(np.argmax(np.abs(np.where(flat, parts, 0.0))))
            check_curvature(self.operator, float(curvatures[worst]), self.root @ self._modes[1][:, worst])
        return Solution(self._solved(b, parts, ~flat), 0, 0.0)

    @property
    def is_clear(self) -> bool:
        """Whether no direction is flat, or rises."""
        return self._whole is not None and self.operator.flat < CLEARLY

    def responses(self, sources: Floats) -> Floats:
        """The solutions for J c of many c [n, size], of a system that is clear."""
        return self.solved(sources @ self.jacobian.T)

    def solved(self, right: Floats) -> Floats:
        """The solutions for many right-hand sides [n, size], of a system that is clear."""
        assert self._whole is not None
        return np.asarray(right + (right * self.weights) @ self._whole.T)

    def fisher(self, changes: Floats) -> Floats:
        """V dλ of many dλ [n, size], where nothing is weighted."""
        return np.asarray((changes @ self.root) @ self.root.T)

    def step(self, b: Floats, flat: float, rising: float) -> tuple[Floats, float]:
        """Newton's step, from beside the optimum: the same without directions whose curvature is up to ``flat``, and their part.

        Below −``rising`` one is a direction along which the bound rises, and an error.
        """
        if self._whole is not None and rising < CLEARLY:
            return b + self._whole @ (self.weights * b), 0.0
        self._check_above(rising)
        parts, kept = self._parts(b), self._modes[0] > flat
        return self._solved(b, parts, kept), float(np.linalg.norm(parts[~kept]))

    def _check_above(self, rising: float) -> None:
        curvatures, modes = self._modes
        if len(curvatures) and curvatures[0] < -rising:
            check_curvature(self.operator, float(curvatures[0]), self.root @ modes[:, 0])

    def _parts(self, b: Floats) -> Floats:
        return np.asarray(self._modes[1].T @ (self.root.T @ (self.weights * b)))

    def _solved(self, b: Floats, parts: Floats, kept: npt.NDArray[np.bool_]) -> Floats:
        curvatures, modes = self._modes
        scaled = np.divide(parts, curvatures, out=np.zeros_like(parts), where=kept)
        return np.asarray(b + self.jacobian @ (self.root @ (modes @ scaled)))


def _is_clearly_positive(matrix: Floats) -> bool:
    """Whether all curvatures are well above zero, by Cholesky's pivots: none of them is below the least curvature."""
    try:
        pivots = np.linalg.cholesky(matrix).diagonal()
    except np.linalg.LinAlgError:
        return False
    return bool(pivots.min(initial=1.0) ** 2 > CLEARLY)


def _root(part: Floats, free: Floats | None, place: slice, n: int) -> Floats:
    """R [n, …] with R Rᵀ this matrix in its place; each number in its own units: none is lost beside a larger one.

    ``free`` are the directions that it acts on, where it is symmetric in some of its numbers.
    """
    whole = part
    part = part if free is None else free.T @ part @ free
    scale = np.sqrt(np.maximum(part.diagonal(), 0.0))
    safe = np.where(scale > 0, scale, 1.0)
    scaled = part / (safe[:, None] * safe)
    try:
        half = np.linalg.cholesky(scaled)
        if not half.diagonal().min(initial=1.0) > 1e-6:
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(scaled)
        kept = values > 1e-13 * max(len(whole), 1)
        half = vectors[:, kept] * np.sqrt(values[kept])
    half = scale[:, None] * half
    root = np.zeros((n, half.shape[1]))
    root[place] = half if free is None else free @ half
    return root


# Blocks that do not meet one another taken out of the system: what is left is as large as the others, and small.
#
# With E such blocks, paths of a chain or memberships of rows, and g the rest, dλ_E = b_E + J_Eg V_g dλ_g. So g alone has to be
# solved for, with J' = J_gg + J_gE V_E J_Eg (a Schur complement), as one small matrix.

# Numbers of J_gE: all of them are multiplied by V at once. And those in λ up to which the whole is a small matrix, too.
MOST, FEW = 1_000_000, 32


def to_eliminate(operator: Operator) -> list[str]:
    """The blocks that may be taken out so that little is left; none if that is not so."""
    if operator.size <= FEW or operator.matrix is None or operator.weights is not None:
        return []
    chosen: list[str] = []
    sizes = {name: place.stop - place.start for name, place in operator.places.items()}
    half = getattr(operator.matrix, "half", operator.matrix)
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        mine = operator.places[name]
        if not any(_meet(half, mine, operator.places[other]) for other in (*chosen, name)):
            chosen.append(name)
        if 0 < operator.size - sum(sizes[n] for n in chosen) <= min(SMALL, operator.size) // 2:
            break
    left = operator.size - sum(sizes[n] for n in chosen)
    small = SMALL if operator.size > SMALL else operator.size // 2
    return chosen if 0 < left <= small and left * (operator.size - left) <= MOST else []


def _meet(half: object, one: slice, other: slice) -> bool:
    return any(abs(half[a, b]).max() > 0.0 for a, b in ((one, other), (other, one)))  # type: ignore[index]


class Eliminated:
    """The system without some blocks; solves as `Dense` does."""

    def __init__(self, operator: Operator, without: list[str]) -> None:
        self.operator, at = operator, operator.at
        self.without, self.kept = without, [name for name in operator.places if name not in without]
        self._out, self._in = (
            np.concatenate([np.arange(operator.size)[operator.places[name]] for name in names])
            for names in (without, self.kept)
        )
        whole = operator.matrix
        units = np.zeros((operator.size, len(self._in)))
        units[self._in, np.arange(len(self._in))] = 1.0
        rows = np.stack([whole @ unit for unit in units.T]) if not isinstance(whole, np.ndarray) else whole[self._in]
        changes, reached = operator.changes(rows), np.zeros_like(rows)
        for name in without:
            place, change = operator.places[name], operator.part(changes, name)
            if operator.side_by_side(name):
                moved = operator.covariances[name].times(change)
            else:
                wide = tuple(np.broadcast_to(part, (len(rows), *part.shape)) for part in at.lam[name])
                moved = at.blocks[name].family.covariances(wide).times(change)
            reached[:, place] = operator._rows(moved)
        self._rows, self._changes, self._reached = rows, changes[:, self._out], reached[:, self._out]
        schur = rows[:, self._in] + rows[:, self._out] @ self._reached.T
        keep = {name: at.blocks[name] for name in self.kept}
        self.reduced = Operator(
            at._replace(
                blocks=keep,
                lam={name: at.lam[name] for name in keep},
                targets={name: at.targets[name] for name in keep},
                covariances={name: operator.covariances[name] for name in keep},
                matrix=lambda: schur,
            )
        )
        self.dense = Dense(self.reduced)

    @property
    def is_clear(self) -> bool:
        """Whether no direction is flat, or rises."""
        self.reduced.flat = self.operator.flat
        return self.dense.is_clear

    def solve(self, b: Floats) -> Solution:
        """Find x with (I − J V) x = b."""
        self.reduced.flat = self.operator.flat
        return Solution(self._whole(b, self.dense.solve(self._message(b)).x), 0, 0.0)

    def step(self, b: Floats, flat: float, rising: float) -> tuple[Floats, float]:
        """Newton's step, as of `Dense`."""
        inside, unresolved = self.dense.step(self._message(b), flat, rising)
        return self._whole(b, inside), unresolved

    def responses(self, sources: Floats) -> Floats:
        """The solutions for J c of many c [n, size], of a system that is clear."""
        b = np.empty_like(sources)
        b[:, self._in] = self.reduced.changes(sources @ self._rows.T)
        b[:, self._out] = sources[:, self._in] @ self._changes
        return self._whole(b, self.dense.solved(self._message(b)))

    def _message(self, b: Floats) -> Floats:
        """b_g + J_gE V_E b_E."""
        return np.asarray(b[..., self._in] + b[..., self._out] @ self._reached.T)

    def _whole(self, b: Floats, inside: Floats) -> Floats:
        """With dλ_E = b_E + J_Eg V_g dλ_g."""
        x = np.empty_like(b)
        x[..., self._in] = inside
        x[..., self._out] = b[..., self._out] + self.dense.fisher(inside) @ self._changes
        return x


# Newton's step from a state with the residual r = λ̂ − λ moves the mean of any quantity g by Cov_LR(g, φ)·r, and
#
#     (Cov_LR(g, φ)·r)² ≤ Var_LR(g) · rᵀ Σ r,        rᵀ Σ r = 2 · (the nats that the step gains)
#
# so that √(2 · nats left) is the farthest that any mean still has to go, in its own standard deviations. A curvature is known to
# about as much as the state is beside the optimum, in standard deviations of q: what is nearer to zero is flat for all that is
# known.

# Nats that are left to gain: above the first the state does not count as an optimum, since a mean may have 0.045 standard
# deviations to go; below the second it is one to rounding, below the third for conjugate gradients with so many numbers in λ.
LEFT, SETTLED, NEARLY, LARGE = 1e-3, 1e-20, 1e-13, 2_000
STEPS, NEWTON_TOL = 4, 1e-2
# Newton's step leaves about the square of what it gains, where no direction is flat (0.006 to 16 times as much was met); steps
# with its curvature leave the same part each. What is expected to be left is so many times that.
FIRST_AHEAD, AHEAD = 100.0, 10.0
# By how much a curvature may be off, for each standard deviation of q that the state is beside the optimum.
ROUGH = 10.0


class Settled(NamedTuple):
    """The optimum; the nats that were left; the matrix there, if it was made; the curvature that counts as none."""

    at: Linearised
    left: float
    matrix: Dense | Eliminated | None = None
    flat: float = FLAT


def at_optimum(at: Linearised) -> Settled:
    """The state after Newton's steps; as it was where there is more to gain than `LEFT`.

    A fit ends some way before the optimum, at which linear response is defined; along a direction in which the bound is flat,
    that way would look like curvature.
    """
    operator = Operator(at)
    near = matrix_of(operator)
    curvature = operator.matrix if at.matrix is not None else None
    enough = NEARLY if near is None and operator.size >= LARGE else SETTLED
    left, last, moved, farthest = math.nan, math.nan, False, 0.0
    for turn in range(STEPS):
        if turn > 0:
            operator = Operator(at)
            operator.matrix = curvature  # that of the first step: later ones are short
        step, length, gain, unresolved = _newton(operator, near, farthest)
        farthest = max(farthest, length)
        expected = FIRST_AHEAD * gain**2 if turn == 0 else AHEAD * gain**2 / last
        left, last = gain + unresolved if turn == 0 else left, gain
        at = at._replace(covariances=operator.covariances)
        if at.elsewhere is None or gain <= enough or gain + unresolved > LEFT:
            break
        new = {
            name: block.family.project(
                tuple(g + s for g, s in zip(at.lam[name], operator.part(step, name), strict=True))
            )
            for name, block in at.blocks.items()
        }
        if not all(np.all(block.family.valid(new[name])) for name, block in at.blocks.items()):
            break
        at, moved = at.elsewhere(new), True
        if near is not None and near.is_clear and expected < SETTLED:
            return Settled(at, left)
        length = math.nan
    if math.isnan(length):  # of a state that no step began at
        operator = Operator(at)
        residual = operator.residual()
        length = operator.inner(residual, operator.fisher(residual)) ** 0.5
        at = at._replace(covariances=operator.covariances)
    # A state that is none of an optimum is taken as it is, and said to be so.
    return Settled(at, left, None if moved else near, FLAT if left > LEFT else FLAT + ROUGH * length)


def _newton(operator: Operator, near: Dense | Eliminated | None, beside: float) -> tuple[Floats, float, float, float]:
    """Newton's step dλ, the length of the residual in standard deviations of q, the nats it gains, and those it may not see.

    ``beside`` is how far from the optimum the curvature was found.
    """
    residual = operator.residual()
    moved = operator.fisher(residual)
    length = operator.inner(residual, moved) ** 0.5
    far = max(length, beside)
    if near is not None:
        step, unresolved = near.step(residual, FLAT + far, FLAT + ROUGH * far)
    else:
        solved = conjugate_gradients(operator, residual, NEWTON_TOL, 200, truncate=FLAT + far)
        step, unresolved = solved.x, min(solved.residual, 1.0) * length
    return step, length, 0.5 * operator.inner(moved, step), unresolved_gain(far, unresolved)


def unresolved_gain(length: float, unresolved: float) -> float:
    """Nats along directions that a step leaves out, as their curvature is within the length of the residual: ½ square / length.

    Of a direction that is flat by symmetry, the residual has the square of its length, and nothing comes of it.
    """
    return 0.5 * unresolved**2 / length if length > 0.0 else 0.0


def still_to_go(left: float) -> float:
    """How far the mean of any quantity may still have to go, in its standard deviations."""
    return math.sqrt(2.0 * max(left, 0.0))


def matrix_of(operator: Operator) -> Dense | Eliminated | None:
    """The system as a matrix, where it is small by itself, or without some blocks."""
    if without := to_eliminate(operator):
        rest = Eliminated(operator, without)
        if rest.is_clear or not operator.is_small:
            return rest
    return Dense(operator) if operator.is_small else None
