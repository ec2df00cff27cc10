"""Define auxiliary families: weights of scale mixtures of Gaussians, and tangents of convex functions as blocks of their own.

A block adds A(λ) − ⟨λ, μ⟩ to the bound of a network, and its target is λ = ∂P/∂μ. With a convex A and μ = ∇A(λ) that sum
is the tangent of A at λ, and the target is where the tangent touches: no step, and the bound never falls.

ConcentrationBound   A(λ) = h(λ) = log Γ(Kλ + 1) − K log Γ(λ + 1), for the normaliser of a symmetric Dirichlet: λ = E[α]
StickBound           A(λ) = Σ_k log Γ(α + kd + 1 − d) − log Γ(α + kd), α = exp λ, for that of Pitman–Yor sticks: λ = E[log α]
LogGamma             A(λ) = log Γ(λ), for log Γ of a sum of concentrations: λ = E[Σ_k a_k]. It is a law, too:
                     Γ(s) = ∫ u^(s−1) e^(−u) du, and log u has A as its log-normaliser; draws are draws of it
LogisticBound        A(λ¹, λ²) = λ² g(λ¹/λ²),  g(u) = −log cosh(½ √(−2u)), for a logit that counts with a probability r:
                     λ¹ = −½ r E[ψ²], λ² = r, μ = (w, κ) with w = tanh(c/2) / (2c), κ = −log cosh(c/2) + ½ c² w and c² = E[ψ²].
                     A is homogeneous, so that A − ⟨λ, μ⟩ = 0: the bound is r (κ − ½ w E[ψ²]), that of Jaakkola & Jordan (2000),
                     whatever r is. Draws are those of a Pólya–Gamma weight, which makes the same logit conjugate.

Weights of scale mixtures of Gaussians are Pólya–Gamma (logistic) and Lévy (Laplace):

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
import scipy.special as sp
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, draws, numpy_stats, tails
from natgrad.families._ops import Array, Stats

__all__ = ["ConcentrationBound", "LaplaceWeight", "LogGamma", "LogisticBound", "PolyaGamma", "StickBound"]

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
        p = self._parameters(lam)
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

    def var(self, lam: Stats) -> NDArray[Any]:
        """B (2 tanh(c/2) − c sech²(c/2)) / (4c³); b/24 at c = 0."""
        p = self._parameters(lam)
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

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`."""
        return (-0.5 / ops.namespace(value, *lam).asarray(value) ** 2 + ops.zeros(lam[0]),)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...] of the inverse Gaussian law with mean 1/r and shape 1."""
        mean = self.mean(lam)
        return np.asarray(rng.wald(mean, 1.0, draws(n, mean.shape)))

    def var(self, lam: Stats) -> NDArray[Any]:
        """1/r³."""
        return np.asarray(self.mean(lam) ** 3)

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Exact."""
        from scipy import stats

        return np.asarray(stats.invgauss.ppf(probability, self.mean(lam)))


def _series(coefficients: tuple[float, ...], x: Array) -> Array:
    total: Array = 0.0
    for coefficient in reversed(coefficients):
        total = coefficient + x * total
    return total


class _Tangent(Family):
    """A bound that has slopes in the place of values."""

    def centred(self, value: Array, lam: Stats) -> Stats:
        """λ itself: a tangent has no values."""
        return lam

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """The slope, which is not random."""
        slope = self.mean(lam)
        return np.broadcast_to(slope, draws(n, slope.shape)).copy()

    def var(self, lam: Stats) -> NDArray[Any]:
        """Zero."""
        return np.zeros_like(self.mean(lam))

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """The slope."""
        return self.mean(lam)


