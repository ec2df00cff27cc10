"""The estimator: what it promises, what it predicts, and what it says when something is wrong."""

import warnings

import numpy as np
import pytest
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


# fmt: off
MISTAKES = [
    (lambda: model(n_factors=0).fit(table()), ValueError, "n_factors must be a whole number ≥ 1, got 0"),
    (lambda: model(n_factors=2.0).fit(table()), TypeError, "n_factors must be a whole number ≥ 1, got 2.0"),
    (lambda: model(noise=0).fit(table()), ValueError, "noise must be > 0 and finite, got 0"),
    (lambda: model(noise=("item", -1)).fit(table()), ValueError, "noise: ν of 'item' must be > 0 and finite, got -1"),
    (lambda: ng.recommenders.FactorPriors(precision=np.inf), ValueError,
     'FactorPriors: precision, if it is not "learn", must be > 0 and finite, got inf'),
    (lambda: ng.recommenders.FactorPriors(precision="learned"), TypeError,
     "FactorPriors: precision, if it is not \"learn\", must be a number, got 'learned'"),
    (lambda: ng.recommenders.FactorPriors(n_negatives=-1), ValueError,
     "FactorPriors: n_negatives must be ≥ 0 and finite, got -1"),
    (lambda: ng.recommenders.FactorPriors(biases="no"), ValueError, "FactorPriors: biases must be True or False, got 'no'"),
    (lambda: full(priors={"biases": False}).fit(table()), TypeError,
     "priors must be FactorPriors(...), as in priors=FactorPriors(biases=False), got {'biases': False}"),
    (lambda: full(likelihood="ordinal", noise="learn").fit(table()), ValueError,
     'noise=\'learn\' belongs to likelihood="gaussian", and to likes where every pair counts: leave it out'),
    (lambda: full(likelihood="bernoulli", noise="user").fit(table()), ValueError,
     'noise=\'user\' belongs to likelihood="gaussian": give "learn" or a number'),
    (lambda: full(likelihood="poisson", priors=ng.recommenders.FactorPriors(1.0)).fit(table()), ValueError,
     "priors=FactorPriors(precision=1.0, biases=None, n_negatives=None): "
     'likelihood="poisson" has Gamma factors, whose priors are learned; leave it out'),
    (lambda: full(likelihood="normal").fit(table()), ValueError,
     'likelihood must be "gaussian", "bernoulli", "ordinal" or "poisson", got \'normal\''),
    (lambda: full(noise="users").fit(table()), ValueError,
     'noise must be "learn", a number, "user", "item", "both" or ("user", ν), got \'users\''),
    (lambda: full(likelihood="bernoulli").fit([[1.0, 0.5]]), ValueError,
     'likelihood="bernoulli" takes 1 (like) and 0 (dislike), or 1 alone, got values[1] = 0.5 (1 such)'),
    (lambda: full(likelihood="bernoulli").fit([[0.0, 0.0]]), ValueError,
     'likelihood="bernoulli": there are only dislikes (0); nothing can be learned from them'),
    (lambda: full(likelihood="poisson").fit([[1.0, -1.0]]), ValueError,
     'likelihood="poisson" takes counts, whole numbers ≥ 0, got values[1] = -1 (1 such)'),
    (lambda: full(likelihood="poisson").fit([[0.0, 0.0]]), ValueError,
     'likelihood="poisson": every count is 0; nothing can be learned from them'),
    (lambda: full(likelihood="poisson", method=ng.Children(1)).fit([[1.0, 2.0]]), ValueError,
     'likelihood="poisson" reads all counts at each step, got method=Children(C=1, option=\'a\'): leave it out'),
    (lambda: full(max_steps=2).fit(table()).interval([0], [0], 1.0), ValueError, "mass must lie between 0 and 1, got 1.0"),
    (lambda: full(max_steps=2).fit(table()).recommend(0, 0), ValueError, "n must be a whole number ≥ 1, got 0"),
    (lambda: full(max_steps=2).fit(table()).score(table(), metric="auc"), ValueError,
     "metric must be one of log_likelihood, rmse, mae, ndcg, precision, recall, map, got 'auc'"),
    (lambda: full(max_steps=2).fit(table()).fold_in(ng.Ratings([0], [99], [1.0])), ValueError,
     "items[0] = 99 is not among the items of the ratings that were fitted (1 such); known are 18: 0, 1, 2, …. "
     "Leave it out, or fit with ratings of it"),
    (lambda: full().fit(iter([])), ValueError, "the iterator of ratings gave nothing"),
    (lambda: model(max_steps=0).fit(table()), ValueError, "max_steps must be a whole number ≥ 1, got 0"),
    (lambda: model(max_seconds=-1).fit(table()), ValueError, "max_seconds must be > 0, got -1: None means no limit"),
    (lambda: model(tol=-1).fit(table()), ValueError, "tol must be ≥ 0, got -1: 0 runs all steps"),
    (lambda: model(seed=-1).fit(table()), ValueError, "seed must be a whole number ≥ 0, got -1"),
    (lambda: model(method="vb").fit(table()), TypeError,
     "method must be VB(), Children(C), GlobalBatch(size) or SVI(batch), got 'vb'"),
    (lambda: model(method=ng.GlobalBatch(10**6)).fit([[1.0, 2.0]]), ValueError,
     "GlobalBatch: a batch of 1000000 is larger than the data with 2 observations; VB() reads all of them"),
    (lambda: model().fit([1.0, 2.0]), ValueError,
     "X must be a table [users, items] with NaN for missing ratings, got shape (2,). Reshape your data: one user is [ratings]"),
    (lambda: model().fit([["a", "b"]]), TypeError, "X must be numbers, got strings such as 'a' at [0, 0]"),
    (lambda: model().predict([0], [0]), NotFittedError,
     "this MatrixFactorization is not fitted yet: call fit(ratings) first"),
    (lambda: model().continue_fit(), NotFittedError, "this MatrixFactorization is not fitted yet: call fit(ratings) first"),
    (lambda: model(max_steps=1).fit(table()).predict([0, 1], [0]), ValueError,
     "users and items must have the same length, got 2 and 1"),
    (lambda: model(max_steps=1).fit(table()).predict([0, 99], [0, 0], unknown="error"), ValueError,
     "users[1] = 99 is not among the users of the ratings that were fitted (1 such); known are 25: 0, 1, 2, …. "
     "Leave it out, or fit with ratings of it"),
    (lambda: model(max_steps=1).fit(table()).predict([0], ["x"]), ValueError,
     "items[0] = 'x' is not among the items of the ratings that were fitted (1 such); known are 18: 0, 1, 2, …. "
     "Leave it out, or fit with ratings of it"),
    (lambda: model(max_steps=1).fit(table()).predict(0, [0]), TypeError,
     "users must be a list or array of ids, got 0: for a single id write [0]"),
]
# fmt: on


@pytest.mark.parametrize(
    ("mistake", "error", "text"), MISTAKES, ids=lambda part: part[:40] if isinstance(part, str) else ""
)
def test_mistakes_get_a_sentence(mistake, error, text):
    with warnings.catch_warnings(), pytest.raises(error) as caught:
        mistake()
    assert str(caught.value) == text


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
