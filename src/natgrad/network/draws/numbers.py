"""Lay the factors of a plan out as flat tables for compiled loops: numbers, sets of Gaussians and moves of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block
from natgrad.kernels.network import gibbs as kernel
from natgrad.kernels.network.gibbs import GAUSSIAN, SCALE, Tables
from natgrad.network.compile.plan import Plan
from natgrad.network.draws.labels import EVENT, LabelSet, Relabelling, _places
from natgrad.network.execute.addressing import Piece, Reader
from natgrad.network.execute.backend import HOST
from natgrad.network.execute.lower import Reads, lower_others
from natgrad.network.execute.program import Program
from natgrad.network.polynomial import Factor, Monomial, ordered_labels

__all__ = ["GaussianSets", "Group", "Layout", "Numbers", "Unsuitable", "label_tables", "written_in_numbers"]

Ints = npt.NDArray[np.int64]


class Layout:
    """Where the numbers of each block are: statistics, values and averages of one chain, one after the other."""

    def __init__(
        self, plan: Plan, values: Mapping[str, tuple[int, ...]], averages: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.stat_shapes = {name: plan.nodes[name].stat_shapes() for name in plan.blocks}
        self.value_shapes, self.average_shapes = values, averages
        stats = {(name, stat): shape for name, own in self.stat_shapes.items() for stat, shape in enumerate(own)}
        self.stats, self.n_stats = _begins(stats, 1)
        self.values, self.n_values = _begins({name: values[name] for name in plan.blocks}, 0)
        self.averages, self.n_averages = _begins({name: averages[name] for name in plan.blocks}, 0)

    def places(self, name: str, stat: int) -> Ints:
        """Those of one statistic, in its shape."""
        shape = self.stat_shapes[name][stat]
        return self.stats[name, stat] + np.arange(math.prod(shape)).reshape(shape)

    def places_of(self, name: str) -> tuple[Ints, ...]:
        """Those of all its statistics."""
        return tuple(self.places(name, stat) for stat in range(len(self.stat_shapes[name])))

    def views(
        self, stats: Floats, values: Floats, sums: Floats, name: str
    ) -> tuple[tuple[Floats, ...], Floats, Floats]:
        """The statistics, values and sums of one block inside the arrays of all blocks [chain, …, number]."""
        own = tuple(_view(stats, self.stats[name, n], shape) for n, shape in enumerate(self.stat_shapes[name]))
        value = _view(values, self.values[name], self.value_shapes[name])
        return own, value, _view(sums, self.averages[name], self.average_shapes[name])


def _begins(shapes: Mapping[Any, tuple[int, ...]], begin: int) -> tuple[dict[Any, int], int]:
    """Where arrays of these shapes begin, one after the other, and where the last one ends."""
    begins = {}
    for name, shape in shapes.items():
        begins[name] = begin
        begin += math.prod(shape)
    return begins, begin


def _view(array: Floats, begin: int, shape: tuple[int, ...]) -> Floats:
    return array[..., begin : begin + math.prod(shape)].reshape((*array.shape[:-1], *shape))


# Numbers come in an order in which those that meet few others are first: rows of A are held from their first column that is not
# always 0, and its factor has no others.

Floats = npt.NDArray[np.float64]
# Numbers that are drawn together: beyond it LAPACK is quicker.
LARGEST = 60


class Unsuitable(Exception):
    """A network that is drawn by other means; the reason in words."""


class Group(NamedTuple):
    """Gaussian nodes that are drawn together, with the precisions that are drawn before them."""

    names: tuple[str, ...]
    scales: tuple[str, ...]


class _Products(NamedTuple):
    """Coefficients of pairs of numbers, or of single ones (a second one of −1), and the places that they multiply."""

    one: Ints
    two: Ints
    coefs: Floats
    places: list[Ints]


class GaussianSets:
    """The sets of numbers of a network that are drawn together: their order, and how A of each is held.

    Parameters
    ----------
    plan : Plan, without chains
    groups : nodes that are drawn together; each element of a vector that is in none is a set of its own
    layout : Layout
    """

    def __init__(self, plan: Plan, groups: Sequence[Group], layout: Layout) -> None:
        self.layout, self.products = layout, list[_Products]()
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
            if _is_vector(block) and name not in grouped:
                size = layout.stat_shapes[name][0][-1]
                rows = np.array(self._numbered(plan, name)).reshape(-1, size).tolist()
                self.set_of[name] = list(range(len(members), len(members) + len(rows)))
                members += rows
        if any(len(own) > LARGEST for own in members):
            raise Unsuitable(f"more than {LARGEST} numbers are drawn together")
        self.members = members
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
        vectors = _is_vector(plan.blocks[name])
        self.one[second] = own[..., :, None] if vectors else own
        self.two[second] = own[..., None, :] if vectors else own
        return own.reshape(-1).tolist()

    def add(self, own: Sequence[Ints], coefs: Floats, places: list[Ints]) -> None:
        """A monomial with one or two factors of a set, at these places, and others."""
        one, two = self.one[own[0]], self.two[own[0]]
        if len(own) == 2 and (two < 0).all() and (self.two[own[1]] < 0).all():
            two = self.one[own[1]]
        elif len(own) > 1:
            raise Unsuitable("its Gaussian nodes meet in more than pairs")
        there = coefs != 0.0
        self.products.append(_Products(one[there], two[there], coefs[there], [place[there] for place in places]))

    def arrange(self, n_rows: int, add: Callable[[Ints, Floats, Sequence[Ints]], None]) -> None:
        """Orders, and rows for all numbers of A and b."""
        set_of, local, rank, begin, first, held = np.zeros((6, len(self.variables)), np.int64)
        met = [np.eye(len(own), dtype=bool) for own in self.members]
        for number, own in enumerate(self.members):
            set_of[own], local[own] = number, np.arange(len(own))
        for one, two, _, _ in self.products:
            one, two = one[two >= 0], two[two >= 0]
            for number, i, j in np.unique(np.stack([set_of[one], local[one], local[two]]), axis=1).T.tolist():
                met[number][i, j] = met[number][j, i] = True
        self.n_rows, self.ordered = n_rows, list[Ints]()
        for number, (unordered, meets) in enumerate(zip(self.members, met, strict=True)):
            order = np.argsort(meets.sum(1), kind="stable")
            numbers, size = np.array(unordered)[order], len(order)
            columns = meets[np.ix_(order, order)].argmax(1)  # each number meets itself
            lengths = np.arange(size) + 1 - columns
            rank[numbers], first[numbers], held[numbers] = np.arange(size), columns, lengths.sum()
            begin[numbers] = np.cumsum(lengths) - lengths
            self.ordered.append(numbers)
            for scale in self.scales.get(number) or (None,):
                for key in ((number, scale), (number, None if scale is None else f"{scale} slope")):
                    if key not in self.first_rows:
                        self.first_rows[key] = self.n_rows
                        self.n_rows += int(lengths.sum()) + size
        self.begins: list[int] = np.cumsum([0, *map(len, self.members)]).tolist()
        self.place_of, self.envelope = (set_of, rank), np.stack([first, begin], 1)
        for one, two, coefs, places in self.products:
            pairs, two = two >= 0, np.maximum(two, 0)
            later = np.where(rank[one] >= rank[two], one, two)
            place = begin[later] + np.minimum(rank[one], rank[two]) - first[later]
            place = np.where(pairs, place, held[one] + rank[one])
            coefs = coefs * np.where(pairs, np.where(one == two, -2.0, -1.0), 1.0)
            for number in np.unique(set_of[one]).tolist():
                self._add_rows(number, set_of[one] == number, place, coefs, places, add)

    def _add_rows(
        self, number: int, mine: npt.NDArray[np.bool_], place: Ints, coefs: Floats, places: list[Ints],
        add: Callable[[Ints, Floats, Sequence[Ints]], None],
    ) -> None:  # fmt: skip
        """Add products of one set to the rows of all its forms: at given precisions, and as affine functions of each."""
        place, coefs, places, bases = place[mine], coefs[mine], [own[mine] for own in places], self.first_rows
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
        ordered = np.concatenate([np.zeros(0, np.int64), *self.ordered])
        return self.envelope[ordered], np.array(self.variables, np.int64).reshape(-1, 3)[ordered], self.outer[0]

    @cached_property
    def outer(self) -> tuple[Ints, list[int]]:
        """Places of second moments, with the two numbers of each by their order in their set; where those of each set end."""
        set_of, rank = self.place_of
        slots = np.flatnonzero(self.two >= 0)
        slots = slots[np.argsort(set_of[self.one[slots]], kind="stable")]
        counts = np.bincount(set_of[self.one[slots]], minlength=len(self.members))
        table = np.stack([slots, rank[self.one[slots]], rank[self.two[slots]]], 1).astype(np.int64)
        return table, np.concatenate([[0], np.cumsum(counts)]).tolist()

    def ops(self, key: Group | str) -> list[list[int]]:
        """One for each set; of a group with precisions these one after the other, and its numbers with the last of them."""
        scales = key.scales if isinstance(key, Group) else ()
        return [
            self._op(number, scale, scale in (None, *scales[-1:]))
            for number in self.set_of[key]
            for scale in scales or (None,)
        ]

    def _op(self, number: int, scale: str | None, whole: bool) -> list[int]:
        layout = self.layout
        place = [0, 0, 0, 0]
        if scale is not None:
            place = [layout.stats[scale, 0], layout.stats[scale, 1], layout.values[scale], layout.averages[scale]]
        ends = self.outer[1][number : number + 2]
        kind = GAUSSIAN if scale is None else SCALE
        return [
            kind,
            *place,
            len(self.members[number]),
            1,
            self.first_rows[number, scale],
            self.begins[number],
            *ends,
            int(whole),
        ]


# Labels that may be put back, as tables for the compiled loop: what lies along them, and what q says of the categories.

STATS, VALUES, FIRST, SECOND = range(4)


def label_tables(relabel: Relabelling | None, layout: Layout) -> tuple[Ints, Ints, Ints, Floats, Ints]:
    """Sets, classes of labels, categories, what q says of these, and what moves."""
    sets: list[list[int]] = []
    classes: list[int] = []
    categories: list[list[int]] = []
    wanted: list[Floats] = [np.zeros(0)]
    moves: list[Ints] = [np.zeros((0, 8), np.int64)]
    for entry in () if relabel is None else relabel.sets:
        assert relabel is not None
        begin, low = len(categories), sum(map(len, moves))
        for name in entry.categories:
            at = sum(map(len, wanted))
            wanted.append(relabel.wanted[name].reshape(-1))
            categories.append([layout.values[name], math.prod(layout.value_shapes[name]), at])
        for name in entry.axes:
            if name in layout.values:
                moves += _moves(relabel, layout, entry, name)
        sets.append([entry.size, len(classes), begin, len(categories), low, sum(map(len, moves))])
        classes += entry.classes.tolist()
    return (
        np.array(sets, np.int64).reshape(-1, 6), np.array(classes, np.int64),
        np.array(categories, np.int64).reshape(-1, 3), np.concatenate(wanted), np.concatenate(moves),
    )  # fmt: skip


def _moves(relabel: Relabelling, layout: Layout, entry: LabelSet, name: str) -> list[Ints]:
    node, axes = relabel.plan.nodes[name], entry.axes[name]
    moves = []
    for number, shape in enumerate(layout.stat_shapes[name]):
        plates = len(node.plates if number == 0 else node.block_plates)
        moves.append(_along(STATS, layout.stats[name, number], shape, _places(axes, plates, len(shape))))
    value, average = layout.value_shapes[name], layout.average_shapes[name]
    is_category = name in entry.categories
    places = [axis for axis in axes if axis != EVENT] if is_category else _places(axes, len(node.plates), len(value))
    moves.append(_along(VALUES, layout.values[name], value, places))
    for buffer in (FIRST,) if is_category else (FIRST, SECOND):
        moves.append(_along(buffer, layout.averages[name], average, _places(axes, len(node.plates), len(average))))
    return moves


def _along(buffer: int, begin: int, shape: tuple[int, ...], axes: Sequence[int]) -> Ints:
    """A row for each number of an array: where it is, and its label and the distance of labels along each of up to three axes."""
    if len(axes) > 3:
        raise Unsuitable("labels lie along more than three axes of a node")
    rows = np.zeros((math.prod(shape), 8), np.int64)
    rows[:, 0], rows[:, 1] = buffer, begin + np.arange(len(rows))
    where = np.indices(shape).reshape(len(shape), -1)
    for number, axis in enumerate(axes):
        rows[:, 2 + 2 * number], rows[:, 3 + 2 * number] = where[axis], math.prod(shape[axis + 1 :])
    return rows if axes else rows[:0]


# Every statistic of every hidden element has a place; place 0 is a 1. A monomial is written out over the labels of its random
# factors: a coefficient, from its known ones, and the places that it multiplies. The derivative by one of them is the product of
# the others: a row for each place. Of Gaussian nodes that are drawn together the rows are those of A and b, their numbers in an
# order in which those that meet few others come first, so that the factor of A keeps most of its zeros.

# Products that are written out, before and after those of the same statistics are added up: beyond it matrices are quicker.
MOST_WRITTEN, MOST_PRODUCTS = 2_000_000, 200_000


class _Written(NamedTuple):
    """A monomial in numbers: coefficients [n], and of each random factor the places that it reads [n]."""

    coefs: Floats
    factors: tuple[Factor, ...]
    places: list[Ints]


def _written(program: Program, layout: Layout) -> Iterator[_Written]:
    total = 0
    for term in program.plan.terms.values():
        for piece in program.pieces(term):
            for monomial in piece.monomials:
                random = [f for f in monomial.factors if not f.known]
                if not random:
                    continue
                total += math.prod(piece.sizes[label] for label in ordered_labels(random))
                if total > MOST_WRITTEN:
                    raise Unsuitable("it has too many products")
                yield _one(program, layout, monomial, piece, random)


def _one(program: Program, layout: Layout, monomial: Monomial, piece: Piece, random: list[Factor]) -> _Written:
    labels = tuple(ordered_labels(random))
    shape = tuple(piece.sizes[label] for label in labels)
    reads, left_out = Reads(program.known), [n for n, f in enumerate(monomial.factors) if not f.known]
    coefs = lower_others(HOST, reads, monomial, piece, left_out, labels).at(np, reads.first, labels)
    places = []
    for factor in random:
        reader, own = Reader(factor), {factor.source: layout.places_of(factor.source)}
        read = reader.over(reader.array(own, program.known), labels)
        places.append(np.broadcast_to(read, shape).reshape(-1))
    return _Written(np.broadcast_to(coefs, shape).reshape(-1), tuple(random), places)


class _Rows:
    """Rows of products, gathered piece by piece."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ints, Floats, list[Ints]]] = []

    def add(self, rows: Ints, coefs: Floats, places: Sequence[Ints]) -> None:
        """Products ``coefs`` times what is at ``places``, each for the row of its own."""
        there = coefs != 0.0
        self.parts.append((rows[there], coefs[there], [own[there] for own in places]))

    def table(self, count: int) -> tuple[Ints, Floats, npt.NDArray[np.int32]]:
        """Row boundaries, coefficients and places; products of the same places are one."""
        width = max([2, *(len(places) for _, _, places in self.parts)])
        rows = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in self.parts)])
        coefs = np.concatenate([np.zeros(0), *(part[1] for part in self.parts)])
        factors = np.zeros((len(rows), width), np.int64)
        end = 0
        for own, _, places in self.parts:
            for column, place in enumerate(places):
                factors[end : end + len(own), column] = place
            end += len(own)
        factors.sort(axis=1)
        order = np.lexsort((*factors.T[::-1], rows))
        rows, coefs, factors = rows[order], coefs[order], factors[order]
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (rows[1:] != rows[:-1]) | (factors[1:] != factors[:-1]).any(1)
        if new.sum() > MOST_PRODUCTS:
            raise Unsuitable("it has too many products")
        begins = np.flatnonzero(new)
        if len(begins):
            coefs = np.add.reduceat(coefs, begins)
        starts = np.searchsorted(rows[begins], np.arange(count + 1))
        return starts, coefs, factors[begins].astype(np.int32)


