"""Joint factors of networks declared with columns: those of the same network with arrays, whole and in chunks."""

from typing import Any

import numpy as np
import pytest

import natgrad as ng

FIT: dict[str, Any] = {"verbose": False, "tol": 0, "max_steps": 60, "method": ng.VB()}
N = 24


def rows() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x, group = 1.0 + rng.normal(size=(2, N)), rng.choice(["c", "a", "b"], N)
    y = 3.0 + 2.0 * x[0] - x[1] + (group == "a") + 0.5 * rng.normal(size=N)
    y[4] = np.nan
    return {"x": x[0], "z": x[1], "group": group, "y": y, "w": rng.integers(1, 3, N)}


def declared(name: str, table: Any = None) -> ng.Network:
    """One of the networks below, with columns, or with the arrays of a table."""
    there: Any = ng.Column if table is None else lambda key: np.asarray(table[key])
    n = None if table is None else len(table["y"])
    ids, codes = (None, ng.Column("group")) if table is None else np.unique(table["group"], return_inverse=True)
    row, group = ng.Plate("row", n, weight=there("w")), ng.Plate("group", None if ids is None else len(ids))
    a, b, c = ng.Normal("a", 0.0, 0.01), ng.Normal("b", 0.0, 0.1), ng.Normal("c", 1.0, 0.1)
    tau = ng.Gamma("tau", 1.0, 1.0)
    line = a + b * there("x") + c * there("z")
    rest = {"plate": row, "observed": there("y")}
    if name == "regression":
        return ng.Network(ng.Normal("y", line, tau, **rest))
    if name == "random intercepts":
        u = ng.Normal("u", a, ng.Gamma("spread", 2.0, 1.0), plate=group)
        return ng.Network(ng.Normal("y", u[codes] + b * there("x") + c * there("z"), tau, **rest))
    if name == "random slopes, joint":
        u, v = ng.Normal("u", a, 1.0, plate=group), ng.Normal("v", b, 2.0, plate=group)
        y = ng.Normal("y", u[codes] + v[codes] * there("x"), tau, **rest)
        return ng.Network(y, joint=[(u, v), ("a", "b")])
    if name == "precisions, too":
        return ng.Network(ng.Normal("y", line, tau, **rest), joint="full")
    if name == "robust":
        return ng.Network(ng.StudentT("y", line, tau, df=4.0, **rest))
    if name == "known noise":
        return ng.Network(ng.Normal("y", line, 4.0, **rest))
    assert name == "apart"
    return ng.Network(ng.Normal("y", line, tau, **rest), joint=None)


SLOW = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("precisions, too", "robust", "apart", "random intercepts")
]
NETWORKS = ("regression", "random slopes, joint", *SLOW)


def moments(fit: Any) -> dict[str, Any]:
    return {name: np.stack([fit[name].mean(), fit[name].std()]) for name in fit}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_table_whole_and_in_chunks_has_the_factors_of_arrays(name: str) -> None:
    table, network = rows(), declared(name)
    expected = declared(name, table).fit(**FIT)
    whole, chunks = network.fit(table, **FIT), network.fit(table, chunk_rows=7, backend="numpy", **FIT)
    for fit in (whole, chunks):
        assert set(fit) == set(expected)
        assert fit.elbo == pytest.approx(expected.elbo, rel=1e-10)
        for node, numbers in moments(fit).items():
            assert numbers == pytest.approx(moments(expected)[node], rel=1e-8, abs=1e-9), node
    if name != "apart":
        pair = ("u", "v") if "slopes" in name else ("b", "c")
        assert chunks.correlation(*pair) == pytest.approx(expected.correlation(*pair), abs=1e-9)
        assert np.abs(expected.correlation(*pair)).max() > 0.01
