"""Pose the chunks of a plan as problems of the engine, whose targets are sums over chunks.

    λ̂_i = prior + Σ_chunks message_i(chunk, moments of the co-parents)

Hidden nodes of rows are solved inside their chunk, given the globals, and not held. Where what a chunk tells the globals adds up
(`natgrad.network.execute.summary`), chunks are groups: one pass is a sweep, what they told may be remembered, and samples of them
are steps. Elsewhere, where a row reads several globals through different indices, a sweep is a pass for each stage of globals
that do not meet in a row. Sums are made in the order of the chunks: the bits are the same for any number of threads or workers.

On another machine, a worker makes the program of a plan once, and its chunks from the files.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.origin import identities
from natgrad.errors import NotAdditive
from natgrad.inference.executors import BroadcastArgument, ShardSpec
from natgrad.inference.problem import (
    Block,
    BlockInfo,
    ChildSet,
    EdgeProblem,
    GroupResult,
    Sampled,
    State,
    SweepResult,
)
from natgrad.inference.steppers.groups import BEFORE
from natgrad.network.bind.chunk_program import ChunkProgram
from natgrad.network.bind.chunks import Chunks, Known
from natgrad.network.bind.probing import shifted_in_chunks, split_in_chunks
from natgrad.network.bind.tables import Table
from natgrad.network.bind.windows import ChunkSums, summed, summed_in_windows
from natgrad.network.compile.plan import Plan, present_elements
from natgrad.network.execute.backend import HOST, BackendName, choose_backend
from natgrad.network.execute.groups import BatchSource, ReadBatch
from natgrad.network.execute.update import blended_block, blends, update

__all__ = ["ChunkSource", "ChunkedEdges", "shards_of", "visit_runs"]

# Programs of this process, by the token of their fit; the last few, since each holds compiled functions.
_PROGRAMS: dict[str, ChunkProgram] = {}
MOST_PROGRAMS = 4
# Where this process is in the table of a fit that is read from the front to the end, by the token.
_CURSORS: dict[str, _Cursor] = {}
_LOCK = threading.Lock()


class ProgramSpec(NamedTuple):
    """A program as a worker makes it: without the arrays of a chunk, which the chunk brings."""

    token: str
    plan: Plan
    local: tuple[str, ...]
    plate: str
    backend: BackendName

    def made(self, known: Known) -> ChunkProgram:
        """The program of this process."""
        if self.token not in _PROGRAMS:
            while len(_PROGRAMS) >= MOST_PROGRAMS:
                del _PROGRAMS[next(iter(_PROGRAMS))]
            plan = replace(self.plan, known=dict(known))
            _PROGRAMS[self.token] = ChunkProgram(plan, self.local, self.plate, self.backend)
        return _PROGRAMS[self.token]


class Shard:
    """A chunk on a worker; its arrays are folded when it is first asked."""

    def __init__(self, spec: ProgramSpec, known: Known) -> None:
        self.spec, self.known = spec, known
        self._arrays: dict[str, Any] | None = None

    def __reduce__(self) -> Any:
        return Shard, (self.spec, self.known)

    def visit(self, function: str, arguments: tuple[Any, ...]) -> ChunkSums:
        """What the chunk tells."""
        program = self.spec.made(self.known)
        if self._arrays is None:
            self._arrays = program.arrays(self.known)
        statistics: ChunkSums = getattr(program, function)(self._arrays, *arguments)
        return statistics


def shards_of(chunks: Chunks, program: ChunkProgram, run_length: int, n_parts: int) -> list[ShardSpec]:
    """Runs of chunks, dealt out to parts, as recipes; files that are read again are named, so that workers read their own."""
    token = uuid.uuid4().hex
    parts = [
        [number for number in range(chunks.n_chunks) if number // run_length % n_parts == part]
        for part in range(n_parts)
    ]
    if chunks.held is None:
        files = identities(chunks.source.files) or None
        common = BroadcastArgument((_spec(token, program), chunks))
        return [ShardSpec(_read_part, (common, part), files) for part in parts]
    made: list[Shard] = []
    for number, chunk in enumerate(chunks.held):
        own = token if chunk.program is program else f"{token}:{number}"
        arrays = Known({key: np.asarray(chunk.arrays[key]) for key in chunk.keys})
        made.append(Shard(_spec(own, chunk.program), arrays))
    return [ShardSpec(dict, ({number: made[number] for number in part},), None) for part in parts]


def visit_runs(shards: dict[int, Shard], common: tuple[str, tuple[Any, ...]], runs: list[list[int]]) -> list[ChunkSums]:
    """On a worker: what the chunks of some runs tell, added up for each run."""
    function, arguments = common
    first = shards[runs[0][0]]
    on = first.spec.made(first.known).on
    with on.running():  # in which numbers keep their 64 bits
        arguments = _put(on, arguments)  # once for all chunks
    return [summed_in_windows([shards[number].visit(function, arguments) for number in run]) for run in runs]


def _put(on: Any, tree: Any) -> Any:
    """Arrays where the backend wants them."""
    if isinstance(tree, Mapping):
        return {key: _put(on, part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_put(on, part) for part in tree)
    return on.put(tree) if isinstance(tree, np.ndarray) else tree


def _read_part(common: tuple[ProgramSpec, Chunks], numbers: list[int]) -> dict[int, Shard]:
    return {number: _read(common, number) for number in numbers}


def _spec(token: str, program: ChunkProgram) -> ProgramSpec:
    return ProgramSpec(token, replace(program.plan, known={}), program.local, program.plate, program.on.name)


def _read(common: tuple[ProgramSpec, Chunks], number: int) -> Shard:
    spec, chunks = common
    if chunks.cuts.can_jump:
        table = chunks.cuts.table(number)
    else:
        with _LOCK:
            table = _cursor(spec.token, chunks).table(number)
    known = chunks.known(table)
    if known.plan is not None:
        spec = spec._replace(token=f"{spec.token}:{number}", plan=known.plan)
    return Shard(spec, known)


class _Cursor:
    """A table that is read from the front to the end: chunks that are asked for in their order cost one pass."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks, self.next = chunks, 0
        self._tables = chunks.tables()

    def table(self, number: int) -> Table:
        """A chunk."""
        if number < self.next:
            self.next, self._tables = 0, self.chunks.tables()
        for table in self._tables:
            self.next += 1
            if self.next == number + 1:
                return table
        raise ValueError(f"{self.chunks.source.where} has no chunk {number}: it changed during the fit")


