"""λ in, moments out, for probabilities by stick-breaking: `Sticks`.

Sticks     π_k = v_k Π_{j<k} (1 − v_j) with independent v_k ~ Beta(a_k, b_k), k < K, and v_K = 1 (a generalised Dirichlet law)
           φ = (log π [K], log R [K]),  R_k = Π_{j≤k} (1 − v_j), the last of them not used
           a_k − 1 = λ¹_k,   b_k − 1 = Σ_{j>k} λ¹_j + Σ_{j≥k} λ²_j,   A = Σ_k log B(a_k, b_k)
           A child that counts categories adds its counts to λ¹: the same message that a Dirichlet gets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._family import Family, Param, draws, numpy_stats, tails
from natgrad.families._ops import Array, Stats

__all__ = ["Sticks"]


@final
@dataclass(frozen=True)
class Sticks(Family):
    """Probabilities of K categories by stick-breaking with Beta(a_k, b_k); the last a and b are not used, and are 1.

    Examples
    --------
    >>> ones = np.ones(3)
    >>> Sticks().mean(Sticks().natural(a=ones, b=ones)).tolist()
    [0.5, 0.25, 0.25]
    """

    name: ClassVar[str] = "Sticks"
    stat_names: ClassVar[tuple[str, ...]] = ("log", "rest")
    stat_ndims: ClassVar[tuple[int, ...]] = (1, 1)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (Param("a", 1, "positive"), Param("b", 1, "positive"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        xp = ops.namespace(*usual.values())
        first = usual["a"] - 1.0
        # b_k − 1 = Σ_{j>k} λ¹_j + Σ_{j≥k} λ²_j: differences of neighbours give λ².
        beyond = usual["b"] - 1.0
        following = xp.concatenate([beyond[..., 1:-1], xp.zeros_like(first[..., :1])], -1)
        carried = xp.concatenate([first[..., 1:-1], first[..., -1:]], -1)
        rest = beyond[..., :-1] - following - carried
        return first, xp.concatenate([rest, xp.zeros_like(first[..., :1])], -1)

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`a` and `b` of each stick; the last are those of a stick that is taken whole."""
        xp = ops.namespace(*lam)
        first, rest = lam
        following = _after(xp, first) - first
        is_last = np.arange(first.shape[-1]) == first.shape[-1] - 1
        beyond = following + _after(xp, xp.where(is_last, 0.0, rest))
        return {"a": 1.0 + first, "b": 1.0 + xp.where(is_last, 0.0, beyond)}

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        p = self.usual(lam)
        is_last = np.arange(lam[0].shape[-1]) == lam[0].shape[-1] - 1
        a, b = (xp.where(is_last, 1.0, part) for part in (p["a"], p["b"]))
        both = ops.digamma(a + b)
        taken, left = (xp.where(is_last, 0.0, ops.digamma(part) - both) for part in (a, b))
        rest = xp.cumsum(left, -1)
        beta = ops.gammaln(a) + ops.gammaln(b) - ops.gammaln(a + b)
        return (taken + rest - left, xp.where(is_last, 0.0, rest)), xp.where(is_last, 0.0, beta).sum(-1)

    def _inside(self, lam: Stats) -> Array:
        p = self.usual(lam)
        return (p["a"][..., :-1] > 0).all(-1) & (p["b"][..., :-1] > 0).all(-1)

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(log π, log R); log 0 = −inf."""
        xp = ops.namespace(value)
        x = xp.asarray(value) * 1.0
        left = xp.concatenate(
            [_after(xp, x)[..., 1:], xp.ones_like(x[..., :1])], -1
        )  # Σ_{j>k} π_j, without a difference
        with np.errstate(divide="ignore"):
            return xp.log(x), xp.log(left)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`, each stick with the concentration a + b that it has."""
        x = np.maximum(np.asarray(value, dtype=float), 1e-9)
        x = x / x.sum(-1, keepdims=True)
        p = self.usual(numpy_stats(lam))
        remaining = np.flip(np.cumsum(np.flip(x, -1), -1), -1)
        share = np.clip(x / remaining, 1e-6, 1 - 1e-6)
        total = p["a"] + p["b"]
        is_last = np.arange(x.shape[-1]) == x.shape[-1] - 1
        a, b = (np.where(is_last, 1.0, part) for part in (share * total, (1 - share) * total))
        return ops.align(self._natural({"a": a, "b": b}), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws [n, ..., K]."""
        a, b = self._pairs(lam)
        shape = (*draws(n, a.shape[:-1]), a.shape[-1])
        first, second = rng.standard_gamma(a, shape), rng.standard_gamma(b, shape)
        # v and 1 − v each by themselves: a difference from 1 would have no digits left.
        return _broken(first / (first + second), second / (first + second))

    def mean(self, lam: Stats) -> NDArray[Any]:
        """E[π_k] = E[v_k] Π_{j<k} E[1 − v_j]."""
        a, b = self._pairs(lam)
        return _broken(a / (a + b), b / (a + b))

    def var(self, lam: Stats) -> NDArray[Any]:
        """E[π_k²] − E[π_k]², from the second moments of the sticks."""
        a, b = self._pairs(lam)
        both = (a + b) * (a + b + 1.0)
        return np.asarray(_broken(a * (a + 1.0) / both, b * (b + 1.0) / both) - self.mean(lam) ** 2)

    def value_covariances(self, lam: Stats) -> tuple[Any, Any, Any]:
        """Cov(π, φ) dλ, Cov(φ, π) a and Cov(π, π) a as functions of dλ or a: π is no statistic, its logarithm is.

        From the first two moments of the sticks: m = E[v], and E[π_k] = m_k Π_{j<k} (1 − m_j).
        """
        a, b = self._pairs(lam)
        total, mean, one = a + b, self.mean(lam), np.ones((*a.shape[:-1], 1))
        twice, none = total * (total + 1.0), 0.0 * one
        # E[v], E[v²], E[v (1 − v)] and Π_{j<k} E[(1 − v_j)²]; the last stick is taken whole.
        m, square = (np.concatenate([part, one], -1) for part in (a / total, a * (a + 1.0) / twice))
        both = np.concatenate([a * b / twice, none], -1)
        left = np.concatenate([one, np.cumprod(b * (b + 1.0) / twice, -1)], -1)

        def value_by(change: Stats) -> NDArray[Any]:
            beyond = _after(np, change[0])[..., 1:] + _after(np, change[1][..., :-1])
            moved = (b * change[0][..., :-1] - a * beyond) / total  # (a + b) dm
            before = np.concatenate([none, -np.cumsum(moved / b, -1)], -1)
            return np.asarray(mean * (np.concatenate([moved / a, none], -1) + before))

        def stats_by(weights: Array) -> Stats:
            of = mean * np.asarray(weights, np.float64)
            by_m = of[..., :-1] / a - _after(np, of)[..., 1:] / b
            by_b = np.concatenate([none, -np.cumsum(by_m * a / total, -1)], -1)
            by_a = np.concatenate([by_m * b / total, none], -1)
            return by_a + by_b, np.concatenate([by_b[..., 1:], none], -1)

        def own(weights: Array) -> NDArray[Any]:
            w = np.broadcast_to(np.asarray(weights, np.float64), mean.shape)
            out = left * square * w - mean * (mean * w).sum(-1, keepdims=True)
            before = after = np.zeros(
                mean.shape[:-1]
            )  # of the sticks before k; of those after k, given that one comes there
            for k in range(mean.shape[-1]):
                out[..., k] += m[..., k] * before
                before = (1.0 - m[..., k]) * before + left[..., k] * both[..., k] * w[..., k]
            for k in reversed(range(mean.shape[-1])):
                out[..., k] += left[..., k] * both[..., k] * after
                after = (1.0 - m[..., k]) * after + m[..., k] * w[..., k]
            return np.asarray(out)

        return value_by, stats_by, own

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Equal-tailed interval of each probability, from 20,000 draws."""
        low, high = np.quantile(self.sample(lam, np.random.default_rng(0), 20_000), tails(mass), axis=0)
        return low, high

    def _pairs(self, lam: Stats) -> tuple[NDArray[Any], NDArray[Any]]:
        p = self.usual(ops.align(numpy_stats(lam), self.stat_ndims))
        return p["a"][..., :-1], p["b"][..., :-1]


def _after(xp: Any, x: Array) -> Array:
    """Σ_{j≥k} x_j along the last axis."""
    return xp.flip(xp.cumsum(xp.flip(x, -1), -1), -1)


def _broken(taken: NDArray[Any], left: NDArray[Any]) -> NDArray[Any]:
    """taken_k Π_{j<k} left_j, with a last stick that is taken whole."""
    one = np.ones((*taken.shape[:-1], 1))
    return np.asarray(np.concatenate([one, np.cumprod(left, -1)], -1) * np.concatenate([taken, one], -1))
