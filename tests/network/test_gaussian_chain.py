"""Gaussian chains: equal to an exact Kalman smoother where that exists, else to the bound written out by hand."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from reference.kalman import smoother
from scipy import stats

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

nan = np.nan
A = np.array([[0.9, 0.2, 0.0], [-0.2, 0.9, 0.1], [0.0, 0.1, 0.5]])
Q = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 3.0]])  # precision of the noise
P0 = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])
M0 = np.array([0.5, -1.0, 0.0])
C = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -0.5]])


def data(n_times=25, width=2):
    rng = np.random.default_rng(n_times)
    y = np.cumsum(rng.normal(size=(n_times, width)), axis=0)
    y[rng.random(y.shape) < 0.2] = nan
    y[3] = nan
    return y


def observed(x, y, time, tau=4.0, rows=C):
    sensor = ng.Plate("sensor", y.shape[1])
    c = ng.MultivariateNormal("c", np.zeros(3), np.eye(3), plate=sensor, observed=rows)
    return ng.Normal("y", ng.dot(c, x), tau, plate=(time, sensor), observed=y)


def evidence(fit):
    """The bound without the prior of the known emission rows."""
    return fit.elbo - fit.elbo_by_node()["c"]


@pytest.mark.parametrize("inputs", [None, 2])
@pytest.mark.parametrize("moving", [False, True])
def test_known_parameters_are_an_exact_smoother(inputs, moving):
    y, rng = data(), np.random.default_rng(0)
    time = ng.Plate("time", len(y))
    u = None if inputs is None else rng.normal(size=(len(y), inputs))
    dynamics = A if u is None else np.hstack([A, rng.normal(size=(3, inputs))])
    if moving:
        dynamics = dynamics * rng.uniform(0.8, 1.1, size=(len(y), 1, 1))
    x = ng.GaussianChain("x", M0, P0, dynamics, Q, plate=time, inputs=u)
    fit = ng.Network(observed(x, y, time)).fit(backend="numpy")
    mean, covariance, lagged, log_evidence = smoother(
        M0, np.linalg.inv(P0), dynamics, np.linalg.inv(Q), C, np.eye(2) / 4.0, y, u
    )
    assert evidence(fit) == pytest.approx(log_evidence, rel=1e-10)
    np.testing.assert_allclose(fit["x"].mean(), mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(fit["x"].parameters["covariance"], covariance, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(fit["x"].parameters["lagged"], lagged, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(fit["x"].var(), np.diagonal(covariance, axis1=1, axis2=2), rtol=1e-10)


def test_known_dynamics_that_a_known_index_chooses():
    """table(A)[index] is one known matrix for each time; with a category in place of the index it is a known switch."""
    y, rng = data(12), np.random.default_rng(4)
    time, index = ng.Plate("time", len(y)), rng.integers(0, 2, len(y))
    both = np.stack([A, 0.5 * A.T])
    x = ng.GaussianChain("x", M0, P0, ng.table(both)[index], Q, plate=time)
    fit = ng.Network(observed(x, y, time)).fit(backend="numpy")
    log_evidence = smoother(M0, np.linalg.inv(P0), both[index], np.linalg.inv(Q), C, np.eye(2) / 4.0, y)[3]
    assert evidence(fit) == pytest.approx(log_evidence, rel=1e-10)
    z = ng.Categorical("z", [0.5, 0.5], plate=time)
    x = ng.GaussianChain("x", M0, P0, ng.table(both)[z], Q, plate=time)
    fit = ng.Network(observed(x, y, time)).fit(backend="numpy")
    assert (np.diff(fit.trace["elbo"]) > -1e-9).all()
    sure = evidence(fit)
    paths = [both[np.array(path)] for path in np.ndindex(*(2,) * 3)]
    # Three times, all eight paths: the bound of q(x) q(z) is below the exact evidence.
    short = ng.GaussianChain(
        "x",
        M0,
        P0,
        ng.table(both)[ng.Categorical("z", [0.5, 0.5], plate=(three := ng.Plate("time", 3)))],
        Q,
        plate=three,
    )
    fit = ng.Network(observed(short, y[:3], three)).fit(backend="numpy")
    exact = [
        smoother(M0, np.linalg.inv(P0), p, np.linalg.inv(Q), C, np.eye(2) / 4.0, y[:3])[3] - 3 * np.log(2)
        for p in paths
    ]
    assert evidence(fit) <= np.logaddexp.reduce(exact) + 1e-9
    assert np.isfinite(sure)


def test_nearly_deterministic_and_nearly_flat_chains():
    """Noise of precision 10⁶ and of 10⁻⁶ against the smoother in covariance form."""
    y = data(30)
    time = ng.Plate("time", len(y))
    for scale in (1e6, 1e-6):
        x = ng.GaussianChain("x", M0, P0, A, scale * np.eye(3), plate=time)
        fit = ng.Network(observed(x, y, time)).fit(backend="numpy")
        mean, *_, log_evidence = smoother(M0, np.linalg.inv(P0), A, np.eye(3) / scale, C, np.eye(2) / 4.0, y)
        assert evidence(fit) == pytest.approx(log_evidence, rel=1e-7)
        np.testing.assert_allclose(fit["x"].mean(), mean, atol=1e-6 * np.abs(mean).max())


def test_sequences_end_to_end_and_on_a_plate():
    """Three sequences of lengths 4, 1 and 5, and two of equal length on a plate: each is as if it were alone."""
    y = data(10)
    y[:4] = 0.3
    time, lengths = ng.Plate("time", 10), [4, 1, 5]
    x = ng.GaussianChain("x", M0, P0, A, Q, plate=time, lengths=lengths)
    fit = ng.Network(observed(x, y, time)).fit(backend="numpy")
    total, ends = 0.0, np.cumsum([0, *lengths])
    for start, end in pairwise(ends):
        mean, *_, part = smoother(M0, np.linalg.inv(P0), A, np.linalg.inv(Q), C, np.eye(2) / 4.0, y[start:end])
        np.testing.assert_allclose(fit["x"].mean()[start:end], mean, atol=1e-10)
        total += part
    assert evidence(fit) == pytest.approx(total, rel=1e-10)

    pair, short = ng.Plate("pair", 2), ng.Plate("short", 5)
    starts = np.stack([M0, -M0])
    x = ng.GaussianChain("x", starts, P0, A, Q, plate=(pair, short))
    both = np.stack([y[:5], y[5:]])
    node = ng.MultivariateNormal("y", C @ x, 4.0, plate=(pair, short), observed=np.nan_to_num(both))
    fit = ng.Network(node).fit(backend="numpy")
    parts = [
        smoother(m, np.linalg.inv(P0), A, np.linalg.inv(Q), C, np.eye(2) / 4.0, np.nan_to_num(rows))
        for m, rows in zip(starts, both, strict=True)
    ]
    assert fit.elbo == pytest.approx(sum(part[3] for part in parts), rel=1e-10)
    np.testing.assert_allclose(fit["x"].mean(), [part[0] for part in parts], atol=1e-10)
    svi = ng.Network(node).fit(ng.SVI({"pair": 1}), max_steps=6, backend="numpy")
    assert svi.elbo == pytest.approx(fit.elbo, rel=1e-9)


# -- random dynamics: the term written out by hand --


def chain_term(fit, rows, noise, log_noise, dynamics=None):
    """E[log p(x)] of a chain from q's moments; ``rows`` are (means, second moments) of the rows of the dynamics at each time."""
    moments = fit["x"].moments
    x, xx, lagged = moments["x"], moments["xx"], moments["lagged"]
    d = x.shape[-1]
    away = xx[0] - np.outer(x[0], M0) - np.outer(M0, x[0]) + np.outer(M0, M0)
    total = 0.5 * np.linalg.slogdet(P0)[1] - 0.5 * d * np.log(2 * np.pi) - 0.5 * np.trace(P0 @ away)
    for t in range(1, len(x)):
        for weight, a, aa in rows(t):
            square = a @ xx[t - 1] @ a.T
            square[np.diag_indices(d)] = np.einsum("ikl,kl->i", aa, xx[t - 1])
            spread = xx[t] - lagged[t] @ a.T - a @ lagged[t].T + square
            total += weight * (0.5 * log_noise - 0.5 * d * np.log(2 * np.pi) - 0.5 * np.trace(noise @ spread))
    return total


