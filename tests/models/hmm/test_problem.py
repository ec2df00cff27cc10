"""Hidden Markov models as a Problem: the same numbers as declared networks, as other engines, and as the theory of subchains."""

import numpy as np
import pytest
import scipy.special as sp
from reference import hmm as twin

import natgrad as ng
from natgrad import families as nf
from natgrad.data.sequences import Sequences, as_ends
from natgrad.models.hmm.emissions import Bernoullis, Categories, FullGaussians, IndependentGaussians, Poissons
from natgrad.models.hmm.forward_backward import count, weights_of, whole_sequences
from natgrad.models.hmm.parts import Subchains
from natgrad.models.hmm.priors import stationary
from natgrad.models.hmm.problem import HMMModel, SequenceProblem, SubchainProblem
from natgrad.models.hmm.start import sums_of

LENGTHS = [12, 8, 20]
SWEEPS = 6


def sequences(emission, X, lengths=None):
    seen = emission.observe(X)
    return Sequences(seen.codes, seen.values, as_ends(lengths, len(X)), seen.patterns, base=seen.base)


def declared(kind, rng):
    """Data, our emission, and the emission of the network that declares the same model."""
    n_states, n_times = 3, sum(LENGTHS)
    time, state = ng.Plate("time", n_times), ng.Plate("state", n_states)
    pi = ng.Dirichlet("initial", 1.5, size=n_states)
    rows = ng.Dirichlet("transition", [[3.0, 1.0, 0.5]] * 3, plate=state)
    z = ng.MarkovChain("z", pi, rows, plate=time, lengths=np.array(LENGTHS))
    if kind == "categorical":
        X = rng.integers(0, 4, (n_times, 1))
        phi = ng.Dirichlet("emission", 0.7, size=4, plate=state)
        y = ng.Categorical("y", phi[z], plate=time, observed=X[:, 0])
        return X, Categories(n_states, 4, np.float64(0.7)), y, rng.dirichlet(np.ones(4), 3)
    if kind == "poisson":
        X = rng.poisson(3.0, (n_times, 1))
        rate = ng.Gamma("emission", 2.0, 0.5, plate=state)
        y = ng.Poisson("y", rate[z], plate=time, observed=X[:, 0])
        return X, Poissons(n_states, 1, 2.0, 0.5), y, rng.uniform(1, 6, 3)
    X = rng.integers(0, 2, (n_times, 1))
    chance = ng.Beta("emission", 2.0, 1.0, plate=state)
    y = ng.Bernoulli("y", chance[z], plate=time, observed=X[:, 0])
    return X, Bernoullis(n_states, 1, 2.0, 1.0), y, rng.uniform(0.2, 0.8, 3)


@pytest.mark.parametrize("kind", ["categorical", "poisson", "bernoulli"])
def test_the_same_bound_and_posterior_as_the_declared_network(kind, rng):
    X, emission, y, start = declared(kind, rng)
    net, order = ng.Network(y), ["z", "initial", "transition", "emission"]
    one, all_ = (net.fit(ng.VB(), max_steps=n, tol=0, init={"emission": start}, order=order) for n in (1, 1 + SWEEPS))
    model = HMMModel(np.full(3, 1.5), np.array([[3.0, 1.0, 0.5]] * 3), emission)
    problem = SequenceProblem(sequences(emission, X, LENGTHS), model)
    lam = {name: tuple(np.asarray(part) for part in one[name].lam) for name in problem.blocks}
    if kind != "categorical":  # a column of its own, which the network does not have
        lam["emission"] = tuple(part[:, None] for part in lam["emission"])
    state = problem.at(lam)
    for sweep in range(SWEEPS):
        state, bound, *_ = problem.sweep(state, ())
        np.testing.assert_allclose(bound, all_.trace["elbo"][1 + sweep], rtol=1e-10)
    for name in problem.blocks:
        for ours, theirs in zip(state.lam[name], all_[name].lam, strict=True):
            np.testing.assert_allclose(np.reshape(ours, np.shape(theirs)), theirs, rtol=1e-9)


def models(rng):
    """Every emission on data with several sequences and missing entries."""
    n = sum(LENGTHS)
    values = rng.normal(size=(n, 2))
    rows, entries = values.copy(), values.copy()
    rows[5] = np.nan
    entries[3, 0] = entries[7, 1] = np.nan
    counts, tracks = rng.poisson(2.0, (n, 2)) * 1.0, rng.integers(0, 2, (n, 3)) * 1.0
    counts[4, 1] = tracks[9, 2] = np.nan
    codes = rng.integers(0, 5, (n, 1)) * 1.0
    codes[11] = np.nan
    return {
        "full": (FullGaussians(3, np.zeros(2), 0.5, 4.0, np.eye(2)), rows),
        "diagonal": (IndependentGaussians(3, np.zeros(2), 0.5, 3.0, np.ones(2)), entries),
        "poisson": (Poissons(3, 2, 1.0, 0.5), counts),
        "bernoulli": (Bernoullis(3, 3, 1.0, 1.0), tracks),
        "categorical": (Categories(3, 5, np.float64(0.5)), codes),
    }


