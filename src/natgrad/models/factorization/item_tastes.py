"""Likes in; how popular items are, and the tastes of users around it, each as strong as the user's likes say, out.

Users take, one after the other, what is popular and to their taste: user i likes item j with the probability

    1 − exp(−a_i q_j exp(u_i · v_j)),   u_i ~ Σ_c π_c N(0, s_c² Λ⁻¹),   v_j ~ N(0, Ω⁻¹)

a and q give users and items as many likes as they have where there are no tastes, E_ij = 1 − exp(−a_i q_j). To second order in
tastes x_ij − E_ij is Gaussian around S_ij u_i · v_j with the variance S_ij = E_ij (1 − E_ij), and S is replaced by the product of
its margins. All users then share two matrices, Λ and A = Σ_j S_j E[v_j v_jᵀ], as items do, and one change of basis makes both
diagonal: a round of posteriors of users, of items and of Λ, Ω, π (empirical Bayes) costs the likes times the dimensions. Some
users have no taste (s_0 = 0) or a weak one; how many is learned, and for each user the likes decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse

from natgrad.kernels.factorization.items import sum_weights

__all__ = ["Residuals", "Tastes", "fitted_tastes"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Likes = Any  # a sparse matrix of ones, by rows: [users, items]
# How strong tastes may be, against the typical one; none, weak, usual and strong.
SCALES = np.array([0.0, 0.3, 1.0, 2.0])
# Users are as busy as one of so many, on a logarithmic scale; rounds of the margins; of the first directions; of posteriors, at
# first with one strength for all; and dimensions beyond those asked for.
BINS, MARGIN_ROUNDS, SEARCH_ROUNDS, ROUNDS, EQUAL_ROUNDS, BEYOND = 48, 8, 4, 12, 4, 8
# Variance of a first taste; the least share of a strength; what keeps covariances of tastes positive; users in one go.
FIRST_VARIANCE, LEAST_SHARE, FLOOR, TOGETHER = 0.1, 1e-3, 1e-9, 20_000
# Of a taste: the exponential of more has no single precision. Rates that stay in a cache while probabilities are made of them.
MOST_LOG, CACHED = 60.0, 100_000


@final
@dataclass(frozen=True)
class Tastes:
    """What is known of items, and of tastes in general.

    ``rates`` q [items], ``vectors`` v [items, K], ``precision`` Λ [K, K], ``information`` A [K, K], ``shares`` π [strengths];
    somebody with ``degrees`` [bins] likes has the activity a in ``activity`` [bins]. ``strength`` multiplies what ranks: tastes
    are learned from the likes that they explain, and are a little too sure of themselves.
    """

    rates: Floats
    vectors: Float32s
    precision: Floats
    information: Floats
    shares: Floats
    degrees: Floats
    activity: Floats
    strength: float

    def scores(self, start: Ints, items: Any) -> Float32s:
        """The probability of every like [users, items], given the others of each user, ``items[start[i] : start[i + 1]]``."""
        own, n_likes = self._own_of(start, items), np.diff(start)
        log_rate = self._log_rates(own)
        rows = np.repeat(np.arange(len(n_likes)), n_likes)
        said = np.einsum("nk,nk->n", self._turned[items] ** 2, own.gains.astype(np.float32)[rows])
        log_rate[rows, items] -= np.float32(self.strength) * said  # what is asked for does not count
        return self._chances(log_rate, n_likes)

    def scores_of_new(self, start: Ints, items: Any) -> Float32s:
        """The same for what users do not like yet, sooner: of what they like it means nothing."""
        return self._chances(self._log_rates(self._own_of(start, items)), np.diff(start))

    def chances(self, scores: Float32s) -> Float32s:
        """A score is a probability."""
        return scores

    def deviations(self, start: Ints, items: Any) -> Float32s:
        """Standard deviations of these to first order, from each user's taste; what is known of items is taken as certain."""
        own, v = self._own_of(start, items), self._turned
        mean = own.mean.astype(np.float32) @ v.T
        variance = np.zeros_like(mean)
        for _, share, of_strength, spread in own.strengths:
            part = share[:, None].astype(np.float32)
            variance += part * (of_strength.astype(np.float32) @ v.T - mean) ** 2
            variance += (part * spread.astype(np.float32)) @ (v**2).T
        rate = self._rates(np.float32(self.strength) * mean, np.diff(start))
        return np.asarray(rate * np.exp(-rate) * np.float32(self.strength) * np.sqrt(variance))

    def _log_rates(self, own: _Posterior) -> Float32s:
        return np.asarray((own.mean * self.strength).astype(np.float32) @ self._turned.T)

    def parts(self, liked: Ints, item: int) -> Floats:
        """What each like of one user adds to the probability of an item; with that of popularity they add up to it."""
        own = self._own_of(np.array([0, len(liked)]), liked)
        n = len(liked)
        usual = self._means[0][_nearest(self.degrees, n)] @ self._axes[1] / self.degrees[_nearest(self.degrees, n)]
        each = (self._turned[liked] - usual) @ (self._turned[item] * own.gains[0]) * self.strength
        total = float(each.sum())
        chance = self._chances(np.array([[0.0, total]], np.float32), np.array([n]), np.array([item, item]))[0]
        return np.asarray(each * (float(chance[1] - chance[0]) / total if total else 0.0))

    def linear(self, popular: Float32s) -> tuple[Float32s, Float32s]:
        """[items, K] whose products are what a like adds to the probability of another, to first order and for a typical user."""
        values = self._axes[0]
        n = np.exp(np.log(self.degrees).mean())
        weight = np.interp(n, self.degrees, self._means[1])
        gain = sum(pi / (s**-2 + weight * values) for s, pi in zip(SCALES, self.shares, strict=True) if s)
        left = (self._turned * np.sqrt(gain * self.strength)).astype(np.float32)
        return left, left * popular[:, None]

    def with_new(self, n: int) -> Tastes:
        """With so many items behind the others that nobody likes."""
        if not n:
            return self
        return replace(self, rates=np.append(self.rates, np.zeros(n)), vectors=np.pad(self.vectors, ((0, n), (0, 0))))

    def _own_of(self, start: Ints, items: Any) -> _Posterior:
        told = np.empty((len(start) - 1, self.vectors.shape[1]), dtype=np.float32)
        sum_weights(told, start, items, self.vectors, np.zeros(told.shape[1], np.float32))
        n_likes = np.diff(start)
        which, (means, weights) = _nearest(self.degrees, n_likes), self._means
        part = n_likes / self.degrees[which]
        rest = told - part[:, None] * means[which]
        return _posterior(rest, part * weights[which], *self._axes, self.shares)

    def _chances(self, log_rate: Float32s, n_likes: Ints, items: Any = slice(None)) -> Float32s:
        """1 − exp(−a q exp(·)), in place, as many users at a time as stay in a cache."""
        together = max(1, CACHED // log_rate.shape[1])
        for first in range(0, len(log_rate), together):
            some = slice(first, first + together)
            rate = self._rates(log_rate[some], n_likes[some], items)
            np.negative(rate, out=rate)
            np.expm1(rate, out=rate)
            np.negative(rate, out=rate)
        return log_rate

    def _rates(self, log_rate: Float32s, n_likes: Ints, items: Any = slice(None)) -> Float32s:
        """Rates a q exp(·), in place."""
        known = np.log(self.degrees), np.log(self.activity)
        activity = np.exp(np.interp(np.log(np.maximum(n_likes, 1)), *known))
        np.minimum(log_rate, MOST_LOG, out=log_rate)
        np.exp(log_rate, out=log_rate)
        log_rate *= self._rates32[items]
        log_rate *= activity[:, None].astype(np.float32)
        return log_rate

    @cached_property
    def _means(self) -> tuple[Floats, Floats]:
        """Σ_j E_j v_j [bins, K] and Σ_j E_j (1 − E_j) [bins]."""
        chance = _chance(self.activity, self.rates)
        return chance @ self.vectors, (chance * (1.0 - chance)).sum(1)

    @cached_property
    def _rates32(self) -> Float32s:
        return self.rates.astype(np.float32)

    @cached_property
    def _turned(self) -> Float32s:
        """The vectors of items, in the basis where posteriors of users are diagonal."""
        return np.asarray(self.vectors @ self._axes[1], dtype=np.float32)

    @cached_property
    def _axes(self) -> tuple[Floats, Floats]:
        return _common_axes(self.information, self.precision)


class _Posterior(NamedTuple):
    """Of some users, in common axes: the mean [users, K], gains, and of every strength its share, means and variances."""

    mean: Floats
    gains: Floats
    strengths: list[tuple[float, Floats, Floats, Floats]]


def _posterior(
    told: Floats, weight: Floats, values: Floats, axes: Floats, shares: Floats, scales: Floats = SCALES
) -> _Posterior:
    """From Σ (x − E) v of each user [users, K], how much that weighs [users], and the common axes."""
    told, seen = told @ axes, weight[:, None] * values
    variances = [np.zeros_like(seen) if s == 0.0 else 1.0 / (s**-2 + seen) for s in scales]
    logs = [
        np.log(pi) + 0.5 * (told**2 * v).sum(1) - 0.5 * np.log1p(s**2 * seen).sum(1)
        for s, pi, v in zip(scales, shares, variances, strict=True)
    ]
    table = np.stack(logs, 1)
    table = np.exp(table - table.max(1, keepdims=True))
    table /= table.sum(1, keepdims=True)
    gains = sum((table[:, [c]] * v for c, v in enumerate(variances)), np.zeros_like(seen))
    each = [(s, table[:, c], told * v, v) for c, (s, v) in enumerate(zip(scales, variances, strict=True))]
    return _Posterior(told * gains, gains, each)


def _common_axes(information: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues and axes in which the precision is one and the information diagonal."""
    values, axes = scipy.linalg.eigh(information, precision)
    return np.maximum(values, 0.0), axes


def _chance(activity: Floats, rates: Floats) -> Floats:
    return np.asarray(-np.expm1(-np.outer(activity, rates)))


def _nearest(degrees: Floats, n_likes: Any) -> Ints:
    edges = np.sqrt(degrees[1:] * degrees[:-1])
    return np.searchsorted(edges, np.asarray(n_likes, dtype=np.float64))


def _margins(degrees: Floats, n_users: Floats, likes_of: Floats) -> tuple[Floats, Floats]:
    """Activities [bins] and rates q [items] with which users and items have their numbers of likes."""
    rates, activity = likes_of / likes_of.sum(), degrees.copy()
    for _ in range(MARGIN_ROUNDS):
        for _ in range(2):  # Newton's steps, which start below and stay positive
            left = np.exp(-np.outer(activity, rates))
            step = (degrees - (1.0 - left).sum(1)) / np.maximum(left @ rates, 1e-12)
            activity = np.clip(activity + step, 0.3 * activity, 10.0 * activity)
        rates = rates * likes_of / np.maximum(n_users @ _chance(activity, rates), 1e-12)
    return activity, rates


class Residuals:
    """x − E as an operator: the likes, and E by how busy users are."""

    def __init__(self, likes: Likes) -> None:
        self.likes = likes.astype(np.float32)
        self.turned = self.likes.T.tocsr()
        n_users, n_items = likes.shape
        self.n_likes = np.diff(likes.indptr).astype(np.float64)
        # Nobody is taken to like everything: the activity would have no end.
        most = min(self.n_likes.max(), n_items - 0.5)
        self.degrees = np.geomspace(1.0, max(most, 1.5), BINS)
        which = _nearest(self.degrees, self.n_likes)
        part = self.n_likes / self.degrees[which]
        likes_of = np.maximum(np.bincount(likes.indices, minlength=n_items), 0.5)
        n_users_of = np.bincount(which, part, BINS).astype(np.float64)
        self.activity, self.rates = _margins(self.degrees, n_users_of, likes_of)
        chance = _chance(self.activity, self.rates)
        varied = chance * (1.0 - chance)
        self.chance = chance.astype(np.float32)
        self.bins = scipy.sparse.csr_matrix((part.astype(np.float32), (np.arange(n_users), which)), (n_users, BINS))
        self.user_weight = part * varied.sum(1)[which]
        self.item_weight = n_users_of @ varied

    def times(self, table: Float32s) -> Float32s:
        """Of a table [items, K]: [users, K]."""
        return np.asarray(self.likes @ table - self.bins @ (self.chance @ table))

    def turned_times(self, table: Float32s) -> Float32s:
        """Of a table [users, K]: [items, K]."""
        return np.asarray(self.turned @ table - self.chance.T @ (self.bins.T @ table))

    def directions(self, size: int, rng: np.random.Generator) -> Floats:
        """The leading ones of items where all noise is one, by subspace iteration: v [items, size]."""
        by_user = (1.0 / np.maximum(self.n_likes, 1.0)).astype(np.float32)[:, None]
        by_item = np.float32(1.0) / np.sqrt(np.maximum(self.item_weight, 1e-12)).astype(np.float32)[:, None]
        wide = min(size + BEYOND, *self.likes.shape)
        basis = np.linalg.qr(rng.standard_normal((self.likes.shape[1], wide), dtype=np.float32))[0]
        for _ in range(SEARCH_ROUNDS):
            basis = np.linalg.qr(by_item * self.turned_times(by_user * self.times(by_item * basis)))[0]
        told = np.sqrt(by_user) * self.times(by_item * basis)
        turn = np.linalg.eigh(told.T @ told)[1][:, ::-1]
        v = (by_item * (basis @ turn)[:, :size]).astype(np.float64)
        return np.asarray(v / np.sqrt(self.item_weight / self.item_weight.sum() @ v**2))


def fitted_tastes(data: Residuals, size: int, rng: np.random.Generator) -> Tastes:
    """Tastes in so many dimensions, or as many as there can be."""
    size = max(1, min(size, data.likes.shape[0] - 1, data.likes.shape[1] - 1))
    part = data.item_weight / data.item_weight.sum()
    v, spread, one = data.directions(size, rng), np.zeros((size, size)), np.eye(size)
    precision, item_precision, shares = one / FIRST_VARIANCE, one, np.full(len(SCALES), 1.0 / len(SCALES))
    for turn in range(ROUNDS):
        learning = turn >= EQUAL_ROUNDS
        information = (v * part[:, None]).T @ v + spread
        told = data.times(v.astype(np.float32)).astype(np.float64)
        strengths = (shares, SCALES) if learning else (np.ones(1), np.ones(1))
        users = _all_users(told, data.user_weight, information, precision, *strengths)
        if learning:
            shares = np.maximum(users.shares, LEAST_SHARE)
            shares = np.asarray(shares / shares.sum())
        precision = np.asarray(np.linalg.inv(users.covariance + FLOOR * one), np.float64)
        pull = data.turned_times(users.vectors.astype(np.float32)).astype(np.float64)
        values, axes = _common_axes(users.information, item_precision)
        shrunk = 1.0 / (1.0 + data.item_weight[:, None] * values)
        v = (pull @ axes * shrunk) @ axes.T
        covariance = (v.T @ v + (axes * shrunk.sum(0)) @ axes.T) / len(v)
        item_precision = np.linalg.inv(covariance + FLOOR * one)
        spread = (axes * (part @ shrunk)) @ axes.T
    information = (v * part[:, None]).T @ v + spread
    vectors = np.ascontiguousarray(v, dtype=np.float32)
    return Tastes(data.rates, vectors, precision, information, shares, data.degrees, data.activity, 1.0)


class _AllUsers(NamedTuple):
    """Means of users' tastes [users, K], the covariance of one of strength one, what users tell of items, and shares."""

    vectors: Floats
    covariance: Floats
    information: Floats
    shares: Floats


def _all_users(
    told: Floats, weight: Floats, information: Floats, precision: Floats, shares: Floats, scales: Floats = SCALES
) -> _AllUsers:
    """The posteriors of users, some at a time, added up."""
    vectors, size = np.empty_like(told), told.shape[1]
    covariance, tells, found = np.zeros((size, size)), np.zeros((size, size)), np.zeros(len(shares))
    values, axes = _common_axes(information, precision)
    for first in range(0, len(told), TOGETHER):
        some = slice(first, first + TOGETHER)
        own = _posterior(told[some], weight[some], values, axes, shares, scales)
        vectors[some] = own.mean @ axes.T
        for c, (s, share, mean, variance) in enumerate(own.strengths):
            found[c] += share.sum()
            for total, w in ((covariance, share / s**2 if s else None), (tells, share * weight[some] if s else None)):
                if w is not None:
                    total += (mean * w[:, None]).T @ mean + np.diag(w @ variance)
    able = max(float(found[scales > 0.0].sum()), FLOOR)
    return _AllUsers(
        vectors, axes @ (covariance / able) @ axes.T, axes @ (tells / weight.sum()) @ axes.T, found / len(told)
    )
