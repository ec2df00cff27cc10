"""New users: what is folded in equals a fit of their rows with all else held, however it is computed, and touches nobody else."""

import pickle

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.datasets.generated import paper_ratings
from natgrad.models.factorization.likelihoods import folded_state
from natgrad.models.factorization.poisson import CountsProblem

KINDS = {
    "one noise": {},
    "noise of both": {"noise": "both"},
    "no biases": {"noise": "user", "priors": ng.recommenders.FactorPriors(biases=False)},
    "likes and dislikes": {"likelihood": "bernoulli", "priors": ng.recommenders.FactorPriors(n_negatives=0)},
    "counts": {"likelihood": "poisson"},
    "known precisions": {
        "noise": 1.0, "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False), 
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS, ids=list(KINDS))
def model(request):
    ratings = paper_ratings(60, 40, 900)
    if "likelihood" in KINDS[request.param]:
        values = (ratings.values > 3) * 1.0 if request.param == "likes and dislikes" else ratings.values
        ratings = ng.data.Ratings(ratings.users, ratings.items, values, shape=ratings.shape)
    return ng.MatrixFactorization(3, verbose=False, max_steps=30, **KINDS[request.param]).fit(ratings)


def of_visitors(model, users):
    items = np.array([3, 8, 11, 30, 5, 2])
    values = np.array([1.0, 0, 1, 1, 0, 1]) if model.likelihood == "bernoulli" else np.array([5.0, 2, 4, 1, 3, 3])
    return ng.data.Ratings(users, items, values)


def test_new_users_together_one_by_one_and_beside_known_ones_are_the_same(model):
    both = model.fold_in(of_visitors(model, [900] * 3 + [901] * 3))
    one = model.fold_in(of_visitors(model, [900] * 3 + [901] * 3).restricted(np.array([0])))
    known = model.ratings_.user_ids[5]
    beside = model.fold_in(of_visitors(model, [900] * 3 + [known] * 3))  # somebody known: the other way
    items = np.arange(40)
    for other in (one, beside):
        np.testing.assert_allclose(
            both.predict([900] * 40, items), other.predict([900] * 40, items), rtol=1e-5, atol=1e-6
        )
    users = np.repeat(model.ratings_.user_ids[:4], 40)
    np.testing.assert_array_equal(both.predict(users, np.tile(items, 4)), model.predict(users, np.tile(items, 4)))
    assert both.ratings_.n_users == 62
    assert model.ratings_.n_users == 60


def test_a_pair_that_comes_again_has_its_new_value_and_others_stay():
    first = ng.data.Ratings(["a", "a", "b", "c"], ["x", "y", "x", "z"], [1.0, 2, 3, 4])
    more = ng.data.Ratings(["a", "d", "c", "a"], ["x", "x", "w", "w"], [9.0, 8, 7, 6])
    found = first.extended(more)
    pairs = zip(found.user_ids[found.users], found.item_ids[found.items], found.values, strict=True)
    table = {(str(user), str(item)): value for user, item, value in pairs}
    assert table == {
        ("a", "y"): 2.0, ("b", "x"): 3.0, ("c", "z"): 4.0, ("a", "x"): 9.0, ("d", "x"): 8.0, ("c", "w"): 7.0, ("a", "w"): 6.0
    }  # fmt: skip
    assert len(found) == 7


def test_new_users_are_answered_for_alone_as_among_all(model):
    new = of_visitors(model, [900] * 3 + [901] * 3)
    alone, whole = model.fold_in(new), model.fold_in(new)
    assert whole.ratings_.n_users == 62  # asked for: the rows of everybody are put together
    assert "_newcomers" in vars(alone)
    assert "_newcomers" not in vars(whole)
    items = np.arange(40)
    for users in (900, [901, 900]):
        for a, b in zip(alone.recommend(users, n=5), whole.recommend(users, n=5), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    for a, b in zip(alone.predict([900] * 40, items, True), whole.predict([900] * 40, items, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert "_newcomers" in vars(alone)  # nothing was copied so far
    known = model.ratings_.user_ids[3]
    both = alone.recommend([known, 900], n=5)
    np.testing.assert_array_equal(both.items, whole.recommend([known, 900], n=5).items)
    assert "_newcomers" not in vars(alone)
    for name in ("user_factors_", "item_factors_"):
        np.testing.assert_array_equal(getattr(alone, name).mean, getattr(whole, name).mean)
    assert alone.n_factors_ == whole.n_factors_
    again = model.fold_in(new).fold_in(of_visitors(model, ["late"] * 6))  # on top of one that is not put together yet
    assert again.recommend("late", n=3).items.shape == (3,)
    assert again.ratings_.n_users == 63
    with pytest.raises(ValueError, match=r"users\[0\] = 'nobody'"):
        model.fold_in(new).recommend("nobody")


def test_a_copy_with_new_users_is_saved_and_pickled(model, tmp_path):
    new = of_visitors(model, [900] * 6)
    model.fold_in(new).save(tmp_path / "folded.natgrad")
    loaded, items = ng.load(tmp_path / "folded.natgrad"), np.arange(40)
    expected = model.fold_in(new).predict([900] * 40, items)
    np.testing.assert_allclose(loaded.predict([900] * 40, items), expected, rtol=1e-9)
    folded = pickle.loads(pickle.dumps(model.fold_in(new)))
    np.testing.assert_allclose(folded.predict([900] * 40, items), expected, rtol=1e-12)


def test_what_is_known_of_others_is_not_taken_for_that_of_new_users():
    ratings = paper_ratings(60, 40, 900)
    features = 5.0 * np.random.default_rng(0).normal(size=(60, 2))
    fit = ng.MatrixFactorization(2, max_steps=10, tol=0, verbose=False).fit(ratings, user_features=features)
    new = fit.fold_in(of_visitors(fit, [900] * 6))
    beside = of_visitors(fit, [900] * 6).extended(ng.data.Ratings([3], [1], [4.0]))
    items = np.arange(40)
    np.testing.assert_allclose(
        new.predict([900] * 40, items), fit.fold_in(beside).predict([900] * 40, items), rtol=1e-9
    )
    with pytest.raises(AttributeError, match="ratings_"):
        ng.MatrixFactorization().ratings_  # noqa: B018


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"noise": "item"},
        {"priors": ng.recommenders.FactorPriors(biases=False)},
        {"priors": ng.recommenders.FactorPriors(precision=1.0)},
    ],
    ids=str,
)
def test_reasons_add_up_to_the_prediction(settings):
    ratings = paper_ratings(60, 40, 900)
    fit = ng.MatrixFactorization(3, max_steps=20, tol=0, verbose=False, **settings).fit(ratings)
    new = ng.data.Ratings(["zoe"] * 4, [3, 8, 11, 30], [5.0, 1.0, 4.0, 2.0])
    folded = fit.fold_in(new)  # whose vector is what items and ratings say of it, to the last digit
    bias = 0.0 if fit.item_biases_ is None else fit.item_biases_.mean[7]
    reasons = folded.because("zoe", 7, n=10)
    assert sorted(reasons.items.tolist()) == [3, 8, 11, 30]
    expected = folded.predict(["zoe"], [7])[0] - fit.offset_ - bias
    assert float(reasons.scores.sum()) == pytest.approx(expected, abs=1e-5)  # of single precision
    assert (np.diff(reasons.scores) <= 0).all()
    told = fit.because(fit.ratings_.user_ids[5], 7, n=3)  # of somebody known
    assert len(told.items) == 3


@pytest.mark.parametrize("likelihood", ["ordinal", "bernoulli", "poisson"])
def test_levels_likes_and_counts_have_reasons_that_add_up(likelihood):
    ratings = paper_ratings(60, 40, 900)
    taste = ratings.values - ratings.values.mean()
    seen = {"ordinal": np.clip(np.round(3 + taste), 1, 4), "bernoulli": taste > 0, "poisson": np.round(np.exp(taste))}
    told = ng.data.Ratings(ratings.users, ratings.items, np.minimum(seen[likelihood].astype(float), 9.0))
    alone = {"priors": ng.recommenders.FactorPriors(n_negatives=0)} if likelihood == "bernoulli" else {}
    fit = ng.MatrixFactorization(3, max_steps=15, tol=0, verbose=False, likelihood=likelihood, **alone).fit(told)
    given = {"ordinal": [4.0, 1.0, 3.0, 2.0], "bernoulli": [1.0, 0.0, 0.0, 1.0], "poisson": [6.0, 1.0, 0.0, 2.0]}
    folded = fit.fold_in(ng.data.Ratings(["zoe"] * 4, [3, 8, 11, 30], given[likelihood]))
    found = folded.because("zoe", 7, n=10)
    assert sorted(found.items.tolist()) == [3, 8, 11, 30]
    if likelihood == "poisson":  # the rest is what the prior of shape 0.3 adds
        theta, beta = (folded.posterior_[name].parameters for name in ("u", "v"))
        rest = (0.3 / theta["rate"][-1] * beta["shape"][7] / beta["rate"][7]).sum()
        assert (found.scores[:-1] > 0).all()
        assert (found.items[-1], found.scores[-1]) == (11, 0.0)  # a count of none
    else:
        rest = fit.item_biases_.mean[7] + fit.offset_
    users, items, _, _ = folded.vectors()
    assert float(found.scores.sum()) + rest == pytest.approx(float(users[-1] @ items[7]), abs=2e-5)


def test_vectors_with_known_precisions_have_reasons():
    ratings = paper_ratings(60, 40, 900)
    bare = {"noise": 1.0, "max_steps": 15, "tol": 0, "verbose": False}
    fit = ng.MatrixFactorization(3, priors=ng.recommenders.FactorPriors(precision=1.0, biases=False), **bare).fit(
        ratings
    )
    folded = fit.fold_in(ng.data.Ratings(["zoe"] * 4, [3, 8, 11, 30], [5.0, 1.0, 4.0, 2.0]))
    assert float(folded.because("zoe", 7).scores.sum()) == pytest.approx(folded.predict(["zoe"], [7])[0], abs=1e-5)


def test_new_users_of_counts_are_fitted_as_by_sweeps_over_all_items():
    """What the engine's sweeps say, to the last digits, in closed form."""
    rng = np.random.default_rng(2)
    counts = ng.data.Ratings(*np.nonzero(np.ones((30, 25))), rng.poisson(1.0, 750).astype(float))
    model = ng.MatrixFactorization(3, likelihood="poisson", max_steps=10, tol=0, verbose=False).fit(counts)
    known, kind = model.result_.state, model._kind
    more = ng.data.Ratings.numbered(
        np.repeat([30, 31], 6), np.tile(np.arange(3, 9), 2), rng.poisson(2.0, 12) * 1.0, np.arange(32), np.arange(25)
    )
    rows = np.array([30, 31])
    larger = kind.extended(known, more, 0)
    problem = CountsProblem(more.restricted(rows), 3)
    swept = folded_state(problem, ("u", "user_rate"), larger, rows, 30)
    found = kind.folded(larger, more.restricted(rows), rows, 10)
    for name in ("u", "user_rate", "v", "item_rate"):
        for side in ("lam", "mu"):
            for one, other in zip(getattr(found, side)[name], getattr(swept, side)[name], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-10)
