"""The estimator: what it promises, what it predicts, and what it says when something is wrong."""

import warnings

import numpy as np
import pytest
from mistakes.said import mistake
from sklearn.exceptions import NotFittedError

import natgrad as ng
from natgrad.reproduce.paquet_runs import declare


def table(seed: int = 0, n_users: int = 25, n_items: int = 18, missing: float = 0.4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    full = rng.normal(size=(n_users, 2)) @ rng.normal(size=(2, n_items)) + 0.3 * rng.normal(size=(n_users, n_items))
    full[rng.random(full.shape) < missing] = np.nan
    return full


def known() -> "ng.recommenders.FactorPriors":
    return ng.recommenders.FactorPriors(precision=1.0, biases=False)


def model(**options) -> "ng.MatrixFactorization":
    usual = {
        "n_factors": 2, "noise": 10.0, "priors": known(), "method": ng.VB(), "verbose": False, "tol": 1e-6,
    }  # fmt: skip
    return ng.MatrixFactorization(**{**usual, **options})


def full(**options) -> "ng.MatrixFactorization":
    return ng.MatrixFactorization(**{"n_factors": 3, "verbose": False, **options})


def test_it_learns_and_its_uncertainty_is_honest():
    rng = np.random.default_rng(1)
    full = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50)) + 0.3 * rng.normal(size=(60, 50))
    held = rng.random(full.shape) < 0.3
    fitted = model(priors=known(), method=None).fit(np.where(held, np.nan, full))
    assert fitted.stop_.converged
    assert np.diff(fitted.trace_["elbo"]).min() >= -1e-9 * abs(fitted.elbo_)
    users, items = np.nonzero(held)
    mean, sd = fitted.predict(users, items, return_std=True)
    assert np.sqrt(np.mean((mean - full[held]) ** 2)) < 0.45
    assert 0.8 < np.mean(np.abs(mean - full[held]) < 1.645 * sd) < 0.97
    # The density of a Gaussian that knows nothing but mean and variance of the data.
    blind = -0.5 * np.log(2 * np.pi * np.e * full.var())
    assert fitted.score(np.where(held, full, np.nan)) > blind + 0.5


def test_predictive_variance_is_that_of_samples_from_q():
    fitted = model(max_steps=20).fit(table())
    mean, sd = fitted.predict([0, 3, 7], [1, 1, 2], return_std=True)
    u = fitted.posterior_["u"].sample(0, n=40_000)[:, [0, 3, 7]]
    v = fitted.posterior_["v"].sample(1, n=40_000)[:, [1, 1, 2]]
    draws = (u * v).sum(-1)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.02)
    np.testing.assert_allclose(np.sqrt(draws.var(0) + 0.1), sd, rtol=0.03)
    np.testing.assert_array_equal(fitted.predict([0, 3, 7], [1, 1, 2]), mean)


def test_ids_come_back_as_they_were_given():
    fitted = model(max_steps=5).fit(ng.Ratings(["b", "a", "b"], [30, 10, 10], [1, 2, 3]))
    assert fitted.user_factors_.mean.shape == fitted.user_factors_.sd.shape == (2, 2)
    u, v = fitted.user_factors_.mean, fitted.item_factors_.mean
    np.testing.assert_allclose(fitted.predict(["b"], [10]), [u[1] @ v[0]])
    assert np.isfinite(fitted.score(ng.Ratings(["a"], [30], [2.0])))


def test_bounds_evenly_on_a_logarithmic_axis():
    options = {"step": ng.PerNode(), "max_steps": 400, "tol": 0, "init": "random", "bound_every": "log"}
    trace = declare(ng.Ratings.from_dense(table()), 2).fit(ng.Children(1), verbose=False, **options).trace
    seen = np.isfinite(trace["elbo"])
    accesses = trace["messages_read"][seen].astype(float)
    decades = np.log10(accesses[-1] / accesses[0])
    assert 10 * decades < seen.sum() <= 20 * decades + 1
    assert np.diff(np.log10(accesses)).min() > 0.02


def test_accesses_limit_a_network_too():
    n = ng.Plate("n", 5)
    mu = ng.Normal("mu", 0.0, 1.0)
    network = ng.Network(ng.Normal("x", mu, 1.0, plate=n, observed=np.arange(5.0)))
    assert network.fit(ng.VB(), max_messages=12, tol=0).trace["messages_read"].tolist() == [5, 10, 15]
    with pytest.raises(ValueError, match="max_messages must be a whole number ≥ 1, got 0"):
        network.fit(max_messages=0)
    with pytest.raises(ValueError, match="bound_every must be a whole number ≥ 1, \"log\" or None, got 'often'"):
        network.fit(bound_every="often")


def pairs(users, items, **options):
    return model(max_steps=1).fit(table()).predict(users, items, **options)


