"""Draws of hundreds of tiny random networks against their exact posteriors, by enumeration and on a grid."""

import numpy as np
import pytest
from generators.build import build
from generators.checks import REFUSALS
from generators.evidence import Evidence, log_evidence
from generators.generator import draw

N_FAST, N_SLOW, BATCHES = 100, 2_000, 25


def check(seed: int, n: int) -> bool:
    """Whether the posterior is known and the network was accepted; raises where draws are from another distribution."""
    found = log_evidence(declaration := draw(seed))
    if found is None:
        return False
    try:
        fit = build(declaration).fit(backend="numpy", verbose=False, max_steps=30, init="random")
    except REFUSALS:
        return False
    draws = fit.draws(n, chains=2, warmup=50, starts="q", verbose=False)
    assert isinstance(found, Evidence)
    for (name, place), wanted in found.means.items():
        values = draws[name].values[(slice(None), slice(None), *place)]
        told = np.stack([values, values**2], -1) if wanted.shape == (2,) and values.dtype.kind == "f" else None
        told = (values[..., None] == np.arange(wanted.shape[-1])) * 1.0 if told is None else told
        means = told.reshape(2 * BATCHES, -1, *wanted.shape).mean(1)
        spread = means.std(0, ddof=1) / np.sqrt(2 * BATCHES)
        # Six standard errors by batches, and what no draw has told: a value that would be in six of them.
        slack = 6 * spread + (6.0 / (2 * n) if values.dtype.kind != "f" else 1e-3 * np.abs(wanted))
        assert (np.abs(means.mean(0) - wanted) <= slack).all(), (seed, name, place, means.mean(0), wanted, spread)
    return True


def checked(first: int, wanted: int, n: int) -> None:
    """Seeds from the first on, until so many networks were tried."""
    tried, seed = 0, first
    while tried < wanted:
        tried += check(seed, n)
        seed += 1
    assert seed - first < 20 * wanted


def test_draws_are_those_of_the_exact_posterior():
    checked(60_000, N_FAST, 150)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_draws_are_those_of_the_exact_posterior(part):
    checked(70_000 + 2_000 * part, N_SLOW // 20, 4_000)
