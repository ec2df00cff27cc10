"""Fitted topics and documents in; shares of topics, scores, coherence and likeness out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus, as_corpus
from natgrad.kernels.lda.shares import collapsed_shares
from natgrad.models.lda.coherence import How, coherence
from natgrad.models.lda.single_document import OneDocument
from natgrad.models.lda.topics import Alignment, By, aligned, completion, nearest, ranked_words, shared_words
from natgrad.threads import threads_for
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from natgrad.inference.problem import State
    from natgrad.models.lda.estimator import LDA
    from natgrad.models.lda.problem import Inferred, LDAProblem

__all__ = ["TopicQueries"]

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
