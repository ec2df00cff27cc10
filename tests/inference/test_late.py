"""A fit ends when its time is over, whatever it is doing: within a sweep, while documents are solved, before the first step."""

import time
import warnings

import numpy as np
import pytest
from promises.cases import CASES

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


def test_documents_are_not_solved_on_when_it_is_late():
    network, init = supervised()
    problem = network.problem_on("numpy")
    late, free = AfterCalls(50), AfterCalls(10**9)
    for ask in (free, late):
        problem.late = ask
        groups = problem.grouping.along(
            ng.SVI({"doc": 3}, local_tol=1e-12, local_steps=50), ("phi", "theta", "z", "eta")
        )
        state = network.fit(init=init, max_steps=1, tol=0, moves=False).state
        solved = groups.solve(state, None, groups.rows_in(state, None), 1e-12, 50)
        ask.iterations = solved.iterations
    problem.late = bool
    assert late.iterations == 2 < free.iterations
    assert network.fit(ng.SVI({"doc": 3}), init=init, max_seconds=0.5, max_steps=2, moves=False).problem.late is bool


def test_a_fit_in_a_callback_leaves_the_outer_clock_alone():
    network, init = supervised()
    problem, seen = network.problem_on("numpy"), []

    def inner(progress):
        before = problem.late
        network.fit(init=init, max_steps=1, tol=0, moves=False)
        seen.append(problem.late == before and before is not bool)
        return True

    network.fit(init=init, max_steps=3, tol=0, moves=False, callbacks=[inner], max_seconds=100.0)
    assert seen == [True]
    assert problem.late is bool


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


# Those that do more than steps of one phase: starts that are compared, moves, warm-ups, samples at the end.
OFTEN = {
    'GaussianHMM("auto")', "subchains", 'GaussianMixture("auto")', "LDA", 'inference="gibbs"', 'LDA("auto")',
    'noise="both"', 'ratings, inference="gibbs"', "likes, n_negatives=2", "ordinal", 'kernel="auto"',
    'StateSpaceGP("auto")',
}  # fmt: skip


@pytest.mark.parametrize("often", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_model_ends_when_time_is_over_before_it_begins(often):
    """Whatever comes before the first step or after the last is left out, or is as short as a step."""
    chosen = [
        (option, case) for cases in CASES.values() for option, case in cases.items() if (option in OFTEN) is often
    ]
    assert len(chosen) >= len(OFTEN)
    for option, case in chosen:
        model = case.fitted(max_seconds=1e-9, **{case.limit: 10**6})
        assert model.stop_.reason is Reason.SECONDS, (option, model.stop_)
        assert len(model.trace_) <= 1, option


@pytest.mark.parametrize("name", topics()[1])
def test_every_declared_topic_model_does(name):
    X, sides = topics()
    model = getattr(ng.topics, name)(2, tol=0, max_steps=10**6, max_seconds=1e-9, verbose=False).fit(X, sides[name])
    assert model.stop_.reason is Reason.SECONDS, model.stop_
    assert len(model.trace_) <= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:every token has a topic of its own")
@pytest.mark.filterwarnings("ignore::natgrad.errors.NotConverged")
@pytest.mark.parametrize("name", ["SupervisedLDA", "CorrelatedTopics", "DynamicTopics", "AuthorTopics"])
def test_large_counts_do_not_outlast_max_seconds(name):
    """A step of supervised topics took 45 seconds, and nobody looked at the clock within it."""
    X, sides = topics()
    begun = time.process_time()
    model = getattr(ng.topics, name)(2, max_seconds=1.0, verbose=False).fit(1000 * X, sides[name])
    assert time.process_time() - begun < 4.0  # with what is compiled, and what is read at the end
    assert np.isfinite(model.elbo_)
