"""Data of any size in; rows by number, and chunks in turn, out: one protocol, whatever holds the data.

A `Source` promises

    n_total      how many rows there are; None if that is not known before the end
    rereadable   whether ``chunks`` may be called more than once
    take(rows)   some rows, in the order given; for sources that can jump
    chunks()     all rows, a chunk at a time; no more than two chunks are in memory (one is read ahead in a thread)

Rows are arrays [n, D], SciPy sparse arrays, or a `Corpus`. A source over a file reads nothing before it is asked; a malformed
file is an error that names the line and the column, and the chunk in which it is found is not handed out.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from natgrad.data.io.file_errors import as_file_error, chunks_with_file_errors
from natgrad.data.io.npy import load_array

__all__ = ["ArraySource", "IteratorSource", "ParquetSource", "Source", "is_rereadable", "open_source", "prefetch"]

Ints = npt.NDArray[np.int64]
# Rows of a chunk, if nobody says.
SIZE = 10_000
# A shuffled chunk is made of this many blocks from everywhere: neighbours on disk are alike.
BLOCKS = 16


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


def open_source(data: Any, *, size: int | None = None, shuffle: int | None = None, **options: Any) -> Source:
    """The source of whatever holds data.

    Parameters
    ----------
    data : an array, sparse matrix or memory map; an iterator of chunks; or a path: ``.npy``, ``.parquet``, ``.arrow``,
        ``.feather`` or a folder of these, ``.mtx``, ``.svm`` or ``.svmlight``, ``.ldac``, ``docword…``; text also with ``.gz``;
        ``.bed`` of PLINK, ``.h5ad`` of AnnData
    size : rows of a chunk, optional
    shuffle : int, optional
        A seed: chunks are then made of blocks in a random order, with their rows mixed; not for text.
    **options : of the source: ``columns`` of Parquet, ``n_features`` of SVMlight, ``vocabulary`` of lda-c and docword, ``layer``
        of AnnData

    Examples
    --------
    >>> source = open_source(np.arange(10).reshape(5, 2), size=2)
    >>> source.n_total, [len(chunk) for chunk in source.chunks()]
    (5, [2, 2, 1])
    >>> source.take(np.array([4, 0])).tolist()
    [[8, 9], [0, 1]]
    """
    if isinstance(data, (str, Path)):
        return _opened(Path(data), size, shuffle, options)
    if hasattr(data, "chunks") and hasattr(data, "take"):
        made: Source = data
        return made
    if isinstance(data, Iterator):
        return IteratorSource(data)
    return ArraySource(data, size, shuffle)


def is_rereadable(source: Any, *, silent: bool) -> bool:
    """Whether ``chunks`` of a source may be called more than once; ``silent`` is the answer for one that does not say."""
    if hasattr(source, "again") and not hasattr(source, "rereadable"):
        kind = type(source).__name__
        raise TypeError(f"{kind}.again is called rereadable now: rename the attribute, {kind}.rereadable = …")
    return bool(getattr(source, "rereadable", silent))


def _opened(path: Path, size: int | None, shuffle: int | None, options: dict[str, Any]) -> Source:
    from natgrad.data.io import line_sources

    if not path.exists():
        raise FileNotFoundError(f"{str(path)!r}: there is no such file or folder")
    name = path.name.removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix in (".parquet", ".pq", ".arrow", ".feather") or path.is_dir():
        return ParquetSource(path, size=size, shuffle=shuffle, **options)
    if suffix == ".npy":
        return ArraySource(load_array(path, "r"), size, shuffle)
    if suffix in (".bed", ".h5ad"):
        from natgrad.data.io import plink

        if suffix == ".bed":
            return plink.BedSource(path, size=size, shuffle=shuffle, **options)
        return plink.H5adSource(path, size=size, shuffle=shuffle, **options)
    if suffix == ".mtx":
        from natgrad.data.io.matrix_market import read_matrix_market

        return ArraySource(read_matrix_market(path), size, shuffle)
    if shuffle is not None:
        raise ValueError(
            f"shuffle={shuffle!r}: {path.name} is read from the front to the end; write it as .npy or .parquet"
        )
    if suffix in (".svm", ".svmlight", ".libsvm"):
        return line_sources.SvmlightSource(path, size=size, **options)
    if suffix == ".ldac" or name.startswith("docword"):
        kind = line_sources.LdacSource if suffix == ".ldac" else line_sources.DocwordSource
        return kind(path, size=size, **options)
    raise ValueError(
        f"{path.name!r} is no kind of file that is known: .npy, .parquet, .arrow, .feather, .mtx, .svm, .svmlight, .ldac, "
        "docword…, .bed, .h5ad"
    )


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
        rows = [np.arange(start, min(start + max(1, size // BLOCKS), n_total)) for start in some]
        yield rng.permutation(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)


@final
class ArraySource:
    """An array [n, …], a SciPy sparse matrix or a memory map; nothing is copied but what is handed out."""

    rereadable = True

    def __init__(self, array: Any, size: int | None = None, shuffle: int | None = None) -> None:
        self.array = array.tocsr() if sparse.issparse(array) else np.asanyarray(array)
        if self.array.ndim < 1:
            raise ValueError(f"data must have rows, got {array!r}")
        self.n_total: int = int(self.array.shape[0])
        self.size, self.shuffle = size or SIZE, shuffle

    def take(self, rows: Ints) -> Any:
        """Some rows; of a memory map they are read from the disk in its order."""
        wanted = np.asarray(rows, dtype=np.int64)
        if not isinstance(self.array, np.memmap):
            return self.array[wanted]
        order = np.argsort(wanted, kind="stable")
        out = np.empty((len(wanted), *self.array.shape[1:]), self.array.dtype)
        out[order] = self.array[wanted[order]]
        return out

    def chunks(self) -> Iterator[Any]:
        """Slices, or mixed blocks."""
        return prefetch(self._chunks())

    def _chunks(self) -> Iterator[Any]:
        if self.shuffle is not None:
            yield from (self.take(rows) for rows in block_order(self.n_total, self.size, self.shuffle) if len(rows))
            return
        for begin in range(0, self.n_total, self.size):
            part = self.array[begin : begin + self.size]
            yield np.array(part) if isinstance(part, np.memmap) else part


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


@final
class ParquetSource:
    """Numeric columns of Parquet or Arrow files, or of a folder of them.

    Parameters
    ----------
    path : str or Path
    columns : names, optional; by default all, which must then be numbers
    size, shuffle : as in `open_source`
    """

    rereadable = True

    def __init__(
        self, path: str | Path, *, columns: list[str] | None = None, size: int | None = None, shuffle: int | None = None
    ) -> None:
        try:
            import pyarrow
            import pyarrow.dataset
        except ImportError:
            raise ImportError(f"{str(path)!r} needs PyArrow: pip install 'natgrad[arrow]'") from None
        suffix = (
            next(iter(sorted(Path(path).iterdir())), Path("x.parquet")).suffix
            if Path(path).is_dir()
            else Path(path).suffix
        )
        kind = "feather" if suffix in (".arrow", ".feather") else "parquet"
        try:
            self._data = pyarrow.dataset.dataset(path, format=kind)
            self.n_total: int = self._data.count_rows()
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise ValueError(f"{str(path)!r} cannot be read as {kind}: {error}") from None
        self.columns = list(self._data.schema.names if columns is None else columns)
        for name in self.columns:
            if name not in self._data.schema.names:
                raise ValueError(f"there is no column {name!r}; there are {', '.join(self._data.schema.names[:20])}")
            found = self._data.schema.field(name).type
            if not (
                pyarrow.types.is_integer(found) or pyarrow.types.is_floating(found) or pyarrow.types.is_boolean(found)
            ):
                raise TypeError(f"column {name!r} is {found}, not numbers: choose others with columns=")
        self.path, self.size, self.shuffle = path, size or SIZE, shuffle

    def take(self, rows: Ints) -> npt.NDArray[np.float64]:
        """Some rows [n, columns]; a missing value is NaN."""
        with as_file_error(self.path):
            return self._numbers(self._data.take(np.asarray(rows), columns=self.columns))

    def chunks(self) -> Iterator[npt.NDArray[np.float64]]:
        """Rows as they lie in the files, or mixed blocks."""
        if self.shuffle is not None:
            order = block_order(self.n_total, self.size, self.shuffle)
            return prefetch(self.take(rows) for rows in order if len(rows))
        batches = self._data.to_batches(columns=self.columns, batch_size=self.size)
        found = (self._numbers(batch) for batch in batches if batch.num_rows)
        return prefetch(chunks_with_file_errors(self.path, found))

    def _numbers(self, batch: Any) -> npt.NDArray[np.float64]:
        columns = [
            np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=np.float64) for name in self.columns
        ]
        return np.stack(columns, axis=1)
