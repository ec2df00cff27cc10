"""The first words of topics and documents in; how well the words of each topic go together out.

    NPMI   mean over pairs of  log(p_ij / (p_i p_j)) / −log p_ij
    C_v    Röder, Both and Hinneburg (2015): each word has the vector of its NPMI with all words of the topic; mean over words of
           the cosine between its vector and the sum of all vectors

p_i is the share of the windows that have word i, p_ij of those that have both. Of counts a window is a document: their order is
gone. Of texts C_v slides a window of 110 tokens over each, as its authors do; a shorter text is one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import Corpus
from natgrad.data.words import analyser_for

__all__ = ["How", "c_v", "coherence", "npmi", "of_documents", "of_windows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
How = Literal["npmi", "c_v"]
# Of the authors.
WINDOW = 110
EPSILON = 1e-12


def coherence(words: Ints, X: Any, corpus: Corpus, vocabulary: Any, how: How) -> Floats:
    """How well the words [K, n] of each topic go together in documents, X as it was given and as a corpus [K]."""
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
