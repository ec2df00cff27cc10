"""Gibbs sampling of a factorisation: ratings, rows of the other side and random numbers in, rows out; rows in, their errors out.

Sums over the ratings of a row are inner products along up to 64 ratings, and Λ = Uᵀ U is made row of U after row, four at a
time, with loops along rows: number by number that would take longer than all sums. Points have vectors where q has matrices, so
nothing of the size of Λ is read or written for any row.
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_pieces, of_rows, parallel_kernel
from natgrad.kernels.factorization import plain

__all__ = ["draw_rows", "draw_side", "squared_errors"]

# Numbers that a loop takes at a time, columns that are filled together, and ratings whose products are added at a time.
LANES, WIDTH, CHUNK = 4, 8, 64


@parallel_kernel(of_pieces, plain=plain.draw_side, work=plain.work_of_side)
def draw_side(
    low, high, pieces, start, other, values, offset, trust, theirs, weight, scale, prior, pull, biased, noise,
    out, out_mean, told,
):  # fmt: skip
    """X = Λ⁻¹ λ + U⁻¹ ε of every row, with Λ = diag(α) + scale Σ w a aᵀ = Uᵀ U and λ = pull + scale Σ w (r − c) a.

    a = (v, 1) and c are the other side's row of a rating; without biases a = v and c = 0. ``out_mean`` [rows, D] or [0, D] gets
    Λ⁻¹ λ. ``told`` [pieces, D, D + 1], or [0, …], gets, for each piece, what its rows tell of a number c_k by which x_k of all of
    them is multiplied: matrix and vector of log p(r | c) = −½ cᵀ M c + gᵀ c + const. A row whose precision is not positive
    definite gets NaN.
    """
    size = out.shape[1]
    # Rows in pairs, the last of which may be zeros.
    table, sums = np.zeros((size + 1 + (size + 1) % 2, CHUNK)), np.empty((size + 2, size + 2))
    upper, x = np.zeros((size, -(-size // LANES) * LANES)), np.empty(size)
    for piece in range(low, high):
        if told.shape[0] > 0:
            told[piece] = 0.0
        for row in range(pieces[piece], pieces[piece + 1]):
            sums[:, :] = 0.0
            for n in range(start[row], start[row + 1], CHUNK):
                end = min(n + CHUNK, start[row + 1])
                n_filled = _fill(n, end, other, values, offset, trust, theirs, weight, biased, size, table)
                _add_products(table, n_filled, sums)
            there = row if pull.shape[0] > 1 else 0
            for k in range(size):
                x[k] = scale[row] * sums[k, size] + pull[there, k]
                for h in range(size):
                    upper[k, h] = scale[row] * sums[k, h]
                upper[k, k] += prior[k]
            _draw(upper, x, noise[row], out[row], out_mean, row)
            if told.shape[0] == 0:
                continue
            for k in range(size):
                factor = scale[row] * out[row, k]
                for h in range(k, size):
                    told[piece, k, h] += factor * out[row, h] * sums[k, h]
                told[piece, k, size] += factor * sums[k, size]
        if told.shape[0] > 0:
            for k in range(size):
                for h in range(k):
                    told[piece, k, h] = told[piece, h, k]


@lane_kernel
def _fill(begin, end, other, values, offset, trust, theirs, weight, biased, size, table):
    """√w a and, below, √w (r − c) of some ratings in columns of ``table``, then zeros; returns how many columns are filled."""
    inner = size - 1 if biased else size
    for n in range(begin, end):
        j, place = other[n], n - begin
        root = np.sqrt(weight[j] * trust[0 if trust.shape[0] == 1 else n])
        for k in range(inner):
            table[k, place] = root * theirs[j, k]
        error = values[n] - offset
        if biased:
            table[inner, place] = root
            error -= theirs[j, inner]
        table[size, place] = root * error
    filled = -(-(end - begin) // WIDTH) * WIDTH
    for k in range(size + 1):
        for place in range(end - begin, filled):
            table[k, place] = 0.0
    return filled


@lane_kernel
def _add_products(table, n, sums):
    """Add the inner products of all rows of ``table``, along ``n`` columns, above the diagonal: four products at a time."""
    for k in range(0, table.shape[0], 2):
        first, second = table[k], table[k + 1]
        for h in range(k, table.shape[0], 2):
            third, fourth = table[h], table[h + 1]
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for m in range(n):
                a += first[m] * third[m]
                b += first[m] * fourth[m]
                c += second[m] * third[m]
                d += second[m] * fourth[m]
            sums[k, h] += a
            sums[k, h + 1] += b
            sums[k + 1, h] += c
            sums[k + 1, h + 1] += d


@lane_kernel
def _draw(upper, x, noise, out, out_mean, row):
    """U⁻ᵀ x, in place; its U⁻¹ is the mean, and that of it and the noise the draw. ``upper`` is overwritten."""
    size = x.shape[0]
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
        out[k] = x[k] + noise[k]
    _solve_back(upper, out)


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
        _draw(upper, x, noise[row], out[row], out[:0], row)


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
