"""Moments and several directions in, H v of each out: the derivative of the targets, written out once (`written_out`).

A monomial with factors f₁ f₂ … is affine in each of them. H v has, for every two of its random factors, the product of the others
with one of the two read from v, at the place of the other. Directions lie along one more axis, so that the whole matrix H is one
pass over the polynomial: a small network has its covariances in the time of a few sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.network.compile.polynomial import Factor, Mark, Monomial
from natgrad.network.execute.written_out import Parts, WrittenTarget

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["WrittenTangent"]

Stats = tuple[Any, ...]
Moments = Mapping[str, Stats]
ALONG = Mark("direction")
# No node has a name that begins so: what is read from the directions, and what the derivative is taken by.
MOVED, BY = "\0", "\1"


class WrittenTangent:
    """J dμ for ``n`` directions at once, of an interpreted network without weights."""

    def __init__(self, problem: NetworkProblem, n: int) -> None:
        self.problem, self.n = problem, n
        self._shapes: dict[str, Sequence[tuple[int, ...]]] = {}
        self._targets = {name: self._written(name) for name in problem.blocks}

    def _written(self, name: str) -> Callable[[Moments], Stats] | None:
        problem, parts = self.problem, []
        for term in problem.plan.terms_of(name):
            for piece in problem.program.pieces(term):
                pairs = tuple(pair for monomial in piece.monomials for pair in _pairs(monomial, name))
                if pairs:
                    moved = piece._replace(monomials=pairs)
                    parts.append(Parts(BY + name, [moved], problem.known_arrays, self._shape))
        if not parts:
            return None
        written = WrittenTarget(problem.blocks[name].family, (), parts)
        return lambda moments: written(moments)[1]

    def _shape(self, source: str) -> Sequence[tuple[int, ...]]:
        shapes = self._shapes.get(source)
        if shapes is None:
            aside = source.startswith((MOVED, BY))
            own = self.problem.plan.nodes[source[1:] if aside else source].stat_shapes()
            shapes = self._shapes[source] = [(self.n, *shape) for shape in own] if aside else own
        return shapes

    def __call__(self, mu: Moments, directions: Moments) -> dict[str, Stats]:
        """The change of every block's target along each direction; directions [n, …] and changes [n, …]."""
        moments = {**mu, **{MOVED + name: stats for name, stats in directions.items()}}
        return {
            name: tuple(np.zeros((self.n, *np.shape(part))) for part in mu[name]) if target is None else target(moments)
            for name, target in self._targets.items()
        }


def _pairs(monomial: Monomial, name: str) -> list[Monomial]:
    """The monomial with one factor of a node taken out, and another random one read from the directions, in every way."""
    pairs = []
    for place, factor in enumerate(monomial.factors):
        if factor.known or factor.source != name:
            continue
        for other, moved in enumerate(monomial.factors):
            if moved.known or other == place:
                continue
            factors = list(monomial.factors)
            factors[place], factors[other] = _aside(factor, BY), _aside(moved, MOVED)
            pairs.append(monomial._replace(factors=tuple(factors)))
    return pairs


def _aside(factor: Factor, mark: str) -> Factor:
    return factor._replace(source=mark + factor.source, axes=(ALONG, *factor.axes))
