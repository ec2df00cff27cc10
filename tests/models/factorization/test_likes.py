"""One-class factorisation: likes, with every pair that is not stored a zero of less weight."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.factorization.sweep import RatingSweep

SETTINGS = {"likelihood": "bernoulli", "verbose": False}


def table_of(rng, users=40, items=25, share=0.3):
    taste = rng.normal(size=(users, 2)) @ rng.normal(size=(2, items)) + rng.normal(size=(users, items))
    return (taste > np.quantile(taste, 1.0 - share)).astype(float)


def likes_of(table, extra=()):
    users, items = table.nonzero()
    pairs = [(i, j, 1.0) for i, j in zip(users, items, strict=True)] + list(extra)
    return ng.Ratings.numbered(
        np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]), np.array([p[2] for p in pairs]),
        np.arange(table.shape[0]), np.arange(table.shape[1]),
    )  # fmt: skip


def test_with_full_weight_it_is_the_factorisation_of_the_whole_table(rng):
    table = table_of(rng)
    both = {
        "priors": ng.recommenders.FactorPriors(precision="learn", n_negatives=1e12),
        "max_steps": 30,
        "tol": 0.0,
        **SETTINGS,
    }
    likes = ng.MatrixFactorization(3, **both).fit(likes_of(table))
    whole = ng.MatrixFactorization(
        3, priors=ng.recommenders.FactorPriors(precision="learn", biases=False), max_steps=30, tol=0.0, verbose=False
    ).fit(table)
    assert likes.elbo_ == pytest.approx(whole.elbo_, rel=1e-9)
    np.testing.assert_allclose(likes.scores(), whole.scores(), atol=1e-6)
    np.testing.assert_allclose(likes.user_factors_.sd, whole.user_factors_.sd, rtol=1e-5)
    # A dislike that is stored weighs as much as one that is not: nothing changes.
    i, j = np.argwhere(table == 0)[7]
    mixed = ng.MatrixFactorization(3, **both).fit(likes_of(table, [(i, j, 0.0)]))
    assert mixed.elbo_ == pytest.approx(likes.elbo_, rel=1e-9)


@pytest.mark.parametrize("biases", [False, True])
def test_updates_and_the_bound_are_those_of_all_weighted_pairs(rng, biases):
    table = table_of(rng, 12, 9)
    zeros = [(*map(int, np.argwhere(table == 0)[k]), 0.0) for k in (3, 11)]
    ratings = likes_of(table, zeros)
    model = ng.MatrixFactorization(
        2,
        priors=ng.recommenders.FactorPriors(precision="learn", biases=biases, n_negatives=0.7),
        max_steps=9,
        tol=0.0,
        **SETTINGS,
    ).fit(ratings)
    kind, state = model._kind, model.result_.state
    # A user with n likes and m pairs that are not stored: weight 0.7 n / (0.7 n + m), about 0.7 dislikes for each like.
    likes = table.sum(1)
    stored = np.bincount(ratings.users, minlength=len(table))
    weight = np.repeat(0.7 * likes / (0.7 * likes + table.shape[1] - stored), table.shape[1]).reshape(table.shape)
    weight[ratings.users, ratings.items] = 1.0

    def extended(side):  # E[z] and E[z zᵀ] of (u, b, 1) and (v, 1, c)
        mean, second = (np.asarray(part) for part in state.mu[side])
        if not biases:
            return mean, second
        one = np.ones((len(mean), 1))
        mean, second = (
            np.hstack([mean, one]),
            np.block([[second, mean[:, :, None]], [mean[:, None, :], one[:, :, None]]]),
        )
        order = [0, 1, 2, 3] if side == "u" else [0, 1, 3, 2]
        return mean[:, order], second[:, order][:, :, order]

    (u, uu), (v, vv) = extended("u"), extended("v")
    square = np.einsum("ikl,jkl->ij", uu, vv)
    errors = table * (1 - 2 * u @ v.T) + square
    tau, log_tau = state.mu["noise"]
    problem = kind._problem(ratings)
    density = 0.5 * weight.sum() * (log_tau - np.log(2 * np.pi)) - 0.5 * tau * (weight * errors).sum()
    assert problem.bound_by_node(state)["r"] == pytest.approx(density, rel=1e-10)
    # The update of the first user, from all pairs.
    work = RatingSweep(problem, state)
    work.update("u", 1.0)
    k = 3 if biases else 2
    free = list(range(k))
    precision = np.diag(state.mu["user_precision"][0]) + tau * np.einsum("j,jkl->kl", weight[0], vv[:, :k, :k])
    pull = tau * (weight[0] * table[0]) @ v[:, :k]
    if biases:
        pull -= tau * np.einsum("j,jk->k", weight[0], vv[:, 3, :k])
    np.testing.assert_allclose(work.mu["u"][0][0][free], np.linalg.solve(precision, pull), rtol=1e-9)


def test_one_dislike_hardly_changes_the_model(rng):
    table = table_of(rng, 60, 40)
    zero = (*map(int, np.argwhere(table == 0)[50]), 0.0)
    alone, mixed = (ng.MatrixFactorization(3, seed=1, **SETTINGS).fit(likes_of(table, more)) for more in ((), [zero]))
    assert type(alone._kind) is type(mixed._kind)
    assert np.abs(alone.scores() - mixed.scores()).max() < 0.1
    i, j = zero[:2]
    assert mixed.predict([i], [j]) <= alone.predict([i], [j]) + 1e-3


def test_reasons_add_up_and_visitors_are_ranked_as_users(rng):
    table = table_of(rng, 50, 20)
    model = ng.MatrixFactorization(3, tol=1e-10, **SETTINGS).fit(likes_of(table))
    user, item = 4, int(np.flatnonzero(table[4] == 0)[0])
    found = model.because(user, item, n=20)
    assert set(found.items.tolist()) == set(np.flatnonzero(table[4]).tolist())
    assert found.scores.sum() == pytest.approx(model.scores([user])[0, item], abs=1e-4)
    visitor = model.recommend_for(np.flatnonzero(table[4]), n=5)
    assert visitor.items.tolist() == model.recommend(user, n=5).items.tolist()
    new = model.fold_in(
        ng.Ratings(["zoe"] * int(table[4].sum()), np.flatnonzero(table[4]), np.ones(int(table[4].sum())))
    )
    assert new.recommend("zoe", n=5).items.tolist() == visitor.items.tolist()


@pytest.mark.parametrize(("settings", "message"), [
    ({"priors": ng.recommenders.FactorPriors(n_negatives=0)}, "n_negatives=0: there are only likes"),
    ({"likelihood": "gaussian", "priors": ng.recommenders.FactorPriors(n_negatives=4)},
     'n_negatives=4 belongs to likelihood="bernoulli"'),
    ({"method": ng.SVI({"rating": 8})}, 'likelihood="bernoulli" reads every pair'),
    ({"likelihood": "gaussian"}, 'all ratings are 1.*likelihood="bernoulli"'),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(rng, settings, message):
    with pytest.raises(ValueError, match=message):
        ng.MatrixFactorization(2, **{**SETTINGS, **settings}).fit(likes_of(table_of(rng)))
