"""`inference="gibbs"` of mixtures and hidden Markov models: who predicts, what an update may move, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.models import hmm

pytestmark = pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
RNG = np.random.default_rng(0)
STATE = np.repeat([0, 1, 0, 1], 40)
LEVEL = 4.0 * STATE[:, None] + RNG.normal(size=(160, 2))
FLAGS = (RNG.random((160, 2)) < 0.2 + 0.6 * STATE[:, None]).astype(int)
MODELS: dict[str, tuple[Any, Any]] = {
    "GaussianMixture": (ng.GaussianMixture, LEVEL),
    "GaussianHMM": (ng.GaussianHMM, LEVEL),
    "CategoricalHMM": (ng.CategoricalHMM, FLAGS[:, :1]),
    "PoissonHMM": (ng.PoissonHMM, 5 * FLAGS),
    "BernoulliHMM": (ng.BernoulliHMM, FLAGS),
    "HMM": (lambda *n, **settings: hmm.HMM(*n, emissions={0: hmm.Gaussian(), 1: hmm.StudentT()}, **settings), LEVEL),
}


def fitted(name: str, **settings: Any) -> tuple[Any, Any]:
    kind, X = MODELS[name]
    return kind(2, **{"inference": "gibbs", "n_sweeps": 40, "n_init": 2, "verbose": False, **settings}).fit(X), X


@pytest.mark.parametrize("name", MODELS)
def test_all_that_a_sampled_fit_publishes_is_of_its_draws(name: str) -> None:
    model, X = fitted(name)
    assert model.inference_ == "Gibbs from a VB start, 40 sweeps of 4 chains (mean of the last 20)"
    assert model.inference_ in str(model.stop_)
    assert model.posterior_ is model.draws_
    assert np.isnan(model.elbo_)
    weights = "weights" if name == "GaussianMixture" else "transition"
    mean = getattr(model, "weights_" if name == "GaussianMixture" else "transmat_")
    np.testing.assert_allclose(mean, model.draws_[weights].values.mean((0, 1)), rtol=1e-10)
    if hasattr(model, "means_"):
        np.testing.assert_allclose(model.means_, model.draws_["means"].values.mean((0, 1)), rtol=1e-8, atol=1e-10)
    vb, _ = fitted(name, inference="vb", n_sweeps=None)
    assert np.abs(model.predict_proba(X) - vb.predict_proba(X)).mean() < 0.05


@pytest.mark.parametrize("name", MODELS)
def test_what_needs_q_refuses_and_an_update_samples_again(name: str) -> None:
    model, X = fitted(name)
    before = model.predict_proba(X)
    for call in ("partial_fit", "linear_response"):
        with pytest.raises((TypeError, ValueError), match="gibbs"):
            getattr(model, call)(X)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    model.update(X[:50])
    assert model.inference_.startswith("Gibbs")
    assert model.posterior_ is model.draws_
    model.set_params(inference="vb", n_sweeps=None).fit(X)
    assert model.inference_.startswith("VB")
    assert not hasattr(model, "draws_")


@pytest.mark.parametrize("name", MODELS)
def test_arguments_of_the_other_inference_are_errors(name: str) -> None:
    kind, X = MODELS[name]
    with pytest.raises(ValueError, match=r'n_sweeps=50 belongs to inference="gibbs"'):
        kind(2, n_sweeps=50).fit(X)
    with pytest.raises(ValueError, match=r"executor=.* samples in this process"):
        kind(2, inference="gibbs", executor=object()).fit(X)
    with pytest.raises(ValueError, match="a stream is read and let go"):
        kind(2, inference="gibbs").fit(iter([X]))
    with pytest.raises(ValueError, match='inference must be "vb" or "gibbs"'):
        kind(2, inference="mcmc").fit(X)


def test_predictions_of_a_sampled_mixture_are_the_means_over_draws() -> None:
    model, X = fitted("GaussianMixture", covariance="spherical", n_sweeps=20)
    weights, means, variances = (model.draws_[name].values for name in ("weights", "means", "covariances"))
    weights, means, variances = (a.reshape(-1, *a.shape[2:]) for a in (weights, means, variances.reshape(4, 10, 2)))
    distance = ((X[None, :, None] - means[:, None]) ** 2).sum(-1)
    joint = weights[:, None] * np.exp(-0.5 * distance / variances[:, None]) / (2 * np.pi * variances[:, None])
    np.testing.assert_allclose(model.predict_proba(X), (joint / joint.sum(-1, keepdims=True)).mean(0), atol=1e-8)
    np.testing.assert_allclose(model.score_samples(X), np.log(joint.sum(-1).mean(0)), atol=1e-8)
