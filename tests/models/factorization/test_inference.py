"""Which inference a factorisation runs: what `inference=` says, and nothing else; who predicts, and what an update may move."""

from __future__ import annotations

import numpy as np
import pytest

import natgrad as ng

GIBBS = {"n_factors": 3, "inference": "gibbs", "n_sweeps": 12, "verbose": False}


def some_ratings(n: int = 900, seed: int = 0, users: int = 40, items: int = 30) -> ng.Ratings:
    rng = np.random.default_rng(seed)
    key = rng.choice(users * items, n, replace=False)
    u, i = key // items, key % items
    signal = (rng.normal(size=(users, 2))[u] * rng.normal(size=(items, 2))[i]).sum(1)
    return ng.Ratings(u, i, 3.0 + signal + 0.5 * rng.normal(size=n), shape=(users, items))


def all_pairs(model: ng.MatrixFactorization) -> np.ndarray:
    users, items = model.ratings_.user_ids, model.ratings_.item_ids
    return model.predict(np.repeat(users, len(items)), np.tile(items, len(users))).reshape(len(users), len(items))


def test_all_that_a_sampled_fit_publishes_is_of_its_draws() -> None:
    model = ng.MatrixFactorization(**GIBBS).fit(some_ratings())
    assert model.inference_ == "Gibbs from a VB start, 12 sweeps (mean of the last 8)"
    assert model.posterior_ is model.draws_
    assert np.isnan(model.elbo_)
    assert model.user_factors_ is None
    draws, k = model.draws_, 3
    u, v = (draws[name].values[0].astype(float) for name in "uv")
    products = np.einsum("duk,dik->dui", u[..., :k], v[..., :k]) + u[:, :, k, None] + v[:, None, :, k] + model.offset_
    spread = products.std(0) / np.sqrt(len(u))
    assert (
        np.abs((products.mean(0) - all_pairs(model)) / spread).mean() < 3.0
    )  # E[f | rest] averaged, in the place of f
    np.testing.assert_allclose(model.user_biases_.mean, u[..., k].mean(0), atol=1e-6)


@pytest.mark.parametrize("call", ["partial_fit", "fold_in", "because", "linear_response"])
def test_what_needs_q_refuses_before_a_number_moves(call: str) -> None:
    model = ng.MatrixFactorization(**GIBBS).fit(some_ratings())
    before = all_pairs(model)
    arguments = {"because": (0, 3), "linear_response": ()}.get(call, (ng.Ratings([0], [1], [3.0]),))
    with pytest.raises((ValueError, TypeError), match="gibbs"):
        getattr(model, call)(*arguments)
    np.testing.assert_array_equal(all_pairs(model), before)
    model.inference = "vb"  # the fit was sampled all the same
    model.n_sweeps = None
    with pytest.raises((ValueError, TypeError), match="gibbs"):
        getattr(model, call)(*arguments)


def test_an_update_samples_again() -> None:
    model = ng.MatrixFactorization(**GIBBS).fit(some_ratings())
    kind = model.inference_
    model.update(ng.Ratings([0, 99], [1, 1], [3.0, 4.0]))
    assert model.inference_ == kind
    assert model.draws_["u"].values.shape[2] == 41
    model.forget({"user": [3]})
    assert (model.inference_, model.draws_["u"].values.shape[2]) == (kind, 40)


def test_one_more_rating_hardly_moves_other_users() -> None:
    """On 20,000 ratings it moved them by up to 1.11 when draws were dropped."""
    model = ng.MatrixFactorization(3, verbose=False).fit(some_ratings(20_500, users=300, items=100))
    before, kind = all_pairs(model), model.inference_.split(",")[0]
    model.partial_fit(ng.Ratings([0], [1], [5.0]))
    assert np.abs(all_pairs(model) - before)[1:].max() < 0.05
    assert model.inference_.split(",")[0] == kind


def test_a_rating_as_predicted_hardly_moves_other_users() -> None:
    """A tenth of a standard deviation: q adds E[uuᵀ], not E[u]E[u]ᵀ, to the precision of an item, which shrinks its mean.

    Where the draws of a fit were dropped, predictions moved by more than a deviation.
    """
    model = ng.MatrixFactorization(3, verbose=False).fit(some_ratings())
    before, users, items = all_pairs(model), *np.indices(all_pairs(model).shape).reshape(2, -1)
    spread = model.predict(users, items, return_std=True)[1].reshape(before.shape)
    model.partial_fit(ng.Ratings([0], [1], model.predict([0], [1])))
    moved = np.abs(all_pairs(model) - before)[1:] / spread[1:]
    assert moved.max() < 0.1


def test_arguments_of_the_other_inference_are_errors() -> None:
    ratings = some_ratings()
    with pytest.raises(ValueError, match=r'n_sweeps=50 belongs to inference="gibbs"'):
        ng.MatrixFactorization(n_sweeps=50).fit(ratings)
    with pytest.raises(ValueError, match=r"executor=.* samples in this process"):
        ng.MatrixFactorization(inference="gibbs", executor=object()).fit(ratings)
    with pytest.raises(ValueError, match=r'inference="gibbs" samples Gaussian ratings'):
        ng.MatrixFactorization(likelihood="ordinal", inference="gibbs").fit(
            ng.Ratings([0, 0, 1, 1], [0, 1, 0, 1], [1, 2, 2, 3])
        )


def test_unknown_users_leave_the_others_what_draws_say() -> None:
    model = ng.MatrixFactorization(**GIBBS).fit(some_ratings())
    alone, std = model.predict([0, 1], [2, 3], return_std=True)
    beside, wide = model.predict([0, 999, 1], [2, 2, 3], return_std=True)
    np.testing.assert_array_equal(beside[[0, 2]], alone)
    np.testing.assert_array_equal(wide[[0, 2]], std)
    assert wide[1] > std.max()


def test_vectors_of_draws_are_exact() -> None:
    model = ng.MatrixFactorization(**GIBBS).fit(some_ratings())
    whole, wanted = model.vectors(), all_pairs(model)
    np.testing.assert_allclose(whole.users @ whole.items.T, wanted, atol=1e-4)


@pytest.mark.parametrize("unit", [1e-45, 1e40])
def test_draws_of_ratings_in_any_unit_are_the_same(unit: float) -> None:
    """Biases have the unit of ratings, and single precision ends at 1e-38 and 1e38."""
    ratings = some_ratings()
    other = ng.Ratings(ratings.users, ratings.items, unit * ratings.values, shape=(40, 30))
    here, there = (ng.MatrixFactorization(**GIBBS).fit(data).predict([0, 1, 2], [3, 4, 5]) for data in (ratings, other))
    np.testing.assert_allclose(there / unit, here, rtol=1e-4)
