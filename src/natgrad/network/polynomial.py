"""The expected log joint as a symbolic polynomial in moments: factors, monomials and their algebra.

A conditional's expected log density is built from these with ``+`` and ``*`` and nothing else; the compiler then only
has to evaluate monomials. A factor is one statistic of one node (or one array of known numbers) together with what
each of its axes means inside the term: a label, or a `Take`, an index map onto other labels (a gather).

A small network is fitted in the time that its hundreds of factors take to be made, compared and looked up: they are tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "Axis",
    "Delta",
    "Factor",
    "Label",
    "Mark",
    "Monomial",
    "Polynomial",
    "Take",
    "number",
    "ordered_labels",
    "readings",
]


class Mark(NamedTuple):
    """A label made by the compiler. Plates are labelled by their names, and no name that a user chooses equals a mark.

    Fresh labels of a term count from 0; marks that mean the same in every term have the number −1.
    """

    stem: str
    number: int = -1


Label = str | Mark


@dataclass(frozen=True, slots=True)
class Take:
    """An axis that is read through an index array: ``index`` names it, ``labels`` are the axes the array lives on."""

    index: str
    labels: tuple[Label, ...]


Axis = Label | Take


class Factor(NamedTuple):
    """Statistic ``stat`` of node ``source``, or the known array ``source``, with the meaning of every axis.

    ``occurrence`` tells apart two readings of one node in one term (``skill[winner] − skill[loser]``).
    """

    source: str
    stat: int
    axes: tuple[Axis, ...]
    known: bool
    occurrence: int = 0

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of the evaluated factor, gathers carried out."""
        for axis in self.axes:
            if isinstance(axis, Take):
                break
        else:
            return self.axes  # type: ignore[return-value]  # labels all
        return tuple(label for axis in self.axes for label in (axis.labels if isinstance(axis, Take) else (axis,)))

    def relabelled(self, names: Mapping[Label, Label]) -> Factor:
        """The same factor with axes renamed."""
        axes: list[Axis] = []
        for axis in self.axes:
            if isinstance(axis, Take):
                axes.append(Take(axis.index, tuple(names.get(label, label) for label in axis.labels)))
            else:
                axes.append(names.get(axis, axis))
        return self._replace(axes=tuple(axes))


class Delta(NamedTuple):
    """δ(i, j): the two labels are the same; what a diagonal matrix contributes to a product."""

    first: Label
    second: Label


class Monomial(NamedTuple):
    """A coefficient times factors; ``counted`` names plates whose sum has been carried out already.

    ``place`` is where a compiled program finds the coefficient among its arguments; None where it is written into the program.
    """

    coefficient: float
    factors: tuple[Factor, ...] = ()
    deltas: tuple[Delta, ...] = ()
    counted: frozenset[Label] = frozenset()
    place: int | None = None

    @property
    def labels(self) -> set[Label]:
        """Every label that some factor carries."""
        return {label for factor in self.factors for label in factor.labels}

    def settled(self) -> Monomial:
        """The same monomial with every δ carried out by renaming."""
        factors = self.factors
        for delta in self.deltas:
            factors = tuple(factor.relabelled({delta.second: delta.first}) for factor in factors)
        return Monomial(self.coefficient, factors)


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials. Multiplication distributes, so products of sums are written out."""

    monomials: tuple[Monomial, ...] = ()

    def __add__(self, other: Polynomial | float) -> Polynomial:
        return Polynomial((*self.monomials, *_as_polynomial(other).monomials))

    def __sub__(self, other: Polynomial | float) -> Polynomial:
        return self + (-1.0) * _as_polynomial(other)

    def __mul__(self, other: Polynomial | float) -> Polynomial:
        right = _as_polynomial(other)
        return Polynomial(
            tuple(
                Monomial(a.coefficient * b.coefficient, a.factors + b.factors, a.deltas + b.deltas)
                for a in self.monomials
                for b in right.monomials
            )
        )

    __radd__ = __add__
    __rmul__ = __mul__

    @staticmethod
    def of(factors: Iterable[Factor], *deltas: Delta) -> Polynomial:
        """A single monomial with coefficient one."""
        return Polynomial((Monomial(1.0, tuple(factors), tuple(deltas)),))


def ordered_labels(factors: Iterable[Factor]) -> dict[Label, None]:
    """The labels of some factors in order of appearance, which no name of a plate can change."""
    return dict.fromkeys(label for factor in factors for label in factor.labels)


def readings(
    monomial: Monomial, name: str, occurrence: int | None, symmetric: Collection[tuple[str, int]]
) -> list[tuple[int, float]]:
    """Where a node stands among the factors of a monomial, and how often: two that can change places say the same."""
    places = [
        place
        for place, factor in enumerate(monomial.factors)
        if factor.source == name and not factor.known and occurrence in (None, factor.occurrence)
    ]
    if len(places) == 2 and _change_places(monomial, places[0], places[1], symmetric):
        return [(places[0], 2.0)]
    return [(place, 1.0) for place in places]


def _change_places(monomial: Monomial, first: int, second: int, symmetric: Collection[tuple[str, int]]) -> bool:
    """Whether the monomial stays as it is when the labels of two of its factors are exchanged; no statistic is symmetric else."""
    a, b = monomial.factors[first], monomial.factors[second]
    if a.stat != b.stat or [x for x in a.axes if isinstance(x, Take)] != [x for x in b.axes if isinstance(x, Take)]:
        return False
    names: dict[Label, Label] = {}
    for one, other in zip(a.labels, b.labels, strict=True):
        if names.setdefault(one, other) != other or names.setdefault(other, one) != one:
            return False

    def plain(factor: Factor) -> Factor:
        """The last two axes of a symmetric matrix in one order."""
        if factor.known or (factor.source, factor.stat) not in symmetric:
            return factor._replace(occurrence=0)
        last = tuple(sorted(factor.axes[-2:], key=str))
        return factor._replace(axes=(*factor.axes[:-2], *last), occurrence=0)

    rest = [factor for place, factor in enumerate(monomial.factors) if place not in (first, second)]
    before = Counter(plain(factor) for factor in rest)
    return before == Counter(plain(factor.relabelled(names)) for factor in rest)


def number(value: float) -> Polynomial:
    """A constant polynomial; zero has no monomials at all."""
    return Polynomial((Monomial(float(value)),)) if value != 0 else Polynomial()


def _as_polynomial(value: Polynomial | float) -> Polynomial:
    return value if isinstance(value, Polynomial) else number(value)
