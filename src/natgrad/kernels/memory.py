"""Layouts in memory: arrays that begin at a cache line, and positions in the order of their keys.

A load of 64 bytes that crosses two lines costs two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.kernels._njit import serial_kernel
from natgrad.threads import is_little

__all__ = ["aligned_empty", "aligned_zeros", "count_rows", "group_rows"]

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


def group_rows(keys: Any, start: Any, place: Any) -> None:
    """A stable counting sort: ``place`` lists the positions of key 0, of key 1, … in order; ``start`` where each begins."""
    if is_little(keys.size):
        place[:] = np.argsort(keys, kind="stable")
        start[0] = 0
        np.cumsum(np.bincount(keys, minlength=len(start) - 1), out=start[1:])
    else:
        count_rows(keys, start, place)


@serial_kernel
def count_rows(keys, start, place):
    """`group_rows` for many keys."""
    start[:] = 0
    for n in range(keys.shape[0]):
        start[keys[n] + 1] += 1
    for row in range(start.shape[0] - 1):
        start[row + 1] += start[row]
    free = start.copy()
    for n in range(keys.shape[0]):
        row = keys[n]
        place[free[row]] = n
        free[row] += 1
