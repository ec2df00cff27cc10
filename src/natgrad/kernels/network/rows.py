"""A row of a polynomial that is written out in numbers, and the statistics that it reads, in; its value out."""

from __future__ import annotations

from natgrad.kernels._njit import serial_kernel

__all__ = ["add_up"]


@serial_kernel
def _row(starts, coefs, factors, row, stats):
    """The sum of the products of one row; a factor that is not there is at place 0, where a 1 is.

    One loop and no branches: with them Numba counts references to each array, which takes longer than the products.
    """
    total = 0.0
    for i in range(starts[row], starts[row + 1]):
        product = coefs[i] * stats[factors[i, 0]] * stats[factors[i, 1]]
        for f in range(2, factors.shape[1]):
            product *= stats[factors[i, f]]
        total += product
    return total


@serial_kernel
def add_up(starts, coefs, factors, stats, out):
    """All rows, at the statistics of one chain."""
    for row in range(out.shape[0]):
        out[row] = _row(starts, coefs, factors, row, stats)
