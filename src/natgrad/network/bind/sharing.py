"""Chunks on other machines: a worker makes the program of a plan once, and its chunks from the files, where it sees them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from natgrad.data.origin import identities
from natgrad.inference.executors.threads import BroadcastArgument, ShardSpec
from natgrad.network.bind.chunk_program import ChunkProgram
from natgrad.network.bind.chunks import Chunks, Known
from natgrad.network.bind.tables import Table
from natgrad.network.bind.windows import ChunkSums, summed_in_windows
from natgrad.network.compile.plan import Plan
from natgrad.network.execute.backend import BackendName

__all__ = ["shards_of", "visit_runs"]

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