def _cursor(token: str, chunks: Chunks) -> _Cursor:
    """That of a fit, the last one of this process."""
    if token not in _CURSORS:
        _CURSORS.clear()
        _CURSORS[token] = _Cursor(chunks)
    return _CURSORS[token]


Stats = tuple[Any, ...]
Moments = Mapping[str, Stats]
Ints = npt.NDArray[np.int64]
# Bytes that travel in the time that a row takes, about; and runs of chunks, at least, so that some workers have one.
TRAVELS, FEWEST_RUNS = 32, 4
# Bytes of sums of chunks that are kept, for when rows come or go.
TOLD = 2**27
# Tasks for each thread: a worker is never without one, and the last ones end at about the same time.
PARTS = 4


class ChunkSource(BatchSource):
    """The chunks of a table as batches: what is hidden in their rows is solved when they are read, and not held.

    Parameters
    ----------
    chunks : Chunks
    backend : name of the backend, optional
    """

    batch_size = 1
    probes = (shifted_in_chunks, split_in_chunks)

    def __init__(self, chunks: Chunks, backend: BackendName | None) -> None:
        name = choose_backend(chunks.plan, backend, chunks.n_chunks).name
        if chunks.chained and backend is None:
            name = "numpy"  # sequences of other lengths are another program, and would be compiled for every chunk
        self.chunks, self.program = chunks, ChunkProgram(chunks.plan, chunks.local, chunks.plate, name)
        chunks.use(self.program.ready)
        self.network, self.plan = self.program.problem, self.program.plan
        self.blocks = {name: block for name, block in self.plan.blocks.items() if name not in chunks.local}
        self.globals = tuple(self.blocks)
        self.plate, self.n_groups = chunks.plate, chunks.n_chunks
        with suppress(NotAdditive):
            self.summary = self.program.summary
        # The sums that each chunk told last, by its key, and how many were read; without hidden nodes they stay.
        self.told: dict[Any, ChunkSums] = {}
        self.n_read = 0
        # Whether a start that tells components apart is to count in the first pass.
        self.keeps_start = False

    @property
    def n_observed(self) -> dict[str, int]:
        """Observations that are not missing, by node."""
        inner = self.network.observed
        return {
            name: self.chunks.n_present.get(name, 0) if name in self.program.rows else len(inner[name])
            for name in inner
        }

    @cached_property
    def n_messages(self) -> int:
        """Messages of a sweep; as many however the rows are cut."""
        sets = (c for name in self.plan.blocks for c in self.network.child_sets(name))
        return round(sum(c.n_reads * self._share(c.term) for c in sets))

    def _share(self, term: str) -> float:
        """How often the elements of a term in the first chunk are there in all."""
        if self.chunks.plate not in self.plan.terms[term].plates:
            return 1.0  # no rows, or a chain along them, which is one
        here, there = len(present_elements(self.plan.terms[term])), self.chunks.n_present.get(term, 0)
        if here and there:
            return there / here
        return self.chunks.n_rows / (self.chunks.first_rows if self.chunks.chained else self.chunks.size)

    @cached_property
    def run_length(self) -> int:
        """Chunks whose sum is made before it is added to those of others: one where it is kept.

        Otherwise so that a run takes about as long as its sum travels: a matter of the plan, whoever computes.
        """
        if self.summary is not None:
            return 1
        sizes = [sum(8 * int(np.prod(shape)) for shape in self.plan.nodes[name].stat_shapes()) for name in self.blocks]
        n_runs = max(FEWEST_RUNS, math.isqrt(TRAVELS * self.chunks.n_rows // max(sizes, default=1)))
        return max(1, self.chunks.n_chunks // n_runs)

    n_parts = 1

    def shards(self, size: int) -> list[Any]:
        """Runs of chunks dealt out in turn, some parts for each of so many threads: a part is one task, whatever is in it."""
        self.n_parts = min(-(-self.chunks.n_chunks // self.run_length), PARTS * size)
        return shards_of(self.chunks, self.program, self.run_length, self.n_parts)

    def visit(self, function: str, *arguments: Any, numbers: Any = None) -> Iterator[ChunkSums]:
        """What every chunk, or some of them, tells, in order; of runs, their sums."""
        chosen = range(self.chunks.n_chunks) if numbers is None else sorted(int(n) for n in numbers)
        runs = [(run, list(some)) for run, some in groupby(chosen, lambda number: number // self.run_length)]
        if self.placed is not None:
            common = BroadcastArgument((function, _plain(arguments)))
            dealt = [[pair for pair in runs if pair[0] % self.n_parts == part] for part in range(self.n_parts)]
            calls = [(part, (common, [some for _, some in own])) for part, own in enumerate(dealt) if own]
            back = zip((own for own in dealt if own), self.placed.run(visit_runs, calls), strict=True)
            by_run = {run: told for own, answers in back for (run, _), told in zip(own, answers, strict=True)}
            yield from (by_run.pop(run) for run, _ in runs)
            return
        told = self.chunks.map(lambda chunk: chunk.tell(function, *arguments), numbers)
        for _, some in runs:
            yield summed_in_windows(list(islice(told, len(some))))

    def in_rows(self, name: str, mu: Moments) -> Iterator[tuple[Block, Stats]]:
        """Solve a node that is hidden in rows, given the globals: its block and λ, chunk after chunk."""
        node = self.plan.nodes[name]
        axis = [plate.name for plate in node.plates].index(self.chunks.plate)
        solved = self.chunks.map(
            lambda chunk: (chunk.program.plan.blocks[name], chunk.tell("naturals", mu).parts[name])
        )
        for rows, (block, lam) in zip(self.chunks.cuts.row_ranges, solved, strict=True):
            if not self.chunks.chained:  # a short chunk was filled up
                lam = tuple(np.moveaxis(np.moveaxis(part, axis, 0)[: len(rows)], 0, axis) for part in lam)
            yield block, lam

    def messages(
        self,
        before: Moments,
        mu: Moments,
        names: tuple[str, ...],
        column: int | None = None,
        valued: bool = False,
        terms: tuple[str, ...] | None = None,
        numbers: Any = None,
    ) -> ChunkSums:
        """What the rows of all chunks, or of some, tell some globals, added up; chunks are handed the moments that they read."""
        if not self.program.local:
            before = {}  # where hidden nodes of rows are solved
            read = {near for name in names for near in self.network.neighbours(name)}
            read |= {name for name in names if self.blocks[name].n_columns > 1}
            mu = mu if valued else {name: stats for name, stats in mu.items() if name in read}
        return summed(self.visit("messages", before, mu, names, column, valued, terms, numbers=numbers))

    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """The sums of some chunks; where they do not add up nothing yet: blocks ask for messages when it is their turn."""
        if self.summary is not None:
            return self.solve_remembering(state, groups, fresh=bool(self.chunks.local))
        share = 1.0 if groups is None else len(groups) / self.n_groups
        read = ReadBatch(groups, {name: state.mu[name] for name in self.blocks}, 1.0)
        return GroupResult([], read, 0.0, 1, int(self.n_messages * share))

    def solve_remembering(self, state: State, groups: Ints | None, fresh: bool = False) -> GroupResult:
        """The sums of some chunks, those that were read before as they were then unless they are to be ``fresh``."""
        mu, keys = {name: state.mu[name] for name in self.blocks}, self.chunks.keys
        wanted = range(self.n_groups) if groups is None else sorted(map(int, groups))
        unread = [number for number in wanted if fresh or keys[number] not in self.told]
        numbers = None if len(unread) == self.n_groups else unread
        visits = self.visit("statistics", mu, numbers=numbers)
        told = summed(self._noted(keys[n], next(visits)) if n in unread else self.told[keys[n]] for n in wanted)
        reads = int(self.n_messages * len(unread) / self.n_groups)
        return GroupResult([], told.parts, told.value, 1, reads)

    def _noted(self, key: Any, told: ChunkSums) -> ChunkSums:
        """The sums of a chunk, kept as long as there is room for those of all."""
        self.n_read += 1
        if self.n_groups * told.nbytes <= TOLD:
            self.told[key] = told
        return told

    def begin(self, state: State) -> tuple[State, int]:
        """Where a start counts, remember what all chunks say there: until they are read anew, it stands for those not read yet.

        The first batch of a sorted table knows some components alone, and the others would be lost.
        """
        if not self.keeps_start or self.n_groups == 1:
            return state, 0
        solved = self.solve(state, None, None, 0.0, 1)
        return state._replace(memory={BEFORE: solved.messages}), solved.reads

    def target(self, block: Block, state: State, read: ReadBatch, column: int | None = None) -> Stats:
        """λ^temp of a global, or of one column of it, from chunks that stand for all."""
        total = self.network.target(block, state, self.program.above, (), column)
        told = self.messages(read.solved, state.mu, (block.name,), column, numbers=read.batch)
        return tuple(np.asarray(a) + read.scale * b for a, b in zip(total, told.parts[block.name], strict=True))

    def value(self, state: State, read: ReadBatch) -> float:
        """The bound as some chunks estimate it."""
        told = self.messages(read.solved, state.mu, (), valued=True, numbers=read.batch)
        return float(read.scale * told.value + self.above_value(state))

    def above_value(self, state: State) -> float:
        """The part of the bound that is no row."""
        return self.network.partial_bound(state, self.program.above, (), tuple(self.blocks))

    def targets(self, mu: Moments) -> dict[str, Stats]:
        """λ^temp of every global from the moments of the others; what is hidden in rows is solved there."""
        here, network, summary = State({}, dict(mu), 0), self.network, self.summary
        read = self.solve(here, None, None, 0.0, 1).messages
        if summary is None:
            return {name: self.target(block, here, read) for name, block in self.blocks.items()}

        def build() -> Callable[..., Any]:
            return lambda mu, stats, known: {
                name: summary.target(block, mu, {**known, **stats}, None) for name, block in self.blocks.items()
            }

        found = network.compiled("targets", build)(dict(mu), {key: value[0] for key, value in read.items()})
        return {name: tuple(map(np.asarray, stats)) for name, stats in found.items()}


class ChunkedEdges(EdgeProblem):
    """A network in chunks whose rows read several globals, each through an index of its own.

    Parameters
    ----------
    source : ChunkSource
    """

    shards_by_row = True

    def __init__(self, source: ChunkSource) -> None:
        self.source, self.network, self.program = source, source.network, source.program
        self.plan, self.backend, self.blocks = source.plan, source.network.backend, source.blocks
        self.probes = source.probes
        self.gauges = tuple(pair for pair in self.network.products if set(pair) <= set(self.blocks))

    @property
    def placed(self) -> Any:
        """Where chunks are computed."""
        return self.source.placed

    @placed.setter
    def placed(self, placed: Any) -> None:
        self.source.placed = placed

    def shards(self, size: int) -> list[Any]:
        return self.source.shards(size)

    @property
    def observed(self) -> Mapping[str, Ints]:
        """Of one chunk: samples of single observations are not taken."""
        return self.network.observed

    @property
    def n_observed(self) -> Mapping[str, int]:
        return self.source.n_observed

    @property
    def n_messages(self) -> int:
        return self.source.n_messages

    def child_sets(self, name: str) -> list[ChildSet]:
        return self.network.child_sets(name)

    def coupling(self, name: str) -> int:
        return self.network.coupling(name)

    def neighbours(self, name: str) -> set[str]:
        return self.network.neighbours(name) & set(self.blocks)

    def moments(self, block: Block, lam: Stats) -> Stats:
        return self.network.moments(block, lam)

    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """Every block once, in order, from sums over all chunks; the bound comes with the last pass."""
        self.swept += self.n_messages
        before = {name: state.mu[name] for name in self.blocks}
        lam, mu, info = dict(state.lam), dict(state.mu), {}
        value = None
        for stage in self._stages(order):
            last = stage[-1] == order[-1] and len(stage) == 1 and self.blocks[stage[0]].n_columns == 1
            if self.blocks[stage[0]].n_columns > 1:
                (name,) = stage
                lam[name], mu[name], info[name] = self._in_turn(name, before, lam, mu, rho)
                continue
            told = self.source.messages(before, dict(mu), stage, valued=last)
            for name in stage:
                lam[name], mu[name], info[name] = self._step(name, told.parts[name], lam, mu, rho)
            if last:
                inner = sum(float(np.vdot(g, m)) for g, m in zip(told.parts[stage[0]], mu[stage[0]], strict=True))
                value = told.value + inner
        if value is None:
            value = self.source.messages(before, dict(mu), (), valued=True).value
        new = State(lam, mu, state.t + 1, {})
        return SweepResult(new, value + self.source.above_value(new), info)

    def bound(self, state: State) -> float:
        """With what is hidden in rows solved for the globals of the state."""
        mu = {name: self.moments(block, state.lam[name]) for name, block in self.blocks.items()}
        return self.source.value(State(state.lam, mu, 0), ReadBatch(None, mu, 1.0))

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Stats:
        """From all terms, or from some that are no rows."""
        if sampled or set(full or ()) & set(self.program.rows):
            raise NotImplementedError("rows of chunks are read together")
        if full is not None:
            return self.network.target(block, state, full, (), column)
        return self.source.target(block, state, ReadBatch(None, state.mu, 1.0), column)

    def step_block(
        self, block: Block, state: State, target: Stats, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        return self.network.step_block(block, state, target, rho, column)

    # -- parts --

    def _stages(self, order: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Runs of blocks that do not meet in a term; one that ends the sweep comes alone, with the bound."""
        stages: list[tuple[str, ...]] = []
        for name in order:
            alone = self.blocks[name].n_columns > 1 or name == order[-1]
            together = stages[-1] if stages and not alone else ()
            apart = all(self.blocks[n].n_columns == 1 and n not in self.neighbours(name) for n in together)
            if together and apart:
                stages[-1] = (*together, name)
            else:
                stages.append((name,))
        return stages

    def _step(self, name: str, told: Stats, lam: Any, mu: Any, rho: float) -> tuple[Stats, Stats, BlockInfo]:
        block, on = self.blocks[name], self.backend
        target = tuple(a + b for a, b in zip(told, self._from_above(block, mu), strict=True))

        def build() -> Callable[..., Any]:
            def function(lam: Any, target: Any, rho: Any) -> Any:
                new, fresh, _, info = blended_block(on, block, lam, target, rho)
                return (target if exact else new), fresh, info

            return function

        exact = rho == 1.0
        new, fresh, info = self.program.call(("step", name, exact), build, lam[name], target, rho)
        return new, fresh, info

    def _in_turn(self, name: str, before: Any, lam: Any, mu: Any, rho: float) -> tuple[Stats, Stats, BlockInfo]:
        """One column, or colour, after the other: each is a pass."""
        block, on = self.blocks[name], self.backend

        def message(number: Any, parts: Any) -> Stats:
            here = {**{n: mu[n] for n in self.blocks}, name: parts[1]}
            told = self.source.messages(before, here, (name,), number).parts[name]
            above = self._from_above(block, here, number)
            return tuple(np.asarray(a) + np.asarray(b) for a, b in zip(told, above, strict=True))

        def act(old: Any, target: Stats) -> Any:
            with on.running():
                return blends(on, block, rho)(old, target)

        own, stats = update(HOST, block, (lam[name], mu[name]), message, act)
        with on.running():
            _, _, _, info = blended_block(on, block, lam[name], own, 1.0)
        return own, stats, info

    def _from_above(self, block: Block, mu: Moments, column: int | None = None) -> Stats:
        """The messages to a block from the terms that are no rows."""
        total = self.network.target(block, State({}, dict(mu), 0), self.program.above, (), column)
        return tuple(map(np.asarray, total))

    def prior(self, fixed: Mapping[str, Stats]) -> State:
        """Every global at its prior."""
        whole = self.network.prior(fixed)
        return State({n: whole.lam[n] for n in self.blocks}, {n: whole.mu[n] for n in self.blocks}, 0)


def _plain(tree: Any) -> Any:
    """Arrays as NumPy has them, to be sent."""
    if isinstance(tree, Mapping):
        return {key: _plain(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_plain(part) for part in tree)
    return np.asarray(tree) if hasattr(tree, "__array__") else tree
