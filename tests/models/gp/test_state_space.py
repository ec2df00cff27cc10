"""Processes along time: equal to dense ones, to a declared chain, to finite differences; what users meet; mistakes explained."""

from functools import cache

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import multivariate_normal
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import natgrad as ng
from natgrad import covariance as cov
from natgrad.models.gp.state_space import ChainProblem, chains_of

KERNELS = {
    "12": cov.Matern12(1.3, 0.7),
    "32": cov.Matern32(0.8, 2.0),
    "52": cov.Matern52(1.1, 1.5),
    "sum": cov.Matern52(1.5, 4.0) + cov.Matern12(0.2, 0.3) + cov.Matern32([0.4], [1.0]),
}


@cache
def series(n=200):
    """Irregular times, some of them twice; in order."""
    g = np.random.default_rng(7)
    t = np.sort(g.uniform(0, 20, n))
    t[[20, 90]] = t[[21, 91]]
    return t, np.sin(t) + 0.3 * g.normal(size=n)


def h_of(kernel, noise):
    return np.array([*(float(np.ravel(part)[0]) for part in kernel.theta), np.log(noise)])


def still(kernel, noise=0.1, **more):
    return ng.StateSpaceGP(kernel, noise_variance=noise, fixed=["kernel", "noise"], verbose=False, **more)


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_the_dense_process(name):
    kernel, (t, y) = KERNELS[name], series()
    model = still(kernel).fit(t, y)
    k, away = kernel(t[:, None]), y - y.mean()
    total = k + 0.1 * np.eye(len(t))
    assert model.elbo_ == pytest.approx(multivariate_normal(np.zeros(len(t)), total).logpdf(away), abs=1e-8)
    new = np.concatenate([np.linspace(-3, 25, 40), t[:5], [1e4]])
    cross = kernel(new[:, None], t[:, None])
    gain = cross @ np.linalg.inv(total)
    mean, sd = model.predict(new, return_std=True, what="f")
    np.testing.assert_allclose(mean, gain @ away + y.mean(), atol=1e-8)
    np.testing.assert_allclose(sd**2, np.diag(kernel(new[:, None]) - gain @ cross.T), atol=1e-8)
    np.testing.assert_allclose(model.predict(new, return_std=True)[1] ** 2, sd**2 + 0.1)


@pytest.mark.parametrize("name", KERNELS)
def test_slopes_and_information_are_those_of_the_dense_density(name):
    kernel, (t, y) = KERNELS[name], series()
    h, problem = h_of(kernel, 0.1), ChainProblem(kernel, t[::4], y[::4])

    def covariance(at):
        return kernel.at([np.full(np.shape(p), v) for p, v in zip(kernel.theta, at, strict=False)])(
            t[::4, None]
        ) + np.exp(at[-1]) * np.eye(50)

    value, slope, information = problem.score(h)
    ends = [(problem.score(h + e).value - problem.score(h - e).value) / 2e-5 for e in 1e-5 * np.eye(len(h))]
    np.testing.assert_allclose(slope, ends, atol=1e-5)
    assert value == pytest.approx(multivariate_normal(np.zeros(50), covariance(h)).logpdf(y[::4]), abs=1e-8)
    # Information in mean over the data is ½ tr(S⁻¹ S' S⁻¹ S'); that of one series has its errors in place of their variances.
    whitened = [
        np.linalg.solve(covariance(h), covariance(h + e) - covariance(h - e)) / 2e-5 for e in 1e-5 * np.eye(len(h))
    ]
    wanted = np.array([[0.5 * np.trace(a @ b) for b in whitened] for a in whitened])
    g, root = np.random.default_rng(0), np.linalg.cholesky(covariance(h))
    found = np.mean(
        [ChainProblem(kernel, t[::4], root @ g.normal(size=50)).score(h).information for _ in range(100)], axis=0
    )
    np.testing.assert_allclose(found, wanted, atol=0.15 * np.abs(wanted).max())
    assert (np.linalg.eigvalsh(information) > -1e-9).all()


