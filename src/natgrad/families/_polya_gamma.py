"""λ in, moments out, for the weights of scale mixtures of Gaussians: Pólya–Gamma (logistic) and Lévy (Laplace) weights.

PolyaGamma    λ = (−½ c², b),  φ = (ω, 0),  base measure PG(ω | b, 0)
              A = log E_{PG(b, 0)}[exp(−½ c² ω)] = −b log cosh(c/2),  E[ω] = b/(2c) tanh(c/2)
LaplaceWeight λ = (−½ r²),     φ = (u),     base measure u^(−3/2) exp(−1/(2u)) / √(2π)
              A = −|r|,  E[u] = 1/|r|: an inverse Gaussian law

b is a setting: it travels in λ, so that every element may have its own, but its statistic is 0 and it never changes. Polson,
Scott & Windle (2013), theorem 1; Andrews & Mallows (1974).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, draws, numpy_stats, tails
from natgrad.families._ops import Array, Stats

__all__ = ["LaplaceWeight", "PolyaGamma"]

_LOG_2 = float(np.log(2.0))
# c² below which series take the place of quotients; their first neglected terms are below 1e-16 there.
SMALL = 1e-2
LOG_COSH = (1 / 2, -1 / 12, 1 / 45, -17 / 2520, 31 / 14175)  # of x², x⁴, …
TANH = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835)  # tanh(x)/x, of 1, x², …
# A draw has so many of the Gamma variables that make up ω; a Gamma with their mean and variance stands for the rest.
TERMS = 64
# As many of them are drawn at once as there is room for.
SOME_NUMBERS = 10**5
N_DRAWS = 4_000
# The shortest distance, in scales, that a Laplace weight tells from zero: a bound is below its best by less than this.
SHORTEST = 1e-8


@final
@dataclass(frozen=True)
class PolyaGamma(Family):
    """PG(b, c): the weight that makes a logistic likelihood Gaussian; the entropy is relative to PG(b, 0).

    Examples
    --------
    >>> lam = PolyaGamma().natural(trials=1.0, tilt=2.0)
    >>> round(float(PolyaGamma().mean(lam)), 6)
    0.190399
    """

    name: ClassVar[str] = "PolyaGamma"
    settings: ClassVar[tuple[str, ...]] = ("trials",)
    stat_names: ClassVar[tuple[str, ...]] = ("x", "trials")
    stat_ndims: ClassVar[tuple[int, ...]] = (0, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False)
    event_ndim: ClassVar[int] = 0
    params: ClassVar[tuple[Param, ...]] = (Param("trials", 0, "real"), Param("tilt", 0, "real"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return -0.5 * usual["tilt"] ** 2, usual["trials"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`trials` (b) and `tilt` (c ≥ 0)."""
        xp = ops.namespace(*lam)
        return {"trials": lam[1], "tilt": xp.sqrt(xp.maximum(-2.0 * lam[0], 0.0))}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        trials = ops.constant(lam[1])
        square = -2.0 * lam[0]
        is_small = square < SMALL
        c = xp.sqrt(xp.where(is_small, 1.0, square))
        quarter = xp.where(is_small, 0.25 * square, 0.0)  # x² with x = c/2
        log_cosh = xp.where(is_small, quarter * _series(LOG_COSH, quarter), 0.5 * c + xp.log1p(xp.exp(-c)) - _LOG_2)
        mean = xp.where(is_small, 0.25 * _series(TANH, quarter), xp.tanh(0.5 * c) / (2.0 * c))
        return (trials * mean, ops.zeros(lam[1])), -trials * log_cosh

    def _inside(self, lam: Stats) -> Array:
        # A square that rounding has made a little negative is inside: A is finite up to λ = π²/2.
        return (lam[0] < 0.5 * SMALL) & (lam[1] >= 0)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(ω, 0)."""
        x = ops.namespace(value).asarray(value) * 1.0
        return x, ops.zeros(x)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """The tilt whose mean is `value`, by bisection; values outside (0, b/4) are moved to the border."""
        value, trials = np.broadcast_arrays(np.asarray(value, dtype=float), numpy_stats(lam)[1])
        share = np.clip(value / np.where(trials > 0, trials, 1.0), 1e-6, 0.25)
        low, high = np.zeros(share.shape), np.full(share.shape, 1e6)
        for _ in range(100):
            middle = 0.5 * (low + high)
            above = self.moments((-0.5 * middle**2, np.ones_like(middle)))[0][0] > share
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return -0.5 * low**2, trials * 1.0

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...]: Σ_k g_k / ((k − ½)² + c²/4π²) / 2π², g_k ~ Gamma(b), the tail by a Gamma of its mean and variance."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        shape = draws(n, p["tilt"].shape)
        shift = (p["tilt"] / (2 * np.pi)) ** 2
        total, mean, var = np.zeros(shape), np.zeros(shift.shape), np.zeros(shift.shape)
        step = max(1, min(TERMS, SOME_NUMBERS // max(total.size, 1)))  # many terms of few elements at once
        for begin in range(0, TERMS, step):
            k = np.arange(begin, min(begin + step, TERMS)).reshape((-1,) + (1,) * shift.ndim)
            scale = 1.0 / (2 * np.pi**2 * ((k + 0.5) ** 2 + shift))
            wide = scale.reshape((len(scale),) + (1,) * (total.ndim - shift.ndim) + shift.shape)
            total += (wide * rng.gamma(p["trials"], 1.0, (len(scale), *shape))).sum(0)
            mean, var = mean + scale.sum(0), var + (scale**2).sum(0)
        mean, var = self.mean(lam) - p["trials"] * mean, self.var(lam) - p["trials"] * var
        rest = (mean > 0) & (var > 0)
        safe_mean, safe_var = np.where(rest, mean, 1.0), np.where(rest, var, 1.0)
        return total + np.where(rest, rng.gamma(safe_mean**2 / safe_var, safe_var / safe_mean, shape), 0.0)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """b/(2c) tanh(c/2)."""
        return np.asarray(self.expected_stats(numpy_stats(lam))[0])

    def var(self, lam: Stats) -> NDArray[Any]:
        """B (2 tanh(c/2) − c sech²(c/2)) / (4c³); b/24 at c = 0."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        c = np.where(p["tilt"] < 0.1, 1.0, p["tilt"])
        quarter = np.where(p["tilt"] < 0.1, 0.25 * p["tilt"] ** 2, 0.0)
        # −½ d/dx² of tanh(x)/x, over 8: the second derivative of A, term by term.
        series = _series(tuple(-k * t for k, t in enumerate(TANH) if k), quarter) / 8.0
        with np.errstate(over="ignore"):
            exact = (2 * np.tanh(c / 2) - c / np.cosh(c / 2) ** 2) / (4 * c**3)
        return np.asarray(p["trials"] * np.where(p["tilt"] < 0.1, series, exact))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equal-tailed interval, from 4,000 draws: there is no closed form."""
        low, high = np.quantile(self.sample(lam, np.random.default_rng(0), N_DRAWS), tails(mass), axis=0)
        return low, high


@final
@dataclass(frozen=True)
class LaplaceWeight(Family):
    """The weight u of N(0, 1/u) that makes a Laplace law: inverse Gaussian with mean 1/|r| and shape 1.

    Examples
    --------
    >>> float(LaplaceWeight().mean(LaplaceWeight().natural(distance=2.0)))
    0.5
    """

    name: ClassVar[str] = "LaplaceWeight"
    stat_names: ClassVar[tuple[str, ...]] = ("x",)
    stat_ndims: ClassVar[tuple[int, ...]] = (0,)
    symmetric: ClassVar[tuple[bool, ...]] = (False,)
    event_ndim: ClassVar[int] = 0
    params: ClassVar[tuple[Param, ...]] = (Param("distance", 0, "positive"),)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (-0.5 * usual["distance"] ** 2,)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`distance` (r > 0)."""
        xp = ops.namespace(*lam)
        return {"distance": xp.sqrt(xp.maximum(-2.0 * lam[0], SHORTEST**2))}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        r = xp.sqrt(xp.maximum(-2.0 * lam[0], SHORTEST**2))
        return (1.0 / r,), -r

    def _inside(self, lam: Stats) -> Array:
        # A distance of zero, or what rounding leaves of it: a number that lies exactly on a known mean.
        return lam[0] < SHORTEST

    def proper(self, lam: Stats) -> Stats:
        """λ; where it has no mean (r = 0, before anything was read), r = 1."""
        (rate,) = numpy_stats(lam)
        return (np.where(rate < 0, rate, -0.5),)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(u,)."""
        return (ops.namespace(value).asarray(value) * 1.0,)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`."""
        return (-0.5 / ops.namespace(value, *lam).asarray(value) ** 2 + ops.zeros(lam[0]),)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...] of the inverse Gaussian law with mean 1/r and shape 1."""
        mean = self.mean(lam)
        return np.asarray(rng.wald(mean, 1.0, draws(n, mean.shape)))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """1/r."""
        return np.asarray(self.expected_stats(numpy_stats(lam))[0])

    def var(self, lam: Stats) -> NDArray[Any]:
        """1/r³."""
        return np.asarray(self.mean(lam) ** 3)

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equal-tailed interval."""
        from scipy import stats

        low, high = (np.asarray(stats.invgauss.ppf(t, self.mean(lam))) for t in tails(mass))
        return low, high


def _series(coefficients: tuple[float, ...], x: Array) -> Array:
    total: Array = 0.0
    for coefficient in reversed(coefficients):
        total = coefficient + x * total
    return total
