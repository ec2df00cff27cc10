"""Plates that grow in odd networks: two of equal size, one read twice, known labels, weights of zero, missing numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import natgrad as ng
from natgrad.inference.problem import State
from natgrad.network.results.fit import Fit

Floats = npt.NDArray[Any]


def rows(rng: np.random.Generator, n: int, width: int = 2) -> tuple[npt.NDArray[np.int64], Floats]:
    """Labels of three clusters, and points."""
    label = rng.integers(3, size=n)
    return label, rng.normal(0.0, 8.0, (3, width))[label] + rng.normal(size=(n, width))


def two_of_one_size(rng: np.random.Generator) -> ng.Network:
    """Two categories of the same rows, each with components of its own, as many places for both."""
    _, x = rows(rng, 80)
    y = rng.poisson(np.array([1.0, 20.0])[rng.integers(2, size=80)])
    row, column = ng.Plate("row", 80), ng.Plate("column", 2)
    first, second = ng.Plate("a", 4, grow=True), ng.Plate("b", 4, grow=True)
    z1, z2 = (ng.Categorical(f"z{n}", ng.Dirichlet(f"pi{n}", np.full(4, 0.25)), plate=row) for n in (1, 2))
    mu, rate = ng.Normal("mu", 0.0, 0.01, plate=(first, column)), ng.Gamma("rate", 1.0, 0.1, plate=second)
    return ng.Network(
        ng.Normal("x", mu[z1], 1.0, plate=(row, column), observed=x),
        ng.Poisson("y", rate[z2], plate=row, observed=y),
    )


def read_twice(rng: np.random.Generator) -> ng.Network:
    """One category of nodes reads its plate at both ends of every pair."""
    true, level = rng.integers(3, size=24), np.array([-5.0, 0.0, 5.0])
    i, j = np.triu_indices(24, 1)
    y = level[true[i]] - level[true[j]] + rng.normal(size=len(i))
    node, component, pair = ng.Plate("node", 24), ng.Plate("component", 4, grow=True), ng.Plate("pair", len(i))
    z = ng.Categorical("z", ng.Dirichlet("pi", np.full(4, 0.25)), plate=node)
    mu, nu = (ng.Normal(name, 0.0, 0.04, plate=component) for name in ("mu", "nu"))
    return ng.Network(ng.Normal("y", mu[z[i]] - nu[z[j]], 1.0, plate=pair, observed=y))


def nested(rng: np.random.Generator) -> ng.Network:
    """Kinds of groups choose the weights from which rows choose: both are found, of as many places."""
    group_of, kind_of = rng.integers(15, size=90), rng.integers(2, size=15)
    chances = np.array([[0.9, 0.05, 0.05], [0.05, 0.15, 0.8]])[kind_of[group_of]]
    x = np.array([-7.0, 0.0, 7.0])[[rng.choice(3, p=chance) for chance in chances]] + rng.normal(size=90)
    group, row = ng.Plate("group", 15), ng.Plate("row", 90)
    kind, component = ng.Plate("kind", 3, grow=True), ng.Plate("component", 3, grow=True)
    of_group = ng.Categorical("c", ng.Dirichlet("pi", np.full(3, 1 / 3)), plate=group)
    weights = ng.Dirichlet("w", np.full(3, 1 / 3), plate=kind)
    z = ng.Categorical("z", weights[of_group[group_of]], plate=row)
    return ng.Network(ng.Normal("x", ng.Normal("mu", 0.0, 0.01, plate=component)[z], 1.0, plate=row, observed=x))


def labelled(rng: np.random.Generator, grow: bool = True) -> ng.Network:
    """Known labels of some rows, rows that count twice or not at all, numbers that are missing."""
    true, x = rows(rng, 90)
    known, seen, weight = rng.random(90) < 0.3, rng.random((90, 2)) < 0.7, rng.integers(0, 3, 90)
    size = 5 if grow else 3
    row, column, component = ng.Plate("row", 90, weight), ng.Plate("column", 2), ng.Plate("c", size, grow=grow)
    pi = ng.Dirichlet("pi", np.full(size, 1 / size))
    z = ng.Categorical("z", pi, plate=row, observed=np.where(known, true, 0), mask=known)
    mu, tau = ng.Normal("mu", 0.0, 0.01, plate=(component, column)), ng.Gamma("tau", 1.0, 1.0, plate=component)
    return ng.Network(ng.Normal("x", mu[z], tau[z], plate=(row, column), observed=x, mask=seen))


def watched(network: ng.Network, **options: Any) -> tuple[Fit, dict[int, State]]:
    states: dict[int, State] = {}
    return network.fit(callbacks=[lambda p: states.update({p.t: p.state})], **options), states


@pytest.mark.parametrize(
    ("make", "found"),
    [(two_of_one_size, {"a": 3, "b": 2}), (read_twice, {"component": 3}), (nested, {"component": 3, "kind": 2})],
)
def test_every_accepted_move_raises_the_bound_as_recomputed(make: Any, found: dict[str, int]) -> None:
    fit, states = watched(make(np.random.default_rng(2)))
    assert fit.n_components == found
    for t, bound in zip(fit.trace["t"], fit.trace["elbo"], strict=True):
        assert fit.problem.bound(states[int(t)]) == pytest.approx(bound, rel=1e-9)
    accepted = [move for move in fit.trace.moves if move.accepted]
    assert {move.name for move in accepted} == set(found)
    for move in accepted:
        gain = fit.problem.bound(states[move.t + 1]) - fit.problem.bound(states[move.t])
        assert gain == pytest.approx(move.gain, abs=1e-6)
        assert gain > 0.0


@pytest.mark.parametrize("seed", [0, 1])
def test_components_that_hold_known_labels_are_not_emptied(seed: int) -> None:
    """A merge of two of them is none, whatever the passes after it gain; labels stay what they are called."""
    fit, states = watched(labelled(np.random.default_rng(seed)))
    true, _ = rows(np.random.default_rng(seed), 90)
    members = np.asarray(fit.state.mu["z"][0])
    assert (members.argmax(-1) == true).mean() > 0.8  # of one row in ten nothing is seen
    for move in fit.trace.moves:
        assert not (move.kind in ("merge", "delete") and move.accepted)
    for t, bound in zip(fit.trace["t"], fit.trace["elbo"], strict=True):
        assert fit.problem.bound(states[int(t)]) == pytest.approx(bound, rel=1e-9)
    kept, _ = watched(labelled(np.random.default_rng(seed), grow=False), moves="keep")
    assert (np.diff(kept.trace["elbo"]) >= -1e-9 * abs(kept.elbo)).all()


def test_rows_that_count_for_nothing_change_nothing() -> None:
    """Weights of zero: the same components and bounds as without these rows, which have their own far away."""
    rng = np.random.default_rng(5)
    _, x = rows(rng, 60)
    far = np.concatenate([x, 1e3 + rng.normal(size=(20, 2))])

    def network(data: Floats, weight: Any) -> ng.Network:
        row, column = ng.Plate("row", len(data), weight), ng.Plate("column", 2)
        z = ng.Categorical("z", ng.Dirichlet("pi", np.full(5, 0.2)), plate=row)
        mu = ng.Normal("mu", 0.0, 0.01, plate=(ng.Plate("component", 5, grow=True), column))
        return ng.Network(ng.Normal("x", mu[z], 1.0, plate=(row, column), observed=data))

    alone, beside = network(x, None).fit(), network(far, np.repeat([1.0, 0.0], [60, 20])).fit()
    assert alone.n_components == beside.n_components == {"component": 3}
    assert beside.elbo == pytest.approx(alone.elbo, abs=1e-3)
