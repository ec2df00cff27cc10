"""Factors that are switched off: sweeps without them are sweeps with them, in values and in the bound."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.steppers.sweep import PrunedStepper
from natgrad.models.factorization.likelihoods import Gaussian
from natgrad.models.factorization.problem import FullRatingsProblem
from natgrad.models.factorization.pruning import RatingPruning


def ratings_of(rng, n_users=50, n_items=40, n=1200, rank=2):
    key = rng.choice(n_users * n_items, n, replace=False)
    users, items = key // n_items, key % n_items
    signal = (rng.normal(size=(n_users, rank))[users] * rng.normal(size=(n_items, rank))[items]).sum(1)
    signal += rng.normal(size=n_users)[users] + rng.normal(size=n_items)[items]
    return ng.data.Ratings(users, items, 3.0 + signal + 0.8 * rng.normal(size=n), shape=(n_users, n_items))


def problem_of(ratings, n_factors=5, noise_per=None, hold=False):
    kind = Gaussian(ng.MatrixFactorization(n_factors, noise=noise_per)._settings(), ratings)
    return kind._problem(ratings, hold), kind.start(ratings, 0, 1.0)


def swept(problem, state, n):
    for _ in range(n):
        state = problem.sweep(state, problem.order).state
    return state


@pytest.fixture(params=[None, "user", "item", "both"])
def parted(request, rng):
    """A problem, its state with two factors off, and the problem and the state of the others."""
    problem, state = problem_of(ratings_of(rng), noise_per=request.param)
    pruning, kept = RatingPruning(problem), np.array([0, 2, 4, 5])
    small, reduced = pruning.reduced(swept(problem, state, 3), kept)
    return problem, pruning.whole(small, reduced, kept), small, reduced


def test_the_bound_without_them_is_the_bound_with_them(parted):
    problem, whole, small, reduced = parted
    assert small.n_off == 2
    assert small.size == 4
    assert small.bound(reduced) == pytest.approx(problem.bound(whole), rel=1e-12)
    after = small.sweep(reduced, small.order)
    again = RatingPruning(problem).whole(small, after.state, np.array([0, 2, 4, 5]))
    assert after.bound == pytest.approx(problem.bound(again), rel=1e-12)
    assert after.bound > problem.bound(whole)


def test_a_sweep_without_them_is_a_sweep_with_them(parted):
    problem, whole, small, reduced = parted
    kept = RatingPruning(problem).live(whole)
    assert kept.tolist() == [0, 2, 4, 5]
    for name in [name for name in problem.order if not name.endswith("_precision")]:
        wide, narrow = problem.sweep(whole, (name,)).state.mu[name], small.sweep(reduced, (name,)).state.mu[name]
        if name in ("u", "v"):
            wide = wide[0][:, kept], wide[1][:, kept][:, :, kept]
        for one, other in zip(wide, narrow, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_their_variances_are_the_best_ones(parted):
    problem, whole, _, _ = parted
    high = problem.bound(whole)
    for side, name in (("u", "user_precision"), ("v", "item_precision")):
        for scale in (0.95, 1.05):
            lam = {key: tuple(np.array(part) for part in parts) for key, parts in whole.lam.items()}
            lam[side][1][:, 1, 1] /= scale
            rows, variance = len(lam[side][0]), scale * whole.mu[side][1][0, 1, 1]
            lam[name][0][1] = problem.prior_of(name)[0][1] - 0.5 * rows * variance
            assert problem.bound(whole._replace(lam=lam)) < high


def test_what_is_put_together_comes_apart_in_the_same_bits(parted):
    problem, whole, small, reduced = parted
    _, again = RatingPruning(problem).reduced(whole, RatingPruning(problem).live(whole))
    for name in small.blocks:
        for one, other in zip(
            (*again.lam[name], *again.mu[name]), (*reduced.lam[name], *reduced.mu[name]), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_steps_go_on_from_a_state_alone(rng):
    ratings = ratings_of(rng)
    held, state = problem_of(ratings, n_factors=6, noise_per="both", hold=True)
    problem, state = problem_of(ratings, n_factors=6, noise_per="both")[0], swept(held, state, 8)
    order, one = problem.order, PrunedStepper(problem, problem.order)
    for t in range(14):
        state, info = one.step(state, 0)
        # Nothing but the state may matter: another stepper takes the same next step.
        if t in (10, 12):
            there, here = PrunedStepper(problem, order).step(state, 0), one.step(state, 0)
            assert there[1].bound == here[1].bound
            for name in problem.blocks:
                np.testing.assert_array_equal(there[0].lam[name][0], here[0].lam[name][0])
    assert len(RatingPruning(problem).live(state)) == 3
    assert info.bound == pytest.approx(problem.bound(state), rel=1e-12)


def test_nothing_is_switched_off_while_precisions_are_held(rng):
    problem, state = problem_of(ratings_of(rng), hold=True)
    assert RatingPruning(problem).fading(swept(problem, state, 8)) is None
    learning, _ = problem_of(ratings_of(rng))
    assert RatingPruning(learning).fading(state) is None  # precisions are where they started


def test_the_same_factors_stay_in_fewer_sweeps(monkeypatch):
    ratings = ratings_of(np.random.default_rng(3), 60, 50, 1800)
    fast = ng.MatrixFactorization(8).fit(ratings)
    monkeypatch.setattr(FullRatingsProblem, "pruning", None)
    slow = ng.MatrixFactorization(8).fit(ratings)
    assert fast.n_steps_ < slow.n_steps_
    assert fast.n_factors_ == slow.n_factors_ == 2
    assert fast.elbo_ == pytest.approx(slow.elbo_, abs=0.5)
    assert np.diff(fast.trace_["elbo"]).min() > -1e-7
