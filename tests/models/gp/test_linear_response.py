"""Hyper-parameters of Gaussian processes: the curvature of the log marginal likelihood, beside the exact one."""

import warnings

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.gp import Solver
from natgrad.models.gp.response import _Collapsed

EXACT = {
    "solver": Solver(standardize=False, jitter=1e-10),
    "fixed": "inducing",
    "max_steps": 3000,
    "tol": 1e-9,
    "verbose": False,
}


def data(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=n)


def test_standard_deviations_are_those_of_the_exact_process():
    """Inducing inputs at the data: the bound is the log marginal likelihood."""
    x, y = data()
    model = ng.SparseGPRegressor(inducing=x, **EXACT).fit(x, y)
    lr = model.linear_response()

    def log_marginal(h: np.ndarray) -> float:
        k = np.exp(h[0] - 0.5 * (x - x.T) ** 2 / np.exp(2 * h[1])) + np.exp(h[2]) * np.eye(len(x))
        factor = np.linalg.cholesky(k)
        z = np.linalg.solve(factor, y - model._offset)
        return float(-0.5 * z @ z - np.log(np.diag(factor)).sum())

    at = np.concatenate([np.ravel(factor.log_mean) for factor in lr.values()])
    step, eye = 1e-3, np.eye(3)
    slope = [(log_marginal(at + step * e) - log_marginal(at - step * e)) / (2 * step) for e in eye]
    np.testing.assert_allclose(slope, 0.0, atol=1e-3)
    hessian = [
        [
            log_marginal(at + step * (a + b)) - log_marginal(at + step * (a - b))
            - log_marginal(at - step * (a - b)) + log_marginal(at - step * (a + b))
            for a in eye
        ]
        for b in eye
    ]  # fmt: skip
    wanted = np.linalg.inv(-np.array(hessian) / (4 * step**2))
    np.testing.assert_allclose(lr.covariance, wanted, rtol=1e-3, atol=1e-4)
    sd = np.sqrt(np.diag(wanted))
    np.testing.assert_allclose(lr["RBF.lengthscale"].log_std, sd[1:2], rtol=1e-3)
    np.testing.assert_allclose(
        lr.correlation("RBF.variance", "RBF.lengthscale"), wanted[:1, 1] / (sd[0] * sd[1]), rtol=1e-3
    )
    low, high = lr["noise"].interval(0.9)
    assert low < 0.04 < high
    drawn = lr.sample(0, 20_000)
    np.testing.assert_allclose(np.log(drawn["noise"]).std(), sd[2], rtol=0.03)
    assert set(lr) == {"RBF.variance", "RBF.lengthscale", "noise"}


def test_units_of_outputs_and_the_data_of_the_fit():
    x, y = data()
    options = {"inducing": x[:15], "fixed": "inducing", "max_steps": 2000, "tol": 1e-9, "verbose": False}
    one, ten = (ng.SparseGPRegressor(**options).fit(x, c * y) for c in (1.0, 10.0))
    first, second = one.linear_response(), ten.linear_response(x, 10.0 * y)
    np.testing.assert_allclose(second["noise"].mean(), 100 * first["noise"].mean(), rtol=1e-4)
    np.testing.assert_allclose(second["noise"].log_std, first["noise"].log_std, rtol=1e-4)
    np.testing.assert_allclose(first["noise"].mean(), one.noise_variance_, rtol=0.05)
    del one._data
    with pytest.raises(ValueError, match="give X, y"):
        one.linear_response()
    with pytest.raises(KeyError, match="these are RBF"):
        first["length"]
    with pytest.raises(TypeError, match=r"sample\(X, n\)"):
        one.draws()


