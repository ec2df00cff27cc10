"""Files of fits to tables: the declaration comes back as data, predicts without its program, and forged ones are refused."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network.bound_cases import CASES, factorisation, topics

import natgrad as ng
from natgrad.inference.schema import Misfit
from natgrad.network.bind.declaration import binding_from_data, binding_to_data, from_data, to_data

FIT: dict[str, Any] = {"seed": 3, "max_steps": 3, "verbose": False}


@pytest.mark.parametrize("name", CASES)
def test_a_declaration_is_data_and_back(name: str) -> None:
    case = CASES[name]()
    template = case.columns.template
    assert template is not None
    again = ng.Network(*from_data(to_data(template)).roots)
    now, then = (net.fit(case.table, init=case.init, **FIT) for net in (case.columns, again))
    assert now.trace["elbo"].tolist() == then.trace["elbo"].tolist()


def test_declared_numbers_tables_and_readings_come_back() -> None:
    row, part = ng.Plate("row"), ng.Plate("part", 2, weight=[1.0, 2.0])
    z = ng.Categorical("z", [0.3, 0.7], plate=row)
    shared = ng.Normal("shared", 0.0, ng.Gamma("tau", 2.0, [1.0, 3.0], plate=part), plate=part)
    offset = ng.Normal("offset", shared[[1, 0]], 1.0, plate=ng.Plate("two", 2), observed=[0.3, np.nan])
    w = ng.MultivariateNormal("w", 0.0, ng.diag(ng.Gamma("ard", 1.0, 1.0, plate=ng.Plate("k", 2))), size=2)
    mean = ng.table([0.5, -0.5])[z] + 2.0 * ng.dot(ng.Columns("a", "b"), np.array([[1.0, 0.5], [0.0, 1.0]]) @ w)
    y = ng.Normal("y", mean - ng.Column("a") / 2.0, 1.0, plate=row, observed=ng.Column("y"), mask=ng.Column("ok"))
    network = ng.Network(y, offset)
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=9), "b": rng.normal(size=9), "y": rng.normal(size=9), "ok": rng.random(9) < 0.8}
    assert network.template is not None
    again = ng.Network(*from_data(to_data(network.template)).roots)
    bounds = [net.fit(table, **FIT).trace["elbo"].tolist() for net in (network, again)]
    assert bounds[0] == bounds[1]


def observed_in_part() -> Any:
    """What stands beside the columns: nodes whose data are arrays, of which some are missing, and what they depend on."""
    four, two, a = ng.Plate("four", 4), ng.Plate("two", 2), ng.Normal("a", 0.0, 1.0)
    w = ng.MultivariateNormal("w", np.zeros(2), 0.1 * np.eye(2))
    yield (
        "entries of a vector",
        w[0],
        ng.MultivariateNormal(
            "x",
            w,
            np.eye(2),
            plate=four,
            observed=[[1.0, np.nan], [2.0, 1.0], [0.3, 0.1], [0.5, -1.0]],
            mask=np.arange(4) != 2,
        ),
    )
    mu = ng.Normal("mu", [-2.0, 2.0], 1.0, plate=two)
    there = [True, True, False, False]
    z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=2), plate=four, mask=there)
    yield (
        "categories that are not there",
        mu[0],
        ng.Normal("x", mu[z], 1.0, plate=four, observed=[1.0, -1.0, 2.0, 0.0], mask=there),
    )
    rows = ng.Dirichlet("rows", 1.0, size=2, plate=ng.Plate("state", 2))
    path = ng.MarkovChain("path", [0.5, 0.5], rows, plate=four, observed=[0, np.nan, 1, np.nan])
    yield "states of a chain", mu[0], ng.Normal("x", mu[path], 1.0, plate=four, observed=[0.1, -1.0, -0.3, 0.4])
    logits = ng.Normal("logits", 0.0, 1.0, plate=two)
    yield "logits along a plate", logits[0], ng.Categorical("x", logits=logits, plate=four, observed=[0, 1, 2, 1])
    joined = ng.MultivariateNormal("joined", np.zeros(2), np.eye(2))
    ends = ng.concatenate([a, joined, [1.0]])
    for name, index in (("a category", slice(None)), ("elements of a category", np.array([3, 0, 1, 2]))):
        kind = ng.Categorical("kind", ng.Dirichlet("kinds", 1.0, size=2), plate=four, observed=[0, 1, 1, 0])
        levels = ng.Normal("levels", 0.0, 1.0, plate=two)
        yield (
            f"{name} that was observed",
            levels[0],
            ng.Normal("x", levels[kind][index], 1.0, plate=four, observed=range(4)),
        )
    coin = ng.Bernoulli("coin", ng.Beta("chance", 1.0, 1.0), plate=four, observed=[0, 1, 1, 0])
    yield (
        "a coin that was observed",
        a,
        ng.Normal("x", ng.table([1.0, 2.0])[coin] + a, 1.0, plate=four, observed=range(4)),
    )
    yield "what is joined", ng.dot([1.0, 2.0, 3.0, 4.0], ends), ng.Normal("x", a, 1.0, observed=0.5)


@pytest.mark.parametrize("declared", list(observed_in_part()), ids=lambda case: case[0])
def test_what_has_its_data_beside_the_columns_comes_back(declared: Any) -> None:
    _, mean, seen = declared
    y = ng.Normal("y", mean, 1.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    network = ng.Network(y, seen)
    assert network.template is not None
    again = ng.Network(*from_data(to_data(network.template)).roots)
    fits = [net.fit({"y": [0.5, -1.0, 2.0]}, **FIT) for net in (network, again)]
    assert list(fits[0]) == list(fits[1])
    np.testing.assert_allclose(fits[1].trace["elbo"], fits[0].trace["elbo"], rtol=1e-12)


@pytest.mark.parametrize(
    "key", [slice(1, 3), slice(None, None, -2), slice(-2, None), [0, 3], np.array([1, 2])], ids=str
)
def test_slices_and_integers_beside_an_index_come_back(key: Any) -> None:
    level = ng.Normal("level", 0.0, 1.0, plate=(ng.Plate("group"), ng.Plate("four", 4)))
    on = ng.Plate("row"), ng.Plate("pair", 2)
    y = ng.Normal("y", level[ng.Column("group"), key], 1.0, plate=on, observed=ng.Columns("a", "b"))
    network = ng.Network(y)
    table = {"group": ["u", "v", "u"], "a": [0.5, -1.0, 2.0], "b": [0.0, 1.0, 3.0]}
    assert network.template is not None
    again = ng.Network(*from_data(to_data(network.template)).roots)
    found, expected = (net.fit(table, **FIT)["level"].mean() for net in (again, network))
    np.testing.assert_array_equal(found, expected)
    forged = to_data(network.template)
    for entry in forged["nodes"]:
        if entry["name"] == "y":
            entry["options"]["mean"]["arguments"][1][1] = {"slice": [0, 2.5, None]}
    with pytest.raises(Misfit, match="slice that is none"):
        from_data(forged)


def test_what_a_file_cannot_hold_is_left_out_with_a_warning(tmp_path: Path) -> None:
    f = ng.GaussianProcess("f", ng.covariance.RBF(), inducing=[[0.0], [1.0]])
    fixed = ng.Normal("fixed", f(np.array([[0.2], [0.4]])), 1.0, plate=ng.Plate("two", 2), observed=[0.1, 0.2])
    y = ng.Normal("y", f(ng.Column("x")), 4.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    fit = ng.Network(y, fixed).fit({"x": [0.0, 0.7], "y": [1.0, 2.0]}, **FIT)
    with pytest.warns(UserWarning, match="cannot predict"):
        fit.save(tmp_path / "m.natgrad")
    assert ng.load(tmp_path / "m.natgrad").binding is None


def forgeries() -> dict[str, Any]:
    def nested(data: Any) -> None:
        inner: Any = {"node": "u"}
        for _ in range(100):
            inner = {"call": "negate", "arguments": [inner], "options": {}}
        data["network"]["nodes"][-1]["options"]["mean"] = inner

    def put(*path: Any, value: Any) -> Any:
        def change(data: Any) -> None:
            for key in path[:-1]:
                data = data[key]
            data[path[-1]] = value

        return change

    return {
        "a function of no language": put(
            "network", "nodes", -1, "options", "mean", value={"call": "system", "arguments": ["ls"], "options": {}}
        ),
        "a kind that is none": put("network", "nodes", 0, "kind", value="Popen"),
        "nested for ever": nested,
        "a node that is not there": put("network", "nodes", -1, "options", "mean", value={"node": "other"}),
        "text for a number": put("network", "nodes", -1, "options", "precision", value="1.0"),
        "a vector as large as memory": put("network", "nodes", 0, "options", "size", value=10**12),
        "a plate that is not there": put("network", "nodes", 0, "plates", value=["nowhere"]),
        "too few levels": put("levels", "user", value=np.array(["ann"])),
        "levels twice": put("levels", "user", value=np.array(["ann", "ann", "bob"])),
        "no levels": put("levels", value={}),
        "a root that is not there": put("network", "roots", value=["q"]),
        "something else": put("network", "nodes", value=3),
        "an option of no node": put("network", "nodes", 0, "options", "colour", value=1.0),
    }


@pytest.mark.parametrize("what", forgeries())
def test_forged_declarations_are_refused(what: str) -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", **FIT)
    factors = {name: fit[name] for name in fit}
    data = copy.deepcopy(binding_to_data(fit.binding))
    assert binding_from_data(data, factors).template.columns == fit.binding.template.columns
    forgeries()[what](data)
    with pytest.raises((Misfit, ValueError, TypeError)):
        binding_from_data(data, factors)


def test_no_row_is_in_the_file(tmp_path: Path) -> None:
    case = topics()
    fit = case.columns.fit(case.table, init=case.init, **FIT)
    fit.save(tmp_path / "model.natgrad")
    content = ng.load(tmp_path / "model.natgrad")
    assert content.binding.tables is None
    assert content.binding.domain.levels["doc"].ids.tolist() == ["letter", "news", "poem"]


def _without_probs(data: Any) -> None:
    next(node for node in data["network"]["nodes"] if node["name"] == "z")["options"].pop("probs")


def _unobserved(data: Any) -> None:
    next(node for node in data["network"]["nodes"] if node["name"] == "y")["options"]["observed"] = 1.0


def _with(**options: Any) -> Any:
    def change(data: Any) -> None:
        next(node for node in data["network"]["nodes"] if node["name"] == "y")["options"].update(options)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without_probs, "cannot be made.*one of probs"),
        (_unobserved, "observes no column"),
        (_with(precision=np.ones((1, 4))), r"cannot be made.*has shape \(1, 4\)"),
        (_with(precision=-0.5), "cannot be made.*precision = -0.5"),
        (_with(precision=1e200), "a number that no fit has"),
        (_with(mean={"column": "x"}), "is of a node that is not declared"),
    ],
)
def test_a_declaration_that_nobody_could_have_made_is_refused_when_it_is_loaded(change: Any, words: str) -> None:
    """All were loaded, and failed when rows were predicted or taken in."""
    row = ng.Plate("row")
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=2), plate=row)
    mean = ng.Normal("mu", 0.0, 0.1, plate=ng.Plate("k", 2))[z] + ng.Column("x")
    fit = ng.Network(ng.Normal("y", mean, 1.0, plate=row, observed=ng.Column("y"))).fit(
        {"x": [0.0, 1.0, 2.0], "y": [0.3, -2.0, 4.0]}, **FIT
    )
    data, factors = copy.deepcopy(binding_to_data(fit.binding)), {name: fit[name] for name in fit}
    binding_from_data(data, factors)
    change(data)
    with pytest.raises(Misfit, match=words):
        binding_from_data(data, factors)


def test_numbers_for_each_row_of_the_fit_are_loaded() -> None:
    """They fit to tables of that many rows, of two tables here, and of no others."""
    a, b = ng.Plate("a"), ng.Plate("b")
    level = ng.Normal("level", 0.0, 1.0)
    y = ng.Normal("y", level + np.arange(3.0), 1.0, plate=a, observed=ng.Column("y"))
    z = ng.Normal("z", level + np.arange(2.0), [1.0, 4.0], plate=b, observed=ng.Column("z"))
    fit = ng.Network(y, z).fit({"a": {"y": [0.1, 0.2, 0.5]}, "b": {"z": [1.0, 3.0]}}, **FIT)
    again = binding_from_data(copy.deepcopy(binding_to_data(fit.binding)), {name: fit[name] for name in fit})
    assert again.template.columns == ("y", "z")


def test_factors_are_on_the_plates_of_their_nodes() -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", **FIT)
    data, factors = binding_to_data(fit.binding), {name: fit[name] for name in fit}
    name = next(name for name, factor in factors.items() if factor.plates)
    with pytest.raises(Misfit, match="is on other plates"):
        binding_from_data(data, {**factors, name: replace(factors[name], plates=("elsewhere",))})
