"""The natural step λ ← (1 − ρ) λ + ρ λ^temp, in the one place where it is written.

Fused kernels, which blend while they sum, are tested against it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["blend", "distance", "over_events", "relative_change", "size_of"]

Stats = tuple[Any, ...]
# Numbers that are subtracted at a time: what the cache holds.
PIECE = 2**16


def over_events(rho: Any, event_ndim: int) -> Any:
    """ρ of each element as an array that broadcasts over the axes of an event; a single number stays one."""
    return rho.reshape(rho.shape + (1,) * event_ndim) if event_ndim and getattr(rho, "ndim", 0) else rho


def blend(lam: Stats, target: Stats, rho: Any, stat_ndims: tuple[int, ...] | None = None) -> Stats:
    """(1 − ρ) λ + ρ λ^temp; ρ is a number, or an array with one for each element, then ``stat_ndims`` says what an event is.

    Works on arrays of NumPy and of JAX, traced ones too.

    Examples
    --------
    >>> blend((np.array([0.0, 4.0]),), (np.array([2.0, 8.0]),), np.array([0.5, 0.25]), (0,))
    (array([1., 5.]),)
    """
    if isinstance(rho, (int, float)) and rho == 1.0:
        return target
    rates = [rho] * len(lam) if stat_ndims is None else [over_events(rho, ndim) for ndim in stat_ndims]
    return tuple((1.0 - r) * old + r * new for r, old, new in zip(rates, lam, target, strict=True))


def relative_change(old: Stats, new: Stats) -> float:
    """‖Δλ‖ / ‖λ‖ of NumPy arrays."""
    return math.sqrt(_squared_distance(old, new) / (sum(map(_square, old)) + 1e-300))


def distance(old: Stats, new: Stats) -> float:
    """‖Δλ‖, piece by piece: the difference of large arrays is never there as a whole."""
    return math.sqrt(_squared_distance(old, new))


def size_of(lam: Stats) -> float:
    """‖λ‖; never zero, so that one can divide by it."""
    return math.sqrt(sum(map(_square, lam)) + 1e-300)


def _squared_distance(old: Stats, new: Stats) -> float:
    total = 0.0
    for a, b in zip(map(np.asarray, new), map(np.asarray, old), strict=True):
        if a.size <= PIECE:
            total += _square(a - b)
            continue
        if a.strides != b.strides:
            a, b = (np.ascontiguousarray(part) for part in np.broadcast_arrays(a, b))
        first, second = np.ravel(a, order="K"), np.ravel(b, order="K")
        total += sum(_square(first[n : n + PIECE] - second[n : n + PIECE]) for n in range(0, first.size, PIECE))
    return total


def _square(array: Any) -> float:
    """Σ x², without a copy in any order of the axes."""
    flat = np.ravel(array, order="K")
    return float(np.dot(flat, flat))
