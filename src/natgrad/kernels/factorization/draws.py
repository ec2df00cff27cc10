"""Gibbs sampling of a factorisation: conditionals of rows and random numbers in, rows out; rows in, their errors out."""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import of_rows, parallel_kernel
from natgrad.kernels.factorization import plain

__all__ = ["draw_rows", "squared_errors"]


@parallel_kernel(of_rows, plain=plain.draw_rows)
def draw_rows(low, high, lam, half, noise, out, out_outer):
    """X = Λ⁻¹ λ + L⁻ᵀ ε of every row, with Λ = L Lᵀ, and x xᵀ; NaN where Λ is not positive definite."""
    size = lam.shape[1]
    root, x = np.empty((size, size)), np.empty(size)
    for row in range(low, high):
        for i in range(size):
            for j in range(i):
                total = -2.0 * half[row, i, j]
                for k in range(j):
                    total -= root[i, k] * root[j, k]
                root[i, j] = total * root[j, j]
            total = -2.0 * half[row, i, i]
            for k in range(i):
                total -= root[i, k] * root[i, k]
            root[i, i] = 1.0 / np.sqrt(total) if total > 0.0 else np.nan  # 1/L_ii: it is never needed otherwise
        for i in range(size):
            total = lam[row, i]
            for k in range(i):
                total -= root[i, k] * x[k]
            x[i] = total * root[i, i]
        for i in range(size):
            x[i] += noise[row, i]
        for i in range(size - 1, -1, -1):
            total = x[i]
            for k in range(i + 1, size):
                total -= root[k, i] * x[k]
            x[i] = total * root[i, i]
        for i in range(size):
            out[row, i] = x[i]
            for j in range(size):
                out_outer[row, i, j] = x[i] * x[j]


@parallel_kernel(of_rows, plain=plain.squared_errors)
def squared_errors(low, high, out, start, other, values, offset, trust, own, theirs, weight, biased):
    """Σ_n w_j (r_n − u·v − b − c)² of the ratings of every row, at values of both sides; ``trust`` is of one rating or of all."""
    size = own.shape[1]
    inner = size - 1 if biased else size
    for row in range(low, high):
        total = 0.0
        for n in range(start[row], start[row + 1]):
            j = other[n]
            error = values[n] - offset
            for k in range(inner):
                error -= own[row, k] * theirs[j, k]
            if biased:
                error -= own[row, inner] + theirs[j, inner]
            total += weight[j] * (trust[n] if trust.shape[0] > 1 else trust[0]) * error * error
        out[row] = total
