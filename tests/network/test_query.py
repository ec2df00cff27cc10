"""Exact queries of discrete networks against enumeration of the whole joint."""

import itertools

import numpy as np
import pytest
from scipy import stats

import natgrad as ng
from natgrad.errors import CoupledCategories, NotConjugate, PlateMismatch

YES_NO = ("yes", "no")
# Parents and table of each variable of Lauritzen and Spiegelhalter (1988).
ASIA = {
    "asia": ((), [0.01, 0.99]),
    "tub": (("asia",), [[0.05, 0.95], [0.01, 0.99]]),
    "smoke": ((), [0.5, 0.5]),
    "lung": (("smoke",), [[0.1, 0.9], [0.01, 0.99]]),
    "bronc": (("smoke",), [[0.6, 0.4], [0.3, 0.7]]),
    "either": (("lung", "tub"), [[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]),
    "xray": (("either",), [[0.98, 0.02], [0.05, 0.95]]),
    "dysp": (("bronc", "either"), [[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.1, 0.9]]]),
}


@pytest.fixture
def asia():
    nodes = {}
    for name, (parents, table) in ASIA.items():
        above = tuple(nodes[parent] for parent in parents)
        nodes[name] = ng.Categorical(name, ng.table(table)[above] if parents else table)
    net = ng.Network(*nodes.values())
    net.states = dict.fromkeys(ASIA, YES_NO)
    return net


def enumerated(variables, names, given):
    """The joint of some variables by going through all combinations; ``variables``: {name: (parents, table)}."""
    sizes = {name: table.shape[-1] for name, (_, table) in variables.items()}
    out, total = np.zeros([sizes[name] for name in names]), 0.0
    for values in itertools.product(*(range(n) for n in sizes.values())):
        point = dict(zip(sizes, values, strict=True))
        if any(point[name] != value for name, value in given.items()):
            continue
        p = 1.0
        for name, (parents, table) in variables.items():
            p *= table[(*(point[parent] for parent in parents), point[name])]
        out[tuple(point[name] for name in names)] += p
        total += p
    return out / total, np.log(total)


def test_asia(asia):
    variables = {name: (parents, np.array(table)) for name, (parents, table) in ASIA.items()}
    for names, given in (
        (["lung"], {}),
        (["lung", "tub"], {"dysp": "yes"}),
        (["tub"], {"xray": "yes", "dysp": "no", "asia": "yes"}),
        (["smoke", "either", "asia"], {"xray": "no"}),
    ):
        answer = asia.query(names, given)
        numbers = {name: asia.states[name].index(state) for name, state in given.items()}
        table, log_evidence = enumerated(variables, names, numbers)
        np.testing.assert_allclose(answer.table, table, atol=1e-12)
        assert answer.log_evidence == pytest.approx(log_evidence, abs=1e-10)
        np.testing.assert_allclose(answer[names[0]].sum(), 1.0)
    # Lauritzen and Spiegelhalter (1988): the marginals that every textbook has.
    assert asia.query("dysp")["dysp"][0] == pytest.approx(0.4360, abs=5e-5)
    assert asia.query("tub", {"dysp": "yes", "asia": "yes"})["tub"][0] == pytest.approx(0.0878, abs=5e-5)
    assert "dysp: yes 0.436, no 0.564" in repr(asia.query("dysp"))


def test_a_coin_that_is_observed_in_the_declaration():
    rain = ng.Bernoulli("rain", 0.2)
    coin = lambda p: np.stack([1 - np.asarray(p), np.asarray(p)], -1)  # noqa: E731
    variables = {
        "rain": ((), coin(0.2)),
        "sprinkler": (("rain",), coin([0.4, 0.01])),
        "wet": (("rain", "sprinkler"), coin([[0.0, 0.9], [0.8, 0.99]])),
    }
    # One hidden parent alone is exact by fit() too.
    seen = ng.Bernoulli("sprinkler", ng.table([0.4, 0.01])[rain], observed=1)
    leaf = ng.Bernoulli("wet", ng.table([[0.0, 0.9], [0.8, 0.99]])[rain, seen], observed=1)
    table, log_evidence = enumerated(variables, ["rain"], {"sprinkler": 1, "wet": 1})
    net = ng.Network(leaf)
    np.testing.assert_allclose(net.query("rain").table, table, atol=1e-12)
    fit = net.fit()
    assert fit["rain"].mean() == pytest.approx(table[1], abs=1e-10)
    assert fit.elbo == pytest.approx(log_evidence, abs=1e-10)


