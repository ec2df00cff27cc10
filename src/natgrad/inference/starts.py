"""Several starts in, the best one after some steps of each out: half of those that lead go on, then a quarter, ….

The steps are those of any run; what they read is counted by the run that begins with the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from natgrad.families.natural_step import relative_change
from natgrad.inference.monitor import left_to_gain
from natgrad.inference.problem import BlockInfo, State
from natgrad.inference.steppers.stepper import StepInfo, Stepper, all_valid
from natgrad.inference.trace import StartRecord

if TYPE_CHECKING:
    from natgrad.inference.monitor import Limits

__all__ = ["Ended", "Rivals", "Starts", "best_start", "overtaking"]

# Nats by which a start has to be higher than the first to be worth more steps; two that lead to one optimum are not.
WORTH = 0.01
# Rounds after which nobody waits any longer.
LONGEST = 40
# Bounds that differ by this part of themselves are equal: a sum of a million terms loses as much.
ROUNDING = 1e-10


class Starts(NamedTuple):
    """Where a run may begin.

    Parameters
    ----------
    candidates : functions that make a state
    stepper : a function that makes the stepper of a candidate, given its number: threads share none
    rounds : steps of every candidate, and then of those that are left in each later round
    finish : the best state in, the one that the run begins with out
    n_threads : how many are tried at a time; the result does not depend on it
    patience : rounds in which the second, and the best of every other kind, go on with the first as long as they may overtake it:
        what begins slowly may end higher. 0: they are dropped like the others
    names : what the candidates are called in the trace
    kinds : what kind each of them is of
    lasting : candidates that go on as long as they may overtake the first, however slowly they begin
    budget : messages after which no further round begins
    """

    candidates: Sequence[Callable[[], State]]
    stepper: Callable[[int], Stepper]
    rounds: tuple[int, int]
    finish: Callable[[State], State]
    n_threads: int = 1
    patience: int = 0
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    lasting: frozenset[int] = frozenset()
    budget: float = math.inf


class Ended(NamedTuple):
    """Where a run of its own has led: what the trace says of it, its state, and the messages that it read."""

    record: StartRecord
    state: State
    read: int


class Rivals(NamedTuple):
    """Other starts, for a run that has settled: what they are called, and where each of them ends, within some limits.

    What begins lower may end higher, and only runs to their end tell. A run that settles goes on from the end of a rival that is
    higher.
    """

    names: tuple[str, ...]
    ends: Callable[[Limits], Sequence[Ended]]


class _Trial(NamedTuple):
    number: int
    make: Callable[[], State]
    bounds: tuple[float, ...] = ()
    read: int = 0


class BestStart(NamedTuple):
    """The state that a run begins with, the messages that finding it took, and what came of all starts, best first."""

    state: State
    read: int
    records: tuple[StartRecord, ...]


def overtaking(ends: Sequence[Ended], state: State, bound: float, tol: float) -> tuple[State, StepInfo] | None:
    """The highest of some ends as the step after a settled state, if it is higher than that by more than ``tol``."""
    best = max(ends, key=lambda end: end.record.bound, default=None)
    if best is None or not best.record.bound > bound + max(WORTH, tol):
        return None
    blocks = {name: BlockInfo(True, relative_change(state.lam[name], lam)) for name, lam in best.state.lam.items()}
    info = StepInfo(blocks, 1.0, sum(end.read for end in ends), best.record.bound)
    return best.state._replace(t=state.t + 1, memory={}), info


def best_start(starts: Starts, seed: int, time_is_up: Callable[[], bool]) -> BestStart:
    """The best of some starts."""
    trials = [_Trial(number, make) for number, make in enumerate(starts.candidates)]
    ended: dict[int, _Trial] = {}
    n_rounds = 0
    with ThreadPoolExecutor(starts.n_threads) as pool:
        while True:
            steps = starts.rounds[min(n_rounds, 1)]
            tasks = [(starts, trial, steps, seed, time_is_up) for trial in trials]
            ranked = _ranked(pool.map(_improved, tasks) if starts.n_threads > 1 else map(_improved, tasks))
            ended.update((trial.number, trial) for trial in ranked)
            n_rounds += 1
            left = ranked[: len(ranked) // 2]
            if starts.patience:
                left = _going_on(starts, ranked, n_rounds)
            total = sum(trial.read for trial in ended.values())
            if not left or total >= starts.budget or time_is_up():
                return BestStart(starts.finish(ranked[0].make()), total, _records(starts, ranked[0], ended))
            trials = left


def _improved(task: tuple[Starts, _Trial, int, int, Callable[[], bool]]) -> _Trial:
    """Some more steps of a trial; one that leaves its space ends there, and is the last of all.

    When time is up a trial stays where it is. Of those that have not begun only the first still takes a step.
    """
    starts, trial, steps, seed, time_is_up = task
    if not trial.bounds and trial.number and time_is_up():
        return trial._replace(bounds=(float("-inf"),))
    state, bounds, read, stepper = trial.make(), list(trial.bounds), trial.read, starts.stepper(trial.number)
    for _ in range(steps):
        if bounds and (bounds[-1] == float("-inf") or time_is_up()):
            break
        new, info = stepper.step(state, seed)
        bound = info.estimate if info.bound is None else info.bound
        read += info.messages_read
        if not all_valid(info) or not bound > float("-inf"):  # NaN too
            bounds.append(float("-inf"))
            break
        state = new
        bounds.append(bound)
    return trial._replace(make=lambda: state, bounds=tuple(bounds or [float("-inf")]), read=read)


def _ranked(trials: Iterable[_Trial]) -> list[_Trial]:
    """The best first; of those that differ by rounding alone, the one that was given first.

    Starts that reach the same optimum with other labels have equal bounds but for their last digits, which depend on the machine
    and on whether a kernel was compiled or read from a cache: labels must not.
    """
    ordered = sorted(trials, key=lambda trial: -trial.bounds[-1])
    groups: list[list[_Trial]] = []
    for trial in ordered:
        top = groups[-1][0].bounds[-1] if groups else float("-inf")
        if groups and top - trial.bounds[-1] <= ROUNDING * abs(top):  # no inequality holds of two infinities
            groups[-1].append(trial)
        else:
            groups.append([trial])
    return [trial for group in groups for trial in sorted(group, key=lambda trial: trial.number)]


def _going_on(starts: Starts, ranked: list[_Trial], n_rounds: int) -> list[_Trial]:
    """Of the better half, and of those that are owed more patience, who may overtake the first; nobody if nobody may."""
    kinds = starts.kinds or tuple(map(str, range(len(starts.candidates))))
    best: dict[str, _Trial] = {}
    for trial in ranked:
        best.setdefault(kinds[trial.number], trial)
    asked = {trial.number for trial in ranked[: len(ranked) // 2]}
    if n_rounds <= starts.patience:
        asked |= {trial.number for trial in (*best.values(), *ranked[:2])}
    asked |= starts.lasting if n_rounds <= LONGEST else frozenset()
    others = [trial for trial in ranked[1:] if trial.number in asked and _may_overtake(trial, ranked[0])]
    return [ranked[0], *others] if others else []


def _may_overtake(second: _Trial, first: _Trial) -> bool:
    left = left_to_gain(second.bounds)
    return left is None or second.bounds[-1] + left.gain > first.bounds[-1] + WORTH


def _records(starts: Starts, best: _Trial, ended: dict[int, _Trial]) -> tuple[StartRecord, ...]:
    names = starts.names or tuple(f"start {number}" for number in range(len(starts.candidates)))
    others = sorted(
        (t for t in ended.values() if t.number != best.number), key=lambda t: (-len(t.bounds), -t.bounds[-1])
    )
    return tuple(StartRecord(names[t.number], len(t.bounds), t.bounds[-1]) for t in (best, *others))
