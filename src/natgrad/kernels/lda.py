"""Documents and the geometric means of the topics in; each document's topic shares, its part of the bound, and counts out.

    r_wk ∝ t_k b_wk,    t_k = exp ψ(γ_k),    b_wk ∝ exp E[log φ_kw],    γ_k = α_k + Σ_w n_w r_wk

to a fixed point for each document, on a block b [words of the document, K] gathered once. Compressed rows: the words of
document d are ``start[d] … start[d + 1]``. The bound of a document is the one of its last q(z) ∝ t b and q(θ) = Dir(γ),

    Σ_w n_w log Σ_k t_k b_wk − Σ_k (γ_k − α_k) log t_k + A(γ) − A(α),

whatever t is: neither float32 nor a skipped topic makes it anything but a bound. ``chunks`` cuts the documents into runs; a
chunk owns its rows of every output, and `topic_counts` sums over documents in order, so threads change nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from natgrad.kernels._njit import lane_kernel, parallel_kernel, serial_kernel
from natgrad.kernels.special import exp_digamma

__all__ = ["solve_documents", "topic_counts"]

# Columns of the gathered block are padded to whole SIMD lanes with zeros; words are taken four at a time.
LANES, UNROLLED = 16, 4
# Rows of a document's own numbers: γ, t = exp ψ(γ), α, and the sums of a round.
GAMMA, WEIGHT, PRIOR, SUMS = 0, 1, 2, 3


@parallel_kernel
def solve_documents(
    chunks, start, words, counts, weights, alpha, series, power, bits, gamma, first, tol, limit, skip,
    out_gamma, out_weight, out_ratio, out_bound, out_rounds,
):  # fmt: skip
    """Every document to its fixed point.

    ``weights`` [V, K] is b, ``gamma, first`` [D, K] are γ and t at the start. A document is done when γ changes by ``tol`` or
    less in the mean over topics, or after ``limit`` rounds. Topics with less than ``skip`` of a document's words are left out
    of its q(z) from then on, and get γ = α. ``out_gamma`` [D, K] is γ; ``out_weight`` [D, K] and ``out_ratio`` [entries] are t
    and n_w / Σ_k t_k b_wk of the last q(z), whose responsibilities are n_w r_wk = ratio · t_k · b_wk. ``power, bits`` [chunks,
    K padded] are one memory, for `exp_digamma`.
    """
    width = power.shape[1]
    total_alpha, lgamma_alpha = 0.0, np.empty(alpha.shape[0])
    for k in range(alpha.shape[0]):
        total_alpha += alpha[k]
        lgamma_alpha[k] = math.lgamma(alpha[k])
    for chunk in prange(chunks.shape[0] - 1):
        most = 0
        for d in range(chunks[chunk], chunks[chunk + 1]):
            most = max(most, start[d + 1] - start[d])
        block = np.zeros((most + UNROLLED, width), weights.dtype)
        own = np.zeros((4, width), weights.dtype)
        mass, ratio = np.zeros(most + UNROLLED, weights.dtype), np.zeros(most + UNROLLED, weights.dtype)
        active = np.empty(width, np.int64)
        for d in range(chunks[chunk], chunks[chunk + 1]):
            begin, size = start[d], start[d + 1] - start[d]
            n_active, rounds = 0, 0
            out_gamma[d], out_weight[d], out_bound[d] = alpha, 0.0, 0.0
            if size > 0:
                _gather(words, counts, begin, size, weights, alpha, gamma[d], first[d], block, own, mass, active)
                n_active, rounds = _fixed_point(
                    block, own, mass, ratio, active, size, alpha, series, power[chunk], bits[chunk], tol, limit, skip
                )
            for place in range(n_active):
                k = active[place]
                out_gamma[d, k], out_weight[d, k] = own[GAMMA, place], own[WEIGHT, place]
            out_rounds[d] = rounds
            total = 0.0
            for w in range(size):
                out_ratio[begin + w] = ratio[w]
                total += mass[w] * math.log(mass[w] / ratio[w])
            out_bound[d] = total + _shares_bound(own, active, n_active, alpha, lgamma_alpha, total_alpha)


@serial_kernel
def _gather(words, counts, begin, size, weights, alpha, gamma, first, block, own, mass, active):
    """The rows of a document's words, with rows of nothing up to a multiple of four; all topics active."""
    n_topics = alpha.shape[0]
    for w in range(size):
        row = words[begin + w]
        mass[w] = counts[begin + w]
        for k in range(n_topics):
            block[w, k] = weights[row, k]
    for w in range(size, size + UNROLLED):
        mass[w] = 0
        for k in range(n_topics):
            block[w, k] = 1
    for w in range(size + UNROLLED):
        for k in range(n_topics, block.shape[1]):
            block[w, k] = 0
    for k in range(block.shape[1]):
        own[GAMMA, k], own[WEIGHT, k], own[PRIOR, k] = 1, 0, 1
    for k in range(n_topics):
        own[GAMMA, k], own[WEIGHT, k], own[PRIOR, k] = gamma[k], first[k], alpha[k]
        active[k] = k


