"""Discrete networks with logic: warned of where independent factors are far off, silent where they are not; psis in words."""

import itertools
import warnings

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import CoupledCategories, PoorApproximation, UnreachedNode
from natgrad.network.results.ties import ties_of

OR = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
# Lauritzen and Spiegelhalter (1988): parents and the table [parents…, states] of each node.
ASIA = {
    "visit": ((), [0.99, 0.01]),
    "smoke": ((), [0.5, 0.5]),
    "tub": (("visit",), [[0.99, 0.01], [0.95, 0.05]]),
    "lung": (("smoke",), [[0.99, 0.01], [0.9, 0.1]]),
    "bronc": (("smoke",), [[0.7, 0.3], [0.4, 0.6]]),
    "either": (("tub", "lung"), OR),
    "xray": (("either",), [[0.95, 0.05], [0.02, 0.98]]),
    "dysp": (("bronc", "either"), [[[0.9, 0.1], [0.3, 0.7]], [[0.2, 0.8], [0.1, 0.9]]]),
}
SPRINKLER = {
    "cloudy": ((), [0.5, 0.5]),
    "sprinkler": (("cloudy",), [[0.5, 0.5], [0.9, 0.1]]),
    "rain": (("cloudy",), [[0.8, 0.2], [0.2, 0.8]]),
    "wet": (("sprinkler", "rain"), [[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]]),
}


def declared(tables, seen):
    nodes = {}
    for name, (parents, table) in tables.items():
        probs = ng.table(table)[tuple(nodes[parent] for parent in parents)] if parents else table
        nodes[name] = ng.Categorical(name, probs, observed=seen.get(name))
    return ng.Network(*nodes.values())


def enumerated(tables, seen, asked):
    """The exact probability that a node is 1, and the exact log evidence, by adding up all combinations."""
    total = {0: 0.0, 1: 0.0}
    for states in itertools.product((0, 1), repeat=len(tables)):
        at = dict(zip(tables, states, strict=True))
        if all(at[name] == value for name, value in seen.items()):
            chance = [np.array(t)[(*(at[p] for p in parents), at[name])] for name, (parents, t) in tables.items()]
            total[at[asked]] += float(np.prod(chance))
    return total[1] / sum(total.values()), np.log(sum(total.values()))


CASES = {
    "asia": (ASIA, {"xray": 1, "dysp": 1}, "lung", 0.621, ("either", "tub", "lung")),
    "sprinkler": (SPRINKLER, {"wet": 1}, "rain", 0.708, ("sprinkler", "rain")),
}


@pytest.mark.parametrize("case", CASES)
def test_logic_that_q_cannot_follow_is_warned_of(case):
    tables, seen, asked, known, tied = CASES[case]
    exact, evidence = enumerated(tables, seen, asked)
    assert exact == pytest.approx(known, abs=5e-4)
    network = declared(tables, seen)
    with pytest.warns(CoupledCategories, match="tied by tables .* independent factors") as caught:
        fit = network.fit()
    assert all(repr(name) in str(caught[0].message) for name in tied)
    assert caught[0].filename == __file__
    assert abs(fit[asked].mean()[1] - exact) > 0.2  # the warning is right
    assert fit.elbo < evidence
    with pytest.warns(PoorApproximation, match="nothing follows from the weights: .* tied by the table of"):
        found = fit.psis(n=200)
    assert found.k_hat == np.inf
    assert fit.elbo - 1e-6 <= found.log_evidence < evidence


def test_observed_or_merged_nodes_are_exact_and_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # "either" is known to be 0: zeros, but of a product form, so tub and lung are 0 for certain.
        network = declared(ASIA, {"xray": 1, "dysp": 1, "either": 0})
        assert not ties_of(network.problem.plan)
        fit = network.fit()
        assert fit["lung"].mean()[1] == fit["tub"].mean()[1] == 0.0
        # Sprinkler and rain as one category over four combinations, cloudy summed out.
        prior = np.einsum("c,cs,cr->sr", *(np.array(SPRINKLER[name][1]) for name in ("cloudy", "sprinkler", "rain")))
        both = ng.Categorical("both", prior.ravel())
        wet = ng.Categorical("wet", ng.table(np.array(SPRINKLER["wet"][1]).reshape(4, 2))[both], observed=1)
        fit = ng.Network(wet).fit()
    exact, evidence = enumerated(SPRINKLER, {"wet": 1}, "rain")
    assert fit["both"].mean()[[1, 3]].sum() == pytest.approx(exact, abs=1e-12)
    assert fit.elbo == pytest.approx(evidence, abs=1e-12)
    found = fit.psis(n=200)
    assert found.k_hat == -np.inf
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)


