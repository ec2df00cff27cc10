"""`VecchiaGPRegressor`: exact with all rows as neighbours, its definition with fewer, the same in any order and units."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import natgrad as ng
from natgrad.covariance import RBF, Categories, Linear, Matern12, Matern32, Matern52, Periodic, White
from natgrad.models.gp.vecchia import VecchiaGPRegressor, VecchiaProblem, nearest

KERNELS = {
    "RBF": RBF(1.3, [0.7, 1.0, 2.0]),
    "one length scale": Matern52(0.8, 1.5),
    "some columns": Matern32(lengthscale=[0.5, 0.9], active=[2, 0]),
    "sum": Matern32(1.0, 2.0) + Linear(0.3),
    "product": Matern12(lengthscale=0.5, active=[1]) * RBF(active=[0, 2]),
    "white": RBF() + White(0.1),
    "in JAX": Periodic(period=2.0) + RBF(),
}
# Compiling takes seconds.
SOME = [pytest.param(name, marks=[pytest.mark.slow] if name == "in JAX" else []) for name in KERNELS]
NOISE = 0.05


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * rng.normal(size=n), rng.normal(size=(7, 3))


def dense(kernel, noise, x, y, at):
    """The exact process: means, and covariances of f."""
    c = kernel(x) + noise * np.eye(len(x))
    across = kernel(at, x)
    return across @ np.linalg.solve(c, y), kernel(at) - across @ np.linalg.solve(c, across.T)


def problem_of(kernel, x, y, m, noise=NOISE):
    h = np.concatenate([*(np.ravel(part) for part in kernel.theta), [np.log(noise - 1e-6)]])
    return VecchiaProblem(kernel, x, y, m, seed=0), h


def slowly(kernel, noise, x, y, m):
    """Σ_i log p(y_i | the m nearest rows before it), one after the other, by the definition."""
    value, k = 0.0, kernel(x)
    for i in range(len(x)):
        far = k[i, i] + np.diag(k)[:i] - 2 * k[i, :i]
        near = np.argsort(far, kind="stable")[:m]
        mean, var = np.zeros(1), np.full((1, 1), k[i, i])
        if len(near):
            mean, var = dense(kernel, noise, x[near], y[near], x[i : i + 1])
        value -= 0.5 * (np.log(2 * np.pi * (var[0, 0] + noise)) + (y[i] - mean[0]) ** 2 / (var[0, 0] + noise))
    return value


@pytest.mark.parametrize("name", SOME)
def test_with_all_rows_as_neighbours_likelihood_and_predictions_are_exact(name):
    x, y, at = rows()
    kernel = KERNELS[name]
    problem, h = problem_of(kernel, x, y, 64)
    exact = multivariate_normal(np.zeros(60), kernel(x) + NOISE * np.eye(60)).logpdf(y)
    assert problem.around(h).score(h).value == pytest.approx(exact, abs=1e-8)
    mean, covariance = dense(kernel, NOISE, x, y, at)
    np.testing.assert_allclose(problem.latent(h, at, 60), (mean, np.diag(covariance)), atol=1e-10)


@pytest.mark.parametrize("name", SOME)
def test_with_fewer_it_is_its_definition(name):
    x, y, _ = rows()
    problem, h = problem_of(KERNELS[name], x, y, 9)
    slow = slowly(KERNELS[name], NOISE, problem.x, problem.y, 9)
    assert problem.around(h).score(h).value == pytest.approx(slow, abs=1e-8)


@pytest.mark.parametrize("name", SOME)
def test_slopes_and_information_are_those_of_the_likelihood(name):
    """The slope by differences; the information as the mean outer product of slopes under the likelihood itself."""
    x, y, _ = rows(40)
    problem, h = problem_of(KERNELS[name], x, y, 8)
    problem = problem.around(h)
    found, step = problem.score(h), 1e-5
    for place in range(len(h)):
        ends = [problem.score(h + sign * step * np.eye(len(h))[place]).value for sign in (1, -1)]
        assert found.slope[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-5)
    np.testing.assert_allclose(found.information, found.information.T)
    assert np.linalg.eigvalsh(found.information).min() > -1e-9


def test_the_information_is_that_of_the_exact_process_on_average_over_data():
    """With all neighbours E[I] is the Fisher information of N(0, C): ½ tr(C⁻¹ ∂C C⁻¹ ∂C)."""
    x, _, _ = rows(25)
    kernel, rng = RBF(1.3, [0.7, 1.0, 2.0]), np.random.default_rng(1)
    problem, h = problem_of(kernel, x, np.zeros(25), 25)
    c = problem.kernel_at(h)(problem.x) + NOISE * np.eye(25)
    root, total = np.linalg.cholesky(c), 0.0
    for _ in range(400):
        problem.y = root @ rng.normal(size=25)
        total = total + problem.around(h).score(h).information / 400

    def moved(place, step):
        other = h + step * np.eye(len(h))[place]
        return problem.kernel_at(other)(problem.x) + problem.noise_at(other) * np.eye(25)

    slopes = [np.linalg.solve(c, (moved(p, 1e-5) - moved(p, -1e-5)) / 2e-5) for p in range(len(h))]
    exact = np.array([[0.5 * np.trace(a @ b) for b in slopes] for a in slopes])
    np.testing.assert_allclose(total, exact, atol=0.1 * np.sqrt(np.outer(np.diag(exact), np.diag(exact))).max())


def test_the_search_finds_the_nearest_of_many_rows_before_each():
    x = np.random.default_rng(1).normal(size=(3_000, 4))
    ell, own = np.array([0.5, 1.0, 2.0, 9.0]), np.arange(50, 3_000, 100)
    for before in (None, own):
        found = nearest(RBF(lengthscale=ell), x, x[own] + 1e-9, 20, before)
        for number, near in zip(own, found, strict=True):
            far = (((x - x[number] - 1e-9) / ell) ** 2).sum(1)
            if before is not None:
                far[number:] = np.inf
            np.testing.assert_array_equal(near, np.argsort(far)[:20])


def test_categories_are_near_where_they_agree():
    x = np.column_stack([np.repeat([0.0, 1.0, 2.0], 20), np.tile(np.linspace(0, 1, 20), 3)])
    kernel = Categories(lengthscale=0.1, active=[0]) * RBF(lengthscale=0.5, active=[1])
    assert set(nearest(kernel, x, np.array([[1.0, 0.5]]), 20)[0]) == set(range(20, 40))


def test_joint_draws_are_those_of_the_exact_process_where_all_rows_are_neighbours():
    x, y, at = rows(30)
    problem, h = problem_of(KERNELS["RBF"], x, y, 40)
    drawn = problem.draws(h, at, 40, 40_000, np.random.default_rng(0))
    mean, covariance = dense(KERNELS["RBF"], NOISE, x, y, at)
    # six standard errors of 49 numbers
    np.testing.assert_allclose(drawn.mean(0), mean, atol=6 * np.sqrt(covariance.max() / 40_000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=6 * np.sqrt(2 / 40_000) * covariance.max())


def grown(n=260, seed=5):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 4, (n, 2))
    c = Matern32(2.0, [1.0, 4.0])(x)
    return x, 3.0 + np.linalg.cholesky(c + 1e-10 * np.eye(n)) @ rng.normal(size=n) + 0.1 * rng.normal(size=n)


def test_learning_ends_where_the_exact_likelihood_is_highest():
    """With all neighbours the optimum is that of the dense process; the bound of a sparse one is below it."""
    x, y = grown(60)
    model = VecchiaGPRegressor(Matern32(lengthscale=[2.0, 2.0]), n_neighbors=60, tol=1e-6).fit(x, y)
    assert model.stop_.converged
    c = model.kernel_(x) + model.noise_variance_ * np.eye(60)
    exact = multivariate_normal(np.full(60, y.mean()), c).logpdf(y)
    assert model.log_likelihood_ == pytest.approx(exact, abs=1e-6)
    sparse = ng.SparseGPRegressor(
        model.kernel_, inducing=x, n_inducing=60, fixed="inducing", noise_variance=model.noise_variance_
    ).fit(x, y)
    assert sparse.elbo_ < model.log_likelihood_ + 0.01


def test_auto_takes_the_kind_with_the_largest_likelihood():
    x, y = grown(70)
    chosen = VecchiaGPRegressor(n_neighbors=8).fit(x, y)
    usual = VecchiaGPRegressor(Matern32(lengthscale=[2.0, 2.0]), n_neighbors=8).fit(x, y)
    assert chosen.log_likelihood_ > usual.log_likelihood_ - 0.2
    smooth = VecchiaGPRegressor("auto", n_neighbors=8).fit(x, np.sin(x[:, 0]) + 0.01 * y)
    assert isinstance(smooth.kernel_, RBF | Matern52)


def test_a_kernel_that_is_given_is_in_the_units_of_the_data_and_stays_where_it_is_fixed():
    x, y, at = rows(50)
    kernel = RBF(1.3, [0.7, 1.0, 2.0])
    model = VecchiaGPRegressor(kernel, n_neighbors=50, noise_variance=0.05, fixed=["kernel", "noise"]).fit(x, y)
    np.testing.assert_allclose(model.kernel_.lengthscale, kernel.lengthscale)
    mean, covariance = dense(kernel, 0.05, x, y - y.mean(), at)
    np.testing.assert_allclose(model.predict(at), mean + y.mean(), atol=1e-8)
    np.testing.assert_allclose(model.predict(at, True, what="f")[1] ** 2, np.diag(covariance), atol=1e-8)
    with pytest.raises(ValueError, match='fixed must be some of "kernel", "noise"'):
        VecchiaGPRegressor(fixed=["inducing"]).fit(x, y)


def test_the_stop_says_what_ended_the_steps():
    """It said that one sweep is exact, after three steps of a model without blocks."""
    x = np.random.default_rng(0).uniform(0, 6, (120, 1))
    model = ng.VecchiaGPRegressor(n_neighbors=10, tol=1e-12, verbose=False).fit(x, np.sin(x[:, 0]))
    assert model.stop_.converged
    assert "sweep" not in str(model.stop_)
