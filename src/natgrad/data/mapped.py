"""An array that is mapped from a file in; where it lies there, which any machine that sees the file can open, out."""

from __future__ import annotations

import os
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FileIdentity", "Mapped", "check_file", "file_identity"]

Array = npt.NDArray[Any]


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
