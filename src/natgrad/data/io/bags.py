"""Read bags of words: UCI docword files and files of lda-c, whole or chunk by chunk, as `Corpus`.

docword    D, V and the number of entries stand on three lines; then comes ``document word count`` on each, counted from 1
lda-c      a line ``n word:count word:count …`` for each document, words counted from 0

Files may be gzipped. Documents of docword may come in any order if all of them are one chunk; smaller chunks need them in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import Corpus, Words, as_corpus
from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.text import MOST_COLUMNS, TextSource, number_in, open_text, pairs_in, wrong_field

__all__ = ["DocwordSource", "LdacSource", "read_docword", "read_ldac"]

Floats = npt.NDArray[np.float64]
Document = tuple[list[int], list[float]]
HEADER = "D, the number of documents", "V, the number of words", "the number of entries"
FIELDS = ("document", "word", "count")
# Lines of docword that are parsed at once.
BLOCK = 100_000


class Entries(NamedTuple):
    """Documents and words from 0, and counts [n]."""

    row: Any
    column: Any
    value: Any


@raises_file_error
def read_docword(path: str | Path, vocabulary: Words | None = None, *, encoding: str | None = None) -> Corpus:
    """A whole file, which may be gzipped; documents may come in any order."""
    source = DocwordSource(path, vocabulary=vocabulary, encoding=encoding)
    if not source.n_documents:
        raise ValueError(f"{path}, line 1: there are no documents in it; expected {HEADER[0]}")
    source.size = source.n_documents
    return next(source.parts())


@final
class DocwordSource(TextSource):
    """Documents of a bag of words; chunks are `Corpus`.

    Parameters
    ----------
    path : str or Path
    vocabulary : the V words, optional
    size : documents of a chunk; if they are fewer than all, entries must come document after document
    encoding : of the text, optional
    """

    def __init__(
        self,
        path: str | Path,
        *,
        vocabulary: Words | None = None,
        size: int | None = None,
        encoding: str | None = None,
    ) -> None:
        self.vocabulary, sizes = vocabulary, []
        with open_text(path, encoding) as file:
            for line, expected in enumerate(HEADER, 1):
                text = file.readline()
                if not text.strip().isdecimal():
                    raise wrong_field(Path(path), line, text, 0, f"{expected}, a whole number")
                sizes.append(int(text))
        self.n_documents, self.n_words, self.n_entries = sizes
        super().__init__(path, size, encoding, self.n_documents)

    def parts(self) -> Iterator[Corpus]:
        """Documents, ``size`` at a time."""
        held: list[Entries] = []  # of documents that may go on
        done = 0
        for entries in self._entries():
            held.append(entries)
            while entries.row[-1] - done >= self.size and self.size < self.n_documents:
                part, held = _cut(held, done + self.size)
                yield self._corpus(part, done, done + self.size)
                done += self.size
        while done < self.n_documents:
            end = min(done + self.size, self.n_documents)
            part, held = _cut(held, end) if end < self.n_documents else (held, [])
            yield self._corpus(part, done, end)
            done = end

    def _entries(self) -> Iterator[Entries]:
        """All entries as they come, some lines at a time, checked."""
        seen, last, first = 0, 1.0, 1 + len(HEADER)
        with open_text(self.path, self.encoding) as file:
            lines_after = islice(file, len(HEADER), None)
            while texts := list(islice(lines_after, BLOCK)):
                lines = [first + place for place, text in enumerate(texts) if text.strip()]
                first += len(texts)
                texts = [text for text in texts if text.strip()]
                if not lines:
                    continue
                table = _numbers(self.path, texts, lines)
                for place, bad, expected in self._rules(table, last):
                    if bad.any():
                        n = int(np.argmax(bad))
                        raise wrong_field(self.path, lines[n], texts[n], place, expected)
                seen, last = seen + len(table), table[-1, 0]
                yield Entries(table[:, 0].astype(np.int64) - 1, table[:, 1].astype(np.int64) - 1, table[:, 2])
        if seen != self.n_entries:
            raise ValueError(
                f"{self.path}, line {len(HEADER)} announces {self.n_entries:,} entries, and there are {seen:,}: was it cut off?"
            )

    def _rules(self, table: Floats, last: float) -> Iterator[tuple[int, npt.NDArray[np.bool_], str]]:
        """Which lines break a rule at which place, and what was expected there."""
        for place, most in enumerate((self.n_documents, self.n_words)):
            number = table[:, place]
            wrong = ~((number >= 1) & (number <= most) & (number == np.floor(number)))
            yield place, wrong, f"a {FIELDS[place]} from 1 to {most}"
        yield 2, ~((table[:, 2] >= 0) & (table[:, 2] < np.inf)), "a count ≥ 0"
        if self.size < self.n_documents:
            yield 0, np.diff(table[:, 0], prepend=last) < 0, "documents in order: sort the file by document"

    def _corpus(self, parts: list[Entries], begin: int, end: int) -> Corpus:
        row, column, value = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else _NONE
        table = scipy.sparse.coo_array((value, (row - begin, column)), shape=(end - begin, self.n_words))
        return as_corpus(table, self.vocabulary)


_NONE = Entries(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def _numbers(path: Path, texts: list[str], lines: list[int]) -> Floats:
    """The numbers of each line."""
    try:
        table = np.loadtxt(texts, dtype=np.float64, ndmin=2, comments=None)
        if table.shape == (len(lines), len(FIELDS)):
            return table
    except ValueError:
        pass  # the slow way finds the place
    for line, text in zip(lines, texts, strict=True):
        fields = text.split()
        for place in range(len(FIELDS)):
            if place >= len(fields) or math.isnan(number_in(fields[place])):
                raise wrong_field(path, line, text, place, " ".join(FIELDS))
        if len(fields) > len(FIELDS):
            raise wrong_field(path, line, text, len(FIELDS), f"no more than {' '.join(FIELDS)}")
    raise ValueError(f"{path}, line {lines[0]}: expected lines of {' '.join(FIELDS)}")


def _cut(held: list[Entries], end: int) -> tuple[list[Entries], list[Entries]]:
    """Entries of the documents before ``end``, and those of later ones; documents are in order."""
    places = [int(np.searchsorted(entries.row, end)) for entries in held]
    before = [Entries(*(part[:place] for part in entries)) for entries, place in zip(held, places, strict=True)]
    after = [Entries(*(part[place:] for part in entries)) for entries, place in zip(held, places, strict=True)]
    return [part for part in before if len(part.value)], [part for part in after if len(part.value)]


@raises_file_error
def read_ldac(path: str | Path, vocabulary: Words | None = None, *, encoding: str | None = None) -> Corpus:
    """A whole file, which may be gzipped; without a vocabulary there are as many words as the largest number says."""
    limit = MOST_COLUMNS if vocabulary is None else len(vocabulary)
    documents = list(_documents(Path(path), limit, encoding))
    n_words = max((max(words) + 1 for words, _ in documents if words), default=0) if vocabulary is None else limit
    return _ldac_corpus(documents, n_words, vocabulary)


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
            yield _ldac_corpus(group, self.n_words, self.vocabulary)


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


def _ldac_corpus(documents: list[Document], n_words: int, vocabulary: Words | None) -> Corpus:
    start = np.cumsum([0, *(len(words) for words, _ in documents)])
    words = np.fromiter(chain.from_iterable(words for words, _ in documents), np.int64, start[-1])
    counts = np.fromiter(chain.from_iterable(counts for _, counts in documents), np.float64, start[-1])
    return as_corpus(scipy.sparse.csr_array((counts, words, start), shape=(len(documents), n_words)), vocabulary)
