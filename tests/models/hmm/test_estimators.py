"""The four estimators: what they promise to a user, and what they say to mistakes and to degenerate data."""

import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import natgrad as ng
from natgrad.data.sequences import Sequences
from natgrad.inference.trace import Reason
from natgrad.models import hmm
from natgrad.models.hmm.start import rows_at


def generated(rng, n_times=1500, n_states=3, stay=0.9, spread=3.0):
    """States and real vectors of a chain with well separated means."""
    transition = stay * np.eye(n_states) + (1 - stay) / n_states
    rows, states = np.cumsum(transition, axis=1), np.zeros(n_times, int)
    for t, u in enumerate(rng.random(n_times - 1)):
        states[t + 1] = np.searchsorted(rows[states[t]], u)
    means = spread * np.array([[np.cos(a), np.sin(a)] for a in 2 * np.pi * np.arange(n_states) / n_states])
    return states, means[states] + rng.normal(size=(n_times, 2))


def agreement(found, states, n_states=3):
    """The share of times whose state is right, under the best renaming (few states: greedy is enough)."""
    table = np.zeros((n_states, n_states))
    np.add.at(table, (found, states), 1)
    return sum(table.max(1)) / len(states)


def tracks_of(rng, states):
    chance = np.array([[0.9, 0.1, 0.2, 0.5], [0.1, 0.9, 0.2, 0.5], [0.1, 0.1, 0.9, 0.5]])[states]
    return (rng.random(chance.shape) < chance).astype(float)


def all_models(rng):
    states, values = generated(rng)
    counts = rng.poisson(np.array([1.0, 8.0, 25.0])[states])[:, None]
    tracks = tracks_of(rng, states)
    symbols = (states + (rng.random(len(states)) < 0.1)) % 4
    return states, {
        "full": (ng.GaussianHMM(3, n_init=3), values),
        "diag": (ng.GaussianHMM(3, covariance="diag", n_init=3), values),
        "poisson": (ng.PoissonHMM(3, n_init=3), counts),
        "bernoulli": (ng.BernoulliHMM(3, n_init=3), tracks),
        "categorical": (ng.CategoricalHMM(3, n_init=3), symbols[:, None]),
    }


NAMES = ["full", "diag", "poisson", "bernoulli", "categorical"]


@pytest.mark.parametrize("name", NAMES)
def test_states_are_found_and_every_answer_has_its_shape(name, rng):
    states, models = all_models(rng)
    model, X = models[name]
    before = X.copy()
    assert model.fit(X, lengths=[700, 800]) is model
    np.testing.assert_array_equal(X, before)
    assert agreement(model.predict(X, lengths=[700, 800]), states) > 0.85
    log_prob, shares = model.score_samples(X)
    assert shares.shape == (1500, 3)
    np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(log_prob, model.score(X), rtol=1e-12)
    np.testing.assert_array_equal(model.predict_proba(X), shares)
    path_prob, path = model.decode(X)
    assert path_prob <= log_prob
    assert path.shape == (1500,)
    drawn, drawn_states = model.sample(40, seed=1)
    assert drawn.shape == (40, X.shape[1])
    assert set(drawn_states) <= {0, 1, 2}
    np.testing.assert_allclose(model.transmat_.sum(1), 1.0)
    assert set(model.posterior_) == {"initial", "transition", "emission"}
    low, high = model.posterior_["transition"].interval(0.9)
    assert (low <= model.transmat_).all()
    assert (model.transmat_ <= high).all()
    assert np.diff(model.trace_["elbo"]).min(initial=0.0) > -1e-7
    assert re.fullmatch(r"VB, \d+ sweeps?", model.inference_)


@pytest.mark.parametrize("buffer", [None, pytest.param(3, marks=pytest.mark.slow), "grow"])
def test_subchains_come_close_to_exact_sweeps(buffer, rng):
    _, X = generated(rng, n_times=6000)
    exact = ng.GaussianHMM(3, method=ng.VB(), n_init=2).fit(X[:5000])
    method = hmm.Subchains(20, 16, buffer)
    sampled = ng.GaussianHMM(3, method=method, max_passes=4, n_init=2).fit(X[:5000])
    # Twenty noisy steps of a 16-th of the data each: within some hundredths of a nat.
    assert sampled.score(X[5000:]) / 1000 > exact.score(X[5000:]) / 1000 - 0.02
    assert abs(sampled.elbo_ / exact.elbo_ - 1) < 0.05


