"""Documents and the geometric means of the topics in; each document's topic shares, its part of the bound, and counts out.

    r_wk ∝ t_k b_wk,    t_k = exp ψ(γ_k),    b_wk ∝ exp E[log φ_kw],    γ_k = α_k + Σ_w n_w r_wk

to a fixed point for each document. Compressed rows: the words of document d are ``start[d] … start[d + 1]``. A round over all
topics reads rows of b where they are. Once few topics have words of a document, the columns of these alone are gathered into a
block [topics, words] for rounds that cost a fraction, and a round over all topics has the last word: a document is only done
when such a round changes γ by the tolerance or less. The bound of a document is the one of its last q(z) ∝ t b and
q(θ) = Dir(γ),

    Σ_w n_w log Σ_k t_k b_wk − Σ_k (γ_k − α_k) log t_k + A(γ) − A(α),

whatever t is: float32 does not make it anything but a bound. ``chunks`` cuts the documents into runs; a chunk owns its rows of
every output, and `topic_counts` sums over documents in order, so threads change nothing.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_pieces, of_rows, parallel_kernel, serial_kernel
from natgrad.kernels.memory import aligned_zeros
from natgrad.kernels.special import exp_digamma, lgamma

__all__ = ["LANES", "row_products", "solve_documents", "topic_counts"]

# Rows of b are padded with zeros to whole steps of the compiled loops, two registers of 16 numbers. Words are taken eight at a
# time, gathered topics four.
LANES, REGISTER, WORDS, TOPICS = 32, 16, 8, 4
# Rows of a document's own numbers over all topics: γ, t = exp ψ(γ), α, the sums of a round, t of a topic without words.
GAMMA, WEIGHT, PRIOR, SUMS, LEAST = 0, 1, 2, 3, 4
# Of the gathered topics also what the last round gave, and how far that was from where it began.
FOUND, STEP = 5, 6
# Columns are gathered when at most this part of the topics has words.
FEW = 0.5
# Rounds over the gathered topics end at this part of the tolerance; the round over all of them that follows mostly agrees.
FINER = 1.0
# Topics that sit out although a round over all topics objected have this part of the tolerance at most, each; so do those of
# documents that come again: a topic with a little of many documents must not lose it for good.
TIGHT = 0.25
# Extrapolation goes at most this many times beyond the last change, and leaves a topic this part of its words.
FURTHEST, LEFT = 5.0, 0.25


@parallel_kernel(of_pieces)
def solve_documents(
    low, high, chunks, start, words, counts, weights, top, alpha, series, power, bits, begin_at, warm, tol, limit, skip,
    out_gamma, out_weight, out_ratio, out_bound, out_rounds,
):  # fmt: skip
    """Every document to its fixed point.

    ``weights`` [V, K padded] is b, relative to exp ``top`` [V]. ``begin_at`` [D or 1, K] is where documents start: γ if
    ``warm``, otherwise t itself. A document is done when γ changes by ``tol`` or less in the mean over topics, or after
    ``limit`` rounds. Topics with less than ``skip`` of its words sit out between two rounds over all topics. ``out_gamma`` [D,
    K] is γ; ``out_weight`` [D, K padded] and ``out_ratio`` [entries] are t and n_w / Σ_k t_k b_wk of the last q(z), whose
    responsibilities are n_w r_wk = ratio · t_k · b_wk. ``power, bits`` [chunks, K padded] are one memory, for `exp_digamma`.
    """
    n_topics, width = alpha.shape[0], weights.shape[1]
    total_alpha, lgamma_alpha = 0.0, np.empty(n_topics)
    for k in range(n_topics):
        total_alpha += alpha[k]
        lgamma_alpha[k] = math.lgamma(alpha[k])
    for chunk in range(low, high):
        most = 0
        for d in range(chunks[chunk], chunks[chunk + 1]):
            most = max(most, start[d + 1] - start[d])
        most = _padded(most, LANES)
        own, few = aligned_zeros(5, width, weights), aligned_zeros(7, width, weights)
        block = aligned_zeros(int(FEW * n_topics) + TOPICS, most, weights)
        numbers = aligned_zeros(2, most, weights)
        mass, ratio = numbers[0], numbers[1]
        rows, active = np.empty(most, np.uint32), np.empty(width, np.uint32)
        _prepare(alpha, series, power[chunk], bits[chunk], own)
        for d in range(chunks[chunk], chunks[chunk + 1]):
            begin, size = start[d], start[d + 1] - start[d]
            rounds = 0
            out_gamma[d], out_weight[d], out_bound[d] = alpha, 0.0, 0.0
            if size > 0:
                length = _read(words, counts, begin, size, rows, mass)
                here = begin_at[d if begin_at.shape[0] > 1 else 0]
                for k in range(n_topics):
                    own[GAMMA, k], own[WEIGHT, k] = here[k], here[k]
                    if not warm:
                        own[GAMMA, k] = alpha[k] + length * here[k]
                rounds = _fixed_point(
                    weights, rows, mass, ratio, size, n_topics, own, few, block, active, series, power[chunk], bits[chunk],
                    not warm, tol, limit, min(skip * length, TIGHT * tol) if warm else skip * length,
                )  # fmt: skip
                for k in range(n_topics):
                    out_gamma[d, k], out_weight[d, k] = own[GAMMA, k], own[WEIGHT, k]
                total = 0.0
                for w in range(size):
                    out_ratio[begin + w] = ratio[w]
                    total += mass[w] * (math.log(mass[w] / ratio[w]) + top[rows[w]])
                out_bound[d] = total + _shares_bound(own, n_topics, lgamma_alpha, total_alpha)
            out_rounds[d] = rounds


@serial_kernel
def _padded(size, step):
    return (size + step - 1) // step * step


@serial_kernel
def _prepare(alpha, series, power, bits, own):
    """What is the same for all documents: the prior, and t of a topic without words; padding has α = 1 and t = 0."""
    own[GAMMA], own[PRIOR] = 1, 1
    for k in range(alpha.shape[0]):
        own[PRIOR, k] = alpha[k]
    exp_digamma(own[PRIOR], own.shape[1], series, power, bits, own[LEAST])
    for k in range(alpha.shape[0], own.shape[1]):
        own[LEAST, k] = 0


@serial_kernel
def _read(words, counts, begin, size, rows, mass):
    """Rows of b and counts of a document's words, up to a multiple of eight with counts of nothing; the length."""
    length = 0.0
    for w in range(size):
        rows[w], mass[w] = words[begin + w], counts[begin + w]
        length += mass[w]
    for w in range(size, _padded(size, LANES)):
        rows[w], mass[w] = rows[0], 0
    return length


