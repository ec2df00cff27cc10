"""Gamma and Wishart: natural parameters, moments, entropies, draws and intervals of elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, Times, draws, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["Gamma", "Wishart", "element_quantile", "wishart_draws"]

#     X_ij = ½ s [(1 + r) Q₁ − (1 − r) Q₂],   Q₁, Q₂ ~ χ²_dof,   s = √(V_ii V_jj),   r = V_ij / s,   V = rate⁻¹
#
# It follows from xy = ¼ [(x + y)² − (x − y)²]. On the diagonal r = 1, a χ². Elsewhere all cumulants are known,
#
#     κ_n(X / s) = dof (n − 1)!/2 [(1 + r)ⁿ + (−1)ⁿ (1 − r)ⁿ]
#
# and from 30 degrees of freedom on the expansion of Cornish and Fisher (1938) with six of them has tail probabilities right to
# 4e-5: large matrices have as many degrees of freedom as columns, and thousands of them take no longer than their inverse. With
# fewer, the law is integrated over the quantiles of Q₂ and inverted by Newton's method, safeguarded by bisection.

Floats = NDArray[np.float64]
# Degrees of freedom from which the expansion is right: the largest error of thirteen tails (0.0005 … 0.9995) and nine r is 9e-5
# with 20 of them, 3.3e-5 with 30 and 9e-6 with 50.
ENOUGH = 30.0
# Midpoints of the quadrature, and steps to a quantile: from the expansion a dozen is enough where no bisection is needed.
NODES, STEPS, CLOSE = 2000, 60, 1e-9


def element_quantile(dof: Array, rate: Array, probability: float) -> Floats:
    """The quantile of each element [..., D, D] of matrices with dof [...] and rate [..., D, D]."""
    v = np.asarray(ops.spd_inverse_logdet(rate)[0])
    root = np.sqrt(np.diagonal(v, axis1=-2, axis2=-1))
    scale = np.asarray(ops.outer(root, root))
    r = np.clip(v / scale, -1.0, 1.0)
    freedom = np.broadcast_to(np.asarray(dof, np.float64), v.shape[:-2])
    out = _expansion(freedom[..., None, None], r, np.asarray(probability))
    for index in zip(*np.nonzero(freedom < ENOUGH), strict=True) if freedom.ndim else [()] * int(freedom < ENOUGH):
        upper = np.triu_indices(v.shape[-1], 1)
        found = _by_quadrature(float(freedom[index]), r[index][upper], probability)
        out[index][upper] = out[index].T[upper] = found
    diagonal = np.arange(v.shape[-1])
    out[..., diagonal, diagonal] = 2.0 * sp.gammaincinv(0.5 * freedom, probability)[..., None]
    return np.asarray(scale * out)


def _expansion(dof: Any, r: Floats, probability: Any) -> Floats:
    """Quantiles of X / s by the expansion of Cornish and Fisher, with six cumulants."""
    z = sp.ndtri(probability)
    sd = np.sqrt(dof * (1.0 + r * r))
    # Cumulants of (X − E[X]) / sd: dof 2ⁿ⁻¹ (n − 1)! 2⁻ⁿ [(1 + r)ⁿ ± (1 − r)ⁿ].
    plus, minus = (1.0 + r) / sd, (1.0 - r) / sd
    c3, c4 = dof * (plus**3 - minus**3), 3.0 * dof * (plus**4 + minus**4)
    c5, c6 = 12.0 * dof * (plus**5 - minus**5), 60.0 * dof * (plus**6 + minus**6)
    z2, z3 = z * z, z**3
    z4, z5 = z2 * z2, z3 * z2
    w = z + c3 * (z2 - 1) / 6
    w = w + c4 * (z3 - 3 * z) / 24 - c3**2 * (2 * z3 - 5 * z) / 36
    w += c5 * (z4 - 6 * z2 + 3) / 120 - c3 * c4 * (z4 - 5 * z2 + 2) / 24 + c3**3 * (12 * z4 - 53 * z2 + 17) / 324
    w += c6 * (z5 - 10 * z3 + 15 * z) / 720 - c4**2 * (3 * z5 - 24 * z3 + 29 * z) / 384
    w -= c3 * c5 * (2 * z5 - 17 * z3 + 21 * z) / 180
    w += c3**2 * c4 * (14 * z5 - 103 * z3 + 107 * z) / 288 - c3**4 * (252 * z5 - 1688 * z3 + 1511 * z) / 7776
    return np.asarray(dof * r + sd * w)


def _by_quadrature(dof: float, r: Floats, probability: float) -> Floats:
    """Quantiles of X / s for some correlations [n]: tail probabilities right to 1e-4."""
    half, turned = 0.5 * dof, r < 0.0
    # −X has the correlation −r: the part that is integrated out is the smaller one, so that the rest is smooth in it.
    r, wanted = np.abs(r), np.where(turned, 1.0 - probability, probability)
    nodes = 2.0 * sp.gammaincinv(half, (np.arange(NODES) + 0.5) / NODES)
    plus, minus = 0.5 * (1.0 + r), 0.5 * (1.0 - r)
    low, high = -minus * nodes[-1] - 1.0, plus * nodes[-1] + 1.0
    x = np.clip(_expansion(dof, r, wanted), low, high)
    constant = sp.gammaln(half) + half * np.log(2.0)
    for _ in range(STEPS):
        reach = np.maximum((x[:, None] + minus[:, None] * nodes) / plus[:, None], 0.0)
        above = sp.gammainc(half, 0.5 * reach).mean(-1) - wanted
        if np.abs(above).max(initial=0.0) < CLOSE:
            break
        low, high = np.where(above < 0, x, low), np.where(above > 0, x, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.exp((half - 1.0) * np.log(reach) - 0.5 * reach - constant).mean(-1) / plus
            new = x - above / slope
        x = np.where((new > low) & (new < high), new, 0.5 * (low + high))
    return np.where(turned, -x, x)


# Gamma    λ = (−rate, shape − 1),          φ = (x, log x)
#          A = log Γ(shape) − shape · log rate
# Wishart  λ = (−½ rate, (dof − D − 1)/2),  φ = (X, log|X|)
#          A = dof D/2 · log 2 − dof/2 · log|rate| + log Γ_D(dof/2)

_LOG_2 = float(np.log(2.0))


@final
@dataclass(frozen=True)
class Gamma(Family):
    """Gamma with E[x] = shape / rate.

    Examples
    --------
    >>> lam = Gamma().natural(shape=3.0, rate=2.0)
    >>> float(Gamma().mean(lam))
    1.5
    """

    name: ClassVar[str] = "Gamma"
    sampler: ClassVar[str | None] = "GAMMA"
    support: ClassVar[Any] = "positive"
    is_precision: ClassVar[bool] = True
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x", "log")
    params: ClassVar[tuple[Param, ...]] = (Param("shape", 0, "positive"), Param("rate", 0, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return -usual["rate"], usual["shape"] - 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`shape` and `rate`."""
        return {"shape": lam[1] + 1.0, "rate": -lam[0]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        shape, rate = lam[1] + 1.0, -lam[0]
        log_rate = ops.namespace(*lam).log(rate)
        return (shape / rate, ops.digamma(shape) - log_rate), ops.gammaln(shape) - shape * log_rate

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] < 0) & (lam[1] > -1)

    def proper(self, lam: Stats) -> Stats:
        """λ, with shape and rate 1 where it is improper."""
        first, second = numpy_stats(lam)
        good = (first < 0) & (second > -1)
        return np.where(good, first, -1.0), np.where(good, second, 0.0)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, log x); log 0 = −inf."""
        xp = ops.namespace(value)
        x = xp.asarray(value) * 1.0
        with np.errstate(divide="ignore"):
            return x, xp.log(x)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`, shape of `lam`."""
        return ops.align((-(lam[1] + 1.0) / value, lam[1]), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...]."""
        p = self._parameters(lam)
        return np.asarray(rng.standard_gamma(p["shape"], draws(n, p["shape"].shape)) / p["rate"])

    def mean(self, lam: Stats) -> NDArray[Any]:
        """The mean, shape / rate."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["shape"] / p["rate"])

    def var(self, lam: Stats) -> NDArray[Any]:
        """The variance, shape / rate²."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["shape"] / p["rate"] ** 2)

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any]:
        """By factors."""
        mean = self.mean(lam)
        return np.asarray(mean * np.expm1(0.5 * noise(mean.shape)))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        shape, rate = lam[1] + 1.0, -lam[0]
        curved = sp.polygamma(1, shape)

        def times(change: Stats) -> Stats:
            return (change[1] + shape * change[0] / rate) / rate, curved * change[1] + change[0] / rate

        return times

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Exact."""
        p = self._parameters(lam)
        return np.asarray(sp.gammaincinv(p["shape"], probability) / p["rate"])


