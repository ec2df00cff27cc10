"""Define the families of counts and labels: Categorical (probs), Bernoulli (prob), Binary (both sides), Poisson (rate).

Categorical  λ = logits, one-hot φ,  A = log Σ exp λ   (overcomplete: logits + c is the same law)
Bernoulli    λ = logit,  φ = x,      A = log(1 + e^λ)
Poisson      λ = log rate, φ = x,    A = e^λ,  and f(x) = −log x!

Binary       φ = ([x = 1], [x = 0]),   A = log(e^λ₁ + e^λ₀)   (overcomplete: λ + c is the same law)

A `Bernoulli` has one statistic, so that what belongs to 0 is written 1 − x. Where a probability is 0, and its logarithm a number
of 10¹⁰⁰, such a difference has no digits left; here each side has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, draws, numpy_stats
from natgrad.families._ops import Array, Stats
from natgrad.families._simplex import floored

__all__ = ["Bernoulli", "Binary", "Categorical", "Labels", "Poisson", "category_logits"]


class Labels(Family):
    """Values that are indices of categories: their mean is the probability of each."""

    support: ClassVar[Any] = "category"

    def var(self, lam: Stats) -> NDArray[Any]:
        """Variance p (1 − p) of each indicator."""
        p = self.mean(lam)
        return np.asarray(p * (1 - p))

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Categories have no order: raises."""
        raise TypeError(f"{self.name} has no interval: categories have no order. Use mean(), their probabilities.")


class _Coin(Labels):
    """0 or 1 with P(1) = prob."""

    params: ClassVar[tuple[Param, ...]] = (Param("prob", 0, "probability"),)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Integers [n, ...]."""
        p = self.mean(lam)
        return np.asarray((rng.random(draws(n, p.shape)) < p).astype(int))

    def centred(self, value: Array, lam: Stats) -> Stats:
        """P(1) = 0.9 or 0.1 for integers and booleans; floats are P(1) itself, 1e-3 away from 0 and 1."""
        xp = ops.namespace(value, *lam)
        x = xp.asarray(value)
        prob = xp.clip(x * 1.0 if x.dtype.kind == "f" else 0.1 + 0.8 * x, 1e-3, 1 - 1e-3)
        return tuple(part + ops.zeros(old) for part, old in zip(self._natural({"prob": prob}), lam, strict=True))


@final
@dataclass(frozen=True)
class Categorical(Labels):
    """One of K categories; a value is an integer, its statistic a one-hot vector.

    λ may hold −inf (a category that never happens) as long as one entry is finite.

    Examples
    --------
    >>> lam = Categorical().natural(probs=np.array([0.25, 0.75]))
    >>> Categorical().expected_stats(lam)[0].round(12).tolist()
    [0.25, 0.75]
    """

    name: ClassVar[str] = "Categorical"
    sampler: ClassVar[str | None] = "CATEGORICAL"
    is_category: ClassVar[bool] = True
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x",)
    stat_ndims: ClassVar[tuple[int, ...]] = (1,)
    params: ClassVar[tuple[Param, ...]] = (Param("probs", 1, "simplex"),)
    allows_minus_inf: ClassVar[bool] = True

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (ops.namespace(usual["probs"]).log(usual["probs"]),)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`probs`."""
        return {"probs": ops.softmax(lam[0])}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        top = ops.largest(lam[0])[..., None]
        top = xp.where(xp.isfinite(top), top, 0.0)
        weights = xp.exp(lam[0] - top)  # the one exponential: mixtures spend their time here
        total = ops.summed(weights)[..., None]
        return (weights / total,), (top + xp.log(total))[..., 0]

    def _inside_but_finite(self, lam: Stats) -> Array:
        return True

    def _inside(self, lam: Stats) -> Array:
        return ops.largest(lam[0]) > -np.inf

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """One-hot vectors [..., K] of integers [...]; `size` is K."""
        if size is None:
            raise ValueError("Categorical.stats_of needs size, the number of categories K.")
        return (ops.one_hot(value, size),)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """0.9 on the integer `value`, or log of the probabilities `value` [..., K] floored at 1e-3 / K."""
        return (category_logits(value, lam[0].shape[-1]) + ops.zeros(lam[0]),)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Integers [n, ...]."""
        probs = self.mean(lam)
        # Where one uniform number falls among the sums of probabilities. u < 1, so u times their total is below it, and what
        # has probability 0, whose sum is that of the one before, is not met.
        u = rng.random(draws(n, probs.shape[:-1]))
        if probs.shape[-1] > ops.FEW:
            upto = np.cumsum(probs, axis=-1)
            return np.asarray((upto <= (u * upto[..., -1])[..., None]).sum(-1))
        sums = [probs[..., 0]]
        for k in range(1, probs.shape[-1]):
            sums.append(sums[-1] + probs[..., k])
        at, value = u * sums[-1], np.zeros(u.shape, dtype=np.int64)
        for below in sums[:-1]:
            value += below <= at
        return value

    def mean(self, lam: Stats) -> NDArray[Any]:
        """Probabilities [..., K]."""
        return np.asarray(ops.softmax(numpy_stats(lam)[0]))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        probs = ops.softmax(lam[0])
        return lambda change: (probs * (change[0] - (probs * change[0]).sum(-1, keepdims=True)),)


@final
@dataclass(frozen=True)
class Bernoulli(_Coin):
    """0 or 1 with P(1) = prob.

    Examples
    --------
    >>> float(Bernoulli().mean(Bernoulli().natural(prob=0.5)))
    0.5
    """

    name: ClassVar[str] = "Bernoulli"
    sampler: ClassVar[str | None] = "BERNOULLI"
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x",)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (_logit(usual["prob"]),)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`prob`."""
        return {"prob": ops.sigmoid(lam[0])}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        return (ops.sigmoid(lam[0]),), ops.softplus(lam[0])

    def _inside(self, lam: Stats) -> Array:
        return ops.namespace(*lam).isfinite(lam[0])

    def mean(self, lam: Stats) -> NDArray[Any]:
        """P(1)."""
        return np.asarray(ops.sigmoid(numpy_stats(lam)[0]))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        variance = sp.expit(lam[0]) * sp.expit(-lam[0])
        return lambda change: (variance * change[0],)


