"""Plates that grow: K from the declaration, whatever lies on the plate; in chunks, of what globals choose.

The bound never falls, and runs repeat and go on.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.network.bind.declaration import from_data, to_data
from natgrad.network.results.fit import Fit

Case = tuple[ng.Network, dict[str, Any], int]
COMPONENT = ng.Plate("component", 5, grow=True)


def choice(row: ng.Plate, sticks: bool = False, size: int = 5, **options: Any) -> Any:
    pi: Any = ng.StickBreaking("pi", 1.0, size=size) if sticks else ng.Dirichlet("pi", np.full(size, 1 / size))
    return ng.Categorical("z", pi, plate=row, **options)


def mixture(sticks: bool = False, unit: float = 1.0, n: int = 60, kinds: ng.Plate = COMPONENT) -> Case:
    """Three clusters, one after the other."""
    rng = np.random.default_rng(0)
    x = unit * (np.repeat([-6.0, 0.0, 7.0], n // 3) + rng.normal(size=n))
    row = ng.Plate("row")
    z = choice(row, sticks, kinds.size)
    mu, tau = ng.Normal("mu", 0.0, 0.01 / unit**2, plate=kinds), ng.Gamma("tau", 1.0, unit**2, plate=kinds)
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
    """Sequences, or one chain along all rows."""
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
    """A row reads a component, and effects by their indices."""
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


def counts() -> Case:
    y = np.random.default_rng(3).poisson(np.array([1.0, 12.0, 60.0])[np.arange(90) % 3])
    row = ng.Plate("row")
    rate = ng.Gamma("rate", 1.0, 0.05, plate=COMPONENT)[choice(row)]
    return ng.Network(ng.Poisson("y", rate, plate=row, observed=ng.Column("y"))), {"y": y}, 30


def block_model(n: int = 30) -> ng.Network:
    """Pairs of nodes, of which no table is read in chunks."""
    rng = np.random.default_rng(2)
    true = np.arange(n) % 3
    i, j = np.triu_indices(n, 1)
    y = rng.random(len(i)) < np.where(true[i] == true[j], 0.8, 0.1)
    sender, receiver = ng.Plate("from", 5, grow=True), ng.Plate("to", 5, grow=True)
    z = ng.Categorical("z", ng.Dirichlet("pi", np.full(5, 0.2)), plate=ng.Plate("node", n))
    p = ng.Beta("p", 1.0, 1.0, plate=(sender, receiver))
    return ng.Network(ng.Bernoulli("y", p[z[i], z[j]], plate=ng.Plate("edge", len(i)), observed=y.astype(int)))


CASES: dict[str, Any] = {
    "dirichlet": mixture,
    "levels": of_levels,
}
SLOW: dict[str, Any] = {
    "sticks": lambda: mixture(sticks=True),
    "counts": counts,
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


def rises(fit: Fit) -> None:
    bounds = fit.trace["elbo"][~np.isnan(fit.trace["elbo"])]
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    assert fit.problem.bound(fit.state) >= fit.elbo - 1e-9 * abs(fit.elbo)
    assert {move.accepted for move in fit.trace.moves} == {True, False}
    assert any(move.kind == "birth" and move.accepted for move in fit.trace.moves)
    assert fit.trace.n_active(next(iter(fit.trace.first_sizes)))[0] == 1


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_k_is_found(name: str) -> None:
    network, table, _ = {**CASES, **SLOW}[name]()
    fit = network.fit(table)
    assert fit.n_components == dict.fromkeys(fit.n_components, 3) | ({"other": 2} if name == "two plates" else {})
    rises(fit)


def test_k_of_levels_is_found_in_chunks_as_in_the_whole_table() -> None:
    network, table, size = of_levels()
    whole, fit = network.fit(table), network.fit(table, chunk_rows=size, backend="numpy")
    assert fit.n_components == whole.n_components == {"component": 3}
    assert fit.elbo == pytest.approx(whole.elbo, abs=2e-3)  # both end within the tolerance of what is left to gain
    rises(fit)


def test_components_that_rows_choose_are_found_in_memory_alone() -> None:
    network, table, size = mixture(sticks=True)
    for options in ({}, {"method": ng.SVI({"row": 20})}):
        with pytest.raises(
            ng.errors.PlateMismatch, match=r"'z' chooses is found with all rows in memory: leave chunk_rows="
        ):
            network.fit(table, chunk_rows=size, **options)
    kept = network.fit(table, chunk_rows=size, moves=False, verbose=False)
    assert kept.n_components == {}
    assert not kept.continue_fit(verbose=False).trace.moves
    assert not kept.update({"x": table["x"][:5]}).trace.moves
    with pytest.raises(ng.errors.PlateMismatch, match="all rows in memory"):
        declared_sticks(False).fit(THREE, chunk_rows=20, moves="keep")
    assert not declared_sticks(None).fit(THREE, chunk_rows=20).trace.moves


def test_blocks_are_found() -> None:
    fit = block_model().fit()
    assert fit.n_components == {"from": 3}
    assert (np.asarray(fit.state.mu["z"][0]).sum(0) > 0.5).sum() == 3
    rises(fit)


@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("stop", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4, 5))])
def test_a_run_that_was_stopped_goes_on_bit_by_bit(tmp_path: Path, stop: int, chunks: bool) -> None:
    network, table, size = of_levels() if chunks else mixture(sticks=True)
    options: dict[str, Any] = {"chunk_rows": size if chunks else None, "backend": "numpy", "verbose": False}
    fit = network.fit(table, **options)
    network.fit(table, **options, checkpoint=tmp_path, every=1, max_steps=stop, tol=0.0)
    again = network.fit(table, **options, checkpoint=tmp_path, every=1, resume=True)
    assert bits(again) == bits(fit)
    assert again.trace.moves == fit.trace.moves


def test_rows_that_come_bring_components_and_rows_that_go_take_them() -> None:
    network, table, _ = mixture()
    early, late = {"x": table["x"][:40]}, {"x": table["x"][40:]}
    fit = network.fit(early)
    whole = network.fit(table)
    more = fit.update(late)
    assert (fit.n_components, more.n_components) == ({"component": 2}, {"component": 3})
    assert more.elbo == pytest.approx(whole.elbo, abs=2e-3)
    fewer = more.forget(np.arange(40, 60))
    assert fewer.n_components == {"component": 2}
    assert fewer.elbo == pytest.approx(fit.elbo, abs=2e-3)
    assert not fit.update(late, moves=False).trace.moves
    assert fit.continue_fit().trace.moves[: len(fit.trace.moves)] == fit.trace.moves


def test_sampled_steps_say_that_components_cannot_move() -> None:
    network, table, size = of_levels()
    with pytest.raises(TypeError, match="moves are accepted by the exact bound"):
        network.fit(table, ng.SVI({"row": 50}), step=ng.RobbinsMonro(), chunk_rows=size)


def test_sticks_that_do_not_grow_say_so():
    """Components move between exact passes in memory: in chunks, and of sampled steps, all places are there from the start."""
    _, table, size = mixture()
    row, component = ng.Plate("row"), ng.Plate("component", 5)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    network = ng.Network(ng.Normal("x", mu[choice(row, sticks=True)], 1.0, plate=row, observed=ng.Column("x")))
    for options in ({}, {"chunk_rows": size}):
        sampled = network.fit(table, ng.SVI({"row": size}), init="random", max_steps=5, tol=0, verbose=False, **options)
        assert "pi is truncated at 5: components move between exact passes" in sampled.trace.strategy
        exact = network.fit(table, max_steps=5, tol=0, verbose=False, **options)
        assert ("truncated" in exact.trace.strategy) == bool(options)


def test_keep_leaves_a_poor_start() -> None:
    network, table, _ = mixture(kinds=ng.Plate("component", 3))
    start = {"mu": np.array([-6.0, -6.5, 3.5])}
    poor, kept = network.fit(table, init=start), network.fit(table, init=start, moves="keep")
    assert kept.elbo >= poor.elbo - 1e-3
    assert [move.kind for move in kept.trace.moves if move.accepted][-1] == "exchange"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="a plate that grows has a size"):
        ng.Plate("component", grow=True)
    with pytest.raises(TypeError, match="grow must be True or False"):
        ng.Plate("component", 3, grow=1)  # type: ignore[arg-type]
    row = ng.Plate("row", 3, grow=True)
    alone = ng.Network(ng.Normal("x", ng.Normal("m", 0.0, 1.0), 1.0, plate=row, observed=[1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="no hidden category chooses along it"):
        alone.fit()
    network, table, _ = mixture()
    with pytest.raises(ValueError, match='moves="keep" keeps the number'):
        network.fit(table, moves="keep")
    with pytest.raises(ValueError, match='moves must be "keep"'):
        network.fit(table, moves="grow")
    with pytest.raises(TypeError, match="moves are accepted by the exact bound"):
        network.fit(table, ng.Children(5))
    assert not network.fit(table, moves=False, init="kmeans").trace.moves


def declared_sticks(sticks: bool | None, plate: bool = False) -> ng.Network:
    row, component = ng.Plate("row"), ng.Plate("component", 6, grow=plate)
    z = ng.Categorical("z", ng.StickBreaking("pi", 1.0, size=6, grow=sticks), plate=row)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)[z]
    return ng.Network(ng.Normal("x", mu, 1.0, plate=row, observed=ng.Column("x")))


THREE = {"x": np.array([-6.0, 0.0, 6.0])[np.arange(60) % 3] + np.random.default_rng(0).normal(size=60)}


def test_sticks_say_themselves_that_what_they_weight_grows() -> None:
    """Sticks that grow are the same fit as a plate that does; by default they do, wherever steps are exact."""

    one, other, neither, free = (
        declared_sticks(*grow).fit(THREE) for grow in ((True,), (False, True), (False,), (None,))
    )
    assert one.n_components == other.n_components == free.n_components == {"component": 3}
    assert one.elbo == other.elbo
    assert one.trace.moves == other.trace.moves
    assert free.elbo >= max(one.elbo, neither.elbo) - 1e-3
    assert neither.n_components == {}
    assert not neither.trace.moves
    with pytest.raises(TypeError, match="'pi': grow must be True, False or None, got 1"):
        ng.StickBreaking("pi", 1.0, size=6, grow=1)  # type: ignore[arg-type]
    alone = ng.Categorical("z", ng.StickBreaking("pi", 1.0, size=6, grow=True), plate=ng.Plate("n", 2), observed=[0, 1])
    with pytest.raises(ValueError, match="'pi' grows, and no hidden category chooses along it"):
        ng.Network(alone).fit()


@pytest.mark.slow
def test_sticks_that_nobody_asked_to_grow_do_where_they_can() -> None:
    # Steps that are not exact: what nobody asked for is left out, in words.
    sampled = declared_sticks(None).fit(THREE, ng.SVI({"row": 20}), max_steps=3, tol=0.0)
    assert not sampled.trace.moves
    assert "pi is truncated at 6: components move between exact passes" in sampled.trace.strategy
    assert not declared_sticks(None).fit(THREE, n_init=2).trace.moves
    assert declared_sticks(None).fit(THREE, moves="keep").trace.moves
    for grow in (True, False, None):
        again = ng.Network(*from_data(to_data(declared_sticks(grow).template)).roots)  # type: ignore[arg-type]
        assert again.fit(THREE, moves=False, max_steps=1, tol=0.0).problem.plan.nodes["pi"].grow is grow  # type: ignore[attr-defined]
    # A declaration that was kept before sticks grew by themselves.
    data = to_data(declared_sticks(None).template)  # type: ignore[arg-type]
    del data["made"][0]["options"]["grow"]
    assert not ng.Network(*from_data(data).roots).fit(THREE).trace.moves


def test_an_exchange_that_leads_back_is_refused_before_any_pass_and_one_that_leads_to_a_better_order_is_not() -> None:
    """Priors that tell components apart: the same memberships in another order may have a higher bound."""
    x = np.concatenate([np.full(30, -6.0), np.full(10, 6.0)]) + np.random.default_rng(0).normal(size=40)
    row, component = ng.Plate("row", 40), ng.Plate("component", 2)

    def network(concentration: list[float]) -> ng.Network:
        z = ng.Categorical("z", ng.Dirichlet("pi", concentration), plate=row)
        return ng.Network(ng.Normal("x", ng.Normal("mu", 0.0, 0.01, plate=component)[z], 1.0, plate=row, observed=x))

    start = {"mu": np.array([6.0, -6.0])}
    kept = network([1.0, 1.0]).fit(init=start, moves="keep")
    exchanges = [move for move in kept.trace.moves if move.kind == "exchange"]
    assert exchanges
    assert all(move.gain == -np.inf and not move.accepted for move in exchanges)
    poor = network([20.0, 1.0]).fit(init=start, moves=False)
    better = network([20.0, 1.0]).fit(init=start, moves="keep")
    best = network([20.0, 1.0]).fit(init={"mu": -start["mu"]})
    assert better.elbo == pytest.approx(best.elbo, abs=1e-3)
    assert better.elbo > poor.elbo + 1.0
