"""Predictions for new data, and what a factor answers."""

import numpy as np
import pytest
from scipy import stats

import natgrad as ng


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(0)
    design = rng.normal(size=(60, 3))
    y = design @ [1.0, -2.0, 0.5] + 0.4 * rng.normal(size=60)
    w = ng.MultivariateNormal("w", np.zeros(3), np.eye(3))
    tau = ng.Gamma("tau", 1.0, 1.0)
    node = ng.Normal("y", ng.dot(design, w), tau, plate=ng.Plate("n", 60), observed=y)
    return w, ng.Network(node).fit(tol=1e-12), design, y


def test_regression_predicts_new_rows_in_closed_form(regression):
    w, fit, _, _ = regression
    new = np.random.default_rng(1).normal(size=(7, 3))
    p = fit.predictive("y", mean=ng.dot(new, w))
    np.testing.assert_allclose(p.mean(), new @ fit["w"].mean(), rtol=1e-12)
    covariance = np.linalg.inv(fit["w"].parameters["precision"])
    q = fit["tau"].parameters
    variance = np.einsum("ni,ij,nj->n", new, covariance, new) + q["rate"] / (q["shape"] - 1)
    np.testing.assert_allclose(p.var(), variance, rtol=1e-10)
    draws = p.sample(0, 20_000)
    assert draws.shape == (20_000, 7)
    # Standard errors of a mean and of a standard deviation over 20 000 draws are 0.7 % and 0.5 % of the spread.
    np.testing.assert_allclose(draws.mean(0), p.mean(), atol=0.04 * p.std().max())
    np.testing.assert_allclose(draws.std(0), p.std(), rtol=0.03)
    low, high = p.interval(0.9)
    assert (low < p.mean()).all()
    assert (high > p.mean()).all()


def test_log_density_is_that_of_the_mixture_of_draws(regression):
    w, fit, design, y = regression
    p = fit.predictive("y", mean=ng.dot(design[:5], w))
    # Close to the density with the posterior means plugged in, since 60 rows determine three weights well.
    plug = stats.norm.logpdf(y[:5], design[:5] @ fit["w"].mean(), 1 / np.sqrt(fit["tau"].mean()))
    np.testing.assert_allclose(p.log_density(y[:5], n=2000), plug, atol=0.3)


def test_new_gathers():
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 5, 80), rng.integers(0, 4, 80)
    u = ng.MultivariateNormal("u", np.zeros(2), np.eye(2), plate=ng.Plate("user", 5))
    v = ng.MultivariateNormal("v", np.zeros(2), np.eye(2), plate=ng.Plate("item", 4))
    r = ng.Normal("r", ng.dot(u[users], v[items]), 2.0, plate=ng.Plate("n", 80), observed=rng.normal(size=80))
    fit = ng.Network(r).fit(init="random", max_steps=20)
    p = fit.predictive("r", mean=ng.dot(u[[0, 4]], v[[3, 3]]))
    mu, mv = fit["u"].mean(), fit["v"].mean()
    np.testing.assert_allclose(p.mean(), [mu[0] @ mv[3], mu[4] @ mv[3]], rtol=1e-12)


def test_new_points_of_a_mixture_get_categories_of_their_own():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(300) < 0.3, -4.0, 2.0) + 0.5 * rng.normal(size=300)
    n, k = ng.Plate("n", 300), ng.Plate("k", 2)
    z = ng.Categorical("z", ng.Dirichlet("weights", 1.0, size=2), plate=n)
    mu = ng.Normal("mu", 0.0, 0.01, plate=k)
    node = ng.Normal("y", mu[z], ng.Gamma("tau", 1.0, 1.0), plate=n, observed=y)
    fit = ng.Network(node).fit(init="kmeans")
    draws = fit.predictive("y", sizes={n: 4000}).sample(np.random.default_rng(1))
    assert draws.shape == (4000,)
    # The share of the left component in 4 000 draws, known to 0.7 % (one standard error), plus its posterior's 2.6 %.
    assert (draws < -1).mean() == pytest.approx((y < -1).mean(), abs=0.1)


