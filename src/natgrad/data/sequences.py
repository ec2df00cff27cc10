"""Arrays, memory-mapped files, tables or Parquet in; one long array of times with the ends of its sequences out.

Nothing is copied that need not be: a memory-mapped array of codes or floats stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import as_column, frame_columns, table_names
from natgrad.data.io.npy import load_array, spill
from natgrad.data.io.parquet import ParquetSource, ParquetTable
from natgrad.validation import as_numbers, is_masked

__all__ = [
    "Sequences",
    "as_columns",
    "as_ends",
    "as_labels",
    "check_names",
    "chunks_of",
    "columns_and_lengths",
    "is_stream",
    "lengths_of",
    "read_only",
]

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
# Rows that are looked at together when all are checked, so that no temporary array is as long as the data.
ROWS = 1_000_000
PARQUET = (".parquet", ".pq")


def read_only(part: Array) -> Array:
    """A view that cannot be written to: kernels are compiled once for what is in memory and what is mapped from a file."""
    view = np.asarray(part).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class Sequences:
    """Observations of several sequences, one after the other: codes [T], or values [T, D]; sequence s is ends[s] … ends[s + 1].

    ``patterns`` [V, D] are the values that codes stand for, if they do; the code V means missing. ``labels`` [T] are known
    states, −1 for unknown, or empty. ``base`` is the part of log p(y | x) that no state changes.
    """

    codes: Array
    values: Array
    ends: Ints
    patterns: Array | None = None
    labels: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    base: float = 0.0

    def __post_init__(self) -> None:
        for name in ("codes", "values", "labels"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    @property
    def n_times(self) -> int:
        """T."""
        return int(self.ends[-1])

    @property
    def lengths(self) -> Ints:
        """Of the sequences."""
        return np.diff(self.ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def cut(self, begin: int, end: int) -> Sequences:
        """The times ``begin`` to ``end`` as sequences of their own."""
        inside = self.ends[(self.ends > begin) & (self.ends < end)]
        ends = np.array([begin, *inside, end], dtype=np.int64) - begin
        codes, values, labels = (part[begin:end] for part in (self.codes, self.values, self.labels))
        share = (end - begin) / self.n_times
        return replace(self, codes=codes, values=values, labels=labels, ends=ends, base=self.base * share)


def as_columns(X: Any, one_dimensional: bool = False, columns: Sequence[str] | None = None) -> Array:
    """Data as an array [T, D] without a copy where that is possible; a name of a .npy or .parquet file is opened.

    Of a Parquet file those ``columns``, or all.
    """
    if isinstance(X, (str, Path)):
        X = _opened(Path(X), columns)
    if hasattr(X, "toarray"):
        raise TypeError("X is a sparse matrix: give X.toarray()")
    if (table := frame_columns(X)) is not None:
        # In the memory order of a frame's own arrays: sums over rows, and so the last bits, depend on it.
        plain = np.array([as_numbers(column, f"X: column {name!r}", missing=True) for name, column in table.items()]).T
    else:
        plain = as_column(X)
    array = np.ma.filled(plain.astype(np.float64), np.nan) if is_masked(plain) else np.asarray(plain)
    if array.dtype.kind == "O":
        array = as_numbers(X, "X", missing=True)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X holds {array.dtype}; give real and imaginary parts as columns")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"X must hold numbers, got {array.dtype}: encode labels, np.unique(X, return_inverse=True)[1]")
    if array.ndim == 1 and one_dimensional:
        array = array[:, None]
    if array.ndim == 1:
        raise ValueError(
            f"X must be a 2D array (times, columns), got shape {array.shape}. Reshape your data: X[:, None]"
        )
    if array.ndim != 2:
        raise ValueError(
            f"X must have the shape (times, columns), got {array.shape}: give several sequences by lengths="
        )
    if array.shape[1] == 0:
        raise ValueError(f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if len(array) == 0:
        raise ValueError(f"X is empty, shape {array.shape}: there is nothing to fit to (minimum of 1 is required)")
    return array


def check_names(estimator: Any, X: Any, fresh: bool) -> None:
    """Keep the names of a table's columns, ``feature_names_in_``, or refuse a table with others, or with these in another order.

    Columns are read by their places: a table that has them elsewhere would be another one, and nobody would know.
    """
    named = _names(X[0] if isinstance(X, (list, tuple)) and len(X) else X)
    if fresh:
        vars(estimator).pop("feature_names_in_", None)
        if named is not None:
            estimator.feature_names_in_ = np.array(named, dtype=object)
    known = getattr(estimator, "feature_names_in_", None)
    if known is None or named is None:
        return
    for part in X if isinstance(X, (list, tuple)) else [X]:
        own = _names(part)
        if own is None or own == known.tolist():
            continue
        place = next((d for d, (a, b) in enumerate(zip(own, known, strict=False)) if a != b), min(len(own), len(known)))
        here, there = ([*map(repr, names), "nothing"][min(place, len(names))] for names in (own, known.tolist()))
        raise ValueError(
            f"column {place} of X is {here}, but {there} in the fit: columns are read by their places, X[{known.tolist()}]"
        )


def _names(X: Any) -> list[str] | None:
    if isinstance(X, (str, Path)):
        return list(ParquetTable(X).names) if Path(X).suffix in PARQUET else None
    return table_names(X)


def columns_and_lengths(X: Any, y: Any, lengths: Any, one_dimensional: bool = False) -> tuple[Array, Any]:
    """Sequences one after the other as an array [T, D], and their lengths; a list of arrays is several sequences.

    Examples
    --------
    >>> columns, lengths = columns_and_lengths([np.zeros((2, 1)), np.ones((3, 1))], None, None)
    >>> columns.shape, lengths
    ((5, 1), [2, 3])
    """
    several = (1, 2) if one_dimensional else (2,)
    dimensions = {getattr(part, "ndim", 0) for part in X} if isinstance(X, (list, tuple)) else set()
    if dimensions == {1} and not one_dimensional:
        raise ValueError(
            f"X is a list of {len(X)} arrays of one dimension, which may be rows or sequences: "
            "for sequences of one column give [x[:, None] for x in X], for rows of one sequence np.stack(X)"
        )
    if not dimensions or not dimensions <= set(several):
        columns = as_columns(X, one_dimensional)
        return columns, lengths_of(y, lengths, len(columns))
    if lengths is not None:
        raise ValueError(f"X is a list of {len(X)} sequences, which say their lengths: leave lengths= out")
    parts = [as_columns(part, one_dimensional) for part in X]
    for number, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"X[{number}] has the shape {part.shape}, but X[0] {parts[0].shape}: sequences have the same columns"
            )
    return np.concatenate(parts), [len(part) for part in parts]


def lengths_of(y: Any, lengths: Any, n_times: int) -> Any:
    """Lengths from what comes second in a call: lengths, as hmmlearn's users write them, or a target, as scikit-learn does.

    A target has an entry for each row and is ignored; if all of them are 1 they are lengths of so many sequences.

    Examples
    --------
    >>> lengths_of([2, 3], None, 5), lengths_of([0, 1, 1, 0, 1], None, 5), lengths_of(None, [5], 5)
    ([2, 3], None, [5])
    """
    if lengths is not None or y is None:
        return lengths
    target = np.shape(y)[:1] == (n_times,) and not np.array_equal(y, np.ones(n_times))
    return None if target else y


def as_ends(lengths: Any, n_times: int) -> Ints:
    """Where sequences end; checked against the number of times."""
    if lengths is None:
        return np.array([0, n_times], dtype=np.int64)
    counts = np.atleast_1d(np.asarray(lengths))
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise TypeError(f"lengths must be whole numbers, one for each sequence, got {lengths!r}")
    if (bad := np.flatnonzero(counts < 1)).size:
        raise ValueError(f"lengths[{bad[0]}] = {counts[bad[0]]} must be ≥ 1: leave out sequences without observations")
    if counts.sum() != n_times:
        raise ValueError(f"lengths sum to {counts.sum()}, but X has {n_times} rows")
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def as_labels(labels: Any, n_times: int, n_states: int) -> npt.NDArray[np.int32]:
    """Known states [T], −1 where unknown; empty if there are none."""
    if labels is None:
        return np.zeros(0, np.int32)
    several = isinstance(labels, (list, tuple)) and all(np.ndim(part) == 1 for part in labels)
    joined = np.concatenate(labels) if several and labels else np.asarray(labels)
    if joined.dtype.kind not in "iu" or joined.shape != (n_times,):
        raise ValueError(
            f"labels must be whole numbers, one for each of {n_times} rows (−1 where the state is unknown), got an array "
            f"of {joined.dtype} with shape {joined.shape}"
        )
    if (bad := np.flatnonzero((joined < -1) | (joined >= n_states))).size:
        raise ValueError(f"labels[{bad[0]}] = {joined[bad[0]]} must lie between −1 (unknown) and {n_states - 1}")
    return joined.astype(np.int32)


def chunks_of(array: Array) -> Iterator[tuple[int, Array]]:
    """Parts of a long array with the row at which each begins."""
    for begin in range(0, len(array), ROWS):
        yield begin, array[begin : begin + ROWS]


def is_stream(X: Any) -> bool:
    """Whether data come one part after the other."""
    return hasattr(X, "__next__")


def _opened(path: Path, columns: Sequence[str] | None) -> Array:
    if path.suffix == ".npy":
        return load_array(path, "r")
    if path.suffix in PARQUET:
        source = ParquetSource(path, columns=columns)
        return spill(source.chunks(), len(source.columns))
    raise ValueError(f"X = {str(path)!r}: only .npy and .parquet files are opened by name")
