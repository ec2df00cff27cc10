"""Likes by row and the vectors of the other side in; the vectors that fit the weighted pairs of each row out."""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_rows, parallel_kernel

__all__ = ["solve_weighted"]


@parallel_kernel(of_rows)
def solve_weighted(low, high, out, start, others, vectors, squares, penalty, confidence, steps, least):
    """``(diag(squares) + penalty_i + confidence Σ v vᵀ) out_i = (1 + confidence) Σ v``, v = ``vectors[others[start[i] : …]]``.

    ``vectors`` are in the basis in which the sum of v vᵀ over all of them is ``diag(squares)``, so that what every row shares
    is the diagonal: conjugate gradients with it as the preconditioner need no more steps than a row has likes, and few at all.
    They begin at ``out`` and end after so many ``steps``, or where the residual is ``least`` parts of the first. All in single
    precision. Threads own rows.
    """
    size = vectors.shape[1]
    rest, way = np.empty(size, np.float32), np.empty(size, np.float32)
    turned, inverse = np.empty(size, np.float32), np.empty(size, np.float32)
    one = np.float32(1.0)
    for row in range(low, high):
        x = out[row]
        begin, end = start[row], start[row + 1]
        if begin == end:
            x[:] = np.float32(0.0)
            continue
        for k in range(size):
            diagonal = squares[k] + penalty[row]
            inverse[k] = one / diagonal
            rest[k] = -diagonal * x[k]
        _add_pulls(rest, vectors, others[begin:end], x, one + confidence, -confidence)
        length = np.float32(0.0)
        for k in range(size):
            way[k] = inverse[k] * rest[k]
            length += way[k] * rest[k]
        enough = least * length
        for _ in range(steps):
            if not length > enough:
                break
            for k in range(size):
                turned[k] = way[k] / inverse[k]
            _add_pulls(turned, vectors, others[begin:end], way, np.float32(0.0), confidence)
            curve = np.float32(0.0)
            for k in range(size):
                curve += way[k] * turned[k]
            ahead, after = length / curve, np.float32(0.0)
            for k in range(size):
                x[k] += ahead * way[k]
                rest[k] -= ahead * turned[k]
                after += rest[k] * rest[k] * inverse[k]
            again = after / length
            length = after
            for k in range(size):
                way[k] = inverse[k] * rest[k] + again * way[k]


@lane_kernel
def _add_pulls(out, vectors, others, x, constant, factor):
    """``out += Σ (constant + factor v · x) v``, v = ``vectors[others]``; four at a time take three quarters of the time."""
    size, n = len(x), len(others)
    none = np.float32(0.0)
    for place in range(0, n - 3, 4):
        a, b = vectors[others[place]], vectors[others[place + 1]]
        c, d = vectors[others[place + 2]], vectors[others[place + 3]]
        at_a, at_b, at_c, at_d = none, none, none, none
        for k in range(size):
            at_a += a[k] * x[k]
            at_b += b[k] * x[k]
            at_c += c[k] * x[k]
            at_d += d[k] * x[k]
        at_a, at_b = constant + factor * at_a, constant + factor * at_b
        at_c, at_d = constant + factor * at_c, constant + factor * at_d
        for k in range(size):
            out[k] += at_a * a[k] + at_b * b[k] + at_c * c[k] + at_d * d[k]
    for place in range(n - n % 4, n):
        a, at_a = vectors[others[place]], none
        for k in range(size):
            at_a += a[k] * x[k]
        at_a = constant + factor * at_a
        for k in range(size):
            out[k] += at_a * a[k]