def started(problem, rng):
    """The globals after an update from random q(x)."""
    states = rng.dirichlet(np.ones(3), problem.data.n_times)
    return problem.from_counts(
        states[problem.data.ends[:-1]].sum(0), states[:-1].T @ states[1:], sums_of(problem, states)
    )


@pytest.mark.parametrize("name", ["full", "diagonal", "poisson", "bernoulli", "categorical"])
def test_the_bound_never_falls(name, rng):
    emission, X = models(rng)[name]
    problem = SequenceProblem(sequences(emission, X, LENGTHS), HMMModel(np.ones(3), np.ones((3, 3)), emission))
    state, bounds = started(problem, rng), []
    for _ in range(15):
        state, bound, info, _ = problem.sweep(state, ())
        bounds.append(bound)
        assert all(bool(np.all(block.valid)) for block in info.values())
    assert np.isfinite(bounds).all()
    assert np.diff(bounds).min() > -1e-9
    np.testing.assert_allclose(problem.bound(state), bounds[-1], atol=max(1.0, bounds[-1] - bounds[-2]) * 2 + 1e-6)
    assert problem.bound(state) >= bounds[-1] - 1e-9  # q(x) is optimal again


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_codes_and_columns_are_the_same_model(name, rng, monkeypatch):
    emission, X = models(rng)[name]
    X = X[:, :1] if name == "poisson" else X
    emission = Poissons(3, 1, 1.0, 0.5) if name == "poisson" else emission
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


def test_independent_means_and_precisions_sweep_by_sweep(reference):
    """The kernels inside another model: q(μ) q(Λ) instead of Normal–Wishart, against another engine's bound of every sweep."""
    r = reference("hmm_small")
    length, dim, size = r["T"], r["D"], r["K"]
    rng = np.random.default_rng(0)
    means = rng.normal(0, 4, (size, dim))
    transition = 0.9 * np.eye(size) + 0.1 / size
    states = np.zeros(length, int)
    for t in range(1, length):
        states[t] = rng.choice(size, p=transition[states[t - 1]])
    y = means[states] + rng.normal(0, 1, (length, dim))
    emission = FullGaussians(size, np.zeros(dim), 1.0, 3.0, np.eye(dim))
    data = sequences(emission, y)
    normal, wishart, dirichlet = nf.MultivariateNormal(), nf.Wishart(), nf.Dirichlet()
    prior = {
        "mu": normal.natural(mean=np.zeros((size, dim)), precision=0.01 * np.eye(dim)),
        "Lambda": wishart.natural(dof=np.full(size, dim * 1.0), rate=np.eye(dim)),
        "pi": dirichlet.natural(concentration=np.ones(size)),
        "A": dirichlet.natural(concentration=np.ones((size, size))),
    }
    kinds = {"mu": normal, "Lambda": wishart, "pi": dirichlet, "A": dirichlet}
    mu = {name: kinds[name].expected_stats(prior[name]) for name in kinds}
    start = y[np.random.default_rng(2).choice(length, size, replace=False)]
    mu["mu"] = normal.stats_of(start)

    def forms():
        (x, xx), (precision, log) = mu["mu"], mu["Lambda"]
        return emission.weights((
            np.einsum("kde,ke->kd", precision, x), np.einsum("kde,kde->k", precision, xx), precision, log,
        ))  # fmt: skip

    for wanted in r["elbo"]:
        old = forms(), mu["pi"][0], mu["A"][0]
        weights = weights_of(emission, data, np.exp(old[1]), np.exp(old[2]), old[0])
        found = count(weights, whole_sequences(weights, data, None, 1), 6, 1)
        entropy = found.log_z - (found.sums.T * old[0]).sum() - found.heads @ old[1] - (found.pairs * old[2]).sum()
        first, _, squares, half = emission.message(found.sums)
        (precision, _), n = mu["Lambda"], 2 * half
        lam = {"mu": (prior["mu"][0] + np.einsum("kde,ke->kd", precision, first),
                      prior["mu"][1] - 0.5 * n[:, None, None] * precision)}  # fmt: skip
        mu["mu"] = normal.expected_stats(lam["mu"])
        x, xx = mu["mu"]
        scatter = -2 * squares - first[:, :, None] * x[:, None, :] - x[:, :, None] * first[:, None, :]
        scatter += n[:, None, None] * xx
        lam["Lambda"] = (prior["Lambda"][0] - 0.5 * scatter, prior["Lambda"][1] + half)
        lam["pi"], lam["A"] = (prior["pi"][0] + found.heads,), (prior["A"][0] + found.pairs,)
        for name in ("Lambda", "pi", "A"):
            mu[name] = kinds[name].expected_stats(lam[name])
        bound = entropy + (found.sums.T * forms()).sum() + found.heads @ mu["pi"][0] + (found.pairs * mu["A"][0]).sum()
        bound -= sum(float(np.sum(kinds[name].kl(lam[name], prior[name]))) for name in kinds)
        np.testing.assert_allclose(bound, wanted, rtol=1e-10)
    np.testing.assert_allclose(lam["A"][0] + 1.0, r["post"]["A"], rtol=1e-7)


