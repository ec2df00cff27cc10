"""Differentiate the targets of all blocks by the moments of others: the Hessian of the polynomials, and its products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import PlannedTerm
from natgrad.network.execute.addressing import Piece
from natgrad.network.execute.lower import Product, Reads, lower_others, product_at
from natgrad.network.execute.program import BoundProgram, Program
from natgrad.network.polynomial import Factor, Label, Monomial

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["SecondDerivatives", "Tangent", "places_of"]

# A monomial with factors f₁ f₂ … is affine in each of them. For every two of its random factors, H has the product of the
# others, at the places that the two are read from: one number for each combination of their labels. Places are found once, by
# reading the numbers of a vector's elements in the stead of its elements; numbers at equal places are added up. Linear response
# asks for many products at one state, and a product by H takes as long as H has numbers, however many monomials there are.

Array = Any
Stats = tuple[Any, ...]
Moments = Mapping[str, Stats]
Labels = tuple[Label, ...]
# Numbers up to which H is made, with some 40 bytes for each; and rows up to which it is dense.
MOST, DENSE = 20_000_000, 1_000


class _Entries(NamedTuple):
    """Numbers of U, H = U + Uᵀ: where they are, and functions of the arrays that are read, added up to them.

    ``into`` says which number each one is added to, where there are many for one place.
    """

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: Sequence[Callable[[list[Array]], Array]]
    shape: tuple[int, ...]
    into: npt.NDArray[Any] | None = None

    def at(self, operands: list[Array]) -> Array:
        """The numbers."""
        total = self.values[0](operands)
        for value in self.values[1:]:
            total = total + value(operands)
        each = np.broadcast_to(total, self.shape).ravel()
        return each if self.into is None else np.bincount(self.into, each, len(self.rows))


class Symmetric(NamedTuple):
    """U + Uᵀ of a sparse U, as products."""

    half: Any

    def __matmul__(self, vector: Array) -> Array:
        return self.half @ vector + self.half.T @ vector

    def toarray(self) -> Array:
        """As an array."""
        half = self.half.toarray()
        return half + half.T


def places_of(problem: NetworkProblem) -> tuple[dict[str, tuple[Array, ...]], int]:
    """The places of the statistics of all blocks in a vector, in their shapes, and its length."""
    places, end = {}, 0
    for name in problem.blocks:
        parts = []
        for shape in problem.plan.nodes[name].stat_shapes():
            size = math.prod(shape)
            parts.append(np.arange(end, end + size, dtype=np.int32).reshape(shape))
            end += size
        places[name] = tuple(parts)
    return places, end


class SecondDerivatives:
    """H of an interpreted network without weights, as a function of the moments."""

    def __init__(self, problem: NetworkProblem) -> None:
        self.problem = problem
        self.places, self.size = places_of(problem)
        self._reads = Reads(problem.known_arrays, shapes=lambda name: problem.plan.nodes[name].stat_shapes())
        self._entries: list[_Entries] = [
            entries
            for term in problem.plan.terms.values()
            for piece in problem.program.pieces(term)
            for entries in self._of_piece(piece)
        ]

    @staticmethod
    def count(problem: NetworkProblem) -> int:
        """Numbers that would be made, at most."""
        total = 0
        for term in problem.plan.terms.values():
            for piece in problem.program.pieces(term):
                pairs = {(m.factors[one], m.factors[other]) for m in piece.monomials for one, other in _pairs(m)}
                total += sum(math.prod(piece.sizes[x] for x in {*by.labels, *moved.labels}) for by, moved in pairs)
        return total

    def __call__(self, mu: Moments) -> Any:
        """H at some moments: an array [P, P], or sparse."""
        operands = self._reads(mu)
        n, values = self.size, [entries.at(operands) for entries in self._entries]
        if n <= DENSE:
            total = np.zeros(n * n)
            for entries, value in zip(self._entries, values, strict=True):
                total += np.bincount(entries.rows * np.int64(n) + entries.columns, value, n * n)
            half = total.reshape(n, n)
            return half + half.T
        from scipy import sparse

        if not values:
            return Symmetric(sparse.csr_array((n, n)))
        rows, columns = (np.concatenate([entries[i] for entries in self._entries]) for i in (0, 1))
        return Symmetric(sparse.coo_array((np.concatenate(values), (rows, columns)), shape=(n, n)).tocsr())

    def _of_piece(self, piece: Piece) -> Iterator[_Entries]:
        on, reads = self.problem.backend, self._reads
        by_place: dict[tuple[Factor, Factor], list[Product]] = {}
        for monomial in piece.monomials:
            for one, other in _pairs(monomial):
                pair = monomial.factors[one], monomial.factors[other]
                product = lower_others(on, reads, monomial, piece, (one, other), self._union(*pair))
                by_place.setdefault(pair, []).append(product)
        for (by, moved), products in by_place.items():
            labels = self._union(by, moved)
            values = [partial(product.at, np, wanted=labels) for product in products]
            rows, columns = (self._place(factor, labels) for factor in (by, moved))
            shape = np.broadcast_shapes(rows.shape, columns.shape)
            rows, columns = np.broadcast_to(rows, shape), np.broadcast_to(columns, shape)
            yield self._gathered(by, moved, _Entries(rows.ravel(), columns.ravel(), values, rows.shape))

    def _union(self, by: Factor, moved: Factor) -> Labels:
        return tuple(dict.fromkeys((*self._reads.reader(by).labels, *self._reads.reader(moved).labels)))

    def _gathered(self, by: Factor, moved: Factor, entries: _Entries) -> _Entries:
        """With one number for each place, where two statistics have fewer pairs of places than numbers."""
        first, second = (self.places[f.source][f.stat] for f in (by, moved))
        if 2 * first.size * second.size > len(entries.rows) or not entries.rows.size:
            return entries
        into = (entries.rows - first.ravel()[0]) * second.size + (entries.columns - second.ravel()[0])
        rows, columns = np.repeat(first.ravel(), second.size), np.tile(second.ravel(), first.size)
        return entries._replace(rows=rows, columns=columns, into=into)

    def _place(self, factor: Factor, labels: Labels) -> Array:
        """The place of each number that a factor reads, over labels of which it has some."""
        reader = self._reads.reader(factor)
        return reader.over(reader.array(self.places, self.problem.known_arrays), labels)


def _pairs(monomial: Monomial) -> Iterator[tuple[int, int]]:
    """The places of two random factors, in every way."""
    return combinations([place for place, factor in enumerate(monomial.factors) if not factor.known], 2)


# P is a polynomial, so its derivative along a direction v is one too: the sum, over the random factors of each monomial, of the
# monomial with that factor read from v instead of μ. Its gradient by μ_i is (H v)_i, H = ∂²P/∂μ∂μ: a target of another
# polynomial, which either backend can do. Nothing is approximated, and nothing of the size of H is made.


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

        def build() -> Callable[..., Any]:
            def function(mu: Moments, direction: Moments, known: Any) -> dict[str, Stats]:
                bound, moments = BoundProgram(self.program, known, changing=True), {**mu, **_renamed(direction)}
                blocks = self.problem.blocks
                return {name: bound.target(block, part=self._along)(moments)[1] for name, block in blocks.items()}

            return function

        changes: dict[str, Stats] = self.problem.compiled("tangent", build)(dict(mu), dict(direction))
        return {name: tuple(np.asarray(part) for part in stats) for name, stats in changes.items()}

    def _along(self, piece: Piece, name: str) -> Piece:
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
            total = total + product_at(on, monomial.factors, moments, known, term.plates, monomial.coefficient)
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
