"""Define families of positive numbers whose normaliser is an integral: `GammaShape` and `HalfNormalPrecision`.

GammaShape           q(a) ∝ exp(λ¹ a + λ² log a + λ³ log Γ(a)),  λ³ ≤ 0: a Gamma that has been the shape of −λ³ Gammas
HalfNormalPrecision  q(τ) ∝ exp(λ¹ τ + λ² log τ + λ³ / τ): the generalised inverse Gaussian law; 1/τ ~ Gamma(½, 1/(2 s²)), the
                     law of the precision of a standard deviation that is half-Normal with scale s, is one of them

With t = log x the density has one mode and falls to both sides. The mode, and where the density has fallen by DROP nats, are
found by bisection; between these A and μ are sums over Gauss–Legendre nodes in panels that are narrow at the mode. The
relative error of A is below 1e-10, that of the moments below 1e-7 for laws no wider than a Gamma of shape 0.1
(tests/families/test_quadrature.py).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, draws, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["GammaShape", "HalfNormalPrecision", "PositiveByQuadrature", "panels", "quantiles"]

DROP = 42.0  # nats below the mode: exp(−42) is below the last digit
WIDEST = 300.0  # |t| of the brackets: exp(300) and its log Γ are finite
BISECTIONS = 64
N_GRID = 1_025  # points of the distribution function that draws and intervals invert


def panels(n_points: int, n_halvings: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes in (0, 1) and weights that sum to 1: panels of Gauss and Legendre that double in width away from 0."""
    points, weights = np.polynomial.legendre.leggauss(n_points)
    ends = np.concatenate([[0.0], 2.0 ** np.arange(-n_halvings, 1)])
    widths = np.diff(ends)
    nodes = ends[:-1, None] + 0.5 * widths[:, None] * (1.0 + points)
    return nodes.ravel(), (0.5 * widths[:, None] * weights).ravel()


NODES, WEIGHTS = panels(16, 6)


