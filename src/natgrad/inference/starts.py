"""Several starts in, the best one after some steps of each out: half of those that lead go on, then a quarter, ….

The steps are those of any run; what they read is counted by the run that begins with the best of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from natgrad.inference.problem import State
from natgrad.inference.steppers.stepper import Stepper

__all__ = ["Starts", "best_start"]


class Starts(NamedTuple):
    """Where a run may begin.

    Parameters
    ----------
    candidates : functions that make a state
    stepper : a function that makes the stepper of one candidate: threads share none
    rounds : steps of every candidate, and then of those that are left in each later round
    finish : the best state in, the one that the run begins with out
    n_threads : how many are tried at a time; the result does not depend on it
    """

    candidates: Sequence[Callable[[], State]]
    stepper: Callable[[], Stepper]
    rounds: tuple[int, int]
    finish: Callable[[State], State]
    n_threads: int = 1


def best_start(starts: Starts, seed: int, time_is_up: Callable[[], bool]) -> tuple[State, int]:
    """The best of some starts, and the messages that finding it took."""

    def improved(task: tuple[Callable[[], State], int]) -> tuple[State, float, int]:
        make, steps = task
        state, bound, read, stepper = make(), float("-inf"), 0, starts.stepper()
        for _ in range(steps):
            state, info = stepper.step(state, seed)
            bound, read = info.estimate if info.bound is None else info.bound, read + info.messages_read
        return state, bound, read

    total, tasks = 0, [(make, starts.rounds[0]) for make in starts.candidates]
    with ThreadPoolExecutor(starts.n_threads) as pool:
        while True:
            found = list(pool.map(improved, tasks)) if starts.n_threads > 1 else list(map(improved, tasks))
            total += sum(read for _, _, read in found)
            found.sort(key=lambda trial: -trial[1])
            if len(found) == 1 or time_is_up():
                return starts.finish(found[0][0]), total
            left = [state for state, _, _ in found[: len(found) // 2]]
            tasks = [((lambda state=state: state), starts.rounds[1]) for state in left]  # type: ignore[misc]
