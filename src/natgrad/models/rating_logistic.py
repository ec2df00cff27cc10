"""Likes of some rows, and moments of both sides, in; the ratings that they are to these, and what the bound has besides, out.

    ξ² = E[f²],   ω = tanh(ξ/2) / (2 ξ),   ratings (y − ½)/ω − m with noise precision ω

A row is computed by itself, so that parts of a side, wherever they are computed, give the bits of the whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.special

from natgrad.kernels.rating_gather import sum_rows
from natgrad.models.rating_sides import ItsRatings, pair_moments, unpacked

__all__ = ["likes_as_ratings"]

Floats = npt.NDArray[np.float64]
LOG_2PI = float(np.log(2 * np.pi))


def likes_as_ratings(
    likes: ItsRatings, own_tell: Floats, other_tell: Floats, *, size: int, of_users: bool, offset: float
) -> tuple[ItsRatings, Floats]:
    """The ratings, and of each row what the bound has besides theirs.

    ``own_tell`` are packed moments of the rows, users or items, and ``other_tell`` of those they have likes with. They are packed
    here too, where nothing travels: both triangles of a matrix that was turned differ in the last bit.
    """
    rows, own, others = likes.rows, unpacked(own_tell, size), unpacked(other_tell, size)
    mine = np.repeat(np.arange(likes.n_rows), np.diff(rows.start))
    # The same sums for a pair whichever side asks.
    if of_users:
        mean, variance = pair_moments(mine, rows.other, own, others, likes.biased)
    else:
        mean, variance = pair_moments(rows.other, mine, others, own, likes.biased)
    xi = np.sqrt((mean + offset) ** 2 + np.maximum(variance, 0.0))
    small = np.maximum(xi, 1e-6)
    omega = np.where(xi > 1e-4, np.tanh(0.5 * small) / (2.0 * small), 0.25 - xi**2 / 48.0)
    values = (rows.values - 0.5) / omega
    rest = 0.5 * LOG_2PI + scipy.special.log_expit(xi) - 0.5 * xi + 0.5 * omega * (xi**2 + values**2)
    by_row = np.empty(likes.n_rows)
    sum_rows(rows.start, rest, by_row)
    return ItsRatings(rows._replace(values=values - offset), likes.biased, trust=omega), by_row
