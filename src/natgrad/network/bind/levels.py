"""Number ids of any type: the levels of a plate, in an order that the ids alone determine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import as_ids, number_ids
from natgrad.network.bind.tables import Table

__all__ = ["Levels"]

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
MIDNIGHT = re.compile(r"\d{4}-\d\d-\d\dT00:00:00(\.0+)?")


@final
class Levels:
    """The different ids of a plate, sorted where they can be compared.

    Parameters
    ----------
    ids : array, all different, in the order of the plate
    """

    def __init__(self, ids: Array) -> None:
        self.ids = ids
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, columns: Sequence[Array]) -> Levels:
        """All ids of some columns."""
        different = [number_ids(column, "id", "level")[1].array for column in columns]
        if len({"text" if ids.dtype.kind in "OUS" else "number" for ids in different}) > 1:
            different = [ids.astype(object) for ids in different]
        return cls(np.asarray(number_ids(np.concatenate(different), "id", "level")[1].array))

    def find(self, ids: Array) -> Ints:
        """The number of each id; −1 for one that is not among them."""
        ids = self._alike(ids)
        if ids.dtype.kind in "iu" and self._places is not None:
            low, places = self._places
            inside = (ids >= low) & (ids < low + len(places))
            return np.where(inside, places[np.where(inside, ids.astype(np.int64) - low, 0)], -1)
        if not self._numbers:
            self._numbers = {key: number for number, key in enumerate(self.ids.tolist())}
            for key, number in list(self._numbers.items()):  # of a file that was written when times had nine digits
                if isinstance(key, str) and MIDNIGHT.fullmatch(key):
                    self._numbers.setdefault(key[:10], number)
        numbers, keys = self._numbers, ids.tolist()
        found = np.array([numbers.get(key, -1) for key in keys], dtype=np.int64)
        for place in np.flatnonzero(
            found < 0
        ):  # perhaps it is there as text, or as a number: a file of text has no other ids
            found[place] = next((numbers[other] for other in _readings(keys[place]) if other in numbers), -1)
        return found

    @cached_property
    def _places(self) -> tuple[int, Ints] | None:
        """Of whole numbers that lie close together, a table: where each of them stands, from the least one on."""
        if self.ids.dtype.kind not in "iu" or not len(self.ids):
            return None
        low, high = int(self.ids.min()), int(self.ids.max())
        if high >= 2**63 or high - low > 8 * len(self.ids) + 1_000_000:
            return None
        places = np.full(high - low + 1, -1, dtype=np.int64)
        places[self.ids.astype(np.int64) - low] = np.arange(len(self.ids))
        return low, places

    def _alike(self, ids: Array) -> Array:
        """Ids of the type of the levels, where one is text and the other numbers: a file of text has no other ids."""
        own, new = self.ids.dtype.kind, ids.dtype.kind
        if not (own in "US" and new in "iu") and not (own in "iu" and new in "USOf"):
            return ids
        whole = [_whole(key) for key in ids.tolist()]
        if not whole or None in whole:
            return ids  # each is looked for by itself
        return as_ids([str(key) for key in whole] if own in "US" else whole, "id")

    def extended(self, ids: Array) -> Levels:
        """The same levels, and after them those of ``ids`` that are new."""
        ids = self._alike(ids)
        new = number_ids(ids[self.find(ids) < 0], "id", "level")[1].array if (self.find(ids) < 0).any() else ids[:0]
        if not len(new):
            return self
        kinds = {"text" if part.dtype.kind in "OUS" else "number" for part in (self.ids, new)}
        old = self.ids.astype(object) if len(kinds) > 1 else self.ids
        return Levels(np.concatenate([old, new.astype(object) if len(kinds) > 1 else new]))


def _readings(key: Any) -> Iterator[Any]:
    """What else an id could have been written as."""
    if isinstance(key, bool):
        return
    whole, number = _whole(key), _number(key)
    if isinstance(key, (str, bytes)):
        yield from (other for other in (whole, number) if other is not None)
    elif whole is not None:
        yield str(whole)


def _whole(key: Any) -> int | None:
    """An id as a whole number, text by its digits: as floats, two long ids may be the same."""
    if isinstance(key, int):
        return key
    try:
        if isinstance(key, (str, bytes)):
            return int(key)
    except ValueError:
        pass  # text such as 7.0
    number = _number(key)
    return int(number) if number is not None and number.is_integer() else None


def _number(key: Any) -> float | None:
    try:
        return float(key)
    except (TypeError, ValueError):
        return None


def ids_of(table: Table, name: str) -> Array:
    """A column as ids; a row without one is an error."""
    lost = np.flatnonzero(table.missing(name))
    if lost.size:
        raise ValueError(
            f"{table.where}: column {name!r}, row {table.first + lost[0]} is missing ({lost.size} such), but it says which "
            "element the row reads: leave these rows out"
        )
    cells = table.cells(name)
    if cells.dtype.kind == "m":
        cells = cells.astype(str)
    what = f"{table.where}: column {name!r}"
    return _plain_ids(as_ids(cells, what), what, table.first)


def _plain_ids(ids: Array, what: str, first: int) -> Array:
    """Ids that a file can hold: UUIDs and periods as text, zoned times as text in UTC; other objects are refused."""
    if ids.dtype.kind != "O":
        return ids
    keys = [_plain_id(key) for key in ids.tolist()]
    for row, key in enumerate(keys):
        if not _is_plain(key):
            raise TypeError(
                f"{what}, row {first + row}: {key!r} cannot be an id: a {type(key).__name__} cannot be kept in a file. "
                "Convert the column to text or whole numbers"
            )
    return as_ids(keys, what)


def _plain_id(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_plain_id, key))
    if isinstance(key, UUID) or type(key).__name__ == "Period":
        return str(key)
    return key.astimezone(UTC).isoformat() if isinstance(key, datetime) and key.tzinfo is not None else key


def _is_plain(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(map(_is_plain, key))
    return key is None or isinstance(key, (str, bytes, int, float, np.generic))
