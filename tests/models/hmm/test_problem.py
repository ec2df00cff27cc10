"""Hidden Markov models as a Problem: codes and columns, the theory of subchains, and the base measure of counts."""

import numpy as np
import pytest
import scipy.special as sp
from reference import hmm as twin

from natgrad.data.sequences import Sequences, as_ends
from natgrad.models.hmm.emissions import Bernoullis, Categories, Poissons
from natgrad.models.hmm.parts import Subchains
from natgrad.models.hmm.priors import stationary
from natgrad.models.hmm.problem import HMMModel, SequenceProblem, SubchainProblem
from natgrad.models.hmm.start import sums_of

LENGTHS = [12, 8, 20]


def sequences(emission, X, lengths=None):
    seen = emission.observe(X)
    return Sequences(seen.codes, seen.values, as_ends(lengths, len(X)), seen.patterns, base=seen.base)


def started(problem, rng):
    """The globals after an update from random q(x)."""
    states = rng.dirichlet(np.ones(3), problem.data.n_times)
    return problem.from_counts(
        states[problem.data.ends[:-1]].sum(0), states[:-1].T @ states[1:], sums_of(problem, states)
    )


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_codes_and_columns_are_the_same_model(name, rng, monkeypatch):
    n = sum(LENGTHS)
    if name == "poisson":
        emission, X = Poissons(3, 1, 1.0, 0.5), rng.poisson(2.0, (n, 1)) * 1.0
    else:
        emission, X = Bernoullis(3, 3, 1.0, 1.0), rng.integers(0, 2, (n, 3)) * 1.0
    X[4, 0] = np.nan
    model = HMMModel(np.ones(3), np.ones((3, 3)), emission)
    coded = SequenceProblem(sequences(emission, X, LENGTHS), model)
    monkeypatch.setattr("natgrad.models.hmm.emissions.MOST_PATTERNS", 0)
    plain = SequenceProblem(sequences(emission, X, LENGTHS), model)
    assert len(coded.data.codes) == len(X)
    assert len(plain.data.codes) == 0
    state = started(plain, rng)
    np.testing.assert_allclose(coded.bound(state), plain.bound(state), rtol=1e-12)
    for a, b in zip(
        coded.sweep(state, ()).state.lam["emission"], plain.sweep(state, ()).state.lam["emission"], strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10)


# -- subchains --


def subchain_problem(rng, how, lengths=(60,)):
    emission = Categories(3, 4, np.float64(0.5))
    codes = rng.integers(0, 4, (sum(lengths), 1))
    model = HMMModel(np.ones(3), np.ones((3, 3)), emission)
    problem = SubchainProblem(sequences(emission, codes, lengths), model, how)
    state = problem.from_counts(np.ones(3) / 3, 9 * rng.dirichlet(np.ones(3), 3), 9 * rng.dirichlet(np.ones(3), 5))
    return problem, state


@pytest.mark.parametrize("buffer", [60, "grow"])
def test_sampled_statistics_average_to_the_full_ones_up_to_the_edges(buffer, rng):
    # With buffers that reach both ends q(x_S) is exact, and what is left is how often each time and each pair is covered.
    length, n = 7, 60
    tol = 1e-14 if buffer == "grow" else Subchains.buffer_tol
    problem, state = subchain_problem(rng, Subchains(length=length, size=5, buffer=buffer, buffer_tol=tol, most=100))
    weights = problem.weights(state)
    logs = weights.table[problem.data.codes]
    exact = twin.chain(logs, weights.transition, weights.initial)
    starts = np.arange(n - length + 1)
    assert problem.n_groups == len(starts)
    total = {"transition": 0.0, "emission": 0.0}
    for start in starts:
        told = problem.solve(state, np.array([start]), None, 0.0, 1).messages
        total = {name: total[name] + told[name][0] for name in total}
    covered = np.array([np.sum((starts <= t) & (t < starts + length)) for t in range(n)])
    assert (covered[length - 1 : n - length + 1] == length).all()
    by_category = np.array(
        [(exact.states * (covered / length)[:, None])[problem.data.codes == v].sum(0) for v in range(4)]
    )
    np.testing.assert_allclose(total["emission"].T, by_category, rtol=1e-8)
    pairs = np.zeros((3, 3))
    for t in range(n - 1):
        one = twin.chain(logs[t : t + 2], weights.transition, *_entering(logs, weights, t))
        pairs += one.pairs * np.sum((starts <= t) & (t + 1 < starts + length)) / (length - 1)
    np.testing.assert_allclose(total["transition"], pairs, rtol=1e-8)
    # The seed's factors: the sums stand for T − L + 1 pairs and times.
    np.testing.assert_allclose(total["transition"].sum(), n - length + 1)
    np.testing.assert_allclose(total["emission"].sum(), n - length + 1)


def _entering(logs, weights, t):
    """The messages that enter the pair (t, t + 1) of the whole chain."""
    left, right = twin.transfer_operators(logs[:t], logs[t + 2 :], weights.transition)
    return weights.initial @ left, right @ np.ones(3)


def test_one_window_over_everything_is_batch_vb(rng):
    problem, state = subchain_problem(rng, Subchains(length=60, size=1))
    told = problem.solve(state, np.array([0]), None, 0.0, 1).messages
    wanted = problem.solve(state, None, None, 0.0, 1).messages
    np.testing.assert_allclose(told["transition"][0] * 59, wanted["transition"][0], rtol=1e-10)
    np.testing.assert_allclose(told["emission"][0] * 60, wanted["emission"][0], rtol=1e-10)
    np.testing.assert_allclose(told["initial"][0], wanted["initial"][0], rtol=1e-10)


def test_sequences_shorter_than_a_subchain_count_once(rng):
    problem, state = subchain_problem(rng, Subchains(length=7, size=5, buffer=60), lengths=(20, 3, 5))
    assert problem.n_groups == 14 + 1 + 1
    short = sum(problem.solve(state, np.array([g]), None, 0.0, 1).messages["emission"][0].sum() for g in (14, 15))
    np.testing.assert_allclose(short, 3 + 5)


def test_stationary_distribution(rng):
    transition = rng.dirichlet(np.ones(5), 5)
    typical = stationary(transition)
    np.testing.assert_allclose(typical @ transition, typical, atol=1e-12)
    np.testing.assert_allclose(stationary(np.eye(3)).sum(), 1.0)


# -- references --


def test_poisson_base_measure(rng):
    # With one state the bound is the evidence of Gamma–Poisson, and of Dirichlets that do not matter.
    X = rng.poisson(4.0, (30, 1))
    emission = Poissons(1, 1, 2.0, 0.5)
    problem = SequenceProblem(sequences(emission, X), HMMModel(np.ones(1), np.ones((1, 1)), emission))
    state = problem.from_counts(np.ones(1), np.ones((1, 1)), np.ones((problem.n_sums, 1)))
    _, bound, *_ = problem.sweep(state, ())
    shape, rate = 2.0 + X.sum(), 0.5 + len(X)
    evidence = (
        sp.gammaln(shape) - shape * np.log(rate) - sp.gammaln(2.0) + 2.0 * np.log(0.5) - sp.gammaln(X + 1.0).sum()
    )
    np.testing.assert_allclose(bound, evidence, rtol=1e-12)
