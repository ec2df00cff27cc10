"""Simulation from a declaration has the moments of the declared distributions; calibration finds what it should find."""

from typing import Any

import numpy as np
import pytest
from generators.draws import accepted
from generators.generator import draw
from promises import networks
from scipy.stats import binom, norm

import natgrad as ng
from natgrad.errors import PlateMismatch
from natgrad.posterior.calibration import normal_ranks


def test_nodes_have_the_moments_that_were_declared():
    n, k = ng.Plate("n", 2), ng.Plate("k", 2)
    p = ng.Dirichlet("p", [2.0, 6.0])
    z = ng.Categorical("z", p, plate=n)
    precision = ng.Wishart("precision", 6.0, 3.0 * np.eye(2))
    mu = ng.MultivariateNormal("mu", [1.0, -1.0], precision, plate=k)
    share = ng.Beta("share", 2.0, 2.0)
    rate = ng.Gamma("rate", 4.0, 2.0)
    leaves = [
        ng.MultivariateNormal("x", mu[z], np.eye(2), plate=n, observed=np.zeros((2, 2))),
        ng.Bernoulli("flip", share, plate=n, observed=[0, 1]),
        ng.Binomial("wins", 10, share, observed=3),
        ng.Poisson("count", rate, plate=n, observed=[1, 2]),
        ng.Exponential("wait", rate, observed=1.0),
        ng.Multinomial("votes", None, p, observed=[3, 5]),
        ng.Normal("gate", ng.table([10.0, 20.0])[z], 4.0, plate=n, observed=[9.0, 21.0]),
    ]
    s = ng.Network(*leaves).simulate(1, 20_000)

    def near(values, mean, at_most=4.5):
        assert (np.abs(values.mean(0) - mean) <= at_most * values.std(0) / np.sqrt(len(values)) + 1e-9).all()

    near(s["p"], [0.25, 0.75])
    near(s["z"] == 1, [0.75, 0.75])
    near(s["precision"], 2.0 * np.eye(2))
    near(s["x"], [[1.0, -1.0]] * 2)
    near(s["flip"], [0.5, 0.5])
    near(s["wins"], 5.0)
    assert s["wins"].var() == pytest.approx(10 * 0.25 * (1 + 9 / 5), rel=0.05)  # a Beta-binomial
    near(s["count"], [2.0, 2.0])
    assert s["count"].var() == pytest.approx(2.0 + 1.0, rel=0.06)  # E + the variance of the rate
    near(s["wait"], 2.0 / 3.0, 6.0)
    near(s["votes"], [2.0, 6.0])
    assert (s["votes"].sum(-1) == 8).all()
    near(s["gate"] - 10.0 - 10.0 * s["z"], [0.0, 0.0])
    assert np.corrcoef(s["flip"].T)[0, 1] == pytest.approx(0.05 / 0.25, abs=0.03)


def test_paths_of_a_chain_follow_its_rows():
    state, time = ng.Plate("state", 2), ng.Plate("time", 6)
    rows = ng.Dirichlet("rows", [[8.0, 2.0], [1.0, 9.0]], plate=state)
    z = ng.MarkovChain("z", [0.3, 0.7], rows, plate=time, lengths=[4, 2])
    s = ng.Network(ng.Normal("y", ng.table([0.0, 5.0])[z], 4.0, plate=time, observed=np.zeros(6))).simulate(0, 20_000)
    paths = s["z"]
    assert (paths[:, 0] == 1).mean() == pytest.approx(0.7, abs=0.015)
    assert (paths[:, 4] == 1).mean() == pytest.approx(0.7, abs=0.015)  # a sequence begins there
    assert (paths[:, 1][paths[:, 0] == 0] == 1).mean() == pytest.approx(0.2, abs=0.02)
    assert (paths[:, 5][paths[:, 4] == 1] == 1).mean() == pytest.approx(0.9, abs=0.015)
    moved = s["rows"][np.arange(20_000), paths[:, 0], paths[:, 1]]
    assert moved.mean() > s["rows"].mean()  # a path took the rows of its own draw
    np.testing.assert_allclose(s["y"].mean(0), 5.0 * paths.mean(0), atol=0.02)


