"""Define the families of means and their precision together: NormalGamma, NormalWishart, TiedNormalWishart, MatrixNormalWishart.

    NormalGamma    x | τ ~ N(m, (κτ)⁻¹), τ ~ Gamma(a, b);      φ = (τx, τx², τ, log τ)
                   λ = (κm, −½κ, −b − ½κm², a − ½)
                   A = log Γ(a) − a log b − ½ log κ + ½ log 2π
    NormalWishart  x | Λ ~ N(m, (κΛ)⁻¹), Λ ~ Wishart(ν, R);    φ = (Λx, xᵀΛx, Λ, log|Λ|)
                   λ = (κm, −½κ, −½(R + κ m mᵀ), ½(ν − D))
                   A = A_Wishart(ν, R) − D/2 log κ + D/2 log 2π
    TiedNormalWishart   M means with one precision, x_m | Λ ~ N(m_m, (κ_m Λ)⁻¹);    φ = (Λx_m, x_mᵀΛx_m, Λ, log|Λ|)
                   λ = (κ_m m_m, −½κ_m, −½(R + Σ κ_m m_m m_mᵀ), ½(ν − D − 1 + M))

A value packs both: [x, τ], an array [2], and [x | Λ], an array [D, 1 + D] with x in column 0; [x_1 … x_M | Λ] is [D, M + D].

MatrixNormalWishart has the coefficients of a regression and the precision of its noise:

    X | Λ ~ N(m, (V ⊗ Λ)⁻¹) of M coefficients for each of D outputs,  Λ ~ Wishart(ν, R);    φ = (XΛ, XΛXᵀ, Λ, log|Λ|)
    λ = (V m, −½V, −½(R + mᵀ V m), ½(ν − D − 1 + M))
    A = A_Wishart(ν, R) − D/2 log|V| + MD/2 log 2π

It is what y | z ~ N(Xᵀz, Λ⁻¹) is conjugate to. With a V that is diagonal the coefficients are the means of `TiedNormalWishart`,
and with M = 1 it is `NormalWishart`. A value packs both: [Xᵀ | Λ], an array [D, M + D].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad._jax import in_64_bits
from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, ValueCovariances, draws, numpy_stats, tails
from natgrad.families._gamma import Gamma, Wishart, check_dof, wishart_draws
from natgrad.families._ops import Array, Stats

__all__ = ["MatrixNormalWishart", "NormalGamma", "NormalWishart", "TiedNormalWishart"]


@final
@dataclass(frozen=True)
class NormalGamma(Family):
    """A scalar mean x and its precision τ; values are [x, τ].

    Examples
    --------
    >>> lam = NormalGamma().natural(mean=1.0, scale=2.0, shape=3.0, rate=6.0)
    >>> NormalGamma().mean(lam).tolist()
    [1.0, 0.5]
    """

    name: ClassVar[str] = "NormalGamma"
    stat_names: ClassVar[tuple[str, ...]] = ("tx", "txx", "t", "log")
    stat_ndims: ClassVar[tuple[int, ...]] = (0, 0, 0, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False, False, False)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (
        Param("mean", 0, "real"),
        Param("scale", 0, "positive"),
        Param("shape", 0, "positive"),
        Param("rate", 0, "positive"),
    )

    def _natural(self, usual: dict[str, Array]) -> Stats:
        mean, scale = usual["mean"], usual["scale"]
        return scale * mean, -0.5 * scale, -usual["rate"] - 0.5 * scale * mean**2, usual["shape"] - 0.5

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean`, `scale` (κ), `shape` and `rate`."""
        scale = -2.0 * lam[1]
        mean = lam[0] / scale
        return {"mean": mean, "scale": scale, "shape": lam[3] + 0.5, "rate": -lam[2] - 0.5 * lam[0] * mean}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp, p = ops.namespace(*lam), self.usual(lam)
        mean, scale, shape, rate = p["mean"], p["scale"], p["shape"], p["rate"]
        log_rate, tau = xp.log(rate), shape / rate
        a = ops.gammaln(shape) - shape * log_rate - 0.5 * xp.log(scale) + 0.5 * ops.LOG_2PI
        return (mean * tau, 1.0 / scale + mean**2 * tau, tau, ops.digamma(shape) - log_rate), a

    def _inside(self, lam: Stats) -> Array:
        p = self.usual(lam)
        return (p["scale"] > 0) & (p["shape"] > 0) & (p["rate"] > 0)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(τx, τx², τ, log τ) of [..., 2]; log 0 = −inf."""
        xp = ops.namespace(value)
        x, tau = xp.asarray(value)[..., 0], xp.asarray(value)[..., 1]
        with np.errstate(divide="ignore"):
            return tau * x, tau * x**2, tau * 1.0, xp.log(tau)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value` [..., 2], scale and shape of `lam`."""
        p, v = self.usual(lam), ops.namespace(value, *lam).asarray(value)
        usual = {"mean": v[..., 0], "scale": p["scale"], "shape": p["shape"], "rate": p["shape"] / v[..., 1]}
        return ops.align(self._natural(usual), self.stat_ndims)

    def location(self, value: Array) -> Array:
        """The mean of [..., 2]."""
        return value[..., 0]

    def shifted(self, lam: Stats, origin: Array) -> Stats:
        """λ of [x, τ] + origin, where `lam` is that of [x, τ] and the last entry of `origin` is 0."""
        usual = self.usual(lam)
        return self._natural({**usual, "mean": usual["mean"] + self.location(origin)})

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., 2]."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        shape = draws(n, p["mean"].shape)
        tau = rng.standard_gamma(p["shape"], shape) / p["rate"]
        x = p["mean"] + rng.standard_normal(shape) / np.sqrt(p["scale"] * tau)
        return np.stack([x, tau], axis=-1)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """[E x, E τ]."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        return np.stack([p["mean"], p["shape"] / p["rate"]], axis=-1)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Marginal variances; that of x is rate / (scale (shape − 1)), infinite for shape ≤ 1."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        with np.errstate(divide="ignore"):
            of_x = p["rate"] / (p["scale"] * np.maximum(p["shape"] - 1, 0.0))
        return np.stack([of_x, p["shape"] / p["rate"] ** 2], axis=-1)

    def matched_quantile(self, mean: Array, sd: Array, probability: Array, lam: Stats | None = None) -> NDArray[Any]:
        """A Gaussian for the mean, a Gamma for the precision beside it."""
        positive = Gamma().matched_quantile(mean, sd, probability)
        return np.where(np.arange(2) == 1, positive, super().matched_quantile(mean, sd, probability))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        usual = self.usual(lam)
        mean, scale, tau = usual["mean"], usual["scale"], usual["shape"] / usual["rate"]
        gamma = Gamma().covariance_times((-usual["rate"], usual["shape"] - 1.0))

        def times(change: Stats) -> Stats:
            d_scale = -2.0 * change[1]
            d_mean = (change[0] - mean * d_scale) / scale
            d_tau, d_log = gamma((change[2] + mean * (0.5 * mean * d_scale + scale * d_mean), change[3]))
            second = 2.0 * mean * tau * d_mean + mean**2 * d_tau - d_scale / scale**2
            return tau * d_mean + mean * d_tau, second, d_tau, d_log

        return times

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of [x, τ], by differentiating its mean."""
        variance = self.var(lam)
        # A variance may be infinite; what is not asked for adds nothing.
        return _value_covariances(self, lam, lambda a: np.multiply(variance, a, out=0.0 * a, where=a != 0))

    def _packed_mean(self, usual: dict[str, Array], xp: Any) -> Array:
        return xp.stack([usual["mean"], usual["shape"] / usual["rate"]], axis=-1)

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Marginal intervals: Student t with 2 · shape degrees of freedom for x, Gamma for τ."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        sd = np.sqrt(p["rate"] / (p["shape"] * p["scale"]))
        half = sp.stdtrit(2 * p["shape"], tails(mass)[1]) * sd
        low, high = Gamma().interval((-p["rate"], p["shape"] - 1.0), mass)
        return np.stack([p["mean"] - half, low], -1), np.stack([p["mean"] + half, high], -1)