# Rates from which quantiles are those of the expansion: they agree with the inverse at every rate from here to 1e10.
LARGE_RATE = 1e6


@final
@dataclass(frozen=True)
class Poisson(Family):
    """Counts 0, 1, 2 … with E[x] = rate.

    Examples
    --------
    >>> lam = Poisson().natural(rate=2.0)
    >>> round(float(Poisson().entropy(lam)), 4)
    1.7049
    """

    name: ClassVar[str] = "Poisson"
    support: ClassVar[Any] = "count"
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x",)
    params: ClassVar[tuple[Param, ...]] = (Param("rate", 0, "positive"),)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (ops.namespace(usual["rate"]).log(usual["rate"]),)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`rate`."""
        return {"rate": ops.namespace(*lam).exp(lam[0])}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        rate = ops.namespace(*lam).exp(lam[0])
        return (rate,), rate

    def _inside(self, lam: Stats) -> Array:
        xp = ops.namespace(*lam)
        return xp.isfinite(xp.exp(lam[0]))

    def _expected_base(self, lam: Stats) -> Array:
        """−E[log x!]: a series of 420 terms below rate 200, Stirling's expansion of the entropy above."""
        xp = ops.namespace(*lam)
        log_rate, rate = lam[0], xp.exp(lam[0])
        is_small = rate < 200.0
        k = np.arange(420)  # 200 + 15 standard deviations
        safe = xp.where(is_small, log_rate, 0.0)
        log_factorial = sp.gammaln(k + 1.0)
        weights = xp.exp(k * safe[..., None] - xp.exp(safe)[..., None] - log_factorial)
        series = (weights * log_factorial).sum(-1)
        # H = ½ log(2πe r) − 1/(12 r) − 1/(24 r²) − 19/(360 r³) − …, and E log x! = H − r + r log r.
        r = xp.where(is_small, 200.0, rate)
        entropy = 0.5 * (ops.LOG_2PI + 1.0 + xp.log(r)) - 1 / (12 * r) - 1 / (24 * r**2) - 19 / (360 * r**3)
        return -xp.where(is_small, series, entropy - r + r * xp.log(r))

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Log `value`, floored at 1e-3."""
        xp = ops.namespace(value, *lam)
        return (xp.log(xp.maximum(xp.asarray(value), 1e-3)) + ops.zeros(lam[0]),)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Integers [n, ...]."""
        rate = self.mean(lam)
        return np.asarray(rng.poisson(rate, draws(n, rate.shape)))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """The rate."""
        return np.asarray(np.exp(numpy_stats(lam)[0]))

    def var(self, lam: Stats) -> NDArray[Any]:
        """The rate."""
        return self.mean(lam)

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        rate = np.exp(lam[0])
        return lambda change: (rate * change[0],)

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """The smallest count whose cumulative probability reaches this one."""
        # pdtrik inverts the cumulative distribution in k, but is NaN for rates of 1e11; there two terms of the expansion of
        # Cornish and Fisher are right to less than one. Rounding up may overshoot by one, so look one below.
        rate, z = self.mean(lam), sp.ndtri(probability)
        expanded = rate + z * np.sqrt(rate) + (z * z - 1.0) / 6.0 - 0.5
        inverse = np.where(rate > LARGE_RATE, expanded, sp.pdtrik(probability, np.minimum(rate, LARGE_RATE)))
        upper = np.ceil(np.maximum(inverse, 0.0))
        lower = np.maximum(upper - 1, 0.0)
        return np.asarray(np.where(sp.pdtr(lower, rate) >= probability, lower, upper))