# Numbers of hmmlearn 0.3.3: `VariationalCategoricalHMM` and `VariationalGaussianHMM(covariance_type="full")` with the data,
# priors and starting posteriors below set as attributes, `init_params=""`, `tol=0`, `fit(X, lengths)`, `monitor_.history`.
CATEGORICAL_HISTORY = [
    -32.62278319515316, -30.743629728267322, -30.71262292702294, -30.698590515352535, -30.692289900414174, -30.689632353945356,
    -30.68856281447737, -30.688145972826533, -30.68798689097848, -30.68792698599306, -30.687904615475112, -30.687896304580356,
]  # fmt: skip
GAUSSIAN_HISTORY = [
    -9.137711790663465, -6.726168786277697, -6.726151427766343, -6.7261514276937255, -6.726151427693725,
]  # fmt: skip


def test_categories_as_hmmlearn():
    X = np.array([0, 0, 1, 0, 2, 2, 1, 2, 2, 0, 0, 1, 0, 0, 2, 2, 2, 1, 2, 0, 1, 0, 0, 0])[:, None]
    emission = Categories(2, 3, np.float64(0.7))
    problem = SequenceProblem(sequences(emission, X, [14, 10]), HMMModel(np.ones(2), np.full((2, 2), 1.5), emission))
    start = {
        "initial": [1.5, 1.5],
        "transition": [[6.0, 3.0], [2.0, 7.0]],
        "emission": [[5.0, 3.0, 1.0], [1.0, 2.0, 6.0]],
    }
    state = problem.at({name: (np.array(value) - 1.0,) for name, value in start.items()})
    for wanted in CATEGORICAL_HISTORY:
        np.testing.assert_allclose(problem.bound(state), wanted, rtol=1e-10)
        state, *_ = problem.sweep(state, ())
    transition = [[11.888979196979253, 3.00766087544761], [3.987064149012168, 9.116295778561021]]
    np.testing.assert_allclose(state.lam["transition"][0] + 1.0, transition, rtol=1e-9)


def test_gaussians_as_hmmlearn():
    X = np.array([
        [-1.2, 0.3], [-0.8, 0.1], [-1.1, -0.4], [1.3, 0.9], [0.7, 1.2], [1.1, 0.8], [0.9, 1.4], [-1.0, 0.2], [-0.6, -0.3],
        [-1.4, 0.5], [1.2, 1.0], [0.8, 0.6],
    ])  # fmt: skip
    emission = FullGaussians(2, np.zeros(2), 0.5, 3.0, np.eye(2))
    problem = SequenceProblem(sequences(emission, X), HMMModel(np.ones(2), np.ones((2, 2)), emission))
    usual = {"mean": [[-1.0, 0.0], [1.0, 1.0]], "scale": [5.0, 5.0], "dof": [7.0, 7.0], "rate": [2 * np.eye(2)] * 2}
    family = nf.NormalWishart()
    start = family.natural(**{name: np.array(value) for name, value in usual.items()})
    state = problem.at({"initial": ([0.5, 0.5],), "transition": ([[4.0, 1.0], [1.0, 4.0]],), "emission": start})
    bounds = []
    for _ in GAUSSIAN_HISTORY:
        bounds.append(problem.bound(state))
        state, *_ = problem.sweep(state, ())
    for _ in range(3):
        state, *_ = problem.sweep(state, ())
    # Its bound leaves out constants of the normalisers; between any two sweeps it rises by as much.
    np.testing.assert_allclose(np.diff(bounds), np.diff(GAUSSIAN_HISTORY), atol=1e-9)
    found = family.usual(state.lam["emission"])
    means = [[-0.9384578103620416, 0.06154785111613739], [0.9230047621836602, 0.9076518128650433]]
    rate = [[1.8854901333050345, -0.3445596764528235], [-0.34455967645282354, 1.6153767435162125]]
    np.testing.assert_allclose(found["mean"], means, rtol=1e-8)
    np.testing.assert_allclose(found["rate"][0], rate, rtol=1e-8)
    np.testing.assert_allclose(found["dof"], [8.999761041040502, 9.000238958959498], rtol=1e-9)


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
