"""Likes alone with every pair counted: the declared network, EASE, what is recommended, and files."""

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from threadpoolctl import ThreadpoolController, threadpool_limits

import natgrad as ng
from natgrad import threads
from natgrad.kernels.factorization.held_out import rank_held_out
from natgrad.kernels.factorization.items import liked_together, sum_weights
from natgrad.models.factorization import item_ridge, item_search, item_spread, items
from natgrad.models.factorization.item_ridge import ItemRidge
from natgrad.models.factorization.items import ItemsProblem, likes_matrix


def taste(n_users=60, n_items=25, seed=0):
    """Two kinds of users, each with items of their own."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n_users)[:, None] % 2 == np.arange(n_items) % 2
    table = rng.random((n_users, n_items)) < np.where(kind, 0.5, 0.08)
    return table


def as_likes(table):
    users, liked = table.nonzero()
    return ng.data.Ratings(users, liked, np.ones(len(users)), shape=table.shape)


@pytest.fixture(scope="module")
def model():
    return ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(as_likes(taste()))


@pytest.mark.parametrize(("bias", "evenness"), [(False, 0.0), (True, 0.5)])
def test_the_posterior_and_the_bound_are_those_of_the_declared_network(bias, evenness):
    table = taste()
    problem = ItemsProblem(likes_matrix(as_likes(table)), ItemRidge(2.0, 0.3, bias, evenness))
    result = problem.sweep(problem.start())
    x = np.column_stack([table * 1.0, np.ones(len(table))]) if bias else table * 1.0
    precision = ng.Wishart("precision", float(problem.size), np.diag(problem.rate))
    user = ng.Plate("user", len(x), weight=problem.weight)
    fit = ng.Network(ng.MultivariateNormal("x", np.zeros(problem.size), precision, plate=user, observed=x)).fit(
        backend="numpy"
    )
    np.testing.assert_allclose(result.bound, fit.elbo, rtol=1e-11)
    np.testing.assert_allclose(problem.bound(result.state), fit.elbo, rtol=1e-11)
    np.testing.assert_allclose(result.state.mu["items"][0], fit["precision"].mean(), rtol=1e-9, atol=1e-12)
    # The bound of an exact posterior is the evidence: no other state has more.
    assert problem.bound(problem.start()) < result.bound
    assert problem.bound(problem.sweep(problem.start(), rho=0.9).state) < result.bound


def test_a_constant_rate_is_the_ridge_regression_of_each_item_on_all_others():
    x = taste() * 1.0
    problem = ItemsProblem(scipy.sparse.csr_matrix(x), ItemRidge(2.0, 0.0))
    weights = item_ridge.item_weights(problem.sweep(problem.start()).state.mu["items"][0])
    for item in (0, 7):
        others = np.delete(np.arange(x.shape[1]), item)
        gram = x[:, others].T @ x[:, others] + problem.rate[0] * np.eye(len(others))
        np.testing.assert_allclose(weights[others, item], np.linalg.solve(gram, x[:, others].T @ x[:, item]), atol=1e-6)
        assert weights[item, item] == 0.0


def test_batches_of_users_average_to_the_whole_message():
    problem = ItemsProblem(likes_matrix(as_likes(taste())), ItemRidge(2.0, 0.3, True, 0.5))
    state = problem.start()
    whole = problem.solve(state, None, None, 0.0, 1).messages["items"]
    parts = [problem.solve(state, some, None, 0.0, 1).messages["items"] for some in np.array_split(np.arange(60), 4)]
    for n in (0, 1):
        np.testing.assert_allclose(sum(part[n] for part in parts), whole[n], atol=1e-9)


def test_kernels_are_sums(rng):
    x = scipy.sparse.csr_matrix(rng.random((30, 12)) < 0.3).astype(np.float64)
    weight, by_item = rng.random(30), x.tocsc()
    out = np.empty((12, 12))
    liked_together(out, by_item.indptr, by_item.indices, x.indptr, x.indices, weight)
    np.testing.assert_allclose(out, (x.toarray() * weight[:, None]).T @ x.toarray(), atol=1e-12)
    table, bias = rng.random((12, 5)).astype(np.float32), rng.random(5).astype(np.float32)
    scores = np.empty((30, 5), np.float32)
    sum_weights(scores, x.indptr.astype(np.int64), x.indices, table, bias)
    np.testing.assert_allclose(scores, x.toarray() @ table + bias, rtol=1e-5)


def test_held_out_likes_are_ranked_among_what_was_not_seen(rng):
    """By a sorted list of scores, with many that are equal, more items than are compared in one go, and users without any."""
    n_users, n_items, size, shown = 12, 600, 5, 7
    kinds = rng.choice(3, (n_users, n_items), p=(0.9, 0.08, 0.02))
    kinds[3] %= 2
    wanted, seen = (scipy.sparse.csr_matrix(kinds == kind) for kind in (2, 1))
    tables = [rng.integers(0, 40, (n_users, wide)).astype(np.float32) for wide in (n_items, size, n_items)]
    parts, common = np.array([0.25, 0.5], np.float32), rng.integers(0, 9, n_items).astype(np.float32)
    scale, worth = 2.0 ** rng.integers(-1, 2, n_items).astype(np.float32), 1.0 / np.log2(np.arange(shown) + 2.0)
    for near in (True, False):
        scores = tables[0].copy()
        scores[:, :size] = 0.25 * scores[:, :size] + 0.75 * tables[1]
        scores = 0.5 * scores + 0.5 * tables[2] if near else scores
        scores = scale * (scores + common)
        out, neighbours = np.empty(n_users), tables[2] if near else tables[2][:, :0]
        rows = wanted.indptr, wanted.indices, seen.indptr, seen.indices
        rank_held_out(out, *rows, tables[0], tables[1], neighbours, parts, common, scale, worth)
        for user in range(n_users):
            order = np.argsort(-np.where(seen[[user]].toarray()[0], -np.inf, scores[user]), kind="stable")[:shown]
            hits, most = wanted[[user]].toarray()[0][order], min(wanted[[user]].nnz, shown)
            assert out[user] == pytest.approx(hits @ worth / worth[:most].sum() if most else 0.0)


def test_the_inverse_and_its_determinant(rng):
    for size in (3, 70):  # small ones and large ones are mirrored differently
        root = rng.normal(size=(size, size + 5))
        inverse, log_det = item_ridge.inverse_and_log_det(root @ root.T)
        np.testing.assert_allclose(inverse @ (root @ root.T), np.eye(size), atol=1e-6)
        np.testing.assert_allclose(log_det, np.linalg.slogdet(root @ root.T)[1], rtol=1e-10)
    assert np.isnan(item_ridge.inverse_and_log_det(-np.eye(3))[1])


def test_users_are_given_what_their_kind_likes(model):
    table = taste()
    assert model.stop_.converged
    assert model.n_steps_ == 1
    assert model.user_factors_ is None
    assert set(model.posterior_) == {"items"}
    best = model.recommend(n=2).items  # everybody has more than two left of the own kind
    right = best % 2 == (np.arange(60) % 2)[:, None]
    assert right.mean() > 0.95
    assert not table[np.arange(60)[:, None], best].any()
    assert model.similar_items(4, 5).items.tolist()
    assert (model.similar_items(4, 5).items % 2 == 0).all()


@pytest.mark.slow
def test_numbers_are_learned_from_held_out_likes():
    table = taste(300, 60)
    likes = as_likes(table)
    found = item_search.learned_ridge(likes_matrix(likes), 0)
    assert found != ItemRidge()
    judge = item_search._Judge(likes_matrix(likes), 5)  # other likes held out
    assert judge(found)[0] > judge(ItemRidge(mix=1.0))[0] + 0.02  # popularity
    model = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(likes)
    assert model._kind.ridge == found  # learned again, by the fit, with the same seed
    assert (model.recommend(n=2).items % 2 == (np.arange(300) % 2)[:, None]).mean() > 0.97


def test_more_is_held_out_of_few_likes_and_the_regression_is_shrunk_for_all_likes(monkeypatch):
    """What is learned of a part is used for the whole: its rate is less there, by the square of the part."""
    likes = likes_matrix(as_likes(taste(300, 60)))
    few, many = item_search._Judge(likes[:50].tocsr(), 0), item_search._Judge(likes, 0)
    assert few.held_out == item_search.HELD_OUT[1]
    monkeypatch.setattr(item_search, "ENOUGH", 10)
    assert item_search._Judge(likes, 0).held_out == item_search.HELD_OUT[0] < many.held_out
    kept = many.kept.nnz / likes.nnz
    assert abs(kept - (1.0 - many.held_out)) < 0.05
    tried = []
    real = item_search._Judge.__call__
    monkeypatch.setattr(item_search._Judge, "__call__", lambda self, ridge: tried.append(ridge) or real(self, ridge))
    found = item_search.learned_ridge(likes, 0)
    assert found.ridge == found.share
    assert found.ridge in {ridge.ridge * (1.0 - item_search.HELD_OUT[0]) ** 2 for ridge in tried}


def test_where_held_out_likes_are_few_more_users_are_judged_by_shorter_lists(monkeypatch):
    likes = likes_matrix(as_likes(taste(300, 60)))
    for name, value in {"MOST_REGRESSED": 50, "RANKED": (2, 3), "CELLS": (60 * 10, 60 * 40)}.items():
        monkeypatch.setattr(item_search, name, value)
    for enough, users, shown in ((60, 40, 3), (2000, 80, 2)):
        monkeypatch.setattr(item_search, "ENOUGH", enough)
        judge = item_search._Judge(likes, 0)
        assert (judge.seen.shape[0] <= users, len(judge.worth)) == (True, shown)
    assert judge.seen.shape[0] == 80
    monkeypatch.setattr(item_search, "MOST_REGRESSED", 60)  # the regression has all items
    assert item_search._Judge(likes, 0).seen.shape[0] == 40


def test_filters_reasons_and_visitors(model):
    found = model.recommend([0, 1], n=3, exclude_seen=False, only=[2, 3, 4, 5], exclude=[4])
    assert set(found.items.ravel().tolist()) == {2, 3, 5}
    item = int(model.recommend(0, n=1).items[0])
    reasons = model.because(0, item, n=100)
    rows = model.ratings_.sorted_by_user
    assert sorted(reasons.items.tolist()) == sorted(rows.other[rows.start[0] : rows.start[1]].tolist())
    who = model._predictor
    bias = (who.bias[item] + who.common * who.popular[item]) * who.scale[item]
    np.testing.assert_allclose(reasons.scores.sum() + bias, model.recommend(0, n=1).scores[0], rtol=1e-4)
    visitor, known = model.recommend_for([3, 5], n=3), model.fold_in(ng.data.Ratings([777] * 2, [3, 5], [1.0, 1.0]))
    np.testing.assert_array_equal(visitor.items, known.recommend(777, n=3).items)
    with pytest.raises(ValueError, match=r"only.*99"):
        model.recommend(0, only=[99])
    drawn = ng.MatrixFactorization(2, likelihood="bernoulli", n_negatives=2, max_steps=2, verbose=False)
    drawn.fit(model.ratings_)
    with pytest.raises(TypeError, match=r"because: of likes alone with n_negatives= .* leave out n_negatives="):
        drawn.because(0, 1)


def test_saved_grown_and_looked_at_again(model, tmp_path):
    model.save(tmp_path / "likes.natgrad")
    again = ng.load(tmp_path / "likes.natgrad")
    np.testing.assert_array_equal(again.recommend(n=3).scores, model.recommend(n=3).scores)
    assert again.continue_fit().elbo_ == model.elbo_
    more = ng.data.Ratings([0, 70], [30, 30], [1.0, 1.0])
    grown = again.partial_fit(more)
    whole = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(grown.ratings_)
    assert grown.ratings_.shape == (61, 26)
    assert grown.elbo_ == whole.elbo_


def test_a_run_that_had_ended_is_not_repeated(tmp_path):
    first = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(as_likes(taste()), checkpoint=tmp_path)
    again = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(
        as_likes(taste()), checkpoint=tmp_path, resume=True
    )
    assert again.elbo_ == first.elbo_
    assert again.n_steps_ == 1


def fitted_rows(table, ridge):
    """The factorisation's row of every user by a dense SVD, without what an item says of itself."""
    scale = np.maximum(table.sum(0), 1) ** -ridge.flatness
    vectors, values = np.linalg.svd(table * scale)[2], np.linalg.svd(table * scale)[1]
    kept = np.sqrt(1.0 - (values[ridge.rank] / values[: ridge.rank]) ** 2)
    weights = (vectors[: ridge.rank].T * kept) @ vectors[: ridge.rank]
    np.fill_diagonal(weights, 0.0)
    return table @ (scale[:, None] * weights / scale)


