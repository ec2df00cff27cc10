"""A mean and its precision in one factor: the exact posterior and the exact evidence, where a factorised q has neither."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import multigammaln

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.models import hmm

Y = np.array([1.2, -0.3, 0.8, 2.1, 0.4])


def one_mean(
    joint: Any, shift: float = 0.0, conjugate: bool = False, y: np.ndarray = Y, weight: Any = None
) -> ng.Network:
    tau = ng.Gamma("tau", 1.0, 1.0)
    mu = ng.Normal("mu", shift, 0.1 * tau if conjugate else 0.1)
    plate = ng.Plate("n", len(y), weight=weight)
    return ng.Network(ng.Normal("y", mu, tau, plate=plate, observed=y + shift), joint=joint)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("joint", [[("mu", "tau")], [("tau", "mu")], "full"])
def test_the_bound_is_the_evidence(joint, backend, reference):
    r = reference("exact_conjugate")["normal_gamma_meanfield"]
    np.testing.assert_array_equal(r["data"], Y)
    fit = one_mean(joint).fit(backend=backend)
    assert fit.elbo == pytest.approx(r["log_evidence_quadrature"], rel=1e-11)
    assert fit.stop.converged
    assert one_mean("auto").fit().elbo == pytest.approx(r["elbo"], rel=1e-6)  # the default stays as it is


def test_means_intervals_and_correlation_are_those_of_the_posterior():
    """Beside a grid of 5·10⁶ points of (μ, τ)."""
    fit = one_mean([("mu", "tau")], conjugate=False).fit()
    mu, tau = np.linspace(-20, 20, 4001)[:, None], np.exp(np.linspace(-16, 4, 1201))[None]
    log = -0.05 * mu**2 + 2.5 * np.log(tau) - tau * (1 + 0.5 * (Y**2).sum() - mu * Y.sum() + 2.5 * mu**2) + np.log(tau)
    p = np.exp(log - log.max())
    p /= p.sum()
    np.testing.assert_allclose(fit["mu"].mean(), (p * mu).sum(), rtol=1e-6)
    np.testing.assert_allclose(fit["mu"].std(), math.sqrt((p * mu**2).sum() - (p * mu).sum() ** 2), rtol=1e-5)
    np.testing.assert_allclose(fit["tau"].mean(), (p * tau).sum(), rtol=1e-6)
    both = (p * mu * tau).sum() - (p * mu).sum() * (p * tau).sum()
    np.testing.assert_allclose(fit.correlation("mu", "tau"), both / (fit["mu"].std() * fit["tau"].std()), rtol=1e-4)
    for name, grid, along in (("mu", mu[:, 0], p.sum(1)), ("tau", tau[0], p.sum(0))):
        wanted = np.interp([0.05, 0.95], np.cumsum(along) - 0.5 * along, grid)
        np.testing.assert_allclose(fit[name].interval(0.9), wanted, rtol=2e-3, atol=2e-4)  # of the grid
    drawn = fit["mu"].sample(0, 40_000)
    np.testing.assert_allclose(drawn.std(), fit["mu"].std(), rtol=0.03)
    lr = fit.linear_response()
    np.testing.assert_allclose([lr["mu"].std(), lr["tau"].std()], [fit["mu"].std(), fit["tau"].std()], rtol=1e-6)
    assert one_mean(None).fit().linear_response()["mu"].std() < 0.9 * fit["mu"].std()


def test_a_prior_that_shares_the_precision_gives_students_t():
    fit = one_mean([("mu", "tau")], conjugate=True).fit()
    n, scale = len(Y), 0.1 + len(Y)
    mean, shape = Y.sum() / scale, 1.0 + 0.5 * n
    rate = 1.0 + 0.5 * (Y**2).sum() - 0.5 * scale * mean**2
    evidence = (
        math.lgamma(shape) - shape * math.log(rate) + 0.5 * math.log(0.1 / scale) - 0.5 * n * math.log(2 * math.pi)
    )
    assert fit.elbo == pytest.approx(evidence, rel=1e-11)
    student = stats.t(2 * shape, mean, math.sqrt(rate / (shape * scale)))
    np.testing.assert_allclose(fit["mu"].interval(0.9), student.interval(0.9), rtol=1e-8)
    np.testing.assert_allclose(fit["mu"].std(), student.std(), rtol=1e-8)
    np.testing.assert_allclose(fit["tau"].interval(0.9), stats.gamma(shape, scale=1 / rate).interval(0.9), rtol=1e-4)


def regression_evidence(x: np.ndarray, y: np.ndarray, precision: float) -> float:
    """∫ over log τ of the Gaussian evidence, on a fine grid."""
    t = np.linspace(-12, 12, 4001)
    # In the axes of X Xᵀ the rows are independent.
    variance, axes = np.linalg.eigh(x @ x.T / precision)
    cov = np.exp(-t)[:, None] + variance
    gaussian = -0.5 * (np.log(2 * np.pi * cov) + (axes.T @ y) ** 2 / cov).sum(1)
    log = gaussian + stats.gamma(2.0, scale=1 / 2.0).logpdf(np.exp(t)) + t
    return float(log.max() + np.log(np.exp(log - log.max()).sum() * (t[1] - t[0])))


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_regressions_are_exact(backend):
    """Scalars, a vector, and both; more coefficients than rows."""
    rng = np.random.default_rng(0)
    for n, k in ((12, 3), (3, 4)):
        x = rng.normal(size=(n, k)) + 1.0
        y = x @ rng.normal(size=k) + rng.normal(size=n)
        plate, tau = ng.Plate("n", n), ng.Gamma("tau", 2.0, 2.0)
        scalars = [ng.Normal(f"b{i}", 0.0, 0.5) for i in range(k)]
        vector = ng.MultivariateNormal("b", np.zeros(k), 0.5 * np.eye(k))
        some = ng.MultivariateNormal("c", np.zeros(k - 1), 0.5 * np.eye(k - 1))
        means = {
            "scalars": sum(b * x[:, i] for i, b in enumerate(scalars)),
            "vector": ng.dot(x, vector),
            "both": ng.dot(x[:, 1:], some) + scalars[0] * x[:, 0],
        }
        wanted = regression_evidence(x, y, 0.5)
        for words, mean in means.items():
            net = ng.Network(ng.Normal("y", mean, tau, plate=plate, observed=y), joint="full")
            fit = net.fit(backend=backend)
            assert len(fit.problem.blocks) == 1, words
            assert fit.elbo == pytest.approx(wanted, rel=1e-9), words
        full, drawn = fit, fit.draws(n=1500, chains=8, verbose=False)
        np.testing.assert_allclose(drawn["b0"].mean(), full["b0"].mean(), atol=0.1 * float(full["b0"].std()))
        np.testing.assert_allclose(drawn["b0"].std(), full["b0"].std(), rtol=0.06)


def matrix(joint: Any, y: np.ndarray, shift: float = 0.0, scale: Any = 0.1) -> ng.Network:
    precision = ng.Wishart("precision", 4.0, 1.5 * np.eye(2))
    mu = ng.MultivariateNormal("mu", np.array([0.5, 0.0]) + shift, scale * precision if scale else np.eye(2))
    return ng.Network(
        ng.MultivariateNormal("y", mu, precision, plate=ng.Plate("n", len(y)), observed=y + shift), joint=joint
    )


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_normal_wishart_is_exact(backend, shift, reference):
    y = np.array(reference("exact_conjugate")["wishart_mvnormal_zero_mean"]["Y"])
    n, size, dof = len(y), 2, 4.0 + len(y)
    scale, prior, rate = 0.1 + n, np.array([0.5, 0.0]), 1.5 * np.eye(2)
    mean = (0.1 * prior + y.sum(0)) / scale
    after = rate + y.T @ y + 0.1 * np.outer(prior, prior) - scale * np.outer(mean, mean)

    def log_z(k: float, nu: float, r: np.ndarray) -> float:
        return (
            0.5 * nu * (size * math.log(2) - np.linalg.slogdet(r)[1])
            + multigammaln(nu / 2, size)
            - 0.5 * size * math.log(k)
        )

    evidence = log_z(scale, dof, after) - log_z(0.1, 4.0, rate) - 0.5 * n * size * math.log(2 * math.pi)
    fit = matrix("full", y, shift).fit(backend=backend)
    tight = 1e-10 if shift == 0 else 1e-8
    assert fit.elbo == pytest.approx(evidence, rel=tight)
    assert len(fit.problem.blocks) == 1
    np.testing.assert_allclose(fit["mu"].mean() - shift, mean, rtol=max(tight, 1e-9 * shift))
    student = stats.t(dof - size + 1, mean, np.sqrt(np.diag(after) / (scale * (dof - size + 1))))
    np.testing.assert_allclose(
        np.array(fit["mu"].interval(0.9)) - shift, student.interval(0.9), rtol=1e-6, atol=1e-9 * shift
    )
    np.testing.assert_allclose(fit["precision"].parameters["dof"], dof)
    np.testing.assert_allclose(
        fit["precision"].parameters["rate"], after, rtol=max(1e-9, 1e-12 * shift), atol=1e-9 * (1 + shift)
    )
    lr = fit.linear_response()
    np.testing.assert_allclose(lr["mu"].std(), fit["mu"].std(), rtol=1e-6)
    np.testing.assert_allclose(lr["precision"].std(), fit["precision"].std(), rtol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_data_far_from_zero_and_weights(backend):
    near, far = (one_mean("full", shift=s).fit(backend=backend) for s in (0.0, 1e7))
    np.testing.assert_allclose(far.elbo, near.elbo, rtol=1e-8)
    np.testing.assert_allclose(far["mu"].mean() - 1e7, near["mu"].mean(), rtol=1e-6)
    np.testing.assert_allclose(far["mu"].std(), near["mu"].std(), rtol=1e-6)
    weight = np.array([1.0, 3.0, 2.0, 0.0, 1.0])
    copies = np.repeat(Y, weight.astype(int))
    np.testing.assert_allclose(
        one_mean("full", weight=weight).fit(backend=backend).elbo, one_mean("full", y=copies).fit().elbo, rtol=1e-10
    )


def test_prior_and_data_that_disagree_have_two_modes():
    """x near its prior with a wide noise, or near the data with a narrow one: both count."""
    y = np.array([10.05, 9.93, 10.01])
    tau, mu = ng.Gamma("tau", 1.0, 0.01), ng.Normal("mu", 0.0, 1.0)
    net = ng.Network(ng.Normal("y", mu, tau, plate=ng.Plate("n", 3), observed=y), joint="full")
    t = np.linspace(-30, 30, 200_001)
    tau_grid = np.exp(t)
    precision, linear = 1.0 + 3 * tau_grid, tau_grid * y.sum()
    log = t * 2.5 - tau_grid * (0.01 + 0.5 * (y**2).sum()) + 0.5 * linear**2 / precision - 0.5 * np.log(precision)
    log += math.log(0.01) - 1.5 * math.log(2 * math.pi)
    evidence = log.max() + np.log(np.exp(log - log.max()).sum() * (t[1] - t[0]))
    assert np.sum(np.diff(np.sign(np.diff(log))) < 0) == 2
    fit = net.fit()
    assert fit.elbo == pytest.approx(evidence, rel=1e-9)
    p = np.exp(log - log.max())
    np.testing.assert_allclose(fit["mu"].mean(), (p * linear / precision).sum() / p.sum(), rtol=1e-6)


def components(joint: Any, order: Any = (0, 1)) -> ng.Network:
    """A mixture whose components have means and precisions of their own: three groups, two chosen by nobody else."""
    rng = np.random.default_rng(3)
    y = np.concatenate([rng.normal(-3, 0.5, 12), rng.normal(2, 1.5, 15)])
    k, n = ng.Plate("k", 2), ng.Plate("n", 27)
    z = ng.Categorical("z", ng.Dirichlet("w", [2.0, 2.0]), plate=n)
    mu = ng.Normal("mu", np.array([-3.0, 2.0])[list(order)], 0.1, plate=k)
    tau = ng.Gamma("tau", 2.0, 2.0, plate=k)
    return ng.Network(ng.Normal("y", mu[z], tau[z], plate=n, observed=y), joint=joint)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_components_of_a_mixture(backend):
    init = {"mu": [-3.0, 2.0]}
    apart = components(None).fit(init=init, tol=1e-9)
    fit = components([("mu", "tau")]).fit(init=init, tol=1e-9, backend=backend)
    assert fit.elbo > apart.elbo + 0.02
    other = components([("mu", "tau")], (1, 0)).fit(init={"mu": [2.0, -3.0]}, tol=1e-9, backend=backend)
    np.testing.assert_allclose(other.elbo, fit.elbo, rtol=1e-9)
    np.testing.assert_allclose(other["tau"].mean()[::-1], fit["tau"].mean(), rtol=1e-5)
    assert fit["mu"].std().shape == (2,)
    drawn = fit.draws(n=1500, chains=8, verbose=False)
    # What is left are memberships, which nearly all points know, and the other labelling, of which priors leave a little.
    values = drawn["mu"].values.reshape(-1, 2)
    own = values[:, 0] < values[:, 1]
    assert 0.9 < own.mean() < 1.0
    np.testing.assert_allclose(fit["mu"].std(), values[own].std(0), rtol=0.12)
    svi = components([("mu", "tau")]).fit(ng.SVI({"n": 9}), init=init, max_steps=200, seed=1, backend=backend)
    assert svi.elbo > fit.elbo - 0.2


@pytest.mark.parametrize("init", [None, "kmeans"])
@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_a_mixture_reaches_the_bound_of_the_ready_model(covariance, init):
    """Each component has one factor for its mean and its precision, as in `GaussianMixture`; so does each of its columns."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(150, 2)) + 5.0 * rng.normal(size=(3, 2))[rng.integers(3, size=150)]
    row, component, column = ng.Plate("row", 150), ng.Plate("component", 3), ng.Plate("column", 2)
    z = ng.Categorical("z", ng.Dirichlet("weights", 1.0, size=3), plate=row)
    if covariance == "full":
        precision: Any = ng.Wishart("precision", 4.0, np.eye(2), plate=component)
        mu: Any = ng.MultivariateNormal("mu", np.zeros(2), 0.1 * precision, plate=component)
        y: Any = ng.MultivariateNormal("y", mu[z], precision[z], plate=row, observed=x)
    else:
        precision = ng.Gamma("precision", 2.0, 0.5, plate=(component, column))
        mu = ng.Normal("mu", 0.0, 0.1 * precision, plate=(component, column))
        y = ng.Normal("y", mu[z, :], precision[z, :], plate=(row, column), observed=x)
    fit = ng.Network(y, joint=[("mu", "precision")]).fit(init=init, tol=1e-8)
    rate = np.eye(2) if covariance == "full" else np.ones(2)
    prior = hmm.Gaussian(covariance, np.zeros(2), 0.1, 4.0, rate)
    model = ng.GaussianMixture(3, covariance=prior, weight_prior=1.0, tol=1e-10, verbose=False).fit(x)
    assert fit.elbo == pytest.approx(model.elbo_, rel=1e-7)


