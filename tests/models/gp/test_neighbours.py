"""A finish by neighbours: exact with few rows, equal to its definition with many, and the same whatever the order and units."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.covariance import RBF, Categories, Linear, Matern12, Matern32, Matern52, Periodic, White
from natgrad.inference.trace import Reason
from natgrad.models.gp.local import Budget, Local, Rows, settled, sparse_without
from natgrad.models.gp.neighbours import conditional, nearest, shuffled, slopes

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


def slowly(kernel, noise, x, y, at, m):
    """One after the other, by the definition: the m rows of least E[(f(x) − f(z))²]."""
    means, variances = [], []
    for point in at:
        k = kernel(np.vstack([point, x]))
        far = k[0, 0] + np.diag(k)[1:] - 2 * k[0, 1:]
        near = np.argsort(far, kind="stable")[:m]
        mean, covariance = dense(kernel, noise, x[near], y[near], point[None])
        means.append(mean[0])
        variances.append(covariance[0, 0])
    return np.array(means), np.array(variances)


def log_normal(y, mean, var):
    return -0.5 * (np.log(2 * np.pi * var) + (y - mean) ** 2 / var)


def local(kernel, x, y, m, noise=NOISE, seed=0):
    return Local(kernel, noise, Rows.of(x, y, np.random.default_rng(seed)), m)


# -- the mathematics --


@pytest.mark.parametrize("name", KERNELS)
def test_with_all_rows_as_neighbours_it_is_the_exact_process(name):
    x, y, at = rows()
    mean, var = local(KERNELS[name], x, y, 60).latent(at)
    exact, covariance = dense(KERNELS[name], NOISE, x, y, at)
    np.testing.assert_allclose(mean[:, 0], exact, atol=1e-10)
    np.testing.assert_allclose(var[:, 0], np.diag(covariance), atol=1e-10)


@pytest.mark.parametrize("name", SOME)
def test_it_equals_its_slow_twin(name):
    x, y, at = rows()
    mean, var = local(KERNELS[name], x, y, 9).latent(at)
    slow = slowly(KERNELS[name], NOISE, x, y, at, 9)
    np.testing.assert_allclose((mean[:, 0], var[:, 0]), slow, atol=1e-9)


def test_the_search_finds_the_nearest_of_many_rows():
    x = np.random.default_rng(1).normal(size=(3_000, 4))
    ell = np.array([0.5, 1.0, 2.0, 9.0])
    own = np.arange(0, 3_000, 100)
    found = nearest(RBF(lengthscale=ell), x, x[own], 20, own)
    for number, near in zip(own, found, strict=True):
        order = np.argsort((((x - x[number]) / ell) ** 2).sum(1))
        assert order[0] == number
        np.testing.assert_array_equal(near, order[1:21])


def test_more_neighbours_approach_the_exact_process():
    x, y, at = rows(400)
    kernel = Matern32(lengthscale=[0.8, 2.0, 3.0])
    exact, covariance = dense(kernel, NOISE, x, y, at)
    off = [
        np.abs(local(kernel, x, y, m).latent(at)[0][:, 0] - exact).max() / np.sqrt(np.diag(covariance)).mean()
        for m in (4, 32, 128, 399)
    ]
    assert off[0] > off[1] > off[2] > off[3]
    assert off[3] < 0.01
    assert off[2] < 0.1


@pytest.mark.parametrize("name", SOME)
def test_slopes_are_those_of_the_mean_log_density(name):
    x, y, _ = rows()
    kernel, own = KERNELS[name], np.arange(0, 60, 6)
    near = nearest(kernel, x, x[own], 12, own)

    def value(theta, noise):
        mean, var = conditional(kernel.at(theta), noise, x, y, x[own], near)
        return log_normal(y[own], mean, var + noise).mean()

    found, theta, step = slopes(kernel, NOISE, x, y, own, near), [np.array(t) for t in kernel.theta], 1e-5
    assert found.value == pytest.approx(value(theta, NOISE), abs=1e-12)
    assert found.noise == pytest.approx(
        (value(theta, NOISE + step) - value(theta, NOISE - step)) / (2 * step), abs=1e-6
    )
    for number, part in enumerate(theta):
        for place in np.ndindex(part.shape):
            up, down = ([t.copy() for t in theta] for _ in range(2))
            up[number][place] += step
            down[number][place] -= step
            slope = (value(up, NOISE) - value(down, NOISE)) / (2 * step)
            assert found.theta[number][place] == pytest.approx(slope, abs=1e-6)


def test_a_row_is_judged_without_itself():
    x, y, _ = rows(50)
    kernel, process = KERNELS["RBF"], local(KERNELS["RBF"], x, y, 64)
    judged = process.judged(np.arange(50))
    x, y = process.rows
    for n in range(50):
        others = np.arange(50) != n
        mean, covariance = dense(kernel, NOISE, x[others], y[others], x[n : n + 1])
        assert judged[n] == pytest.approx(log_normal(y[n], mean[0], covariance[0, 0] + NOISE), abs=1e-9)


def test_joint_draws_are_those_of_the_exact_process_where_all_rows_are_neighbours():
    x, y, at = rows(30)
    kernel = KERNELS["RBF"]
    drawn = local(kernel, x, y, 40).draws(at, 40_000, np.random.default_rng(0))[:, :, 0]
    mean, covariance = dense(kernel, NOISE, x, y, at)
    # six standard errors of 49 numbers
    np.testing.assert_allclose(drawn.mean(0), mean, atol=6 * np.sqrt(covariance.max() / 40_000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=6 * np.sqrt(2 / 40_000) * covariance.max())


def test_neither_the_order_of_rows_nor_ties_change_anything():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 4, (200, 3)).astype(float)  # a grid: most distances are met often
    y = rng.normal(size=200)
    mixed = rng.permutation(200)
    kernel, at = RBF(lengthscale=[0.5, 1.0, 2.0]), x[:40] + 0.0
    first = local(kernel, x, y, 10).latent(at)
    np.testing.assert_array_equal(first, local(kernel, x[mixed], y[mixed], 10).latent(at))
    alone = [local(kernel, x, y, 10).latent(one[None])[0][0, 0] for one in at]
    np.testing.assert_allclose(first[0][:, 0], alone, rtol=1e-12)


def test_the_order_of_columns_changes_nothing():
    x, y, at = rows(200)
    one = local(RBF(lengthscale=[0.5, 1.0, 2.0]), x, y, 15).latent(at)
    other = local(RBF(lengthscale=[2.0, 0.5, 1.0]), x[:, [2, 0, 1]], y, 15).latent(at[:, [2, 0, 1]])
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_categories_are_near_where_they_agree():
    x = np.column_stack([np.repeat([0.0, 1.0, 2.0], 20), np.tile(np.linspace(0, 1, 20), 3)])
    kernel = Categories(lengthscale=0.1, active=[0]) * RBF(lengthscale=0.5, active=[1])
    near = nearest(kernel, x, np.array([[1.0, 0.5]]), 20)
    assert set(near[0]) == set(range(20, 40))


def test_rows_that_are_met_many_times_and_constant_columns_are_no_trouble():
    x, y, at = rows(40)
    x = np.column_stack([np.repeat(x, 5, axis=0), np.full(200, 3.0)])
    y = np.repeat(y, 5)
    kernel = RBF(lengthscale=[1.0, 1.0, 1.0, 1.0])
    at = np.column_stack([at, np.full(7, 3.0)])
    mean, var = local(kernel, x, y, 200).latent(at)
    exact, covariance = dense(
        kernel, NOISE / 5, x[::5], y[::5], at
    )  # five times the same are one with a fifth of the noise
    np.testing.assert_allclose(mean[:, 0], exact, atol=1e-9)
    np.testing.assert_allclose(var[:, 0], np.diag(covariance), atol=1e-9)


@pytest.mark.slow
def test_settling_finds_the_kernel_that_made_the_rows():
    rng = np.random.default_rng(5)
    x = rng.uniform(-4, 4, (300, 2))
    truth = Matern12(1.0, [1.0, 4.0])
    c = truth(x)
    y = np.linalg.cholesky(c + 1e-10 * np.eye(300)) @ rng.normal(size=300) + 0.1 * rng.normal(size=300)
    start = local(RBF(1.0, [3.0, 3.0]), x, y, 10, noise=0.3)
    found, judges, _ = settled(start, (True, True), True, np.random.default_rng(0), Budget(24, lambda: True))
    best = local(truth, x, y, 10, noise=0.01).judged(judges).mean()
    assert type(found.kernel) is Matern12
    assert found.log_density > best - 0.02 > start.judged(judges).mean()
    assert found.kernel.lengthscale[1] > 2 * found.kernel.lengthscale[0]
    held, _, densities = settled(start, (False, False), True, np.random.default_rng(0), Budget(24, lambda: True))
    assert held.kernel == start.kernel
    assert held.noise == start.noise
    assert held.log_density == densities.mean()


# -- the estimator --

SMALL = {"n_inducing": 8, "max_steps": 40, "finish": "neighbours", "n_neighbors": 12, "verbose": False}


LONGER = {**SMALL, "max_steps": 400}


@pytest.fixture(scope="module")
def waves():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (240, 2))
    return x, np.sin(4 * x[:, 0]) + 0.2 * x[:, 1] + 0.05 * rng.normal(size=240)


@pytest.fixture(scope="module")
def fitted(waves):
    return ng.SparseGPRegressor(**LONGER).fit(*waves)


def test_predictions_are_those_of_the_exact_process_if_neighbours_are_all(waves):
    x, y = waves
    model = ng.SparseGPRegressor(**{**SMALL, "n_neighbors": 500}, kernel=RBF(lengthscale=[0.1, 1.0])).fit(
        x[:90], y[:90]
    )
    at = np.array([[2.0, 3.0], [7.0, 7.0]])
    x, y = x[:90], y[:90]
    z, shift, scale = model._x_scaling, y.mean(), y.std()
    noise = float(model.noise_variance_[0]) / scale**2
    mean, covariance = dense(model.neighbour_kernel_, noise, z.apply(x), (y - shift) / scale, z.apply(at))
    found, sd = model.predict(at, return_std=True, what="f")
    np.testing.assert_allclose(found, mean * scale + shift, atol=1e-8)
    np.testing.assert_allclose(sd, np.sqrt(np.diag(covariance)) * scale, atol=1e-8)
    np.testing.assert_allclose(model.predict_cov(at)[:, 0, 0], sd**2 + model.noise_variance_[0], rtol=1e-9)
    np.testing.assert_allclose(model.noise_std(at), np.sqrt(model.noise_variance_[0]))


def test_neighbours_see_what_few_inducing_inputs_cannot(waves, fitted):
    x, y = waves
    sparse = ng.SparseGPRegressor(**{**LONGER, "finish": None}).fit(x, y)
    assert fitted.elbo_ == sparse.elbo_  # that of the sparse process
    assert fitted.kernel_ == sparse.kernel_
    at = np.random.default_rng(9).uniform(1, 9, (200, 2))
    truth = np.sin(4 * at[:, 0]) + 0.2 * at[:, 1]
    errors = [np.sqrt(np.mean((model.predict(at) - truth) ** 2)) for model in (sparse, fitted)]
    assert errors[1] < 0.7 * errors[0]
    assert fitted.neighbour_log_density_ > np.mean(sparse.log_predictive_density(x, y)) + 0.2
    assert "12 neighbours" in fitted.trace_.strategy
    with pytest.raises(AttributeError, match='fit with finish="neighbours"'):
        _ = sparse.neighbour_kernel_


def test_what_is_said_of_rows_is_in_the_units_of_y(waves):
    x, y = waves
    first = ng.SparseGPRegressor(**SMALL).fit(x, y)
    other = ng.SparseGPRegressor(**SMALL).fit(1e6 * x + 1e9, 1e6 * y - 1e9)
    at = x[:20] + 0.01
    (mean, sd), (mean2, sd2) = first.predict(at, True), other.predict(1e6 * at + 1e9, True)
    # 10⁹ with ten digits after 10⁶ leaves 10⁻⁹ of them, and steps of Adam enlarge it
    np.testing.assert_allclose((mean2 + 1e9) / 1e6, mean, atol=1e-4)
    np.testing.assert_allclose(sd2 / 1e6, sd, rtol=1e-3)
    assert other.neighbour_log_density_ == pytest.approx(first.neighbour_log_density_ - np.log(1e6), abs=1e-4)


def test_a_saved_model_predicts_the_same_bits(fitted, waves, tmp_path):
    fitted.save(tmp_path / "near.natgrad")
    loaded = ng.load(tmp_path / "near.natgrad")
    at = waves[0][:9] + 0.1
    np.testing.assert_array_equal(loaded.predict(at, True), fitted.predict(at, True))
    np.testing.assert_array_equal(loaded.sample(at, 3), fitted.sample(at, 3))
    assert loaded.neighbour_log_density_ == fitted.neighbour_log_density_
    assert loaded.neighbour_kernel_ == fitted.neighbour_kernel_


def test_the_same_seed_gives_the_same_bits_and_rows_are_not_touched(waves):
    x, y = waves
    kept = x.copy(), y.copy()
    one, two = (ng.SparseGPRegressor(**SMALL).fit(x, y).predict(x[:9], True) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(y, kept[1])


def test_seconds_are_kept():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3_000, 4))
    model = ng.SparseGPRegressor(n_inducing=20, max_seconds=1e-9, tol=0, finish="neighbours", n_neighbors=30)
    model.fit(x, np.sin(3 * x[:, 0]))
    assert model.stop_.reason is Reason.SECONDS
    assert len(model.trace_) <= 1
    assert model._predictor.local.n_judges == 50


def test_what_was_kept_apart_stays_apart(waves):
    x, y = waves
    model = ng.SparseGPRegressor(**SMALL, validation_fraction=0.25).fit(x, y)
    assert len(model._predictor.local.rows.x) == 180


def test_continue_fit_and_update_end_with_neighbours_again(waves):
    x, y = waves
    model = ng.SparseGPRegressor(**SMALL).fit(x[:200], y[:200])
    model.continue_fit(x[:200], y[:200], max_steps=5)
    assert len(model._predictor.local.rows.x) == 200
    model.update(x[200:], y[200:])
    assert len(model._predictor.local.rows.x) == 240


def test_auto_takes_neighbours_where_they_gain_and_the_sparse_process_elsewhere():
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 10, (1_000, 2))
    auto = {"n_inducing": 20, "max_steps": 400, "tol": 0, "finish": "auto", "n_neighbors": 12}
    gains = ng.SparseGPRegressor(**auto).fit(x, np.sin(6 * x[:, 0]) + 0.2 * x[:, 1])
    assert "which predicts" not in gains.trace_.strategy
    assert gains.neighbour_kernel_ != gains.kernel_
    auto["max_steps"] = 80
    noisy = 0.2 * x[:, 0] + rng.normal(size=1_000)
    model = ng.SparseGPRegressor(**auto).fit(x, noisy)
    sparse = ng.SparseGPRegressor(**{**auto, "finish": None}).fit(x, noisy)
    np.testing.assert_array_equal(model.predict(x, True), sparse.predict(x, True))
    assert "which predicts" in model.trace_.strategy


def test_auto_leaves_alone_what_neighbours_are_not_for(waves):
    x, y = waves
    auto = {"n_inducing": 5, "max_steps": 3, "tol": 0, "finish": "auto"}
    many = np.tile(x, (5, 1))
    for rows, targets, more in (
        (x, y, {}),  # too few to tell
        (many, np.floor(many[:, 0]), {"likelihood": "poisson"}),
        (many, many, {}),
    ):
        model = ng.SparseGPRegressor(**auto, **more).fit(rows, targets)
        sparse = ng.SparseGPRegressor(**{**auto, "finish": None}, **more).fit(rows, targets)
        np.testing.assert_array_equal(model.predict(x, True), sparse.predict(x, True))
        assert "neighbours" not in model.trace_.strategy
    model = ng.SparseGPRegressor(**auto).partial_fit(many, np.tile(y, 5))
    assert model._predictor.local is None


def test_rows_of_a_sparse_process_are_judged_without_themselves(waves):
    x, y = waves
    model = ng.SparseGPRegressor(n_inducing=8, max_steps=40, verbose=False).fit(x, y)
    rows = model._read(x, y, False).scaled_by(model._x_scaling, model._y_scaling)
    problem = model._again(rows)
    found = problem.likelihood.log_predictive_rows(
        np.asarray(model._state.hyper["settings"].psi),
        rows.take(None)[1],
        *sparse_without(problem, model._state, *rows.take(None)),
    )
    for n in (0, 7):  # q of all other rows, with the same settings
        others = np.flatnonzero(np.arange(240) != n)
        without = model._again(type(rows)(x, y[:, None], model._x_scaling, model._y_scaling, others))
        state = without.sweep(model._state).state
        apart = model._predictor.of(without, state)
        at, target = rows.take(np.array([n]))
        assert found[n] == pytest.approx(apart.log_density(at, target)[0], abs=1e-6)


def test_what_cannot_be_is_refused_in_words(waves):
    x, y = waves
    with pytest.raises(ValueError, match=r"need one that is log-concave in f.*; or leave finish out"):
        ng.SparseGPRegressor(**SMALL, likelihood="student_t").fit(x, y)
    with pytest.raises(ValueError, match="y has 2 columns, and neighbours predict one"):
        ng.SparseGPRegressor(**SMALL).fit(x, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="partial_fit takes rows and lets them go"):
        ng.SparseGPRegressor(**SMALL).partial_fit(x, y)
    with pytest.raises(ValueError, match="n_neighbors must be"):
        ng.SparseGPRegressor(**{**SMALL, "n_neighbors": 0}).fit(x, y)
    with pytest.raises(ValueError, match='finish must be None, "auto" or "neighbours"'):
        ng.SparseGPRegressor(**{**SMALL, "finish": "gibbs"}).fit(x, y)


def test_a_stream_is_kept_in_memory_where_neighbours_are_asked_for(waves):
    x, y = waves
    chunks = [(x[:100], y[:100]), (x[100:], y[100:])]
    model = ng.SparseGPRegressor(**SMALL).fit(iter(chunks))
    whole = ng.SparseGPRegressor(**SMALL).fit(x, y)
    np.testing.assert_array_equal(model.predict(x[:5]), whole.predict(x[:5]))
    five = [(x, y)] * 5
    assert "neighbours" not in ng.SparseGPRegressor(**{**SMALL, "finish": "auto"}).fit(iter(five)).trace_.strategy


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_rows(n):
    model = ng.SparseGPRegressor(**SMALL).fit(np.arange(n)[:, None] + 1.0, np.arange(n) + 2.0)
    mean, sd = model.predict([[1.0]], return_std=True)
    assert np.isfinite(mean).all()
    assert (sd > 0).all()


def test_an_attribute_that_is_not_there_says_why(waves):
    model = ng.SparseGPRegressor(n_inducing=5, max_steps=5, tol=0, likelihood="poisson").fit(
        waves[0], np.floor(waves[0][:, 0])
    )
    with pytest.raises(AttributeError, match="likelihood 'poisson' has no noise variance"):
        _ = model.noise_variance_


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": np.zeros(3)}, "y"),
        ({"noise": 1e-9}, "noise"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"kernel": RBF(lengthscale=[1.0] * 5)}, "lengthscale"),
    ],
)
def test_a_file_with_neighbours_that_cannot_be_is_refused(fitted, change, said):
    saved = fitted._saved()
    _, of = type(fitted)._tables(fitted.get_params(), saved)
    of(saved, {}, "it")
    saved["local"] = {**saved["local"], **change}
    with pytest.raises(ValueError, match=said):
        of(saved, {}, "it")


def test_shuffled_is_the_same_order_of_values():
    x, y, _ = rows(30)
    mixed = np.random.default_rng(0).permutation(30)
    first, second = (shuffled(a, b, np.random.default_rng(4)) for a, b in ((x, y), (x[mixed], y[mixed])))
    np.testing.assert_array_equal(x[first], x[mixed][second])
