"""`ItemWishart` and `Stacked`: the exact posterior, the ridge by leave-one-user-out errors, weights on held-out likes."""

import numpy as np
import pytest
from scipy import sparse

import natgrad as ng
from natgrad.families import Wishart
from natgrad.recommenders import ItemWishart, Stacked
from natgrad.recommenders.likes import _loo_error


def likes_of(rng, users=80, items=14):
    kind = rng.integers(2, size=users)
    table = rng.random((users, items)) < np.where(kind[:, None] == np.arange(items) % 2, 0.5, 0.08)
    table[:, 0] |= ~table.any(1)
    return table.astype(float), ng.Ratings.numbered(
        *table.nonzero(), np.ones(table.sum()), np.arange(users), np.arange(items)
    )


def weights_of(table, ridge):
    inverse = np.linalg.inv(table.T @ table + ridge * np.eye(table.shape[1]))
    weights = -inverse / np.diagonal(inverse)
    np.fill_diagonal(weights, 0.0)
    return weights


def test_the_posterior_the_evidence_and_the_scores_are_exact(rng):
    table, likes = likes_of(rng)
    model = ItemWishart(ridge=2.5).fit(likes)
    n, p = table.shape
    prior, family = (np.diag(np.full(p, -1.25)), np.asarray(-0.5)), Wishart()
    posterior = prior[0] - 0.5 * table.T @ table, prior[1] + 0.5 * n
    for found, wanted in zip(model.posterior_["items"].lam, posterior, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    evidence = family.log_normalizer(posterior) - family.log_normalizer(prior) - 0.5 * n * p * np.log(2 * np.pi)
    assert model.elbo_ == pytest.approx(float(evidence), rel=1e-10)
    np.testing.assert_allclose(model.scores(), table @ weights_of(table, 2.5), atol=1e-5)
    assert model.inference_ == f"exact, a Wishart over {p} items"


def test_the_error_of_a_ridge_is_that_of_fits_without_each_user(rng):
    table, _ = likes_of(rng, 20, 6)
    errors = []
    for i in range(len(table)):
        weights = weights_of(np.delete(table, i, 0), 3.0)
        errors.append((table[i] - table[i] @ weights) ** 2)
    found = _loo_error(sparse.csr_matrix(table), table.T @ table, 3.0)
    assert found == pytest.approx(np.mean(errors), rel=1e-9)


def test_the_ridge_is_near_the_best_of_a_fine_grid(rng):
    table, likes = likes_of(rng, 300, 20)
    grid = np.geomspace(0.1, 3000, 200)
    errors = [_loo_error(sparse.csr_matrix(table), table.T @ table, ridge) for ridge in grid]
    own = _loo_error(sparse.csr_matrix(table), table.T @ table, ItemWishart().fit(likes).ridge_)
    assert own < min(errors) + 0.02 * (max(errors) - min(errors))


def test_lists_leave_out_what_is_liked_and_rare_items_and_unknown_users_have_popularity(rng):
    table, likes = likes_of(rng)
    model = ItemWishart(ridge=1.0, max_items=5).fit(likes)
    assert len(model.items_) == 5
    assert set(np.flatnonzero(model.scores().any(0))) <= set(model.items_)
    lists = model.recommend(n=14).items
    for i, row in enumerate(lists):
        assert not set(row[row != None].tolist()) & set(np.flatnonzero(table[i]).tolist())  # noqa: E711
    assert model.recommend(3, n=2, exclude_seen=False).items.shape == (2,)
    extra = ng.Ratings.numbered(likes.users, likes.items, likes.values, np.arange(81), likes.item_ids)
    alone = ItemWishart(ridge=1.0).fit(extra).recommend(80, n=3)
    assert alone.items.tolist() == np.argsort(-table.sum(0), kind="stable")[:3].tolist()


class Fixed:
    """Scores that no fit changes."""

    def __init__(self, table=None):
        self.table = table

    def get_params(self, deep=True):
        return {"table": self.table}

    def fit(self, X):
        return self

    def scores(self, users):
        return self.table[users]


def test_weights_go_to_who_ranks_held_out_likes_well(rng):
    table, likes = likes_of(rng, 300, 20)
    noise, truth = rng.normal(size=table.shape), table + 0.5 * rng.normal(size=table.shape)
    model = Stacked([Fixed(noise), Fixed(truth)], seed=2).fit(likes)
    assert sum(model.weights_) == pytest.approx(1.0)
    assert model.weights_[1] > 0.6
    ranked = model.recommend(0, n=20).items
    assert not set(ranked[ranked != None].tolist()) & set(np.flatnonzero(table[0]).tolist())  # noqa: E711
    mixed = Stacked([ItemWishart(), ng.MatrixFactorization(2, likelihood="bernoulli")]).fit(likes)
    assert mixed.scores([3, 4]).shape == (2, 20)
    assert min(mixed.weights_) >= 0


@pytest.mark.parametrize(("make", "message"), [
    (lambda: ItemWishart(ridge=0.0), "ridge must be > 0"),
    (lambda: Stacked([]), "recommenders is empty"),
    (lambda: Stacked([ItemWishart()], held_out=1.0), r"held_out must lie in \(0, 1\)"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(rng, make, message):
    with pytest.raises(ValueError, match=message):
        make().fit(likes_of(rng)[1])
