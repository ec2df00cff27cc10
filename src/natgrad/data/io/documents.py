"""Documents on disk in any common form in; texts or counts, with a name for each document, out.

A folder of text files, a text file with a document on each line, a column of a table, a file of lda-c or of the UCI bags of
words, or a sparse matrix. Texts become counts by scikit-learn's CountVectorizer, cut into words as everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from natgrad.data.corpus import Corpus, as_corpus
from natgrad.data.io.bags import read_docword, read_ldac
from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.tables import column_names, kind_of_table, read_table
from natgrad.data.io.text import open_text
from natgrad.data.words import words_of

__all__ = ["KINDS", "Documents", "count_words", "read_documents", "read_text"]

KINDS = ("folder", "lines", "csv", "tsv", "jsonl", "parquet", "lda-c", "docword", "npz")
LDAC_LINE = re.compile(r"\d+( \d+:\d+(\.\d+)?)*\s*$")


class Documents(NamedTuple):
    """What a file holds: texts, or counts of words that somebody else has counted; and a name for each document."""

    names: list[str]
    texts: list[str] | None
    corpus: Corpus | None

    def __len__(self) -> int:
        return len(self.names)


@raises_file_error
def read_documents(
    path: str | Path,
    *,
    column: str | None = None,
    kind: str | None = None,
    vocabulary: str | Path | None = None,
    pattern: str = "*.txt",
    encoding: str | None = None,
) -> Documents:
    """Documents from a folder or a file.

    Parameters
    ----------
    path : str or Path
    column : str, optional
        The column of a table that has the texts; not needed if there is only one.
    kind : one of `KINDS`, optional
        Found by the name of the file if not given.
    vocabulary : a file with a word on each line, optional
        For counts (lda-c, docword, npz), the words of the columns.
    pattern : str
        Which files of a folder are documents.
    encoding : str, optional
        Of texts, as Python calls it ("latin-1", "utf-16-le"); by default what a file's byte-order mark says, or UTF-8. A byte
        that is not in it is an error with its place.
    """
    where = Path(path)
    if not where.exists():
        raise FileNotFoundError(f"{where}: there is no such file or folder (looked for {where.absolute()})")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    form = kind or _kind(where, encoding)
    if form == "folder":
        return _from_folder(where, pattern, encoding)
    if form == "lines":
        return _from_lines(where, encoding)
    if form in ("csv", "tsv", "jsonl", "parquet"):
        return _from_table(where, column, encoding)
    words = None if vocabulary is None else _words(Path(vocabulary), encoding)
    readers: dict[str, Callable[..., Corpus]] = {"lda-c": read_ldac, "docword": read_docword}
    corpus = _from_npz(where, words) if form == "npz" else readers[form](where, words, encoding=encoding)
    return Documents([f"document {d}" for d in range(len(corpus))], None, corpus)


def count_words(
    documents: Documents,
    *,
    stop_words: str | None = "english",
    min_documents: int = 2,
    max_share: float = 0.9,
    max_words: int | None = 50_000,
) -> Corpus:
    """The documents as counts; those that are counted already stay as they are.

    Parameters
    ----------
    documents : Documents
    stop_words : "english" or None
    min_documents : int
        Words in fewer documents are left out.
    max_share : float
        Words in more than this part of the documents are left out.
    max_words : int, optional
        The most frequent ones are kept.
    """
    if documents.corpus is not None:
        return documents.corpus
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(
        stop_words=stop_words, min_df=min_documents, max_df=max_share, max_features=max_words,
        tokenizer=words_of, token_pattern=None, lowercase=False,
    )  # fmt: skip
    try:
        return as_corpus(documents.texts, vectoriser=counter)
    except ValueError as error:
        raise ValueError(
            f"no words are left of {len(documents)} documents ({error}): lower min_documents (now {min_documents}), raise "
            f"max_share (now {max_share:g}), or keep stop words"
        ) from None


def _kind(path: Path, encoding: str | None) -> str:
    if path.is_dir():
        return "folder"
    name = path.name.lower().removesuffix(".gz")
    table = kind_of_table(path)
    if table is not None:
        return table
    if "docword" in name:
        return "docword"
    if name.endswith((".ldac", ".lda-c", ".dat")):
        return "lda-c"
    if name.endswith(".npz"):
        return "npz"
    if name.endswith((".txt", ".text", ".md")):
        return "lda-c" if _looks_like_ldac(path, encoding) else "lines"
    raise ValueError(f"{path}: cannot tell what it holds by its name; say which of {', '.join(KINDS)} it is")


def _looks_like_ldac(path: Path, encoding: str | None) -> bool:
    with open_text(path, encoding) as file:
        lines = [line for line, _ in zip(file, range(3), strict=False)]
    return bool(lines) and all(LDAC_LINE.match(line) for line in lines)


def _from_folder(path: Path, pattern: str, encoding: str | None) -> Documents:
    files = sorted(file for file in path.rglob(pattern) if file.is_file())
    if not files:
        others = sorted(file.name for file in path.rglob("*") if file.is_file())[:5]
        held = f"it has {', '.join(others)}, …" if others else "it is empty"
        raise ValueError(
            f"{path}: there are no files {pattern!r} in this folder; {held}. Another pattern chooses others"
        )
    texts = [read_text(file, encoding) for file in files]
    return Documents([file.relative_to(path).as_posix() for file in files], texts, None)


@raises_file_error
def read_text(path: Path, encoding: str | None = None) -> str:
    """A file as one text."""
    with open_text(path, encoding) as file:
        return file.read()


def _from_lines(path: Path, encoding: str | None) -> Documents:
    with open_text(path, encoding) as file:
        lines = [(number, line.strip()) for number, line in enumerate(file, 1) if line.strip()]
    if not lines:
        raise ValueError(f"{path}: is empty; expected a document on each line")
    return Documents([f"line {number}" for number, _ in lines], [line for _, line in lines], None)


def _from_table(path: Path, column: str | None, encoding: str | None) -> Documents:
    if column is None:
        present = column_names(path, encoding=encoding)
        if len(present) > 1:
            raise ValueError(
                f"{path}: which column has the texts? It has {', '.join(map(repr, present))}; name one with column="
            )
        column = present[0]
    values = read_table(path, [column], encoding=encoding)[column]
    if not values:
        raise ValueError(f"{path}: has no rows")
    return Documents(
        [f"row {number}" for number in range(1, len(values) + 1)], [_text(value) for value in values], None
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _from_npz(path: Path, words: list[str] | None) -> Corpus:
    try:
        with path.open("rb") as raw:
            counts = scipy.sparse.load_npz(raw)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{path}: not a sparse matrix of scipy.sparse.save_npz ({error})") from None
    return as_corpus(counts, None if words is None else np.array(words, dtype=object))


def _words(path: Path, encoding: str | None) -> list[str]:
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file of words (looked for {path.absolute()})")
    with open_text(path, encoding) as file:
        return [line.strip() for line in file if line.strip()]
