"""Define families of numbers that are known to lie in an interval: truncated Normal and truncated Exponential.

TruncatedNormal       λ = (precision · mean, −½ precision, lower, upper, sides),  φ = (x, x², 0, 0, 0)
                      A = log ∫_lower^upper exp(λ₁ x + λ₂ x²) dx
TruncatedExponential  λ = (−rate, lower, upper, sides),                          φ = (x, 0, 0, 0)
                      A = log ∫_lower^upper exp(λ₁ x) dx

Bounds are settings: they travel in λ so that every element may have its own, and their statistics are 0. ``sides`` says which
of them hold: 0 none, 1 lower, 2 upper, 3 both, 4 the number itself is known and stands in lower (a point mass, A = λ₁ x + λ₂ x²).

The integral is Gauss–Legendre quadrature around the mode, where nothing cancels: in far tails and in narrow intervals, where
Φ(b) − Φ(a) has no digits left, moments are right to rounding.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, draws, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["TruncatedExponential", "TruncatedNormal", "sides_of"]

FREE, LOWER, UPPER, BOTH, POINT = 0.0, 1.0, 2.0, 3.0, 4.0
# Degree 95 is exact to rounding for exp(−40 s²) on [−1, 1]: beyond 40 nats below the mode nothing counts.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)
NATS = 40.0
# Elements whose nodes are evaluated at a time in NumPy: 3 MB.
CHUNK = 8_192


def sides_of(lower: NDArray[Any], upper: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Bounds, infinite ones replaced by 0, and the code of which hold; equal ones are a known number.

    Examples
    --------
    >>> [part.tolist() for part in sides_of(np.array([0.0, -np.inf]), np.array([np.inf, 2.0]))]
    [[0.0, 0.0], [0.0, 2.0], [1.0, 2.0]]
    """
    sides = LOWER * np.isfinite(lower) + UPPER * np.isfinite(upper)
    sides = np.where((lower == upper) & np.isfinite(lower), POINT, sides)
    return np.where(np.isfinite(lower), lower, 0.0), np.where(np.isfinite(upper), upper, 0.0), sides


BOUNDS = Param("lower", 0, "real"), Param("upper", 0, "real"), Param("sides", 0, "real")


class _Truncated(Family):
    """A law between two bounds, which are the last statistics: settings, whose moments are 0."""

    settings: ClassVar[tuple[str, ...]] = ("lower", "upper", "sides")

    def _inside(self, lam: Stats) -> Array:
        return (lam[-4] < 0) | (lam[-1] > POINT - 0.5)

    def proper(self, lam: Stats) -> Stats:
        """λ; where it has no precision, or no rate, those of 1."""
        *first, slope, lower, upper, sides = numpy_stats(lam)
        return *first, np.where(self._inside(lam), slope, -1.0 / (1 + len(first))), lower, upper, sides

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...], inside the bounds."""
        p = self._parameters(lam)
        return self._inverted(p, rng.uniform(size=draws(n, p["sides"].shape)))

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Inside the bounds."""
        p = self._parameters(lam)
        return self._inverted(p, np.full(p["sides"].shape, probability))

    def matched_quantile(self, mean: Array, sd: Array, probability: Array, lam: Stats | None = None) -> NDArray[Any]:
        """That of λ itself, stretched about its mean and within its bounds."""
        if lam is None:
            return super().matched_quantile(mean, sd, probability)
        usual = {name: np.asarray(part) for name, part in self.usual(lam).items()}
        own, low, high = (
            self._inverted(usual, np.broadcast_to(t, np.broadcast_shapes(np.shape(t), np.shape(mean))))
            for t in (probability, 0.0, 1.0)
        )
        with np.errstate(all="ignore"):
            return np.asarray(np.clip(mean + (own - mean) * sd / np.sqrt(self.var(lam)), low, high))

    @abstractmethod
    def _inverted(self, p: dict[str, NDArray[Any]], probability: NDArray[Any]) -> NDArray[Any]:
        """The x with P(X < x) = probability."""