def test_predicting_leaves_the_network_as_it_was(regression):
    w, fit, design, y = regression
    fit.predictive("y", mean=ng.dot(design[:5], w), sizes={"n": 5}).sample()
    assert fit.predictive("y").mean().shape == (60,)
    stranger = ng.MultivariateNormal("w", np.zeros(3), np.eye(3))
    with pytest.raises(ValueError, match="'w' is not a node of this network"):
        fit.predictive("y", mean=ng.dot(design, stranger))
    with pytest.raises(ng.errors.PlateMismatch, match=r"values have shape \(3,\), but \(60,\) is needed"):
        fit.predictive("y").log_density(y[:3])
    with pytest.raises(TypeError, match="sizes maps plates"):
        fit.predictive("y", sizes=3)
    with pytest.raises(ValueError, match="whole number of draws"):
        fit.predictive("y").sample(0, 0)


def _samplers():
    """Everything with ``sample(rng, n)``, by what it is."""
    at, noise = np.arange(60.0), np.random.default_rng(0).normal(size=60)
    y = ng.Normal("y", ng.Normal("m", 0.0, 1.0), 1.0, plate=ng.Plate("n", 3), observed=[0.3, -1.0, 2.0])
    fit = ng.Network(y).fit(verbose=False)
    draws, lr = fit.draws(250, verbose=False), fit.linear_response()
    process = ng.StateSpaceGP().fit(at, 3 * np.sin(at / 9) + noise).linear_response()
    return {
        "factor": fit["m"], "predictive": fit.predictive("y"), "draws": draws["m"], "predictive of draws": draws.predictive("y"),
        "response": lr, "its factor": lr["m"], "process": process,
    }  # fmt: skip


def test_a_bare_number_is_neither_a_seed_nor_a_count():
    """`sample(1000)` was one draw with the seed 1000, where everybody, and every ready model, means a thousand draws."""
    for name, what in _samplers().items():
        with pytest.raises(
            TypeError, match=r"sample\(n=1000\), sample\(1000, n=1\), or sample\(np.random.default_rng\(1000\)\)"
        ):
            what.sample(1000)
        with pytest.raises(ValueError, match="n must be a whole number of draws ≥ 1"):
            what.sample(n=0)
        some, again = what.sample(7, 5), what.sample(np.random.default_rng(7), n=5)
        if isinstance(some, dict):
            some, again = (next(iter(part.values())) for part in (some, again))
        assert len(some) == 5, name
        np.testing.assert_array_equal(some, again)


def test_draws_predict_from_the_missing_values_that_they_have():
    """Where a node was observed in part, predictions from draws took 0 for what was missing, and for certain."""
    plate = ng.Plate("n", 3)
    x = ng.Normal("x", 0.0, 0.01, plate=plate, observed=[1.0, np.nan, 3.0])
    fit = ng.Network(ng.Normal("y", 2.0 * x, 4.0, plate=plate, observed=[2.1, 10.0, 6.1])).fit(verbose=False)
    predicted = fit.draws(n=1000, verbose=False).predictive("y")
    precision = 0.01 + 2.0**2 * 4.0  # of x[1] given y[1]
    exact = 2.0 * np.array([1.0, 2.0 * 4.0 * 10.0 / precision, 3.0])
    spread = np.sqrt(0.25 + 2.0**2 * np.array([0.0, 1.0 / precision, 0.0]))
    np.testing.assert_allclose(predicted.mean(), exact, atol=5 * 0.5 / np.sqrt(2000))
    np.testing.assert_allclose(predicted.std(), spread, rtol=0.05)


def test_data_that_are_read_must_be_as_many_as_are_predicted():
    """The error was one of NumPy about operands that cannot be broadcast."""
    plate = ng.Plate("n", 3)
    x = ng.Normal("x", 0.0, 1.0, plate=plate, observed=[1.0, 2.0, 3.0])
    b = ng.Normal("b", 0.0, 1.0)
    fit = ng.Network(ng.Normal("y", b * x, 1.0, plate=plate, observed=[2.0, 4.0, 6.0])).fit(verbose=False)
    with pytest.raises(
        ng.errors.PlateMismatch, match=r"'x', which 'y' reads in mean=, is observed on 3 elements of 'n', and 5"
    ):
        fit.predictive("y", sizes={plate: 5})
    assert fit.predictive("y", mean=b * np.ones(5)).mean().shape == (5,)
