"""Uncertainty of networks whose rows are read in chunks: the linear response is that of rows in memory."""

from typing import Any

import numpy as np
import pytest

import natgrad as ng

ROWS = np.random.default_rng(0)
X = ROWS.normal(size=600) + 1.0
Y = 1.0 + 0.5 * X + ROWS.normal(size=600)


def regression() -> ng.Network:
    a, b, tau = ng.Normal("a", 0.0, 0.01), ng.Normal("b", 0.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
    row = ng.Plate("row")
    return ng.Network(ng.Normal("y", a + b * ng.Column("x"), tau, plate=row, observed=ng.Column("y")))


def mixture(weights: Any, tau: Any = 1.0, precision: float = 1.0) -> ng.Network:
    row, k = ng.Plate("row"), ng.Plate("k", 2)
    z = ng.Categorical("z", weights, plate=row)
    mu = ng.Normal("mu", 0.0, precision, plate=k)
    return ng.Network(ng.Normal("y", mu[z], tau, plate=row, observed=ng.Column("y")))


def test_chunks_have_no_draws_and_say_what_they_have():
    fit = regression().fit({"x": X, "y": Y}, chunk_rows=250)
    with pytest.raises(TypeError, match=r"linear_response\(\), which reads chunks, or fit rows that are held"):
        fit.draws(n=5, verbose=False)


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
