"""Tastes around popularity: margins, posteriors of users, who has a taste, what is added by each like, and files."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import natgrad as ng
from natgrad.models.factorization import item_tastes, items
from natgrad.models.factorization.item_ridge import ItemRidge
from natgrad.models.factorization.item_tastes import SCALES, Residuals, fitted_tastes


def drawn(n_users, n_items, degree, with_taste=1.0, strength=1.5, seed=0):
    """Users who take, without replacement, by popularity · exp(taste · trait); and who has a taste."""
    rng = np.random.default_rng(seed)
    popular = -0.7 * np.log(3.0 + np.arange(n_items))
    tasteful = rng.random(n_users) < with_taste
    taste = rng.normal(size=(n_users, 2)) * np.sqrt(strength) * tasteful[:, None]
    weight = popular + taste @ rng.normal(size=(2, n_items)) * np.sqrt(strength) / np.sqrt(2.0)
    race = weight + rng.gumbel(size=weight.shape)
    table = np.zeros((n_users, n_items))
    np.put_along_axis(table, np.argsort(-race, axis=1)[:, :degree], 1.0, 1)
    return table, tasteful


def rows_of(table):
    likes = scipy.sparse.csr_matrix(table)
    return likes.indptr.astype(np.int64), likes.indices


@pytest.fixture(scope="module")
def mixed():
    table, tasteful = drawn(400, 60, 12, with_taste=0.4)
    return table, tasteful, fitted_tastes(Residuals(scipy.sparse.csr_matrix(table)), 3, np.random.default_rng(1))


def test_without_tastes_users_and_items_have_their_numbers_of_likes(rng):
    table = (rng.random((300, 40)) < np.linspace(0.02, 0.9, 40) * rng.uniform(0.2, 1.0, (300, 1))) * 1.0
    table[0] = 1.0  # somebody who likes everything
    data = Residuals(scipy.sparse.csr_matrix(table))
    found = fitted_tastes(data, 2, rng)
    chance = item_tastes._chance(found.activity, found.rates)
    np.testing.assert_allclose(chance.sum(1), found.degrees, rtol=1e-3)
    np.testing.assert_allclose(data.turned_times(np.ones((300, 1), np.float32)), 0.0, atol=0.05)
    np.testing.assert_allclose(data.times(np.ones((40, 1), np.float32)), 0.0, atol=0.05)
    bare = replace(found, strength=0.0).scores(*rows_of(table))
    alike = table.sum(1) == np.median(table.sum(1))
    np.testing.assert_allclose(bare.sum(1)[alike], np.median(table.sum(1)), rtol=0.05)


def test_the_posterior_of_a_user_is_that_of_a_mixture_of_gaussians(rng):
    """By densities of what the likes told, strength by strength, in the basis that was given."""
    size = 3
    root, other = rng.normal(size=(2, size, size))
    information, precision = root @ root.T, other @ other.T + np.eye(size)
    told, weight, shares = 3.0 * rng.normal(size=(5, size)), rng.uniform(1, 4, 5), np.array([0.4, 0.3, 0.2, 0.1])
    values, axes = item_tastes._common_axes(information, precision)
    found = item_tastes._posterior(told, weight, values, axes, shares)
    for row in range(5):
        logs, means = [], []
        for s, pi in zip(SCALES, shares, strict=True):
            covariance = s**2 * np.linalg.inv(precision)
            noise = weight[row] * information  # told ~ N(noise u, noise)
            spread = noise @ covariance @ noise + noise
            logs.append(np.log(pi) + scipy.stats.multivariate_normal(np.zeros(size), spread).logpdf(told[row]))
            means.append(covariance @ noise @ np.linalg.solve(spread, told[row]))
        wanted = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
        np.testing.assert_allclose([share[row] for _, share, _, _ in found.strengths], wanted, rtol=1e-8)
        np.testing.assert_allclose(axes @ found.mean[row], wanted @ np.array(means), rtol=1e-8)


def test_pieces_of_users_add_up(rng, monkeypatch):
    one = np.eye(2)
    told, weight = rng.normal(size=(50, 2)), rng.uniform(1, 4, 50)
    whole = item_tastes._all_users(told, weight, one, 2.0 * one, np.full(4, 0.25))
    monkeypatch.setattr(item_tastes, "TOGETHER", 7)
    for found, wanted in zip(
        item_tastes._all_users(told, weight, one, 2.0 * one, np.full(4, 0.25)), whole, strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_users_without_a_taste_are_given_less_of_one(mixed):
    table, tasteful, found = mixed
    start, liked = rows_of(table)
    length = np.linalg.norm(found._own_of(start, liked).mean @ found._axes[1].T, axis=1)
    assert np.median(length[tasteful]) > 3.0 * np.median(length[~tasteful])
    assert scipy.stats.mannwhitneyu(length[tasteful], length[~tasteful]).pvalue < 1e-9


def test_items_may_be_in_any_order(mixed, rng):
    """The same scores, if directions are found to the last digits."""
    table, _, found = mixed
    order = rng.permutation(60)
    again = fitted_tastes(Residuals(scipy.sparse.csr_matrix(table[:, order])), 3, np.random.default_rng(1))
    one, other = found.scores(*rows_of(table)), again.scores(*rows_of(table[:, order]))
    np.testing.assert_allclose(other, one[:, order], rtol=0.05, atol=1e-3)


def test_what_likes_add_and_popularity_are_the_score(mixed):
    table, _, found = mixed
    start, liked = rows_of(table)
    scores, bare = found.scores(start, liked), replace(found, strength=0.0).scores(start, liked)
    for user in (0, 7, 21):
        mine = liked[start[user] : start[user + 1]].astype(np.int64)
        for item in np.flatnonzero(table[user] == 0)[:4]:
            parts = found.parts(mine, int(item))
            np.testing.assert_allclose(parts.sum() + bare[user, item], scores[user, item], rtol=2e-3, atol=1e-6)


def test_how_sure_a_score_is_is_what_draws_of_the_taste_say(mixed):
    """To first order: of a strength so small that the probability is straight in it."""
    table, _, found = mixed
    faint = replace(found, strength=0.02)
    start, liked = rows_of(table[:3])
    own, rng = faint._own_of(start, liked), np.random.default_rng(3)
    wanted = []
    for user in range(3):
        which = rng.choice(len(SCALES), 20_000, p=[share[user] for _, share, _, _ in own.strengths])
        mean, variance = (np.array([part[n][user] for part in own.strengths]) for n in (2, 3))
        drawn_tastes = mean[which] + np.sqrt(variance[which]) * rng.standard_normal((len(which), 3))
        log_rate = 0.02 * (drawn_tastes @ faint._turned.T).astype(np.float32)
        wanted.append(faint._chances(log_rate, np.full(len(which), table[user].sum(), int)).std(0))
    np.testing.assert_allclose(
        faint.deviations(start, liked), wanted, rtol=0.05
    )  # 20,000 draws: 0.5 %, and 0.02 of curvature


def test_strangers_and_likes_that_come_twice(monkeypatch):
    monkeypatch.setattr(items, "learned_ridge", lambda likes, seed: ItemRidge(mix=1.0, tastes=2, strength=0.7))
    table, _ = drawn(60, 30, 6)
    users, liked = table.nonzero()
    fit = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit
    model = fit(ng.data.Ratings(users, liked, shape=table.shape))
    np.testing.assert_allclose(model.predict([999], [4]), table[:, 4].mean(), rtol=1e-6)
    once, twice = model.recommend_for([3, 5], n=9), model.recommend_for([3, 5, 3], n=9)
    np.testing.assert_array_equal(once.scores, twice.scores)
    some = np.append(np.arange(len(users)), np.flatnonzero(users == 2))
    again = fit(ng.data.Ratings(users[some], liked[some], duplicates="keep", shape=table.shape))
    np.testing.assert_array_equal(again.recommend(2, n=5).scores, model.recommend(2, n=5).scores)
    cautious, bold = (model.recommend(2, n=5, quantile=q).scores for q in (0.1, 0.9))
    assert (cautious < bold).all()
    assert model.recommend(2, n=5, draw=1).items.tolist() != model.recommend(2, n=5, draw=2).items.tolist()
    with pytest.raises(ValueError, match="n must be a whole number"):
        model.similar_items(3, n=-1)


def test_new_items_and_strangers(mixed):
    found = mixed[2].with_new(2)
    scores = found.scores(np.array([0, 2, 2]), np.array([3, 61]))
    assert scores.shape == (2, 62)
    assert (scores[:, 60:] == 0).all()
    assert np.isfinite(scores).all()
    assert mixed[2].with_new(0) is mixed[2]


def test_tastes_in_a_model_in_a_file_and_of_a_visitor(monkeypatch, tmp_path):
    chosen = ItemRidge(2.0, 0.3, mix=0.6, tastes=2, strength=0.7, power=0.1)
    monkeypatch.setattr(items, "learned_ridge", lambda likes, seed: chosen)
    monkeypatch.setattr(items, "MOST_ITEMS", 30)
    table, _ = drawn(120, 40, 8)
    model = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(ng.data.Ratings(*table.nonzero()))
    factors = model._predictor.factors
    unseen = int(model.recommend(5, n=1).items[0])
    parts = model.because(5, unseen, n=99)
    bare = replace(factors, strength=0.0).scores(*rows_of(table))[5, unseen] * model._predictor.part[unseen]
    total = parts.scores.sum() + bare * model._predictor.scale[unseen]
    np.testing.assert_allclose(total, model.recommend(5, n=1).scores[0], rtol=1e-3)
    visitor = model.recommend_for([3, 5], n=4)
    folded = model.fold_in(ng.data.Ratings([777, 777], [3, 5])).recommend(777, n=4)
    np.testing.assert_array_equal(visitor.items, folded.items)
    assert np.isfinite(model.similar_items(3, n=5).scores).all()
    model.save(tmp_path / "m")
    again = ng.load(tmp_path / "m")
    np.testing.assert_array_equal(again.recommend(n=5).scores, model.recommend(n=5).scores)
    model._kind.learned["tastes"]["precision"] = -np.eye(2)
    with pytest.raises(ValueError, match=r"tastes.*precision.*is not the matrix of a quadratic form"):
        model.save(tmp_path / "bad")
