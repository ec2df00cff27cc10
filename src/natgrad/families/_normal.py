"""Define the two Gaussian families: Normal (mean, precision) and MultivariateNormal.

λ = (Λ m, −½ Λ),   φ = (x, x xᵀ),   A = ½ mᵀ Λ m − ½ log|Λ| + D/2 · log 2π
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, draws, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["MultivariateNormal", "Normal"]


@final
@dataclass(frozen=True)
class Normal(Family):
    """Gaussian of a scalar, N(mean, precision⁻¹).

    Examples
    --------
    >>> lam = Normal().natural(mean=2.0, precision=4.0)
    >>> [float(g) for g in lam]
    [8.0, -2.0]
    >>> [float(m) for m in Normal().expected_stats(lam)]
    [2.0, 4.25]
    """

    name: ClassVar[str] = "Normal"
    sampler: ClassVar[str | None] = "NORMAL"
    is_gaussian: ClassVar[bool] = True
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x", "xx")
    params: ClassVar[tuple[Param, ...]] = (Param("mean", 0, "real"), Param("precision", 0, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        mean, precision = usual["mean"], usual["precision"]
        return mean * precision, -0.5 * precision

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean` and `precision`."""
        precision = -2.0 * lam[1]
        return {"mean": lam[0] / precision, "precision": precision}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        precision = -2.0 * lam[1]
        mean = lam[0] / precision
        a = 0.5 * (lam[0] * mean - ops.namespace(*lam).log(precision) + ops.LOG_2PI)
        return (mean, mean**2 + 1.0 / precision), a

    def _moments_entropy(self, lam: Stats) -> tuple[Stats, Array]:
        # A and ⟨λ, μ⟩ have the square of the mean in them, which leaves no digits where it is 10⁸ standard deviations.
        precision = -2.0 * lam[1]
        mean = lam[0] / precision
        entropy = 0.5 * (1.0 + ops.LOG_2PI - ops.namespace(*lam).log(precision)) + 0.0 * lam[0]
        return (mean, mean**2 + 1.0 / precision), entropy

    def _kl(self, lam: Stats, other: Stats) -> Array:
        ratio, away = other[1] / lam[1], lam[0] / (-2.0 * lam[1]) - other[0] / (-2.0 * other[1])
        return 0.5 * (ratio - 1.0 - ops.namespace(*lam, *other).log(ratio)) - other[1] * away**2

    def _inside(self, lam: Stats) -> Array:
        return (lam[1] < 0) & ops.namespace(*lam).isfinite(lam[0])

    def _inside_but_finite(self, lam: Stats) -> Array:
        return True

    def proper(self, lam: Stats) -> Stats:
        """λ, with precision 1 where it has none."""
        first, second = numpy_stats(lam)
        return first, np.where(second < 0, second, -0.5)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, x²)."""
        x = ops.namespace(value).asarray(value) * 1.0
        return x, x**2

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`, precision of `lam`."""
        return ops.align((-2.0 * lam[1] * value, lam[1]), self.stat_ndims)

    def shifted(self, lam: Stats, origin: Array) -> Stats:
        """λ of x + origin, where `lam` is that of x."""
        return lam[0] - 2.0 * lam[1] * origin, lam[1]

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...]."""
        mean, sd = self.mean(lam), np.sqrt(self.var(lam))
        return np.asarray(mean + sd * rng.standard_normal(draws(n, mean.shape)))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """The mean."""
        g = numpy_stats(lam)
        return np.asarray(g[0] / (-2.0 * g[1]))

    def var(self, lam: Stats) -> NDArray[Any]:
        """1 / precision."""
        g = numpy_stats(lam)
        return np.asarray(1.0 / (-2.0 * g[1]) + 0.0 * g[0])

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any]:
        """Standard deviations of q, were there one child."""
        return np.asarray(np.sqrt(n_children * self.var(lam)) * noise(self.mean(lam).shape))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        variance = 1.0 / (-2.0 * lam[1])
        mean = lam[0] * variance

        def times(change: Stats) -> Stats:
            moved = variance * (change[0] + 2.0 * mean * change[1])
            return moved, 2.0 * mean * moved + 2.0 * variance**2 * change[1]

        return times


@final
@dataclass(frozen=True)
class MultivariateNormal(Family):
    """Gaussian of a vector of length D, N(mean, precision⁻¹).

    Examples
    --------
    >>> lam = MultivariateNormal().natural(mean=np.array([1.0, 0.0]), precision=2.0 * np.eye(2))
    >>> lam[0].tolist(), lam[1].tolist()
    ([2.0, 0.0], [[-1.0, -0.0], [-0.0, -1.0]])
    """

    name: ClassVar[str] = "MultivariateNormal"
    is_gaussian: ClassVar[bool] = True
    covariance_broadcasts: ClassVar[bool] = True
    parts: ClassVar[tuple[str, ...]] = ("Normal", "MultivariateNormal")
    stat_names: ClassVar[tuple[str, ...]] = ("x", "xx")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 2)
    symmetric: ClassVar[tuple[bool, ...]] = (False, True)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (Param("mean", 1, "real"), Param("precision", 2, "spd"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        mean, precision = usual["mean"], usual["precision"]
        return ops.matvec(precision, mean), -0.5 * precision

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean` and `precision`."""
        precision = -2.0 * lam[1]
        return {"mean": ops.spd_solve(precision, lam[0])[0], "precision": precision}

    def _solved(self, lam: Stats) -> tuple[Array, Array, Array]:
        return ops.spd_solve(-2.0 * lam[1], lam[0])

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        mean, covariance, logdet = self._solved(lam)
        a = 0.5 * ((lam[0] * mean).sum(-1) - logdet + lam[0].shape[-1] * ops.LOG_2PI)
        return (mean, covariance + ops.outer(mean, mean)), a

    def _moments_entropy(self, lam: Stats) -> tuple[Stats, Array]:
        mean, covariance, logdet = self._solved(lam)
        # As for a Normal: without the square of the mean, whose error grows with the condition of Λ besides.
        entropy = 0.5 * (lam[0].shape[-1] * (1.0 + ops.LOG_2PI) - logdet) + 0.0 * lam[0].sum(-1)
        return (mean, covariance + ops.outer(mean, mean)), entropy

    def _kl(self, lam: Stats, other: Stats) -> Array:
        precision = -2.0 * other[1]
        (mean, covariance, logdet), (other_mean, _, other_logdet) = self._solved(lam), self._solved(other)
        away = mean - other_mean
        spread = (precision * covariance).sum((-1, -2)) - lam[0].shape[-1]
        return 0.5 * (spread + logdet - other_logdet + (away * ops.matvec(precision, away)).sum(-1))

    def _inside(self, lam: Stats) -> Array:
        return ops.namespace(*lam).isfinite(ops.spd_logdet(-2.0 * lam[1]))

    def proper(self, lam: Stats) -> Stats:
        """λ, with the identity added to a precision that is not definite."""
        first, second = numpy_stats(lam)
        with np.errstate(all="ignore"):
            bad = ~self._inside((first, second))
        return first, second - 0.5 * bad[..., None, None] * np.eye(first.shape[-1])

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, x xᵀ)."""
        x = ops.namespace(value).asarray(value) * 1.0
        return x, ops.outer(x, x)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`, precision of `lam`."""
        x = ops.namespace(value, *lam).asarray(value)
        return ops.align((ops.matvec(-2.0 * lam[1], x), lam[1]), self.stat_ndims)

    def shifted(self, lam: Stats, origin: Array) -> Stats:
        """λ of x + origin, where `lam` is that of x."""
        return lam[0] - 2.0 * ops.matvec(lam[1], origin), lam[1]

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., D]."""
        mean = self.mean(lam)
        # x = m + L⁻ᵀ ε with Λ = L Lᵀ: no need for the covariance.
        factor = np.linalg.cholesky(-2.0 * numpy_stats(lam)[1])
        noise = rng.standard_normal(draws(n, mean.shape))
        return np.asarray(mean + np.linalg.solve(ops.transpose(factor), noise[..., None])[..., 0])

    def var(self, lam: Stats) -> NDArray[Any]:
        """Marginal variances, the diagonal of the covariance [..., D]."""
        g = numpy_stats(lam)
        covariance = ops.spd_inverse_logdet(-2.0 * g[1])[0]
        return np.asarray(np.diagonal(covariance, axis1=-2, axis2=-1) + 0.0 * g[0])

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any]:
        """A draw of the spread of q, were there one child."""
        factor = ops.transpose(np.linalg.cholesky(-2.0 * lam[1] / n_children[..., None, None]))
        return np.asarray(np.linalg.solve(factor, noise(lam[0].shape)[..., None])[..., 0])

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        covariance = ops.spd_inverse_logdet(-2.0 * lam[1])[0]
        mean = ops.matvec(covariance, lam[0])

        def times(change: Stats) -> Stats:
            second = ops.symmetrise(change[1])
            moved = ops.matvec(covariance, change[0] + 2.0 * ops.matvec(second, mean))
            cross = ops.outer(mean, moved)
            return moved, cross + ops.transpose(cross) + 2.0 * covariance @ second @ covariance

        return times
