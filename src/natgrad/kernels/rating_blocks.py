"""One side of a factorisation with biases and weighted noise, a Gaussian for each row: exact updates, targets and errors.

    r_n ~ N(u_i · v_j + b_i + c_j, 1/(τ s_i t_j)),   x_i = (u_i, b_i) ~ N(p_i, diag(α)⁻¹),   y_j = (v_j, c_j) likewise
    Λ_i = diag(α) + τ s_i Σ_n t_j E[a aᵀ],   (Λ m)_i = diag(α) p_i + τ s_i Σ_n t_j E[(r_n − c_j) a],   a = (v_j, 1)

Without biases a = v_j and c = 0. "Own" is the side that is updated, "other" the one whose moments are read: `tell` packs the
lower triangle of E[y yᵀ] and E[y] of every row of it, so that a rating costs one pass over contiguous numbers; ``trust`` [n]
multiplies the noise precision of single ratings. Compressed rows and chunks are those of `natgrad.kernels.ratings`: a chunk
owns its rows of every output.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from natgrad.kernels._njit import lane_kernel, parallel_kernel, serial_kernel
from natgrad.kernels.rating_vectors import _invert, _write_moments

__all__ = ["errors_of_rows", "move_rows", "pack", "pair_moments", "sampled_rows", "sweep_rows", "targets_of_rows"]


@parallel_kernel
def pack(mean, second, tell):
    """``tell`` [rows, D(D+1)/2 + D]: the lower triangle of E[y yᵀ], then E[y]."""
    size = mean.shape[1]
    for row in prange(mean.shape[0]):
        place = 0
        for k in range(size):
            for h in range(k + 1):
                tell[row, place] = second[row, k, h]
                place += 1
        for k in range(size):
            tell[row, place + k] = mean[row, k]


@parallel_kernel
def sweep_rows(
    chunks, start, other, values, trust, tell, other_weight, own_weight, prior, pull, tau, biased, rho, lam, half,
    out_lam, out_half, out_mean, out_second, log_det, errors,
):  # fmt: skip
    """Update every row from all its ratings, blended with the old λ by ρ; ``errors`` gets Σ_n t_j E[(r_n − …)²] unless empty.

    ``prior`` [D] is E[α], ``pull`` [rows or 1, D] is E[α] p; ``log_det`` [rows] gets log |Λ|.
    A row whose precision is not positive definite gets NaN moments.
    """
    size = out_lam.shape[1]
    for chunk in prange(chunks.shape[0] - 1):
        sums, linear = np.empty(tell.shape[1]), np.empty(size)
        matrix, vector = np.empty((size, size)), np.empty(size)
        factor, covariance = np.empty((size, size)), np.empty((size, size))
        for row in range(chunks[chunk], chunks[chunk + 1]):
            total = _gather(start[row], start[row + 1], other, values, trust, tell, other_weight, sums, linear)
            rest = _normal_equations(sums, linear, total, biased, matrix, vector)
            scale = tau * own_weight[row]
            there = row if pull.shape[0] > 1 else 0
            for k in range(size):
                exact = scale * vector[k] + pull[there, k]
                out_lam[row, k] = exact if rho == 1.0 else (1.0 - rho) * lam[row, k] + rho * exact
                for h in range(size):
                    exact = -0.5 * (scale * matrix[k, h] + (prior[k] if k == h else 0.0))
                    out_half[row, k, h] = exact if rho == 1.0 else (1.0 - rho) * half[row, k, h] + rho * exact
                    factor[k, h] = -2.0 * out_half[row, k, h]
            _invert(factor, covariance)
            log_det[row] = 0.0
            for k in range(size):
                log_det[row] += 2.0 * np.log(factor[k, k])
            _write_moments(out_lam[row], covariance, out_mean[row], out_second[row])
            if errors.shape[0]:
                errors[row] = rest + _fit(out_mean[row], out_second[row], vector, matrix)


@parallel_kernel
def errors_of_rows(chunks, start, other, values, trust, tell, other_weight, biased, mean, second, errors):
    """Σ_n t_j E[(r_n − u·v − b − c)²] of every row."""
    size = mean.shape[1]
    for chunk in prange(chunks.shape[0] - 1):
        sums, linear = np.empty(tell.shape[1]), np.empty(size)
        matrix, vector = np.empty((size, size)), np.empty(size)
        for row in range(chunks[chunk], chunks[chunk + 1]):
            total = _gather(start[row], start[row + 1], other, values, trust, tell, other_weight, sums, linear)
            rest = _normal_equations(sums, linear, total, biased, matrix, vector)
            errors[row] = rest + _fit(mean[row], second[row], vector, matrix)


@parallel_kernel
def targets_of_rows(
    chunks, start, other, values, trust, tell, other_weight, own_weight, tau, biased, out_lam, out_half
):
    """Add the messages of all ratings to the targets of every row."""
    size = out_lam.shape[1]
    for chunk in prange(chunks.shape[0] - 1):
        sums, linear = np.empty(tell.shape[1]), np.empty(size)
        matrix, vector = np.empty((size, size)), np.empty(size)
        for row in range(chunks[chunk], chunks[chunk + 1]):
            total = _gather(start[row], start[row + 1], other, values, trust, tell, other_weight, sums, linear)
            _normal_equations(sums, linear, total, biased, matrix, vector)
            scale = tau * own_weight[row]
            for k in range(size):
                out_lam[row, k] += scale * vector[k]
                for h in range(size):
                    out_half[row, k, h] -= 0.5 * scale * matrix[k, h]


@serial_kernel
def sampled_rows(own, other, values, weights, tell, tau, biased, out_lam, out_half):
    """Add weight · τ · message of sampled ratings to the targets of their rows, in the order given."""
    size = out_lam.shape[1]
    sums, linear = np.empty(tell.shape[1]), np.empty(size)
    matrix, vector = np.empty((size, size)), np.empty(size)
    for n in range(own.shape[0]):
        i, j = own[n], other[n]
        for t in range(tell.shape[1]):
            sums[t] = tell[j, t]
        for k in range(size):
            linear[k] = values[n] * tell[j, tell.shape[1] - size + k]
        _normal_equations(sums, linear, (1.0, values[n], values[n] * values[n]), biased, matrix, vector)
        scale = tau * weights[n]
        for k in range(size):
            out_lam[i, k] += scale * vector[k]
            for h in range(size):
                out_half[i, k, h] -= 0.5 * scale * matrix[k, h]


@parallel_kernel
def pair_moments(rows, columns, mean, second, other_mean, other_second, biased, out_mean, out_variance):
    """Mean and variance of u·v + b + c for pairs (row, column)."""
    size = mean.shape[1]
    n_factors = size - 1 if biased else size
    for n in prange(rows.shape[0]):
        i, j = rows[n], columns[n]
        dot, square = 0.0, 0.0
        for k in range(n_factors):
            dot += mean[i, k] * other_mean[j, k]
            for h in range(n_factors):
                square += second[i, k, h] * other_second[j, k, h]
        out_variance[n] = square - dot * dot
        out_mean[n] = dot
        if biased:
            b, c = mean[i, n_factors], other_mean[j, n_factors]
            spread = second[i, n_factors, n_factors] - b * b + other_second[j, n_factors, n_factors] - c * c
            for k in range(n_factors):
                # 2 Cov(u·v, b) and 2 Cov(u·v, c)
                spread += 2.0 * other_mean[j, k] * (second[i, k, n_factors] - mean[i, k] * b)
                spread += 2.0 * mean[i, k] * (other_second[j, k, n_factors] - other_mean[j, k] * c)
            out_variance[n] += spread
            out_mean[n] += b + c


@parallel_kernel
def move_rows(matrix, back, shift, mean, second, half, out_lam, out_half, out_mean, out_second):
    """λ and moments of M x + d for every row; ``back`` is M⁻ᵀ, ``half`` is −½ Λ. Threads own runs of rows."""
    n_rows, size = mean.shape
    n_runs = 1 + n_rows // 64
    for run in prange(n_runs):
        work = np.empty((size, size))
        for row in range(run * n_rows // n_runs, (run + 1) * n_rows // n_runs):
            _between(matrix, second[row], work, out_second[row])
            _between(back, half[row], work, out_half[row])
            for k in range(size):
                total = 0.0
                for h in range(size):
                    total += matrix[k, h] * mean[row, h]
                out_mean[row, k] = total
            for k in range(size):
                for h in range(size):
                    crossed = out_mean[row, k] * shift[h] + shift[k] * out_mean[row, h]
                    out_second[row, k, h] += crossed + shift[k] * shift[h]
            for k in range(size):
                out_mean[row, k] += shift[k]
            for k in range(size):
                total = 0.0
                for h in range(size):
                    total += out_half[row, k, h] * out_mean[row, h]
                out_lam[row, k] = -2.0 * total


@lane_kernel
def _between(matrix, inner, work, out):
    """M S Mᵀ."""
    size = matrix.shape[0]
    for i in range(size):
        for j in range(size):
            work[i, j] = 0.0
        for k in range(size):
            factor = matrix[i, k]
            for j in range(size):
                work[i, j] += factor * inner[k, j]
    for i in range(size):
        for j in range(size):
            total = 0.0
            for k in range(size):
                total += work[i, k] * matrix[j, k]
            out[i, j] = total


@lane_kernel
def _gather(begin, end, other, values, trust, tell, weight, sums, linear):
    """Σ t E[y yᵀ], Σ t E[y] and Σ t r E[y] over a row's ratings; returns Σ t, Σ t r and Σ t r²."""
    size, width = linear.shape[0], sums.shape[0]
    sums[:], linear[:] = 0.0, 0.0
    total, first, second = 0.0, 0.0, 0.0
    for n in range(begin, end):
        j = other[n]
        w = weight[j] * trust[n]
        rated = w * values[n]
        total += w
        first += rated
        second += rated * values[n]
        for t in range(width):
            sums[t] += w * tell[j, t]
        for k in range(size):
            linear[k] += rated * tell[j, width - size + k]
    return total, first, second


