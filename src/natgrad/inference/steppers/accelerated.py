"""Exact sweeps that are extrapolated, and rotated; and the same with factors switched off that the bound does without."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, EdgeProblem, State, SweepResult
from natgrad.inference.rotation import Rotation, apply_rotation, rotate_pair
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo

__all__ = ["AcceleratedStepper", "History", "PrunedStepper"]

# Exact sweeps, accelerated: gauge rotation, over-relaxation and momentum, all under the guard of the exact bound.
#
# A sweep maps what it reads before it updates it, x, to y. Instead of starting the next sweep at y, start it at
#
#     x' = y + γ (y − x) + a/(a + 3) · (y − y₋₁)
#
# over-relaxation by γ plus Nesterov's momentum of age a. The sweep returns the exact bound for free: if it is lower than
# before, the sweep is thrown away, the momentum starts again from age zero, and a plain sweep, which cannot lower the bound, is
# made instead (both are counted). Gaussian blocks are extrapolated in their means, with their precisions kept; the others in λ.
#
# Where a pair of nodes has a gauge (`natgrad.inference.rotation`), it is turned to its best position after each sweep, and the
# history is turned along. A plain sweep that ends lower than the last one, which only the projection of scalar factors after a
# turn can bring about, ends the rotations for good.

Stats = tuple[Any, ...]
Point = dict[str, Stats]
KEY = "accelerated"
# γ and the momentum's delay: of all that was tried on factorisations the fewest sweeps; see the docs on control.
OVER_RELAXATION, DELAY = 0.6, 3.0
# Without a gauge, the first sweeps jump too far for extrapolation to follow: wait for these; after the n-th failure, 2ⁿ more.
WARM_UP, LONGEST_REST = 3, 8
# Invalid extrapolations of λ are shortened by half this often before they are given up.
MOST_HALVINGS = 4


class History(NamedTuple):
    """What the next sweep needs of the last ones: their bound, where they started and ended, the momentum's age.

    ``rest`` counts the plain sweeps that are still to come, ``failures`` the extrapolations that failed.
    """

    bound: float
    start: Point
    end: Point
    before: Point | None
    age: int
    use_rotation: bool
    rest: int
    failures: int


class AcceleratedStepper(NothingToFinish):
    """One step is one sweep, or two when an extrapolation failed."""

    monotone, steps_per_pass, batches = True, 1, 1

    def __init__(self, problem: EdgeProblem, order: tuple[str, ...], use_rotation: bool = True) -> None:
        self.problem, self.order = problem, order
        self.use_rotation = use_rotation and bool(problem.gauges)
        self.messages_read = problem.n_messages
        self.carried = carried_blocks(problem, order)
        self._names = frozenset(self.carried)
        # Where no block of a whole sweep reads another, the first sweep is the optimum.
        alone = problem.extrapolated is None and not _read_first(problem, order)
        exact = alone and set(order) == set(problem.blocks)
        self.final = "no block reads another, so one sweep is exact" if exact else ""

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        past: History | None = state.memory.get(KEY)
        if past is not None and not self._is_own(past):
            past = None  # what is remembered is of another order
        rotated, here = (state, None) if past is None else self._rotated(state, past)
        start = None if here is None or here.rest > 0 else self._extrapolated(rotated, here)
        last = -math.inf if past is None else past.bound
        results = [self._sweep(rotated if start is None else start)]
        if start is not None and not results[-1].rose(last):
            results, start = [*results, self._sweep(rotated)], None
            here = self._failed(here)
        if rotated is not state and past is not None and not results[-1].rose(last):
            results, rotated = [*results, self._sweep(state)], state
            here = past._replace(age=-1, before=None, use_rotation=False)
        result = results[-1]
        after = History(
            result.bound,
            self._point(rotated if start is None else start),
            self._point(result.state),
            None if here is None else here.end,
            0 if here is None else here.age + 1,
            self.use_rotation if here is None else here.use_rotation,
            (0 if self.use_rotation else WARM_UP) if here is None else max(0, here.rest - 1),
            0 if here is None else here.failures,
        )
        messages_read = len(results) * self.messages_read + sum(swept.reads for swept in results)
        info = StepInfo(result.info, 1.0, messages_read, result.bound, final=self.final)
        return result.state._replace(memory={KEY: after}), info

    def _is_own(self, past: History) -> bool:
        """Whether a history is that of the blocks which a sweep in this order carries."""
        points = (past.start, past.end, past.end if past.before is None else past.before)
        return all(point.keys() == self._names for point in points)

    def _failed(self, here: History | None) -> History | None:
        """The momentum starts anew; where nothing is turned, after a rest that doubles each time."""
        if here is None:
            return None
        rest = 0 if self.use_rotation else min(2 ** (here.failures + 1), LONGEST_REST) + 1
        return here._replace(age=-1, before=None, rest=rest, failures=here.failures + 1)

    def _sweep(self, state: State) -> SweepResult:
        return self.problem.sweep_jointly(state, self.order)

    # -- extrapolation --

    def _point(self, state: State) -> Point:
        return {name: _coordinates(self.problem.blocks[name], state, name) for name in self.carried}

    def _extrapolated(self, state: State, history: History | None) -> State | None:
        """Where the next sweep starts, if not at the end of the last one."""
        if history is None or not self.carried:
            return None
        momentum = history.age / (history.age + DELAY) if history.before is not None else 0.0
        moves: Point = {}
        for name in self.carried:
            end, start = history.end[name], history.start[name]
            before = end if history.before is None else history.before[name]
            moves[name] = tuple(
                OVER_RELAXATION * (e - s) + momentum * (e - b) for e, s, b in zip(end, start, before, strict=True)
            )
        length = 1.0
        for _ in range(MOST_HALVINGS):
            extrapolated = self._moved(state, history.end, moves, length)
            if extrapolated is not None:
                return extrapolated
            length /= 2
        return None

    def _moved(self, state: State, end: Point, moves: Point, length: float) -> State | None:
        lam, mu = dict(state.lam), dict(state.mu)
        for name in self.carried:
            block = self.problem.blocks[name]
            goal = tuple(e + length * m for e, m in zip(end[name], moves[name], strict=True))
            lam[name] = _from_coordinates(block, goal, state.lam[name])
            # A Gaussian keeps its precision, and with it its validity.
            checked = (np.isfinite(part) for part in goal) if _is_gaussian(block) else [block.family.valid(lam[name])]
            if not all(bool(np.all(part)) for part in checked):
                return None
            mu[name] = self.problem.moments(block, lam[name])
        return state._replace(lam=lam, mu=mu)

    # -- rotation --

    def _rotated(self, state: State, past: History) -> tuple[State, History]:
        """The state and its history with every gauge in its best position."""
        for pair in self.problem.gauges if past.use_rotation else ():
            rotation = rotate_pair(self.problem, pair, state, self.carried)
            if rotation is not None:
                state = rotation.state
                start, end, before = (self._along(p, rotation) for p in (past.start, past.end, past.before))
                assert start is not None
                assert end is not None
                past = past._replace(start=start, end=end, before=before)
        return state, past

    def _along(self, point: Point | None, rotation: Rotation) -> Point | None:
        if point is None:
            return None
        blocks, matrices, shifts = self.problem.blocks, rotation.matrices, rotation.shifts
        return {
            name: rotation.coordinates[name](part)
            if name in rotation.coordinates
            else (apply_rotation(blocks[name], part[0], matrices[name]) + shifts.get(name, 0.0),)
            if name in matrices
            else part
            for name, part in point.items()
        }


def carried_blocks(problem: EdgeProblem, order: tuple[str, ...]) -> tuple[str, ...]:
    """The blocks that are extrapolated: those that a sweep reads before it updates them.

    A problem may name the only ones: learned precisions that run ahead of what they belong to switch factors off for good.
    Categories that take turns read one another, too, but follow from what is around them: with them, extrapolations took more
    sweeps (of supervised topics 35 instead of 27, and 16 instead of 10) and a quarter of the time.
    """
    chosen = set(order if problem.extrapolated is None else problem.extrapolated)
    blocks = problem.blocks
    return tuple(
        name
        for name, by_others in _read_first(problem, order)
        if name in chosen and (by_others or (blocks[name].family.is_path or not blocks[name].family.is_category))
    )


def _read_first(problem: EdgeProblem, order: tuple[str, ...]) -> list[tuple[str, bool]]:
    """The blocks that a sweep in this order reads before it updates them, by others or, where elements take turns, by themselves.

    It is a function of these alone.
    """
    found, earlier = [], set[str]()
    for name in order:
        by_others = bool(problem.neighbours(name) & earlier)
        if by_others or problem.blocks[name].n_columns > 1:
            found.append((name, by_others))
        earlier.add(name)
    return found


def _is_gaussian(block: Block) -> bool:
    return block.family.is_gaussian


def _coordinates(block: Block, state: State, name: str) -> Stats:
    """Means of a Gaussian; otherwise λ itself."""
    parts = state.mu[name][:1] if _is_gaussian(block) else state.lam[name]
    return tuple(np.asarray(part, dtype=np.float64) for part in parts)


def _from_coordinates(block: Block, point: Stats, lam: Stats) -> Stats:
    """λ at a point; a Gaussian keeps its precision."""
    if not _is_gaussian(block):
        return point
    minus_half = np.asarray(lam[1], dtype=np.float64)
    mean: npt.NDArray[np.float64] = point[0]
    if minus_half.ndim > mean.ndim:
        return -2.0 * (minus_half @ mean[..., None])[..., 0], minus_half
    return -2.0 * minus_half * mean, minus_half


# Accelerated sweeps without what is switched off: a state of all components in and out, a sweep over those in use between.
#
# Components that fade are switched off at once where the bound after the next sweep is then higher than before. States are whole
# between steps, so that checkpoints, callbacks and whoever goes on from them need not know.

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