def random_rows(fit, name="A"):
    moments = fit[name].moments
    return lambda t: [(1.0, moments["x"], moments["xx"])]


@pytest.mark.parametrize("kind", ["diagonal", "wishart", "gamma", "known"])
def test_random_dynamics(kind):
    """Rows of dynamics with relevances, and every kind of noise: the bound is the sum of terms, and never falls."""
    y = data(15)
    time, row = ng.Plate("time", len(y)), ng.Plate("row", 3)
    alpha = ng.Gamma("alpha", 2.0, 1.0, plate=ng.Plate("column", 3))
    rows = ng.MultivariateNormal("A", 0.0, ng.diag(alpha), plate=row, size=3)
    noise = {
        "diagonal": lambda: ng.diag(ng.Gamma("q", 3.0, 1.0, plate=ng.Plate("entry", 3))),
        "wishart": lambda: ng.Wishart("q", 5.0, np.eye(3)),
        "gamma": lambda: ng.Gamma("q", 3.0, 1.0),
        "known": lambda: Q,
    }[kind]()
    x = ng.GaussianChain("x", M0, P0, rows, noise, plate=time)
    fit = ng.Network(observed(x, y, time)).fit(backend="numpy", max_steps=40, init={"A": 0.5 * np.eye(3)})
    assert (np.diff(fit.trace["elbo"]) > -1e-9).all()
    if kind == "known":
        mean, log = Q, np.linalg.slogdet(Q)[1]
    else:
        q = fit["q"].moments
        mean = {"diagonal": np.diag, "wishart": np.asarray, "gamma": lambda v: v * np.eye(3)}[kind](q["x"])
        log = q["log"].sum() * (3 if kind == "gamma" else 1)
    expected = chain_term(fit, random_rows(fit), mean, log) + fit["x"].entropy()
    assert fit.elbo_by_node()["x"] == pytest.approx(float(expected), rel=1e-10)


