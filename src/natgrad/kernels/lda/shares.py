"""Documents and topics that are known in; moments of the documents' shares over Gibbs samples of their tokens' topics out.

    p(z_i = k | rest) ∝ (n_dk + α_k) φ_kw,      θ_d | z ~ Dir(n_d + α)

The moments of θ_d are averages over samples of those of the Dirichlet distribution given z, which vary less than draws of θ_d.
Their means are found without samples where counts in the conditional above are replaced by their expectations
(`collapsed_shares`; Asuncion, Welling, Smyth and Teh 2009, CVB0).
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import of_rows, parallel_kernel
from natgrad.kernels.lda.gibbs import _next, _unit

__all__ = ["collapsed_shares", "draw_shares"]


@parallel_kernel(of_rows)
def collapsed_shares(low, high, out, start, words, counts, by_word, alpha, tol, limit):
    """E[n_dk] + α_k, ``out`` [D, K], at a fixed point of r_ik ∝ (E[n_dk] − own_ik + α_k) φ_kw.

    One r for all tokens of a word, of which each leaves out itself: own is r, or all of a weight below one. A document is done
    when a round changes ``out`` by ``tol`` or less in the mean over topics, or after ``limit`` rounds.

    Parameters
    ----------
    start [D + 1], words, counts : documents as compressed rows; counts may be weights
    by_word [V, K] : probabilities of the words of each topic
    alpha [K]
    """
    n_topics = alpha.shape[0]
    for d in range(low, high):
        first, n = start[d], start[d + 1] - start[d]
        shares, before, new = np.empty((n, n_topics)), np.empty(n_topics), np.empty(n_topics)
        for k in range(n_topics):
            out[d, k] = alpha[k]
        for i in range(n):
            total = 0.0
            for k in range(n_topics):
                shares[i, k] = alpha[k] * by_word[words[first + i], k]
                total += shares[i, k]
            for k in range(n_topics):
                shares[i, k] /= total
                out[d, k] += counts[first + i] * shares[i, k]
        for _ in range(limit):
            before[:] = out[d]
            for i in range(n):
                w, count, total = words[first + i], counts[first + i], 0.0
                own = min(1.0, count)
                for k in range(n_topics):
                    # Rounding must not leave less than what the prior has.
                    new[k] = max(out[d, k] - own * shares[i, k], alpha[k]) * by_word[w, k]
                    total += new[k]
                for k in range(n_topics):
                    share = new[k] / total
                    out[d, k] += count * (share - shares[i, k])
                    shares[i, k] = share
            change = 0.0
            for k in range(n_topics):
                change += abs(out[d, k] - before[k])
            if change <= tol * n_topics:
                break


@parallel_kernel(of_rows)
def draw_shares(low, high, first, second, start, words, counts, by_word, alpha, seeds, burn, sweeps):
    """E[θ_dk] and E[θ_dk²], ``first`` and ``second`` [D, K].

    Parameters
    ----------
    start [D + 1], words, counts : documents as compressed rows, whole counts
    by_word [V, K] : probabilities of the words of each topic
    alpha [K]
    seeds [D] : uint64, > 0
    burn, sweeps : sweeps that do not count, and those that do
    """
    n_topics = alpha.shape[0]
    total_alpha = alpha.sum()
    for d in range(low, high):
        x = seeds[d]
        n_tokens = 0
        for entry in range(start[d], start[d + 1]):
            n_tokens += counts[entry]
        topics, here, cumulative = np.empty(n_tokens, np.int32), np.zeros(n_topics), np.empty(n_topics)
        first[d], second[d] = 0.0, 0.0
        for sweep in range(-1, burn + sweeps):  # at first tokens join the document one by one
            i = 0
            for entry in range(start[d], start[d + 1]):
                for _ in range(counts[entry]):
                    if sweep >= 0:
                        here[topics[i]] -= 1.0
                    total = 0.0
                    for k in range(n_topics):
                        total += (here[k] + alpha[k]) * by_word[words[entry], k]
                        cumulative[k] = total
                    x = _next(x)
                    u, k = _unit(x) * total, 0
                    while k < n_topics - 1 and cumulative[k] <= u:
                        k += 1
                    topics[i] = k
                    here[k] += 1.0
                    i += 1
            if sweep >= burn:
                whole = n_tokens + total_alpha
                for k in range(n_topics):
                    a = here[k] + alpha[k]
                    first[d, k] += a / whole / sweeps
                    second[d, k] += a * (a + 1.0) / (whole * (whole + 1.0)) / sweeps