@lane_kernel
def _normal_equations(sums, linear, total, biased, matrix, vector):
    """Σ t E[a aᵀ] and Σ t E[(r − c) a] from what was gathered; returns Σ t E[(r − c)²]."""
    size = linear.shape[0]
    n_factors = size - 1 if biased else size
    width = sums.shape[0] - size
    place = 0
    for k in range(n_factors):
        vector[k] = linear[k]
        for h in range(k + 1):
            matrix[k, h] = sums[place]
            matrix[h, k] = sums[place]
            place += 1
    if not biased:
        return total[2]
    # The last row of the triangle is E[c v], then E[c²].
    for k in range(n_factors):
        vector[k] -= sums[place + k]
        matrix[n_factors, k] = sums[width + k]
        matrix[k, n_factors] = sums[width + k]
    matrix[n_factors, n_factors] = total[0]
    vector[n_factors] = total[1] - sums[width + n_factors]
    return total[2] - 2.0 * linear[n_factors] + sums[place + n_factors]


@lane_kernel
def _fit(mean, second, vector, matrix):
    """⟨E[x xᵀ], Σ E[a aᵀ]⟩ − 2 E[x]ᵀ Σ E[(r − c) a]."""
    total = 0.0
    for k in range(mean.shape[0]):
        total -= 2.0 * mean[k] * vector[k]
        for h in range(mean.shape[0]):
            total += second[k, h] * matrix[k, h]
    return total
