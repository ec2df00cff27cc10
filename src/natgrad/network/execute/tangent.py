"""Moments and a direction in; how the targets, and the expected log density of each observation, change along it, out.

P is a polynomial, so its derivative along a direction v is one too: the sum, over the random factors of each monomial, of the
monomial with that factor read from v instead of μ. Its gradient by μ_i is (H v)_i, H = ∂²P/∂μ∂μ: a target of another polynomial,
which either backend can do. Nothing is approximated, and nothing of the size of H is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import PlannedTerm
from natgrad.network.compile.polynomial import Monomial
from natgrad.network.execute.addressing import Labelled, Piece, read_factor
from natgrad.network.execute.program import Program
from natgrad.network.execute.second_derivatives import MOST, SecondDerivatives

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["Tangent"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]


class Tangent:
    """Derivatives of a problem's polynomial along directions of the moments."""

    def __init__(self, problem: NetworkProblem) -> None:
        self.problem = problem
        self.program: Program = problem.program
        self._pieces: dict[int, tuple[Piece, Piece]] = {}
        # Interpreted and without weights: H as a matrix, whose numbers are few.
        interpreted = problem.interpreter is not None and not problem.plan.weights
        self.has_matrix = interpreted and SecondDerivatives.count(problem) <= MOST
        self._matrix: SecondDerivatives | None = None

    def matrix(self, mu: Moments) -> Any:
        """H itself, dense or sparse, over the statistics of all blocks one after the other."""
        if self._matrix is None:
            self._matrix = SecondDerivatives(self.problem)
        return self._matrix(mu)

    def targets(self, mu: Moments, direction: Moments) -> dict[str, Stats]:
        """The change of every block's target when the moments move along the direction."""
        blocks = self.problem.blocks

        def build() -> Callable[..., Any]:
            return lambda mu, direction, known: {
                name: self._target(name, mu, {**mu, **_renamed(direction)}, known) for name in blocks
            }

        changes: dict[str, Stats] = self.problem.compiled("tangent", build)(dict(mu), dict(direction))
        return {name: tuple(np.asarray(part) for part in stats) for name, stats in changes.items()}

    def _target(self, name: str, mu: Moments, moments: Moments, known: Any) -> Stats:
        program, block = self.program, self.problem.blocks[name]
        total: Stats = tuple(program.backend.xp.zeros_like(part) for part in mu[name])
        for term in self.problem.plan.terms_of(name):
            dropped = program.dropped(block, term)
            here: Stats = tuple(program.backend.xp.zeros_like(part) for part in mu[name])
            for piece in program.pieces(term, dropped):
                moved = self._piece(piece)
                if moved.monomials:
                    gradient = program.gradient(moved, block, moments, known)
                    here = tuple(a + b for a, b in zip(here, gradient, strict=True))
            here = program.unweighted(block, dropped, here, known)
            total = tuple(a + b for a, b in zip(total, here, strict=True))
        return block.family.project(total)

    def _piece(self, piece: Piece) -> Piece:
        """The derivative of a piece; what has only one random factor is linear, and has no part in H."""
        if id(piece) not in self._pieces:  # kept beside its derivative, because it is known by its place in memory
            monomials = tuple(moved for m in piece.monomials for moved in _moved(m, least=2))
            self._pieces[id(piece)] = piece, piece._replace(monomials=monomials)
        return self._pieces[id(piece)][1]

    def rows(self, mu: Moments, direction: Moments) -> dict[str, npt.NDArray[np.float64]]:
        """The change of the expected log density of every element of the observed nodes, over their plates; 0 where missing."""
        plan = self.problem.plan
        observed = [name for name, node in plan.nodes.items() if node.is_observed]

        def build() -> Callable[..., Any]:
            def function(mu: Moments, direction: Moments, known: Any) -> dict[str, Array]:
                moments = {**mu, **_renamed(direction)}
                return {name: self._rows(plan.terms[name], moments, known) for name in observed}

            return function

        changes = self.problem.compiled("tangent rows", build)(dict(mu), dict(direction))
        return {name: np.asarray(rows) for name, rows in changes.items()}

    def _rows(self, term: PlannedTerm, moments: Moments, known: Any) -> Array:
        on, sizes = self.program.backend, tuple(term.sizes[plate] for plate in term.plates)
        total: Array = on.xp.zeros(sizes)
        for monomial in (moved for m in term.monomials for moved in _moved(m)):
            factors: list[Labelled] = [read_factor(factor, moments, known) for factor in monomial.factors]
            there = {label for factor in factors for label in factor.labels}
            value = on.contract(tuple(plate for plate in term.plates if plate in there), factors)
            spread = tuple(slice(None) if plate in there else None for plate in term.plates)
            total = total + monomial.coefficient * on.xp.asarray(value)[spread]
        return total


def _moved(monomial: Monomial, least: int = 1) -> list[Monomial]:
    """The monomial's derivative: one random factor after the other read from the direction."""
    places = [place for place, factor in enumerate(monomial.factors) if not factor.known]
    if len(places) < least:
        return []
    return [
        monomial._replace(
            factors=tuple(
                factor._replace(source=_key(factor.source)) if here == place else factor
                for here, factor in enumerate(monomial.factors)
            ),
        )
        for place in places
    ]


def _key(name: str) -> str:
    """Where a direction stands among the moments; no node has such a name."""
    return f"\0{name}"


def _renamed(direction: Moments) -> dict[str, Stats]:
    return {_key(name): stats for name, stats in direction.items()}
