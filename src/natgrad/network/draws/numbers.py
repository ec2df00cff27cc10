"""A network in, its log joint written out in numbers out: tables for one compiled loop (`natgrad.kernels.network.gibbs`).

Every statistic of every hidden element has a place; place 0 is a 1. A monomial is written out over the labels of its random
factors: a coefficient, from its known ones, and the places that it multiplies. The derivative by one of them is the product of
the others: a row for each place. Of Gaussian nodes that are drawn together the rows are those of A and b, their numbers in an
order in which those that meet few others come first, so that the factor of A keeps most of its zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block
from natgrad.kernels.network import gibbs as kernel
from natgrad.kernels.network.gibbs import Tables
from natgrad.network.compile.polynomial import Factor, Monomial, Take, ordered_labels
from natgrad.network.draws.gaussian_sets import GaussianSets, Group, Unsuitable
from natgrad.network.draws.labels import Relabelling
from natgrad.network.draws.layout import Layout
from natgrad.network.draws.moves import label_tables
from natgrad.network.execute.addressing import FULL, Piece
from natgrad.network.execute.interpreter import Reader
from natgrad.network.execute.program import Program

__all__ = ["Group", "Layout", "Numbers", "Unsuitable", "written_in_numbers"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
KINDS = {
    "Normal": kernel.NORMAL,
    "Gamma": kernel.GAMMA,
    "Beta": kernel.BETA,
    "Bernoulli": kernel.BERNOULLI,
    "Categorical": kernel.CATEGORICAL,
    "Dirichlet": kernel.DIRICHLET,
}
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
    labels = list(ordered_labels(random))
    shape = tuple(piece.sizes[label] for label in labels)
    # A sum over a plate that no factor has is a multiplication.
    present = set(monomial.labels) | set(monomial.counted)
    scale = monomial.coefficient * math.prod(piece.sizes[p] for p in piece.plates if p not in present)
    coefs: Any = np.float64(scale)
    readers = [Reader(f, (), {}) for f in monomial.factors if f.known]
    if readers:
        numbers = {label: n for n, label in enumerate(dict.fromkeys([*labels, *(x for r in readers for x in r.labels)]))}
        out = [numbers[label] for label in labels if any(label in r.labels for r in readers)]
        operands: list[Any] = []
        for reader in readers:
            operands += [np.asarray(reader.array({}, program.known, FULL), np.float64), [numbers[x] for x in reader.labels]]
        coefs = scale * np.einsum(*operands, out)
        coefs = np.reshape(coefs, [size if numbers[x] in out else 1 for x, size in zip(labels, shape, strict=True)])
    at = dict(zip(labels, np.indices(shape, sparse=True) if labels else (), strict=True))
    places = []
    for factor in random:
        own, flat = layout.stat_shapes[factor.source][factor.stat], np.zeros((), dtype=np.int64)
        for axis, size in zip(factor.axes, own, strict=True):
            if isinstance(axis, Take):
                index = program.known[axis.index]
                flat = flat * size + (index[tuple(at[x] for x in axis.labels)] if axis.labels else np.asarray(index))
            else:
                flat = flat * size + at[axis]
        places.append(np.broadcast_to(layout.stats[factor.source, factor.stat] + flat, shape).reshape(-1))
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


def written_in_numbers(program: Program, groups: Sequence[Group], layout: Layout, relabel: Relabelling) -> Numbers:
    """The tables of a network without chains; `Unsuitable` where it has something that the compiled loop has not."""
    grouped = {name for group in groups for name in group.names}
    for name, block in program.plan.blocks.items():
        if name not in grouped and block.family.name not in (*KINDS, "MultivariateNormal"):
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
            elif self.plan.blocks[factor.source].family.name == "MultivariateNormal":
                self.sets.add([own], written.coefs, [written.places[n] for n in others])
            else:
                scaled = self.scale_of.get(factor.source)
                if scaled is None or not any(source in scaled.names for source in sources):
                    self.rows.add(own, written.coefs, [written.places[n] for n in others])

    def numbers(self, relabel: Relabelling) -> Numbers:
        """All tables."""
        ops: list[list[int]] = []
        drawn: list[str] = []
        for name, block in self.plan.blocks.items():
            if name in self.scale_of:
                continue
            group = self.group_of.get(name)
            if group is not None:
                own = self.sets.ops_of_group(group) if name == group.names[0] else []
            elif block.family.name == "MultivariateNormal":
                own = self.sets.ops_of_vectors(name)
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
        name, kind, layout = block.name, KINDS[block.family.name], self.layout
        shape = layout.stat_shapes[name][0]
        shares = kind in (kernel.CATEGORICAL, kernel.DIRICHLET)
        size = shape[-1] if shares else 1
        second = layout.stats.get((name, 1), 0)
        count = math.prod(shape) // size
        return [
            kind, layout.stats[name, 0], second, layout.values[name], layout.averages[name], size, count, 0, 0, 0, 0, 0
        ]  # fmt: skip