@final
@dataclass(frozen=True)
class NormalWishart(Family):
    """A mean vector x [D] and its precision matrix Λ [D, D]; values are [x | Λ], arrays [D, 1 + D].

    Examples
    --------
    >>> lam = NormalWishart().natural(mean=np.zeros(2), scale=1.0, dof=4.0, rate=2.0 * np.eye(2))
    >>> NormalWishart().mean(lam).tolist()
    [[0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
    """

    name: ClassVar[str] = "NormalWishart"
    parts: ClassVar[tuple[str, ...]] = ("MultivariateNormal", "Wishart")
    stat_names: ClassVar[tuple[str, ...]] = ("tx", "txx", "t", "log")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 0, 2, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False, True, False)
    event_ndim: ClassVar[int] = 2
    params: ClassVar[tuple[Param, ...]] = (
        Param("mean", 1, "real"),
        Param("scale", 0, "positive"),
        Param("dof", 0, "positive"),
        Param("rate", 2, "spd"),
    )

    def _check_usual(self, usual: dict[str, Array]) -> None:
        check_dof(self.name, usual)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        mean, scale = usual["mean"], usual["scale"]
        scaled = scale[..., None] * mean
        rate = usual["rate"] + ops.outer(scaled, mean)
        return scaled, -0.5 * scale, -0.5 * rate, 0.5 * (usual["dof"] - mean.shape[-1])

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean`, `scale` (κ), `dof` and `rate`."""
        scale = -2.0 * lam[1]
        mean = lam[0] / scale[..., None]
        rate = -2.0 * lam[2] - ops.outer(lam[0], mean)
        return {"mean": mean, "scale": scale, "dof": 2.0 * lam[3] + lam[0].shape[-1], "rate": rate}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp, p, size = ops.namespace(*lam), self.usual(lam), lam[0].shape[-1]
        mean, scale = p["mean"], p["scale"]
        wishart = (-0.5 * p["rate"], 0.5 * (p["dof"] - size - 1))
        (precision, elog), a = Wishart().moments(wishart)
        precise_mean = ops.matvec(precision, mean)
        quadratic = size / scale + (mean * precise_mean).sum(-1)
        return (precise_mean, quadratic, precision, elog), a + 0.5 * size * (ops.LOG_2PI - xp.log(scale))

    def _inside(self, lam: Stats) -> Array:
        p = self.usual(lam)
        is_spd = ops.namespace(*lam).isfinite(ops.spd_logdet(p["rate"]))
        return is_spd & (p["scale"] > 0) & (p["dof"] > lam[0].shape[-1] - 1)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(Λx, xᵀΛx, Λ, log|Λ|) of [..., D, 1 + D]; NaN where Λ is not positive definite."""
        v = ops.namespace(value).asarray(value) * 1.0
        x, precision = v[..., 0], v[..., 1:]
        precise = ops.matvec(precision, x)
        return precise, (x * precise).sum(-1), precision, ops.spd_logdet(precision)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value` [..., D, 1 + D], scale and dof of `lam`."""
        p, v = self.usual(lam), ops.namespace(value, *lam).asarray(value) * 1.0
        rate = p["dof"][..., None, None] * ops.spd_inverse_logdet(v[..., 1:])[0]
        usual = {"mean": v[..., 0], "scale": p["scale"], "dof": p["dof"], "rate": rate}
        return ops.align(self._natural(usual), self.stat_ndims)

    def location(self, value: Array) -> Array:
        """The mean of [..., D, 1 + D]."""
        return value[..., 0]

    def shifted(self, lam: Stats, origin: Array) -> Stats:
        """λ of [x | Λ] + origin, where `lam` is that of [x | Λ] and `origin` is 0 but for its first column."""
        usual = self.usual(lam)
        return self._natural({**usual, "mean": usual["mean"] + self.location(origin)})

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., D, 1 + D]."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        precision = wishart_draws(p["dof"], p["rate"], rng, n)
        factor = np.linalg.cholesky(precision)
        noise = rng.standard_normal(draws(n, p["mean"].shape)) / np.sqrt(p["scale"])[..., None]
        x = p["mean"] + np.linalg.solve(ops.transpose(factor), noise[..., None])[..., 0]
        return np.concatenate([x[..., None], precision], axis=-1)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """[E x | E Λ]."""
        p, wishart = self._marginals(lam)
        return np.concatenate([p["mean"][..., None], Wishart().mean(wishart)], axis=-1)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Marginal variances; that of x is R_ii / (κ (ν − D − 1)), infinite for ν ≤ D + 1."""
        p, wishart = self._marginals(lam)
        freedom = (p["dof"] - p["mean"].shape[-1] - 1)[..., None]
        diagonal = np.diagonal(p["rate"], axis1=-2, axis2=-1)
        with np.errstate(divide="ignore"):
            of_x = diagonal / (p["scale"][..., None] * np.maximum(freedom, 0.0))
        return np.concatenate([of_x[..., None], Wishart().var(wishart)], axis=-1)

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any]:
        """Of the mean, by its precision given that of its children."""
        mean = self.mean(lam)
        precision = self.usual(lam)["scale"][..., None, None] * mean[..., 1:]
        factor = ops.transpose(np.linalg.cholesky(precision / n_children[..., None, None]))
        away = np.zeros_like(mean)
        away[..., 0] = np.linalg.solve(factor, noise(mean.shape[:-1])[..., None])[..., 0]
        return away

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        tied = TiedNormalWishart().covariance_times((lam[0][..., None, :], lam[1][..., None], *lam[2:]))

        def times(change: Stats) -> Stats:
            first, second, *rest = tied((change[0][..., None, :], change[1][..., None], *change[2:]))
            return first[..., 0, :], second[..., 0], *rest

        return times

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of [x | Λ], by differentiating its mean."""
        usual = self.usual(lam)
        scale = np.asarray(usual["scale"])
        return _value_covariances(
            self, lam, _own_beside_wishart(usual, 1, lambda means: means / scale[..., None, None])
        )

    def _packed_mean(self, usual: dict[str, Array], xp: Any) -> Array:
        return _packed_wishart(usual["mean"][..., None], usual, xp)

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Marginal intervals: Student t with ν − D + 1 degrees of freedom for x, those of Wishart for Λ."""
        p, wishart = self._marginals(lam)
        freedom = (p["dof"] - p["mean"].shape[-1] + 1)[..., None]
        diagonal = np.diagonal(p["rate"], axis1=-2, axis2=-1)
        half = sp.stdtrit(freedom, tails(mass)[1]) * np.sqrt(diagonal / (p["scale"][..., None] * freedom))
        low, high = Wishart().interval(wishart, mass)
        lower = np.concatenate([(p["mean"] - half)[..., None], low], axis=-1)
        return lower, np.concatenate([(p["mean"] + half)[..., None], high], axis=-1)

    def _marginals(self, lam: Stats) -> tuple[dict[str, Array], Stats]:
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        return p, (-0.5 * p["rate"], 0.5 * (p["dof"] - p["mean"].shape[-1] - 1))


