"""As `natgrad.kernels.ratings`, with one Gaussian for each row: q = Π q(u_i) Π q(v_j), full K × K covariances.

    λ_i = (Λ m, −½ Λ),   Λ_i = α I + τ Σ_n E[v vᵀ],   (Λ m)_i = τ Σ_n r_n E[v]
    Σ_n E[(r_n − u·v)²] = Σ_n r_n² − 2 E[u]ᵀ Σ_n r_n E[v] + ⟨E[u uᵀ], Σ_n E[v vᵀ]⟩

Matrices are [rows, K, K]. A chunk of rows owns its part of every output.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from natgrad.kernels._njit import parallel_kernel, serial_kernel

__all__ = ["expected_errors", "full_target", "moments", "sampled_target", "sweep_side"]


@parallel_kernel
def sweep_side(
    chunks, start, other, values, other_mean, other_second, lam, half, prior, tau, rho,
    out_lam, out_half, out_mean, out_second, errors,
):  # fmt: skip
    """Update every row of one side from all its ratings; ``errors`` gets Σ_n E[(r_n − u·v)²], unless it is empty.

    A row whose precision is not positive definite gets NaN moments.
    """
    size = lam.shape[1]
    for chunk in prange(chunks.shape[0] - 1):
        seconds, linear = np.empty((size, size)), np.empty(size)
        factor, covariance = np.empty((size, size)), np.empty((size, size))
        for row in range(chunks[chunk], chunks[chunk + 1]):
            squared = _gather(start[row], start[row + 1], other, values, other_mean, other_second, linear, seconds)
            for k in range(size):
                out_lam[row, k] = (1.0 - rho) * lam[row, k] + rho * tau * linear[k]
                for h in range(size):
                    exact = tau * seconds[k, h] + (prior if k == h else 0.0)
                    out_half[row, k, h] = (1.0 - rho) * half[row, k, h] - 0.5 * rho * exact
                    factor[k, h] = -2.0 * out_half[row, k, h]
            _invert(factor, covariance)
            _write_moments(out_lam[row], covariance, out_mean[row], out_second[row])
            if errors.shape[0]:
                errors[row] = squared + _rest(out_mean[row], out_second[row], linear, seconds)


@parallel_kernel
def full_target(chunks, start, other, values, other_mean, other_second, prior, tau, out_lam, out_half):
    """λ* of every row from all its ratings."""
    size = out_lam.shape[1]
    for chunk in prange(chunks.shape[0] - 1):
        seconds, linear = np.empty((size, size)), np.empty(size)
        for row in range(chunks[chunk], chunks[chunk + 1]):
            _gather(start[row], start[row + 1], other, values, other_mean, other_second, linear, seconds)
            for k in range(size):
                out_lam[row, k] = tau * linear[k]
                for h in range(size):
                    out_half[row, k, h] = -0.5 * (tau * seconds[k, h] + (prior if k == h else 0.0))


@serial_kernel
def sampled_target(own, other, values, weights, other_mean, other_second, tau, out_lam, out_half):
    """Add weight · η̃_ni of sampled ratings to the targets of their rows, in the order given."""
    size = out_lam.shape[1]
    for n in range(own.shape[0]):
        i, j, scaled = own[n], other[n], tau * weights[n]
        for k in range(size):
            out_lam[i, k] += scaled * values[n] * other_mean[j, k]
            for h in range(size):
                out_half[i, k, h] -= 0.5 * scaled * other_second[j, k, h]


@parallel_kernel
def expected_errors(chunks, start, other, values, mean, second, other_mean, other_second, errors):
    """Σ_n E[(r_n − u·v)²] of every row."""
    size = mean.shape[1]
    for chunk in prange(chunks.shape[0] - 1):
        seconds, linear = np.empty((size, size)), np.empty(size)
        for row in range(chunks[chunk], chunks[chunk + 1]):
            squared = _gather(start[row], start[row + 1], other, values, other_mean, other_second, linear, seconds)
            errors[row] = squared + _rest(mean[row], second[row], linear, seconds)


@parallel_kernel
def moments(lam, half, out_mean, out_second, log_det):
    """E[x], E[x xᵀ] and log |Λ| of every row; NaN where Λ is not positive definite. Threads own runs of rows."""
    size, n_rows = lam.shape[1], lam.shape[0]
    n_runs = 1 + n_rows // 64
    for run in prange(n_runs):
        factor, covariance = np.empty((size, size)), np.empty((size, size))
        for row in range(run * n_rows // n_runs, (run + 1) * n_rows // n_runs):
            for k in range(size):
                for h in range(size):
                    factor[k, h] = -2.0 * half[row, k, h]
            _invert(factor, covariance)
            log_det[row] = 0.0
            for k in range(size):
                log_det[row] += 2.0 * np.log(factor[k, k])
            _write_moments(lam[row], covariance, out_mean[row], out_second[row])


@serial_kernel
def _write_moments(lam, covariance, mean, second):
    """E[x] = Σ λ₁ and E[x xᵀ] of one row."""
    size = lam.shape[0]
    for k in range(size):
        total = 0.0
        for h in range(size):
            total += covariance[k, h] * lam[h]
        mean[k] = total
    for k in range(size):
        for h in range(size):
            second[k, h] = covariance[k, h] + mean[k] * mean[h]


@serial_kernel
def _gather(begin, end, other, values, other_mean, other_second, linear, seconds):
    """Σ r E[v] and Σ E[v vᵀ] over a row's ratings; returns Σ r²."""
    size = linear.shape[0]
    linear[:], seconds[:] = 0.0, 0.0
    squared = 0.0
    for n in range(begin, end):
        j, rating = other[n], values[n]
        squared += rating * rating
        for k in range(size):
            linear[k] += rating * other_mean[j, k]
            for h in range(size):
                seconds[k, h] += other_second[j, k, h]
    return squared


@serial_kernel
def _rest(mean, second, linear, seconds):
    """⟨E[u uᵀ], Σ E[v vᵀ]⟩ − 2 E[u]ᵀ Σ r E[v]."""
    total = 0.0
    for k in range(mean.shape[0]):
        total -= 2.0 * mean[k] * linear[k]
        for h in range(mean.shape[0]):
            total += second[k, h] * seconds[k, h]
    return total


@serial_kernel
def _invert(matrix, inverse):
    """The inverse of a positive definite matrix by Cholesky, NaN if it is not; ``matrix`` is overwritten."""
    size = matrix.shape[0]
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            if i == j:
                matrix[i, i] = np.sqrt(total) if total > 0.0 else np.nan
            else:
                matrix[i, j] = total / matrix[j, j]
    # Column after column: L y = e, then Lᵀ x = y.
    for column in range(size):
        for i in range(size):
            total = 1.0 if i == column else 0.0
            for k in range(column, i):
                total -= matrix[i, k] * inverse[k, column]
            inverse[i, column] = total / matrix[i, i]
        for i in range(size - 1, column - 1, -1):
            total = inverse[i, column]
            for k in range(i + 1, size):
                total -= matrix[k, i] * inverse[k, column]
            inverse[i, column] = total / matrix[i, i]
        for i in range(column):
            inverse[i, column] = inverse[column, i]
