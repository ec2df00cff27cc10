"""A stream of documents, with what is known of them, in; its parts, one at a time, out.

A part is a pair (documents, what is known of them), or documents alone where nothing else is asked for. It is read once: what it
told the topics stays, and is not revised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from natgrad.data.corpus import Corpus, has_names
from natgrad.data.stream import as_stream
from natgrad.validation import is_sparse

__all__ = ["Part", "parts_of_stream"]


class Part(NamedTuple):
    """Some documents of a stream, what is known of them, and which part it is."""

    number: int
    documents: Any
    known: Any

    @contextmanager
    def named(self) -> Iterator[None]:
        """Mistakes in here say in which part they are."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise type(error)(f"part {self.number} of the stream: {error}") from error


def parts_of_stream(X: Any, known: Any, in_pairs: bool) -> Iterator[Part] | None:
    """The parts of a stream; None if X is a corpus in one piece."""
    if in_pairs:
        chunks = _chunks(X)
    else:
        stream = as_stream(X)
        chunks = None if stream is None else stream.read()
    if chunks is None:
        return None
    if known is not None:
        raise ValueError(
            "X is a stream: each of its parts is a pair (documents, what is known of them), so leave out the second argument"
        )
    return _numbered(chunks, in_pairs)


def _chunks(X: Any) -> Iterator[Any] | None:
    if callable(getattr(X, "chunks", None)):
        return iter(X.chunks())
    documents = hasattr(X, "__len__") or isinstance(X, Corpus) or is_sparse(X) or has_names(X)
    return iter(X) if isinstance(X, Iterable) and not documents else None


def _numbered(chunks: Iterator[Any], in_pairs: bool) -> Iterator[Part]:
    number = -1
    for number, chunk in enumerate(chunks):
        if in_pairs and not (isinstance(chunk, tuple) and len(chunk) == 2):
            raise TypeError(
                f"part {number} of the stream must be a pair (documents, what is known of them), got {type(chunk).__name__}"
            )
        documents, known = chunk if in_pairs else (chunk, None)
        yield Part(number, documents, known)
    if number < 0:
        raise ValueError("X is a stream without parts: there are no documents to fit to")
