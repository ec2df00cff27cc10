"""`inference_`: one line, the inference first and its schedule after a comma, the same wherever a fit is shown."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import natgrad as ng
from natgrad.errors import NotConverged


def test_batches_are_counted_in_passes_and_partial_fits_in_steps() -> None:
    X = np.random.default_rng(0).normal(size=(25_000, 2)) + np.arange(25_000)[:, None] % 2 * 9.0
    model = ng.GaussianMixture(2, max_passes=2, tol=0, verbose=False).fit(X)
    assert model.inference_ == "VB, memoised, 2 passes"
    model.partial_fit(X[:100])
    assert model.inference_ == "VB, memoised, 2 passes, then 1 step of partial_fit"
    assert ng.GaussianMixture(2).partial_fit(X[:100]).partial_fit(X[100:200]).inference_ == "VB, 2 steps of partial_fit"


def test_tolerance_and_what_is_left_are_in_one_unit() -> None:
    """It said 5.9e-06 left to gain, of an observation, where the limit in all was 3e-4."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    with pytest.warns(NotConverged) as seen:
        ng.GaussianMixture(4, n_init=1, max_passes=8, tol=1e-9, verbose=False).fit(X)
    words = str(seen[0].message)
    limit = re.search(r"tol = 1e-09 for each of 300 observations, ([^ ]+) nats", words)
    left = re.search(r"about ([^ ]+) nats left to gain", words)
    assert limit is not None
    assert left is not None
    assert float(limit[1]) == pytest.approx(300e-9, rel=0.05)
    assert float(left[1]) > float(limit[1])


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (ng.GaussianMixture, "random_state", "seed"),
        (ng.GaussianMixture, "n_component", "n_components"),
        (ng.GaussianMixture, "covariance_type", "covariance"),
        (ng.GaussianHMM, "max_pass", "max_passes"),
        (ng.GaussianHMM, "random_state", "seed"),
        (ng.LDA, "n_topic", "n_topics"),
        (ng.MatrixFactorization, "max_step", "max_steps"),
        (ng.SparseGPRegressor, "n_inducin", "n_inducing"),
        (ng.recommenders.ContextFactorization, "n_factor", "n_factors"),
        (ng.topics.AuthorTopics, "num_topics", "n_topics"),
    ],
)
def test_a_setting_that_is_not_there_names_the_one_that_was_meant(kind, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) has no argument '{name}': did you mean {meant}="):
        kind(**{name: 1})


def test_more_components_than_rows_and_more_states_than_times_warn() -> None:
    X = np.random.default_rng(0).normal(size=(5, 2))
    with pytest.warns(UserWarning, match="10 components for 5 rows"):
        ng.GaussianMixture(10).fit(X)
    with pytest.warns(UserWarning, match="2 states for 1 time"):
        ng.GaussianHMM(2).fit(X[:1])


def test_a_sequence_of_one_column_may_be_an_array_or_a_series() -> None:
    rng = np.random.default_rng(0)
    for kind, X in (
        (ng.GaussianHMM, rng.normal(size=40)),
        (ng.PoissonHMM, rng.poisson(3, 40)),
        (ng.BernoulliHMM, rng.integers(0, 2, 40)),
        (ng.HMM, rng.normal(size=40)),
    ):
        table = kind(2, n_init=1, max_passes=3, tol=0).fit(X[:, None])
        for given in (X, pd.Series(X, name="level")):
            model = kind(2, n_init=1, max_passes=3, tol=0).fit(given)
            assert model.elbo_ == table.elbo_
            np.testing.assert_array_equal(model.predict(given), table.predict(X[:, None]))
            assert model.score(given) == table.score(X[:, None])
