"""A table on disk (CSV, TSV, JSON lines, Parquet) in, its columns by name out; a wrong name is told the ones that exist."""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.text import open_text

__all__ = ["TABLES", "is_parquet", "kind_of_table", "read_table"]

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


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return kind_of_table(path) == "parquet"


def kind_of_table(path: Path) -> str | None:
    """What kind of table a file is, by its name; None if it is none. ``.gz`` may follow."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return TABLES.get(suffixes[-1]) if suffixes else None


@raises_file_error
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
    where = Path(path)
    kind = kind_of_table(where)
    if kind is None:
        raise ValueError(f"{where}: not a table by its name; expected a file ending in {', '.join(TABLES)}")
    if kind == "parquet":
        return _from_parquet(where, columns)
    with open_text(where, encoding) as file:
        if kind == "jsonl":
            return _from_json_lines(where, file, columns)
        return _from_rows(where, file, "," if kind == "csv" else "\t", columns)


def _from_rows(path: Path, file: TextIO, separator: str, columns: Sequence[str] | None) -> Columns:
    csv.field_size_limit(2**31 - 1)  # a field may be a whole book
    rows = csv.reader(file, delimiter=separator)
    header = [name.strip() for name in next(rows, [])]
    if not header:
        raise ValueError(f"{path}: is empty; expected a first line with the names of the columns")
    _refuse_twice(f"{path}, line {rows.line_num}", header)
    chosen = _chosen(path, header, columns)
    places = [header.index(name) for name in chosen]
    found: Columns = {name: [] for name in chosen}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {rows.line_num}: {len(row)} fields, but the first line names {len(header)} columns "
                f"({', '.join(header)})"
            )
        for name, place in zip(chosen, places, strict=True):
            found[name].append(row[place])
    return found


def _from_json_lines(path: Path, file: TextIO, columns: Sequence[str] | None) -> Columns:
    found: Columns = {}
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
        chosen = _chosen(path, list(record), columns if columns is not None else list(found) or None)
        for name in chosen:
            found.setdefault(name, []).append(record[name])
    if not found:
        raise ValueError(f"{path}: is empty; expected a JSON object on each line")
    return found


def _from_parquet(path: Path, columns: Sequence[str] | None) -> Columns:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError(f"{path}: reading Parquet needs PyArrow: pip install pyarrow") from None
    present = parquet.read_schema(path).names
    _refuse_twice(str(path), present)
    chosen = _chosen(path, present, columns)
    table = parquet.read_table(path, columns=chosen)
    return {name: table.column(name).to_pylist() for name in chosen}


def _record(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_twice(where, [name for name, _ in pairs])
    return dict(pairs)


def _refuse_twice(where: str, names: list[str]) -> None:
    """Of two columns with one name only one could be read, and nobody would know which."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{where}: the column {twice!r} is there {names.count(twice)} times among {', '.join(map(repr, names))}: rename one"
        )


def _chosen(path: Path, present: list[str], wanted: Sequence[str] | None) -> list[str]:
    if wanted is None:
        return present
    for name in wanted:
        if name not in present:
            near = difflib.get_close_matches(name, present, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{path}: there is no column {name!r}; it has {', '.join(map(repr, present))}{hint}")
    return list(wanted)
