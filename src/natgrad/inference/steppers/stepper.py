"""Define a method as the loop sees it, by its step from a state to the next.

`ScoringStepper` takes steps of hyper-parameters alone, where everything else is integrated out: h ← h + ρ I(h)⁻¹ ∇ log p.

I is the information of the data, so that the step is a natural gradient. One that lowers log p is halved until it does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import BlockInfo, State

__all__ = ["Score", "Scored", "ScoringStepper", "StepInfo", "Stepper", "all_valid"]


class StepInfo(NamedTuple):
    """What one step did: the blocks it moved, the step lengths, the messages it read, the bound if it came for free.

    ``final``: why no further step would change anything; empty if one may.
    ``unbounded``: there is no bound of this state, and none is to be evaluated. A bound that is NaN is one that was lost.
    """

    blocks: dict[str, BlockInfo]
    rho: float
    messages_read: int
    bound: float | None = None
    estimate: float = float("nan")
    unbounded: bool = False
    final: str = ""


class Stepper(ABC):
    """A method bound to a problem; one whose states are complete after every step says nothing of `finish`.

    ``monotone`` says that its bound cannot fall, so that the change over ``steps_per_pass`` steps tells when it has converged.
    ``batches`` are the steps that read as much as there is; None where that is counted in messages.
    """

    monotone: bool = True
    steps_per_pass: int = 1
    batches: int | None = 1

    @abstractmethod
    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Take step number ``state.t + 1``."""

    def finish(self, state: State) -> State:
        """The state as a user sees it, after the last step of a run."""
        return state


def all_valid(info: StepInfo) -> bool:
    """Whether every block that a step moved stayed in its space."""
    return all(bool(block.valid) for block in info.blocks.values())


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


class ScoringStepper(Stepper):
    """One natural step of all hyper-parameters that move."""

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
        return state._replace(t=state.t + 1), StepInfo(
            {}, 0.0, read, here.value, final="no step raises the log likelihood"
        )

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
