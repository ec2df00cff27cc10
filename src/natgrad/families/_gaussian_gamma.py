"""Define the family of Gaussian numbers and the precision of what they explain, together: `GaussianGamma`.

    q(x, τ) ∝ exp(h₀ᵀx − ½ xᵀP₀x + τ (h₁ᵀx − ½ xᵀP₁x) − r τ + (a − 1) log τ);    φ = (x, xxᵀ, τx, τxxᵀ, τ, log τ)
    λ = (h₀, −½P₀, h₁, −½P₁, −r, a − 1)

Given τ, x is Gaussian with the precision P₀ + τP₁. That is the exact posterior of coefficients and of their noise's precision
when both have priors of their own (P₀ is that of the prior), and the Normal–Gamma law, where P₀ = 0 and h₀ = 0. With x
integrated out what is left is an integral over t = log τ: Gauss–Legendre nodes in panels that are narrow at the mode. Prior
and data may disagree so much that there are two: d log f / dt = a − τ E[r(x) | τ], where r(x), what τ is multiplied with, has an
expectation that falls in τ. So τ ← a / E[r | τ] rises from below to the lowest mode, and falls from above to the highest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, ValueCovariances, draws, numpy_stats
from natgrad.families._ops import Array, Stats
from natgrad.families._quadrature import panels, quantiles

__all__ = ["GaussianGamma"]

DROP = 42.0  # nats below the mode: exp(−42) is below the last digit
FARTHEST, WIDEST = 40.0, 300.0  # how far from a first guess modes are looked for in t; the widest side
ITERATIONS, DOUBLINGS = 60, 16
RIDGE = 1e-10  # of a diagonal: more than sums of rows lose by rounding, and less than any law would notice
N_GRID = 4_096  # points of the distribution function of τ that draws and intervals invert


NODES, WEIGHTS = panels(10, 5)


class _Given(NamedTuple):
    """The law of x at some τ: mean and covariance, and the logarithm of what τ has left, a density of t = log τ."""

    tau: Array
    mean: Array
    covariance: Array
    log_density: Array


@final
@dataclass(frozen=True)
class GaussianGamma(Family):
    """Numbers x [D] that are Gaussian given a precision τ, which they do not leave alone; values are [x, τ], arrays [D + 1].

    Examples
    --------
    >>> lam = GaussianGamma().natural(
    ...     linear=np.zeros(1),
    ...     precision=np.zeros((1, 1)),
    ...     scaled_linear=np.array([2.0]),
    ...     scaled_precision=np.array([[2.0]]),
    ...     shape=3.5,
    ...     rate=7.0,
    ... )  # the Normal–Gamma law with mean 1, scale 2
    >>> GaussianGamma().mean(lam).round(9).tolist()
    [1.0, 0.5]
    """

    name: ClassVar[str] = "GaussianGamma"
    parts: ClassVar[tuple[str, ...]] = ("Normal", "MultivariateNormal", "Gamma")
    stat_names: ClassVar[tuple[str, ...]] = ("x", "xx", "tx", "txx", "t", "log")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 2, 1, 2, 0, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, True, False, True, False, False)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (
        Param("linear", 1, "real"), Param("precision", 2, "real"), Param("scaled_linear", 1, "real"),
        Param("scaled_precision", 2, "real"), Param("rate", 0, "real"), Param("shape", 0, "positive"),
    )  # fmt: skip

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (
            usual["linear"], -0.5 * usual["precision"], usual["scaled_linear"], -0.5 * usual["scaled_precision"],
            -usual["rate"], usual["shape"] - 1.0,
        )  # fmt: skip

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`linear` (h₀), `precision` (P₀), `scaled_linear` (h₁), `scaled_precision` (P₁), `rate` and `shape`."""
        return {
            "linear": lam[0], "precision": -2.0 * lam[1], "scaled_linear": lam[2], "scaled_precision": -2.0 * lam[3],
            "rate": -lam[4], "shape": lam[5] + 1.0,
        }  # fmt: skip

    # -- the integral --

    def _given(self, lam: Stats, t: Array) -> _Given:
        """X given τ = exp(t)."""
        tau = ops.namespace(t).exp(t)
        linear = lam[0] + tau[..., None] * lam[2]
        precision = -2.0 * (lam[1] + tau[..., None, None] * lam[3])
        if linear.shape[-1] == 1:
            xp, only = ops.namespace(t, *lam), precision[..., 0, 0]
            covariance, logdet = 1.0 / precision, xp.log(xp.where(only > 0, only, np.nan))
            mean = linear * covariance[..., 0]
        else:
            mean, covariance, logdet = ops.spd_solve(precision, linear)
        rest = 0.5 * ((linear * mean).sum(-1) - logdet + linear.shape[-1] * ops.LOG_2PI)
        return _Given(tau, mean, covariance, lam[4] * tau + (lam[5] + 1.0) * t + rest)

    def _rates(self, lam: Stats, t: Array) -> tuple[Array, Array]:
        """R(x) at the mean of x given τ, and what the spread of x adds to its expectation."""
        given = self._given(lam, t)
        centre = -lam[4] - (lam[2] * given.mean).sum(-1) - (ops.matvec(lam[3], given.mean) * given.mean).sum(-1)
        return centre, -ops.trace_product(lam[3], given.covariance)

    def _modes(self, lam: Stats) -> tuple[Array, Array]:
        """The lowest and the highest mode of t; near these where they are hard to tell apart."""
        xp, shape, size = ops.namespace(*lam), lam[5] + 1.0, lam[0].shape[-1]
        guess = xp.log(shape) - xp.log(xp.where(lam[4] < 0, -lam[4], 1.0))

        def below(t: Array) -> Array:
            centre, spread = self._rates(lam, t)
            least = xp.log(xp.maximum(shape - 0.5 * size, 1e-300)) - xp.log(centre)
            new = xp.fmax(xp.log(shape) - xp.log(centre + spread), least)
            return xp.where(xp.isnan(new), t + 5.0, xp.maximum(new, t))

        def above(t: Array) -> Array:
            centre, spread = self._rates(lam, t)
            new = xp.log(shape) - xp.log(centre + spread)
            return xp.where(xp.isfinite(new), xp.minimum(new, t), t - 5.0)

        low = _repeated(below, guess - FARTHEST)
        high = xp.maximum(_repeated(above, guess + FARTHEST), low)
        return low, high

    def _sides(self, lam: Stats) -> tuple[Array, Array]:
        """Where the four sides of the modes begin, and how long they are (to the left: negative): [..., 4]."""
        xp = ops.namespace(*lam)
        lam = tuple(ops.constant(part) for part in lam)
        low, high = self._modes(lam)
        top = xp.fmax(self._given(lam, low).log_density, self._given(lam, high).log_density) - DROP
        first = 4.0 / xp.sqrt(xp.maximum(lam[5] + 1.0, 0.25))

        def end(start: Array, sign: float) -> Array:
            def longer(width: Array) -> Array:
                far = self._given(lam, start + sign * width).log_density
                return xp.where(far > top, xp.minimum(2.0 * width, WIDEST), width)

            return sign * _repeated(longer, first, DOUBLINGS)

        half = 0.5 * (high - low)
        return xp.stack([low, low, high, high], -1), xp.stack([end(low, -1.0), half, -half, end(high, 1.0)], -1)

    def _grid(self, lam: Stats) -> tuple[_Given, Array, Array]:
        """X given τ at nodes [..., M], their probabilities, and A."""
        xp = ops.namespace(*lam)
        start, width = self._sides(lam)
        t = (start[..., None] + width[..., None] * NODES).reshape((*start.shape[:-1], 4 * len(NODES)))
        weights = (xp.abs(width)[..., None] * WEIGHTS).reshape(t.shape)
        given = self._given(_spread_out(lam), t)
        logs = xp.where(weights > 0, given.log_density + xp.log(xp.where(weights > 0, weights, 1.0)), -np.inf)
        a = ops.logsumexp(logs)
        return given, xp.exp(logs - a[..., None]), a

    # -- the law --

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        lam = tuple(xp.asarray(part) * 1.0 for part in lam)
        given, chance, a = self._grid(lam)
        second = given.covariance + ops.outer(given.mean, given.mean)
        scaled = chance * given.tau
        averages = [part for weight in (chance, scaled) for part in _averaged(weight, given.mean, second)]
        return (*averages, scaled.sum(-1), (chance * xp.log(given.tau)).sum(-1)), a

    def _inside(self, lam: Stats) -> Array:
        return self._inside_but_definite(lam) & ops.namespace(*lam).isfinite(ops.spd_logdet(-2.0 * (lam[1] + lam[3])))

    def _inside_but_definite(self, lam: Stats) -> Array:
        """Whether τ has a law: what it is multiplied with stays positive where τ is large."""
        xp = ops.namespace(*lam)
        guess = xp.log(xp.maximum(lam[5] + 1.0, 1e-300)) - xp.log(xp.where(lam[4] < 0, -lam[4], 1.0))
        # Fewer rows than numbers leave directions that τ does not scale: there the precision is zero, or below by rounding.
        scaled = lam[3] * (1.0 + RIDGE * np.eye(lam[3].shape[-1]))
        return (lam[5] + 1.0 > 0) & (self._rates((*lam[:3], scaled, *lam[4:]), guess + FARTHEST)[0] > 0)

    def covariance_times(self, lam: Stats) -> Callable[[Stats], Stats]:
        """Cov(φ) times a direction: the covariance given τ, and that of the conditional means."""
        given, chance, _ = self._grid(ops.align(numpy_stats(lam), self.stat_ndims))
        tau, mean, covariance = given.tau, given.mean, given.covariance
        second, log = covariance + ops.outer(mean, mean), np.log(tau)

        def times(change: Stats) -> Stats:
            wide = _spread_out(ops.align(change, self.stat_ndims))
            linear = wide[0] + tau[..., None] * wide[2]
            square = ops.symmetrise(wide[1] + tau[..., None, None] * wide[3])
            moved = ops.matvec(covariance, linear + 2.0 * ops.matvec(square, mean))
            cross = ops.outer(mean, moved)
            spread = cross + ops.transpose(cross) + 2.0 * covariance @ square @ covariance
            along = (linear * mean).sum(-1) + ops.trace_product(square, second) + wide[4] * tau + wide[5] * log
            along = along - (chance * along).sum(-1, keepdims=True)
            first, both = moved + along[..., None] * mean, spread + along[..., None, None] * second
            averages = [part for weight in (chance, chance * tau) for part in _averaged(weight, first, both)]
            return (*averages, (chance * tau * along).sum(-1), (chance * log * along).sum(-1))

        return times

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of [x, τ], which are the first and the fifth statistic."""

        def value_by(change: Stats) -> Array:
            moved = times(change)
            return np.concatenate([moved[0], moved[4][..., None]], axis=-1)

        def direction(a: Array) -> Stats:
            return a[..., :-1], *(np.zeros_like(part) for part in lam[1:4]), a[..., -1], np.zeros_like(lam[5])

        return value_by, lambda a: times(direction(a)), lambda a: value_by(direction(a))

    def value_covariance(self, lam: Stats) -> NDArray[np.float64]:
        """Cov([x, τ]) [..., D + 1, D + 1]; infinite where x has no variance."""
        given, chance, _ = self._grid(ops.align(numpy_stats(lam), self.stat_ndims))
        mean = np.concatenate([given.mean, given.tau[..., None]], axis=-1)
        away = mean - (chance[..., None] * mean).sum(-2, keepdims=True)
        covariance = np.einsum("...m,...mi,...mj->...ij", chance, away, away)
        spread = (chance[..., None, None] * given.covariance).sum(-3)
        size = given.mean.shape[-1]
        # Where the spread of x grows faster than the density of t falls, the integral has no end.
        outer = chance[..., len(NODES) - 1, None, None] * given.covariance[..., len(NODES) - 1, :, :]
        covariance[..., :size, :size] += np.where(np.abs(outer) > 1e-8 * np.abs(spread), np.inf, spread)
        return np.asarray(covariance)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, xxᵀ, τx, τxxᵀ, τ, log τ) of [..., D + 1]; log 0 = −inf."""
        xp = ops.namespace(value)
        x, tau = xp.asarray(value)[..., :-1] * 1.0, xp.asarray(value)[..., -1] * 1.0
        square = ops.outer(x, x)
        with np.errstate(divide="ignore"):
            return x, square, tau[..., None] * x, tau[..., None, None] * square, tau, xp.log(tau)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """X and τ apart, with their means at `value` [..., D + 1] and about the spread of `lam`."""
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        covariance, old = self.value_covariance(lam), self.mean(lam)[..., -1]
        value = np.asarray(value, np.float64) + np.zeros_like(lam[2][..., :1])
        shape = old**2 / covariance[..., -1, -1]
        precision = -2.0 * (lam[1] + old[..., None, None] * lam[3])
        zero = np.zeros_like(lam[2])
        return ops.align(
            (
                ops.matvec(precision, value[..., :-1]), -0.5 * precision, zero, np.zeros_like(lam[3]),
                -shape / value[..., -1], shape - 1.0,
            ),
            self.stat_ndims,
        )  # fmt: skip

    def location(self, value: Array) -> Array:
        """The numbers x of [..., D + 1]."""
        return value[..., :-1]

    def shifted(self, lam: Stats, origin: Array) -> Stats:
        """λ of [x, τ] + origin, where `lam` is that of [x, τ] and the last entry of `origin` is 0."""
        at = self.location(origin)
        first, second = (ops.matvec(lam[k], at) for k in (1, 3))
        rate = lam[4] - (lam[2] * at).sum(-1) + (second * at).sum(-1)
        return lam[0] - 2.0 * first, lam[1], lam[2] - 2.0 * second, lam[3], rate, lam[5]

    def mean(self, lam: Stats) -> NDArray[Any]:
        """[E x, E τ]."""
        mu = self.expected_stats(ops.align(numpy_stats(lam), self.stat_ndims))
        return np.concatenate([mu[0], mu[4][..., None]], axis=-1)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Marginal variances of [x, τ]."""
        return np.diagonal(self.value_covariance(lam), axis1=-2, axis2=-1).copy()

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., D + 1]: τ by the inverse of its distribution function, then x given τ."""
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        tau = self._quantile(lam, rng.random(draws(n, lam[4].shape)))
        given = self._given(lam, np.log(tau))
        noise = rng.standard_normal(given.mean.shape)
        x = given.mean + ops.matvec(np.linalg.cholesky(given.covariance), noise)
        return np.concatenate([x, tau[..., None]], axis=-1)

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any]:
        """Of the Gaussian numbers, by their precision given τ."""
        mean = self.mean(lam)
        precision = -2.0 * (lam[1] + mean[..., -1:, None] * lam[3])
        factor = ops.transpose(np.linalg.cholesky(precision / n_children[..., None, None]))
        away = np.zeros_like(mean)
        away[..., :-1] = np.linalg.solve(factor, noise(mean[..., :-1].shape)[..., None])[..., 0]
        return away

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Of marginals: of x by the distribution function of a mixture of Gaussians, one for each τ."""
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        given, chance, _ = self._grid(lam)
        sd = np.sqrt(np.diagonal(given.covariance, axis1=-2, axis2=-1))
        used = (chance > 0)[..., None]
        low, high = (np.where(used, given.mean + s * 40.0 * sd, -s * np.inf) for s in (-1.0, 1.0))
        left, right = low.min(-2), high.max(-2)
        for _ in range(80):
            middle = 0.5 * (left + right)
            below = (chance[..., None] * sp.ndtr((middle[..., None, :] - given.mean) / sd)).sum(-2) < probability
            left, right = np.where(below, middle, left), np.where(below, right, middle)
        tau = self._quantile(lam, np.full(lam[4].shape, probability))
        return np.concatenate([0.5 * (left + right), tau[..., None]], axis=-1)

    def _quantile(self, lam: Stats, chances: NDArray[Any]) -> NDArray[Any]:
        """The quantiles of τ of chances [..., plates], by the trapezoid rule on points that are dense at the modes."""
        start, width = self._sides(lam)
        share = np.linspace(0.0, 1.0, N_GRID // 4) ** 2
        t = np.sort((start[..., None] + width[..., None] * share).reshape((*start.shape[:-1], N_GRID)), axis=-1)
        density = self._given(_spread_out(lam), t).log_density
        density = np.exp(density - density.max(-1, keepdims=True))
        steps = 0.5 * (density[..., 1:] + density[..., :-1]) * np.diff(t, axis=-1)
        total = np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, -1)], -1)
        return quantiles(np.interp, chances, total / total[..., -1:], t)


def _spread_out(lam: Stats) -> Stats:
    """λ with an axis for the nodes after the plates."""
    ends = [part.ndim - ndim for part, ndim in zip(lam, GaussianGamma.stat_ndims, strict=True)]
    return tuple(part.reshape((*part.shape[:e], 1, *part.shape[e:])) for part, e in zip(lam, ends, strict=True))


def _averaged(weight: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Vectors and matrices at all nodes [..., M, D] and [..., M, D, D], added up with weights [..., M]."""
    return (weight[..., None] * first).sum(-2), (weight[..., None, None] * second).sum(-3)


def _repeated(step: Callable[[Array], Array], start: Array, limit: int = ITERATIONS) -> Array:
    """A map applied until it stands still, or so many times; a loop of fixed length for JAX."""
    if ops.is_jax(start):
        from jax import lax

        return lax.fori_loop(0, limit, lambda _, t: step(t), start)
    for _ in range(limit):
        new = step(start)
        if np.all((np.abs(new - start) < 1e-4) | np.isnan(new)):
            return new
        start = new
    return start
