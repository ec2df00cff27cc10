"""The end of a sampled fit: steps of kernel, noise and inducing inputs that become shorter, so that they settle where they were.

Adam's steps have the length of its rate however near the optimum is: the settings go on moving around it, and a fit ends
somewhere near. kin40k, M = 50, after 2,000 steps: 120 more with falling rates gain 0.026 nats a row of held-out rows, 2,000 more
at the same rate 0.008.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from natgrad.inference.engine import Phase
from natgrad.inference.methods import SVI, VB, Method
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import FOLLOWING, GroupStepper
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo
from natgrad.models.gp.problem import GPProblem

__all__ = ["cooling_phases"]

# Parts of the rate, steps with each of them, and the shortest run that they are made after.
PARTS, STEPS, SHORTEST = (1 / 3, 1 / 10, 1 / 30), 40, 200


def cooling_phases(problem: GPProblem, method: Method | None) -> list[Phase]:
    """The phases that close a run; none where all rows are read at each step, or nothing is learned."""
    size = method.size if isinstance(method, SVI) else problem.batch_size
    if size >= problem.n_groups or isinstance(method, VB) or not any(problem.learned):
        return []
    phases = []
    for number, part in enumerate(PARTS):
        cooler = copy(problem)
        cooler.rate = part * problem.rate
        stepper = _Uncounted(cooler, problem, size, 1 + number * STEPS)
        phases.append(Phase(cooler, stepper=stepper, until=STEPS, optional=True))
    return phases


class _Uncounted(NothingToFinish):
    """Steps that leave the number of steps as it is, on batches of steps to come."""

    monotone, steps_per_pass, batches = False, 1, 1

    def __init__(self, cooler: GPProblem, problem: GPProblem, size: int, first: int) -> None:
        self.inner = GroupStepper(cooler, size, *problem.local_limits, FOLLOWING, remember=False)
        self.cooler, self.problem, self.ahead = cooler, problem, first

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """One step, or none after a run that has hardly begun, or has cooled further itself."""
        if state.t < SHORTEST or self.cooler.rate >= self.problem.rate:
            return state, StepInfo({}, 0.0, 0, unbounded=True)
        after, info = self.inner.step(state._replace(t=state.t + self.ahead), seed)
        self.ahead += 1
        return after._replace(t=state.t), info._replace(estimate=np.nan, unbounded=True)
