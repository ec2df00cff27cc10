"""What stands among texts and is none, in; an error that says where it is, and what to do, out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["no_text", "refuse_gaps", "refuse_text_columns"]


def no_text(found: Any, where: str) -> str:
    """What is said of something that is no text."""
    if isinstance(found, (bytes, bytearray)):
        return f"{where} is bytes, {bytes(found[:20])!r}, and no text: decode them, as in text.decode('utf-8')"
    if isinstance(found, Path):
        return f"{where} is the path {str(found)!r}, and no text: ng.data.read_documents(path).texts reads files"
    if found is None or (isinstance(found, float) and np.isnan(found)) or repr(found) in ("<NA>", "NaT"):
        return (
            f"{where} is {found!r}, and no text: leave out the document, or give '' for one without words (of a column of "
            "pandas, column.fillna(''))"
        )
    return f"{where} is {found!r}, and no text: give '' for a document without words"


def refuse_gaps(X: Any) -> None:
    """Refuse texts, or lists of words, among which something is none: a missing cell of a column, for example."""
    try:
        documents = list(X)
    except TypeError:
        return
    texts = [isinstance(document, str) for document in documents]
    if (any(texts) and not all(texts)) or (documents and isinstance(documents[0], (bytes, Path))):
        place = texts.index(False)
        raise TypeError(no_text(documents[place], f"X[{place}]"))
    if not all(isinstance(document, (list, tuple)) for document in documents):
        return
    if any(isinstance(word, str) for document in documents for word in document):
        d, w = next(
            (d, w) for d, words in enumerate(documents) for w, word in enumerate(words) if not isinstance(word, str)
        )
        raise TypeError(
            f"X[{d}][{w}] is {documents[d][w]!r}, and other words are strings: leave it out, or give str(…)"
        )


def refuse_text_columns(X: Any) -> None:
    """Refuse a table of texts, whose columns would be words."""
    for name in X.columns:
        column = X[name]
        first = next(iter(column), None)
        if isinstance(first, str) and not first.replace(".", "", 1).isdigit():
            raise TypeError(
                f"X has the column {name!r} of texts, as in {first[:30]!r}, and columns of a table are counts of a word: give "
                f"X[{name!r}]"
            )
