"""Data of any size in; rows by number, and chunks in turn, out: one protocol, whatever holds the data.

A `Source` promises

    n_total      how many rows there are; None if that is not known before the end
    rereadable   whether ``chunks`` may be called more than once
    take(rows)   some rows, in the order given; for sources that can jump
    chunks()     all rows, a chunk at a time; no more than two chunks are in memory (one is read ahead in a thread)

Rows are arrays [n, D], SciPy sparse arrays, or a `Corpus`. A source over a file reads nothing before it is asked; a malformed
file is an error that names the line and the column, and the chunk in which it is found is not handed out. Sources of files are
in `natgrad.data.io`.

What else counts as a stream of documents (`as_stream`): anything with a method ``chunks()``; an iterator, such as a generator;
something iterable without a length; a list of tables. Single documents, texts or lists of (word, count), are cut into chunks.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import Corpus, has_names
from natgrad.data.origin import Mapped, Origin, origin_of
from natgrad.validation import is_sparse

__all__ = [
    "ArraySource",
    "IteratorSource",
    "RowSource",
    "Source",
    "Stream",
    "as_stream",
    "block_order",
    "origin_of_array",
    "prefetch",
]

Ints = npt.NDArray[np.int64]
# Rows of a chunk, if nobody says.
SIZE = 10_000
# A shuffled chunk is made of this many blocks from everywhere: neighbours on disk are alike.
BLOCKS = 16
# Documents in a chunk, where they come one by one and nobody says.
DOCUMENTS = 2_000


class Source(Protocol):
    """Rows, by number or in turn."""

    @property
    def n_total(self) -> int | None:
        """How many rows there are, if that is known."""
        ...

    @property
    def rereadable(self) -> bool:
        """Whether they can be read more than once."""
        ...

    def take(self, rows: Ints) -> Any:
        """Some rows, in the order given."""
        ...

    def chunks(self) -> Iterator[Any]:
        """All rows, a chunk at a time."""
        ...


class RowSource(ABC):
    """A source whose rows can be taken by number: ``chunks`` are runs of them, or mixed blocks if there is a seed ``shuffle``.

    ``files`` are those that it reads; it can be sent to whoever sees them.
    """

    rereadable = True
    files: tuple[Path, ...] = ()

    def __init__(self, n_total: int, size: int | None, shuffle: int | None) -> None:
        self.n_total, self.size, self.shuffle = n_total, size or SIZE, shuffle

    @abstractmethod
    def take(self, rows: Ints) -> Any:
        """Some rows, in the order given."""

    @abstractmethod
    def runs(self) -> Iterator[Any]:
        """All rows in their order, ``size`` at a time."""

    @final
    def chunks(self) -> Iterator[Any]:
        """Runs of rows, or mixed blocks."""
        if self.shuffle is None:
            return prefetch(self.runs())
        return prefetch(self.take(rows) for rows in block_order(self.n_total, self.size, self.shuffle) if len(rows))

    @final
    def numbered(self) -> Iterator[tuple[range | Ints, Any]]:
        """The same chunks, each with the numbers of its rows."""
        if self.shuffle is not None:
            mixed = (rows for rows in block_order(self.n_total, self.size, self.shuffle) if len(rows))
            yield from prefetch((rows, self.take(rows)) for rows in mixed)
            return
        begin = 0
        for chunk in self.chunks():
            n_rows = chunk.shape[0] if hasattr(chunk, "shape") else len(chunk)
            yield range(begin, begin + n_rows), chunk
            begin += n_rows

    @final
    def bounds(self) -> Iterator[tuple[int, int]]:
        """Where each run begins and ends."""
        return ((begin, min(begin + self.size, self.n_total)) for begin in range(0, self.n_total, self.size))

    @final
    def checked(self, rows: Any) -> Ints:
        """Numbers of rows that there are."""
        wanted = np.asarray(rows, dtype=np.int64)
        if (bad := np.flatnonzero((wanted < 0) | (wanted >= self.n_total))).size:
            raise IndexError(f"rows[{bad[0]}] = {wanted[bad[0]]} is outside 0 … {self.n_total - 1}")
        return wanted


@final
class ArraySource(RowSource):
    """An array [n, …], a SciPy sparse matrix or a memory map; nothing is copied but what is handed out."""

    def __init__(self, array: Any, size: int | None = None, shuffle: int | None = None) -> None:
        self.array = array.tocsr() if is_sparse(array) else np.asanyarray(array)
        if self.array.ndim < 1:
            raise ValueError(f"data must have rows, got {array!r}")
        super().__init__(int(self.array.shape[0]), size, shuffle)

    @property
    def files(self) -> tuple[Path, ...]:  # type: ignore[override]
        """Those that the array is mapped from."""
        mapped = [Mapped.of(part) for part in _parts_of(self.array)]
        return tuple({Path(part.file.path): None for part in mapped if part is not None})

    def __getstate__(self) -> dict[str, Any]:
        """For another process: of what is mapped from files, where it lies."""
        named = [Mapped.of(part) for part in _parts_of(self.array)]
        parts = [part if where is None else where for part, where in zip(_parts_of(self.array), named, strict=True)]
        return {**self.__dict__, "array": (parts, self.array.shape)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        parts, shape = state["array"]
        opened = [part.opened() if isinstance(part, Mapped) else part for part in parts]
        array = opened[0] if len(opened) == 1 else scipy.sparse.csr_array(tuple(opened), shape=shape)
        self.__dict__ = {**state, "array": array}

    def take(self, rows: Ints) -> Any:
        """Some rows; of a memory map they are read from the disk in its order."""
        wanted = np.asarray(rows, dtype=np.int64)
        if not isinstance(self.array, np.memmap):
            return self.array[wanted]
        order = np.argsort(wanted, kind="stable")
        out = np.empty((len(wanted), *self.array.shape[1:]), self.array.dtype)
        out[order] = self.array[wanted[order]]
        return out

    def runs(self) -> Iterator[Any]:
        """Slices; of a memory map, copies."""
        parts = (self.array[begin:end] for begin, end in self.bounds())
        return (np.array(part) if isinstance(part, np.memmap) else part for part in parts)


def _parts_of(array: Any) -> tuple[npt.NDArray[Any], ...]:
    return (array.data, array.indices, array.indptr) if is_sparse(array) else (np.asarray(array),)


@final
class IteratorSource:
    """Chunks of unknown number that come once."""

    rereadable, n_total = False, None

    def __init__(self, parts: Iterator[Any]) -> None:
        self._parts = parts

    def take(self, rows: Ints) -> Any:
        """Not of an iterator."""
        raise TypeError("rows of an iterator cannot be taken by number: they come once, in their order")

    def chunks(self) -> Iterator[Any]:
        """What is left of the iterator."""
        return prefetch(self._parts)


def origin_of_array(X: Any) -> Origin | None:
    """Where all rows of an array or a sparse matrix [n, …] lie in files; None if they do not."""
    if not isinstance(X, np.ndarray) and not (is_sparse(X) and X.format == "csr"):
        return None
    return origin_of(ArraySource(X), range(X.shape[0]))


class Stream(NamedTuple):
    """``read()`` begins anew; ``rereadable`` says whether it may be called twice; ``n_total`` counts the documents, if known.

    ``source`` is where rows can be taken by number, if they can.
    """

    read: Callable[[], Iterator[Any]]
    rereadable: bool
    n_total: int | None = None
    source: RowSource | None = None

    def located(self) -> Iterator[tuple[Any, Origin | None]]:
        """The chunks, each with where it lies in files, if it does."""
        if self.source is None or not self.source.files:
            return ((chunk, None) for chunk in self.read())
        return ((chunk, origin_of(self.source, rows)) for rows, chunk in self.source.numbered())


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
        source = X if isinstance(X, RowSource) else None
        return Stream(
            lambda: iter(X.chunks()), bool(getattr(X, "rereadable", True)), getattr(X, "n_total", None), source
        )
    if isinstance(X, Iterator):
        return Stream(lambda: _grouped(X, size or DOCUMENTS), False)
    if isinstance(X, (list, tuple)) and len(X) and all(_is_table(part) for part in X):
        return Stream(lambda: iter(X), True)
    if isinstance(X, Iterable) and not hasattr(X, "__len__") and not _is_table(X):
        return Stream(lambda: _grouped(iter(X), size or DOCUMENTS), True)
    return None


def _is_table(X: Any) -> bool:
    return is_sparse(X) or has_names(X) or isinstance(X, Corpus) or (isinstance(X, np.ndarray) and X.ndim == 2)


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


def prefetch(chunks: Iterable[Any]) -> Iterator[Any]:
    """The same chunks, the next of which is read in a thread while this one is worked on; errors come where they would."""
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(what: str, value: Any) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                waiting.put((what, value), timeout=0.1)
                return

    def read() -> None:
        try:
            for chunk in chunks:
                put("chunk", chunk)
                if stopped.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=read, name="natgrad-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            what, value = waiting.get()
            if what == "end":
                return
            if what == "error":
                raise value
            yield value
    finally:
        stopped.set()
        thread.join()


def block_order(n_total: int, size: int, seed: int) -> Iterator[Ints]:
    """The rows of each chunk: blocks from everywhere, in a random order, mixed. Every row comes once."""
    rng = np.random.default_rng([seed, n_total, size])
    starts = np.arange(0, n_total, max(1, size // BLOCKS))
    rng.shuffle(starts)
    for some in np.array_split(starts, -(-n_total // size)):
        rows = [np.arange(start, min(start + max(1, size // BLOCKS), n_total)) for start in map(int, some)]
        yield rng.permutation(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)
