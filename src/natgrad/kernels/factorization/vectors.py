"""Gaussian rows, one full covariance each: λ = (Λ m, −½ Λ) in; E[x], E[x xᵀ] and log |Λ| out.

Matrices are [rows, D, D]. Half of a fit's time would go into inverses if they were made number by number; here every inner
loop runs along a row of a matrix, four rows of the other factor at a time.
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_rows, parallel_kernel
from natgrad.kernels.factorization import plain

__all__ = ["invert", "moments", "write_moments"]


@parallel_kernel(of_rows, plain=plain.moments)
def moments(low, high, lam, half, out_mean, out_second, log_det):
    """E[x], E[x xᵀ] and log |Λ| of every row; NaN where Λ is not positive definite."""
    size = lam.shape[1]
    factor, covariance = np.empty((size, size)), np.empty((size, size))
    for row in range(low, high):
        for k in range(size):
            for h in range(size):
                factor[k, h] = -2.0 * half[row, k, h]
        log_det[row] = invert(factor, covariance)
        write_moments(lam[row], covariance, out_mean[row], out_second[row])


@lane_kernel
def write_moments(lam, covariance, mean, second):
    """E[x] = Σ λ₁ and E[x xᵀ] of one row."""
    size = lam.shape[0]
    for k in range(size):
        total = 0.0
        for h in range(size):
            total += covariance[k, h] * lam[h]
        mean[k] = total
    for k in range(size):
        factor = mean[k]
        for h in range(size):
            second[k, h] = covariance[k, h] + factor * mean[h]


@lane_kernel
def invert(matrix, inverse):
    """The inverse of a positive definite matrix, NaN if it is not; ``matrix`` is overwritten. Returns log |matrix|."""
    size = matrix.shape[0]
    log_det = 0.0
    # L of L Lᵀ below the diagonal of ``matrix``; 1/L_ii on that of ``inverse``.
    for i in range(size):
        for j in range(i):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total * inverse[j, j]
        total = matrix[i, i]
        for k in range(i):
            total -= matrix[i, k] * matrix[i, k]
        root = np.sqrt(total) if total > 0.0 else np.nan
        log_det += 2.0 * np.log(root)
        inverse[i, i] = 1.0 / root
        for j in range(i + 1, size):
            inverse[i, j] = 0.0
    # Row i of L⁻¹ is −(row i of L) · (the rows of L⁻¹ above), divided by L_ii.
    for i in range(size):
        for j in range(i):
            inverse[i, j] = 0.0
        _add_rows(matrix, i, False, 0, i, i, -1.0, inverse)
        scale = inverse[i, i]
        for j in range(i):
            inverse[i, j] *= scale
    # Row i of L⁻ᵀ L⁻¹ needs the rows i, i + 1, … of L⁻¹, so it may take the place of the first of them.
    for i in range(size):
        first = inverse[i, i]
        for j in range(i + 1):
            inverse[i, j] *= first
        _add_rows(inverse, i, True, i + 1, size, i + 1, 1.0, inverse)
    for i in range(size):
        for j in range(i):
            inverse[j, i] = inverse[i, j]
    return log_det


@lane_kernel
def _add_rows(weights, i, down, begin, end, length, sign, rows):
    """Add sign · weight_k · rows[k, :length], k = begin … end − 1, to row i; weights lie along row i, or ``down`` column i."""
    k = begin
    while k + 4 <= end:
        if down:
            a, b, c, d = weights[k, i], weights[k + 1, i], weights[k + 2, i], weights[k + 3, i]
        else:
            a, b, c, d = weights[i, k], weights[i, k + 1], weights[i, k + 2], weights[i, k + 3]
        a, b, c, d = sign * a, sign * b, sign * c, sign * d
        for j in range(length):
            rows[i, j] += a * rows[k, j] + b * rows[k + 1, j] + c * rows[k + 2, j] + d * rows[k + 3, j]
        k += 4
    while k < end:
        a = sign * (weights[k, i] if down else weights[i, k])
        for j in range(length):
            rows[i, j] += a * rows[k, j]
        k += 1