@serial_kernel
def _fixed_point(
    weights, rows, mass, ratio, size, n_topics, own, few, block, active, series, power, bits, has_t, tol, limit, least
):  # fmt: skip
    """Rounds until one over all topics leaves γ at rest, starting from γ, or from t if it ``has_t``; the number of rounds."""
    width, enough, number = weights.shape[1], tol * n_topics, 0
    while True:
        if not has_t:
            n_active = n_topics
            if least > 0.0 and limit > number + 1:
                n_active = _choose(own, n_topics, least, active)
            if n_active <= FEW * n_topics:
                number += _rounds_of_few(
                    weights, rows, mass, ratio, size, own, few, block, active, n_active, series, power, bits, enough,
                    limit - number - 1, least,
                )  # fmt: skip
                # If the round over all topics objects: what then sits out is, all together, half of the tolerance at most.
                least = min(least, TIGHT * tol)
            else:
                exp_digamma(own[GAMMA], width, series, power, bits, own[WEIGHT])
                own[WEIGHT, n_topics:] = 0
        has_t = False
        number += 1
        if _round(weights, rows, mass, ratio, size, own) <= enough or number >= limit:
            return number


@lane_kernel
def _round(weights, rows, mass, ratio, size, own):
    """One update of z and γ; eight words at a time, so that t and the sums are read once for all of them. Σ_k |Δγ_k|."""
    weight, sums, width = own[WEIGHT], own[SUMS], weights.shape[1]
    zero = mass[0] - mass[0]
    for k in range(width):
        sums[k] = 0
    for w in range(0, size, WORDS):
        a, b, c, d = weights[rows[w]], weights[rows[w + 1]], weights[rows[w + 2]], weights[rows[w + 3]]
        e, f, g, h = weights[rows[w + 4]], weights[rows[w + 5]], weights[rows[w + 6]], weights[rows[w + 7]]
        p0 = p1 = p2 = p3 = p4 = p5 = p6 = p7 = zero
        for k in range(width):
            t = weight[k]
            p0 += a[k] * t
            p1 += b[k] * t
            p2 += c[k] * t
            p3 += d[k] * t
            p4 += e[k] * t
            p5 += f[k] * t
            p6 += g[k] * t
            p7 += h[k] * t
        ratio[w], ratio[w + 1], ratio[w + 2], ratio[w + 3] = p0, p1, p2, p3
        ratio[w + 4], ratio[w + 5], ratio[w + 6], ratio[w + 7] = p4, p5, p6, p7
        for i in range(WORDS):
            ratio[w + i] = mass[w + i] / ratio[w + i]
        p0, p1, p2, p3 = ratio[w], ratio[w + 1], ratio[w + 2], ratio[w + 3]
        p4, p5, p6, p7 = ratio[w + 4], ratio[w + 5], ratio[w + 6], ratio[w + 7]
        for k in range(width):
            sums[k] += (p0 * a[k] + p1 * b[k] + p2 * c[k] + p3 * d[k]) + (p4 * e[k] + p5 * f[k] + p6 * g[k] + p7 * h[k])
    return _renew(own, width)


