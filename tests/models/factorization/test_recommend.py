"""What a recommender team asks of the estimator: predictions, recommendations, new users, new ratings, files."""

import numpy as np
import pytest
from reference.rating_blocks import naive_top

import natgrad as ng
from natgrad.kernels.factorization.top_items import top_items
from natgrad.models.factorization.metrics import ranking_scores


def made(seed: int = 0, n_users: int = 60, n_items: int = 40, noise: float = 0.3):
    """A full table with biases, and which entries are held out."""
    rng = np.random.default_rng(seed)
    table = 3.0 + rng.normal(size=(n_users, 2)) @ rng.normal(size=(2, n_items)) + 0.5 * rng.normal(size=n_items)
    table += 0.5 * rng.normal(size=(n_users, 1)) + noise * rng.normal(size=table.shape)
    return table, rng.random(table.shape) < 0.3


def fitted(**options):
    table, held = made()
    return ng.MatrixFactorization(**{"n_factors": 5, "verbose": False, **options}).fit(np.where(held, np.nan, table))


def test_it_learns_biases_noise_and_how_many_factors_there_are():
    table, held = made()
    model = fitted(n_factors=8)
    assert model.stop_.converged
    assert np.diff(model.trace_["elbo"]).min() > -1e-9 * abs(model.elbo_)
    users, items = np.nonzero(held)
    mean, sd = model.predict(users, items, return_std=True)
    assert np.sqrt(np.mean((mean - table[held]) ** 2)) < 0.37
    low, high = model.interval(users, items, 0.95)
    assert 0.92 < np.mean((low < table[held]) & (table[held] < high)) < 0.98
    np.testing.assert_allclose(high - low, 2 * 1.96 * sd, rtol=1e-3)
    np.testing.assert_allclose(model.posterior_["noise"].mean(), 1 / 0.09, rtol=0.25)
    used = 1 / np.sqrt(model.posterior_["item_precision"].mean()[:8])
    assert (used > 0.3).sum() == 2
    assert abs(np.corrcoef(model.item_biases_.mean, np.where(held, np.nan, table).mean(0, where=~held))[0, 1]) > 0.8
    assert model.user_factors_.mean.shape == (60, 8)
    assert model.offset_ == pytest.approx(table[~held].mean())


def test_recommendations_are_the_best_of_all_unseen_predictions():
    model = fitted()
    _, held = made()
    every = model.recommend(n=4)
    for user in (0, 7, 33):
        scores = model.predict(np.full(40, user), np.arange(40))
        wanted = naive_top(scores, set(np.flatnonzero(~held[user])), 4)
        one = model.recommend(user, n=4)
        assert one.items.tolist() == every.items[user].tolist() == wanted
        np.testing.assert_allclose(one.scores, scores[wanted], rtol=1e-4)
        assert model.recommend([3, user], 4, exclude_seen=False).items[1].tolist() == naive_top(scores, set(), 4)
    few = model.recommend(0, n=40).items
    assert few[: held[0].sum()].tolist() == naive_top(model.predict(np.zeros(40, int), np.arange(40)), set(few[:0]) | set(
        np.flatnonzero(~held[0])), 40)  # fmt: skip
    assert few[held[0].sum() :].tolist() == [None] * int((~held[0]).sum())


@pytest.mark.parametrize("plain", [False, True])
def test_the_kernel_of_the_best_is_its_definition(rng, plain):
    scores = rng.integers(0, 9, (50, 30)).astype(np.float32)
    seen = [np.flatnonzero(rng.random(30) < 0.4).astype(np.int32) for _ in range(50)]
    start = np.concatenate([[0], np.cumsum([len(part) for part in seen])])
    items, best = np.empty((50, 7), np.int64), np.empty((50, 7), np.float32)
    wanted = [naive_top(row, set(part.tolist()), 7) for row, part in zip(scores.copy(), seen, strict=True)]
    original = scores.copy()
    top_items.run(plain, scores, 0, start, np.concatenate(seen), True, items, best)
    for row in range(50):
        np.testing.assert_array_equal(best[row], original[row][wanted[row]])
        assert len(set(items[row].tolist())) == 7
        assert not set(items[row].tolist()) & set(seen[row].tolist())


