"""Read the dates of the rows of pandas tables, find the step from one date to the next, and continue it."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Clock", "clocks_of", "date_texts", "dates_of", "days_of", "from_days", "is_dated"]

Floats = npt.NDArray[np.float64]


class Clock(NamedTuple):
    """The date of the last row of a sequence, and the step to the next: an offset of pandas, None if the steps differ."""

    last: Any
    step: Any

    def dates(self, n: int) -> Any:
        """The next ``n`` dates; None where the steps differ."""
        import pandas as pd

        return None if self.step is None else pd.date_range(self.last, periods=n + 1, freq=self.step, name="date")[1:]

    def advanced(self, n: int) -> Clock | None:
        """The clock after ``n`` rows without dates."""
        return None if self.step is None else self._replace(last=self.dates(n)[-1]) if n else self


def is_dated(values: Any) -> bool:
    """Whether an array, a series or an index holds dates, or periods."""
    dtype = getattr(values, "dtype", None)
    return getattr(dtype, "kind", "") == "M" or str(dtype).startswith("period[")


def dates_of(X: Any) -> Any:
    """The dates in the index of a table, or of several tables one after the other; None if there are none.

    Examples
    --------
    >>> import pandas as pd
    >>> days = pd.date_range("2024-01-30", periods=3)
    >>> dates_of(pd.Series([1.0, 2.0, 3.0], days)).day.tolist(), dates_of([1.0, 2.0]) is None
    ([30, 31, 1], True)
    """
    if isinstance(X, list | tuple) and len(X):
        each = [_dates(part) for part in X]
        return None if any(part is None for part in each) else each[0].append(each[1:])
    return _dates(X)


def _dates(X: Any) -> Any:
    index: Any = getattr(X, "index", None)
    if not is_dated(index):
        return None
    return index.to_timestamp() if hasattr(index, "to_timestamp") else index


def clocks_of(dates: Any, ends: npt.NDArray[np.int64]) -> tuple[tuple[Clock | None, ...], str]:
    """The clock of each sequence, ``dates[ends[s]:ends[s + 1]]``, and in words the first step unlike those before it."""
    if dates is None:
        return (None,) * (len(ends) - 1), ""
    clocks, irregular = [], ""
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        own = dates[begin:end]
        _check_order(own, begin)
        clocks.append(Clock(own[-1], _step(own)))
        if clocks[-1].step is None and len(own) > 1 and not irregular:
            row = _first_irregular(own)
            irregular = (
                f"the dates of X are not regular: row {begin + row} is {own[row]} after {own[row - 1]}. A step of the chain is "
                "one row, and forecasts are numbered, not dated; X.asfreq(…) makes rows for dates that are missing"
            )
    return tuple(clocks), irregular


def _check_order(dates: Any, begin: int) -> None:
    if dates.hasnans:
        raise ValueError(f"row {begin + int(np.argmax(dates.isna()))} of X has no date")
    late = np.flatnonzero(np.diff(dates.asi8) <= 0)
    if len(late):
        row = int(late[0]) + 1
        raise ValueError(
            f"the dates of a sequence must ascend, and row {begin + row} of X is {dates[row]} after {dates[row - 1]}: sort X by "
            "its index, or give lengths= where another sequence begins"
        )


def _step(dates: Any) -> Any:
    """The offset from each date to the next, if there is one."""
    from pandas.tseries.frequencies import to_offset

    if dates.freq is not None or len(dates) < 2:
        return dates.freq
    if len(dates) == 2:
        return to_offset(dates[1] - dates[0])
    with warnings.catch_warnings():  # pandas 3.1 announces that it will give the offset itself in place of its name
        warnings.simplefilter("ignore")
        return to_offset(dates.inferred_freq)


def _first_irregular(dates: Any) -> int:
    """The first row whose step no regular index has after the rows before it, by bisection."""
    low, high = 2, len(dates)  # so many rows are regular, so many are not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _step(dates[:middle]) is None else (middle, high)
    return high - 1


def days_of(dates: Any) -> Floats:
    """Dates, or the begins of periods, as days since the beginning of 1970, in UTC if they have a time zone.

    Examples
    --------
    >>> days_of(np.array(["1970-01-02T12:00"], "datetime64[m]")).tolist()
    [1.5]
    """
    if not isinstance(dates, np.ndarray):  # of pandas, perhaps with a zone
        from pandas import DatetimeIndex, Index

        index: Any = Index(dates)
        index = DatetimeIndex(index.to_timestamp() if hasattr(index, "to_timestamp") else index)
        dates = index if index.tz is None else index.tz_convert(None)
    values = np.asarray(dates).astype("datetime64[us]")
    if (missing := np.isnat(values)).any():
        raise ValueError(f"row {int(np.argmax(missing))} of X has no date: drop rows without one")
    return np.asarray(values.astype(np.int64) / 86_400e6)


def from_days(days: Floats) -> npt.NDArray[np.datetime64]:
    """Days since the beginning of 1970 as dates, to the microsecond."""
    return np.asarray(np.round(days * 86_400e6).astype("datetime64[us]"))


def date_texts(dates: Any) -> list[str]:
    """Dates as a file has them: without hours, if none has some.

    Examples
    --------
    >>> date_texts(from_days(np.array([0.0, 1.0]))), date_texts(from_days(np.array([0.0, 0.5])))
    (['1970-01-01', '1970-01-02'], ['1970-01-01T00:00:00', '1970-01-01T12:00:00'])
    """
    from pandas import DatetimeIndex

    index = DatetimeIndex(dates)
    whole = index.tz is None and bool((index == index.normalize()).all())
    return [str(date.date()) if whole else date.isoformat() for date in index]
