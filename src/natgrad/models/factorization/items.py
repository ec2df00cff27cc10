"""Likes alone, every pair counted: what each item says of every other, a Gaussian with a Wishart prior on its precision.

    x_i ~ N(0, Λ⁻¹),   Λ ~ Wishart(ν, diag(rate)),   x_ij = 1 if user i likes item j, 0 if not

The posterior is a Wishart, exact after one step, and costs the likes, not users × items. Given the other items of a user,

    E[x_ij | x_i without j] = Σ_k x_ik B_kj,   B_kj = −Λ_kj / Λ_jj

which at E[Λ] is the ridge regression of each item on all others: EASE (Steck, 2019) is its special case of a constant rate.
Scores mix it with tastes around popularity (`natgrad.models.factorization.item_tastes`), which also rank the items that are too
many for a matrix. How weights are shrunk and what is mixed is learned from held-out likes
(`natgrad.models.factorization.item_search`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.special

from natgrad.data.ratings import Ratings
from natgrad.families import Wishart
from natgrad.inference.engine import Phase
from natgrad.inference.methods import Method
from natgrad.inference.problem import Block, GroupProblem, GroupResult, State
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.inference.trace import Reason, Stop
from natgrad.kernels.factorization.items import sum_weights
from natgrad.models.factorization.item_ridge import (
    ItemRidge,
    LowRank,
    count_together,
    inverse_and_log_det,
    item_weights,
    leading,
    low_rank,
    most_liked,
    popular_scale,
    user_weights,
    with_bias,
)
from natgrad.models.factorization.item_search import learned_ridge
from natgrad.models.factorization.item_tastes import Tastes, fitted_tastes
from natgrad.models.factorization.likelihoods import RatingSettings
from natgrad.random import Stream, generator

__all__ = ["ItemLikes", "ItemPredictor", "ItemsProblem"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
WISHART = Wishart()
LOG_2, LOG_2PI = float(np.log(2.0)), float(np.log(2.0 * np.pi))
# Matrices of items take this many squared doubles, and their inverse about a microsecond for each like, less where the mixture
# has less use for it: the rest, rarer ones, are ranked by the factorisation alone.
MOST_ITEMS, FEWEST_ITEMS, INVERSE = 5000, 500, 3e4
# Probabilities stay this far from 0 and 1: a regression can leave the interval.
EDGE = 1e-6


def likes_matrix(ratings: Ratings) -> Any:
    """The likes as a sparse matrix of ones [users, items]; a pair that comes twice is one."""
    rows = ratings.sorted_by_user
    parts = np.ones(len(rows.other)), rows.other.copy(), rows.start.copy()  # ours to change
    likes = scipy.sparse.csr_matrix(parts, shape=ratings.shape)
    likes.sum_duplicates()
    likes.data[:] = 1.0
    return likes


@final
class ItemsProblem(GroupProblem):
    """Users' likes with one precision of all items.

    Parameters
    ----------
    likes : sparse matrix [users, items] of ones
    ridge : ItemRidge
    """

    group_plate, row_bytes = "user", 0

    def __init__(self, likes: Any, ridge: ItemRidge) -> None:
        self.likes, self.ridge = likes, ridge
        self.weight = user_weights(likes, ridge.evenness)
        self.n_groups = self.batch_size = self.population = likes.shape[0]
        self.size = likes.shape[1] + ridge.bias
        self.blocks = {"items": Block("items", WISHART, (), ())}

    @property
    def n_observed(self) -> Mapping[str, int]:
        """Every pair is seen."""
        return {"x": self.likes.shape[0] * self.likes.shape[1]}

    @property
    def n_messages(self) -> int:
        """One of each user."""
        return self.n_groups

    @cached_property
    def _all_messages(self) -> Floats:
        counts = self._counts(self.likes, self.weight)
        counts *= -0.5
        return counts

    def _counts(self, likes: Any, weight: Floats) -> Floats:
        counts = count_together(likes, weight)
        return with_bias(counts, float(weight.sum())) if self.ridge.bias else counts

    @cached_property
    def rate(self) -> Floats:
        """The diagonal of the prior rate."""
        return self.ridge.rate(-2.0 * np.diagonal(self._all_messages)[: self.likes.shape[1]])

    @cached_property
    def _prior(self) -> tuple[Floats, Floats]:
        return np.diag(-0.5 * self.rate), np.asarray(-0.5)

    def prior_of(self, name: str) -> tuple[Any, ...]:
        """As many degrees of freedom as there are items."""
        return self._prior

    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """Nothing is local: Σ w x xᵀ."""
        weight = self.weight if groups is None else self.weight[groups]
        message = self._all_messages if groups is None else -0.5 * self._counts(self.likes[groups], weight)
        total = float(weight.sum())
        return GroupResult(
            (), {"items": (message, np.asarray(0.5 * total))}, -0.5 * LOG_2PI * self.size * total, 1, len(weight)
        )

    def moments(self, block: Block, lam: Any) -> Any:
        """E[Λ] and E[log |Λ|], by one factorisation."""
        dof = 2.0 * float(lam[1]) + self.size + 1.0
        inverse, log_det = inverse_and_log_det(-2.0 * np.asarray(lam[0]))
        inverse *= dof
        return inverse, np.asarray(_digammas(dof, self.size) + self.size * LOG_2 - log_det)

    def is_valid(self, block: Block, lam: Any, mu: Any) -> bool:
        """Whether the rate is positive definite."""
        return bool(np.isfinite(mu[1]))

    def global_bound(self, lam: Any, mu: Any, messages: Any) -> float:
        """As of every block; log |rate| is known from E[log |Λ|]."""
        (matrix, degrees), (mean, elog), told = lam["items"], mu["items"], messages["items"]
        slack = np.vdot(told[0] - matrix, mean) - 0.5 * float(self.rate @ np.diagonal(mean))
        slack += float(elog) * (float(told[1]) - 0.5 - float(degrees))
        dof, least = 2.0 * float(degrees) + self.size + 1.0, float(self.size)
        log_det = _digammas(dof, self.size) + self.size * LOG_2 - float(elog)
        return float(
            slack
            + _log_normalizer(dof, self.size, log_det)
            - _log_normalizer(least, self.size, float(np.log(self.rate).sum()))
        )

    def start(self) -> State:
        """The prior."""
        lam = self.full_prior("items")
        dof = float(self.size)
        elog = _digammas(dof, self.size) + self.size * LOG_2 - float(np.log(self.rate).sum())
        return State({"items": lam}, {"items": (np.diag(dof / self.rate), np.asarray(elog))}, 0)


def _digammas(dof: float, size: int) -> float:
    return float(scipy.special.psi(0.5 * (dof - np.arange(size))).sum())


def _log_normalizer(dof: float, size: int, log_det: float) -> float:
    return 0.5 * dof * (size * LOG_2 - log_det) + float(scipy.special.multigammaln(0.5 * dof, size))


class ItemPredictor(NamedTuple):
    """Scores of all items for each user: ``liked`` by row, weights between items, and what ranks them.

    ``places`` are the items of the regression among all; ``weights`` and ``bias`` are 1 − mix parts of it. Of what ``factors``
    expect, or of popularity where there are none, ``part`` [items] is taken. ``scale`` is d_j^−power, ``popular`` what is
    expected of somebody of whom nothing is known, of which ``common`` parts are added to what ranks.
    """

    start: Ints
    liked: npt.NDArray[np.int32]
    weights: Float32s
    bias: Float32s
    places: Ints
    factors: Tastes | LowRank | None
    part: Float32s
    scale: Float32s
    popular: Float32s
    common: float

    def scores(self, users: Ints) -> Float32s:
        """What orders the items of some users: [users, items], larger is better."""
        raw = self.expected(users)
        if self.common:
            raw += np.float32(self.common) * self.popular
        raw *= self.scale
        return raw

    def scores_for(self, liked: Ints) -> Float32s:
        """The same for somebody who likes these items: [1, items]."""
        return self._replace(start=np.array([0, len(liked)]), liked=liked.astype(np.int32)).scores(np.array([0]))

    def parts(self, row: int, item: int) -> tuple[Ints, Float32s]:
        """The items that a user likes, and what each adds to the score of an item."""
        liked = self.liked[self.start[row] : self.start[row + 1]].astype(np.int64)
        added = np.zeros(len(liked)) if self.factors is None else self.factors.parts(liked, item) * self.part[item]
        added += self._weights_of(item, 1)[liked]
        return liked, (added * self.scale[item]).astype(np.float32)

    def expected(self, users: Ints) -> Float32s:
        """E[x_ij] of all items, given the other likes of each of some users."""
        counts = np.diff(self.start)[users]
        start = np.concatenate([[0], np.cumsum(counts)])
        near = np.repeat(self.start[users] - start[:-1], counts) + np.arange(start[-1])
        items = self.liked[near]
        known = None if self.factors is None else self.factors.expected(start, items)
        out = np.tile(self.popular, (len(users), 1)) if known is None else known
        out *= self.part
        if len(self.weights):
            out[:, self.places] += self._regressed(start, items)
        out[counts == 0] = self.popular
        return out

    def _regressed(self, start: Ints, items: npt.NDArray[np.int32]) -> Float32s:
        """Σ_k x_ik B_kj of the items of the regression."""
        column = np.full(len(self.part), -1, dtype=np.int32)
        column[self.places] = np.arange(len(self.places), dtype=np.int32)
        inside = column[items]
        known = inside >= 0
        edges = np.concatenate([[0], np.cumsum(known)])[start]
        out = np.empty((len(start) - 1, len(self.places)), dtype=np.float32)
        sum_weights(out, edges, inside[known], self.weights, self.bias)
        return out

    def _weights_of(self, item: int, axis: int) -> Floats:
        """Of the regression: weights of one item in the scores of all (axis 0), or of all in its score (1)."""
        found = np.zeros(len(self.part))
        where = np.flatnonzero(self.places == item)
        if len(where) and len(self.weights):
            found[self.places] = self.weights.take(where[0], axis)
        return found

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """The probability of a like among all pairs, and p (1 − p)."""
        users, inverse = np.unique(rows, return_inverse=True)
        chance = np.zeros(len(rows))
        known = (columns < len(self.part)) & (rows < len(self.start) - 1)
        for some in np.array_split(np.arange(len(users)), -(-len(users) // 2000)):
            here = known & (inverse >= some[0]) & (inverse <= some[-1])
            able = users[some][users[some] < len(self.start) - 1]
            if here.any():
                chance[here] = self.expected(able)[inverse[here] - some[0], columns[here]]
        chance = np.clip(chance, EDGE, 1.0 - EDGE)
        return chance, chance * (1.0 - chance)

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """Of a like or none: both ends, where neither has the mass."""
        chance = self.pairs(rows, columns)[0]
        tail = 0.5 * (1.0 - mass)
        return np.where(1.0 - chance < tail, 1.0, 0.0), np.where(chance >= tail, 1.0, 0.0)

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """Of p or 1 − p, the logarithm."""
        chance = self.pairs(rows, columns)[0]
        return np.log(np.where(values > 0.5, chance, 1.0 - chance))

    def likeness(self, item: int) -> Floats:
        """Weights from one item to every other, both ways on average."""
        there, back = self._weights_of(item, 0), self._weights_of(item, 1)
        if self.factors is not None:
            left, right = self.factors.linear(self.popular)
            there += (right @ left[item]) * self.part
            back += (left @ right[item]) * self.part[item]
        likeness = np.sign(there) * np.sqrt(np.maximum(there * back, 0.0))  # −Λ_ij/√(Λ_ii Λ_jj) where nothing is mixed
        likeness[item] = -np.inf
        return likeness


@final
class ItemLikes:
    """Likes alone, each pair that is not stored a dislike."""

    sides, warm_up = (), 0

    def __init__(
        self, settings: RatingSettings, ratings: Ratings, learned: Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        self.settings, self.n_factors = settings, settings.n_factors
        if learned is None:
            likes = likes_matrix(ratings)
            ridge = learned_ridge(likes, seed)
            able = (INVERSE * likes.nnz * (1.0 - ridge.mix)) ** (1.0 / 3.0)
            most = np.clip(able, min(FEWEST_ITEMS, MOST_ITEMS), MOST_ITEMS)
            learned = {
                "one_class": True,
                "offset": 0.0,
                "n_users": likes.shape[0],
                "popularity": np.maximum(np.bincount(likes.indices, minlength=likes.shape[1]), 0.5),
                "items": most_liked(likes, int(most)),
                "ridge": ridge._asdict(),
                "basis": _basis(likes, ridge, generator(seed, Stream.NEGATIVES, 1)),
                "tastes": _tastes(likes, ridge, generator(seed, Stream.NEGATIVES, 1)),
            }
        self.learned, self.offset = dict(learned), 0.0
        self.ridge = ItemRidge(**learned["ridge"])
        self._known: tuple[Any, tuple[Float32s, Float32s]] | None = None
        self._last: tuple[Ratings, ItemsProblem] | None = None
        self._tastes: Tastes | None = None

    def problem(self, ratings: Ratings) -> ItemsProblem:
        """The likes of the modelled items; kept until there is a predictor, which counts them once."""
        if self._last is None or self._last[0] is not ratings:
            self._last = ratings, ItemsProblem(likes_matrix(ratings)[:, self.learned["items"]].tocsr(), self.ridge)
        return self._last[1]

    def start(self, ratings: Ratings, seed: int, scale: float) -> State:
        """The prior."""
        return self.problem(ratings).start()

    def phase(self, ratings: Ratings, seed: int, t: int, method: Method | None, growing: bool) -> Phase | Stop:
        """One step is exact."""
        if t > 0:
            return Stop(Reason.TOLERANCE, "the posterior is exact after one step")
        problem = self.problem(ratings)
        stepper = GroupStepper(problem, problem.n_groups, *problem.local_limits, Constant(1.0), remember=False)
        return Phase(problem, method, stepper=stepper, until=1)

    def extended(self, state: State, ratings: Ratings, seed: int) -> State:
        """Users are no part of the state, and new items are not modelled."""
        return state

    def folded(self, state: State, some: Ratings, rows: Ints, steps: int) -> State:
        """Likes are all that is known of a user."""
        return state

    def predictor(self, state: State, ratings: Ratings) -> ItemPredictor:
        """From E[Λ], and the likes of each user."""
        self._last = None
        mean, places = state.mu["items"][0], np.asarray(self.learned["items"])
        if self._known is None or self._known[0] is not mean:
            size, own = len(places), np.float32(1.0 - self.ridge.mix)
            weights = item_weights(mean) * own if own else np.zeros((0, 0), np.float32)
            bias = weights[size, :size] if self.ridge.bias and own else np.zeros(size, np.float32)
            self._known = mean, (np.ascontiguousarray(weights[:size, :size]), bias.copy())
        likes_of = np.asarray(self.learned["popularity"])
        new = ratings.n_items - len(likes_of)
        likes_of = np.append(likes_of, np.zeros(new))
        part = np.ones(ratings.n_items, np.float32)
        part[places] = self.ridge.mix
        # Of the users of the fit: those who are folded in alone say nothing of how popular items are.
        popular = (likes_of / self.learned.get("n_users", max(ratings.n_users, 1))).astype(np.float32)
        rows, factors, scale = (
            ratings.sorted_by_user,
            self._factors(likes_of),
            popular_scale(likes_of, self.ridge.power),
        )
        return ItemPredictor(
            rows.start, rows.other, *self._known[1], places, factors, part, scale, popular, self.ridge.common
        )

    def _factors(self, likes_of: Floats) -> Tastes | LowRank | None:
        """What stands beside the regression; items that came after the fit have no taste."""
        if (tastes := self.learned.get("tastes")) is not None:
            if self._tastes is None:
                known = {name: np.asarray(value) for name, value in tastes.items()}
                self._tastes = Tastes(**known, strength=self.ridge.strength)
            return self._tastes.with_new(len(likes_of) - len(self._tastes.rates))
        if self.learned.get("basis") is None:
            return None
        basis = np.pad(np.asarray(self.learned["basis"]), ((0, len(likes_of) - len(self.learned["basis"])), (0, 0)))
        return low_rank(basis, likes_of, self.ridge.flatness)

    def saved(self) -> dict[str, Any]:
        """Settings, and what was taken from the data."""
        return {"settings": self.settings._asdict(), "learned": dict(self.learned)}


def _basis(likes: Any, ridge: ItemRidge, rng: np.random.Generator) -> Float32s | None:
    return leading(likes, ridge.rank, ridge.flatness, rng).basis(ridge.rank) if ridge.rank else None


def _tastes(likes: Any, ridge: ItemRidge, rng: np.random.Generator) -> dict[str, Any] | None:
    if not ridge.tastes:
        return None
    found = fitted_tastes(likes, ridge.tastes, rng)
    return {field.name: getattr(found, field.name) for field in fields(found) if field.name != "strength"}
