"""The two synthetic tasks of Foti, Xu, Laird and Fox (2014), eight states each: a seed in; states and observations out.

Diagonally dominant: states last. Reversed cycles: 0 → 1 → 2 → 0 … and 3 → 5 → 4 → 3 … are joined by two bridges, and what a state
of one cycle emits resembles what a state of the other does, so that only the direction tells them apart.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ChainTask", "draw_states", "paper_chain"]

Floats = npt.NDArray[np.float64]
Task = Literal["diagonal", "cycles"]
Emissions = Literal["easy", "ambiguous"]


class ChainTask(NamedTuple):
    """A true model and what it generated: A [K, K], means [K, 2] (unit covariance), states [T] and observations [T, 2]."""

    transition: Floats
    means: Floats
    states: npt.NDArray[np.int64]
    observations: Floats


def paper_chain(task: Task, emissions: Emissions, n_times: int, seed: int = 0) -> ChainTask:
    """Generate one of the tasks.

    Parameters
    ----------
    task : "diagonal" or "cycles"
    emissions : "easy" (means several standard deviations apart) or "ambiguous" (one or two apart)
    n_times : int
    seed : int

    Examples
    --------
    >>> paper_chain("cycles", "easy", 100).observations.shape
    (100, 2)
    """
    transition = _diagonal() if task == "diagonal" else _cycles()
    angle = 2.0 * np.pi * np.arange(8) / 8.0
    means = np.column_stack([np.cos(angle), np.sin(angle)]) * (6.0 if emissions == "easy" else 2.5)
    if task == "cycles":
        # The same three places for both cycles; easy ones are told apart by a shift.
        corner = 2.0 * np.pi * np.array([0, 1, 2, 0, 1, 2]) / 3.0
        means[:6] = np.column_stack([np.cos(corner), np.sin(corner)]) * 3.0
        means[3:6] += 3.0 if emissions == "easy" else 1.0
        means[6:] = [[-7.0, -7.0], [7.0, 7.0]] if emissions == "easy" else [[-3.0, 3.0], [3.0, -3.0]]
    rng = np.random.default_rng([seed, n_times])
    states = draw_states(transition, n_times, rng)
    return ChainTask(transition, means, states, means[states] + rng.standard_normal((n_times, 2)))


def draw_states(transition: Floats, n_times: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A path that begins in state 0."""
    rows = np.cumsum(transition, axis=1).tolist()
    last = len(rows) - 1
    states = np.zeros(n_times, np.int64)
    here = 0
    for t, u in enumerate(rng.random(n_times - 1).tolist()):
        row, here = rows[here], 0
        while here < last and row[here] < u:
            here += 1
        states[t + 1] = here
    return states


def _diagonal() -> Floats:
    return np.full((8, 8), 0.05 / 7.0) + (0.95 - 0.05 / 7.0) * np.eye(8)


def _cycles() -> Floats:
    rows = np.zeros((8, 8))
    for here, there in ((0, 1), (1, 2), (3, 5), (5, 4)):
        rows[here, here], rows[here, there] = 0.01, 0.99
    rows[2, 0], rows[2, 6] = 0.85, 0.15
    rows[4, 3], rows[4, 7] = 0.85, 0.15
    rows[6, 6], rows[6, 3] = 0.5, 0.5
    rows[7, 7], rows[7, 0] = 0.5, 0.5
    return rows