def test_scores_are_a_regression_mixed_with_a_factorisation_and_the_rare_have_the_latter(monkeypatch):
    monkeypatch.setattr(items, "MOST_ITEMS", 20)
    chosen = ItemRidge(2.0, 0.3, rank=3, flatness=0.2, mix=0.4, power=0.3)
    monkeypatch.setattr(items, "learned_ridge", lambda likes, seed: chosen)
    table = taste()
    model = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(as_likes(table))
    # As a file of an earlier version has it: nothing is factorised so any more.
    scale = np.maximum(table.sum(0), 1) ** -chosen.flatness
    values, vectors = np.linalg.svd(table * scale, full_matrices=False)[1:]
    basis = vectors[:3].T * (1 - (values[3] / values[:3]) ** 2) ** 0.25
    model._kind.learned["basis"] = basis.astype(np.float32)
    model._predictor = model._kind.predictor(model.result_.state, model.ratings_)
    inside = model._kind.learned["items"]
    tail = np.setdiff1d(np.arange(25), inside)
    assert len(tail) == 5
    assert table.sum(0)[tail].max() <= table.sum(0)[inside].min()
    expected = fitted_rows(table * 1.0, chosen)
    weights = item_ridge.item_weights(model.posterior_["items"].mean())
    expected[:, inside] = 0.4 * expected[:, inside] + 0.6 * (table[:, inside] @ weights)
    found = model._predictor.scores(np.arange(60))
    np.testing.assert_allclose(found, expected * table.sum(0) ** -0.3, rtol=1e-3, atol=1e-4)
    unseen = int(np.flatnonzero(~table[0])[0])
    np.testing.assert_allclose(model.because(0, unseen, n=100).scores.sum(), found[0, unseen], rtol=1e-4)
    np.testing.assert_allclose(
        model.predict([0], [unseen]), np.clip(expected[0, unseen], 1e-6, 1), rtol=1e-3, atol=1e-5
    )
    likeness = np.array([model._predictor.likeness(item) for item in range(25)])
    np.testing.assert_allclose(likeness, likeness.T, atol=1e-6)


