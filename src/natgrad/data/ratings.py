"""`Ratings`: triples (user, item, value) in; whole-numbered users and items, grouped by either side, out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import column_names
from natgrad.data.ids import MISSING, Ids, as_ids, joined_ids, number_ids
from natgrad.data.origin import Origin
from natgrad.data.rating_columns import columns_of
from natgrad.validation import as_numbers, refuse_masked

__all__ = ["Ratings", "RatingsRows", "as_table", "sorted_run"]

Array = npt.NDArray[Any]
Duplicates = Literal["error", "keep", "mean", "last"]
POLICIES = ("error", "keep", "mean", "last")


class RatingsRows(NamedTuple):
    """The ratings grouped by one side: row i has the entries ``start[i] … start[i+1]``.

    ``other`` is the element of the other side, ``values`` the rating, ``place`` its position among the triples.
    """

    start: npt.NDArray[np.int64]
    other: npt.NDArray[np.int32]
    values: npt.NDArray[np.float64]
    place: npt.NDArray[Any]


class Ratings:
    """Observed values of pairs (user, item), with the ids they came with.

    Parameters
    ----------
    users, items : arrays of ids [n]
        Numbers, strings or anything hashable. ``users`` alone may be a table of pandas, Polars or Arrow with columns named user,
        item and rating or alike (by other names: `from_frame`), or a sparse matrix whose stored entries are the ratings.
    values : array of numbers [n]
        Left out, as in a table of users and items alone, these are likes, and every value is 1.
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
        if items is None:
            raise TypeError("Ratings takes users, items and values, a table with these columns, or a sparse matrix")
        values = np.ones(len(users)) if values is None else values
        if shape is None:
            user_codes, self._users = number_ids(users, "users", "user")
            item_codes, self._items = number_ids(items, "items", "item")
        else:
            sizes = _checked_shape(shape)
            user_codes, self._users = _counted(users, sizes[0], "users", "user")
            item_codes, self._items = _counted(items, sizes[1], "items", "item")
        numbers = _checked_values(values)
        _check_lengths(user_codes, item_codes, numbers)
        kept = _apply_policy(user_codes, item_codes, numbers, self._users, self._items, duplicates)
        self.users, self.items, self.values = (_frozen(part) for part in kept)
        # Where the same ratings lie in a file, in this order (`natgrad.data.io.ratings.RatingsReader`).
        self.origin: Origin | None = None

    @classmethod
    def from_frame(
        cls, frame: Any, *, user: Any = None, item: Any = None, value: Any = None, duplicates: Duplicates = "error"
    ) -> Ratings:
        """Ratings from a table: the names of its columns, found by themselves where they say what they are.

        Examples
        --------
        >>> import pandas
        >>> frame = pandas.DataFrame({"who": ["ann", "bob"], "what": [7, 7], "stars": [5, 3]})
        >>> Ratings.from_frame(frame, user="who", item="what", value="stars").item_ids.tolist()
        [7]
        """
        return cls(*columns_of(frame, user, item, value), duplicates=duplicates)

    @classmethod
    def from_dense(cls, table: Any) -> Ratings:
        """Ratings from a full table [users, items]; NaN, or a mask, where there is none.

        Examples
        --------
        >>> Ratings.from_dense([[5.0, np.nan], [np.nan, 3.0]])
        Ratings(2 ratings of 2 items by 2 users, values 3 … 5)
        """
        array = as_table(table)
        users, items = np.nonzero(~np.isnan(array))
        if not len(users):
            raise ValueError(f"X of shape {array.shape} has no ratings: every entry is NaN or masked")
        return cls(users, items, array[users, items], shape=array.shape)

    @classmethod
    def numbered(cls, users: Array, items: Array, values: Array, user_ids: Array, item_ids: Array) -> Ratings:
        """Ratings whose users and items are numbered already, in the order of their ids."""
        codes, array = np.array(users, dtype=np.int64), np.array(items, dtype=np.int64)
        made = cls(codes, array, values, shape=(len(user_ids), len(item_ids)), duplicates="keep")
        made._users, made._items = Ids(user_ids, "user"), Ids(item_ids, "item")
        return made

    def extended(self, more: Ratings) -> Ratings:
        """These ratings and more of them: numbers stay, new ids follow; a pair that comes again has its new value.

        Examples
        --------
        >>> first = Ratings(["ann"], ["alien"], [5])
        >>> first.extended(Ratings(["ann", "bob"], ["alien", "alien"], [4, 3])).values.tolist()
        [4.0, 3.0]
        """
        user_ids, user_number = joined_ids(self.user_ids, more.user_ids)
        item_ids, item_number = joined_ids(self.item_ids, more.item_ids)
        users = np.concatenate([self.users.astype(np.int64), user_number[more.users]])
        items = np.concatenate([self.items.astype(np.int64), item_number[more.items]])
        values = np.concatenate([self.values, more.values])
        # Only pairs of users who come again can come again; the last of each is kept.
        again = np.zeros(len(user_ids), dtype=bool)
        again[user_number] = True
        near = np.flatnonzero(again[users])
        pairs = users[near] * len(item_ids) + items[near]
        last = near[len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]]
        kept: Any = slice(None)
        if len(last) < len(near):
            kept = np.ones(len(users), dtype=bool)
            kept[near] = False
            kept[last] = True
        return Ratings.numbered(users[kept], items[kept], values[kept], user_ids, item_ids)

    def restricted(self, users: Array) -> Ratings:
        """The ratings of some users (numbers), who are counted anew in this order; all items stay."""
        place = np.full(self.n_users, -1)
        place[users] = np.arange(len(users))
        kept = place[self.users] >= 0
        chosen = place[self.users[kept]], self.items[kept], self.values[kept]
        return Ratings.numbered(*chosen, self.user_ids[users], self.item_ids)

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

    def places_of_users(self, ids: Any) -> npt.NDArray[np.int64]:
        """The number of each user, −1 for one who is not there."""
        return self._users.places(as_ids(ids, "users"))

    def find_users(self, ids: Any, argument: str = "users") -> npt.NDArray[np.int64]:
        """The number of each user id; an unknown one is an error."""
        return self._users.find(ids, argument)

    def find_items(self, ids: Any, argument: str = "items") -> npt.NDArray[np.int64]:
        """The number of each item id; an unknown one is an error."""
        return self._items.find(ids, argument)

    @cached_property
    def by_user(self) -> RatingsRows:
        """The ratings of each user, in the order they came."""
        return _grouped(self.users, self.items, self.values, self.n_users)

    @cached_property
    def by_item(self) -> RatingsRows:
        """The ratings of each item, in the order they came."""
        return _grouped(self.items, self.users, self.values, self.n_items)

    @cached_property
    def sorted_by_user(self) -> RatingsRows:
        """The ratings of each user, by ascending number of the item: what is near in memory is read together."""
        return _sorted(self.users, self.items, self.values, self.shape)

    @cached_property
    def sorted_by_item(self) -> RatingsRows:
        """The ratings of each item, by ascending number of the user."""
        return _sorted(self.items, self.users, self.values, self.shape[::-1])

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError(
            "Ratings are not an array. Use ratings.pairs(), rows of user and item and their ratings, as in "
            "model.predict(ratings.pairs()[0]) or GridSearchCV(model, grid).fit(*ratings.pairs())"
        )

    def pairs(self) -> tuple[Array, Array]:
        """Rows of user and item [n, 2], and the ratings [n]: what scikit-learn can cut into folds.

        Examples
        --------
        >>> X, y = Ratings(["ann", "bob"], [7, 7], [5, 3]).pairs()
        >>> X.tolist(), y.tolist()
        ([['ann', 7], ['bob', 7]], [5.0, 3.0])
        """
        columns = self.user_ids[self.users], self.item_ids[self.items]
        alike = columns[0].dtype.kind == columns[1].dtype.kind
        table = np.empty((len(self), 2), dtype=np.result_type(*columns) if alike else object)
        table[:, 0], table[:, 1] = columns
        return table, self.values

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        low, high = self.values.min(), self.values.max()
        return f"Ratings({len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users, values {low:g} … {high:g})"