LIKES, COUNTS = {"likelihood": "bernoulli"}, {"likelihood": "poisson"}
Priors = ng.recommenders.FactorPriors
# fmt: off
MISTAKES = [
    (lambda: model(n_factors=0).fit(table()), ValueError, "n_factors", "0"),
    (lambda: model(n_factors=2.0).fit(table()), TypeError, "n_factors", "2.0"),
    (lambda: model(noise=0).fit(table()), ValueError, "noise", "0"),
    (lambda: model(noise=("item", -1)).fit(table()), ValueError, "noise", "'item'", "-1"),
    (lambda: Priors(precision=np.inf), ValueError, "FactorPriors: precision", "inf", '"learn"'),
    (lambda: Priors(precision="learned"), TypeError, "FactorPriors: precision", "'learned'", '"learn"'),
    (lambda: Priors(n_negatives=-1), ValueError, "FactorPriors: n_negatives", "-1"),
    (lambda: Priors(biases="no"), ValueError, "FactorPriors: biases", "'no'", "True or False"),
    (lambda: full(priors={"biases": False}).fit(table()), TypeError, "priors", "{'biases': False}", "FactorPriors(biases=False)"),
    (lambda: full(likelihood="ordinal", noise="learn").fit(table()), ValueError, "noise='learn'", "leave it out"),
    (lambda: full(**LIKES, noise="user").fit(table()), ValueError, "noise='user'", 'give "learn" or a number'),
    (lambda: full(**COUNTS, priors=Priors(1.0)).fit(table()), ValueError, "priors", "precision=1.0", "leave it out"),
    (lambda: full(likelihood="normal").fit(table()), ValueError, "likelihood", "'normal'", '"gaussian"'),
    (lambda: full(noise="users").fit(table()), ValueError, "noise", "'users'", '"user"'),
    (lambda: full(**LIKES).fit([[1.0, 0.5]]), ValueError, 'likelihood="bernoulli"', "values[1] = 0.5", "1 (like)"),
    (lambda: full(**LIKES).fit([[0.0, 0.0]]), ValueError, 'likelihood="bernoulli"', "only dislikes"),
    (lambda: full(**COUNTS).fit([[1.0, -1.0]]), ValueError, 'likelihood="poisson"', "values[1] = -1"),
    (lambda: full(**COUNTS).fit([[0.0, 0.0]]), ValueError, 'likelihood="poisson"', "every count is 0"),
    (lambda: full(**COUNTS, method=ng.Children(1)).fit([[1.0, 2.0]]), ValueError, "method", "Children", "leave it out"),
    (lambda: full(max_steps=2).fit(table()).interval([0], [0], 1.0), ValueError, "mass", "1.0"),
    (lambda: full(max_steps=2).fit(table()).recommend(0, 0), ValueError, "n must", "0"),
    (lambda: full(max_steps=2).fit(table()).score(table(), metric="auc"), ValueError, "metric", "'auc'", "rmse"),
    (lambda: full(max_steps=2).fit(table()).fold_in(ng.Ratings([0], [99], [1.0])), ValueError, "items[0]", "99", "Leave it out"),
    (lambda: full().fit(iter([])), ValueError, "the iterator of ratings gave nothing"),
    (lambda: model(max_steps=0).fit(table()), ValueError, "max_steps", "0"),
    (lambda: model(max_seconds=-1).fit(table()), ValueError, "max_seconds", "-1", "None means no limit"),
    (lambda: model(tol=-1).fit(table()), ValueError, "tol", "-1", "0 runs all steps"),
    (lambda: model(seed=-1).fit(table()), ValueError, "seed", "-1"),
    (lambda: model(method="vb").fit(table()), TypeError, "method", "'vb'", "VB()"),
    (lambda: model(method=ng.GlobalBatch(10**6)).fit([[1.0, 2.0]]), ValueError, "GlobalBatch", "1000000", "VB()"),
    (lambda: model().fit([1.0, 2.0]), ValueError, "X must", "(2,)", "Reshape your data"),
    (lambda: model().fit([["a", "b"]]), TypeError, "X must", "'a'", "[0, 0]"),
    (lambda: model().predict([0], [0]), NotFittedError, "MatrixFactorization", "call fit(ratings) first"),
    (lambda: model().continue_fit(), NotFittedError, "MatrixFactorization", "call fit(ratings) first"),
    (lambda: pairs([0, 1], [0]), ValueError, "users and items", "2 and 1"),
    (lambda: pairs([0, 99], [0, 0], unknown="error"), ValueError, "users[1]", "99", "known are 25", "Leave it out"),
    (lambda: pairs([0], ["x"]), ValueError, "items[0]", "'x'", "known are 18", "Leave it out"),
    (lambda: pairs(0, [0]), TypeError, "users", "0", "for a single id write [0]"),
]
# fmt: on


@pytest.mark.parametrize("case", MISTAKES, ids=[" ".join(case[2:4]) for case in MISTAKES])
def test_mistakes_name_the_argument_the_value_and_the_remedy(case):
    with warnings.catch_warnings():
        mistake(*case)


@pytest.mark.parametrize("n_steps", [3, 60])
def test_a_bias_without_data_stays_where_its_prior_is(n_steps: int) -> None:
    """However many sweeps, rotations and extrapolations are made: nobody tells it anything."""
    rng = np.random.default_rng(0)
    users, items = np.divmod(np.flatnonzero(rng.random(60) < 0.5), 6)
    values = 3.0 + rng.normal(size=10)[users] + rng.normal(size=6)[items]
    ratings = ng.Ratings.numbered(users, items, values, np.arange(12), np.arange(8))
    model = ng.MatrixFactorization(2, max_steps=n_steps, tol=0, verbose=False).fit(ratings)
    for (mean, sd), known in ((model.user_biases_, 10), (model.item_biases_, 6)):
        np.testing.assert_array_equal(mean[known:], 0.0)
        np.testing.assert_array_equal(sd[known:], sd[-1])
        assert sd[-1] > sd[:known].max()