def test_it_is_the_declared_chain():
    """Equal distances: a Gaussian chain with a transition and precisions that are known."""
    times, y = np.arange(40) * 0.5, series()[1][:40]
    model = still(cov.Matern32(0.8, 2.0)).fit(times, y)
    delta = np.sqrt(3.0) / 2.0 * 0.5
    step = np.exp(-delta) * np.array([[1.0 + delta, delta], [-delta, 1.0 - delta]])
    left = 0.8 * (np.eye(2) - step @ step.T)
    n = ng.Plate("time", 40)
    x = ng.language.GaussianChain("x", np.zeros(2), np.eye(2) / 0.8, step, np.linalg.inv(left), plate=n)
    seen = ng.Normal("y", ng.dot(np.array([1.0, 0.0]), x), 10.0, plate=n, observed=y - y.mean())
    fit = ng.Network(seen).fit()
    assert model.elbo_ == pytest.approx(fit.elbo, abs=1e-8)
    np.testing.assert_allclose(model.predict(times) - y.mean(), fit["x"].mean()[:, 0], atol=1e-8)


def test_equal_distances_settle_and_lose_nothing():
    """Covariances that no longer change are not computed again; a gap begins anew."""
    t = np.concatenate([np.arange(300.0), 310.0 + np.arange(200.0)])
    y = np.sin(t / 9) + 0.2 * np.random.default_rng(0).normal(size=500)
    for kernel in (cov.Matern32(1.0, 5.0), cov.Matern52(1.0, 8.0) + cov.Matern12(0.1, 3.0)):
        problem, h = ChainProblem(kernel, t, y), h_of(kernel, 0.1)
        dense = multivariate_normal(np.zeros(500), kernel(t[:, None]) + 0.1 * np.eye(500)).logpdf(y)
        value, slope, _ = problem.score(h)
        assert value == pytest.approx(dense, abs=1e-8)
        ends = [(problem.score(h + e).value - problem.score(h - e).value) / 2e-5 for e in 1e-5 * np.eye(len(h))]
        np.testing.assert_allclose(slope, ends, atol=1e-4)


def test_a_million_times_nearer_is_the_same_process():
    t, y = series()
    one, other = still(cov.Matern52(1.1, 1.5)).fit(t, y), still(cov.Matern52(1.1, 1.5e-9)).fit(1e-9 * t, y)
    np.testing.assert_allclose(other.predict(1e-9 * t), one.predict(t), atol=1e-8)
    # Rows nearer to each other than rounding of the covariance: nothing is inverted that has no inverse.
    near = np.sort(np.concatenate([t, t + 1e-13]))
    model = still(cov.Matern52(1.1, 1.5), noise=1e-3).fit(near, np.sin(near))
    np.testing.assert_allclose(model.predict(near), np.sin(near), atol=0.05)


def test_hyper_parameters_are_those_of_the_largest_evidence():
    t, y = series()
    model = ng.StateSpaceGP(tol=1e-8, verbose=False).fit(t, y)
    problem = ChainProblem(model.kernel_, t, y - y.mean())
    assert model.stop_.converged
    np.testing.assert_allclose(problem.score(model._h).slope, 0.0, atol=1e-2)
    best = optimize.minimize(lambda h: -problem.score(h).value, model._h, jac=lambda h: -problem.score(h).slope)
    assert model.elbo_ == pytest.approx(-best.fun, abs=1e-6)
    bounds = model.trace_["elbo"]
    assert (np.diff(bounds) >= -1e-9).all()
    held = ng.StateSpaceGP(cov.Matern32(1.0, 0.3), fixed="kernel", verbose=False).fit(t, y)
    assert held.kernel_.lengthscale == 0.3
    assert held.elbo_ < model.elbo_
    low, high = model.linear_response()["Matern32.lengthscale"].interval(0.9)
    assert low < model.kernel_.lengthscale < high
    assert ng.StateSpaceGP("auto", verbose=False).fit(t, y).elbo_ >= model.elbo_ - 1e-3


