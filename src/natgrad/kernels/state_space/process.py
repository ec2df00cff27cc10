"""Sums of Matérn processes along time, each a linear state of one to three numbers: filter, slopes, smoothing, draws.

With the states of `natgrad.kernels.state_space.matern`,

    x_t = A x_{t−1} + N(0, σ² (P∞ − A P∞ Aᵀ)),    y_t = Σ_components f_t + N(0, noise)

Covariances are filtered, not precisions, which have no limit where times coincide. Slopes in the parameters (log σ² and log ℓ of
each component, log noise) go along with the filter; with e_t and s_t the prediction error and its variance,

    log p = −½ Σ [log 2π + log s + e²/s],     information = Σ [e' e'ᵀ / s + ½ s' s'ᵀ / s²]

Smoothing goes backwards with what later rows say of f (Bryson and Frazier; de Jong, 1989), and inverts nothing.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import serial_kernel
from natgrad.kernels.state_space.matern import (
    begin_path,
    conjugate,
    copy_matrix,
    fill,
    move_vector,
    multiply,
    transition,
)

__all__ = ["draw_path", "filter_path", "score_path", "smooth_path"]

# Change below which covariances and their slopes have settled, in units of the largest entry: rounding.
SETTLED = 1e-15


@serial_kernel
def _predict_means(A, dA, m, dm, moved):
    """A m, and its slopes: those in log ℓ of component c are number 2 c + 1."""
    for p in range(len(dm)):
        move_vector(A, dm[p], moved)
    for c in range(len(dA)):
        for i in range(len(m)):
            for k in range(len(m)):
                dm[2 * c + 1, i] += dA[c, i, k] * m[k]
    move_vector(A, m, moved)


@serial_kernel
def _predict_spreads(sizes, A, Q, dA, dQ, P, dP, fold, new):
    """A P Aᵀ + Q, and its slopes."""
    size = len(P)
    for p in range(len(dP)):
        conjugate(A, dP[p], fold, new)
        copy_matrix(new, dP[p])
    multiply(A, P, fold)
    at = 0
    for c in range(len(sizes)):
        for i in range(at, at + sizes[c]):
            for j in range(at, at + sizes[c]):
                dP[2 * c, i, j] += Q[i, j]
        at += sizes[c]
        for i in range(size):
            for j in range(size):
                value = dQ[c, i, j]
                for k in range(size):
                    value += fold[i, k] * dA[c, j, k] + dA[c, i, k] * fold[j, k]
                dP[2 * c + 1, i, j] += value
    conjugate(A, P, fold, new)
    for i in range(size):
        for j in range(size):
            P[i, j] = new[i, j] + Q[i, j]


@serial_kernel
def _update_spreads(noise, begins, P, dP, gain, dgain, s, ds, moved):
    """The variance of the next observation with its slopes, the gains, and P after it; how much changed since the row before."""
    size, n = len(P), len(dP)
    before, s[0] = s[0], noise
    for i in range(size):
        moved[i] = 0.0
        for k in range(size):
            moved[i] += P[i, k] * begins[k]
        s[0] += begins[i] * moved[i]
    change = abs(s[0] - before)
    for i in range(size):
        change = max(change, abs(moved[i] - gain[i] * s[0]))
        gain[i] = moved[i] / s[0]
    for p in range(n):
        before, ds[p] = ds[p], noise if p == n - 1 else 0.0
        for i in range(size):
            moved[i] = 0.0
            for k in range(size):
                moved[i] += dP[p, i, k] * begins[k]
            ds[p] += begins[i] * moved[i]
        change = max(change, abs(ds[p] - before))
        for i in range(size):
            value = (moved[i] - gain[i] * ds[p]) / s[0]
            change = max(change, abs(value - dgain[p, i]) * s[0])
            dgain[p, i] = value
        for i in range(size):
            for j in range(size):
                dP[p, i, j] -= (dgain[p, i] * gain[j] + gain[i] * dgain[p, j]) * s[0] + gain[i] * gain[j] * ds[p]
    for i in range(size):
        for j in range(size):
            P[i, j] -= gain[i] * gain[j] * s[0]
    return change


@serial_kernel
def _observe(y, s, begins, m, dm, gain, dgain, ds, de, slope, information):
    """The means after an observation; what it adds to the slope and to the information. Its log density."""
    error = y
    for i in range(len(m)):
        error -= begins[i] * m[i]
    for p in range(len(dm)):
        de[p] = 0.0
        for i in range(len(m)):
            de[p] -= begins[i] * dm[p, i]
        slope[p] -= 0.5 * (ds[p] / s * (1.0 - error * error / s) + 2.0 * error * de[p] / s)
        for other in range(p + 1):
            information[p, other] += de[p] * de[other] / s + 0.5 * ds[p] * ds[other] / (s * s)
        for i in range(len(m)):
            dm[p, i] += dgain[p, i] * error + gain[i] * de[p]
    for i in range(len(m)):
        m[i] += gain[i] * error
    return -0.5 * (math.log(2.0 * math.pi * s) + error * error / s)


@serial_kernel
def score_path(sizes, variances, rates, noise, steps, y, slope, information):
    """Log p(y), with its slope [2 C + 1] and information [2 C + 1, 2 C + 1] in (log σ², log ℓ) of each component and log noise.

    Parameters
    ----------
    sizes, variances, rates : arrays [C]
    noise : float
    steps, y : arrays [T], times since the row before and observations
    slope, information : arrays that are filled
    """
    n_parts, size = len(sizes), sizes.sum()
    n = 2 * n_parts + 1
    work = np.zeros((6, size, size))
    A, Q, P, fold, new, stationary = work[0], work[1], work[2], work[3], work[4], work[5]
    dA, dQ, dP = np.zeros((n_parts, size, size)), np.zeros((n_parts, size, size)), np.zeros((n, size, size))
    vectors, slopes = np.zeros((4, size)), np.zeros((2, n, size))
    m, gain, moved, begins = vectors[0], vectors[1], vectors[2], vectors[3]
    dm, dgain, ds, de, s = slopes[0], slopes[1], np.zeros(n), np.zeros(n), np.ones(1)
    for p in range(n):
        slope[p] = 0.0
    fill(0.0, information)
    begin_path(sizes, variances, rates, begins, A, Q, P)
    at = 0
    for c in range(n_parts):
        for i in range(at, at + sizes[c]):
            for j in range(at, at + sizes[c]):
                dP[2 * c, i, j] = P[i, j]
        at += sizes[c]
    total, settled, last = 0.0, False, -1.0
    for t in range(len(y)):
        if t > 0:
            if steps[t] != last:
                transition(sizes, variances, rates, steps[t], A, Q, dA, dQ, stationary, True)
                last, settled = steps[t], False
            _predict_means(A, dA, m, dm, moved)
            if not settled:
                _predict_spreads(sizes, A, Q, dA, dQ, P, dP, fold, new)
        if not settled:
            change = _update_spreads(noise, begins, P, dP, gain, dgain, s, ds, moved)
            settled = change <= SETTLED * s[0]
        total += _observe(y[t], s[0], begins, m, dm, gain, dgain, ds, de, slope, information)
    for p in range(n):
        for other in range(p):
            information[other, p] = information[p, other]
    return total


@serial_kernel
def filter_path(sizes, variances, rates, noise, steps, y, seen, mean, spread, error, held):
    """Each row of f given those before it, in what `smooth_path` reads; the log density of the rows that are ``seen``.

    Parameters
    ----------
    steps, y, seen : arrays [T]; a row that is not seen has no observation
    mean, spread, error, held : arrays [T], [T], [T], [T, D] that are filled: of f the mean and the variance before the row, the
        error of the prediction, and P Hᵀ, its covariance with the state
    """
    size = sizes.sum()
    work, none = np.zeros((6, size, size)), np.empty((0, 0, 0))
    A, Q, P, fold, new, stationary = work[0], work[1], work[2], work[3], work[4], work[5]
    m, moved, begins = np.zeros(size), np.empty(size), np.zeros(size)
    begin_path(sizes, variances, rates, begins, A, Q, P)
    total, last = 0.0, -1.0
    for t in range(len(y)):
        if t > 0:
            if steps[t] != last:
                transition(sizes, variances, rates, steps[t], A, Q, none, none, stationary, False)
                last = steps[t]
            move_vector(A, m, moved)
            conjugate(A, P, fold, new)
            for i in range(size):
                for j in range(size):
                    P[i, j] = new[i, j] + Q[i, j]
        spread[t], mean[t] = 0.0, 0.0
        for i in range(size):
            held[t, i] = 0.0
            for k in range(size):
                held[t, i] += P[i, k] * begins[k]
            spread[t] += begins[i] * held[t, i]
            mean[t] += begins[i] * m[i]
        error[t] = 0.0
        if seen[t]:
            error[t], s = y[t] - mean[t], spread[t] + noise
            total -= 0.5 * (math.log(2.0 * math.pi * s) + error[t] * error[t] / s)
            for i in range(size):
                m[i] += held[t, i] * error[t] / s
                for j in range(size):
                    P[i, j] -= held[t, i] * held[t, j] / s
    return total


@serial_kernel
def smooth_path(sizes, variances, rates, noise, steps, seen, mean, spread, error, held):
    """Mean and variance of f before each row become those given all rows, in place; see `filter_path`."""
    n_times, size = held.shape
    work, none = np.zeros((6, size, size)), np.empty((0, 0, 0))
    A, Q, N, fold, new, back = work[0], work[1], work[2], work[3], work[4], work[5]
    r, moved, begins = np.zeros(size), np.empty(size), np.zeros(size)
    begin_path(sizes, variances, rates, begins, A, Q, new)
    last = -1.0
    for t in range(n_times - 1, -1, -1):
        if t < n_times - 1:
            if steps[t + 1] != last:
                transition(sizes, variances, rates, steps[t + 1], A, Q, none, none, new, False)
                last = steps[t + 1]
                for i in range(size):
                    for j in range(size):
                        back[i, j] = A[j, i]
            move_vector(back, r, moved)
            conjugate(back, N, fold, new)
            copy_matrix(new, N)
        if seen[t]:
            s, along = spread[t] + noise, 0.0
            for k in range(size):
                along += held[t, k] * r[k] / s
            square = 0.0
            for i in range(size):
                moved[i] = 0.0
                for k in range(size):
                    moved[i] += N[i, k] * held[t, k] / s
                square += held[t, i] * moved[i] / s
            for i in range(size):
                r[i] += begins[i] * (error[t] / s - along)
                for j in range(size):
                    N[i, j] += begins[i] * begins[j] * (1.0 / s + square) - begins[i] * moved[j] - moved[i] * begins[j]
        gone = 0.0
        for i in range(size):
            mean[t] += held[t, i] * r[i]
            for k in range(size):
                gone += held[t, i] * N[i, k] * held[t, k]
        spread[t] = max(spread[t] - gone, 0.0)


@serial_kernel
def draw_path(sizes, variances, rates, steps, normals, f):
    """A draw of f from the prior, from standard normal numbers [T, D]; Q that is singular up to rounding is taken as that."""
    n_times, size = normals.shape
    work, none = np.zeros((4, size, size)), np.empty((0, 0, 0))
    A, Q, root, stationary = work[0], work[1], work[2], work[3]
    x, moved, begins = np.zeros(size), np.empty(size), np.zeros(size)
    begin_path(sizes, variances, rates, begins, A, Q, stationary)
    last = -1.0
    for t in range(n_times):
        if t == 0 or steps[t] != last:
            transition(sizes, variances, rates, steps[t] if t > 0 else 0.0, A, Q, none, none, stationary, False)
            last = steps[t] if t > 0 else -1.0
            if t == 0:
                copy_matrix(stationary, Q)
            for i in range(size):
                for j in range(i + 1):
                    value = Q[i, j]
                    for k in range(j):
                        value -= root[i, k] * root[j, k]
                    if i == j:
                        root[i, j] = math.sqrt(max(value, 0.0))
                    else:
                        root[i, j] = value / root[j, j] if root[j, j] > 0.0 else 0.0
        for i in range(size):
            moved[i] = 0.0
            for k in range(size):
                moved[i] += A[i, k] * x[k] if t > 0 else 0.0
            for k in range(i + 1):
                moved[i] += root[i, k] * normals[t, k]
        for i in range(size):
            x[i] = moved[i]
        f[t] = 0.0
        for i in range(size):
            f[t] += begins[i] * x[i]
