"""Chunks on other machines: a worker makes the program of a plan once, and its chunks from the files, where it sees them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, NamedTuple

from natgrad.data.mapped import file_identity
from natgrad.inference.executors.threads import ShardSpec
from natgrad.network.bind.chunk_program import ChunkProgram, Told
from natgrad.network.bind.chunks import Chunks, Known
from natgrad.network.compile.plan import Plan
from natgrad.network.execute.backend import BackendName

__all__ = ["shards_of", "visit_shard"]

# Programs of this process, by the token of their fit; the last few, since each holds compiled functions.
_PROGRAMS: dict[str, ChunkProgram] = {}
MOST_PROGRAMS = 4


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
        self._arrays: Known | None = None

    def __reduce__(self) -> Any:
        return Shard, (self.spec, self.known)

    def visit(self, function: str, arguments: tuple[Any, ...]) -> Told:
        """What the chunk tells."""
        program = self.spec.made(self.known)
        if self._arrays is None:
            self._arrays = program.arrays(self.known)
        found: Told = getattr(program, function)(self._arrays, *arguments)
        return found


def shards_of(chunks: Chunks, program: ChunkProgram) -> list[ShardSpec]:
    """Every chunk as a recipe; the files of those that are read again are named, so that workers read their own."""
    plan = replace(program.plan, known={})
    spec = ProgramSpec(uuid.uuid4().hex, plan, program.local, program.plate, program.on.name)
    held = chunks.as_read()
    if held is not None:
        return [ShardSpec(Shard, (spec, known)) for known in held]
    files = tuple(found for path in chunks.source.files if (found := file_identity(str(path))) is not None)
    return [ShardSpec(_read, (spec, chunks, number), files) for number in range(chunks.n_chunks)]


def visit_shard(shard: Shard, common: tuple[str, tuple[Any, ...]]) -> Told:
    """On a worker: what its chunk tells."""
    return shard.visit(*common)


def _read(spec: ProgramSpec, chunks: Chunks, number: int) -> Shard:
    for place, table in enumerate(chunks.tables()):
        if place == number:
            return Shard(spec, chunks.known(table))
    raise ValueError(f"{chunks.source.where} has no chunk {number}: it changed during the fit")
