"""Tables that were fitted one after the other, and rows that went since, in; one table whose chunks stay where they are, out.

Chunks of new rows come after the old ones, and rows are taken out of the chunk that they are in: whatever is not touched is the
chunk that it was, under the key that it had (`natgrad.network.bind.chunk_records`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.bind.cuts import Cuts, sequences_along
from natgrad.network.bind.tables import Table, TableChunks, as_chunks
from natgrad.network.bind.template import Template

__all__ = ["Pieces"]

Flags = npt.NDArray[np.bool_]


class Pieces(NamedTuple):
    """Sources one after the other, each cut as it was, without some rows.

    Parameters
    ----------
    template, plate, size : how tables are cut
    parts : the tables
    gone : rows that went, as numbers in the chunk that they were in, by the key of that
    """

    template: Template
    plate: str
    size: int
    parts: tuple[TableChunks, ...]
    gone: Mapping[Any, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, template: Template, plate: str, size: int, table: Table | TableChunks) -> Pieces:
        """Those of a table that was fitted."""
        source = as_chunks(table)
        earlier: Pieces | None = source.pieces
        return cls(template, plate, size, (source,), {}) if earlier is None else earlier

    def table(self) -> TableChunks:
        """As one table."""
        counts, first = [part.n_rows for part in self.parts], self.parts[0]
        gone = sum(map(len, self.gone.values()))
        total = None if None in counts else sum(count for count in counts if count is not None) - gone
        files = [path for part in self.parts for path in part.files]
        table = TableChunks(self.read, first.names, first.where, total, files, is_cut=True)
        table.pieces = self
        return table

    def with_rows(self, more: Table | TableChunks) -> Pieces:
        """With another table after the others."""
        return self._replace(parts=(*self.parts, as_chunks(more)))

    def without(self, columns: Sequence[str], chosen: Callable[[Table, int], Flags]) -> Pieces:
        """Without the rows that a function chooses, of a chunk and of how many rows were before it."""
        gone, first = dict(self.gone), 0
        for chunk, there in self._chunks([*self.template.columns_on(self.plate), *columns]):
            flags = chosen(chunk.take(there), first)
            first += len(there)
            if flags.any():
                before = gone.get(chunk.key, np.zeros(0, dtype=np.int64))
                gone[chunk.key] = np.sort(np.concatenate([before, there[flags]]))
        return self._replace(gone=gone)

    def read(self, names: Sequence[str], size: int) -> Iterator[Table]:
        """The chunks that have rows left."""
        for chunk, there in self._chunks(names):
            if len(there) == chunk.n_rows:
                yield chunk
            elif len(there):
                left = chunk.take(there)
                digest = hashlib.blake2b(self.gone[chunk.key].tobytes(), digest_size=12).digest()
                left.key, left.first = (chunk.key, digest), chunk.first
                yield left

    def _chunks(self, names: Sequence[str]) -> Iterator[tuple[Table, npt.NDArray[np.int64]]]:
        """Every chunk as it was, and the numbers of its rows that are left."""
        groups, wanted = sequences_along(self.template, self.plate), list(dict.fromkeys(names))
        for part in self.parts:
            for chunk in Cuts(part, list(dict.fromkeys([*wanted, *groups])), self.size, groups).tables():
                there = np.arange(chunk.n_rows)
                yield chunk, np.delete(there, self.gone[chunk.key]) if chunk.key in self.gone else there