def category_logits(value: Array, size: int) -> Array:
    """Logits [..., K] of a start: integers → 0.9 on the label; floats [..., K] → log of the floored value."""
    xp = ops.namespace(value)
    x = xp.asarray(value)
    if x.dtype.kind == "f":
        return xp.log(floored(x))
    rest = 0.1 / (size - 1) if size > 1 else 1.0
    return xp.log(xp.where(ops.one_hot(x, size) > 0, 0.9 if size > 1 else 1.0, rest))


def _logit(p: Array) -> Array:
    xp = ops.namespace(p)
    return xp.log(p) - xp.log1p(-p)


@final
@dataclass(frozen=True)
class Binary(_Coin):
    """0 or 1 with P(1) = prob, which may be 0 or 1: λ may hold one −inf.

    Examples
    --------
    >>> lam = Binary().natural(prob=0.25)
    >>> [round(float(m), 6) for m in Binary().expected_stats(lam)]
    [0.25, 0.75]
    """

    name: ClassVar[str] = "Binary"
    has_sides: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x", "rest")
    allows_minus_inf: ClassVar[bool] = True

    def _natural(self, usual: dict[str, Array]) -> Stats:
        xp = ops.namespace(usual["prob"])
        return xp.log(usual["prob"]), xp.log1p(-usual["prob"])

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`prob`."""
        return {"prob": self._moments(lam)[0][0]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        top = xp.maximum(lam[0], lam[1])
        safe = xp.where(xp.isfinite(top), top, 0.0)
        one, zero = xp.exp(lam[0] - safe), xp.exp(lam[1] - safe)
        total = one + zero
        return (one / total, zero / total), safe + xp.log(total)

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] > -np.inf) | (lam[1] > -np.inf)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, 1 − x) as floats."""
        x = ops.namespace(value).asarray(value) * 1.0
        return x, 1.0 - x

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        one, zero = self.expected_stats(lam)

        def times(change: Stats) -> Stats:
            moved = one * zero * (change[0] - change[1])
            return moved, -moved

        return times