def test_dynamics_of_single_numbers():
    """Normals on plates (row, column) in place of rows: their term, by hand, with a diagonal second moment."""
    y = data(12)
    time, row, column = ng.Plate("time", len(y)), ng.Plate("row", 3), ng.Plate("column", 3)
    entries = ng.Normal("A", 0.5 * np.eye(3), 10.0, plate=(row, column))
    x = ng.GaussianChain("x", M0, P0, entries, Q * np.eye(3), plate=time)
    fit = ng.Network(observed(x, y, time)).fit(backend="numpy", max_steps=30)
    assert (np.diff(fit.trace["elbo"]) > -1e-9).all()
    a, var = fit["A"].mean(), fit["A"].var()
    aa = a[:, :, None] * a[:, None, :] + var[:, :, None] * np.eye(3)
    noise = Q * np.eye(3)
    expected = chain_term(fit, lambda t: [(1.0, a, aa)], noise, np.linalg.slogdet(noise)[1]) + fit["x"].entropy()
    assert fit.elbo_by_node()["x"] == pytest.approx(float(expected), rel=1e-10)


def switching(y, known_z=None):
    time, mode, row = ng.Plate("time", len(y)), ng.Plate("mode", 2), ng.Plate("row", 3)
    z = ng.MarkovChain("z", [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], plate=time)
    rows = ng.MultivariateNormal("A", np.stack([A, -A]), 20.0, plate=(mode, row))
    x = ng.GaussianChain("x", M0, P0, rows[z], Q, plate=time)
    return ng.Network(observed(x, y, time))


