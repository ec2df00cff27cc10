"""Chains, tables, sticks, summed rates and augmented leaves in random networks: the bound is the evidence, or no higher."""

import numpy as np
import pytest
from generators.newer import draw

import natgrad as ng


def check(seed: int, backend: str = "numpy") -> None:
    parts = draw(seed)
    evidence, exact = sum(part.evidence for part in parts), all(part.exact for part in parts)
    fit = ng.Network(*(part.leaf for part in parts)).fit(backend=backend, tol=1e-9)
    rounding = 1e-10 * (1.0 + abs(fit.elbo))
    assert np.diff(fit.trace["elbo"]).min(initial=0.0) >= -rounding, seed
    # Quadrature by equal shares of the prior is right to 1e-3 nats here.
    assert fit.elbo <= evidence + (rounding if exact else 2e-3), seed
    # What a factorised q, or a bound of a leaf, leaves open: less than a nat for each of at most four parts and four rows.
    assert fit.elbo >= evidence - (rounding if exact else 4.0), seed
    parts_of_it = fit.elbo_by_node()
    assert sum(parts_of_it.values()) == pytest.approx(fit.elbo, rel=1e-10, abs=1e-10)
    other = ng.Network(*(part.leaf for part in reversed(parts))).fit(backend=backend, tol=1e-9)
    assert other.elbo == pytest.approx(fit.elbo, abs=1e-7), seed


def test_bounds_are_the_evidence_or_no_higher():
    for seed in range(20):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(20, 2020, 100))
def test_many_bounds_are_the_evidence_or_no_higher(start):
    for seed in range(start, start + 100):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_compiled_bounds_are_the_evidence_or_no_higher(seed):
    check(seed, "jax")
