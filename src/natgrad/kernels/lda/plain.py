"""What the kernels of LDA do, in plain NumPy, for little data: all documents side by side, round after round.

The rounds are those of `natgrad.kernels.lda.documents`, extrapolated ones over few topics too, so that results agree to rounding;
tests hold both to the same twins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sp

from natgrad.kernels.lda.documents import FEW, FURTHEST, LEFT, TIGHT, TOPICS

__all__ = ["document_tangents", "solve_documents", "topic_counts", "work_of"]

# As exp_digamma of the kernels: a weight never vanishes.
LEAST = 1e-30


def work_of(n_entries: int, n_topics: int) -> float:
    """Microseconds of a pass of some ten rounds."""
    return 300.0 + 0.1 * n_entries * n_topics


@np.errstate(all="ignore")  # as in a kernel: the caller sees what is not finite
def solve_documents(
    start, words, counts, weights, top, alpha, begin_at, warm, tol, limit, skip,
    out_gamma, out_weight, out_ratio, out_bound, out_rounds,
):  # fmt: skip
    """As the kernel of this name has it, without memory for threads and constants."""
    n_topics, filled = len(alpha), np.flatnonzero(np.diff(start))
    out_gamma[:], out_weight[:], out_bound[:], out_rounds[:] = alpha, 0, 0, 0
    if not len(filled):
        return
    first = start[:-1][filled]
    here = begin_at[filled] if len(begin_at) > 1 else np.repeat(begin_at, len(filled), axis=0)
    length = np.add.reduceat(counts, first)
    gamma = here.copy() if warm else alpha + length[:, None] * here
    least = np.minimum(skip * length, TIGHT * tol) if warm else skip * length
    ratio, rounds = np.empty_like(counts), np.zeros(len(filled), np.int64)
    entries = _Entries(weights[words, :n_topics], counts, np.diff(start)[filled])
    t = _exp_digamma(gamma) if warm else here.copy()
    if warm:
        _solve_few(entries, gamma, t, alpha, least, rounds, tol, limit)
    alive = np.arange(len(filled))
    while len(alive):
        part = entries.of(alive)
        sums, ratio[part.place] = part.round(t[alive])
        new = alpha + t[alive] * sums
        change = np.abs(new - gamma[alive]).sum(1)
        gamma[alive] = new
        rounds[alive] += 1
        alive = alive[~((change <= tol * n_topics) | (rounds[alive] >= limit))]
        if len(alive):
            more = gamma[alive], _exp_digamma(gamma[alive]), least[alive], rounds[alive]
            _solve_few(entries.of(alive), *more[:2], alpha, *more[2:], tol, limit)
            gamma[alive], t[alive], least[alive], rounds[alive] = more
    out_gamma[filled], out_weight[filled, :n_topics], out_ratio[:], out_rounds[filled] = gamma, t, ratio, rounds
    mass = counts.astype(np.float64)
    out_bound[filled] = np.add.reduceat(mass * (np.log(mass / ratio) + top[words]), first)
    out_bound[filled] += _shares_bound(gamma, t, alpha)


class _Entries:
    """The words of some documents, one after the other: rows of b [entries, K], counts, words of each document, own places."""

    def __init__(self, b: Any, mass: Any, sizes: Any, place: Any = None) -> None:
        self.b, self.mass, self.sizes = b, mass, sizes
        self.place = np.arange(len(mass)) if place is None else place
        self.doc = np.repeat(np.arange(len(sizes)), sizes)
        self.cuts = np.cumsum(sizes) - sizes

    def of(self, documents: Any) -> _Entries:
        """Those of some of the documents."""
        if len(documents) == len(self.sizes):
            return self
        chosen = np.zeros(len(self.sizes), np.bool_)
        chosen[documents] = True
        kept = chosen[self.doc]
        return _Entries(self.b[kept], self.mass[kept], self.sizes[documents], self.place[kept])

    def round(self, t: Any) -> tuple[Any, Any]:
        """Σ_w ratio_w b_wk [D, K] and the ratios n_w / Σ_k t_k b_wk."""
        ratio = self.mass / np.einsum("ek,ek->e", t[self.doc], self.b)
        return np.add.reduceat(ratio[:, None] * self.b, self.cuts), ratio


def _solve_few(
    entries: _Entries, gamma: Any, t: Any, alpha: Any, least: Any, rounds: Any, tol: float, limit: int
) -> None:
    """Extrapolated rounds of documents of which few topics have words over these topics alone; the rest has γ = α; in place."""
    active = gamma - alpha >= least[:, None]
    few = np.flatnonzero((least > 0) & (limit > rounds + 1) & (active.sum(1) <= FEW * len(alpha)))
    if not len(few):
        return
    solved, active, number = _rounds_of_few(
        entries.of(few), gamma[few], alpha, active[few], least[few], limit - rounds[few] - 1, tol * len(alpha)
    )
    gamma[few] = np.where(active, solved, alpha)
    t[few] = np.where(active, _exp_digamma(solved), _exp_digamma(alpha))
    rounds[few] += number
    least[few] = np.minimum(least[few], TIGHT * tol)


def _rounds_of_few(
    entries: _Entries, gamma: Any, alpha: Any, active: Any, least: Any, limit: Any, enough: float
) -> tuple[Any, Any, Any]:
    """γ that the last rounds found, the topics that are left, and the numbers of rounds."""
    last, step, number = gamma.copy(), np.zeros_like(gamma), np.zeros(len(gamma), np.int64)
    live = np.arange(len(gamma))
    while len(live):
        here, on, before = gamma[live], active[live], last[live]
        w = np.where(on, _exp_digamma(here), 0)
        new = np.where(on, alpha + w * entries.of(live).round(w)[0] - here, 0)
        difference = np.where(on, new - step[live], 0)
        change, square = np.abs(new).sum(1), (difference**2).sum(1)
        number[live] += 1
        further = np.clip(-(new * difference).sum(1) / square, 0.0, FURTHEST)
        further = np.where((number[live] > 1) & (square > 0), further, 0)[:, None].astype(gamma.dtype)
        there = here + new
        ahead = np.maximum(there + further * (there - before), alpha + LEFT * (there - alpha))
        gamma[live], last[live], step[live] = np.where(on, ahead, here), there, new
        stay = on & (there - alpha >= least[live][:, None])
        kept, had = -(-stay.sum(1) // TOPICS), -(-on.sum(1) // TOPICS)
        shrinks = (change > enough) & (kept > 0) & (kept < had)
        active[live] = np.where(shrinks[:, None], stay, on)
        live = live[(change > enough) & (number[live] < limit[live])]
    return last, active, number


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


def document_tangents(start, words, counts, weights, curved, weight, ratio, moved, out_shares, out_ratio, out_least):
    """As the kernel `natgrad.kernels.lda.tangents` has it, without memory for threads and factors, and for all topics."""
    n_topics = curved.shape[1]
    out_shares[:], out_least[:] = 0.0, 1.0
    for d in np.flatnonzero(np.diff(start)):
        here = slice(start[d], start[d + 1])
        parts = ratio[here, None] * weight[d, :n_topics] * weights[words[here], :n_topics]  # n r
        each = parts / counts[here, None]
        root, change = np.sqrt(curved[d]), moved[words[here]]
        told = (parts * (change - (each * change).sum(1, keepdims=True))).sum(0)
        system = np.eye(n_topics) - np.outer(root, root) * (np.diag(parts.sum(0)) - parts.T @ each)
        out_least[d] = np.linalg.eigvalsh(system)[0]
        e = root * np.linalg.solve(system, root * told) if out_least[d] > 0 else np.zeros(n_topics)
        out_shares[d, :n_topics] = weight[d, :n_topics] * e
        out_ratio[here] = ratio[here] * (each * (e + change)).sum(1)
