"""Sizes and a seed in, ratings out: one to five stars, a few users and items with most of them.

Degrees follow shifted power laws, (rank + shift)^(−exponent). The users' degrees are set; which items a user rates is
drawn without replacement, in proportion to the items' popularity (an exponential race: the d smallest of E_n / weight_n).
The liking is 3.6 stars plus a user's kindness, an item's quality, a product of rank five and noise, rounded to a star.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings

__all__ = ["RatedItems", "make_ratings", "paper_ratings"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Chosen so that a million ratings of 4,805 users look like the Netflix data: half of the users with about a hundred or
# fewer, the busiest with some thousands; half of the items with a dozen or fewer, the most popular with two thousand.
USER_EXPONENT, ITEM_EXPONENT, SHIFT = 0.9, 1.6, 0.01
RANK, MEAN, BIAS, TASTE, NOISE = 5, 3.6, 0.4, 0.65, 0.75


class RatedItems(NamedTuple):
    """Ratings, and what made them.

    Attributes
    ----------
    ratings : Ratings
    liking : array [ratings], the liking behind each, before noise, rounding and the limits of one and five stars
    """

    ratings: Ratings
    liking: Floats


def make_ratings(n_users: int = 1000, n_items: int = 500, n_ratings: int = 50_000, *, seed: int = 0) -> RatedItems:
    """Generated ratings, and the liking behind them.

    Parameters
    ----------
    n_users, n_items : int
        Every user and every item has at least one rating.
    n_ratings : int
        At least as many as users and as items, at most one for each pair.
    seed : int
        The same numbers give the same ratings.

    Examples
    --------
    >>> made = make_ratings(n_users=30, n_items=50, n_ratings=200)
    >>> made.ratings
    Ratings(200 ratings of 50 items by 30 users, values 1 … 5)
    """
    if not max(n_users, n_items, 1) <= n_ratings <= n_users * n_items:
        raise ValueError(
            f"n_ratings must lie between the larger of n_users and n_items ({max(n_users, n_items)}, at least 1) and "
            f"n_users · n_items ({n_users * n_items}), got {n_ratings}: every user and item has a rating, no pair has two"
        )
    rng = np.random.default_rng(seed)
    degree = _degrees(_power_law(n_users, USER_EXPONENT), n_ratings, n_items)
    user = np.repeat(np.arange(n_users), degree)
    item = _items(rng, degree, _power_law(n_items, ITEM_EXPONENT))
    stars, liking = _stars(rng, user, item)
    return RatedItems(Ratings(user, item, stars, shape=(n_users, n_items)), liking)


def paper_ratings(n_users: int = 4805, n_items: int = 16015, n_ratings: int = 1_000_000, seed: int = 0) -> Ratings:
    """The ratings of `make_ratings` alone, by default with the sizes in Paquet (2014), section 3.

    Examples
    --------
    >>> ratings = paper_ratings(n_users=30, n_items=50, n_ratings=200)
    >>> len(ratings.values), sorted(set(ratings.values.tolist()))
    (200, [1.0, 2.0, 3.0, 4.0, 5.0])
    """
    return make_ratings(n_users, n_items, n_ratings, seed=seed).ratings


def _power_law(n: int, exponent: float) -> Floats:
    return np.asarray((SHIFT * n + 1.0 + np.arange(n)) ** -exponent, dtype=np.float64)


def _degrees(weight: Floats, total: int, most: int) -> Ints:
    """Whole numbers near a multiple of the weights, from 1 to ``most``, with the given sum."""
    low, high = 0.0, most / float(weight.min())
    for _ in range(100):
        scale = (low + high) / 2
        low, high = (scale, high) if np.clip(scale * weight, 1, most).sum() < total else (low, scale)
    exact = np.clip(high * weight, 1, most)
    degree = np.floor(exact).astype(np.int64)
    # What rounding down left over goes to the largest remainders. Rounding errors of the bisection may make it more
    # than one for a user, or a little less than nothing: take turns.
    while (rest := total - int(degree.sum())) != 0:
        sign = 1 if rest > 0 else -1
        able = np.flatnonzero(degree < most) if rest > 0 else np.flatnonzero(degree > 1)
        turn = able[np.argsort(-sign * (exact - degree)[able], kind="stable")[: abs(rest)]]
        degree[turn] += sign
    return degree


def _items(rng: np.random.Generator, degree: Ints, popularity: Floats) -> Ints:
    """The items of every user, user after user; every item has somebody."""
    n_items = len(popularity)
    # An item is sure of one rating: each is given a place in the list of some user, who then draws the rest.
    sure = rng.permutation(np.repeat(np.arange(len(degree)), degree))[:n_items]
    order = np.argsort(sure, kind="stable")
    start = np.searchsorted(sure[order], np.arange(len(degree) + 1))
    chosen = np.empty(int(degree.sum()), dtype=np.int64)
    end = np.cumsum(degree)
    for m, d in enumerate(degree):
        race = rng.standard_exponential(n_items) / popularity
        race[order[start[m] : start[m + 1]]] = 0.0
        chosen[end[m] - d : end[m]] = np.sort(np.argpartition(race, d - 1)[:d])
    return chosen


def _stars(rng: np.random.Generator, user: Ints, item: Ints) -> tuple[Floats, Floats]:
    """The stars, and the liking that they round with noise."""
    n_users, n_items = int(user.max()) + 1, int(item.max()) + 1
    scale = np.sqrt(TASTE / np.sqrt(RANK))
    taste, trait = scale * rng.normal(size=(n_users, RANK)), scale * rng.normal(size=(n_items, RANK))
    kindness, quality = BIAS * rng.normal(size=n_users), BIAS * rng.normal(size=n_items)
    liking = MEAN + kindness[user] + quality[item] + np.einsum("rk,rk->r", taste[user], trait[item])
    stars: Floats = np.clip(np.round(liking + NOISE * rng.normal(size=len(user))), 1.0, 5.0)
    return stars, np.asarray(liking, dtype=np.float64)
