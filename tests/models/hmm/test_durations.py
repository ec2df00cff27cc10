"""Durations of states: a Markov chain where they are geometric, all segmentations elsewhere."""

import itertools
from math import comb

import numpy as np
import pytest
import scipy.special as sp

from natgrad.models import hmm
from natgrad.models.hmm.problem import SequenceProblem

KINDS = {"stages": hmm.NegativeBinomial(3, (2.0, 1.5)), "explicit": hmm.Explicit(4, 0.8)}


def runs_of(rng, n=400):
    """States that last 4 to 5, 8 to 9 and 6 to 7 times, and numbers about them."""
    states = []
    k = 0
    while len(states) < n:
        states += [k] * int((4, 8, 6)[k] + rng.integers(0, 2))
        k = (k + int(rng.integers(1, 3))) % 3
    states = np.array(states[:n])
    return states, (1.7 * states + rng.normal(size=n))[:, None]


def problem_of(model, X, lengths=None):
    data = model._sequences(model._columns(X, None, None)[0], lengths, None, model._model_.emission)
    return SequenceProblem(data, model._model_)


def test_one_stage_is_a_markov_chain(rng):
    """A row of A ~ Dirichlet(1, 1, 1) is a probability to leave ~ Beta(2, 1) and where to, ~ Dirichlet(1, 1)."""
    _, X = runs_of(rng, 120)
    settings = {"emissions": {0: hmm.Gaussian()}, "n_init": 1, "max_passes": 3, "seed": 0}
    plain = hmm.HMM(3, **settings).fit(X)
    markov = problem_of(plain, X)
    problem = problem_of(
        hmm.HMM(3, transitions=hmm.Transitions(durations=hmm.NegativeBinomial(1, (2.0, 1.0))), **settings).fit(X), X
    )
    off = ~np.eye(3, dtype=bool)

    def of_stages(lam):
        rows = lam["transition"][0] + 1.0
        own = (np.where(off, rows - 1.0, problem.full_prior("transition")[0]),)
        return {**lam, "transition": own, "duration": ((rows * off).sum(1) - 1.0, np.diagonal(rows) - 1.0)}

    state, own = plain._state, problem.at(of_stages(plain._state.lam))
    for _ in range(5):
        # To the concentration 1e-8 of the transitions that are forbidden, from a state to itself.
        np.testing.assert_allclose(problem.bound(own), markov.bound(state), atol=5e-7, rtol=0)
        state, own = markov.sweep(state).state, problem.sweep(own).state
        for name, parts in of_stages(state.lam).items():
            for ours, theirs in zip(own.lam[name], parts, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(plain.mean_durations_, 1 / (1 - np.diagonal(plain.transmat_)), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_that_of_all_segmentations(kind, rng):
    X, lengths, durations = rng.normal(size=(9, 1)) * 2.0, [6, 3], KINDS[kind]
    X[4] = np.nan
    model = hmm.HMM(
        3, emissions=hmm.Gaussian("diag"), transitions=hmm.Transitions(durations=durations), n_init=1, max_passes=2
    ).fit(X, lengths=lengths)
    problem, state = problem_of(model, X, lengths), model._state
    log_pi, log_a = (np.asarray(state.mu[name][0]) for name in ("initial", "transition"))
    densities = model._model_.emission.logs(problem.data.values, state.mu)
    wanted, begin = 0.0, 0
    for length in lengths:
        logs = []
        for cuts in itertools.product([False, True], repeat=length - 1):
            ends = [t + 1 for t, cut in enumerate(cuts) if cut] + [length]
            for path in itertools.product(range(3), repeat=len(ends)):
                if any(i == j for i, j in itertools.pairwise(path)):
                    continue
                total, start = log_pi[path[0]], 0
                for place, (end, k) in enumerate(zip(ends, path, strict=True)):
                    total += densities[begin + start : begin + end, k].sum()
                    total += log_run(durations, state.mu["duration"], k, end - start, place == len(ends) - 1)
                    total += log_a[k, path[place + 1]] if place + 1 < len(ends) else 0.0
                    start = end
                logs.append(total)
        wanted += float(sp.logsumexp(logs))
        begin += length
    for name, block in problem.blocks.items():
        wanted -= float(np.sum(block.family.kl(state.lam[name], problem.full_prior(name))))
    np.testing.assert_allclose(problem.bound(state), wanted, rtol=1e-9)


def log_run(durations, log, k, length, last):
    """Log weight of a stay of so many times in a state; the last one of a sequence may go on."""
    if isinstance(durations, hmm.Explicit):
        later = slice(length - 1, None) if last else slice(length - 1, length)
        return sp.logsumexp(log[0][k, later]) if length <= durations.longest else -np.inf
    on, stay = log[0][k], log[1][k]
    if not last:
        ways = comb(length - 1, durations.r - 1)
        return -np.inf if ways == 0 else np.log(ways) + durations.r * on + (length - durations.r) * stay
    stages = range(min(durations.r, length))
    return sp.logsumexp([np.log(comb(length - 1, j)) + j * on + (length - 1 - j) * stay for j in stages])


@pytest.mark.slow
def test_durations_are_found_and_what_is_drawn_lasts_as_long(rng):
    states, X = runs_of(rng, 600)
    model = hmm.HMM(3, transitions=hmm.Transitions(durations=hmm.Explicit(10)), n_init=3, seed=0).fit(X)
    order = np.argsort(model.emission_parameters()["emission"]["means"][:, 0])
    np.testing.assert_allclose(model.mean_durations_[order], [4.5, 8.5, 6.5], atol=0.7)
    assert np.mean(np.argsort(order)[model.predict(X)] == states) > 0.9
    plain = hmm.HMM(3, n_init=3, seed=0).fit(X)
    assert model.elbo_ > plain.elbo_ + 50.0  # nats: lasting tells more than numbers
    ahead = model.forecast(3, X).states
    np.testing.assert_allclose(ahead.sum(1), 1.0, rtol=0, atol=1e-15)  # what leaked, 1e-10, was 0.3 at an offset of 1e9
    _, drawn = model.sample(6_000, seed=0)
    cuts = np.flatnonzero(np.diff(drawn)) + 1
    lasting = np.diff(cuts)
    for k in range(3):
        assert abs(lasting[drawn[cuts[:-1]] == k].mean() / model.mean_durations_[k] - 1.0) < 0.06


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hmm.Transitions(durations="long"), "durations must be NegativeBinomial"),
        (lambda: hmm.HMM(1, transitions=hmm.Transitions(durations=hmm.Explicit())), "exclude n_states=1"),
        (lambda: hmm.HMM("auto", transitions=hmm.Transitions(durations=hmm.Explicit())), 'exclude n_states="auto"'),
        (lambda: hmm.HMM(2, transitions=hmm.Transitions(durations=hmm.Explicit(), sticky=2.0)), "exclude sticky"),
        (
            lambda: hmm.HMM(2, transitions=hmm.Transitions(durations=hmm.Explicit(), topology="left-to-right")),
            "exclude topology",
        ),
        (lambda: hmm.NegativeBinomial(0), "r must be"),
        (lambda: hmm.NegativeBinomial(2, (1.0, 0.0)), "prior must be two numbers"),
        (lambda: hmm.Explicit(3, -1.0), "prior must be > 0"),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make().fit(np.linspace(-1.5, 1.0, 20)[:, None])
