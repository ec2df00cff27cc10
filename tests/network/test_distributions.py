"""What each node knows of its distribution given its parents: draws, density, mean, variance and cdf agree with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import natgrad as ng
from natgrad.network.language import nodes
from natgrad.network.results.predictive import SameInRows

L: Any = ng.language
SCALARS: dict[str, tuple[Callable[[], Any], dict[str, float]]] = {
    "Normal": (lambda: ng.Normal("x", 0.0, 1.0), {"mean": 0.4, "precision": 2.5}),
    "Gamma": (lambda: ng.Gamma("x", 1.0, 1.0), {"shape": 2.5, "rate": 1.7}),
    "Exponential": (lambda: ng.Exponential("x", 1.0), {"rate": 0.6}),
    "Beta": (lambda: ng.Beta("x", 1.0, 1.0), {"a": 2.0, "b": 3.5}),
    "StudentT": (lambda: ng.StudentT("x", 0.0, 1.0, df=1.0), {"mean": -1.0, "precision": 2.0, "df": 9.0}),
    "Laplace": (lambda: ng.Laplace("x", 0.0, 1.0), {"mean": -1.0, "precision": 2.0}),
    "LogNormal": (lambda: ng.LogNormal("x", 0.0, 1.0, observed=1.0), {"mean": 0.3, "precision": 6.0}),
    "Rayleigh": (lambda: ng.Rayleigh("x", 1.0, observed=1.0), {"precision": 2.5}),
    "TruncatedNormal": (
        lambda: L.TruncatedNormal("x", 0.0, 1.0, lower=0.5, upper=2.0),
        {"mean": -1.0, "precision": 2.0},
    ),
    "Poisson": (lambda: ng.Poisson("x", 1.0), {"rate": 3.7}),
    "Bernoulli": (lambda: ng.Bernoulli("x", 0.5), {"prob": 0.3}),
    "Binomial": (lambda: ng.Binomial("x", 7, 0.5, observed=1), {"trials": 7.0, "prob": 0.3}),
    "NegativeBinomial": (lambda: ng.NegativeBinomial("x", 1.0, 0.5, observed=1), {"shape": 2.5, "prob": 0.4}),
    "Ordinal": (lambda: ng.Ordinal("x", 0.0, cutpoints=[-1.0, 0.3, 1.0], observed=1), {"mean": 0.2, "precision": 1.5}),
}


@pytest.mark.parametrize("kind", SCALARS)
def test_draws_density_moments_and_cdf_are_of_one_distribution(kind: str) -> None:
    make, given = SCALARS[kind]
    node, n = make(), 40_000
    slots = {name: np.full(n, value) for name, value in given.items()}
    x = node.sample_given(slots, np.random.default_rng(0), (n,))
    mean, var = (float(np.broadcast_to(part, n)[0]) for part in node.mean_var_given(slots))
    np.testing.assert_allclose(x.mean(), mean, atol=5 * np.sqrt(var / n))
    np.testing.assert_allclose(((x - mean) ** 2).mean(), var, atol=6 * ((x - mean) ** 2).std() / np.sqrt(n))
    cdf = node.cdf_given(slots)
    ends = np.unique(np.quantile(x, [0.05, 0.3, 0.7, 0.95], method="inverted_cdf"))
    for end in ends:
        below = np.broadcast_to(cdf.function(end if cdf.back is None else np.log(end), *cdf.arguments), n)[0]
        np.testing.assert_allclose((x <= end).mean(), below, atol=0.012)
        if cdf.is_whole:
            steps = np.exp([node.log_density_given(np.full(n, k), slots)[0] for k in range(int(end) + 1)]).sum()
            np.testing.assert_allclose(steps, below, rtol=1e-10)
        else:
            h = 1e-6 * end
            bounds = end + h * np.array([-1.0, 1.0])
            bounds = bounds if cdf.back is None else np.log(bounds)
            low, high = (np.broadcast_to(cdf.function(bound, *cdf.arguments), n)[0] for bound in bounds)
            density = np.exp(node.log_density_given(np.full(n, end), slots)[0])
            np.testing.assert_allclose((high - low) / (2 * h), density, rtol=1e-5)


def test_a_dirichlet_with_a_learned_concentration_has_its_density() -> None:
    """Which had no axis of categories where one number is the concentration of all."""
    shares = np.random.default_rng(0).dirichlet([2.0, 1.0, 3.0], 9)
    node = ng.Dirichlet("x", L.GammaShape("a", 2.0, 1.0), size=3, plate=ng.Plate("n", 9), observed=shares)
    predictive = ng.Network(node).fit(verbose=False).predictive("x")
    a = predictive._slots(predictive.node, SameInRows(0), 200, {})["concentration"][:, 0]
    wanted = np.log([np.mean([st.dirichlet(np.full(3, each)).pdf(x) for each in a]) for x in shares])
    np.testing.assert_allclose(predictive.log_density(shares), wanted, rtol=1e-9)


def test_known_concentrations_have_a_density_for_every_draw() -> None:
    shares = np.random.default_rng(0).dirichlet([2.0, 1.0, 3.0], 5)
    node = ng.Dirichlet("x", [2.0, 1.0, 3.0], plate=ng.Plate("n", 5), observed=shares)
    mu = ng.Normal("mu", 0.0, 1.0)
    network = ng.Network(node, ng.Normal("y", mu, 1.0, observed=0.3))
    found = network.fit(verbose=False).predictive("x").log_density(shares)
    np.testing.assert_allclose(found, st.dirichlet([2.0, 1.0, 3.0]).logpdf(shares.T), rtol=1e-9)


def test_what_is_not_known_says_so() -> None:
    sticks = ng.StickBreaking("pi", 1.0, size=3)
    assert not sticks.can_sample
    assert sticks.cdf_given({}) is None
    for method, arguments in (("sample_given", ({}, np.random.default_rng(0), ())), ("log_density_given", (0.5, {}))):
        with pytest.raises(TypeError, match=r"'pi'.*StickBreaking"):
            getattr(sticks, method)(*arguments)


def test_every_node_that_can_be_drawn_says_more_of_itself() -> None:
    """Of those without a cdf the elements are matrices or categories; HalfCauchy has no mean."""
    kinds = [kind for kind in vars(L).values() if isinstance(kind, type) and issubclass(kind, nodes.Node)]
    drawn = [kind for kind in kinds if kind.sample_given is not nodes.Node.sample_given]
    lacking = {kind.__name__ for kind in drawn if kind.cdf_given is nodes.Node.cdf_given}
    assert lacking == {"Wishart", "Categorical"}
    assert {kind.__name__ for kind in drawn if kind.mean_var_given is nodes.Node.mean_var_given} == {
        "Categorical",
        "HalfCauchy",
    }
