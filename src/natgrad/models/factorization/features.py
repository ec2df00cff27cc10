"""What is known of users and items in; a table for each side, in the order of the ratings' ids, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.validation import refuse_masked

__all__ = ["known_features", "padded_features"]

Floats = npt.NDArray[np.float64]


def known_features(ratings: Ratings, users: Any, items: Any) -> tuple[Ratings, dict[str, Floats]]:
    """Ratings that also count who has features and no rating, and the features by side.

    ``users``, ``items``: an array with a row for each id in order, a table with ids as its index, {id: numbers}, or None.
    """
    tables: dict[str, Floats] = {}
    for side, given, argument in (("u", users, "user_features"), ("v", items, "item_features")):
        if given is None:
            continue
        ids, table = _as_table(given, argument)
        if ids is None:
            expected = ratings.n_users if side == "u" else ratings.n_items
            if len(table) != expected:
                raise ValueError(
                    f"{argument} must have a row for each of the {expected} {argument[:4]}s in order, got {len(table)} rows: "
                    "give a table with ids as its index, or {id: numbers}"
                )
            tables[side] = table
            continue
        ratings, tables[side] = _placed(ratings, side, ids, table)
    return ratings, tables


def padded_features(table: Floats, n_rows: int) -> Floats:
    """A row of zeros for everybody of whom nothing is known."""
    return np.concatenate([table, np.zeros((n_rows - len(table), table.shape[1]))]) if n_rows > len(table) else table


def _placed(ratings: Ratings, side: str, ids: list[Any], table: Floats) -> tuple[Ratings, Floats]:
    old = {"u": ratings.user_ids, "v": ratings.item_ids}
    numbers = {key: place for place, key in enumerate(old[side].tolist())}
    fresh = [key for key in ids if key not in numbers]
    if fresh:
        for key in fresh:
            numbers[key] = len(numbers)
        longer = np.empty(len(numbers), dtype=object)
        longer[:] = list(numbers)
        plain = old[side].dtype.kind in "iuU" and np.array(fresh).dtype.kind == old[side].dtype.kind
        old[side] = np.concatenate([old[side], np.array(fresh)]) if plain else longer
        ratings = Ratings.numbered(ratings.users, ratings.items, ratings.values, old["u"], old["v"])
    placed = np.zeros((len(numbers), table.shape[1]))
    placed[[numbers[key] for key in ids]] = table
    return ratings, placed


def _as_table(given: Any, argument: str) -> tuple[list[Any] | None, Floats]:
    ids: list[Any] | None = None
    if isinstance(given, Mapping):
        ids, given = list(given), list(given.values())
    elif hasattr(given, "index") and hasattr(given, "columns"):
        ids, given = given.index.tolist(), given.to_numpy()
    elif hasattr(given, "toarray"):
        given = given.toarray()
    refuse_masked(given, argument, "and every feature is needed: fill in what is missing")
    try:
        table = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{argument} must be numbers, one row for each id and all of one length") from None
    if table.ndim != 2 or not table.size:
        raise ValueError(f"{argument} must be a table [ids, features], got shape {table.shape}")
    if (bad := np.argwhere(~np.isfinite(table))).size:
        i, j = bad[0]
        raise ValueError(
            f"{argument}[{i}, {j}] = {table[i, j]:g} must be finite ({len(bad)} such): fill in what is missing"
        )
    return ids, table
