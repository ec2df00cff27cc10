"""Fits that end with Gibbs sampling unasked: where they do, that q stays what it was, and all that works on them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.factorization import finishing
from natgrad.models.factorization.drawn import DrawnPredictor
from natgrad.models.factorization.gibbs import RatingGibbs, gibbs_problem
from natgrad.models.factorization.likelihoods import Gaussian
from natgrad.models.factorization.noise import DOF, NoiseDof, noise_gain

QUIET = {"n_factors": 3, "finish_sweeps": 9, "verbose": False}


def some_ratings(differs: bool = False, n: int = 900, seed: int = 0, shift: float = 3.0) -> ng.Ratings:
    rng = np.random.default_rng(seed)
    key = rng.choice(40 * 30, n, replace=False)
    users, items = key // 30, key % 30
    spread = (1.0 / np.sqrt(rng.gamma(0.7, 1 / 0.7, 40)))[users] if differs else 1.0
    signal = (rng.normal(size=(40, 2))[users] * rng.normal(size=(30, 2))[items]).sum(1)
    return ng.Ratings(users, items, shift + signal + 0.5 * spread * rng.normal(size=n), shape=(40, 30))


@pytest.fixture
def few(monkeypatch) -> None:
    """Some hundred ratings are as many as 20,000."""
    monkeypatch.setattr(finishing, "LEAST", 1)


def fitted(ratings: ng.Ratings, **more: object) -> ng.MatrixFactorization:
    return ng.MatrixFactorization(**{**QUIET, **more}).fit(ratings)


def test_defaults_are_those_of_the_estimator() -> None:
    defaults = {name: given.default for name, given in inspect.signature(ng.MatrixFactorization).parameters.items()}
    assert {name: defaults[name] for name in finishing.OF_PASSES} == finishing.OF_PASSES
    assert (finishing.NOISE_DOF, defaults["finish"], defaults["finish_sweeps"]) == (defaults["noise_dof"], "auto", None)


def test_q_is_what_it_is_without_draws_and_predictions_are_theirs(few) -> None:
    ratings = some_ratings()
    drawn, plain = fitted(ratings), fitted(ratings, finish=None)
    assert (drawn.elbo_, drawn.n_steps_, str(drawn.stop_)) == (plain.elbo_, plain.n_steps_, str(plain.stop_))
    assert drawn.stop_.converged
    np.testing.assert_array_equal(drawn.trace_["elbo"], plain.trace_["elbo"])
    for name, factor in plain.posterior_.items():
        for ours, theirs in zip(drawn.posterior_[name].lam, factor.lam, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert isinstance(drawn._predictor, DrawnPredictor)
    assert drawn.draws_["u"].values.shape == (1, 6, 40, 4)
    assert not hasattr(plain, "draws_")
    assert np.abs(drawn.predict([0, 1], [2, 3]) - plain.predict([0, 1], [2, 3])).min() > 1e-6
    again = fitted(ratings, n_jobs=1)
    np.testing.assert_array_equal(again.draws_["u"].values, drawn.draws_["u"].values)
    # Reasons, responses and a visitor are told by q, as they were.
    assert drawn.because(0, 3).items.tolist() == plain.because(0, 3).items.tolist()
    expected = [m.linear_response().std(m.expected([0], [3]))[0] for m in (drawn, plain)]
    assert expected[0] == expected[1]


def test_who_says_how_far_q_is_to_go_gets_q(few, monkeypatch) -> None:
    ratings, kind = some_ratings(), None
    for name, value in {
        "method": ng.VB(), "step": ng.Constant(1.0), "max_steps": 5, "max_passes": 3.0, "max_messages": 10_000,
        "max_seconds": 60.0, "tol": 1e-3, "bound_every": 1, "executor": object(), "finish": None,
    }.items():  # fmt: skip
        model = ng.MatrixFactorization(**{**QUIET, name: value})
        kind = Gaussian(model._settings(), ratings)
        if name != "finish":
            assert finishing.sampled_from(model, kind, ratings, None, None) == (None, None), name
    model = ng.MatrixFactorization(**QUIET)
    assert finishing.sampled_from(model, kind, ratings, None, None)[0] is not None
    # Too much work, too many pairs, too few ratings a row or at all, known precisions, features.
    for name, value in {"MOST_WORK": 1e5, "MOST_PAIRS": 1199, "RATINGS_A_ROW": 13, "LEAST": 901}.items():
        with monkeypatch.context() as patch:
            patch.setattr(finishing, name, value)
            assert finishing.sampled_from(model, kind, ratings, None, None) == (None, None), name
    known = Gaussian(ng.MatrixFactorization(3, learn_priors=False)._settings(), ratings)
    assert finishing.sampled_from(model, known, ratings, None, None) == (None, None)
    told = Gaussian(model._settings(), ratings, None, {"u": np.ones((40, 1))})
    assert finishing.sampled_from(model, told, ratings, None, None) == (None, None)


def test_fewer_ratings_have_more_sweeps_and_other_data_forty(few, monkeypatch) -> None:
    ratings, model = some_ratings(), ng.MatrixFactorization(3, verbose=False)
    kind = Gaussian(model._settings(), ratings)
    work = 900 * 13 + 20 * 70 * 3
    for most, wanted in ((1e9, 200), (work * 150, 150), (work, 120)):
        monkeypatch.setattr(finishing, "WORK", most)
        assert finishing.sampled_from(model, kind, ratings, None, None)[0].sweeps == wanted
    monkeypatch.setattr(finishing, "LEAST", 901)
    asked = ng.MatrixFactorization(3, finish="gibbs", verbose=False)
    sampler, takes_over = finishing.sampled_from(asked, kind, ratings, None, None)
    assert (sampler.sweeps, takes_over, sampler.dof) == (40, 7, {})


def test_noise_of_draws_is_as_given_and_else_found_by_them(few) -> None:
    ratings = some_ratings()
    kind = Gaussian(ng.MatrixFactorization(3)._settings(), ratings)
    for more, noise, wanted in (
        ({}, "both", {"user_noise", "item_noise"}), ({}, "item", {"item_noise"}), ({}, None, set()),
        ({"noise_per": None}, "both", set()), ({"noise_dof": 3.0}, "both", set()),
    ):  # fmt: skip
        model = ng.MatrixFactorization(3, verbose=False, **more)
        assert set(finishing.sampled_from(model, kind, ratings, None, noise)[0].dof) == wanted


def test_dof_are_drawn_by_what_they_gain_and_tell_noise_that_differs(rng) -> None:
    errors, counts = rng.gamma(3.0, 2.0, 12), rng.integers(0, 9, 12)
    dof = NoiseDof(counts)
    gains = np.array([noise_gain(errors, counts, 1.0, nu) for nu in DOF])
    wanted = np.exp(gains - gains.max())
    np.testing.assert_allclose(dof.chances(errors), wanted / wanted.sum(), rtol=1e-9)
    rates = {-2.0 * dof.drawn(errors, rng)[0][0] - errors[0] for _ in range(300)}
    assert len(rates) > 3
    assert all(np.isclose(DOF, rate).any() for rate in rates)
    found = {}
    for differs in (False, True):
        ratings = some_ratings(differs)
        model = ng.MatrixFactorization(2, finish=None, noise_per="both", verbose=False).fit(ratings)
        sampler = RatingGibbs(gibbs_problem(model._kind, ratings), 40, draws_dof=True)
        for _ in range(40):
            sampler.step(model.result_.state, 0)
        found[differs] = sampler.kept().user_noise.var(1).mean()
    assert found[True] > 20 * found[False]


def test_draws_go_through_updates_files_and_checkpoints(few, tmp_path) -> None:
    ratings = some_ratings(n=1000)
    first, rest = (
        ng.Ratings(ratings.users[part], ratings.items[part], ratings.values[part], shape=(40, 30))
        for part in (slice(0, 950), slice(950, 1000))
    )
    model = fitted(first, finish_sweeps=None)
    assert model.draws_.settings.warmup == 66  # of 200
    model.finish_sweeps = 9
    model.update(rest)
    assert len(model.ratings_) == 1000
    assert model.draws_["u"].values.shape[1] == 6
    assert model._kept_draws.user_noise.shape[1] == 0  # too few ratings for a choice at the first fit
    model.forget({"user": [3]})
    assert model.draws_["u"].values.shape[2] == 39
    model.save(tmp_path / "model")
    again = ng.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict([0, 5], [1, 1]), model.predict([0, 5], [1, 1]))
    assert again.draws_.settings == model.draws_.settings
    # New ratings, and users that are folded in, are known to q.
    folded = again.fold_in(ng.Ratings([77], [4], [5.0]))
    assert np.isfinite(folded.predict([77], [1])).all()
    assert not hasattr(folded, "draws_")
    np.testing.assert_array_equal(again.predict([0, 5], [1, 1]), model.predict([0, 5], [1, 1]))
    assert not hasattr(again.partial_fit(rest), "draws_")
    straight = fitted(first, seed=3)
    kept = ng.MatrixFactorization(**QUIET, seed=3).fit(first, checkpoint=tmp_path / "run", every=1)
    resumed = ng.MatrixFactorization(**QUIET, seed=3).fit(first, checkpoint=tmp_path / "run", resume=True)
    for other in (kept, resumed):
        assert other.elbo_ == straight.elbo_
        np.testing.assert_array_equal(other.draws_["v"].values, straight.draws_["v"].values)


def test_a_callback_that_ends_the_sampling_leaves_q(few) -> None:
    ratings, seen = some_ratings(), []

    def ends(progress: object) -> bool:
        seen.append(progress.t)
        return len(seen) > 2 and seen[-1] == seen[-3]  # the third time that nothing has moved

    model = ng.MatrixFactorization(**QUIET).fit(ratings, callbacks=[ends])
    assert not hasattr(model, "draws_")
    assert model.elbo_ == fitted(ratings, finish=None).elbo_


def test_scores_that_stay_as_they_are_do_not_try_the_patience_of_held_out(few) -> None:
    ratings = some_ratings()
    steps = fitted(ratings, finish=None).n_steps_
    watch = ng.HeldOut(ratings, share=1.0, patience=steps + 1)
    model = ng.MatrixFactorization(**{**QUIET, "finish_sweeps": 2 * steps + 2}).fit(ratings, callbacks=[watch])
    assert model.stop_.converged
    assert hasattr(model, "draws_")
    assert np.isfinite(model.trace_["held_out"]).sum() <= model.n_steps_


def test_unknown_users_leave_the_others_what_draws_say(few) -> None:
    model = fitted(some_ratings())
    alone, std = model.predict([0, 1], [2, 3], return_std=True)
    beside, wide = model.predict([0, 999, 1], [2, 2, 3], return_std=True)
    np.testing.assert_array_equal(beside[[0, 2]], alone)
    np.testing.assert_array_equal(wide[[0, 2]], std)
    assert wide[1] > std.max()
    low, high = model.interval([0, 999], [2, 999])
    np.testing.assert_array_equal([low[0], high[0]], np.ravel(model.interval([0], [2])))
    known, mixed = ng.Ratings([0], [2], [3.0]), ng.Ratings([0, 999], [2, 2], [3.0, 3.0])
    new = 2 * model.score(mixed) - model.score(known)
    assert new == pytest.approx(fitted(some_ratings(), finish=None).score(ng.Ratings([999], [2], [3.0])))


def test_vectors_of_draws_are_exact_or_as_few_as_asked_for(few) -> None:
    model = fitted(some_ratings())
    whole, some = model.vectors(), model.vectors(12)
    wanted = model.predict(np.repeat(np.arange(40), 30), np.tile(np.arange(30), 40)).reshape(40, 30)
    np.testing.assert_allclose(whole.users @ whole.items.T, wanted, atol=1e-4)
    assert some.users.shape[1] == 13  # the mean of all has a column
    assert np.abs(some.users @ some.items.T - wanted).mean() < 0.1 * wanted.std()


@pytest.mark.parametrize("unit", [1e-45, 1e40])
def test_draws_of_ratings_in_any_unit_are_the_same(unit: float, few) -> None:
    """Biases have the unit of ratings, and single precision ends at 1e-38 and 1e38."""
    ratings = some_ratings()
    other = ng.Ratings(ratings.users, ratings.items, unit * ratings.values, shape=(40, 30))
    here, there = (fitted(data).predict([0, 1, 2], [3, 4, 5]) for data in (ratings, other))
    np.testing.assert_allclose(there / unit, here, rtol=1e-4)