def quantiles(invert: Callable[..., Any], chances: NDArray[Any], *tables: NDArray[Any]) -> NDArray[Any]:
    """Quantiles of chances [..., plates]: exp ``invert(chances, *tables)`` for each element, whose tables are [plates, G]."""
    n = math.prod(tables[0].shape[:-1])
    rows = [part.reshape(n, part.shape[-1]) for part in tables]
    wide = chances.reshape(chances.size // max(n, 1), n)
    t = np.empty(wide.shape)
    for k in range(n):
        t[:, k] = invert(wide[:, k], *(part[k] for part in rows))
    return np.asarray(np.exp(t)).reshape(chances.shape)


class PositiveByQuadrature(Family):
    """A law of a positive number with statistics (x, log x, s(x))."""

    @abstractmethod
    def _third(self, x: Array) -> Array:
        """The third statistic, s(x)."""

    @abstractmethod
    def _third_slope(self, x: Array) -> Array:
        """Its derivative by t = log x, x s'(x)."""

    # -- the grid --

    def _exponent(self, lam: Stats, t: Array) -> Array:
        xp = ops.namespace(t, *lam)
        x = xp.exp(t)
        return lam[0] * x + (lam[1] + 1.0) * t + lam[2] * self._third(x)

    def _ends(self, lam: Stats) -> tuple[Array, Array, Array]:
        """The mode of t, and where the density of t has fallen by DROP nats to its left and to its right."""
        xp = ops.namespace(*lam)
        lam = tuple(ops.constant(part) for part in lam)
        zero = xp.zeros_like(lam[0] + lam[1] + lam[2])

        def rising(t: Array) -> Array:
            x = xp.exp(t)
            return lam[0] * x + lam[1] + 1.0 + lam[2] * self._third_slope(x) > 0

        mode = _bisect(rising, zero - WIDEST, zero + WIDEST)
        top = self._exponent(lam, mode)
        left = _bisect(lambda t: self._exponent(lam, t) < top - DROP, zero - WIDEST, mode)
        right = _bisect(lambda t: self._exponent(lam, t) > top - DROP, mode, zero + WIDEST)
        return mode, left, right

    def _grid(self, lam: Stats) -> tuple[Array, Array, Array]:
        """Values x [..., M], their probabilities, and A."""
        xp = ops.namespace(*lam)
        mode, left, right = self._ends(lam)
        widths = (mode - left)[..., None], (right - mode)[..., None]
        t = xp.concatenate([mode[..., None] - widths[0] * NODES, mode[..., None] + widths[1] * NODES], -1)
        log_weights = xp.log(xp.concatenate([widths[0] * WEIGHTS, widths[1] * WEIGHTS], -1))
        logs = self._exponent(tuple(part[..., None] for part in lam), t) + log_weights
        a = ops.logsumexp(logs)
        return xp.exp(t), xp.exp(logs - a[..., None]), a

    # -- the law --

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        lam = tuple(xp.asarray(part) * 1.0 for part in lam)
        x, chance, a = self._grid(lam)
        return tuple((chance * part).sum(-1) for part in (x, xp.log(x), self._third(x))), a

    def covariance(self, lam: Stats) -> NDArray[np.float64]:
        """Cov(φ) [..., 3, 3], on the same nodes."""
        x, chance, _ = self._grid(ops.align(numpy_stats(lam), self.stat_ndims))
        phi = np.stack([x, np.log(x), self._third(x)], -1)
        phi = phi - (chance[..., None] * phi).sum(-2, keepdims=True)
        return np.asarray(np.einsum("...m,...mi,...mj->...ij", chance, phi, phi))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ, on the nodes of the quadrature."""
        covariance = self.covariance(lam)

        def times(change: Stats) -> Stats:
            moved = ops.matvec(covariance, np.stack(np.broadcast_arrays(*change), -1))
            return tuple(moved[..., i] for i in range(moved.shape[-1]))

        return times

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, log x, s(x))."""
        xp = ops.namespace(value)
        x = xp.asarray(value) * 1.0
        return x, xp.log(x), self._third(x)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """The λ¹ whose mean is `value`, by bisection; the other two as they are."""
        first, second, third = ops.align(numpy_stats(lam), self.stat_ndims)
        value = np.broadcast_to(np.asarray(value, dtype=float), first.shape)
        # λ¹ = c sinh(u): both signs, from tiny to huge, in units of the value.
        low, high = np.full(first.shape, -60.0), np.where(third < 0, 60.0, -1e-9)
        for _ in range(100):
            middle = 0.5 * (low + high)
            below = self.moments((np.sinh(middle) / value, second, third))[0][0] < value
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.sinh(low) / value, second, third

    def _quantiles(self, lam: Stats) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The distribution function at points t [..., G], these points, and its slope there.

        By the trapezoid rule with the slopes of the density at both ends of a step: its error is of the fourth order.
        """
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        mode, left, right = self._ends(lam)
        # Half of the points lie within an eighth of the way: a long tail must not coarsen the middle.
        share = np.concatenate([np.linspace(0, 0.125, N_GRID // 2 + 1), np.linspace(0.125, 1, N_GRID // 2 + 1)[1:]])
        t = np.concatenate(
            [
                (mode[..., None] - (mode - left)[..., None] * share)[..., ::-1],
                mode[..., None] + (right - mode)[..., None] * share[1:],
            ],
            -1,
        )  # fmt: skip
        wide, x = tuple(part[..., None] for part in lam), np.exp(t)
        density = self._exponent(wide, t)
        density = np.exp(density - density.max(-1, keepdims=True))
        slope = density * (wide[0] * x + wide[1] + 1.0 + wide[2] * self._third_slope(x))
        width = np.diff(t, axis=-1)
        steps = 0.5 * (density[..., 1:] + density[..., :-1]) * width - width**2 * np.diff(slope, axis=-1) / 12.0
        total = np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(np.maximum(steps, 0.0), -1)], -1)
        return total / total[..., -1:], t, density / total[..., -1:]

    def _inverted(self, lam: Stats, chances: NDArray[Any]) -> NDArray[Any]:
        """The quantiles of chances [..., plates]."""
        return quantiles(_between, chances, *self._quantiles(lam))

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...], by the inverse of the distribution function on 2,049 points."""
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        return self._inverted(lam, rng.random(draws(n, lam[0].shape)))

    def var(self, lam: Stats) -> NDArray[Any]:
        """Var(x)."""
        return np.asarray(self.covariance(lam)[..., 0, 0])

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """From the distribution function on 2,049 points."""
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        return self._inverted(lam, np.full(lam[0].shape, probability))


@final
@dataclass(frozen=True)
class GammaShape(PositiveByQuadrature):
    """Gamma(shape, rate) of a number that is the shape of ``count`` Gammas, as the density of their data is: Γ(a)^(−count).

    Examples
    --------
    >>> lam = GammaShape().natural(shape=3.0, rate=2.0, count=0.0)  # nothing was read yet: a Gamma
    >>> round(float(GammaShape().mean(lam)), 12)
    1.5
    """

    name: ClassVar[str] = "GammaShape"
    support: ClassVar[Any] = "positive"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "log", "lgamma")
    params: ClassVar[tuple[Param, ...]] = (
        Param("shape", 0, "real"), Param("rate", 0, "real"), Param("count", 0, "real"),
    )  # fmt: skip

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return -usual["rate"], usual["shape"] - 1.0, -usual["count"]

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`shape`, `rate` (of any sign where count > 0) and `count`."""
        return {"shape": lam[1] + 1.0, "rate": -lam[0], "count": -lam[2]}

    def _third(self, x: Array) -> Array:
        return ops.gammaln(x)

    def _third_slope(self, x: Array) -> Array:
        return x * ops.digamma(x)

    def _inside(self, lam: Stats) -> Array:
        falls = (lam[2] < 0) | ((lam[2] == 0) & (lam[0] < 0))  # log Γ(a) grows faster than a
        return falls & (lam[1] + 1.0 - lam[2] > 0)  # Γ(a) is 1/a near 0


@final
@dataclass(frozen=True)
class HalfNormalPrecision(PositiveByQuadrature):
    """x^(power − 1) exp(−rate x − inverse_rate / x): the generalised inverse Gaussian law.

    Examples
    --------
    >>> lam = HalfNormalPrecision().natural(power=2.0, rate=4.0, inverse_rate=0.0)  # a Gamma
    >>> round(float(HalfNormalPrecision().mean(lam)), 12)
    0.5
    """

    name: ClassVar[str] = "HalfNormalPrecision"
    support: ClassVar[Any] = "positive"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "log", "inverse")
    params: ClassVar[tuple[Param, ...]] = (
        Param("power", 0, "real"), Param("rate", 0, "real"), Param("inverse_rate", 0, "real"),
    )  # fmt: skip

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return -usual["rate"], usual["power"] - 1.0, -usual["inverse_rate"]

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`power`, `rate` and `inverse_rate`."""
        return {"power": lam[1] + 1.0, "rate": -lam[0], "inverse_rate": -lam[2]}

    def _third(self, x: Array) -> Array:
        return 1.0 / x

    def proper(self, lam: Stats) -> Stats:
        """λ; where E[x] is infinite, as it is before data are read, the law that is cut off around its mode."""
        first, second, third = numpy_stats(lam)
        return np.where((first < 0) | (second < -2.0), first, 0.25 / np.minimum(third, -1e-300)), second, third

    def _third_slope(self, x: Array) -> Array:
        return -1.0 / x

    def _inside(self, lam: Stats) -> Array:
        above = (lam[0] < 0) | ((lam[0] == 0) & (lam[1] + 1.0 < 0))
        below = (lam[2] < 0) | ((lam[2] == 0) & (lam[1] + 1.0 > 0))
        return above & below


