"""Steps of hyper-parameters alone, where everything else is integrated out: h ← h + ρ I(h)⁻¹ ∇ log p.

I is the information of the data, so that the step is a natural gradient. One that lowers log p is halved until it does not.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo

__all__ = ["Score", "Scored", "ScoringStepper"]

Floats = npt.NDArray[np.float64]
# A step changes no logarithm by more, is halved at most so often, and ends the run where it promises less than rounding.
FARTHEST, MOST_HALVINGS, ROUNDING = 2.0, 12, 1e-13
# Directions of which the data know nothing move by the slope in units of this part of the largest information.
LEAST_INFORMATION = 1e-9


class Score(NamedTuple):
    """Log p at h, its slope [p] and the information [p, p]."""

    value: float
    slope: Floats
    information: Floats


class Scored(Protocol):
    """A problem that is nothing but hyper-parameters ``State.hyper["h"]``."""

    @property
    def n_messages(self) -> int:
        """What an evaluation reads."""
        ...

    def score(self, h: Floats) -> Score:
        """Log p and its derivatives."""
        ...


class ScoringStepper(NothingToFinish):
    """One natural step of all hyper-parameters that move."""

    monotone, steps_per_pass, batches = True, 1, 1

    def __init__(self, problem: Scored, moves: npt.NDArray[np.bool_]) -> None:
        self.problem, self.moves = problem, moves
        self._last: tuple[Any, Score] | None = None

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """The step, halved until log p does not fall."""
        h = np.asarray(state.hyper["h"])
        here = self._at(h)
        read = self.problem.n_messages
        step = self._direction(here)
        promised = 0.5 * float(step @ here.slope)
        rho = 1.0
        for _ in range(MOST_HALVINGS if promised > ROUNDING * abs(here.value) else 0):
            there = self.problem.score(h + rho * step)
            read += self.problem.n_messages
            if there.value >= here.value:
                after = h + rho * step
                self._last = after, there
                hyper = {**state.hyper, "h": after}
                return state._replace(t=state.t + 1, hyper=hyper), StepInfo({}, rho, read, there.value)
            rho *= 0.5
        return state._replace(t=state.t + 1), StepInfo({}, 0.0, read, here.value, final=True)

    def _at(self, h: Floats) -> Score:
        if self._last is None or self._last[0] is not h:
            self._last = h, self.problem.score(h)
        return self._last[1]

    def _direction(self, here: Score) -> Floats:
        step = np.zeros(len(here.slope))
        if self.moves.any():
            values, turn = np.linalg.eigh(here.information[np.ix_(self.moves, self.moves)])
            values = np.maximum(values, max(LEAST_INFORMATION * values[-1], 1e-300))
            step[self.moves] = turn @ ((turn.T @ here.slope[self.moves]) / values)
        return step * min(1.0, FARTHEST / max(float(np.abs(step).max()), 1e-300))
