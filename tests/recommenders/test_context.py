"""Ratings in time and context: the model is its declared network, drift and tensors are found, and files hold it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import natgrad as ng
from natgrad.recommenders.asking import reasons_of
from natgrad.recommenders.declared import predicted

VAGUE = 1e-3


def drawn(seed: int = 0, n: int = 600):
    """Ratings of 12 users and 10 items over ten years, in three places; half of the items drift."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(7)
    users, items, places = (rng.integers(0, size, n) for size in (12, 10, 3))
    year = rng.uniform(2000, 2010, n)
    u, v, w = (fixed.normal(size=(size, 2)) for size in (12, 10, 3))
    slope = np.where(np.arange(10) % 2, 0.4, 0.0)
    values = 3.0 + slope[items] * (year - 2005) + 0.2 * rng.normal(size=n)
    tensor = (u[users] * v[items] * w[places]).sum(1)
    names = np.array(["home", "work", "train"])[places]
    return np.column_stack([users, items]), year, names, values, tensor


def fitted(kind: str, **settings):
    pairs, year, names, values, tensor = drawn()
    if kind == "time":
        model = ng.recommenders.ContextFactorization(2, n_bins=6, **settings)
        return model.fit(pairs, values, time=year), {"time": year}, pairs, values
    model = ng.recommenders.ContextFactorization(2, **settings)
    return model.fit(pairs, values + tensor, context=names), {"context": names}, pairs, values + tensor


@pytest.fixture(scope="module", params=["time", "context"])
def case(request):
    return request.param, *fitted(request.param)


def by_hand(kind, pairs, values, more):
    """The same model as a user would declare it."""
    users, items = pairs.T
    y, unit = values - values.mean(), values.std()
    user, item, factor = ng.Plate("user", 12), ng.Plate("item", 10), ng.Plate("factor", 2)
    alpha = ng.Gamma("user_precision", VAGUE, VAGUE * unit, plate=factor)
    beta = ng.Gamma("item_precision", VAGUE, VAGUE * unit, plate=factor)
    tau = ng.Gamma("noise", VAGUE, VAGUE * unit**2)
    first = {side: ng.Gamma(f"{side}_bias_precision", VAGUE, VAGUE * unit**2) for side in ("user", "item")}
    if kind == "time":
        u = ng.MultivariateNormal("u", np.zeros(2), ng.diag(alpha), plate=user)
        v = ng.MultivariateNormal("v", np.zeros(2), ng.diag(beta), plate=item)
        year, time = more["time"], ng.Plate("bin", 6)
        bins = np.minimum((6 * (year - year.min()) / np.ptp(year)).astype(int), 5)
        step = {side: ng.Gamma(f"{side}_step_precision", VAGUE, VAGUE * unit**2) for side in ("user", "item")}
        b = ng.GaussianChain("b", 0.0, first["user"], 1.0, step["user"], plate=(user, time))
        c = ng.GaussianChain("c", 0.0, first["item"], 1.0, step["item"], plate=(item, time))
        mean = ng.dot(u[users], v[items]) + b[users, bins, 0] + c[items, bins, 0]
    else:
        u = ng.Normal("u", 0.0, alpha, plate=(user, factor))
        v = ng.Normal("v", 0.0, beta, plate=(item, factor))
        place = ng.Plate("context", 3)
        where = np.unique(more["context"], return_inverse=True)[1]
        w = ng.Normal("w", 1.0, ng.Gamma("context_precision", 1.0, 1.0), plate=(place, factor))
        d = ng.Normal("d", 0.0, ng.Gamma("context_bias_precision", VAGUE, VAGUE * unit**2), plate=place)
        b, c = ng.Normal("b", 0.0, first["user"], plate=user), ng.Normal("c", 0.0, first["item"], plate=item)
        mean = ng.dot(u[users] * w[where], v[items], over=factor) + d[where] + b[users] + c[items]
    return ng.Network(ng.Normal("r", mean, tau, plate=ng.Plate("rating", len(y)), observed=y))