def _bisect(goes_right: Any, low: Array, high: Array) -> Array:
    """Where a condition that holds to the left ends, between two arrays; a loop of fixed length, for NumPy and JAX."""
    xp = ops.namespace(low, high)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        right = goes_right(middle)
        return xp.where(right, middle, ends[0]), xp.where(right, ends[1], middle)

    if ops.is_jax(low, high):
        from jax import lax

        low, high = lax.fori_loop(0, BISECTIONS, halve, (low, high))
    else:
        for _ in range(BISECTIONS):
            low, high = halve(0, (low, high))
    return 0.5 * (low + high)


def _between(chance: NDArray[Any], total: NDArray[Any], t: NDArray[Any], density: NDArray[Any]) -> NDArray[np.float64]:
    """Where a distribution function that is cubic between points, with these slopes there, has the values ``chance``."""
    cell = np.clip(np.searchsorted(total, chance, side="right") - 1, 0, len(t) - 2)
    width, rise = t[cell + 1] - t[cell], total[cell + 1] - total[cell]
    first, last, wanted = width * density[cell], width * density[cell + 1], chance - total[cell]
    share = np.clip(wanted / np.where(rise > 0, rise, 1.0), 0.0, 1.0)
    for _ in range(4):  # Newton's steps from the straight line, which is off by the curvature over one of 2,048 steps
        rest = share * (first + share * (3 * rise - 2 * first - last + share * (first + last - 2 * rise))) - wanted
        speed = first + share * (2 * (3 * rise - 2 * first - last) + share * 3 * (first + last - 2 * rise))
        share = np.clip(share - np.where(speed > 0, rest / np.where(speed > 0, speed, 1.0), 0.0), 0.0, 1.0)
    return np.asarray(t[cell] + share * width)
