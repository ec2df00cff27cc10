"""The names of a table's columns in; which of them is the user, the item and the rating out: the one place where that is decided.

Files, Parquet, tables in memory, streams and the command line all ask here, so that the same columns mean the same everywhere. A
column is what its name says (`NAMES`) or what the caller says. Names that say nothing, or two that say the same, are a question
back: a guess by position would make users of dates and ratings of products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from natgrad.data.frames import column_names, frame_columns

__all__ = [
    "NAMES",
    "Columns",
    "are_unnamed",
    "columns_of",
    "looks_like_header",
    "pair_columns",
    "pairs_in",
    "rating_columns",
]

# Names that say what a column is, in small letters and without anything but letters and digits.
NAMES = {
    "user": (
        "user", "users", "userid", "userids", "username", "uid", "customer", "customers", "customerid", "client", "clientid",
        "reviewer", "reviewerid", "rater", "raterid", "viewer", "viewerid", "listener", "listenerid", "reader", "readerid",
        "visitor", "visitorid", "member", "memberid", "person", "personid", "row",
    ),
    "item": (
        "item", "items", "itemid", "itemids", "iid", "movie", "movies", "movieid", "film", "films", "filmid", "product",
        "products", "productid", "asin", "track", "trackid", "song", "songid", "artist", "artistid", "book", "bookid", "isbn",
        "game", "gameid", "business", "businessid", "restaurant", "restaurantid", "column",
    ),
    "value": ("value", "values", "rating", "ratings", "score", "scores", "star", "stars", "overall", "count", "counts"),
}  # fmt: skip
ASK = (
    "name them, user=…, item=…, value=… of Ratings.from_frame or data.read_ratings, columns= of data.RatingsSource, or --user, "
    "--item and --value on the command line"
)


class Columns(NamedTuple):
    """The columns of user, item and rating; no rating where every pair is a like."""

    user: Any
    item: Any
    value: Any | None


def rating_columns(
    names: Sequence[Any], user: Any = None, item: Any = None, value: Any = None, *, where: str = "", rated: bool = True
) -> Columns:
    """Which column is what.

    Columns that nobody named (0, 1, 2, … as pandas counts them) are user, item and rating in this order. A table with nothing but
    users and items has no ratings.

    Parameters
    ----------
    names : of all columns
    user, item, value : those that the caller names
    where : what begins a message, as "ratings.csv, line 1: "
    rated : whether ratings are looked for; without, only pairs are

    Examples
    --------
    >>> rating_columns(["stars", "customer", "movie"])
    Columns(user='customer', item='movie', value='stars')
    >>> rating_columns(["when", "what", "who"], user="who", item="what", value="when").user
    'who'
    """
    there, given = list(names), {"user": user, "item": item, "value": value}
    shown = ", ".join(map(repr, there))
    for name in there:
        if there.count(name) > 1:
            raise ValueError(f"{where}the column {name!r} is there {there.count(name)} times among {shown}: rename one")
    for role, column in given.items():
        if column is not None and column not in there:
            raise ValueError(f"{where}{role}={column!r} is not a column; there are {shown}")
    chosen = [column for column in given.values() if column is not None]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{where}user, item and value must be different columns, got {user!r}, {item!r} and {value!r}")
    if not chosen and are_unnamed(there) and len(there) > 1:
        return Columns(*(*there[: 3 if rated else 2], None)[:3])
    column_of: dict[str, Any] = {"value": None}
    for role in ("user", "item", "value") if rated else ("user", "item"):
        meant = [name for name in there if _plain(name) in NAMES[role] and name not in chosen]
        if given[role] is None and len(meant) > 1:
            raise ValueError(f"{where}{' and '.join(map(repr, meant))} may both be the {role} among {shown}: {ASK}")
        column_of[role] = given[role] if given[role] is not None else next(iter(meant), None)
    missing = [role for role, column in column_of.items() if column is None and (rated or role != "value")]
    if missing and not (missing == ["value"] and len(there) == 2):
        likes = "; or, if these are likes alone, leave out all other columns" if missing == ["value"] else ""
        asked = " or the ".join(role for role in given if role in missing)
        raise ValueError(f"{where}cannot tell which column is the {asked} among {shown}: {ASK}{likes}")
    return Columns(**column_of)


def are_unnamed(names: Sequence[Any]) -> bool:
    """Whether columns are called 0, 1, 2, …: nobody named them."""
    return list(names) == list(range(len(names))) and all(not isinstance(name, (str, bool)) for name in names)


def looks_like_header(names: Sequence[str]) -> bool:
    """Whether at least two of user, item and rating are among the names: then a line is no rating but a header."""
    return sum(any(_plain(name) in known for name in names) for known in NAMES.values()) > 1


def columns_of(frame: Any, user: Any = None, item: Any = None, value: Any = None) -> list[Any]:
    """The columns themselves of a table of pandas, Polars or Arrow: users, items and values, or no values for likes."""
    names = column_names(frame)
    if names is None:
        raise TypeError(
            f"a table with named columns is needed, got {type(frame).__name__}: use Ratings(users, items, values)"
        )
    chosen = [name for name in rating_columns(names, user, item, value) if name is not None]
    return list((frame_columns(frame, chosen) or {}).values())


def pair_columns(frame: Any) -> tuple[Any, Any]:
    """The columns themselves of users and items; other columns do not matter."""
    chosen = rating_columns(column_names(frame) or [], rated=False)
    users, items = (frame_columns(frame, [chosen.user, chosen.item]) or {}).values()
    return users, items


def pairs_in(table: Any) -> tuple[Any, Any] | None:
    """The users and items that a table names in columns of their own, if it has such columns.

    Examples
    --------
    >>> import pandas
    >>> users, items = pairs_in(pandas.DataFrame({"userId": [3], "movieId": [5], "rating": [4.0]}))
    >>> users.tolist(), items.tolist()
    ([3], [5])
    """
    names = column_names(table) or []
    if not all(any(_plain(name) in NAMES[role] for name in names) for role in ("user", "item")):
        return None
    return pair_columns(table)


def _plain(name: Any) -> str:
    return "".join(letter for letter in str(name).split(":")[0].lower() if letter.isalnum())
