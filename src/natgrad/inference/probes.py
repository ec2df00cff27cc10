"""Before a run may say that it has converged it looks whether it sits on a saddle.

A stationary point of coordinate ascent may be a saddle: components that have merged, factors that were switched off. Leaving one
is slow and then fast, or never happens, and no gain tells. So when a run has settled, every probe is asked for another state to
try from,

    probe(problem, state, order, seed) → state or None

a function of these alone, None where it knows of nothing to try. The run's own steps go on from there until it is clear where
they lead. If that is higher than where the run had settled, the run goes on from it; otherwise it ends with the state that it
had. What was read is counted. The ``probes`` of a problem are asked in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from natgrad.families.natural_step import relative_change
from natgrad.inference.monitor import left_to_gain
from natgrad.inference.problem import Problem, State
from natgrad.inference.steppers.stepper import StepInfo, Stepper, all_valid

__all__ = ["Trial", "followed", "tried"]

# Passes of a trial before it is given up, if it is not clear sooner where it leads.
LONGEST = 40
# A trial whose bound is within so many tolerances of the settled one is on its way back when the distance of its λ is less than
# this part of the settled λ, and has shrunk by this factor.
CLOSE, NEAR, BACK = 10.0, 0.05, 0.7
# Or already within so many where its distance has shrunk by this factor twice in a row. Of 9,000 trials of random mixtures that
# were followed to their end, 637 of which led higher, this gave up none that the rule above did not.
SOON, TWICE = 100.0, 0.5
# After one pass a trial is followed for good that is higher by this share of the tolerance, and by so many times what the run's
# own last pass gained: little, but nothing that the run was about to find, and no way back leads there.
AT_ONCE, OWN = 0.02, 3.0


class Trial(NamedTuple):
    """Where a trial ended: the state and its step, whether that is higher than the run had come, and what it read."""

    state: State
    info: StepInfo
    higher: bool
    messages_read: int


def tried(
    problem: Problem,
    stepper: Stepper,
    settled: State,
    bounds: Sequence[float],
    order: tuple[str, ...],
    seed: int,
    tol: float,
    budget: float = math.inf,
) -> tuple[Trial, ...]:
    """The trials of all probes, up to the first that leads higher than the settled state, the last of ``bounds``.

    ``settled`` is a complete state, as a stepper's ``finish`` gives it. A pass after ``budget`` messages is the last.
    """
    bound, own = bounds[-1], bounds[-1] - bounds[max(-len(bounds), -1 - stepper.steps_per_pass)]
    sooner = max(AT_ONCE * tol, OWN * own)
    trials: list[Trial] = []
    for probe in problem.probes:
        start = probe(problem, settled, order, seed)
        if start is not None:
            # What is remembered belongs to the settled state; a probe that says nothing of it has it forgotten.
            start = start._replace(memory={}) if start.memory is settled.memory else start
            left = budget - sum(trial.messages_read for trial in trials)
            trials.append(followed(stepper, start, settled, bound, seed, tol, sooner, left))
            if trials[-1].higher or trials[-1].messages_read >= left:
                break
    return tuple(trials)


def _distance(state: State, other: State) -> float:
    """The largest relative distance of a block's λ."""
    pairs = ((state.lam[name], lam) for name, lam in other.lam.items())
    return max((relative_change(b, a) for a, b in pairs), default=0.0)


class _WayBack:
    """Whether a trial is near where it came from, and was farther away a pass before; of its states the last three are kept."""

    def __init__(self, settled: State) -> None:
        self.settled = settled
        self._states: list[State] = []
        self._away: list[float | None] = []

    def passed(self, state: State, behind: float, early: bool) -> bool:
        """After another pass, which ended so many tolerances below the settled bound; ``early`` is too soon to tell.

        A distance takes as long as a part of a pass: it is asked for where the bound is close.
        """
        self._states, self._away = [*self._states[-2:], state], [*self._away[-2:], None]
        if early or len(self._states) < 2 or behind > SOON or self._distance(-1) > BACK * NEAR:
            return False
        if behind <= CLOSE and self._distance(-1) <= BACK * self._distance(-2):
            return True
        return len(self._states) == 3 and all(self._distance(n) <= TWICE * self._distance(n - 1) for n in (-1, -2))

    def _distance(self, number: int) -> float:
        away = self._away[number]
        if away is None:
            away = self._away[number] = _distance(self._states[number], self.settled)
        return away


def followed(
    stepper: Stepper,
    state: State,
    settled: State,
    goal: float,
    seed: int,
    tol: float,
    sooner: float = math.inf,
    budget: float = math.inf,
) -> Trial:
    """Steps from a state until the bound is higher than the goal by ``tol``, or it is clear that it will not be.

    After the first pass a bound that is higher by ``sooner`` is enough. A pass after ``budget`` messages is the last.
    """
    bounds: list[float] = []
    way_back = _WayBack(settled)
    read = 0
    margin = max(tol, 1e-12 * abs(goal))
    for number in range(1, LONGEST * stepper.steps_per_pass + 1):
        state, info = stepper.step(state, seed)
        read += info.messages_read
        if not all_valid(info):
            break
        if info.bound is None:
            continue
        if math.isnan(info.bound):
            break
        bounds.append(info.bound)
        if number % stepper.steps_per_pass:
            continue
        if info.bound > goal + (margin if len(bounds) > stepper.steps_per_pass else min(margin, sooner)):
            return Trial(state, info, True, read)
        left = left_to_gain(bounds, stepper.steps_per_pass)
        if read >= budget or (left is not None and info.bound + left.gain <= goal + margin):
            break
        if way_back.passed(state, (goal - info.bound) / margin, early=len(bounds) <= 2):
            break
    return Trial(state, info, False, read)
