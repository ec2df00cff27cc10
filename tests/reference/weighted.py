"""Slow twins of the kernels of weighted factorisation and of neighbours: one row at a time, in double precision."""

import numpy as np


def solve_weighted(start, others, vectors, penalty, confidence):
    """The vectors of rows: (Σ_all v vᵀ + α Σ_liked v vᵀ + κ)⁻¹ (1 + α) Σ_liked v."""
    v = np.asarray(vectors, dtype=np.float64)
    out = np.zeros((len(start) - 1, v.shape[1]))
    for row in range(len(out)):
        liked = v[others[start[row] : start[row + 1]]]
        matrix = v.T @ v + confidence * liked.T @ liked + penalty[row] * np.eye(v.shape[1])
        out[row] = np.linalg.solve(matrix, (1.0 + confidence) * liked.sum(0))
    return out


def nearest_items(table, weight, target, kept):
    """Of every item the others with the largest weighted counts of being liked together, times ``target``."""
    counts = (table.T * weight) @ table * target
    np.fill_diagonal(counts, 0.0)
    order = np.argsort(-counts, axis=1, kind="stable")[:, :kept]
    values = np.take_along_axis(counts, order, 1)
    return np.where(values > 0.0, order, np.arange(len(order))[:, None]), values
