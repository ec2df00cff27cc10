"""Pictures of Gaussian processes: what they show is there, and what they cannot show is said."""

import matplotlib
import numpy as np
import pytest

import natgrad as ng
from natgrad.models.gp import Solver
from natgrad.report.charts.gp_figures import plot_boundary, plot_density, plot_fit, plot_relevance

matplotlib.use("Agg")


def test_curve_and_relevances(rng):
    x = rng.uniform(0, 6, size=(80, 1))
    model = ng.SparseGPRegressor(n_inducing=8, solver=Solver(batch_size=32), max_steps=5).fit(x, np.sin(x[:, 0]))
    ax = plot_fit(model, x, np.sin(x[:, 0]))
    assert [len(line.get_xdata()) for line in ax.lines] == [400, 80, 8]
    assert len(plot_relevance(model, ["hours"]).patches) == 1
    with pytest.raises(ValueError, match="X has 2 columns"):
        plot_fit(model, np.zeros((3, 2)), np.zeros(3))
    model._kernel = ng.covariance.Linear()
    with pytest.raises(ValueError, match="no length scale for each column"):
        plot_relevance(model)


def test_boundary_and_density(rng):
    x = rng.normal(size=(60, 2))
    y = np.where(x[:, 0] > 0, 1, 0)
    model = ng.SparseGPClassifier(n_inducing=8, solver=Solver(batch_size=32), max_steps=5).fit(x, y)
    ax = plot_boundary(model, x, y)
    assert {len(line.get_xdata()) for line in ax.lines} == {int((y == 0).sum()), int(y.sum()), 8}
    with pytest.raises(ValueError, match="two classes of two inputs"):
        plot_boundary(model, x[:, :1], y)
    curves = {"ours": [[1, 0.5, 9.0], [2, 0.4, 8.0]], "theirs": [[1, 0.7, 9.5], [2, 0.6, 9.1]]}
    assert len(plot_density(curves).lines) == 2
    ax = plot_density(curves, levels={"linear": 10.0}, score="error")
    assert [line.get_ydata()[-1] for line in ax.lines] == [8.0, 9.1, 10.0]