@final
@dataclass(frozen=True)
class ConcentrationBound(_Tangent):
    """The tangent of h at a point; what it says of a Dirichlet's normaliser is a lower bound that touches at the point.

    Examples
    --------
    >>> float(ConcentrationBound().natural(at=1.5, size=4.0)[0])
    1.5
    """

    name: ClassVar[str] = "ConcentrationBound"
    instead: ClassVar[str] = "Declare it as a GammaShape, which has one"
    is_bound: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("size",)
    stat_names: ClassVar[tuple[str, ...]] = ("x", "size")
    params: ClassVar[tuple[Param, ...]] = (Param("at", 0, "positive"), Param("size", 0, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return usual["at"] * 1.0, usual["size"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`at`, where the bound touches, and `size`, K."""
        return {"at": lam[0], "size": lam[1]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        size, at = ops.constant(lam[1]), lam[0]
        slope = size * (ops.digamma(size * at + 1.0) - ops.digamma(at + 1.0))
        return (slope, ops.zeros(lam[1])), ops.gammaln(size * at + 1.0) - size * ops.gammaln(at + 1.0)

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] >= 0) & (lam[1] > 0)


@final
@dataclass(frozen=True)
class StickBound(_Tangent):
    """The tangent, in log α, of the normaliser of sticks v_k ~ Beta(1 − d, α + k d), k = 1 … K − 1, which is convex there.

    Examples
    --------
    >>> StickBound().natural(at=0.0, offsets=[0.5, 1.0])[1].tolist()  # k d
    [0.5, 1.0]
    """

    name: ClassVar[str] = "StickBound"
    instead: ClassVar[str] = "Give a known number, or leave discount= out"
    is_bound: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("offsets",)
    stat_names: ClassVar[tuple[str, ...]] = ("x", "offsets")
    stat_ndims: ClassVar[tuple[int, ...]] = (0, 1)
    params: ClassVar[tuple[Param, ...]] = (Param("at", 0, "real"), Param("offsets", 1, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return usual["at"] * 1.0, usual["offsets"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`at`, the log α where the bound touches, and `offsets`, k d for each stick."""
        return {"at": lam[0], "offsets": lam[1]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        offsets = ops.constant(lam[1])
        alpha = ops.namespace(*lam).exp(lam[0])[..., None]
        # 1 − d, and d is the first offset.
        low, high = alpha + offsets, alpha + offsets + (1.0 - offsets[..., :1])
        slope = (alpha * (ops.digamma(high) - ops.digamma(low))).sum(-1)
        return (slope, ops.zeros(lam[1])), (ops.gammaln(high) - ops.gammaln(low)).sum(-1)

    def _inside(self, lam: Stats) -> Array:
        return ops.namespace(*lam).isfinite(lam[0]) & (lam[1] > 0).all(-1) & (lam[1][..., 0] < 1)


@final
@dataclass(frozen=True)
class LogGamma(_Tangent):
    """log u of u ~ Gamma(shape, 1), with u^(−1) exp(−u) as base measure: what makes Γ(shape) of a random shape conjugate.

    Examples
    --------
    >>> print(LogGamma().mean(LogGamma().natural(shape=1.0)).round(6))  # ψ(1), minus Euler's constant
    -0.577216
    """

    name: ClassVar[str] = "LogGamma"
    stat_names: ClassVar[tuple[str, ...]] = ("x",)
    params: ClassVar[tuple[Param, ...]] = (Param("shape", 0, "positive"),)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (usual["shape"] * 1.0,)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`shape`."""
        return {"shape": lam[0]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        return (ops.digamma(lam[0]),), ops.gammaln(lam[0])

    def _inside(self, lam: Stats) -> Array:
        return lam[0] > 0

    def proper(self, lam: Stats) -> Stats:
        """λ; before anything was read, a shape of 1."""
        (shape,) = numpy_stats(lam)
        return (np.where(shape > 0, shape, 1.0),)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...] of log u; that of shape + 1 times a power of a uniform number, as u itself may be 0 to rounding."""
        (shape,) = numpy_stats(lam)
        lead = draws(n, shape.shape)
        return np.asarray(np.log(rng.gamma(shape + 1.0, size=lead)) + np.log1p(-rng.random(lead)) / shape)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """The shape whose ψ is `value`, by Newton's method from Minka's start."""
        value = np.broadcast_to(np.asarray(value, dtype=float), np.shape(lam[0]))
        shape = np.where(
            value >= -2.22, np.exp(np.maximum(value, -2.22)) + 0.5, -1.0 / (np.minimum(value, -2.22) + 0.5772156649)
        )
        for _ in range(8):
            shape = shape - (sp.digamma(shape) - value) / sp.polygamma(1, shape)
        return (shape,)

    def var(self, lam: Stats) -> NDArray[Any]:
        """ψ′(shape)."""
        return np.asarray(sp.polygamma(1, numpy_stats(lam)[0]))

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Exact."""
        from scipy.stats import loggamma

        return np.asarray(loggamma.ppf(probability, numpy_stats(lam)[0]))


@final
@dataclass(frozen=True)
class LogisticBound(_Tangent):
    """The bound of a logit that counts with probability ``weight``, and touches at ±``at``.

    Examples
    --------
    >>> lam = LogisticBound().natural(weight=0.3, at=2.0)
    >>> w, value = LogisticBound().expected_stats(lam)  # log σ(2) = ½ 2 − log 2 − ½ w 2² + value
    >>> round(float(1.0 - np.log(2.0) - 0.5 * w * 4.0 + value), 6)
    -0.126928
    """

    name: ClassVar[str] = "LogisticBound"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "value")
    params: ClassVar[tuple[Param, ...]] = (Param("weight", 0, "real"), Param("at", 0, "real"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return -0.5 * usual["weight"] * usual["at"] ** 2, usual["weight"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`weight` (r) and `at` (c ≥ 0)."""
        xp = ops.namespace(*lam)
        return {"weight": lam[1], "at": xp.sqrt(xp.maximum(-2.0 * _each(lam), 0.0))}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        u = _each(lam)
        (w, _), g = PolyaGamma()._moments((u, xp.ones_like(u)))
        return (w, g - u * w), lam[1] * g

    def _moments_entropy(self, lam: Stats) -> tuple[Stats, Array]:
        mu, _ = self._moments(lam)
        return mu, ops.zeros(mu[0])  # A is homogeneous

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] < 1e-2) & (lam[1] >= 0)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws of ω given categories and logits: PG(1, ψ) of a logit that counts, PG(1, 0) of any other.

        The density of such a Pólya–Gamma weight is the base measure of the draws: its statistics are (ω, 0).
        """
        first, _ = ops.align(numpy_stats(lam), self.stat_ndims)
        return PolyaGamma().sample((np.minimum(first, 0.0), np.ones_like(first)), rng, n)


def _each(lam: Stats) -> Array:
    """The ratio u = λ¹/λ²; 0 where nothing counts, and in the limit."""
    xp = ops.namespace(*lam)
    counts = lam[1] > 1e-300
    return xp.minimum(xp.where(counts, lam[0] / xp.where(counts, lam[1], 1.0), 0.0), 0.0)
