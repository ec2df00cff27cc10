"""Accelerated exact sweeps: never lower, never worse at the end, honest about what they read, and exact to resume."""

import functools

import numpy as np
import pytest
from promises.networks import CASES

import natgrad as ng
from natgrad.families import Gamma
from natgrad.inference.problem import Block, BlockInfo, ChildSet, State, SweepResult
from natgrad.inference.steppers import sweep as accelerate
from natgrad.inference.steppers.sweep import ACCELERATED, AcceleratedStepper


def assert_equal_states(one, other):
    for name in one.lam:
        for side in ("lam", "mu"):
            for a, b in zip(getattr(one, side)[name], getattr(other, side)[name], strict=True):
                np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_the_bound_never_falls_and_is_that_of_the_state(name):
    case = CASES[name]()
    fit = case.network.fit(ng.VB(), step=ng.Auto(), max_steps=25, tol=0, init=case.init, order=case.order)
    assert "accelerated" in fit.trace.strategy
    bounds = fit.trace["elbo"]
    assert len(bounds) == 25
    assert np.isfinite(bounds).all()
    # Rounding: a bound of size b is known to about 1e-12 b.
    assert np.diff(bounds).min() >= -1e-11 * np.abs(bounds).max()
    assert fit.elbo == pytest.approx(bounds[-1], rel=1e-11)
    # Moments follow from λ: nothing of an extrapolation is left over.
    for block in case.network.problem.blocks.values():
        fresh = block.family.expected_stats(tuple(np.asarray(p) for p in fit.state.lam[block.name]))
        for a, b in zip(fit.state.mu[block.name], fresh, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-8, atol=1e-10)


@functools.cache
def gaussian():
    """Unknown mean and precision: one mode."""
    y = np.random.default_rng(0).normal(2.0, 1.5, size=20)
    mu, tau = ng.Normal("mu", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("y", mu, tau, plate=ng.Plate("n", 20), observed=y))


@functools.cache
def regression():
    """Correlated scalar coefficients and learned noise: coordinate ascent creeps."""
    rng = np.random.default_rng(0)
    X = 1.0 + 0.5 * rng.normal(size=(30, 4))
    y = X @ rng.normal(size=4) + 0.3 * rng.normal(size=30)
    w, tau = ng.Normal("w", 0.0, 0.1, plate=ng.Plate("k", 4)), ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("y", ng.dot(X, w), tau, plate=ng.Plate("n", 30), observed=y))


@pytest.mark.parametrize(
    "network", [gaussian, pytest.param(regression, marks=pytest.mark.slow)], ids=lambda f: f.__name__
)
def test_with_one_mode_it_ends_where_coordinate_ascent_ends(network):
    slow = network().fit(ng.VB(), max_steps=3000, tol=0)
    quick = network().fit(ng.VB(), step=ng.Auto(), max_steps=300, tol=0)
    assert quick.elbo == pytest.approx(slow.elbo, rel=1e-9)
    for name in slow:
        np.testing.assert_allclose(quick[name].mean(), slow[name].mean(), rtol=1e-5)
        for part in quick.natural_gradient(name):
            np.testing.assert_allclose(part, 0.0, atol=1e-5 * np.abs(quick.state.lam[name][0]).max())


def test_correlated_coefficients_need_fewer_reads():
    plain = regression().fit(ng.VB(), max_steps=40, tol=0)
    quick = regression().fit(
        ng.VB(), step=ng.Auto(), max_steps=40, max_messages=int(plain.trace["messages_read"][-1]), tol=0
    )
    assert quick.trace["messages_read"][-1] <= plain.trace["messages_read"][-1] + 2 * plain.trace["messages_read"][0]
    assert quick.elbo > plain.elbo


@pytest.mark.parametrize("name", ["pca", "pca_missing", "blocks"])
def test_turning_the_gauge_ends_no_lower_than_coordinate_ascent(name):
    case = CASES[name]()
    slow = case.network.fit(ng.VB(), max_steps=150, tol=0, init=case.init, order=case.order)
    quick = case.network.fit(ng.VB(), step=ng.Auto(), max_steps=150, tol=0, init=case.init, order=case.order)
    assert quick.elbo >= slow.elbo - 1e-6 * abs(slow.elbo)


@pytest.mark.parametrize("name", ["pca", "factorised", "mixture", "hmm", "several"])
def test_going_on_is_exact_to_the_bit(name):
    case = CASES[name]()
    options = {"step": ng.Auto(), "tol": 0, "init": case.init, "order": case.order}
    whole = case.network.fit(ng.VB(), max_steps=8, **options)
    half = case.network.fit(ng.VB(), max_steps=4, **options)
    rest = half.continue_fit(max_steps=4, tol=0)
    assert_equal_states(rest.state, whole.state)
    for column in ("elbo", "messages_read", "relative_change"):
        np.testing.assert_array_equal(rest.trace[column], whole.trace[column])
    assert_equal_states(half.continue_fit(max_steps=4, tol=0).state, whole.state)