def test_it_is_its_declared_network(case):
    kind, model, more, pairs, values = case
    network = by_hand(kind, pairs, values, more)
    assert network.problem.bound(model.fit_.state) == pytest.approx(model.elbo_, rel=1e-10)
    start = {name: model.fit_[name].mean() + 0.1 for name in ("u", "v")}
    fits = [declared.fit(init=start, max_steps=3, tol=0, verbose=False) for declared in (network, model.network_)]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-9)
    for name in ("u", "v", "b", "c", "noise"):
        np.testing.assert_allclose(fits[0][name].mean(), fits[1][name].mean(), rtol=1e-8, atol=1e-9)
    bounds = np.asarray(model.trace_["elbo"])
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()


def test_what_was_drawn_is_found_and_held_out_ratings_are_foreseen_better_than_without(case):
    kind, model, _, pairs, values = case
    new, year, names, stars, tensor = drawn(seed=3)
    more, truth = ({"time": year}, stars) if kind == "time" else ({"context": names}, stars + tensor)
    flat = ng.MatrixFactorization(2, verbose=False).fit(ng.data.Ratings(*pairs.T, values, duplicates="keep"))
    error = np.sqrt(np.mean((flat.predict(*new.T) - truth) ** 2))
    assert model.score(new, truth, **more, metric="rmse") < 0.75 * error
    low, high = model.interval(*new.T, 0.9, **more)
    assert 0.85 < np.mean((low <= truth) & (truth <= high)) < 0.95
    mean, sd = model.predict(*new.T, True, **more)
    assert model.score(new, truth, **more) > -1.5
    assert model.score(new, truth, **more) == pytest.approx(stats.norm.logpdf(truth, mean, sd).mean(), rel=1e-12)
    if kind == "time":
        rise = model.item_drift_[:, -1] - model.item_drift_[:, 0]
        assert rise[1::2].min() > 2.0 > 1.0 > np.abs(rise[::2]).max()
        assert model.time_edges_.shape == (7,)


def test_moments_of_predictions_are_those_of_draws(case):
    kind, model, more, pairs, _ = case
    rng, m = np.random.default_rng(0), model.moments_
    mean, variance = predicted(
        m, model._codes(*pairs[:1].T, *(more.get(k) if k not in more else more[k][:1] for k in ("time", "context")))
    )
    i, j = pairs[0]
    u, v = (
        part[0][n]
        + rng.standard_normal((200_000, 2))
        @ (np.linalg.cholesky(part[1][n]).T if kind == "time" else np.diag(np.sqrt(part[1][n])))
        for part, n in ((m.u, i), (m.v, j))
    )
    codes = model._codes(*pairs[:1].T, **{k: more[k][:1] if k in more else None for k in ("time", "context")})
    bias = [(part[0][n, codes.bins[0]], part[1][n, codes.bins[0]]) for part, n in ((m.b, i), (m.c, j))]
    drawn_ = m.offset + sum(a + np.sqrt(s) * rng.standard_normal(200_000) for a, s in bias)
    if kind == "context":
        place = int(codes.contexts[0])
        u = u * (m.w[0][place] + np.sqrt(m.w[1][place]) * rng.standard_normal((200_000, 2)))
        drawn_ = drawn_ + m.d[0][place] + np.sqrt(m.d[1][place]) * rng.standard_normal(200_000)
    drawn_ = drawn_ + (u * v).sum(1) + np.sqrt(m.noise) * rng.standard_normal(200_000)
    assert mean[0] == pytest.approx(drawn_.mean(), abs=5 * drawn_.std() / np.sqrt(200_000))
    assert variance[0] == pytest.approx(drawn_.var(), rel=0.02)