@pytest.mark.parametrize("plain", [False, True])
def test_fewer_items_than_are_asked_for(plain):
    items, best = np.empty((2, 4), np.int64), np.empty((2, 4), np.float32)
    scores = np.array([[1.0, -np.inf, 2.0], [0.0, 1.0, 1.0]], np.float32)
    top_items.run(plain, scores, 0, np.array([0, 0, 1]), np.array([0], np.int32), True, items, best)
    np.testing.assert_array_equal(items, [[2, 0, -1, -1], [1, 2, -1, -1]])
    np.testing.assert_array_equal(best, [[2, 1, -np.inf, -np.inf], [1, 1, -np.inf, -np.inf]])


def test_similar_items_go_along_in_what_users_think_of_them():
    model = fitted()
    table, _ = made()
    likeness = np.corrcoef(table.T)[0]
    found = model.similar_items(0, 5)
    assert 0 not in found.items
    assert likeness[found.items].mean() > np.sort(likeness)[-8]


def test_ranking_measures_by_hand():
    found = ranking_scores(np.array([[3, 1, 2], [0, 4, -1]]), np.array([0, 2, 3]), np.array([1, 7, 4]))
    gain = 1 / np.log2(3)
    np.testing.assert_allclose(found["ndcg"], np.mean([gain / (1 + gain), gain]))
    np.testing.assert_allclose(found["recall"], np.mean([0.5, 1.0]))
    np.testing.assert_allclose(found["map"], np.mean([0.5 / 2, 0.5]))


def test_new_users_are_folded_in_and_the_model_stays_as_it_was():
    table, held = made()
    some, rest = slice(0, 50), slice(50, 60)
    train = np.where(held, np.nan, table)
    model = ng.MatrixFactorization(5, verbose=False).fit(train[some])
    before = model.predict([0, 1], [0, 1])
    users, items = np.nonzero(~held[rest])
    more = ng.Ratings(users + 50, items, train[rest][users, items])
    folded = model.fold_in(more)
    np.testing.assert_array_equal(model.predict([0, 1], [0, 1]), before)
    np.testing.assert_array_equal(folded.predict([0, 1], [0, 1]), before)
    assert (model.ratings_.n_users, folded.ratings_.n_users) == (50, 60)
    users, items = np.nonzero(held[rest])
    errors = folded.predict(users + 50, items) - table[rest][users, items]
    assert np.sqrt(np.mean(errors**2)) < 0.45
    # With the items held, the optimum of these users: another sweep of theirs changes nothing.
    again = folded.fold_in(more)
    np.testing.assert_allclose(again.user_factors_.mean, folded.user_factors_.mean, atol=1e-9)
    assert not set(folded.recommend(55, 5).items.tolist()) & set(np.flatnonzero(~held[55]).tolist())


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "poisson"])
def test_chunks_bring_new_users_and_items_and_forget_nobody(likelihood):
    table, held = made()
    values = {"gaussian": table, "bernoulli": (table > 3) * 1.0, "poisson": np.maximum(np.round(table), 0)}[likelihood]
    users, items = np.nonzero(~held)
    order = np.random.default_rng(0).permutation(len(users))
    model = ng.MatrixFactorization(3, likelihood=likelihood, verbose=False)
    for part in np.array_split(order, 6):
        model.partial_fit(ng.Ratings([f"u{n}" for n in users[part]], items[part], values[users[part], items[part]]))
    assert (model.ratings_.n_users, model.ratings_.n_items, len(model.ratings_)) == (60, 40, len(users))
    whole = ng.MatrixFactorization(3, likelihood=likelihood, verbose=False).fit(np.where(held, np.nan, values))
    rows, columns = np.nonzero(held)
    names = [f"u{n}" for n in rows]
    found = np.sqrt(np.mean((model.predict(names, columns) - values[held]) ** 2))
    wanted = np.sqrt(np.mean((whole.predict(rows, columns) - values[held]) ** 2))
    assert found < 1.25 * wanted
    # A pair that comes again has its new rating.
    model.partial_fit(ng.Ratings(["u0"], [int(items[0])], [1.0]))
    assert len(model.ratings_) == len(users)


