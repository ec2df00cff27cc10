"""Columns that meet one another in a polynomial: their moments in, its gradient by one after the other out, for NumPy.

Where a monomial has two columns c and d of a node, as the square of Σ_d w_d x_d has, what it says to column c is

    ∂P/∂x_c = 2 w_c · S · …,        S = Σ_d w_d x_d.

S is added up once for all turns; after a turn, it follows what its column has changed by. So a turn costs what one column costs,
and a round over C columns C of these instead of C².
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import numpy as np

from natgrad.network.execute.addressing import FULL, Piece, Reader
from natgrad.network.execute.lower import Job, Reads, lower_product, times_unread
from natgrad.network.polynomial import Factor, Label, Monomial, Take, readings

__all__ = ["ColumnSlopes"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]


class _Sum:
    """A sum over columns, as a factor of a product."""

    def __init__(self, labels: tuple[Label, ...]) -> None:
        self.labels, self.known = labels, False


class _Meeting(NamedTuple):
    """One column in one monomial, and the sum over those that it meets."""

    reader: Reader  # of the column
    outer: list[Any]  # all that the column is multiplied with; the sum is one of them
    scale: float
    cut: Label
    sum: _Sum
    inner: list[Reader]  # what is multiplied with each column of the sum
    column: Reader  # all columns, as the sum reads them
    summed: Label
    met: Reader  # one column, as the sum reads it


class _Round(NamedTuple):
    """The functions of a meeting, for given known arrays."""

    others: Callable[[list[Array]], Array]
    spread: tuple[Any, ...]  # axes of length one for labels that the others do not have
    back: Callable[[Array], Array] | None
    whole: Callable[[list[Array]], Array]  # the sum
    column: Callable[[list[Array]], Array]  # what one column adds to it
    places: tuple[int, int]  # of the sum and of the column that changed, among the operands


@final
class ColumnSlopes:
    """The gradient of a piece by one column of a node after the other, while they change."""

    def __init__(self, on: Any, piece: Piece, name: str, axis: int) -> None:
        self.on, self.piece, self.name, self.axis = on, piece, name, axis
        found = [_meetings(monomial, piece, name, axis) for monomial in piece.monomials]
        self.meetings = [meeting for part in found if part is not None for meeting in part]
        rest = tuple(m for m, part in zip(piece.monomials, found, strict=True) if part is None)
        self.rest = Job([piece._replace(monomials=rest)], name, axis=axis) if rest else None
        self._operands: list[Array] = []
        self._reads: Reads | None = None
        self._rounds: list[_Round] = []
        self._shapes: list[tuple[int, ...]] = []
        self._last: tuple[int, Stats] | None = None  # the column that had its turn, as it was before

    def begin(self) -> None:
        """Forget the sums: the next turn is the first of a round."""
        self._last = None

    def at(self, number: int, moments: Moments, known: Known) -> Stats:
        """The gradient by one column; since the last turn, only the column of that has changed."""
        stats = moments[self.name]
        if self._last is None:
            self._add_up(moments, known)
        else:
            self._follow(stats, known)
        x, total = self._operands, [np.zeros(shape) for shape in self._shapes]
        if self.rest is not None:
            total = list(self.rest.at(self.on, moments, known, FULL, number))
        x[0] = number
        for meeting, here in zip(self.meetings, self._rounds, strict=True):
            slope, stat = np.asarray(here.others(x))[here.spread], meeting.reader.stat
            total[stat] = total[stat] + (slope if here.back is None else here.back(slope))
        self._last = number, tuple(np.array(self.on.take_column(part, number, self.axis)) for part in stats)
        return tuple(total)

    def _add_up(self, moments: Moments, known: Known) -> None:
        """The sums over all columns."""
        shapes = [(*s.shape[: self.axis], *s.shape[self.axis + 1 :]) for s in moments[self.name]]
        if self._reads is None or self._reads.known is not known or self._shapes != shapes:
            self._reads, self._shapes = Reads(known, moments=moments), shapes
            self._rounds = [self._round(meeting, self._reads, moments) for meeting in self.meetings]
            self._reads.forget()
        x = self._operands = self._reads(moments)
        for here in self._rounds:
            # A sum is changed in place, and a product of one array would be the array itself.
            x[here.places[0]] = np.array(here.whole(x))

    def _follow(self, stats: Stats, known: Known) -> None:
        """Add the change of the last column to the sums."""
        assert self._last is not None
        x, (number, before) = self._operands, self._last
        x[0] = number
        for meeting, here in zip(self.meetings, self._rounds, strict=True):
            (at_sum, at_met), stat = here.places, meeting.met.stat
            change = self.on.take_column(stats[stat], number, self.axis) - before[stat]
            x[at_met] = meeting.met.read(change, known)
            x[at_sum] += here.column(x)

    def _round(self, meeting: _Meeting, reads: Reads, moments: Moments) -> _Round:
        on, total, met, reader = self.on, meeting.sum, meeting.met, meeting.reader
        whole = lower_product(on, reads, [*meeting.inner, meeting.column], 1.0, total.labels).function
        assert whole is not None
        at_sum = reads.put(total, self.name, whole(reads.first))
        first = np.take(moments[self.name][met.stat], 0, axis=self.axis)
        at_met = reads.put(met, self.name, met.read(first, reads.known))
        column = lower_product(on, reads, [*meeting.inner, met], 1.0, total.labels, meeting.summed).function
        others = lower_product(on, reads, meeting.outer, meeting.scale, reader.distinct, meeting.cut)
        assert column is not None
        assert others.function is not None
        spread = tuple(slice(None) if label in others.out else None for label in reader.distinct)
        back = None if reader.plain else reader.adjoint(self._shapes[reader.stat], reads.known, FULL)
        return _Round(others.function, spread, back, whole, column, (at_sum, at_met))


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
    readers = [Reader(factor) for factor in factors]
    scale = monomial.coefficient * times_unread(monomial, monomial.labels, piece)
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
    return _Meeting(reader, [*outer, total], scale, cut, total, inner, readers[other], summed, met)


def _label(factor: Factor, axis: int) -> Label:
    label = factor.axes[axis]
    assert not isinstance(label, Take)
    return label


def _without(factor: Factor, axis: int) -> Reader:
    axes = (*factor.axes[:axis], *factor.axes[axis + 1 :])
    return Reader(Factor(factor.source, factor.stat, axes, False), gone=axis)