def test_a_default_fit_of_categories_leaves_nothing_to_the_declared_network():
    """870 sweeps of a flat bound: after 200 it is 12 nats lower."""
    rng = np.random.default_rng(3)
    n, K, V = 1000, 4, 6
    moves, shares = 0.8 * np.eye(K) + 0.2 * rng.dirichlet(np.ones(K), K), rng.dirichlet(np.ones(V), K)
    states = [0]
    for _ in range(n - 1):
        states.append(rng.choice(K, p=moves[states[-1]]))
    X = np.array([rng.choice(V, p=shares[k]) for k in states])
    time, state = ng.Plate("time", n), ng.Plate("state", K)
    rows = ng.Dirichlet("transition", 1.0, size=K, plate=state)
    z = ng.MarkovChain("z", ng.Dirichlet("initial", 1.0, size=K), rows, plate=time)
    emission = ng.Dirichlet("emission", 1.0, size=V, plate=state)
    model = ng.CategoricalHMM(K, n_jobs=1).fit(X)
    # There are several optima: the declared run begins at that of the model, and finds no way up from it.
    start = {name: model.posterior_[name].mean() for name in ("emission", "transition")}
    declared = ng.Network(ng.Categorical("y", emission[z], plate=time, observed=X)).fit(init=start)
    assert model.stop_.reason is Reason.TOLERANCE
    assert model.elbo_ >= declared.elbo - n * model.tol


def test_what_belongs_to_subchains_is_refused_elsewhere(rng):
    X = rng.normal(size=(40, 1))
    with pytest.raises(ValueError, match=r"write method=hmm.Subchains\(20\)"):
        ng.GaussianHMM(2, method=ng.SVI({"subchain": 20})).fit(X)
    with pytest.raises(ValueError, match=r'buffer_tol=0.01 belongs to buffer="grow"'):
        hmm.Subchains(20, buffer=3, buffer_tol=0.01)
    with pytest.raises(TypeError, match="subchains have none"):
        ng.GaussianHMM("auto", method=hmm.Subchains()).fit(X)
    with pytest.raises(ValueError, match="length must be"):
        hmm.Subchains(20, length=1)
    model = ng.GaussianHMM(2, n_init=1, method=hmm.Subchains(2, 8, "grow")).fit(X)
    assert model.inference_.startswith("VB, sampled, ")


def test_answers_are_written_to_arrays_and_files(rng, tmp_path):
    _, X = generated(rng, n_times=600)
    lengths = [400, 1, 199]
    model = ng.GaussianHMM(3, n_init=1, max_passes=5).fit(X)
    shares, path = model.predict_proba(X, lengths), model.predict(X, lengths)
    mapped = np.lib.format.open_memmap(tmp_path / "p.npy", mode="w+", dtype=np.float32, shape=(600, 3))
    assert model.predict_proba(X, lengths, out=mapped) is mapped
    np.testing.assert_allclose(mapped, shares, atol=1e-7)
    np.testing.assert_array_equal(model.predict_proba(X, lengths, out=tmp_path / "q.npy"), shares)
    log_prob, states = model.decode(X, lengths, out=str(tmp_path / "path.npy"))
    np.testing.assert_array_equal(states, path)
    assert states.dtype == np.uint8
    assert log_prob == model.decode(X, lengths)[0]
    np.testing.assert_array_equal(np.load(tmp_path / "path.npy"), path)
    for wrong in (np.zeros((600, 2)), np.zeros((600, 3), int), [0.0]):
        with pytest.raises(ValueError, match=r"out must be a writeable array of floats with shape \(600, 3\)"):
            model.predict_proba(X, out=wrong)
    with pytest.raises(ValueError, match=r"only \.npy files are written"):
        model.predict(X, out=tmp_path / "path.csv")


def test_what_comes_second_is_lengths_or_a_target(rng):
    _, X = generated(rng, n_times=300)
    by_name = ng.GaussianHMM(2, n_init=1, max_passes=3).fit(X, lengths=[100, 200])
    np.testing.assert_array_equal(ng.GaussianHMM(2, n_init=1, max_passes=3).fit(X, [100, 200]).means_, by_name.means_)
    assert by_name.score(X, [100, 200]) == by_name.score(X, lengths=[100, 200]) != by_name.score(X)
    target = rng.integers(0, 2, 300)
    assert by_name.score(X, target) == by_name.score(X)
    assert by_name.score(X, np.ones(300, int)) == by_name.score(X, lengths=[1] * 300)
    assert by_name.score(X, target, [100, 200]) == by_name.score(X, [100, 200])
    with pytest.raises(ValueError, match="lengths sum to 299"):
        by_name.score(X, [100, 199])


