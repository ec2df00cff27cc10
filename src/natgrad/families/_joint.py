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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, ValueCovariances, draws, numpy_stats
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
        p = self._parameters(lam)
        shape = draws(n, p["mean"].shape)
        tau = rng.standard_gamma(p["shape"], shape) / p["rate"]
        x = p["mean"] + rng.standard_normal(shape) / np.sqrt(p["scale"] * tau)
        return np.stack([x, tau], axis=-1)

    def _matrices(self, lam: Stats) -> Stats:
        """λ of the same law as that of a matrix [1, 1]."""
        first, second, third, fourth = ops.align(numpy_stats(lam), self.stat_ndims)
        return first[..., None], second, third[..., None, None], fourth

    def mean(self, lam: Stats) -> NDArray[Any]:
        """[E x, E τ]."""
        p = self._parameters(lam)
        return np.stack([p["mean"], p["shape"] / p["rate"]], axis=-1)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Marginal variances; that of x is rate / (scale (shape − 1)), infinite for shape ≤ 1."""
        return NormalWishart().var(self._matrices(lam))[..., 0, :]

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Of the marginals: Student t with 2 · shape degrees of freedom for x, Gamma for τ."""
        return NormalWishart().quantile(self._matrices(lam), probability)[..., 0, :]

    def matched_quantile(self, mean: Array, sd: Array, probability: Array, lam: Stats | None = None) -> NDArray[Any]:
        """A Gaussian for the mean, a Gamma for the precision beside it."""
        positive = Gamma().matched_quantile(mean, sd, probability)
        return np.where(np.arange(2) == 1, positive, super().matched_quantile(mean, sd, probability))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        of_matrices = NormalWishart().covariance_times(self._matrices(lam))

        def times(change: Stats) -> Stats:
            first, second, third, fourth = of_matrices(self._matrices(change))
            return first[..., 0], second, third[..., 0, 0], fourth

        return times

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of [x, τ], by differentiating its mean."""
        variance = self.var(lam)
        # A variance may be infinite; what is not asked for adds nothing.
        own = lambda a: np.multiply(variance, a, out=0.0 * a, where=a != 0)  # noqa: E731
        return *self._differentiated("_packed_mean", lam), own

    def _packed_mean(self, lam: Stats) -> Array:
        usual = self.usual(lam)
        return ops.namespace(*lam).stack([usual["mean"], usual["shape"] / usual["rate"]], axis=-1)


class BesideWishart(Family):
    """Vectors x_1 … x_M beside the precision matrix Λ [D, D] that they share, packed as [x_1 … x_M | Λ]; abstract.

    What is written here is for means [M, D] that are independent given Λ, whose scales κ [M] are the diagonal of V.
    """

    stat_names: ClassVar[tuple[str, ...]] = ("tx", "txx", "t", "log")
    symmetric: ClassVar[tuple[bool, ...]] = (False, False, True, False)
    event_ndim: ClassVar[int] = 2

    # -- means of one kind --

    def _columns(self, mean: Array) -> Array:
        """The means as columns [D, M], and back."""
        return ops.transpose(mean)

    def _rows(self, columns: Array) -> Array:
        return ops.transpose(columns)

    def _count(self, mean: Array) -> int:
        return int(mean.shape[-2])

    def _weighted(self, scale: Array, mean: Array) -> Array:
        """V x."""
        return scale[..., None] * mean

    def _solved(self, scale: Array, linear: Array) -> tuple[Array, Array, Array]:
        """V⁻¹ linear, V⁻¹ and log|V|."""
        return linear / scale[..., None], 1.0 / scale, ops.namespace(scale).log(scale).sum(-1)

    def _outer(self, first: Array, second: Array) -> Array:
        """Σ_m of products of two rows, [D, D]."""
        return ops.transpose(first) @ second

    def _times(self, mean: Array, precision: Array) -> Array:
        return mean @ precision

    def _inner(self, first: Array, second: Array) -> Array:
        """The products of rows of means, like V."""
        return (first * second).sum(-1)

    def _variances(self, scale: Array) -> Array:
        """The diagonal of V⁻¹, [M]."""
        return 1.0 / scale

    def _spread(self, scale: Array) -> Callable[[Array], Array]:
        """Columns [D, M], multiplied by V⁻¹."""
        variances = self._variances(scale)[..., None, :]
        return lambda columns: columns * variances

    def _noise(self, noise: Array, scale: Array) -> Array:
        """Standard normal numbers, given the covariance V⁻¹."""
        return noise / np.sqrt(scale)[..., None]

    # -- the law --

    def _check_usual(self, usual: dict[str, Array]) -> None:
        check_dof(self.name, usual)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        mean, size = usual["mean"], usual["mean"].shape[-1]
        scaled = self._weighted(usual["scale"], mean)
        rate = usual["rate"] + self._outer(scaled, mean)
        return scaled, -0.5 * usual["scale"], -0.5 * rate, 0.5 * (usual["dof"] - size - 1 + self._count(mean))

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean`, `scale` (κ or V), `dof` and `rate`."""
        return self._usual(lam)[0]

    def _usual(self, lam: Stats) -> tuple[dict[str, Array], Array, Array]:
        """The usual parameters, V⁻¹ and log|V|."""
        scale = -2.0 * lam[1]
        mean, inverse, logdet = self._solved(scale, lam[0])
        rate = -2.0 * lam[2] - self._outer(lam[0], mean)
        dof = 2.0 * lam[3] + lam[0].shape[-1] + 1 - self._count(lam[0])
        return {"mean": mean, "scale": scale, "dof": dof, "rate": rate}, inverse, logdet

    def _wishart(self, usual: dict[str, Array]) -> Stats:
        """λ of Λ alone."""
        return -0.5 * usual["rate"], 0.5 * (usual["dof"] - usual["rate"].shape[-1] - 1)

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        p, inverse, logdet = self._usual(lam)
        mean, size = p["mean"], lam[0].shape[-1]
        (precision, elog), a = Wishart().moments(self._wishart(p))
        precise = self._times(mean, precision)
        quadratic = size * inverse + self._inner(precise, mean)
        return (precise, quadratic, precision, elog), a + 0.5 * size * (self._count(mean) * ops.LOG_2PI - logdet)

    def _inside(self, lam: Stats) -> Array:
        xp = ops.namespace(*lam)
        p, _, logdet = self._usual(lam)
        return xp.isfinite(ops.spd_logdet(p["rate"])) & xp.isfinite(logdet) & (p["dof"] > lam[0].shape[-1] - 1)

    # -- values --

    def location(self, value: Array) -> Array:
        """The means of [..., D, M + D]."""
        return self._rows(value[..., : -value.shape[-2]])

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(Λx, xᵀΛx, Λ, log|Λ|) of [..., D, M + D]; NaN where Λ is not positive definite."""
        v = ops.namespace(value).asarray(value) * 1.0
        x, precision = self.location(v), v[..., -v.shape[-2] :]
        precise = self._times(x, precision)
        return precise, self._inner(precise, x), precision, ops.spd_logdet(precision)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Means at `value` [..., D, M + D], scale and dof of `lam`."""
        p, v = self.usual(lam), ops.namespace(value, *lam).asarray(value) * 1.0
        rate = p["dof"][..., None, None] * ops.spd_inverse_logdet(v[..., -v.shape[-2] :])[0]
        return ops.align(self._natural({**p, "mean": self.location(v), "rate": rate}), self.stat_ndims)

    def shifted(self, lam: Stats, origin: Array) -> Stats:
        """λ of [x | Λ] + origin, where `lam` is that of [x | Λ] and `origin` is 0 in its last D columns."""
        usual = self.usual(lam)
        return self._natural({**usual, "mean": usual["mean"] + self.location(origin)})

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., D, M + D]."""
        p = self._parameters(lam)
        precision = wishart_draws(p["dof"], p["rate"], rng, n)
        noise = self._noise(rng.standard_normal(draws(n, p["mean"].shape)), p["scale"])
        factor = ops.transpose(np.linalg.cholesky(precision))
        x = self._columns(p["mean"]) + np.linalg.solve(factor, self._columns(noise))
        return np.concatenate([x, precision], axis=-1)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """[E x_1 … E x_M | E Λ]."""
        p = self._parameters(lam)
        return np.concatenate([self._columns(p["mean"]), Wishart().mean(self._wishart(p))], axis=-1)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Marginal variances; those of x are R_dd (V⁻¹)_mm / (ν − D − 1), infinite for ν ≤ D + 1."""
        p = self._parameters(lam)
        freedom = (p["dof"] - p["rate"].shape[-1] - 1)[..., None, None]
        with np.errstate(divide="ignore"):
            of_x = self._width(p) / np.maximum(freedom, 0.0)
        return np.concatenate([of_x, Wishart().var(self._wishart(p))], axis=-1)

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Of the marginals: Student t with ν − D + 1 degrees of freedom for each entry of x, those of Wishart for Λ."""
        p = self._parameters(lam)
        freedom = (p["dof"] - p["rate"].shape[-1] + 1)[..., None, None]
        of_x = self._columns(p["mean"]) + sp.stdtrit(freedom, probability) * np.sqrt(self._width(p) / freedom)
        return np.concatenate([of_x, Wishart().quantile(self._wishart(p), probability)], axis=-1)

    def _width(self, usual: dict[str, Array]) -> Array:
        """R_dd (V⁻¹)_mm, [..., D, M]."""
        rows = np.diagonal(usual["rate"], axis1=-2, axis2=-1)
        return rows[..., :, None] * self._variances(usual["scale"])[..., None, :]

    # -- covariances --

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Of the packed value, by differentiating its mean; means are uncorrelated with Λ."""
        usual = self.usual(lam)
        dof, rate, spread = usual["dof"], usual["rate"], self._spread(np.asarray(usual["scale"]))
        wishart, size = Wishart().covariance_times(self._wishart(usual)), rate.shape[-1]
        freedom = np.maximum(dof - size - 1, 0.0)[..., None, None]

        def own(weights: Array) -> Array:
            means, rest = rate @ weights[..., :-size], wishart((weights[..., -size:], np.zeros(dof.shape)))[0]
            with np.errstate(divide="ignore"):  # a variance may be infinite; what is not asked for adds nothing
                means = np.divide(means, freedom, out=0.0 * means, where=means != 0)
            return np.concatenate([spread(means), rest], axis=-1)

        return *self._differentiated("_packed_mean", lam), own

    def _packed_mean(self, lam: Stats) -> Array:
        xp, usual = ops.namespace(*lam), self.usual(lam)
        precision = usual["dof"][..., None, None] * xp.linalg.inv(usual["rate"])
        return xp.concatenate([self._columns(usual["mean"]), precision], axis=-1)


