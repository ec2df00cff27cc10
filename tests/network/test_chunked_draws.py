"""Draws of networks whose rows are read in chunks: those of the posterior, and of the same fit with its rows in memory."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import NotConjugate

pytestmark = pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
ROWS = np.random.default_rng(0)
X = ROWS.normal(size=600) + 1.0
Y = 1.0 + 0.5 * X + ROWS.normal(size=600)


def regression() -> ng.Network:
    a, b, tau = ng.Normal("a", 0.0, 0.01), ng.Normal("b", 0.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
    row = ng.Plate("row")
    return ng.Network(ng.Normal("y", a + b * ng.Column("x"), tau, plate=row, observed=ng.Column("y")))


def same_posterior(drawn: Any, whole: Any, names: tuple[str, ...], order: Any = slice(None)) -> None:
    """Means within four standard errors of both, by their effective sample sizes; standard deviations within a fifth."""
    for name in names:
        one, two = np.atleast_1d(drawn[name].mean())[order], np.atleast_1d(whole[name].mean())
        errors = [np.atleast_1d(d[name].std() ** 2 / d[name].ess()) for d in (drawn, whole)]
        assert (np.abs(one - two) < 4.0 * np.sqrt(errors[0][order] + errors[1])).all(), name
        np.testing.assert_allclose(
            np.atleast_1d(drawn[name].std())[order], np.atleast_1d(whole[name].std()), rtol=0.2, err_msg=name
        )


def test_rows_without_hidden_nodes_are_read_once_and_chunks_do_not_matter():
    table = {"x": X, "y": Y}
    fits = [regression().fit(table, chunk_rows=size) for size in (600, 250, 97)]
    drawn = [fit.draws(n=60, chains=2, warmup=10, verbose=False) for fit in fits]
    for other in drawn[1:]:
        for name in drawn[0]:
            np.testing.assert_allclose(other[name].values, drawn[0][name].values, rtol=1e-6, atol=1e-8)
    asked = 0
    visit = fits[1].problem.chunks.map

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return visit(*arguments, **options)

    fits[1].problem.chunks.map = counted
    long = fits[1].draws(n=500, chains=2, warmup=50, verbose=False)
    assert asked == 1
    same_posterior(long, regression().fit(table).draws(n=2000, verbose=False), ("a", "b", "tau"))


def mixture(weights: Any, tau: Any = 1.0, precision: float = 1.0) -> ng.Network:
    row, k = ng.Plate("row"), ng.Plate("k", 2)
    z = ng.Categorical("z", weights, plate=row)
    mu = ng.Normal("mu", 0.0, precision, plate=k)
    return ng.Network(ng.Normal("y", mu[z], tau, plate=row, observed=ng.Column("y")))


@pytest.mark.parametrize(
    ("size", "backend"),
    [pytest.param(3, "numpy", marks=pytest.mark.slow), (8, "numpy"), pytest.param(3, "jax", marks=pytest.mark.slow)],
)
def test_memberships_are_drawn_right(size, backend):
    """All 2⁸ memberships enumerated; weights that are known, and differ, tell the components apart."""
    y, w = np.array([-1.3, -0.4, 0.2, 0.9, 1.8, -0.9, 1.1, 0.5]), np.array([0.35, 0.65])
    total, mean, square = 0.0, np.zeros(2), np.zeros(2)
    for z in product((0, 1), repeat=8):
        own = np.eye(2)[list(z)]
        precision, linear = 1.0 + own.sum(0), own.T @ y
        weight = float(np.exp(np.log(w[list(z)]).sum() + (0.5 * linear**2 / precision - 0.5 * np.log(precision)).sum()))
        total += weight
        mean += weight * linear / precision
        square += weight * (1.0 / precision + (linear / precision) ** 2)
    mean, sd = mean / total, np.sqrt(square / total - (mean / total) ** 2)
    fit = mixture(w).fit({"y": y}, chunk_rows=size, init={"mu": [-0.5, 0.5]}, backend=backend)
    drawn = fit.draws(n=600, chains=4, warmup=50, verbose=False)
    error = 4.0 * sd / np.sqrt(drawn["mu"].ess())
    assert (error < 0.25 * sd).all()
    assert (np.abs(drawn["mu"].mean() - mean) < error).all()
    np.testing.assert_allclose(drawn["mu"].std(), sd, rtol=0.12)
    assert list(drawn) == ["mu"]


def test_what_cannot_be_drawn_says_why():
    fit = mixture([0.4, 0.6]).fit({"y": Y[:50]}, chunk_rows=20, init={"mu": [-0.5, 0.5]})
    with pytest.raises(ValueError, match="it is drawn, not kept"):
        fit.draws(n=5, names=["z"], verbose=False)
    with pytest.raises(TypeError, match=r"write \['mu'\]"):
        fit.draws(n=5, names="mu", verbose=False)
    row, k = ng.Plate("row", weight=ng.Column("w")), ng.Plate("k", 2)
    z = ng.Categorical("z", [0.4, 0.6], plate=row)
    node = ng.Normal("y", ng.Normal("mu", 0.0, 1.0, plate=k)[z], 1.0, plate=row, observed=ng.Column("y"))
    weighted = ng.Network(node).fit({"y": Y[:50], "w": np.full(50, 2.0)}, chunk_rows=20, init={"mu": [-0.5, 0.5]})
    with pytest.raises(NotConjugate, match="weights and hidden nodes"):
        weighted.draws(n=5, verbose=False)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_linear_response_is_that_of_rows_in_memory(backend):
    table = {"x": X, "y": Y}
    options = {"tol": 1e-10, "backend": backend}
    mixed = mixture(ng.Dirichlet("w", [2.0, 3.0]), ng.Gamma("tau", 2.0, 2.0), 0.1)
    two = {"y": np.concatenate([Y[:60], -Y[:50]])}
    cases = [(regression(), table, None), (mixed, two, {"mu": [-1.5, 1.5]})]
    for network, rows, init in cases:
        chunked, whole = (network.fit(rows, init=init, **options, **more) for more in ({"chunk_rows": 47}, {}))
        found, wanted = chunked.linear_response(), whole.linear_response()
        assert found.left < 1e-6
        for name in found:
            np.testing.assert_allclose(found[name].std(), wanted[name].std(), rtol=2e-4)
            assert (np.asarray(found[name].std()) > 0.999 * np.asarray(chunked[name].std())).all()
        first, second = list(found)[:2]
        np.testing.assert_allclose(found.cov(first, second), wanted.cov(first, second), rtol=1e-3, atol=1e-7)