def test_a_list_of_arrays_is_several_sequences(rng):
    states, X = generated(rng, n_times=300)
    parts, labels = [X[:100], X[100:]], np.where(np.arange(300) < 50, states, -1)
    one = ng.GaussianHMM(3, n_init=1, max_passes=3).fit(X, lengths=[100, 200], labels=labels)
    other = ng.GaussianHMM(3, n_init=1, max_passes=3).fit(parts, labels=[labels[:100], labels[100:]])
    np.testing.assert_array_equal(one.means_, other.means_)
    np.testing.assert_array_equal(one.predict(parts), one.predict(X, lengths=[100, 200]))
    codes = [rng.integers(0, 3, 20), rng.integers(0, 3, 30)]
    symbols = ng.CategoricalHMM(2, n_init=1, max_passes=3).fit(codes)
    assert symbols.score(codes) == symbols.score(np.concatenate(codes), lengths=[20, 30])
    with pytest.raises(ValueError, match=r"list of 2 sequences.*leave lengths= out"):
        one.fit(parts, lengths=[100, 200])
    with pytest.raises(ValueError, match=r"X\[1\] has the shape \(200, 1\)"):
        one.fit([X[:100], X[100:, :1]])


def test_labels_name_the_states(rng):
    states, X = generated(rng)
    labels = np.where(np.arange(len(X)) < 200, states, -1)
    model = ng.GaussianHMM(3, n_init=2).fit(X, labels=labels)
    assert np.mean(model.predict(X) == states) > 0.85  # no renaming needed


def test_left_to_right_and_sticky(rng):
    states = np.repeat([0, 1, 2], 40)
    X = np.array([[-4.0], [0.0], [4.0]])[states] + rng.normal(size=(120, 1))
    model = ng.GaussianHMM(3, transitions=hmm.Transitions(topology="left-to-right"), n_init=4).fit(
        np.tile(X, (3, 1)), lengths=[120] * 3
    )
    assert (np.diff(model.predict(X)) >= 0).all()
    assert model.transmat_[1, 0] < 1e-6
    assert model.transmat_[0, 2] < 1e-6
    loose, sticky = (
        ng.CategoricalHMM(2, transitions=hmm.Transitions(sticky=s), n_init=2)
        .fit(rng.integers(0, 2, 60))
        .transmat_.trace()
        for s in (0.0, 200.0)
    )
    assert sticky > loose
    assert sticky > 1.5


def test_labels_that_no_path_can_follow(rng):
    with pytest.raises(ValueError, match="no path of states is possible"):
        ng.GaussianHMM(3, transitions=hmm.Transitions(topology="left-to-right")).fit(
            rng.normal(size=(50, 1)), labels=np.arange(50)[::-1] % 3
        )


@pytest.mark.parametrize(
    ("make", "X", "message"),
    [
        (lambda: ng.GaussianHMM(2), [[1.0], [np.inf]], r"X\[1, 0\] = inf must be finite"),
        (lambda: ng.PoissonHMM(2), [[1], [-3]], r"X\[1, 0\] = -3 must be a whole number ≥ 0"),
        (lambda: ng.BernoulliHMM(2), [[1, 0], [0, 2]], r"X\[1, 1\] = 2 must be 0, 1 or NaN"),
        (lambda: ng.CategoricalHMM(2, categories=2), [[0], [2]], r"X\[1, 0\] = 2 must be a category from 0 to 1"),
        (lambda: ng.CategoricalHMM(2), [[0.5], [1]], r"X\[0, 0\] = 0.5 must be a category"),
        (lambda: ng.GaussianHMM(2), np.zeros((0, 2)), r"X is empty, shape \(0, 2\)"),
        (lambda: ng.GaussianHMM(2, covariance="round"), [[1.0]], "covariance must be \"full\", .* got 'round'"),
        (lambda: ng.GaussianHMM(2, transitions=hmm.Transitions(topology="ring")), [[1.0]], "topology must be"),
        (lambda: ng.GaussianHMM(2, transitions=hmm.Transitions(sticky=-1)), [[1.0]], "sticky must be ≥ 0"),
        (
            lambda: ng.GaussianHMM(2, transitions=hmm.Transitions([[0, 0], [1, 1]])),
            [[1.0]],
            r"Transitions: prior\[0\] forbids every way",
        ),
        (lambda: ng.GaussianHMM(2, max_passes=0), [[1.0]], "passes must be > 0"),
        (lambda: ng.GaussianHMM(0), [[1.0]], "n_states must be a whole number ≥ 1, got 0"),
    ],
)
def test_mistakes_are_named(make, X, message):
    with pytest.raises(ValueError, match=message):
        make().fit(X)