@final
@dataclass(frozen=True)
class NormalWishart(BesideWishart):
    """A mean vector x [D] and its precision matrix Λ [D, D]; values are [x | Λ], arrays [D, 1 + D].

    Examples
    --------
    >>> lam = NormalWishart().natural(mean=np.zeros(2), scale=1.0, dof=4.0, rate=2.0 * np.eye(2))
    >>> NormalWishart().mean(lam).tolist()
    [[0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
    """

    name: ClassVar[str] = "NormalWishart"
    parts: ClassVar[tuple[str, ...]] = ("MultivariateNormal", "Wishart")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 0, 2, 0)
    params: ClassVar[tuple[Param, ...]] = (
        Param("mean", 1, "real"),
        Param("scale", 0, "positive"),
        Param("dof", 0, "positive"),
        Param("rate", 2, "spd"),
    )

    def _columns(self, mean: Array) -> Array:
        return mean[..., None]

    def _rows(self, columns: Array) -> Array:
        return columns[..., 0]

    def _count(self, mean: Array) -> int:
        return 1

    def _solved(self, scale: Array, linear: Array) -> tuple[Array, Array, Array]:
        return linear / scale[..., None], 1.0 / scale, ops.namespace(scale).log(scale)

    def _outer(self, first: Array, second: Array) -> Array:
        return ops.outer(first, second)

    def _times(self, mean: Array, precision: Array) -> Array:
        return ops.matvec(precision, mean)

    def _variances(self, scale: Array) -> Array:
        return 1.0 / scale[..., None]

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
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 1, 2, 0)
    params: ClassVar[tuple[Param, ...]] = (
        Param("mean", 2, "real"),
        Param("scale", 1, "positive"),
        Param("dof", 0, "positive"),
        Param("rate", 2, "spd"),
    )

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
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 2, 2, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, True, True, False)
    params: ClassVar[tuple[Param, ...]] = (
        Param("mean", 2, "real"), Param("scale", 2, "spd"), Param("dof", 0, "positive"), Param("rate", 2, "spd"),
    )  # fmt: skip

    def _weighted(self, scale: Array, mean: Array) -> Array:
        return scale @ mean

    def _solved(self, scale: Array, linear: Array) -> tuple[Array, Array, Array]:
        inverse, logdet = ops.spd_inverse_logdet(scale)
        return inverse @ linear, inverse, logdet

    def _outer(self, first: Array, second: Array) -> Array:
        return ops.symmetrise(ops.transpose(first) @ second)

    def _inner(self, first: Array, second: Array) -> Array:
        return ops.symmetrise(first @ ops.transpose(second))

    def _variances(self, scale: Array) -> Array:
        return np.diagonal(ops.spd_inverse_logdet(scale)[0], axis1=-2, axis2=-1)

    def _spread(self, scale: Array) -> Callable[[Array], Array]:
        between = ops.spd_inverse_logdet(scale)[0]
        return lambda columns: columns @ between

    def _noise(self, noise: Array, scale: Array) -> Array:
        return np.linalg.solve(ops.transpose(np.linalg.cholesky(scale)), noise)
