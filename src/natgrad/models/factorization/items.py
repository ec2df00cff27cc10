"""Likes alone, every pair counted: what each item says of every other, a Gaussian with a Wishart prior on its precision.

    x_i ~ N(0, Λ⁻¹),   Λ ~ Wishart(ν, diag(rate)),   x_ij = 1 if user i likes item j, 0 if not

The posterior is a Wishart, exact after one step, and costs the likes, not users × items. Given the other items of a user,

    E[x_ij | x_i without j] = Σ_k x_ik B_kj,   B_kj = −Λ_kj / Λ_jj

which at E[Λ] is the ridge regression of each item on all others: EASE (Steck, 2019) is its special case of a constant rate.
Scores mix it with a weighted factorisation (`natgrad.models.factorization.item_weighted`) or with tastes around popularity
(`natgrad.models.factorization.item_tastes`), which also rank the items that are too many for a matrix, and with the neighbours of
likes (`natgrad.models.factorization.item_neighbours`), the regression to first order. How weights are shrunk and what is mixed is
learned from held-out likes (`natgrad.models.factorization.item_search`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any, final

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
from natgrad.models.factorization.item_leading import leading
from natgrad.models.factorization.item_neighbours import Neighbours, found_neighbours
from natgrad.models.factorization.item_predictor import ItemPredictor
from natgrad.models.factorization.item_ridge import (
    ItemRidge,
    LowRank,
    count_together,
    inverse_and_log_det,
    item_weights,
    low_rank,
    most_liked,
    popular_scale,
    user_weights,
    with_bias,
)
from natgrad.models.factorization.item_search import MOST_REGRESSED, learned_ridge
from natgrad.models.factorization.item_tastes import Residuals, Tastes, fitted_tastes
from natgrad.models.factorization.item_weighted import Weighted, fitted_vectors
from natgrad.models.factorization.likelihoods import RatingSettings
from natgrad.random import Stream, generator

__all__ = ["ItemLikes", "ItemPredictor", "ItemsProblem"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
WISHART = Wishart()
LOG_2, LOG_2PI = float(np.log(2.0)), float(np.log(2.0 * np.pi))
# Matrices of items take this many squared doubles, and their inverse about a microsecond for each like, less where the mixture
# has less use for it: the rest, rarer ones, are ranked by the factorisation alone.
MOST_ITEMS, FEWEST_ITEMS, INVERSE = MOST_REGRESSED, 500, 3e4


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
            able = (INVERSE * likes.nnz * (1.0 - ridge.mix) * (1.0 - ridge.near)) ** (1.0 / 3.0)
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
                "weighted": _weighted(likes, ridge, generator(seed, Stream.NEGATIVES, 1)),
                "neighbours": _neighbours(likes, ridge),
            }
        self.learned, self.offset = dict(learned), 0.0
        self.ridge = ItemRidge(**learned["ridge"])
        self._known: tuple[Any, tuple[Float32s, Float32s]] | None = None
        self._last: tuple[Ratings, ItemsProblem] | None = None
        # Kept, since they have tables that are made once, and somebody new is told in milliseconds.
        self._tastes: Tastes | None = None
        self._near: Neighbours | None = None

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
            size, own = len(places), np.float32((1.0 - self.ridge.mix) * (1.0 - self.ridge.near))
            weights = item_weights(mean) * own if own else np.zeros((0, 0), np.float32)
            bias = weights[size, :size] if self.ridge.bias and own else np.zeros(size, np.float32)
            self._known = mean, (np.ascontiguousarray(weights[:size, :size]), bias.copy())
        likes_of = np.asarray(self.learned["popularity"])
        new = ratings.n_items - len(likes_of)
        likes_of = np.append(likes_of, np.zeros(new))
        part = np.ones(ratings.n_items, np.float32)
        part[places] = self.ridge.mix
        part *= np.float32(1.0 - self.ridge.near)
        # Of the users of the fit: those who are folded in alone say nothing of how popular items are.
        popular = (likes_of / self.learned.get("n_users", max(ratings.n_users, 1))).astype(np.float32)
        likes, scale = likes_matrix(ratings), popular_scale(likes_of, self.ridge.power)
        rows = likes.indptr.astype(np.int64), likes.indices.astype(np.int32)
        factors, common = self._factors(likes_of), self.ridge.common
        near = self._neighbours(len(likes_of)), self.ridge.near
        return ItemPredictor(*rows, *self._known[1], places, factors, part, scale, popular, common, *near)

    def _neighbours(self, n_items: int) -> Neighbours | None:
        """Those of the fit; items that came after it have none."""
        if (known := self.learned.get("neighbours")) is None:
            return None
        if self._near is None:
            self._near = Neighbours(np.asarray(known["items"]), np.asarray(known["values"]))
        return self._near.with_new(n_items - len(self._near.items))

    def _factors(self, likes_of: Floats) -> Tastes | Weighted | LowRank | None:
        """What stands beside the regression; items that came after the fit have no taste."""
        if (known := self.learned.get("weighted")) is not None:
            found = Weighted(**known | {name: np.asarray(known[name]) for name in ("vectors", "squares")})
            return found.with_new(len(likes_of) - len(found.vectors))
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
    found = fitted_tastes(Residuals(likes), ridge.tastes, rng)
    return {field.name: getattr(found, field.name) for field in fields(found) if field.name != "strength"}


def _weighted(likes: Any, ridge: ItemRidge, rng: np.random.Generator) -> dict[str, Any] | None:
    if not ridge.factors:
        return None
    found = fitted_vectors(likes, ridge.factors, ridge.confidence, ridge.penalty, rng, with_noise=True)
    return {field.name: getattr(found, field.name) for field in fields(found)}


def _neighbours(likes: Any, ridge: ItemRidge) -> dict[str, Any] | None:
    if not ridge.near:
        return None
    found = found_neighbours(likes, ridge.near_power)
    return {"items": found.items, "values": found.values}
