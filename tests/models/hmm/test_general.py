"""`HMM`: any emissions. The declared network, all paths, and derivatives of log Z say what its numbers are."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.special as sp
from sklearn.base import clone

import natgrad as ng
from natgrad.data.sequences import Sequences, as_ends
from natgrad.models import hmm
from natgrad.models.hmm.forward_backward import count, whole_sequences
from natgrad.models.hmm.problem import HMMModel, SequenceProblem
from natgrad.models.hmm.tracks import Tracks

LENGTHS, SWEEPS = [4, 3], 4


def mixed(rng, n=200):
    """States, and a table of four kinds of columns with something missing in each."""
    states = np.repeat(rng.integers(0, 3, n // 10), 10)
    table = pd.DataFrame(
        {
            "level": rng.normal(3.0 * states),
            "slope": rng.normal(-2.0 * states),
            "n": rng.poisson(1.0 + 6.0 * states) * 1.0,
            "on": (rng.random(n) < 0.1 + 0.4 * states) * 1.0,
            "word": np.array(["a", "b", "c", "d"], object)[(states + (rng.random(n) < 0.1)) % 4],
        }
    )
    table.loc[5, "n"] = table.loc[6, "on"] = np.nan
    table.loc[9, ["level", "slope"]] = np.nan
    table.loc[7, "word"] = None
    return states, table


KINDS = {
    ("level", "slope"): hmm.Gaussian(),
    "n": hmm.Poisson(),
    "on": hmm.Bernoulli(),
    "word": hmm.Categorical(),
}
# One model of every mechanism, by name; X has two real columns.
SINGLE = {
    "plain": hmm.Gaussian(),
    "student": hmm.StudentT(dof=3.0),
    "student, diag": hmm.StudentT("diag", dof=5.0),
    "student, tied": hmm.StudentT("tied"),
    "student, spherical": hmm.StudentT("spherical"),
    "mixture": hmm.Mixture(hmm.Gaussian(), 2),
    "mixture of students": hmm.Mixture(hmm.StudentT("diag", dof=3.0), 2, weight_prior=0.7),
    "mixture of spheres": hmm.Mixture(hmm.Gaussian("spherical"), 2),
    "autoregressive": hmm.Autoregressive(1),
    "autoregressive student": hmm.Autoregressive(2, dof=4.0),
    "mixture of autoregressions": hmm.Mixture(hmm.Autoregressive(1), 2),
}


# Each mechanism once; the others run with the slow tests.
QUICK = ("student, diag", "mixture of students", "autoregressive")


def problem_of(model, X, lengths=None):
    columns, _ = model._columns(X, None, None)
    data = model._sequences(columns, lengths, None, model._model_.emission)
    return SequenceProblem(data, model._model_)


def log_z(problem, mu, state):
    weights = problem._moments_at(state, mu, False)
    if hasattr(weights, "on"):  # of rows, and not of codes
        weights = weights.on(problem._stretch(0, problem.data.n_times))
    return count(weights, whole_sequences(weights, problem.data, None, 1), problem.n_sums, 1).log_z


# -- the declared network --


def test_four_kinds_of_tracks_are_the_declared_network(rng):
    n, lengths, n_states = 40, [12, 8, 20], 3
    real, counts = rng.normal(size=n), rng.poisson(3.0, n)
    binary, codes = rng.integers(0, 2, n), rng.integers(0, 4, n)
    time, state = ng.Plate("time", n), ng.Plate("state", n_states)
    z = ng.MarkovChain(
        "z", ng.Dirichlet("initial", 1.5, size=3), ng.Dirichlet("transition", [[3.0, 1.0, 0.5]] * 3, plate=state),
        plate=time, lengths=np.array(lengths),
    )  # fmt: skip
    tau = ng.Gamma("tau", 2.0, 1.5, plate=state)
    mu = ng.Normal("mu", 0.3, 0.5 * tau, plate=state)
    rate, chance = ng.Gamma("column1", 2.0, 0.5, plate=state), ng.Beta("column2", 2.0, 1.0, plate=state)
    shares = ng.Dirichlet("column3", 0.7, size=4, plate=state)
    leaves = [
        ng.Normal("y0", mu[z], tau[z], plate=time, observed=real),
        ng.Poisson("y1", rate[z], plate=time, observed=counts),
        ng.Bernoulli("y2", chance[z], plate=time, observed=binary),
        ng.Categorical("y3", shares[z], plate=time, observed=codes),
    ]
    start = {"mu": np.array([-1.0, 0.0, 1.0]), "column1": np.array([1.0, 3.0, 6.0])}
    order = ["z", "initial", "transition", "mu", "tau", "column1", "column2", "column3"]
    net = ng.Network(*leaves, joint=[("mu", "tau")])
    one, all_ = (net.fit(ng.VB(), max_steps=n, tol=0, init=start, order=order) for n in (1, 1 + SWEEPS))
    kinds = {
        0: hmm.Gaussian("diag", [0.3], 0.5, 4.0, [3.0]),
        1: hmm.Poisson((2.0, 0.5)),
        2: hmm.Bernoulli((2.0, 1.0)),
        3: hmm.Categorical(4, emission_prior=0.7),
    }
    X = np.column_stack([real, counts, binary, codes])
    priors = {"transitions": hmm.Transitions([[3.0, 1.0, 0.5]] * 3, 1.5)}
    model = hmm.HMM(3, emissions=kinds, max_passes=1, n_init=1, **priors).fit(X, lengths=lengths)
    problem = problem_of(model, X, lengths)
    state = problem.at(of_network(one, ["initial", "transition", "column3"], ["column1", "column2"]))
    for sweep in range(SWEEPS):
        state, bound, *_ = problem.sweep(state)
        np.testing.assert_allclose(bound, all_.trace["elbo"][1 + sweep], rtol=1e-10)
    last = of_network(all_, ["initial", "transition", "column3"], ["column1", "column2"])
    for name in problem.blocks:
        for ours, theirs in zip(state.lam[name], last[name], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def of_network(fit, as_they_are, with_column):
    """λ of a fitted network as the model has it; the Gaussian is the first column."""
    lam = {name: tuple(np.asarray(part) for part in fit[name].lam) for name in as_they_are}
    lam |= {name: tuple(np.asarray(part)[:, None] for part in fit[name].lam) for name in with_column}
    lam["column0"] = tuple(np.reshape(part, (-1, 1)) for part in fit.state.lam["mu+tau"][2:])
    return lam


def test_an_autoregression_is_the_declared_network(rng):
    n, lengths = 30, [18, 12]
    x = np.cumsum(rng.normal(size=n))
    since = np.concatenate([np.arange(length) for length in lengths])
    lag = np.where(since > 0, np.roll(x, 1), 0.0)
    time, state = ng.Plate("time", n), ng.Plate("state", 2)
    rows = ng.Dirichlet("transition", [[3.0, 1.0]] * 2, plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("initial", 1.5, size=2), rows, plate=time, lengths=np.array(lengths))
    tau = ng.Gamma("tau", 2.0, 1.5, plate=state)
    a, b = ng.Normal("a", 0.0, 0.5 * tau, plate=state), ng.Normal("b", 0.0, 0.7 * tau, plate=state)
    y = ng.Normal("y", a[z] + b[z] * lag, tau[z], plate=time, observed=x, mask=since > 0)
    net, order = ng.Network(y, joint=[("a", "b", "tau")]), ["z", "initial", "transition", "a", "b", "tau"]
    start = {"a": np.array([-1.0, 1.0])}
    one, all_ = (net.fit(ng.VB(), max_steps=n, tol=0, init=start, order=order) for n in (1, 1 + SWEEPS))
    prior = {"n_states": 2, "order": 1, "centre": np.zeros(1), "scale": np.array([0.5, 0.7]), "dof": 4.0}
    arguments = {**prior, "rate": np.array([[3.0]])}
    emission = Tracks(2, [{"name": "y", "columns": [0], "kind": "Autoregressions", "arguments": arguments}])
    ends = as_ends(lengths, n)
    seen = emission.observe(x[:, None], ends)
    model = HMMModel(np.full(2, 1.5), np.array([[3.0, 1.0]] * 2), emission)
    problem = SequenceProblem(Sequences(seen.codes, seen.values, ends), model)

    def lam(fit):
        _, _, scaled, squares, rate, shape = fit.state.lam["a+b+tau"]
        own = {"y": (scaled[..., None], squares, rate[:, None, None], shape)}
        return own | {name: tuple(np.asarray(p) for p in fit[name].lam) for name in ("initial", "transition")}

    state = problem.at(lam(one))
    for sweep in range(SWEEPS):
        state, bound, *_ = problem.sweep(state)
        np.testing.assert_allclose(bound, all_.trace["elbo"][1 + sweep], rtol=1e-9)
    for name, parts in lam(all_).items():
        for ours, theirs in zip(state.lam[name], parts, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["student", "mixture"])
def test_one_state_is_the_declared_network(kind, rng):
    """With one state nothing is left of the chain: Student's t, and the mixture, of the language."""
    x = rng.normal(size=30) + 3.0 * rng.integers(0, 2, 30)
    x[3] = 12.0
    point = ng.Plate("point", 30)
    if kind == "student":
        tau = ng.Gamma("tau", 2.0, 1.5)
        y = ng.StudentT("y", ng.Normal("mu", 0.3, 0.5 * tau), tau, df=4.0, plate=point, observed=x)
        start, emission = {}, hmm.StudentT("diag", [0.3], 0.5, 4.0, [3.0], dof=4.0)
    else:
        part = ng.Plate("part", 2)
        tau = ng.Gamma("tau", 2.0, 1.5, plate=part)
        mu = ng.Normal("mu", 0.3, 0.5 * tau, plate=part)
        z = ng.Categorical("z", ng.Dirichlet("share", 0.7, size=2), plate=point)
        y = ng.Normal("y", mu[z], tau[z], plate=point, observed=x)
        start = {"mu": np.array([0.0, 3.0])}
        emission = hmm.Mixture(hmm.Gaussian("diag", [0.3], 0.5, 4.0, [3.0]), 2, 0.7)
    fit = ng.Network(y, joint=[("mu", "tau")]).fit(ng.VB(), tol=1e-12, max_steps=500, init=start)
    model = hmm.HMM(1, emissions=emission, n_init=1, max_passes=1).fit(x[:, None])
    problem = problem_of(model, x[:, None])
    parts = tuple(np.asarray(part) for part in fit.state.lam["mu+tau"][2:])
    lam = {"emission": tuple(np.reshape(p, g.shape) for p, g in zip(parts, model._state.lam["emission"], strict=True))}
    if kind == "mixture":
        lam["emission_weights"] = tuple(np.asarray(part)[None] for part in fit["share"].lam)
    lam |= {name: model._state.lam[name] for name in ("initial", "transition")}
    state = problem.at(lam)
    np.testing.assert_allclose(problem.bound(state), fit.elbo, rtol=1e-10)
    after, bound, *_ = problem.sweep(state)
    np.testing.assert_allclose(bound, fit.elbo, rtol=1e-10)
    for new, old in zip(after.lam["emission"], lam["emission"], strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5)  # the optimum of one is that of the other


