"""Coefficients far from zero: squares lose the digits in which they differ, and a fit says so before anybody reads a number."""

import warnings

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import CoupledCategories, LostDigits

SIZE = 60
X = np.random.default_rng(0).normal(size=SIZE)
Y = 3.0 * X + 0.1 * np.random.default_rng(1).normal(size=SIZE)


def vectors(x):
    w = ng.MultivariateNormal("w", np.zeros(2), 1e-20 * np.eye(2))
    mean = ng.dot(np.column_stack([np.ones(SIZE), x]), w)
    return ng.Network(ng.Normal("y", mean, ng.Gamma("tau", 1.0, 1.0), plate=ng.Plate("n", SIZE), observed=Y))


def scalars(x):
    slope, level = ng.Normal("slope", 0.0, 1e-20), ng.Normal("level", 0.0, 1e-20)
    tau = ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("y", slope * x + level, tau, plate=ng.Plate("n", SIZE), observed=Y))


def columns(x):
    w, tau = ng.MultivariateNormal("w", np.zeros(2), 1e-20 * np.eye(2)), ng.Gamma("tau", 1.0, 1.0)
    mean = ng.dot(ng.Columns("one", "x"), w)
    network = ng.Network(ng.Normal("y", mean, tau, plate=ng.Plate("n"), observed=ng.Column("y")))
    return network.bind({"one": np.ones(SIZE), "x": x, "y": Y})


@pytest.mark.parametrize("network", [vectors, scalars, columns])
def test_numbers_that_would_be_wrong_are_warned_of_and_those_before_are_right(network):
    right = network(X).fit()["tau"].mean()
    warned = []
    for offset in (1e3, -1e4, 1e5, -1e6):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = network(X + offset).fit()["tau"].mean()
        warned.append(any(issubclass(warning.category, LostDigits) for warning in seen))
        assert warned[-1] or found == pytest.approx(right, rel=1e-3), offset
    assert warned == [False, False, True, True]


def test_the_warning_names_the_node_the_column_and_its_ends_at_the_users_line():
    x = 1e7 + np.arange(SIZE, dtype=float)
    words = (
        r"numbers of the known column 1 in the mean of 'y' lie between 10000000 and 10000059: so far from zero that their "
        r"squares lose the digits in which they differ, and results may be wrong in the first one. Subtract their mean"
    )
    with pytest.warns(LostDigits, match=words) as seen:
        vectors(x).fit(max_steps=1)
    assert seen[0].filename == __file__


def test_a_prediction_of_rows_that_are_close_together_is_silent():
    w, tau = ng.MultivariateNormal("w", np.zeros(2), 1e-6 * np.eye(2)), ng.Gamma("tau", 1.0, 1.0)
    mean = ng.dot(ng.Columns("one", "year"), w)
    network = ng.Network(ng.Normal("y", mean, tau, plate=ng.Plate("n"), observed=ng.Column("y")))
    year = 2000.0 + np.arange(SIZE)
    fit = network.fit({"one": np.ones(SIZE), "year": year, "y": Y})
    close = {"one": np.ones(4), "year": 2020.0 + 1e-3 * np.arange(4)}
    assert fit.predict(close)["y"].mean().shape == (4,)


def _in_chunks(x, size):
    w, tau = ng.MultivariateNormal("w", np.zeros(2), 1e-20 * np.eye(2)), ng.Gamma("tau", 1.0, 1.0)
    mean = ng.dot(ng.Columns("one", "x"), w)
    network = ng.Network(ng.Normal("y", mean, tau, plate=ng.Plate("n"), observed=ng.Column("y")))
    return network.fit({"one": np.ones(SIZE), "x": x, "y": Y}, chunk_rows=size, max_steps=3, tol=0, verbose=False)


def test_chunks_are_looked_at_together():
    words = "numbers of the known column 1 in the mean of 'y' lie between 10000000 and 10000059"
    with pytest.warns(LostDigits, match=words) as seen:
        _in_chunks(1e7 + np.arange(SIZE, dtype=float), 25)
    assert seen[0].filename == __file__
    # Times in order: those of a chunk lie close together, all of them do not.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _in_chunks(1e6 * np.sqrt(1.0 + np.arange(SIZE)), 4)


def test_ties_of_rows_in_chunks_are_warned_of():
    row = ng.Plate("row")
    rain, hose = ng.Bernoulli("rain", 0.3, plate=row), ng.Bernoulli("hose", 0.3, plate=row)
    wet = ng.Bernoulli("wet", ng.table([[0.0, 1.0], [1.0, 1.0]])[rain, hose], plate=row, observed=ng.Column("wet"))
    for options in ({}, {"chunk_rows": 2}):
        with pytest.warns(CoupledCategories, match="'rain' and 'hose' by the table of 'wet'") as seen:
            ng.Network(wet).fit({"wet": [1, 1, 0, 1]}, verbose=False, **options)
        assert seen[0].filename == __file__
