"""A density of the logarithm of a scale and where it is in, a draw that leaves the density as it is out: slice sampling (Neal, 2003)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["sliced"]

Array = npt.NDArray[Any]
# The width of a slice in a logarithm; how often its ends step out, and how often it shrinks before the old value is kept.
WIDTH, MOST_STEPS, MOST_SHRINKS = 2.0, 8, 40


def sliced(density: Callable[[Array], Array], start: Array, rng: np.random.Generator) -> Array:
    """One step of slice sampling for every chain: stepping out, then shrinking, all chains side by side."""
    n = len(start)
    height = density(start) + np.log(rng.random(n))
    low = start - WIDTH * rng.random(n)
    high = low + WIDTH
    left = rng.integers(0, MOST_STEPS, n)  # steps are shared out at random, so that the way back has the same chance
    right = MOST_STEPS - 1 - left
    for sign, steps in ((-1.0, left), (1.0, right)):
        end = low if sign < 0 else high
        going = steps > 0
        taken = np.zeros(n, dtype=np.int64)
        while going.any():
            going &= density(end) > height
            end += np.where(going, sign * WIDTH, 0.0)
            taken += going
            going &= taken < steps
    points, open_ = start.copy(), np.ones(n, dtype=bool)
    for _ in range(MOST_SHRINKS):
        point = low + (high - low) * rng.random(n)
        inside = density(point) > height
        points = np.where(open_ & inside, point, points)
        open_ &= ~inside
        if not open_.any():
            break
        low = np.where(open_ & (point < start), point, low)
        high = np.where(open_ & (point >= start), point, high)
    return points