@pytest.mark.parametrize("name", ["pca", "factorised"])
def test_going_on_after_plain_sweeps_does_not_go_back_to_where_the_acceleration_ended(name):
    case = CASES[name]()
    fit = case.network.fit(ng.VB(), step=ng.Auto(), max_steps=3, tol=0, init=case.init, order=case.order)
    later = fit.continue_fit(ng.VB(), max_steps=40, tol=0)
    again = later.continue_fit(ng.VB(), step=ng.Auto(), max_steps=3, tol=0)
    assert np.diff(again.trace["elbo"]).min() >= -1e-10 * abs(later.elbo)


# -- what the next sweep carries over --


# -- rejected sweeps --


class OneNumber:
    """A problem with one positive number x behind a Gamma, whose sweep moves x by ``move`` and says what ``value`` says."""

    gauges, rotate_pair, extrapolated, n_messages = (), None, None, 2

    def __init__(self, move, value, wrong=lambda x: False):
        self.move, self.value, self.wrong = move, value, wrong
        self.blocks = {"x": Block("x", Gamma(), ("n",), (2,), column_axis=0)}
        self.starts = []

    def child_sets(self, name):
        return [ChildSet("y", True, 0, self.blocks[name], (0,), {"y": 2}, np.arange(2), np.arange(3))]

    def neighbours(self, name):
        return set()

    def moments(self, block, lam):
        return block.family.expected_stats(lam)

    def state(self, x):
        lam = (np.array([-1.0, -1.0]), np.array([x, x]))  # (−rate, shape − 1): x must be above −1
        return State({"x": lam}, {"x": self.blocks["x"].family.expected_stats(lam)}, 0)

    def sweep_jointly(self, state, order):
        x = float(state.lam["x"][1][0])
        self.starts.append(x)
        new = self.state(self.move(x))
        return SweepResult(
            new._replace(t=state.t + 1, memory=state.memory), self.value(x), {"x": BlockInfo(not self.wrong(x), 0.0)}
        )


@pytest.fixture
def without_rest(monkeypatch):
    monkeypatch.setattr(accelerate, "WARM_UP", 0)
    monkeypatch.setattr(accelerate, "LONGEST_REST", -1)


def run(problem, state, steps):
    stepper, infos = AcceleratedStepper(problem, ("x",)), []
    for _ in range(steps):
        state, info = stepper.step(state, 0)
        infos.append(info)
    return state, infos


@pytest.mark.usefixtures("without_rest")
def test_an_extrapolated_sweep_that_fell_is_thrown_away_and_both_are_counted():
    plain = [8.0, 4.0, 2.0, 1.0, 0.5]
    problem = OneNumber(lambda x: x / 2, lambda x: -x if x in plain else -1e3)
    state, infos = run(problem, problem.state(8.0), 4)
    one = problem.n_messages
    assert one == 2
    assert [info.messages_read for info in infos] == [one, 2 * one, 2 * one, 2 * one]
    assert [info.bound for info in infos] == [-8.0, -4.0, -2.0, -1.0]
    assert float(state.lam["x"][1][0]) == 0.5
    # γ (y − x) beyond y, then y itself; no momentum is left after a failure.
    assert problem.starts == [8.0, 4.0 - 0.6 * 4.0, 4.0, 2.0 - 0.6 * 2.0, 2.0, 1.0 - 0.6, 1.0]
    assert state.memory[ACCELERATED].age == 0


@pytest.mark.usefixtures("without_rest")
def test_an_extrapolated_sweep_that_rose_is_kept_and_momentum_grows():
    problem = OneNumber(lambda x: x + 1.0, lambda x: x)
    state, infos = run(problem, problem.state(1.0), 4)
    assert [info.messages_read for info in infos] == [2, 2, 2, 2]
    # x' = y + 0.6 (y − x) + a/(a + 3) (y − y₋₁)
    first = 2.0 + 0.6
    second = first + 1.0 + 0.6 + 0.25 * (first + 1.0 - 2.0)
    third = second + 1.0 + 0.6 + 0.4 * (second + 1.0 - (first + 1.0))
    np.testing.assert_allclose(problem.starts, [1.0, first, second, third], rtol=1e-14)
    assert state.memory[ACCELERATED].age == 3


# -- scalar factors: a turn may lower the bound --
