"""Fitted topics and documents in; shares of topics, scores, coherence and likeness out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import NO_COUNT, Corpus, as_corpus
from natgrad.data.words import analyser_for
from natgrad.kernels.lda.shares import collapsed_shares
from natgrad.models.lda.topics import (
    Alignment,
    By,
    How,
    aligned,
    coherence,
    completion,
    nearest,
    ranked_words,
    shared_words,
)
from natgrad.threads import threads_for
from natgrad.validation import is_sparse, refuse_masked, whole_number

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from natgrad.inference.problem import State
    from natgrad.models.lda.estimator import LDA
    from natgrad.models.lda.problem import Inferred, LDAProblem

__all__ = ["OneDocument", "TopicQueries"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Held-out documents are solved more finely than those of a fit: nothing averages their errors out.
FINE_TOL, FINE_ROUNDS = 1e-4, 1000
# Rounds that a document takes about, to tell whether a second thread pays.
COLLAPSED_ROUNDS = 20
SLICE = 20_000


class TopicQueries:
    """What `LDA` says of documents; of the estimator it needs the fitted problem and its state."""

    if TYPE_CHECKING:
        seed: int
        doc_prior: Any
        components_: Floats
        topics_: Floats
        vocabulary_: npt.NDArray[Any]
        doc_prior_: Floats
        _state: State
        _fitted: LDAProblem
        _names: Any
        _seed: int

        def _check_fitted(self) -> None: ...
        def _threads(self) -> AbstractContextManager[None]: ...

    def transform(self, X: Any, return_std: bool = False) -> Any:
        """The expected topic shares of documents [D, K]; with ``return_std``, also their standard deviations.

        Of topics under q these are those of q, whose shares are too few and whose deviations are too small. Of topics that are
        a point (samples, or topics="point") θ is integrated out (CVB0), which predicts the other words of a document better,
        and after samples the deviations are those of Gibbs samples given the topics, about the shares that are returned.
        """
        corpus = self._held_out(X)
        gamma = self._collapsed(corpus) if self._is_point else self._inferred(corpus).gamma.astype(np.float64)
        total = gamma.sum(1, keepdims=True)
        mean = gamma / total
        if return_std and hasattr(self, "draws_moments_"):
            from natgrad.models.lda.gibbs import deviations

            with self._threads():
                return mean, deviations(corpus, mean, self.topics_, self.doc_prior_, self._seed)
        return (mean, np.sqrt(mean * (1.0 - mean) / (total + 1.0))) if return_std else mean

    def infer(self, document: Any) -> Floats:
        """The topic shares [K] of one document: a text, counts [V] (dense or sparse), or a list of (word number, count).

        The same as a row of `transform`, in well under a millisecond.
        """
        self._check_fitted()
        one: OneDocument | None = getattr(self, "_one", None)
        if one is None or one.state is not self._state or one.names is not self._names:
            self._one = one = OneDocument(self._fitted, self._state, self._names)
        if self._is_point:
            gamma = self._collapsed(one.corpus(document))[0]
            return np.asarray(gamma / gamma.sum())
        return one.shares(document, FINE_TOL, FINE_ROUNDS)

    @property
    def _exchangeable(self) -> bool:
        """Whether topics in another order are the same model: a learned prior goes along with them."""
        return self.doc_prior is None or isinstance(self.doc_prior, str) or bool(np.ptp(self.doc_prior) == 0.0)

    def score(self, X: Any, y: None = None) -> float:
        """The bound per word of documents given the fitted topics: Σ_d [E log p(w_d | θ, φ) − KL(θ_d)] / words.

        The topics' own terms are left out: they belong to the fit. Neither batches nor the number of documents change it.
        """
        corpus = self._held_out(X)
        if corpus.n_tokens == 0:
            raise ValueError("X has no words to score")
        return float(self._inferred(corpus).bound.sum() / corpus.n_tokens)

    def perplexity(self, X: Any, how: Literal["bound", "completion"] = "bound") -> float:
        """The exponential of minus the mean log probability of a word; lower is better.

        "bound" takes `score`, so it is an upper bound of the perplexity. "completion" infers the shares of each document from
        a random half of its tokens and predicts the other half with the means of θ and φ.
        """
        if how == "bound":
            return float(np.exp(-self.score(X)))
        if how != "completion":
            raise ValueError(f'how must be "bound" or "completion", got {how!r}')
        rng = np.random.default_rng([int(self.seed), 1])
        return float(np.exp(-completion(self.transform, self.topics_, self._held_out(X), rng)))

    def top_words(self, n: int = 10, by: By = "probability") -> list[list[Any]]:
        """The n first words of each topic: the likeliest, the most typical ("lift"), or both ("relevance")."""
        self._check_fitted()
        counts = self.components_.sum(1)
        return [self.vocabulary_[row].tolist() for row in ranked_words(self.topics_, counts / counts.sum(), n, by)]

    def coherence(self, X: Any, n: int = 10, how: How = "npmi") -> Floats:
        """How well each topic's n likeliest words go together [K]: their NPMI, or C_v (Röder, Both and Hinneburg, 2015).

        Words go together that are in one document; for C_v of texts, in one window of 110 tokens.
        """
        corpus, counts = self._held_out(X), self.components_.sum(1)
        words = ranked_words(self.topics_, counts / counts.sum(), n, "probability")
        return coherence(words, X, corpus, self.vocabulary_, how)

    def similar_documents(self, query: Any, X: Any, n: int = 10) -> tuple[Ints, Floats]:
        """The n documents of X nearest to one document, and Σ_k √(θ_k θ'_k) with each: 1 for the same shares, 0 for none."""
        return nearest(self.transform(X), self.infer(query), whole_number(n, "n"))

    def align(self, other: LDA) -> Alignment:
        """The one-to-one match with the topics of another fit, by total variation over the words that both have."""
        self._check_fitted()
        other._check_fitted()
        here, there = shared_words(self.vocabulary_, other.vocabulary_)
        return aligned(self.topics_[:, here], other.topics_[:, there])

    def _held_out(self, X: Any) -> Corpus:
        self._check_fitted()
        return as_corpus(X, self._names, len(self.vocabulary_))

    @property
    def _is_point(self) -> bool:
        """Whether topics are a point, so that given them documents have a posterior that no q stands for."""
        return self._fitted.local.topics == "point"

    def _collapsed(self, corpus: Corpus) -> Floats:
        """Concentrations [D, K] of documents' shares, given topics that are a point."""
        out, kept = np.empty((len(corpus), len(self.doc_prior_))), getattr(self, "_by_word", None)
        if kept is None or kept[0] is not self.topics_:
            self._by_word = kept = self.topics_, np.ascontiguousarray(self.topics_.T)
        alpha = np.asarray(self.doc_prior_, np.float64)
        with self._threads(), threads_for(len(corpus.words) * len(alpha) * COLLAPSED_ROUNDS):
            collapsed_shares(out, corpus.start, corpus.words, corpus.counts, kept[1], alpha, FINE_TOL, FINE_ROUNDS)
        return out

    def _inferred(self, corpus: Corpus) -> Inferred:
        """Documents given the fitted topics; those of the fit may have been solved less finely."""
        problem = self._fitted.of(corpus, self._state)
        with self._threads():
            parts = [
                problem.infer(self._state, groups, FINE_TOL, FINE_ROUNDS)
                for groups in np.array_split(np.arange(len(corpus)), -(-len(corpus) // SLICE))
            ]
        return type(parts[0])(*(np.concatenate(column) for column in zip(*parts, strict=True)))


Pairs = tuple[npt.NDArray[np.int32], Floats]


class OneDocument:
    """Infer one document at a time under the topics of a state; ``names`` are the words, or None.

    Numbers of words, the analyser of texts and the geometric means of the topics are prepared once. Nothing here is as long as
    the vocabulary, unless the document is given as counts of all words: a document takes well under a millisecond.
    """

    def __init__(self, problem: LDAProblem, state: State, names: npt.NDArray[Any] | None) -> None:
        self.problem, self.state, self.names = problem.of(problem.corpus, state), state, names
        self.n_words = problem.corpus.n_words
        self._numbers: dict[Any, int] | None = None
        self._analyser: Callable[[str], Iterable[str]] | None = None

    def shares(self, document: Any, tol: float, limit: int) -> Floats:
        """E[θ] [K]."""
        gamma = self.problem.infer_few(self.corpus(document), self.state, tol, limit)[0]
        concentration: Floats = gamma.astype(np.float64)
        shares: Floats = concentration / concentration.sum()
        return shares

    def corpus(self, document: Any) -> Corpus:
        """The document alone."""
        words, counts = self._read(document)
        return Corpus(np.array([0, len(words)], dtype=np.int64), words, counts, self.n_words)

    def _read(self, document: Any) -> Pairs:
        several = isinstance(document, (list, tuple))
        if isinstance(document, str) or (several and document and all(isinstance(word, str) for word in document)):
            return self._from_text(document)
        if is_sparse(document):
            row = scipy.sparse.csr_array(document.reshape(1, -1))
            self._check_size(row.shape[1])
            row.sum_duplicates()
            return self._checked(row.indices.astype(np.int64), row.data.astype(np.float64))
        if several and all(isinstance(pair, (list, tuple)) for pair in document):
            return self._from_pairs(document)
        refuse_masked(document, "document", NO_COUNT)
        counts = np.asarray(document, dtype=np.float64).ravel()
        self._check_size(len(counts))
        # Not only counts above zero: what is negative or NaN must be seen.
        places = np.flatnonzero(counts)
        return self._checked(places, counts[places])

    def _from_text(self, text: str | list[str] | tuple[str, ...]) -> Pairs:
        """A text, or the words it was cut into."""
        if self.names is None:
            raise ValueError(
                "a text can be read only if the words of the fit have names: fit texts, or give vocabulary="
            )
        if self._numbers is None:
            self._numbers = {word: place for place, word in enumerate(self.names.tolist())}
        if isinstance(text, str) and self._analyser is None:
            self._analyser = analyser_for(self._numbers)
        tokens = self._analyser(text) if isinstance(text, str) and self._analyser is not None else text
        known = [self._numbers[word] for word in tokens if word in self._numbers]
        words, counts = np.unique(np.array(known, dtype=np.int64), return_counts=True)
        return words.astype(np.int32), counts.astype(np.float64)

    def _from_pairs(self, pairs: Any) -> Pairs:
        table = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
        places = table[:, 0].astype(np.int64)
        words, where = np.unique(places, return_inverse=True)
        self._checked(places, table[:, 1])
        return self._checked(words, np.bincount(where, weights=table[:, 1], minlength=len(words)).astype(np.float64))

    def _checked(self, words: npt.NDArray[np.int64], counts: Floats) -> Pairs:
        if len(words) and not 0 <= words.min() <= words.max() < self.n_words:
            bad = int(words[(words < 0) | (words >= self.n_words)][0])
            raise ValueError(f"document has word number {bad}, and the vocabulary has {self.n_words} words")
        wrong = np.flatnonzero(~((counts >= 0) & (counts < np.inf)))
        if len(wrong):
            raise ValueError(
                f"document must hold counts (finite, ≥ 0), but word {int(words[wrong[0]])} has {counts[wrong[0]]:g}"
            )
        filled = counts > 0
        return words[filled].astype(np.int32), counts[filled]

    def _check_size(self, n_words: int) -> None:
        if n_words != self.n_words:
            raise ValueError(
                f"document has counts of {n_words} words and the model has {self.n_words}: give one number for each word of the "
                "fit, or a list of (word number, count)"
            )
