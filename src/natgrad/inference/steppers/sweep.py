"""Exact sweeps, several in one call where they are short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from natgrad.inference.methods import VB
from natgrad.inference.problem import EdgeProblem, State, SweepResult, Sweeps
from natgrad.inference.step_sizes import Step
from natgrad.inference.steppers.sampled import BlockUpdates
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo

__all__ = ["ExactStepper", "Pending", "SweepsAhead", "concrete"]

# A compiled sweep of a small network takes less time than calling it. Where nobody looks at the states on the way, a problem
# makes a block of sweeps in one call and returns, of each, its bound and what it did; the state after the last is there, those
# before are `Pending`: made anew from the first state of the block by whoever reads them, with the same bits, since it is the
# same program that counts to a smaller number. So whether a run went ahead shows in nothing but its time.

Stats = tuple[Any, ...]
# A run that may settle at any step goes ahead by this part of the sweeps that it has made: so many may be in vain.
SHARE = 4


class _Block(NamedTuple):
    """Sweeps that were made in one call."""

    problem: EdgeProblem
    order: tuple[str, ...]
    start: State
    made: Sweeps

    def after(self, number: int) -> SweepResult:
        """What one of them did, and the state after it."""
        bound, info = self.made.results[number - 1]
        if number == len(self.made.results):
            return SweepResult(self.made.end, bound, info)
        place = _Place(self, number)
        state = State(Pending(place, "lam"), Pending(place, "mu"), self.start.t + number)  # type: ignore[arg-type]
        return SweepResult(state, bound, info)


@dataclass(frozen=True)
class _Place:
    """After which of the sweeps."""

    block: _Block
    number: int

    @cached_property
    def state(self) -> State:
        """The state there, made when it is first asked for."""
        block = self.block
        return block.problem.sweeps_ahead(block.start, block.order, self.number).end


class Pending(Mapping[str, Stats]):
    """λ or μ of a state that was passed in a call of several sweeps."""

    def __init__(self, place: _Place, part: str) -> None:
        self.place, self.part = place, part

    def _found(self) -> Mapping[str, Stats]:
        found: Mapping[str, Stats] = getattr(self.place.state, self.part)
        return found

    def __getitem__(self, name: str) -> Stats:
        return self._found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())


def concrete(state: State) -> State:
    """The state with its arrays, if these are pending."""
    if not isinstance(state.lam, Pending):
        return state
    made = state.lam.place.state
    return state._replace(lam=made.lam, mu=made.mu)


@dataclass
class SweepsAhead:
    """Sweeps of a problem in an order up to the step ``until``; a run that ``settles`` may end before.

    The first sweep is made alone, and so is one from a state that the last did not lead to (a probe).
    """

    problem: EdgeProblem
    order: tuple[str, ...]
    until: int | None
    settles: bool
    _begun: int = field(default=0, init=False)
    _end: State | None = field(default=None, init=False)

    def sweep(self, state: State) -> SweepResult:
        """The next sweep, from those that were made or by making some."""
        if isinstance(state.lam, Pending):
            place = state.lam.place
            return place.block.after(place.number + 1)
        if self._end is None or state.lam is not self._end.lam:
            self._begun = state.t
        made = self.problem.sweeps_ahead(state, self.order, self._size(state.t))
        self._end = made.end
        return _Block(self.problem, self.order, state, made).after(1)

    def _size(self, t: int) -> int:
        taken, most = t - self._begun, self.problem.ahead
        allowed = taken // SHARE if self.settles else most * (taken > 0)
        left = most if self.until is None else self.until - t
        return max(1, min(most, allowed, left))


# Exact steps: every block from all its children.


class ExactStepper(NothingToFinish):
    """Full VB; option (a) is one compiled sweep."""

    steps_per_pass = batches = 1

    def __init__(self, problem: EdgeProblem, method: VB, step: Step, order: tuple[str, ...]) -> None:
        self.problem, self.method, self.schedule, self.order = problem, method, step, order
        self.monotone = method.option == "a"
        self.messages_read = problem.n_messages
        self.coupled = max((problem.coupling(name) for name in problem.blocks), default=1)
        self._ahead: SweepsAhead | None = None

    def go_ahead(self, unseen: bool, until: int | None, settles: bool) -> None:
        """Whether nobody looks at the states between sweeps up to a step: then several may be made in one call."""
        may = unseen and self.problem.ahead > 1 and self.method.option == "a"
        self._ahead = SweepsAhead(self.problem, self.order, until, settles) if may else None

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
