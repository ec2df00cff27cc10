"""A file of ratings, perhaps with times and contexts, in; what recommenders are fitted to, scored on or asked for, out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np

from natgrad.cli.columns import Input, encoding_option, remembered
from natgrad.data.ids import as_ids
from natgrad.data.io.numbers import column_names, read_numbers
from natgrad.data.io.ratings import read_ratings
from natgrad.data.io.tables import kind_of_table, read_table
from natgrad.data.ratings import Ratings
from natgrad.report.format import count

__all__ = [
    "context_options", "factor_options", "feature_options", "ids_like", "pairs_at", "rating_options", "read_context",
    "read_rated",
]  # fmt: skip

ROLES = ("user", "item", "value")
SIDES = ("user", "item")


def rating_options() -> list[click.Option]:
    """Which columns are what."""
    return [
        click.Option(["--user"], help="The column of users, if its name does not say so."),
        click.Option(["--item"], help="The column of items, if its name does not say so."),
        click.Option(["--value"], help="The column of ratings, if its name does not say so."),
        encoding_option(),
    ]


def feature_options() -> list[click.Option]:
    """Files of what is known of users and items."""
    words = "A table of what is known of {}s: their ids in its first column, numbers in the others."
    return [click.Option([f"--{side}-features"], metavar="FILE", help=words.format(side)) for side in SIDES]


def factor_options() -> list[click.Option]:
    """Which columns are what, and what is known besides."""
    return [*rating_options(), *feature_options()]


def context_options() -> list[click.Option]:
    """Columns of times and contexts, where a model does not know them."""
    return [
        click.Option(["--time"], help="The column of times of ratings; that of the fit by default."),
        click.Option(["--context"], help="The column of contexts of ratings; that of the fit by default."),
    ]


def read_rated(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Ratings of a file; ids as a fitted model has them."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file of ratings (looked for {path.absolute()})")
    if fitted is not None and fitted.columns_ and kind_of_table(path) is not None:
        options = remembered(fitted, options, column_names(path, encoding=options.get("encoding")))
    ratings = read_ratings(path, **{name: options.get(name) for name in (*ROLES, "encoding")})
    columns = {role: options[role] for role in ROLES if options.get(role) is not None}
    if fitted is not None:
        known, own = fitted.ratings_, (ratings.user_ids, ratings.item_ids)
        users, items = (ids_like(*both) for both in zip((known.user_ids, known.item_ids), own, strict=True))
        ratings = Ratings.numbered(ratings.users, ratings.items, ratings.values, users, items)
    known_of = {"user": ratings.user_ids, "item": ratings.item_ids}
    named = {
        f"{side}_features": _read_features(str(file), known_of[side], side)
        for side in SIDES
        if (file := options.get(f"{side}_features")) is not None
    }
    return Input((ratings,), ratings, None, repr(ratings), columns, named=named)


def _read_features(path: str, ids: Any, side: str) -> dict[Any, Any]:
    """Numbers by id, of a table whose first column has the ids."""
    first, *others = column_names(path)
    if not others:
        raise ValueError(f"--{side}-features {path}: has one column; the first has ids, the others numbers")
    table = read_table(path)
    numbers = read_numbers(path, others, [first])
    keys = ids_like(ids, table[first]).tolist()
    if twice := [key for key, n in Counter(keys).items() if n > 1]:
        raise ValueError(
            f"--{side}-features {path}: {twice[0]!r} is there {keys.count(twice[0])} times, and once is enough"
        )
    if not set(keys) & set(ids.tolist()):
        raise ValueError(
            f"--{side}-features {path}: no id of its first column {first!r} ({keys[0]!r}, …) is that of a {side} who was rated "
            f"({ids.tolist()[0]!r}, …)"
        )
    return dict(zip(keys, numbers.rows, strict=True))


def read_context(path: Path, options: dict[str, Any], fitted: Any, *, rated: bool = True) -> Input:
    """Ratings of a table with their times and contexts, as a table of the columns that count."""
    from natgrad.recommenders.columns import as_rows, read_context_table

    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file of ratings (looked for {path.absolute()})")
    if kind_of_table(path) is None:
        raise ValueError(
            f"{path}: a table is needed (CSV, TSV, JSON lines, Parquet), with columns of user, item, rating and time"
        )
    there = column_names(path, encoding=options.get("encoding"))
    options = remembered(fitted, options, there)
    if fitted is not None:  # where the fit was given values, the columns have these names
        known = {"time": fitted.time_edges_ is not None, "context": fitted.context_ids_ is not None}
        options |= {
            role: options.get(role) or (getattr(fitted, role) if isinstance(getattr(fitted, role), str) else role)
            for role, had in known.items()
            if had
        }
    beside = {role: options.get(role) for role in ("time", "context")}
    named = {role: options.get(role) for role in ROLES}
    table = read_context_table(path, **beside, rated=rated, encoding=options.get("encoding"), **named)
    parts = {str(name): table[name] for name in table.dtype.names or ()}
    if fitted is not None:
        user, item = list(parts)[:2]
        parts |= {user: ids_like(fitted.user_ids_, parts[user]), item: ids_like(fitted.item_ids_, parts[item])}
        if fitted.context_ids_ is not None:
            label = str(beside["context"])
            parts[label] = ids_like(fitted.context_ids_, parts[label])
    rows = as_rows(parts)
    columns = {role: options[role] for role in ROLES if options.get(role) is not None}
    words = f"{count(len(rows))} ratings, columns {', '.join(parts)}"
    return Input((rows,), rows, None, words, columns)


def pairs_at(file: Path, options: dict[str, Any], fitted: Any) -> tuple[list[str], Any, Any, Any]:
    """Names of the columns, their rows, and the mean and standard deviation of each rating."""
    rows = read_context(file, options, fitted, rated=False).arguments[0]
    names = [str(name) for name in rows.dtype.names]
    at = {role: options.get(role) or getattr(fitted, role) or role for role in ("time", "context")}
    given = {role: rows[name] for role, name in at.items() if name in names[2:]}
    mean, sd = fitted.predict(rows[names[0]], rows[names[1]], True, **given)
    return names, rows, mean, sd


def ids_like(known: Any, texts: Any) -> Any:
    """Ids as the model has them: a text that spells one of its ids is this id, as the 7 of a file for the 7 of a table."""
    spelled = {str(key): key for key in known.tolist()}
    return as_ids([spelled.get(str(text), text) for text in np.asarray(texts).tolist()], "ids")
