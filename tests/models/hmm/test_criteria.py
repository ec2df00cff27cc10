"""How many states, which paths, and what states emit, by name."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.models import hmm


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(0)
    return rng.normal(np.repeat([0.0, 3.0, 0.0, 3.0], 40), 1.0)[:, None]


@pytest.fixture(scope="module")
def model(series):
    return ng.GaussianHMM(2, seed=0).fit(series)


def test_sampled_paths_have_the_probabilities_of_the_states(model, series):
    paths = model.sample_paths(series, [100, 60], n=3000, seed=1)
    assert paths.shape == (3000, 160)
    expected = model.predict_proba(series, [100, 60])
    seen = np.stack([(paths == k).mean(0) for k in range(2)], axis=1)
    # A share of 3,000 draws has a standard deviation of at most 0.0092; of 320 of them the largest is within five.
    assert np.abs(seen - expected).max() < 0.046
    # Pairs are those of one path, not of two marginals: states last.
    stays = (paths[:, 1:100] == paths[:, :99]).mean()
    assert stays == pytest.approx(np.diag(model.transmat_) @ expected.mean(0), abs=0.03)
    np.testing.assert_array_equal(model.sample_paths(series, n=2, seed=3), model.sample_paths(series, n=2, seed=3))


def test_information_criteria_count_free_parameters(model, series):
    log_p = model.score(series)
    assert model.n_parameters_ == 1 + 2 + 2 * (1 + 1)
    assert model.aic(series) == pytest.approx(-2 * log_p + 2 * 7)
    assert model.bic(series) == pytest.approx(-2 * log_p + 7 * np.log(160))
    wide = np.hstack([series, series[::-1], -series])
    full = ng.GaussianHMM(2, n_init=1, max_passes=2).fit(wide)
    assert full.n_parameters_ == 3 + 2 * (3 + 6)
    diagonal = ng.GaussianHMM(3, covariance="diag", n_init=1, max_passes=2).fit(wide)  # K = D: not taken for matrices
    assert diagonal.n_parameters_ == 2 + 6 + 3 * (3 + 3)
    path = ng.GaussianHMM(3, transitions=hmm.Transitions(topology="left-to-right"), n_init=1, max_passes=2).fit(series)
    assert path.n_parameters_ == 0 + 2 + 3 * 2


def test_emissions_by_name(model, series):
    found = model.emission_parameters()
    assert {name: values.shape for name, values in found.items()} == {"means": (2, 1), "covariances": (2, 1, 1)}
    counts = np.random.default_rng(0).poisson(np.repeat([1, 8], 30))[:, None]
    quick = {"n_init": 1, "max_passes": 2}
    assert list(ng.PoissonHMM(2, **quick).fit(counts).emission_parameters()) == ["rates"]
    symbols = ng.CategoricalHMM(2, **quick).fit(np.minimum(counts, 3))
    assert symbols.emission_parameters()["probabilities"].shape == (2, 4)
    assert symbols.n_parameters_ == 3 + 2 * 3
    tracks = ng.BernoulliHMM(2, **quick).fit((counts > 3).astype(int))
    assert tracks.n_parameters_ == 3 + 2
