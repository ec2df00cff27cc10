"""Chunks on other machines: a worker makes the program of a plan once, and its chunks from the files, where it sees them."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from natgrad.data.origin import identities
from natgrad.inference.executors.threads import BroadcastArgument, ShardSpec
from natgrad.network.bind.chunk_program import ChunkProgram
from natgrad.network.bind.chunks import Chunks, Known
from natgrad.network.bind.tables import Table
from natgrad.network.bind.windows import Told, summed_in_windows
from natgrad.network.compile.plan import Plan
from natgrad.network.execute.backend import BackendName

__all__ = ["shards_of", "visit_run"]

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

    def visit(self, function: str, arguments: tuple[Any, ...]) -> Told:
        """What the chunk tells."""
        program = self.spec.made(self.known)
        if self._arrays is None:
            self._arrays = program.arrays(self.known)
        found: Told = getattr(program, function)(self._arrays, *arguments)
        return found


def shards_of(chunks: Chunks, program: ChunkProgram, run_length: int) -> list[ShardSpec]:
    """Every run of chunks as a recipe; the files of those that are read again are named, so that workers read their own."""
    token = uuid.uuid4().hex
    runs = [range(a, min(a + run_length, chunks.n_chunks)) for a in range(0, chunks.n_chunks, run_length)]
    if chunks.held is None:
        files = identities(chunks.source.files) or None
        common = BroadcastArgument((_spec(token, program), chunks))
        return [ShardSpec(_read_run, (common, run), files) for run in runs]
    made: list[Shard] = []
    for number, chunk in enumerate(chunks.held):
        own = token if chunk.program is program else f"{token}:{number}"
        arrays = Known({key: np.asarray(chunk.arrays[key]) for key in chunk.keys})
        made.append(Shard(_spec(own, chunk.program), arrays))
    return [ShardSpec(_as_they_are, tuple(made[number] for number in run)) for run in runs]


def visit_run(shards: list[Shard], common: tuple[str, tuple[Any, ...]], chosen: list[int]) -> Told:
    """On a worker: what some chunks of its run tell, added up."""
    return summed_in_windows([shards[number].visit(*common) for number in chosen])


def _read_run(common: tuple[ProgramSpec, Chunks], run: range) -> list[Shard]:
    return [_read(common, number) for number in run]


def _as_they_are(*shards: Shard) -> list[Shard]:
    return list(shards)


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
