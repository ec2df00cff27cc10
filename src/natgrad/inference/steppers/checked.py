"""Sampled steps under a safeguard: exact sweeps now and then, whose bound must not fall.

Between two checks the steps are free to wander. At a check one exact sweep is made, counted like any other reading; its
exact bound costs nothing more. If it is not lower than at the last check, the state after it is kept as the place to go
back to. If it is, if the steps before it had lost more than noise, or if one left the space of valid parameters, that place
is restored, swept exactly (which cannot lower the bound), and from then on the steps are half as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from natgrad.inference.problem import EdgeProblem, State, SweepResult
from natgrad.inference.rotation import rotated
from natgrad.inference.steppers.sampled import ChildrenStepper, GlobalBatchStepper
from natgrad.inference.steppers.stepper import StepInfo

__all__ = ["SafeguardedStepper", "Snapshot", "higher", "live", "next_check"]

KEY, LIVE = "safeguard", "live"
# Checks after these numbers of passes, then every so many more.
FIRST_CHECKS, CHECK_EVERY = (0.25, 1.0, 2.0, 4.0), 4.0
# A bound that is lower by this part of its size fell by the noise of sampled steps.
NOISE = 0.01


class Snapshot(NamedTuple):
    """The last check: its state and bound, how many there were; passes read; the damping; whether to turn the gauge."""

    lam: dict[str, Any]
    mu: dict[str, Any]
    bound: float
    checks: int
    passes: float
    damping: float
    use_rotation: bool


class SafeguardedStepper:
    """Wraps the stepper of a sampled method, whose steps it makes shorter when they led downhill."""

    monotone, steps_per_pass, batches = False, 1, None

    def __init__(
        self,
        problem: EdgeProblem,
        inner: ChildrenStepper | GlobalBatchStepper,
        order: tuple[str, ...],
        use_rotation: bool = True,
    ) -> None:
        self.problem, self.inner, self.order = problem, inner, order
        self.use_rotation = use_rotation and bool(problem.gauges)
        self.sweep_messages = problem.n_messages
        self.plain = inner.schedule

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        state = live(state)
        last: Snapshot | None = state.memory.get(KEY)
        if last is None:
            last = Snapshot(state.lam, state.mu, self.problem.bound(state), 0, 0.0, 1.0, self.use_rotation)
        self.inner.schedule = Damped(self.plain, last.damping)
        new, info = self.inner.step(state._replace(memory={}), seed)
        passes = last.passes + info.messages_read / self.sweep_messages
        lost = not all(bool(block.valid) for block in info.blocks.values())
        last = last._replace(passes=passes)
        if not lost and passes < next_check(last.checks, FIRST_CHECKS, CHECK_EVERY):
            return new._replace(memory={KEY: last}), info
        # One sweep repairs much, so that its bound alone would hide steps that run away: they must hold the last check's.
        lost = lost or not self.problem.bound(new) >= last.bound - NOISE * abs(last.bound)
        result, sweeps, last = self._checked(None if lost else new, state, last)
        checked = result.state._replace(t=state.t + 1, memory={KEY: last})
        return checked, StepInfo(result.info, info.rho, info.messages_read + sweeps * self.sweep_messages, result.bound)

    def finish(self, state: State) -> State:
        """The state of the last check, if the steps since then led downhill."""
        last: Snapshot | None = state.memory.get(KEY)
        return state if last is None else higher(self.problem, state, last.lam, last.mu, last.bound)

    def _checked(self, new: State | None, old: State, last: Snapshot) -> tuple[SweepResult, int, Snapshot]:
        """One exact sweep, turned if that is allowed and helps; from the last check if the steps led downhill."""
        tries = []
        if new is not None:
            tries = [(rotated(self.problem, new), True)] if last.use_rotation else []
            tries.append((new, False))
        back = old._replace(lam=last.lam, mu=last.mu)
        damping = last.damping
        sweeps = 0
        for state, is_rotated in [*tries, (back, False)]:
            sweeps += 1
            result = self.problem.sweep_jointly(state, self.order)
            if state is back:
                damping /= 2
            if state is back or result.rose(last.bound):
                break
            last = last._replace(use_rotation=last.use_rotation and not is_rotated)
        checks = last.checks + (new is not None)
        kept = Snapshot(
            result.state.lam, result.state.mu, result.bound, checks, last.passes, damping, last.use_rotation
        )
        return result, sweeps, kept


def higher(problem: EdgeProblem, state: State, lam: Any, mu: Any, bound: float) -> State:
    """The state, or an earlier one with the given bound if that is higher; `live` gives the state back for going on."""
    if problem.bound(state) >= bound:
        return state
    return state._replace(lam=lam, mu=mu, memory={**state.memory, LIVE: (state.lam, state.mu)})


def live(state: State) -> State:
    """The state that a run ended with, where `higher` showed the user an earlier one."""
    if LIVE not in state.memory:
        return state
    lam, mu = state.memory[LIVE]
    return state._replace(lam=lam, mu=mu, memory={key: part for key, part in state.memory.items() if key != LIVE})


class Damped:
    """A schedule with shorter steps."""

    def __init__(self, step: Any, factor: float) -> None:
        self.step, self.factor = step, factor

    def rate(self, t: int, ratio: Any = 1.0, *, coupled: int = 1, together: bool = False) -> Any:
        """A part of the step's own length."""
        rate = self.step.rate(t, ratio, coupled=coupled, together=together)
        return rate if self.factor == 1.0 else self.factor * np.asarray(rate)


def next_check(checks: int, first: tuple[float, ...], every: float) -> float:
    """The passes after which the next check comes, when ``checks`` of them were made."""
    return first[checks] if checks < len(first) else first[-1] + (checks - len(first) + 1) * every
