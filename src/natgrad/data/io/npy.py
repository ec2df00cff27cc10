"""Load the array of a .npy file, never by pickle; write rows to one in any order; keep chunks of rows in a temporary file.

What is wrong with a file is said in words that name it. A file is written, not mapped, so that what is written does not stay in
memory. What is drawn at random, or read again, must lie somewhere: compressed columns and iterators do not allow it (`spill`).
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, Literal, final

import numpy as np
import numpy.typing as npt

from natgrad.data.io.file_errors import raises_file_error

__all__ = ["RowWriter", "load_array", "spill"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@raises_file_error
def load_array(path: str | Path, mmap_mode: Literal["r"] | None = None) -> Array:
    """The array in a file, in memory or mapped from it."""
    with warnings.catch_warnings():
        # NumPy remarks that a header was written by Python 2, and reads it all the same.
        warnings.filterwarnings("ignore", "Reading `.npy`", UserWarning)
        array = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{path}: expected one array, got an archive of several")
    return array


@final
class RowWriter:
    """Where rows are written: a new array, an array of the user's, or a .npy file; closed at the end of a ``with``.

    Parameters
    ----------
    out : None, array or path
        An array must have the shape, and numbers that hold the rows. A path must end in .npy; what is there is replaced.
    shape : ints
    dtype, stored : dtypes
        Of a new array, and of a file.

    Examples
    --------
    >>> with RowWriter(None, (4, 2), np.float64) as rows:
    ...     rows.write(2, np.ones((2, 2)))
    ...     rows.write(0, np.zeros((2, 2)))
    >>> rows.result[:, 0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """

    def __init__(
        self, out: Any, shape: tuple[int, ...], dtype: npt.DTypeLike, stored: npt.DTypeLike | None = None
    ) -> None:
        self._file: BinaryIO | None = None
        self._path = Path(out) if isinstance(out, (str, os.PathLike)) else None
        self._lock = Lock()
        if self._path is None:
            self._array: Array = np.empty(shape, dtype) if out is None else _checked(out, shape, np.dtype(dtype))
            return
        if self._path.suffix != ".npy":
            raise ValueError(f"out = {str(out)!r}: only .npy files are written")
        # A header, and as much room as the rows take; none of it is touched.
        mapped = np.lib.format.open_memmap(self._path, "w+", np.dtype(dtype if stored is None else stored), shape)
        self._dtype, self._row, self._offset = mapped.dtype, mapped[:1].nbytes, int(mapped.offset)
        del mapped
        self._file = self._path.open("r+b")

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, begin: int, rows: Array) -> None:
        """Rows from number ``begin`` on."""
        if self._file is None:
            self._array[begin : begin + len(rows)] = rows
            return
        stored = np.ascontiguousarray(rows, dtype=self._dtype)
        with self._lock:
            self._file.seek(self._offset + begin * self._row)
            self._file.write(stored.data)

    @property
    def result(self) -> Array:
        """The array; of a file, its rows mapped into memory, read-only."""
        if self._path is None:
            return self._array
        rows: Array = np.load(self._path, mmap_mode="r", allow_pickle=False)
        return rows


def _checked(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of the user's, if the rows fit into it."""
    kinds = "f" if dtype.kind == "f" else "iu"
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype.kind not in kinds or not out.flags.writeable:
        words = "floats" if kinds == "f" else "whole numbers"
        given = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(
            f"out must be a writeable array of {words} with shape {shape}, or the name of a .npy file, got {given}"
        )
    return out


def spill(chunks: Iterable[Floats], width: int | None = None) -> Floats:
    """All rows of chunks [n, D], whatever their number.

    Parameters
    ----------
    chunks : arrays with the same number of columns
    width : D, for the case that there are no chunks
    """
    n_rows = 0
    with tempfile.TemporaryFile(prefix="natgrad-") as file:
        for part in chunks:
            width, n_rows = part.shape[1], n_rows + len(part)
            file.write(np.ascontiguousarray(part, dtype=np.float64).data)
        if not n_rows:
            return np.empty((0, width or 0))
        file.flush()
        return np.memmap(file, np.float64, "r", shape=(n_rows, width or 0))
