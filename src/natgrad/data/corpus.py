"""`Corpus`: documents in any common form in; compressed rows of (word, count), checked, with the vocabulary, out.

A document without words is allowed: its topic shares keep the prior, and it adds nothing to any score. Fractional counts are
allowed too: they are weights, and the bound is that of a likelihood raised to them; whole numbers alone are word counts.
Negative and missing numbers, words that come twice and vocabularies that do not fit are errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.frames import frame_columns, is_frame
from natgrad.data.origin import Origin
from natgrad.data.words import analyser_for, words_of
from natgrad.validation import is_missing, is_sparse, refuse_masked

__all__ = ["NO_COUNT", "Corpus", "as_corpus", "has_names", "refuse_unordered", "with_words"]

Ints = npt.NDArray[np.int64]
Words = Sequence[Any] | npt.NDArray[Any]
# Squares of counts, and what single precision makes of them, stay numbers.
LEAST_COUNT, LARGEST_COUNT = 1e-15, 1e15
NO_COUNT = (
    "and a count cannot be missing: write 0 for a word that is not there (X.filled(0)), or leave out the document"
)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Counts of words in documents.

    Attributes
    ----------
    start : int64 [D + 1], where each document's entries begin
    words : int32 [entries], counts : float64 [entries], the words of each document in order, none twice, none with count 0
    n_words : int, V
    vocabulary : the words themselves, or None if nobody said
    origin : where the documents lie in files, words by the same numbers; None if nobody said

    Examples
    --------
    >>> corpus = as_corpus([[(0, 2), (3, 1)], [], [(1, 1)]])
    >>> corpus
    Corpus(3 documents, 4 words, 4 tokens)
    >>> corpus.lengths.tolist()
    [3.0, 0.0, 1.0]
    """

    start: Ints
    words: npt.NDArray[np.int32]
    counts: npt.NDArray[np.float64]
    n_words: int
    vocabulary: npt.NDArray[Any] | None = None
    origin: Origin | None = None

    def __len__(self) -> int:
        return len(self.start) - 1

    @cached_property
    def lengths(self) -> npt.NDArray[np.float64]:
        """Tokens in each document."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.start))
        return np.bincount(rows, weights=self.counts, minlength=len(self)).astype(np.float64)

    @cached_property
    def n_tokens(self) -> float:
        """All counts together."""
        return float(self.counts.sum())

    def documents(self, chosen: Ints) -> Corpus:
        """Some of the documents, in the order given."""
        sizes = np.diff(self.start)[chosen]
        start = np.concatenate([[0], np.cumsum(sizes)])
        place = np.arange(start[-1]) + np.repeat(self.start[chosen] - start[:-1], sizes)
        origin = None if self.origin is None else self.origin.chosen(chosen)
        return Corpus(start, self.words[place], self.counts[place], self.n_words, self.vocabulary, origin)

    def run(self, begin: int, end: int) -> Corpus:
        """The documents ``begin`` … ``end``; nothing is copied but where they start."""
        first, last = self.start[begin], self.start[end]
        start = self.start[begin : end + 1] - first
        origin = None if self.origin is None else self.origin.run(begin, end)
        return Corpus(start, self.words[first:last], self.counts[first:last], self.n_words, self.vocabulary, origin)

    def only(self, words: Ints) -> Corpus:
        """The same documents with some words alone, sorted numbers, among which are all that occur."""
        names = None if self.vocabulary is None else self.vocabulary[words]
        return Corpus(self.start, np.searchsorted(words, self.words).astype(np.int32), self.counts, len(words), names)

    def renumbered(self, vocabulary: npt.NDArray[Any], number: dict[Any, int]) -> Corpus:
        """The same documents with words numbered as in another vocabulary that has them all."""
        if self.vocabulary is None:
            raise ValueError("words can be matched to a grown vocabulary only if they have names: give vocabulary=")
        where = np.array([number[word] for word in self.vocabulary.tolist()], dtype=np.int64)
        table = scipy.sparse.csr_array((self.counts, where[self.words], self.start), shape=(len(self), len(vocabulary)))
        return _from_sparse(table, vocabulary)

    def to_sparse(self) -> Any:
        """Documents by words, as a SciPy CSR array."""
        return scipy.sparse.csr_array((self.counts, self.words, self.start), shape=(len(self), self.n_words))

    def __repr__(self) -> str:
        return f"Corpus({len(self)} documents, {self.n_words} words, {self.n_tokens:g} tokens)"


def as_corpus(X: Any, vocabulary: Words | None = None, n_words: int | None = None, vectoriser: Any = None) -> Corpus:
    """A corpus of counts by word.

    Parameters
    ----------
    X : sparse or dense counts [D, V], a DataFrame whose columns are words, a list of texts, a list of lists of words or of
        (word, count), a `Corpus`, an AnnData of cells and genes, whose raw counts are taken from its layer "counts" or, without
        one, from X, or an xarray DataArray [documents, words], whose second coordinate has the words
    vocabulary : the V words, in the order of the columns; columns that have names are put into this order, and may be fewer
    n_words : int, optional
        The V that is expected; another one is an error. Lists of pairs may have fewer.
    vectoriser : what turns texts into counts; by default scikit-learn's CountVectorizer, or one with ``vocabulary``
    """
    refuse_unordered(X, "X")
    if isinstance(X, Corpus):
        corpus = X
    elif is_sparse(X):
        corpus = _from_sparse(X, None)
    elif (columns := frame_columns(X)) is not None:
        _refuse_texts(columns)
        names = list(columns)
        numbered = names == list(range(len(names)))  # nobody named them
        table = np.column_stack(list(columns.values())) if columns else X
        corpus = _from_dense(table, None if numbered else np.array(names, dtype=object))
    elif hasattr(X, "var_names") and hasattr(X, "X"):
        corpus = _from_anndata(X)
    elif _is_xarray(X):
        corpus = _from_xarray(X)
    elif isinstance(X, str):
        raise TypeError("X is one text: give a list of documents, [text, …]")
    elif _is_of(X, str):
        corpus = _from_texts(list(map(str, X)), vocabulary, vectoriser)  # those of NumPy are strings of its own
    elif _is_of_words(X):
        corpus = _from_texts(list(X), vocabulary, vectoriser, analyzer=_as_they_are)
    elif not isinstance(X, np.ndarray) and _is_of_pairs(X):
        corpus = _from_pairs(X, n_words or (None if vocabulary is None else len(vocabulary)))
    else:
        _refuse_gaps(X)
        corpus = _from_dense(X, None)
    corpus = _named(corpus, vocabulary)
    if corpus.n_words == 0:
        raise ValueError(f"X has 0 feature(s) (shape=({len(corpus)}, 0)) while a minimum of 1 is required: no words")
    if n_words is not None and corpus.n_words != n_words:
        raise ValueError(
            f"X has {corpus.n_words} features, but LDA is expecting {n_words} features as input: the words of the fit; for new "
            "words use partial_fit with vocabulary="
        )
    if len(corpus) == 0:
        raise ValueError("X has no documents")
    return corpus


def refuse_unordered(X: Any, name: str) -> None:
    """Refuse documents in a dict, whose keys would be read for them, and in a set, whose order is another in every process."""
    if isinstance(X, dict) and not is_sparse(X):  # some of SciPy are dicts
        raise TypeError(f"{name} is a {type(X).__name__}: give its documents as a list, list({name}.values())")
    if isinstance(X, (set, frozenset)):
        raise TypeError(f"{name} is a {type(X).__name__}, which has no order: give the documents as a list")


def _from_sparse(X: Any, vocabulary: npt.NDArray[Any] | None) -> Corpus:
    _check_real(X)
    table = scipy.sparse.csr_array(X, dtype=np.float64, copy=True)
    _check(
        table.data, lambda place: (int(np.searchsorted(table.indptr, place, "right")) - 1, int(table.indices[place]))
    )
    table.sum_duplicates()
    table.eliminate_zeros()
    words = table.indices.astype(np.int32)
    return Corpus(table.indptr.astype(np.int64), words, table.data, int(table.shape[1]), vocabulary)


def _from_dense(X: Any, vocabulary: npt.NDArray[Any] | None) -> Corpus:
    refuse_masked(X, "X", NO_COUNT)
    try:
        given = np.asarray(X)
        # Complex numbers are refused below: as floats they would lose their imaginary part with a mere warning.
        table = given if given.dtype.kind == "c" else given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "X must be counts [documents, words], texts, or lists of (word, count); could not read "
            f"{type(X).__name__} as numbers: {error}"
        ) from None
    if table.ndim != 2:
        raise ValueError(
            f"X must have two axes, documents and words, got shape {table.shape}. Reshape your data: one document is [counts]"
        )
    _check_real(table)
    _check(table.ravel(), lambda place: divmod(place, table.shape[1]))
    return _from_sparse(scipy.sparse.csr_array(table), vocabulary)


def _from_anndata(data: Any) -> Corpus:
    """Cells by genes; a file that is read where it lies is read here."""
    layers = getattr(data, "layers", {})
    table = layers["counts"] if "counts" in layers else data.X  # noqa: SIM401 - X may be slow to read
    table = table.to_memory() if hasattr(table, "to_memory") else table
    genes = np.array(list(data.var_names), dtype=object)
    return _from_sparse(table, genes) if is_sparse(table) else _from_dense(table, genes)


def _from_xarray(data: Any) -> Corpus:
    if not hasattr(data, "ndim"):  # a Dataset
        raise TypeError(
            f"X is a Dataset of {', '.join(map(str, data.data_vars))}: choose an array of counts, as in X['counts'], or for "
            "genotypes of sgkit call natgrad.data.genotypes(X)"
        )
    words = np.array(data.coords[data.dims[-1]].values.tolist(), dtype=object) if _has_labels(data) else None
    return _from_dense(data.values, words)


def _from_texts(texts: list[Any], vocabulary: Words | None, vectoriser: Any, analyzer: Any = words_of) -> Corpus:
    if vectoriser is None:
        from sklearn.feature_extraction.text import CountVectorizer

        names = None if vocabulary is None else list(vocabulary)
        if names is not None and analyzer is words_of:
            analyser_for(names)
        vectoriser = CountVectorizer(vocabulary=names, analyzer=analyzer)
    known = getattr(vectoriser, "vocabulary_", None) is not None or getattr(vectoriser, "vocabulary", None) is not None
    try:
        counts = vectoriser.transform(texts) if known else vectoriser.fit_transform(texts)
    except ValueError as error:
        if analyzer is words_of and vocabulary is None and str(error).startswith("empty vocabulary"):
            raise ValueError(
                "empty vocabulary: X has no words, which are runs of two or more letters or digits. Of other texts, give lists "
                "of words"
            ) from None
        raise
    return _from_sparse(counts, np.asarray(vectoriser.get_feature_names_out(), dtype=object))


def _from_pairs(X: Iterable[Any], n_words: int | None) -> Corpus:
    words: list[int] = []
    counts: list[float] = []
    start = [0]
    for document in X:
        for word, count in document:
            words.append(int(word))
            counts.append(float(count))
        start.append(len(words))
    needed = max(words, default=-1) + 1
    if min(words, default=0) < 0:
        raise ValueError(f"word numbers must be ≥ 0, got {min(words)}")
    if n_words is not None and needed > n_words:
        raise ValueError(f"a document has word number {needed - 1}, and the vocabulary has {n_words} words")
    shape = (len(start) - 1, needed if n_words is None else n_words)
    return _from_sparse(scipy.sparse.csr_array((counts, words, start), shape=shape), None)


def _named(corpus: Corpus, vocabulary: Words | None) -> Corpus:
    """The corpus with its words as in the vocabulary: columns without names get them, others are matched by name."""
    if vocabulary is None:
        _different(corpus.vocabulary)
        return corpus
    names = np.array(list(vocabulary), dtype=object)
    if corpus.vocabulary is None:
        if len(names) != corpus.n_words:
            raise ValueError(f"vocabulary has {len(names)} words and X has {corpus.n_words}")
        _different(names)
        return replace(corpus, vocabulary=names)
    if np.array_equal(names, corpus.vocabulary):
        return corpus
    number = _different(names)
    if unknown := [word for word in corpus.vocabulary.tolist() if word not in number]:
        raise ValueError(
            f"X has the word {unknown[0]!r}, which the vocabulary of {len(names)} words has not ({len(unknown)} such): leave out "
            "its column, or let it join the model by partial_fit"
        )
    return corpus.renumbered(names, number)


def _different(words: npt.NDArray[Any] | None) -> dict[Any, int]:
    """The number of each word; a word that comes twice is an error."""
    if words is None:
        return {}
    number = {word: place for place, word in reversed(list(enumerate(words.tolist())))}
    if len(number) < len(words):
        place, word = next((p, w) for p, w in enumerate(words.tolist()) if number[w] != p)
        raise ValueError(
            f"the vocabulary has {word!r} twice, at {number[word]} and {place}: give every word once (for genes, "
            "var_names_make_unique())"
        )
    return number


def with_words(corpus: Corpus) -> Corpus:
    """The corpus, unless it has no words at all: then there is nothing to learn from."""
    if not len(corpus.words):
        raise ValueError(
            f"X has {len(corpus)} documents and no words: every count is zero; topics can be fitted to none of them"
        )
    return corpus


def has_names(X: Any) -> bool:
    """Whether counts come with the words of their columns."""
    if isinstance(X, Corpus):
        return X.vocabulary is not None
    return _has_labels(X) or hasattr(X, "var_names") or is_frame(X)


def _has_labels(X: Any) -> bool:
    """Whether X is an array of xarray whose columns are named."""
    return _is_xarray(X) and hasattr(X, "ndim") and X.dims[-1] in X.coords


def _is_xarray(X: Any) -> bool:
    """An array or a set of arrays of xarray; a COO matrix of SciPy has ``coords``, too."""
    return hasattr(X, "coords") and hasattr(X, "dims")


def _check_real(X: Any) -> None:
    if X.dtype.kind == "c":
        raise ValueError("Complex data not supported: X must hold counts")


def _check(counts: npt.NDArray[np.float64], place_of: Any) -> None:
    """Finite and not negative, or an error that shows the first one that is not."""
    bad = np.flatnonzero(~((counts >= 0) & (counts < np.inf)))
    if len(bad):
        d, v = place_of(int(bad[0]))
        shown = "NaN" if np.isnan(counts[bad[0]]) else f"{counts[bad[0]]:g}"
        raise ValueError(
            f"X must hold counts (finite, ≥ 0), but X[{d}, {v}] = {shown} ({len(bad)} such). Negative values in data passed to "
            "LDA mean that they were centred; give raw counts."
        )
    odd = np.flatnonzero((counts > LARGEST_COUNT) | (counts > 0) & (counts < LEAST_COUNT))
    if len(odd):
        d, v = place_of(int(odd[0]))
        raise ValueError(
            f"X[{d}, {v}] = {counts[odd[0]]:g} ({len(odd)} such), and counts must lie between {LEAST_COUNT:g} and "
            f"{LARGEST_COUNT:g}: products of others overflow or vanish; count in another unit"
        )


def _is_of(X: Any, kind: type) -> bool:
    try:
        return len(X) > 0 and all(isinstance(document, kind) for document in X)
    except TypeError:
        return False


def _is_of_words(X: Any) -> bool:
    """Texts that were cut into words already; at least one document has a word."""
    if not _is_of(X, (list, tuple)):  # type: ignore[arg-type]
        return False
    return any(len(document) > 0 for document in X) and all(
        isinstance(word, str) for document in X for word in document
    )


def _as_they_are(words: list[str]) -> list[str]:
    return words


def _is_of_pairs(X: Any) -> bool:
    """Lists of (word, count), as gensim has them; at least one document has a word."""
    if not isinstance(X, (list, tuple)) or not _is_of(X, (list, tuple)):  # type: ignore[arg-type]
        return False
    return any(len(document) > 0 for document in X) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for document in X for pair in document
    )


def _no_text(found: Any, where: str) -> str:
    """What is said of something that is no text."""
    if isinstance(found, (bytes, bytearray)):
        return f"{where} is bytes, {bytes(found[:20])!r}, and no text: decode them, as in text.decode('utf-8')"
    if isinstance(found, Path):
        return f"{where} is the path {str(found)!r}, and no text: ng.data.read_documents(path).texts reads files"
    if is_missing(found):
        return (
            f"{where} is {found!r}, and no text: leave out the document, or give '' for one without words (of a column of "
            "pandas, column.fillna(''))"
        )
    return f"{where} is {found!r}, and no text: give '' for a document without words"


def _refuse_gaps(X: Any) -> None:
    """Refuse texts, or lists of words, among which something is none: a missing cell of a column, for example."""
    try:
        documents = list(X)
    except TypeError:
        return
    texts = [isinstance(document, str) for document in documents]
    if (any(texts) and not all(texts)) or (documents and isinstance(documents[0], (bytes, Path))):
        place = texts.index(False)
        raise TypeError(_no_text(documents[place], f"X[{place}]"))
    if not all(isinstance(document, (list, tuple)) for document in documents):
        return
    if any(isinstance(word, str) for document in documents for word in document):
        d, w = next(
            (d, w) for d, words in enumerate(documents) for w, word in enumerate(words) if not isinstance(word, str)
        )
        raise TypeError(
            f"X[{d}][{w}] is {documents[d][w]!r}, and other words are strings: leave it out, or give str(…)"
        )


def _refuse_texts(columns: dict[Any, npt.NDArray[Any]]) -> None:
    """Refuse a table of texts, whose columns would be words."""
    for name, column in columns.items():
        text = column[0] if len(column) else None
        if isinstance(text, str) and not text.replace(".", "", 1).isdigit():
            raise TypeError(
                f"X has the column {name!r} of texts, as in {text[:30]!r}, and columns of a table are counts of a word: give "
                f"X[{name!r}]"
            )