# -- all paths --


def gaussian_parts(usual, y):
    """Of every leaf: ½ E log|Λ|, the entries that are there, and ½ E (y − μ)ᵀ Λ (y − μ) of one row; Normal–Wishart or –Gamma."""
    seen = ~np.isnan(y)
    if "dof" in usual:
        rate, dof = usual["rate"], usual["dof"]
        if not seen.all():
            return np.zeros(dof.shape), 0, np.zeros(dof.shape)
        precision = dof[..., None, None] * np.linalg.inv(rate)
        away, d = y - usual["mean"], len(y)
        log = sp.psi(0.5 * (dof[..., None] - np.arange(d))).sum(-1) + d * np.log(2) - np.linalg.slogdet(rate)[1]
        square = np.einsum("...d,...de,...e->...", away, precision, away) + d / usual["scale"]
        return 0.5 * log, d, 0.5 * square
    shape, rate = usual["shape"], usual["rate"]
    square = shape / rate * (np.where(seen, y, 0.0) - usual["mean"]) ** 2 + 1 / usual["scale"]
    log = sp.psi(shape) - np.log(rate)
    return 0.5 * (log * seen).sum(-1), int(seen.sum()), 0.5 * (square * seen).sum(-1)


def leaf_density(log, size, half, dof):
    """E log p(y) of leaves; with a scale u integrated out numerically."""
    if dof is None:
        return log - half - 0.5 * size * np.log(2 * np.pi)
    found = np.empty(log.shape)
    for place in np.ndindex(log.shape):

        def weight(u, place=place):
            prior = 0.5 * dof * np.log(0.5 * dof) - sp.gammaln(0.5 * dof) + (0.5 * dof - 1) * np.log(u) - 0.5 * dof * u
            return np.exp(prior + log[place] + 0.5 * size * np.log(u / (2 * np.pi)) - u * half[place])

        found[place] = np.log(scipy.integrate.quad(weight, 0, np.inf, epsabs=0, epsrel=1e-12, limit=500)[0])
    return found


