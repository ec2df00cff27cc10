"""Topics [K, V] in; their places on a map of two dimensions, and the words that a reader may want of each, out.

Distances are √JSD, the square root of the Jensen–Shannon divergence, a metric that embeds in a Hilbert space (Endres and
Schindelin, 2003), so that classical scaling loses nothing but the dimensions it drops. Relevance is that of Sievert and
Shirley (2014): λ log φ + (1 − λ) log (φ / p).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

__all__ = ["Sizes", "distances", "places", "relevant_words", "sizes_from_counts", "sizes_from_shares"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Numbers that the distances may read; with more, rare words are put together into one.
MOST_NUMBERS = 1e8
SLIDER = np.linspace(0.0, 1.0, 21)
MASS = 0.9


class Sizes(NamedTuple):
    """The part of all words that each topic has [K], the ends of its interval, and what the interval means."""

    mean: Floats
    low: Floats
    high: Floats
    meaning: str


def distances(topics: Floats) -> Floats:
    """√JSD between all pairs of topics [K, K], in nats: 0 for the same, √log 2 for topics without a common word."""
    K, V = topics.shape
    kept = int(MOST_NUMBERS / max(K * K / 2, 1))
    if kept < V:
        order = np.argsort(-topics.sum(0), kind="stable")
        rest = topics[:, order[kept:]].sum(1, keepdims=True)
        topics = np.hstack([topics[:, order[:kept]], rest])
    own = _entropy(topics)
    out = np.zeros((K, K))
    for k in range(K - 1):
        mixed = _entropy((topics[k] + topics[k + 1 :]) / 2)
        out[k, k + 1 :] = np.sqrt(np.maximum(mixed - (own[k] + own[k + 1 :]) / 2, 0.0))
    return out + out.T


def places(distance: Floats) -> Floats:
    """Classical scaling: points [K, 2] whose distances come nearest to those given; signs are fixed, not random.

    Examples
    --------
    >>> line = np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0]))
    >>> found = places(line)
    >>> np.abs(np.subtract.outer(found[:, 0], found[:, 0])).round(6).tolist()
    [[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]
    """
    K = len(distance)
    if K == 1:
        return np.zeros((1, 2))
    centre = np.eye(K) - 1.0 / K
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    chosen = np.argsort(-values)[:2]
    axes = vectors[:, chosen] * np.sign(vectors[np.abs(vectors[:, chosen]).argmax(0), chosen])
    return np.asarray(axes * np.sqrt(np.maximum(values[chosen], 0.0)))


def relevant_words(topics: Floats, overall: Floats, n: int) -> list[Ints]:
    """For each topic the words that are among the n most relevant at any position of the slider."""
    log_topic, log_overall = np.log(topics), np.log(overall)
    words = []
    for row in log_topic:
        chosen: set[int] = set()
        for weight in SLIDER:
            score = row - (1.0 - weight) * log_overall
            chosen.update(np.argpartition(-score, min(n, len(score)) - 1)[:n].tolist())
        words.append(np.array(sorted(chosen), dtype=np.int64))
    return words


def sizes_from_shares(mean: Floats, sd: Floats, lengths: Floats) -> Sizes:
    """Sizes from the shares of documents [D, K]: independent under q, so their variances add up."""
    part = lengths / lengths.sum()
    middle, spread = part @ mean, np.sqrt(part**2 @ sd**2)
    reach = special.ndtri(0.5 + MASS / 2) * spread
    meaning = "90 % intervals of the share of all words, from the posterior of the documents' shares"
    return Sizes(middle, np.maximum(middle - reach, 0.0), np.minimum(middle + reach, 1.0), meaning)


def sizes_from_counts(counts: Floats) -> Sizes:
    """Sizes from the expected number of words in each topic: intervals of a proportion with as many words counted."""
    counts = np.maximum(counts, 1e-9)
    total = counts.sum()
    ends = [special.betaincinv(counts + 0.5, total - counts + 0.5, q) for q in (0.5 - MASS / 2, 0.5 + MASS / 2)]
    mean = counts / total
    meaning = "90 % intervals of a proportion with as many words; documents to read would give those of the posterior"
    return Sizes(mean, np.minimum(ends[0], mean), np.maximum(ends[1], mean), meaning)


def _entropy(rows: Floats) -> Floats:
    return np.asarray(-np.sum(rows * np.log(np.maximum(rows, 1e-300)), axis=-1))
