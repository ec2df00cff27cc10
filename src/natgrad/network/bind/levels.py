"""Ids of any type in; the levels of a plate, in an order that the ids alone determine, and the number of each id out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import as_ids, number_ids
from natgrad.network.bind.tables import Table

__all__ = ["Levels"]

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


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
            by_place = places[np.where(inside, ids, low).astype(np.int64) - low]
            return np.where(inside, by_place, -1)
        if not self._numbers:
            self._numbers = {key: number for number, key in enumerate(self.ids.tolist())}
        numbers = self._numbers
        return np.array([numbers.get(key, -1) for key in ids.tolist()], dtype=np.int64)

    @cached_property
    def _places(self) -> tuple[int, Ints] | None:
        """Of whole numbers that lie close together, a table: where each of them stands, from the least one on."""
        if self.ids.dtype.kind not in "iu" or not len(self.ids):
            return None
        low, high = int(self.ids.min()), int(self.ids.max())
        if high - low > 8 * len(self.ids) + 1_000_000:
            return None
        places = np.full(high - low + 1, -1, dtype=np.int64)
        places[self.ids.astype(np.int64) - low] = np.arange(len(self.ids))
        return low, places

    def _alike(self, ids: Array) -> Array:
        """Ids of the type of the levels, where one is text and the other numbers: a file of text has no other ids."""
        own, new = self.ids.dtype.kind, ids.dtype.kind
        if own in "US" and new in "iu":
            return ids.astype(str)
        if own in "iu" and new in "USOf":
            try:
                numbers = ids.astype(np.float64)
            except (TypeError, ValueError):
                return ids
            return numbers.astype(np.int64) if np.all(numbers == np.round(numbers)) else ids
        return ids

    def extended(self, ids: Array) -> Levels:
        """The same levels, and after them those of ``ids`` that are new."""
        ids = self._alike(ids)
        new = number_ids(ids[self.find(ids) < 0], "id", "level")[1].array if (self.find(ids) < 0).any() else ids[:0]
        if not len(new):
            return self
        kinds = {"text" if part.dtype.kind in "OUS" else "number" for part in (self.ids, new)}
        old = self.ids.astype(object) if len(kinds) > 1 else self.ids
        return Levels(np.concatenate([old, new.astype(object) if len(kinds) > 1 else new]))


def ids_of(table: Table, name: str) -> Array:
    """A column as ids; a row without one is an error."""
    lost = np.flatnonzero(table.missing(name))
    if lost.size:
        raise ValueError(
            f"{table.where}: column {name!r}, row {table.first + lost[0]} is missing ({lost.size} such), but it says which "
            "element the row reads: leave these rows out"
        )
    cells = table.cells(name)
    if cells.dtype.kind in "Mm":
        cells = cells.astype(str)
    return as_ids(cells, f"{table.where}: column {name!r}")
