"""Gaussian means that meet in a term, solved together: coordinate ascent on them creeps where they are nearly collinear.

With everything else fixed, and the covariances too, the bound is a concave quadratic function of the means of several Gaussian
blocks, as long as no term has more than two of them in a product. Its maximum is the mean-field optimum that updates in turn
would reach after many sweeps; conjugate gradients, with the blocks' own precisions as preconditioner, find it in a few gradients.

    r = ∂bound/∂m,  A = −∂²bound/∂m²,  M = the precisions:   solve A x = r,  m ← m + x

The squared residual rᵀ M⁻¹ r is how far the means would move if each were updated alone, in their own standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.conjugate import Search, conjugate_step
from natgrad.inference.problem import State
from natgrad.network.execute.addressing import Piece
from natgrad.network.execute.program import BoundProgram
from natgrad.network.polynomial import Monomial

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["JointMeans", "joint_groups"]

Array = Any
Means = dict[str, Array]
Stats = tuple[Array, ...]
Derivative = Callable[[Mapping[str, Stats]], Any]
# A solve ends when the squared residual has shrunk so much, is so small, or is rounding; or after so many gradients.
SHRUNK, SMALL, ROUNDING, MOST = 1e-6, 1e-14, 1e-26, 60
# With more products than this, tracing them once more would take longer than it saves.
MOST_MONOMIALS = 2_000


class JointMeans:
    """The groups of Gaussian blocks of a problem whose means are solved together."""

    def __init__(self, problem: NetworkProblem) -> None:
        self.problem = problem
        self._interpreted: dict[tuple[str, ...], _Means] = {}

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
        bound = self.problem.interpreter
        if bound is None:
            program = self.problem.program
            return self.problem.compiled(
                ("joint", group),
                lambda: lambda lam, mu, known: self._means(BoundProgram(program, known), group)(lam, mu),
            )
        if group not in self._interpreted:
            self._interpreted[group] = self._means(bound, group)

        def solved(lam: Any, mu: Any) -> Any:
            with self.problem.backend.running():
                return self._interpreted[group](lam, mu)

        return solved

    def _means(self, bound: BoundProgram, group: tuple[str, ...]) -> _Means:
        """The solve of a group, by the monomials in which its means are."""
        program, plan = self.problem.program, self.problem.plan
        pieces = [
            piece._replace(monomials=tuple(m for m in piece.monomials if _degree(m, group)))
            for term in plan.terms.values()
            if term.node in group or set(group) & set(term.readings)
            for piece in program.pieces(term)
        ]
        whole = {name: bound.lowered(pieces, name) for name in group}
        lines = {name: bound.lowered(_mixed(pieces, group), name, stats=(0,)) for name in group}
        first: dict[str, Derivative] = {
            name: lambda here, line=line: line.add(here, line.known)[0]  # type: ignore[misc]
            for name, line in lines.items()
        }
        return _Means(self.problem, group, whole, first)


class _Means:
    """The means of a group at their joint optimum, all in one vector.

    ∂/∂m = G₁ + 2 G₂ m, with the derivatives G of the polynomial by both moments. Where two means meet, G₁ is linear in them;
    G₂ has none of them: every term is quadratic.

    Parameters
    ----------
    problem : NetworkProblem
    names : the group
    whole : the derivative by the moments of each of them, given all moments
    lines : the part of the derivative by their means in which means meet
    """

    def __init__(
        self,
        problem: NetworkProblem,
        names: tuple[str, ...],
        whole: Mapping[str, Derivative],
        lines: Mapping[str, Derivative],
    ) -> None:
        self.on, self.names, self.whole, self.lines = problem.backend, names, whole, lines
        self.families = {name: problem.blocks[name].family for name in names}
        shapes = [problem.plan.nodes[name].stat_shapes()[0] for name in names]
        ends = np.cumsum([0, *map(math.prod, shapes)]).tolist()
        self.places = [(n, slice(*at), s) for n, at, s in zip(names, pairwise(ends), shapes, strict=True)]
        self.scalars = all(not family.event_ndim for family in self.families.values())

    def __call__(self, lam: Mapping[str, Stats], mu: Mapping[str, Stats]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """λ and moments of the group after the solve, and how many gradients it took."""
        xp, families = self.on.xp, self.families
        spread = {n: self._spread(f, lam[n]) for n, f in families.items()}
        start = {n: mu[n][0] for n in self.names}
        here = {**mu, **{n: (m, spread[n] + _squared(m, spread[n])) for n, m in start.items()}}
        by = {n: self.whole[n](here) for n in self.names}

        def curvature(vector: Array) -> Array:
            means = self._apart(vector)
            here = {**mu, **{n: (m, spread[n]) for n, m in means.items()}}
            return self._joined({n: self.lines[n](here) + _twice(by[n][1], m) for n, m in means.items()})

        residual = self._joined({n: by[n][0] + _twice(by[n][1], m) for n, m in start.items()})
        precisions = {n: -2.0 * second for n, (_, second) in by.items()}
        begin = self._joined(start)
        solution, count = self._solved(begin, residual, curvature, precisions, start)
        means = self._apart(xp.where(xp.all(xp.isfinite(solution)), solution, begin))
        stats = {n: (m, spread[n] + _squared(m, spread[n])) for n, m in means.items()}
        return {n: f.centred(means[n], lam[n]) for n, f in families.items()}, stats, count

    def _spread(self, family: Any, lam: Stats) -> Array:
        """The second moment of a Gaussian with mean zero, which is its covariance."""
        if self.scalars:
            return 1.0 / (-2.0 * lam[1])
        return family.moments((self.on.xp.zeros_like(lam[0]), lam[1]))[0][1]

    def _solved(
        self, means: Array, residual: Array, curvature: Callable[[Array], Array], precisions: Means, start: Means
    ) -> tuple[Array, Any]:
        """The maximum of a concave quadratic function by conjugate gradients, and how many gradients it took."""
        xp, on = self.on.xp, self.on
        number: Any = float if on.name == "numpy" else xp.asarray  # Python's own numbers are quicker
        inverse = self._inverse(precisions, start)
        first = inverse(residual)
        size = number(residual @ first)
        enough = xp.maximum(SHRUNK * size, SMALL)
        # A matrix without negative eigenvalues is at most as many times its diagonal as it has rows. Only a residual that is
        # not above what that makes of the rounding needs to be compared with the rounding itself, which costs a gradient.
        if on.name == "jax" or not (
            self.scalars and size > ROUNDING * len(means) * (means**2 @ self._joined(precisions))
        ):
            enough = xp.maximum(enough, -ROUNDING * (means @ curvature(means)))

        def going(at: Search) -> Array:
            return (at.size > enough) & (at.count < MOST)

        def once(at: Search) -> Search:
            bent = -curvature(at.image)
            return conjugate_step(at, bent, number(at.image @ bent), inverse, lambda r, v_r: number(r @ v_r))

        first_search = Search(xp.zeros_like(residual), residual, residual, first, size, xp.int32(1))
        at: Search = on.repeat_while(going, once, first_search)
        return means + inverse(at.x), at.count

    def _inverse(self, precisions: Means, like: Means) -> Callable[[Array], Array]:
        """Division by the precisions, which are matrices for vectors; elements of weight zero stay where they are."""
        xp = self.on.xp
        if self.scalars:
            flat = self._joined(precisions)
            factor = xp.where(flat > 0, 1.0 / xp.where(flat > 0, flat, 1.0), 0.0)
            return lambda vector: factor * vector

        def one(precision: Array, value: Array) -> Array:
            if precision.ndim == value.ndim:
                return xp.where(precision > 0, value / xp.where(precision > 0, precision, 1.0), 0.0)
            there = xp.trace(precision, axis1=-2, axis2=-1)[..., None] > 0
            safe = xp.where(there[..., None], precision, xp.eye(precision.shape[-1]))
            return xp.where(there, xp.linalg.solve(safe, value[..., None])[..., 0], 0.0)

        return lambda vector: self._joined({n: one(precisions[n], part) for n, part in self._apart(vector).items()})

    def _joined(self, parts: Means) -> Array:
        return self.on.xp.concatenate([parts[name].reshape(-1) for name in self.names])

    def _apart(self, vector: Array) -> Means:
        return {name: vector[place].reshape(shape) for name, place, shape in self.places}


def _squared(mean: Array, like: Array) -> Array:
    """m² of scalars, m mᵀ of vectors."""
    return mean * mean if mean.ndim == like.ndim else mean[..., :, None] * mean[..., None, :]


def _twice(second: Array, mean: Array) -> Array:
    """∂⟨G, m mᵀ⟩/∂m = (G + Gᵀ) m."""
    if second.ndim == mean.ndim:
        return 2.0 * second * mean
    return ((second + second.swapaxes(-1, -2)) @ mean[..., None])[..., 0]


def _mixed(pieces: list[Piece], names: tuple[str, ...]) -> list[Piece]:
    """The monomials in which means meet."""

    def meet(monomial: Monomial) -> bool:
        return sum(factor.source in names and not factor.known for factor in monomial.factors) > 1

    return [piece._replace(monomials=tuple(m for m in piece.monomials if meet(m))) for piece in pieces]


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
