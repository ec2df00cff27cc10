"""Importance weights of a fit: constant where q is exact, the bound in the mean, and a warning where q is far off."""

import numpy as np
import pytest
import scipy.stats

import natgrad as ng
from natgrad.errors import PoorApproximation

pytest.importorskip("arviz_stats")


def test_weights_of_the_exact_posterior_are_the_evidence():
    x = np.random.default_rng(0).normal(1.0, 1.0, 12)
    mu = ng.Normal("mu", 0.5, 2.0)
    fit = ng.Network(ng.Normal("x", mu, 3.0, plate=ng.Plate("n", 12), observed=x)).fit()
    found = fit.psis(n=100)
    evidence = scipy.stats.multivariate_normal(np.full(12, 0.5), np.eye(12) / 3 + 0.5).logpdf(x)
    np.testing.assert_allclose(found.log_weights, evidence, rtol=1e-9)
    assert found.log_evidence == pytest.approx(evidence, rel=1e-9)
    assert found.k_hat < 0.7
    assert found.effective == pytest.approx(100)


def test_the_mean_log_weight_is_the_bound_and_the_evidence_is_above_it():
    x = np.random.default_rng(1).normal(3.0, 2.0, 20)
    mu, tau = ng.Normal("mu", 0.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
    fit = ng.Network(ng.Normal("x", mu, tau, plate=ng.Plate("n", 20), observed=x)).fit(tol=1e-12)
    found = fit.psis(n=1000)
    error = found.log_weights.std() / 1000**0.5
    assert abs(found.log_weights.mean() - fit.elbo) < 4 * error
    assert fit.elbo < found.log_evidence < fit.elbo + 1.0
    assert found.k_hat < 0.7


def test_a_poor_approximation_is_told():
    # Scalars that only their sum is known of: their posterior is a thin pancake, and q a small ball in it.
    part = ng.Plate("part", 12)
    w = ng.Normal("w", 0.0, 1.0, plate=part)
    total = ng.dot(np.ones((1, 12)), w, over=part)
    fit = ng.Network(ng.Normal("y", total, 1e4, plate=ng.Plate("n", 1), observed=np.array([3.0]))).fit()
    with pytest.warns(PoorApproximation, match=r"k̂ = .* > 0.7"):
        assert fit.psis().k_hat > 0.7
    with pytest.raises(ValueError, match="n must be"):
        fit.psis(n=3)
