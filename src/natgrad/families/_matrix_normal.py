"""λ in, moments out, for the coefficients of a regression and the precision of its noise together: `MatrixNormalWishart`.

    X | Λ ~ N(m, (V ⊗ Λ)⁻¹) of M coefficients for each of D outputs,  Λ ~ Wishart(ν, R);    φ = (XΛ, XΛXᵀ, Λ, log|Λ|)
    λ = (V m, −½V, −½(R + mᵀ V m), ½(ν − D − 1 + M))
    A = A_Wishart(ν, R) − D/2 log|V| + MD/2 log 2π

It is what y | z ~ N(Xᵀz, Λ⁻¹) is conjugate to. With a V that is diagonal the coefficients are the means of `TiedNormalWishart`,
and with M = 1 it is `NormalWishart`. A value packs both: [Xᵀ | Λ], an array [D, M + D].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Param, draws, numpy_stats
from natgrad.families._gamma import Wishart, check_dof, wishart_draws
from natgrad.families._joint import BesideWishart
from natgrad.families._ops import Array, Stats

__all__ = ["MatrixNormalWishart"]


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
