"""Default fits of random networks: never below exact sweeps from the same start, and their bound never falls."""

import numpy as np
import pytest
from generators.build import build
from generators.checks import REFUSALS
from generators.generator import draw

import natgrad as ng


def check(seed: int) -> bool:
    """Whether the network was accepted; raises where its default fit is lower than exact sweeps, or fell on its way."""
    try:
        network = build(draw(seed)).with_joint("auto")
        fits = [network.fit(method, backend="numpy", verbose=False) for method in (None, ng.VB())]
    except (*REFUSALS, ng.errors.SymmetricStart):
        return False
    for fit in fits:
        rounding = 1e-9 * (1.0 + abs(fit.elbo))
        assert np.diff(fit.trace["elbo"]).min(initial=0.0) >= -rounding, seed
    default, exact = (fit.elbo for fit in fits)
    assert default >= exact - 2e-3, (seed, default, exact)  # each is within its tolerance, 1e-3 nats
    return True


def test_defaults_are_no_lower_than_exact_sweeps():
    assert sum(check(seed) for seed in range(40_000, 40_060)) >= 45


@pytest.mark.slow
@pytest.mark.parametrize("start", range(41_000, 43_000, 100))
def test_many_defaults_are_no_lower_than_exact_sweeps(start):
    for seed in range(start, start + 100):
        check(seed)
