"""A fit that ends with all rows: the bound with q at its best and its slope, what moves, and that nothing is left to gain."""

import copy

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import natgrad as ng
from natgrad.covariance import RBF, Matern12
from natgrad.data.rows import Rows
from natgrad.models.gp import Solver, run
from natgrad.models.gp.joint import likelihood_named
from natgrad.models.gp.likelihoods import Gaussian
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.run import Polishing, uses_lbfgs
from natgrad.models.gp.settings import Learned, Settings, flat, shaped


def table(n=600, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3))
    return x, np.sin(3 * x[:, 0]) * x[:, 1] + 0.1 * rng.normal(size=n)


def begun(n=40, **settings):
    x, y = table(n)
    kernel = RBF(1.3, [0.7, 0.9, 2.0])
    problem = GPProblem(Rows(x, y[:, None]), kernel, Gaussian(), n_inducing=6, batch_size=n // 4, **settings)
    state = problem.start(Settings(kernel.theta, x[:6], np.array([Gaussian().start(0.02)])))
    return problem, state, kernel


def quick(**settings):
    defaults = {"n_inducing": 10, "solver": Solver(batch_size=200), "max_steps": 2000, "verbose": False}
    return ng.SparseGPRegressor(**{**defaults, **settings})


def test_its_value_is_the_collapsed_bound_and_its_slope_that_of_the_value():
    problem, state, kernel = begun()
    x, y = problem.data.take(None)
    z, noise = x[:6], 0.02
    k_mm = kernel(z) + problem.jitter * kernel(z).diagonal().mean() * np.eye(6)
    low = kernel(x, z) @ np.linalg.solve(k_mm, kernel(z, x))
    wanted = multivariate_normal.logpdf(y[:, 0], np.zeros(40), low + noise * np.eye(40))
    wanted -= (kernel.diagonal(kernel.theta, x) - np.diag(low)).sum() / (2 * noise)
    polish = Polishing(problem, 1e-3, 500, None, 0)
    settings = state.hyper["settings"]
    value, slope = polish._value(state, settings)
    assert value == pytest.approx(-wanted / 40, rel=1e-7)
    for place in range(0, len(slope), 5):
        there = [np.array(flat(settings)) for _ in range(2)]
        there[0][place] += 1e-5
        there[1][place] -= 1e-5
        above, below = (polish._value(state, shaped(a, settings)._replace(adam=settings.adam))[0] for a in there)
        assert (above - below) / 2e-5 == pytest.approx(slope[place], rel=1e-4, abs=1e-7)


def test_a_converged_fit_gains_nothing_when_it_goes_on():
    x, y = table()
    model = quick().fit(x, y)
    assert model.stop_.converged
    assert "readings of all rows" in str(model.stop_)
    bound, density = model.elbo_, model.log_predictive_density(*table(seed=2)).mean()
    steps = model.n_steps_
    model.set_params(tol=1e-7).continue_fit(x, y, max_steps=1000)
    assert model.n_steps_ == steps + 1  # what had settled is not disturbed
    assert -1e-9 * abs(bound) <= model.elbo_ - bound < 1e-3 * len(y)
    assert abs(model.log_predictive_density(*table(seed=2)).mean() - density) < 1e-3


def test_steps_that_run_out_say_how_much_is_left():
    with pytest.warns(ng.errors.NotConverged, match=r"max_steps = 200 .* nats a row, and about .* are left to gain"):
        model = quick(max_steps=200, tol=1e-9).fit(*table())
    assert not model.stop_.converged
    with pytest.warns(ng.errors.NotConverged, match=r"the last 100 changed the averaged bound by"):
        quick(max_steps=300, tol=1e-9, likelihood="student_t").fit(*table())


def test_only_what_is_learned_moves():
    problem, state, _ = begun(learned=Learned(kernel=True, noise=False, inducing=False))
    after = Polishing(problem, 1e-6, 500, None, 0).step(state, 0)[0]
    before, now = state.hyper["settings"], after.hyper["settings"]
    np.testing.assert_array_equal(now.inducing, before.inducing)
    np.testing.assert_array_equal(now.psi, before.psi)
    assert not np.array_equal(now.theta[1], before.theta[1])
    assert problem.bound(after) > problem.bound(state)


def test_arguments_alone_decide_whether_l_bfgs_closes_a_fit():
    gaussian, others = Gaussian(), likelihood_named("student_t", 4.0)
    for law, solver, tol, wanted in (
        (gaussian, Solver(), 1e-3, True),
        (gaussian, Solver(optimizer="adam"), 1e-3, False),
        (gaussian, Solver(method=ng.VB()), 1e-3, False),
        (gaussian, Solver(), 0.0, False),
        (others, Solver(), 1e-3, False),
    ):
        assert uses_lbfgs(solver, law, tol) == wanted
        if wanted or solver.optimizer is None:
            explicit = solver._replace(optimizer="lbfgs")
            if wanted:
                assert uses_lbfgs(explicit, law, tol)
                continue
            with pytest.raises(ValueError, match='optimizer="lbfgs" is for Gaussian noise'):
                uses_lbfgs(explicit, law, tol)
    with pytest.raises(ValueError, match=r"solver.optimizer must be .* got 'newton'"):
        quick(solver=Solver(optimizer="newton")).fit(*table())


@pytest.mark.parametrize("max_steps", [2, 199, 200])
def test_neither_steps_nor_rows_decide_who_ends_a_fit(max_steps):
    x, y = table(2000)
    for rows in (3, 2000):
        model = quick(n_inducing=3, solver=Solver(batch_size=8), max_steps=max_steps).fit(x[:rows], y[:rows])
        assert "L-BFGS" in model.inference_
        assert model.n_readings_ <= 2 * max_steps
    assert "L-BFGS" not in quick(max_steps=max_steps, solver=Solver(optimizer="adam")).fit(x, y).inference_


@pytest.mark.parametrize("missing", [False, True])
def test_all_rows_are_read_in_pieces_with_the_same_bound_and_slope(monkeypatch, missing):
    problem, state, _ = begun(60)
    if missing:
        problem.data.outputs[5] = np.nan
    whole = Polishing(problem, 1e-3, 500, None, 0)
    monkeypatch.setattr(run, "MOST_ENTRIES", 100)
    pieces = Polishing(problem, 1e-3, 500, None, 0)
    assert (len(whole.pieces), len(pieces.pieces)) == (1, 4)
    (value, slope), (other, along) = (polish._value(state, state.hyper["settings"]) for polish in (whole, pieces))
    assert other == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(along, slope, rtol=1e-7, atol=1e-10)


def seasons(n=240):
    t = np.arange(n) / 12.0
    noise = np.random.default_rng(0).normal(size=(2, n))
    return t[:, None], 1.2 * t + 3 * np.sin(2 * np.pi * t) + 0.08 * np.cumsum(noise[0]) + 0.25 * noise[1]


@pytest.mark.parametrize(
    "kernel",
    [100 * RBF(lengthscale=20.0) + 4 * RBF(lengthscale=0.2), 100 * Matern12(lengthscale=20.0)],
    ids=["sum", "rough"],
)
def test_a_given_kernel_whose_rows_are_one_batch_ends_at_an_optimum(kernel):
    """Steps of Adam on all rows went up and down for 2,000 steps and ended hundreds of nats below where they had been."""
    t, y = seasons()
    model = ng.SparseGPRegressor(kernel, n_inducing=100, verbose=False).fit(t, y)
    assert model.stop_.converged
    assert "L-BFGS" in model.inference_
    exact = multivariate_normal(np.full(len(y), y.mean()), kernel(t) + 0.1 * y.var() * np.eye(len(y))).logpdf(y)
    assert model.elbo_ > exact + 20.0
    further = copy.deepcopy(model).continue_fit(t, y)
    assert model.elbo_ - 1e-6 * abs(model.elbo_) <= further.elbo_ < model.elbo_ + 1e-3 * len(y)


@pytest.mark.parametrize("likelihood", ["student_t", "heteroskedastic"])
def test_a_bound_of_all_rows_that_falls_shortens_the_steps(likelihood):
    t, y = seasons(120)
    kernel = 100 * RBF(lengthscale=20.0) + 4 * RBF(lengthscale=0.2)
    model = ng.SparseGPRegressor(kernel, n_inducing=40, likelihood=likelihood, max_steps=400, tol=1e-9)
    with pytest.warns(ng.errors.NotConverged):
        model.fit(t, y)
    bounds = model.trace_["elbo_estimate"]
    assert bounds[-25:].mean() > np.nanmax(bounds) - 0.05 * len(y)
