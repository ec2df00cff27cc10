"""Generate ratings and hidden Markov chains with the truth behind them, and match what a fit found to what is true.

Ratings: one to five stars, a few users and items with most of them. Degrees follow power laws, (rank + shift)^(−exponent). The
users' degrees are set; which items a user rates is drawn without replacement, in proportion to the items' popularity (an
exponential race: the d smallest of E_n / weight_n). The liking is 3.6 stars plus a user's kindness, an item's quality, a product
of rank five and noise, rounded to a star.

Chains: the two synthetic tasks of Foti, Xu, Laird and Fox (2014), eight states each. Diagonally dominant: states last. Reversed
cycles: 0 → 1 → 2 → 0 … and 3 → 5 → 4 → 3 … are joined by two bridges, and what a state of one cycle emits resembles what a state
of the other does, so that only the direction tells them apart.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings

__all__ = ["ChainTask", "RatedItems", "draw_states", "make_ratings", "match_rows", "paper_chain", "paper_ratings"]

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


# -- chains --

Task = Literal["diagonal", "cycles"]
Emissions = Literal["easy", "ambiguous"]


class ChainTask(NamedTuple):
    """A true model and what it generated: A [K, K], means [K, 2] (unit covariance), states [T] and observations [T, 2]."""

    transition: Floats
    means: Floats
    states: npt.NDArray[np.int64]
    observations: Floats


def paper_chain(task: Task, emissions: Emissions, n_times: int, seed: int = 0) -> ChainTask:
    """Generate one of the tasks.

    Parameters
    ----------
    task : "diagonal" or "cycles"
    emissions : "easy" (means several standard deviations apart) or "ambiguous" (one or two apart)
    n_times : int
    seed : int

    Examples
    --------
    >>> paper_chain("cycles", "easy", 100).observations.shape
    (100, 2)
    """
    transition = _diagonal() if task == "diagonal" else _cycles()
    angle = 2.0 * np.pi * np.arange(8) / 8.0
    means = np.column_stack([np.cos(angle), np.sin(angle)]) * (6.0 if emissions == "easy" else 2.5)
    if task == "cycles":
        # The same three places for both cycles; easy ones are told apart by a shift.
        corner = 2.0 * np.pi * np.array([0, 1, 2, 0, 1, 2]) / 3.0
        means[:6] = np.column_stack([np.cos(corner), np.sin(corner)]) * 3.0
        means[3:6] += 3.0 if emissions == "easy" else 1.0
        means[6:] = [[-7.0, -7.0], [7.0, 7.0]] if emissions == "easy" else [[-3.0, 3.0], [3.0, -3.0]]
    rng = np.random.default_rng([seed, n_times])
    states = draw_states(transition, n_times, rng)
    return ChainTask(transition, means, states, means[states] + rng.standard_normal((n_times, 2)))


def draw_states(transition: Floats, n_times: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A path that begins in state 0."""
    rows = np.cumsum(transition, axis=1).tolist()
    last = len(rows) - 1
    states = np.zeros(n_times, np.int64)
    here = 0
    for t, u in enumerate(rng.random(n_times - 1).tolist()):
        row, here = rows[here], 0
        while here < last and row[here] < u:
            here += 1
        states[t + 1] = here
    return states


def _diagonal() -> Floats:
    return np.full((8, 8), 0.05 / 7.0) + (0.95 - 0.05 / 7.0) * np.eye(8)


def _cycles() -> Floats:
    rows = np.zeros((8, 8))
    for here, there in ((0, 1), (1, 2), (3, 5), (5, 4)):
        rows[here, here], rows[here, there] = 0.01, 0.99
    rows[2, 0], rows[2, 6] = 0.85, 0.15
    rows[4, 3], rows[4, 7] = 0.85, 0.15
    rows[6, 6], rows[6, 3] = 0.5, 0.5
    rows[7, 7], rows[7, 0] = 0.5, 0.5
    return rows


# -- found and true --


def match_rows(found: Any, truth: Any) -> npt.NDArray[np.int64]:
    """The order in which ``found[order]`` lies nearest to ``truth``, row by row, no row used twice.

    Components of a mixture have no names: a fit finds them in an order of its own. Nearest is the smallest sum of absolute
    differences; for distributions that is twice the total variation.

    Parameters
    ----------
    found : array [K or more, V]
    truth : array [K, V]

    Examples
    --------
    >>> match_rows([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]], [[0.0, 1.0], [1.0, 0.0]]).tolist()
    [2, 0]
    """
    from scipy.optimize import linear_sum_assignment

    here, there = np.asarray(found, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if here.ndim != 2 or there.ndim != 2 or here.shape[1] != there.shape[1] or len(here) < len(there):
        raise ValueError(
            f"found must have the columns of truth and at least its rows, got shapes {here.shape} and {there.shape}"
        )
    cost = np.abs(there[:, None, :] - here[None, :, :]).sum(axis=2)
    return np.asarray(linear_sum_assignment(cost)[1], dtype=np.int64)
