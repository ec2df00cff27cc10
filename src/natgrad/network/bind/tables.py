"""Read anything that holds rows as columns by name, arrays whose missing cells are NaN.

A table is a pandas or Polars frame, an Arrow table, a mapping or a structured array of columns; the name of a file, or of several
with ``*``; a source or a list of such tables, one after the other. The readers of files are those of `natgrad.data.io`.
"""

from __future__ import annotations

import glob
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import as_column, choose_columns, frame_columns, refuse_duplicates
from natgrad.data.ids import whole_numbers
from natgrad.data.io.parquet import ARROW, ParquetTable
from natgrad.data.io.tables import is_parquet, kind_of_table, table_chunks
from natgrad.validation import is_masked, is_missing

__all__ = ["Table", "TableChunks", "as_chunks", "as_table"]

Array = npt.NDArray[Any]
_NUMBERS = itertools.count()
# What a cell of a text file says when it is empty.
EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none"})
# Rows of a chunk, if nobody says; and rows of files from which on they are read in chunks.
CHUNK, LARGE = 100_000, 2_000_000
FORMS = (
    "a pandas or Polars frame, an Arrow table, a dict of columns, the name of a file (.csv, .tsv, .jsonl, .parquet, .arrow; * "
    "for several), or an iterator of such tables"
)


@final
class Table:
    """Columns of the same length in memory.

    Parameters
    ----------
    columns : mapping from names to arrays
    where : what errors call the table
    is_text : bool
        Whether cells are text because the file is: numbers are then read from it.
    first : number of its first row, for errors
    """

    def __init__(self, columns: Mapping[str, Any], where: str, is_text: bool = False, first: int = 0) -> None:
        self.where, self.is_text, self.first = where, is_text, first
        # Of a chunk: by what it is known again when the table is read anew (`natgrad.network.bind.chunks`).
        self.key: Any = None
        refuse_duplicates(where, list(columns))
        self._columns = {name: _as_array(values, f"{where}: column {name!r}") for name, values in columns.items()}
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            shown = {name: len(column) for name, column in self._columns.items()}
            raise ValueError(f"{where}: columns have different lengths: {shown}")
        self.n_rows = lengths.pop() if lengths else 0

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def cells(self, name: str) -> Array:
        """A column as it is; a name that is not there is an error that shows the ones that are."""
        choose_columns(self.where, self.names, [name])
        return self._columns[name]

    def numbers(self, name: str) -> Array:
        """A column as float64, missing cells as NaN; one that is something else is named with its row.

        Integers become floats here, before any arithmetic: differences of unsigned integers and products of long ones wrap.
        """
        array = self.cells(name)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64, copy=False)
        if array.dtype.kind not in "OUS":
            raise TypeError(f"{self._at(name)} is of type {array.dtype}, not numbers: convert it")
        return np.array([self._number(name, row, cell) for row, cell in enumerate(array.tolist())], dtype=np.float64)

    def _number(self, name: str, row: int, cell: Any) -> float:
        if is_missing(cell) or (self.is_text and isinstance(cell, str) and cell.strip().lower() in EMPTY):
            return math.nan
        try:
            if isinstance(cell, (str, bytes)) and not self.is_text:
                raise ValueError
            if isinstance(cell, str) and (flag := cell.strip().lower()) in ("true", "false"):
                return float(flag == "true")
            return float(cell)
        except (TypeError, ValueError):
            raise TypeError(
                f"{self._at(name)}, row {self.first + row}: {cell!r} is not a number; numbers are needed there, and an id stands "
                "in an index, as in u[Column(…)]"
            ) from None

    def missing(self, name: str) -> npt.NDArray[np.bool_]:
        """Which cells of a column are missing."""
        array = self.cells(name)
        if array.dtype.kind in "fMm":
            return np.isnan(array) if array.dtype.kind == "f" else np.isnat(array)
        if array.dtype.kind not in "OUS":
            return np.zeros(len(array), dtype=bool)
        cells = array.tolist()
        if self.is_text:
            return np.array([is_missing(cell) or str(cell).strip() == "" for cell in cells], dtype=bool)
        return np.array([is_missing(cell) for cell in cells], dtype=bool)

    def holds_numbers(self, name: str) -> bool:
        """Whether every cell of a column is a number, or missing."""
        try:
            return self.numbers(name).ndim > 0
        except TypeError:
            return False

    def take(self, rows: Any) -> Table:
        """Some of the rows."""
        return Table({name: column[rows] for name, column in self._columns.items()}, self.where, self.is_text)

    def only(self, names: Iterable[str]) -> Table:
        """Some of the columns, copied."""
        kept = Table(
            {name: np.array(self.cells(name)) for name in dict.fromkeys(names)}, self.where, self.is_text, self.first
        )
        kept.key = self.key
        return kept

    def repeated(self, length: int) -> Table:
        """The same table, its first row repeated at the end until it has so many."""
        return self.take(np.concatenate([np.arange(self.n_rows), np.zeros(length - self.n_rows, dtype=np.int64)]))

    def _at(self, name: str) -> str:
        return f"{self.where}: column {name!r}"

    @staticmethod
    def joined(tables: Sequence[Table], where: str | None = None) -> Table:
        """One table after the other; they must have the same columns."""
        first = tables[0]
        for table in tables[1:]:
            choose_columns(table.where, table.names, first.names)
        whole = {name: _concatenated([table.cells(name) for table in tables]) for name in first.names}
        return Table(whole, where or first.where, first.is_text)


