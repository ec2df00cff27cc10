"""Solve documents given the topics: their shares, bounds and expected counts, and how these change with the topics.

Documents and the topics' rows of their words are all that a part of a step needs, so it may be computed anywhere. Words are
numbered as the rows are: only rows of words that occur need to travel. Documents are solved one by one and counted word by word,
in order; neither the numbering nor the number of threads changes a bit.

Tangents are exact and take one pass: differences of two solutions would need both to the last digit, and some documents take
thousands of rounds for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.corpus import Corpus, as_corpus
from natgrad.data.origin import Origin
from natgrad.errors import NotAtMaximum
from natgrad.inference.executors import ShardSpec
from natgrad.inference.problem import GroupResult, State
from natgrad.kernels.lda import plain
from natgrad.kernels.lda.documents import solve_documents, topic_counts
from natgrad.kernels.lda.tangents import document_tangents
from natgrad.kernels.memory import aligned_empty, group_rows
from natgrad.kernels.special import bits_like, lgamma_columns, series_for
from natgrad.threads import threads_for

if TYPE_CHECKING:
    from natgrad.models.lda.problem import LDAProblem

__all__ = [
    "Inferred",
    "Local",
    "PartResult",
    "Topics",
    "View",
    "by_word",
    "document_tangent",
    "infer_view",
    "make_view",
    "shard_of",
    "solve_shard",
    "solve_view",
    "told_along",
    "topic_normalizers",
]

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
# Documents are handed to threads in runs of about this many entries, at most so many; the cut depends on the data alone.
ENTRIES, MOST_CHUNKS = 2_000, 512
# Numbers of the documents' small systems up to which these are kept from one direction to the next: 256 MB.
MOST_KEPT = 32_000_000
# Words of documents whose topics are multiplied out at once.
AT_ONCE = 100_000
_plain_documents: Any = plain.solve_documents
_plain_tangents: Any = plain.document_tangents


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


def document_tangent(problem: LDAProblem, state: State, solved: GroupResult, strict: bool) -> Callable[[Any], Any]:
    """From a direction of E[log φ] to the change of the expected counts of topics by word.

    A document that is at no maximum of its own does not move; if ``strict``, it is an error.
    """
    view, topics = problem.view_of(None), problem.topics_at(state)
    inferred = infer_view(view, topics, problem.local, solved.rows[0], True, *problem.local_limits)
    curved, n_topics = sp.polygamma(1, inferred.gamma), problem.n_topics
    told = by_word(solved.messages["phi"][0])
    shares, ratio, least = np.empty_like(inferred.weight), np.empty_like(inferred.ratio), np.empty(len(curved))
    kept = len(curved) * n_topics**2 <= MOST_KEPT
    factors = np.empty((len(curved) if kept else 0, n_topics, n_topics))
    made = False

    def counts(ratio: Any, weight: Any) -> Any:
        out = np.empty_like(told)
        count: Any = plain.topic_counts if view.little else topic_counts
        count(view.word_start, view.place, view.documents, ratio, weight, topics.weights, out)
        return out

    def along(direction: Any) -> Any:
        nonlocal made
        moved = by_word(direction["phi"][0])
        documents = view.corpus.start, view.corpus.words, view.counts, topics.weights, curved, inferred.weight
        with threads_for(len(view.place) * n_topics):
            if view.little:
                _plain_tangents(*documents, inferred.ratio, moved, shares, ratio, least)
            else:
                document_tangents(view.chunks, *documents, inferred.ratio, moved, factors, made, shares, ratio, least)
            if strict and not made and not least.min(initial=1.0) > 0.0:
                raise NotAtMaximum(
                    f"document {int(least.argmin())} is at no maximum of its own bound: its topics are as likely as one another, "
                    "and small changes of the data decide between them. Use draws"
                )
            made = kept
            return {"phi": ((counts(inferred.ratio, shares) - counts(ratio, inferred.weight) + moved * told).T,)}

    return along


def told_along(problem: LDAProblem, state: State, rows: Any, direction: Any) -> Any:
    """Σ_wk n_w r_wk d E[log φ_kw] of each document: how its bound changes along a direction of the topics."""
    view, topics = problem.view_of(None), problem.topics_at(state)
    inferred = infer_view(view, topics, problem.local, rows[0], True, *problem.local_limits)
    moved, n_topics, each = by_word(direction["phi"][0]), problem.n_topics, np.empty(len(view.place))
    for begin in range(0, len(each), AT_ONCE):
        part = slice(begin, begin + AT_ONCE)
        words, documents = view.corpus.words[part], view.documents[part]
        shares = inferred.weight[documents, :n_topics] * topics.weights[words, :n_topics]
        each[part] = inferred.ratio[part] * np.einsum("ek,ek->e", shares, moved[words])
    return np.bincount(view.documents, each, len(view.corpus))
