"""A fit ends when its time is over, whatever it is doing: within a sweep, while documents are solved, before the first step."""

import warnings

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.problem import State
from natgrad.inference.trace import Reason


def supervised(size=3, tokens=40, backend="numpy"):
    """Supervised topics: the tokens of a document take turns, since they meet in its response."""
    rng = np.random.default_rng(0)
    words, y = rng.integers(0, 6, (size, tokens)), rng.normal(size=size)
    doc, token, topic = ng.Plate("doc", size), ng.Plate("token", tokens), ng.Plate("topic", 2)
    phi = ng.Dirichlet("phi", 0.5, size=6, plate=topic)
    z = ng.Categorical("z", ng.Dirichlet("theta", 0.5, size=2, plate=doc), plate=(doc, token))
    w = ng.Categorical("w", phi[z], plate=(doc, token), observed=words)
    eta = ng.MultivariateNormal("eta", np.zeros(2), np.eye(2))
    mean = ng.language.dot(ng.language.frequencies(z, token), eta)
    network = ng.Network(w, ng.Normal("y", mean, 4.0, plate=doc, observed=y))
    return network, {"phi": rng.dirichlet(np.ones(6), 2), "eta": np.array([1.0, -1.0])}


class AfterCalls:
    """Late from the n-th time on that somebody asks."""

    def __init__(self, n):
        self.n, self.asked = n, 0

    def __call__(self):
        self.asked += 1
        return self.asked > self.n


def moments_are_those_of_lam(problem, state):
    for name, block in problem.blocks.items():
        for stat, usual in zip(state.mu[name], block.family.expected_stats(state.lam[name]), strict=True):
            np.testing.assert_allclose(stat, usual, rtol=1e-12)


@pytest.mark.parametrize("turns", [0, 1, 7, 38])
def test_a_sweep_that_is_late_is_coordinate_ascent_that_went_less_far(turns):
    """The others keep their λ, and the bound that comes with the sweep is the exact one."""
    network, init = supervised()
    fit = network.fit(ng.VB(), init=init, max_steps=2, tol=0, moves=False)
    problem, state = network.problem_on("numpy"), fit.state
    whole = problem.sweep(state, fit.settings.order)
    problem.late = AfterCalls(turns)
    short = problem.sweep(state, fit.settings.order)
    problem.late = bool
    assert short.bound == pytest.approx(problem.bound(short.state), rel=1e-12)
    assert fit.elbo - 1e-9 <= short.bound < whole.bound
    moments_are_those_of_lam(problem, short.state)
    moved = [
        bool((new != old).any()) for new, old in zip(short.state.lam["z"][0][0], state.lam["z"][0][0], strict=True)
    ]
    assert moved == [token <= turns for token in range(40)]  # one at least: a run that is late goes somewhere


def test_what_has_no_turn_has_the_moments_of_its_lam_whatever_the_start_said():
    network, init = supervised()
    shares = np.random.default_rng(1).dirichlet(np.ones(2), (3, 40))
    with pytest.warns(ng.errors.NotConverged, match="max_seconds"):
        fit = network.fit(init={**init, "z": shares}, order=["z", "theta", "phi", "eta"], max_seconds=1e-9, moves=False)
    moments_are_those_of_lam(fit.problem, State(fit.state.lam, fit.state.mu, 0))
    assert fit.elbo == pytest.approx(fit.problem.bound(fit.state), rel=1e-12)


def test_groups_that_do_not_add_up_are_swept_where_nothing_was_asked():
    """They were stepped through in batches that forget, which took ten times as long as a sweep for each step."""
    network, init = supervised(size=20, tokens=10_500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ng.errors.NotConverged)
        fit = network.fit(init=init, max_seconds=1e-9, moves=False)
    assert fit.trace.strategy.startswith("accelerated exact sweeps: data access is cheap, and 'w' reads 'phi'")
    assert fit.stop.reason is Reason.SECONDS


def topics():
    rng = np.random.default_rng(0)
    X = rng.poisson(2.0, (20, 8))
    return X, {
        "SupervisedLDA": rng.normal(size=20),
        "CorrelatedTopics": None,
        "DynamicTopics": np.arange(20) % 3,
        "AuthorTopics": [["a"], ["b"]] * 10,
    }


@pytest.mark.parametrize("name", topics()[1])
def test_every_declared_topic_model_does(name):
    X, sides = topics()
    model = getattr(ng.topics, name)(2, tol=0, max_steps=10**6, max_seconds=1e-9, verbose=False).fit(X, sides[name])
    assert model.stop_.reason is Reason.SECONDS, model.stop_
    assert len(model.trace_) <= 1
