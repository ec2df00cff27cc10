"""A fitted factorisation and rows of a table in; the rows with every rating predicted out.

A row is a user, known or not, and is judged by its own ratings alone: its vector is fitted to them with all else held. So rows do
not depend on one another, as scikit-learn demands of ``predict(X)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.data.numbers import as_table
from natgrad.data.ratings import Ratings

if TYPE_CHECKING:
    from natgrad.models.rating_kinds import Kind
    from natgrad.problem import State

__all__ = ["FOLD_STEPS", "check_columns", "completed"]

Floats = npt.NDArray[np.float64]
# Rounds of updates of new users' vectors, items held: scalars, and users with a noise of their own, need a few.
FOLD_STEPS = 10
# Ratings predicted at once.
SLICE = 1_000_000


def check_columns(X: Any, n_items: int) -> None:
    """A table without ids must have a column for each item of the fit."""
    shape: tuple[int, ...] = np.shape(X) if isinstance(X, (list, np.ndarray)) or hasattr(X, "tocoo") else ()
    if len(shape) == 2 and shape[1] != n_items:
        raise ValueError(
            f"X has {shape[1]} features, but MatrixFactorization is expecting {n_items} features as input: a column for each "
            "item; give Ratings for others, whose ids tell which they are"
        )


def completed(kind: Kind, state: State, item_ids: npt.NDArray[Any], X: Any) -> tuple[Floats, Floats]:
    """Mean and variance [rows, items] of the ratings of rows, given those that are there (the others are NaN)."""
    if hasattr(X, "tocoo"):
        raise TypeError(
            "X is sparse, and a table with every rating is not: give X.toarray() with NaN where there is none"
        )
    table = as_table(X)
    check_columns(table, len(item_ids))
    n_rows, n_items = table.shape
    n_users = len(state.mu["u"][0])
    rows, items = np.nonzero(~np.isnan(table))
    if len(rows):
        ids = np.arange(n_users + n_rows)
        ratings = Ratings.numbered(n_users + rows, items, table[rows, items], ids, item_ids)
        state = kind.extended(state, ratings, 0)
        state = kind.folded(state, ratings.restricted(ids[n_users:]), ids[n_users:], FOLD_STEPS)
    else:  # nothing to go by but the priors
        ratings = Ratings.numbered(np.array([0]), np.array([0]), np.zeros(1), np.arange(n_users + n_rows), item_ids)
        state = kind.extended(state, ratings, 0)
    predictor = kind.predictor(state)
    mean, variance = np.empty((n_rows, n_items)), np.empty((n_rows, n_items))
    for some in np.array_split(np.arange(n_rows), -(-n_rows * n_items // SLICE)):
        pairs = n_users + np.repeat(some, n_items), np.tile(np.arange(n_items), len(some))
        for out, found in zip((mean, variance), predictor.pairs(*pairs), strict=True):
            out[some] = found.reshape(len(some), n_items)
    return mean, variance
