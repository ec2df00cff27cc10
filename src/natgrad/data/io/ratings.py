"""A file of ratings in, `Ratings` out; a file that is not one gets a sentence with the line and column.

An ``.npz`` has arrays ``user``, ``item`` and ``rating`` of equal length. Parquet has columns, by name. Anything else is text,
maybe gzipped, with a rating on each line; fields are separated by commas, semicolons, tabs or ``::`` (MovieLens). If the first
line names the columns, the names say which is which (`natgrad.data.rating_columns`); without names they are user, item, rating,
and maybe more, which is not read. Ids of a text are text: 7, 007 and +7 are three users.
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

from natgrad.data.ids import as_ids
from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.tables import is_parquet
from natgrad.data.io.text import number_in, open_text
from natgrad.data.rating_columns import Columns, means_something, pair_columns, rating_columns
from natgrad.data.ratings import Duplicates, Ratings

__all__ = ["EXPECTED", "Named", "are_pairs", "as_ratings", "rating_lines", "rating_number", "read_ratings"]

FIELDS = ("user", "item", "rating")
EXPECTED = (
    "expected lines of user,item,rating (separated by commas, semicolons, tabs or ::; the first line may be names)"
)
# The columns that the caller names: user, item and rating, each a name or None.
Named = tuple[str | None, str | None, str | None]
NOBODY: Named = (None, None, None)


@raises_file_error
def read_ratings(
    path: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
) -> Ratings:
    r"""Ratings from a file: text (also ``.gz``), ``.npz`` or Parquet.

    Parameters
    ----------
    path : str or Path
    user, item, value : str, optional
        The names of the columns, where those of the file do not say what they are. A file with users and items alone holds likes.
    encoding : str, optional
        Of text: by default what its byte-order mark says, or UTF-8.

    Raises
    ------
    ValueError
        With the file, the line and the column of the first thing that is wrong, and what is expected there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ratings.csv"
    ...     _ = path.write_text("stars,who,movie\n5,ann,alien\n3,bob,alien\n")
    ...     read_ratings(path, user="who").user_ids.tolist()
    ['ann', 'bob']
    """
    where, named = Path(path), (user, item, value)
    try:
        if is_parquet(where):
            return _from_parquet(where, named)
        triples = _from_arrays(where, named) if where.suffix == ".npz" else _from_text(where, named, encoding)
    except OSError as error:
        raise ValueError(f"{where}: cannot be read ({error.strerror or error})") from None
    try:
        ratings = Ratings(triples.user, triples.item, triples.rating, duplicates="keep")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
    _check_pairs(where, ratings, triples)
    return ratings


def are_pairs(X: Any, y: Any) -> bool:
    """Whether X is rows of user and item, and y their ratings, as scikit-learn cuts them into folds.

    A table of ratings may come with a y that means nothing, as pipelines hand it on.
    """
    if y is None or isinstance(X, (Ratings, str, Path)) or hasattr(X, "tocoo"):
        return False
    return hasattr(X, "columns") or are_ids(X)


def are_ids(X: Any) -> bool:
    """Whether an array has rows of two ids: none is missing, and none has a fraction."""
    if np.shape(X)[1:] != (2,):
        return False
    rows = np.asarray(X)
    return rows.dtype.kind not in "fc" or bool(np.all(rows == np.round(rows)))


def as_ratings(X: Any, y: Any = None, duplicates: Duplicates = "error") -> Ratings:
    """Ratings as they are, or made of what else holds them.

    With y, the ratings of X, whose rows are a user and an item (an array, or a table with such columns). Otherwise a sparse
    matrix, a table with columns for user, item and rating, a path (as `read_ratings`), an array with NaN for missing, or an
    iterator of any of these, whose later ratings replace earlier ones of the same pair.
    """
    if are_pairs(X, y):
        users, items = pair_columns(X) if hasattr(X, "columns") else np.asarray(X).T
        return Ratings(users, items, y, duplicates=duplicates)
    if isinstance(X, Ratings):
        return X
    if isinstance(X, (str, Path)):
        return read_ratings(X)
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


def _from_parquet(path: Path, named: Named) -> Ratings:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError(f"{path}: reading Parquet needs PyArrow: pip install 'natgrad[arrow]'") from None
    columns = rating_columns(parquet.read_schema(path).names, *named, where=f"{path}: ")
    table = parquet.read_table(path, columns=[name for name in columns if name is not None])
    try:
        return Ratings.from_frame(table, user=columns.user, item=columns.item, value=columns.value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


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
    """How a line is read: what separates fields, where user, item and rating stand (likes have none), whether it is names."""

    separator: str
    columns: tuple[int, ...]
    header: bool


def _from_text(path: Path, named: Named, encoding: str | None) -> _Triples:
    lines: list[int] = []
    user: list[str] = []
    item: list[str] = []
    rating: list[float] = []
    with open_text(path, encoding) as file:
        for place, (who, what, value) in rating_lines(path, file, named):
            lines.append(place[1])
            user.append(who)
            item.append(what)
            rating.append(rating_number(value, place))
    if not rating:
        raise ValueError(f"{path}: there are no ratings in it; {EXPECTED}")
    return _Triples(as_ids(user, "user"), as_ids(item, "item"), np.array(rating), lines)


def rating_lines(
    path: Path, file: Any, named: Named = NOBODY
) -> Iterator[tuple[tuple[Path, int, int], tuple[str, str, str]]]:
    """The three fields of each line, and where the rating stands; a like is the rating "1"."""
    layout: _Layout | None = None
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        first = layout is None
        layout = layout or _layout(path, number, line, named)
        if first and layout.header:
            continue
        fields = _split(line, layout.separator)
        if len(fields) <= max(layout.columns):
            raise ValueError(
                f"{path}, line {number}: {len(fields)} column{'s' if len(fields) != 1 else ''}, but at least "
                f"{max(layout.columns) + 1} are needed; {EXPECTED}"
            )
        who, what, *value = (fields[column] for column in layout.columns)
        for name, text, column in zip(FIELDS, (who, what), layout.columns, strict=False):
            if not text:
                raise ValueError(f"{path}, line {number}, column {column + 1}: the {name} is empty; {EXPECTED}")
        yield (path, number, layout.columns[-1] + 1), (who, what, value[0] if value else "1")


def _layout(path: Path, number: int, line: str, named: Named) -> _Layout:
    separator = next((mark for mark in ("::", "\t", ";", ",") if mark in line), None)
    if separator is None:
        raise ValueError(f"{path}, line {number}: no separator in {line.strip()[:40]!r}; {EXPECTED}")
    names = _split(line, separator)
    # A line with a number in it is a rating, unless it has the names that we know, or the caller says that there are names.
    header = named != NOBODY or means_something(names) or not any(math.isfinite(number_in(name)) for name in names)
    if not header:
        return _Layout(separator, (0, 1, 2), header=False)
    columns: Columns = rating_columns(names, *named, where=f"{path}, line {number}: ")
    return _Layout(separator, tuple(names.index(name) for name in columns if name is not None), header=True)


def _split(line: str, separator: str) -> list[str]:
    text = line.rstrip("\r\n")
    fields = text.split("::") if separator == "::" else next(csv.reader([text], delimiter=separator))
    return [field.strip() for field in fields]


def rating_number(text: str, place: tuple[Path, int, int]) -> float:
    """A finite rating, or an error with its place."""
    value = number_in(text)
    if not math.isfinite(value):
        path, line, column = place
        raise ValueError(f"{path}, line {line}, column {column}: the rating must be a finite number, got {text!r}")
    return value


# -- arrays --


def _from_arrays(path: Path, named: Named) -> _Triples:
    if named != NOBODY:
        raise ValueError(
            f"{path}: the arrays of an .npz are called user, item and rating, and user=, item= and value= are for tables"
        )
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
