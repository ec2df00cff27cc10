"""Whatever holds ratings in; `Ratings` out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from natgrad.data.frames import column_names
from natgrad.data.io.ratings import read_ratings
from natgrad.data.rating_columns import pair_columns
from natgrad.data.ratings import Duplicates, Ratings

__all__ = ["are_ids", "are_pairs", "as_ratings"]

# Fewer rows of three numbers are a table of three items.
LEAST_TRIPLES = 4
# Columns of one scale have fewer than so many times as many different values, and none so many spans away from the mean.
MORE_IDS = 2


def are_pairs(X: Any, y: Any) -> bool:
    """Whether X is rows of user and item, and y their ratings, as scikit-learn cuts them into folds.

    A table of ratings may come with a y that means nothing, as pipelines hand it on.
    """
    if y is None or isinstance(X, (Ratings, str, Path)) or hasattr(X, "tocoo"):
        return False
    return column_names(X) is not None or are_ids(X)


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
        users, items = pair_columns(X) if column_names(X) is not None else np.asarray(X).T
        return Ratings(users, items, y, duplicates=duplicates)
    if isinstance(X, Ratings):
        return X
    if isinstance(X, (str, Path)):
        return read_ratings(X)
    if hasattr(X, "tocoo") or column_names(X) is not None:
        return Ratings(X)
    if hasattr(X, "__next__"):
        chunks = [as_ratings(chunk) for chunk in X]
        if not chunks:
            raise ValueError("the iterator of ratings gave nothing")
        ratings = chunks[0]
        for chunk in chunks[1:]:
            ratings = ratings.extended(chunk)
        return ratings
    if isinstance(X, tuple):  # three columns would be read as three users
        raise TypeError(
            f"X is a tuple of {len(X)}: pass Ratings(users, items, ratings), or np.array(X) if it holds a row for each user"
        )
    _refuse_triples(X)
    return Ratings.from_dense(X)


def _distinct(column: Any) -> int:
    return len(np.unique(column))


def _refuse_triples(X: Any) -> None:
    """Ask about an array of three columns of which two may be ids: rows of (user, item, rating), or a table of three items."""
    rows = np.asarray(X) if isinstance(X, (list, np.ndarray)) and not np.ma.isMaskedArray(X) else np.empty((0, 0))
    if rows.ndim != 2 or rows.shape[1] != 3 or len(rows) < LEAST_TRIPLES or rows.dtype.kind not in "iuf":
        return
    ids, values = rows[:, :2], rows[:, 2]
    if not np.isfinite(rows).all() or (ids != np.round(ids)).any():
        return
    # Pairs may come twice; then ids are of another kind than ratings, of another size, or many more.
    whole, near = (values == np.round(values)).all(), np.abs(ids - values.mean()).max() <= MORE_IDS * np.ptp(values)
    alike = whole and near and max(map(_distinct, ids.T)) <= MORE_IDS * _distinct(values)
    if alike and len(np.unique(ids, axis=0)) < len(ids):
        return
    raise ValueError(
        f"X has {len(rows)} rows of three numbers, the first two of which may be ids: give Ratings(X[:, 0], X[:, 1], X[:, 2]) if "
        "a row is user, item and rating, or Ratings.from_dense(X) if it is a user's ratings of three items"
    )
