"""Data that were read or mapped from files in; by what any machine that sees these files reads some of them again, out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FileIdentity", "Mapped", "Origin", "check_file", "file_identity", "identities", "origin_of", "reopened"]

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class FileIdentity(NamedTuple):
    """A file by its name, its size in bytes and when it was changed (ns): a machine that finds the same sees the same file."""

    path: str
    size: int
    changed: int


def file_identity(path: str) -> FileIdentity | None:
    """The file of this name here; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileIdentity(path, status.st_size, status.st_mtime_ns)


def check_file(file: FileIdentity) -> None:
    """An error if it is not here as it was when the fit began."""
    present = file_identity(file.path)
    if present != file:
        what = "is not there" if present is None else f"has {present.size} bytes, {file.size} expected, or was changed"
        raise FileNotFoundError(
            f"{file.path} {what}: all workers must see the file that the data are in, as it was when the fit began. Put it where "
            "all machines see it, or give the data themselves: np.load(file)"
        )


class Mapped(NamedTuple):
    """An array in a file, from a byte of it on, row after row."""

    file: FileIdentity
    dtype: str
    offset: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: Array) -> Mapped | None:
        """Where an array lies; None if it is not in a file that was opened for reading alone, or not row after row."""
        base: Any = array
        while not isinstance(base, np.memmap):
            if not isinstance(base, np.ndarray):
                return None
            base = base.base
        file = file_identity(os.path.abspath(base.filename)) if isinstance(base.filename, (str, os.PathLike)) else None
        if file is None or base.mode != "r" or not array.flags.c_contiguous or not array.size:
            return None
        offset = base.offset + array.ctypes.data - base.ctypes.data
        return cls(file, array.dtype.str, offset, array.shape)

    def rows(self, begin: int, end: int) -> Mapped:
        """Some rows of it."""
        row = np.dtype(self.dtype).itemsize * prod(self.shape[1:])
        return self._replace(offset=self.offset + begin * row, shape=(end - begin, *self.shape[1:]))

    def opened(self) -> Array:
        """The array, mapped from the file where this is called; an error if that is not the file it was."""
        check_file(self.file)
        return np.memmap(self.file.path, np.dtype(self.dtype), "r", self.offset, self.shape)


class Origin(NamedTuple):
    """Rows of a reader of files: its ``take(rows)`` reads them, wherever the reader travels to.

    Examples
    --------
    >>> from natgrad.data import open_source
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "counts.npy", np.arange(10).reshape(5, 2))
    ...     whole = origin_of(open_source(Path(folder) / "counts.npy"), range(5))
    ...     whole.run(1, 4).chosen(np.array([2, 0])).read().tolist()
    [[6, 7], [2, 3]]
    """

    reader: Any
    files: tuple[FileIdentity, ...]
    rows: range | Ints

    def run(self, begin: int, end: int) -> Origin:
        """Some rows, one after the other."""
        return self._replace(rows=self.rows[begin:end])

    def chosen(self, numbers: Ints) -> Origin:
        """Some rows, in the order given."""
        return self._replace(rows=np.asarray(self.rows)[numbers])

    def read(self) -> Any:
        """The rows, from the files as they were; others are an error."""
        for file in self.files:
            check_file(file)
        return self.reader.take(np.asarray(self.rows, dtype=np.int64))


@lru_cache(maxsize=4)
def reopened(make: Callable[..., Any], files: tuple[FileIdentity, ...], arguments: tuple[Any, ...]) -> Any:
    """A reader that was sent here: opened once, as long as its files are what they were."""
    return make(*arguments)


def origin_of(reader: Any, rows: range | Ints) -> Origin | None:
    """Where rows of a reader lie; None if it reads no files."""
    files = identities(getattr(reader, "files", ()))
    return Origin(reader, files, rows) if files else None


def identities(paths: Iterable[Path]) -> tuple[FileIdentity, ...]:
    """Those of files that are there, by names that hold in any folder."""
    return tuple(identity for path in paths if (identity := file_identity(str(Path(path).absolute()))) is not None)
