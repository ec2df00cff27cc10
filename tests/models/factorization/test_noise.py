"""Noise that differs: whether it does, the scale that it shares; and factors that die at once."""

from functools import partial

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma

import natgrad as ng
from natgrad.models.factorization import noise, rotation
from natgrad.models.factorization.likelihoods import Gaussian
from natgrad.models.factorization.noise import chosen_noise, noise_gain, rescaled_noise
from natgrad.models.factorization.problem import FullRatingsProblem


def ratings_of(rng, differs, n_users=60, n_items=50, n=1800):
    key = rng.choice(n_users * n_items, n, replace=False)
    users, items = key // n_items, key % n_items
    weight = {"user": rng.gamma(1.5, 1 / 1.5, n_users)[users], "item": rng.gamma(1.5, 1 / 1.5, n_items)[items]}
    spread = np.prod([1.0 / np.sqrt(weight[side]) for side in differs], axis=0) if differs else 1.0
    signal = (rng.normal(size=(n_users, 2))[users] * rng.normal(size=(n_items, 2))[items]).sum(1)
    return ng.data.Ratings(users, items, 3.0 + signal + 0.5 * spread * rng.normal(size=n))


def settings(**more):
    return ng.MatrixFactorization(6, **more)._settings()


def test_the_gain_of_noise_is_an_integral():
    for errors, count in ((3.0, 5), (40.0, 5), (0.1, 30)):
        inside = lambda s: gamma(2, scale=0.5).pdf(s) * s ** (count / 2) * np.exp(-s * 0.7 * errors / 2)  # noqa: B023, E731
        wanted = np.log(quad(inside, 0, np.inf)[0]) + 0.7 * errors / 2
        assert noise_gain(np.array([errors]), np.array([count]), 0.7, 4.0) == pytest.approx(wanted, rel=1e-6)


def test_whose_noise_differs_is_found_and_the_bound_agrees(monkeypatch):
    monkeypatch.setattr(noise, "LEAST", 1)
    for differs, wanted in (((), None), (("user",), "user"), (("item",), "item"), (("user", "item"), "both")):
        ratings = ratings_of(np.random.default_rng(1), differs)
        assert chosen_noise(settings(), ratings, 0) == (wanted, "both")
    bounds = {
        by: ng.MatrixFactorization(2, noise_per=by, max_steps=40).fit(ratings).elbo_ for by in (None, "user", "both")
    }
    assert max(bounds, key=lambda by: bounds[by]) == "both"
    model = ng.MatrixFactorization(2, max_steps=40).fit(ratings)
    assert (model.noise_per, model.noise_per_, model.elbo_) == ("auto", "both", bounds["both"])


def test_what_predicts_worse_by_two_standard_errors_gives_way(monkeypatch):
    ratings = ratings_of(np.random.default_rng(1), ("user", "item"), n=2900)
    rough = np.random.default_rng(0).normal(size=len(ratings))

    def errors(less, spread, settings, rest, held, seed):
        assert len(rest) + len(held) == len(ratings)
        assert not set(zip(rest.users, rest.items, strict=True)) & set(zip(held.users, held.items, strict=True))
        by_item = spread * rough[: len(held)] - less
        return {"item": by_item, "both": np.zeros(len(held))}.get(settings.noise_per, np.full(len(held), 0.5))

    monkeypatch.setattr(noise, "LEAST", 1)
    for less, spread, wanted in ((1.0, 1.0, "item"), (0.1, 10.0, "both"), (0.1, 0.0, "item"), (-0.1, 0.0, "both")):
        monkeypatch.setattr(noise, "_errors", partial(errors, less, spread))
        assert chosen_noise(settings(), ratings, 0) == (wanted, wanted)  # draws have no more of it than predicts


def test_little_data_other_methods_and_other_likelihoods_have_one_noise():
    ratings = ratings_of(np.random.default_rng(0), ("user",))
    assert ng.MatrixFactorization(2, max_steps=1).fit(ratings).noise_per_ is None
    assert settings().noise_per is None
    assert chosen_noise(settings(learn_noise=False), ratings, 0) == (None, None)
    bare = ng.MatrixFactorization(2, factorized=True, biases=False, learn_noise=False, learn_priors=False, max_steps=1)
    assert bare.fit(ratings).noise_per_ is None


def test_scales_of_noise_move_where_the_bound_is_largest(rng):
    ratings = ratings_of(rng, ("user", "item"))
    kind = Gaussian(settings(noise_per="both"), ratings)
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


def test_factors_without_data_die_at_once_and_the_bound_never_falls(monkeypatch):
    monkeypatch.setattr(FullRatingsProblem, "pruning", None)  # which leaves them out before they are dead
    ratings = ratings_of(np.random.default_rng(3), ())
    found = {}
    for dead in (0.0, rotation.DEAD):
        monkeypatch.setattr(rotation, "DEAD", dead)
        found[dead] = ng.MatrixFactorization(8, noise_per=None, max_steps=400).fit(ratings)
    slow, fast = found.values()
    assert fast.n_steps_ < 0.6 * slow.n_steps_
    assert fast.elbo_ > slow.elbo_ - 0.5
    assert fast.n_factors_ == slow.n_factors_ == 2
    assert np.diff(fast.trace_["elbo"]).min() > -1e-7
