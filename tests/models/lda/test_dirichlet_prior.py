"""Learned concentrations are the maximum, whatever the start; runaways stop at the border."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.models.lda.dirichlet_prior import RANGE, best_concentrations, best_symmetric, log_prior


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 12), start=st.floats(-2.5, 2.5))
def test_newton_finds_the_maximum_that_a_general_optimiser_finds(seed, size, start):
    rng = np.random.default_rng(seed)
    true = np.exp(rng.normal(-1.0, 1.0, size))
    # What VB hands over: E[log θ] under Dir(γ), not log θ.
    gamma = true + rng.multinomial(40, rng.dirichlet(true), 200)
    sums = (sp.digamma(gamma) - sp.digamma(gamma.sum(1, keepdims=True))).sum(0)
    found = best_concentrations(np.full(size, 10.0**start), sums, 200)
    wanted = scipy.optimize.minimize(
        lambda log: -log_prior(np.exp(log), sums, 200),
        np.zeros(size),
        jac=lambda log: -np.exp(log) * (200 * (sp.digamma(np.exp(log).sum()) - sp.digamma(np.exp(log))) + sums),
        method="L-BFGS-B",
        bounds=[tuple(np.log(RANGE))] * size,
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000},
    )
    assert log_prior(found, sums, 200) >= -wanted.fun - 1e-7 * abs(wanted.fun)
    inside = (found > 1.01 * RANGE[0]) & (found < 0.99 * RANGE[1])
    gradient = 200 * (sp.digamma(found.sum()) - sp.digamma(found)) + sums
    if inside.all():
        assert np.abs(gradient * found).max() < 1e-3 * 200


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("start", [1e-3, 0.1, 50.0])
def test_symmetric_newton_finds_the_maximum(shift, start):
    rng = np.random.default_rng(3)
    size, n, true = 40, 7, 0.3
    total = np.log(rng.dirichlet(np.full(size, true + shift), n)).sum()
    wanted = scipy.optimize.minimize_scalar(
        lambda log: -log_prior(np.full(size, np.exp(log) + shift), np.full(size, total / size), n),
        bounds=tuple(np.log(RANGE)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert best_symmetric(start, total, n, size, shift) == pytest.approx(np.exp(wanted.x), rel=1e-5)


def test_known_concentrations_are_recovered():
    true = np.array([0.05, 0.3, 1.0, 4.0])
    theta = np.random.default_rng(0).dirichlet(true, 20_000)
    sums = np.log(np.maximum(theta, 1e-300)).sum(0)
    # Standard errors of the estimates are below 1.5 % with 20 000 draws.
    np.testing.assert_allclose(best_concentrations(np.ones(4), sums, 20_000), true, rtol=0.05)


@pytest.mark.parametrize(
    ("sums", "n"),
    [
        (np.full(3, -1e12), 10.0),  # all mass at the corners
        (np.full(3, 100 * np.log(1 / 3)), 100.0),  # every document has the same shares: α wants to be infinite
        (np.array([-1e9, -1.0, -1e9]), 50.0),
        (np.zeros(3), 0.0),  # nothing seen
    ],
)
def test_hostile_sums_end_at_the_border_and_never_lower(sums, n):
    for start in (np.full(3, 1e-3), np.full(3, 0.1), np.full(3, 1e3)):
        found = best_concentrations(start, sums, n)
        assert np.isfinite(found).all()
        assert (found >= RANGE[0]).all()
        assert (found <= RANGE[1]).all()
        assert log_prior(found, sums, n) >= log_prior(start, sums, n)
        beta = best_symmetric(float(start[0]), float(sums.sum()), n, 3)
        assert RANGE[0] <= beta <= RANGE[1]


def test_a_start_outside_the_range_is_kept_if_it_is_better():
    sums = np.full(3, 100 * np.log(1 / 3))
    start = np.full(3, 1e5)
    assert log_prior(best_concentrations(start, sums, 100.0), sums, 100.0) >= log_prior(start, sums, 100.0)
