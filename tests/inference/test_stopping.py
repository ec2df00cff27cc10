"""What "converged" promises, on networks and ready models: ten times as long gains less than the tolerance."""

import pytest
from promises.stopping import MODELS

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
