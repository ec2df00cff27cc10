"""Documents at their fixed points and a direction of the topics in; how their responsibilities change along it out.

With n_w r_wk the words that a topic has of a document, S_w = diag(r_w) − r_w r_wᵀ and f_w the change of E[log φ_w],

    dγ = Σ_w n_w S_w (e + f_w),    e = ψ'(γ) dγ,    so that    (I − D^½ B D^½) D^-½ e = D^½ Σ_w n_w S_w f_w

with D = diag ψ'(γ) and B = Σ_w n_w S_w: one small system for each document, positive where its bound has a maximum. Words then
change by n_w r_wk (e_k + f_wk − s_w), s_w the mean of e + f_w over the topics of the word. Topics that have nothing of a document
take no part. The systems do not depend on the direction: where they fit into memory their factors are kept. A chunk of documents
owns its rows of every output.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import of_pieces, parallel_kernel, serial_kernel

__all__ = ["document_tangents"]

# Of a document's words: a topic with less takes no part, and what that changes is rounding.
NOTHING = 1e-14


@parallel_kernel(of_pieces)
def document_tangents(
    low, high, chunks, start, words, counts, weights, curved, weight, ratio, moved, factors, made, out_shares, out_ratio,
    out_least,
):  # fmt: skip
    """What `topic_counts` adds up to the change of the counts.

    ``curved`` [D, K] is ψ'(γ), ``weight`` [D, K padded] and ``ratio`` [entries] are those of `solve_documents`, ``moved`` [V, K]
    is the change of E[log φ]. ``factors`` [D or 0, K, K] keeps Cholesky's factors, which are there if ``made``. ``out_shares``
    [D, K padded] is t ∘ e, ``out_ratio`` [entries] is ratio · s, and ``out_least`` [D] the least pivot of the system, which is not
    positive where a document is at no maximum; the document is then left out.
    """
    n_topics = curved.shape[1]
    for chunk in range(low, high):
        most = 0
        for d in range(chunks[chunk], chunks[chunk + 1]):
            most = max(most, start[d + 1] - start[d])
        parts, own = np.empty((most, n_topics)), np.empty((n_topics, n_topics))
        active, numbers = np.empty(n_topics, np.int64), np.empty((2, n_topics))
        for d in range(chunks[chunk], chunks[chunk + 1]):
            begin, size = start[d], start[d + 1] - start[d]
            out_shares[d] = 0.0
            if size == 0:
                out_least[d] = 1.0
                continue
            n_active = _read(words, counts, begin, size, weights, weight[d], ratio, n_topics, parts, active)
            rhs, root = numbers[0], numbers[1]
            for i in range(n_active):
                root[i] = math.sqrt(curved[d, active[i]])
            _tell(words, counts, begin, size, moved, parts, active, n_active, root, rhs)
            system = factors[d] if factors.shape[0] > 0 else own
            if not made:
                _build(counts, begin, size, parts, n_active, root, system)
                out_least[d] = _factor(system, n_active)
            if out_least[d] > 0.0:
                _solve(system, rhs, n_active)
            for i in range(n_active):
                rhs[i] = rhs[i] * root[i] if out_least[d] > 0.0 else 0.0
                out_shares[d, active[i]] = weight[d, active[i]] * rhs[i]
            for w in range(size):
                total, change = 0.0, moved[words[begin + w]]
                for i in range(n_active):
                    total += parts[w, i] * (rhs[i] + change[active[i]])
                out_ratio[begin + w] = ratio[begin + w] * total


@serial_kernel
def _read(words, counts, begin, size, weights, weight, ratio, n_topics, parts, active):
    """Responsibilities of the topics that have words of a document, side by side; how many."""
    n_active, length = 0, 0.0
    for w in range(size):
        length += counts[begin + w]
    for k in range(n_topics):
        total = 0.0
        for w in range(size):
            here = ratio[begin + w] * weight[k] * weights[words[begin + w], k]
            total += here
            parts[w, n_active] = here / counts[begin + w]
        active[n_active] = k
        n_active += total > NOTHING * length
    return n_active


@serial_kernel
def _tell(words, counts, begin, size, moved, parts, active, n_active, root, rhs):
    """D^½ Σ n S f."""
    for i in range(n_active):
        rhs[i] = 0.0
    for w in range(size):
        change, row, mean = moved[words[begin + w]], parts[w], 0.0
        for i in range(n_active):
            mean += row[i] * change[active[i]]
        for i in range(n_active):
            rhs[i] += counts[begin + w] * row[i] * (change[active[i]] - mean)
    for i in range(n_active):
        rhs[i] *= root[i]


@serial_kernel
def _build(counts, begin, size, parts, n_active, root, system):
    """The lower half of I − D^½ B D^½."""
    for i in range(n_active):
        for j in range(i + 1):
            system[i, j] = 0.0
    for w in range(size):
        row = parts[w]
        for i in range(n_active):
            here = counts[begin + w] * row[i]
            system[i, i] += here
            for j in range(i + 1):
                system[i, j] -= here * row[j]
    for i in range(n_active):
        for j in range(i + 1):
            system[i, j] *= -root[i] * root[j]
        system[i, i] += 1.0


@serial_kernel
def _factor(system, n):
    """Cholesky's factor in place; the least pivot."""
    least = 1.0
    for i in range(n):
        for j in range(i + 1):
            total = system[i, j]
            for k in range(j):
                total -= system[i, k] * system[j, k]
            if j < i:
                system[i, j] = total / system[j, j]
            else:
                least = min(least, total)
                if not total > 0.0:
                    return least
                system[i, i] = math.sqrt(total)
    return least


@serial_kernel
def _solve(system, rhs, n):
    """The solution in the place of the right-hand side."""
    for i in range(n):
        for k in range(i):
            rhs[i] -= system[i, k] * rhs[k]
        rhs[i] /= system[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            rhs[i] -= system[k, i] * rhs[k]
        rhs[i] /= system[i, i]
