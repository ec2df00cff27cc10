"""`GaussianProcess` in the language: the ready model with the same settings, a Gamma on the noise, mini-batches, mistakes."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.covariance import RBF, Matern32
from natgrad.errors import PlateMismatch
from natgrad.models.gp import Solver


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
        kernel, inducing=z, noise_variance=0.04, fixed=["kernel", "noise", "inducing"], max_steps=1,
        solver=Solver(method=ng.VB(), step=ng.Constant(1.0), standardize=False),
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


GRID = np.linspace(0, 5, 7)[:, None]


def test_functions_on_a_plate_are_processes_of_their_own():
    x, y = data()
    group = np.arange(60) % 3
    f = ng.GaussianProcess("f", RBF(1.2, 0.8), inducing=GRID, plate=ng.Plate("group", 3))
    fit = ng.Network(ng.Normal("y", f(x)[group], 25.0, plate=ng.Plate("n", 60), observed=y)).fit()
    single = ng.GaussianProcess("f", RBF(1.2, 0.8), inducing=GRID)
    total = 0.0
    for number in range(3):
        own = group == number
        alone = ng.Network(ng.Normal("y", single(x[own]), 25.0, plate=ng.Plate("n", own.sum()), observed=y[own])).fit()
        total += alone.elbo
        for found, wanted in zip(f.at(fit["f"], GRID), single.at(alone["f"], GRID), strict=True):
            np.testing.assert_allclose(found[number], wanted, atol=1e-10)
    assert fit.elbo == pytest.approx(total, abs=1e-9)


def test_several_outputs_have_the_inputs_last():
    x, y = data(3)
    task, n = ng.Plate("task", 3), ng.Plate("n", 3)
    f = ng.GaussianProcess("f", RBF(1.2, 0.8), inducing=GRID, plate=task)
    table = np.stack([y, 2 * y, -y])
    fit = ng.Network(ng.Normal("y", f(x), 25.0, plate=(task, n), observed=table)).fit()
    single, total = ng.GaussianProcess("f", RBF(1.2, 0.8), inducing=GRID), 0.0
    for row in table:
        total += ng.Network(ng.Normal("y", single(x), 25.0, plate=n, observed=row)).fit().elbo
    assert fit.elbo == pytest.approx(total, abs=1e-9)
    with pytest.raises(
        PlateMismatch, match="that is 'task', the plate of its functions: put the plate of the inputs last"
    ):
        ng.Normal("y", f(x), 25.0, plate=(n, task), observed=table.T)


def test_a_mixture_of_curves_finds_who_follows_which():
    g = np.random.default_rng(3)
    hours, kind = np.linspace(0, 5, 8)[:, None], g.integers(0, 2, 30)
    curves = np.where(kind[:, None] == 0, np.sin(hours[:, 0]), -np.sin(hours[:, 0])) + 0.3 * g.normal(size=(30, 8))
    person, time = ng.Plate("person", 30), ng.Plate("time", 8)
    z = ng.Categorical("z", ng.Dirichlet("p", 1.0, size=2), plate=person)
    f = ng.GaussianProcess("f", RBF(1.0, 1.0), inducing=GRID, plate=ng.Plate("kind", 2))
    y = ng.Normal("y", f(hours)[z], ng.Gamma("tau", 1.0, 0.1), plate=(person, time), observed=curves)
    fit = ng.Network(y).fit()
    assert (np.diff(fit.trace["elbo"]) > -1e-9).all()
    found = fit["z"].mean().argmax(-1)
    assert (found == kind).mean() in (0.0, 1.0)
    mean = f.at(fit["f"], hours).mean[found[kind == 0][0]]
    np.testing.assert_allclose(mean, np.sin(hours[:, 0]), atol=0.25)
    assert str(f(hours)[z]) == "f(X)[z]"


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
    with pytest.raises(PlateMismatch, match=r"f\(X\)\[…\] got 1 indices, and 'f' has 0 plate"):
        f(np.zeros((3, 1)))[0]
    with pytest.raises(TypeError, match=r"read at inputs first, and chosen then: f\(X\)\[z\]"):
        f[0]
    with pytest.raises(PlateMismatch, match="the plate of a GaussianProcess needs a size"):
        ng.GaussianProcess("f", RBF(), inducing=[[0.0]], plate=ng.Plate("k"))
