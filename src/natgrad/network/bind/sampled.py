"""Sampled steps on single rows of chunks: `Children` and `GlobalBatch`, with a store of the rows' own parameters."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import (
    Block,
    BlockInfo,
    ChildSet,
    GlobalResult,
    GroupProblem,
    GroupResult,
    Sampled,
    State,
)
from natgrad.inference.steppers.sampled import step_parts
from natgrad.network.bind.chunk_program import ChunkProgram, ReadyChunk
from natgrad.network.bind.chunked import Chunked, ChunkedEdges
from natgrad.network.bind.chunking import run_starts
from natgrad.network.bind.chunks import Chunks, Known
from natgrad.network.bind.tables import Table
from natgrad.network.bind.windows import ChunkSums, summed
from natgrad.network.compile.incidence import child_sets, present_elements
from natgrad.network.compile.plan import Plan
from natgrad.network.polynomial import Factor, Take

__all__ = ["ChunkBatches", "RowStore", "SampledEdges"]

# Methods that draw single observations (`Children`, `GlobalBatch`) read rows from anywhere in the table. Its known arrays are
# therefore laid out row after row, in memory as long as they are small and in a file that is mapped otherwise. Rows that were
# drawn are put together into a small chunk of the same plan: what is hidden in them is solved there, as in any chunk. A step of
# a chain is read with its whole sequence, which is what is solved.

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
# Bytes of arrays that stay in memory.
IN_MEMORY = 2**28
# Rows of the smallest chunk that is made of drawn ones.
LEAST = 16


class RowStore:
    """All rows of a table that is read in chunks, by their number.

    Parameters
    ----------
    chunks : Chunks
    program : ChunkProgram
    """

    def __init__(self, chunks: Chunks, program: ChunkProgram) -> None:
        self.chunks, self.program = chunks, program
        self.axes = _row_axes(program.plan, chunks.plate)
        self._arrays: dict[str, Array] = {}
        self._present: dict[str, Array] = {}
        self._programs: dict[int, ChunkProgram] = {}
        # Of chains: where sequences begin, the first rows of chunks, and the chunks that stay in memory.
        self._starts: list[Ints] = []
        self._begins: list[int] = []
        self._tables: dict[int, Table] = {}
        self._fill()
        self.plan = self._whole_plan()

    def _fill(self) -> None:
        """One pass over the table."""
        begin, constants = 0, dict[str, Array]()
        for table in self.chunks.tables():
            nodes, _ = self.chunks._nodes(table)
            known, end = self.chunks.known(table), begin + table.n_rows
            for key, array in known.items():
                if key not in self.axes:
                    constants[key] = array
                    continue
                rows = np.moveaxis(array, self.axes[key], 0)[: table.n_rows]
                self._room(self._arrays, key, rows)[begin:end] = rows
            for node in nodes:
                if node.name in self.program.rows and node.mask is not None:
                    axis = [plate.name for plate in node.plates].index(self.chunks.plate)
                    rows = np.moveaxis(node.mask > 0, axis, 0)[: table.n_rows]
                    self._room(self._present, node.name, rows)[begin:end] = rows
            if self.chunks.chained:
                self._keep(table, begin)
            begin = end
        self.constants = constants

    def _keep(self, table: Table, begin: int) -> None:
        """A chunk of sequences, in memory as long as there is room."""
        self._starts.append(begin + run_starts(table, self.chunks.cuts.groups))
        size = table.n_rows * sum(table.cells(name).itemsize for name in table.names)
        if begin * size <= IN_MEMORY * table.n_rows:
            self._tables[len(self._begins)] = table
        self._begins.append(begin)

    def _room(self, kept: dict[str, Array], key: str, rows: Array) -> Array:
        """The array of all rows, made when its first rows come."""
        if key not in kept:
            shape = (self.chunks.n_rows, *rows.shape[1:])
            held = sum(array.nbytes for array in (*self._arrays.values(), *self._present.values()))
            if held + rows.dtype.itemsize * int(np.prod(shape)) <= IN_MEMORY:
                kept[key] = np.empty(shape, rows.dtype)
            else:
                with tempfile.TemporaryFile(prefix="natgrad-") as file:  # which goes when the array does
                    kept[key] = np.memmap(file, rows.dtype, "w+", shape=shape)
        return kept[key]

    # -- who reads whom --

    def _whole_plan(self) -> Plan:
        """The plan of all rows, as far as it says who reads whom."""
        plan, plate, n_rows = self.program.plan, self.chunks.plate, self.chunks.n_rows
        terms = {}
        for name, term in plan.terms.items():
            if plate not in term.plates:
                terms[name] = term
                continue
            present = self._present.get(name)
            if present is not None and term.present is not None:
                present = np.moveaxis(present, 0, term.plates.index(plate))
            terms[name] = replace(
                term, sizes={**term.sizes, plate: n_rows}, present=None if term.present is None else present
            )
        known = {key: np.moveaxis(array, 0, self.axes[key]) for key, array in self._arrays.items()}
        return replace(plan, terms=terms, known={**self.constants, **known})

    def child_sets(self, name: str) -> list[ChildSet]:
        """The children of a global. What is hidden in rows is solved with them: its terms are read like data."""
        sets = child_sets(self.plan, self.plan.blocks[name])
        return [replace(c, observed=True) if c.term in self.drawn else c for c in sets]

    @cached_property
    def drawn(self) -> frozenset[str]:
        """Terms of which single rows are drawn; that of a chain is none, it is read as a whole."""
        return frozenset(n for n in self.program.rows if self.chunks.plate in self.program.plan.terms[n].plates)

    def observed(self) -> dict[str, Ints]:
        """What can be drawn: the elements that are there of all terms of rows, and of other data."""
        nodes = self.plan.nodes
        return {
            name: present_elements(term)
            for name, term in self.plan.terms.items()
            if name in self.drawn or (nodes[name].is_observed and name not in self.plan.blocks)
        }

    # -- rows --

    def pieces(self, rows: Ints) -> Iterator[tuple[ReadyChunk, Ints]]:
        """Different rows, sorted, as chunks; with each, the numbers of its rows, which of chains are more."""
        if self.chunks.chained:
            yield from self._sequences(rows)
            return
        for begin in range(0, len(rows), self.chunks.size):
            chosen = rows[begin : begin + self.chunks.size]
            size = min(max(LEAST, 1 << (len(chosen) - 1).bit_length()), self.chunks.size)
            program = self._sized(size)
            padded = np.concatenate([chosen, np.full(size - len(chosen), chosen[0])])
            known = Known(self.constants)
            for key, array in self._arrays.items():
                known[key] = np.moveaxis(np.asarray(array[padded]), 0, self.axes[key])
            known[program.weight_key] = known[program.weight_key] * (np.arange(size) < len(chosen))
            yield program.ready(known), chosen

    def _sequences(self, rows: Ints) -> Iterator[tuple[ReadyChunk, Ints]]:
        """The sequences of some rows, those of a chunk together."""
        starts = np.concatenate([*self._starts, [self.chunks.n_rows]])
        wanted = np.unique(np.searchsorted(starts, rows, side="right") - 1)
        owner = np.searchsorted(self._begins, starts[wanted], side="right") - 1
        for number, table in self._some(np.unique(owner)):
            inside = [np.arange(starts[n], starts[n + 1]) for n in wanted[owner == number]]
            own = np.concatenate(inside)
            part = table.take(own - self._begins[number])
            part.first, part.key = table.first, table.key
            yield self.program.ready(self.chunks.known(part)), own

    def _some(self, numbers: Ints) -> Iterator[tuple[int, Table]]:
        """Chunks of sequences by number; a table whose chunks are not all held is read once more."""
        if all(int(number) in self._tables for number in numbers):
            return ((int(number), self._tables[int(number)]) for number in numbers)
        if self.chunks.cuts.can_jump:
            return ((int(number), self.chunks.cuts.table(int(number))) for number in numbers)
        return ((n, table) for n, table in enumerate(self.chunks.tables()) if n in numbers)

    def _sized(self, size: int) -> ChunkProgram:
        """The program of a chunk with so many rows."""
        if size == self.chunks.size:
            return self.program
        if size not in self._programs:
            plan = self.chunks.plan_of(next(iter(self.chunks.tables())).take(slice(0, size)))
            self._programs[size] = ChunkProgram(plan, self.chunks.local, self.chunks.plate, self.program.on.name)
        return self._programs[size]


def _row_axes(plan: Plan, plate: str) -> dict[str, int]:
    """For each known array that has the rows as an axis, which one."""
    axis_of: dict[str, int] = {}

    def note(factor: Factor) -> None:
        for position, axis in enumerate(factor.axes):
            if isinstance(axis, Take):
                if plate in axis.labels:
                    axis_of[axis.index] = axis.labels.index(plate)
            elif factor.known and axis == plate:
                axis_of[factor.source] = position

    for term in plan.terms.values():
        for monomial in term.monomials:
            for factor in monomial.factors:
                note(factor)
        for name, readings in term.readings.items():
            for reading in readings:
                note(Factor(name, 0, tuple(reading.axes), known=False))
    return axis_of


def restricted(sample: Any, plate: str, rows: Ints) -> tuple[Mapping[str, Array], Array] | None:
    """The part of a sample whose rows are some sorted ones: where they are among these, the others with weight 0."""
    own = np.asarray(sample.zipped[plate])
    places = np.minimum(np.searchsorted(rows, own), len(rows) - 1)
    here = rows[places] == own
    if not here.any():
        return None
    zipped = {**sample.zipped, plate: np.where(here, places, 0).astype(np.int32)}
    return zipped, np.where(here, sample.weight, 0.0)


# SampledEdges     single rows, for `Children` and `GlobalBatch`
# ChunkBatches     whole chunks, for `SVI`, where what chunks tell does not add up

Stats = tuple[Any, ...]


class SampledEdges(ChunkedEdges):
    """A network in chunks of which single rows are drawn; what is hidden in them is solved where they are read.

    Parameters
    ----------
    chunks : Chunks
    program : ChunkProgram
    """

    def __init__(self, chunks: Chunks, program: ChunkProgram) -> None:
        super().__init__(chunks, program)
        self._sets: dict[str, list[ChildSet]] = {}

    @cached_property
    def store(self) -> RowStore:
        """All rows."""
        return RowStore(self.chunks, self.program)

    @cached_property
    def observed(self) -> Mapping[str, Ints]:
        """What can be drawn."""
        return self.store.observed()

    def child_sets(self, name: str) -> list[ChildSet]:
        if name not in self._sets:
            self._sets[name] = self.store.child_sets(name)
        return self._sets[name]

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Stats:
        """Terms of rows from the rows that were drawn, the others whole or from their sample; chains are read as a whole."""
        if not sampled:
            return super().target(block, state, full, (), column)
        mu = {name: state.mu[name] for name in self.blocks}
        rows = [sample for sample in sampled if sample.term in self.store.drawn]
        chains = [name for name in self.program.rows if name not in self.store.drawn]
        asked = {*(full or ()), *(sample.term for sample in sampled)}
        above = tuple(name for name in self.program.above if full is None or name in full)
        others = tuple(sample for sample in sampled if sample.term not in self.program.rows)
        total = self.from_above(block.name, mu, above, column, others)
        if whole := tuple(name for name in chains if full is None or name in asked):
            told = self.messages(mu, mu, (block.name,), column, terms=whole)
            total = tuple(a + b for a, b in zip(total, told.parts[block.name], strict=True))
        if not rows:
            return total
        plate = self.chunks.plate
        chosen = np.unique(np.concatenate([np.asarray(sample.zipped[plate])[sample.weight > 0] for sample in rows]))
        for chunk, own in self.store.pieces(chosen):
            for sample in rows:
                part = restricted(sample, plate, own)
                if part is not None:
                    here = Sampled(sample.term, sample.occurrence, *part)
                    told = chunk.program.sampled(chunk.arrays, mu, block.name, here, column)
                    total = summed([ChunkSums({block.name: total}, 0.0), told]).parts[block.name]
        return total


class ChunkBatch(NamedTuple):
    """Chunks that were read, standing for ``scale`` times as many; ``mu`` is where what is hidden in them was solved."""

    numbers: Ints | None
    mu: Mapping[str, Stats]
    scale: float


class ChunkBatches(Chunked, GroupProblem):
    """Some chunks at each step, of a network whose chunks tell nothing that adds up: they are visited block after block.

    Parameters
    ----------
    edges : ChunkedEdges
    order : of the globals in a step
    """

    summarises = False

    def __init__(self, edges: ChunkedEdges, order: tuple[str, ...]) -> None:
        self.set_chunks(edges.chunks, edges.program)
        self.edges, self.order, self.blocks = edges, order, edges.blocks
        self.group_plate, self.batch_size = edges.chunks.plate, 1
        self.n_groups, self.population = edges.chunks.n_chunks, float(edges.chunks.n_chunks)

    @property
    def n_observed(self) -> Mapping[str, int]:
        return self.observations()

    @property
    def n_messages(self) -> int:
        return self.reads()

    def prior_of(self, name: str) -> Stats:
        """Of a block of a network the prior is one of its messages."""
        raise NotImplementedError("the prior of a block of a network is one of its messages")

    def moments(self, block: Block, lam: Stats) -> Stats:
        return self.edges.moments(block, lam)

    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """Nothing yet: blocks ask when it is their turn."""
        share = 1.0 if groups is None else len(groups) / self.n_groups
        batch = ChunkBatch(groups, {name: state.mu[name] for name in self.blocks}, 1.0)
        return GroupResult([], batch, 0.0, 1, int(self.reads() * share))

    def scaled(self, messages: Any, scale: float) -> Any:
        return messages._replace(scale=scale)

    def global_step(self, state: State, messages: Any, rho: Any = 1.0) -> GlobalResult:
        """The globals in turn, each a part ρ of the way to what the chunks tell it."""
        edges, info = self.edges, dict[str, BlockInfo]()
        for name in self.order:
            block = self.blocks[name]
            columns: list[int | None] = [None] if block.column_axis is None else list(range(block.n_columns))
            for column in columns:
                for part in step_parts(block, rho, column, in_turn=True):
                    target = self._target(block, state, messages, column)
                    state, info[name] = edges.step_block(block, state, target, part, column)
        return GlobalResult(state, info, self.global_bound(state.lam, state.mu, messages))

    def global_bound(self, lam: Any, mu: Any, messages: Any) -> float:
        """As these chunks estimate it."""
        here = {name: mu[name] for name in self.blocks}
        told = self.edges.messages(messages.mu, here, (), valued=True, numbers=messages.numbers)
        return float(messages.scale * told.value + self.edges.above_bound(lam, here))

    def bound(self, state: State) -> float:
        """Of all chunks."""
        return self.edges.bound(state)

    def _target(self, block: Block, state: State, batch: ChunkBatch, column: int | None) -> Stats:
        mu = {name: state.mu[name] for name in self.blocks}
        total = self.edges.from_above(block.name, mu, self.program.above, column)
        told = self.edges.messages(batch.mu, mu, (block.name,), column, numbers=batch.numbers)
        return tuple(a + batch.scale * b for a, b in zip(total, told.parts[block.name], strict=True))
