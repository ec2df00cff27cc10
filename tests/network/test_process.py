"""`GaussianProcess` in the language: the ready model with the same settings, a Gamma on the noise, mini-batches, mistakes."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.covariance import RBF, Matern32


def data(n=60):
    g = np.random.default_rng(2)
    x = g.uniform(0, 5, size=(n, 1))
    return x, np.sin(x[:, 0]) + 0.1 * g.normal(size=n)


@pytest.mark.parametrize(
    "kernel", [RBF(1.2, 0.8), pytest.param(Matern32(0.7, 1.5), marks=pytest.mark.slow)], ids=("rbf", "matern")
)
def test_a_declared_process_is_the_ready_model(kernel):
    x, y = data()
    z = np.linspace(0, 5, 7)[:, None]
    f = ng.GaussianProcess("f", kernel, inducing=z)
    fit = ng.Network(ng.Normal("y", f(x), 25.0, plate=ng.Plate("n", 60), observed=y)).fit()
    ready = ng.SparseGPRegressor(
        kernel, inducing=z, noise_variance=0.04, method=ng.VB(), step=ng.Constant(1.0), max_steps=1, standardize=False,
        learn_kernel=False, learn_noise=False, learn_inducing=False,
    ).fit(x, y)  # fmt: skip
    assert fit.elbo == pytest.approx(ready.elbo_, rel=1e-8)
    new = np.linspace(-1, 6, 30)[:, None]
    mean, sd = ready.predict(new, return_std=True)
    found = f.at(fit["f"], new)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.var + 0.04, sd**2, rtol=1e-8, atol=1e-8)


@pytest.mark.slow  # a smaller one is in the docstring of the node
def test_the_noise_can_be_random():
    x, y = data(200)
    f = ng.GaussianProcess("f", RBF(1.0, 1.0), inducing=np.linspace(0, 5, 10)[:, None])
    tau = ng.Gamma("tau", 1.0, 0.01)
    fit = ng.Network(ng.Normal("y", f(x) + 0.0, tau, plate=ng.Plate("n", 200), observed=y)).fit()
    assert fit.stop.converged
    assert 60 < fit["tau"].mean() < 160
    assert (np.diff(fit.trace["elbo"]) > -1e-9 * abs(fit.elbo)).all()


def test_mistakes_are_explained():
    with pytest.raises(TypeError, match=r"'f': kernel must be a natgrad\.covariance"):
        ng.GaussianProcess("f", "rbf", inducing=[[0.0]])
    f = ng.GaussianProcess("f", RBF(), inducing=[[0.0], [1.0]])
    assert repr(f) == "<GaussianProcess 'f': RBF(variance=1, lengthscale=1), 2 inducing inputs>"
    with pytest.raises(ValueError, match="X has 2 columns, and the inducing inputs have 1"):
        f(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="jitter must lie in"):
        ng.GaussianProcess("f", RBF(), inducing=[[0.0]], jitter=1.0)
    with pytest.raises(ValueError, match="must be rows of inputs"):
        f(np.zeros((3, 2, 1)))
