"""Which start a run goes on from, where several reach the same optimum."""

import math

from natgrad.inference.starts import _ranked, _Trial


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
