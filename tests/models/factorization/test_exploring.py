"""Ranking by quantiles and draws, and vectors for other libraries."""

import numpy as np
import pytest

import natgrad as ng


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    key = rng.choice(30 * 25, 260, replace=False)
    users, items = key // 25, key % 25
    values = 3.0 + (rng.normal(size=(30, 2))[users] * rng.normal(size=(25, 2))[items]).sum(1)
    ratings = ng.data.Ratings([f"u{u:02}" for u in users], [f"i{i:02}" for i in items], values)
    bare = {
        "noise": 1.0,
        "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False),
    }
    return {
        "full": ng.MatrixFactorization(3, max_steps=20).fit(ratings),
        "known": ng.MatrixFactorization(3, max_steps=20, **bare).fit(ratings),
        "likes": ng.MatrixFactorization(
            3, max_steps=12, likelihood="bernoulli", priors=ng.recommenders.FactorPriors(n_negatives=2)
        ).fit(ng.data.Ratings(users, items, np.ones(len(users)))),
    }


def test_vectors_multiply_to_the_scores_of_recommend(models):
    for name in ("full", "known", "likes"):
        model = models[name]
        users, items, user_ids, item_ids = model.vectors()
        assert users.dtype == items.dtype == np.float32
        assert users.flags.c_contiguous
        found = model.recommend(user_ids[4], n=3, exclude_seen=False)
        scores = users[4] @ items.T
        np.testing.assert_array_equal(found.items, item_ids[np.argsort(-scores, kind="stable")[:3]])
        np.testing.assert_allclose(found.scores, np.sort(scores)[::-1][:3], rtol=1e-5)
    model = models["full"]
    np.testing.assert_allclose(users.shape[0], 30)
    everything = model.vectors()
    wanted = model.predict(np.repeat(everything.user_ids, 25), np.tile(everything.item_ids, 30))
    np.testing.assert_allclose((everything.users @ everything.items.T).ravel(), wanted, rtol=1e-4, atol=1e-5)


def test_quantiles_are_those_of_draws_of_the_vectors(models):
    for name in ("full", "known"):
        model = models[name]
        user = model.ratings_.user_ids[2]
        drawn = np.array([
            _scores(model, model.recommend(user, n=25, exclude_seen=False, draw=seed)) for seed in range(600)
        ])  # fmt: skip
        middle, low = (
            _scores(model, model.recommend(user, n=25, exclude_seen=False, quantile=q)) for q in (0.5, 0.1586553)
        )
        error = drawn.std(0) / np.sqrt(600)
        assert (np.abs(drawn.mean(0) - middle) < 5 * error).all()
        np.testing.assert_allclose(middle - low, drawn.std(0), rtol=0.2)
        np.testing.assert_allclose(middle, _scores(model, model.recommend(user, n=25, exclude_seen=False)), rtol=1e-4)


@pytest.fixture(scope="module")
def counts():
    values = np.random.default_rng(3).poisson(1.5, size=(14, 12)).astype(float)
    return ng.MatrixFactorization(2, likelihood="poisson", max_steps=30, tol=0, verbose=False).fit(values)


def test_counts_are_ranked_by_quantiles_and_draws_of_their_rates(counts):
    everything = {"n": 12, "exclude_seen": False}
    drawn = np.array([_scores(counts, counts.recommend(3, draw=seed, **everything)) for seed in range(3000)])
    # The law of each draw is that of θ·β under q: its moments, and quantiles that a Gamma of the same moments has.
    mean, sd = counts.predict([3] * 12, np.arange(12), return_std=True)
    np.testing.assert_allclose(drawn.mean(0), mean, rtol=0.05)
    np.testing.assert_allclose(drawn.std(0), np.sqrt(sd**2 - mean), rtol=0.08)
    for level in (0.1, 0.5, 0.9):
        found = _scores(counts, counts.recommend(3, quantile=level, **everything))
        below = (drawn < found).mean(0)
        np.testing.assert_allclose(below, level, atol=0.04)
    np.testing.assert_array_equal(*(counts.recommend(n=5, draw=4).items for _ in range(2)))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "noise": 1.0,
            "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False),
        },
    ],
    ids=str,
)
def test_after_gibbs_lists_are_those_of_its_draws(models, settings):
    known = models["full"].ratings_
    noisy = known.values + np.random.default_rng(1).normal(size=len(known))
    ratings = ng.data.Ratings(known.user_ids[known.users], known.item_ids[known.items], noisy)
    model = ng.MatrixFactorization(3, max_steps=10, inference="gibbs", n_sweeps=60, **settings).fit(ratings)
    kept, everything = model._kept_draws, {"n": 25, "exclude_seen": False}
    each = np.array([np.einsum("uk,ik->ui", u, v) for u, v in zip(kept.user[..., :3], kept.item[..., :3], strict=True)])
    if model.user_biases_ is not None:
        each += kept.user[:, :, None, 3] + kept.item[:, None, :, 3] + model.offset_
    users = model.ratings_.user_ids
    for seed in (0, 1):
        found = _scores(model, model.recommend(users[2], draw=seed, **everything))
        assert np.abs(each[:, 2] - found).max(1).min() < 1e-5  # one of the draws
    lists = {tuple(model.recommend(users[2], draw=seed, **everything).items) for seed in range(30)}
    assert len(lists) > 10
    mean = model.predict(np.repeat(users, 25), np.tile(model.ratings_.item_ids, 30)).reshape(30, 25)
    for level in (0.1, 0.5, 0.9):
        wanted = np.quantile(each, level, axis=0) - each.mean(0) + mean
        found = model.recommend(quantile=level, **everything)
        rows = [_scores(model, type(found)(*one)) for one in zip(*found, strict=True)]
        np.testing.assert_allclose(rows, wanted, atol=2e-5)