@lane_kernel
def _renew(own, size):
    """γ = α + t · sums; Σ_k |Δγ_k|."""
    gamma, prior, weight, sums = own[GAMMA], own[PRIOR], own[WEIGHT], own[SUMS]
    change = gamma[0] - gamma[0]
    for k in range(size):
        new = prior[k] + weight[k] * sums[k]
        change += abs(new - gamma[k])
        gamma[k] = new
    return change


@serial_kernel
def _choose(own, n_topics, least, active):
    """The topics with at least so many words; how many."""
    n_active = 0
    for k in range(n_topics):
        active[n_active] = k
        n_active += own[GAMMA, k] - own[PRIOR, k] >= least
    return n_active


@serial_kernel
def _rounds_of_few(
    weights, rows, mass, ratio, size, own, few, block, active, n_active, series, power, bits, enough, limit,
    least,
):  # fmt: skip
    """Rounds over the active topics alone, then γ and t of all: the others have γ = α. The number of rounds."""
    n_rows, n_columns, lanes = _padded(n_active, TOPICS), _padded(size, REGISTER), _padded(n_active, REGISTER)
    for i in range(n_active, n_rows):
        for w in range(n_columns):
            block[i, w] = 0
    for w in range(n_columns):
        row = weights[rows[w]]
        for i in range(n_active):
            block[i, w] = row[active[i]]
    few[GAMMA, :lanes], few[PRIOR, :lanes], few[SUMS, :lanes] = 1, 1, 0
    for i in range(n_active):
        few[GAMMA, i], few[PRIOR, i] = own[GAMMA, active[i]], own[PRIOR, active[i]]
    number = 0
    while number < limit:
        number += 1
        exp_digamma(few[GAMMA], lanes, series, power, bits, few[WEIGHT])
        for i in range(n_active, lanes):
            few[WEIGHT, i] = 0
        _round_of_few(block, mass, ratio, few, n_rows, n_columns)
        if _extrapolate(few, lanes, number) <= FINER * enough:
            break
        n_active = _shrink(block, few, active, n_active, least, n_columns)
        n_rows, lanes = _padded(n_active, TOPICS), _padded(n_active, REGISTER)
    exp_digamma(few[FOUND], lanes, series, power, bits, few[WEIGHT])
    for k in range(own.shape[1]):
        own[GAMMA, k], own[WEIGHT, k] = own[PRIOR, k], own[LEAST, k]
    for i in range(n_active):
        own[GAMMA, active[i]], own[WEIGHT, active[i]] = few[FOUND, i], few[WEIGHT, i]
    return number


@lane_kernel
def _round_of_few(block, mass, ratio, few, n_rows, n_columns):
    """As `_round` on gathered topics, with words in the lanes: no sum across lanes and no division for single words."""
    weight, sums = few[WEIGHT], few[SUMS]
    for w in range(n_columns):
        ratio[w] = 0
    for i in range(0, n_rows, TOPICS):
        a, b, c, d = block[i], block[i + 1], block[i + 2], block[i + 3]
        s, t, u, v = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
        for w in range(n_columns):
            ratio[w] += s * a[w] + t * b[w] + u * c[w] + v * d[w]
    for w in range(n_columns):
        ratio[w] = mass[w] / ratio[w]
    zero = mass[0] - mass[0]
    for i in range(0, n_rows, TOPICS):
        a, b, c, d = block[i], block[i + 1], block[i + 2], block[i + 3]
        s = t = u = v = zero
        for w in range(n_columns):
            share = ratio[w]
            s += share * a[w]
            t += share * b[w]
            u += share * c[w]
            v += share * d[w]
        sums[i], sums[i + 1], sums[i + 2], sums[i + 3] = s, t, u, v


@lane_kernel
def _extrapolate(few, size, number):
    """γ beyond the F(γ) just found, as far as the last two rounds suggest (Anderson's with one difference); Σ_k |F(γ) − γ|.

    It only chooses where the next round begins: fixed points and the test for them are those of plain rounds.
    """
    gamma, prior, weight, sums, found, step = few[GAMMA], few[PRIOR], few[WEIGHT], few[SUMS], few[FOUND], few[STEP]
    zero = gamma[0] - gamma[0]
    change = along = square = zero
    for i in range(size):
        new = prior[i] + weight[i] * sums[i] - gamma[i]
        difference = new - step[i]
        change += abs(new)
        along += new * difference
        square += difference * difference
        step[i] = new
    further = zero
    if number > 1 and square > 0:
        further += min(max(-along / square, 0.0), FURTHEST)
    left = zero + LEFT
    for i in range(size):
        new = gamma[i] + step[i]
        gamma[i] = max(new + further * (new - found[i]), prior[i] + left * (new - prior[i]))
        found[i] = new
    return change