def test_switching_dynamics():
    """dynamics[z] with a Markov chain z: the structured mean field q(x) q(z)."""
    y = data(14)
    fit = switching(y).fit(backend="numpy", max_steps=30)
    assert (np.diff(fit.trace["elbo"]) > -1e-9).all()
    moments, weights = fit["A"].moments, fit["z"].mean()

    def rows(t):
        return [(weights[t, k], moments["x"][k], moments["xx"][k]) for k in range(2)]

    expected = chain_term(fit, rows, Q, np.linalg.slogdet(Q)[1]) + fit["x"].entropy()
    assert fit.elbo_by_node()["x"] == pytest.approx(float(expected), rel=1e-10)


# -- around it --


def walk(n_times=12, **options):
    time = ng.Plate("time", n_times)
    level = ng.GaussianChain("level", 0.0, 0.01, 1.0, ng.Gamma("moves", 2.0, 1.0), plate=time, **options)
    y = np.sin(np.arange(n_times))
    y[-3:] = nan
    return ng.Normal("y", level[:, 0], ng.Gamma("tau", 2.0, 1.0), plate=time, observed=y)


def test_forecasts_draws_and_files(tmp_path):
    fit = ng.Network(walk()).fit()
    spread = fit["level"].std()[:, 0]
    assert (np.diff(spread[-4:]) > 0).all()  # the further, the less is known
    draws = fit["level"].sample(0, 4000)
    assert draws.shape == (4000, 12, 1)
    np.testing.assert_allclose(draws.std(0)[:, 0], spread, rtol=0.1)
    assert fit.predictive("y").mean().shape == (12,)
    assert fit.predictive("y").sample(0, 3).shape == (3, 12)
    fit.save(tmp_path / "walk.natgrad")
    loaded = ng.load(tmp_path / "walk.natgrad")
    np.testing.assert_array_equal(loaded["level"].mean(), fit["level"].mean())
    assert loaded.attach(ng.Network(walk())).elbo == pytest.approx(fit.elbo)
    assert "level" in str(ng.Network(walk()).draw())


def test_the_smallest_chain_is_a_normal():
    time = ng.Plate("time", 1)
    x = ng.GaussianChain("x", 1.0, 2.0, 1.0, 1.0, plate=time)
    fit = ng.Network(ng.Normal("y", x[:, 0], 3.0, plate=time, observed=[2.0])).fit()
    assert fit.elbo == pytest.approx(stats.norm.logpdf(2.0, 1.0, np.sqrt(1 / 2 + 1 / 3)))


TWO = np.zeros(2)
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"plate": None}, PlateMismatch, "needs a plate of time steps"),
    ({"observed": [1]}, TypeError, "the states of a chain are hidden"),
    ({"initial_mean": TWO, "dynamics": np.eye(3)}, PlateMismatch, "says 2, dynamics says 3"),
    ({"dynamics": np.ones((2, 3))}, PlateMismatch, r"dynamics has shape \(2, 3\)"),
    ({"initial_precision": -1.0}, ValueError, "initial_precision = -1 must be > 0"),
    ({"dynamics": ng.Gamma("g", 1.0, 1.0)}, NotConjugate, "dynamics cannot be g"),
    ({"dynamics": ng.Normal("a", 0.0, 1.0)}, PlateMismatch, "a plate of rows"),
    ({"lengths": [1, 1]}, PlateMismatch, "lengths sum to 2"),
    ({"inputs": [1, 2, 3]}, PlateMismatch, "inputs have shape"),
    (
        {"initial_mean": TWO, "dynamics": ng.MultivariateNormal("a", TWO, 1.0)},
        PlateMismatch,
        "a row for each entry of the state, must lie along one plate",
    ),
]


