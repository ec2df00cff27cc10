"""`Ratings`: triples (user, item, value) in; whole-numbered users and items, grouped by either side, out."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import Ids, number_ids

__all__ = ["Ratings", "RatingsRows"]

Array = npt.NDArray[Any]
Duplicates = Literal["error", "keep", "mean", "last"]
POLICIES = ("error", "keep", "mean", "last")
NAMES = {
    "user": ("user", "userid", "users", "uid", "customer", "customerid", "reviewer", "reviewerid", "row"),
    "item": ("item", "itemid", "items", "iid", "movie", "movieid", "product", "productid", "asin", "track", "column"),
    "value": ("value", "values", "rating", "ratings", "score", "stars", "overall", "count"),
}


class RatingsRows(NamedTuple):
    """The ratings grouped by one side: row i has the entries ``start[i] … start[i+1]``, in the order they came.

    ``other`` is the element of the other side, ``values`` the rating, ``place`` its position among the triples.
    """

    start: npt.NDArray[np.int64]
    other: npt.NDArray[np.int32]
    values: npt.NDArray[np.float64]
    place: npt.NDArray[np.int64]


class Ratings:
    """Observed values of pairs (user, item), with the ids they came with.

    Parameters
    ----------
    users, items : arrays of ids [n]
        Numbers, strings or anything hashable. ``users`` alone may be a table with three columns (named user, item and
        rating or alike; otherwise the first three), or a sparse matrix whose stored entries are the ratings.
    values : array of numbers [n]
    shape : (users, items), optional
        Says that ids are already whole numbers 0 … n − 1: they keep their meaning, and who has no rating is there too.
    duplicates : "error", "keep", "mean" or "last"
        What to do when a pair comes twice: refuse, count both as observations, average, or take the last.

    Attributes
    ----------
    users, items : int32 [n], values : float64 [n], read-only copies
    user_ids, item_ids : the id of each number; sorted where ids can be compared, otherwise as they first appeared

    Examples
    --------
    >>> ratings = Ratings(["ann", "bob", "ann"], ["alien", "alien", "brazil"], [5, 3, 4])
    >>> ratings
    Ratings(3 ratings of 2 items by 2 users, values 3 … 5)
    >>> ratings.user_ids.tolist(), ratings.users.tolist()
    (['ann', 'bob'], [0, 1, 0])
    """

    def __init__(
        self,
        users: Any,
        items: Any = None,
        values: Any = None,
        *,
        shape: tuple[int, int] | None = None,
        duplicates: Duplicates = "error",
    ) -> None:
        if duplicates not in POLICIES:
            raise ValueError(f'duplicates must be "error", "keep", "mean" or "last", got {duplicates!r}')
        if items is None and values is None:
            users, items, values, shape = _opened(users, shape)
        if items is None or values is None:
            raise TypeError("Ratings takes users, items and values, a table with these columns, or a sparse matrix")
        if shape is None:
            user_codes, self._users = number_ids(users, "users", "user")
            item_codes, self._items = number_ids(items, "items", "item")
        else:
            sizes = _checked_shape(shape)
            user_codes, self._users = _counted(users, sizes[0], "users", "user")
            item_codes, self._items = _counted(items, sizes[1], "items", "item")
        numbers = _checked_values(values)
        _check_lengths(user_codes, item_codes, numbers)
        kept = _settled(user_codes, item_codes, numbers, self._users, self._items, duplicates)
        self.users, self.items, self.values = (_frozen(part) for part in kept)

    @classmethod
    def from_frame(
        cls, frame: Any, *, user: Any = None, item: Any = None, value: Any = None, duplicates: Duplicates = "error"
    ) -> Ratings:
        """Ratings from a table: the names of its three columns, found by themselves where left out.

        Examples
        --------
        >>> import pandas
        >>> frame = pandas.DataFrame({"who": ["ann", "bob"], "what": [7, 7], "stars": [5, 3]})
        >>> Ratings.from_frame(frame, user="who", item="what", value="stars").item_ids.tolist()
        [7]
        """
        columns = _columns(frame, {"user": user, "item": item, "value": value})
        return cls(*(frame[column] for column in columns), duplicates=duplicates)

    @classmethod
    def from_dense(cls, table: Any) -> Ratings:
        """Ratings from a full table [users, items] with NaN where there is none.

        Examples
        --------
        >>> Ratings.from_dense([[5.0, np.nan], [np.nan, 3.0]])
        Ratings(2 ratings of 2 items by 2 users, values 3 … 5)
        """
        array = _numbers(table, "X")
        if array.ndim != 2:
            raise ValueError(f"X must be a table [users, items] with NaN for missing ratings, got shape {array.shape}")
        users, items = np.nonzero(~np.isnan(array))
        if not len(users):
            raise ValueError(f"X of shape {array.shape} has no ratings: every entry is NaN")
        if (bad := np.argwhere(np.isinf(array))).size:
            i, j = bad[0]
            raise ValueError(f"X[{i}, {j}] = {array[i, j]:g} must be finite, or NaN where there is no rating")
        return cls(users, items, array[users, items], shape=array.shape)

    @classmethod
    def numbered(cls, users: Array, items: Array, values: Array, user_ids: Array, item_ids: Array) -> Ratings:
        """Ratings whose users and items are numbered already, in the order of their ids."""
        codes, array = np.array(users, dtype=np.int64), np.array(items, dtype=np.int64)
        made = cls(codes, array, values, shape=(len(user_ids), len(item_ids)), duplicates="keep")
        made._users, made._items = Ids(user_ids, "user"), Ids(item_ids, "item")
        return made

    @property
    def user_ids(self) -> Array:
        """The id of each user, in the order of their numbers."""
        return self._users.array

    @property
    def item_ids(self) -> Array:
        """The id of each item, in the order of their numbers."""
        return self._items.array

    @property
    def n_users(self) -> int:
        """Users, those without a rating too."""
        return len(self._users)

    @property
    def n_items(self) -> int:
        """Items, those without a rating too."""
        return len(self._items)

    @property
    def shape(self) -> tuple[int, int]:
        """(users, items)."""
        return self.n_users, self.n_items

    def find_users(self, ids: Any, argument: str = "users") -> npt.NDArray[np.int64]:
        """The number of each user id; an unknown one is an error."""
        return self._users.find(ids, argument)

    def find_items(self, ids: Any, argument: str = "items") -> npt.NDArray[np.int64]:
        """The number of each item id; an unknown one is an error."""
        return self._items.find(ids, argument)

    @cached_property
    def by_user(self) -> RatingsRows:
        """The ratings of each user."""
        return _grouped(self.users, self.items, self.values, self.n_users)

    @cached_property
    def by_item(self) -> RatingsRows:
        """The ratings of each item."""
        return _grouped(self.items, self.users, self.values, self.n_items)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        low, high = self.values.min(), self.values.max()
        return f"Ratings({len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users, values {low:g} … {high:g})"


def _grouped(own: Array, other: Array, values: Array, n_rows: int) -> RatingsRows:
    from natgrad.kernels.ratings import group_rows  # Numba takes a while to import

    start, place = np.empty(n_rows + 1, dtype=np.int64), np.empty(len(own), dtype=np.int64)
    group_rows(own, start, place)
    return RatingsRows(*(_frozen(part) for part in (start, other[place], values[place], place)))


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _opened(source: Any, shape: Any) -> tuple[Any, Any, Any, Any]:
    """Users, items, values and shape of a table or a sparse matrix."""
    if hasattr(source, "tocoo"):
        entries = source.tocoo()
        if entries.ndim != 2:
            raise ValueError(f"a sparse matrix of ratings is [users, items], got shape {entries.shape}")
        if shape is not None and tuple(shape) != entries.shape:
            raise ValueError(f"shape = {shape!r} does not fit the sparse matrix of shape {entries.shape}: leave it out")
        return entries.row, entries.col, entries.data, entries.shape
    if hasattr(source, "columns"):
        return (*(source[column] for column in _columns(source, dict.fromkeys(NAMES))), shape)
    return source, None, None, shape


def _columns(frame: Any, given: dict[str, Any]) -> list[Any]:
    """The columns of user, item and value: those given, those whose names say so, or else the first three."""
    if not hasattr(frame, "columns"):
        raise TypeError(
            f"a table with named columns is needed, got {type(frame).__name__}: use Ratings(users, items, values)"
        )
    there = list(frame.columns)
    for role, column in given.items():
        if column is not None and column not in there:
            raise ValueError(f"{role}={column!r} is not a column; there are {', '.join(map(repr, there))}")
    found: dict[str, Any] = {}
    for role, names in NAMES.items():
        plain = [column for column in there if _plain(column) in names and column not in given.values()]
        found[role] = given[role] if given[role] is not None else (plain[0] if plain else None)
    if all(column is None for column in found.values()) and len(there) >= 3:
        return there[:3]
    if missing := [role for role, column in found.items() if column is None]:
        raise ValueError(
            f"cannot tell which column is the {' or the '.join(missing)} among {', '.join(map(repr, there))}: "
            f"use Ratings.from_frame(frame, user=…, item=…, value=…)"
        )
    return list(found.values())


def _plain(column: Any) -> str:
    return str(column).lower().replace("_", "").replace(" ", "")


def _checked_shape(shape: Any) -> tuple[int, int]:
    try:
        n_users, n_items = (int(size) for size in shape)
    except (TypeError, ValueError):
        raise TypeError(f"shape must be two whole numbers (users, items), got {shape!r}") from None
    if n_users < 1 or n_items < 1:
        raise ValueError(f"shape must be two whole numbers ≥ 1 (users, items), got {shape!r}")
    return n_users, n_items


def _counted(values: Any, size: int, argument: str, what: str) -> tuple[npt.NDArray[np.int32], Ids]:
    """Ids that are numbers 0 … size − 1 already."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{argument} must be one id for each rating, got an array of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(
            f"{argument} must be whole numbers when shape is given, got {array.dtype}: leave out shape for other ids"
        )
    if (bad := np.flatnonzero((array < 0) | (array >= size))).size:
        raise ValueError(
            f"{argument}[{bad[0]}] = {array[bad[0]]} is outside 0 … {size - 1}, which shape asks for ({len(bad)} such): "
            "leave out shape if these are ids"
        )
    return array.astype(np.int32), Ids(np.arange(size), what)