@pytest.mark.parametrize("likelihood", ["gaussian", pytest.param("bernoulli", marks=pytest.mark.slow)])
def test_who_has_features_and_no_ratings_is_predicted_from_them(likelihood):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    known = rng.normal(size=(80, 3))
    taste, trait = known @ rng.normal(size=(3, 2)) + 0.3 * rng.normal(size=(80, 2)), rng.normal(size=(2, 40))
    table = taste @ trait + 0.3 * rng.normal(size=(80, 40))
    values = table if likelihood == "gaussian" else (table > 0) * 1.0
    users, items = np.nonzero(rng.random((70, 40)) < 0.5)
    ratings = ng.Ratings([f"u{n}" for n in users], items, values[users, items])
    frame = pd.DataFrame(known, index=[f"u{n}" for n in range(80)])
    # Of likes those that are stored alone: half of the others would be likes.
    priors = None if likelihood == "gaussian" else ng.recommenders.FactorPriors(n_negatives=0)
    model = ng.MatrixFactorization(4, likelihood=likelihood, priors=priors, max_steps=60, verbose=False).fit(
        ratings, user_features=frame
    )
    assert np.diff(model.trace_["elbo"]).min() > -1e-9 * abs(model.elbo_)
    cold = np.repeat(np.arange(70, 80), 40)
    found = model.predict([f"u{n}" for n in cold], np.tile(np.arange(40), 10))
    # Probabilities on the scale of what they are of.
    found = found if likelihood == "gaussian" else np.log(found / (1 - found))
    assert np.corrcoef(found, table[70:].ravel())[0, 1] > 0.8
    assert model.posterior_["user_map"].mean().shape == (5, 3)
    assert len(model.recommend("u75", 3).items) == 3
    folded = model.fold_in(ng.Ratings(["u75", "new"], [0, 1], [1.0, 1.0]))
    assert np.isfinite(folded.predict(["u75", "new"], [2, 2])).all()


def test_features_that_do_not_fit():
    table, _ = made(n_users=4, n_items=2)
    fit = ng.MatrixFactorization(1, max_steps=1, verbose=False).fit
    with pytest.raises(ValueError, match=r"user_features must have a row for each of the 4 users in order, got 3 rows"):
        fit(table, user_features=np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"item_features\[1, 0\] = nan must be finite \(1 such\)"):
        fit(table, item_features=[[1.0], [np.nan]])
    with pytest.raises(ValueError, match=r"item_features must be a table \[ids, features\], got shape \(2,\)"):
        fit(table, item_features=[1.0, 2.0])
    counts = ng.Ratings.from_dense(np.abs(table).round())
    with pytest.raises(ValueError, match='user_features, item_features: likelihood="poisson" takes none'):
        ng.MatrixFactorization(1, likelihood="poisson").fit(counts, user_features=np.ones((4, 1)))


def test_steps_that_ran_out_are_counted_over_all_parts(rng):
    users, items = np.nonzero(rng.random((30, 20)) < 0.5)
    model = ng.MatrixFactorization(3, max_steps=9, tol=1e-12).fit(ng.Ratings(users, items, rng.normal(size=len(users))))
    assert len(model.trace_) == 9
    assert str(model.stop_).startswith("stopped at max_steps = 9 before the bound converged")
    assert "max_steps" in str(model.stop_)


