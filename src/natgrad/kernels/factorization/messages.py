"""Remembered messages of a factorisation: edges read anew in, the sums of their rows and the rows' best means out.

For each edge (a rating, seen from one side) the other side's mean and variance when it was last read are kept in single
precision, ``kept`` [edges, 2, K]. For each row ``cross`` [K, K] = Σ m mᵀ (lower half), ``spread`` [K] = Σ var and
``pull`` [K] = Σ r m over its edges. A row's posterior given what is remembered is

    precision_k = α + τ (cross_kk + spread_k),     (α + τ cross + τ diag(spread)) mean = τ pull + what unread edges hold

Rows of one side never read each other, so they run in parallel; the sums of one row are added in the order of its edges.
"""

from functools import partial

import numpy as np

from natgrad.kernels._njit import of_pieces, parallel_kernel, serial_kernel
from natgrad.kernels.factorization.ratings import solve

__all__ = ["read_edges", "rebuild_rows"]

# Sums in the order in which they are written: what is remembered is taken off again, and must leave nothing behind.
parallel = partial(parallel_kernel, kernel=serial_kernel)


@parallel(lambda positions, first, rows, *rest: len(rows))
def read_edges(
    low, high, positions, first, rows, others, values, means, minus_half, kept, seen, cross, spread, pull, held, degree,
    prior, noise, over, out_mean, out_precision,
):  # fmt: skip
    """Read edges anew and solve their rows.

    ``positions`` are sorted, those of ``rows[i]`` are ``positions[first[i] : first[i+1]]``; ``others`` [edges] is the row of
    the other side. ``held`` [rows, K] is what the unread edges of a row hold together at the start; each gives up its share
    when it is first read. ``over`` > 1 remembers a mean beyond the one just read, in the direction in which it moved.
    """
    size = means.shape[1]
    for place in range(low, high):
        row = rows[place]
        new, old = np.empty(size), np.empty(size)
        for entry in range(first[place], first[place + 1]):
            edge = positions[entry]
            other, value = others[edge], values[edge]
            if seen[edge]:
                for k in range(size):
                    old[k] = kept[edge, 0, k]
                    spread[row, k] -= kept[edge, 1, k]
                    kept[edge, 0, k] = means[other, k] + (over - 1.0) * (means[other, k] - old[k])
            else:
                seen[edge] = True
                for k in range(size):
                    old[k] = 0.0
                    pull[row, k] -= held[row, k] / (noise * degree[row])
                    kept[edge, 0, k] = means[other, k]
            for k in range(size):
                kept[edge, 1, k] = -0.5 / minus_half[other, k]  # λ₂ = −precision/2
                new[k] = kept[edge, 0, k]
                spread[row, k] += kept[edge, 1, k]
                pull[row, k] += value * (new[k] - old[k])
                for j in range(k + 1):
                    cross[row, k, j] += new[k] * new[j] - old[k] * old[j]
        matrix, goal = np.empty((size, size)), out_mean[place]
        for k in range(size):
            for j in range(k):
                matrix[k, j] = noise * cross[row, k, j]
            matrix[k, k] = prior + noise * (cross[row, k, k] + spread[row, k])
            out_precision[place, k] = matrix[k, k]
            goal[k] = noise * pull[row, k]
        solve(matrix, goal)


@parallel(of_pieces)
def rebuild_rows(low, high, start, values, kept, seen, cross, spread, pull, held, noise):
    """The sums of all rows from what is remembered, free of the rounding of many small changes."""
    size = spread.shape[1]
    for row in range(low, high):
        cross[row] = 0.0
        spread[row] = 0.0
        pull[row] = 0.0
        unread = 0
        for edge in range(start[row], start[row + 1]):
            if not seen[edge]:
                unread += 1
                continue
            for k in range(size):
                mean = kept[edge, 0, k]
                spread[row, k] += kept[edge, 1, k]
                pull[row, k] += values[edge] * mean
                for j in range(k + 1):
                    cross[row, k, j] += np.float64(mean) * kept[edge, 0, j]
        degree = start[row + 1] - start[row]
        if degree > 0:
            for k in range(size):
                pull[row, k] += held[row, k] * unread / (noise * degree)
