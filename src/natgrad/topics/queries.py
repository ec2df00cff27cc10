"""Fitted topics that are the same for all documents, and documents, in; shares, scores, words and coherence out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.models.lda.coherence import How, coherence
from natgrad.models.lda.topics import By, completion, ranked_words
from natgrad.topics.base import TopicNetwork

__all__ = ["FixedTopics", "likeliest"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class FixedTopics(TopicNetwork, ABC):
    """A model with one topic k for all documents [K, V]; abstract."""

    @abstractmethod
    def _shares(self, corpus: Corpus) -> Floats:
        """Topic shares of a corpus."""

    def transform(self, X: Any) -> Floats:
        """The expected topic shares of documents [D, K], by their words alone."""
        return self._shares(self._new_documents(X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log probability of a word of a random half of each document, given the shares of its other half."""
        rng = np.random.default_rng([int(self.seed), 1])
        return completion(self._shares, self._topics_now(), self._new_documents(X), rng)

    def perplexity(self, X: Any) -> float:
        """The exponential of minus `score`; lower is better."""
        return float(np.exp(-self.score(X)))

    def top_words(self, n: int = 10, by: By = "probability") -> list[list[Any]]:
        """The n first words of each topic: the likeliest, the most typical ("lift"), or both ("relevance")."""
        return [self.vocabulary_[row].tolist() for row in likeliest(self._topics_now(), n, by)]

    def coherence(self, X: Any, n: int = 10, how: How = "npmi") -> Floats:
        """How well each topic's n likeliest words go together [K], as in `LDA.coherence`."""
        words = likeliest(self._topics_now(), n)
        return coherence(words, X, self._new_documents(X), self.vocabulary_, how)

    def _topics_now(self) -> Floats:
        self._check_fitted()
        return self.topics_


def likeliest(topics: Floats, n: int, by: By = "probability") -> Ints:
    """The n first words of each topic [K, n]; for lift, all topics are equally common."""
    return ranked_words(topics, np.full(len(topics), 1.0 / len(topics)), n, by)