@final
class TableChunks:
    """A table that is read chunk after chunk, again and again.

    Parameters
    ----------
    read : a function of the names of columns and a number of rows, that yields tables
    names : of its columns
    where : what errors call it
    n_rows : int, optional, if that is known before it is read
    files : those that it is read from
    is_cut : bool
        Whether ``read`` yields the chunks as they are to be, none of them longer than it is asked for.
    can_jump : bool
        Whether ``read`` takes a range of rows, too, and reads no others.
    """

    def __init__(
        self,
        read: Callable[..., Iterator[Table]],
        names: list[str],
        where: str,
        n_rows: int | None = None,
        files: Sequence[Path] = (),
        is_cut: bool = False,
        can_jump: bool = False,
    ) -> None:
        self.read, self.names, self.where, self.n_rows, self.files = read, names, where, n_rows, tuple(files)
        self.is_cut, self.can_jump = is_cut, can_jump
        self.number: Any = next(_NUMBERS)  # of this process
        self.pieces: Any = None  # if rows came or went since it was first fitted (`natgrad.network.bind.updating`)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def chunks(self, names: Sequence[str], size: int = CHUNK) -> Iterator[Table]:
        """Some of the columns, ``size`` rows at a time but for the last chunk."""
        choose_columns(self.where, self.names, names)
        if self.is_cut:
            yield from (part.only(names) for part in self.read(names, size))
            return
        waiting: list[Table] = []
        held = first = 0
        for part in self.read(names, size):
            waiting.append(part.only(names))
            held += part.n_rows
            while held >= size:
                whole = Table.joined(waiting, self.where) if len(waiting) > 1 else waiting[0]
                yield _part(whole, 0, size, first)
                waiting = [_part(whole, size, held, first)] if held > size else []
                held, first = held - size, first + size
        if held:
            yield _part(Table.joined(waiting, self.where), 0, held, first)

    def whole(self, names: Sequence[str]) -> Table:
        """All rows in memory."""
        parts = list(self.chunks(names))
        if not parts:
            raise ValueError(f"{self.where} has no rows: there is nothing to learn from")
        return Table.joined(parts, self.where)


def as_table(data: Any, where: str = "the table") -> Table | TableChunks:
    """Whatever holds rows as a table, or as one that is read in chunks."""
    if isinstance(data, (Table, TableChunks)):
        return data
    if isinstance(data, (str, Path)):
        return _of_files(data)
    if isinstance(data, Mapping):
        return Table(data, where)
    if (columns := frame_columns(data)) is not None:
        return Table({str(name): column for name, column in columns.items()}, where)
    if isinstance(data, (list, tuple)) and data:
        return _of_parts(lambda: iter(data), where)
    if callable(getattr(data, "chunks", None)):
        if getattr(data, "rereadable", True):
            return _of_parts(data.chunks, where)
        return _held(iter(data.chunks()), where)
    if isinstance(data, Iterator):
        return _held(data, where)
    if callable(data):
        return _of_parts(data, where)
    raise TypeError(f"{where} must be {FORMS}, got {type(data).__name__}")


def as_chunks(table: Table | TableChunks) -> TableChunks:
    """A table in memory as one that is read in chunks."""
    if isinstance(table, TableChunks):
        return table
    if table.key is None:
        table.key = ("table", next(_NUMBERS))

    def read(names: Sequence[str], size: int) -> Iterator[Table]:
        yield Table({name: table.cells(name) for name in names}, table.where, table.is_text)

    chunks = TableChunks(read, table.names, table.where, table.n_rows)
    chunks.number = table.key
    return chunks


# -- forms --