@pytest.mark.parametrize("name", ["student", "student, diag", "mixture", "mixture of students"])
def test_the_bound_is_that_of_all_paths_and_components(name, rng):
    X = rng.normal(size=(7, 2)) * 2.0
    X[2] = np.nan
    if "diag" in name or "students" in name:
        X[4, 1] = np.nan
    model = hmm.HMM(2, emissions=SINGLE[name], n_init=1, max_passes=2).fit(X, lengths=LENGTHS)
    track = model._model_.emission.tracks[0]
    factor, m = model.posterior_["emission"], track.n_components
    densities = np.array([leaf_density(*gaussian_parts(factor.parameters, y), track.dof) for y in X])
    densities = densities.reshape(7, 2, m)

    def elog(block):
        alpha = model.posterior_[block].parameters["concentration"]
        return sp.psi(alpha) - sp.psi(alpha.sum(-1, keepdims=True))

    if m > 1:
        densities = densities + elog("emission_weights")
    log_pi, log_a, wanted, begin = elog("initial"), elog("transition"), 0.0, 0
    for length in LENGTHS:
        here = densities[begin : begin + length]
        logs = []
        for path in itertools.product(range(2), repeat=length):
            steps = sum(log_a[i, j] for i, j in itertools.pairwise(path))
            for parts in itertools.product(range(m), repeat=length):
                logs.append(log_pi[path[0]] + steps + here[np.arange(length), path, parts].sum())
        wanted += float(sp.logsumexp(logs))
        begin += length
    problem = problem_of(model, X, LENGTHS)
    for block in problem.blocks:
        kl = problem.blocks[block].family.kl(model._state.lam[block], problem.full_prior(block))
        wanted -= float(np.sum(kl))
    np.testing.assert_allclose(problem.bound(model._state), wanted, rtol=1e-9)