@final
@dataclass(frozen=True)
class TruncatedNormal(_Truncated):
    """A Normal between two bounds, each of which may be missing.

    Examples
    --------
    >>> lam = TruncatedNormal().natural(mean=0.0, precision=1.0, lower=0.0, upper=0.0, sides=1.0)
    >>> round(float(TruncatedNormal().mean(lam)), 6)
    0.797885
    """

    name: ClassVar[str] = "TruncatedNormal"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "xx", "lower", "upper", "sides")
    params: ClassVar[tuple[Param, ...]] = (Param("mean", 0, "real"), Param("precision", 0, "positive"), *BOUNDS)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        p = usual["precision"]
        return p * usual["mean"], -0.5 * p, usual["lower"] * 1.0, usual["upper"] * 1.0, usual["sides"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean` and `precision` before truncation, `lower`, `upper` and `sides`."""
        # A known number needs no precision, and what is no part of the model has none.
        precision = ops.namespace(*lam).where(_flags(lam[4])[2], 1.0, -2.0 * lam[1])
        return {
            "mean": lam[0] / precision,
            "precision": precision,
            "lower": lam[2],
            "upper": lam[3],
            "sides": lam[4],
        }

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        first, second = lam[0], lam[1]
        lower, upper, sides = (ops.constant(part) for part in lam[2:])
        has_lower, has_upper, is_point = _flags(sides)
        sd = 1.0 / xp.sqrt(xp.where(is_point, 1.0, -2.0 * second))
        alpha, beta = ((bound - first * sd**2) / sd for bound in (lower, upper))
        # The mode, in standard deviations from the mean, and the place x0 where it is: at a bound, the bound itself.
        at_lower, at_upper = has_lower & (alpha > 0), has_upper & (beta < 0)
        mode = xp.where(at_lower, alpha, xp.where(at_upper, beta, 0.0))
        x0 = xp.where(at_lower, lower, xp.where(at_upper, upper, first * sd**2))
        # How far from the mode anything counts: √(mode² + 2 NATS) − |mode|, not as a difference, of which nothing may be left.
        reach = 2.0 * NATS / (xp.sqrt(mode**2 + 2.0 * NATS) + xp.abs(mode))
        low = xp.where(has_lower, xp.maximum((lower - x0) / sd, -reach), -reach)
        high = xp.where(has_upper, xp.minimum((upper - x0) / sd, reach), reach)
        mass, mean, square = _integrals(xp, mode, low, high)
        x = x0 + sd * mean
        xx = x0**2 + 2.0 * x0 * sd * mean + sd**2 * square
        a = first * x0 + second * x0**2 + xp.log(sd) + xp.log(mass)
        x, xx = xp.where(is_point, lower, x), xp.where(is_point, lower**2, xx)
        nothing = ops.zeros(lower)
        return (x, xx, nothing, nothing, nothing), xp.where(is_point, first * lower + second * lower**2, a)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, x²), and 0 for each setting."""
        x = ops.namespace(value).asarray(value) * 1.0
        nothing = ops.zeros(x)
        return x, x**2, nothing, nothing, nothing

    def centred(self, value: Array, lam: Stats) -> Stats:
        """The mean before truncation at `value`, the precision of `lam`."""
        return (-2.0 * lam[1] * value + ops.zeros(lam[0]), *lam[1:])

    def var(self, lam: Stats) -> NDArray[Any]:
        """E[x²] − E[x]²."""
        x, xx, *_ = self.expected_stats(numpy_stats(lam))
        return np.asarray(np.maximum(xx - x**2, 0.0))

    def _inverted(self, p: dict[str, NDArray[Any]], probability: NDArray[Any]) -> NDArray[Any]:
        """X with P(X < x) = probability, in logarithms of tails: mirrored where the interval lies above the mean."""
        has_lower, has_upper, is_point = _flags(p["sides"])
        root = np.sqrt(p["precision"])
        alpha = np.where(has_lower, (p["lower"] - p["mean"]) * root, -np.inf)
        beta = np.where(has_upper, (p["upper"] - p["mean"]) * root, np.inf)
        mirrored = alpha > 0
        low, high = np.where(mirrored, -beta, alpha), np.where(mirrored, -alpha, beta)
        share = np.where(mirrored, 1.0 - probability, probability)
        with np.errstate(divide="ignore"):
            logs = np.logaddexp(special.log_ndtr(low) + np.log1p(-share), special.log_ndtr(high) + np.log(share))
        z = special.ndtri_exp(logs)
        x = p["mean"] + np.where(mirrored, -z, z) / root
        x = np.maximum(x, np.where(has_lower, p["lower"], -np.inf))
        x = np.minimum(x, np.where(has_upper, p["upper"], np.inf))
        return np.asarray(np.where(is_point, p["lower"], x))


@final
@dataclass(frozen=True)
class TruncatedExponential(_Truncated):
    """An Exponential between two bounds; without an upper one, only ``lower`` holds.

    Examples
    --------
    >>> lam = TruncatedExponential().natural(rate=2.0, lower=1.0, upper=0.0, sides=1.0)
    >>> float(TruncatedExponential().mean(lam))
    1.5
    """

    name: ClassVar[str] = "TruncatedExponential"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "lower", "upper", "sides")
    params: ClassVar[tuple[Param, ...]] = (Param("rate", 0, "positive"), *BOUNDS)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return -usual["rate"], usual["lower"] * 1.0, usual["upper"] * 1.0, usual["sides"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`rate`, `lower`, `upper` and `sides`."""
        return {"rate": -lam[0], "lower": lam[1], "upper": lam[2], "sides": lam[3]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        lower, upper, sides = (ops.constant(part) for part in lam[1:])
        _, has_upper, is_point = _flags(sides)
        rate = xp.where(is_point, 1.0, -lam[0])
        width = xp.where(has_upper & ~is_point, upper - lower, 1.0)
        y = rate * width
        is_small = y < 0.1
        safe = xp.where(is_small, 1.0, y)
        # log((1 − e^(−y)) / y), and 1/y − 1/(e^y − 1): the mean of an Exponential on [0, 1].
        short = -y / 2 + y**2 / 24 - y**4 / 2880 + y**6 / 181440
        log_mass = xp.where(is_small, short, xp.log(-xp.expm1(-safe)) - xp.log(safe))
        share = xp.where(
            is_small, 0.5 - y / 12 + y**3 / 720 - y**5 / 30240, 1.0 / safe - xp.exp(-safe) / -xp.expm1(-safe)
        )
        x = lower + xp.where(has_upper, width * share, 1.0 / rate)
        a = -rate * lower + xp.where(has_upper, log_mass + xp.log(width), -xp.log(rate))
        nothing = ops.zeros(lower)
        return (
            (xp.where(is_point, lower, x), nothing, nothing, nothing),
            xp.where(is_point, lam[0] * lower, a),
        )

    def centred(self, value: Array, lam: Stats) -> Stats:
        """The mean before truncation at `value`."""
        xp = ops.namespace(value, *lam)
        return (-1.0 / xp.maximum(xp.asarray(value), 1e-300) + ops.zeros(lam[0]), *lam[1:])

    def var(self, lam: Stats) -> NDArray[Any]:
        """The variance: 1/rate² − width² e^y / (e^y − 1)² with y = rate · width."""
        p = self._parameters(lam)
        _, has_upper, is_point = _flags(p["sides"])
        width = np.where(has_upper & ~is_point, p["upper"] - p["lower"], 1.0)
        y = p["rate"] * width
        safe = np.where(y < 0.1, 1.0, np.minimum(y, 700.0))
        narrow = width**2 * np.where(
            y < 0.1, 1 / 12 - y**2 / 240 + y**4 / 6048, 1 / safe**2 - np.exp(safe) / np.expm1(safe) ** 2
        )
        return np.asarray(np.where(is_point, 0.0, np.where(has_upper, narrow, 1.0 / p["rate"] ** 2)))

    def _inverted(self, p: dict[str, NDArray[Any]], probability: NDArray[Any]) -> NDArray[Any]:
        _, has_upper, is_point = _flags(p["sides"])
        gone = np.where(has_upper, -np.expm1(-p["rate"] * np.maximum(p["upper"] - p["lower"], 0.0)), 1.0)
        x = p["lower"] - np.log1p(-probability * gone) / p["rate"]
        x = np.minimum(x, np.where(has_upper, p["upper"], np.inf))
        return np.asarray(np.where(is_point, p["lower"], x))


def _flags(sides: Array) -> tuple[Array, Array, Array]:
    """Whether there is a lower bound, an upper one, a known number; codes may have been blended, and are rounded."""
    is_point = sides > POINT - 0.5
    has_upper = (sides > 1.5) & ~is_point
    has_lower = ((sides > 0.5) & (sides < 1.5)) | ((sides > 2.5) & ~is_point)
    return has_lower, has_upper, is_point


def _integrals(xp: Any, mode: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """∫ exp(−½ s² − mode · s) ds over [low, high], and the means of s and s² under it."""
    if xp is np and np.size(mode) > CHUNK:
        parts = [np.ravel(part) for part in np.broadcast_arrays(mode, low, high)]
        integrals = [
            _integrals(xp, *(part[start : start + CHUNK] for part in parts)) for start in range(0, len(parts[0]), CHUNK)
        ]
        joined = (np.concatenate(pieces).reshape(np.shape(mode)) for pieces in zip(*integrals, strict=True))
        return tuple(joined)  # type: ignore[return-value]
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    s = middle[..., None] + half[..., None] * NODES
    density = WEIGHTS * xp.exp(-0.5 * s * s - mode[..., None] * s)
    total = density.sum(-1)
    return half * total, (density * s).sum(-1) / total, (density * s * s).sum(-1) / total