def test_several_classes_settle_and_their_slopes_are_those_of_the_bound():
    """Steps of a softmax are too long in most directions, and hardly move along a shift of all functions."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (150, 1))
    f = np.column_stack([2 * np.sin(2 * x[:, 0]), x[:, 0], 0 * x[:, 0]])
    y = (f + rng.gumbel(size=f.shape)).argmax(1)
    model = ng.SparseGPClassifier(n_inducing=10, max_steps=200, verbose=False).fit(x, y)
    rows = model._read(x, y, False).scaled_by(model._x_scaling, model._y_scaling)
    problem = model._again(rows)
    centred = problem.centred(model._state)
    assert problem.bound(centred) >= problem.bound(model._state)
    chances = [
        type(model._predictor).of(problem, state).log_density(*rows.take(None)) for state in (model._state, centred)
    ]
    np.testing.assert_allclose(*chances, atol=1e-9)
    collapsed = _Collapsed(problem, model._state)
    at, step = collapsed.start + 0.1, 1e-3
    slope = [(collapsed(at + step * e)[0] - collapsed(at - step * e)[0]) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(collapsed(at)[1], slope, rtol=1e-3, atol=1e-3)
    state = collapsed._at(at)[0]
    for _ in range(50):
        state = problem.sweep(state, rho=0.5).state
    assert problem.bound(state) == pytest.approx(collapsed._at(at)[1], abs=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a short fit
        low, high = model.linear_response()["RBF.lengthscale"].interval(0.9)
    assert 0 < low < high < 10


def test_influence_is_the_derivative_by_the_weight_of_a_row():
    """A row of weight w has the noise σ²/w, and as many factors of the density: the exact log marginal likelihood of both."""
    x, y = data(25)
    model = ng.SparseGPRegressor(inducing=x, **EXACT).fit(x, y)
    lr = model.linear_response()
    at = np.concatenate([np.ravel(factor.log_mean) for factor in lr.values()])

    def log_marginal(h: np.ndarray, weight: np.ndarray) -> float:
        noise = np.exp(h[2])
        k = np.exp(h[0] - 0.5 * (x - x.T) ** 2 / np.exp(2 * h[1])) + np.diag(noise / weight)
        factor = np.linalg.cholesky(k)
        z = np.linalg.solve(factor, y - model._offset)
        powers = -0.5 * np.sum((weight - 1.0) * np.log(2 * np.pi * noise)) - 0.5 * np.sum(np.log(weight))
        return float(-0.5 * z @ z - np.log(np.diag(factor)).sum() + powers)

    step, eye, row = 1e-3, np.eye(3), 4
    # dh/dw = Cov(h) ∂²F/∂h∂w.
    mixed = [
        sum(
            a * b * log_marginal(at + a * step * e, np.ones(25) + b * step * np.eye(25)[row])
            for a in (1, -1) for b in (1, -1)
        ) / (4 * step**2)
        for e in eye
    ]  # fmt: skip
    wanted = lr.covariance @ mixed
    found = [lr.influence(name)["row"].reshape(-1, 25)[0, row] / lr[name].mean().ravel()[0] for name in lr]
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=1e-4)
    ratio = lr.influence(lambda m: m["noise"] / m["RBF.variance"])["row"]
    chain = (lr["noise"].mean() / lr["RBF.variance"].mean()).ravel()[0] * (wanted[2] - wanted[0])
    np.testing.assert_allclose(ratio.ravel()[row], chain, rtol=2e-2, atol=1e-4)


def test_functions_of_hyper_parameters_have_standard_deviations():
    x, y = data()
    lr = ng.SparseGPRegressor(inducing=x, **EXACT).fit(x, y).linear_response()
    np.testing.assert_allclose(lr.std(lambda m: np.log(m["noise"])), lr["noise"].log_std, rtol=1e-5)
    np.testing.assert_allclose(lr.std("noise"), lr["noise"].std(), rtol=1e-9)
    assert lr.correlation("noise", lambda m: -m["noise"]).ravel() == pytest.approx([-1.0])
    low, high = lr.interval(lambda m: m["noise"])
    assert low < lr["noise"].mean() < high
    assert lr.interval("noise") == lr["noise"].interval(0.9)
