"""UCI bags of words in; a `Corpus`, or chunks of one, out.

D, V and the number of entries stand on three lines; then comes ``document word count`` on each, counted from 1. Documents
without words are there, too. The whole file is one chunk of all documents; smaller ones need the documents in order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from natgrad.data.corpus import Corpus, Words, as_corpus
from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.text import TextSource, number_in, open_text, wrong_field

__all__ = ["DocwordSource", "read_docword"]

Floats = npt.NDArray[np.float64]
HEADER = "D, the number of documents", "V, the number of words", "the number of entries"
# Lines that are parsed at once.
BLOCK = 100_000


class _Entries(NamedTuple):
    """Documents and words from 0, and counts."""

    document: Any
    word: Any
    count: Any


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
        held: list[_Entries] = []  # of documents that may go on
        done = 0
        for entries in self._entries():
            held.append(entries)
            while entries.document[-1] - done >= self.size and self.size < self.n_documents:
                part, held = _cut(held, done + self.size)
                yield self._corpus(part, done, done + self.size)
                done += self.size
        while done < self.n_documents:
            end = min(done + self.size, self.n_documents)
            part, held = _cut(held, end) if end < self.n_documents else (held, [])
            yield self._corpus(part, done, end)
            done = end

    def _entries(self) -> Iterator[_Entries]:
        """Entries as they come, checked."""
        seen, last, first = 0, 1, 1 + len(HEADER)
        with open_text(self.path, self.encoding) as file:
            deque(islice(file, len(HEADER)), maxlen=0)
            while texts := list(islice(file, BLOCK)):
                lines = [first + place for place, text in enumerate(texts) if text.strip()]
                first += len(texts)
                if lines:
                    table = self._numbers(texts, lines)
                    self._check(table, texts, lines, last)
                    document, word = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
                    seen, last = seen + len(table), int(document[-1])
                    yield _Entries(document - 1, word - 1, table[:, 2])
        if seen != self.n_entries:
            raise ValueError(
                f"{self.path}, line 3 announces {self.n_entries} entries, and there are {seen}: was it cut off?"
            )

    def _check(self, table: Floats, texts: list[str], lines: list[int], last: int) -> None:
        """Numbers that are there, counts that are counts, and documents in order if they are cut into chunks."""
        document, word, count = table.T
        rules = [
            (0, ~((document >= 1) & (document <= self.n_documents)), f"a document from 1 to {self.n_documents}"),
            (1, ~((word >= 1) & (word <= self.n_words)), f"a word from 1 to {self.n_words}"),
            (2, ~((count >= 0) & (count < np.inf)), "a count ≥ 0"),
            (0, document != np.floor(document), "a document, a whole number"),
            (1, word != np.floor(word), "a word, a whole number"),
        ]
        if self.size < self.n_documents:
            rules.append((0, np.diff(document, prepend=last) < 0, "documents in order: sort the file by document"))
        filled = [text for text in texts if text.strip()] if any(wrong.any() for _, wrong, _ in rules) else []
        for column, wrong, expected in rules:
            if wrong.any():
                place = int(np.argmax(wrong))
                raise wrong_field(self.path, lines[place], filled[place], column, expected)

    def _numbers(self, texts: list[str], lines: list[int]) -> Floats:
        """Three numbers of each line that has any."""
        try:
            table = np.loadtxt(texts, dtype=np.float64, ndmin=2, comments=None)
            if table.shape == (len(lines), 3):
                return table
        except ValueError:
            pass  # the slow way finds the place
        for line, text in zip(lines, filter(str.strip, texts), strict=True):
            fields = text.split()
            for place, field in enumerate(fields[:3]):
                if math.isnan(number_in(field)):
                    raise wrong_field(self.path, line, text, place, "document word count")
            if len(fields) != 3:
                expected = "document word count" if len(fields) < 3 else "no more than document, word and count"
                raise wrong_field(self.path, line, text, min(len(fields), 3), expected)
        raise ValueError(f"{self.path}, line {lines[0]}: expected lines of document, word and count")

    def _corpus(self, parts: list[_Entries], begin: int, end: int) -> Corpus:
        document, word, count = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else _NONE
        table = sparse.coo_array((count, (document - begin, word)), shape=(end - begin, self.n_words))
        return as_corpus(table, self.vocabulary)


_NONE = _Entries(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def _cut(held: list[_Entries], end: int) -> tuple[list[_Entries], list[_Entries]]:
    """Entries of the documents before ``end``, and those of later ones; documents are in order."""
    places = [int(np.searchsorted(entries.document, end)) for entries in held]
    before = [_Entries(*(part[:place] for part in entries)) for entries, place in zip(held, places, strict=True)]
    after = [_Entries(*(part[place:] for part in entries)) for entries, place in zip(held, places, strict=True)]
    return [part for part in before if len(part.count)], [part for part in after if len(part.count)]
