"""Accelerated sweeps without what is switched off: a state of all components in and out, a sweep over those in use between.

Components that fade are switched off at once where the bound after the next sweep is then higher than before. States are whole
between steps, so that checkpoints, callbacks and whoever goes on from them need not know.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import EdgeProblem, State
from natgrad.inference.steppers.accelerated import KEY, AcceleratedStepper, History, Point
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo

__all__ = ["PrunedStepper"]

Ints = npt.NDArray[np.int64]


class _Part(NamedTuple):
    """A whole state, the columns of it that are in use, and the problem and the state of these."""

    whole: State | None
    kept: Ints
    problem: EdgeProblem
    state: State


class PrunedStepper(NothingToFinish):
    """One step is one sweep, two when an extrapolation failed, and one more of less when switching off has lowered the bound."""

    monotone, steps_per_pass, batches = True, 1, 1

    def __init__(self, problem: EdgeProblem, order: tuple[str, ...], use_rotation: bool = True) -> None:
        assert problem.pruning is not None
        self.problem, self.pruning, self.order, self.use_rotation = problem, problem.pruning, order, use_rotation
        self._last: _Part | None = None

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Take step number ``state.t + 1``."""
        # What the last step has taken apart need not be taken apart again.
        part = self._last if self._last is not None and self._last.whole is state else self._taken_apart(state)
        fewer, read = self._without_fading(part), 0
        if fewer is not None:
            new, info = self._swept(fewer, seed)
            if info.bound is not None and info.bound > part.state.memory[KEY].bound:
                return self._put_together(new), info
            read = info.messages_read
        new, info = self._swept(part, seed)
        return self._put_together(new), info._replace(messages_read=info.messages_read + read)

    def _swept(self, part: _Part, seed: int) -> tuple[_Part, StepInfo]:
        state, info = AcceleratedStepper(part.problem, self.order, self.use_rotation).step(part.state, seed)
        return part._replace(state=state), info

    def _taken_apart(self, state: State) -> _Part:
        kept = self.pruning.live(state)
        if len(kept) == self.pruning.n_columns:
            return _Part(state, kept, self.problem, state)
        problem, small = self.pruning.reduced(state, kept)
        return _Part(state, kept, problem, _remembering(small, lambda array: np.ascontiguousarray(array[:, kept])))

    def _without_fading(self, part: _Part) -> _Part | None:
        """The same without components that fade, if there are any; the momentum starts anew."""
        pruning = part.problem.pruning
        if KEY not in part.state.memory or pruning is None:
            return None
        kept = pruning.fading(part.state)
        if kept is None:
            return None
        problem, state = pruning.reduced(part.state._replace(memory={}), kept)
        return _Part(None, part.kept[kept], problem, state)

    def _put_together(self, part: _Part) -> State:
        def padded(array: Any) -> Any:
            out = np.zeros((len(array), self.pruning.n_columns))
            out[:, part.kept] = array
            return out

        whole = part.state
        if len(part.kept) < self.pruning.n_columns:
            whole = _remembering(self.pruning.whole(part.problem, part.state, part.kept), padded)
        self._last = part._replace(whole=whole)
        return whole


def _remembering(state: State, of: Any) -> State:
    """A state whose history has another number of columns."""
    past: History | None = state.memory.get(KEY)
    if past is None:
        return state

    def point(old: Point) -> Point:
        return {name: tuple(of(part) for part in parts) for name, parts in old.items()}

    before = None if past.before is None else point(past.before)
    return state._replace(memory={KEY: past._replace(start=point(past.start), end=point(past.end), before=before)})