@serial_kernel
def _shrink(block, few, active, n_active, least, n_columns):
    """Topics that lost their words leave the block, if that makes it smaller; how many stay."""
    kept = 0
    for i in range(n_active):
        kept += few[FOUND, i] - few[PRIOR, i] >= least
    if kept == 0 or _padded(kept, TOPICS) == _padded(n_active, TOPICS):
        return n_active
    place = 0
    for i in range(n_active):
        if few[FOUND, i] - few[PRIOR, i] >= least:
            active[place] = active[i]
            few[GAMMA, place], few[PRIOR, place] = few[GAMMA, i], few[PRIOR, i]
            few[FOUND, place], few[STEP, place] = few[FOUND, i], few[STEP, i]
            for w in range(n_columns):
                block[place, w] = block[i, w]
            place += 1
    for i in range(place, _padded(n_active, REGISTER)):
        few[GAMMA, i], few[PRIOR, i], few[FOUND, i], few[STEP, i], few[SUMS, i] = 1, 1, 1, 0, 0
    for i in range(place, _padded(place, TOPICS)):
        for w in range(n_columns):
            block[i, w] = 0
    return kept


@serial_kernel
def _shares_bound(own, n_topics, lgamma_alpha, total_alpha):
    """− Σ_k (γ_k − α_k) log t_k + A(γ) − A(α).

    A topic that sat out has t = exp ψ(α), and its term log Γ(γ) − log Γ(α) − (γ − α) ψ(α) lies between 0 and (γ − α)² ψ'(α) / 2,
    ψ'(α) < 1/α² + 1/α. Where that is less than rounding it is left out: two logarithms for each topic would cost more than a
    round, and what remains is still a bound.
    """
    total, length = 0.0, 0.0
    negligible = 1e-6 if own.itemsize == 4 else 1e-15
    for k in range(n_topics):
        gamma, prior = float(own[GAMMA, k]), float(own[PRIOR, k])
        mass = gamma - prior
        if mass > 0.0:
            length += mass
            if own[WEIGHT, k] != own[LEAST, k] or mass * mass * (1.0 + prior) > 2.0 * negligible * prior * prior:
                total += lgamma(gamma) - lgamma_alpha[k] - mass * math.log(own[WEIGHT, k])
    return total - math.lgamma(total_alpha + length) + math.lgamma(total_alpha)


@parallel_kernel(of_pieces)
def topic_counts(low, high, start, place, documents, ratio, weight, weights, out):
    """Expected counts of topics by word, out[v, k] = b_vk Σ_d ratio_dv t_dk, over the documents of each word in order.

    The entries of word v are ``place[start[v] … start[v + 1]]``; ``documents`` is the document of each entry. Rows of ``out``
    [V, K] belong to one thread each. A product of a sparse and a dense matrix: responsibilities [entries, K] are never stored.
    """
    n_topics = out.shape[1]
    for v in range(low, high):
        row, last = out[v], start[v + 1]
        for k in range(n_topics):
            row[k] = 0
        whole = start[v] + (last - start[v]) // 4 * 4
        for j in range(start[v], whole, 4):
            d, e, f, g = place[j], place[j + 1], place[j + 2], place[j + 3]
            p, q, r, s = ratio[d], ratio[e], ratio[f], ratio[g]
            first, second = weight[documents[d]], weight[documents[e]]
            third, fourth = weight[documents[f]], weight[documents[g]]
            for k in range(n_topics):
                row[k] += (p * first[k] + q * second[k]) + (r * third[k] + s * fourth[k])
        for j in range(whole, last):
            first, p = weight[documents[place[j]]], ratio[place[j]]
            for k in range(n_topics):
                row[k] += p * first[k]
        for k in range(n_topics):
            row[k] *= weights[v, k]


def _plain_products(rows, others, out):
    np.einsum("vk,vk->v", rows, others, out=out)


@parallel_kernel(of_rows, plain=_plain_products)
def row_products(low, high, rows, others, out):
    """out[v] = Σ_k rows[v, k] others[v, k], in double; an element belongs to one thread."""
    for v in range(low, high):
        total = 0.0
        for k in range(rows.shape[1]):
            total += rows[v, k] * others[v, k]
        out[v] = total
