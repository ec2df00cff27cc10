"""Likes of some rows, and moments of both sides, in; the ratings that they are to these, and what the bound has besides, out.

A row is computed by itself, so that parts of a side, wherever they are computed, give the bits of the whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natgrad.kernels.factorization.gather import sum_rows
from natgrad.kernels.factorization.pairs import logistic_bound
from natgrad.models.factorization.sides import SideRatings

__all__ = ["likes_as_ratings"]

Floats = npt.NDArray[np.float64]


def likes_as_ratings(
    likes: SideRatings, own: Floats, others: Floats, *, size: int, of_users: bool, offset: float
) -> tuple[SideRatings, Floats]:
    """The ratings, and of each row what the bound has besides theirs.

    ``own`` are packed moments of the rows, users or items, and ``others`` of those they have likes with.
    """
    rows, n = likes.rows, len(likes.rows.values)
    moments = likes.pair_moments(own, others, size, of_users)
    (values, trust, rest), by_row = np.empty((3, n)), np.empty(likes.n_rows)
    # Here likes are at their places: both orders are the same.
    logistic_bound(*moments, offset, np.arange(n), rows.values, values, trust, values, trust, rest)
    sum_rows(rows.start, rest, by_row)
    return SideRatings(rows._replace(values=values), likes.biased, trust=trust, n_all=likes.n_all), by_row
