"""Rank the words of topics [K, V], match topics with others, and score their predictions and coherence."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import Corpus
from natgrad.data.words import analyser_for

__all__ = [
    "Alignment",
    "By",
    "How",
    "aligned",
    "c_v",
    "coherence",
    "completion",
    "nearest",
    "npmi",
    "of_documents",
    "of_windows",
    "ranked_words",
    "shared_words",
    "tell_empty_topics",
    "warn_of_many_topics",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
By = Literal["probability", "relevance", "lift"]
# The weight of a word's probability against its lift; Sievert and Shirley (2014) found 0.6 best for people.
RELEVANCE = 0.6
# A topic with fewer tokens than this has only the words of its prior.
EMPTY = 1.0
logger = logging.getLogger(__name__)


class Alignment(NamedTuple):
    """``other[k]`` is the other model's topic that topic k goes with, ``distance[k]`` the total variation between the two."""

    other: Ints
    distance: Floats


def ranked_words(topics: Floats, shares: Floats, n: int, by: By) -> Ints:
    """The n first words of each topic [K, n]; by probability, by lift φ_kv / p(v), or by relevance, a mean of their logs."""
    if by not in ("probability", "relevance", "lift"):
        raise ValueError(f'by must be "probability", "relevance" or "lift", got {by!r}')
    log_probability = np.log(topics)
    log_lift = log_probability - np.log(shares @ topics)
    weight = {"probability": 1.0, "relevance": RELEVANCE, "lift": 0.0}[by]
    score = weight * log_probability + (1.0 - weight) * log_lift
    return np.argsort(-score, axis=1, kind="stable")[:, :n]


def aligned(topics: Floats, others: Floats) -> Alignment:
    """The one-to-one match of topics with the least total variation; of unequal numbers, the smaller one is matched.

    Examples
    --------
    >>> aligned(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.2, 0.8], [0.8, 0.2]])).other.tolist()
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment  # a fifth of a second

    distance = np.array([0.5 * np.abs(others - topic).sum(1) for topic in topics])
    rows, columns = linear_sum_assignment(distance)
    other = np.full(len(topics), -1)
    distances = np.full(len(topics), np.nan)
    other[rows], distances[rows] = columns, distance[rows, columns]
    return Alignment(other, distances)


def shared_words(vocabulary: npt.NDArray[Any], other: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Where the words that two vocabularies share are in each."""
    mine = {word: place for place, word in enumerate(vocabulary.tolist())}
    both = [(mine[word], place) for place, word in enumerate(other.tolist()) if word in mine]
    if not both:
        raise ValueError("the two vocabularies have no word in common")
    here, there = np.array(both).T
    return here, there


def nearest(shares: Floats, query: Floats, n: int) -> tuple[Ints, Floats]:
    """The n rows of shares [D, K] closest to those of one document, and how close each is: Σ_k √(θ_k θ'_k)."""
    closeness = np.sqrt(shares) @ np.sqrt(query)
    order = np.argsort(-closeness, kind="stable")[:n]
    return order, closeness[order]


def completion(
    shares_of: Callable[[Corpus], Floats], topics: Floats, corpus: Corpus, rng: np.random.Generator
) -> float:
    """The mean log probability of a word of the second half of each document, given the shares of its first half."""
    read, predicted = _split_tokens(corpus, rng)
    if predicted.n_tokens == 0:
        raise ValueError("X has too few words to predict any")
    return _completed(shares_of(read), topics, predicted) / predicted.n_tokens


def _split_tokens(corpus: Corpus, rng: np.random.Generator) -> tuple[Corpus, Corpus]:
    """Each document's tokens in two halves at random: one to infer its shares from, one to predict."""
    counts = corpus.counts
    if (counts != np.round(counts)).any():
        raise ValueError('how="completion" splits tokens, so counts must be whole numbers; use how="bound" for weights')
    first = rng.binomial(counts.astype(np.int64), 0.5).astype(np.float64)
    table = corpus.to_sparse()
    halves = []
    for part in (first, counts - first):
        # A copy: what is eliminated from one half must stay in the other.
        half = scipy.sparse.csr_array((part, table.indices, table.indptr), shape=table.shape, copy=True)
        half.eliminate_zeros()
        halves.append(
            Corpus(
                half.indptr.astype(np.int64),
                half.indices.astype(np.int32),
                half.data,
                corpus.n_words,
                corpus.vocabulary,
            )
        )
    return halves[0], halves[1]


def _completed(shares: Floats, topics: Floats, corpus: Corpus) -> float:
    """Σ over the tokens of a corpus of log Σ_k θ_dk φ_kv."""
    total = 0.0
    by_word: Any = np.ascontiguousarray(topics.T)
    for begin in range(0, len(corpus), 1000):
        end = min(begin + 1000, len(corpus))
        entries = slice(int(corpus.start[begin]), int(corpus.start[end]))
        rows = np.repeat(np.arange(begin, end), np.diff(corpus.start[begin : end + 1]))
        probability = np.einsum("nk,nk->n", shares[rows], by_word[corpus.words[entries]])
        total += float(corpus.counts[entries] @ np.log(probability))
    return total


def warn_of_many_topics(n_topics: int, n_words: int) -> None:
    """Warn if there are more topics than words: they cannot be told apart."""
    if n_topics > n_words:
        warnings.warn(
            f"n_topics = {n_topics}, and the documents have {n_words} different words: more topics than words cannot be told "
            f"apart; take at most n_topics={n_words}",
            UserWarning,
            stacklevel=4,
        )