def test_somebody_without_likes_is_given_what_is_popular():
    table = np.vstack([taste(), np.zeros(25, bool)])
    users, liked = table.nonzero()
    likes = ng.data.Ratings(users, liked, np.ones(len(users)), shape=table.shape)
    model = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(likes)
    if model._kind.ridge.power < 1.0:
        order = model.recommend(60, n=25).items
        assert (np.diff(table.sum(0)[order]) <= 0).all()


def test_a_pair_that_comes_twice_is_one_like():
    table = taste()
    users, liked = table.nonzero()
    some = np.append(np.arange(len(users)), np.arange(5))
    ones = np.ones(len(some))
    twice = ng.data.Ratings(users[some], liked[some], ones, shape=table.shape, duplicates="keep")
    np.testing.assert_array_equal(likes_matrix(twice).toarray(), table)


def test_streams_and_numbers_draw_dislikes():
    likes = as_likes(taste())
    drawn = ng.MatrixFactorization(2, likelihood="bernoulli", n_negatives=2, max_steps=3, verbose=False).fit(likes)
    assert drawn.user_factors_ is not None
    sampled = ng.MatrixFactorization(2, likelihood="bernoulli", method=ng.Children(3), max_steps=3, verbose=False)
    assert sampled.fit(likes).user_factors_ is not None