def test_a_short_scale_in_a_long_series_is_found_whatever_was_given():
    g = np.random.default_rng(2)
    t = np.arange(6000.0)
    y = 3.0 + np.sin(t / 3.0) + 0.3 * g.normal(size=6000)
    model = ng.StateSpaceGP(cov.Matern52(), verbose=False).fit(t, y)
    assert 2.0 < model.kernel_.lengthscale < 30.0
    assert 0.25**2 < model.noise_variance_ < 0.35**2
    scaled = ng.StateSpaceGP(cov.Matern52(), verbose=False).fit(1e6 * t, 1e-3 * y)
    assert scaled.kernel_.lengthscale == pytest.approx(1e6 * model.kernel_.lengthscale, rel=1e-2)
    assert scaled.elbo_ == pytest.approx(model.elbo_ + 6000 * np.log(1e3), abs=1e-2)


def test_draws_have_the_moments_of_the_predictions_and_are_joint():
    t, y = series()
    model = still(KERNELS["sum"]).fit(t, y)
    new = np.array([3.0, 3.05, 24.0])
    draws = model.sample(new, 800)
    mean, sd = model.predict(new, return_std=True, what="f")
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.1)
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.1)
    cross = KERNELS["sum"](new[:, None], t[:, None])
    wanted = KERNELS["sum"](new[:, None]) - cross @ np.linalg.solve(
        KERNELS["sum"](t[:, None]) + 0.1 * np.eye(200), cross.T
    )
    np.testing.assert_allclose(np.cov(draws.T), wanted, atol=0.12)
    noisy = model.sample(new, 800, what="y")
    np.testing.assert_allclose(noisy.std(0), model.predict(new, return_std=True)[1], rtol=0.1)


def test_times_come_in_any_order_and_updates_and_continued_fits_end_at_the_optimum():
    t, y = series()
    model = ng.StateSpaceGP(verbose=False).fit(t, y)
    order = np.random.default_rng(0).permutation(len(t))
    mixed = ng.StateSpaceGP(verbose=False).fit(t[order][:, None], y[order])
    np.testing.assert_allclose(mixed.predict(t), model.predict(t), atol=1e-8)
    low, high = model.interval(t, 0.9)
    assert 0.84 < np.mean((y > low) & (y < high)) < 0.97
    assert model.score(t[:, None], y) > 0.8
    half = ng.StateSpaceGP(tol=1e-8, verbose=False).fit(t[::2], y[::2]).update(t[1::2], y[1::2])
    whole = ng.StateSpaceGP(tol=1e-8, verbose=False).fit(t, y)
    assert half.elbo_ == pytest.approx(whole.elbo_, abs=1e-6)
    assert half.n_rows_seen_ == 200
    with pytest.warns(ng.errors.NotConverged, match="raise max_steps, or call continue_fit"):
        short = ng.StateSpaceGP(tol=1e-8, max_steps=1, verbose=False).fit(t, y)
    assert short.continue_fit(t, y, max_steps=100).elbo_ == pytest.approx(whole.elbo_, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "words", "kind"),
    [
        ({"kernel": cov.RBF()}, "is none of Matern12, Matern32 and Matern52", TypeError),
        ({"kernel": cov.Matern12() * cov.Matern32()}, "is none of", TypeError),
        ({"kernel": "best"}, "kernel must be", TypeError),
        ({"noise_variance": 0.0}, "noise_variance must be > 0", ValueError),
        ({"tol": -1.0}, "tol must be ≥ 0", ValueError),
        ({"max_steps": 0}, "max_steps", ValueError),
        ({"fixed": ["inducing"]}, 'fixed must be some of "kernel", "noise"', ValueError),
    ],
)
def test_mistakes_are_explained(options, words, kind):
    with pytest.raises(kind, match=words):
        ng.StateSpaceGP(**options).fit(*series())


