"""Tokens with their topics in; the topics after a sweep of collapsed Gibbs sampling, and sums that priors are learned from, out.

    p(z_i = k | rest) ∝ (n_dk + α_k) f_wk,      f_wk = (n_wk + β) / (n_k + V β),      counts without token i

The first part of the product, n_dk f_wk, is summed over the few topics of the document; the second, α_k f_wk, is drawn from a
table of earlier f, and a Metropolis-Hastings test corrects for its age (Li, Ahmed, Ravi and Smola 2014). So a token costs as many
operations as its document has topics, whatever K is, and the conditional above is left invariant exactly.

Documents are cut into shards; a shard has its own copy of the counts during a sweep and its own random numbers, so threads change
nothing. One shard is collapsed Gibbs sampling; several see each other's moves a sweep later (Newman, Asuncion, Smyth and Welling
2009). Tokens of document d are ``tokens[d] … tokens[d + 1]``, in the order of its words, each repeated as often as it counts.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import inlined_kernel, of_pieces, of_rows, parallel_kernel, serial_kernel
from natgrad.kernels.special import _digamma

__all__ = ["count_topics", "merge_shards", "rising_sums", "rising_total", "sweep_shards", "word_tables"]

# xorshift64* (Vigna 2016): shifts and multiplier.
SHIFT_A, SHIFT_B, SHIFT_C, MULTIPLIER = np.uint64(12), np.uint64(25), np.uint64(27), np.uint64(0x2545F4914F6CDD1D)
LOW_BITS, UNIT = np.uint64(11), 1.0 / 9007199254740992.0
# A product of probabilities is turned into a logarithm before it could vanish.
SMALL = 1e-200
# Up to this many terms a difference of digammas is quicker as the sum of reciprocals that it is.
FEW = 16


@parallel_kernel(of_pieces)
def sweep_shards(
    low,
    high,
    shards,
    start,
    tokens,
    words,
    counts,
    alpha,
    beta,
    table,
    whole,
    moving,
    seeds,
    topics,
    by_word,
    totals,
    out,
):
    """Draw the topic of every token anew; ``topics`` [tokens], ``by_word`` [S, V, K] and ``totals`` [S, K] change in place.

    ``alpha, beta, table`` [V, K], ``whole`` [V] (`word_tables`) are float32. ``moving`` is 0 or 1; with 0 the counts stay, as for
    documents given the topics. ``out`` [S, 2]: the sum over tokens of log Σ_k (n_dk + α_k) f_wk / (n_d − 1 + Σ α), the log
    probability of each token given all others if the table were fresh; and the part of proposals that were refused.
    """
    for s in range(low, high):
        _sweep_shard(
            shards[s], shards[s + 1], start, tokens, words, counts, alpha, beta, table, whole, moving, seeds[s], topics,
            by_word[s], totals[s], out[s],
        )  # fmt: skip


@serial_kernel
def _sweep_shard(
    first, last, start, tokens, words, counts, alpha, beta, table, whole, moving, seed, topics, by_word, totals, out
):
    n_topics = alpha.shape[0]
    smooth = np.float64(beta) * by_word.shape[0]
    random = np.array([seed], np.uint64)
    here, inverse, total_alpha = np.zeros(n_topics, np.float32), np.empty(n_topics, np.float32), 0.0
    # Unsigned numbers index without a test for negative ones.
    active, place = np.empty(n_topics, np.uint32), np.empty(n_topics, np.uint32)
    scaled, cumulative = np.empty(n_topics, np.float32), np.empty(n_topics + 1, np.float32)
    for k in range(n_topics):
        inverse[k] = 1.0 / (totals[k] + smooth)
        total_alpha += alpha[k]
    out[0], out[1] = 0.0, 0.0
    for d in range(first, last):
        begin, end = tokens[d], tokens[d + 1]
        n_active = 0
        for i in range(begin, end):
            k = topics[i]
            if here[k] == 0:
                active[n_active], place[k] = k, n_active
                n_active += 1
            here[k] += np.float32(1)
        for a in range(n_active):
            scaled[a] = here[active[a]] * inverse[active[a]]
        per_token = 1.0 / (end - begin - 1.0 + total_alpha) if end > begin else 1.0
        n_active = _sweep_document(
            start[d], start[d + 1], begin, np.uint32(n_active), words, counts, alpha, beta, table, whole, moving, random, topics,
            by_word, totals, smooth, per_token, here, inverse, active, place, scaled, cumulative, out,
        )  # fmt: skip
        for a in range(n_active):
            here[active[a]] = 0
    out[1] /= max(1, tokens[last] - tokens[first])


@serial_kernel
def _sweep_document(
    first, last, i, n_active, words, counts, alpha, beta, table, whole, moving, random, topics,
    by_word, totals, smooth, per_token, here, inverse, active, place, scaled, cumulative, out,
):  # fmt: skip
    """Every token of a document; the number of its topics after it. In one piece: small functions made it three times slower."""
    one, x, product = np.float32(1), random[0], 1.0
    for entry in range(first, last):
        w = np.uint32(words[entry])
        for _ in range(counts[entry]):
            old = np.uint32(topics[i])
            here[old] -= one
            by_word[w, old] -= moving
            totals[old] -= moving
            inverse[old] = one / np.float32(totals[old] + smooth)
            scaled[place[old]] = here[old] * inverse[old]
            mass = np.float32(0)
            for a in range(n_active):
                mass = np.float32(mass + scaled[a] * (np.float32(by_word[w, active[a]]) + beta))
                cumulative[a] = mass
            x = _next(x)
            u = np.float32(_unit(x) * (mass + whole[w]))
            if u < mass:
                a = np.uint32(0)
                while cumulative[a] <= u:  # ends at the last one at the latest: that is the mass
                    a = np.uint32(a + np.uint32(1))
                new = active[a]
            else:
                new = _by_table(u - mass, w, table)
            if new != old:
                x = _next(x)
                if _odds(new, old, w, by_word, beta, inverse, here, alpha, table) <= _unit(x):
                    new = old
                    out[1] += 1.0
            if new != old:
                if here[old] == 0:
                    n_active = np.uint32(n_active - np.uint32(1))
                    moved, free = active[n_active], place[old]
                    active[free], scaled[free], place[moved] = moved, scaled[n_active], free
                if here[new] == 0:
                    active[n_active], place[new] = new, n_active
                    n_active = np.uint32(n_active + np.uint32(1))
            here[new] += one
            by_word[w, new] += moving
            totals[new] += moving
            inverse[new] = one / np.float32(totals[new] + smooth)
            scaled[place[new]] = here[new] * inverse[new]
            topics[i] = new
            i += 1
            product *= (mass + whole[w]) * per_token
            if product < SMALL:
                out[0] += math.log(product)
                product = 1.0
    random[0] = x
    out[0] += math.log(product)
    return n_active


@serial_kernel
def _by_table(u, w, table):
    """The topic at u in a word's running sums."""
    low, high = 0, table.shape[1] - 1
    while low < high:
        middle = (low + high) // 2
        if table[w, middle] <= u:
            low = middle + 1
        else:
            high = middle
    return np.uint32(low)