def test_updated_and_forgotten_are_fitted_anew():
    likes = as_likes(taste())
    model = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(likes)
    model.update(ng.data.Ratings([900, 900], [3, 44], [1.0, 1.0]))
    again = ng.MatrixFactorization(likelihood="bernoulli", verbose=False)
    assert model.ratings_.n_items == 26
    assert model.elbo_ == again.fit(model.ratings_).elbo_
    model.forget({"user": [900]})
    assert 44 not in model.ratings_.item_ids
    assert len(model._kind.learned["popularity"]) == model.ratings_.n_items == 25
    assert model.elbo_ == again.fit(model.ratings_).elbo_


@pytest.mark.parametrize("bias", [False, True])
def test_how_sure_scores_are_is_what_draws_of_the_precision_say(bias, monkeypatch):
    table = taste(40, 12)
    monkeypatch.setattr(items, "learned_ridge", lambda likes, seed: ItemRidge(0.5, 0.3, bias, rank=3, mix=0.4))
    fit = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(as_likes(table))
    state, users = fit.result_.state, np.array([0, 3, 17])
    found = item_spread.item_deviations(fit._kind, state, fit._predictor, users)
    mean = state.mu["items"][0]
    dof = 2.0 * float(state.lam["items"][1]) + len(mean) + 1.0
    draws = scipy.stats.wishart(dof, mean / dof).rvs(8000, random_state=1)
    x = np.column_stack([table[users] * 1.0, np.ones((3, 1))]) if bias else table[users] * 1.0
    scores = np.stack([x @ (-draw / np.diagonal(draw) + np.eye(len(draw))) for draw in draws])[:, :, :12]
    wanted = 0.6 * scores.std(0)
    for row, user in enumerate(users):
        new = ~table[user]
        np.testing.assert_allclose(found[row, new], wanted[row, new], rtol=0.05)  # 8,000 draws: 0.8 %, and heavy tails


