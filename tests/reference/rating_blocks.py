"""The definitions that `blocks`, `top_items` and `counts` compute fast, written as slowly as they read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["naive_moments", "naive_shares", "naive_target", "naive_top"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]


def naive_moments(user: Pair, item: Pair, i: int, j: int, biased: bool) -> tuple[float, float]:
    """Mean and variance of u·v + b + c: of x̂ · ŷ with x̂ = (u, b, 1) and ŷ = (v, 1, c)."""
    mean, second = _with_one(user[0][i], user[1][i], -1 if biased else None)
    other, other_second = _with_one(item[0][j], item[1][j], -2 if biased else None)
    value = float(mean @ other)
    return value, float(np.sum(second * other_second)) - value**2


def naive_target(
    pairs: list[tuple[int, int, float, float]], row: int, other: Pair, biased: bool
) -> tuple[Floats, Floats]:
    """Σ weight E[(r − c) a] and Σ weight E[a aᵀ], a = (v, 1), over (own, other, rating, weight) of one row."""
    size = other[0].shape[1]
    linear, matrix = np.zeros(size), np.zeros((size, size))
    for own, j, rating, weight in pairs:
        if own != row:
            continue
        mean, second = _with_one(other[0][j], other[1][j], -2 if biased else None)
        linear += weight * (rating * mean[:size] - (second[:size, -1] if biased else 0.0))
        matrix += weight * second[:size, :size]
    return linear, matrix


def naive_top(scores: Floats, seen: set[int], n: int) -> list[int]:
    """The n best unseen items."""
    order = sorted((-score, item) for item, score in enumerate(scores) if item not in seen)
    return [item for _, item in order[:n]]


def naive_shares(users: Any, items: Any, counts: Any, user_log: Floats, item_log: Floats) -> tuple[Floats, float]:
    """Σ_n r_n φ_nk of each user, and Σ_n r_n log Σ_k exp(E[log θ] + E[log β])."""
    out, total = np.zeros_like(user_log), 0.0
    for i, j, count in zip(users, items, counts, strict=True):
        weight = np.exp(user_log[i] + item_log[j])
        out[i] += count * weight / weight.sum()
        total += count * float(np.log(weight.sum()))
    return out, total


def _with_one(mean: Floats, second: Floats, place: int | None) -> Pair:
    """Moments of a vector with a known 1 put in, at the end (−1) or before the last number (−2)."""
    if place is None:
        return mean, second
    where = len(mean) if place == -1 else len(mean) - 1
    longer = np.insert(mean, where, 1.0)
    matrix = np.insert(np.insert(second, where, mean, axis=0), where, longer, axis=1)
    return longer, matrix