@pytest.mark.parametrize(("changes", "error", "words"), WRONG)
def test_mistakes(changes, error, words):
    usual = dict.fromkeys(("initial_precision", "dynamics", "noise_precision"), 1.0)
    with pytest.raises(error, match=words):
        ng.GaussianChain("x", **{"initial_mean": 0.0, "plate": ng.Plate("time", 3), **usual, **changes})


def test_bounds_of_another_engine_sweep_by_sweep():
    """BayesPy 0.6.6 on the same linear state-space model, data, start and order of updates: the bounds after each sweep.

    There: GaussianMarkovChain, GaussianARD with relevances for dynamics and loadings, a Gamma precision, 15 % of the data masked.
    """
    rng, n_times, n_sensors, size = np.random.default_rng(0), 40, 3, 2
    turn = 0.98 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    states = [np.array([2.0, 0.0])]
    for _ in range(n_times - 1):
        states.append(turn @ states[-1] + 0.3 * rng.normal(size=2))
    y = np.array(states) @ rng.normal(size=(2, n_sensors)) + 0.5 * rng.normal(size=(n_times, n_sensors))
    y[rng.random(y.shape) >= 0.85] = nan
    start = {"A": 0.5 * np.eye(size) + 0.1 * rng.normal(size=(size, size)), "C": rng.normal(size=(n_sensors, size))}
    start |= {"tau": 1.0, "alpha": np.ones(size), "gamma": np.ones(size)}

    time, sensor = ng.Plate("time", n_times), ng.Plate("sensor", n_sensors)
    alpha = ng.Gamma("alpha", 1e-2, 1e-2, plate=ng.Plate("column", size))
    dynamics = ng.MultivariateNormal("A", 0.0, ng.diag(alpha), plate=ng.Plate("row", size), size=size)
    x = ng.GaussianChain("x", np.zeros(size), 0.1, dynamics, 1.0, plate=time)
    gamma = ng.Gamma("gamma", 1e-2, 1e-2, plate=ng.Plate("factor", size))
    c = ng.MultivariateNormal("C", 0.0, ng.diag(gamma), plate=sensor, size=size)
    tau = ng.Gamma("tau", 1e-2, 1e-2)
    net = ng.Network(ng.Normal("y", ng.dot(c, x), tau, plate=(time, sensor), observed=y))
    order = ["x", "C", "gamma", "A", "alpha", "tau"]
    fit = net.fit(ng.VB(), init=start, order=order, max_steps=30, tol=0.0, backend="numpy")
    theirs = [-247.8573288514, -211.7128170171, -189.1487679241, -177.5588325846, -172.0108376096, -169.3795243907]
    np.testing.assert_allclose(fit.trace["elbo"][:6], theirs, rtol=0, atol=1e-9)
    assert fit.trace["elbo"][29] == pytest.approx(-162.7684275252, abs=1e-9)


def test_dynamics_of_numbers_on_plates_are_chosen_by_a_sequence():
    """Normals on (component, row, column) under a category are vectors of length one on (component, row)."""
    y = np.random.default_rng(1).normal(size=(4, 6)).cumsum(1)
    sequence, time, kind, row = ng.Plate("sequence", 4), ng.Plate("time", 6), ng.Plate("kind", 2), ng.Plate("row", 1)
    z = ng.Categorical("z", [0.4, 0.6], plate=sequence)
    numbers = ng.Normal("A", 0.5, 2.0, plate=(kind, row, ng.Plate("column", 1)))
    vectors = ng.MultivariateNormal("A", [0.5], [[2.0]], plate=(kind, row))
    bounds = []
    for A in (numbers, vectors):
        x = ng.GaussianChain("x", 0.0, 1.0, A[z], 1.0, plate=(sequence, time))
        leaf = ng.Normal("y", x[:, :, 0], 2.0, plate=(sequence, time), observed=y)
        bounds.append(ng.Network(leaf).fit(backend="numpy", max_steps=8, tol=0.0, seed=0).trace["elbo"])
    np.testing.assert_allclose(*bounds, rtol=1e-10)
