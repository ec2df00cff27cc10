"""What "converged" promises, on the models of ``benchmarks/stopping.py``: ten times as long gains less than the tolerance."""

import pytest
from stopping_models import MODELS

QUICK = ["tests: scalar_mixture", "tests: counts", "tests: hmm"]
# Plain coordinate ascent, whose plateaus gauge rotation would cross: it says itself that all steps were taken.
SLOW = {"MatrixFactorization, plain sweeps"}


def promised(name):
    found = MODELS[name]()
    assert found.converged != (name in SLOW), found
    assert found.loss <= found.tolerance or name in SLOW, found


@pytest.mark.parametrize("name", QUICK)
def test_ten_times_as_long_gains_less_than_the_tolerance(name):
    promised(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(MODELS) - set(QUICK)))
def test_ten_times_as_long_gains_less_than_the_tolerance_everywhere(name):
    promised(name)


def test_a_first_step_of_no_length_says_nothing() -> None:
    """After a move the first line may be a step that went nowhere: the rate is that of the steps whose gain was seen."""
    from natgrad.inference.monitor import _unseen

    gains, moves = [0.0, 398.0, 1e-11, 5.3, 6e-13, 5e-13], [0.0, 7e-8, 3e-9, 4e-9, 5e-16, 2e-16]
    found = _unseen(gains, moves, 6e-11)
    assert found is not None
    assert found > 0
    assert _unseen([0.0] * 4, [0.0, 3e-9, 2e-9, 1e-9], 1e-11) is None
