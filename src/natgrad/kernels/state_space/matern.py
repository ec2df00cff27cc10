"""Matérn processes as linear states: the transition over a step of time, and products of the small matrices that it takes.

A component of ``size`` 1, 2 or 3 is Matérn 1/2, 3/2 or 5/2: f and its derivatives in units of its rate λ = √(2ν)/ℓ, so that with
δ = λ Δt the transition is exp(δ F) for a fixed F and the stationary covariance is a variance times a fixed matrix P∞. Hartikainen
and Särkkä (2010).
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import inlined_kernel, serial_kernel

__all__ = ["begin_path", "conjugate", "copy_matrix", "fill", "move_vector", "multiply", "transition"]


@inlined_kernel
def _place(size, delta, at, A, stationary, generator):
    """exp(δ F), P∞ and F of one component, written at its place."""
    decay, half = math.exp(-delta), 0.5 * delta * delta
    stationary[at, at] = 1.0
    if size == 1:
        A[at, at], generator[at, at] = decay, -1.0
    elif size == 2:
        A[at, at], A[at, at + 1] = decay * (1.0 + delta), decay * delta
        A[at + 1, at], A[at + 1, at + 1] = -decay * delta, decay * (1.0 - delta)
        stationary[at + 1, at + 1] = 1.0
        generator[at, at + 1] = 1.0
        generator[at + 1, at], generator[at + 1, at + 1] = -1.0, -2.0
    else:
        A[at, at], A[at, at + 1], A[at, at + 2] = (
            decay * (1.0 + delta + half),
            decay * (delta + 2.0 * half),
            decay * half,
        )
        A[at + 1, at], A[at + 1, at + 1] = -decay * half, decay * (1.0 + delta - 2.0 * half)
        A[at + 1, at + 2] = decay * (delta - half)
        A[at + 2, at], A[at + 2, at + 1] = decay * (half - delta), decay * (2.0 * half - 3.0 * delta)
        A[at + 2, at + 2] = decay * (1.0 - 2.0 * delta + half)
        stationary[at, at + 2] = stationary[at + 2, at] = -1.0 / 3.0
        stationary[at + 1, at + 1], stationary[at + 2, at + 2] = 1.0 / 3.0, 1.0
        generator[at, at + 1] = generator[at + 1, at + 2] = 1.0
        generator[at + 2, at], generator[at + 2, at + 1], generator[at + 2, at + 2] = -1.0, -3.0, -3.0


@serial_kernel
def transition(sizes, variances, rates, step, A, Q, dA, dQ, stationary, with_slopes):
    """A, Q and, for each component, their slopes in log ℓ; those in log σ² are Q of the component itself."""
    size = len(A)
    generator, fold, turned = np.zeros((size, size)), np.empty((size, size)), np.empty((size, size))
    fill(0.0, A)
    fill(0.0, stationary)
    at = 0
    for c in range(len(sizes)):
        _place(sizes[c], rates[c] * step, at, A, stationary, generator)
        at += sizes[c]
    multiply(A, stationary, fold)
    for i in range(size):
        for j in range(size):
            total = 0.0
            for k in range(size):
                total += fold[i, k] * A[j, k]
            Q[i, j] = stationary[i, j] - total
    if with_slopes:
        multiply(generator, A, turned)
        at = 0
        for c in range(len(sizes)):
            delta, end = rates[c] * step, at + sizes[c]
            for i in range(at, end):
                for j in range(at, end):
                    dA[c, i, j] = -delta * turned[i, j]
            for i in range(at, end):
                for j in range(at, end):
                    total = 0.0
                    for k in range(at, end):
                        total += dA[c, i, k] * fold[j, k] + fold[i, k] * dA[c, j, k]
                    dQ[c, i, j] = -variances[c] * total
            at = end
    at = 0
    for c in range(len(sizes)):
        for i in range(at, at + sizes[c]):
            for j in range(at, at + sizes[c]):
                Q[i, j] *= variances[c]
                stationary[i, j] *= variances[c]
        at += sizes[c]


@serial_kernel
def fill(value, out):
    """All entries of a matrix become a number."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = value


@serial_kernel
def copy_matrix(a, out):
    """A matrix into another."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = a[i, j]


@serial_kernel
def multiply(a, b, out):
    """The product of square matrices."""
    for i in range(len(a)):
        for j in range(len(a)):
            total = 0.0
            for k in range(len(a)):
                total += a[i, k] * b[k, j]
            out[i, j] = total


@serial_kernel
def conjugate(a, p, fold, out):
    """A P Aᵀ."""
    multiply(a, p, fold)
    for i in range(len(a)):
        for j in range(i + 1):
            total = 0.0
            for k in range(len(a)):
                total += fold[i, k] * a[j, k]
            out[i, j] = out[j, i] = total


@serial_kernel
def move_vector(A, x, moved):
    """A vector becomes A times itself."""
    for i in range(len(x)):
        moved[i] = 0.0
        for k in range(len(x)):
            moved[i] += A[i, k] * x[k]
    for i in range(len(x)):
        x[i] = moved[i]


@serial_kernel
def begin_path(sizes, variances, rates, begins, A, Q, P):
    """Where each component begins, and the state before the first row."""
    none = np.empty((0, 0, 0))
    for i in range(len(begins)):
        begins[i] = 0.0
    at = 0
    for c in range(len(sizes)):
        begins[at] = 1.0
        at += sizes[c]
    transition(sizes, variances, rates, 0.0, A, Q, none, none, P, False)
