"""A file of ratings in, `Ratings` out; a file that is not one gets a sentence with the line and column.

An ``.npz`` has arrays ``user``, ``item`` and ``rating`` of equal length. Anything else is text with a rating on each line:
user, item, rating, and maybe more, which is not read. Fields are separated by commas, semicolons, tabs or ``::`` (MovieLens);
the first line may name them.
"""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.data.refusals import naming_its_file

__all__ = ["EXPECTED", "as_identifiers", "as_ratings", "rating_lines", "rating_number", "read_ratings"]

FIELDS = ("user", "item", "rating")
# What the columns are called in files of others.
ALIASES = {"movie": "item", "product": "item", "value": "rating", "score": "rating", "stars": "rating"}
EXPECTED = (
    "expected lines of user,item,rating (separated by commas, semicolons, tabs or ::; the first line may be names)"
)


@naming_its_file
def read_ratings(path: str | Path) -> Ratings:
    """Ratings from a text or .npz file.

    Parameters
    ----------
    path : str or Path
        Users and items may be whole numbers or names.

    Raises
    ------
    ValueError
        With the file, the line and the column of the first thing that is wrong, and what is expected there.
    """
    where = Path(path)
    try:
        triples = _from_arrays(where) if where.suffix == ".npz" else _from_text(where)
    except OSError as error:
        raise ValueError(f"{where}: cannot be read ({error.strerror or error})") from None
    try:
        ratings = Ratings(triples.user, triples.item, triples.rating, duplicates="keep")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
    _check_pairs(where, ratings, triples)
    return ratings


def as_ratings(X: Any) -> Ratings:
    """Ratings as they are, or made of what else holds them.

    A sparse matrix, a table of three columns, a path (text, .npz or .parquet), an array with NaN for missing, or an iterator of
    any of these, whose later ratings replace earlier ones of the same pair.
    """
    if isinstance(X, Ratings):
        return X
    if isinstance(X, (str, Path)):
        return _from_parquet(Path(X)) if Path(X).suffix in (".parquet", ".pq") else read_ratings(X)
    if hasattr(X, "tocoo") or hasattr(X, "columns"):
        return Ratings(X)
    if hasattr(X, "__next__"):
        chunks = [as_ratings(chunk) for chunk in X]
        if not chunks:
            raise ValueError("the iterator of ratings gave nothing")
        found = chunks[0]
        for chunk in chunks[1:]:
            found = found.extended(chunk)
        return found
    return Ratings.from_dense(X)


@naming_its_file
def _from_parquet(path: Path) -> Ratings:
    try:
        import pandas
    except ImportError:
        raise ImportError(f"{path}: reading Parquet needs pandas and pyarrow: pip install pandas pyarrow") from None
    try:
        frame = pandas.read_parquet(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    return Ratings(frame)


class _Triples(NamedTuple):
    """Columns as they stand in a file; ``lines`` says on which line, or is none where there are no lines."""

    user: npt.NDArray[Any]
    item: npt.NDArray[Any]
    rating: npt.NDArray[np.float64]
    lines: list[int] | None = None


def _check_pairs(path: Path, ratings: Ratings, triples: _Triples) -> None:
    """The first pair that comes twice, by its lines: `Ratings` would say it by position."""
    pairs = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[inverse] != np.arange(len(pairs)))
    if again.size:
        second, earlier = int(again[0]), int(first[inverse[again[0]]])
        here, there = (
            f"entry {place}" if triples.lines is None else f"line {triples.lines[place]}" for place in (second, earlier)
        )
        raise ValueError(
            f"{path}, {here}: user {triples.user[second]} rates item {triples.item[second]} a second time, after {there} "
            f"({len(again)} such); expected one rating for each pair"
        )


# -- text --


class _Layout(NamedTuple):
    """How a line is read: what separates fields, where user, item and rating stand, whether the first line names them."""

    separator: str
    columns: tuple[int, int, int]
    header: bool


def _from_text(path: Path) -> _Triples:
    lines: list[int] = []
    user: list[str] = []
    item: list[str] = []
    rating: list[float] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for place, (who, what, value) in rating_lines(path, file):
                lines.append(place[1])
                user.append(who)
                item.append(what)
                rating.append(rating_number(value, place))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file (byte {error.start} is not UTF-8); {EXPECTED}") from None
    if not rating:
        raise ValueError(f"{path}: there are no ratings in it; {EXPECTED}")
    return _Triples(as_identifiers(user), as_identifiers(item), np.array(rating), lines)


