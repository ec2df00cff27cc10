"""The project's own ways to compile: one place for the flags."""

from __future__ import annotations

from numba import njit

__all__ = ["REASSOCIATE", "inlined_kernel", "lane_kernel", "parallel_kernel", "serial_kernel"]

# Sums over the children of a row may be reordered into SIMD lanes, nothing else: NaN and infinities keep their meaning.
# The lanes are fixed at compilation, so one machine always gives the same bits. Measured on a million ratings, two cores:
# a sweep is 1.1 times faster with 5 factors and 1.4 with 30, the bound 2 times; the twins bound the error at 1e-10.
REASSOCIATE = {"reassoc", "contract"}

# error_model "numpy": x / 0 is inf or NaN, as the guard of the engine expects, not an exception inside a thread.
serial_kernel = njit(nogil=True, cache=True, error_model="numpy")
parallel_kernel = njit(nogil=True, cache=True, error_model="numpy", parallel=True, fastmath=REASSOCIATE)
# A serial one whose sums may run in SIMD lanes, called from inside parallel ones (flags are not inherited).
lane_kernel = njit(nogil=True, cache=True, error_model="numpy", fastmath=REASSOCIATE)
# A part of a kernel, written where it can be read and compiled where it is called: a call with arrays costs more than it does.
inlined_kernel = njit(nogil=True, error_model="numpy", inline="always")