def test_rows_of_user_item_and_rating_are_not_a_table_of_three_items():
    rows = np.array([[0, 7, 5], [0, 8, 3], [1, 7, 4], [2, 8, 1]])
    stars = np.random.default_rng(0).integers(1, 6, (40, 3)).astype(float)
    # Pairs that come twice, of many users, with ratings that are no whole numbers, and with ids that no rating is near.
    many = np.stack([np.arange(40) // 2, np.full(40, 3), np.arange(40) % 5], axis=1)
    twice = np.column_stack([many[:, :2] % 4, many[:, 2] + 0.5])
    for X in (rows, rows.astype(float), rows.tolist(), many, twice, stars + np.array([1e3, 0.0, 0.0])):
        with pytest.raises(ValueError, match=r"give Ratings\(X\[:, 0\], X\[:, 1\], X\[:, 2\]\)"):
            ng.MatrixFactorization(1).fit(X)
    assert ng.MatrixFactorization(1, max_steps=2, tol=0, verbose=False).fit(stars).ratings_.shape == (40, 3)


def test_tables_of_pairs_are_likes_and_can_be_predicted():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.permutation(600)[:300], 20)
    pairs = pd.DataFrame({"user": [f"u{n}" for n in users], "item": items})
    settings = {"likelihood": "bernoulli", "max_steps": 5, "verbose": False}
    model = ng.MatrixFactorization(2, **settings).fit(pairs[:250])
    same = ng.MatrixFactorization(2, **settings).fit(ng.Ratings(pairs["user"][:250], pairs["item"][:250], np.ones(250)))
    np.testing.assert_array_equal(model.predict(pairs), same.predict(pairs["user"], pairs["item"]))
    assert 0 < model.score(pairs[250:], metric="ndcg") <= 1
    with pytest.raises(ValueError, match="if these are likes alone, leave out all other columns"):
        model.fit(pairs.assign(when=0))
    with pytest.raises(ValueError, match=r'all ratings are 1.*use likelihood="bernoulli"'):
        ng.MatrixFactorization(2, max_steps=2, verbose=False).fit(pairs)


def test_unknown_users_and_items_are_predicted_from_the_prior(caplog):
    """A typing mistake is told by the log, a wrong type of id by an error, and the strict may ask for errors."""
    ratings = ng.data.Ratings(["ann", "bob", "ann", "cho", "bob"], ["x", "x", "y", "y", "z"], [5, 3, 4, 2, 1])
    model = ng.MatrixFactorization(2, max_steps=20).fit(ratings)
    with caplog.at_level("INFO", "natgrad"):
        mean, std = model.predict(["ann", "zoe", "ann"], ["x", "x", "new"], return_std=True)
    assert "1 users and 1 items are not among those fitted" in caplog.text
    assert mean[0] == model.predict(["ann"], ["x"])[0]
    assert min(std[1:]) > std[0]
    assert mean[1] == model.predict([("zoe", "x"), ("ann", "y")])[0]
    # A pair of which nothing is known is predicted alone as beside others.
    alone, beside = model.predict(["zoe"], ["new"]), model.predict(["ann", "zoe"], ["x", "new"])
    assert alone[0] == pytest.approx(beside[1], rel=1e-12)
    low, high = model.interval(["zoe"], ["x"])
    assert low[0] < mean[1] < high[0]
    np.testing.assert_array_equal(model.predict(ratings), model.predict(ratings.pairs()[0]))
    for call in (model.predict, model.interval):
        with pytest.raises(ValueError, match=r"users\[0\] = 'zoe' is not among the users"):
            call(["zoe"], ["x"], unknown="error")
        with pytest.raises(ValueError, match='unknown must be "prior" or "error"'):
            call(["zoe"], ["x"], unknown="ignore")
    numbers = ng.MatrixFactorization(2, max_steps=2).fit(ng.data.Ratings([42, 43, 42], [1, 1, 2], [1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="The text '42' is not the int 42, which is: pass 42"):
        numbers.predict(["42"], [1])


@pytest.mark.parametrize("inference", ["vb", "gibbs"])
def test_ratings_around_a_million_are_ranked_as_those_around_zero(inference):
    """Scores are ranked in single precision, which has a step of 0.06 there."""
    rng = np.random.default_rng(4)
    users, items = np.divmod(rng.choice(900, 700, replace=False), 30)
    values = (rng.normal(size=(30, 2))[users] * rng.normal(size=(30, 2))[items]).sum(1) + 0.3 * rng.normal(size=700)
    near, far = (
        ng.MatrixFactorization(
            3, max_steps=20, inference=inference, n_sweeps=6 if inference == "gibbs" else None, verbose=False
        ).fit(ng.Ratings(users, items, values + shift))
        for shift in (0.0, 1e6)
    )
    for options in ({}, {"quantile": 0.2}, {"draw": 3}, {"diversity": 0.4}):
        here, there = (model.recommend(n=30, exclude_seen=False, **options) for model in (near, far))
        assert (here.items == there.items).mean() > 0.995, options  # but for ties in the last digits
        np.testing.assert_allclose(there.scores - 1e6, here.scores, atol=2e-5)
    visitor = [model.recommend_for([1, 2], ratings=[s + 1.0, s - 1.0]) for model, s in ((near, 0.0), (far, 1e6))]
    assert visitor[0].items.tolist() == visitor[1].items.tolist()
