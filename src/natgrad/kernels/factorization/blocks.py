"""One side of a factorisation with biases and weighted noise, a Gaussian for each row: exact updates, targets and errors.

    r_n ~ N(u_i · v_j + b_i + c_j, 1/(τ s_i t_j)),   x_i = (u_i, b_i) ~ N(p_i, diag(α)⁻¹),   y_j = (v_j, c_j) likewise
    Λ_i = diag(α) + τ s_i Σ_n t_j E[a aᵀ],   (Λ m)_i = diag(α) p_i + τ s_i Σ_n t_j E[(r_n − c_j) a],   a = (v_j, 1)

Without biases a = v_j and c = 0. The sums over a row's ratings are those of `natgrad.kernels.factorization.gather`, for the rows
``pieces[0] … pieces[-1]`` at a time; a piece owns its rows of every output.
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_pieces, of_rows, parallel_kernel, serial_kernel
from natgrad.kernels.factorization import plain
from natgrad.kernels.factorization.gather import normal_equations
from natgrad.kernels.factorization.vectors import invert, write_moments

__all__ = ["errors_of_rows", "move_rows", "pair_moments", "sampled_rows", "sweep_rows", "targets_of_rows"]


@parallel_kernel(of_pieces, plain=plain.sweep_rows, work=plain.work_of_sums)
def sweep_rows(
    low, high, pieces, sums, own_weight, prior, pull, tau, biased, rho, lam, half,
    out_lam, out_half, out_mean, out_second, log_det, errors,
):  # fmt: skip
    """Update every row from its sums, blended with the old λ by ρ; ``errors`` gets Σ_n t_j E[(r_n − …)²].

    ``prior`` [D] is E[α], ``pull`` [rows or 1, D] is E[α] p; ``log_det`` [rows] gets log |Λ|.
    A row whose precision is not positive definite gets NaN moments.
    """
    size, first = out_lam.shape[1], pieces[0]
    for piece in range(low, high):
        matrix, vector = np.empty((size, size)), np.empty(size)
        factor, covariance = np.empty((size, size)), np.empty((size, size))
        for row in range(pieces[piece], pieces[piece + 1]):
            rest = normal_equations(sums[row - first], biased, matrix, vector)
            scale = tau * own_weight[row]
            there = row if pull.shape[0] > 1 else 0
            for k in range(size):
                exact = scale * vector[k] + pull[there, k]
                out_lam[row, k] = exact if rho == 1.0 else (1.0 - rho) * lam[row, k] + rho * exact
                for h in range(size):
                    factor[k, h] = scale * matrix[k, h]
                factor[k, k] += prior[k]
            if rho != 1.0:
                for k in range(size):
                    for h in range(size):
                        factor[k, h] = rho * factor[k, h] - 2.0 * (1.0 - rho) * half[row, k, h]
            for k in range(size):
                for h in range(size):
                    out_half[row, k, h] = -0.5 * factor[k, h]
            log_det[row] = invert(factor, covariance)
            write_moments(out_lam[row], covariance, out_mean[row], out_second[row])
            errors[row] = rest + _fit(out_mean[row], out_second[row], vector, matrix)


@parallel_kernel(of_pieces, plain=plain.errors_of_rows, work=plain.work_of_sums)
def errors_of_rows(low, high, pieces, sums, biased, mean, second, errors):
    """Σ_n t_j E[(r_n − u·v − b − c)²] of every row."""
    size, first = mean.shape[1], pieces[0]
    for piece in range(low, high):
        matrix, vector = np.empty((size, size)), np.empty(size)
        for row in range(pieces[piece], pieces[piece + 1]):
            rest = normal_equations(sums[row - first], biased, matrix, vector)
            errors[row] = rest + _fit(mean[row], second[row], vector, matrix)


@parallel_kernel(of_pieces, plain=plain.targets_of_rows, work=plain.work_of_sums)
def targets_of_rows(low, high, pieces, sums, scale, biased, out_lam, out_half):
    """Add the messages of all ratings to the targets of every row, times the row's ``scale``."""
    size, first = out_lam.shape[1], pieces[0]
    for piece in range(low, high):
        matrix, vector = np.empty((size, size)), np.empty(size)
        for row in range(pieces[piece], pieces[piece + 1]):
            normal_equations(sums[row - first], biased, matrix, vector)
            for k in range(size):
                out_lam[row, k] += scale[row] * vector[k]
                for h in range(size):
                    out_half[row, k, h] -= 0.5 * scale[row] * matrix[k, h]


