"""λ in, moments out, for a coin with the indicators of both its sides: Binary.

    φ = ([x = 1], [x = 0]),   A = log(e^λ₁ + e^λ₀)   (overcomplete: λ + c is the same law)

A `Bernoulli` has one statistic, so that what belongs to 0 is written 1 − x. Where a probability is 0, and its logarithm a number
of 10¹⁰⁰, such a difference has no digits left; here each side has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, draws, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["Binary"]


@final
@dataclass(frozen=True)
class Binary(Family):
    """0 or 1 with P(1) = prob, which may be 0 or 1: λ may hold one −inf.

    Examples
    --------
    >>> lam = Binary().natural(prob=0.25)
    >>> [round(float(m), 6) for m in Binary().expected_stats(lam)]
    [0.25, 0.75]
    """

    name: ClassVar[str] = "Binary"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "rest")
    stat_ndims: ClassVar[tuple[int, ...]] = (0, 0)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False)
    event_ndim: ClassVar[int] = 0
    params: ClassVar[tuple[Param, ...]] = (Param("prob", 0, "probability"),)
    allows_minus_inf: ClassVar[bool] = True

    def _natural(self, usual: dict[str, Array]) -> Stats:
        xp = ops.namespace(usual["prob"])
        return xp.log(usual["prob"]), xp.log1p(-usual["prob"])

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`prob`."""
        return {"prob": self._moments(lam)[0][0]}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        top = xp.maximum(lam[0], lam[1])
        safe = xp.where(xp.isfinite(top), top, 0.0)
        one, zero = xp.exp(lam[0] - safe), xp.exp(lam[1] - safe)
        total = one + zero
        return (one / total, zero / total), safe + xp.log(total)

    def _inside(self, lam: Stats) -> Array:
        return (lam[0] > -np.inf) | (lam[1] > -np.inf)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x, 1 − x) as floats."""
        x = ops.namespace(value).asarray(value) * 1.0
        return x, 1.0 - x

    def centred(self, value: Array, lam: Stats) -> Stats:
        """P(1) = 0.9 or 0.1 for integers and booleans; floats are P(1) itself, 1e-3 away from 0 and 1."""
        xp = ops.namespace(value, *lam)
        x = xp.asarray(value)
        prob = xp.clip(x * 1.0 if x.dtype.kind == "f" else 0.1 + 0.8 * x, 1e-3, 1 - 1e-3)
        return xp.log(prob) + ops.zeros(lam[0]), xp.log1p(-prob) + ops.zeros(lam[1])

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Integers [n, ...]."""
        p = self.mean(lam)
        return np.asarray((rng.random(draws(n, p.shape)) < p).astype(int))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """P(1)."""
        return np.asarray(self.expected_stats(numpy_stats(lam))[0])

    def var(self, lam: Stats) -> NDArray[Any]:
        """Variance p (1 − p)."""
        p = self.mean(lam)
        return np.asarray(p * (1 - p))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """An interval of a 0/1 value says nothing: raises."""
        raise TypeError("Binary has no useful interval. Use mean() for the probability of 1.")
