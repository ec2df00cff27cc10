"""Slow twins of the rating kernels: the definitions, element by element, in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "naive_rows",
    "naive_vector_errors",
    "naive_vector_sweep",
    "naive_vector_target",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]
Pair = tuple[Floats, Floats]


def naive_rows(keys: Ints, n_rows: int) -> list[Ints]:
    """For each row, the positions of its ratings."""
    return [np.flatnonzero(keys == row) for row in range(n_rows)]


def naive_vector_target(
    own: Ints, other: Ints, values: Floats, weights: Floats, n_rows: int, others: Pair, prior: float, tau: float
) -> Pair:
    """η̃ + Σ weight · message of every row, for full covariances."""
    size = others[0].shape[1]
    lam, half = np.zeros((n_rows, size)), np.tile(-0.5 * prior * np.eye(size), (n_rows, 1, 1))
    for i, j, value, weight in zip(own, other, values, weights, strict=True):
        lam[i] += weight * tau * value * others[0][j]
        half[i] -= 0.5 * weight * tau * others[1][j]
    return lam, half


def naive_vector_sweep(
    own: Ints, other: Ints, values: Floats, lam: Pair, others: Pair, prior: float, tau: float, rho: float
) -> tuple[Pair, Pair]:
    """λ and moments of one side after its update, for full covariances."""
    target = naive_vector_target(own, other, values, np.ones(len(own)), len(lam[0]), others, prior, tau)
    new = ((1 - rho) * lam[0] + rho * target[0], (1 - rho) * lam[1] + rho * target[1])
    covariance = np.linalg.inv(-2 * new[1])
    mean = (covariance @ new[0][..., None])[..., 0]
    return new, (mean, covariance + mean[:, :, None] * mean[:, None, :])


def naive_vector_errors(own: Ints, other: Ints, values: Floats, mine: Pair, others: Pair) -> Floats:
    """Σ E[(r − u·v)²] of each row of the own side, for full covariances."""
    errors = np.zeros(len(mine[0]))
    for i, j, value in zip(own, other, values, strict=True):
        errors[i] += value**2 - 2 * value * mine[0][i] @ others[0][j] + (mine[1][i] * others[1][j]).sum()
    return errors
