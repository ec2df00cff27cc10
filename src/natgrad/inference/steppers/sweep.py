"""Step by exact sweeps: plain, several in a call; extrapolated and rotated; or as a safeguard of sampled steps.

**Safeguard.** Between two checks the steps are free to wander. At a check one exact sweep is made, counted like any other
reading; its exact bound costs nothing more. If it is not lower than at the last check, the state after it is kept as the place
to go back to. If it is, if the steps before it had lost more than noise, or if one left the space of valid parameters, that
place is restored, swept exactly (which cannot lower the bound), and from then on the steps are half as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.methods import VB
from natgrad.inference.problem import Block, EdgeProblem, State, SweepResult, Sweeps
from natgrad.inference.rotation import Rotation, apply_rotation, rotate_pair, rotated
from natgrad.inference.step_sizes import Step
from natgrad.inference.steppers.sampled import BlockUpdates, ChildrenStepper, GlobalBatchStepper
from natgrad.inference.steppers.stepper import StepInfo, Stepper

__all__ = [
    "AcceleratedStepper",
    "ExactStepper",
    "History",
    "LazyStats",
    "PrunedStepper",
    "SafeguardedStepper",
    "Snapshot",
    "concrete",
    "higher",
    "live",
    "next_check",
]

# A compiled sweep of a small network takes less time than calling it. Where nobody looks at the states on the way, a problem
# makes a block of sweeps in one call and returns, of each, its bound and what it did; the state after the last is there, those
# before are `LazyStats`: made anew from the first state of the block by whoever reads them, with the same bits, since it is the
# same program that counts to a smaller number. So whether a run went ahead shows in nothing but its time.

Stats = tuple[Any, ...]
# A run that may settle at any step goes ahead by this part of the sweeps that it has made: so many may be in vain.
SHARE = 4


@dataclass(frozen=True)
class _Place:
    """One of the sweeps that were made in a call."""

    problem: EdgeProblem
    order: tuple[str, ...]
    start: State
    made: Sweeps
    number: int = 1

    @cached_property
    def state(self) -> State:
        """The state after it, made when it is first asked for."""
        return self.problem.sweeps_ahead(self.start, self.order, self.number).end

    @property
    def result(self) -> SweepResult:
        """What it did, and the state after it."""
        bound, info = self.made.results[self.number - 1]
        if self.number == len(self.made.results):
            return SweepResult(self.made.end, bound, info)
        lam, mu = LazyStats(self, "lam"), LazyStats(self, "mu")
        return SweepResult(State(lam, mu, self.start.t + self.number), bound, info)  # type: ignore[arg-type]


class LazyStats(Mapping[str, Stats]):
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
    """The state with its arrays, if these were not made yet."""
    if not isinstance(state.lam, LazyStats):
        return state
    made = state.lam.place.state
    return state._replace(lam=made.lam, mu=made.mu)


# Exact steps: every block from all its children.


class ExactStepper(Stepper):
    """Full VB; option (a) is one compiled sweep, or several in a call where nobody looks at the states between them."""

    def __init__(self, problem: EdgeProblem, method: VB, step: Step, order: tuple[str, ...]) -> None:
        self.problem, self.method, self.schedule, self.order = problem, method, step, order
        self.monotone = method.option == "a"
        self.messages_read = problem.n_messages
        self.coupled = max((problem.coupling(name) for name in problem.blocks), default=1)
        self._goes_ahead, self._until, self._settles = False, None, False
        self._begun, self._end = 0, None

    _until: int | None
    _end: State | None

    def go_ahead(self, unseen: bool, until: int | None, settles: bool) -> None:
        """Whether nobody looks at the states up to the step ``until``; a run that ``settles`` may end before."""
        self._goes_ahead = unseen and self.problem.ahead > 1 and self.monotone
        self._until, self._settles, self._end = until, settles, None

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        rate = self.schedule.rate(state.t + 1, coupled=self.coupled, together=not self.monotone)
        # Of one number a mean would take as long as a tenth of a small sweep.
        rho = rate if isinstance(rate, float) else float(np.mean(rate))
        if self.monotone:
            ahead = self._goes_ahead and rho == 1.0
            result = self._next(state) if ahead else self.problem.sweep(state, self.order, rho)
            # What another method remembered is out of date now.
            return result.state._replace(memory={}), StepInfo(result.info, rho, self.messages_read, result.bound)
        moves = BlockUpdates(self.problem, state, together=True)
        for name in self.order:
            block = self.problem.blocks[name]
            moves.move(block, self.problem.target(block, state), rho)
        return moves.finish(), StepInfo(moves.info, rho, self.messages_read)

    def _next(self, state: State) -> SweepResult:
        """The next sweep, from those that were made or by making some.

        The first one is made alone, and so is one from a state that the last did not lead to (a probe).
        """
        if isinstance(state.lam, LazyStats):
            place = state.lam.place
            return replace(place, number=place.number + 1).result
        if self._end is None or state.lam is not self._end.lam:
            self._begun = state.t
        taken, most = state.t - self._begun, self.problem.ahead
        allowed = taken // SHARE if self._settles else most * (taken > 0)
        left = most if self._until is None else self._until - state.t
        made = self.problem.sweeps_ahead(state, self.order, max(1, min(most, allowed, left)))
        self._end = made.end
        return _Place(self.problem, self.order, state, made).result


SAFEGUARD, LIVE = "safeguard", "live"
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


class SafeguardedStepper(Stepper):
    """Wraps the stepper of a sampled method, whose steps it makes shorter when they led downhill."""

    monotone, batches = False, None

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
        last: Snapshot | None = state.memory.get(SAFEGUARD)
        if last is None:
            last = Snapshot(state.lam, state.mu, self.problem.bound(state), 0, 0.0, 1.0, self.use_rotation)
        self.inner.schedule = Damped(self.plain, last.damping)
        new, info = self.inner.step(state._replace(memory={}), seed)
        passes = last.passes + info.messages_read / self.sweep_messages
        lost = not all(bool(block.valid) for block in info.blocks.values())
        last = last._replace(passes=passes)
        if not lost and passes < next_check(last.checks, FIRST_CHECKS, CHECK_EVERY):
            return new._replace(memory={SAFEGUARD: last}), info
        # One sweep repairs much, so that its bound alone would hide steps that run away: they must hold the last check's.
        lost = lost or not self.problem.bound(new) >= last.bound - NOISE * abs(last.bound)
        result, sweeps, last = self._checked(None if lost else new, state, last)
        checked = result.state._replace(t=state.t + 1, memory={SAFEGUARD: last})
        return checked, StepInfo(result.info, info.rho, info.messages_read + sweeps * self.sweep_messages, result.bound)

    def finish(self, state: State) -> State:
        """The state of the last check, if the steps since then led downhill."""
        last: Snapshot | None = state.memory.get(SAFEGUARD)
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

Point = dict[str, Stats]
ACCELERATED = "accelerated"
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


class AcceleratedStepper(Stepper):
    """One step is one sweep, or two when an extrapolation failed."""

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
        past: History | None = state.memory.get(ACCELERATED)
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
        return result.state._replace(memory={ACCELERATED: after}), info

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


class PrunedStepper(Stepper):
    """One step is one sweep, two when an extrapolation failed, and one more of less when switching off has lowered the bound."""

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
            if info.bound is not None and info.bound > part.state.memory[ACCELERATED].bound:
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
        if ACCELERATED not in part.state.memory or pruning is None:
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
    past: History | None = state.memory.get(ACCELERATED)
    if past is None:
        return state

    def point(old: Point) -> Point:
        return {name: tuple(of(part) for part in parts) for name, parts in old.items()}

    before = None if past.before is None else point(past.before)
    return state._replace(
        memory={ACCELERATED: past._replace(start=point(past.start), end=point(past.end), before=before)}
    )