def test_what_cannot_be_joined_says_why():
    y = np.zeros((4, 2))
    with pytest.raises(NotConjugate, match=r"known multiple of 'precision' in its prior, such as 0.1 \* precision"):
        _ = matrix([("mu", "precision")], y + np.arange(8.0).reshape(4, 2), scale=None).problem
    k, n = ng.Plate("k", 2), ng.Plate("n", 4)
    tau, tau_k = ng.Gamma("tau", 1.0, 1.0), ng.Gamma("tau_k", 1.0, 1.0, plate=k)
    a = ng.Normal("a", 0.0, tau_k, plate=k)
    child = ng.Normal("y", a[np.array([0, 1, 1, 0])], tau, plate=n, observed=np.arange(4.0))
    with pytest.raises(PlateMismatch, match="different plates"):
        ng.Network(child, joint=[("a", "tau")])
    with pytest.raises(NotConjugate, match="more than one precision"):
        _ = ng.Network(ng.Normal("y", ng.Normal("m", 0.0, ng.Gamma("s", 1.0, 1.0)), tau, plate=n, observed=np.arange(4.0)),
                       joint=[("m", "s", "tau")]).problem  # fmt: skip
    flat = ng.Normal("y", ng.Normal("m", 0.0, 0.0), tau, plate=n, observed=np.arange(4.0))
    with pytest.raises(NotConjugate, match="flat prior"):
        _ = ng.Network(flat, joint=[("m", "tau")]).problem
    with pytest.raises(TypeError, match='"full"'):
        ng.Network(flat, joint="everything")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        full = ng.Network(child, joint="full")
    assert set(full.problem.plan.members) == {"a", "tau_k"}  # effects and the precision of their own plate
