"""The scale that noise of users and items shares; and factors that die at once."""

import numpy as np

import natgrad as ng
from natgrad.models.factorization.likelihoods import Gaussian
from natgrad.models.factorization.problem import rescaled_noise


def ratings_of(rng, differs, n_users=60, n_items=50, n=1800):
    key = rng.choice(n_users * n_items, n, replace=False)
    users, items = key // n_items, key % n_items
    weight = {"user": rng.gamma(1.5, 1 / 1.5, n_users)[users], "item": rng.gamma(1.5, 1 / 1.5, n_items)[items]}
    spread = np.prod([1.0 / np.sqrt(weight[side]) for side in differs], axis=0) if differs else 1.0
    signal = (rng.normal(size=(n_users, 2))[users] * rng.normal(size=(n_items, 2))[items]).sum(1)
    return ng.data.Ratings(users, items, 3.0 + signal + 0.5 * spread * rng.normal(size=n))


def settings(**more):
    return ng.MatrixFactorization(6, **more)._settings()


def test_scales_of_noise_move_where_the_bound_is_largest(rng):
    ratings = ratings_of(rng, ("user", "item"))
    kind = Gaussian(settings(noise="both"), ratings)
    problem = kind.phase(ratings, 0, 20, None, False).problem
    state = kind.start(ratings, 0, 1.0)
    for _ in range(3):
        state = problem.sweep(state, problem.order).state
    best = rescaled_noise(problem, state)
    high = problem.bound(best)
    assert high >= problem.bound(state) - 1e-9
    for side in ("user_noise", "item_noise"):
        for scale in (0.98, 1.02):
            lam = dict(best.lam)
            lam[side], lam["noise"] = (lam[side][0] / scale, lam[side][1]), (lam["noise"][0] * scale, lam["noise"][1])
            assert problem.bound(best._replace(lam=lam)) < high
