"""A fit that a limit has ended before it converged is a warning, at the user's own line; scikit-learn's, where that is used."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import natgrad as ng
from natgrad.errors import LostDigits, NotConverged

MODELS = {
    "LDA": (lambda **limit: ng.LDA(2, inference="vb", **{"max_passes": 1, **limit}), 1),
    "GaussianMixture": (lambda **limit: ng.GaussianMixture(2, **{"max_passes": 1, **limit}), 1),
    "GaussianHMM": (lambda **limit: ng.GaussianHMM(2, n_init=1, **{"max_passes": 1, **limit}), 1),
    "PoissonHMM": (lambda **limit: ng.PoissonHMM(2, n_init=1, **{"max_passes": 1, **limit}), 1),
    "MatrixFactorization": (lambda **limit: ng.MatrixFactorization(2, **{"max_steps": 1, **limit}), 1),
    "SparseGPRegressor": (lambda **limit: ng.SparseGPRegressor(n_inducing=3, **{"max_steps": 2, **limit}), 2),
    "SparseGPClassifier": (lambda **limit: ng.SparseGPClassifier(n_inducing=3, **{"max_steps": 2, **limit}), 2),
}


def data_for(name, rng):
    X = rng.poisson(1.0, (30, 4)).astype(float) + (0.0 if name in ("LDA", "PoissonHMM") else rng.normal(size=(30, 4)))
    return (X, (X[:, 0] > 1).astype(int)) if name.startswith("SparseGP") else (X,)


@pytest.mark.parametrize("name", MODELS)
def test_an_estimator_warns_as_scikit_learn_does(name, rng):
    make, _ = MODELS[name]
    data = data_for(name, rng)
    with pytest.warns(ConvergenceWarning, match="the fit has not converged: stopped at max_") as seen:
        model = make(tol=1e-12).fit(*data)
    assert [warning.filename for warning in seen] == [__file__]
    assert issubclass(seen[0].category, NotConverged)
    assert str(model.stop_) in str(seen[0].message)
    if hasattr(model, "continue_fit"):
        with pytest.warns(ConvergenceWarning, match="not converged"):
            model.continue_fit(*(() if name == "MatrixFactorization" else data))


@pytest.mark.parametrize("name", MODELS)
def test_what_asks_for_so_many_steps_is_silent(name, rng):
    make, _ = MODELS[name]
    data = data_for(name, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(tol=0.0).fit(*data)
        make().partial_fit(*data)


def test_a_warning_that_is_an_error_leaves_the_fit(rng):
    model = ng.LDA(2, inference="vb", max_passes=1, tol=1e-12)
    counts = rng.poisson(1.0, (30, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning):
            model.fit(counts)
    assert model.components_.shape == (2, 4)


def test_streams_warn_only_if_they_could_be_read_again(rng):
    chunks = [rng.normal(size=(20, 2)) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ng.GaussianMixture(2).fit(iter(chunks))
    with pytest.warns(ConvergenceWarning, match="stopped at max_passes = 2 before the bound converged"):
        ng.GaussianMixture(2, max_passes=2, tol=1e-12).fit(chunks)


def network():
    n = ng.Plate("n", 5)
    mean, precision = ng.Normal("mean", 0.0, 1.0), ng.Gamma("precision", 1.0, 1.0)
    return ng.Network(ng.Normal("y", mean, precision, plate=n, observed=np.arange(5.0)))


def test_networks_warn_too():
    with pytest.warns(
        NotConverged, match=r"stopped at max_steps = 1 .* raise max_steps, or call continue_fit\(\)"
    ) as seen:
        fit = network().fit(max_steps=1)
    assert [warning.filename for warning in seen] == [__file__]
    with pytest.warns(NotConverged, match="max_seconds"):
        network().fit(max_seconds=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit.continue_fit().stop.converged
        network().fit(max_steps=1, tol=0)


def test_a_fit_that_diverges_is_a_warning_with_advice(rng):
    """A column at 1e9 beside an intercept, with flat priors: the matrix has no inverse in double precision."""
    n = 200
    x = rng.normal(size=n)
    rows = np.column_stack([1e9 + x, np.ones(n)])
    w = ng.MultivariateNormal("w", np.zeros(2), 1e-30 * np.eye(2))
    y = ng.Normal("y", ng.dot(rows, w), ng.Gamma("tau", 1.0, 1.0), plate=ng.Plate("n", n), observed=3.0 * x)
    words = "has not converged: diverged at step 1 .*centre the columns of data"
    with pytest.warns(LostDigits), pytest.warns(NotConverged, match=words) as seen:  # of the column before the fit, too
        fit = ng.Network(y).fit()
    assert fit.stop.diverged
    assert [warning.filename for warning in seen if warning.category is not LostDigits] == [__file__]
