"""Gaussian means that meet in a term, solved together: coordinate ascent on them creeps where they are nearly collinear.

With everything else fixed, and the covariances too, the bound is a concave quadratic function of the means of several Gaussian
blocks, as long as no term has more than two of them in a product. Its maximum is the mean-field optimum that updates in turn
would reach after many sweeps; conjugate gradients, with the blocks' own precisions as preconditioner, find it in a few gradients.

    r = ∂bound/∂m,  A = −∂²bound/∂m²,  M = the precisions:   solve A x = r,  m ← m + x

The squared residual rᵀ M⁻¹ r is how far the means would move if each were updated alone, in their own standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from natgrad.inference.problem import State
from natgrad.network.execute.addressing import Piece
from natgrad.network.execute.backend import Backend, Quadratic, squared
from natgrad.network.polynomial import Monomial

if TYPE_CHECKING:
    from natgrad.network.execute.jax_backend import JaxBackend
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["JointMeans", "inverse_of", "joint_groups"]

Array = Any
Means = dict[str, Array]
# A solve ends when the squared residual has shrunk so much, is so small, or is rounding; or after so many gradients.
SHRUNK, SMALL, ROUNDING, MOST = 1e-6, 1e-14, 1e-26, 60
# With more products than this, tracing them once more would take longer than it saves.
MOST_MONOMIALS = 2_000


class JointMeans:
    """The groups of Gaussian blocks of a problem whose means are solved together."""

    def __init__(self, problem: NetworkProblem) -> None:
        self.problem = problem
        self._interpreted: dict[tuple[str, ...], Callable[..., Any]] = {}

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Names of the blocks of each group."""
        return joint_groups(self.problem)

    @cached_property
    def _reads(self) -> tuple[int, ...]:
        """Messages that one gradient of each group reads."""
        return tuple(sum(c.n_reads for name in group for c in self.problem.child_sets(name)) for group in self.groups)

    def solved(self, state: State) -> tuple[State, int]:
        """The state with the means of every group at their joint optimum, group after group; what that has read."""
        lam, mu, reads = dict(state.lam), dict(state.mu), 0
        for group, cost in zip(self.groups, self._reads, strict=True):
            new, fresh, gradients = self._function(group)({name: lam[name] for name in group}, mu)
            lam, mu, reads = {**lam, **new}, {**mu, **fresh}, reads + int(gradients) * cost
        return state._replace(lam=lam, mu=mu), reads

    def _function(self, group: tuple[str, ...]) -> Callable[..., Any]:
        interpreter = self.problem.interpreter
        if interpreter is None:
            return self.problem.compiled(("joint", group), partial(self._build, group))
        if group not in self._interpreted:
            self._interpreted[group] = interpreter.means(group, self._pieces(group))
        return self._interpreted[group]

    def _pieces(self, group: tuple[str, ...]) -> list[Piece]:
        """The monomials in which means of the group are."""
        program, plan = self.problem.program, self.problem.plan
        terms = [term for term in plan.terms.values() if term.node in group or set(group) & set(term.readings)]
        return [
            piece._replace(monomials=tuple(m for m in piece.monomials if _degree(m, group)))
            for term in terms
            for piece in program.pieces(term)
        ]

    def _build(self, group: tuple[str, ...]) -> Callable[..., Any]:
        families, on = {name: self.problem.blocks[name].family for name in group}, self.problem.program.backend
        quadratic: Callable[..., Quadratic] = partial(cast("JaxBackend", on).quadratic, self._pieces(group))

        def function(lam: Any, mu: Any, known: Any) -> Any:
            xp = on.xp
            # The second moment of a Gaussian with mean zero is its covariance.
            spread = {n: families[n].moments((xp.zeros_like(lam[n][0]), lam[n][1]))[0][1] for n in group}
            start = {n: mu[n][0] for n in group}
            means, count = _conjugate_gradients(on, quadratic(start, spread, mu, known), start)
            good = xp.all(xp.stack([xp.all(xp.isfinite(m)) for m in means.values()]))
            means = {n: xp.where(good, means[n], start[n]) for n in group}
            stats = {n: (m, spread[n] + squared(m, spread[n])) for n, m in means.items()}
            return {n: families[n].centred(means[n], lam[n]) for n in group}, stats, count

        return function


