"""A smooth function and a start in; a local minimum out: limited-memory BFGS, for a few hundred numbers.

Our own, because the optimisers of SciPy take a fifth of a second to import, and a fit of a small network a few hundredths.

Nocedal and Wright (2006), algorithms 7.4 and 3.1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["minimise"]

Floats = npt.NDArray[np.float64]
Cost = Callable[[Floats], tuple[float, Floats]]
REMEMBERED, MOST_STEPS, MOST_HALVINGS = 10, 3_000, 40
# It ends where no slope is above the first, or a step lowers the cost by less than the second part of it.
FLAT, LITTLE = 1e-5, 1e-9
# Part of the decrease that the slope promises which a step must give.
ENOUGH = 1e-4


def minimise(cost: Cost, start: Floats, most_steps: int = MOST_STEPS) -> Floats:
    """The point where quasi-Newton steps end; never higher than the start. ``cost`` gives value and slope, inf where it has none.

    Examples
    --------
    >>> minimise(lambda x: (float(((x - 1.0) ** 2).sum()), 2.0 * (x - 1.0)), np.zeros(2)).round(6).tolist()
    [1.0, 1.0]
    """
    point, (value, slope) = start, cost(start)
    memory: list[tuple[Floats, Floats, float]] = []
    for _ in range(most_steps):
        if not np.abs(slope).max() > FLAT:
            break
        direction = -_scaled(slope, memory)
        promised = float(slope @ direction)
        if not promised < 0:  # what is remembered has become useless
            memory, direction = [], -slope
            promised = float(slope @ direction)
        length = 1.0 if memory else min(1.0, 1.0 / float(np.abs(slope).sum()))
        for _ in range(MOST_HALVINGS):
            new = point + length * direction
            after, there = cost(new)
            if after <= value + ENOUGH * length * promised:
                break
            length *= 0.5
        else:
            break
        step, turn = new - point, there - slope
        curvature = float(step @ turn)
        if curvature > 1e-12 * float(turn @ turn):
            memory = [*memory[1 - REMEMBERED :], (step, turn, curvature)]
        gained = value - after
        point, value, slope = new, after, there
        if gained <= LITTLE * max(abs(value), abs(value + gained), 1.0):
            break
    return point


def _scaled(slope: Floats, memory: list[tuple[Floats, Floats, float]]) -> Floats:
    """The inverse curvature, as the last steps have shown it, times the slope."""
    out, parts = slope.copy(), []
    for step, turn, curvature in reversed(memory):
        part = float(step @ out) / curvature
        parts.append(part)
        out -= part * turn
    if memory:
        _, turn, curvature = memory[-1]
        out *= curvature / float(turn @ turn)
    for (step, turn, curvature), part in zip(memory, reversed(parts), strict=True):
        out += step * (part - float(turn @ out) / curvature)
    return out
