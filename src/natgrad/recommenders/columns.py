"""Ratings with their times and contexts in; whole numbers for a network out, and for what is asked of a fit later.

Times are cut into bins of equal length, from the first to the last rating. Contexts are labels: an hour of the day, a device, a
place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import Ids, as_ids
from natgrad.data.rating_columns import columns_of, pair_columns, table_column
from natgrad.data.rating_forms import as_ratings
from natgrad.data.ratings import Ratings

__all__ = ["Codes", "Columns", "TimeBins", "as_seconds", "columns_in", "label_codes"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Columns(NamedTuple):
    """Ratings, pairs that come again kept, and a time and a label for each, where there are any."""

    ratings: Ratings
    time: Floats | None
    context: npt.NDArray[Any] | None


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

    def of(self, times: Floats) -> Ints:
        """The bin of each time: 0 … n − 1 within, and further out beyond."""
        width = (self.last - self.first) / self.n if self.last > self.first else 1.0
        bins = np.floor((times - self.first) / width).astype(np.int64)
        bins[times == self.last] = self.n - 1
        return np.asarray(bins)


def columns_in(X: Any, y: Any, time: Any, context: Any) -> Columns:
    """What `fit` and `score` are given; ``time`` and ``context`` may be names of columns of X."""
    if hasattr(X, "columns"):
        parts = [*pair_columns(X), y] if y is not None else columns_of(X)
        ratings = Ratings(*parts, duplicates="keep")
    else:
        ratings = as_ratings(X, y, "keep")
    times = None if time is None else as_seconds(_column(X, time, "time"), len(ratings))
    labels = None if context is None else _checked_labels(_column(X, context, "context"), len(ratings))
    return Columns(ratings, times, labels)


def as_seconds(times: Any, n: int) -> Floats:
    """Times as numbers: as they are, or seconds since 1970 of dates."""
    array = np.asarray(times)
    if array.dtype.kind == "O":  # dates of Python, timestamps of pandas
        try:
            array = array.astype("datetime64[us]")
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
    numbers = array.astype(np.float64)
    if (bad := np.flatnonzero(~np.isfinite(numbers))).size:
        raise ValueError(f"time[{bad[0]}] = {numbers[bad[0]]:g} must be finite ({len(bad)} such)")
    return numbers


def label_codes(known: npt.NDArray[Any], what: str, labels: Any) -> Ints:
    """The number of each label, −1 for one that is not known."""
    return Ids(known, what).places(as_ids(labels, what))


def _checked_labels(labels: Any, n: int) -> npt.NDArray[Any]:
    array = as_ids(labels, "context")
    if len(array) != n:
        raise ValueError(f"context must have one label for each of {n} ratings, got {len(array)}")
    return array


def _column(X: Any, given: Any, argument: str) -> Any:
    if not isinstance(given, str):
        return given
    if not hasattr(X, "columns"):
        raise TypeError(f"{argument}={given!r} names a column, and X is no table: give the values themselves")
    try:
        return table_column(X, given)
    except KeyError:
        raise ValueError(f"{argument}={given!r} is not a column of X") from None
