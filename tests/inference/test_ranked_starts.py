"""Which start a run goes on from, where several reach the same optimum."""

import math

from natgrad.inference.problem import State
from natgrad.inference.starts import Starts, _ranked, _Trial, best_start
from natgrad.inference.steppers.stepper import StepInfo


def trials(*bounds: float) -> list[_Trial]:
    return [_Trial(number, lambda: None, (bound,)) for number, bound in enumerate(bounds)]  # type: ignore[arg-type,return-value]


def numbers(*bounds: float) -> list[int]:
    return [trial.number for trial in _ranked(trials(*bounds))]


def test_equal_but_for_rounding_is_in_the_order_in_which_it_was_given():
    low = -3661.19908547698
    assert numbers(low - 7e-12, low, low + 4e-13) == [0, 1, 2]
    assert numbers(low, low + 1e-3, low + 1e-3 + 1e-12) == [1, 2, 0]


def test_what_differs_is_ranked_and_what_diverged_is_last():
    assert numbers(-3.0, -math.inf, -1.0, -2.0, -math.inf) == [2, 3, 0, 1, 4]
    assert numbers(-math.inf, -math.inf) == [0, 1]


def test_a_chain_of_small_differences_is_no_tie():
    # Each is within rounding of the next, not of the first.
    step = 0.8e-10
    assert numbers(-1.0 - 3 * step, -1.0 - 2 * step, -1.0 - step, -1.0) == [2, 3, 0, 1]


class Counting:
    """A stepper whose bound is the number of its steps; all steps of all candidates are counted."""

    monotone, steps_per_pass, batches = True, 1, 1
    taken = 0

    def step(self, state, seed):
        self.taken += 1
        return state._replace(t=state.t + 1), StepInfo({}, 1.0, 7, float(state.t))

    def finish(self, state):
        return state


def test_when_time_is_up_only_the_first_start_takes_a_step():
    """All candidates took all steps of a round before anybody looked at the clock."""
    counting = Counting()
    made = []

    def candidate(number):
        return lambda: made.append(number) or State({}, {}, 0)

    for late_after, steps in ((0, 1), (2, 3)):
        counting.taken, asked = 0, iter(range(100))
        starts = Starts([candidate(n) for n in range(5)], lambda number: counting, (4, 4), lambda state: state)
        best = best_start(starts, 0, lambda: next(asked) >= late_after)  # noqa: B023
        assert counting.taken == best.state.t == steps
        assert best.read == 7 * steps
        assert set(made) == {0}
        assert [record.bound for record in best.records[1:]] == [-math.inf] * 4
