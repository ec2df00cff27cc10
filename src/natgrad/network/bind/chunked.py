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
from dataclasses import replace
from functools import cached_property
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.origin import identities
from natgrad.inference.executors import BroadcastArgument, ShardSpec
from natgrad.inference.problem import (
    Block,
    BlockInfo,
    ChildSet,
    EdgeProblem,
    GlobalResult,
    GroupProblem,
    GroupResult,
    Sampled,
    State,
    SweepResult,
)
from natgrad.inference.steppers.sampled import turns
from natgrad.network.bind.chunk_program import ChunkProgram
from natgrad.network.bind.chunks import Chunks, Known
from natgrad.network.bind.probing import shifted_in_chunks, split_in_chunks
from natgrad.network.bind.tables import Table
from natgrad.network.bind.windows import ChunkSums, summed, summed_in_windows
from natgrad.network.compile.incidence import present_elements
from natgrad.network.compile.plan import Plan
from natgrad.network.execute.backend import BackendName
from natgrad.network.execute.numpy_backend import HOST
from natgrad.network.execute.update import blended_block, blends, update

__all__ = ["ChunkBatches", "Chunked", "ChunkedEdges", "shards_of", "visit_runs"]

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
# Tasks for each thread: a worker is never without one, and the last ones end at about the same time.
PARTS = 4


class Chunked:
    """What both kinds of problems have: chunks, a program, how many messages are read, and a way off saddles."""

    probes: tuple[Callable[..., State | None], ...] = (shifted_in_chunks, split_in_chunks)

    def set_chunks(self, chunks: Chunks, program: ChunkProgram) -> None:
        self.chunks, self.program = chunks, program
        self.plan, self.backend = program.plan, program.on
        self.globals = {name: block for name, block in self.plan.blocks.items() if name not in program.local}

    def observations(self) -> dict[str, int]:
        """Observations that are not missing, by node."""
        inner = self.program.problem.observed
        return {
            name: self.chunks.n_present.get(name, 0) if name in self.program.rows else len(inner[name])
            for name in inner
        }

    def reads(self) -> int:
        """Messages of a sweep; as many however the rows are cut."""
        sets = (c for name in self.plan.blocks for c in self.program.problem.child_sets(name))
        return round(sum(c.n_reads * self._share(c.term) for c in sets))

    def _share(self, term: str) -> float:
        """How often the elements of a term in the first chunk are there in all."""
        if self.chunks.plate not in self.plan.terms[term].plates:
            return 1.0  # no rows, or a chain along them, which is one
        here, there = len(present_elements(self.plan.terms[term])), self.chunks.n_present.get(term, 0)
        if here and there:
            return there / here
        return self.chunks.n_rows / (self.chunks.first_rows if self.chunks.chained else self.chunks.size)

    # Only who computes elsewhere is handed the chunks.
    shards_by_row = True
    placed: Any = None

    @property
    def run_length(self) -> int:
        """Chunks whose sum is made before it is added to those of others."""
        return 1

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

    def prior(self, fixed: Mapping[str, Stats]) -> State:
        """Every global at its prior."""
        whole = self.program.problem.prior(fixed)
        return State({n: whole.lam[n] for n in self.globals}, {n: whole.mu[n] for n in self.globals}, 0)

    def bound_by_node(self, state: State) -> dict[str, float]:
        """Of a chunked network only the whole bound is known."""
        raise NotImplementedError("the bound by node is not known of a network that was read in chunks; elbo is")


