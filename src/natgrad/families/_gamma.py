"""λ in, moments out, for positive quantities: Gamma (shape, rate) and Wishart (dof, rate).

Gamma    λ = (−rate, shape − 1),          φ = (x, log x)
         A = log Γ(shape) − shape · log rate
Wishart  λ = (−½ rate, (dof − D − 1)/2),  φ = (X, log|X|)
         A = dof D/2 · log 2 − dof/2 · log|rate| + log Γ_D(dof/2)
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
from natgrad.families._wishart_elements import element_quantile

__all__ = ["Gamma", "Wishart", "wishart_draws"]

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
    stat_names: ClassVar[tuple[str, ...]] = ("x", "log")
    stat_ndims: ClassVar[tuple[int, ...]] = (0, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False)
    event_ndim: ClassVar[int] = 0
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
        p = self.usual(numpy_stats(lam))
        plates = np.broadcast_shapes(p["shape"].shape, p["rate"].shape)
        return np.asarray(rng.standard_gamma(p["shape"], draws(n, plates)) / p["rate"])

    def mean(self, lam: Stats) -> NDArray[Any]:
        """The mean, shape / rate."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["shape"] / p["rate"])

    def var(self, lam: Stats) -> NDArray[Any]:
        """The variance, shape / rate²."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["shape"] / p["rate"] ** 2)

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equal-tailed interval."""
        p = self.usual(numpy_stats(lam))
        low, high = (sp.gammaincinv(p["shape"], t) / p["rate"] for t in tails(mass))
        return np.asarray(low), np.asarray(high)


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
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        return wishart_draws(p["dof"], p["rate"], rng, n)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """The mean, dof · rate⁻¹."""
        return np.asarray(self.expected_stats(numpy_stats(lam))[0])

    def var(self, lam: Stats) -> NDArray[Any]:
        """Elementwise variance, dof · (V_ij² + V_ii V_jj), V = rate⁻¹."""
        p = self.usual(numpy_stats(lam))
        v = ops.spd_inverse_logdet(p["rate"])[0]
        diagonal = np.diagonal(v, axis1=-2, axis2=-1)
        return np.asarray(p["dof"][..., None, None] * (v**2 + ops.outer(diagonal, diagonal)))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equal-tailed interval of every element, from its marginal: tails right to 1e-4."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        low, high = (element_quantile(p["dof"], p["rate"], t) for t in tails(mass))
        return low, high


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