@final
@dataclass(frozen=True)
class Wishart(Family):
    """Wishart of D×D matrices with E[X] = dof · rate⁻¹, dof > D − 1.

    Examples
    --------
    >>> lam = Wishart().natural(dof=5.0, rate=2.0 * np.eye(2))
    >>> Wishart().mean(lam).tolist()
    [[2.5, 0.0], [0.0, 2.5]]
    """

    name: ClassVar[str] = "Wishart"
    support: ClassVar[Any] = "positive"
    is_precision: ClassVar[bool] = True
    covariance_broadcasts: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x", "log")
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (True, False)
    event_ndim: ClassVar[int] = 2
    params: ClassVar[tuple[Param, ...]] = (Param("dof", 0, "positive"), Param("rate", 2, "spd"))

    def _check_usual(self, usual: dict[str, Array]) -> None:
        check_dof(self.name, usual)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        size = usual["rate"].shape[-1]
        return -0.5 * usual["rate"], 0.5 * (usual["dof"] - size - 1)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`dof` and `rate`."""
        return {"dof": 2.0 * lam[1] + lam[0].shape[-1] + 1, "rate": -2.0 * lam[0]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        p, size = self.usual(lam), lam[0].shape[-1]
        dof = p["dof"]
        inverse, logdet = ops.spd_inverse_logdet(p["rate"])
        elog = ops.multidigamma(dof / 2, size) + size * _LOG_2 - logdet
        a = 0.5 * dof * (size * _LOG_2 - logdet) + ops.multigammaln(dof / 2, size)
        return (dof[..., None, None] * inverse, elog), a

    def _inside(self, lam: Stats) -> Array:
        return ops.namespace(*lam).isfinite(ops.spd_logdet(-2.0 * lam[0])) & self._inside_but_definite(lam)

    def _inside_but_definite(self, lam: Stats) -> Array:
        # dof > D − 1 is λ₂ > −1, whatever D.
        return lam[1] > -1

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(X, log|X|); NaN for a matrix that is not positive definite."""
        x = ops.namespace(value).asarray(value) * 1.0
        return x, ops.spd_logdet(x)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`, dof of `lam`."""
        dof = self.usual(lam)["dof"]
        inverse = ops.spd_inverse_logdet(ops.namespace(value, *lam).asarray(value) * 1.0)[0]
        return ops.align((-0.5 * dof[..., None, None] * inverse, lam[1]), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., D, D]."""
        p = self._parameters(lam)
        return wishart_draws(p["dof"], p["rate"], rng, n)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Elementwise variance, dof · (V_ij² + V_ii V_jj), V = rate⁻¹."""
        p = self.usual(numpy_stats(lam))
        v = ops.spd_inverse_logdet(p["rate"])[0]
        diagonal = np.diagonal(v, axis1=-2, axis2=-1)
        return np.asarray(p["dof"][..., None, None] * (v**2 + ops.outer(diagonal, diagonal)))

    def matched_quantile(self, mean: Array, sd: Array, probability: Array, lam: Stats | None = None) -> NDArray[Any]:
        """Elements on the diagonal are Gammas, others are taken for Gaussian."""
        positive = super().matched_quantile(mean, sd, probability)
        return np.where(np.eye(mean.shape[-1], dtype=bool), positive, mean + sd * sp.ndtri(probability))

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ."""
        size = lam[0].shape[-1]
        dof = 2.0 * lam[1] + size + 1
        inverse = ops.spd_inverse_logdet(-2.0 * lam[0])[0]
        curved = sp.polygamma(1, 0.5 * (dof[..., None] - np.arange(size))).sum(-1)

        def times(change: Stats) -> Stats:
            moved = inverse @ ops.symmetrise(change[0])  # half of −R⁻¹ dR
            more = 2.0 * change[1]
            value = more[..., None, None] * inverse + 2.0 * dof[..., None, None] * moved @ inverse
            return value, curved * change[1] + 2.0 * np.trace(moved, axis1=-2, axis2=-1)

        return times

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """Of every element, from its marginal: tails right to 1e-4."""
        p = self._parameters(lam)
        return element_quantile(p["dof"], p["rate"], probability)


def check_dof(family: str, usual: dict[str, Array]) -> None:
    """Raise at the first dof that is not above D − 1."""
    dof, size = np.asarray(usual["dof"]), usual["rate"].shape[-1]
    if (dof <= size - 1).any():
        index = np.unravel_index(int(np.argmax(dof <= size - 1)), dof.shape)
        where = f"[{', '.join(str(int(i)) for i in index)}]" if index else ""
        raise ValueError(f"{family}: dof{where} = {dof[index]:g} must be > D − 1 = {size - 1}.")


def wishart_draws(dof: Array, rate: Array, rng: np.random.Generator, n: int | None) -> NDArray[Any]:
    """Wishart samples by Bartlett's decomposition X = (L B)(L B)ᵀ, with rate⁻¹ = L Lᵀ.

    Parameters
    ----------
    dof : array [...]
    rate : array [..., D, D]
    """
    size = rate.shape[-1]
    shape = draws(n, dof.shape)
    bartlett = np.tril(rng.standard_normal((*shape, size, size)), -1)
    halves = 0.5 * (dof[..., None] - np.arange(size))
    index = np.arange(size)
    bartlett[..., index, index] = np.sqrt(2.0 * rng.standard_gamma(halves, (*shape, size)))
    root = np.linalg.cholesky(ops.spd_inverse_logdet(rate)[0]) @ bartlett
    return np.asarray(root @ ops.transpose(root))
