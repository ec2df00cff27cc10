"""The moments of Gaussian chains, forwards and backwards along each: see `families/_gaussian_chain.py` for the recursions."""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import inlined_kernel, serial_kernel

__all__ = ["smooth_paths"]

# Change below which covariances have settled: two units of the last digit. What is left of a path that approaches its limit by a
# share r of the distance at each step is below SETTLED / r, and r is above 30 / T where it settles within T steps.
SETTLED = 5e-16


@inlined_kernel
def _invert(matrix, row):
    """A positive definite matrix becomes its inverse, and the log of its determinant comes back; NaN for any other matrix.

    Gauss and Jordan's elimination: its pivots are those of Cholesky, and its innermost loop is a whole row.
    """
    size, logdet = len(matrix), 0.0
    for k in range(size):
        # The log of a negative number is NaN here, and stays so: whoever asks for validity sees it.
        pivot = matrix[k, k] if matrix[k, k] > 0.0 else np.nan
        logdet += math.log(pivot)
        scale = 1.0 / pivot
        matrix[k, k] = 1.0
        for j in range(size):
            row[j] = matrix[k, j] * scale
        for i in range(size):
            if i != k:
                factor = matrix[i, k]
                matrix[i, k] = 0.0
                for j in range(size):
                    matrix[i, j] -= factor * row[j]
        for j in range(size):
            matrix[k, j] = row[j]
    return logdet


@inlined_kernel
def _subtract_product(out, a, b):
    """Out −= a b, four rows of b at a time: a loop along rows that reads and writes ``out`` once for each four."""
    size = len(out)
    whole = size - size % 4
    for i in range(size):
        for k in range(0, whole, 4):
            f0, f1, f2, f3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            for j in range(size):
                out[i, j] -= (f0 * b[k, j] + f1 * b[k + 1, j]) + (f2 * b[k + 2, j] + f3 * b[k + 3, j])
        for k in range(whole, size):
            f0 = a[i, k]
            for j in range(size):
                out[i, j] -= f0 * b[k, j]


@inlined_kernel
def _equal(a, b):
    for i in range(len(a)):
        for j in range(len(a)):
            if a[i, j] != b[i, j]:
                return False
    return True


@inlined_kernel
def _close(a, b):
    """Whether covariances differ by their last digits alone, each entry in units of its two standard deviations."""
    for i in range(len(a)):
        for j in range(i + 1):
            change = a[i, j] - b[i, j]
            if not change * change <= SETTLED * SETTLED * a[i, i] * a[j, j]:
                return False
    return True


@serial_kernel
def _forward(h, diagonal, beside, covariance, mean, vector, logdet, same):
    """S_t⁻¹, S_t⁻¹ v_t, v_t and log|S_t| of one chain; ``same`` says where the first is that of the time before.

    Where nothing but data changes along time S_t settles, to its last digits, and is not computed again.
    """
    n_times, size = h.shape
    before, fold, turned = np.empty((size, size)), np.empty((size, size)), np.empty((size, size))
    S, row, settled = np.empty((size, size)), np.empty(size), False
    for t in range(n_times):
        repeats = t > 1 and _equal(beside[t], beside[t - 1]) and _equal(diagonal[t], diagonal[t - 1])
        same[t] = settled = settled and repeats
        for i in range(size):
            total = h[t, i]
            if t > 0:
                for k in range(size):
                    total -= beside[t, i, k] * mean[t - 1, k]
            vector[t, i] = total
        if settled:
            logdet[t] = logdet[t - 1]
        else:
            for i in range(size):
                for j in range(size):
                    S[i, j] = 0.5 * (diagonal[t, i, j] + diagonal[t, j, i])
            if t > 0:
                for i in range(size):
                    for k in range(size):
                        turned[k, i] = -beside[t, i, k]
                        fold[i, k] = 0.0
                _subtract_product(fold, beside[t], before)
                _subtract_product(S, fold, turned)
            logdet[t] = _invert(S, row)
            for i in range(size):
                for j in range(size):
                    before[i, j] = 0.5 * (S[i, j] + S[j, i])
            settled = repeats and _close(before, covariance[t - 1])
        for i in range(size):
            mean[t, i] = 0.0
            for j in range(size):
                covariance[t, i, j] = before[i, j]
        for k in range(size):
            factor = vector[t, k]
            for i in range(size):
                mean[t, i] += factor * before[k, i]


@serial_kernel
def _backward(beside, covariance, mean, lagged, same):
    """Filtered means and covariances of one chain become smoothed ones; ``lagged[t]`` is Cov(x_t, x_{t−1})."""
    n_times, size = mean.shape
    turned, gain = np.empty((size, size)), np.empty((size, size))  # the gain, transposed, and itself
    cross, smooth, older = np.empty((size, size)), covariance[n_times - 1].copy(), np.empty((size, size))
    settled = False
    for t in range(n_times - 2, -1, -1):
        own = covariance[t]
        # The gain is that of the time after if its two parts are.
        repeats = t + 2 < n_times and same[t + 1] and same[t + 2]
        settled = settled and repeats
        if not settled:
            if not repeats:
                for i in range(size):
                    for j in range(size):
                        turned[i, j] = 0.0
                _subtract_product(turned, beside[t + 1], own)
                for i in range(size):
                    for j in range(size):
                        turned[j, i] = -turned[j, i]
                        gain[i, j] = turned[j, i]
            for i in range(size):
                for j in range(size):
                    cross[i, j], older[i, j] = 0.0, smooth[i, j]
            _subtract_product(cross, older, turned)
            for i in range(size):
                for j in range(size):
                    smooth[i, j] = own[i, j]
            _subtract_product(smooth, gain, cross)
            for i in range(size):
                for j in range(i + 1):
                    smooth[i, j] = smooth[j, i] = 0.5 * (smooth[i, j] + smooth[j, i])
            settled = repeats and _close(smooth, older)
        for i in range(size):
            for j in range(size):
                lagged[t + 1, i, j], own[i, j] = cross[i, j], smooth[i, j]
        for k in range(size):
            factor = mean[t + 1, k]
            for i in range(size):
                mean[t, i] -= factor * turned[k, i]
    for i in range(size):
        for j in range(size):
            lagged[0, i, j] = 0.0


@serial_kernel
def smooth_paths(h, diagonal, beside, mean, covariance, lagged, logdet, quadratic):
    """The smoothed moments of every chain.

    Parameters
    ----------
    h : array [B, T, D]
    diagonal, beside : arrays [B, T, D, D], P_tt and P_{t,t−1}; nothing beside the first time, and 0 at the start of a sequence
    mean, covariance, lagged : arrays [B, T, D], [B, T, D, D] and [B, T, D, D] that are filled
    logdet, quadratic : arrays [B] that are filled with Σ log|S_t| and Σ v_tᵀ S_t⁻¹ v_t
    """
    n_chains, n_times, size = h.shape
    vector, logs, same = np.empty((n_times, size)), np.empty(n_times), np.zeros(n_times, dtype=np.bool_)
    for b in range(n_chains):
        _forward(h[b], diagonal[b], beside[b], covariance[b], mean[b], vector, logs, same)
        total, square = 0.0, 0.0
        for t in range(n_times):
            total += logs[t]
            for i in range(size):
                square += vector[t, i] * mean[b, t, i]
        logdet[b], quadratic[b] = total, square
        _backward(beside[b], covariance[b], mean[b], lagged[b], same)
