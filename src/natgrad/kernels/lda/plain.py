"""What the kernels of LDA do, in plain NumPy, for little data: all documents side by side, round after round.

The fixed points, and when a document is done, are those of `natgrad.kernels.lda.documents`. No topic sits out: that is a matter
of speed, and what is found is the same to the tolerance, as it is without `skip` to rounding. Tests hold both to the same twins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sp

__all__ = ["solve_documents", "topic_counts", "work_of"]

# As exp_digamma of the kernels: a weight never vanishes.
LEAST = 1e-30


def work_of(n_entries: int, n_topics: int) -> float:
    """Microseconds of a pass of some ten rounds."""
    return 300.0 + 0.1 * n_entries * n_topics


def solve_documents(
    start, words, counts, weights, top, alpha, begin_at, warm, tol, limit,
    out_gamma, out_weight, out_ratio, out_bound, out_rounds,
):  # fmt: skip
    """As the kernel of this name has it; memory for threads and constants is not needed, nor is ``skip``."""
    n_topics, filled = len(alpha), np.flatnonzero(np.diff(start))
    out_gamma[:], out_weight[:], out_bound[:], out_rounds[:] = alpha, 0, 0, 0
    if not len(filled):
        return
    sizes, first = np.diff(start)[filled], start[:-1][filled]
    length = np.add.reduceat(counts, first)[:, None]
    here = begin_at[filled] if len(begin_at) > 1 else np.repeat(begin_at, len(filled), axis=0)
    gamma = here.copy() if warm else alpha + length * here
    t = _exp_digamma(gamma) if warm else here.copy()
    b, mass, alive = weights[words, :n_topics], counts, np.arange(len(filled))
    ratio, rounds = np.empty_like(counts), np.zeros(len(filled), np.int64)
    entries, cuts, doc = np.arange(len(words)), first - first[0], np.repeat(alive, sizes)
    while len(alive):
        share = mass / np.einsum("ek,ek->e", t[doc], b)
        new = alpha + t[alive] * np.add.reduceat(share[:, None] * b, cuts)
        change = np.abs(new - gamma[alive]).sum(1)
        gamma[alive], ratio[entries] = new, share
        rounds[alive] += 1
        stay = ~((change <= tol * n_topics) | (rounds[alive] >= limit))
        if not stay.all():
            kept = np.repeat(stay, sizes[alive])
            alive, entries, doc, b, mass = alive[stay], entries[kept], doc[kept], b[kept], mass[kept]
            cuts = np.concatenate([[0], np.cumsum(sizes[alive])])[:-1]
        t[alive] = _exp_digamma(gamma[alive])
    out_gamma[filled], out_weight[filled, :n_topics], out_ratio[:], out_rounds[filled] = gamma, t, ratio, rounds
    of_words = counts.astype(np.float64) * (np.log(counts.astype(np.float64) / ratio) + top[words])
    out_bound[filled] = np.add.reduceat(of_words, first) + _shares_bound(gamma, t, alpha)


def _exp_digamma(x: Any) -> Any:
    return np.maximum(np.exp(sp.digamma(x)), LEAST)


def _shares_bound(gamma: Any, t: Any, alpha: Any) -> Any:
    """− Σ_k (γ_k − α_k) log t_k + A(γ) − A(α) of each document."""
    gamma, prior = gamma.astype(np.float64), alpha.astype(np.float64)
    mass, log_t = np.maximum(gamma - prior, 0.0), np.log(t.astype(np.float64))
    total = (sp.gammaln(prior + mass) - sp.gammaln(prior) - mass * log_t).sum(1)
    return total - sp.gammaln(prior.sum() + mass.sum(1)) + sp.gammaln(prior.sum())


def topic_counts(start, place, documents, ratio, weight, weights, out):
    """As the kernel of this name has it."""
    n_topics, used = out.shape[1], np.flatnonzero(np.diff(start))
    out[:] = 0
    if len(used):
        parts = ratio[place][:, None] * weight[documents[place], :n_topics]
        out[used] = weights[used, :n_topics] * np.add.reduceat(parts, start[:-1][used])
