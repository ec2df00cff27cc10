"""Documents and the topics' rows of their words in; the documents' shares, their bound and their counts out: a part of a step.

A part is a pure function of what it is given, so it may be computed anywhere. Words are numbered as the rows are: only rows of
words that occur need to travel. Documents are solved one by one and counted word by word, in order; neither the numbering nor
the number of threads changes a bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.corpus import Corpus, as_corpus
from natgrad.data.origin import Origin
from natgrad.inference.executors.threads import ShardSpec
from natgrad.kernels.lda import plain
from natgrad.kernels.lda.documents import solve_documents, topic_counts
from natgrad.kernels.memory import aligned_empty, group_rows
from natgrad.kernels.special import bits_like, lgamma_columns, series_for
from natgrad.threads import threads_for

__all__ = [
    "Inferred",
    "Local",
    "PartResult",
    "Topics",
    "View",
    "by_word",
    "infer_view",
    "make_view",
    "shard_of",
    "solve_shard",
    "solve_view",
    "topic_normalizers",
]

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
# Documents are handed to threads in runs of about this many entries, at most so many; the cut depends on the data alone.
ENTRIES, MOST_CHUNKS = 2_000, 512
_plain_documents: Any = plain.solve_documents


class Local(NamedTuple):
    """How documents are solved.

    ``topics`` is the estimate of φ: "posterior", its geometric mean under q, or "point", its mean. A document is done when γ
    changes by ``tol`` in the mean over topics, or after ``limit`` rounds; topics with less than ``skip`` of its words are skipped
    until a last round over all topics.
    ``dtype`` is that of the inner loops.
    """

    topics: Literal["posterior", "point"] = "posterior"
    tol: float = 1e-3
    limit: int = 100
    skip: float = 0.0
    dtype: type = np.float64


class Topics(NamedTuple):
    """Weights b [V, K padded] in the type of the inner loops, log of each row's divisor [V], and α [K]."""

    weights: Floats
    top: Floats
    doc_prior: Floats

    def rows(self, words: Ints) -> Topics:
        """Those of some words."""
        chosen = aligned_empty(len(words), self.weights.shape[1], self.weights.dtype)
        np.take(self.weights, words, axis=0, out=chosen)
        return Topics(chosen, self.top[words], self.doc_prior)

    @property
    def nbytes(self) -> int:
        """What travels."""
        return self.weights.nbytes + self.top.nbytes


class Inferred(NamedTuple):
    """Documents given the topics: γ [D, K], t and ratios of the last q(z), the bound of each, the most rounds."""

    gamma: Floats
    weight: Floats
    ratio: Floats
    bound: Floats
    rounds: npt.NDArray[np.int64]


class View(NamedTuple):
    """Some documents, with their entries by word."""

    corpus: Corpus
    counts: Floats
    chunks: Ints
    documents: npt.NDArray[np.int32]
    word_start: Ints
    place: Ints
    little: bool = False  # whether there is so little that nothing is compiled


class PartResult(NamedTuple):
    """γ [D, K], counts of topics by word [V, K], the bound of the documents, and the most rounds that one took."""

    gamma: Floats
    counts: Floats
    bound: float
    rounds: int