def test_nothing_is_said_of_models_that_are_right(rng):
    n, k = ng.Plate("n", 12), ng.Plate("k", 2)
    z = ng.Categorical("z", ng.Dirichlet("pi", np.ones(2)), plate=n)
    mixture = ng.Normal("x", ng.Normal("mu", 0.0, 0.01, plate=k)[z], 1.0, plate=n, observed=rng.normal(size=12))
    path = ng.MarkovChain("path", [1.0, 0.0], [[0.999, 0.001], [0.0, 1.0]], plate=n)
    symbols = ng.Categorical("s", ng.table([[1.0, 0.0], [0.0, 1.0]])[path], plate=n, observed=np.arange(12) // 6)
    soft = ng.Categorical("a", [0.5, 0.5], plate=n)
    child = ng.Categorical("b", ng.table([[0.9, 0.1], [0.2, 0.8]])[soft], plate=n)
    leaf = ng.Bernoulli("c", ng.table([0.1, 0.9])[child], plate=n, observed=np.arange(12) % 2)
    for node in (mixture, symbols, leaf):
        assert ties_of(ng.Network(node).problem.plan) == []


def test_what_ties():
    n = ng.Plate("n", 6)
    a = ng.Categorical("a", [0.5, 0.5], plate=n)
    x = ng.Bernoulli("x", ng.table([0.0, 1.0])[a], plate=n)
    y = ng.Bernoulli("y", ng.table([0.2, 0.8])[a], plate=n, observed=np.arange(6) % 2)
    with pytest.warns(UnreachedNode):
        (tie,) = ties_of(ng.Network(x, y).problem.plan)
    assert (set(tie.hidden), tie.node, tie.nats) == ({"x", "a"}, "x", np.inf)
    # A copy with an error of 1 in 1000 is a tie of about 2 · log 999 nats, whoever is observed below it.
    b = ng.Categorical("b", ng.table([[0.999, 0.001], [0.001, 0.999]])[a], plate=n)
    seen = ng.Bernoulli("c", ng.table([0.1, 0.9])[b], plate=n, observed=np.arange(6) % 2)
    (tie,) = ties_of(ng.Network(seen).problem.plan)
    assert tie.nats == pytest.approx(2 * np.log(999))
    # Neighbours of one node on a plate, read by their numbers.
    pairs = ng.Plate("pair", 5)
    same = ng.table([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    links = ng.Categorical("same", same[a[np.arange(5)], a[np.arange(1, 6)]], plate=pairs, observed=np.ones(5, int))
    (tie,) = ties_of(ng.Network(links).problem.plan)
    assert (tie.hidden, tie.nats) == (("a",), np.inf)


@pytest.mark.parametrize("n_coins", [1, 6])
def test_a_coin_that_chooses_is_a_category_of_two(n_coins):
    """Without plates its statistics have no axis, and on rows their last axis is the rows': neither is one of categories."""
    y = np.array([-1.2, 0.1, 0.8, 0.3, -0.4, 1.1])
    row, tables = ng.Plate("row", 6), {}

    def declared(gate):
        mu = ng.Normal("mu", [-1.0, 1.0], 1.0, plate=ng.Plate("k", 2))
        return ng.Network(ng.Normal("y", mu[gate], 2.0, plate=row, observed=y))

    plate = {} if n_coins == 1 else {"plate": row}
    coin = declared(ng.Bernoulli("z", 0.4, **plate))
    category = declared(ng.Categorical("z", [0.6, 0.4], **plate))
    for init in (None, "kmeans") if n_coins > 1 else (None,):
        tables[init] = [network.fit(init=init) for network in (coin, category)]
        ours, wanted = tables[init]
        assert ours.elbo == pytest.approx(wanted.elbo, abs=2e-3)
        np.testing.assert_allclose(ours["z"].mean(), wanted["z"].mean()[..., 1], atol=0.02)
    # All values of the coins; the means that they choose are integrated out: y ~ N(prior, I / 2 + Z Zᵀ).
    log_joint, values = [], np.array(list(np.ndindex(*(2,) * n_coins)))
    for z in values:
        chosen = np.eye(2)[np.broadcast_to(z, 6)]
        away, cov = y - chosen @ [-1.0, 1.0], np.eye(6) / 2 + chosen @ chosen.T
        likelihood = -0.5 * (away @ np.linalg.solve(cov, away) + np.linalg.slogdet(2 * np.pi * cov)[1])
        log_joint.append(likelihood + np.log(np.where(z, 0.4, 0.6)).sum())
    evidence = np.logaddexp.reduce(log_joint)
    assert evidence - 2.0 < ours.elbo < evidence
    draws = ours.draws(1000)["z"].values.reshape(-1, n_coins).mean(axis=0)
    np.testing.assert_allclose(draws, np.exp(np.array(log_joint) - evidence) @ values, atol=0.05)


def test_categories_that_choose_a_category_have_no_axis_of_its_table():
    """t[z[k, l]]: three hidden categories in one term, and a table of which one of them chooses a row."""
    k, l = ng.Categorical("k", [0.5, 0.5]), ng.Categorical("l", [0.3, 0.7])  # noqa: E741
    z = ng.Categorical("z", [0.2, 0.8], plate=(ng.Plate("a", 2), ng.Plate("b", 2)))
    table = ng.Dirichlet("t", 1.0, size=2, plate=ng.Plate("c", 2), observed=[[0.6, 0.4], [0.3, 0.7]])
    net = ng.Network(ng.Categorical("x", table[z[k, l]], observed=1))
    evidence = np.log(0.2 * 0.4 + 0.8 * 0.7)
    assert evidence - 0.05 < net.fit(verbose=False).elbo < evidence
