"""Joint factors of networks declared with columns: those of the same network with arrays, whole and in chunks."""

from pathlib import Path
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


def some(table: Any, which: Any) -> dict[str, Any]:
    return {name: column[which] for name, column in table.items()}


@pytest.mark.parametrize("name", ["known noise", pytest.param("random slopes, joint", marks=pytest.mark.slow)])
def test_fits_with_joint_factors_predict_grow_shrink_and_are_saved(name: str, tmp_path: Path) -> None:
    table, network = rows(), declared(name)
    limits = {key: FIT[key] for key in ("verbose", "tol", "max_steps")}
    first, second, gone = some(table, slice(0, 15)), some(table, slice(15, None)), np.arange(15, N)
    new = {"x": [0.5, 3.0], "z": [1.0, 2.0], "group": ["a", "new"]}
    for chunked in ({}, {"chunk_rows": 5, "backend": "numpy"}):
        whole, part = network.fit(table, **FIT, **chunked), network.fit(first, **FIT, **chunked)
        same = {"update": (part.update(second, **limits), whole), "forget": (whole.forget(gone, **limits), part)}
        path = tmp_path / f"{len(chunked)}.natgrad"
        part.save(path)
        loaded = ng.load(path)
        same["saved"] = loaded, part
        if name == "known noise":  # one block of globals: streaming is exact
            same["loaded, more rows"] = loaded.update(second, **limits), whole
            same["none forgotten"] = part.update(second, forgetting=0.0, **limits), whole
        else:
            assert abs(loaded.update(second, **limits)["a"].mean() - whole["a"].mean()) < whole["a"].std()
        for what, (found, expected) in same.items():
            for node, numbers in moments(expected).items():
                assert moments(found)[node] == pytest.approx(numbers, rel=1e-6, abs=1e-7), (what, node)
            assert found["u"].frame()["group"].tolist() == ["a", "b", "c"] if "u" in found else True
        for fit in (part, loaded):
            predicted = fit.predict(new)["y"]
            mean, variance = by_hand(name, fit, new)
            assert predicted.mean() == pytest.approx(mean, rel=1e-9)
            assert predicted.std() == pytest.approx(np.sqrt(variance), rel=0.06)  # of 2,000 draws


def by_hand(name: str, fit: Any, new: Any) -> tuple[Any, Any]:
    """Mean and variance of new rows, from means, sds and correlations."""
    means, sd = {n: fit[n].mean() for n in fit}, {n: fit[n].std() for n in fit}
    if name == "known noise":
        slots = np.stack([np.ones(2), new["x"], new["z"]], -1)
        factor = fit["a+b+c"]
        covariance = np.linalg.inv(factor.parameters["precision"])
        return slots @ factor.mean(), np.einsum("ni,ij,nj->n", slots, covariance, slots) + 0.25
    x, factor = np.asarray(new["x"]), fit["u+v"]
    known = np.linalg.inv(factor.parameters["precision"][0])
    line = np.array([1.0, x[0]])
    # A group that is not known has its prior, given the means of its parents.
    mean = [line @ factor.mean()[0], means["a"] + means["b"] * x[1]]
    tau = fit["tau"].parameters
    noise = tau["rate"] / (tau["shape"] - 1.0)
    assert sd["u"].shape == (3,)
    return np.array(mean), np.array([line @ known @ line, 1.0 + x[1] ** 2 / 2.0]) + noise


@pytest.mark.slow
def test_chunks_are_drawn_and_linearised_by_the_names_of_nodes() -> None:
    table = rows()
    whole = declared("known noise").fit(table, **FIT)
    chunks = declared("known noise").fit(table, chunk_rows=7, backend="numpy", **FIT)
    draws = chunks.draws(1000, chains=2, verbose=False)
    response = chunks.linear_response()
    for name in "abc":  # q is exact
        assert response[name].std() == pytest.approx(whole[name].std(), rel=1e-5)
        assert draws[name].mean() == pytest.approx(whole[name].mean(), abs=0.2 * whole[name].std())
        assert draws[name].std() == pytest.approx(whole[name].std(), rel=0.1)
    assert response.correlation("a", "b") == pytest.approx(whole.correlation("a", "b"), abs=1e-5)