def make_view(corpus: Corpus, dtype: type, little: bool = False) -> View:
    """Documents prepared for the kernels."""
    start, place = np.empty(corpus.n_words + 1, np.int64), np.empty(len(corpus.words), np.int64)
    group_rows(corpus.words, start, place)
    n_chunks = min(MOST_CHUNKS, 1 + len(corpus.words) // ENTRIES)
    cuts = np.searchsorted(corpus.start, np.linspace(0, corpus.start[-1], n_chunks + 1), side="left")
    cuts[0], cuts[-1] = 0, len(corpus)
    documents = np.repeat(np.arange(len(corpus), dtype=np.int32), np.diff(corpus.start))
    return View(corpus, corpus.counts.astype(dtype), np.unique(cuts), documents, start, place, little)


def infer_view(view: View, topics: Topics, local: Local, start: Any, warm: bool, tol: float, limit: int) -> Inferred:
    """Solve the documents of a view; ``start`` is γ if ``warm``, otherwise a point mass or None."""
    size, n_topics, width = len(view.corpus), len(topics.doc_prior), topics.weights.shape[1]
    begin_at: Floats = np.full((1, n_topics), 1.0 / n_topics) if start is None else start
    begin_at = np.require(begin_at, local.dtype, ["C", "A"])
    alpha: Floats = topics.doc_prior.astype(local.dtype)
    power: Floats = np.empty((len(view.chunks) - 1, width), local.dtype)
    out = Inferred(
        np.empty((size, n_topics), local.dtype),
        aligned_empty(size, width, local.dtype),
        np.empty(len(view.corpus.words), local.dtype),
        np.empty(size),
        np.empty(size, np.int64),
    )
    if view.little:
        _plain_documents(
            view.corpus.start, view.corpus.words, view.counts, topics.weights, topics.top, alpha, begin_at, warm, tol, limit,
            min(local.skip, 0.5 / n_topics), *out,
        )  # fmt: skip
        return out
    with threads_for(len(view.place) * n_topics):
        solve_documents(
            view.chunks, view.corpus.start, view.corpus.words, view.counts, topics.weights, topics.top,
            alpha, series_for(local.dtype), power, bits_like(power), begin_at, warm, float(tol), int(limit),
            min(local.skip, 0.5 / n_topics), *out,
        )  # fmt: skip
    return out


def solve_view(view: View, topics: Topics, local: Local, start: Any, warm: bool, tol: float, limit: int) -> PartResult:
    """Solve the documents of a view, and count."""
    inferred = infer_view(view, topics, local, start, warm, tol, limit)
    counts: Floats = np.empty((view.corpus.n_words, len(topics.doc_prior)), local.dtype)
    count: Any = plain.topic_counts if view.little else topic_counts
    with threads_for(len(view.place) * len(topics.doc_prior)):
        count(view.word_start, view.place, view.documents, inferred.ratio, inferred.weight, topics.weights, counts)
    return PartResult(inferred.gamma, counts, float(inferred.bound.sum()), int(inferred.rounds.max(initial=0)))


def shard_of(documents: Corpus) -> Corpus | ShardSpec:
    """Documents, or those of files as whoever sees these reads them."""
    origin = documents.origin
    if origin is None:
        return documents
    return ShardSpec(_read, (origin,), origin.files, replace(documents, origin=None))


def _read(origin: Origin) -> Corpus:
    return replace(as_corpus(origin.read()), vocabulary=None)


def solve_shard(
    shard: Corpus, topics: Topics, words: Ints, chosen: Ints | None, start: Any, local: Local, warm: bool, tol: float,
    limit: int, little: bool,
) -> PartResult:  # fmt: skip
    """Some documents of a shard (None: all); the counts have a row for each of these sorted words alone, ``topics`` may have all.

    ``little`` is said of all documents: whether they are compiled for must not depend on how they are shared out.

    What came in a message may begin at any byte; here it begins where loops read fastest.
    """
    topics = topics.rows(words if len(topics.top) > len(words) else np.arange(len(words)))
    part = shard if chosen is None else shard.documents(chosen)
    place = np.empty(shard.n_words, np.int32)
    place[words] = np.arange(len(words), dtype=np.int32)
    numbered = Corpus(np.require(part.start, requirements="A"), place[part.words], part.counts, len(words))
    return solve_view(make_view(numbered, local.dtype, little), topics, local, start, warm, tol, limit)


def by_word(array: Any) -> Floats:
    """[K, V] as contiguous [V, K]: a view of an array that lies word after word, otherwise a copy."""
    return np.ascontiguousarray(np.asarray(array).T)


def topic_normalizers(concentration: Floats) -> float:
    """Σ_k A of topics [V, K]."""
    log_gamma = np.empty(len(concentration))
    with threads_for(concentration.size):
        lgamma_columns(concentration, log_gamma)
    return float(log_gamma.sum() - sp.gammaln(concentration.sum(0)).sum())
