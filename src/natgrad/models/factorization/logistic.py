"""Likes or levels of some rows, and moments of both sides, in; the ratings that they are to these, and what the bound adds, out.

A row is computed by itself, so that parts of a side, wherever they are computed, give the bits of the whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natgrad.kernels.factorization.gather import sum_rows
from natgrad.kernels.factorization.pairs import logistic_bound
from natgrad.models.factorization.cutpoints import Cuts, levels_as_ratings
from natgrad.models.factorization.sides import SideRatings

__all__ = ["Link", "likes_as_ratings", "linked"]

Floats = npt.NDArray[np.float64]
# What takes u·v + b + c to what is seen: σ with an offset, or the cutpoints of levels.
Link = float | Cuts


def linked(
    link: Link,
    moments: tuple[Floats, Floats],
    places: npt.NDArray[np.integer],
    seen: Floats,
    out: tuple[Floats, ...],
    rest: Floats,
) -> None:
    """Ratings and precisions, in the order of the moments and at their ``places`` (``out``: four arrays); what the bound adds."""
    if isinstance(link, Cuts):
        levels_as_ratings(link, moments[0], places, seen, out, rest)
    else:
        logistic_bound(*moments, link, places, seen, *out, rest)


def likes_as_ratings(
    likes: SideRatings, own: Floats, others: Floats, *, size: int, of_users: bool, link: Link
) -> tuple[SideRatings, Floats]:
    """The ratings, and of each row what the bound has besides theirs.

    ``own`` are packed moments of the rows, users or items, and ``others`` of those they have likes with.
    """
    rows, n = likes.rows, len(likes.rows.values)
    moments = likes.pair_moments(own, others, size, of_users)
    (values, trust, rest), by_row = np.empty((3, n)), np.empty(likes.n_rows)
    # Here likes are at their places: both orders are the same.
    linked(link, moments, np.arange(n), rows.values, (values, trust, values, trust), rest)
    sum_rows(rows.start, rest, by_row)
    return SideRatings(rows._replace(values=values), likes.biased, trust=trust, n_all=likes.n_all), by_row
