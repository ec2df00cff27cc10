"""Slow twins of the kernels that remember messages: what each edge keeps, and a row's answer summed from the beginning."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["naive_answer", "naive_read", "naive_sums"]

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


def naive_read(
    positions: Ints, others: Ints, means: Floats, precisions: Floats, kept: Singles, seen: Bools, over: float
) -> None:
    """Write the other side's mean and variance into ``kept`` [edges, 2, K], edge by edge; beyond the mean if ``over`` > 1."""
    for edge in positions:
        new = means[others[edge]]
        if seen[edge]:
            new = new + (over - 1.0) * (new - kept[edge, 0].astype(np.float64))
        kept[edge, 0] = new
        kept[edge, 1] = 1.0 / precisions[others[edge]]
        seen[edge] = True


def naive_sums(
    row: int, start: Ints, values: Floats, kept: Singles, seen: Bools, held: Floats, noise: float
) -> tuple[Floats, Floats, Floats]:
    """Σ m mᵀ, Σ var and Σ r m of one row; each unread edge holds its share of what the row started with."""
    size = kept.shape[2]
    cross, spread, pull = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    degree = start[row + 1] - start[row]
    for edge in range(start[row], start[row + 1]):
        mean, variance = kept[edge].astype(np.float64)
        if seen[edge]:
            cross += np.outer(mean, mean)
            spread += variance
            pull += values[edge] * mean
        else:
            pull += held[row] / (noise * degree)
    return cross, spread, pull


def naive_answer(cross: Floats, spread: Floats, pull: Floats, prior: float, noise: float) -> tuple[Floats, Floats]:
    """Means and precisions of a row of scalars, from its sums."""
    size = len(pull)
    matrix = prior * np.eye(size) + noise * (cross + np.diag(spread))
    mean: Floats = np.linalg.solve(matrix, noise * pull).astype(np.float64)
    return mean, np.diag(matrix).copy()
