"""(I − J V) x = b solved: by conjugate gradients, or with the matrix where it is small and asked for often.

Both say in words what is wrong with the state that they were given: not a maximum of the bound, or flat along some direction.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotAtMaximum
from natgrad.posterior.response.operator import FLAT, Operator

__all__ = ["FLAT", "Dense", "Solution", "conjugate_gradients"]

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
    x, r = np.zeros_like(b), b.copy()
    v_r = operator.fisher(r)
    size = first = operator.inner(r, v_r)
    if not np.isfinite(first):
        raise NotAtMaximum("linear response met numbers that are not finite: q is at the border of its parameters")
    if first <= 0.0:
        return Solution(b.copy(), 0, 0.0)
    p, v_p, iteration = r, v_r, 0
    best = x, first
    while size > tol**2 * first and iteration < limit:
        iteration += 1
        bent = p - operator.curvature(v_p)
        along = operator.inner(v_p, bent)
        curvature = along / operator.inner(p, v_p)
        noise = EPSILON * float(np.abs(operator.weighed(v_p)) @ (np.abs(p) + np.abs(p - bent)))
        if abs(along) <= noise or (truncate is not None and abs(curvature) <= truncate):
            break  # in the first case the rest is rounding, and no direction means anything
        if rising and curvature < 0.0:
            return Solution(x if iteration > 1 else b.copy(), iteration, float(np.sqrt(size / first)), p)
        if size < best[1]:
            best = x.copy(), size
        flat = abs(curvature) <= max(NEARLY_FLAT, operator.flat)
        if flat and best[1] <= max(NOT_ALONG, operator.flat) ** 2 * first:
            # A function that does not change along a flat direction, but for rounding, which is all that is left: as in `Dense`.
            x, size = best[0], 0.0
            break
        check_curvature(operator, curvature, v_p)
        step = size / along
        x += step * p
        r = r - step * bent
        v_r = operator.fisher(r)
        new = max(operator.inner(r, v_r), 0.0)
        p, v_p, size = r + (new / size) * p, v_r + (new / size) * v_p, new
    # What V does not see of b is not seen by the norm either: one more product gives it back exactly.
    return Solution(b + operator.curvature(operator.fisher(x)), iteration, float(np.sqrt(size / first)))


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
    """Whether all curvatures are well above zero, as far as Cholesky's pivots tell: none of them is below the least curvature."""
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
