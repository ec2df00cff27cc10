"""Categories by weights r_k / Σ_j r_j: independent Gammas are a Dirichlet, and the bound is below the evidence."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as sp

import natgrad as ng
from natgrad.errors import NotConjugate


def counted(network: ng.Network, **options) -> ng.Network:
    return network.fit(tol=1e-12, max_steps=400, **options)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_independent_gammas_have_the_means_of_a_dirichlet_whatever_their_rate(scale) -> None:
    rng = np.random.default_rng(0)
    n, y = ng.Plate("n", 50), rng.integers(0, 4, 50)
    r = ng.Gamma("r", [0.5, 1.0, 2.0, 0.2], scale, plate=ng.Plate("kind", 4))
    fit = counted(ng.Network(ng.Categorical("y", weights=r, plate=n, observed=y)))
    posterior = np.array([0.5, 1.0, 2.0, 0.2]) + np.bincount(y, minlength=4)
    assert np.allclose(fit["r"].mean() / fit["r"].mean().sum(), posterior / posterior.sum(), rtol=1e-6)
    assert np.allclose(fit["r"].parameters["shape"], posterior)
    prior = np.array([0.5, 1.0, 2.0, 0.2])
    evidence = (sp.gammaln(posterior) - sp.gammaln(prior)).sum() + sp.gammaln(prior.sum()) - sp.gammaln(posterior.sum())
    assert evidence - 5.0 < fit.elbo < evidence
    assert np.allclose(fit.predictive("y").probabilities()[0], posterior / posterior.sum(), atol=0.01)


def test_the_bound_is_that_of_the_augmented_model_written_out() -> None:
    """E log r_y − log Σ_j E[r_j] of each element, once u is at its best, minus KL(r)."""
    y = np.array([0, 2, 1, 1, 2, 2])
    r = ng.Gamma("r", 1.5, 2.0, plate=ng.Plate("kind", 3))
    fit = counted(ng.Network(ng.Categorical("y", weights=r, plate=ng.Plate("n", 6), observed=y)))
    factor = fit["r"]
    shape, rate = factor.parameters["shape"], factor.parameters["rate"]
    logs = sp.digamma(shape) - np.log(rate)
    kl = (shape - 1.5) * sp.digamma(shape) - sp.gammaln(shape) + sp.gammaln(1.5)
    kl += 1.5 * (np.log(rate) - np.log(2.0)) + shape * (2.0 - rate) / rate
    assert fit.elbo == pytest.approx(logs[y].sum() - 6 * np.log((shape / rate).sum()) - kl.sum(), abs=1e-8)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_hidden_categories_choose_weights_and_the_bound_never_falls(backend) -> None:
    rng = np.random.default_rng(1)
    n, topic, word = ng.Plate("n", 60, weight=rng.integers(1, 4, 60)), ng.Plate("topic", 2), ng.Plate("word", 5)
    first = ng.Gamma("first", 0.3, 1.5, plate=(topic, word))
    inverse = ng.Gamma("inverse", 5.0, 5.0 * first, plate=(topic, word))
    second = ng.Gamma("second", 5.0, 5.0 * inverse, plate=(topic, word))
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=2), plate=n)
    y = rng.integers(0, 5, 60)
    w = ng.Categorical("w", weights=second[z], plate=n, observed=y, mask=rng.random(60) < 0.9)
    network = ng.Network(w)
    fit = network.fit(max_steps=40, tol=0, seed=1, backend=backend)
    bounds = np.asarray(fit.trace["elbo"])
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    problem = network.problem_on(backend)
    assert problem.bound(fit.state) == pytest.approx(fit.elbo, rel=1e-12)
    assert network.fit(max_steps=40, tol=0, seed=1, backend="numpy").elbo == pytest.approx(fit.elbo, rel=1e-9)


def test_what_is_refused() -> None:
    n, kind = ng.Plate("n", 3), ng.Plate("kind", 2)
    r, x = ng.Gamma("r", 1.0, 1.0, plate=kind), ng.Normal("x", 0.0, 1.0, plate=kind)
    with pytest.raises((TypeError, ValueError), match="observed"):
        ng.Categorical("y", weights=r, plate=n)
    with pytest.raises((NotConjugate, TypeError), match="weights"):
        ng.Categorical("y", weights=x, plate=n, observed=[0, 1, 0])
    with pytest.raises(TypeError, match="weights must be random"):
        ng.Categorical("y", weights=[1.0, 2.0], plate=n, observed=[0, 1, 0])


@pytest.mark.slow
def test_draws_are_those_of_a_dirichlet() -> None:
    y, prior = [0, 0, 1, 2, 0, 0], np.array([2.0, 1.0, 0.5])
    r = ng.Gamma("r", prior, 1.0, plate=ng.Plate("kind", 3))
    fit = ng.Network(ng.Categorical("y", weights=r, plate=ng.Plate("n", 6), observed=y)).fit()
    values = np.asarray(fit.draws(5000, chains=2, verbose=False)["r"].values).reshape(-1, 3)
    shares = values / values.sum(1, keepdims=True)
    posterior = prior + np.bincount(y)
    total = posterior.sum()
    assert np.allclose(shares.mean(0), posterior / total, atol=0.01)
    spread = posterior * (total - posterior) / total**2 / (total + 1)
    assert np.allclose(shares.var(0), spread, rtol=0.1)
