"""The project's own ways to compile: one place for the flags.

Numba keeps compiled functions on disk until their own file changes, but what they call is compiled into them and may lie in
another file: after an edit there, results would depend on what happened to be kept. So here all files of kernels together say
whether a compiled function is still the one of the sources.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["REASSOCIATE", "compiled", "inlined_kernel", "lane_kernel", "parallel_kernel", "serial_kernel"]

# Sums over the children of a row may be reordered into SIMD lanes, nothing else: NaN and infinities keep their meaning.
# The lanes are fixed at compilation, so one machine always gives the same bits. Measured on a million ratings, two cores:
# a sweep is 1.1 times faster with 5 factors and 1.4 with 30, the bound 2 times; the twins bound the error at 1e-10.
REASSOCIATE = {"reassoc", "contract"}


def stamp_of(folder: Path) -> str:
    """A number of all sources in a folder that changes with any of them."""
    files = sorted(folder.glob("*.py"))
    return sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


STAMP = stamp_of(Path(__file__).parent)


def compiled(**flags: Any) -> Callable[[Any], Any]:
    """Numba's njit without the global lock, kept on disk as long as no kernel changes."""

    def decorate(function: Any) -> Any:
        kernel = njit(nogil=True, cache=True, **flags)(function)
        # Not there when compilation is switched off.
        kept = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
        if kept is not None:
            kept._source_stamp = STAMP
        return kernel

    return decorate


# error_model "numpy": x / 0 is inf or NaN, as the guard of the engine expects, not an exception inside a thread.
serial_kernel = compiled(error_model="numpy")
parallel_kernel = compiled(error_model="numpy", parallel=True, fastmath=REASSOCIATE)
# A serial one whose sums may run in SIMD lanes, called from inside parallel ones (flags are not inherited).
lane_kernel = compiled(error_model="numpy", fastmath=REASSOCIATE)
# A part of a kernel, written where it can be read and compiled where it is called: a call with arrays costs more than it does.
inlined_kernel = njit(nogil=True, error_model="numpy", inline="always")
