"""Likes by row and the vectors of the other side in; the vectors that fit the weighted pairs of each row out."""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import of_rows, parallel_kernel

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
        for place in range(begin, end):
            v = vectors[others[place]]
            dot = np.float32(0.0)
            for k in range(size):
                dot += v[k] * x[k]
            pull = one + confidence - confidence * dot
            for k in range(size):
                rest[k] += pull * v[k]
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
            for place in range(begin, end):
                v = vectors[others[place]]
                dot = np.float32(0.0)
                for k in range(size):
                    dot += v[k] * way[k]
                dot *= confidence
                for k in range(size):
                    turned[k] += dot * v[k]
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
