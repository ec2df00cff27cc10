"""Exact steps: every block from all its children."""

from __future__ import annotations

import numpy as np

from natgrad.inference.methods import VB
from natgrad.inference.problem import EdgeProblem, State
from natgrad.inference.step_sizes import Step
from natgrad.inference.steppers.ahead import SweepsAhead
from natgrad.inference.steppers.sampled import BlockUpdates
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo

__all__ = ["ExactStepper"]


class ExactStepper(NothingToFinish):
    """Full VB; option (a) is one compiled sweep."""

    steps_per_pass = batches = 1

    def __init__(self, problem: EdgeProblem, method: VB, step: Step, order: tuple[str, ...]) -> None:
        self.problem, self.method, self.schedule, self.order = problem, method, step, order
        self.monotone = method.option == "a"
        self.messages_read = problem.n_messages
        self.coupled = max((problem.coupling(name) for name in problem.blocks), default=1)
        self._ahead: SweepsAhead | None = None

    def go_ahead(self, until: int | None, settles: bool) -> None:
        """Nobody looks at the states between sweeps: several may be made in one call."""
        if self.problem.ahead > 1 and self.method.option == "a":
            self._ahead = SweepsAhead(self.problem, self.order, until, settles)

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        rate = self.schedule.rate(state.t + 1, coupled=self.coupled, together=self.method.option == "b")
        # Of one number a mean would take as long as a tenth of a small sweep.
        rho = rate if isinstance(rate, float) else float(np.mean(rate))
        if self.method.option == "a":
            if self._ahead is not None and rho == 1.0:
                result = self._ahead.sweep(state)
            else:
                result = self.problem.sweep(state, self.order, rho)
            # What another method remembered is out of date now.
            return result.state._replace(memory={}), StepInfo(result.info, rho, self.messages_read, result.bound)
        moves = BlockUpdates(self.problem, state, together=True)
        for name in self.order:
            block = self.problem.blocks[name]
            moves.move(block, self.problem.target(block, state), rho)
        return moves.finish(), StepInfo(moves.info, rho, self.messages_read)
