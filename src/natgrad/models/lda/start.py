"""Where topics start: near one another, each leaning a little towards a document of its own; the documents lie far apart.

Topics that all start alike fall on one another, and some are never used. A document for each, drawn one after the other with a
probability that grows with its distance from those already drawn (as k-means++ does), breaks the tie towards the data; the
lean is small, for a topic is not a document.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus

__all__ = ["first_topics", "revived_topics", "seeded_topics"]

Floats = npt.NDArray[np.float64]
# Documents among which the seeds are drawn: this many, or so many for each topic.
CANDIDATES, PER_TOPIC = 2_000, 10
# The tokens that a seed adds, for each word of the vocabulary; every word starts with about one. On generated corpora and on
# abstracts (K = 5 … 50) bounds were best between 0.03 and 0.3, and far worse without.
LEAN = 0.1
# A topic with less than this part of an equal share of the words is lost: it has the words of its prior, as all lost ones do.
LOST_SHARE = 0.05


def first_topics(corpus: Corpus, n_topics: int, rng: np.random.Generator) -> Floats:
    """Concentrations [K, V]: Gamma(100, 100) draws, as scikit-learn and gensim start, plus the seeds."""
    drawn: Floats = rng.gamma(100.0, 0.01, (corpus.n_words, n_topics)).T
    return drawn + LEAN * corpus.n_words * _seed_documents(corpus, n_topics, rng)


def revived_topics(topics: Floats, beta: float, corpus: Corpus, rng: np.random.Generator) -> Floats | None:
    """The concentrations [K, V] with an equal share of the words, as in some document, for topics that lost theirs; or None."""
    share = corpus.n_tokens / len(topics)
    lost = np.flatnonzero(topics.sum(1) - beta * corpus.n_words < LOST_SHARE * share)
    if not len(lost):
        return None
    out = topics.copy()
    out[lost] = beta + seeded_topics(corpus, len(topics), len(lost), rng)
    return out


def seeded_topics(corpus: Corpus, n_topics: int, n: int, rng: np.random.Generator) -> Floats:
    """Tokens [n, V] of ``n`` of all topics: an equal share of the words for each, as in some document."""
    return corpus.n_tokens / n_topics * _seed_documents(corpus, n, rng)


def _seed_documents(corpus: Corpus, n: int, rng: np.random.Generator) -> Floats:
    """The words' shares [n, V] in documents that lie far apart; nothing if no document has words."""
    filled = np.flatnonzero(corpus.lengths > 0)
    if len(filled) == 0:
        return np.zeros((n, corpus.n_words))
    chosen = np.sort(rng.choice(filled, min(max(CANDIDATES, PER_TOPIC * n), len(filled)), replace=False))
    part = corpus.documents(chosen)
    rows = np.repeat(np.arange(len(part)), np.diff(part.start))
    shares = (1.0 / part.lengths)[rows] * part.counts
    seeds: Floats = np.zeros((n, corpus.n_words))
    for seed, row in zip(seeds, _far_apart(part, rows, np.sqrt(shares), n, rng), strict=True):
        here = slice(part.start[row], part.start[row + 1])
        seed[part.words[here]] = shares[here]
    return seeds


def _far_apart(part: Corpus, rows: npt.NDArray[np.int64], roots: Floats, n: int, rng: np.random.Generator) -> list[int]:
    """Documents drawn in proportion to their squared Hellinger distance, 1 − Σ_v √(p q), from the nearest one drawn before.

    ``rows`` are the documents of the entries, ``roots`` the roots of their shares.
    """
    chosen = [int(rng.integers(len(part)))]
    nearest = np.ones(len(part))
    for _ in range(n - 1):
        here = slice(part.start[chosen[-1]], part.start[chosen[-1] + 1])
        last = np.zeros(part.n_words)
        last[part.words[here]] = roots[here]
        alike = np.bincount(rows, roots * last[part.words], len(part))
        nearest = np.minimum(nearest, np.maximum(1.0 - alike, 0.0))
        # Rounding leaves 1e-16 between equal rows; with fewer kinds of documents than topics, any will do.
        weight = nearest if nearest.sum() > 1e-9 else np.ones(len(nearest))
        chosen.append(int(rng.choice(len(weight), p=weight / weight.sum())))
    return chosen