def _as_array(values: Any, what: str) -> Array:
    if is_masked(values):
        lost = np.ma.getmaskarray(values)
        values = values.data.astype(object)
        values[lost] = None
    values = as_column(values)
    if hasattr(values, "to_numpy"):  # an extension array of pandas
        values = values.to_numpy()
    if not isinstance(values, np.ndarray):
        values = list(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else values
        mixed = isinstance(values, list) and len({type(value) for value in values}) > 1
        plain = not isinstance(values, list) or not mixed or all(type(v) in (int, float, bool) for v in values)
        if isinstance(values, list) and any(isinstance(value, tuple) for value in values):  # pairs are ids, not rows
            array = np.empty(len(values), dtype=object)
            for place, value in enumerate(values):
                array[place] = value
        else:
            whole = isinstance(values, list) and bool(values) and {type(value) for value in values} == {int}
            array = whole_numbers(values) if whole else np.array(values) if plain else np.array(values, dtype=object)
    else:
        array = values
    if array.ndim == 0:
        raise TypeError(f"{what} must be a list or array, got {values!r}")
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], (list, np.ndarray)):
        try:
            array = np.stack([np.asarray(row) for row in array])
        except ValueError:
            raise TypeError(f"{what} has lists of different lengths: give each entry a row") from None
    return array


def _concatenated(parts: list[Array]) -> Array:
    """One array after the other; text and numbers are not made one type."""
    if len({"O" if part.dtype.kind in "OUS" else "n" for part in parts}) > 1 or any(p.dtype.kind == "O" for p in parts):
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


def _part(table: Table, begin: int, end: int, first: int) -> Table:
    if begin == 0 and end == table.n_rows:
        table.first = first
        return table
    cut = {name: table.cells(name)[begin:end] for name in table.names}
    return Table(cut, table.where, table.is_text, first)


def _named_parts(parts: Iterable[Any], where: str) -> Iterator[Table]:
    for number, part in enumerate(parts):
        table = as_table(part, f"{where}, chunk {number}")
        if isinstance(table, TableChunks):
            raise TypeError(f"{where}, chunk {number}: a chunk must be in memory, got {type(part).__name__}")
        yield table


def _of_parts(begin: Callable[[], Iterable[Any]], where: str) -> TableChunks:
    first = next(_named_parts(begin(), where), None)
    if first is None:
        raise ValueError(f"{where} has no chunks: there is nothing to learn from")

    def read(names: Sequence[str], size: int) -> Iterator[Table]:
        for part in _named_parts(begin(), where):
            choose_columns(part.where, part.names, names)
            yield part

    return TableChunks(read, first.names, where)


def _held(parts: Iterator[Any], where: str) -> Table:
    """What comes once, in memory."""
    tables = [part for part in _named_parts(parts, where) if part.n_rows]
    if not tables:
        raise ValueError(f"{where} has no rows: there is nothing to learn from")
    return Table.joined(tables, where)


def _of_files(name: str | Path) -> TableChunks:
    path = Path(name)
    paths = [path]
    if any(mark in str(name) for mark in "*?[") and not path.exists():
        paths = [Path(name_of_file) for name_of_file in sorted(glob.glob(str(name)))]
        if not paths:
            raise FileNotFoundError(f"{str(name)!r}: no file is called like this")
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{str(path)!r}: there is no such file or folder")
    if all(path.is_dir() or is_parquet(path) or path.suffix in ARROW for path in paths):
        return _of_parquet(paths, str(name))
    for path in paths:
        if kind_of_table(path) is None:
            raise ValueError(f"{path.name!r} is no kind of table that is known; give {FORMS}")
    return _of_text(paths, str(name))


def _of_parquet(paths: list[Path], where: str) -> TableChunks:
    tables = [ParquetTable(path) for path in paths]
    for table in tables[1:]:
        choose_columns(table.path, table.names, tables[0].names)

    def read(names: Sequence[str], size: int, rows: range | None = None) -> Iterator[Table]:
        before = 0
        for table in tables:
            chosen = table.choose(list(names))
            own = None if rows is None else range(max(rows.start - before, 0), rows.stop - before)
            for arrays in table.arrays(chosen, size, own):
                yield Table(dict(zip(chosen, arrays, strict=True)), str(table.path))
            before += table.n_rows

    return TableChunks(read, tables[0].names, where, sum(table.n_rows for table in tables), paths, can_jump=True)


def _of_text(paths: list[Path], where: str) -> TableChunks:
    names = list(next(table_chunks(paths[0], size=1)))

    def read(wanted: Sequence[str], size: int) -> Iterator[Table]:
        for path in paths:
            for chunk in table_chunks(path, list(wanted), size=size):
                is_text = kind_of_table(path) != "jsonl"
                if wanted and len(chunk[wanted[0]]):
                    columns = {name: np.array(cells, dtype=object) for name, cells in chunk.items()}
                    yield Table(columns, str(path), is_text)

    return TableChunks(read, names, where, None, paths)
