"""Plates that grow in tables that are read in chunks: the K and the bound of the whole table, by moves that never lower it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.network.results.fit import Fit

Case = tuple[ng.Network, dict[str, Any], int]
COMPONENT = ng.Plate("component", 5, grow=True)


def choice(row: ng.Plate, sticks: bool = False, **options: Any) -> Any:
    pi: Any = ng.StickBreaking("pi", 1.0, size=5) if sticks else ng.Dirichlet("pi", np.full(5, 0.2))
    return ng.Categorical("z", pi, plate=row, **options)


def mixture(sticks: bool = False, unit: float = 1.0, n: int = 60) -> Case:
    """Three clusters, one after the other: each is in a chunk of its own."""
    rng = np.random.default_rng(0)
    x = unit * (np.repeat([-6.0, 0.0, 7.0], n // 3) + rng.normal(size=n))
    row = ng.Plate("row")
    z = choice(row, sticks)
    mu, tau = ng.Normal("mu", 0.0, 0.01 / unit**2, plate=COMPONENT), ng.Gamma("tau", 1.0, unit**2, plate=COMPONENT)
    return ng.Network(ng.Normal("x", mu[z], tau[z], plate=row, observed=ng.Column("x"))), {"x": x}, n // 3


def regressions() -> Case:
    rng = np.random.default_rng(4)
    X, k = np.column_stack([np.ones(120), rng.uniform(-3.0, 3.0, 120)]), np.arange(120) % 3
    y = (X * np.array([[-8.0, 2.0], [0.0, -2.0], [8.0, 1.0]])[k]).sum(1) + 0.5 * rng.normal(size=120)
    row = ng.Plate("row")
    z, tau = choice(row), ng.Gamma("tau", 1.0, 1.0, plate=COMPONENT)
    w = ng.MultivariateNormal("w", np.zeros(2), 0.01 * np.eye(2), plate=COMPONENT)
    seen = ng.Normal("y", ng.dot(ng.Columns("one", "x"), w[z]), tau[z], plate=row, observed=ng.Column("y"))
    return ng.Network(seen), {"one": X[:, 0], "x": X[:, 1], "y": y}, 50


def chain(sequences: bool) -> Case:
    """Sequences that are kept whole in chunks, or one that goes on from chunk to chunk."""
    rng = np.random.default_rng(1)
    y = np.array([-5.0, 0.0, 5.0])[np.repeat(np.arange(12) % 3, 10)] + rng.normal(size=120)
    time = ng.Plate("time")
    transition = ng.Dirichlet("transition", np.full(5, 0.2), plate=COMPONENT)
    lengths = {"lengths": ng.Column("series")} if sequences else {}
    z = ng.MarkovChain("z", ng.Dirichlet("initial", np.full(5, 0.2)), transition, plate=time, **lengths)
    seen = ng.Normal("y", ng.Normal("mu", 0.0, 0.01, plate=COMPONENT)[z], 1.0, plate=time, observed=ng.Column("y"))
    return ng.Network(seen), {"y": y, "series": np.repeat(np.arange(4), 30)}, 40


def two_plates() -> Case:
    """Two plates of one size, each with a category of its own."""
    rng = np.random.default_rng(5)
    i, j = rng.integers(3, size=120), rng.integers(2, size=120)
    row, other = ng.Plate("row"), ng.Plate("other", 5, grow=True)
    z, u = choice(row), ng.Categorical("u", ng.StickBreaking("rho", 1.0, size=5), plate=row)
    m, v = ng.Normal("m", 0.0, 0.01, plate=COMPONENT), ng.Normal("v", 0.0, 0.01, plate=other)
    network = ng.Network(
        ng.Normal("a", m[z], 1.0, plate=row, observed=ng.Column("a")),
        ng.Normal("b", v[u], ng.Gamma("tau", 1.0, 1.0, plate=other)[u], plate=row, observed=ng.Column("b")),
    )
    a, b = np.array([-6.0, 0.0, 6.0])[i], np.array([-5.0, 5.0])[j]
    return network, {"a": a + rng.normal(size=120), "b": b + rng.normal(size=120)}, 50


def with_effects(items: bool) -> Case:
    """A row reads a component, and effects by their indices: with two of these what chunks tell does not add up."""
    rng = np.random.default_rng(7)
    user, item = rng.integers(15, size=300), rng.integers(12, size=300)
    y = np.array([-9.0, 0.0, 9.0])[rng.integers(3, size=300)] + rng.normal(size=15)[user] + 0.5 * rng.normal(size=300)
    row = ng.Plate("row")
    mean = ng.Normal("m", 0.0, 0.01, plate=COMPONENT)[choice(row)]
    mean = mean + ng.Normal("e", 0.0, 1.0, plate=ng.Plate("user"))[ng.Column("user")]
    if items:
        mean = mean + ng.Normal("f", 0.0, 1.0, plate=ng.Plate("item"))[ng.Column("item")]
    seen = ng.Normal("y", mean, ng.Gamma("tau", 1.0, 1.0), plate=row, observed=ng.Column("y"))
    return ng.Network(seen), {"user": user, "item": item, "y": y}, 130


def of_levels() -> Case:
    """Users choose, not rows."""
    rng = np.random.default_rng(1)
    user = np.repeat(np.arange(30), 6)
    g = ng.Categorical("g", ng.Dirichlet("pi", np.full(5, 0.2)), plate=ng.Plate("user"))
    mean = ng.Normal("m", 0.0, 0.01, plate=COMPONENT)[g[ng.Column("user")]]
    seen = ng.Normal("y", mean, 1.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    y = np.array([-5.0, 0.0, 5.0])[user % 3] + rng.normal(size=180)
    return ng.Network(seen), {"user": user, "y": y}, 50


CASES: dict[str, Any] = {
    "dirichlet": mixture,
    "levels": of_levels,
}
SLOW: dict[str, Any] = {
    "sticks": lambda: mixture(sticks=True),
    "large units": lambda: mixture(unit=1e6),
    "regressions": regressions,
    "sequences": lambda: chain(True),
    "one chain": lambda: chain(False),
    "two plates": two_plates,
    "effects": lambda: with_effects(False),
    "effects of two": lambda: with_effects(True),
}


def bits(fit: Fit) -> Any:
    return {name: [np.asarray(part).tobytes() for part in parts] for name, parts in fit.state.lam.items()}


def in_chunks(case: Case, **options: Any) -> Fit:
    network, table, size = case
    return network.fit(table, chunk_rows=size, backend="numpy", **options)


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_chunks_find_what_the_whole_table_does(name: str) -> None:
    case = {**CASES, **SLOW}[name]()
    whole, fit = case[0].fit(case[1]), in_chunks(case)
    assert (
        fit.n_components
        == whole.n_components
        == dict.fromkeys(fit.n_components, 3) | ({"other": 2} if name == "two plates" else {})
    )
    assert fit.elbo == pytest.approx(whole.elbo, abs=2e-3)  # both end within the tolerance of what is left to gain
    bounds = fit.trace["elbo"][~np.isnan(fit.trace["elbo"])]
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    assert fit.problem.bound(fit.state) >= fit.elbo - 1e-9 * abs(fit.elbo)
    assert {move.accepted for move in fit.trace.moves} == {True, False}
    assert fit.trace.n_active(next(iter(fit.trace.first_sizes)))[0] == 1


@pytest.mark.parametrize("stop", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4, 5))])
def test_a_run_goes_on_bit_by_bit(tmp_path: Path, stop: int) -> None:
    case = mixture(sticks=True)
    fit = in_chunks(case)
    with pytest.warns(ng.errors.NotConverged):
        in_chunks(case, checkpoint=tmp_path, every=1, max_steps=stop)
    again = in_chunks(case, checkpoint=tmp_path, every=1, resume=True)
    assert bits(again) == bits(fit)
    assert again.trace.moves == fit.trace.moves


@pytest.mark.parametrize("chunk_rows", [None, pytest.param(20, marks=pytest.mark.slow)])
def test_rows_that_come_bring_components_and_rows_that_go_take_them(chunk_rows: int | None) -> None:
    network, table, _ = mixture()
    early, late = {"x": table["x"][:40]}, {"x": table["x"][40:]}
    fit = network.fit(early, chunk_rows=chunk_rows)
    whole = network.fit(table, chunk_rows=chunk_rows)
    more = fit.update(late)
    assert (fit.n_components, more.n_components) == ({"component": 2}, {"component": 3})
    assert more.elbo == pytest.approx(whole.elbo, abs=2e-3)
    fewer = more.forget(np.arange(40, 60))
    assert fewer.n_components == {"component": 2}
    assert fewer.elbo == pytest.approx(fit.elbo, abs=2e-3)
    assert not fit.update(late, moves=False).trace.moves
    assert fit.continue_fit().trace.moves[: len(fit.trace.moves)] == fit.trace.moves


def test_a_fit_without_moves_goes_on_without() -> None:
    network, table, size = mixture()
    fit = network.fit(table, chunk_rows=size, moves=False, init={"mu": np.arange(5.0)})
    assert not fit.continue_fit().trace.moves
    assert not fit.update({"x": table["x"][:5]}).trace.moves


def test_sampled_steps_say_that_components_cannot_move() -> None:
    network, table, size = mixture()
    with pytest.raises(TypeError, match="moves are accepted by the exact bound"):
        network.fit(table, ng.SVI({"row": 20}), step=ng.RobbinsMonro(), chunk_rows=size)
    assert network.fit(table, ng.SVI({"row": 20}), chunk_rows=size).n_components == {
        "component": 3
    }  # which is memoised


# -- changes of what rows choose, by what they are --


def test_sticks_that_do_not_grow_say_so():
    """Components move between exact passes: of sampled steps all places are there from the start, in chunks as elsewhere."""
    _, table, size = mixture()
    row, component = ng.Plate("row"), ng.Plate("component", 5)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    network = ng.Network(ng.Normal("x", mu[choice(row, sticks=True)], 1.0, plate=row, observed=ng.Column("x")))
    for options in ({}, {"chunk_rows": size}):
        sampled = network.fit(table, ng.SVI({"row": size}), init="random", max_steps=5, tol=0, verbose=False, **options)
        assert "pi is truncated at 5: components move between exact passes" in sampled.trace.strategy
        exact = network.fit(table, max_steps=5, tol=0, verbose=False, **options)
        assert "truncated" not in exact.trace.strategy