@inlined_kernel
def _odds(new, old, w, by_word, beta, inverse, here, alpha, table):
    """p(new) q(old) / (p(old) q(new)): above one the move is always taken."""
    f_new = (np.float32(by_word[w, new]) + beta) * inverse[new]
    f_old = (np.float32(by_word[w, old]) + beta) * inverse[old]
    q_new = here[new] * f_new + table[w, new] - (table[w, new - 1] if new > 0 else np.float32(0))
    q_old = here[old] * f_old + table[w, old] - (table[w, old - 1] if old > 0 else np.float32(0))
    return (here[new] + alpha[new]) * f_new * q_old / ((here[old] + alpha[old]) * f_old * q_new)


@serial_kernel
def _next(x):
    x ^= x >> SHIFT_A
    x ^= x << SHIFT_B
    return x ^ (x >> SHIFT_C)


@serial_kernel
def _unit(x):
    """A number in [0, 1) from the state of the generator."""
    return float((x * MULTIPLIER) >> LOW_BITS) * UNIT


@parallel_kernel(of_rows)
def word_tables(low, high, by_word, totals, alpha, beta, out, out_whole):
    """Running sums over topics of α_k (n_wk + β) / (n_k + V β) for each word, out [V, K], and the last ones, [V]."""
    n_words, n_topics = by_word.shape
    scale = np.empty(n_topics)
    for k in range(n_topics):
        scale[k] = alpha[k] / (totals[k] + beta * n_words)
    for v in range(low, high):
        total = 0.0
        for k in range(n_topics):
            total += scale[k] * (by_word[v, k] + beta)
            out[v, k] = total
        out_whole[v] = out[v, n_topics - 1]


@serial_kernel
def count_topics(words, counts, topics, by_word, totals):
    """n_wk and n_k of all tokens."""
    by_word[:], totals[:] = 0, 0
    i = 0
    for entry in range(words.shape[0]):
        for _ in range(counts[entry]):
            by_word[words[entry], topics[i]] += 1
            totals[topics[i]] += 1
            i += 1


@parallel_kernel(lambda copies, by_word, *rest: len(by_word))
def merge_shards(low, high, copies, by_word, sums, averaged):
    """The moves of all shards put together in ``by_word`` [V, K] and handed back to each; added to ``sums`` if ``averaged``."""
    n_shards, n_topics = copies.shape[0], by_word.shape[1]
    for v in range(low, high):
        for k in range(n_topics):
            before = by_word[v, k]
            after = before
            for s in range(n_shards):
                after += copies[s, v, k] - before
            by_word[v, k] = after
            for s in range(n_shards):
                copies[s, v, k] = after
            if averaged:
                sums[v, k] += after


@parallel_kernel(of_pieces)
def rising_sums(low, high, chunks, tokens, topics, alpha, out):
    """Σ_d [ψ(α_k + n_dk) − ψ(α_k)], out [chunks, K], and Σ_d [ψ(Σα + n_d) − ψ(Σα)], out [chunks, K + 1]; chunk after chunk."""
    n_topics, whole = alpha.shape[0], 0.0
    for k in range(n_topics):
        whole += alpha[k]
    for c in range(low, high):
        here = np.zeros(n_topics, np.int64)
        out[c] = 0.0
        for d in range(chunks[c], chunks[c + 1]):
            for i in range(tokens[d], tokens[d + 1]):
                here[topics[i]] += 1
            for i in range(tokens[d], tokens[d + 1]):
                k = topics[i]
                if here[k] > 0:
                    out[c, k] += _rise(alpha[k], here[k])
                    here[k] = 0
            out[c, n_topics] += _rise(whole, tokens[d + 1] - tokens[d])


@parallel_kernel(of_rows)
def rising_total(low, high, by_word, beta, out):
    """Σ_k [ψ(β + n_wk) − ψ(β)] for each word, out [V]."""
    for v in range(low, high):
        total = 0.0
        for k in range(by_word.shape[1]):
            total += _rise(beta, by_word[v, k])
        out[v] = total


@serial_kernel
def _rise(x, n):
    """ψ(x + n) − ψ(x) = Σ_{i<n} 1/(x + i)."""
    if n > FEW:
        return _digamma(x + n) - _digamma(x)
    total = 0.0
    for i in range(n):
        total += 1.0 / (x + i)
    return total