def _conjugate_gradients(on: Backend, function: Quadratic, start: Means) -> tuple[Means, Array]:
    """The maximum of a concave quadratic function, and how many gradients it took."""
    xp, residual, curvature = on.xp, function.residual, function.curvature
    inverse = inverse_of(xp, {n: -2.0 * second for n, second in function.by_second.items()}, start)
    first = inverse(residual)
    size = _inner(on, residual, first)
    # The size of what was subtracted to get the residual, at the precision it was computed with.
    rounding = -ROUNDING * _inner(on, start, curvature(start))
    enough = xp.maximum(xp.maximum(SHRUNK * size, SMALL), rounding)

    def going(carry: Any) -> Array:
        return (carry[3] > enough) & (carry[4] < MOST)

    def once(carry: Any) -> Any:
        means, residual, direction, size, count = carry
        curved = curvature(direction)
        length = -size / _inner(on, direction, curved)
        means = _plus(means, length, direction)
        residual = _plus(residual, length, curved)
        scaled = inverse(residual)
        after = _inner(on, residual, scaled)
        return means, residual, _plus(scaled, after / size, direction), after, count + 1

    means, _, _, _, count = on.repeat_while(going, once, (start, residual, first, size, xp.int32(1)))
    return means, count


def inverse_of(xp: Any, precisions: Means, like: Means) -> Callable[[Means], Means]:
    """Division by the precisions, which are matrices for vectors; elements of weight zero stay where they are."""

    def one(precision: Array, is_scalar: bool) -> Callable[[Array], Array]:
        if is_scalar:
            factor = xp.where(precision > 0, 1.0 / xp.where(precision > 0, precision, 1.0), 0.0)
            return lambda value: factor * value
        there = xp.trace(precision, axis1=-2, axis2=-1)[..., None] > 0
        safe = xp.where(there[..., None], precision, xp.eye(precision.shape[-1]))
        return lambda value: xp.where(there, xp.linalg.solve(safe, value[..., None])[..., 0], 0.0)

    functions = {name: one(precision, precision.ndim == like[name].ndim) for name, precision in precisions.items()}
    return lambda values: {name: functions[name](value) for name, value in values.items()}


def _inner(on: Backend, first: Means, second: Means) -> Array:
    return sum((on.inner(first[name], second[name]) for name in first), on.xp.zeros(()))


def _plus(first: Means, factor: Array, second: Means) -> Means:
    return {name: first[name] + factor * second[name] for name in first}


# -- which blocks --


def joint_groups(problem: NetworkProblem) -> tuple[tuple[str, ...], ...]:
    """Gaussian blocks that meet in a term, as many together as leave every term quadratic in their means.

    A block alone is a group if its own elements meet one another, and only linearly: ``x[i] − x[j]``, but not ``x[i] * x[j]``,
    whose square has four of its means.
    """
    gaussian = {name: None for name, block in problem.blocks.items() if block.family.is_gaussian}
    monomials = [m for term in problem.plan.terms.values() for m in term.monomials if _degree(m, gaussian) > 1]
    if not gaussian or len(monomials) > MOST_MONOMIALS:
        return ()
    curved = [m for m in monomials if _degree(m, gaussian) > 2]
    group_of = {name: frozenset([name]) for name in gaussian if all(_degree(m, (name,)) <= 2 for m in curved)}
    for monomial in monomials:
        names = [n for n in dict.fromkeys(f.source for f in monomial.factors if not f.known) if n in group_of]
        for first, second in pairwise(names):
            merged = group_of[first] | group_of[second]
            if all(_degree(m, merged) <= 2 for m in curved):
                group_of.update(dict.fromkeys(merged, merged))
    groups = dict.fromkeys(group_of.values())
    return tuple(
        tuple(name for name in gaussian if name in group)
        for group in groups
        if len(group) > 1 or any(problem.blocks[name].n_columns > 1 for name in group)
    )


def _degree(monomial: Monomial, names: Iterable[str]) -> int:
    """How many means of these nodes a monomial multiplies; a second moment counts twice."""
    return sum(1 + factor.stat for factor in monomial.factors if not factor.known and factor.source in names)
