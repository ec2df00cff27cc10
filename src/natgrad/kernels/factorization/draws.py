"""Gibbs sampling of a factorisation: sums of ratings and random numbers in, rows out; rows in, their errors out.

Λ = Uᵀ U is made row of U after row, with loops along rows, four rows at a time: number by number it would take longer than all
sums over ratings. Nothing of the size of Λ is written for each row.
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_pieces, of_rows, parallel_kernel
from natgrad.kernels.factorization import plain
from natgrad.kernels.factorization.gather import normal_equations

__all__ = ["draw_rows", "draw_told", "pack_values", "squared_errors"]

# Numbers that a loop takes at a time.
LANES = 4


@parallel_kernel(of_rows, plain=plain.pack_values)
def pack_values(low, high, x, tell):
    """As `natgrad.kernels.factorization.gather.pack` of the moments x and x xᵀ of points."""
    size = x.shape[1]
    for row in range(low, high):
        place = 0
        for k in range(size):
            factor = x[row, k]
            for h in range(k + 1):
                tell[row, place + h] = factor * x[row, h]
            place += k + 1
        for k in range(size):
            tell[row, place + k] = x[row, k]


@parallel_kernel(of_pieces, plain=plain.draw_told, work=plain.work_of_sums)
def draw_told(low, high, pieces, sums, scale, prior, pull, biased, noise, out, out_mean, told):
    """X = Λ⁻¹ λ + U⁻¹ ε of every row, with Λ = diag(α) + scale Σ a aᵀ = Uᵀ U and λ = pull + scale Σ (r − c) a, from its sums.

    ``out_mean`` [rows, D] or [0, D] gets Λ⁻¹ λ. ``told`` [pieces, D, D + 1] gets, for each piece, what its rows tell of a number
    c_k by which x_k of all of them is multiplied: the matrix and the vector of log p(r | c) = −½ cᵀ M c + gᵀ c + const.
    A row whose precision is not positive definite gets NaN.
    """
    size, first = out.shape[1], pieces[0]
    matrix, vector, x = np.empty((size, size)), np.empty(size), np.empty(size)
    upper = np.zeros((size, -(-size // LANES) * LANES))
    for piece in range(low, high):
        told[piece] = 0.0
        for row in range(pieces[piece], pieces[piece + 1]):
            normal_equations(sums[row - first], biased, matrix, vector)
            there = row if pull.shape[0] > 1 else 0
            for k in range(size):
                x[k] = scale[row] * vector[k] + pull[there, k]
                for h in range(size):
                    upper[k, h] = scale[row] * matrix[k, h]
                upper[k, k] += prior[k]
            _factorise(upper, size)
            for k in range(size):
                x[k] *= upper[k, k]
                factor = x[k]
                for h in range(k + 1, size):
                    x[h] -= factor * upper[k, h]
            if out_mean.shape[0] > 0:
                for k in range(size):
                    out_mean[row, k] = x[k]
                _solve_back(upper, out_mean[row])
            for k in range(size):
                out[row, k] = x[k] + noise[row, k]
            _solve_back(upper, out[row])
            for k in range(size):
                factor = scale[row] * out[row, k]
                for h in range(size):
                    told[piece, k, h] += factor * out[row, h] * matrix[k, h]
                told[piece, k, size] += factor * vector[k]


@lane_kernel
def _factorise(upper, size):
    """U of a positive definite matrix in its place, with 1/U_ii on the diagonal; NaN if it is none.

    The upper half is read. Rows begin at a multiple of four and end with zeros at one, so that loops have no rest: a quarter less
    time. What they leave below the diagonal means nothing.
    """
    width = upper.shape[1]
    for i in range(size):
        begin = i - i % LANES
        row, n = upper[i, begin:], width - begin
        k = 0
        while k + 4 <= i:
            a, b, c, d = upper[k, i], upper[k + 1, i], upper[k + 2, i], upper[k + 3, i]
            first, second, third, fourth = (
                upper[k, begin:], upper[k + 1, begin:], upper[k + 2, begin:], upper[k + 3, begin:],
            )  # fmt: skip
            for j in range(n):
                row[j] -= a * first[j] + b * second[j] + c * third[j] + d * fourth[j]
            k += 4
        while k < i:
            a, first = upper[k, i], upper[k, begin:]
            for j in range(n):
                row[j] -= a * first[j]
            k += 1
        inverse = 1.0 / np.sqrt(upper[i, i]) if upper[i, i] > 0.0 else np.nan
        for j in range(n):
            row[j] *= inverse
        upper[i, i] = inverse


@lane_kernel
def _solve_back(upper, x):
    """U⁻¹ x, in place."""
    for i in range(x.shape[0] - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, x.shape[0]):
            total -= upper[i, j] * x[j]
        x[i] = total * upper[i, i]


@parallel_kernel(of_rows, plain=plain.draw_rows)
def draw_rows(low, high, lam, half, noise, out):
    """X = Λ⁻¹ λ + U⁻¹ ε of every row, with Λ = Uᵀ U; NaN where Λ is not positive definite."""
    size = lam.shape[1]
    upper, x = np.zeros((size, -(-size // LANES) * LANES)), np.empty(size)
    for row in range(low, high):
        for k in range(size):
            x[k] = lam[row, k]
            for h in range(size):
                upper[k, h] = -2.0 * half[row, k, h]
        _factorise(upper, size)
        for k in range(size):
            x[k] *= upper[k, k]
            for h in range(k + 1, size):
                x[h] -= x[k] * upper[k, h]
        for k in range(size):
            out[row, k] = x[k] + noise[row, k]
        _solve_back(upper, out[row])


@parallel_kernel(of_rows, plain=plain.squared_errors, work=plain.work_of_errors)
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