def _checked_values(values: Any) -> npt.NDArray[np.float64]:
    array = _numbers(values, "values")
    if array.ndim != 1:
        raise ValueError(f"values must be one number for each rating, got an array of shape {array.shape}")
    if (bad := np.flatnonzero(~np.isfinite(array))).size:
        raise ValueError(
            f"values[{bad[0]}] = {array[bad[0]]:g} must be finite ({len(bad)} such): leave out what was not rated"
        )
    return array


def _numbers(values: Any, argument: str) -> npt.NDArray[np.float64]:
    """A copy of numbers as floats; text that looks like numbers is refused, a table's missing entries become NaN."""
    if hasattr(values, "to_numpy"):
        try:
            values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            values = values.to_numpy()
    try:
        array = np.array(values)
    except ValueError:
        raise TypeError(f"{argument} must be numbers, got rows of different lengths") from None
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    # As objects: in [1, "2"] the second is to blame, though NumPy makes text of both.
    array = np.array(values, dtype=object)
    for place, value in np.ndenumerate(array):
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            array[place] = np.nan if value is None else float(value)
        except (TypeError, ValueError):
            where = f"{list(place)}" if place else ""
            raise TypeError(f"{argument}{where} = {value!r} is not a number: convert it, float(…) for text") from None
    return array.astype(np.float64)


