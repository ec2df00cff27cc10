"""A file of numbers in (a table, or .npy), rows and columns out, with the names of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.npy import load_array
from natgrad.data.io.tables import column_names as table_columns
from natgrad.data.io.tables import kind_of_table, read_table
from natgrad.data.io.text import number_in

__all__ = ["Numbers", "column_names", "read_numbers", "run_lengths"]

Floats = npt.NDArray[np.float64]


class Numbers(NamedTuple):
    """Rows [N, D], the names of the columns, and the columns that were asked for apart, as they stand in the file."""

    rows: Floats
    names: list[str]
    apart: dict[str, npt.NDArray[Any]]


@raises_file_error
def read_numbers(
    path: str | Path, columns: Sequence[str] | None = None, apart: Sequence[str] = (), *, encoding: str | None = None
) -> Numbers:
    """Columns of a file as numbers; an empty field is NaN.

    Parameters
    ----------
    path : .csv, .tsv, .jsonl, .parquet or .npy
    columns : names, optional
        Those to read; by default all that are not ``apart``.
    apart : names of columns that are no inputs: a target, the name of a sequence
    encoding : of text, optional; by default what its byte-order mark says, or UTF-8
    """
    where = Path(path)
    if not where.exists():
        raise FileNotFoundError(f"{where}: there is no such file (looked for {where.absolute()})")
    if where.suffix == ".npy":
        return _from_array(where, columns, apart)
    if kind_of_table(where) is None:
        raise ValueError(f"{where}: expected a file ending in .csv, .tsv, .jsonl, .parquet or .npy")
    wanted = None if columns is None else [*dict.fromkeys([*columns, *apart])]
    table = read_table(where, wanted, encoding=encoding)
    for name in apart:
        if name not in table:
            raise ValueError(f"{where}: there is no column {name!r}; it has {', '.join(map(repr, table))}")
    names = [name for name in table if name not in apart]
    if not names:
        raise ValueError(f"{where}: no column is left to read")
    rows = np.array([_as_floats(where, name, table[name]) for name in names]).T
    if not len(rows):
        raise ValueError(f"{where}: has no rows")
    return Numbers(rows, names, {name: _plain(table[name]) for name in apart})


@raises_file_error
def column_names(path: str | Path, *, encoding: str | None = None) -> list[str]:
    """The names of a file's columns, in order; those of an array are numbers."""
    where = Path(path)
    if not where.exists():
        raise FileNotFoundError(f"{where}: there is no such file (looked for {where.absolute()})")
    if where.suffix == ".npy":
        shape = load_array(where, "r").shape
        return [str(place) for place in range(shape[1] if len(shape) > 1 else 1)]
    return table_columns(where, encoding=encoding)


def run_lengths(labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The lengths of the stretches of equal labels: rows with the same name, one after the other, are one sequence.

    Examples
    --------
    >>> run_lengths(np.array(["a", "a", "b", "a"])).tolist()
    [2, 1, 1]
    """
    begin = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    return np.asarray(np.diff(np.r_[begin, len(labels)]), dtype=np.int64)


def _from_array(path: Path, columns: Sequence[str] | None, apart: Sequence[str]) -> Numbers:
    table = load_array(path)
    if table.dtype.kind not in "biuf" or table.ndim not in (1, 2):
        raise ValueError(f"{path}: expected numbers of one or two axes, got {table.dtype} of shape {table.shape}")
    table = table[:, None] if table.ndim == 1 else table
    names = [str(place) for place in range(table.shape[1])]
    for name in [*(columns or ()), *apart]:
        if name not in names:
            raise ValueError(f"{path}: there is no column {name!r}; columns of an array are 0 … {len(names) - 1}")
    chosen = [name for name in columns or names if name not in apart]
    rows = table[:, [int(name) for name in chosen]].astype(np.float64)
    return Numbers(rows, chosen, {name: table[:, int(name)] for name in apart})


def _as_floats(path: Path, name: str, values: list[Any]) -> Floats:
    out = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            out[row] = np.nan if value is None or value == "" else _number(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{path}, row {row + 1}: column {name!r} holds {value!r}, which is no number; leave the column out, or encode it"
            ) from None
    return out


def _number(value: Any) -> float:
    """A number; text must look like one, "nan" too."""
    number = number_in(value) if isinstance(value, str) else float(value)
    if number != number and isinstance(value, str) and value.strip().lower().lstrip("+-") != "nan":
        raise ValueError(value)
    return number


def _plain(values: list[Any]) -> npt.NDArray[Any]:
    """Numbers where all are, text otherwise."""
    try:
        return np.array([_number(value) for value in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])
