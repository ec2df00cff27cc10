"""The weighted factorisation of likes and the neighbours of items: kernels, posteriors, reasons, files, and what they are for."""

import numpy as np
import pytest
import scipy.sparse
from reference import weighted as reference

import natgrad as ng
from natgrad.kernels.factorization.neighbours import nearest_items
from natgrad.kernels.factorization.weighted import solve_weighted
from natgrad.models.factorization import item_search, item_spread, item_weighted, items
from natgrad.models.factorization.item_neighbours import KEPT, found_neighbours
from natgrad.models.factorization.item_ridge import ItemRidge
from natgrad.models.factorization.item_weighted import fitted_vectors

CHOSEN = ItemRidge(2.0, 0.3, mix=0.7, factors=4, confidence=5.0, penalty=0.2, near=0.3, near_power=0.25)


def groups(n_users=60, n_items=25, seed=0):
    """Users and items of two kinds; users like their own."""
    rng = np.random.default_rng(seed)
    own = (np.arange(n_users) % 2)[:, None] == np.arange(n_items) % 2
    table = rng.random((n_users, n_items)) < np.where(own, 0.5, 0.05)
    table[:, 0] |= ~table.any(1)
    return table


def rows_of(table):
    likes = scipy.sparse.csr_matrix(table * 1.0)
    return likes.indptr.astype(np.int64), likes.indices


def fit(table, monkeypatch, chosen=CHOSEN, n_jobs=1):
    monkeypatch.setattr(items, "learned_ridge", lambda likes, seed: chosen)
    users, liked = np.nonzero(table)
    ratings = ng.data.Ratings(users, liked, np.ones(len(users)), shape=table.shape)
    return ng.MatrixFactorization(likelihood="bernoulli", verbose=False, n_jobs=n_jobs).fit(ratings)


def test_rows_are_the_solutions_of_their_equations(rng):
    table = rng.random((30, 12)) < 0.3
    table[3] = False
    start, others = rows_of(table)
    vectors = rng.normal(size=(12, 5))
    squares, axes = np.linalg.eigh(vectors.T @ vectors)
    vectors = np.ascontiguousarray(vectors @ axes, dtype=np.float32)
    penalty = rng.uniform(1.0, 3.0, 30)
    out = rng.normal(size=(30, 5)).astype(np.float32)
    shared = squares.astype(np.float32), penalty.astype(np.float32), np.float32(4.0)
    solve_weighted(out, start, others, vectors, *shared, 50, np.float32(1e-12))
    wanted = reference.solve_weighted(start, others, vectors, penalty, 4.0)
    np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-4)  # single precision
    assert (out[3] == 0.0).all()


def test_the_nearest_items_are_those_most_often_liked_together(rng):
    table = (rng.random((40, 15)) < 0.2) * 1.0
    table[:, 4] = 0.0  # nobody likes it: it has no neighbours
    weight, target = rng.uniform(0.5, 1.5, 40), rng.uniform(0.5, 2.0, 15)
    likes = scipy.sparse.csr_matrix(table)
    by_item = likes.T.tocsr()
    for kept in (3, 15):
        found = np.empty((15, kept), np.int32), np.empty((15, kept), np.float32)
        nearest_items(*found, by_item.indptr, by_item.indices, likes.indptr, likes.indices, weight, target)
        which, values = reference.nearest_items(table, weight, target, kept)
        np.testing.assert_allclose(found[1], values, rtol=1e-5)
        np.testing.assert_array_equal(found[0], which)
        assert (found[1][4] == 0.0).all()


