"""Define the families of probabilities and shares: Dirichlet (concentration), Beta (a, b), Sticks and Shares.

Dirichlet and Beta: λ = α − 1,   φ = log x,   A = Σ log Γ(α_k) − log Γ(Σ α_k),   E[log x_k] = ψ(α_k) − ψ(Σ α_k)

Shares: a known count, divided among the parts of a sum of Poissons. If y = Σ_k s_k with independent s_k ~ Poisson(r_k), then
given y the shares are Multinomial(y, r / Σ r):

    λ = (log weights [K], y),  φ = (s, 0),  base measure Π 1/s_k!  on  Σ_k s_k = y
    A = y log Σ_k exp λ_k − log y!,  E[s_k] = y softmax(λ)_k

y is a setting: it travels in λ so that each element has its own, and its statistic is 0.

Sticks: probabilities by stick-breaking.

Sticks     π_k = v_k Π_{j<k} (1 − v_j) with independent v_k ~ Beta(a_k, b_k), k < K, and v_K = 1 (a generalised Dirichlet law)
           φ = (log π [K], log R [K]),  R_k = Π_{j≤k} (1 − v_j), the last of them not used
           a_k − 1 = λ¹_k,   b_k − 1 = Σ_{j>k} λ¹_j + Σ_{j≥k} λ²_j,   A = Σ_k log B(a_k, b_k)
           A child that counts categories adds its counts to λ¹: the same message that a Dirichlet gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, ValueCovariances, draws, numpy_stats, tails
from natgrad.families._ops import Array, Stats

__all__ = ["Beta", "Dirichlet", "Shares", "Sticks", "floored"]


@final
@dataclass(frozen=True)
class Dirichlet(Family):
    """Dirichlet over the simplex of K probabilities.

    Examples
    --------
    >>> lam = Dirichlet().natural(concentration=np.array([1.0, 2.0, 1.0]))
    >>> Dirichlet().mean(lam).tolist()
    [0.25, 0.5, 0.25]
    """

    name: ClassVar[str] = "Dirichlet"
    sampler: ClassVar[str | None] = "DIRICHLET"
    support: ClassVar[Any] = "unit"
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("log",)
    stat_ndims: ClassVar[tuple[int, ...]] = (1,)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (Param("concentration", 1, "positive"),)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (usual["concentration"] - 1.0,)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`concentration`."""
        return {"concentration": lam[0] + 1.0}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        alpha = lam[0] + 1.0
        total = alpha.sum(-1)
        elog = ops.digamma(alpha) - ops.digamma(total)[..., None]
        return (elog,), ops.gammaln(alpha).sum(-1) - ops.gammaln(total)

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] > -1).all(-1)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """Log x; log 0 = −inf, and a bound that contains it is −inf too."""
        xp = ops.namespace(value)
        with np.errstate(divide="ignore"):
            return (xp.log(xp.asarray(value) * 1.0),)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value` (floored at 1e-3 / K and normalised), total concentration of `lam`."""
        total = (lam[0] + 1.0).sum(-1)[..., None]
        return (total * floored(value) - 1.0,)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., K]."""
        return np.asarray(ops.softmax(self._log_gammas(lam, rng, n)))

    def sample_with_logs(
        self, lam: Stats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Draws and their logarithms, which are finite where a draw is 0 to rounding: below α = 0.001 most are."""
        log_gamma = self._log_gammas(lam, rng, n)
        value = np.asarray(ops.softmax(log_gamma))
        with np.errstate(divide="ignore"):
            return value, np.where(value > 0, np.log(value), log_gamma - ops.logsumexp(log_gamma)[..., None])

    def _log_gammas(self, lam: Stats, rng: np.random.Generator, n: int | None) -> NDArray[Any]:
        """Logarithms of Γ(α) draws as Γ(α + 1) · U^(1/α): for α ≪ 1 plain gammas underflow to 0 / 0."""
        alpha = numpy_stats(lam)[0] + 1.0
        shape = draws(n, alpha.shape)
        return np.asarray(np.log(rng.standard_gamma(alpha + 1.0, shape)) - rng.standard_exponential(shape) / alpha)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """α / Σ α."""
        alpha = numpy_stats(lam)[0] + 1.0
        return np.asarray(alpha / alpha.sum(-1, keepdims=True))

    def var(self, lam: Stats) -> NDArray[Any]:
        """The variance, m (1 − m) / (Σ α + 1)."""
        mean = self.mean(lam)
        total = (numpy_stats(lam)[0] + 1.0).sum(-1, keepdims=True)
        return np.asarray(mean * (1 - mean) / (total + 1))

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any]:
        """Half way to shares that are drawn evenly."""
        mean = self.mean(lam)
        drawn = rng.standard_exponential(mean.shape)
        return np.asarray(0.5 * (drawn / drawn.sum(-1, keepdims=True) - mean))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        alpha = lam[0] + 1.0
        curved, of_total = sp.polygamma(1, alpha), sp.polygamma(1, alpha.sum(-1, keepdims=True))
        return lambda change: (curved * change[0] - of_total * change[0].sum(-1, keepdims=True),)

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of the probabilities, whose logarithms are the statistics."""
        alpha = lam[0] + 1.0
        total = alpha.sum(-1, keepdims=True)
        mean = alpha / total

        def centred(weights: Array) -> Array:
            return weights - (mean * weights).sum(-1, keepdims=True)

        return (
            lambda change: (change[0] - mean * change[0].sum(-1, keepdims=True)) / total,
            lambda weights: (centred(np.asarray(weights, np.float64)) / total,),
            lambda weights: mean * centred(np.asarray(weights, np.float64)) / (total + 1.0),
        )

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Of each probability: its marginal is Beta(α_k, Σ α − α_k)."""
        alpha = numpy_stats(lam)[0] + 1.0
        rest = alpha.sum(-1, keepdims=True) - alpha
        return np.asarray(np.where(rest > 0, sp.betaincinv(alpha, rest, probability), 1.0))  # a single share is 1


@final
@dataclass(frozen=True)
class Beta(Family):
    """Beta over a probability, E[x] = a / (a + b).

    Examples
    --------
    >>> lam = Beta().natural(a=1.0, b=3.0)
    >>> float(Beta().mean(lam))
    0.25
    """

    name: ClassVar[str] = "Beta"
    sampler: ClassVar[str | None] = "BETA"
    support: ClassVar[Any] = "unit"
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("log", "log1m")
    params: ClassVar[tuple[Param, ...]] = (Param("a", 0, "positive"), Param("b", 0, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return usual["a"] - 1.0, usual["b"] - 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`a` and `b`."""
        return {"a": lam[0] + 1.0, "b": lam[1] + 1.0}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        a, b = lam[0] + 1.0, lam[1] + 1.0
        of_total = ops.digamma(a + b)
        log_beta = ops.gammaln(a) + ops.gammaln(b) - ops.gammaln(a + b)
        return (ops.digamma(a) - of_total, ops.digamma(b) - of_total), log_beta

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] > -1) & (lam[1] > -1)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(log x, log(1 − x)); log 0 = −inf."""
        xp = ops.namespace(value)
        x = xp.asarray(value) * 1.0
        with np.errstate(divide="ignore"):
            return xp.log(x), xp.log1p(-x)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value` (kept 0.5e-3 away from 0 and 1), a + b of `lam`."""
        xp = ops.namespace(value, *lam)
        total = lam[0] + lam[1] + 2.0
        pair = floored(xp.stack([xp.asarray(value), 1.0 - xp.asarray(value)], -1))
        return ops.align((total * pair[..., 0] - 1.0, total * pair[..., 1] - 1.0), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...]."""
        p = self._parameters(lam)
        return np.asarray(rng.beta(p["a"], p["b"], draws(n, p["a"].shape)))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """The mean, a / (a + b)."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["a"] / (p["a"] + p["b"]))

    def var(self, lam: Stats) -> NDArray[Any]:
        """The variance, m (1 − m) / (a + b + 1)."""
        p, mean = self.usual(numpy_stats(lam)), self.mean(lam)
        return np.asarray(mean * (1 - mean) / (p["a"] + p["b"] + 1))

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any]:
        """Half way to a number that is drawn evenly."""
        mean = self.mean(lam)
        return np.asarray(0.5 * (rng.random(mean.shape) - mean))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        a, b = lam[0] + 1.0, lam[1] + 1.0
        of_total, first, second = sp.polygamma(1, a + b), sp.polygamma(1, a), sp.polygamma(1, b)

        def times(change: Stats) -> Stats:
            shared = of_total * (change[0] + change[1])
            return first * change[0] - shared, second * change[1] - shared

        return times

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of the probability, whose logarithm and that of its complement are the statistics."""
        total = lam[0] + lam[1] + 2.0
        mean = (lam[0] + 1.0) / total
        return (
            lambda change: ((1.0 - mean) * change[0] - mean * change[1]) / total,
            lambda weights: ((1.0 - mean) * weights / total, -mean * weights / total),
            lambda weights: mean * (1.0 - mean) * weights / (total + 1.0),
        )

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Exact."""
        p = self._parameters(lam)
        return np.asarray(sp.betaincinv(p["a"], p["b"], probability))


def floored(probs: Array) -> Array:
    """Probabilities [..., K] floored at 1e-3 / K, then normalised: a start at 0 could never leave it.

    Examples
    --------
    >>> floored(np.array([1.0, 0.0])).round(4).tolist()
    [0.9995, 0.0005]
    """
    xp = ops.namespace(probs)
    p = xp.maximum(xp.asarray(probs), 1e-3 / probs.shape[-1])
    return p / p.sum(-1, keepdims=True)


@final
@dataclass(frozen=True)
class Shares(Family):
    """Multinomial(count, probs) with a known count; the entropy is relative to the base measure Π 1/s_k!.

    Examples
    --------
    >>> Shares().mean(Shares().natural(probs=np.array([0.25, 0.75]), count=8.0)).tolist()
    [2.0, 6.0]
    """

    name: ClassVar[str] = "Shares"
    settings: ClassVar[tuple[str, ...]] = ("count",)
    stat_names: ClassVar[tuple[str, ...]] = ("x", "count")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 0)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (Param("probs", 1, "simplex"), Param("count", 0, "real"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return ops.namespace(usual["probs"]).log(usual["probs"]), usual["count"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`probs` and `count`."""
        return {"probs": ops.softmax(lam[0]), "count": lam[1]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        count = ops.constant(lam[1])
        total = ops.logsumexp(lam[0])
        shares = count[..., None] * ops.namespace(*lam).exp(lam[0] - total[..., None])
        return (shares, ops.zeros(lam[1])), count * total - ops.gammaln(count + 1.0)

    def _inside(self, lam: Stats) -> Array:
        return lam[1] >= 0

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Shares in proportion to `value`, floored at a thousandth of an equal share."""
        xp = ops.namespace(value, *lam)
        x = xp.asarray(value) * 1.0
        floor = 1e-3 * (x.mean(-1, keepdims=True) + (x.sum(-1, keepdims=True) == 0))
        return xp.log(xp.maximum(x, floor)) + ops.zeros(lam[0]), lam[1]

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Whole numbers [n, ..., K] that sum to the count."""
        p = self._parameters(lam)
        probs = p["probs"] / p["probs"].sum(-1, keepdims=True)
        return np.asarray(rng.multinomial(np.round(p["count"]).astype(np.int64), probs, draws(n, p["count"].shape)))

    def var(self, lam: Stats) -> NDArray[Any]:
        """Elementwise variance, count · p (1 − p)."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["count"][..., None] * p["probs"] * (1.0 - p["probs"]))

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Of each share: the smallest count whose cumulative probability reaches this one."""
        from scipy import stats

        p = self._parameters(lam)
        return np.asarray(stats.binom.ppf(probability, p["count"][..., None], p["probs"]))


@final
@dataclass(frozen=True)
class Sticks(Family):
    """Probabilities of K categories by stick-breaking with Beta(a_k, b_k); the last a and b are not used, and are 1.

    Examples
    --------
    >>> ones = np.ones(3)
    >>> Sticks().mean(Sticks().natural(a=ones, b=ones)).tolist()
    [0.5, 0.25, 0.25]
    """

    name: ClassVar[str] = "Sticks"
    support: ClassVar[Any] = "unit"
    is_stick: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("log", "rest")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 1)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (Param("a", 1, "positive"), Param("b", 1, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        xp = ops.namespace(*usual.values())
        first = usual["a"] - 1.0
        # b_k − 1 = Σ_{j>k} λ¹_j + Σ_{j≥k} λ²_j: differences of neighbours give λ².
        beyond = usual["b"] - 1.0
        following = xp.concatenate([beyond[..., 1:-1], xp.zeros_like(first[..., :1])], -1)
        carried = xp.concatenate([first[..., 1:-1], first[..., -1:]], -1)
        rest = beyond[..., :-1] - following - carried
        return first, xp.concatenate([rest, xp.zeros_like(first[..., :1])], -1)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`a` and `b` of each stick; the last are those of a stick that is taken whole."""
        xp = ops.namespace(*lam)
        first, rest = lam
        following = _after(xp, first) - first
        is_last = np.arange(first.shape[-1]) == first.shape[-1] - 1
        beyond = following + _after(xp, xp.where(is_last, 0.0, rest))
        return {"a": 1.0 + first, "b": 1.0 + xp.where(is_last, 0.0, beyond)}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        p = self.usual(lam)
        is_last = np.arange(lam[0].shape[-1]) == lam[0].shape[-1] - 1
        a, b = (xp.where(is_last, 1.0, part) for part in (p["a"], p["b"]))
        both = ops.digamma(a + b)
        taken, left = (xp.where(is_last, 0.0, ops.digamma(part) - both) for part in (a, b))
        rest = xp.cumsum(left, -1)
        beta = ops.gammaln(a) + ops.gammaln(b) - ops.gammaln(a + b)
        return (taken + rest - left, xp.where(is_last, 0.0, rest)), xp.where(is_last, 0.0, beta).sum(-1)

    def _inside(self, lam: Stats) -> Array:
        p = self.usual(lam)
        return (p["a"][..., :-1] > 0).all(-1) & (p["b"][..., :-1] > 0).all(-1)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(log π, log R); log 0 = −inf."""
        xp = ops.namespace(value)
        x = xp.asarray(value) * 1.0
        left = xp.concatenate(
            [_after(xp, x)[..., 1:], xp.ones_like(x[..., :1])], -1
        )  # Σ_{j>k} π_j, without a difference
        with np.errstate(divide="ignore"):
            return xp.log(x), xp.log(left)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`, each stick with the concentration a + b that it has."""
        x = np.maximum(np.asarray(value, dtype=float), 1e-9)
        x = x / x.sum(-1, keepdims=True)
        p = self.usual(numpy_stats(lam))
        remaining = np.flip(np.cumsum(np.flip(x, -1), -1), -1)
        share = np.clip(x / remaining, 1e-6, 1 - 1e-6)
        total = p["a"] + p["b"]
        is_last = np.arange(x.shape[-1]) == x.shape[-1] - 1
        a, b = (np.where(is_last, 1.0, part) for part in (share * total, (1 - share) * total))
        return ops.align(self._natural({"a": a, "b": b}), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., K]."""
        a, b = self._pairs(lam)
        shape = (*draws(n, a.shape[:-1]), a.shape[-1])
        first, second = rng.standard_gamma(a, shape), rng.standard_gamma(b, shape)
        # v and 1 − v each by themselves: a difference from 1 would have no digits left.
        return _broken(first / (first + second), second / (first + second))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """E[π_k] = E[v_k] Π_{j<k} E[1 − v_j]."""
        a, b = self._pairs(lam)
        return _broken(a / (a + b), b / (a + b))

    def var(self, lam: Stats) -> NDArray[Any]:
        """E[π_k]² (r − 1); r = E[π_k²] / E[π_k]² is a product over sticks, each with E[v²] / E[v]² = 1 + b / (a (a + b + 1))."""
        a, b = self._pairs(lam)
        total = a + b + 1.0
        zero = np.zeros((*a.shape[:-1], 1))
        taken, left = np.log1p(b / (a * total)), np.log1p(a / (b * total))
        log_ratio = np.concatenate([zero, np.cumsum(left, -1)], -1) + np.concatenate([taken, zero], -1)
        second = _broken(a * (a + 1.0) / (total * (a + b)), b * (b + 1.0) / (total * (a + b)))
        # Where the ratio is near one, a difference would have no digits left; where it is large, it overflows.
        mean, near = self.mean(lam), log_ratio < 1.0
        return np.asarray(np.where(near, mean**2 * np.expm1(np.where(near, log_ratio, 0.0)), second - mean**2))

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Cov(π, φ) dλ, Cov(φ, π) a and Cov(π, π) a as functions of dλ or a: π is no statistic, its logarithm is.

        From the first two moments of the sticks: m = E[v], and E[π_k] = m_k Π_{j<k} (1 − m_j).
        """
        a, b = self._pairs(lam)
        total, mean, one = a + b, self.mean(lam), np.ones((*a.shape[:-1], 1))
        twice, none = total * (total + 1.0), 0.0 * one
        # E[v], E[v²], E[v (1 − v)] and Π_{j<k} E[(1 − v_j)²]; the last stick is taken whole.
        m, square = (np.concatenate([part, one], -1) for part in (a / total, a * (a + 1.0) / twice))
        both = np.concatenate([a * b / twice, none], -1)
        left = np.concatenate([one, np.cumprod(b * (b + 1.0) / twice, -1)], -1)

        def value_by(change: Stats) -> NDArray[Any]:
            beyond = _after(np, change[0])[..., 1:] + _after(np, change[1][..., :-1])
            moved = (b * change[0][..., :-1] - a * beyond) / total  # (a + b) dm
            before = np.concatenate([none, -np.cumsum(moved / b, -1)], -1)
            return np.asarray(mean * (np.concatenate([moved / a, none], -1) + before))

        def stats_by(weights: Array) -> Stats:
            of = mean * np.asarray(weights, np.float64)
            by_m = of[..., :-1] / a - _after(np, of)[..., 1:] / b
            by_b = np.concatenate([none, -np.cumsum(by_m * a / total, -1)], -1)
            by_a = np.concatenate([by_m * b / total, none], -1)
            return by_a + by_b, np.concatenate([by_b[..., 1:], none], -1)

        def own(weights: Array) -> NDArray[Any]:
            w = np.broadcast_to(np.asarray(weights, np.float64), mean.shape)
            out = left * square * w - mean * (mean * w).sum(-1, keepdims=True)
            before = after = np.zeros(
                mean.shape[:-1]
            )  # of the sticks before k; of those after k, given that one comes there
            for k in range(mean.shape[-1]):
                out[..., k] += m[..., k] * before
                before = (1.0 - m[..., k]) * before + left[..., k] * both[..., k] * w[..., k]
            for k in reversed(range(mean.shape[-1])):
                out[..., k] += left[..., k] * both[..., k] * after
                after = (1.0 - m[..., k]) * after + m[..., k] * w[..., k]
            return np.asarray(out)

        return value_by, stats_by, own

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equal-tailed interval of each probability, from 20,000 draws."""
        low, high = np.quantile(self.sample(lam, np.random.default_rng(0), 20_000), tails(mass), axis=0)
        return low, high

    def _pairs(self, lam: Stats) -> tuple[NDArray[Any], NDArray[Any]]:
        p = self._parameters(lam)
        return p["a"][..., :-1], p["b"][..., :-1]


def _after(xp: Any, x: Array) -> Array:
    """Σ_{j≥k} x_j along the last axis."""
    return xp.flip(xp.cumsum(xp.flip(x, -1), -1), -1)


def _broken(taken: NDArray[Any], left: NDArray[Any]) -> NDArray[Any]:
    """taken_k Π_{j<k} left_j, with a last stick that is taken whole."""
    one = np.ones((*taken.shape[:-1], 1))
    return np.asarray(np.concatenate([one, np.cumprod(left, -1)], -1) * np.concatenate([taken, one], -1))
