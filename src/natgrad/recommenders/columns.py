"""Ratings with their times and contexts in any common form in; ids, numbers and labels out, which come and go with a fit.

Times are cut into bins of equal length, from the first to the last rating. Contexts are labels: an hour of the day, a device, a
place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import column_names, frame_columns
from natgrad.data.held import HeldRatings
from natgrad.data.ids import Ids, as_ids, joined_ids, number_ids
from natgrad.data.io.tables import read_table
from natgrad.data.rating_columns import columns_of, pair_columns, rating_columns
from natgrad.data.rating_forms import as_ratings
from natgrad.data.ratings import Ratings

__all__ = ["Codes", "Columns", "TimeBins", "as_rows", "as_seconds", "columns_in", "label_codes", "read_context_table"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Bins that later ratings may add, as a multiple of those of the fit.
MOST_GROWTH = 20


class Codes(NamedTuple):
    """Numbers of users, items, bins of time and contexts, all [n]; −1 for what is not known. Bins go on beyond the ends."""

    users: Ints
    items: Ints
    bins: Ints
    contexts: Ints


class TimeBins(NamedTuple):
    """n bins of equal length between two times."""

    first: float
    last: float
    n: int

    @classmethod
    def over(cls, times: Floats, n: int) -> TimeBins:
        """From the first time to the last; one bin of length 1 where these are the same."""
        first, last = float(times.min()), float(times.max())
        return cls(first, last, n) if last > first else cls(first, first + 1.0, 1)

    @property
    def width(self) -> float:
        """Of a bin."""
        return (self.last - self.first) / self.n

    def of(self, times: Floats) -> Ints:
        """The bin of each time: 0 … n − 1 within, and further out beyond."""
        bins = np.floor((times - self.first) / self.width).astype(np.int64)
        bins[times == self.last] = self.n - 1
        return np.asarray(bins)

    def extended(self, times: Floats) -> TimeBins:
        """With as many more bins of the same length as these times need, before and after."""
        bins = self.of(times)
        before, after = max(0, -int(bins.min())), max(0, int(bins.max()) - self.n + 1)
        if before + after > MOST_GROWTH * self.n:
            far = float(times[np.argmax(np.maximum(-bins, bins - self.n))])
            raise ValueError(
                f"time = {far:g} is {before + after} bins beyond {self.first:g} … {self.last:g}, the times of the fit: "
                "if its unit is the same, call fit() with all ratings, which cuts time anew"
            )
        return TimeBins(self.first - before * self.width, self.last + after * self.width, self.n + before + after)


class _Columns(NamedTuple):
    ratings: Ratings
    time: Floats | None
    context: Array | None


class Columns(_Columns):
    """Ratings, pairs that come again kept, and a time and a label for each, where there are any: what a fit is made of."""

    noun: ClassVar[str] = "ratings"

    @property
    def n_elements(self) -> int:
        """Ratings."""
        return len(self.ratings)

    @property
    def pairs(self) -> tuple[Array, Array]:
        """The ids of users and items."""
        return self.ratings.user_ids[self.ratings.users], self.ratings.item_ids[self.ratings.items]

    def joined(self, more: Columns) -> Columns:
        """With others after its own; a pair that comes again is rated again."""
        own, new = self.ratings, more.ratings
        (user_ids, user), (item_ids, item) = (
            joined_ids(own.user_ids, new.user_ids),
            joined_ids(own.item_ids, new.item_ids),
        )
        users, items = (
            np.concatenate([old, number[later]])
            for old, number, later in ((own.users, user, new.users), (own.items, item, new.items))
        )
        values = np.concatenate([own.values, new.values])
        time = None if self.time is None or more.time is None else np.concatenate([self.time, more.time])
        context = None
        if self.context is not None and more.context is not None:
            labels, numbers = joined_ids(number_ids(self.context, "context", "context")[1].array, more.context)
            context = np.concatenate([self.context.astype(labels.dtype), labels[numbers]])
        return Columns(Ratings.numbered(users, items, values, user_ids, item_ids), time, context)

    def taken(self, numbers: Ints) -> Columns:
        """Some ratings; a user, an item or a context without any is gone."""
        beside = (None if part is None else part[numbers] for part in (self.time, self.context))
        return Columns(HeldRatings(self.ratings).taken(numbers).ratings, *beside)

    def named(self, which: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """The ratings of some users, or of some items."""
        return HeldRatings(self.ratings).named(which)


def columns_in(X: Any, y: Any, time: Any, context: Any, *, rated: bool = True) -> Columns:
    """What is fitted, scored or predicted.

    Parameters
    ----------
    X : `Ratings`, a table (also a structured array), the path of one, rows of user and item, or an iterator of any of these
    y : their ratings, where X has none
    time, context : one for each rating, or a column of X: its name in a table, its number in an array of rows
    rated : whether ratings are needed; without, they are zeros
    """
    if isinstance(X, (str, Path)):
        X = read_context_table(Path(X), time=time, context=context, rated=rated and y is None)
    if hasattr(X, "__next__"):
        return _chunks(X, time, context)
    if column_names(X) is not None:
        ratings = Ratings(*_rated(X, y, rated), duplicates="keep")
    elif any(_is_number(column) for column in (time, context)):
        X = _rows(X)
        if y is None and rated:
            raise ValueError("ContextFactorization requires y to be passed, but the target y is None: the ratings of X")
        ratings = Ratings(X[:, 0], X[:, 1], np.zeros(len(X)) if y is None else y, duplicates="keep")
    else:
        ratings = as_ratings(X, np.zeros(len(X)) if y is None and not rated else y, "keep")
    times = None if time is None else as_seconds(_column(X, time, "time"), len(ratings))
    labels = None if context is None else _checked_labels(_column(X, context, "context"), len(ratings))
    return Columns(ratings, times, labels)


def read_context_table(
    path: Path, *, time: Any = None, context: Any = None, rated: bool = True, encoding: str | None = None, **named: Any
) -> Array:
    """The columns of a table on disk (CSV, TSV, JSON lines, Parquet) that count, as a structured array by their names.

    ``named`` may be user, item and value, where the names do not say so. Users, items and contexts of text files are texts; times
    are numbers, or dates as 2024-05-31.
    """
    table = read_table(path, encoding=encoding)
    chosen = rating_columns(list(table), **named, where=f"{path}: ", rated=rated)
    kept: dict[str, Array] = {
        name: np.asarray(as_ids(table[name], name)) for name in chosen[:2] if isinstance(name, str)
    }
    if rated:
        kept[str(chosen.value)] = _as_numbers(table[str(chosen.value)], f"{path}: the column {chosen.value!r}")
    for role, name in (("time", time), ("context", context)):
        if name is not None and name not in table:
            raise ValueError(f"{path}: {role}={name!r} is not a column; there are {', '.join(map(repr, table))}")
    if time is not None:
        kept[time] = _as_times(table[time], f"{path}: the column {time!r}")
    if context is not None:
        kept[context] = np.asarray(as_ids(table[context], context))
    return as_rows(kept)


def as_rows(columns: Mapping[str, Array]) -> Array:
    """Columns by name as a structured array, whose rows can be chosen."""
    rows = np.empty(len(next(iter(columns.values()))), dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    return rows


def as_seconds(times: Any, n: int) -> Floats:
    """Times as numbers: as they are, or seconds since 1970 of dates."""
    array = np.asarray(times)
    if array.dtype.kind == "O":  # numbers or dates of Python, timestamps of pandas
        numbers = all(isinstance(one, (int, float)) for one in array.ravel().tolist())
        try:
            array = array.astype(np.float64 if numbers else "datetime64[us]")
        except (TypeError, ValueError):
            raise TypeError(f"time must be numbers or dates, got {array.ravel()[0]!r}") from None
    if array.shape != (n,):
        raise ValueError(f"time must have one entry for each of {n} ratings, got shape {array.shape}")
    if array.dtype.kind == "M":
        if (bad := np.flatnonzero(np.isnat(array))).size:
            raise ValueError(f"time[{bad[0]}] is missing ({len(bad)} such): every rating needs its time")
        return np.asarray(array.astype("datetime64[us]").astype(np.int64) / 1e6)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"time must be numbers or dates, got {array.dtype}: text is parsed by pandas.to_datetime")
    seconds = array.astype(np.float64)
    if (bad := np.flatnonzero(~np.isfinite(seconds))).size:
        raise ValueError(f"time[{bad[0]}] = {seconds[bad[0]]:g} must be finite ({len(bad)} such)")
    return seconds


def label_codes(known: Array, what: str, labels: Any) -> Ints:
    """The number of each label, −1 for one that is not known; one that is spelled like a known one is an error."""
    return Ids(known, what.removesuffix("s")).find_known(as_ids(labels, what), what)


def _chunks(chunks: Any, time: Any, context: Any) -> Columns:
    """One after the other; each is a table."""
    whole: Columns | None = None
    for chunk in chunks:
        part = columns_in(chunk, None, time, context)
        whole = part if whole is None else whole.joined(part)
    if whole is None:
        raise ValueError("the iterator of ratings gave nothing")
    return whole


def _rated(X: Any, y: Any, rated: bool) -> list[Any]:
    """Users, items and ratings of a table."""
    asked = y is None and rated
    parts = columns_of(X) if asked else list(pair_columns(X))
    return parts if asked else [*parts, np.zeros(len(parts[0])) if y is None else y]


def _rows(X: Any) -> Array:
    """Rows of user, item and whatever else is known of a rating, as an array."""
    if hasattr(X, "tocoo"):
        raise TypeError("X is sparse: rows of user, item and time are a dense array, X.toarray(), or a table")
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: X must hold ids and times")
    if array.ndim != 2:
        raise ValueError(
            f"X must be rows of user, item and time, got shape {array.shape}. Reshape your data: one row is [1, n]"
        )
    if not len(array) or array.shape[1] < 2:
        raise ValueError(
            f"X has {len(array)} sample(s) and {array.shape[1]} feature(s) (shape={array.shape}) while a minimum of 1 is "
            "required of rows, and 2 of features: user and item"
        )
    if array.dtype.kind == "f" and (bad := np.argwhere(~np.isfinite(array))).size:
        i, j = bad[0]
        raise ValueError(f"X[{i}, {j}] = {array[i, j]:g} must be finite: ids and times are neither NaN nor inf")
    return array


def _is_number(column: Any) -> bool:
    return isinstance(column, (int, np.integer)) and not isinstance(column, bool)


def _checked_labels(labels: Any, n: int) -> Array:
    array = as_ids(labels, "context")
    if len(array) != n:
        raise ValueError(f"context must have one label for each of {n} ratings, got {len(array)}")
    return array


def _column(X: Any, given: Any, argument: str) -> Any:
    if _is_number(given):
        width = np.shape(X)[1] if np.ndim(X) == 2 else 0
        if not 0 <= given < width:
            raise ValueError(f"{argument}={given} is the number of no column of X, which has {width}")
        return np.asarray(X)[:, given]
    if not isinstance(given, str):
        return given
    names = column_names(X)
    if names is None:
        raise TypeError(f"{argument}={given!r} names a column, and X is no table: give the values themselves")
    if given not in names:
        raise ValueError(f"{argument}={given!r} is not a column of X")
    return (frame_columns(X, [given]) or {})[given]


def _as_numbers(column: Any, where: str) -> Floats:
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    try:
        return np.array([float(text) for text in column])
    except (TypeError, ValueError):
        bad = next(n for n, text in enumerate(column) if not _is_float(text))
        raise ValueError(f"{where} holds {column[bad]!r} in row {bad}, which is not a number") from None


def _as_times(column: Any, where: str) -> Array:
    array = np.asarray(column)
    if array.dtype.kind in "biufM" or not all(isinstance(one, str) for one in array.tolist()):
        return as_seconds(array, len(array)) if array.dtype.kind == "O" else array
    if all(map(_is_float, array.tolist())):
        return array.astype(np.float64)
    try:
        return array.astype("datetime64[us]")
    except ValueError as reason:
        raise ValueError(f"{where} must hold numbers or dates as 2024-05-31 ({reason})") from None


def _is_float(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True