def tell_empty_topics(components: Floats, beta: float) -> None:
    """Log which topics have no words of their own, and what to do about it."""
    empty = np.flatnonzero((components - beta).sum(1) < EMPTY)
    if len(empty):
        logger.warning(
            "%d of %d topics hold no words (the first: topic %d): the objective is higher without them; take fewer topics, "
            'topics="point" in local=, or inference="gibbs"',
            len(empty),
            len(components),
            empty[0],
        )


How = Literal["npmi", "c_v"]
# Of the authors.
WINDOW = 110
EPSILON = 1e-12


def coherence(words: Ints, X: Any, corpus: Corpus, vocabulary: Any, how: How) -> Floats:
    """Compute how well the words [K, n] of each topic go together in documents, X as it was given and as a corpus [K].

        NPMI   mean over pairs of  log(p_ij / (p_i p_j)) / −log p_ij
        C_v    Röder, Both and Hinneburg (2015): each word has the vector of its NPMI with all words of the topic; mean over words
               of the cosine between its vector and the sum of all vectors

    p_i is the share of the windows that have word i, p_ij of those that have both. Of counts a window is a document: their order
    is gone. Of texts C_v slides a window of 110 tokens over each, as its authors do; a shorter text is one window.
    """
    if how not in ("npmi", "c_v"):
        raise ValueError(f'how must be "npmi" or "c_v", got {how!r}')
    if how == "npmi":
        return npmi(of_documents(words, corpus))
    texts = isinstance(X[0], str) if isinstance(X, Sequence) else False
    return c_v(of_windows(words, X, vocabulary) if texts else of_documents(words, corpus))


def of_documents(words: Ints, corpus: Corpus) -> list[Floats]:
    """For each topic, the share of the documents that have both of two of its words [n, n]; p_i is on the diagonal."""
    table = corpus.to_sparse()
    present = scipy.sparse.csr_array((np.ones(table.nnz), table.indices, table.indptr), shape=table.shape).tocsc()
    return [_together(present[:, chosen]) for chosen in words]


def of_windows(words: Ints, texts: Sequence[str], vocabulary: Any, size: int = WINDOW) -> list[Floats]:
    """The same for windows of ``size`` tokens that slide over texts; tokens are those of scikit-learn's CountVectorizer.

    ``vocabulary`` [V] has the words themselves.
    """
    chosen = {vocabulary[word]: place for place, word in enumerate(np.unique(words))}
    rows: list[Ints] = [np.empty(0, dtype=np.int64)]
    columns, begin = [rows[0]], 0
    cut = analyser_for(vocabulary.tolist() if hasattr(vocabulary, "tolist") else vocabulary)
    for text in texts:
        tokens = list(cut(text))
        n_windows = max(1, len(tokens) - size + 1)
        occurrences = [(place, chosen[token]) for place, token in enumerate(tokens) if token in chosen]
        for place, word in occurrences:
            first, last = max(0, place - size + 1), min(place, n_windows - 1)
            rows.append(np.arange(begin + first, begin + last + 1))
            columns.append(np.full(last - first + 1, word))
        begin += n_windows
    row, column = np.concatenate(rows), np.concatenate(columns)
    table = scipy.sparse.csr_array((np.ones(len(row)), (row, column)), shape=(begin, len(chosen)))
    table.sum_duplicates()
    table.data[:] = 1.0
    present = table.tocsc()
    place_of = np.searchsorted(np.unique(words), words)
    return [_together(present[:, places]) for places in place_of]


def npmi(together: list[Floats]) -> Floats:
    """Mean normalised pointwise mutual information of each topic's words.

    From −1 (never together) over 0 (independent) to 1 (always together); words that are nowhere are left out of the mean. A topic
    with fewer than two known words has NaN.
    """
    out = np.full(len(together), np.nan)
    for k, joint in enumerate(_known(together)):
        if len(joint) >= 2:
            out[k] = _npmi(joint, 0.0)[np.triu_indices(len(joint), 1)].mean()
    return out


def c_v(together: list[Floats]) -> Floats:
    """C_v of each topic's words, up to 1; words that are nowhere are left out, and fewer than two known ones give NaN."""
    out = np.full(len(together), np.nan)
    for k, joint in enumerate(_known(together)):
        if len(joint) >= 2:
            vectors = _npmi(joint, EPSILON)
            whole = vectors.sum(0)
            lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(whole)
            out[k] = (vectors @ whole / lengths).mean() if lengths.all() else 0.0
    return out


def _npmi(joint: Floats, epsilon: float) -> Floats:
    single = np.diag(joint)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log((joint + epsilon) / np.outer(single, single)) / -np.log(joint + epsilon)
    value = np.where(joint == 1.0, 1.0, value)  # in every window, both of them: the limit
    return value if epsilon else np.where(joint == 0.0, -1.0, value)


def _together(columns: Any) -> Floats:
    return np.asarray((columns.T @ columns).toarray() / columns.shape[0])


def _known(together: list[Floats]) -> list[Floats]:
    kept = [np.flatnonzero(np.diag(joint) > 0) for joint in together]
    return [joint[np.ix_(known, known)] for joint, known in zip(together, kept, strict=True)]
