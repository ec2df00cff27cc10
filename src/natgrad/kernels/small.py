"""How much work is little: below it the loops run in plain NumPy, and nothing is compiled.

Compiling the kernels of a model takes 5 to 25 seconds, once on a machine, and loading them half a second; the fit of a few
dozen rows takes milliseconds. Which of the two runs is a function of the data alone (numbers read in a pass, no clock), so that
fits repeat; both are tested against the same slow twins and agree to rounding. ``MOST`` is replaced by tests only.
"""

from __future__ import annotations

__all__ = ["is_little"]

# Units of plain NumPy's work in a pass: about a microsecond each. A few hundred passes then take less than a first compilation.
MOST = 5_000


def is_little(work: float) -> bool:
    """Whether so much work in a pass, in microseconds of plain NumPy, is not worth a compiled kernel."""
    return work <= MOST
