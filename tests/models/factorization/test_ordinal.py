"""Ratings on an ordered scale: the declared network, integrals, learned cutpoints, and every way that a fit can be used."""

import numpy as np
import pytest
from scipy import stats

import natgrad as ng
from natgrad.models.factorization.checks import RatingSettings
from natgrad.models.factorization.likelihoods import folded_state
from natgrad.models.factorization.links import (
    Cuts,
    _between,
    better_cuts,
    first_cuts,
    level_probabilities,
)
from natgrad.models.factorization.ordinal import FOLD_ROUNDS, Stars

CUTS = np.array([-1.5, -0.2, 0.4, 2.0])


def stars(n_users=80, n_items=50, share=0.5, seed=0, levels=(1.0, 2.0, 3.0, 4.0, 5.0)):
    """Ratings whose levels lie unevenly, and the true hidden means."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=(n_users, 2)) @ rng.normal(size=(2, n_items)) + 0.5 * rng.normal(size=n_items)
    level = np.searchsorted(CUTS, f + rng.normal(size=f.shape))
    users, items = np.nonzero(rng.random(f.shape) < share)
    return ng.data.Ratings(users, items, np.asarray(levels)[level[users, items]], shape=f.shape), f


@pytest.fixture(scope="module")
def model():
    return ng.MatrixFactorization(3, likelihood="ordinal", verbose=False).fit(stars()[0])


def settings(n_factors=2, biases=False, learn_priors=False):
    return RatingSettings(n_factors, "ordinal", biases, False, learn_priors, None, 4.0, None, None, None)


def test_the_bound_and_the_posterior_are_those_of_the_declared_network():
    ratings, _ = stars(12, 9)
    learned = {"offset": 0.0, "levels": np.arange(1.0, 6.0), "cuts": CUTS}
    kind = Stars(settings(), ratings, learned)
    problem = kind._problem(ratings)
    user, item = ng.Plate("user", 12), ng.Plate("item", 9)
    seen = ng.Plate("seen", len(ratings))
    u = ng.MultivariateNormal("u", np.zeros(2), np.eye(2), plate=user)
    v = ng.MultivariateNormal("v", np.zeros(2), np.eye(2), plate=item)
    y = ng.Ordinal(
        "y", ng.dot(u[ratings.users], v[ratings.items]), cutpoints=CUTS, plate=seen, observed=(ratings.values - 1).astype(int)
    )  # fmt: skip
    first = kind.start(ratings, 3, 1.0)
    start = {name: first.mu[name][0] for name in "uv"}
    fit = ng.Network(y).fit(init=start, tol=1e-13, max_steps=3000)
    long = kind.start(ratings, 3, 1.0)
    for _ in range(1000):
        long = problem.sweep(long, ("u", "v")).state
    np.testing.assert_allclose(problem.bound(long), fit.elbo, rtol=1e-8)
    # Vectors can be rotated: what both sides say together is compared.
    np.testing.assert_allclose(
        long.mu["u"][0] @ long.mu["v"][0].T, fit["u"].mean() @ fit["v"].mean().T, rtol=1e-4, atol=1e-4
    )


def test_the_bound_never_falls_and_is_below_the_integral():
    ratings, _ = stars(6, 4)
    kind = Stars(settings(1), ratings, {"offset": 0.0, "levels": np.arange(1.0, 6.0), "cuts": CUTS})
    problem, state, last = kind._problem(ratings), kind.start(ratings, 0, 1.0), -np.inf
    for _ in range(30):
        state = problem.sweep(state, ("u", "v")).state
        now = problem.bound(state)
        assert now >= last - 1e-10
        last = now
    rng, total = np.random.default_rng(0), []
    for _ in range(40):
        u, v = rng.normal(size=(5000, 6)), rng.normal(size=(5000, 4))
        f = u[:, ratings.users] * v[:, ratings.items]
        ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
        level = (ratings.values - 1).astype(int)
        with np.errstate(divide="ignore"):
            total.append(np.log(stats.norm.cdf(ends[level + 1] - f) - stats.norm.cdf(ends[level] - f)).sum(1))
    evidence = np.logaddexp.reduce(np.concatenate(total)) - np.log(200_000)
    assert last < evidence + 0.3  # the error of the sum
    assert last > evidence - 6.0


@pytest.mark.parametrize("mean", [-40.0, -3.0, 0.1, 8.0, 40.0])
def test_truncated_means_far_out(mean):
    ends = np.array([-np.inf, -1.0, 1.0, np.inf])
    for level in range(3):
        log_mass, pull = (float(part[0]) for part in _between(ends, np.array([level]), np.array([mean])))
        truth = stats.truncnorm(ends[level] - mean, ends[level + 1] - mean)
        low, high = ends[level] - mean, ends[level + 1] - mean
        side = (
            (stats.norm.logcdf(high), stats.norm.logcdf(low))
            if high < 0
            else (stats.norm.logsf(low), stats.norm.logsf(high))
        )
        np.testing.assert_allclose(log_mass, side[0] + np.log1p(-np.exp(side[1] - side[0])), rtol=1e-8)
        if abs(mean) < 30:
            np.testing.assert_allclose(pull, truth.mean(), rtol=1e-6, atol=1e-9)
        assert low - 1e-9 <= pull <= high + 1e-9


def test_cutpoints_are_found(rng):
    f = 1.5 * rng.normal(size=40_000)
    values = 1.0 + np.searchsorted(CUTS, f + rng.normal(size=f.shape))
    found = better_cuts(first_cuts(values), f, values)
    np.testing.assert_allclose(found.points, CUTS, atol=0.05)
    again = better_cuts(found, f, values)
    np.testing.assert_allclose(again.points, found.points, atol=1e-4)


def test_probabilities_are_integrals(rng):
    cuts, mean, variance = Cuts(np.arange(5.0), CUTS), np.array([-1.0, 2.5]), np.array([0.3, 4.0])
    found = level_probabilities(cuts, mean, variance)
    np.testing.assert_allclose(found.sum(1), 1.0)
    for row in range(2):
        z = rng.normal(mean[row], np.sqrt(1 + variance[row]), 400_000)
        np.testing.assert_allclose(found[row], np.bincount(np.searchsorted(CUTS, z), minlength=5) / 400_000, atol=3e-3)


def test_names_of_levels_do_not_matter(model):
    other = ng.MatrixFactorization(3, likelihood="ordinal", verbose=False).fit(
        stars(levels=(-7.0, 0.5, 0.75, 100.0, 1e6))[0]
    )
    np.testing.assert_allclose(other.elbo_, model.elbo_, rtol=1e-10)
    np.testing.assert_allclose(other.predict_proba([0, 1], [2, 3]), model.predict_proba([0, 1], [2, 3]), rtol=1e-6)


@pytest.mark.parametrize("biases", [True, False])
def test_folding_in_is_so_many_rounds_of_sweeps(biases):
    model = ng.MatrixFactorization(
        3, likelihood="ordinal", priors=ng.recommenders.FactorPriors(biases=biases), max_steps=5, tol=0, verbose=False
    )
    model.fit(stars()[0])
    told = ng.data.Ratings([900, 900, 900, 901], [1, 2, 3, 2], [5.0, 1.0, 3.0, 1.0])
    state = model.fold_in(told)._newcomers.alone.result_.state
    some = ng.data.Ratings.numbered(
        told.users,
        model.ratings_.find_items(told.item_ids)[told.items],
        told.values,
        told.user_ids,
        model.ratings_.item_ids,
    )
    kind = model._kind
    mine = {"u": tuple(np.asarray(part)[:0] for part in model.result_.state.lam["u"])}
    empty = {"u": tuple(np.asarray(part)[:0] for part in model.result_.state.mu["u"])}
    whole = model.result_.state
    fresh = kind.extended(whole._replace(lam={**whole.lam, **mine}, mu={**whole.mu, **empty}), some, int(model.seed))
    swept = folded_state(kind._problem(some, rows=np.arange(2)), ("u",), fresh, np.arange(2), FOLD_ROUNDS)
    for found, expected in zip((*state.lam["u"], *state.mu["u"]), (*swept.lam["u"], *swept.mu["u"]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def test_who_is_folded_in_is_recommended_what_a_visitor_is(model):
    visitor = ng.data.Ratings([900] * 4, [1, 2, 3, 4], [5.0, 1, 3, 4])
    folded = model.fold_in(visitor)
    for_visitor = model.recommend_for([1, 2, 3, 4], ratings=[5.0, 1, 3, 4], n=3)
    assert folded.recommend(900, n=3).items.tolist() == for_visitor.items.tolist()
    with pytest.raises(ValueError, match=r"2.5 is none of the levels that were fitted \(1, 2, 3, 4, 5\)"):
        model.fold_in(ng.data.Ratings([901], [1], [2.5]))


def test_what_is_no_scale_is_refused(model):
    with pytest.raises(ValueError, match="2 to 50 levels, got 1 different"):
        ng.MatrixFactorization(likelihood="ordinal").fit(ng.data.Ratings([0, 1], [0, 1], [3.0, 3.0]))
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="got 100 different values"):
        ng.MatrixFactorization(likelihood="ordinal").fit(rng.normal(size=(10, 10)))
    with pytest.raises(AttributeError, match="predict_proba needs an ordinal scale"):
        ng.MatrixFactorization(2, max_steps=2, verbose=False).fit(stars()[0]).predict_proba([0], [0])
