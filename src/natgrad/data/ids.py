"""Ids of any hashable type in; whole numbers 0 … n − 1 and the ids they stand for out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import as_column
from natgrad.validation import is_missing, refuse_masked

__all__ = ["Ids", "as_ids", "date_text", "joined_ids", "number_ids", "same_words", "spelled_alike", "whole_numbers"]

Array = npt.NDArray[Any]
MISSING = "and every rating needs its id; drop the others"
# Ids up to which each is looked up by itself.
FEW = 10_000


class Ids(Sequence[Any]):
    """Different ids in order, and the way back from an id to its number.

    Parameters
    ----------
    ids : array, all different
    what : str
        What they are, for messages: "user" or "item".
    """

    def __init__(self, ids: Array, what: str) -> None:
        ids = ids.copy()
        ids.flags.writeable = False
        self.array = ids
        self.what = what
        self._counted = ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids)))
        self._numbers: dict[Hashable, int] | None = None
        self._order: Array | None = None

    def find(self, wanted: Any, argument: str) -> npt.NDArray[np.int64]:
        """The number of each wanted id; an unknown one is an error that shows it and its place."""
        values = as_ids(wanted, argument)
        numbers_of = self.places(values)
        if (unknown := np.flatnonzero(numbers_of < 0)).size:
            raise ValueError(self._unknown(values, unknown, argument))
        return numbers_of

    def find_known(self, values: Array, argument: str) -> npt.NDArray[np.int64]:
        """As `places`; text for numbers, or numbers for text, is an error: it would be a stranger, and nobody would know."""
        numbers_of = self.places(values)
        if (unknown := np.flatnonzero(numbers_of < 0)).size and spelled_alike(self.array, values[unknown]):
            raise ValueError(self._unknown(values, unknown, argument))
        return numbers_of

    def places(self, values: Array) -> npt.NDArray[np.int64]:
        """The number of each of some ids, −1 for one that is not there."""
        if self._counted and values.dtype.kind in "iu":
            bad = (values < 0) | (values >= len(self.array))
            return np.where(bad, -1, values).astype(np.int64)
        if (
            len(values) > FEW
            and len(self.array)
            and {values.dtype.kind, self.array.dtype.kind} in ({"i"}, {"u"}, {"U"})
        ):
            return self._searched(values)
        if self._numbers is None:
            self._numbers = {key: number for number, key in enumerate(self.array.tolist())}
        numbers = self._numbers
        return np.array([numbers.get(key, -1) for key in values.tolist()], dtype=np.int64)

    def _searched(self, values: Array) -> npt.NDArray[np.int64]:
        """As `places`, by a sorted table."""
        if self._order is None:
            self._order = np.argsort(self.array, kind="stable")
        places = np.searchsorted(self.array, values, sorter=self._order)
        nearest = self._order[np.minimum(places, len(self.array) - 1)]
        return np.where(self.array[nearest] == values, nearest, -1).astype(np.int64)

    def _unknown(self, values: Array, unknown: Array, argument: str) -> str:
        shown = ", ".join(repr(key) for key in self.array[:3].tolist()) + (", …" if len(self.array) > 3 else "")
        wanted, own = values.tolist()[unknown[0]], {type(key) for key in self.array.tolist()}
        if own == {str} and str(wanted) in set(self.array.tolist()):
            shown += f"; ids that come from text are text, {str(wanted)!r}"
        advice = "Leave it out, or fit with ratings of it"
        if (
            isinstance(wanted, str)
            and (same := next((k for k in self.array.tolist() if str(k) == wanted), wanted)) != wanted
        ):
            advice = f"The text {wanted!r} is not the {type(same).__name__} {same!r}, which is: pass {same!r}"
        return (
            f"{argument}[{unknown[0]}] = {values.tolist()[unknown[0]]!r} is not among the {self.what}s of the ratings that were "
            f"fitted ({len(unknown)} such); known are {len(self.array)}: {shown}. {advice}"
        )

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        return self.array[place]


def as_ids(values: Any, argument: str) -> Array:
    """A one-dimensional array of ids; strings and numbers are not mixed into one type, None and NaN are refused.

    Dates are text, whatever they came as: a day is the same day as a `date`, a timestamp of pandas or of Arrow in any unit.
    """
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(
            f"{argument} must be a list or array of ids, got {values!r}: for a single id write [{values!r}]"
        )
    if isinstance(values, (dict, set, frozenset)):
        raise TypeError(f"{argument} must be a list or array of ids, got a {type(values).__name__}")
    refuse_masked(values, argument, MISSING)
    values = as_column(values)
    array = np.asarray(values) if hasattr(values, "dtype") else _from_list(list(values))
    array = _dates_as_text(array)
    if array.dtype.kind not in "iubfUS":
        array = _objects(array.tolist() if hasattr(array, "tolist") else list(values), array.shape)
    if array.ndim != 1:
        raise ValueError(f"{argument} must be one id for each rating, got an array of shape {array.shape}")
    if array.dtype.kind == "f":
        _refuse(np.isnan(array), array, argument)
    elif array.dtype.kind == "O":
        _refuse(np.array([is_missing(key) for key in array.tolist()], dtype=bool), array, argument)
        array = _narrowed(array)
    return array


def number_ids(values: Any, argument: str, what: str) -> tuple[npt.NDArray[np.int32], Ids]:
    """Numbers for ids: sorted where they can be compared, in order of first appearance otherwise."""
    array = as_ids(values, argument)
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        if high < 2**63 and high - low < 8 * array.size + 1_000_000:
            # Ids that lie close together: a table is ten times faster than sorting.
            offsets = array.astype(np.int64) - low
            there = np.zeros(high - low + 1, dtype=bool)
            there[offsets] = True
            numbered = (np.cumsum(there) - 1).astype(np.int32)
            return numbered[offsets], Ids(np.flatnonzero(there) + low, what)
    if array.dtype.kind != "O":
        ids, codes = np.unique(array, return_inverse=True)
        return codes.reshape(-1).astype(np.int32), Ids(ids, what)
    keys = array.tolist()
    numbers: dict[Hashable, int] = {}
    for place, key in enumerate(keys):
        try:
            numbers.setdefault(key, len(numbers))
        except TypeError:
            kind = type(key).__name__
            raise TypeError(
                f"{argument}[{place}] = {key!r} cannot be an id: a {kind} has no hash. Use a string, a number or a tuple"
            ) from None
    ids = _objects(list(numbers), (len(numbers),))
    return np.array([numbers[key] for key in keys], dtype=np.int32), Ids(ids, what)


def spelled_alike(known: Array, other: Array) -> bool:
    """Whether ids that differ are spelled alike, as 7 and "7"."""
    return not {str(key) for key in known.tolist()}.isdisjoint(map(str, other.tolist()))


def same_words(known: Array, other: Array) -> bool:
    """Whether ids are spelled alike though they differ, or all of them are text for numbers or the reverse."""
    kinds = [{isinstance(key, str) for key in ids.tolist()} for ids in (known, other)]
    return kinds[0].isdisjoint(kinds[1]) or spelled_alike(known, other)


def date_text(array: Array) -> Array:
    """Dates of NumPy as text: the day, and the time where there is one, without digits that say nothing.

    Examples
    --------
    >>> date_text(np.array(["2020-01-02", "2020-01-02T12:30:00.500"], "M8[ns]")).tolist()
    ['2020-01-02', '2020-01-02T12:30:00.5']
    """
    unit = np.datetime_data(array.dtype)[0]
    times = array if unit in ("ms", "us", "ns", "ps", "fs", "as") else array.astype("M8[ms]")
    days = array.astype("M8[D]")
    trimmed = np.char.rstrip(np.char.rstrip(times.astype(str), "0"), ".")
    return np.where(array == days, days.astype(str), trimmed)


def _dates_as_text(array: Array) -> Array:
    """An array of dates as text; others as they are, and so are dates with a time zone, or with others among them."""
    if array.dtype.kind == "M" and not np.isnat(array).any():
        return date_text(array)
    if array.dtype.kind != "O" or not array.size or not all(_is_date(value) for value in array.flat):
        return array
    try:
        # One unit for all would lose what is finer, or what is too far away for it.
        return np.array([date_text(np.array([np.datetime64(value)]))[0] for value in array.flat]).reshape(array.shape)
    except (ValueError, OverflowError):
        return array


def _is_date(value: Any) -> bool:
    if isinstance(value, np.datetime64):
        return not np.isnat(value)
    return isinstance(value, date) and value == value and getattr(value, "tzinfo", None) is None


def _from_list(values: list[Any]) -> Array:
    kinds = {type(value) for value in values}
    # NumPy would turn [1, "1"] into two equal strings and a list of pairs into a table.
    plain = len(kinds) == 1 and issubclass(next(iter(kinds)), (int, float, str, bytes, np.integer, np.floating))
    if plain and not _ends_in_nul(values):
        return whole_numbers(values) if kinds == {int} else np.array(values)
    return _objects(values, (len(values),))


def whole_numbers(values: list[int]) -> Array:
    """Whole numbers as an array that keeps all their digits: of 3 and 2⁶³ NumPy would make floats."""
    low, high = min(values), max(values)
    if low >= -(2**63) and high < 2**63:
        return np.array(values, dtype=np.int64)
    return np.array(values, dtype=np.uint64 if low >= 0 and high < 2**64 else object)


def _objects(values: list[Any], shape: tuple[int, ...]) -> Array:
    array = np.empty(shape, dtype=object)
    if len(shape) == 1:
        array[:] = values if not any(isinstance(v, (list, tuple, np.ndarray)) for v in values) else None
        for place, value in enumerate(values):
            array[place] = value
    return array


def _narrowed(array: Array) -> Array:
    """Strings that came as objects (a column of a table) as strings, whole numbers as integers."""
    kinds = {type(key) for key in array.tolist()}
    if kinds == {str} and not _ends_in_nul(array.tolist()):
        return array.astype(str)
    if kinds == {int}:
        return _from_list(array.tolist())
    return array


def _ends_in_nul(values: list[Any]) -> bool:
    """Whether NumPy's strings, which are filled up with zeros, would shorten one of these."""
    return any(value[-1:] in ("\0", b"\0") for value in values if isinstance(value, (str, bytes)))


def _refuse(missing: npt.NDArray[np.bool_], array: Array, argument: str) -> None:
    if (bad := np.flatnonzero(missing)).size:
        raise ValueError(
            f"{argument}[{bad[0]}] = {array.tolist()[bad[0]]!r} is missing ({len(bad)} such): every rating needs its "
            f"id; drop the others"
        )


def joined_ids(ids: Array, more: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """All ids, the old ones first, and the number of each of the second in it."""
    numbers = {key: number for number, key in enumerate(ids.tolist())}
    places = np.array([numbers.setdefault(key, len(numbers)) for key in more.tolist()], dtype=np.int64)
    fresh = list(numbers)[len(ids) :]
    if not fresh:
        return ids, places
    new = as_ids(fresh, "ids")
    if new.dtype.kind == ids.dtype.kind and ids.dtype.kind in "iuUS":
        return np.concatenate([ids, new]), places
    mixed = np.empty(len(numbers), dtype=object)
    mixed[:] = list(numbers)
    return mixed, places