def test_elements_of_plates_indices_and_continuous_leaves():
    """A category for each row above Normal data, one read through an index: the exact mixture posterior."""
    n = ng.Plate("n", 3)
    z = ng.Categorical("z", [0.2, 0.5, 0.3], plate=n)
    y = np.array([0.3, -1.0, 2.0])
    leaf = ng.Normal("y", ng.table([-1.0, 0.0, 2.0])[z], 1.0, plate=n, observed=y)
    both = ng.Categorical("w", ng.table(np.full((3, 3, 2), 0.5) + np.array([0.1, -0.1]))[z[[0, 2]], z[[1, 1]]],
                          plate=ng.Plate("m", 2), observed=[0, 1])  # fmt: skip
    net = ng.Network(leaf, both)
    like = np.array([0.2, 0.5, 0.3]) * stats.norm.pdf(y[:, None], [-1.0, 0.0, 2.0])
    for i in range(3):
        np.testing.assert_allclose(net.query([("z", i)]).table, like[i] / like[i].sum(), atol=1e-12)
    np.testing.assert_allclose(
        net.query([("z", 0), ("z", 2)]).table, np.outer(like[0], like[2]) / like[0].sum() / like[2].sum(), atol=1e-12
    )
    assert net.query([("z", 0)]).log_evidence == pytest.approx(np.log(like.sum(1)).sum() + np.log(0.6 * 0.4))


def test_a_deterministic_table_that_a_product_cannot_follow():
    """a xor b = 1: exactly half each and never equal; fit() warns, and its bound is below the exact evidence."""
    a, b = ng.Bernoulli("a", 0.5), ng.Bernoulli("b", 0.5)
    c = ng.Bernoulli("c", ng.table([[0.0, 1.0], [1.0, 0.0]])[a, b], observed=1)
    net = ng.Network(c)
    np.testing.assert_allclose(net.query(["a", "b"]).table, [[0.0, 0.5], [0.5, 0.0]])
    assert net.query("a").log_evidence == pytest.approx(np.log(0.5))
    with pytest.warns(CoupledCategories, match="tied by tables"):
        fit = net.fit(init={"a": 0.9})
    assert fit.elbo <= np.log(0.5) + 1e-9


def test_mixtures_by_a_coin():
    rng = np.random.default_rng(0)
    truth = rng.random(80) < 0.4
    y = np.where(truth, 3.0, -3.0) + rng.normal(size=80)
    n = ng.Plate("n", 80)
    x = ng.Bernoulli("x", ng.Beta("p", 1.0, 1.0), plate=n)
    mu = ng.Normal("mu", [-1.0, 1.0], 0.1, plate=ng.Plate("k", 2))
    fit = ng.Network(ng.Normal("y", mu[x], 1.0, plate=n, observed=y)).fit(backend="numpy")
    z = ng.Categorical("z", ng.Dirichlet("p", 1.0, size=2), plate=n)
    same = ng.Network(ng.Normal("y", mu[z], 1.0, plate=n, observed=y)).fit(backend="numpy")
    assert fit.elbo == pytest.approx(same.elbo, abs=1e-6)
    np.testing.assert_allclose(fit["x"].mean(), same["z"].mean()[:, 1], atol=1e-5)
    assert (np.diff(fit.trace["elbo"]) > -1e-9).all()
    started = ng.Network(ng.Normal("y", mu[x], 1.0, plate=n, observed=y)).fit(init="kmeans", backend="numpy")
    assert started.elbo == pytest.approx(same.elbo, abs=1e-2)