def test_what_is_expected_of_a_like_leaves_it_out():
    """By solving the equations of a user without the like, with the penalty that it had."""
    table = groups()
    found = fitted_vectors(scipy.sparse.csr_matrix(table * 1.0), 4, 3.0, 0.3, np.random.default_rng(0))
    scores = found.scores(*rows_of(table))
    np.testing.assert_allclose(scores[~table], found.scores_of_new(*rows_of(table))[~table], rtol=1e-5)
    for user, item in [(0, int(np.flatnonzero(table[0])[0])), (7, int(np.flatnonzero(table[7])[-1]))]:
        rest = np.flatnonzero(table[user])
        penalty = found.unit * (25 + 3.0 * len(rest))
        rest = rest[rest != item]
        own = reference.solve_weighted(np.array([0, len(rest)]), rest, found.vectors, [penalty], 3.0)[0]
        s = float(own @ found.vectors[item])
        np.testing.assert_allclose(scores[user, item], s, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(
            found.chances(scores[user : user + 1, item].copy()), s / (4.0 - 3.0 * s), rtol=1e-3, atol=1e-5
        )


def test_further_sweeps_lower_the_weighted_error(monkeypatch):
    likes = scipy.sparse.csr_matrix(groups() * 1.0)
    lost = []
    for sweeps in (1, 2, 4, 8):
        monkeypatch.setattr(item_weighted, "SWEEPS", sweeps)
        lost.append(fitted_vectors(likes, 3, 4.0, 0.01, np.random.default_rng(0), with_noise=True).noise)
    assert (np.diff(lost) < 0.0).all()


def test_scores_beyond_one_keep_their_order_and_probabilities_are_calibrated():
    table = groups(400, 40)
    found = fitted_vectors(scipy.sparse.csr_matrix(table * 1.0), 4, 5.0, 0.05, np.random.default_rng(0))
    s = np.linspace(-0.5, 1.5, 41, dtype=np.float32)
    assert (np.diff(found.chances(s[None].copy())[0]) > 0.0).all()
    s = found.scores_of_new(*rows_of(table))
    chance = found.chances(s.copy())
    assert s.mean() > 1.6 * table.mean()  # likes count six times
    assert abs(chance.mean() - table.mean()) < 0.3 * table.mean()


def test_neighbours_average_over_likes():
    table = groups() * 1.0
    found = found_neighbours(scipy.sparse.csr_matrix(table), 0.5)
    assert found.items.shape == (25, min(KEPT, 25))
    dense = found.table.toarray()
    assert (np.diagonal(dense) == 0.0).all()
    np.testing.assert_allclose(found.expected(*rows_of(table)), table @ dense / table.sum(1)[:, None], rtol=1e-5)
    for item in (0, 13):
        np.testing.assert_allclose(found.of(item, 0), dense[item])
        np.testing.assert_allclose(found.of(item, 1), dense[:, item])


def test_scores_reasons_and_probabilities_of_the_mixture(monkeypatch):
    table = groups()
    model = fit(table, monkeypatch)
    kind, predictor = model._kind, model._predictor
    scores = predictor.scores(np.arange(60))
    factors, near = predictor.factors, predictor.neighbours
    weights = items.item_weights(model.posterior_["items"].mean())
    fitted, others = factors.scores(*rows_of(table)), 0.21 * (table @ weights) + 0.3 * near.expected(*rows_of(table))
    np.testing.assert_allclose(scores, 0.49 * fitted + others, rtol=1e-3, atol=1e-5)
    user, item = np.argwhere(~table)[5]
    np.testing.assert_allclose(model.because(user, item, n=100).scores.sum(), scores[user, item], rtol=1e-3)
    chance = 0.49 * factors.chances(fitted.copy()) + others  # what ranks is no probability
    np.testing.assert_allclose(model.predict([user], [item]), np.clip(chance[user, item], 1e-6, 1.0), rtol=1e-3)
    assert (model.recommend(2, n=3).items % 2 == 0).all()  # more of the kind are not left
    assert model.similar_items(2, n=3).items[0] % 2 == 0
    seen = model.recommend(2, n=25, exclude_seen=False)
    assert sorted(seen.items) == list(range(25))
    deviations = item_spread.item_deviations(kind, model.result_.state, predictor, np.arange(3))
    assert (deviations > 0.0).all()
    cautious, bold = (model.recommend(2, n=5, quantile=q).scores for q in (0.1, 0.9))
    assert (bold > cautious).all()


def test_how_sure_a_score_is_is_what_draws_of_the_vector_say():
    """To first order: where probabilities are straight in the fit."""
    table = groups()
    likes = scipy.sparse.csr_matrix(table * 1.0)
    found = fitted_vectors(likes, 3, 1e-6, 0.3, np.random.default_rng(0), with_noise=True)
    start, liked = rows_of(table[:1])
    v = found.vectors.astype(np.float64)
    penalty = found.unit * 25
    covariance = found.noise * np.linalg.inv(v.T @ v + penalty * np.eye(3))
    draws = np.random.default_rng(1).multivariate_normal(np.zeros(3), covariance, 4000) @ v.T
    np.testing.assert_allclose(found.deviations(start, liked)[0], draws.std(0), rtol=0.06, atol=1e-6)


def test_files_new_items_and_threads(monkeypatch, tmp_path):
    table = groups()
    model = fit(table, monkeypatch)
    model.save(tmp_path / "likes.natgrad")
    again = ng.load(tmp_path / "likes.natgrad")
    everybody = np.arange(60)
    np.testing.assert_array_equal(again._predictor.scores(everybody), model._predictor.scores(everybody))
    two = fit(table, monkeypatch, n_jobs=2)
    np.testing.assert_array_equal(two._predictor.scores(everybody), model._predictor.scores(everybody))
    visitor, known = model.recommend_for([1, 3], n=4), model.fold_in(ng.data.Ratings([777] * 2, [1, 3], np.ones(2)))
    np.testing.assert_array_equal(visitor.items, known.recommend(777, n=4).items)
    assert (visitor.items % 2 == 1).mean() >= 0.75


def test_neighbours_are_learned_where_items_are_too_many(monkeypatch):
    """Pairs of items that go together, more of them than there are dimensions, and than the regression may have."""
    rng = np.random.default_rng(3)
    pairs = np.argsort(rng.random((300, 150)), axis=1)[:, :8]
    liked = np.concatenate([2 * pairs, 2 * pairs + 1], 1)
    users = np.repeat(np.arange(300), 16)
    ratings = ng.data.Ratings(users, liked.ravel(), np.ones(len(users)), shape=(300, 300))
    first = item_search.FIRST_OF_RARE | {"factors": 16}
    few = {"MOST_REGRESSED": 100, "FEWEST": 60, "MOST": 60, "FACTORS": (8, 16), "SIZES": (4, 8), "FIRST_OF_RARE": first}
    for name, value in few.items():
        monkeypatch.setattr(item_search, name, value)
    monkeypatch.setattr(items, "MOST_ITEMS", 60)
    model = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(ratings)
    assert model._kind.ridge.near > 0.0
    assert model.recommend_for([10], n=1).items[0] == 11
    # What is made of them once is not made again for somebody new, who is to wait for milliseconds.
    near = model.fold_in(ng.data.Ratings(["new"], [10]))._newcomers.alone._predictor.neighbours
    assert near is model._predictor.neighbours


@pytest.mark.parametrize("broken", ["weighted", "neighbours"])
def test_files_without_a_part_are_refused(monkeypatch, tmp_path, broken):
    model = fit(groups(), monkeypatch)
    model._kind.learned[broken] = None
    with pytest.raises(ValueError, match=broken):
        model.save(tmp_path / "likes.natgrad")
