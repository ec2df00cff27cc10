"""UCI bags of words in; a `Corpus`, or chunks of one, out.

D, V and the number of entries stand on three lines; then comes ``document word count`` on each, counted from 1. Documents
without words are there, too. The whole file is one chunk of all documents; smaller ones need the documents in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import final

import numpy as np
import scipy

from natgrad.data.corpus import Corpus, Words, as_corpus
from natgrad.data.io.coordinates import Entries, Layout, entry_blocks
from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.text import TextSource, open_text, wrong_field

__all__ = ["DocwordSource", "read_docword"]

HEADER = "D, the number of documents", "V, the number of words", "the number of entries"


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
        names, sizes = ("document", "word", "count"), (self.n_documents, self.n_words)
        ordered = self.size < self.n_documents
        with open_text(self.path, self.encoding) as file:
            deque(islice(file, len(HEADER)), maxlen=0)
            layout = Layout(names, sizes, self.n_entries, len(HEADER), 0.0, ordered)
            yield from entry_blocks(self.path, file, layout)

    def _corpus(self, parts: list[Entries], begin: int, end: int) -> Corpus:
        row, column, value = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else _NONE
        table = scipy.sparse.coo_array((value, (row - begin, column)), shape=(end - begin, self.n_words))
        return as_corpus(table, self.vocabulary)


_NONE = Entries(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def _cut(held: list[Entries], end: int) -> tuple[list[Entries], list[Entries]]:
    """Entries of the documents before ``end``, and those of later ones; documents are in order."""
    places = [int(np.searchsorted(entries.row, end)) for entries in held]
    before = [Entries(*(part[:place] for part in entries)) for entries, place in zip(held, places, strict=True)]
    after = [Entries(*(part[place:] for part in entries)) for entries, place in zip(held, places, strict=True)]
    return [part for part in before if len(part.value)], [part for part in after if len(part.value)]
