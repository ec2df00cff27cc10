"""Large text files in; chunks of their rows out, line by line, never the whole: SVMlight, lda-c, UCI docword.

All may be gzipped. An error names the file, the line and the column, and what was expected there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from natgrad.data.corpus import Corpus, Words, as_corpus
from natgrad.data.io.file_errors import chunks_with_file_errors
from natgrad.data.io.text import number_in, open_text, whole_number_in
from natgrad.data.stream import SIZE, prefetch

__all__ = ["DocwordSource", "LdacSource", "SvmlightSource"]

Ints = npt.NDArray[np.int64]
# Numbers of a word or a feature beyond this are a mistake: nobody has so many columns.
MOST_COLUMNS = 2**31 - 1


class _Lines:
    """A source whose rows are lines, read from the front to the end."""

    rereadable = True
    n_total: int | None = None

    def __init__(self, path: str | Path, size: int | None) -> None:
        self.path, self.size = Path(path), size or SIZE

    def take(self, rows: Ints) -> Any:
        """Not of text."""
        raise TypeError(f"rows of {self.path.name} cannot be taken by number: it is text; write it as .npy or .parquet")

    def chunks(self) -> Iterator[Any]:
        """Chunks of ``size`` lines."""
        return prefetch(chunks_with_file_errors(self.path, self._chunks()))

    def _chunks(self) -> Iterator[Any]:
        raise NotImplementedError

    def _wrong(self, line: int, text: str, token: int, expected: str) -> ValueError:
        """An error that points at a token of a line."""
        tokens = text.split()
        shown = tokens[token] if token < len(tokens) else "the end of the line"
        column = 1 + len(text.rstrip("\n"))
        place = -1
        for number, part in enumerate(tokens):
            place = text.index(part, place + 1)
            if number == token:
                column = place + 1
                break
            place += len(part) - 1
        return ValueError(f"{self.path}, line {line}, column {column}: expected {expected}, got {shown[:40]!r}")

    def _pairs(self, line: int, text: str, tokens: list[str], skip: int, least: int) -> tuple[list[int], list[float]]:
        """The tokens ``number:value`` of a line, after the first ``skip``."""
        numbers, values = [], []
        for place, token in enumerate(tokens):
            try:
                left, right = token.split(":")
                number, value = whole_number_in(left), number_in(right)
            except ValueError:
                raise self._wrong(line, text, skip + place, "number:value") from None
            if not least <= number <= MOST_COLUMNS:
                raise self._wrong(line, text, skip + place, f"a number from {least} to {MOST_COLUMNS} before the colon")
            if not np.isfinite(value):
                raise self._wrong(line, text, skip + place, "a finite value")
            numbers.append(number)
            values.append(value)
        return numbers, values


class SvmlightSource(_Lines):
    """``label feature:value feature:value … # comment``, features from 1; chunks are sparse [n, n_features], labels left out.

    Parameters
    ----------
    path : str or Path
    n_features : int
        How many columns; a feature beyond is an error. It must be given: a stream does not know its last line.
    zero_based : bool
        Whether features are counted from 0.
    size : rows of a chunk
    """

    def __init__(
        self, path: str | Path, *, n_features: int | None = None, zero_based: bool = False, size: int | None = None
    ) -> None:
        super().__init__(path, size)
        if n_features is None:
            raise TypeError(f"{self.path.name}: give n_features=, the number of columns; the file does not say")
        self.n_features, self.first = n_features, 0 if zero_based else 1

    def _chunks(self) -> Iterator[Any]:
        with open_text(self.path) as file:
            rows = _filled(self._row(number, text) for number, text in enumerate(file, 1))
            while group := list(islice(rows, self.size)):
                lengths = [len(numbers) for numbers, _ in group]
                table = sparse.csr_array(
                    (
                        np.concatenate([np.array(values) for _, values in group]),
                        np.concatenate([np.array(numbers, dtype=np.int64) for numbers, _ in group]),
                        np.concatenate([[0], np.cumsum(lengths)]),
                    ),
                    shape=(len(group), self.n_features),
                )
                table.sum_duplicates()
                yield table

    def _row(self, line: int, text: str) -> tuple[list[int], list[float]] | None:
        tokens = text.split("#")[0].split()
        if not tokens:
            return None
        try:
            float(tokens[0])
        except ValueError:
            raise self._wrong(line, text, 0, "a label, a number") from None
        features = [token for token in tokens[1:] if not token.startswith("qid:")]
        skip = len(tokens) - len(features)
        numbers, values = self._pairs(line, text, features, skip, self.first)
        if numbers and max(numbers) - self.first >= self.n_features:
            place = skip + int(np.argmax(numbers))
            raise self._wrong(line, text, place, f"a feature up to {self.n_features - 1 + self.first} (n_features)")
        return [number - self.first for number in numbers], values


class LdacSource(_Lines):
    """Documents ``n word:count word:count …`` of lda-c, a line for each; chunks are `Corpus`.

    Parameters
    ----------
    path : str or Path
    vocabulary : the V words; or
    n_words : int, V. One of the two must be given: a stream does not know its last line.
    size : documents of a chunk
    """

    def __init__(
        self, path: str | Path, *, vocabulary: Words | None = None, n_words: int | None = None, size: int | None = None
    ) -> None:
        super().__init__(path, size)
        if vocabulary is None and n_words is None:
            raise TypeError(
                f"{self.path.name}: give vocabulary= or n_words=; the file does not say how many words there are"
            )
        self.vocabulary, self.n_words = vocabulary, len(vocabulary) if vocabulary is not None else int(n_words or 0)

    def _chunks(self) -> Iterator[Corpus]:
        with open_text(self.path) as file:
            documents = _filled(self._document(number, text) for number, text in enumerate(file, 1))
            while group := list(islice(documents, self.size)):
                yield _corpus_of(group, self.n_words, self.vocabulary)

    def _document(self, line: int, text: str) -> list[tuple[int, float]] | None:
        tokens = text.split()
        if not tokens:
            return None
        if not tokens[0].isdecimal() or int(tokens[0]) != len(tokens) - 1:
            raise self._wrong(line, text, 0, f"the number of pairs that follow, {len(tokens) - 1}")
        words, counts = self._pairs(line, text, tokens[1:], 1, 0)
        for place, (word, count) in enumerate(zip(words, counts, strict=True)):
            if word >= self.n_words or count < 0:
                raise self._wrong(line, text, 1 + place, f"a word below {self.n_words} and a count ≥ 0")
        return list(zip(words, counts, strict=True))


class DocwordSource(_Lines):
    """UCI bags of words: D, V and the number of entries on three lines, then ``document word count`` from 1; chunks are `Corpus`.

    Entries must come document after document. Documents without words are there, too.

    Parameters
    ----------
    path : str or Path
    vocabulary : the V words, optional
    size : documents of a chunk
    """

    def __init__(self, path: str | Path, *, vocabulary: Words | None = None, size: int | None = None) -> None:
        super().__init__(path, size)
        self.vocabulary = vocabulary
        with open_text(self.path) as file:
            header = [file.readline() for _ in range(3)]
        for line, text in enumerate(header, 1):
            if not text.strip().isdecimal():
                raise self._wrong(line, text, 0, ("D", "V", "the number of entries")[line - 1] + ", a whole number")
        documents, self.n_words, self.n_entries = (int(text) for text in header)
        self.n_total: int = documents

    def _chunks(self) -> Iterator[Corpus]:
        held: list[Any] = []  # entries of documents that may go on
        done = 0
        for document, word, count in self._blocks():
            held.append((document, word, count))
            last = int(document[-1])
            while last - done >= self.size:
                held, part = self._cut(held, done + self.size)
                yield self._corpus(part, done, done + self.size)
                done += self.size
        while done < self.n_total:
            end = min(done + self.size, self.n_total)
            held, part = self._cut(held, end)
            yield self._corpus(part, done, end)
            done = end

    def _blocks(self) -> Iterator[tuple[Ints, Ints, npt.NDArray[np.float64]]]:
        """Entries as they come, document and word from 0, checked."""
        seen, last = 0, 0
        with open_text(self.path) as file:
            for _ in range(3):
                file.readline()
            while lines := list(islice(file, 100_000)):
                table = self._parsed(lines, 4 + seen)
                bounds = ((0, self.n_total, "document"), (1, self.n_words, "word"))
                for column, most, what in bounds:
                    if len(bad := np.flatnonzero((table[:, column] < 1) | (table[:, column] > most))):
                        raise self._wrong(4 + seen + bad[0], lines[bad[0]], column, f"a {what} from 1 to {most}")
                if len(bad := np.flatnonzero(~(table[:, 2] >= 0) | ~np.isfinite(table[:, 2]))):
                    raise self._wrong(4 + seen + bad[0], lines[bad[0]], 2, "a count ≥ 0")
                documents = table[:, 0].astype(np.int64)
                if len(bad := np.flatnonzero(np.diff(documents, prepend=last) < 0)):
                    raise self._wrong(
                        4 + seen + bad[0], lines[bad[0]], 0, "documents in order: sort the file by document"
                    )
                seen, last = seen + len(table), int(documents[-1])
                yield documents - 1, table[:, 1].astype(np.int64) - 1, table[:, 2]
        if seen != self.n_entries:
            raise ValueError(
                f"{self.path}, line 3 announces {self.n_entries} entries, and there are {seen}: was it cut off?"
            )

    def _parsed(self, lines: list[str], first: int) -> npt.NDArray[np.float64]:
        try:
            table = np.loadtxt(lines, dtype=np.float64, ndmin=2, comments=None)
            if table.shape == (len(lines), 3) and (table[:, :2] == np.round(table[:, :2])).all():
                return table
        except ValueError:
            pass  # the slow way finds the place
        for number, text in enumerate(lines):
            tokens = text.split()
            kinds: tuple[Callable[[str], Any], ...] = (int, int, float)
            for place, kind in enumerate(kinds):
                try:
                    kind(tokens[place])
                except (IndexError, ValueError):
                    raise self._wrong(first + number, text, place, "document word count") from None
            if len(tokens) > 3:
                raise self._wrong(first + number, text, 3, "no more than document, word and count")
        raise ValueError(f"{self.path}, line {first}: expected lines of document, word and count")

    def _cut(self, held: list[Any], end: int) -> tuple[list[Any], list[Any]]:
        """Entries of later documents, and those before."""
        before, after = [], []
        for entry in held:
            place = int(np.searchsorted(entry[0], end))
            before.append(tuple(part[:place] for part in entry))
            after.append(tuple(part[place:] for part in entry))
        return [entry for entry in after if len(entry[0])], before

    def _corpus(self, parts: list[Any], begin: int, end: int) -> Corpus:
        document, word, count = (
            np.concatenate([part[column] for part in parts]) if parts else np.empty(0, dtype=np.int64)
            for column in range(3)
        )
        table = sparse.coo_array((count, (document - begin, word)), shape=(end - begin, self.n_words))
        return as_corpus(table, self.vocabulary)


def _filled(rows: Iterator[Any]) -> Iterator[Any]:
    """Without the empty lines."""
    return (row for row in rows if row is not None)


def _corpus_of(documents: list[list[tuple[int, float]]], n_words: int, vocabulary: Words | None) -> Corpus:
    start = np.concatenate([[0], np.cumsum([len(document) for document in documents])])
    flat = [pair for document in documents for pair in document]
    words, counts = (
        np.array([pair[side] for pair in flat], dtype=kind) for side, kind in ((0, np.int64), (1, np.float64))
    )
    return as_corpus(sparse.csr_array((counts, words, start), shape=(len(documents), n_words)), vocabulary)
