"""Ratings and the moments of both sides in; one side after coordinate ascent, targets, and squared errors out.

    r_n ~ N(u_i · v_j, 1/τ),   u_ik ~ N(0, 1/α),   v_jk ~ N(0, 1/α),   q = Π q(u_ik) Π q(v_jk)

    λ_ik = (Λ m, −½ Λ),   Λ_ik = α + τ Σ_n E[v_k²],   (Λ m)_ik = τ Σ_n E[v_k] (r_n − Σ_{k' ≠ k} E[u_k'] E[v_k'])

Paquet (2014), eq. (7). "Own" is the side that is updated, "other" the one it is multiplied with. Compressed rows: the
children of row i are ``start[i] … start[i+1]``, with ``other`` the element of the other side and ``values`` the rating.
``chunks`` cuts the rows into runs of about equally many ratings; a chunk owns its rows of every output, so nothing is
shared, and what is summed over rows is handed back row by row: results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import of_pieces, parallel_kernel, serial_kernel

__all__ = [
    "expected_errors",
    "full_target",
    "sampled_target",
    "solve",
    "sweep_side",
    "sweep_side_jointly",
]


@parallel_kernel(of_pieces)
def sweep_side(
    low, high, chunks, start, other, values, other_mean, other_second, lam, half, mean, prior, tau, rho,
    out_lam, out_half, out_mean, out_second, errors,
):  # fmt: skip
    """Update every row of one side, factor after factor, from all its ratings; ρ = 1 is exact.

    ``lam, half, mean`` [rows, K] are λ = (Λ m, −½ Λ) and E[x] before; ``out_…`` after; ``errors`` [rows] gets
    Σ_n E[(r_n − u·v)²] at the new moments, unless it is empty. Residuals are carried from factor to factor: O(N_i K) for a row.
    """
    n_factors = mean.shape[1]
    for chunk in range(low, high):
        most = 0
        for row in range(chunks[chunk], chunks[chunk + 1]):
            most = max(most, start[row + 1] - start[row])
        residual = np.empty(most)
        # The other side's means of one row, factor by factor: contiguous, so that the sums below run in SIMD lanes.
        gathered = np.empty((n_factors, most))
        seconds = np.empty(n_factors)
        for row in range(chunks[chunk], chunks[chunk + 1]):
            begin, n_children = start[row], start[row + 1] - start[row]
            seconds[:] = 0.0
            for n in range(n_children):
                j = other[begin + n]
                dot = 0.0
                for k in range(n_factors):
                    value = other_mean[j, k]
                    gathered[k, n] = value
                    dot += mean[row, k] * value
                    seconds[k] += other_second[j, k]
                residual[n] = values[begin + n] - dot
            spread = 0.0
            for k in range(n_factors):
                squares, linear = 0.0, 0.0
                for n in range(n_children):
                    squares += gathered[k, n] * gathered[k, n]
                    linear += gathered[k, n] * residual[n]
                old = mean[row, k]
                target = tau * (linear + old * squares)
                a = (1.0 - rho) * lam[row, k] + rho * target
                b = (1.0 - rho) * half[row, k] - rho * 0.5 * (prior + tau * seconds[k])
                new, variance = a / (-2.0 * b), 1.0 / (-2.0 * b)
                out_lam[row, k], out_half[row, k] = a, b
                out_mean[row, k], out_second[row, k] = new, new * new + variance
                # E[u²] E[v²] − E[u]² E[v]², without the cancellation
                spread += new * new * (seconds[k] - squares) + variance * seconds[k]
                change = new - old
                for n in range(n_children):
                    residual[n] -= change * gathered[k, n]
            if errors.shape[0] == 0:
                continue
            squared = 0.0
            for n in range(n_children):
                squared += residual[n] * residual[n]
            errors[row] = squared + spread


@parallel_kernel(of_pieces)
def sweep_side_jointly(
    low, high, chunks, start, other, values, other_mean, other_second, prior, tau,
    out_lam, out_half, out_mean, out_second, errors,
):  # fmt: skip
    """Update every row of one side with the best means of its K factors together, given q = Π q(u_k).

    Precisions are those of `sweep_side`; the means solve A m = τ Σ_n r_n E[v], A_kk = Λ_k, A_kl = τ Σ_n E[v_k] E[v_l].
    A is positive definite, since Λ_k ≥ α + τ Σ_n E[v_k]². The bound rises at least as much as by factor after factor.
    """
    n_factors = out_mean.shape[1]
    for chunk in range(low, high):
        products = np.empty((n_factors, n_factors))
        matrix = np.empty((n_factors, n_factors))
        seconds, linear = np.empty(n_factors), np.empty(n_factors)
        here, solution = np.empty(n_factors), np.empty(n_factors)
        for row in range(chunks[chunk], chunks[chunk + 1]):
            begin, end = start[row], start[row + 1]
            products[:], seconds[:], linear[:] = 0.0, 0.0, 0.0
            for n in range(begin, end):
                j, rating = other[n], values[n]
                for k in range(n_factors):
                    here[k] = other_mean[j, k]
                for k in range(n_factors):
                    seconds[k] += other_second[j, k]
                    linear[k] += rating * here[k]
                    for other_k in range(k + 1):
                        products[k, other_k] += here[k] * here[other_k]
            for k in range(n_factors):
                for other_k in range(k):
                    matrix[k, other_k] = tau * products[k, other_k]
                matrix[k, k] = prior + tau * seconds[k]
                solution[k] = tau * linear[k]
            solve(matrix, solution)
            spread = 0.0
            for k in range(n_factors):
                precision, new = prior + tau * seconds[k], solution[k]
                out_lam[row, k], out_half[row, k] = precision * new, -0.5 * precision
                out_mean[row, k], out_second[row, k] = new, new * new + 1.0 / precision
                spread += new * new * (seconds[k] - products[k, k]) + seconds[k] / precision
            if errors.shape[0] == 0:
                continue
            squared = 0.0
            for n in range(begin, end):
                dot = 0.0
                for k in range(n_factors):
                    dot += solution[k] * other_mean[other[n], k]
                squared += (values[n] - dot) * (values[n] - dot)
            errors[row] = squared + spread


@serial_kernel
def solve(matrix, vector):
    """A x = b for the lower triangle of a positive definite A, by Cholesky; both are overwritten, x is in ``vector``."""
    size = vector.shape[0]
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = np.sqrt(total) if i == j else total / matrix[j, j]
        total = vector[i]
        for k in range(i):
            total -= matrix[i, k] * vector[k]
        vector[i] = total / matrix[i, i]
    for i in range(size - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, size):
            total -= matrix[k, i] * vector[k]
        vector[i] = total / matrix[i, i]


@parallel_kernel(of_pieces)
def full_target(
    low, high, chunks, start, other, values, other_mean, other_second, mean, prior, tau, first, last, out_lam, out_half
):
    """λ* of the factors ``first … last − 1`` of every row from all its ratings, each with the other factors as they are.

    ``out_lam, out_half`` [rows, last − first].
    """
    n_factors = mean.shape[1]
    for chunk in range(low, high):
        for row in range(chunks[chunk], chunks[chunk + 1]):
            for k in range(first, last):
                out_lam[row, k - first], out_half[row, k - first] = 0.0, -0.5 * prior
            for n in range(start[row], start[row + 1]):
                j = other[n]
                residual = values[n]
                for k in range(n_factors):
                    residual -= mean[row, k] * other_mean[j, k]
                for k in range(first, last):
                    value = other_mean[j, k]
                    out_lam[row, k - first] += tau * value * (residual + mean[row, k] * value)
                    out_half[row, k - first] -= 0.5 * tau * other_second[j, k]


@serial_kernel
def sampled_target(own, other, values, weights, other_mean, other_second, mean, tau, first, last, out_lam, out_half):
    """Add weight · η̃_ni of sampled ratings to the targets of the factors ``first … last − 1``, in the order given.

    ``own, other`` [sample] are the elements of both sides, ``out_lam, out_half`` [rows, last − first] hold the prior.
    """
    for n in range(own.shape[0]):
        i, j, scaled = own[n], other[n], tau * weights[n]
        residual = values[n]
        for k in range(mean.shape[1]):
            residual -= mean[i, k] * other_mean[j, k]
        for k in range(first, last):
            value = other_mean[j, k]
            out_lam[i, k - first] += scaled * value * (residual + mean[i, k] * value)
            out_half[i, k - first] -= 0.5 * scaled * other_second[j, k]


@parallel_kernel(of_pieces)
def expected_errors(low, high, chunks, start, other, values, mean, second, other_mean, other_second, errors):
    """Σ_n E[(r_n − u·v)²] of every row: residual² + Σ_k (E[u²] E[v²] − E[u]² E[v]²)."""
    for chunk in range(low, high):
        for row in range(chunks[chunk], chunks[chunk + 1]):
            total = 0.0
            for n in range(start[row], start[row + 1]):
                j = other[n]
                residual, spread = values[n], 0.0
                for k in range(mean.shape[1]):
                    m, v = mean[row, k], other_mean[j, k]
                    residual -= m * v
                    spread += second[row, k] * other_second[j, k] - m * m * v * v
                total += residual * residual + spread
            errors[row] = total