def test_mistakes_in_the_call(rng):
    X = rng.normal(size=(10, 2))
    with pytest.raises(NotFittedError, match="GaussianHMM is not fitted yet"):
        ng.GaussianHMM(2).predict(X)
    with pytest.raises(ValueError, match="lengths sum to 9, but X has 10 rows"):
        ng.GaussianHMM(2).fit(X, lengths=[4, 5])
    with pytest.raises(ValueError, match=r"labels\[3\] = 7 must lie between −1"):
        ng.GaussianHMM(2).fit(X, labels=np.where(np.arange(10) == 3, 7, -1))
    with pytest.raises(ValueError, match="expecting 2 features"):
        ng.GaussianHMM(2, n_init=1).fit(X).predict(X[:, :1])
    with pytest.raises(TypeError, match="'covarianz': did you mean covariance="):
        ng.GaussianHMM(2, covarianz="full")
    with pytest.raises(ValueError, match="an iterator takes no lengths or labels"):
        ng.GaussianHMM(2).fit(iter([X]), lengths=[10])


@pytest.mark.parametrize("kind", [ng.GaussianHMM, ng.PoissonHMM])
def test_arrays_of_one_dimension_are_rows_or_sequences_and_are_not_guessed(kind, rng):
    """Sequences of one column and of equal lengths were read as the rows of a single one."""
    flat = [rng.poisson(3.0, 12) for _ in range(3)]
    with pytest.raises(ValueError, match=r"X is a list of 3 arrays of one dimension.*\[x\[:, None\] for x in X\]"):
        kind(2).fit(flat)
    assert kind(1, max_passes=1).fit([x[:, None] for x in flat]).n_times_seen_ == 36
    assert kind(1, max_passes=1).fit(np.stack(flat)).n_times_seen_ == 3


def test_categories_of_one_sequence_say_nothing_of_the_next():
    """Windows around a time ended with the data alone, so that the order of sequences changed where a fit began."""
    codes = np.array([0, 0, 1, 1, 1, 2])
    values, order = np.zeros((0, 1)), np.array([2, 3, 4, 5, 0, 1])
    one = rows_at(Sequences(codes, values, np.array([0, 2, 6])))
    other = rows_at(Sequences(codes[order], values, np.array([0, 4, 6])))
    np.testing.assert_allclose(one[order], other, rtol=0, atol=1e-13)


def test_a_fit_that_has_made_its_passes_says_so():
    """It said max_steps, which nobody had given."""
    X = np.random.default_rng(0).normal(size=(60, 1))

    def stop_of(**settings):
        model = ng.GaussianHMM(2, n_init=1, tol=0, verbose=False, **settings).fit(X, None, [10] * 6)
        return model.stop_, len(model.trace_)

    stop, n = stop_of(max_passes=3)
    assert (stop.reason, n) == (Reason.PASSES, 3)
    assert "max_passes = 3" in stop.message
    stop, n = stop_of(max_passes=3, method=ng.SVI({"sequence": 2}))
    assert (stop.reason, n) == (Reason.PASSES, 9)


def test_a_column_that_does_not_vary_is_told_from_one_that_hardly_does(rng):
    X = rng.normal(size=(300, 2))
    tiny = np.column_stack([1e-12 * X[:, 0], 1e7 + X[:, 1]])
    ng.GaussianHMM(2, covariance="diag", n_init=1).fit(tiny)  # warnings are errors
    with pytest.warns(UserWarning, match="does not vary"):
        ng.GaussianHMM(2, covariance="diag", n_init=1).fit(np.column_stack([X[:, 0], np.full(300, 0.1)]))


def test_a_start_that_begins_slowly_is_not_dropped():
    """A guess that trails after sixteen sweeps ends 33 nats above the one that leads."""
    rng = np.random.default_rng(5)
    transition = rng.dirichlet(np.full(4, 0.5), 4) + 3.0 * np.eye(4)
    transition /= transition.sum(1, keepdims=True)
    emission = rng.dirichlet(np.full(6, 0.4), 4)
    state, data = 0, []
    for _ in range(2000):
        state = rng.choice(4, p=transition[state])
        data.append(rng.choice(6, p=emission[state]))
    bounds = [ng.CategoricalHMM(4, verbose=False, seed=number).fit(np.array(data)).elbo_ for number in (0, 2)]
    assert max(bounds) - min(bounds) < 0.1
