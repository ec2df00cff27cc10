"""Filters, forecasts and continued sequences against what the whole sequence says, enumeration and closed forms."""

import itertools

import numpy as np
import pytest
import scipy.stats
from reference.hmm import naive_filter

import natgrad as ng
from natgrad.kernels.hmm import plain
from natgrad.kernels.hmm.chain import filter_rows
from natgrad.models import hmm
from natgrad.models.hmm import HMM, Autoregressive


def data_of(kind, rng, n=120):
    states = np.repeat(np.arange(n // 15) % 2, 15)
    return {
        "poisson": rng.poisson(np.array([[1.0, 4.0], [9.0, 2.0]])[states]),
        "bernoulli": (rng.random((n, 3)) < np.array([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]])[states]).astype(int),
        "categorical": (states + (rng.random(n) < 0.2)) % 3,
        "labels": np.array(["sun", "rain", "snow"])[(states + (rng.random(n) < 0.2)) % 3],
    }.get(kind, np.array([[-2.0, 1.0], [2.0, 0.0]])[states] + rng.normal(size=(n, 2)))


MODELS = {
    **{kind: lambda kind=kind: ng.GaussianHMM(2, covariance=kind) for kind in ("full", "diag", "tied", "spherical")},
    "poisson": lambda: ng.PoissonHMM(2),
    "bernoulli": lambda: ng.BernoulliHMM(2),
    "categorical": lambda: ng.CategoricalHMM(2),
    "labels": lambda: ng.CategoricalHMM(2),
}


@pytest.fixture(scope="module")
def fits():
    rng, found = np.random.default_rng(3), {}
    for kind, make in MODELS.items():
        X = data_of(kind, rng)
        found[kind] = make().set_params(n_init=2, max_passes=15, seed=0).fit(X), X
    return found


@pytest.mark.parametrize("kind", MODELS)
def test_a_filter_says_what_the_whole_past_says(fits, kind):
    model, X = fits[kind]
    live, chunked = model.filter(), model.filter(X[:50])
    rows = np.array([live.update(row) for row in X])
    for t in (1, 7, 120):
        np.testing.assert_allclose(rows[t - 1], model.predict_proba(X[:t])[-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(chunked.update(X[50:]), rows[50:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([live.log_prob, chunked.log_prob], model.score(X), rtol=1e-10)
    assert live.n_seen == chunked.n_seen == 120
    np.testing.assert_allclose(live.next_states, rows[-1] @ model.transmat_)
    other = live.copy()
    other.reset()
    np.testing.assert_array_equal(other.next_states, model.startprob_)
    assert live.n_seen == 120


def test_a_filter_takes_what_is_missing_and_stays_where_it_was_when_a_row_is_refused(fits):
    model, X = fits["full"]
    live = model.filter(X)
    ahead, before = live.next_states, live.log_prob
    np.testing.assert_allclose(live.update([np.nan, np.nan]), ahead, rtol=1e-12)
    assert live.log_prob == pytest.approx(before, abs=1e-12)
    for wrong, words in (([1.0], "1 features"), ([np.inf, 0.0], "finite"), ([np.nan, 0.0], "whole rows")):
        states = live.states
        with pytest.raises(ValueError, match=words):
            live.update(wrong)
        assert live.states is states
    with pytest.raises(ValueError, match="must be a whole number"):
        fits["poisson"][0].filter().update([0.5, 1.0])


@pytest.mark.parametrize("run", [filter_rows, plain.filter_rows], ids=["compiled", "plain"])
def test_the_kernel_is_its_slow_twin_for_ordinary_and_for_extreme_weights(run):
    rng = np.random.default_rng(0)
    logs = rng.normal(size=(30, 4)) * np.repeat([1.0, 500.0, 1.0], 10)[:, None]
    logs[20, 0] = -np.inf
    ahead, transition = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), 4)
    transition[0] = [0.0, 1.0, 0.0, 0.0]
    out = np.empty((30, 4))
    log_prob = run(logs, ahead, transition, out)
    wanted, wanted_log = naive_filter(logs, ahead, transition)
    np.testing.assert_allclose(out, wanted, rtol=1e-8, atol=1e-12)
    assert log_prob == pytest.approx(wanted_log, rel=1e-12)


@pytest.mark.parametrize(
    "kind",
    ["poisson", *(pytest.param(k, marks=pytest.mark.slow) for k in ("full", "diag", "tied", "spherical", "bernoulli"))],
)
def test_a_forecast_is_the_enumerated_mixture(fits, kind):
    """All paths of three steps; each state's distribution is drawn from q and from the emission."""
    model, X = fits[kind]
    ahead = model.forecast(3)
    shares = np.zeros((3, 2))
    for path in itertools.product(range(2), repeat=3):
        chance = model.filter(X).next_states[path[0]] * np.prod(
            [model.transmat_[a, b] for a, b in itertools.pairwise(path)]
        )
        for step, state in enumerate(path):
            shares[step, state] += chance
    np.testing.assert_allclose(ahead.states, shares, rtol=1e-10)
    rng, emission, lam = np.random.default_rng(0), model._model_.emission, model._state.lam["emission"]
    n = 4000
    drawn = np.empty((n, 2, X.shape[1]))
    packed = emission.family.sample(lam, rng, n)
    for i, value in enumerate(packed):
        point = emission.family.centred(value, lam) if kind in ("full", "diag", "tied", "spherical") else None
        if point is None:
            drawn[i] = rng.poisson(value) if kind == "poisson" else rng.random(value.shape) < value
        else:
            drawn[i] = emission.draw(point, np.arange(2), rng)
    state = np.array([rng.choice(2, n, p=p) for p in shares])  # [step, n]
    values = drawn[np.arange(n), state]
    error = values.std(1) / np.sqrt(n)
    np.testing.assert_allclose(ahead.mean(), values.mean(1), atol=5 * error.max())
    np.testing.assert_allclose(ahead.std(), values.std(1), rtol=0.1)
    low, high = ahead.interval(0.8)
    inside = ((values >= low[:, None]) & (values <= high[:, None])).mean(1)
    if kind in ("poisson", "bernoulli"):
        assert (inside > 0.77).all()
    else:
        np.testing.assert_allclose(inside, 0.8, atol=0.035)


def test_quantiles_of_one_state_are_those_of_the_closed_form():
    rng = np.random.default_rng(1)
    model = ng.PoissonHMM(1, max_passes=3).fit(rng.poisson(4.0, (30, 1)))
    usual = model.posterior_["emission"].parameters
    shape, rate = float(usual["shape"][0, 0]), float(usual["rate"][0, 0])
    for q in (0.01, 0.5, 0.99):
        wanted = scipy.stats.nbinom(shape, rate / (1 + rate)).ppf(q)
        assert model.forecast(2).quantile(q)[1, 0] == wanted
    real = ng.GaussianHMM(1, covariance="diag", max_passes=3).fit(rng.normal(1e9, 1e6, (30, 1)))
    usual = real.posterior_["emission"].parameters
    a, b, kappa, mean = (float(np.ravel(usual[name])[0]) for name in ("shape", "rate", "scale", "mean"))
    wanted = scipy.stats.t(2 * a, mean, np.sqrt(b / a * (1 + 1 / kappa))).ppf(0.05)
    assert real.forecast().quantile(0.05)[0, 0] == pytest.approx(wanted, rel=1e-12)
    assert real.forecast().interval(0.9)[0][0, 0] == pytest.approx(wanted, rel=1e-12)


def test_sequences_go_on_from_where_they_are(fits):
    model, X = fits["full"]
    live = model.filter(X)
    first = np.bincount([model.sample(1, seed=s, after=live)[1][0] for s in range(600)], minlength=2) / 600
    np.testing.assert_allclose(first, live.next_states, atol=0.08)
    for again in (model.sample(5, seed=4, after=X), model.sample(5, seed=4, after=live)):
        np.testing.assert_array_equal(again[0], model.sample(5, seed=4, after=live)[0])
    assert model.forecast(4).sample(7, seed=0).shape == (7, 4, 2)
    assert list(model.forecast(2).frame().columns) == ["step", "column", "mean", "std", "low", "high"]


def test_forecasts_say_what_they_need(fits, tmp_path):
    model, X = fits["labels"]
    model.save(tmp_path / "model.natgrad")
    loaded = ng.load(tmp_path / "model.natgrad")
    with pytest.raises(ValueError, match=r"forecast\(n, X\)"):
        loaded.forecast(2)
    np.testing.assert_array_equal(loaded.forecast(2, X).probabilities(), model.forecast(2, X).probabilities())
    with pytest.raises(TypeError, match="probabilities"):
        model.forecast().mean()
    with pytest.raises(TypeError, match="only categories"):
        fits["full"][0].forecast().probabilities()
    with pytest.raises(ValueError, match="mass must lie"):
        fits["full"][0].forecast().interval(1.0)
    assert list(model.forecast(3).frame().columns) == ["rain", "snow", "sun"]


def test_labels_are_numbers_with_names(fits):
    model, X = fits["labels"]
    codes = np.unique(X, return_inverse=True)[1]
    same = MODELS["categorical"]().set_params(n_init=2, max_passes=15, seed=0).fit(codes)
    assert model.score(X) == same.score(codes)
    np.testing.assert_array_equal(model.emissionprob_, same.emissionprob_)
    assert model.categories_.tolist() == ["rain", "snow", "sun"]
    assert set(model.sample(20, seed=0)[0].ravel()) <= {"rain", "snow", "sun"}
    parts = ng.CategoricalHMM(2, n_init=1, max_passes=2).fit([X[:60], X[60:]])
    np.testing.assert_array_equal(parts.predict(X, [60, 60]), parts.predict([X[:60], X[60:]]))
    some = ng.CategoricalHMM(2, n_init=1, max_passes=2, categories=["sun", "rain", "snow", "fog"]).fit(list(X))
    assert some.emissionprob_.shape == (2, 4)
    with pytest.raises(TypeError, match="fitted to numbers"):
        same.predict(X)
    with pytest.raises(ValueError, match="none of the 3 categories"):
        model.partial_fit(["fog"])
    with pytest.raises(ValueError, match="twice"):
        ng.CategoricalHMM(2, categories=["a", "a"]).fit(["a"])


def test_a_category_that_was_never_seen_has_the_probability_of_one_more_with_the_same_prior(fits):
    model, X = fits["categorical"]
    total = np.asarray(model.posterior_["emission"].parameters["concentration"]).sum(1)
    never = 1.0 / (total + 1.0)
    wanted = np.log(model.startprob_ @ never)
    assert model.score([9]) == pytest.approx(wanted, rel=1e-12)
    assert model.filter().update(9) == pytest.approx(model.startprob_ * never / (model.startprob_ @ never))
    assert model.predict([0, 9, 1]).shape == (3,)
    assert fits["labels"][0].predict_proba(["sun", "hail", None])[:, 0].shape == (3,)
    fixed = ng.CategoricalHMM(2, categories=3, n_init=1, max_passes=2).fit(X)
    with pytest.raises(ValueError, match="0 to 2"):
        fixed.predict([9])
    with pytest.raises(ValueError, match="category from 0"):
        model.predict([-1])


def test_shared_precisions_are_the_conjugate_update_when_states_are_known():
    rng = np.random.default_rng(2)
    X, states = rng.normal(size=(40, 2)) + 1e6, np.repeat([0, 1], 20)
    for kind in ("tied", "spherical"):
        model = ng.GaussianHMM(
            2, covariance=hmm.Gaussian(kind, [1e6, 1e6], 2.0, 5.0, np.eye(2) if kind == "tied" else 1.0), n_init=1,
        ).fit(X, labels=states)  # fmt: skip
        means = np.array([(2.0 * 1e6 + X[states == k].sum(0)) / 22.0 for k in range(2)])
        np.testing.assert_allclose(model.means_, means, rtol=1e-12)
        off = X - means[states]
        lift = sum(2.0 * np.outer(m - 1e6, m - 1e6) for m in means)
        scatter = off.T @ off + lift
        if kind == "tied":
            np.testing.assert_allclose(model.covars_, (np.eye(2) + scatter) / (5.0 + 40), rtol=1e-8)
        else:
            own = [(off[states == k] ** 2).sum() + 2.0 * ((means[k] - 1e6) ** 2).sum() for k in range(2)]
            np.testing.assert_allclose(model.covars_, (1.0 + np.array(own)) / (5.0 + 2 * 20), rtol=1e-8)


def test_one_column_has_one_kind_of_variance_and_one_state_one_matrix():
    rng = np.random.default_rng(2)
    X = np.repeat([[0.0], [4.0], [0.0]], 25, axis=0) + rng.normal(size=(75, 1))
    bounds = [
        ng.GaussianHMM(2, covariance=c, n_init=1, seed=0, tol=0.0, max_passes=8).fit(X) for c in ("diag", "spherical")
    ]
    assert bounds[0].elbo_ == pytest.approx(bounds[1].elbo_, rel=1e-10)
    assert np.diff(bounds[1].trace_["elbo"]).min() > -1e-8
    Y = rng.normal(size=(30, 2))
    single = [ng.GaussianHMM(1, covariance=c, n_init=1, max_passes=3).fit(Y).elbo_ for c in ("full", "tied")]
    assert single[0] == pytest.approx(single[1], rel=1e-12)


@pytest.mark.parametrize("gap", [0, 1, 6])
def test_autoregressions_go_on_through_rows_that_are_missing(gap) -> None:
    # The mean of the column stood for them, 0.6 ± 0.1 where 2.7 ± 0.1 was to be expected.
    rng = np.random.default_rng(0)
    y = np.zeros(400)
    for t in range(1, 400):
        y[t] = 0.99 * y[t - 1] + 0.1 * rng.normal()
    y = np.append(y, [4.0, 4.0])
    model = HMM(1, emissions=Autoregressive(1), seed=0).fit(y[:, None])
    found = {name: value.item() for name, value in model.emission_parameters()["emission"].items()}
    mean, var = y[-1], 0.0
    for _ in range(gap + 1):
        mean = found["intercepts"] + found["coefficients"] * mean
        var = found["coefficients"] ** 2 * var + found["covariances"]
    holey = np.append(y, np.full(gap, np.nan))[:, None]
    live = model.filter(y[:, None])
    for row in holey[len(y) :]:
        live.update(row)
    for ahead in (model.forecast(1, holey), live.copy().forecast(1)):
        # 2,000 draws
        assert ahead.mean().item() == pytest.approx(mean, abs=4 * np.sqrt(var / 2000))
        assert ahead.std().item() == pytest.approx(np.sqrt(var), rel=0.08)
        assert ahead.sample(300, seed=1).mean() == pytest.approx(mean, abs=4 * np.sqrt(var / 300))
    drawn = [model.sample(1, seed=s, after=live)[0].item() for s in range(200)]
    assert np.mean(drawn) == pytest.approx(mean, abs=4 * np.sqrt(var / 200))


def test_rows_that_are_missing_among_others_are_said_to_be() -> None:
    y = np.random.default_rng(0).normal(size=(60, 1))
    model = HMM(1, emissions=Autoregressive(2), seed=0).fit(y)
    y[-2] = np.nan
    with pytest.warns(UserWarning, match="1 of the last 2 rows of an autoregression are missing"):
        model.forecast(1, y)


def tracks_of(name, rng):
    """Models whose rows a filter reads one by one without the way of whole sequences."""
    z = np.repeat(np.arange(8) % 2, 10)
    X = np.column_stack([rng.normal(3.0 * z), rng.normal(-2.0 * z)])
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "n": rng.poisson(1 + 5 * z), "on": z == 1, "l": np.array(["x", "y"])[z]})
    kinds = {"a": hmm.Autoregressive(1), "n": hmm.Poisson(), "on": hmm.Bernoulli(), "l": hmm.Categorical()}
    made = {
        "student": {"emissions": hmm.StudentT()},
        "student by column": {"emissions": hmm.StudentT("diag")},
        "autoregressive": {"emissions": hmm.Autoregressive(2, dof=5.0)},
        "mixture": {"emissions": hmm.Mixture(hmm.Gaussian("spherical"), 2)},
        "durations": {"transitions": hmm.Transitions(durations=hmm.Explicit(12))},
        "tracks": {"emissions": kinds, "transitions": hmm.Transitions(durations=hmm.NegativeBinomial(2))},
    }[name]
    data = frame if name == "tracks" else X
    return HMM(2, seed=0, max_passes=4, n_init=1, tol=0, **made).fit(data), data


@pytest.mark.parametrize("name", ["student", "student by column", "autoregressive", "mixture", "durations", "tracks"])
def test_a_row_of_tracks_says_what_a_sequence_says(name, rng) -> None:
    model, data = tracks_of(name, rng)
    rows = data.to_dict("records") if name == "tracks" else list(data)
    whole = model.filter()
    states = whole.update(data)
    live = model.filter()
    found = [live.update(row) for row in rows[:10]]
    found += [live.update(row) for row in rows[10:]]
    np.testing.assert_allclose(found, states, rtol=1e-9, atol=1e-12)
    assert live.log_prob == pytest.approx(whole.log_prob, rel=1e-11)
    np.testing.assert_allclose(live.next_states, whole.next_states, rtol=1e-9)
    np.testing.assert_allclose(live.forecast(2).states, whole.forecast(2).states, rtol=1e-9)
    np.testing.assert_allclose(
        live.copy().forecast(2)[next(iter(live.forecast(1)))].states[-1], whole.forecast(2).states[-1]
    )
    # What is unusual does: a missing row leaves states to the transitions.
    gone = dict.fromkeys(rows[0], None) if name == "tracks" else np.full(2, np.nan)
    # A forbidden transition has 1e-8 observations.
    np.testing.assert_allclose(live.update(gone), whole.next_states, rtol=1e-7)
