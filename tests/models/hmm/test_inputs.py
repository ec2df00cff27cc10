"""Inputs to the transitions: equal to a sum over all paths, and to the declared network; honoured wherever a model is asked."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import natgrad as ng
from natgrad.models import hmm

N_INPUTS = 3


def drawn(n: int = 300, seed: int = 0):
    """Rows (value, input): with input 0 states stay, with 1 they change, with 2 all is even."""
    rng = np.random.default_rng(seed)
    A = np.array([[[0.95, 0.05], [0.05, 0.95]], [[0.1, 0.9], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5]]])
    u, x = rng.integers(0, N_INPUTS, n), np.zeros(n, dtype=int)
    for t in range(1, n):
        x[t] = rng.random() < A[u[t], x[t - 1], 1]
    return np.column_stack([rng.normal(4.0 * x, 1.0), u]), A, x


@pytest.fixture(scope="module")
def fitted():
    X, A, x = drawn()
    return hmm.HMM(2, transitions=hmm.Transitions(inputs=1), seed=0, n_init=2).fit(X, lengths=[180, 120]), X, A, x


def weights(model, X):
    """Log weights at the mean of q: of the first states, transitions and emissions, by definition."""
    located = model.emission_parameters()["emission"]
    values, means = X[:, 0], located["means"][:, 0]
    variances = located["covariances"].reshape(2)
    logs = -0.5 * np.log(2 * np.pi * variances) - 0.5 * (values[:, None] - means) ** 2 / variances
    return np.log(model.startprob_), np.log(model.transmat_), logs


def all_paths(model, X):
    """Every path, and its log probability together with the rows."""
    first, steps, logs = weights(model, X)
    paths = np.array(list(product(range(2), repeat=len(X))))
    total = np.array(
        [
            first[p[0]]
            + sum(steps[int(u), a, b] for u, (a, b) in zip(X[1:, 1], pairwise(p), strict=True))
            + logs[np.arange(len(p)), p].sum()
            for p in paths
        ]
    )
    return paths, total


def test_answers_are_sums_over_all_paths(fitted) -> None:
    model, X, _, _ = fitted
    rows = X[:9]
    paths, total = all_paths(model, rows)
    assert model.score(rows) == pytest.approx(logsumexp(total), abs=1e-8)
    q = np.exp(total - logsumexp(total))
    exact = np.stack([[q[paths[:, t] == k].sum() for k in range(2)] for t in range(9)])
    np.testing.assert_allclose(model.predict_proba(rows), exact, atol=1e-8)
    best = paths[np.argmax(total)]
    log_prob, states = model.decode(rows)
    assert np.array_equal(states, best)
    assert log_prob == pytest.approx(total.max(), abs=1e-8)
    live = model.filter()
    for t in range(9):
        mine = live.update(rows[t])
        own, so_far = all_paths(model, rows[: t + 1])
        past = np.exp(so_far - logsumexp(so_far))
        np.testing.assert_allclose(mine, [past[own[:, -1] == k].sum() for k in range(2)], atol=1e-8)
        assert live.log_prob == pytest.approx(logsumexp(so_far), abs=1e-8)
    np.testing.assert_allclose(model.filter(rows).states, exact[-1], atol=1e-8)
    ahead = live.forecast(3, inputs=[1, 1, 0])
    expected, told = [], live.states
    for u in (1, 1, 0):
        told = told @ model.transmat_[u]
        expected.append(told)
    np.testing.assert_allclose(ahead.states, expected, atol=1e-12)
    assert np.isnan(live.next_states).all()


def test_one_input_is_no_input() -> None:
    X, _, _ = drawn(200)
    X[:, 1] = 7.0
    with_it = hmm.HMM(2, transitions=hmm.Transitions(inputs=1), emissions={0: hmm.Poisson()}, seed=0, n_init=2)
    without = hmm.HMM(2, emissions={0: hmm.Poisson()}, seed=0, n_init=2)
    counts = np.round(np.abs(X[:, 0]))
    a, b = with_it.fit(np.column_stack([counts, X[:, 1]])), without.fit(counts[:, None])
    assert a.elbo_ == pytest.approx(b.elbo_, rel=1e-10)
    np.testing.assert_allclose(a.transmat_[0], b.transmat_, atol=1e-8)


def test_drawn_sequences_follow_their_inputs(fitted) -> None:
    model, X, _, _ = fitted
    for u in range(N_INPUTS):
        _, states = model.sample(4000, seed=1, inputs=[u] * 4000)
        for k in range(2):
            after = states[1:][states[:-1] == k]
            assert abs(np.mean(after == 0) - model.transmat_[u, k, 0]) < 4 * np.sqrt(0.25 / len(after))
    values, states = model.sample(5, seed=1, after=X, inputs=[0, 1, 2, 0, 1])
    assert values.shape == (5, 1)
    ways = model.forecast(2, X, inputs=[0, 1]).sample(3, seed=0)
    assert ways.shape == (3, 2, 1)
    assert model.sample_paths(X[:20], n=4, seed=0).shape == (4, 20)


@pytest.mark.parametrize(
    ("settings", "X", "words"),
    [
        ({"inputs": 5}, np.zeros((4, 2)), "must be the number of a column of X"),
        ({"inputs": "day"}, pd.DataFrame({"y": [1.0, 2.0]}), r"must name a column of X, got 'day'; X has \['y'\]"),
        ({"inputs": 1}, np.array([[0.0, 1.0], [1.0, np.nan]]), r"inputs \(column 1\)\[1\] = nan: an input is known"),
        ({"inputs": 1, "n_states": "auto"}, np.ones((4, 2)), "they exclude n_states"),
        ({"inputs": 1, "durations": hmm.Explicit(3)}, np.ones((4, 2)), "they exclude durations"),
    ],
)
def test_what_is_refused(settings, X, words) -> None:
    own = {name: value for name, value in settings.items() if name != "n_states"}
    with pytest.raises(ValueError, match=words):
        hmm.HMM(settings.get("n_states", 2), transitions=hmm.Transitions(**own)).fit(X)


@pytest.mark.parametrize("model", [ng.GaussianHMM, ng.PoissonHMM, ng.BernoulliHMM, ng.CategoricalHMM])
@pytest.mark.parametrize("given", [{"inputs": 0}, {"durations": hmm.Explicit(3)}], ids=["inputs", "durations"])
def test_models_of_one_kind_refuse_what_belongs_to_any_emissions(model, given) -> None:
    with pytest.raises(ValueError, match=f"{model.__name__} has no durations or inputs: write hmm.HMM"):
        model(2, transitions=hmm.Transitions(**given)).fit(np.ones((9, 1)))
    with pytest.raises(TypeError, match="transitions must be Transitions"):
        model(2, transitions=5.0).fit(np.ones((9, 1)))


def test_inputs_that_are_missing_new_or_not_wanted_are_said_so(fitted) -> None:
    model, X, _, _ = fitted
    with pytest.raises(ValueError, match="inputs must say what comes at each of 2 times, got none"):
        model.forecast(2, X)
    with pytest.raises(ValueError, match=r"inputs\[0\] = 9 is none of the 3 inputs of the fit"):
        model.forecast(1, X, inputs=[9])
    with pytest.raises(ValueError, match="this GaussianHMM has none"):
        ng.GaussianHMM(2, seed=0, n_init=1).fit(X[:, :1]).forecast(1, inputs=[0])


def test_a_real_valued_input_is_a_network_of_logistic_transitions(rng) -> None:
    """With paths that are known the declared chain is one logistic regression for every state that is left."""
    n, n_times = 40, 4
    dose, path = rng.normal(size=(n, n_times)), rng.integers(0, 2, (n, n_times))
    before, stick, who = ng.Plate("before", 2), ng.Plate("stick", 1), ng.Plate("who", n)
    move = ng.MultivariateNormal("move", np.zeros(2), 0.1, plate=(before, stick))
    x = ng.Categorical("x0", [0.5, 0.5], plate=who, observed=path[:, 0])
    chain = []
    for t in range(1, n_times):
        inputs = np.stack([np.ones(n), dose[:, t]], axis=1)
        x = ng.Categorical(f"x{t}", logits=ng.dot(inputs, move[x]), plate=who, observed=path[:, t])
        chain.append(x)
    found = ng.Network(*chain).fit(tol=1e-13)
    bounds = []
    for state in (0, 1):
        d, t = np.nonzero(path[:, :-1] == state)
        rows = np.stack([np.ones(len(d)), dose[d, t + 1]], axis=1)
        w = ng.MultivariateNormal("w", np.zeros(2), 0.1)
        y = ng.Bernoulli("y", logit=ng.dot(rows, w), plate=ng.Plate("row", len(d)), observed=path[d, t + 1] == 0)
        alone = ng.Network(y).fit(tol=1e-13)
        np.testing.assert_allclose(found["move"].mean()[state, 0], alone["w"].mean(), atol=1e-6)
        bounds.append(alone.elbo)
    assert found.elbo == pytest.approx(sum(bounds) + n * np.log(0.5), abs=1e-6)