def random_network(rng, n_nodes):
    """A random network of categories and coins, with zeros in some tables; returns nodes and tables."""
    nodes, variables = {}, {}
    for i in range(n_nodes):
        name, size = f"v{i}", int(rng.integers(2, 4))
        parents = (
            tuple(rng.choice(list(nodes), size=min(len(nodes), int(rng.integers(0, 4))), replace=False))
            if nodes
            else ()
        )
        lead = [variables[p][1].shape[-1] for p in parents]
        table = rng.dirichlet(np.full(size, 0.7), size=lead)
        if rng.random() < 0.3:
            table = np.where((table < 0.2) & (table < table.max(-1, keepdims=True)), 0.0, table)
            table = table / table.sum(-1, keepdims=True)
        if size == 2 and rng.random() < 0.5:
            given = ng.table(table[..., 1])[tuple(nodes[p] for p in parents)] if parents else float(table[1])
            nodes[name] = ng.Bernoulli(name, given)
        else:
            nodes[name] = ng.Categorical(name, ng.table(table)[tuple(nodes[p] for p in parents)] if parents else table)
        variables[name] = (parents, table)
    return ng.Network(*nodes.values()), variables


def check_random(seed):
    rng = np.random.default_rng(seed)
    net, variables = random_network(rng, int(rng.integers(2, 8)))
    names = list(rng.permutation(list(variables)))
    wanted = names[: int(rng.integers(1, min(3, len(names)) + 1))]
    given = {}
    point = {}
    for name, (parents, table) in variables.items():  # a possible combination, for the evidence
        p = table[tuple(point[q] for q in parents)]
        point[name] = int(rng.choice(len(p), p=p))
    for name in names[len(wanted) :]:
        if rng.random() < 0.4:
            given[name] = point[name]
    table, log_evidence = enumerated(variables, wanted, given)
    answer = net.query(wanted, given)
    np.testing.assert_allclose(answer.table, table, atol=1e-10)
    assert answer.log_evidence == pytest.approx(log_evidence, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_random_networks(seed):
    check_random(seed)


@pytest.mark.slow
def test_two_hundred_random_networks():
    for seed in range(100, 300):
        check_random(seed)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda net: net.query([]), ValueError, "name at least one node"),
        (lambda net: net.query("rane"), KeyError, "'rane' is not in this network; nodes are"),
        (lambda net: net.query("asia", {"asia": "yes"}), ValueError, "asked for and given at once"),
        (
            lambda net: net.query("lung", {"asia": "maybe"}),
            ValueError,
            "given asia = 'maybe', but its states are yes, no",
        ),
        (lambda net: net.query("lung", {"asia": 2}), ValueError, "given asia = 2, but its states are 0 … 1"),
        (lambda net: net.query(("lung", 0)), PlateMismatch, "'lung' has 0 plate"),
        (lambda net: net.query("lung", {"either": "no", "tub": "yes"}), ValueError, "have probability 0"),
        (lambda net: net.fit(), ValueError, "no node is observed among .*; query"),
    ],
)
def test_mistakes(asia, ask, error, words):
    with pytest.raises(error, match=words):
        ask(asia)


def test_what_has_no_exact_answer():
    z = ng.Categorical("z", ng.Dirichlet("p", 1.0, size=2), plate=ng.Plate("n", 3))
    net = ng.Network(ng.Normal("y", ng.table([0.0, 1.0])[z], 1.0, plate=ng.Plate("n", 3), observed=[0.0, 1.0, 2.0]))
    with pytest.raises(NotConjugate, match="'p' is a hidden Dirichlet, and exact queries are for"):
        net.query([("z", 0)])
    parents = [ng.Bernoulli(f"b{i}", 0.5) for i in range(25)]
    wide = [ng.Bernoulli(f"c{i}{j}", ng.table([[0.1, 0.2], [0.3, 0.4]])[parents[i], parents[j]], observed=1)
            for i, j in itertools.combinations(range(25), 2)]  # fmt: skip
    with pytest.raises(ValueError, match=r"the largest table on the way has .* numbers, more than"):
        ng.Network(*wide).query("b0")
