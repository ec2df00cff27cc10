"""λ in, moments out, for probabilities: Dirichlet (concentration) and Beta (a, b).

λ = α − 1,   φ = log x,   A = Σ log Γ(α_k) − log Γ(Σ α_k),   E[log x_k] = ψ(α_k) − ψ(Σ α_k)
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

__all__ = ["Beta", "Dirichlet", "floored"]


@final
@dataclass(frozen=True)
class Dirichlet(Family):
    """Dirichlet over the simplex of K probabilities.

    Examples
    --------
    >>> lam = Dirichlet().natural(concentration=np.array([1.0, 2.0, 1.0]))
    >>> Dirichlet().mean(lam).tolist()
    [0.25, 0.5, 0.25]
    """

    name: ClassVar[str] = "Dirichlet"
    stat_names: ClassVar[tuple[str, ...]] = ("log",)
    stat_ndims: ClassVar[tuple[int, ...]] = (1,)
    symmetric: ClassVar[tuple[bool, ...]] = (False,)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (Param("concentration", 1, "positive"),)

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return (usual["concentration"] - 1.0,)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`concentration`."""
        return {"concentration": lam[0] + 1.0}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        alpha = lam[0] + 1.0
        total = alpha.sum(-1)
        elog = ops.digamma(alpha) - ops.digamma(total)[..., None]
        return (elog,), ops.gammaln(alpha).sum(-1) - ops.gammaln(total)

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] > -1).all(-1)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """Log x; log 0 = −inf, and a bound that contains it is −inf too."""
        xp = ops.namespace(value)
        with np.errstate(divide="ignore"):
            return (xp.log(xp.asarray(value) * 1.0),)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value` (floored at 1e-3 / K and normalised), total concentration of `lam`."""
        total = (lam[0] + 1.0).sum(-1)[..., None]
        return (total * floored(value) - 1.0,)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., K]."""
        return np.asarray(ops.softmax(self._log_gammas(lam, rng, n)))

    def sample_with_logs(
        self, lam: Stats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Draws and their logarithms, which are finite where a draw is 0 to rounding: below α = 0.001 most are."""
        log_gamma = self._log_gammas(lam, rng, n)
        value = np.asarray(ops.softmax(log_gamma))
        with np.errstate(divide="ignore"):
            return value, np.where(value > 0, np.log(value), log_gamma - ops.logsumexp(log_gamma)[..., None])

    def _log_gammas(self, lam: Stats, rng: np.random.Generator, n: int | None) -> NDArray[Any]:
        """Logarithms of Γ(α) draws as Γ(α + 1) · U^(1/α): for α ≪ 1 plain gammas underflow to 0 / 0."""
        alpha = numpy_stats(lam)[0] + 1.0
        shape = draws(n, alpha.shape)
        return np.asarray(np.log(rng.standard_gamma(alpha + 1.0, shape)) - rng.standard_exponential(shape) / alpha)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """α / Σ α."""
        alpha = numpy_stats(lam)[0] + 1.0
        return np.asarray(alpha / alpha.sum(-1, keepdims=True))

    def var(self, lam: Stats) -> NDArray[Any]:
        """The variance, m (1 − m) / (Σ α + 1)."""
        mean = self.mean(lam)
        total = (numpy_stats(lam)[0] + 1.0).sum(-1, keepdims=True)
        return np.asarray(mean * (1 - mean) / (total + 1))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Interval of each probability: its marginal is Beta(α_k, Σ α − α_k)."""
        alpha = numpy_stats(lam)[0] + 1.0
        rest = alpha.sum(-1, keepdims=True) - alpha
        low, high = (sp.betaincinv(alpha, rest, t) for t in tails(mass))
        return np.asarray(low), np.asarray(high)


@final
@dataclass(frozen=True)
class Beta(Family):
    """Beta over a probability, E[x] = a / (a + b).

    Examples
    --------
    >>> lam = Beta().natural(a=1.0, b=3.0)
    >>> float(Beta().mean(lam))
    0.25
    """

    name: ClassVar[str] = "Beta"
    stat_names: ClassVar[tuple[str, ...]] = ("log", "log1m")
    stat_ndims: ClassVar[tuple[int, ...]] = (0, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False)
    event_ndim: ClassVar[int] = 0
    params: ClassVar[tuple[Param, ...]] = (Param("a", 0, "positive"), Param("b", 0, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return usual["a"] - 1.0, usual["b"] - 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`a` and `b`."""
        return {"a": lam[0] + 1.0, "b": lam[1] + 1.0}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        a, b = lam[0] + 1.0, lam[1] + 1.0
        of_total = ops.digamma(a + b)
        log_beta = ops.gammaln(a) + ops.gammaln(b) - ops.gammaln(a + b)
        return (ops.digamma(a) - of_total, ops.digamma(b) - of_total), log_beta

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] > -1) & (lam[1] > -1)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(log x, log(1 − x)); log 0 = −inf."""
        xp = ops.namespace(value)
        x = xp.asarray(value) * 1.0
        with np.errstate(divide="ignore"):
            return xp.log(x), xp.log1p(-x)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value` (kept 0.5e-3 away from 0 and 1), a + b of `lam`."""
        xp = ops.namespace(value, *lam)
        total = lam[0] + lam[1] + 2.0
        pair = floored(xp.stack([xp.asarray(value), 1.0 - xp.asarray(value)], -1))
        return ops.align((total * pair[..., 0] - 1.0, total * pair[..., 1] - 1.0), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ...]."""
        p = self.usual(numpy_stats(lam))
        plates = np.broadcast_shapes(p["a"].shape, p["b"].shape)
        return np.asarray(rng.beta(p["a"], p["b"], draws(n, plates)))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """The mean, a / (a + b)."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["a"] / (p["a"] + p["b"]))

    def var(self, lam: Stats) -> NDArray[Any]:
        """The variance, m (1 − m) / (a + b + 1)."""
        p, mean = self.usual(numpy_stats(lam)), self.mean(lam)
        return np.asarray(mean * (1 - mean) / (p["a"] + p["b"] + 1))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equal-tailed interval."""
        p = self.usual(numpy_stats(lam))
        low, high = (sp.betaincinv(p["a"], p["b"], t) for t in tails(mass))
        return np.asarray(low), np.asarray(high)


def floored(probs: Array) -> Array:
    """Probabilities [..., K] floored at 1e-3 / K, then normalised: a start at 0 could never leave it.

    Examples
    --------
    >>> floored(np.array([1.0, 0.0])).round(4).tolist()
    [0.9995, 0.0005]
    """
    xp = ops.namespace(probs)
    p = xp.maximum(xp.asarray(probs), 1e-3 / probs.shape[-1])
    return p / p.sum(-1, keepdims=True)