def _scores(model, found):
    order = np.argsort(model.ratings_.find_items(found.items))
    return found.scores[order].astype(np.float64)


def test_draws_repeat_with_their_seed_and_respect_filters(models):
    model = models["likes"]
    first, again, other = (model.recommend(n=5, draw=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.items, again.items)
    assert (first.items != other.items).any()
    only = model.recommend(n=2, quantile=0.2, only=[3, 4, 5]).items
    assert {item for item in only.ravel() if item is not None} <= {3, 4, 5}


def test_files_have_what_vectors_have(models, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    model = models["full"]
    users, items = model.export_factors(tmp_path / "out")
    table = parquet.read_table(items).to_pydict()
    found = model.vectors()
    assert table["id"] == found.item_ids.tolist()
    np.testing.assert_allclose(np.array(table["vector"]), found.items)
    np.testing.assert_allclose(np.array(table["sd"]), model.item_factors_.sd)
    np.testing.assert_allclose(parquet.read_table(users).column("bias").to_numpy(), model.user_biases_.mean)


def test_what_cannot_be_asked_for_says_so(models):
    with pytest.raises(ValueError, match=r"quantile must lie in \(0, 1\)"):
        models["full"].recommend("u00", quantile=1.5)
    with pytest.raises(ValueError, match="give one of them"):
        models["full"].recommend("u00", quantile=0.5, draw=1)


@pytest.mark.parametrize("by", [None, "both"])
def test_a_visitor_gets_what_a_folded_user_gets(models, by):
    known = models["full"].ratings_
    model = ng.MatrixFactorization(3, max_steps=15, noise=by).fit(known)
    liked, given = known.item_ids[[2, 7, 11]], np.array([5.0, 1.0, 4.0])
    found = model.recommend_for(liked, n=4, ratings=given)
    folded = model.fold_in(ng.data.Ratings(["new"] * 3, liked, given)).recommend("new", n=4)
    np.testing.assert_array_equal(found.items, folded.items)
    np.testing.assert_allclose(found.scores, folded.scores, rtol=2e-4)
    with pytest.raises(ValueError, match="a number for each of 3 items"):
        model.recommend_for(liked, ratings=[1.0])


@pytest.mark.parametrize("name", ["full", "known", "likes"])
def test_diverse_lists_trade_score_for_unlikeness(models, name):
    model = models[name]
    plain = model.recommend(n=5)
    np.testing.assert_array_equal(model.recommend(n=5, diversity=0).items, plain.items)
    several = model.recommend(n=5, diversity=0.7)
    np.testing.assert_array_equal(several.items[:, 0], plain.items[:, 0])
    assert all(len(set(row)) == 5 for row in several.items.tolist())
    within = [np.mean([_alike_within(model, row) for row in found.items]) for found in (plain, several)]
    assert within[1] < within[0]
    assert (several.scores.mean(1) <= plain.scores.mean(1) + 1e-6).all()
    # By hand, of one user: the second item has the best trade with the first.
    user = model.ratings_.user_ids[3]
    every = model.recommend(user, n=25)
    rest = np.array([item is not None for item in every.items])
    items, scores = model.ratings_.find_items(every.items[rest]), every.scores[rest].astype(np.float64)
    trade = 0.3 * (scores - scores[0]) / scores.std() - 0.7 * _correlations(model)[items[0], items]
    wanted = items[1:][np.argmax(trade[1:])]
    assert model.ratings_.find_items(several.items[3, 1:2])[0] == wanted


def _correlations(model):
    users, items = model._predictor.vectors()
    table = users @ items.T
    table -= table.mean(1, keepdims=True)
    return np.corrcoef(table.T)


def _alike_within(model, row):
    places = model.ratings_.find_items(row)
    return _correlations(model)[np.ix_(places, places)][np.triu_indices(len(places), 1)].mean()


def test_diversity_of_new_users_filters_and_wrong_values(models):
    model = models["full"]
    folded = model.fold_in(ng.data.Ratings(["zoe"] * 3, ["i01", "i02", "i03"], [5.0, 1.0, 4.0]))
    found = folded.recommend("zoe", n=4, diversity=0.8, only=["i05", "i06", "i07"])
    assert sorted(found.items[:3].tolist()) == ["i05", "i06", "i07"]
    assert found.items[3] is None
    assert found.scores[0] == folded.recommend("zoe", n=1, only=["i05", "i06", "i07"]).scores[0]
    assert model.recommend("u03", n=40, diversity=1).items.shape == (40,)
    for wrong in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match=r"diversity must lie in \[0, 1\]"):
            model.recommend("u03", diversity=wrong)
    with pytest.raises(TypeError, match="diversity must be a number, got 'much'"):
        model.recommend("u03", diversity="much")