def as_table(table: Any) -> npt.NDArray[np.float64]:
    """Copy a table [users, items] of finite numbers, NaN where there is none."""
    if np.iscomplexobj(table):
        raise ValueError("Complex data not supported: X must hold real numbers")
    array = as_numbers(table, "X", missing=True)
    if array.ndim != 2:
        raise ValueError(
            f"X must be a table [users, items] with NaN for missing ratings, got shape {array.shape}. Reshape your data: one "
            "user is [ratings]"
        )
    if not array.shape[1]:
        raise ValueError(f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required: no items")
    if (bad := np.argwhere(np.isinf(array))).size:
        i, j = bad[0]
        raise ValueError(f"X[{i}, {j}] = {array[i, j]:g} must be finite, or NaN where there is no rating")
    return array


def sorted_run(pieces: Iterable[tuple[Array, Array, Array]], own_ids: Array, other_ids: Array) -> RatingsRows:
    """Rows of some elements of a side, as `Ratings` sorts them, from pieces of (own, other, value) in the order of all."""
    own, other, kept = Ids(own_ids, "own"), Ids(other_ids, "other"), list[tuple[Array, Array, Array]]()
    for mine, theirs, values in pieces:
        places = own.places(as_ids(mine, "own"))
        here = places >= 0
        kept.append((places[here].astype(np.int32), other.find(theirs[here], "others").astype(np.int32), values[here]))
    mine, theirs, values = map(np.concatenate, zip(*kept, strict=True))
    return _sorted(mine, theirs, values.astype(np.float64), (len(own), len(other)))


def _grouped(own: Array, other: Array, values: Array, n_rows: int) -> RatingsRows:
    start, place = _places(own, n_rows, np.int64)
    return RatingsRows(*(_frozen(part) for part in (start, other[place], values[place], place)))


def _sorted(own: Array, other: Array, values: Array, shape: tuple[int, int]) -> RatingsRows:
    dtype = np.int32 if len(own) < 2**31 else np.int64
    first = _places(other, shape[1], dtype)[1]
    start, second = _places(own[first], shape[0], dtype)
    place = first[second]
    return RatingsRows(*(_frozen(part) for part in (start, other[place], values[place], place)))


def _places(keys: Array, n_keys: int, dtype: Any) -> tuple[Array, Array]:
    """The positions of key 0, of key 1, … in the order they came, and where each key begins."""
    from natgrad.kernels.memory import group_rows

    start, place = np.empty(n_keys + 1, dtype=np.int64), np.empty(len(keys), dtype=dtype)
    group_rows(keys, start, place)
    return start, place


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
    if column_names(source) is not None:
        users, items, *values = columns_of(source)
        return users, items, values[0] if values else None, shape
    return source, None, None, shape


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
    refuse_masked(values, argument, MISSING)
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
    array = as_numbers(values, "values", missing=True)
    if array.ndim != 1:
        raise ValueError(f"values must be one number for each rating, got an array of shape {array.shape}")
    if (bad := np.flatnonzero(~np.isfinite(array))).size:
        raise ValueError(
            f"values[{bad[0]}] = {array[bad[0]]:g} must be finite ({len(bad)} such): leave out what was not rated"
        )
    return array


def _check_lengths(users: Array, items: Array, values: Array) -> None:
    if not len(users) == len(items) == len(values):
        raise ValueError(
            f"users, items and values must have the same length, got {len(users)}, {len(items)} and {len(values)}"
        )
    if not len(values):
        raise ValueError("there are no ratings: users, items and values are empty")


def first_repeated(users: Array, items: Array) -> tuple[int, int, int] | None:
    """Where a pair comes a second time, where it came first, and how many such there are; None if all are different."""
    pairs = _pair_numbers(users, items)
    in_order = np.sort(pairs)
    if not (in_order[1:] == in_order[:-1]).any():
        return None
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[inverse] != np.arange(len(pairs)))
    return int(repeated[0]), int(first[inverse[repeated[0]]]), len(repeated)


def _pair_numbers(users: Array, items: Array) -> npt.NDArray[np.int64]:
    return np.asarray(users.astype(np.int64) * (items.max(initial=0) + 1) + items)


def _apply_policy(
    users: Array, items: Array, values: Array, user_ids: Ids, item_ids: Ids, policy: Duplicates
) -> tuple[Array, Array, Array]:
    """The triples after the policy for pairs that come twice."""
    if policy == "keep" or (repeated := first_repeated(users, items)) is None:
        return users, items, values
    if policy == "error":
        second, earlier, times = repeated
        user, item = user_ids[[users[second]]].tolist()[0], item_ids[[items[second]]].tolist()[0]
        raise ValueError(
            f"user {user!r} rates item {item!r} twice, at {earlier} and {second} ({times} such): choose "
            'duplicates="keep" (two observations), "mean" or "last"'
        )
    pairs = _pair_numbers(users, items)
    _, first, inverse, counts = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    if policy == "mean":
        totals = np.bincount(inverse, weights=values)
        chosen = np.sort(first)
        return users[chosen], items[chosen], (totals / counts)[inverse[chosen]]
    last = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last, inverse, np.arange(len(pairs)))
    chosen = np.sort(last)
    return users[chosen], items[chosen], values[chosen]