class ChunkedEdges(Chunked, EdgeProblem):
    """A network in chunks whose rows read several globals, each through an index of its own.

    Parameters
    ----------
    chunks : Chunks
    program : ChunkProgram
    """

    def __init__(self, chunks: Chunks, program: ChunkProgram) -> None:
        self.set_chunks(chunks, program)
        self.blocks = self.globals
        self.gauges = tuple(pair for pair in program.problem.products if set(pair) <= set(self.blocks))

    @cached_property
    def observed(self) -> Mapping[str, Ints]:
        """Of one chunk: samples of single observations are not taken."""
        return self.program.problem.observed

    @property
    def n_observed(self) -> Mapping[str, int]:
        return self.observations()

    @cached_property
    def n_messages(self) -> int:
        return self.reads()

    def child_sets(self, name: str) -> list[ChildSet]:
        return self.program.problem.child_sets(name)

    def coupling(self, name: str) -> int:
        return self.program.problem.coupling(name)

    def neighbours(self, name: str) -> set[str]:
        return self.program.problem.neighbours(name) & set(self.blocks)

    def moments(self, block: Block, lam: Stats) -> Stats:
        return self.program.problem.moments(block, lam)

    @cached_property
    def run_length(self) -> int:
        """So that a run takes about as long as its sum travels: a matter of the plan, whoever computes."""
        sizes = [sum(8 * int(np.prod(shape)) for shape in self.plan.nodes[name].stat_shapes()) for name in self.blocks]
        n_runs = max(FEWEST_RUNS, math.isqrt(TRAVELS * self.chunks.n_rows // max(sizes, default=1)))
        return max(1, self.chunks.n_chunks // n_runs)

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
            read = {near for name in names for near in self.neighbours(name)}
            read |= {name for name in names if self.blocks[name].n_columns > 1}
            mu = mu if valued else {name: stats for name, stats in mu.items() if name in read}
        return summed(self.visit("messages", before, mu, names, column, valued, terms, numbers=numbers))

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
            told = self.messages(before, dict(mu), stage, valued=last)
            for name in stage:
                lam[name], mu[name], info[name] = self._step(name, told.parts[name], lam, mu, rho)
            if last:
                inner = sum(float(np.vdot(g, m)) for g, m in zip(told.parts[stage[0]], mu[stage[0]], strict=True))
                value = told.value + inner
        if value is None:
            value = self.messages(before, dict(mu), (), valued=True).value
        new = State(lam, mu, state.t + 1, {})
        return SweepResult(new, value + self.above_bound(lam, mu), info)

    def bound(self, state: State) -> float:
        """With what is hidden in rows solved for the globals of the state."""
        mu = {name: self.moments(block, state.lam[name]) for name, block in self.blocks.items()}
        return self.messages(mu, mu, (), valued=True).value + self.above_bound(state.lam, mu)

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Stats:
        """From whole terms."""
        if sampled:
            raise NotImplementedError("rows of chunks are read together")
        mu = {name: state.mu[name] for name in self.blocks}
        above = tuple(name for name in self.program.above if full is None or name in full)
        total = self.from_above(block.name, mu, above, column)
        rows = self.program.rows if full is None else tuple(name for name in self.program.rows if name in full)
        if rows:
            told = self.messages(mu, mu, (block.name,), column, terms=rows)
            total = tuple(a + b for a, b in zip(total, told.parts[block.name], strict=True))
        return total

    def step_block(
        self, block: Block, state: State, target: Stats, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        return self.program.problem.step_block(block, state, target, rho, column)

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
        block, on = self.blocks[name], self.program.on
        own = {n: mu[n] for n in self.blocks}
        target = tuple(a + b for a, b in zip(told, self.from_above(name, own, self.program.above, None), strict=True))

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
        block, on = self.blocks[name], self.program.on

        def message(number: Any, parts: Any) -> Stats:
            here = {**{n: mu[n] for n in self.blocks}, name: parts[1]}
            told = self.messages(before, here, (name,), number).parts[name]
            above = self.from_above(name, here, self.program.above, number)
            return tuple(np.asarray(a) + np.asarray(b) for a, b in zip(told, above, strict=True))

        def act(old: Any, target: Stats) -> Any:
            with on.running():
                return blends(on, block, rho)(old, target)

        own, stats = update(HOST, block, (lam[name], mu[name]), message, act)
        with on.running():
            _, _, _, info = blended_block(on, block, lam[name], own, 1.0)
        return own, stats, info

    def from_above(self, name: str, mu: Moments, terms: tuple[str, ...], column: int | None = None) -> Stats:
        """The messages to a block from the terms that are no rows."""
        program = self.program

        def build() -> Callable[..., Any]:
            def function(mu: Any, column: Any, known: Any) -> Stats:
                return program.program.target(self.blocks[name], mu, known, terms, (), column)

            return function

        number = None if column is None else np.int32(column)
        key = ("above", name, terms, column is not None)
        return tuple(map(np.asarray, program.call(key, build, mu, number, program.problem.known_arrays)))

    def above_bound(self, lam: Any, mu: Any) -> float:
        """The part of the bound that is no row."""
        program = self.program

        def build() -> Callable[..., Any]:
            def function(lam: Any, mu: Any, known: Any) -> Any:
                total = sum((program.program.log_joint(n, mu, known) for n in program.above), program.on.xp.zeros(()))
                for name, block in self.blocks.items():
                    entropy = block.family.moments_entropy(lam[name])[1]
                    total = total + program.program.entropy(block, entropy, known)
                return total

            return function

        parts = ({name: part[name] for name in self.blocks} for part in (lam, mu))
        return float(program.call("value above", build, *parts, program.problem.known_arrays))


def _plain(tree: Any) -> Any:
    """Arrays as NumPy has them, to be sent."""
    if isinstance(tree, Mapping):
        return {key: _plain(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_plain(part) for part in tree)
    return np.asarray(tree) if hasattr(tree, "__array__") else tree


# Some chunks at a step, for `SVI`, where what chunks tell does not add up.


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
            for column, part in turns(block, rho):
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
