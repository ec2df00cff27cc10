"""The moments of Gaussian chains, forwards and backwards along each: see `families/_gaussian_chain.py` for the recursions."""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import serial_kernel

__all__ = ["smooth_paths"]


@serial_kernel
def _invert(matrix, lower, inverse):
    """The inverse of a positive definite matrix, by Cholesky, and the log of its determinant; NaN for any other matrix."""
    size, logdet = len(matrix), 0.0
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            if i == j:
                # The root of a negative number is NaN here, and stays so: whoever asks for validity sees it.
                lower[i, i] = math.sqrt(total) if total > 0.0 else np.nan
                logdet += 2.0 * math.log(lower[i, i])
            else:
                lower[i, j] = total / lower[j, j]
    for j in range(size):  # L⁻¹ in place of L, column after column
        lower[j, j] = 1.0 / lower[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total -= lower[i, k] * lower[k, j]
            lower[i, j] = total / lower[i, i]
    for i in range(size):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, size):
                total += lower[k, i] * lower[k, j]
            inverse[i, j] = inverse[j, i] = total
    return logdet


@serial_kernel
def _forward(h, diagonal, beside, covariance, mean, vector, logdet):
    """S_t⁻¹, S_t⁻¹ v_t, v_t and log|S_t| of one chain."""
    n_times, size = h.shape
    S, lower, fold = np.empty((size, size)), np.empty((size, size)), np.empty((size, size))
    for t in range(n_times):
        for i in range(size):
            total = h[t, i]
            if t > 0:
                for k in range(size):
                    total -= beside[t, i, k] * mean[t - 1, k]
                for j in range(size):
                    entry = 0.0
                    for k in range(size):
                        entry += beside[t, i, k] * covariance[t - 1, k, j]
                    fold[i, j] = entry
            vector[t, i] = total
        for i in range(size):
            for j in range(i + 1):
                total = 0.5 * (diagonal[t, i, j] + diagonal[t, j, i])
                if t > 0:
                    for k in range(size):
                        total -= fold[i, k] * beside[t, j, k]
                S[i, j] = total
        logdet[t] = _invert(S, lower, covariance[t])
        for i in range(size):
            total = 0.0
            for k in range(size):
                total += covariance[t, i, k] * vector[t, k]
            mean[t, i] = total


@serial_kernel
def _backward(beside, covariance, mean, lagged):
    """Filtered means and covariances of one chain become smoothed ones; ``lagged[t]`` is Cov(x_t, x_{t−1})."""
    n_times, size = mean.shape
    gain = np.empty((size, size))
    for t in range(n_times - 2, -1, -1):
        for i in range(size):
            for j in range(size):
                total = 0.0
                for k in range(size):
                    total += covariance[t, i, k] * beside[t + 1, j, k]
                gain[i, j] = total
        for i in range(size):
            for j in range(size):
                total = 0.0
                for k in range(size):
                    total -= covariance[t + 1, i, k] * gain[j, k]
                lagged[t + 1, i, j] = total
        for i in range(size):
            total = mean[t, i]
            for k in range(size):
                total -= gain[i, k] * mean[t + 1, k]
            mean[t, i] = total
            for j in range(i + 1):
                total = covariance[t, i, j]
                for k in range(size):
                    total -= gain[i, k] * lagged[t + 1, k, j]
                covariance[t, i, j] = covariance[t, j, i] = total
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
    vector, logs = np.empty((n_times, size)), np.empty(n_times)
    for b in range(n_chains):
        _forward(h[b], diagonal[b], beside[b], covariance[b], mean[b], vector, logs)
        total, square = 0.0, 0.0
        for t in range(n_times):
            total += logs[t]
            for i in range(size):
                square += vector[t, i] * mean[b, t, i]
        logdet[b], quadratic[b] = total, square
        _backward(beside[b], covariance[b], mean[b], lagged[b])
