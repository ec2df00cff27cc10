"""One document and fitted topics in; its topic shares out, in well under a millisecond.

What can be done once is: the numbers of the words, the analyser of texts, the geometric means of the topics. A document is
checked by itself; nothing here is as long as the vocabulary, unless the document is given as counts of all words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import NO_COUNT, Corpus
from natgrad.data.words import analyser_for
from natgrad.validation import is_sparse, refuse_masked

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["OneDocument"]

Floats = npt.NDArray[np.float64]
Pairs = tuple[npt.NDArray[np.int32], Floats]


class OneDocument:
    """Documents one at a time under the topics of a state; ``names`` are the words, or None."""

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