def test_who_and_what_is_not_known_has_the_prior_and_the_future_is_less_sure(case):
    kind, model, _, pairs, _ = case
    asked = {"time": 2004.0} if kind == "time" else {"context": "home"}
    known, sd = model.predict([3], [4], True, **asked)
    new, wide = model.predict(["nobody"], [4], True, **asked)
    assert wide[0] > sd[0]
    assert np.isfinite(known).all()
    assert np.isfinite(new).all()
    if kind == "time":
        sds = model.predict([3] * 3, [4] * 3, True, time=[2009.9, 2014.0, 2030.0])[1]
        assert (np.diff(sds) > 0).all()
    else:
        assert model.predict([3], [4], True, context="moon")[1][0] > sd[0]
    best = model.recommend(3, n=4, exclude_seen=False, **asked)
    assert best.items.shape == (4,)
    assert (np.diff(best.scores) <= 0).all()
    assert set(model.recommend(3, n=10, **asked).items).isdisjoint(pairs[pairs[:, 0] == 3, 1])
    # Filters, several users, and quantiles of what is expected.
    two = model.recommend([3, 5], n=3, exclude_seen=False, only=[1, 2], **asked)
    assert two.items.shape == (2, 3)
    assert [set(row) for row in two.items] == [{1, 2, None}] * 2
    assert two.scores[0, :2].tolist() == model.recommend(3, 2, False, only=[1, 2], **asked).scores.tolist()
    assert best.items[0] not in model.recommend(3, 4, False, exclude=best.items[:1], **asked).items
    wary = model.recommend(3, n=4, exclude_seen=False, quantile=0.1, **asked)
    mean, sd = model.predict([3] * 4, wary.items, True, **asked)
    sure = np.sqrt(sd**2 - model.moments_.noise)
    np.testing.assert_allclose(wary.scores, mean - 1.2815515655446004 * sure, rtol=1e-9)
    with pytest.raises(ValueError, match=r"only\[1\] = 'x' is not among the items"):
        model.recommend(3, only=[1, "x"], **asked)


def test_units_rows_and_names_change_nothing_else():
    short = {"max_steps": 8, "tol": 0}
    model, more, pairs, values = fitted("time", **short)
    asked = {"time": more["time"][:20]}
    plain = model.predict(*pairs[:20].T, **asked)
    order = np.random.default_rng(1).permutation(len(values))
    turned = ng.recommenders.ContextFactorization(2, n_bins=6, **short)
    turned.fit(pairs[order], values[order], time=more["time"][order])
    np.testing.assert_allclose(turned.predict(*pairs[:20].T, **asked), plain, rtol=1e-6)
    larger = ng.recommenders.ContextFactorization(2, n_bins=6, **short).fit(pairs, 1e6 * values, time=more["time"])
    np.testing.assert_allclose(larger.predict(*pairs[:20].T, **asked), 1e6 * plain, rtol=1e-6)
    dates = np.datetime64("2000-01-01") + (86400e6 * 365.25 * (more["time"] - 2000)).astype("timedelta64[us]")
    frame = {"user": [f"u{n}" for n in pairs[:, 0]], "item": pairs[:, 1], "rating": values, "when": dates}
    pandas = pytest.importorskip("pandas")
    named = ng.recommenders.ContextFactorization(2, n_bins=6, **short).fit(pandas.DataFrame(frame), time="when")
    again = named.predict(frame["user"][:20], pairs[:20, 1], time=dates[:20])
    np.testing.assert_allclose(again, plain, atol=0.05)  # users are in another order: u10 comes before u2


def test_what_is_refused(case):
    kind, model, _, pairs, values = case
    empty = ng.recommenders.ContextFactorization(2)
    with pytest.raises(ValueError, match="give time= or context="):
        empty.fit(pairs, values)
    with pytest.raises(ValueError, match=r"time must have one entry for each of 600 ratings, got shape \(2,\)"):
        empty.fit(pairs, values, time=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"time\[1\] = nan must be finite"):
        empty.fit(pairs[:2], values[:2], time=[1.0, np.nan])
    with pytest.raises(TypeError, match="time must be numbers or dates"):
        empty.fit(pairs[:2], values[:2], time=np.array(["yesterday", "today"]))
    with pytest.raises(ValueError, match="context must have one label for each of 2 ratings, got 1"):
        empty.fit(pairs[:2], values[:2], context=["home"])
    with pytest.raises(TypeError, match="names a column, and X is no table"):
        empty.fit(pairs, values, time="when")
    with pytest.raises(ValueError, match=f"the fit had a {kind}=: give one"):
        model.predict([0], [0])
    other = {"context": ["home"]} if kind == "time" else {"time": [2001]}
    with pytest.raises(ValueError, match=r"the fit had (a|no) (time|context)="):
        model.predict([0], [0], **other)
    with pytest.raises(ValueError, match="n_bins"):
        ng.recommenders.ContextFactorization(2, n_bins=0).fit(pairs, values, time=values)
    with pytest.raises(ValueError, match="n_bins=5 cuts times into bins, and there are none"):
        ng.recommenders.ContextFactorization(2, n_bins=5).fit(pairs, values, context=["home"] * len(values))
    with pytest.raises(Exception, match="not fitted"):
        empty.predict([0], [0])


