"""λ in, moments out: how a known count is shared out among the parts of a sum of Poissons.

If y = Σ_k s_k with independent s_k ~ Poisson(r_k), then given y the shares are Multinomial(y, r / Σ r):

    λ = (log weights [K], y),  φ = (s, 0),  base measure Π 1/s_k!  on  Σ_k s_k = y
    A = y log Σ_k exp λ_k − log y!,  E[s_k] = y softmax(λ)_k

y is a setting: it travels in λ so that each element has its own, and its statistic is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, draws, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["Shares"]


@final
@dataclass(frozen=True)
class Shares(Family):
    """Multinomial(count, probs) with a known count; the entropy is relative to the base measure Π 1/s_k!.

    Examples
    --------
    >>> Shares().mean(Shares().natural(probs=np.array([0.25, 0.75]), count=8.0)).tolist()
    [2.0, 6.0]
    """

    name: ClassVar[str] = "Shares"
    settings: ClassVar[tuple[str, ...]] = ("count",)
    stat_names: ClassVar[tuple[str, ...]] = ("x", "count")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (Param("probs", 1, "simplex"), Param("count", 0, "real"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return ops.namespace(usual["probs"]).log(usual["probs"]), usual["count"] * 1.0

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`probs` and `count`."""
        return {"probs": ops.softmax(lam[0]), "count": lam[1]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        count = ops.constant(lam[1])
        total = ops.logsumexp(lam[0])
        shares = count[..., None] * ops.namespace(*lam).exp(lam[0] - total[..., None])
        return (shares, ops.zeros(lam[1])), count * total - ops.gammaln(count + 1.0)

    def _inside(self, lam: Stats) -> Array:
        return lam[1] >= 0

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(s, 0)."""
        x = ops.namespace(value).asarray(value) * 1.0
        return x, ops.zeros(x[..., 0])

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Shares in proportion to `value`, floored at a thousandth of an equal share."""
        xp = ops.namespace(value, *lam)
        x = xp.asarray(value) * 1.0
        floor = 1e-3 * (x.mean(-1, keepdims=True) + (x.sum(-1, keepdims=True) == 0))
        return xp.log(xp.maximum(x, floor)) + ops.zeros(lam[0]), lam[1]

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Whole numbers [n, ..., K] that sum to the count."""
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        probs = p["probs"] / p["probs"].sum(-1, keepdims=True)
        return np.asarray(rng.multinomial(np.round(p["count"]).astype(np.int64), probs, draws(n, p["count"].shape)))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """Count · probs."""
        return np.asarray(self.expected_stats(numpy_stats(lam))[0])

    def var(self, lam: Stats) -> NDArray[Any]:
        """Elementwise variance, count · p (1 − p)."""
        p = self.usual(numpy_stats(lam))
        return np.asarray(p["count"][..., None] * p["probs"] * (1.0 - p["probs"]))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Of each share: smallest counts whose cumulative probabilities reach the two tails; holds at least `mass`."""
        from scipy import stats

        from natgrad.families._family import tails

        p = self.usual(numpy_stats(lam))
        low, high = (np.asarray(stats.binom.ppf(t, p["count"][..., None], p["probs"])) for t in tails(mass))
        return low, high
