"""Posterior draws: conditionals are those of the log joint, draws those of enumerated and closed-form posteriors; weights."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from generators.draws import accepted, check_conditionals, check_groups
from generators.generator import draw
from promises import networks
from scipy.stats import norm

import natgrad as ng
from natgrad.errors import PlateMismatch, PoorMixing
from natgrad.posterior.draws import ess


def drawn(network, n=400, **options):
    return network.fit(verbose=False).draws(n, verbose=False, **options)


def near(draws, mean, sd, name):
    """Mean and standard deviation are those that were expected, but for the noise of as many draws as they are worth."""
    factor = draws[name]
    worth = factor.ess()
    assert (np.abs(factor.mean() - mean) <= 4.5 * sd / np.sqrt(worth)).all(), (name, factor.mean(), mean)
    np.testing.assert_allclose(factor.std(), sd, rtol=4.5 / np.sqrt(worth.min()))


# -- conditionals --


def test_conditionals_are_those_of_the_log_joint():
    cases = [case for seed in range(60) if (case := accepted(seed, draw(seed))) is not None]
    assert len(cases) > 35
    groups = 0
    for case in cases:
        check_conditionals(case)
        groups += check_groups(case)
    assert groups > 5


@pytest.mark.slow
def test_conditionals_of_many_networks():
    for seed in range(60, 2000):
        if (case := accepted(seed, draw(seed))) is not None:
            check_conditionals(case)
            check_groups(case)


# -- posteriors that are known --


def test_draws_of_a_gaussian_posterior():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(20), 5 + rng.normal(size=20)])
    y = X @ [1.0, 2.0] + rng.normal(size=20)
    row = ng.Plate("row", 20)
    a, b = ng.Normal("a", 0.0, 0.01), ng.Normal("b", 0.0, 0.01)
    draws = drawn(ng.Network(ng.Normal("y", a + X[:, 1] * b, 1.0, plate=row, observed=y)))
    precision = X.T @ X + 0.01 * np.eye(2)
    mean, sd = np.linalg.solve(precision, X.T @ y), np.sqrt(np.diag(np.linalg.inv(precision)))
    near(draws, mean[0], sd[0], "a")
    near(draws, mean[1], sd[1], "b")
    correlation = np.corrcoef(draws["a"].values.ravel(), draws["b"].values.ravel())[0, 1]
    assert correlation == pytest.approx(np.linalg.inv(precision)[0, 1] / sd.prod(), abs=0.01)


def test_averages_alone_have_the_interval_of_their_mean_and_variance():
    row = ng.Plate("row", 3)
    m = ng.Normal("m", 5.0, 0.25, plate=row)
    factor = replace(drawn(ng.Network(ng.Normal("y", m, 1.0, plate=row, observed=[4.0, 5.0, 9.0])))["m"], kept=None)
    for mass in (0.5, 0.9):
        wanted = norm.interval(mass, factor.mean(), factor.std())
        np.testing.assert_allclose(factor.interval(mass), wanted, rtol=1e-10)


def test_what_is_missing_of_a_node_is_drawn_and_what_was_observed_stays():
    values = np.array([0.5, np.nan, -1.0, np.nan])
    n = ng.Plate("n", 4)
    m = ng.Normal("m", 0.0, 0.1)
    x = ng.Normal("x", m, 1.0, plate=n, observed=values)
    draws = drawn(ng.Network(ng.Normal("y", x, 4.0, plate=n, observed=[0.4, 2.0, -1.2, 0.0])))
    seen = ~np.isnan(values)
    np.testing.assert_array_equal(draws["x"].mean()[seen], values[seen])
    np.testing.assert_array_equal(draws["x"].std()[seen], 0.0)
    precision = np.diag([5.0, 5.0, 4.1])
    precision[2, :2] = precision[:2, 2] = -1.0
    covariance = np.linalg.inv(precision)
    mean = covariance @ [8.0, 0.0, -0.5]
    np.testing.assert_allclose(draws["x"].mean()[~seen], mean[:2], atol=0.05)
    np.testing.assert_allclose(draws["x"].std()[~seen], np.sqrt(np.diag(covariance))[:2], rtol=0.1)


def test_draws_of_a_chain_are_those_of_all_paths():
    y = np.array([0.0, 1.0, 1.0, 0.0])
    start, move, mean = np.array([0.6, 0.4]), np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0.0, 1.0])
    z = ng.MarkovChain("z", start, move, plate=ng.Plate("time", 4))
    network = ng.Network(ng.Normal("y", ng.table(mean)[z], 2.0, plate=z.plates[0], observed=y))
    draws = network.fit(verbose=False).draws(500, verbose=False)
    logs = {}
    for path in itertools.product(range(2), repeat=4):
        p = start[path[0]] * np.prod([move[i, j] for i, j in itertools.pairwise(path)])
        logs[path] = np.log(p) - ((y - mean[list(path)]) ** 2).sum()
    total = np.logaddexp.reduce(list(logs.values()))
    values = draws["z"].values.reshape(-1, 4)
    for path, log in logs.items():
        assert (values == path).all(1).mean() == pytest.approx(np.exp(log - total), abs=0.03)


# -- chains --


@pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
def test_chains_differ_and_the_same_call_repeats_them():
    fit = networks.pca().network.fit(verbose=False)
    one, again, other = (fit.draws(8, chains=3, warmup=2, seed=seed, verbose=False) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one["tau"].values, again["tau"].values)
    for first, second in itertools.combinations([*one["tau"].values, *other["tau"].values], 2):
        assert not np.allclose(first, second)


def scales(y=(2.0, -0.3)):
    """Two effects with a precision of their own: given y, that precision has a density in closed form."""
    plate = ng.Plate("n", len(y))
    t = ng.Gamma("t", 1.5, 0.7)
    x = ng.Normal("x", 0.4, t, plate=plate)
    return ng.Network(ng.Normal("y", ng.Normal("c", 0.0, 1e6) + x, [1.0, 0.5], plate=plate, observed=np.asarray(y)))


def test_a_precision_is_drawn_with_its_effects_integrated_out():
    fit = scales().fit(verbose=False)
    draws = fit.draws(150, chains=40, warmup=20, verbose=False)
    grid = np.linspace(-9.0, 4.0, 4001)
    log_p = 1.5 * grid - 0.7 * np.exp(grid)
    for value, precision in ((2.0, 1.0), (-0.3, 0.5)):
        spread = 1.0 / precision + np.exp(-grid)
        log_p -= 0.5 * (np.log(spread) + (value - 0.4) ** 2 / spread)
    p = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    mean = float(p @ grid)
    sd = float(np.sqrt(p @ (grid - mean) ** 2))
    values = np.log(draws["t"].values)
    worth = float(ess(values))
    assert worth > 2000
    assert abs(values.mean() - mean) < 4.5 * sd / np.sqrt(worth)
    assert abs(values.std() / sd - 1.0) < 4.5 / np.sqrt(worth)


@pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
def test_a_callback_sees_the_draws_so_far_and_can_end_the_run():
    fit = networks.several().network.fit(verbose=False)
    seen = []

    def end(progress):
        if progress.t == 12:
            seen.append(progress.model()["a"].values.shape)
            return True
        return False

    draws = fit.draws(100, warmup=4, verbose=False, callbacks=[end])
    assert seen == [(4, 8, 2)]
    assert draws.settings.n == 8
    assert draws["a"].values.shape == (4, 8, 2)


def test_chains_that_disagree_are_a_warning():
    y = np.array([0.0, 0.1, 0.05])
    u, v = ng.Normal("u", 0.0, 0.01), ng.Normal("v", 0.0, 0.01)
    network = ng.Network(ng.Normal("y", u * v, 100.0, plate=ng.Plate("n", 3), observed=5.0 + y))
    with pytest.warns(PoorMixing, match="do not agree yet on"):
        network.fit(init={"u": 1.0, "v": 5.0}, verbose=False).draws(30, warmup=0, verbose=False)


# -- weights --


def test_draws_of_weighted_rows_are_those_of_rows_written_out():
    """Around a hidden category of each row, and around none: the posterior mean of rows that count so often."""
    y, weight = np.array([-2.0, 1.0, 1.5]), np.array([2.0, 3.0, 1.0])
    for hidden in (False, True):
        n = ng.Plate("n", 3, weight=weight)
        shift = ng.table([-0.5, -0.5])[ng.Categorical("z", [0.4, 0.6], plate=n)] if hidden else -0.5
        draws = drawn(ng.Network(ng.Normal("y", ng.Normal("mu", 1.0, 0.5) + shift, 2.0, plate=n, observed=y)))
        precision = 0.5 + 2.0 * weight.sum()
        near(draws, (0.5 + 2.0 * weight @ (y + 0.5)) / precision, precision**-0.5, "mu")


def test_weights_that_cannot_be_drawn_are_refused():
    case = networks.scalar_mixture(y=[-2.0, 1.0, 1.5], weight=[1.0, 0.5, 2.0])
    with pytest.raises(PlateMismatch, match=r"weight\[1\] = 0.5 is no whole number"):
        case.network.fit(init=case.init, verbose=False).draws(10)
    n = ng.Plate("n", 3, weight=[1.0, 2.0, 1.0])
    a = ng.Normal("a", 0.0, 1.0, plate=n)
    b = ng.Normal("b", a, 1.0, plate=n)
    network = ng.Network(ng.Normal("y", b, 1.0, plate=n, observed=[0.0, 1.0, 2.0]))
    with pytest.raises(PlateMismatch, match="are both hidden on plate 'n'"):
        network.fit(verbose=False).draws(10)


# -- what is kept --


def test_draws_predict_with_parents_that_were_drawn_together():
    x = np.linspace(4, 6, 12)
    row = ng.Plate("row", 12)
    a, b, tau = ng.Normal("a", 0.0, 0.01), ng.Normal("b", 0.0, 0.01), ng.Gamma("tau", 2.0, 2.0)
    network = ng.Network(ng.Normal("y", a + x * b, tau, plate=row, observed=1 + 0.5 * x))
    draws = drawn(network)
    predictive = draws.predictive("y", mean=a + np.array([5.0, 20.0]) * b)
    at = draws["a"].values[..., None] + draws["b"].values[..., None] * [5.0, 20.0]
    np.testing.assert_allclose(predictive.mean(), at.mean((0, 1)), atol=0.2)
    noise = (1 / draws["tau"].values).mean()
    np.testing.assert_allclose(predictive.var(), at.var((0, 1)) + noise, rtol=0.1)


def test_wrong_arguments_say_what_is_wanted():
    fit = networks.several().network.fit(max_steps=2, verbose=False)
    with pytest.raises(TypeError, match="names must be a list"):
        fit.draws(5, names="a")
    with pytest.raises(KeyError, match="hidden nodes are"):
        fit.draws(5, names=["nothing"])
    with pytest.raises(ValueError, match="chains"):
        fit.draws(5, chains=0)
    with pytest.raises(ValueError, match="n must be"):
        fit.draws(0)
