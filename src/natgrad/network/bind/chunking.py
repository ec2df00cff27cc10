"""Cut a table into chunks, the same in every pass, and join the chunks of one chain at their ends.

    rows       chunks of a fixed length, but for the last one
    groups     whole runs of equal ids, as many as fit: a sequence is never cut, and one that is longer is a chunk of its own
    one chain  as rows, but each begins with the last row of the chunk before: neighbours share it
    as read    the source has cut already: rows came or went since (`natgrad.network.bind.updating`)

What differs from the first pass is an error: a row more or less, a file that was written meanwhile, a group that comes twice.

Of one chain along all rows, a chunk begins with the last row of the one before. It sums or integrates out all but its two ends
(a first visit), the ends of all chunks are a short chain that is solved here, and its messages make each chunk what it is in
the whole (a second visit). Only what is at the ends is kept from one visit to the other, and chunks are visited in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.origin import file_identity
from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.inference.problem import Block
from natgrad.network.bind.build import Template
from natgrad.network.bind.levels import ids_of
from natgrad.network.bind.tables import Table, TableChunks
from natgrad.network.bind.windows import ChunkSums
from natgrad.network.compile.plan import Plan
from natgrad.network.language.discrete import MarkovChain
from natgrad.network.language.gaussian_chain import GaussianChain

__all__ = [
    "NUMBER",
    "Chains",
    "Cuts",
    "Ends",
    "chains_along",
    "check_alone",
    "check_chains",
    "run_starts",
    "sequences_along",
    "solve_ends",
]

Ints = npt.NDArray[np.int64]


class Cuts:
    """The chunks of a table.

    Parameters
    ----------
    source : TableChunks
    names : columns that are read
    size : rows of a chunk
    groups : columns whose runs of equal ids are kept whole; none if rows may be cut anywhere
    overlap : bool, whether chunks begin with the last row of the one before

    Attributes
    ----------
    n_rows, n_chunks : int, known once the table was read
    """

    def __init__(
        self, source: TableChunks, names: Sequence[str], size: int, groups: Sequence[str] = (), overlap: bool = False
    ) -> None:
        self.source, self.names, self.size, self.groups, self.overlap = (
            source,
            list(names),
            size,
            tuple(groups),
            overlap,
        )
        self.n_rows: int | None = None
        self.n_chunks = 0
        self._rows: list[range] = []
        self._files = [file_identity(str(path)) for path in source.files]

    def tables(self) -> Iterator[Table]:
        """The chunks, in order."""
        self._check_files()
        seen = count = 0
        bounds: list[range] = []
        if self.source.is_cut:
            parts = self.source.chunks(self.names, self.size)
        elif self.groups:
            parts = self._whole_groups()
        elif self.overlap:
            parts = self._overlapping()
        else:
            parts = self.source.chunks(self.names, self.size)
        for chunk in parts:
            if chunk.key is None:
                chunk.key = (self.source.number, self.size, count)
            begin = chunk.first if self.overlap else seen
            bounds.append(range(begin, begin + chunk.n_rows))
            seen, count = begin + chunk.n_rows, count + 1
            yield chunk
        self._check_files()
        if self.n_rows is None:
            self.n_rows, self.n_chunks, self._rows = seen, count, bounds
        elif seen != self.n_rows:
            raise ValueError(
                f"{self.source.where} had {self.n_rows:,} rows when it was first read, and has {seen:,} now: it changed meanwhile"
            )

    @property
    def row_ranges(self) -> Sequence[range]:
        """The rows of each chunk, once the table was read."""
        return self._rows

    @property
    def can_jump(self) -> bool:
        """Whether a chunk is read without those before it."""
        return self.source.can_jump and not self.source.is_cut

    def table(self, number: int) -> Table:
        """One chunk of a table that can jump, as `tables` yields it."""
        self._check_files()
        rows = self._rows[number]
        parts = [part.only(self.names) for part in self.source.read(self.names, self.size, rows)]
        table = Table.joined(parts, self.source.where) if len(parts) > 1 else parts[0]
        if table.n_rows != len(rows):
            raise ValueError(
                f"{self.source.where} changed meanwhile: rows {rows.start} … {rows.stop - 1} are not there"
            )
        table.first, table.key = rows.start, (self.source.number, self.size, number)
        return table

    def _check_files(self) -> None:
        for before, path in zip(self._files, self.source.files, strict=True):
            if file_identity(str(path)) != before:
                raise ValueError(
                    f"{str(path)!r} was written while it was read: what chunks told before no longer fits to it. Fit again, from "
                    "a file that stays as it is"
                )

    def _overlapping(self) -> Iterator[Table]:
        """Chunks of ``size`` rows, the last of which is the first of the next."""
        waiting: Table | None = None
        for part in self.source.chunks(self.names, self.size - 1):
            if waiting is not None:
                chunk = Table.joined([waiting, part.take(slice(0, 1))])
                chunk.first = waiting.first
                yield chunk
            waiting = part
        # One row alone is the last of the chunk before.
        if waiting is not None and (waiting.n_rows > 1 or not waiting.first):
            yield waiting

    def _whole_groups(self) -> Iterator[Table]:
        """As many groups as fit into a chunk, at least one."""
        waiting: Table | None = None
        begun: set[Any] = set()
        for part in self.source.chunks(self.names, self.size):
            first = part.first if waiting is None else waiting.first
            waiting = part if waiting is None else Table.joined([waiting, part])
            waiting.first = first
            while waiting is not None and waiting.n_rows > self.size:
                starts = run_starts(waiting, self.groups)
                # The last group may go on in the next part, and is not known to be whole.
                ends = starts[1:]
                inside = ends[ends <= self.size]
                if not len(ends):
                    break
                end = int(inside[-1] if len(inside) else ends[0])
                yield self._checked(_rows(waiting, 0, end), begun)
                waiting = _rows(waiting, end, waiting.n_rows)
        while waiting is not None and waiting.n_rows:
            ends = np.append(run_starts(waiting, self.groups)[1:], waiting.n_rows)
            inside = ends[ends <= self.size]
            end = int(inside[-1] if len(inside) else ends[0])
            yield self._checked(_rows(waiting, 0, end), begun)
            waiting = _rows(waiting, end, waiting.n_rows)

    def _checked(self, chunk: Table, begun: set[Any]) -> Table:
        """Refuse a group that began in an earlier chunk."""
        name = self.groups[0]
        own = ids_of(chunk, name)[run_starts(chunk, (name,))].tolist()
        for group in own:
            if group in begun:
                raise ValueError(
                    f"{chunk.where}: column {name!r}: the rows of {group!r} are not together (some came before row "
                    f"{chunk.first}, others after): sort the table by it, in order of time, so that no chunk cuts it"
                )
        begun.update(own)
        return chunk


class Chains(NamedTuple):
    """Of chains along a plate: the columns that say which rows are one sequence, or the names of those that go along all rows."""

    sequences: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()


def chains_along(template: Template, plate: str) -> Chains:
    """The chains along a plate."""
    columns, carried = [], []
    for name, node in template.nodes.items():
        if not issubclass(node.function, (GaussianChain, MarkovChain)) or node.plates[-1].name != plate:
            continue
        own = [use.column.name for use in template.uses if use.node == name and use.role == "lengths"]
        columns += own
        if not own:
            carried.append(name)
    if carried and columns:
        raise PlateMismatch(
            f"{carried[0]!r} is one chain along all rows of {plate!r}, and others are cut where column {columns[0]!r} changes: "
            "give both the same lengths=, or leave chunk_rows= out"
        )
    return Chains(tuple(dict.fromkeys(columns)), tuple(carried))


def sequences_along(template: Template, plate: str) -> tuple[str, ...]:
    """The columns that say which rows are one sequence, for those who cannot have a chain along all rows."""
    chains = chains_along(template, plate)
    if chains.carried:
        raise PlateMismatch(
            f"{chains.carried[0]!r} is one chain along all rows of {plate!r}: rows of it cannot come, go or be drawn by "
            "themselves. Say which rows are one sequence, lengths=Column(…), fit anew, or use one of the hidden Markov models, "
            "which stream"
        )
    return chains.sequences


def run_starts(table: Table, columns: Sequence[str]) -> Ints:
    """Where the ids of every one of some columns change: the first rows of groups."""
    change = np.ones(max(table.n_rows - 1, 0), dtype=bool)
    for name in columns:
        ids = ids_of(table, name)
        change &= np.asarray(ids[1:] != ids[:-1], dtype=bool)
    return np.concatenate([[0], np.flatnonzero(change) + 1]) if table.n_rows else np.zeros(0, dtype=np.int64)


def _rows(table: Table, begin: int, end: int) -> Table:
    cut = table.take(slice(begin, end))
    cut.first = table.first + begin
    return cut


# The key, among the known arrays of a chunk, of its place in the table.
NUMBER = "number of the chunk"


class Ends(NamedTuple):
    """What chunks [n, …] are told at their first and last row, by chain; and the entropy of the rows that two have in common."""

    messages: Mapping[str, Any]
    shared: float


def check_chains(template: Template, plate: str, chains: Chains, size: int) -> None:
    """What a chain along all rows forbids."""
    if not chains.carried:
        return
    own = template.plates[plate]
    if own.weight is not None or own.later is not None:
        raise PlateMismatch(f"{chains.carried[0]!r}: the time plate {plate!r} of a chain cannot carry weights")
    if size < 2:
        raise PlateMismatch(
            f"chunk_rows = {size}: {chains.carried[0]!r} is one chain along all rows, of which a chunk has two at least"
        )


def check_alone(plan: Plan, local: Iterable[str], carried: Iterable[str]) -> None:
    """Nothing else that is hidden in rows meets a chain along all of them: it would be solved with the whole chain."""
    for term in plan.terms.values():
        own = {term.node, *term.readings} & set(local)
        if len(own) > 1 and (chain := own & set(carried)):
            other = min(own - {min(chain)})
            raise NotConjugate(
                f"{min(chain)!r} is one chain along all rows, and {other!r}, which is hidden in rows too, meets it in "
                f"{term.node!r}: the two are solved in turn along the whole table. Leave chunk_rows= out"
            )


def solve_ends(blocks: Mapping[str, Block], told: Iterable[ChunkSums]) -> Ends:
    """The messages to all chunks, from what they said of their ends, in order."""
    parts = [chunk.parts for chunk in told]
    messages, shared = {}, 0.0
    for name in parts[0]:
        family: Any = blocks[name].family
        found = family.end_messages(tuple(np.stack(stats) for stats in zip(*(own[name] for own in parts), strict=True)))
        messages[name] = found.before, found.after
        shared += float(np.sum(found.shared))
    return Ends(messages, shared)
