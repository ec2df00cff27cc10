"""A row of a polynomial that is written out in numbers, and the statistics that it reads, in; its value out."""

from __future__ import annotations

from natgrad.kernels._njit import serial_kernel

__all__ = ["add_up"]


@serial_kernel
def _row(starts, coefs, factors, row, stats):
    """The sum of the products of one row; a factor that is not there is at place 0, where a 1 is."""
    begin, end, total = starts[row], starts[row + 1], 0.0
    if factors.shape[1] == 1:
        for i in range(begin, end):
            total += coefs[i] * stats[factors[i, 0]]
    elif factors.shape[1] == 2:
        for i in range(begin, end):
            total += coefs[i] * (stats[factors[i, 0]] * stats[factors[i, 1]])
    else:
        for i in range(begin, end):
            product = coefs[i]
            for f in range(factors.shape[1]):
                product *= stats[factors[i, f]]
            total += product
    return total


@serial_kernel
def add_up(starts, coefs, factors, stats, out):
    """All rows, at the statistics of one chain."""
    for row in range(out.shape[0]):
        out[row] = _row(starts, coefs, factors, row, stats)
