"""Intervals of predictions: quantiles of mixtures of known laws, so that equal rows have equal intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats as st
from scipy.optimize import brentq

import natgrad as ng
from natgrad.network.results.conditional_quantiles import LAWS, mixture_quantile

RNG = np.random.default_rng(0)
TABLE = {
    "x": RNG.normal(size=40),
    "y": RNG.normal(size=40),
    "k": RNG.poisson(3, 40),
    "e": RNG.exponential(2.0, 40),
    "m": np.where(np.arange(40) % 2, 5.0, -5.0) + RNG.normal(size=40),
}


@pytest.mark.parametrize("p", [0.001, 0.05, 0.5, 0.999])
def test_a_quantile_of_a_mixture_is_where_its_distribution_function_is_p(p: float) -> None:
    mean, sd, weights = RNG.normal(size=(5, 3)) * 10, RNG.gamma(1.0, size=(5, 3)), RNG.dirichlet(np.ones(5), 3).T
    normal, mixed = LAWS[ng.Normal], weights[None]
    found = mixture_quantile(normal, [(mean, sd)], mixed, p)
    for j in range(3):
        wanted = brentq(lambda x: weights[:, j] @ st.norm.cdf(x, mean[:, j], sd[:, j]) - p, -200, 200, xtol=1e-12)  # noqa: B023
        np.testing.assert_allclose(weights[:, j] @ st.norm.cdf(found[j], mean[:, j], sd[:, j]), p, atol=2e-9)
        np.testing.assert_allclose(found[j], wanted, atol=1e-4)
    rate = np.abs(mean)
    whole = mixture_quantile(LAWS[ng.Poisson], [(rate,)], mixed, p)
    for j in range(3):
        total = weights[:, j] @ st.poisson.cdf(np.arange(100)[None], rate[:, j, None])
        assert whole[j] == np.flatnonzero(total >= p - 1e-12)[0]


@pytest.mark.parametrize("kind", ["Gamma", "Exponential", "Beta", "StudentT", "Laplace", "LogNormal"])
def test_one_part_has_the_quantiles_of_scipy(kind: str) -> None:
    a, b = np.full((1, 2), 1.7), np.array([[0.4, 2.5]])
    law, args, twin = {
        "Gamma": (LAWS[ng.Gamma], (a, b), st.gamma(a[0], scale=1 / b[0])),
        "Exponential": (LAWS[ng.Exponential], (np.ones((1, 2)), b), st.expon(scale=1 / b[0])),
        "Beta": (LAWS[ng.Beta], (a, b), st.beta(a[0], b[0])),
        "StudentT": (LAWS[ng.StudentT], (a, b, 3.0 + a), st.t(4.7, a[0], b[0])),
        "Laplace": (LAWS[ng.Laplace], (a, b), st.laplace(a[0], b[0])),
        "LogNormal": (LAWS[ng.LogNormal], (a, b), st.lognorm(b[0], scale=np.exp(a[0]))),
    }[kind]
    for p in (0.05, 0.9):
        np.testing.assert_allclose(mixture_quantile(law, [args], np.ones((1, 1, 2)), p), twin.ppf(p), rtol=1e-7)


def networks() -> dict[str, Any]:
    row, comp = ng.Plate("row"), ng.Plate("comp", 2)
    z = ng.Categorical("z", ng.Dirichlet("w", 1.0, size=2), plate=row)
    mean, precision = ng.Normal("mu", 0.0, 0.01, plate=comp), ng.Gamma("t", 1.0, 1.0, plate=comp)
    line = ng.Normal("a", 0.0, 0.01) + ng.Normal("b", 0.0, 0.01) * ng.Column("x")
    return {
        "y": ng.Normal("y", line, ng.Gamma("s", 1.0, 1.0), plate=row, observed=ng.Column("y")),
        "k": ng.Poisson("k", ng.Gamma("l", 1.0, 0.1), plate=row, observed=ng.Column("k")),
        "e": ng.Exponential("e", ng.Gamma("l", 1.0, 0.1), plate=row, observed=ng.Column("e")),
        "m": ng.Normal("m", mean[z], precision[z], plate=row, observed=ng.Column("m")),
    }


@pytest.mark.parametrize("name", ["y", "k", "e", "m"])
def test_equal_rows_have_equal_intervals_and_those_of_many_draws(name: str) -> None:
    """They were quantiles of 2,000 draws of each row; those of one law must not differ from row to row."""
    fit = ng.Network(networks()[name]).fit(TABLE, verbose=False)
    law = fit.predict({"x": np.array([0.3, 0.3, -1.0])})[name]
    low, high = law.interval(0.9)
    assert (low[0], high[0]) == (low[1], high[1])
    draws = law.sample(1, 40_000)
    # Between 0.04 and 0.06 of all draws, of which there are as many as there are whole numbers, lie on either side.
    assert (np.abs((draws < low).mean(0) - 0.05) < 0.01).all() or name == "k"
    assert (np.abs((draws > high).mean(0) - 0.05) < 0.01).all() or name == "k"
    assert ((draws < low).mean(0) <= 0.05).all() or name != "k"
    assert ((draws <= high).mean(0) >= 0.94).all()


def test_a_rate_of_a_gamma_has_the_quantiles_of_a_lomax() -> None:
    """∫ Exp(e; l) Gamma(l; a, b) dl, of which an interval from draws of e had an error of a tenth."""
    fit = ng.Network(networks()["e"]).fit(TABLE, verbose=False)
    a, b = 1.0 + 40, 0.1 + TABLE["e"].sum()
    low, high = fit.predict({"x": np.zeros(1)})["e"].interval(0.9)
    np.testing.assert_allclose([low[0], high[0]], st.lomax(a, scale=b).ppf([0.05, 0.95]), rtol=0.02)
