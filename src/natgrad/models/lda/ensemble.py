"""Several fits of topics to the same documents in; topics matched across the fits, the most stable first, out.

The reference is the fit whose topics the others have in common most: the medoid. Topic k of the reference is matched one-to-one
with a topic of each other fit (least total variation in all), and its stability is the mean over the other fits of

    1 − ½ Σ_v |φ_kv − φ'_kv|

1 where every fit has found the topic itself, near 0 where none has anything like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import as_corpus, with_words
from natgrad.data.held import HeldDocuments
from natgrad.models.lda.topics import Alignment, By
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.models.lda.estimator import LDA

__all__ = ["EnsembleMixin", "TopicEnsemble"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class TopicEnsemble:
    """Topics that several fits were asked for, the most stable first; made by ``LDA.ensemble``.

    Attributes
    ----------
    models : the fits, in the order of their seeds
    reference : int, which of them has the topics that the others have most in common
    stability : array [K], of each topic; falling
    order : array [K], the number of each topic in the reference
    matches : array [n, K], the number of each topic in each fit; −1 where a fit with fewer topics has none
    agreement : array [n, n], mean overlap of the matched topics of two fits; a topic without a match counts 0
    topics : array [K, V], the mean of each topic over the fits that have it
    """

    models: tuple[LDA, ...]
    reference: int
    stability: Floats
    order: Ints
    matches: Ints
    agreement: Floats
    topics: Floats

    @property
    def model(self) -> LDA:
        """The reference."""
        return self.models[self.reference]

    def stable(self, least: float = 0.5) -> Ints:
        """The topics whose stability is at least so much."""
        return np.flatnonzero(self.stability >= least)

    def top_words(self, n: int = 10, by: By = "probability") -> list[list[Any]]:
        """The n first words of each topic in the reference, the most stable topic first."""
        words = self.model.top_words(n, by)
        return [words[topic] for topic in self.order]

    def transform(self, X: Any) -> Floats:
        """The topic shares of documents [D, K] in the reference, the most stable topic first."""
        return np.asarray(self.model.transform(X)[:, self.order])

    def __repr__(self) -> str:
        shown = ", ".join(f"{value:.2f}" for value in self.stability[:5]) + (", …" if len(self.stability) > 5 else "")
        return f"<TopicEnsemble of {len(self.models)} fits, {len(self.stability)} topics; stability {shown}>"


class EnsembleMixin:
    """``ensemble`` of `LDA`."""

    if TYPE_CHECKING:
        seed: int
        _data: Any

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def ensemble(self, n: int = 10, X: Any = None, *, vocabulary: Sequence[Any] | None = None) -> TopicEnsemble:
        """The topics of n fits from different seeds, matched, the most stable first; this estimator stays as it is.

        Parameters
        ----------
        n : int ≥ 2
            How many fits. Their seeds are ``seed``, ``seed + 1``, …
        X : documents, as in `fit`, optional
            By default those that this model was fitted to; it is then the first of the n.
        vocabulary : the V words, optional

        Examples
        --------
        >>> import natgrad as ng
        >>> texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
        >>> found = ng.LDA(n_topics=2).fit(texts).ensemble(3)
        >>> print(found.stability.round(1), sorted(found.top_words(1)))
        [1. 1.] [['apple'], ['bolt']]
        """
        n_fits = whole_number(n, "n", least=2)
        fitted: list[Any] = []
        if X is None:
            held = getattr(self, "_data", None)
            if not isinstance(held, HeldDocuments):
                raise ValueError(
                    "ensemble() needs documents: give X, or fit this model to documents first; what was loaded or read from a "
                    "stream does not hold them"
                )
            corpus, fitted = held.corpus, [self]
        else:
            corpus = with_words(as_corpus(X, vocabulary))
        settings: dict[str, Any] = self.get_params(deep=False)
        alike: Any = type(self)
        seeds = range(int(self.seed) + len(fitted), int(self.seed) + n_fits)
        return matched((*fitted, *(alike(**{**settings, "seed": seed}).fit(corpus) for seed in seeds)))


def matched(models: Sequence[LDA]) -> TopicEnsemble:
    """The topics of several fits with one vocabulary, matched with those of the one that is nearest to all."""
    pairs = [[one.align(other) for other in models] for one in models]
    sizes = [len(model.topics_) for model in models]
    agreement = np.array(
        [
            [_overlaps(pair).sum() / max(len(row[0].other), k) for pair, k in zip(row, sizes, strict=True)]
            for row in pairs
        ]
    )
    reference = int(np.argmax(agreement.sum(1)))
    others = [number for number in range(len(models)) if number != reference]
    stability = np.mean([_overlaps(pairs[reference][number]) for number in others], axis=0)
    order = np.argsort(-stability, kind="stable")
    matches = np.array([pair.other[order] for pair in pairs[reference]])
    total, times = np.zeros_like(models[reference].topics_), np.zeros(len(order))
    for model, match in zip(models, matches, strict=True):
        there = match >= 0
        total[there] += model.topics_[match[there]]
        times += there
    return TopicEnsemble(tuple(models), reference, stability[order], order, matches, agreement, total / times[:, None])


def _overlaps(pair: Alignment) -> Floats:
    """1 − total variation of matched topics, 0 where there is none."""
    return 1.0 - np.where(pair.other < 0, 1.0, pair.distance)
