"""Files of lda-c in, a line ``n word:count word:count …`` for each document; a `Corpus`, or chunks of one, out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import final

import numpy as np
import scipy

from natgrad.data.corpus import Corpus, Words, as_corpus
from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.text import MOST_COLUMNS, TextSource, open_text, pairs_in, wrong_field

__all__ = ["LdacSource", "read_ldac"]

Document = tuple[list[int], list[float]]


@raises_file_error
def read_ldac(path: str | Path, vocabulary: Words | None = None, *, encoding: str | None = None) -> Corpus:
    """A whole file, which may be gzipped; without a vocabulary there are as many words as the largest number says."""
    limit = MOST_COLUMNS if vocabulary is None else len(vocabulary)
    documents = list(_documents(Path(path), limit, encoding))
    n_words = max((max(words) + 1 for words, _ in documents if words), default=0) if vocabulary is None else limit
    return _corpus(documents, n_words, vocabulary)


@final
class LdacSource(TextSource):
    """Documents ``n word:count word:count …`` of lda-c, a line for each; chunks are `Corpus`.

    Parameters
    ----------
    path : str or Path
    vocabulary : the V words; or
    n_words : int, V. One of the two must be given: a stream does not know its last line.
    size : documents of a chunk
    encoding : of the text, optional
    """

    def __init__(
        self,
        path: str | Path,
        *,
        vocabulary: Words | None = None,
        n_words: int | None = None,
        size: int | None = None,
        encoding: str | None = None,
    ) -> None:
        super().__init__(path, size, encoding)
        if vocabulary is None and n_words is None:
            raise TypeError(
                f"{self.path.name}: give vocabulary= or n_words=; the file does not say how many words there are"
            )
        self.vocabulary, self.n_words = vocabulary, len(vocabulary) if vocabulary is not None else int(n_words or 0)

    def parts(self) -> Iterator[Corpus]:
        """Documents, ``size`` at a time."""
        documents = _documents(self.path, self.n_words, self.encoding)
        while group := list(islice(documents, self.size)):
            yield _corpus(group, self.n_words, self.vocabulary)


def _documents(path: Path, n_words: int, encoding: str | None) -> Iterator[Document]:
    """The words and counts of each line."""
    empty = True
    with open_text(path, encoding) as file:
        for line, text in enumerate(file, 1):
            if not (fields := text.split()):
                continue
            if not fields[0].isdecimal() or int(fields[0]) != len(fields) - 1:
                raise wrong_field(path, line, text, 0, f"the number of pairs that follow, {len(fields) - 1}")
            words, counts = pairs_in(path, line, text, 1, 0)
            for place, (word, count) in enumerate(zip(words, counts, strict=True), 1):
                if word >= n_words or count < 0:
                    raise wrong_field(path, line, text, place, f"a word below {n_words} and a count ≥ 0")
            empty = False
            yield words, counts
    if empty:
        raise ValueError(f"{path}: there are no documents in it; expected lines of n word:count word:count …")


def _corpus(documents: list[Document], n_words: int, vocabulary: Words | None) -> Corpus:
    start = np.cumsum([0, *(len(words) for words, _ in documents)])
    words = np.fromiter(chain.from_iterable(words for words, _ in documents), np.int64, start[-1])
    counts = np.fromiter(chain.from_iterable(counts for _, counts in documents), np.float64, start[-1])
    return as_corpus(scipy.sparse.csr_array((counts, words, start), shape=(len(documents), n_words)), vocabulary)