@serial_kernel
def sampled_rows(own, other, values, weights, tell, biased, out_lam, out_half):
    """Add weight · message of sampled ratings to the targets of their rows, in the order given."""
    size, width = out_lam.shape[1], tell.shape[1]
    sums, matrix, vector = np.empty(width + size + 3), np.empty((size, size)), np.empty(size)
    for n in range(own.shape[0]):
        i, j = own[n], other[n]
        for t in range(width):
            sums[t] = tell[j, t]
        for k in range(size):
            sums[width + k] = values[n] * tell[j, width - size + k]
        sums[width + size], sums[width + size + 1], sums[width + size + 2] = 1.0, values[n], values[n] * values[n]
        normal_equations(sums, biased, matrix, vector)
        for k in range(size):
            out_lam[i, k] += weights[n] * vector[k]
            for h in range(size):
                out_half[i, k, h] -= 0.5 * weights[n] * matrix[k, h]


@parallel_kernel(of_rows, plain=plain.pair_moments, work=lambda rows, columns, mean, *rest: rows.size * mean.shape[1])
def pair_moments(low, high, rows, columns, mean, second, other_mean, other_second, biased, out_mean, out_variance):
    """Mean and variance of u·v + b + c for pairs (row, column)."""
    size = mean.shape[1]
    n_factors = size - 1 if biased else size
    for n in range(low, high):
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


@parallel_kernel(
    lambda matrix, back, shift, mean, *rest: len(mean),
    plain=plain.move_rows,
    work=lambda matrix, back, shift, mean, second, *rest: plain.OF_A_NUMBER * second.size,
)
def move_rows(low, high, matrix, back, shift, mean, second, half, out_lam, out_half, out_mean, out_second):
    """λ and moments of M x + d for every row; ``back`` is M⁻ᵀ, ``half`` is −½ Λ."""
    size = mean.shape[1]
    work, across, across_back = np.empty((size, size)), matrix.T.copy(), back.T.copy()
    for row in range(low, high):
        _between(matrix, across, second[row], work, out_second[row])
        _between(back, across_back, half[row], work, out_half[row])
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
def _between(matrix, across, inner, work, out):
    """M S Mᵀ of a symmetric S; ``across`` is Mᵀ, so that every inner loop runs along a row."""
    size = matrix.shape[0]
    for i in range(size):
        _combine(matrix[i], inner, size, work[i])
    for i in range(size):
        _combine(work[i], across, i + 1, out[i])
    for i in range(size):
        for j in range(i):
            out[j, i] = out[i, j]


@lane_kernel
def _combine(weights, rows, length, out):
    """Σ_k weight_k · rows[k, :length], four rows at a time."""
    size = weights.shape[0]
    for j in range(length):
        out[j] = 0.0
    k = 0
    while k + 4 <= size:
        a, b, c, d = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for j in range(length):
            out[j] += a * rows[k, j] + b * rows[k + 1, j] + c * rows[k + 2, j] + d * rows[k + 3, j]
        k += 4
    while k < size:
        for j in range(length):
            out[j] += weights[k] * rows[k, j]
        k += 1


@lane_kernel
def _fit(mean, second, vector, matrix):
    """⟨E[x xᵀ], Σ E[a aᵀ]⟩ − 2 E[x]ᵀ Σ E[(r − c) a]."""
    total = 0.0
    for k in range(mean.shape[0]):
        total -= 2.0 * mean[k] * vector[k]
        for h in range(mean.shape[0]):
            total += second[k, h] * matrix[k, h]
    return total
