"""Plates that grow: K from the declaration, whatever lies on the plate; the bound never falls, and runs repeat and go on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.network.bind.declaration import from_data, to_data
from natgrad.network.results.fit import Fit


def mixture(n: int = 90, size: int = 6, sticks: bool = False, grow: bool = True) -> ng.Network:
    rng = np.random.default_rng(0)
    x = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 8.0]])[np.arange(n) % 3] + rng.normal(size=(n, 2))
    row, column, component = ng.Plate("row", n), ng.Plate("column", 2), ng.Plate("component", size, grow=grow)
    pi: Any = ng.language.StickBreaking("pi", 1.0, size=size) if sticks else ng.Dirichlet("pi", np.full(size, 1 / size))
    z = ng.Categorical("z", pi, plate=row)
    mu, tau = ng.Normal("mu", 0.0, 0.01, plate=(component, column)), ng.Gamma("tau", 1.0, 1.0, plate=component)
    return ng.Network(ng.Normal("x", mu[z], tau[z], plate=(row, column), observed=x))


def chain() -> ng.Network:
    rng = np.random.default_rng(1)
    states = np.repeat(np.arange(12) % 3, 10)
    y = np.array([-5.0, 0.0, 5.0])[states] + rng.normal(size=120)
    time, state = ng.Plate("time", 120), ng.Plate("state", 5, grow=True)
    transition = ng.Dirichlet("transition", np.full(5, 0.2), plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("initial", np.full(5, 0.2)), transition, plate=time)
    return ng.Network(ng.Normal("y", ng.Normal("mu", 0.0, 0.01, plate=state)[z], 1.0, plate=time, observed=y))


def block_model(n: int = 30) -> ng.Network:
    rng = np.random.default_rng(2)
    true = np.arange(n) % 3
    i, j = np.triu_indices(n, 1)
    y = rng.random(len(i)) < np.where(true[i] == true[j], 0.8, 0.1)
    sender, receiver = ng.Plate("from", 5, grow=True), ng.Plate("to", 5, grow=True)
    z = ng.Categorical("z", ng.Dirichlet("pi", np.full(5, 0.2)), plate=ng.Plate("node", n))
    p = ng.Beta("p", 1.0, 1.0, plate=(sender, receiver))
    return ng.Network(ng.Bernoulli("y", p[z[i], z[j]], plate=ng.Plate("edge", len(i)), observed=y.astype(int)))


def counts() -> ng.Network:
    rng = np.random.default_rng(3)
    y = rng.poisson(np.array([1.0, 12.0, 60.0])[np.arange(90) % 3])
    row, component = ng.Plate("row", 90), ng.Plate("component", 6, grow=True)
    z = ng.Categorical("z", ng.Dirichlet("pi", np.full(6, 1 / 6)), plate=row)
    return ng.Network(ng.Poisson("y", ng.Gamma("rate", 1.0, 0.05, plate=component)[z], plate=row, observed=y))


def regressions() -> ng.Network:
    """Three lines; coefficients and precisions move together."""
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(120), rng.uniform(-3.0, 3.0, 120)])
    y = (X * np.array([[-8.0, 2.0], [0.0, -2.0], [8.0, 1.0]])[np.arange(120) % 3]).sum(1) + 0.5 * rng.normal(size=120)
    row, component = ng.Plate("row", 120), ng.Plate("component", 5, grow=True)
    z = ng.Categorical("z", ng.Dirichlet("pi", np.full(5, 0.2)), plate=row)
    w = ng.MultivariateNormal("w", np.zeros(2), 0.01 * np.eye(2), plate=component)
    tau = ng.Gamma("tau", 1.0, 1.0, plate=component)
    return ng.Network(ng.Normal("y", ng.dot(X, w[z]), tau[z], plate=row, observed=y))


def check(fit: Fit, plate: str) -> None:
    assert fit.n_components == {plate: 3}
    bounds, moves = fit.trace["elbo"], fit.trace.moves
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    assert fit.elbo == pytest.approx(fit.problem.bound(fit.state), abs=1e-6)
    assert any(move.kind == "birth" and move.accepted for move in moves)
    assert any(not move.accepted for move in moves)
    assert fit.trace.n_active(plate)[0] == 1
    held = np.asarray(fit.state.mu["z"][0]).reshape(-1, np.shape(fit.state.mu["z"][0])[-1]).sum(0)
    assert (held > 0.5).sum() == 3


@pytest.mark.parametrize(
    ("make", "plate"),
    [
        (mixture, "component"),
        (chain, "state"),
        (block_model, "from"),
        (counts, "component"),
        (regressions, "component"),
    ],
)
def test_k_is_found(make: Any, plate: str) -> None:
    check(make().fit(), plate)


def test_sticks_grow_too() -> None:
    check(mixture(sticks=True).fit(), "component")


def test_a_run_that_was_stopped_goes_on_bit_by_bit(tmp_path: Path) -> None:
    whole = mixture().fit()
    mixture().fit(max_steps=3, checkpoint=tmp_path, every=1)
    again = mixture().fit(checkpoint=tmp_path, every=1, resume=True)
    assert again.elbo == whole.elbo
    assert again.trace.moves == whole.trace.moves
    assert all((a == b).all() for a, b in zip(again.state.lam["mu"], whole.state.lam["mu"], strict=True))


def test_keep_leaves_a_poor_start() -> None:
    network = mixture(size=3, grow=False)
    start = {"mu": np.array([[-6.0, 0.0], [-6.5, 0.5], [3.0, 4.0]])}
    poor, kept = network.fit(init=start), network.fit(init=start, moves="keep")
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
    with pytest.raises(ValueError, match='moves="keep" keeps the number'):
        mixture().fit(moves="keep")
    with pytest.raises(ValueError, match='moves must be "keep"'):
        mixture().fit(moves="grow")
    with pytest.raises(TypeError, match="moves are accepted by the exact bound"):
        mixture().fit(ng.Children(5))
    assert not mixture().fit(moves=False, init="kmeans").trace.moves


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
    assert declared_sticks(True).fit(THREE, chunk_rows=20).n_components == {"component": 3}


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
