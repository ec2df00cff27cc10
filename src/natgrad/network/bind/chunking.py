"""Cut a table into chunks, the same in every pass.

    rows       chunks of a fixed length, but for the last one
    groups     whole runs of equal ids, as many as fit: a sequence is never cut, and one that is longer is a chunk of its own
    as read    the source has cut already: rows came or went since (`natgrad.network.bind.updating`)

What differs from the first pass is an error: a row more or less, a file that was written meanwhile, a group that comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.origin import file_identity
from natgrad.errors import PlateMismatch
from natgrad.network.bind.build import Template
from natgrad.network.bind.levels import ids_of
from natgrad.network.bind.tables import Table, TableChunks

__all__ = ["Cuts", "run_starts", "sequences_along"]

Ints = npt.NDArray[np.int64]


class Cuts:
    """The chunks of a table.

    Parameters
    ----------
    source : TableChunks
    names : columns that are read
    size : rows of a chunk
    groups : columns whose runs of equal ids are kept whole; none if rows may be cut anywhere

    Attributes
    ----------
    n_rows, n_chunks : int, known once the table was read
    """

    def __init__(self, source: TableChunks, names: Sequence[str], size: int, groups: Sequence[str] = ()) -> None:
        self.source, self.names, self.size, self.groups = source, list(names), size, tuple(groups)
        self.n_rows: int | None = None
        self.n_chunks = 0
        self._rows: list[range] = []
        self._files = [file_identity(str(path)) for path in source.files]

    def tables(self) -> Iterator[Table]:
        """The chunks, in order."""
        self._check_files()
        seen = count = 0
        bounds: list[range] = []
        whole = self.groups and not self.source.is_cut
        for chunk in self._whole_groups() if whole else self.source.chunks(self.names, self.size):
            if chunk.key is None:
                chunk.key = (self.source.number, self.size, count)
            bounds.append(range(seen, seen + chunk.n_rows))
            seen, count = seen + chunk.n_rows, count + 1
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


def sequences_along(template: Template, plate: str) -> tuple[str, ...]:
    """The columns that say which rows are one sequence; raises `PlateMismatch` where a chain goes along all rows."""
    columns = []
    for name, node in template.nodes.items():
        if not node.function.is_chain or node.plates[-1].name != plate:
            continue
        own = [use.column.name for use in template.uses if use.node == name and use.role == "lengths"]
        if not own:
            raise PlateMismatch(
                f"{name!r} is one chain along all rows of {plate!r}: no part of it is solved without the others. Say which rows "
                "are one sequence, lengths=Column(…), leave chunk_rows= out, or use one of the hidden Markov models, which stream"
            )
        columns += own
    return tuple(dict.fromkeys(columns))


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
