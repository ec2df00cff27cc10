"""Slow twins of the rating kernels: the definitions, element by element, in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "naive_errors",
    "naive_rows",
    "naive_sweep",
    "naive_sweep_jointly",
    "naive_target",
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


def naive_target(
    own: Ints, other: Ints, values: Floats, weights: Floats, mean: Floats, others: Pair, prior: float, tau: float
) -> Pair:
    """η̃ + Σ weight · message of every factor, each with all other factors as they are."""
    lam, half = np.zeros_like(mean), np.full_like(mean, -0.5 * prior)
    for i, j, value, weight in zip(own, other, values, weights, strict=True):
        for k in range(mean.shape[1]):
            rest = value - sum(mean[i, h] * others[0][j, h] for h in range(mean.shape[1]) if h != k)
            lam[i, k] += weight * tau * others[0][j, k] * rest
            half[i, k] -= 0.5 * weight * tau * others[1][j, k]
    return lam, half


def naive_sweep(
    own: Ints, other: Ints, values: Floats, lam: Pair, mean: Floats, others: Pair, prior: float, tau: float, rho: float
) -> tuple[Pair, Pair]:
    """λ and moments of one side after each factor was updated in turn."""
    new, mean = (lam[0].copy(), lam[1].copy()), mean.copy()
    second = np.empty_like(mean)
    for k in range(mean.shape[1]):
        target = naive_target(own, other, values, np.ones(len(own)), mean, others, prior, tau)
        for part, wanted in zip(new, target, strict=True):
            part[:, k] = (1 - rho) * part[:, k] + rho * wanted[:, k]
        mean[:, k] = new[0][:, k] / (-2 * new[1][:, k])
        second[:, k] = mean[:, k] ** 2 + 1 / (-2 * new[1][:, k])
    return new, (mean, second)


def naive_sweep_jointly(
    own: Ints, other: Ints, values: Floats, n_rows: int, others: Pair, prior: float, tau: float
) -> tuple[Pair, Pair]:
    """λ and moments of one side with the best means of each row, given that q is factorised."""
    size = others[0].shape[1]
    mean, precision = np.zeros((n_rows, size)), np.zeros((n_rows, size))
    for row, places in enumerate(naive_rows(own, n_rows)):
        v = others[0][other[places]]
        matrix = tau * v.T @ v
        precision[row] = prior + tau * others[1][other[places]].sum(0)
        np.fill_diagonal(matrix, precision[row])
        mean[row] = np.linalg.solve(matrix, tau * v.T @ values[places])
    return (precision * mean, -0.5 * precision), (mean, mean**2 + 1 / precision)


def naive_errors(own: Ints, other: Ints, values: Floats, mine: Pair, others: Pair) -> Floats:
    """Σ E[(r − u·v)²] of each row of the own side."""
    errors = np.zeros(len(mine[0]))
    for i, j, value in zip(own, other, values, strict=True):
        residual = value - mine[0][i] @ others[0][j]
        spread = mine[1][i] * others[1][j] - mine[0][i] ** 2 * others[0][j] ** 2
        errors[i] += residual**2 + spread.sum()
    return errors


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
