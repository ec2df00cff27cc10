"""Gaussian numbers that are drawn together, written out: what monomials say of them in, tables of A and b out.

Numbers come in an order in which those that meet few others are first: rows of A are held from their first column that is not
always 0, and its factor has no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.kernels.network.gibbs import GAUSSIAN, SCALE
from natgrad.network.compile.plan import Plan
from natgrad.network.draws.layout import Layout

__all__ = ["GaussianSets", "Group", "Unsuitable"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# Numbers that are drawn together: beyond it LAPACK is quicker.
LARGEST = 60


class Unsuitable(Exception):
    """A network that is drawn by other means; the reason in words."""


class Group(NamedTuple):
    """Gaussian nodes that are drawn together, with the precisions that are drawn before them."""

    names: tuple[str, ...]
    scales: tuple[str, ...]


class _Said(NamedTuple):
    """What products say of pairs of numbers, or of single ones (a second one of −1)."""

    one: Ints
    two: Ints
    coefs: Floats
    places: list[Ints]


class _Set:
    """Numbers that are drawn together: their order, and how A is held."""

    def __init__(self, numbers: Ints, met: npt.NDArray[np.bool_]) -> None:
        order = np.argsort(met.sum(1), kind="stable")
        self.numbers, met = numbers[order], met[np.ix_(order, order)]
        size = len(numbers)
        self.first = np.array([int(np.flatnonzero(met[i, : i + 1])[0]) if met[i, : i + 1].any() else i for i in range(size)])
        lengths = np.arange(size) + 1 - self.first
        self.begin = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        self.n_held = int(lengths.sum())
        self.table = 0

    @property
    def count(self) -> int:
        """Numbers of A and b."""
        return self.n_held + len(self.numbers)


class GaussianSets:
    """All of them in a network.

    Parameters
    ----------
    plan : Plan, without chains
    groups : nodes that are drawn together; each element of a vector that is in none is a set of its own
    layout : Layout
    """

    def __init__(self, plan: Plan, groups: Sequence[Group], layout: Layout) -> None:
        self.layout, self.said = layout, list[_Said]()
        self.scales: dict[int, tuple[str, ...]] = {}
        self.set_of: dict[Group | str, list[int]] = {}
        self.one, self.two = np.full(layout.n_stats, -1), np.full(layout.n_stats, -1)
        members: list[list[int]] = []
        self.variables: list[tuple[int, int, int]] = []
        grouped = {name for group in groups for name in group.names}
        for group in groups:
            own = [n for name in group.names for n in self._numbered(plan, name)]
            self.set_of[group], self.scales[len(members)] = [len(members)], group.scales
            members.append(own)
        for name, block in plan.blocks.items():
            if block.family.name == "MultivariateNormal" and name not in grouped:
                size = layout.stat_shapes[name][0][-1]
                rows = np.array(self._numbered(plan, name)).reshape(-1, size).tolist()
                self.set_of[name] = list(range(len(members), len(members) + len(rows)))
                members += rows
        if any(len(own) > LARGEST for own in members):
            raise Unsuitable(f"more than {LARGEST} numbers are drawn together")
        self.members = members
        self.sets: list[_Set] = []
        self.first_rows: dict[tuple[int, str | None], int] = {}
        self.n_rows = layout.n_stats

    def _numbered(self, plan: Plan, name: str) -> list[int]:
        """Numbers of all elements of a node; where its statistics are, their places say which numbers they are of."""
        layout, begin = self.layout, len(self.variables)
        first, second = layout.places(name, 0), layout.places(name, 1)
        own = begin + np.arange(first.size).reshape(first.shape)
        for n, place in enumerate(first.reshape(-1).tolist()):
            self.variables.append((place, layout.values[name] + n, layout.averages[name] + n))
        self.one[first] = own
        vectors = plan.blocks[name].family.name == "MultivariateNormal"
        self.one[second] = own[..., :, None] if vectors else own
        self.two[second] = own[..., None, :] if vectors else own
        return own.reshape(-1).tolist()  # type: ignore[no-any-return]

    def add(self, own: Sequence[Ints], coefs: Floats, places: list[Ints]) -> None:
        """A monomial with one or two factors of a set, at these places, and others."""
        one, two = self.one[own[0]], self.two[own[0]]
        if len(own) == 2 and (two < 0).all() and (self.two[own[1]] < 0).all():
            two = self.one[own[1]]
        elif len(own) > 1:
            raise Unsuitable("its Gaussian nodes meet in more than pairs")
        there = coefs != 0.0
        self.said.append(_Said(one[there], two[there], coefs[there], [place[there] for place in places]))

    def arrange(self, n_rows: int, add: Callable[[Ints, Floats, Sequence[Ints]], None]) -> None:
        """Orders, and rows for all numbers of A and b."""
        n, set_of = len(self.variables), np.zeros(len(self.variables), np.int64)
        rank, begin, first, held = (np.zeros(n, np.int64) for _ in range(4))
        for number, own in enumerate(self.members):
            set_of[own] = number
        local = np.zeros(n, np.int64)
        met = [np.eye(len(own), dtype=bool) for own in self.members]
        for own in self.members:
            local[own] = np.arange(len(own))
        for said in self.said:
            pairs = said.two >= 0
            for number, one, two in np.unique(
                np.stack([set_of[said.one[pairs]], local[said.one[pairs]], local[said.two[pairs]]]), axis=1
            ).T.tolist():
                met[number][one, two] = met[number][two, one] = True
        base, table = n_rows, 0
        bases = self.first_rows
        for number, own in enumerate(self.members):
            entry = _Set(np.array(own), met[number])
            entry.table, table = table, table + len(own)
            self.sets.append(entry)
            rank[entry.numbers] = np.arange(len(own))
            begin[entry.numbers], first[entry.numbers], held[entry.numbers] = entry.begin, entry.first, entry.n_held
            for scale in self.scales.get(number) or (None,):
                for key in ((number, scale), (number, None if scale is None else f"{scale} slope")):
                    if key not in bases:
                        bases[key] = base
                        base += entry.count
        self.n_rows = base
        for said in self.said:
            one, two = said.one, np.maximum(said.two, 0)
            pairs = said.two >= 0
            later = np.where(rank[one] >= rank[two], one, two)
            place = begin[later] + np.minimum(rank[one], rank[two]) - first[later]
            place = np.where(pairs, place, held[one] + rank[one])
            coefs = said.coefs * np.where(pairs, np.where(said.one == said.two, -2.0, -1.0), 1.0)
            for number in np.unique(set_of[one]).tolist():
                self._say(number, set_of[one] == number, place, coefs, said.places, bases, add)

    def _say(
        self, number: int, mine: npt.NDArray[np.bool_], place: Ints, coefs: Floats, places: list[Ints],
        bases: dict[tuple[int, str | None], int], add: Callable[[Ints, Floats, Sequence[Ints]], None],
    ) -> None:  # fmt: skip
        """Products of one set in the rows of all its forms: at given precisions, and as affine functions of each."""
        place, coefs, places = place[mine], coefs[mine], [own[mine] for own in places]
        scales = self.scales.get(number, ())
        if not scales:
            add(bases[number, None] + place, coefs, places)
        for scale in scales:
            value, log = self.layout.stats[scale, 0], self.layout.stats[scale, 1]
            reads = [own == value for own in places]
            if any((own == log).any() for own in places) or (len(reads) > 1 and (np.sum(reads, 0) > 1).any()):
                raise Unsuitable(f"its Gaussian nodes are not linear in {scale!r}")
            slope = np.any(reads, axis=0) if reads else np.zeros(len(place), dtype=bool)
            rest = [np.where(is_read, 0, own) for is_read, own in zip(reads, places, strict=True)]
            add(bases[number, scale] + place[~slope], coefs[~slope], [own[~slope] for own in places])
            add(bases[number, f"{scale} slope"] + place[slope], coefs[slope], [own[slope] for own in rest])

    # -- tables --

    def tables(self) -> tuple[Ints, Ints, Ints]:
        """How matrices are held, numbers, and products of numbers."""
        held = [np.stack([entry.first, entry.begin], 1) for entry in self.sets]
        numbers = np.array(self.variables, np.int64).reshape(-1, 3)
        ordered = [numbers[entry.numbers] for entry in self.sets]
        return (
            np.concatenate([np.zeros((0, 2), np.int64), *held]),
            np.concatenate([np.zeros((0, 3), np.int64), *ordered]), self.outer[0],
        )  # fmt: skip

    @cached_property
    def outer(self) -> tuple[Ints, list[int]]:
        """Places of second moments, with the two numbers of each by their order in their set; where those of each set end."""
        rank = np.zeros(len(self.variables) + 1, np.int64)
        for entry in self.sets:
            rank[entry.numbers] = np.arange(len(entry.numbers))
        slots = np.flatnonzero(self.two >= 0)
        by_set = np.zeros(len(self.variables) + 1, np.int64)
        for number, own in enumerate(self.members):
            by_set[own] = number
        slots = slots[np.argsort(by_set[self.one[slots]], kind="stable")]
        counts = np.bincount(by_set[self.one[slots]], minlength=len(self.members))
        table = np.stack([slots, rank[self.one[slots]], rank[self.two[slots]]], 1).astype(np.int64)
        return table, np.concatenate([[0], np.cumsum(counts)]).tolist()

    def ops_of_group(self, group: Group) -> list[list[int]]:
        """The precisions of a group one after the other, and its numbers with the last of them."""
        (number,) = self.set_of[group]
        if not group.scales:
            return [self._op(number)]
        return [self._op(number, scale, scale == group.scales[-1]) for scale in group.scales]

    def ops_of_vectors(self, name: str) -> list[list[int]]:
        """One for each vector."""
        return [self._op(number) for number in self.set_of[name]]

    def _op(self, number: int, scale: str | None = None, whole: bool = True) -> list[int]:
        entry, layout = self.sets[number], self.layout
        place = [0, 0, 0, 0]
        if scale is not None:
            place = [layout.stats[scale, 0], layout.stats[scale, 1], layout.values[scale], layout.averages[scale]]
        ends = self.outer[1][number : number + 2]
        kind = GAUSSIAN if scale is None else SCALE
        return [kind, *place, len(entry.numbers), 1, self.first_rows[number, scale], entry.table, *ends, int(whole)]