@dataclass(frozen=True)
class BesideWishart(Family):
    """Vectors x_m [M, D] beside their precision Λ [D, D], packed as [x_1 … x_M | Λ]: marginal laws; abstract."""

    @abstractmethod
    def _spread(self, usual: dict[str, Array]) -> Array:
        """The variances of x given Λ = R⁻¹, [..., D, M]."""

    def mean(self, lam: Stats) -> NDArray[Any]:
        """[E x_1 … E x_M | E Λ]."""
        p, wishart = self._marginals(lam)
        return np.concatenate([ops.transpose(p["mean"]), Wishart().mean(wishart)], axis=-1)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Marginal variances; those of x are their spread / (ν − D − 1), infinite for ν ≤ D + 1."""
        p, wishart = self._marginals(lam)
        freedom = (p["dof"] - p["mean"].shape[-1] - 1)[..., None, None]
        with np.errstate(divide="ignore"):
            of_x = self._spread(p) / np.maximum(freedom, 0.0)
        return np.concatenate([of_x, Wishart().var(wishart)], axis=-1)

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Marginal intervals: Student t with ν − D + 1 degrees of freedom for each entry of x, those of Wishart for Λ."""
        p, wishart = self._marginals(lam)
        freedom = (p["dof"] - p["mean"].shape[-1] + 1)[..., None, None]
        half, mean = sp.stdtrit(freedom, tails(mass)[1]) * np.sqrt(self._spread(p) / freedom), ops.transpose(p["mean"])
        low, high = Wishart().interval(wishart, mass)
        return np.concatenate([mean - half, low], axis=-1), np.concatenate([mean + half, high], axis=-1)

    @abstractmethod
    def _times_columns(self, scale: Array) -> Callable[[Array], Array]:
        """Columns of means, multiplied by their covariances with one another."""

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of the packed value, by differentiating its mean."""
        usual = self.usual(lam)
        scale = np.asarray(usual["scale"])
        own = _own_beside_wishart(usual, scale.shape[-1], self._times_columns(scale))
        return _value_covariances(self, lam, own)

    def _packed_mean(self, usual: dict[str, Array], xp: Any) -> Array:
        return _packed_wishart(xp.swapaxes(usual["mean"], -1, -2), usual, xp)

    def _marginals(self, lam: Stats) -> tuple[dict[str, Array], Stats]:
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        return p, (-0.5 * p["rate"], 0.5 * (p["dof"] - p["mean"].shape[-1] - 1))


@final
@dataclass(frozen=True)
class TiedNormalWishart(BesideWishart):
    """Mean vectors x_m [M, D] that share a precision matrix Λ [D, D]; values are [x_1 … x_M | Λ], arrays [D, M + D].

    With D = 1 it is M scalar means with one precision.

    Examples
    --------
    >>> means = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> lam = TiedNormalWishart().natural(mean=means, scale=np.ones(3), dof=4.0, rate=2.0 * np.eye(2))
    >>> TiedNormalWishart().mean(lam).tolist()
    [[0.0, 2.0, 4.0, 2.0, 0.0], [1.0, 3.0, 5.0, 0.0, 2.0]]
    """

    name: ClassVar[str] = "TiedNormalWishart"
    stat_names: ClassVar[tuple[str, ...]] = ("tx", "txx", "t", "log")
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 1, 2, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False, True, False)
    event_ndim: ClassVar[int] = 2
    params: ClassVar[tuple[Param, ...]] = (
        Param("mean", 2, "real"),
        Param("scale", 1, "positive"),
        Param("dof", 0, "positive"),
        Param("rate", 2, "spd"),
    )

    def _check_usual(self, usual: dict[str, Array]) -> None:
        check_dof(self.name, usual)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        mean, scale = usual["mean"], usual["scale"]
        scaled, (count, size) = scale[..., None] * mean, mean.shape[-2:]
        rate = usual["rate"] + ops.transpose(scaled) @ mean
        return scaled, -0.5 * scale, -0.5 * rate, 0.5 * (usual["dof"] - size - 1 + count)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean`, `scale` (κ), `dof` and `rate`."""
        count, size = lam[0].shape[-2:]
        scale = -2.0 * lam[1]
        mean = lam[0] / scale[..., None]
        rate = -2.0 * lam[2] - ops.transpose(lam[0]) @ mean
        return {"mean": mean, "scale": scale, "dof": 2.0 * lam[3] + size + 1 - count, "rate": rate}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp, p, size = ops.namespace(*lam), self.usual(lam), lam[0].shape[-1]
        mean, scale = p["mean"], p["scale"]
        (precision, elog), a = Wishart().moments((-0.5 * p["rate"], 0.5 * (p["dof"] - size - 1)))
        precise_mean = mean @ precision
        quadratic = size / scale + (mean * precise_mean).sum(-1)
        return (precise_mean, quadratic, precision, elog), a + 0.5 * size * (ops.LOG_2PI - xp.log(scale)).sum(-1)

    def _inside(self, lam: Stats) -> Array:
        p = self.usual(lam)
        is_spd = ops.namespace(*lam).isfinite(ops.spd_logdet(p["rate"]))
        return is_spd & (p["scale"] > 0).all(-1) & (p["dof"] > lam[0].shape[-1] - 1)

    def _times_columns(self, scale: Array) -> Callable[[Array], Array]:
        return lambda means: means / scale[..., None, :]

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        usual = self.usual(lam)
        mean, scale, size = usual["mean"], usual["scale"], lam[0].shape[-1]
        natural = (-0.5 * usual["rate"], 0.5 * (usual["dof"] - size - 1))
        precision, wishart = Wishart().expected_stats(natural)[0], Wishart().covariance_times(natural)

        def times(change: Stats) -> Stats:
            d_scale = -2.0 * change[1]
            d_mean = (change[0] - mean * d_scale[..., None]) / scale[..., None]
            cross = ops.transpose(mean * scale[..., None]) @ d_mean
            outside = ops.transpose(mean * d_scale[..., None]) @ mean + cross + ops.transpose(cross)  # d Σ κ m mᵀ
            d_precision, d_log = wishart((change[2] + 0.5 * outside, change[3]))
            moved = mean @ d_precision
            second = 2.0 * ((mean @ precision) * d_mean).sum(-1) + (moved * mean).sum(-1) - size * d_scale / scale**2
            return moved + d_mean @ precision, second, d_precision, d_log

        return times

    def location(self, value: Array) -> Array:
        """The means [..., M, D] of [..., D, M + D]."""
        return ops.transpose(value[..., : -value.shape[-2]])

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(Λx_m, x_mᵀΛx_m, Λ, log|Λ|) of [..., D, M + D]; NaN where Λ is not positive definite."""
        v = ops.namespace(value).asarray(value) * 1.0
        x, precision = self.location(v), v[..., -v.shape[-2] :]
        precise = x @ precision
        return precise, (x * precise).sum(-1), precision, ops.spd_logdet(precision)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Means at `value` [..., D, M + D], scale and dof of `lam`."""
        p, v = self.usual(lam), ops.namespace(value, *lam).asarray(value) * 1.0
        rate = p["dof"][..., None, None] * ops.spd_inverse_logdet(v[..., -v.shape[-2] :])[0]
        usual = {"mean": self.location(v), "scale": p["scale"], "dof": p["dof"], "rate": rate}
        return ops.align(self._natural(usual), self.stat_ndims)

    def shifted(self, lam: Stats, origin: Array) -> Stats:
        """λ of [x | Λ] + origin, where `lam` is that of [x | Λ] and `origin` is 0 in its last D columns."""
        usual = self.usual(lam)
        return self._natural({**usual, "mean": usual["mean"] + self.location(origin)})

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., D, M + D]."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        precision = wishart_draws(p["dof"], p["rate"], rng, n)
        noise = rng.standard_normal(draws(n, p["mean"].shape)) / np.sqrt(p["scale"])[..., None]
        factor = ops.transpose(np.linalg.cholesky(precision))
        x = ops.transpose(p["mean"]) + np.linalg.solve(factor, ops.transpose(noise))
        return np.concatenate([x, precision], axis=-1)

    def _spread(self, usual: dict[str, Array]) -> Array:
        """R_ii / κ_m."""
        return np.diagonal(usual["rate"], axis1=-2, axis2=-1)[..., :, None] / usual["scale"][..., None, :]


