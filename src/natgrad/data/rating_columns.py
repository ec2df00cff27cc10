"""A table with named columns in; those of the user, the item and the rating out."""

from __future__ import annotations

from typing import Any

__all__ = ["columns_of", "pairs_in"]

# Names that say what a column is, in small letters and without spaces or underscores.
NAMES = {
    "user": ("user", "userid", "users", "uid", "customer", "customerid", "reviewer", "reviewerid", "row"),
    "item": ("item", "itemid", "items", "iid", "movie", "movieid", "product", "productid", "asin", "track", "column"),
    "value": ("value", "values", "rating", "ratings", "score", "stars", "overall", "count"),
}


def columns_of(frame: Any, user: Any = None, item: Any = None, value: Any = None) -> list[Any]:
    """The columns of user, item and value: those given, those whose names say so, or else the first three.

    A table with nothing but users and items has no values.
    """
    if not hasattr(frame, "columns"):
        raise TypeError(
            f"a table with named columns is needed, got {type(frame).__name__}: use Ratings(users, items, values)"
        )
    there, given = list(frame.columns), {"user": user, "item": item, "value": value}
    for role, column in given.items():
        if column is not None and column not in there:
            raise ValueError(f"{role}={column!r} is not a column; there are {', '.join(map(repr, there))}")
    found: dict[str, Any] = {}
    for role, names in NAMES.items():
        plain = [column for column in there if _plain(column) in names and column not in given.values()]
        found[role] = given[role] if given[role] is not None else (plain[0] if plain else None)
    if all(column is None for column in found.values()) and len(there) >= 3:
        return there[:3]
    missing = [role for role, column in found.items() if column is None]
    if missing == ["value"] and len(there) == 2:
        return [found["user"], found["item"]]
    if missing:
        likes = "; or, if these are likes alone, leave out all other columns" if missing == ["value"] else ""
        raise ValueError(
            f"cannot tell which column is the {' or the '.join(missing)} among {', '.join(map(repr, there))}: "
            f"use Ratings.from_frame(frame, user=…, item=…, value=…){likes}"
        )
    return list(found.values())


def pairs_in(table: Any) -> tuple[Any, Any] | None:
    """The users and items that a table names in columns of their own, if it has such columns.

    Examples
    --------
    >>> import pandas
    >>> users, items = pairs_in(pandas.DataFrame({"userId": [3], "movieId": [5], "rating": [4.0]}))
    >>> users.tolist(), items.tolist()
    ([3], [5])
    """
    there = list(getattr(table, "columns", ()))
    found = [[column for column in there if _plain(column) in NAMES[role]] for role in ("user", "item")]
    return (table[found[0][0]], table[found[1][0]]) if all(found) else None


def _plain(column: Any) -> str:
    return str(column).lower().replace("_", "").replace(" ", "")