def test_text_for_numbers_is_no_stranger():
    """`predict(["3"], …)` was the prediction for somebody unknown, of a fit whose users are numbers."""
    rng = np.random.default_rng(0)
    pairs, device = rng.integers(0, 6, (60, 2)), rng.integers(0, 2, 60)
    model = ng.recommenders.ContextFactorization(1, max_steps=2, tol=0).fit(pairs, pairs.sum(1) / 3.0, context=device)
    with pytest.raises(ValueError, match=r"users\[0\] = '3' is not among the users .* The text '3' is not the int 3"):
        model.predict(["3"], [1], context=[0])
    with pytest.raises(ValueError, match=r"context\[0\] = '0' is not among the contexts .* pass 0"):
        model.predict([3], [1], context="0")
    assert np.isfinite(model.predict([3, 99], [1, 77], context=[0, 5])).all()


def test_reasons_add_up_to_what_is_expected(case):
    kind, model, more, pairs, _ = case
    asked = {name: part[0] for name, part in more.items()}
    found = model.because(3, 4, n=99, **asked)
    assert sorted(found.items.tolist()) == np.unique(pairs[pairs[:, 0] == 3, 1]).tolist()
    assert (np.diff(found.scores) <= 0).all()
    kept, codes = model.moments_, model._codes([3], [4], asked.get("time"), asked.get("context"))
    rest = kept.offset + kept.c[0][4, codes.bins[0] if kind == "time" else 0]
    rest += 0.0 if kept.d is None else kept.d[0][codes.contexts[0]]
    expected = model.predict([3], [4], **asked)[0]
    assert found.scores.sum() + rest == pytest.approx(expected, abs=0.02)
    # With the precisions as q has them, not the means of their inverses, the sum is exact where the sweeps have settled.
    q = {name: model.posterior_[name].mean() for name in model.posterior_ if name.endswith("precision")}
    (u, spread), (b, wide) = kept.u, (part.copy() for part in kept.b)
    spread, alpha, wide[-1, 0] = spread.copy(), 1.0 / q["user_precision"], 1.0 / q["user_bias_precision"]
    spread[-1] = np.diag(alpha) if spread.ndim == 3 else alpha
    steps = (1.0 / q["user_step_precision"], 0.0) if kind == "time" else kept.steps
    exact = kept._replace(u=(u, spread), b=(b, wide), steps=steps, noise=1.0 / model.posterior_["noise"].mean())
    told = model._codes(*pairs[pairs[:, 0] == 3].T, **_of_user(more, pairs, 3))
    parts = reasons_of(exact, told, model.ratings_.values[pairs[:, 0] == 3], codes)
    assert parts.sum() + rest == pytest.approx(expected, abs=1e-4)
    if kind == "time":  # of a chain the future is expected to be as its last bin, and the past as its first
        for far, end in ((2030.0, model.time_edges_[-1]), (1970.0, model.time_edges_[0])):
            beyond, at = (model.because(3, 4, n=99, time=when) for when in (far, end))
            np.testing.assert_allclose(beyond.scores, at.scores, rtol=1e-12)
    with pytest.raises(ValueError, match="nobody"):
        model.because("nobody", 4, **asked)
    with pytest.raises(ValueError, match=f"the fit had a {kind}="):
        model.because(3, 4)


def _of_user(more, pairs, user):
    return {name: more[name][pairs[:, 0] == user] if name in more else None for name in ("time", "context")}