def test_random_networks_can_be_simulated_and_observed_anew():
    done = 0
    for seed in range(40):
        if (case := accepted(seed, draw(seed))) is None:
            continue
        try:
            values = case.network.simulate(seed)
        except PlateMismatch:  # an observed node that others read, see below
            continue
        for name, node in case.network.nodes.items():
            events = 0 if node.family.name == "MarkovChain" else node.family.event_ndim  # whose time is a plate
            assert values[name].shape == tuple(p.size for p in node.plates) + (node.size or 0,) * events
        try:
            again = case.network.observing(values)
        except PlateMismatch:  # one that was drawn, and that others read
            continue
        for name, node in again.nodes.items():
            if node.is_observed and node.mask is None:
                np.testing.assert_allclose(node.value, values[name])
        done += 1
    assert done > 15


def test_the_same_seed_gives_the_same_values():
    network = networks.several().network
    first, second, other = (network.simulate(seed) for seed in (3, 3, 4))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["a"], other["a"])


def test_a_fit_simulates_data_like_those_it_saw():
    y = np.random.default_rng(0).normal(3.0, 0.5, 200)
    mu, tau = ng.Normal("mu", 0.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
    fit = ng.Network(ng.Normal("y", mu, tau, plate=ng.Plate("n", 200), observed=y)).fit(verbose=False)
    s = fit.simulate(0, 200)
    assert s["y"].shape == (200, 200)
    assert s["y"].mean() == pytest.approx(y.mean(), abs=0.02)
    assert s["y"].std() == pytest.approx(y.std(), rel=0.05)


@pytest.mark.parametrize("gap", [False, True])
def test_an_observed_parent_that_depends_on_what_is_hidden_is_drawn(gap):
    mu, n = ng.Normal("mu", 1.0, 1.0), ng.Plate("n", 2)
    x = ng.Normal("x", mu, 1.0, plate=n, observed=[50.0, np.nan if gap else 60.0])
    network = ng.Network(ng.Normal("y", 3.0 * x, 1.0, plate=n, observed=[0.0, 1.0]))
    drawn = network.simulate(0, 40_000)
    together = np.cov(np.c_[drawn["mu"], drawn["x"], drawn["y"]].T)
    exact = [[1, 1, 1, 3, 3], [1, 2, 1, 6, 3], [1, 1, 2, 3, 6], [3, 6, 3, 19, 9], [3, 3, 6, 9, 19]]
    np.testing.assert_allclose(
        together, exact, atol=0.6
    )  # 4 standard errors of the largest entry: 19 √(2 / 40,000) · 4
    np.testing.assert_allclose(drawn["y"].mean(0), 3.0, atol=0.1)
    with pytest.raises(
        PlateMismatch, match="'x' is observed, and is read by another node, which was declared with its val"
    ):
        network.observing({name: values[0] for name, values in drawn.items()})


def test_what_was_seen_of_a_covariate_stays():
    n = ng.Plate("n", 2)
    x = ng.Normal("x", 1.0, 1.0, plate=n, observed=[50.0, np.nan])
    network = ng.Network(ng.Normal("y", 3.0 * x, 1.0, plate=n, observed=[0.0, 1.0]))
    drawn = network.simulate(0, 1000)
    assert (drawn["x"][:, 0] == 50.0).all()
    assert drawn["y"][:, 0].mean() == pytest.approx(150.0, abs=0.2)
    assert drawn["x"][:, 1].std() == pytest.approx(1.0, abs=0.1)
    after = network.fit().simulate(0, 1000)  # q of what is missing knows its y
    assert (after["x"][:, 0] == 50.0).all()
    assert after["x"][:, 1].mean() == pytest.approx((1.0 + 3.0) / 10.0, abs=0.05)
    assert after["y"][:, 1].mean() == pytest.approx(3.0 * 0.4, abs=0.2)


@pytest.mark.parametrize("gathered", [False, True])
def test_observed_labels_choose_by_the_values_that_are_drawn(gathered):
    """Naive Bayes, and labels of groups: z is drawn, and what it chooses is of the drawn one."""
    n, k, group = ng.Plate("n", 3), ng.Plate("k", 2), np.array([1, 0, 1])
    labels = ng.Plate("g", 2) if gathered else n
    p = ng.Dirichlet("p", [1.0, 3.0])
    z = ng.Categorical("z", p, plate=labels, observed=[0, 1] if gathered else [0, 1, 1])
    coin = ng.Bernoulli("coin", 0.25, plate=n, observed=[0, 0, 1])
    mu = ng.Normal("mu", [-5.0, 5.0], 100.0, plate=k)
    shift = ng.table([0.0, 100.0])[coin]
    y = ng.Normal("y", mu[z[group] if gathered else z] + shift, 100.0, plate=n, observed=[0.0, 1.0, 2.0])
    drawn = ng.Network(y).simulate(0, 4000)
    assert (drawn["coin"] == [0, 0, 1]).all()  # nothing hidden decides it
    z_n = drawn["z"][:, group] if gathered else drawn["z"]
    assert drawn["z"].mean() == pytest.approx(0.75, abs=0.03)
    np.testing.assert_allclose(drawn["y"] - [0.0, 0.0, 100.0], np.where(z_n == 1, 5.0, -5.0), atol=1.0)
    assert ng.Network(y).fit().simulate(0, 10)["y"].shape == (10, 3)


def test_what_cannot_be_drawn_is_said():
    n = ng.Plate("n", 3)
    z = ng.Categorical("z", ng.Dirichlet("p", 1.0, size=2), plate=n, observed=[0, 1, 1])
    network = ng.Network(
        ng.Normal(
            "y", ng.Normal("mu", 0.0, 1.0, plate=ng.Plate("k", 2))[[1, 0]][z], 1.0, plate=n, observed=[0.0, 1.0, 2.0]
        )
    )
    with pytest.raises(
        PlateMismatch, match="'z' is observed, depends on what is hidden, and is read by 'y', which was"
    ):
        network.simulate()
    flat = ng.Network(ng.Normal("y", ng.Normal("m", 0.0, 0.0), 1.0, plate=n, observed=[0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="simulate: the prior of 'm' is flat and has no integral"):
        flat.simulate()
    assert flat.fit().simulate(0, 500)["m"].mean() == pytest.approx(1.0, abs=0.1)


# -- calibration --


def regression(rows=8):
    x = np.linspace(4.0, 6.0, rows)
    row = ng.Plate("row", rows)
    a, b, tau = ng.Normal("a", 0.0, 1.0), ng.Normal("b", 0.0, 1.0), ng.Gamma("tau", 3.0, 3.0)
    return ng.Network(ng.Normal("y", a + x * b, tau, plate=row, observed=np.zeros(rows)), joint=None)


def test_factors_are_too_narrow_and_draws_are_not():
    n, options = 30, {"n": 50, "warmup": 10}
    q = regression().calibrate(n, names=["a", "b"])
    draws = regression().calibrate(n, level="draws", names=["a", "b", "tau"], draws_options=options)
    assert q.coverage(0.9)["b"] < 0.6
    assert q.p_values()["b"] < 1e-4
    assert min(draws.coverage(0.9).values()) >= binom.ppf(1e-3, n, 0.9) / n
    assert min(draws.p_values().values()) > 1e-3


@pytest.mark.parametrize("level", ["q", "draws", "linear_response"])
def test_nodes_in_one_factor_are_calibrated_by_their_own_names(level):
    leaf = regression().nodes["y"]
    network = ng.Network(leaf, joint=[("a", "b")])
    found = network.calibrate(6, level=level, names=["a", "b"], draws_options={"n": 30, "warmup": 10})
    assert found.ranks["a"].shape == (6,)
    assert set(network.simulate(0)) == {"a", "b", "tau", "y"}
    assert network.observing(network.simulate(0)).fit(verbose=False).problem.plan.members


def test_a_network_without_data_says_so():
    network = ng.Network(ng.Normal("y", ng.Normal("m", 0.0, 1.0), 1.0, plate=ng.Plate("n"), observed=ng.Column("y")))
    with pytest.raises(PlateMismatch, match="bind"):
        network.simulate()


@pytest.mark.parametrize("n_ranks", [1, 9, 99])
def test_ranks_below_a_gaussian_are_equally_likely(n_ranks):
    every = np.arange(n_ranks + 1)
    values = norm.ppf((every[:, None] + [0.01, 0.5, 0.99]) / (n_ranks + 1), 3.0, 0.2)
    np.testing.assert_array_equal(
        normal_ranks(values, np.array(3.0), np.array(0.2), n_ranks), every[:, None].repeat(3, 1)
    )


def test_a_picture_of_the_ranks(tmp_path):
    calibration = regression().calibrate(12, n_ranks=19)
    assert calibration.ranks["a"].shape == (12,)
    figure = calibration.plot(tmp_path / "ranks.png")
    assert len(figure.axes) == 3
    assert (tmp_path / "ranks.png").stat().st_size > 1000
    assert "by 12 simulations" in repr(calibration)


def test_labels_of_the_truth_are_those_of_the_fit():
    """Components far apart: every rank would be 0 or all if the truth had other labels than the fit."""
    n, k = ng.Plate("n", 40), ng.Plate("k", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=n)
    mu = ng.Normal("mu", 0.0, 0.001, plate=k)
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=n, observed=np.zeros(40)))
    calibration = network.calibrate(20, fit_options={"init": "kmeans"})
    assert calibration.coverage(0.98)["mu"] > 0.8


def test_wrong_arguments_of_calibrate():
    with pytest.raises(ValueError, match="level must be one of"):
        regression().calibrate(5, level="exact")
    with pytest.raises(ValueError, match="is not a hidden node with an order"):
        regression().calibrate(5, names=["y"])
    with pytest.raises(PlateMismatch, match="has weights"):
        networks.lda().network.calibrate(5)


@pytest.mark.slow
def test_draws_are_calibrated_for_networks_of_every_kind():
    """Simulation-based calibration: uniform ranks for every node, 300 simulations each."""
    for network in (networks.several().network, networks.counts().network, networks.skills().network, regression()):
        found = network.calibrate(300, level="draws", draws_options={"n": 100, "warmup": 50})
        assert min(found.p_values().values()) > 1e-3, found.p_values()
        assert all(0.84 <= held <= 0.95 for held in found.coverage(0.9).values()), found.coverage(0.9)


def test_elements_of_a_category_that_was_observed_are_drawn_with_it() -> None:
    """``mu[z][i]`` is ``mu[z[i]]``: where z is drawn, both read what was drawn."""
    n, two = ng.Plate("n", 4), ng.Plate("two", 2)
    order = np.array([3, 0, 1, 2])

    def drawn(first: bool) -> Any:
        z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=2), plate=n, observed=[0, 0, 0, 0])
        mu = ng.Normal("mu", [-100.0, 100.0], 1.0, plate=two)
        x = ng.Normal("x", mu[z][order] if first else mu[z[order]], 1.0, plate=n, observed=np.zeros(4))
        return ng.Network(x).simulate(seed=3, size=50)

    found, expected = drawn(True), drawn(False)
    np.testing.assert_array_equal(found["x"] > 0, found["z"][:, order] == 1)
    np.testing.assert_array_equal(found["x"], expected["x"])