def _check_lengths(users: Array, items: Array, values: Array) -> None:
    if not len(users) == len(items) == len(values):
        raise ValueError(
            f"users, items and values must have the same length, got {len(users)}, {len(items)} and {len(values)}"
        )
    if not len(values):
        raise ValueError("there are no ratings: users, items and values are empty")


def _settled(
    users: Array, items: Array, values: Array, user_ids: Ids, item_ids: Ids, policy: Duplicates
) -> tuple[Array, Array, Array]:
    """The triples after the policy for pairs that come twice."""
    if policy == "keep":
        return users, items, values
    pairs = users.astype(np.int64) * len(item_ids) + items
    in_order = np.sort(pairs)
    if not (in_order[1:] == in_order[:-1]).any():
        return users, items, values
    _, first, inverse, counts = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    if policy == "error":
        repeated = np.flatnonzero(first[inverse] != np.arange(len(pairs)))
        place = repeated[0]
        user, item = user_ids[[users[place]]].tolist()[0], item_ids[[items[place]]].tolist()[0]
        raise ValueError(
            f"user {user!r} rates item {item!r} twice, at {first[inverse[place]]} and {place} ({len(repeated)} such): choose "
            'duplicates="keep" (two observations), "mean" or "last"'
        )
    if policy == "mean":
        totals = np.bincount(inverse, weights=values)
        chosen = np.sort(first)
        return users[chosen], items[chosen], (totals / counts)[inverse[chosen]]
    last = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last, inverse, np.arange(len(pairs)))
    chosen = np.sort(last)
    return users[chosen], items[chosen], values[chosen]