def test_rows_that_are_none_are_explained():
    t, y = series()
    with pytest.raises(ValueError, match="X has 2 columns, and a process along time takes one"):
        ng.StateSpaceGP().fit(np.c_[t, t], y)
    with pytest.raises(ValueError, match="NaN"):
        ng.StateSpaceGP().fit(t, np.where(t > 5, np.nan, y))
    with pytest.raises(ValueError, match="not fitted"):
        ng.StateSpaceGP().predict(t)
    with pytest.raises(ValueError, match="mass must lie in"):
        still(KERNELS["12"]).fit(t, y).interval(t, 1.0)
    one = ng.StateSpaceGP(verbose=False).fit([3.0], [2.0])  # nothing to learn from, and nothing breaks
    assert np.isfinite(one.predict([3.0, 4.0])).all()
    same = ng.StateSpaceGP(verbose=False).fit(np.ones(20), np.arange(20.0))
    assert np.isfinite(same.predict([1.0, 2.0], return_std=True)).all()
    flat = ng.StateSpaceGP(verbose=False).fit(np.arange(20.0), np.ones(20))
    assert np.isfinite(flat.predict([1.0, 2.0], return_std=True)).all()


def test_chains_are_what_the_kernel_says():
    chains = chains_of(KERNELS["sum"], h_of(KERNELS["sum"], 0.1))
    assert chains.sizes.tolist() == [3, 1, 2]
    assert chains.size == 6
    np.testing.assert_allclose(chains.rates, [np.sqrt(5) / 4.0, 1 / 0.3, np.sqrt(3)])


def test_it_is_one_of_scikit_learns_with_one_column():
    """The generated checks feed several columns and are not for it, which the tags say as those of IsotonicRegression do."""
    tags = get_tags(ng.StateSpaceGP())
    assert (tags.input_tags.one_d_array, tags.input_tags.two_d_array) == (True, False)
    t = np.linspace(0.0, 20.0, 120)[:, None]
    y = np.sin(t[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(120)
    folds = KFold(3, shuffle=True, random_state=0)
    assert cross_val_score(make_pipeline(StandardScaler(), ng.StateSpaceGP()), t, y, cv=folds).min() > 0.95


def test_what_is_no_stream_of_pairs_is_named():
    t, y = np.arange(60.0), np.sin(np.arange(60.0) / 5)
    for stream, words in (
        ([t[:3]], "chunk 0 of the stream: expected a pair"),
        ([(t[:3], y[:3]), (t[:3], y[:2])], r"chunk 1 of the stream: X has shape \(3,\)"),
        ([], "the stream is empty"),
        ([(t[:3], y[:3]), (np.zeros((3, 2)), y[:3])], "have 1, 2 columns"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            ng.StateSpaceGP().fit(iter(stream))


def test_noise_that_the_data_do_not_determine_is_warned_of():
    """Its interval was (0, inf) without a word."""
    t = np.linspace(0, 10, 100)
    model = ng.StateSpaceGP(verbose=False).fit(t, np.sin(t))
    with pytest.warns(ng.errors.PoorApproximation, match="do not determine 'noise'.*keep it fixed"):
        response = model.linear_response()
    assert response["noise"].interval()[1] == np.inf


def test_forget_counts_rows_as_they_came() -> None:
    """Rows were held in the order of time, and forget(0) took the earliest."""
    rng = np.random.default_rng(0)
    t = rng.permutation(np.arange(40.0))
    y = np.sin(t / 5.0) + 0.1 * rng.normal(size=40)
    without = ng.StateSpaceGP(verbose=False).fit(t, y).forget(0)
    assert t[0] not in without._rows[0]
    assert without.n_rows_seen_ == 39
