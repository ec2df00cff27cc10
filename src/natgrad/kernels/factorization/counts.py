"""Counts r_n ~ Poisson(θ_i · β_j) with Gamma factors: one side's sums over its counts, and Σ_n r_n log Σ_k G_ik G_jk.

    G = exp(E[log x]),   φ_nk = G_ik G_jk / Σ_k' G_ik' G_jk',   out_ik = Σ_n r_n φ_nk

φ is the best local q of the factor that each event comes from; it is never stored. Rows are compressed
and come in chunks, each of which owns its rows of every output.
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import of_pieces, parallel_kernel

__all__ = ["share_counts"]


@parallel_kernel(of_pieces)
def share_counts(low, high, chunks, start, other, values, own_geometric, other_geometric, out, logs):
    """``out`` [rows, K] gets Σ_n r_n φ_nk, ``logs`` [rows] gets Σ_n r_n log Σ_k G_ik G_jk."""
    n_factors = own_geometric.shape[1]
    for chunk in range(low, high):
        sums = np.empty(n_factors)
        for row in range(chunks[chunk], chunks[chunk + 1]):
            sums[:] = 0.0
            total = 0.0
            for n in range(start[row], start[row + 1]):
                j, count = other[n], values[n]
                if count == 0.0:
                    continue
                rate = 0.0
                for k in range(n_factors):
                    rate += own_geometric[row, k] * other_geometric[j, k]
                total += count * np.log(rate)
                scaled = count / rate
                for k in range(n_factors):
                    sums[k] += scaled * other_geometric[j, k]
            logs[row] = total
            for k in range(n_factors):
                out[row, k] = own_geometric[row, k] * sums[k]
