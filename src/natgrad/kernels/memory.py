"""Sizes in; arrays that begin at a cache line out: a load of 64 bytes that crosses two lines costs two."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.kernels._njit import serial_kernel

__all__ = ["aligned_empty", "aligned_zeros"]

LINE = 64


def aligned_empty(n_rows: int, width: int, dtype: Any) -> Any:
    """An array [rows, width] that begins at a cache line."""
    per_line = LINE // np.dtype(dtype).itemsize
    memory = np.empty(n_rows * width + per_line, dtype)
    first = -(memory.ctypes.data // memory.itemsize) % per_line
    return memory[first : first + n_rows * width].reshape(n_rows, width)


@serial_kernel
def aligned_zeros(n_rows, width, like):
    """Zeros [rows, width] of the type of ``like`` that begin at a cache line, inside a kernel."""
    per_line = LINE // like.itemsize
    memory = np.zeros(n_rows * width + per_line, like.dtype)
    first = (-(memory.ctypes.data // like.itemsize)) % per_line
    return memory[first : first + n_rows * width].reshape(n_rows, width)
