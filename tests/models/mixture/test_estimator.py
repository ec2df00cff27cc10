"""`GaussianMixture` as an estimator: streams, files, threads, checkpoints, odd data, and errors that help."""

from __future__ import annotations

import numpy as np
import pytest

import natgrad as ng
from natgrad.models import hmm

RNG = np.random.default_rng(0)
CENTRES = np.array([[-5.0, 0.0], [5.0, 1.0], [0.0, 8.0]])
X = CENTRES[RNG.integers(0, 3, 900)] + RNG.normal(size=(900, 2))


def quick(n: int = 3, **settings: object) -> ng.GaussianMixture:
    return ng.GaussianMixture(n, **{"n_init": 1, "verbose": False, **settings})


# -- data in every form --


# -- files --


# -- odd data --


def test_constant_columns_are_told() -> None:
    with pytest.warns(UserWarning, match=r"X\[:, 1\] does not vary"):
        quick().fit(np.column_stack([X[:50, 0], np.full(50, 7.0)]))


@pytest.mark.parametrize(
    ("settings", "data", "error"),
    [
        ({"n_components": 0}, X, "n_components must be a whole number ≥ 1, got 0"),
        ({"n_components": 2.5}, X, "n_components must be a whole number"),
        ({"covariance": "round"}, X, 'covariance must be "full", "diag", "tied" or "spherical"'),
        ({"weight_prior": 0.0}, X, "weight_prior = 0 must be > 0"),
        ({"weight_prior": [1.0, 2.0]}, X, r"weight_prior must be finite, of shape \(\) or \(3,\)"),
        ({"covariance": hmm.Gaussian(mean_prior=[1.0])}, X, r"mean_prior must be finite, of shape \(2,\)"),
        ({"covariance": hmm.Gaussian(dof_prior=0.5)}, X, "dof = 0.5 must be > D − 1"),
        ({"covariance": hmm.Gaussian(scale_prior=[[1.0, 2.0], [2.0, 1.0]])}, X, "smallest eigenvalue of rate"),
        ({"covariance": hmm.Gaussian("diag", scale_prior=np.eye(2))}, X, "scale_prior must be finite, of shape"),
        ({"tol": -1.0}, X, "tol must be ≥ 0"),
        ({"n_init": 0}, X, "n_init must be a whole number ≥ 1"),
        ({"method": "vb"}, X, "method must be VB"),
        ({"method": ng.SVI({"doc": 5})}, X, "plate 'doc', and the groups are called 'row'"),
        ({}, X[:, 0], "2D array"),
        ({}, np.where(np.arange(1800).reshape(900, 2) == 7, np.inf, X), "inf"),
        ({"covariance": "diag"}, np.full((3, 2), np.nan), "nothing to fit to"),
        ({}, 1e200 * X, "give X in another unit"),
        ({}, "rows.txt", "only .npy and .parquet"),
    ],
)
def test_mistakes_are_named(settings, data, error) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        quick(settings.get("n_components", 3)).set_params(**settings).fit(data)


def test_groups_too_far_apart_for_their_width_are_an_error() -> None:
    far = np.concatenate([X[:50], X[:50] + 1e12])
    with pytest.raises(ValueError, match="so far apart, by their own width"):
        quick(2, covariance=hmm.Gaussian(scale_prior=np.eye(2), mean_scale=1e-9)).fit(far)


def test_weights_are_checked() -> None:
    for weight, error in (
        (-np.ones(900), r"sample_weight\[0\] = -1 must be finite and ≥ 0"),
        (np.ones(3), "one for each of 900 rows"),
        (np.zeros(900), "weight of zero"),
    ):
        with pytest.raises(ValueError, match=error):
            quick().fit(X, sample_weight=weight)


def test_what_is_refused_of_streams() -> None:
    with pytest.raises(ValueError, match="no sample_weight"):
        quick().fit(iter([X]), sample_weight=np.ones(900))
    with pytest.raises(ValueError, match="chunk 1 of the stream: X has 1 features"):
        quick().fit(iter([X[:50], X[50:, :1]]))


@pytest.mark.parametrize("model", [ng.GaussianMixture("auto", n_init=3), ng.GaussianHMM(("auto", 3), n_init=8)])
def test_starts_belong_to_a_number_that_is_given(model):
    with pytest.raises(
        ValueError, match=r"belongs to a number that is given, and n_\w+=\"auto\" begins with one start"
    ):
        model.fit(np.random.default_rng(0).normal(size=(30, 2)))
