"""Columns that meet one another in a polynomial: their moments in, its gradient by one after the other out, for NumPy.

Where a monomial has two columns c and d of a node, as the square of Σ_d w_d x_d has, what it says to column c is

    ∂P/∂x_c = 2 w_c · S · …,        S = Σ_d w_d x_d.

S is added up once for all turns; after a turn, it follows what its column has changed by. So a turn costs what one column costs,
and a round over C columns C of these instead of C².
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, final

import numpy as np

from natgrad.network.execute.addressing import FULL, Piece
from natgrad.network.execute.interpreter import Product, Reader, Slopes, scale_of
from natgrad.network.polynomial import Factor, Label, Monomial, Take, readings

__all__ = ["ColumnSlopes"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]


class _Sum(NamedTuple):
    """A sum over columns, as a factor of a product."""

    labels: tuple[Label, ...]
    known: bool = False


class _Meeting(NamedTuple):
    """One column in one monomial, and the sum over those that it meets."""

    reader: Reader  # of the column
    spread: tuple[Any, ...]  # axes of length one for labels that the others do not have
    others: Product  # all that the column is multiplied with; the sum is one of them
    sum: _Sum
    whole: Product  # the sum, over all columns
    column: Product  # what one column adds to it
    met: Reader  # one column, as the sum reads it


@final
class ColumnSlopes:
    """The gradient of a piece by one column of a node after the other, while they change.

    ``begin`` is given the moments before the first turn, ``follow`` the change of each column after its turn.
    """

    def __init__(self, piece: Piece, name: str, axis: int) -> None:
        self.name, self.axis = name, axis
        found = [_meetings(monomial, piece, name, axis) for monomial in piece.monomials]
        self.meetings = [meeting for part in found if part is not None for meeting in part]
        rest = tuple(m for m, part in zip(piece.monomials, found, strict=True) if part is None)
        self.rest = Slopes(piece._replace(monomials=rest), name, FULL, axis, None) if rest else None
        self._moments: Moments = {}
        self._known: Known = {}
        self._arrays: dict[Any, Array] = {}
        self._sums: list[Array] = []

    def begin(self, moments: Moments, known: Known) -> None:
        """Add up all columns; ``moments`` are those of the first turn, and the node's are changed in place."""
        self._moments, self._known = moments, known
        used = {r for m in self.meetings for product in (m.others, m.whole) for r in product.random}
        self._arrays = {r: r.array(moments, known, FULL) for r in used if isinstance(r, Reader)}
        # A sum is changed in place, and a product of one array would be the array itself.
        self._sums = [np.array(m.whole.array(self._arrays, known, FULL, None)) for m in self.meetings]

    def at(self, number: int) -> Stats:
        """The gradient by one column."""
        stats = self._moments[self.name]
        shapes = [(*s.shape[: self.axis], *s.shape[self.axis + 1 :]) for s in stats]
        if self.rest is not None:
            total = list(self.rest(self._moments, self._known, FULL, number))
        else:
            total = [np.zeros(shape) for shape in shapes]
        for meeting, added in zip(self.meetings, self._sums, strict=True):
            self._arrays[meeting.sum] = added
            slope = np.asarray(meeting.others.array(self._arrays, self._known, FULL, number))[meeting.spread]
            reader = meeting.reader
            if not reader.plain:
                slope = reader.scattered(slope, shapes[reader.stat], self._known, FULL)
            total[reader.stat] += slope
        return tuple(total)

    def follow(self, number: int, change: Stats) -> None:
        """The column has changed by so much."""
        for meeting, added in zip(self.meetings, self._sums, strict=True):
            self._arrays[meeting.met] = meeting.met.array({self.name: change}, self._known, FULL)
            added += meeting.column.array(self._arrays, self._known, FULL, number)


def _meetings(monomial: Monomial, piece: Piece, name: str, axis: int) -> list[_Meeting] | None:
    """Two columns of a node that meet in a monomial; None where it is otherwise."""
    factors = monomial.factors
    places = [place for place, factor in enumerate(factors) if factor.source == name and not factor.known]
    if len(places) != 2:
        return None
    labels = [factors[place].axes[axis] for place in places]
    if any(isinstance(label, Take) for label in labels) or labels[0] == labels[1]:
        return None
    # A column is singled out by its label alone: no index runs along it, and no factor has both.
    for factor in factors:
        taken = {label for part in factor.axes if isinstance(part, Take) for label in part.labels}
        if taken.intersection(labels) or set(labels) <= set(factor.labels):
            return None
    if any([*factors[place].axes].count(label) != 1 for place, label in zip(places, labels, strict=True)):
        return None
    readers = [Reader(factor, (), {}) for factor in factors]
    scale = scale_of(monomial, readers, piece, ())
    return [
        _meeting(factors, readers, place, places[place == places[0]], axis, scale * times)
        for place, times in readings(monomial, name, None, piece.symmetric)
    ]


def _meeting(
    factors: tuple[Factor, ...], readers: list[Reader], place: int, other: int, axis: int, scale: float
) -> _Meeting:
    cut, summed = (_label(factors[p], axis) for p in (place, other))
    reader, met = (_without(factors[p], axis) for p in (place, other))
    inner = [r for p, r in enumerate(readers) if summed in r.labels and p != other]
    outer = [r for p, r in enumerate(readers) if summed not in r.labels and p != place]
    needed = {label for r in outer for label in r.labels}.union(reader.labels)
    kept = tuple(
        dict.fromkeys(
            label for r in (readers[other], *inner) for label in r.labels if label in needed and label != summed
        )
    )
    total = _Sum(kept)
    others = Product([*outer, total], None, scale, reader.distinct, cut)  # type: ignore[list-item]
    spread = tuple(slice(None) if label in others.out else None for label in reader.distinct)
    whole = Product([*inner, readers[other]], None, 1.0, kept, None)
    column = Product([*inner, met], None, 1.0, kept, summed)
    return _Meeting(reader, spread, others, total, whole, column, met)


def _label(factor: Factor, axis: int) -> Label:
    label = factor.axes[axis]
    assert not isinstance(label, Take)
    return label


def _without(factor: Factor, axis: int) -> Reader:
    axes = (*factor.axes[:axis], *factor.axes[axis + 1 :])
    return Reader(Factor(factor.source, factor.stat, axes, False), (), {}, axis)