# -- theorems --


CHAINS = {
    **{name: {"emissions": kind} for name, kind in SINGLE.items()},
    "counts": {"emissions": hmm.Poisson((1.0, 0.5))},
    "flags": {"emissions": hmm.Bernoulli()},
    "codes": {"emissions": hmm.Categorical(4, emission_prior=0.5)},
    "stages": {"transitions": hmm.Transitions(durations=hmm.NegativeBinomial(3, (2.0, 1.5)))},
    "durations": {"transitions": hmm.Transitions(durations=hmm.Explicit(4, 0.8))},
    "inputs": {"transitions": hmm.Transitions(inputs=2)},
}


@pytest.mark.parametrize(
    "name", [n if n in (*QUICK, *list(CHAINS)[-6:]) else pytest.param(n, marks=pytest.mark.slow) for n in CHAINS]
)
def test_messages_are_derivatives_of_log_z_and_the_bound_never_falls(name, rng):
    X = rng.normal(size=(40, 2)) + 3.0 * rng.integers(0, 2, (40, 1))
    X = {
        "counts": np.round(np.abs(X)), "flags": (X > 1.0) * 1.0, "codes": np.round(np.abs(X[:, :1])) % 4,
        "inputs": np.c_[X, rng.integers(0, 3, 40)],
    }.get(name, X)  # fmt: skip
    X[3, :2] = np.nan
    model = hmm.HMM(2, **CHAINS[name], n_init=2, max_passes=25, tol=0).fit(X, lengths=[25, 15])
    assert np.diff(model.trace_["elbo"]).min() > -1e-8
    problem, state = problem_of(model, X, [25, 15]), model._state
    messages = problem.solve(state, None, None, 0.0, 1).messages
    for block in problem.blocks:
        away = tuple(1e-5 * (1.0 + np.abs(part)) * rng.normal(size=np.shape(part)) for part in state.mu[block])
        if block == "emission":  # moments of matrices are symmetric
            away = tuple(a + np.swapaxes(a, -1, -2) if a.ndim > 2 and a.shape[-1] == a.shape[-2] else a for a in away)
        ends = []
        for sign in (1.0, -1.0):
            moved = tuple(part + sign * a for part, a in zip(state.mu[block], away, strict=True))
            ends.append(log_z(problem, {**state.mu, block: moved}, state))
        wanted = np.sum(problem.blocks[block].family.inner(messages[block], away))
        np.testing.assert_allclose(0.5 * (ends[0] - ends[1]), wanted, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("name", [pytest.param("student, diag", marks=pytest.mark.slow), "mixture of students"])
def test_drawn_local_variables_tell_what_is_expected_of_them(name, rng):
    X = rng.normal(size=(30, 2)) * 2.0
    X[4, 0] = np.nan
    model = hmm.HMM(2, emissions=SINGLE[name], n_init=1, max_passes=5).fit(X)
    problem = problem_of(model, X)
    point = problem.at_point(model._state)
    emission, mu = model._model_.emission, model._model_.emission.point(model._state.lam)
    counts = count(point, whole_sequences(point, problem.data, None, 1), 0, 1)
    wanted = emission.flat(emission.messages(emission.weighed(problem.data.values, mu), counts.sums))
    from natgrad.models.hmm.sampling import drawn_paths

    n = 200
    paths = drawn_paths(problem, point, rng, n)
    drawn = np.array([emission.flat(emission.drawn(problem.data.values, mu, path, rng)) for path in paths])
    error = drawn.std(0) / np.sqrt(n)
    assert np.abs((drawn.mean(0) - wanted) / np.where(error > 0, error, 1.0)).max() < 4.5


def test_a_single_kind_is_the_model_of_that_kind(rng):
    _, table = mixed(rng, 60)
    X = table[["level", "slope"]].to_numpy()
    plain = ng.GaussianHMM(3, n_init=2).fit(X)
    assert hmm.HMM(3, emissions=hmm.Gaussian(), n_init=2).fit(X).elbo_ == plain.elbo_  # the same bits
    track = hmm.HMM(3, emissions={(0, 1): hmm.Gaussian()}, n_init=2).fit(X)
    np.testing.assert_allclose(track.elbo_, plain.elbo_, rtol=1e-10)
    np.testing.assert_allclose(track.emission_parameters()["column0_1"]["means"], plain.means_, rtol=1e-6, atol=1e-9)
    assert track.n_parameters_ == plain.n_parameters_
    words = hmm.HMM(2, emissions=hmm.Categorical(), n_init=1).fit(["a", "b", "b", "a"] * 10)
    assert words.elbo_ == ng.CategoricalHMM(2, n_init=1).fit(["a", "b", "b", "a"] * 10).elbo_


def test_an_autoregression_continues_where_a_sequence_stands(rng):
    """Filter, forecast and sample know the last rows; large offsets do no harm."""
    states, y = np.repeat([0, 1, 0, 1], 40), np.zeros((160, 1))
    for t in range(1, 160):
        y[t] = (0.95 if states[t] else -0.9) * y[t - 1] + 0.3 * rng.normal()
    y = 1e6 + 100.0 * y
    model = hmm.HMM(2, emissions=hmm.Autoregressive(1), n_init=4, seed=0).fit(y)
    assert max(np.mean(model.predict(y) == states), np.mean(model.predict(y) != states)) > 0.85
    live = model.filter()
    for row in y[:5]:
        live.update(row)
    live.update(y[5:])
    np.testing.assert_allclose(live.log_prob, model.score(y), rtol=1e-10)
    ahead, named = live.forecast(1), model.emission_parameters()["emission"]
    wanted = live.next_states @ (named["intercepts"][:, 0] + named["coefficients"][:, 0, 0, 0] * y[-1])
    assert abs(ahead.mean()[0, 0] - wanted) < 5 * ahead.std()[0, 0] / np.sqrt(2000)
    drawn, _ = model.sample(2000, seed=1, after=y)
    assert abs(drawn[0, 0] - wanted) < 6 * ahead.std()[0, 0]


# -- promises --


def test_a_table_of_four_kinds(rng, tmp_path):
    states, table = mixed(rng)
    model = hmm.HMM(3, emissions=KINDS, n_init=3, seed=0).fit(table, lengths=[120, 80])
    found = model.predict(table, lengths=[120, 80])
    assert sum(np.bincount(states[found == k], minlength=3).max() for k in range(3)) / 200 > 0.95
    assert list(model.posterior_) == ["initial", "transition", "level_slope", "n", "on", "word"]
    assert model.categories_["word"].tolist() == ["a", "b", "c", "d"]
    model.save(tmp_path / "m")
    again = ng.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    assert again.emissions == KINDS
    live = model.filter()
    live.update(table[:50])
    live.update(table[50:])
    np.testing.assert_allclose(live.log_prob, model.score(table), rtol=1e-12)
    np.testing.assert_allclose(live.states, model.predict_proba(table)[-1], atol=1e-12)
    values, _ = model.sample(5, seed=0, after=live)
    assert values[0, 4] in "abcd"
    ahead = model.forecast(3, table)
    assert ahead["word"].frame().columns.tolist() == ["a", "b", "c", "d"]
    low, high = ahead["n"].interval(0.9)
    assert (low <= ahead["n"].mean()).all()
    assert (ahead["level_slope"].mean().shape, high.shape) == ((3, 2), (3, 1))
    new = table[:5].copy()
    new.loc[0, "word"] = "never seen"
    assert np.isfinite(model.score(new))
    # What columns are called and where they are does not matter.
    other = clone(model).fit(table[["word", "on", "n", "slope", "level"]], lengths=[120, 80])
    np.testing.assert_array_equal(other.transmat_, model.transmat_)


def test_independent_tracks_add_up(rng):
    """With one state all tracks are independent: the bound is the sum of theirs, and of the chain once."""
    _, table = mixed(rng, 60)
    numbers = table.drop(columns="word")
    kinds = {name: kind for name, kind in KINDS.items() if name != "word"}
    all_ = hmm.HMM(1, emissions=kinds, n_init=1).fit(numbers).elbo_
    each = [
        hmm.HMM(1, emissions={key: kind}, n_init=1).fit(numbers[list(key) if isinstance(key, tuple) else [key]]).elbo_
        for key, kind in kinds.items()
    ]
    np.testing.assert_allclose(all_, sum(each), rtol=1e-12)


def test_labels_of_some_states_are_kept(rng):
    states, table = mixed(rng)
    labels = np.where(np.arange(200) % 3 == 0, states, -1)
    model = hmm.HMM(3, emissions=KINDS, n_init=1).fit(table, labels=labels)
    assert np.mean(model.predict(table) == states) > 0.95  # states have the names of the labels


# -- mistakes --


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hmm.HMM(2, emissions="gaussian"), "emissions must be a kind"),
        (lambda: hmm.HMM(2, emissions={}), "emissions must be a kind"),
        (lambda: hmm.HMM(2, emissions={0: hmm.Gaussian()}), "column 1 of X has none"),
        (lambda: hmm.HMM(2, emissions={0: hmm.Gaussian(), 5: hmm.Gaussian()}), "every one of the 2 columns"),
        (lambda: hmm.HMM(2, emissions={0: hmm.Gaussian(), "b": hmm.Gaussian()}), "not both"),
        (lambda: hmm.HMM(2, emissions={(0, 1): hmm.Gaussian(), 1: hmm.Poisson()}), "the column 1 twice"),
        (lambda: hmm.HMM(2, emissions={0: hmm.Gaussian(), 1: ng.Poisson}), "emissions\\[1\\] must be a kind"),
        (lambda: hmm.HMM(2, emissions={0: hmm.Gaussian(), 1: hmm.Poisson()}), "of the emission 'column1'.*X\\[0, 0\\]"),
        (
            lambda: hmm.HMM(2, emissions={"initial": hmm.Gaussian(), "b": hmm.Gaussian()}),
            "'initial' cannot be the name",
        ),
        (lambda: hmm.StudentT(dof=0.0), "dof must be > 0"),
        (lambda: hmm.Mixture(hmm.Mixture(hmm.Gaussian())), "emission_of must be"),
        (lambda: hmm.Mixture(hmm.Gaussian("tied")), "tied"),
        (lambda: hmm.Gaussian("round"), "covariance must be"),
        (lambda: hmm.Poisson((1.0, -1.0)), "rate_prior must be two numbers"),
        (lambda: hmm.Autoregressive(0), "order must be"),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make().fit(np.linspace(-1.5, 1.0, 20).reshape(10, 2))


def test_a_table_without_the_column_says_which_it_has(rng):
    with pytest.raises(ValueError, match="names the column 'speed', but X has"):
        hmm.HMM(2, emissions={"speed": hmm.Gaussian()}).fit(pd.DataFrame({"level": np.arange(5.0)}))
    with pytest.raises(TypeError, match="labels need Categorical"):
        hmm.HMM(2, emissions={"level": hmm.Gaussian()}).fit(pd.DataFrame({"level": list("abcde")}))


def test_autoregressions_say_what_they_cannot_read(rng) -> None:
    X = rng.normal(size=(30, 2))
    with pytest.raises(
        ValueError, match="order = 30 observations come before the first that is modelled, and X has n_samples = 30"
    ):
        hmm.HMM(2, emissions=hmm.Autoregressive(30)).fit(X)
    X[3, 0] = np.nan
    with pytest.raises(ValueError, match="give each column an Autoregressive of its own"):
        hmm.HMM(2, emissions=hmm.Autoregressive(1)).fit(X)
