"""Rows of numbers that come chunk by chunk in; one array, mapped from a temporary file that goes when it does, out.

What is drawn at random, or read again, must lie somewhere: compressed columns and iterators do not allow it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["spill"]

Floats = npt.NDArray[np.float64]


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
