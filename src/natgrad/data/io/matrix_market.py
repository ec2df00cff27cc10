"""A Matrix Market file in, its matrix out; whole, as its entries may come in any order. May be gzipped.

    %%MatrixMarket matrix coordinate integer general
    % comments
    rows columns entries
    row column value                (from 1; no value if the field is "pattern")

"array" files have rows and columns, and then the values, column after column. SciPy's own reader of this format ends the process
(a segmentation fault) on some damaged files, so it is not used.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.io.coordinates import Layout, entry_blocks
from natgrad.data.io.file_errors import raises_file_error
from natgrad.data.io.text import open_text

__all__ = ["read_matrix_market"]

FORMATS, FIELDS = ("coordinate", "array"), ("real", "double", "integer", "pattern")
# How the entry below the diagonal comes back above it.
MIRRORED = {"general": 0.0, "symmetric": 1.0, "skew-symmetric": -1.0}
# Rows or columns beyond this are a mistake.
MOST = 2**31 - 1


class _Head(NamedTuple):
    format: str
    field: str
    mirrored: float
    sizes: list[int]
    n_lines: int


@raises_file_error
def read_matrix_market(path: str | Path) -> Any:
    """The matrix: sparse if the file has coordinates, otherwise an array."""
    where = Path(path)
    with open_text(where) as file:
        head = _read_head(file)
        if head.format == "coordinate":
            return _sparse(where, file, head)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a matrix without entries
            return _dense(np.loadtxt(file, dtype=np.float64, comments="%").ravel(), head)


def _read_head(file: TextIO) -> _Head:
    banner = file.readline().lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError("line 1: expected %%MatrixMarket matrix, and a format, a field and a symmetry")
    for given, known in zip(banner[2:], (FORMATS, FIELDS, tuple(MIRRORED)), strict=True):
        if given not in known:
            raise ValueError(f"line 1: expected one of {', '.join(known)}, got {given[:40]!r}")
    number, text = 2, file.readline()
    while text.startswith("%") or (text and not text.strip()):
        number, text = number + 1, file.readline()
    sizes, wanted = text.split(), 3 if banner[2] == "coordinate" else 2
    if len(sizes) != wanted or not all(size.isdecimal() and int(size) <= MOST for size in sizes):
        raise ValueError(f"line {number}: expected {wanted} whole numbers, the sizes, got {text.strip()[:40]!r}")
    head = _Head(banner[2], banner[3], MIRRORED[banner[4]], [int(size) for size in sizes], number)
    if head.mirrored and head.sizes[0] != head.sizes[1]:
        raise ValueError(f"line {number}: a symmetric matrix has as many rows as columns, got {text.strip()[:40]!r}")
    if head.format == "array" and (head.field == "pattern" or head.mirrored):
        raise ValueError("line 1: an array must be general, with values")
    return head


def _sparse(path: Path, file: TextIO, head: _Head) -> Any:
    rows, columns, n_entries = head.sizes
    names = ("row", "column") if head.field == "pattern" else ("row", "column", "value")
    blocks = list(entry_blocks(path, file, Layout(names, (rows, columns), n_entries, head.n_lines)))
    if not blocks:
        return scipy.sparse.csr_array((rows, columns))
    i, j, values = (np.concatenate(part) for part in zip(*blocks, strict=True))
    if head.mirrored:
        off = i != j
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
        values = np.concatenate([values, head.mirrored * values[off]])
    return scipy.sparse.csr_array(scipy.sparse.coo_array((values, (i, j)), shape=(rows, columns)))


def _dense(values: npt.NDArray[np.float64], head: _Head) -> npt.NDArray[np.float64]:
    rows, columns = head.sizes
    if len(values) != rows * columns:
        raise ValueError(f"line {head.n_lines} announces {rows:,} × {columns:,} values, and there are {len(values):,}")
    return np.ascontiguousarray(values.reshape(columns, rows).T)
