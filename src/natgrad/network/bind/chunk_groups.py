"""Pose chunks as groups whose messages add up, and choose which kind of problem the chunks of a network are.

Where rows came or went, the sums of chunks that stayed are carried over bit by bit. Sums by the elements of an index have an
axis of levels: a level that is new has none, one that is gone is left out. The rest is what it was. Messages of the touched
chunks are summed anew, nothing is subtracted, and a run goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotAdditive
from natgrad.inference.problem import Block, GlobalResult, GroupProblem, GroupResult, State, SweepResult
from natgrad.inference.steppers.groups import BEFORE, KEY, GroupMemory, GroupStepper, WholePasses, cut_of, replace_batch
from natgrad.network.bind.build import Domain
from natgrad.network.bind.chunk_program import ChunkProgram
from natgrad.network.bind.chunked import Chunked, ChunkedEdges
from natgrad.network.bind.chunks import Chunks
from natgrad.network.bind.windows import ChunkSums, Window, summed
from natgrad.network.execute.backend import BackendName
from natgrad.network.execute.choice import choose_backend
from natgrad.network.execute.update import blended_block

__all__ = ["ChunkGroups", "carry_over", "chunked_problem", "with_memory"]

Stats = tuple[Any, ...]
Ints = npt.NDArray[np.int64]
# Bytes of what chunks told that are remembered, for when rows come or go.
TOLD = 2**27


class ChunkGroups(Chunked, GroupProblem):
    """Chunks as groups, where what they tell adds up.

    Parameters
    ----------
    chunks : Chunks
    program : ChunkProgram
    order : of the globals in a sweep
    """

    summarises = False

    def __init__(self, chunks: Chunks, program: ChunkProgram, order: tuple[str, ...]) -> None:
        self.set_chunks(chunks, program)
        self.blocks, self.order = self.globals, order
        self.group_plate, self.batch_size = chunks.plate, 1
        self.n_groups, self.population = chunks.n_chunks, float(chunks.n_chunks)
        # What each chunk told last, by its key, and how many were read; without hidden nodes they tell the same for ever.
        self.told: dict[Any, ChunkSums] = {}
        self.n_read = 0
        # Whether a start that tells components apart is to count in the first pass.
        self.keeps_start = False

    @property
    def n_observed(self) -> Mapping[str, int]:
        return self.observations()

    @property
    def n_messages(self) -> int:
        return self.reads()

    def prior_of(self, name: str) -> Stats:
        """Of a block of a network the prior is one of its messages."""
        raise NotImplementedError("the prior of a block of a network is one of its messages")

    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """What some chunks tell, added up."""
        return self._solved(state, groups, fresh=bool(self.program.local))

    def begin(self, state: State) -> tuple[State, int]:
        """Where a start counts, remember what all chunks say there: until they are read anew, it stands for those not read yet.

        The first batch of a sorted table knows some components alone, and the others would be lost.
        """
        if not self.keeps_start or self.n_groups == 1:
            return state, 0
        solved = self.solve_all(state)
        return state._replace(memory={BEFORE: solved.messages}), solved.reads

    def sweep(self, state: State, order: tuple[str, ...] = (), rho: float = 1.0) -> SweepResult:
        """All chunks, then the globals in some order."""
        self.swept += self.n_messages
        solved = self._solved(state, None, fresh=bool(self.program.local))
        after, info, bound = self._moved(state, solved.messages, rho, order or self.order)
        assert bound is not None
        return SweepResult(after._replace(t=state.t + 1, memory={}), solved.rest + bound, info)

    def solve_remembering(self, state: State, groups: Ints | None) -> GroupResult:
        """The same, from what chunks told last where that is known."""
        return self._solved(state, groups, fresh=False)

    def _solved(self, state: State, groups: Ints | None, fresh: bool) -> GroupResult:
        mu, keys = {name: state.mu[name] for name in self.blocks}, self.chunks.keys
        wanted = range(self.n_groups) if groups is None else sorted(map(int, groups))
        unread = [number for number in wanted if fresh or keys[number] not in self.told]
        numbers = None if len(unread) == self.n_groups else unread
        visits = self.visit("statistics", mu, numbers=numbers)
        told = summed(self._noted(keys[n], next(visits)) if n in unread else self.told[keys[n]] for n in wanted)
        reads = int(self.reads() * len(unread) / self.n_groups)
        return GroupResult([], told.parts, told.value, 1, reads)

    def _noted(self, key: Any, told: ChunkSums) -> ChunkSums:
        """What a chunk tells, kept as long as there is room for that of all."""
        self.n_read += 1
        if self.n_groups * told.nbytes <= TOLD:
            self.told[key] = told
        return told

    def fits(self, rows: Any, groups: Ints | None, state: State, where: str) -> bool:
        """Nothing is remembered of rows."""
        return True

    def scaled(self, messages: Any, scale: float) -> Any:
        return {key: (value[0] * scale,) for key, value in messages.items()}

    def global_step(self, state: State, messages: Any, rho: Any = 1.0) -> GlobalResult:
        """The globals in turn, from S."""
        return self._moved(state, messages, float(np.mean(rho)), self.order)

    def global_bound(self, lam: Any, mu: Any, messages: Any) -> float:
        """The bound without the entropies of what is hidden in rows."""
        bound = self._moved(State(lam, mu, 0), messages, 1.0, ()).bound
        assert bound is not None
        return bound

    def target_from(self, block: Block, mu: Mapping[str, Stats], told: Any, column: int | None = None) -> Stats:
        """λ̂ of a block, from what all rows told and the moments, or values, of the other globals."""
        program, summary = self.program, self.program.summary

        def build() -> Callable[..., Any]:
            def function(mu: Any, stats: Any, column: Any, known: Any) -> Stats:
                target: Stats = summary._target(block, mu, {**known, **stats}, column)
                return target

            return function

        sums = {key: value[0] for key, value in told.items()}
        number = None if column is None else np.int32(column)
        key = ("target", block.name, column is not None)
        target = program.call(key, build, dict(mu), sums, number, program.problem.known_arrays)
        return tuple(np.asarray(part) for part in target)

    def _moved(self, state: State, messages: Any, rho: float, names: tuple[str, ...]) -> GlobalResult:
        program, summary = self.program, self.program.summary

        def build() -> Callable[..., Any]:
            def function(lam: Any, mu: Any, stats: Any, rho: Any, known: Any) -> Any:
                lam, mu, info = dict(lam), dict(mu), {}
                for name in names:
                    block = self.blocks[name]
                    target, fresh, info[name] = summary.update(block, lam, mu, stats, known)
                    if not exact:
                        target, fresh, _, info[name] = blended_block(program.on, block, lam[name], target, rho)
                    lam[name], mu[name] = target, fresh
                return lam, mu, summary.bound(lam, mu, stats, 0.0, known), info

            return function

        exact = rho == 1.0
        lam, mu = ({name: part[name] for name in self.blocks} for part in (state.lam, state.mu))
        sums = {key: value[0] for key, value in messages.items()}
        device = program.problem.known_arrays
        lam, mu, bound, info = program.call(("move", names, exact), build, lam, mu, sums, rho, device)
        return GlobalResult(state._replace(lam=lam, mu=mu), info, float(bound))


def chunked_problem(chunks: Chunks, order: tuple[str, ...], backend: BackendName | None) -> ChunkGroups | ChunkedEdges:
    """The problem of chunks: groups where what they tell adds up, edges elsewhere."""
    name = choose_backend(chunks.plan, backend, chunks.n_chunks).name
    if chunks.chained and backend is None:
        name = "numpy"  # sequences of other lengths are another program, and would be compiled for every chunk
    program = ChunkProgram(chunks.plan, chunks.local, chunks.plate, name)
    chunks.use(program.ready)
    try:
        program.summary  # noqa: B018
    except NotAdditive:
        return ChunkedEdges(chunks, program)
    return ChunkGroups(chunks, program, order)


def carry_over(old: Any, new: Any) -> None:
    """Have a problem remember what the chunks told that it shares with an older one."""
    if not isinstance(old, ChunkGroups) or not isinstance(new, ChunkGroups) or not _alike(old, new):
        return
    axes = _level_axes(new)
    if axes is None:
        return
    for key in new.chunks.keys:
        if key in old.told:
            new.told[key] = _moved(old.told[key], axes, old.chunks.domain, new.chunks.domain)


def _alike(old: ChunkGroups, new: ChunkGroups) -> bool:
    """Whether two problems have the same terms, in the same order, measured from the same origins."""
    a, b = old.chunks, new.chunks
    return a._keys == b._keys and a._origins is b._origins and (a.lost, a.parts) == (b.lost, b.parts)


def _level_axes(problem: ChunkGroups) -> dict[str, str] | None:
    """The plate of the first axis of each sum by an index; None if levels are an axis in any other way."""
    levels, plate_of = problem.chunks.domain.levels, {}
    for term, entries in problem.program.summary.entries.items():
        for number, entry in enumerate(entries):
            if any(label in levels for label in entry.kept):
                return None
            if entry.plate is not None and entry.plate in levels:
                plate_of[problem.program.summary.key(term, number)] = entry.plate
    return plate_of


def _moved(told: ChunkSums, axes: dict[str, str], before: Domain, after: Domain) -> ChunkSums:
    parts, windows = {}, {}
    for key, (array,) in told.parts.items():
        if key in told.windows:
            (window,), old, new = told.windows[key], before.levels[axes[key]], after.levels[axes[key]]
            codes = new.find(old.ids[window.levels])
            array, windows[key] = array[codes >= 0], (Window(0, codes[codes >= 0], len(new.ids)),)
        elif key in axes:
            codes = before.levels[axes[key]].find(after.levels[axes[key]].ids)
            if len(codes) != len(array) or not np.array_equal(codes, np.arange(len(array))):
                array = np.where((codes >= 0).reshape(-1, *(1,) * (array.ndim - 1)), array[np.maximum(codes, 0)], 0.0)
        parts[key] = (array,)
    return ChunkSums(parts, told.value, windows)


def with_memory(problem: Any, stepper: Any, state: State, seed: int) -> State:
    """The state from which a run goes on: chunks that stayed have said what they said, the others are read."""
    inner = stepper.inner if isinstance(stepper, WholePasses) else stepper
    if not isinstance(problem, ChunkGroups) or not isinstance(inner, GroupStepper) or not inner.remember:
        return state
    if not any(key in problem.told for key in problem.chunks.keys):
        return state
    memory = GroupMemory({}, 0.0, (None,) * inner.n_batches, (problem.group_plate, inner.n_batches, seed))
    for number, groups in enumerate(cut_of(seed, problem.n_groups, inner.n_batches)):
        memory = replace_batch(memory, number, problem.solve_remembering(state, groups))
    after = problem.global_step(state, memory.messages).state
    return after._replace(memory={KEY: memory})
