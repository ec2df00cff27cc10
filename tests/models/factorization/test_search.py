"""Factorisation in scikit-learn's searches: every fold is scored, on the ratings it holds, and the better setting is chosen."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.stats
from marking import some_slow
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score

import natgrad as ng

RNG = np.random.default_rng(0)
FULL = RNG.normal(size=(30, 2)) @ RNG.normal(size=(2, 20))
CELLS = RNG.permutation(np.argwhere(RNG.random(FULL.shape) < 0.6))
WHO, WHAT = CELLS.T
STARS = FULL[WHO, WHAT] + 0.1 * RNG.normal(size=len(WHO))
TABLE = np.full(FULL.shape, np.nan)
TABLE[WHO, WHAT] = STARS
FRAME = pd.DataFrame({"film": WHAT, "viewer": [f"u{u}" for u in WHO], "stars": STARS})
FORMS = {
    "pairs": (CELLS, STARS),
    "table of three columns": (FRAME,),
    "table of pairs": (FRAME[["viewer", "film"]], STARS),
    "pairs of ratings": ng.Ratings([f"u{u}" for u in WHO], WHAT, STARS).pairs(),
    "array of users and items": (TABLE,),
    "sparse matrix": (scipy.sparse.csr_array((STARS, (WHO, WHAT)), shape=FULL.shape),),
}


def model(**settings):
    return ng.MatrixFactorization(max_steps=40, n_jobs=1, verbose=False, **settings)


@pytest.mark.parametrize("form", some_slow(FORMS, ["table of three columns", "sparse matrix"]))
def test_a_search_scores_every_fold_and_finds_the_factors(form):
    search = GridSearchCV(model(), {"n_factors": [1, 2]}, cv=KFold(3), refit=False, error_score="raise").fit(
        *FORMS[form]
    )
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_params_ == {"n_factors": 2}
    assert scores[1] > scores[0] + 0.3
    blind = scipy.stats.norm.logpdf(STARS, STARS.mean(), STARS.std()).mean()
    assert scores[1] > blind + 0.5


def test_the_score_of_a_fold_is_that_of_its_ratings():
    half = len(STARS) // 2
    fitted = model(n_factors=2).fit(CELLS[:half], STARS[:half])
    by_name = model(n_factors=2).fit(ng.Ratings(WHO[:half], WHAT[:half], STARS[:half]))
    assert fitted.elbo_ == by_name.elbo_
    held = ng.Ratings(WHO[half:], WHAT[half:], STARS[half:])
    assert fitted.score(CELLS[half:], STARS[half:]) == by_name.score(held)
    errors = STARS[half:] - fitted.predict(WHO[half:], WHAT[half:])
    assert fitted.score(CELLS[half:], STARS[half:], metric="rmse") == pytest.approx(np.sqrt(np.mean(errors**2)))
    np.testing.assert_array_equal(fitted.predict(CELLS[half:]), fitted.predict(WHO[half:], WHAT[half:]))
    rmse = cross_val_score(model(n_factors=2), CELLS, STARS, cv=3, scoring="neg_root_mean_squared_error")
    assert (rmse > -0.5 * STARS.std()).all()
    with pytest.raises(ValueError, match="is not among the users of the ratings that were fitted"):
        fitted.score(ng.Ratings(WHO[half:].astype(str), WHAT[half:], STARS[half:]))  # text for numbers


def test_who_is_new_is_scored_from_the_learned_prior():
    kept = (WHO < 25) & (WHAT < 18)
    fitted = model(n_factors=2).fit(CELLS[kept], STARS[kept])
    # The same users and items, known to the fit but without a rating: exact updates leave them at the learned prior.
    shaped = model(n_factors=2).fit(ng.Ratings(WHO[kept], WHAT[kept], STARS[kept], shape=FULL.shape))
    asked = CELLS[~kept | (np.arange(len(WHO)) < 5)]
    mean, sd = fitted.predict(asked, return_std=True)
    for place, (user, item) in enumerate(asked):
        row = fitted.posterior_["u"].mean()[user] if user < 25 else np.zeros(3)
        column = fitted.posterior_["v"].mean()[item] if item < 18 else np.zeros(3)
        expected = fitted.offset_ + row[:2] @ column[:2] + row[2] + column[2]
        assert mean[place] == pytest.approx(expected, abs=1e-9)
    wide = shaped.predict(asked[:, 0], asked[:, 1], return_std=True)[1]
    np.testing.assert_allclose(sd, wide, rtol=0.15)
    density = scipy.stats.norm.logpdf(FULL[asked[:, 0], asked[:, 1]], mean, sd).mean()
    assert fitted.score(asked, FULL[asked[:, 0], asked[:, 1]]) == pytest.approx(density, abs=1e-6)


def test_rows_of_another_size_are_new_users():
    fitted = model(n_factors=2).fit(TABLE[:22])
    rows = TABLE[22:]
    densities = []
    for parity in (0, 1):
        told = np.where(np.isnan(rows), np.nan, rows)
        for row in told:
            row[np.flatnonzero(~np.isnan(row))[parity::2]] = np.nan
        mean, sd = fitted.predict(told, return_std=True)
        asked = np.isnan(told) & ~np.isnan(rows)
        densities.append(scipy.stats.norm.logpdf(rows[asked], mean[asked], sd[asked]))
    assert fitted.score(rows) == pytest.approx(np.concatenate(densities).mean(), abs=1e-6)
    assert fitted.score(TABLE[:22]) > fitted.score(TABLE[:22][::-1]) + 1  # as many rows: the users of the fit


def test_folds_of_whole_users():
    split = GroupKFold(3).split(CELLS, STARS, WHO)
    assert np.isfinite(cross_val_score(model(n_factors=1), CELLS, STARS, cv=split, error_score="raise")).all()
    fitted = model(n_factors=1, priors=ng.recommenders.FactorPriors(biases=False)).fit(CELLS, STARS)
    with pytest.raises(
        ValueError, match="is not among the items"
    ):  # the users are known, the items are text for numbers
        fitted.score(np.array([[0, "3"], [1, "4"]], dtype=object), [1.0, 2.0])


def test_ratings_say_how_to_be_cut():
    with pytest.raises(TypeError, match=r"GridSearchCV\(model, grid\)\.fit\(\*ratings\.pairs\(\)\)"):
        GridSearchCV(model(), {"n_factors": [1, 2]}).fit(ng.Ratings(WHO, WHAT, STARS))


def test_counts_of_unknown_users_are_refused():
    plays = np.round(np.exp(0.3 * FULL))
    fitted = model(n_factors=2, likelihood="poisson").fit(
        ng.Ratings(WHO[WHO < 20], WHAT[WHO < 20], plays[WHO, WHAT][WHO < 20])
    )
    with pytest.raises(ValueError, match="is not among the users"):
        fitted.score(CELLS, plays[WHO, WHAT])