@final
@dataclass(frozen=True)
class MatrixNormalWishart(BesideWishart):
    """Coefficients X [M, D] of a regression and the precision Λ [D, D] of its noise; values are [Xᵀ | Λ], arrays [D, M + D].

    Examples
    --------
    >>> mean = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> lam = MatrixNormalWishart().natural(mean=mean, scale=np.eye(3), dof=4.0, rate=2.0 * np.eye(2))
    >>> MatrixNormalWishart().mean(lam).tolist()
    [[0.0, 2.0, 4.0, 2.0, 0.0], [1.0, 3.0, 5.0, 0.0, 2.0]]
    """

    name: ClassVar[str] = "MatrixNormalWishart"
    stat_names: ClassVar[tuple[str, ...]] = ("tx", "txx", "t", "log")
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 2, 2, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, True, True, False)
    event_ndim: ClassVar[int] = 2
    params: ClassVar[tuple[Param, ...]] = (
        Param("mean", 2, "real"), Param("scale", 2, "spd"), Param("dof", 0, "positive"), Param("rate", 2, "spd"),
    )  # fmt: skip

    def _check_usual(self, usual: dict[str, Array]) -> None:
        check_dof(self.name, usual)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        mean, scale = usual["mean"], usual["scale"]
        scaled, (count, size) = scale @ mean, mean.shape[-2:]
        rate = usual["rate"] + ops.transpose(mean) @ scaled
        return scaled, -0.5 * scale, -0.5 * rate, 0.5 * (usual["dof"] - size - 1 + count)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean`, `scale` (V), `dof` and `rate`."""
        return self._usual(lam)[0]

    def _usual(self, lam: Stats) -> tuple[dict[str, Array], Array, Array]:
        """The usual parameters, V⁻¹ and log|V|."""
        count, size = lam[0].shape[-2:]
        scale = -2.0 * lam[1]
        inverse, logdet = ops.spd_inverse_logdet(scale)
        mean = inverse @ lam[0]
        rate = ops.symmetrise(-2.0 * lam[2] - ops.transpose(lam[0]) @ mean)
        return {"mean": mean, "scale": scale, "dof": 2.0 * lam[3] + size + 1 - count, "rate": rate}, inverse, logdet

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        count, size = lam[0].shape[-2:]
        p, inverse, logdet = self._usual(lam)
        mean = p["mean"]
        (precision, elog), a = Wishart().moments((-0.5 * p["rate"], 0.5 * (p["dof"] - size - 1)))
        precise = mean @ precision
        quadratic = ops.symmetrise(size * inverse + precise @ ops.transpose(mean))
        return (precise, quadratic, precision, elog), a + 0.5 * size * (count * ops.LOG_2PI - logdet)

    def _inside(self, lam: Stats) -> Array:
        xp = ops.namespace(*lam)
        p, _, logdet = self._usual(lam)
        return xp.isfinite(ops.spd_logdet(p["rate"])) & xp.isfinite(logdet) & (p["dof"] > lam[0].shape[-1] - 1)

    def _times_columns(self, scale: Array) -> Callable[[Array], Array]:
        between = ops.spd_inverse_logdet(scale)[0]
        return lambda means: means @ between

    def location(self, value: Array) -> Array:
        """The coefficients [..., M, D] of [..., D, M + D]."""
        return ops.transpose(value[..., : -value.shape[-2]])

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(XΛ, XΛXᵀ, Λ, log|Λ|) of [..., D, M + D]; NaN where Λ is not positive definite."""
        v = ops.namespace(value).asarray(value) * 1.0
        x, precision = self.location(v), v[..., -v.shape[-2] :]
        precise = x @ precision
        return precise, ops.symmetrise(precise @ ops.transpose(x)), precision, ops.spd_logdet(precision)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Coefficients at `value` [..., D, M + D], scale and dof of `lam`."""
        p, v = self.usual(lam), ops.namespace(value, *lam).asarray(value) * 1.0
        rate = p["dof"][..., None, None] * ops.spd_inverse_logdet(v[..., -v.shape[-2] :])[0]
        usual = {"mean": self.location(v), "scale": p["scale"], "dof": p["dof"], "rate": rate}
        return ops.align(self._natural(usual), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., D, M + D]."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        precision = wishart_draws(p["dof"], p["rate"], rng, n)
        noise = rng.standard_normal(draws(n, p["mean"].shape))
        own = np.linalg.solve(ops.transpose(np.linalg.cholesky(p["scale"])), noise)  # rows with covariance V⁻¹
        factor = ops.transpose(np.linalg.cholesky(precision))
        x = ops.transpose(p["mean"]) + np.linalg.solve(factor, ops.transpose(own))
        return np.concatenate([x, precision], axis=-1)

    def _spread(self, usual: dict[str, Array]) -> Array:
        """R_dd (V⁻¹)_mm."""
        rows = np.diagonal(ops.spd_inverse_logdet(usual["scale"])[0], axis1=-2, axis2=-1)
        return np.diagonal(usual["rate"], axis1=-2, axis2=-1)[..., :, None] * rows[..., None, :]


def _value_covariances(family: Any, lam: Stats, own: Callable[[Array], Array]) -> ValueCovariances:
    """Cov(x, φ) of a packed value by differentiating its mean; ``own`` is Cov(x, x)."""
    value, adjoint = _mean_derivatives(family)

    def value_by(change: Stats) -> Array:
        with in_64_bits():
            return np.asarray(value(lam, tuple(np.broadcast_to(c, g.shape) for c, g in zip(change, lam, strict=True))))

    def stats_by(weights: Array) -> Stats:
        with in_64_bits():
            return tuple(np.asarray(part) for part in adjoint(lam, np.asarray(weights, np.float64)))

    return value_by, stats_by, own


@lru_cache(maxsize=16)
def _mean_derivatives(family: Any) -> tuple[Callable[..., Array], Callable[..., Stats]]:
    """Cov(x, φ) dλ and Cov(φ, x) a, compiled."""
    import jax
    import jax.numpy as jnp

    def mean(lam: Stats) -> Array:
        return family._packed_mean(family.usual(family.project(lam)), jnp)

    value: Any = jax.jit(lambda lam, change: jax.jvp(mean, (lam,), (change,))[1])
    adjoint: Any = jax.jit(lambda lam, weights: jax.vjp(mean, lam)[1](weights)[0])
    return value, adjoint


def _own_beside_wishart(
    usual: dict[str, Array], width: int, spread: Callable[[Array], Array]
) -> Callable[[Array], Array]:
    """Cov(x, x) of ``width`` columns of means beside Λ, which is uncorrelated; ``spread`` multiplies by that of columns."""
    dof, rate, size = usual["dof"], usual["rate"], usual["rate"].shape[-1]
    wishart = Wishart().covariance_times((-0.5 * rate, 0.5 * (dof - size - 1)))
    freedom = np.maximum(dof - size - 1, 0.0)[..., None, None]

    def own(weights: Array) -> Array:
        means, rest = rate @ weights[..., :width], wishart((weights[..., width:], np.zeros(dof.shape)))[0]
        with np.errstate(divide="ignore"):  # a variance may be infinite; what is not asked for adds nothing
            means = np.divide(means, freedom, out=0.0 * means, where=means != 0)
        return np.concatenate([spread(means), rest], axis=-1)

    return own


def _packed_wishart(columns: Array, usual: dict[str, Array], xp: Any) -> Array:
    return xp.concatenate([columns, usual["dof"][..., None, None] * xp.linalg.inv(usual["rate"])], axis=-1)
