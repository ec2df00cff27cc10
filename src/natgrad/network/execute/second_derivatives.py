"""Moments in, H = ∂²P/∂μ∂μ of a network out: a matrix, dense where it is small, and sparse otherwise.

A monomial with factors f₁ f₂ … is affine in each of them. For every two of its random factors, H has the product of the others,
at the places that the two are read from: one number for each combination of their labels. Places are found once, by reading the
numbers of a vector's elements in the stead of its elements; numbers at equal places are added up. Linear response asks for many
products at one state, and a product by H takes as long as H has numbers, however many monomials there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.polynomial import Factor, Label, Monomial
from natgrad.network.execute.addressing import FULL, Piece
from natgrad.network.execute.interpreter import Reader, scale_of
from natgrad.network.execute.numpy_contraction import product_of
from natgrad.network.execute.written_out import Reads

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["SecondDerivatives", "places_of"]

Array = Any
Stats = tuple[Any, ...]
Moments = Mapping[str, Stats]
Labels = tuple[Label, ...]
# Numbers up to which H is made, with some 40 bytes for each; and rows up to which it is dense.
MOST, DENSE = 20_000_000, 1_000


class _Entries(NamedTuple):
    """Numbers of U, H = U + Uᵀ: where they are, and functions of the moments that are added up to them.

    ``into`` says which number each one is added to, where there are many for one place.
    """

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: list[Callable[[Moments], Array]]
    shape: tuple[int, ...]
    into: npt.NDArray[Any] | None = None

    def at(self, mu: Moments) -> Array:
        """The numbers."""
        total = self.values[0](mu)
        for value in self.values[1:]:
            total = total + value(mu)
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
        self._reads = Reads(problem.known_arrays, lambda name: problem.plan.nodes[name].stat_shapes())
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
                pairs = {(by, moved) for monomial in piece.monomials for by, moved, _ in _pairs(monomial)}
                total += sum(math.prod(piece.sizes[x] for x in {*by.labels, *moved.labels}) for by, moved in pairs)
        return total

    def __call__(self, mu: Moments) -> Any:
        """H at some moments: an array [P, P], or sparse."""
        n, values = self.size, [entries.at(mu) for entries in self._entries]
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
        by_place: dict[tuple[Factor, Factor], list[Callable[[Moments], Array]]] = {}
        for monomial in piece.monomials:
            for by, moved, others in _pairs(monomial):
                scale = scale_of(monomial, [self._reads.reader(f) for f in (by, moved, *others)], piece, ())
                by_place.setdefault((by, moved), []).append(self._value(_union(self._reads, by, moved), others, scale))
        for (by, moved), values in by_place.items():
            labels = _union(self._reads, by, moved)
            rows, columns = (self._place(factor, labels) for factor in (by, moved))
            shape = np.broadcast_shapes(rows.shape, columns.shape)
            rows, columns = np.broadcast_to(rows, shape), np.broadcast_to(columns, shape)
            yield self._gathered(by, moved, _Entries(rows.ravel(), columns.ravel(), values, rows.shape))

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
        read = np.asarray(reader.array(self.places, self.problem.known_arrays, FULL))
        return _over(read, reader, labels)

    def _value(self, labels: Labels, others: list[Factor], scale: float) -> Callable[[Moments], Array]:
        """The product of the other factors, over some labels."""
        if not others:
            return lambda mu: scale
        known, readers = self.problem.known_arrays, [self._reads.reader(factor) for factor in others]
        kept = tuple(label for label in labels if any(label in reader.labels for reader in readers))
        shapes = [
            np.shape(reader.array({}, known, FULL)) if factor.known else self._reads.shape(factor)
            for factor, reader in zip(others, readers, strict=True)
        ]
        product = product_of(kept, [reader.labels for reader in readers], shapes)
        wide = tuple(slice(None) if label in kept else None for label in labels)

        def value(mu: Moments) -> Array:
            arrays = [np.asarray(reader.array(mu, known, FULL), np.float64) for reader in readers]
            return (scale * (arrays[0] if product is None else product(*arrays)))[wide]

        if not all(factor.known for factor in others):
            return value
        constant = value({})
        return lambda mu: constant


def _pairs(monomial: Monomial) -> Iterator[tuple[Factor, Factor, list[Factor]]]:
    """Two random factors, and the rest, in every way."""
    random = [place for place, factor in enumerate(monomial.factors) if not factor.known]
    for one, other in combinations(random, 2):
        rest = [factor for place, factor in enumerate(monomial.factors) if place not in (one, other)]
        yield monomial.factors[one], monomial.factors[other], rest


def _union(reads: Reads, by: Factor, moved: Factor) -> Labels:
    return tuple(dict.fromkeys((*reads.reader(by).labels, *reads.reader(moved).labels)))


def _over(array: Array, reader: Reader, labels: Labels) -> Array:
    """An array over its reader's labels, diagonals taken, as one over all labels."""
    if len(reader.distinct) < len(reader.labels):
        number = {label: i for i, label in enumerate(reader.distinct)}
        array = np.einsum(array, [number[label] for label in reader.labels], list(number.values()))
    order = [reader.distinct.index(label) for label in labels if label in reader.distinct]
    wide = tuple(slice(None) if label in reader.distinct else None for label in labels)
    return array.transpose(order)[wide]
