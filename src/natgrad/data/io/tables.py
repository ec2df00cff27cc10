"""A table on disk (CSV, TSV, JSON lines, Parquet) in, its columns by name out, whole or a chunk of rows at a time.

The whole table is all its chunks. A wrong name is told the ones that exist. `records` is the one reader of separated fields:
tables and files of ratings are read with it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from natgrad.data.frames import choose_columns, refuse_duplicates
from natgrad.data.io.file_errors import chunks_with_file_errors
from natgrad.data.io.parquet import ParquetTable
from natgrad.data.io.text import open_text
from natgrad.data.stream import SIZE

__all__ = [
    "TABLES",
    "column_names",
    "is_parquet",
    "kind_of_table",
    "read_table",
    "records",
    "separator_in",
    "table_chunks",
]

TABLES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
Columns = dict[str, list[Any]]
# Letters of a field, which may hold a whole book; where there are more, a quotation mark was not closed.
LONGEST = 2**27
# A last line that no file has: a record that swallows it is one whose quotation mark is not closed.
END = "\x1e\x1e"


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return kind_of_table(path) == "parquet"


def kind_of_table(path: Path) -> str | None:
    """What kind of table a file is, by its name; None if it is none. ``.gz`` may follow."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return TABLES.get(suffixes[-1]) if suffixes else None


def read_table(path: str | Path, columns: Sequence[str] | None = None, *, encoding: str | None = None) -> Columns:
    """Columns of a table as lists.

    Parameters
    ----------
    path : a file ending in .csv, .tsv, .jsonl or .parquet; text may be gzipped
    columns : names, optional
        Those to read, in this order; all by default. Fields of text files are text.
    encoding : str, optional
        Of text files: by default what the byte-order mark says, or UTF-8.

    Raises
    ------
    ValueError
        With the columns that exist if one is asked for that does not, and with the line of the first row that is wrong.
    """
    chunks = table_chunks(path, columns, encoding=encoding)
    table = next(chunks)
    for chunk in chunks:
        for name, values in chunk.items():
            table[name] += values
    return table


def column_names(path: str | Path, *, encoding: str | None = None) -> list[str]:
    """The names of a table's columns, in order."""
    return list(next(table_chunks(path, size=1, encoding=encoding)))


def table_chunks(
    path: str | Path, columns: Sequence[str] | None = None, *, size: int = SIZE, encoding: str | None = None
) -> Iterator[Columns]:
    """The same columns, ``size`` rows at a time; of a table without rows, one chunk without rows."""
    return chunks_with_file_errors(path, _chunks(Path(path), columns, size, encoding))


def _chunks(path: Path, columns: Sequence[str] | None, size: int, encoding: str | None) -> Iterator[Columns]:
    kind = kind_of_table(path)
    if kind is None:
        raise ValueError(f"{path}: not a table by its name; expected a file ending in {', '.join(TABLES)}")
    if kind == "parquet":
        table = ParquetTable(path)
        names = table.choose(columns)
        yield from _filled(
            names, ({name: part.column(name).to_pylist() for name in names} for part in table.batches(names, size))
        )
        return
    with open_text(path, encoding) as file:
        names, keys, rows = (_json_rows if kind == "jsonl" else _separated_rows)(path, file, columns)
        yield from _filled(names, _columns(names, keys, rows, size))


def _filled(names: list[str], chunks: Iterator[Columns]) -> Iterator[Columns]:
    """The chunks, or one without rows."""
    yield next(chunks, {name: [] for name in names})
    yield from chunks


def _columns(names: list[str], keys: list[Any], rows: Iterator[Any], size: int) -> Iterator[Columns]:
    """The fields ``row[key]`` of each row, column by column."""
    while names:
        columns: list[list[Any]] = [[] for _ in names]
        for row in islice(rows, size):
            for column, key in zip(columns, keys, strict=True):
                column.append(row[key])
        if not columns[0]:
            return
        yield dict(zip(names, columns, strict=True))


def separator_in(path: Path, line: str) -> str | None:
    """What separates the fields of a file's first line, outside of quotation marks; None if nothing does.

    The first of ``::``, tab, ; and , that is there; in a .csv the comma, and in a .tsv the tab, comes first.
    """
    kind, bare = kind_of_table(path), re.sub(r'"[^"]*"', "", line)
    order = {"csv": (",", ";", "\t", "::"), "tsv": ("\t", "::", ";", ",")}.get(kind or "", ("::", "\t", ";", ","))
    return next((mark for mark in order if mark in bare), None)


def records(path: Path, lines: Iterator[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each record, and the line on which it begins; one in quotation marks may go over several lines."""
    if separator == "::":
        yield from ((line, text.rstrip("\r\n").split("::")) for line, text in enumerate(lines, 1) if text.strip())
        return
    csv.field_size_limit(LONGEST)
    rows, begin = csv.reader(chain(lines, [END]), delimiter=separator), 1
    try:
        for row in rows:
            if row and row[-1].endswith(END):
                break
            if row:
                yield begin, row
            begin = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {begin}: {error}; is a quotation mark not closed?") from None
    if rows.line_num != begin:
        raise ValueError(
            f"{path}, line {begin}: a field begins with a quotation mark that is never closed; close it, or double it"
        )


def _separated_rows(
    path: Path, file: TextIO, columns: Sequence[str] | None
) -> tuple[list[str], list[Any], Iterator[list[str]]]:
    first = file.readline()
    separator = (separator_in(path, first) if kind_of_table(path) == "csv" else "\t") or ","
    rows = records(path, chain([first], file), separator)
    header = [name.strip() for name in next(rows, (1, []))[1]]
    if not first.strip() or not header:
        raise ValueError(f"{path}: is empty; expected a first line with the names of the columns")
    refuse_duplicates(f"{path}, line 1", header)
    chosen = choose_columns(path, header, columns)

    def checked() -> Iterator[list[str]]:
        for line, row in rows:
            if len(row) != len(header):
                raise ValueError(
                    f"{path}, line {line}: {len(row)} fields, but the first line names {len(header)} columns "
                    f"({', '.join(header)})"
                )
            yield row

    return chosen, [header.index(name) for name in chosen], checked()


def _json_rows(
    path: Path, file: TextIO, columns: Sequence[str] | None
) -> tuple[list[str], list[Any], Iterator[dict[str, Any]]]:
    objects = _json_objects(path, file)
    first = next(objects, None)
    if first is None:
        raise ValueError(f"{path}: is empty; expected a JSON object on each line")
    names = choose_columns(f"{path}, line {first[0]}", list(first[1]), columns)

    def checked() -> Iterator[dict[str, Any]]:
        for line, record in chain([first], objects):
            where = f"{path}, line {line}"
            choose_columns(where, list(record), names)
            if columns is None and len(record) > len(names):
                more = next(name for name in record if name not in names)
                raise ValueError(
                    f"{where}: the column {more!r} is new; name the columns to read, or write it on every line"
                )
            yield record

    return names, names, checked()


def _json_objects(path: Path, file: TextIO) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=partial(_record, f"{path}, line {number}"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error.msg})") from None
        if not isinstance(record, dict):
            raise ValueError(
                f"{path}, line {number}: expected an object with the columns as keys, got {line.strip()[:40]!r}"
            )
        yield number, record


def _record(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    refuse_duplicates(where, [name for name, _ in pairs])
    return dict(pairs)
