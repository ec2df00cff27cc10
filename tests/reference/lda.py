"""Slow twins of the kernels of LDA: the definitions, document by document, in plain NumPy; and documents drawn from the model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special as sp

__all__ = ["Drawn", "NaiveDocuments", "draw_documents", "naive_bound", "naive_documents", "naive_sparse_document"]

Floats = npt.NDArray[np.float64]


class NaiveDocuments(NamedTuple):
    """γ [D, K], expected counts by topic and word [K, V], bounds [D] and rounds [D]."""

    gamma: Floats
    counts: Floats
    bound: Floats
    rounds: npt.NDArray[np.int64]


def naive_documents(X: Floats, elog: Floats, alpha: Floats, shares: Floats, tol: float, limit: int) -> NaiveDocuments:
    """Each document of X [D, V] to its fixed point given E[log φ] [K, V], starting from a point mass at its shares [D, K]."""
    gamma, counts = np.empty(shares.shape), np.zeros(elog.shape)
    bound, rounds = np.zeros(len(X)), np.zeros(len(X), dtype=np.int64)
    for d, row in enumerate(X):
        gamma[d] = alpha
        if not row.any():
            continue
        gamma[d] = alpha + row.sum() * shares[d]
        elog_theta = np.log(shares[d])
        for number in range(1, limit + 1):
            r = sp.softmax(elog_theta[:, None] + elog, axis=0)
            new = alpha + r @ row
            change = np.abs(new - gamma[d]).mean()
            gamma[d] = new
            elog_theta = sp.digamma(new) - sp.digamma(new.sum())
            rounds[d] = number
            if change <= tol:
                break
        counts += r * row
        bound[d] = naive_bound(row, r, elog, gamma[d], alpha)
    return NaiveDocuments(gamma, counts, bound, rounds)


def naive_sparse_document(
    row: Floats, elog: Floats, alpha: Floats, shares: Floats, tol: float, limit: int, skip: float
) -> tuple[Floats, int]:
    """γ [K] and the rounds of one document, where topics with less than ``skip`` of its words sit out; as in `kernels.lda`.

    Rounds over all topics, until at most half of them have words; then extrapolated rounds over these alone; and again.
    """
    enough, least, number = tol * len(alpha), skip * row.sum(), 0
    gamma, t = alpha + row.sum() * shares, shares

    def plain(gamma: Floats, t: Floats, of: Any) -> tuple[Floats, float]:
        r = t[:, None] * np.exp(elog[of] - elog.max(0))
        new = alpha[of] + (r / r.sum(0)) @ row
        return new, float(np.abs(new - gamma).sum())

    while True:
        gamma, change = plain(gamma, t, slice(None))
        number += 1
        if change <= enough or number >= limit:
            return gamma, number
        of = np.flatnonzero(gamma - alpha >= least)
        if least > 0 and len(of) <= 0.5 * len(alpha) and limit > number + 1:
            here, before, last = gamma[of], gamma[of], np.zeros(len(of))
            for inner in range(1, limit - number):
                found, change = plain(here, np.exp(sp.digamma(here)), of)
                step, number = found - here, number + 1
                difference = step - last
                further = np.clip(-float(step @ difference) / max(float(difference @ difference), 1e-300), 0.0, 5.0)
                here = found + (inner > 1) * further * (found - before)
                here = np.maximum(here, alpha[of] + 0.25 * (found - alpha[of]))
                before, last = found, step
                if change <= enough:
                    break
                stay = found - alpha[of] >= least
                if -(-stay.sum() // 4) < -(-len(of) // 4):
                    of, here, before, last = of[stay], here[stay], before[stay], last[stay]
            gamma = alpha.copy()
            gamma[of], least = before, min(least, 0.25 * tol)
        t = np.exp(sp.digamma(gamma))


def naive_collapsed_shares(corpus, topics: Floats, alpha: Floats, tol: float, limit: int) -> Floats:
    """α + expected counts [D, K]: word after word, r ∝ (counts without one of its own tokens + α) φ."""
    out = np.empty((len(corpus), len(alpha)))
    for d in range(len(corpus)):
        here = slice(corpus.start[d], corpus.start[d + 1])
        b, n = topics[:, corpus.words[here]].T, corpus.counts[here]
        r = alpha * b / (b @ alpha)[:, None]
        for _ in range(limit):
            before = alpha + n @ r
            for i in range(len(n)):
                weight = (alpha + n @ r - min(1.0, n[i]) * r[i]) * b[i]
                r[i] = weight / weight.sum()
            if np.abs(alpha + n @ r - before).mean() <= tol:
                break
        out[d] = alpha + n @ r
    return out


def naive_bound(row: Floats, r: Floats, elog: Floats, gamma: Floats, alpha: Floats) -> float:
    """E[log p(w | z)] + E[log p(z | θ)] + H(z) − KL(θ) of one document, term by term as the notes have it."""
    elog_theta = sp.digamma(gamma) - sp.digamma(gamma.sum())
    words = float((row * r * elog).sum())
    topics = float((row * r * elog_theta[:, None]).sum())
    entropy = float((row * sp.entr(r)).sum())
    normalizers = sp.gammaln(gamma.sum()) - sp.gammaln(gamma).sum() - sp.gammaln(alpha.sum()) + sp.gammaln(alpha).sum()
    return words + topics + entropy - float(normalizers + (gamma - alpha) @ elog_theta)


class Drawn(NamedTuple):
    """Counts [D, V], the topics [K, V] and the shares [D, K] that they were drawn from."""

    counts: Any
    topics: Floats
    shares: Floats


def draw_documents(
    n_documents: int,
    n_words: int,
    n_topics: int,
    length: int,
    seed: int,
    doc_prior: float = 0.1,
    topic_prior: float = 0.05,
) -> Drawn:
    """Documents of about ``length`` words from the model itself.

    Examples
    --------
    >>> draw_documents(3, 20, 2, 50, seed=0).counts.shape
    (3, 20)
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, topic_prior), n_topics)
    shares = rng.dirichlet(np.full(n_topics, doc_prior), n_documents)
    counts = np.array(
        [rng.multinomial(n, p) for n, p in zip(rng.poisson(length, n_documents), shares @ topics, strict=True)]
    )
    return Drawn(counts, topics, shares)
