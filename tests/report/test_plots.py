"""Pictures of a fit: what is drawn is what the fit says."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

import natgrad as ng
from natgrad.report.charts.plots import bound_curve

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


def test_a_run_without_an_exact_bound_shows_its_estimates():
    trace = {"elbo": [np.nan, np.nan], "elbo_estimate": [-5.0, -4.0], "seconds": [0.1, 0.2]}
    curve = bound_curve(trace, "seconds")
    np.testing.assert_array_equal((curve.x, curve.y), ([0.1, 0.2], [-5.0, -4.0]))
    assert "estimate" in curve.name
    assert "exact" in bound_curve({**trace, "elbo": [np.nan, -3.0]}, "step").name