@serial_kernel
def _fixed_point(block, own, mass, ratio, active, size, alpha, series, power, bits, tol, limit, skip):
    """Rounds until γ rests; the number of active topics and of rounds."""
    n_active = alpha.shape[0]
    length = 0.0
    for w in range(size):
        length += mass[w]
    enough = tol * n_active
    for number in range(1, limit + 1):
        padded = (n_active + LANES - 1) // LANES * LANES
        change = _round(block, own, mass, ratio, size, n_active, padded)
        if change <= enough or number == limit:
            return n_active, number
        if skip > 0.0 and number > 1:
            n_active = _leave_out(block, own, active, size, n_active, skip * length)
        padded = (n_active + LANES - 1) // LANES * LANES
        exp_digamma(own[GAMMA], padded, series, power, bits, own[WEIGHT])
        for k in range(n_active, padded):
            own[WEIGHT, k] = 0
    return n_active, limit


@lane_kernel
def _round(block, own, mass, ratio, size, n_active, padded):
    """One update of z and γ; four words at a time, so that t and the sums stay in registers. Returns Σ_k |Δγ_k|."""
    weight, sums = own[WEIGHT], own[SUMS]
    for k in range(padded):
        sums[k] = 0
    for w in range(0, size, UNROLLED):
        a, b, c, d = block[w], block[w + 1], block[w + 2], block[w + 3]
        p = q = r = s = block[0, 0] - block[0, 0]
        for k in range(padded):
            t = weight[k]
            p += a[k] * t
            q += b[k] * t
            r += c[k] * t
            s += d[k] * t
        p, q, r, s = mass[w] / p, mass[w + 1] / q, mass[w + 2] / r, mass[w + 3] / s
        ratio[w], ratio[w + 1], ratio[w + 2], ratio[w + 3] = p, q, r, s
        for k in range(padded):
            sums[k] += p * a[k] + q * b[k] + r * c[k] + s * d[k]
    change = 0.0
    gamma, prior = own[GAMMA], own[PRIOR]
    for k in range(n_active):
        new = prior[k] + weight[k] * sums[k]
        change += abs(new - gamma[k])
        gamma[k] = new
    return change


@serial_kernel
def _leave_out(block, own, active, size, n_active, least):
    """Drop topics with less than ``least`` words; columns move only when a quarter of them or more go."""
    kept = 0
    for k in range(n_active):
        if own[GAMMA, k] - own[PRIOR, k] >= least:
            kept += 1
    padded, before = (kept + LANES - 1) // LANES * LANES, (n_active + LANES - 1) // LANES * LANES
    if kept == 0 or padded > 0.75 * before:
        return n_active
    place = 0
    for k in range(n_active):
        if own[GAMMA, k] - own[PRIOR, k] >= least:
            active[place] = active[k]
            own[GAMMA, place], own[PRIOR, place] = own[GAMMA, k], own[PRIOR, k]
            own[SUMS, place] = k
            place += 1
    for w in range(size):
        for to in range(kept):
            block[w, to] = block[w, int(own[SUMS, to])]
        for to in range(kept, padded):
            block[w, to] = 0
    for w in range(size, size + UNROLLED):
        for to in range(kept, padded):
            block[w, to] = 0
    return kept


@serial_kernel
def _shares_bound(own, active, n_active, alpha, lgamma_alpha, total_alpha):
    """− Σ_k (γ_k − α_k) log t_k + A(γ) − A(α); topics that were left out have γ = α and add nothing."""
    total, length = 0.0, 0.0
    for place in range(n_active):
        k = active[place]
        gamma, prior = float(own[GAMMA, place]), float(alpha[k])
        if gamma > prior:
            total += math.lgamma(gamma) - lgamma_alpha[k] - (gamma - prior) * math.log(own[WEIGHT, place])
            length += gamma - prior
    return total - math.lgamma(total_alpha + length) + math.lgamma(total_alpha)


@parallel_kernel
def topic_counts(start, place, documents, ratio, weight, weights, out):
    """Expected counts of topics by word, out[v, k] = b_vk Σ_d ratio_dv t_dk, over the documents of each word in order.

    The entries of word v are ``place[start[v] … start[v + 1]]``; ``documents`` is the document of each entry. Rows of ``out``
    [V, K] belong to one thread each. A product of a sparse and a dense matrix: responsibilities [entries, K] are never stored.
    """
    n_topics = weights.shape[1]
    for v in prange(start.shape[0] - 1):
        for k in range(n_topics):
            out[v, k] = 0
        for j in range(start[v], start[v + 1]):
            entry = place[j]
            d, share = documents[entry], ratio[entry]
            for k in range(n_topics):
                out[v, k] += share * weight[d, k]
        for k in range(n_topics):
            out[v, k] *= weights[v, k]
