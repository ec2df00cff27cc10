"""Pictures of a fit: what is drawn is what the fit says."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

import natgrad as ng

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def fit():
    n = ng.Plate("n", 30)
    mu, tau = ng.Normal("mu", 0.0, 0.1), ng.Gamma("tau", 2.0, 1.0)
    y = np.random.default_rng(0).normal(1.0, 0.5, 30)
    y[3] = np.nan
    return ng.Network(ng.Normal("y", mu, tau, plate=n, observed=y)).fit()


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_the_run_is_the_trace(fit):
    ax = fit.plot.trace(against="step")
    line = ax.lines[0]
    assert np.array_equal(line.get_ydata(), fit.trace["elbo"])
    assert np.array_equal(line.get_xdata(), np.arange(1, len(fit.trace) + 1))


def test_intervals_are_those_of_the_summary(fit):
    ax, table = fit.plot.forest(mass=0.8), fit.summary(mass=0.8)
    ends = np.array([path.vertices[:, 0] for path in ax.collections[0].get_paths()])
    assert np.allclose(ends, np.stack([table["lower"], table["upper"]], axis=1), rtol=1e-12)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(table.rows)


def test_densities_are_those_of_the_factors(fit):
    panels = fit.plot.posterior().ravel()
    tau = fit["tau"].parameters
    exact = [stats.norm(fit["mu"].mean(), fit["mu"].std()), stats.gamma(tau["shape"], scale=1 / tau["rate"])]
    for ax, name, law in zip(panels, ("mu", "tau"), exact, strict=False):
        assert ax.get_title() == name
        x, density = ax.lines[0].get_data()
        middle = (law.cdf(x) > 0.05) & (law.cdf(x) < 0.95)
        assert np.allclose(density[middle], law.pdf(x)[middle], rtol=2e-3)


def test_a_check_of_predictions_counts_what_was_seen(fit):
    ax = fit.plot.ppc(n=20)
    _, mean, data = [*ax.collections, *ax.lines]
    assert data.get_ydata().sum() == pytest.approx(1.0)
    assert mean.get_ydata().sum() == pytest.approx(1.0, abs=0.02)  # a few simulated values lie outside
    assert ax.get_xlabel() == "y"


def test_axes_that_are_given_are_drawn_on(fit):
    axes = plt.subplots(1, 2)[1]
    assert fit.plot(axes=axes) is axes
    assert all(ax.get_xlabel() for ax in axes)


def test_models_have_them_too():
    model = ng.GaussianMixture(2).fit(np.random.default_rng(0).normal([[-3.0], [3.0]], 1.0, (2, 20)).reshape(-1, 1))
    assert len(model.plot()) == 2
    assert len(model.summary()) == len(model.posterior_.summary())
    with pytest.raises(TypeError, match="declare the model as one"):
        model.plot.ppc()


def test_what_cannot_be_drawn_is_said(fit):
    with pytest.raises(KeyError, match="not an observed node; these are y"):
        fit.plot.ppc("mu")
    with pytest.raises(ValueError, match="1 are not enough for 2"):
        fit.plot.posterior(axes=plt.subplots(1, 1)[1])


def test_what_fits_is_drawn_and_the_rest_is_named():
    """Small nodes whole, larger ones in part, each interval that of the summary."""
    n = ng.Plate("n", 61)
    tau, mu = ng.Gamma("tau", 2.0, 1.0), ng.Normal("mu", 0.0, 1.0, plate=n)
    y = np.random.default_rng(0).normal(size=61)
    many = ng.Network(ng.Normal("y", mu, tau, plate=n, observed=y)).fit()
    ax, table = many.plot.forest(), many.summary()
    drawn = [label.get_text() for label in ax.get_yticklabels()]
    assert set(drawn) == {"tau", *(f"mu[{i}]" for i in range(59))}
    assert ax.get_title() == "not drawn: 2 of mu (names= chooses)"
    ends = np.array([path.vertices[:, 0] for path in ax.collections[0].get_paths()])
    places = [table.rows.index(row) for row in drawn]
    assert np.allclose(ends, np.stack([table["lower"], table["upper"]], axis=1)[places], rtol=1e-12)
    panels = many.plot.posterior().ravel()
    assert {ax.get_title() for ax in panels} == {"tau", *(f"mu[{i}]" for i in range(23))}
    assert panels[0].figure.get_supxlabel() == "not drawn: 38 of mu (names= chooses)"
    assert many.plot.forest(["tau"]).get_title() == ""


@pytest.mark.parametrize("name", ["lda", "lda gibbs", "ratings", "process", "line", "states", "mixture"])
def test_every_model_is_drawn(name):
    rng = np.random.default_rng(0)
    counts, X = rng.poisson(1.0, (30, 40)), rng.normal(size=(120, 3))
    ratings = ng.data.Ratings(np.arange(400) % 40, np.arange(400) // 20, rng.normal(3.0, 1.0, 400))
    few = {"verbose": False, "tol": 0}
    model = {
        "lda": lambda: ng.LDA(4, inference="vb", max_passes=3, **few).fit(counts),
        "lda gibbs": lambda: ng.LDA(4, verbose=False).fit(counts),
        "ratings": lambda: ng.MatrixFactorization(3, max_steps=3, **few).fit(ratings),
        "process": lambda: ng.SparseGPRegressor(n_inducing=100, max_steps=3, **few).fit(X, X[:, 0]),
        "line": lambda: ng.StateSpaceGP(max_steps=3, **few).fit(X[:, :1], X[:, 0]),
        "states": lambda: ng.GaussianHMM(4, max_passes=3, **few).fit(X),
        "mixture": lambda: ng.GaussianMixture(5, max_passes=3, **few).fit(X),
    }[name]()
    run, intervals = model.plot()
    assert run.lines
    if name != "line":  # whose parameters are point estimates
        drawn = [label.get_text() for label in intervals.get_yticklabels()]
        assert 1 < len(drawn) <= 60
        assert set(drawn) <= set(model.summary().rows)
        assert ("not drawn: " in intervals.get_title()) == (len(model.summary()) > 60)
    run.figure.canvas.draw()