def rating_lines(path: Path, file: Any) -> Iterator[tuple[tuple[Path, int, int], tuple[str, str, str]]]:
    """The three fields of each line, and where the rating stands."""
    layout: _Layout | None = None
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        first = layout is None
        layout = layout or _layout(path, number, line)
        if first and layout.header:
            continue
        fields = _split(line, layout.separator)
        if len(fields) <= max(layout.columns):
            raise ValueError(
                f"{path}, line {number}: {len(fields)} column{'s' if len(fields) != 1 else ''}, but at least "
                f"{max(layout.columns) + 1} are needed; {EXPECTED}"
            )
        who, what, value = (fields[column] for column in layout.columns)
        for name, text, column in zip(FIELDS, (who, what), layout.columns, strict=False):
            if not text:
                raise ValueError(f"{path}, line {number}, column {column + 1}: the {name} is empty; {EXPECTED}")
        yield (path, number, layout.columns[2] + 1), (who, what, value)


def _layout(path: Path, number: int, line: str) -> _Layout:
    separator = next((mark for mark in ("::", "\t", ";", ",") if mark in line), None)
    if separator is None:
        raise ValueError(f"{path}, line {number}: no separator in {line.strip()[:40]!r}; {EXPECTED}")
    names = [_field_of(text) for text in _split(line, separator)]
    if all(field in names for field in FIELDS):
        user, item, rating = (names.index(field) for field in FIELDS)
        return _Layout(separator, (user, item, rating), header=True)
    # A line of names that say nothing to us: user, item, rating in this order. A line with a number in it is data.
    return _Layout(separator, (0, 1, 2), header=len(names) > 2 and not any(_is_number(name) for name in names))


def _split(line: str, separator: str) -> list[str]:
    text = line.rstrip("\r\n")
    fields = text.split("::") if separator == "::" else next(csv.reader([text], delimiter=separator))
    return [field.strip() for field in fields]


def _field_of(text: str) -> str:
    """The field that a column's name means: "userId", "user_id" and "Users" are all ``user``."""
    name = text.strip().lower().replace("_", "").replace(" ", "").removesuffix("id").removesuffix("s")
    return ALIASES.get(text.strip().lower(), ALIASES.get(name, name))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def rating_number(text: str, place: tuple[Path, int, int]) -> float:
    """A finite rating, or an error with its place."""
    value = float(text) if _is_number(text) else math.nan
    if not math.isfinite(value):
        path, line, column = place
        raise ValueError(f"{path}, line {line}, column {column}: the rating must be a finite number, got {text!r}")
    return value


def as_identifiers(texts: list[str]) -> npt.NDArray[Any]:
    """Whole numbers where all are, names otherwise."""
    names = np.array(texts)
    try:
        return names.astype(np.int64)
    except (ValueError, OverflowError):
        return names


# -- arrays --


def _from_arrays(path: Path) -> _Triples:
    expected = "expected arrays user, item and rating of equal length"
    if path.exists() and not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not an .npz file; {expected}")
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        missing = [field for field in FIELDS if field not in file]
        if missing:
            raise ValueError(f"{path}: no array {missing[0]!r} (it has {', '.join(file) or 'none'}); {expected}")
        user, item, rating = (file[field] for field in FIELDS)
    shapes = [array.shape for array in (user, item, rating)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1 or shapes[0] == (0,):
        said = ", ".join(f"{field} {list(shape)}" for field, shape in zip(FIELDS, shapes, strict=True))
        raise ValueError(f"{path}: the shapes are {said}; {expected}, one entry for each rating")
    if rating.dtype.kind not in "fiu":
        raise ValueError(f"{path}: rating must hold numbers, got {rating.dtype}; {expected}")
    if (bad := np.flatnonzero(~np.isfinite(rating))).size:
        raise ValueError(f"{path}: rating[{bad[0]}] = {rating[bad[0]]} is not finite; {expected}")
    return _Triples(user, item, rating.astype(np.float64))