def test_cautious_bold_and_drawn_lists(model):
    usual, cautious, bold = (model.recommend(0, n=25, quantile=q) for q in (0.5, 0.05, 0.95))
    np.testing.assert_array_equal(usual.items, model.recommend(0, n=25).items)
    score = [dict(zip(found.items, found.scores, strict=True)) for found in (cautious, usual, bold)]
    known = [item for item in usual.items if item is not None]
    assert all(score[0][item] < score[1][item] < score[2][item] for item in known)
    drawn = [model.recommend(n=3, draw=seed).items for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    folded = model.fold_in(ng.data.Ratings([777] * 2, [3, 5], [1.0, 1.0]))
    assert folded.recommend(777, n=3, quantile=0.1).items.shape == (3,)


@pytest.mark.parametrize("n_jobs", [1, None])
def test_numbers_are_learned_with_the_threads_that_are_allowed(n_jobs, monkeypatch):
    """Of the matrix library always one: two of them took fourteen times as long on a busy machine."""
    asked = []

    def learned(likes, seed):
        blas = ThreadpoolController().select(user_api="blas").lib_controllers
        asked.append((threads.n_threads(), {library.num_threads for library in blas}))
        return ItemRidge()

    monkeypatch.setattr(items, "learned_ridge", learned)
    monkeypatch.setattr(threads, "most_threads", lambda: 2)
    likes = as_likes(taste(20, 10))
    model = ng.MatrixFactorization(likelihood="bernoulli", n_jobs=n_jobs, verbose=False)
    with threadpool_limits(2, user_api="blas"):
        model.fit(likes).partial_fit(likes)
    assert asked == [(n_jobs or 2, {1})] * 2


def test_where_taste_adds_nothing_popularity_ranks(tmp_path, monkeypatch):
    """Held-out likes say that other likes tell nothing: lists are those of popularity, and the search ends at first sight."""
    tried, real = [], item_search._Judge.__call__
    monkeypatch.setattr(item_search._Judge, "__call__", lambda self, ridge: tried.append(ridge) or real(self, ridge))
    rng = np.random.default_rng(3)
    popular = np.log(1.0 / (5.0 + np.arange(60)))
    race = popular + rng.gumbel(size=(400, 60))
    users, items = np.repeat(np.arange(400), 8), np.argsort(-race, axis=1)[:, :8].ravel()
    likes = ng.data.Ratings(users, items, np.ones(len(users)), shape=(400, 60))
    crowd = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(likes)
    assert crowd._kind.ridge.tastes == crowd._kind.ridge.rank == 0
    assert len(tried) < 10
    count = np.bincount(items, minlength=60)
    np.testing.assert_allclose(crowd.predict(np.zeros(60, int), np.arange(60)), count / 400, rtol=1e-6)
    table = np.zeros((400, 60), bool)
    table[users, items] = True
    best = np.sort(np.where(table, -1, count), axis=1)[:, ::-1]
    ranked = crowd.recommend(n=10).items
    np.testing.assert_array_equal(count[ranked], best[:, :10])  # equally popular ones in any order
    assert np.isfinite(crowd.similar_items(3, n=5).scores).all()
    np.testing.assert_array_equal(count[crowd.recommend(n=10, quantile=0.1).items], best[:, :10])
    crowd.save(tmp_path / "m")
    np.testing.assert_array_equal(ng.load(tmp_path / "m").recommend(n=10).items, ranked)
