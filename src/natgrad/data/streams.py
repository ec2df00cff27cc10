"""Chunks of documents, or documents one by one, in; chunks that can be read once or again out.

What counts as a stream: anything with a method ``chunks()``; an iterator, such as a generator; something iterable without a
length; a list of tables. A stream of single documents, texts or lists of (word, count), is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse

from natgrad.data.corpus import Corpus, has_names
from natgrad.data.stream import is_rereadable

__all__ = ["Stream", "as_stream"]

# Documents in a chunk, where they come one by one and nobody says.
CHUNK = 2_000


class Stream(NamedTuple):
    """``read()`` begins anew; ``rereadable`` says whether it may be called twice; ``n_total`` counts the documents, if known."""

    read: Callable[[], Iterator[Any]]
    rereadable: bool
    n_total: int | None = None


def as_stream(X: Any, size: int | None = None) -> Stream | None:
    """The stream that X is, or None if it is a corpus in one piece.

    Parameters
    ----------
    X : anything
    size : documents in a chunk, where they come one by one

    Examples
    --------
    >>> as_stream([[1, 0], [0, 2]]) is None
    True
    >>> [len(chunk) for chunk in as_stream(iter(["one text", "two", "three"]), size=2).read()]
    [2, 1]
    """
    if callable(getattr(X, "chunks", None)):
        return Stream(lambda: iter(X.chunks()), is_rereadable(X, silent=True), getattr(X, "n_total", None))
    if isinstance(X, Iterator):
        return Stream(lambda: _grouped(X, size or CHUNK), False)
    if isinstance(X, (list, tuple)) and len(X) and all(_is_table(part) for part in X):
        return Stream(lambda: iter(X), True)
    if isinstance(X, Iterable) and not hasattr(X, "__len__") and not _is_table(X):
        return Stream(lambda: _grouped(iter(X), size or CHUNK), True)
    return None


def _is_table(X: Any) -> bool:
    return sparse.issparse(X) or has_names(X) or isinstance(X, Corpus) or (isinstance(X, np.ndarray) and X.ndim == 2)


def _grouped(parts: Iterator[Any], size: int) -> Iterator[Any]:
    """Chunks as they are; documents in lists of ``size``."""
    first = next(parts, None)
    if first is None:
        return
    rest = chain([first], parts)
    if isinstance(first, str) or _is_bag(first):
        while group := list(islice(rest, size)):
            yield group
    else:
        yield from rest


def _is_bag(X: Any) -> bool:
    """One document as gensim has it: pairs of a word and its count."""
    return isinstance(X, (list, tuple)) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in X)