class Numbers(NamedTuple):
    """The tables of a network, where its numbers are, and which block each operation draws."""

    tables: Tables
    layout: Layout
    drawn: tuple[str, ...]

    @property
    def work(self) -> int:
        """Products of a sweep of one chain, about."""
        return len(self.tables.coefs) + 20 * len(self.tables.ops) + 10 * self.layout.n_values


def written_in_numbers(
    program: Program, groups: Sequence[Group], layout: Layout, relabel: Relabelling | None
) -> Numbers:
    """The tables of a network without chains; `Unsuitable` where it has something that the compiled loop has not."""
    grouped = {name for group in groups for name in group.names}
    for name, block in program.plan.blocks.items():
        if name not in grouped and not _is_vector(block) and block.family.sampler is None:
            raise Unsuitable(f"{name!r} is {block.family.name}")
    return _Writing(program, groups, layout).numbers(relabel)


class _Writing:
    """A network on its way into tables."""

    def __init__(self, program: Program, groups: Sequence[Group], layout: Layout) -> None:
        self.plan, self.layout, self.groups = program.plan, layout, groups
        self.sets = GaussianSets(self.plan, groups, layout)
        self.group_of = {name: group for group in groups for name in group.names}
        self.scale_of = {name: group for group in groups for name in group.scales}
        self.rows = _Rows()
        for written in _written(program, layout):
            self._read(written)
        self.sets.arrange(layout.n_stats, self.rows.add)

    def _read(self, written: _Written) -> None:
        """The derivatives of a monomial by each of its factors; of Gaussian ones, what it says of A and b."""
        sources = [factor.source for factor in written.factors]
        done = set[Group]()
        for number, (factor, own) in enumerate(zip(written.factors, written.places, strict=True)):
            group, others = self.group_of.get(factor.source), list(range(len(sources)))
            others.remove(number)
            if group is not None:
                if group in done:
                    continue
                done.add(group)
                mine = [n for n, source in enumerate(sources) if source in group.names]
                others = [n for n in others if n not in mine]
                self.sets.add([written.places[n] for n in mine], written.coefs, [written.places[n] for n in others])
            elif _is_vector(self.plan.blocks[factor.source]):
                self.sets.add([own], written.coefs, [written.places[n] for n in others])
            else:
                scaled = self.scale_of.get(factor.source)
                if scaled is None or not any(source in scaled.names for source in sources):
                    self.rows.add(own, written.coefs, [written.places[n] for n in others])

    def numbers(self, relabel: Relabelling | None) -> Numbers:
        """All tables."""
        ops: list[list[int]] = []
        drawn: list[str] = []
        for name, block in self.plan.blocks.items():
            if name in self.scale_of:
                continue
            group = self.group_of.get(name)
            if group is not None:
                own = self.sets.ops(group) if name == group.names[0] else []
            elif _is_vector(block):
                own = self.sets.ops(name)
            else:
                own = [self._elements(block)]
            ops += own
            drawn += [name] * len(own)
        starts, coefs, factors = self.rows.table(self.sets.n_rows)
        tables = Tables(
            np.array(ops, np.int64).reshape(-1, 12), starts, coefs, factors, *self.sets.tables(),
            *label_tables(relabel, self.layout),
        )  # fmt: skip
        return Numbers(tables, self.layout, tuple(drawn))

    def _elements(self, block: Block) -> list[int]:
        """The operation that draws the elements of a block, one after the other."""
        name, kind, layout = block.name, getattr(kernel, str(block.family.sampler)), self.layout
        shape = layout.stat_shapes[name][0]
        size = shape[-1] if block.family.stat_ndims[0] else 1
        second = layout.stats.get((name, 1), 0)
        count = math.prod(shape) // size
        return [
            kind, layout.stats[name, 0], second, layout.values[name], layout.averages[name], size, count, 0, 0, 0, 0, 0
        ]  # fmt: skip


def _is_vector(block: Block) -> bool:
    return block.family.is_gaussian and bool(block.family.event_ndim)
