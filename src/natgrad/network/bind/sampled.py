"""A network in chunks and samples of its rows in; targets from these rows alone, or from some whole chunks, out.

SampledEdges     single rows, for `Children` and `GlobalBatch`
ChunkBatches     whole chunks, for `SVI`, where what chunks tell does not add up
"""

from __future__ import annotations

from collections.abc import Mapping
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
from natgrad.network.bind.chunk_program import ChunkProgram
from natgrad.network.bind.chunked import Chunked, ChunkedEdges
from natgrad.network.bind.chunks import Chunks
from natgrad.network.bind.row_store import RowStore, restricted
from natgrad.network.bind.windows import ChunkSums, summed

__all__ = ["ChunkBatches", "SampledEdges"]

Stats = tuple[Any, ...]
Ints = npt.NDArray[np.int64]


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
