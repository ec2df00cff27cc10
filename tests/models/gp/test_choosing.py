"""Kernels and inducing inputs chosen by the bound: greedy variances, how many are enough, rough functions, sums, files."""

import time

import numpy as np
import pytest
from scipy import stats

import natgrad as ng
from natgrad import covariance
from natgrad.data.rows import Rows
from natgrad.models.gp import Solver, choosing
from natgrad.models.gp.likelihoods import Gaussian
from natgrad.models.gp.settings import Settings


def smooth(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (n, 1))
    return x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=n)


def test_each_inducing_input_is_where_the_variance_given_those_before_is_largest(rng):
    x = rng.normal(size=(60, 2))
    kernel = covariance.RBF(lengthscale=[0.7, 1.3])
    settings = Settings(kernel.theta, x[:1], np.array([np.log(0.01)]))
    rows = Rows(x, np.zeros((60, 1)))
    found = choosing.greedy_inducing(rows, kernel, settings, Gaussian(), 7, rng)
    chosen, k = [], kernel(np.unique(x, axis=0))
    for _ in range(7):
        inner = np.linalg.pinv(k[np.ix_(chosen, chosen)]) if chosen else np.zeros((0, 0))
        left = np.diag(k) - np.einsum("ni,ij,nj->n", k[:, chosen], inner, k[:, chosen])
        left[chosen] = -1.0
        chosen.append(int(np.argmax(left)))
    np.testing.assert_array_equal(found, np.unique(x, axis=0)[np.sort(chosen)])


def test_as_many_as_leave_less_than_a_hundredth_of_a_nat(rng):
    x, kernel = rng.uniform(0, 10, (300, 1)), covariance.RBF(lengthscale=0.5)
    rows = Rows(x, np.zeros((300, 1)))
    sizes = []
    for noise in (1.0, 0.01, 1e-4):
        psi = np.array([Gaussian().start(noise)])
        z = choosing.greedy_inducing(rows, kernel, Settings(kernel.theta, x[:1], psi), Gaussian(), None, rng)
        k_mm, k_nm = kernel(z), kernel(x, z)
        left = 1.0 - np.einsum("nm,mn->n", k_nm, np.linalg.solve(k_mm + 1e-12 * np.eye(len(z)), k_nm.T))
        assert left.mean() / (2 * noise) < choosing.ENOUGH * 1.05
        sizes.append(len(z))
    assert sizes[0] <= sizes[1] < sizes[2] < 100
    equal = Rows(np.ones((50, 1)), np.zeros((50, 1)))
    assert len(choosing.greedy_inducing(equal, kernel, Settings(kernel.theta, x[:1], psi), Gaussian(), None, rng)) == 1


def test_a_few_are_enough_for_a_smooth_function_and_lose_nothing():
    x, y = smooth()
    chosen = ng.SparseGPRegressor(n_inducing="auto", max_steps=200, verbose=False).fit(x, y)
    many = ng.SparseGPRegressor(n_inducing=100, max_steps=200, verbose=False).fit(x, y)
    assert len(chosen.inducing_) <= 32
    assert chosen.elbo_ > many.elbo_ - 0.01 * len(y)


def test_what_is_neither_is_refused():
    x, y = smooth(20)
    with pytest.raises(
        TypeError, match='kernel must be a natgrad.covariance function, "auto" or None'.replace(".", r"\.")
    ):
        ng.SparseGPRegressor("best").fit(x, y)
    with pytest.raises((TypeError, ValueError), match="n_inducing"):
        ng.SparseGPRegressor(n_inducing="many").fit(x, y)


def test_columns_of_few_values_are_tried_as_categories(rng):
    n = 400
    kinds = np.array([3.0, 4.0, 9.0, 20.0])[rng.integers(0, 4, n)]
    numbers = np.column_stack(
        [kinds, rng.normal(size=n), rng.integers(0, 2, n), rng.integers(0, 300, n), rng.poisson(3, n)]
    )
    rows = Rows(numbers, np.zeros((n, 1))).standardised(False)
    assert choosing.few_valued(rows.take(None)[0]) == [
        0,
        4,
    ]  # two values are numbers, too; three hundred are not few
    best = covariance.Matern32(lengthscale=[1.0, 2.0, 3.0, 4.0, 5.0])
    alone, shared = choosing.with_categories(best, 5, [0, 4])
    for kernel in (alone, shared):
        kernel.check(5)
        assert "Categories(variance=1, lengthscale=[1, 1], active=[0, 4])" in str(kernel)
        assert "Matern32(variance=1, lengthscale=[2, 3, 4], active=[1, 2, 3])" in str(kernel)
    assert isinstance(shared, covariance.Sum)
    (levels,) = choosing.with_categories(best, 2, [0, 1])
    assert isinstance(levels, covariance.Categories)


@pytest.mark.slow
@pytest.mark.parametrize("codes", [[7, 8, 9, 3_000_000], [0, 1, 2, 2**31], [10**9, 10**9 + 1, 10**9 + 2, 10**9 + 3]])
def test_categories_far_apart_do_not_merge_with_neighbours(codes, rng):
    """The numbers of categories have no meaning: the fit is that of 0, 1, 2, 3."""
    group = rng.integers(0, 4, 200)
    x = rng.random(200)
    y = np.array([0.0, 2.0, -1.0, 5.0])[group] + x + 0.1 * rng.normal(size=200)
    kernel = covariance.Categories(active=[0]) * covariance.RBF(active=[1])
    given = {"n_inducing": 12, "max_steps": 30, "verbose": False}
    start = np.column_stack([np.arange(12) % 4, np.repeat([0.1, 0.5, 0.9], 4)])
    fits = []
    for numbers in (np.arange(4), np.array(codes)):
        table, first = np.column_stack([numbers[group], x]), start.copy()
        first[:, 0] = numbers[start[:, 0].astype(int)]
        fits.append(ng.SparseGPRegressor(kernel, inducing=first, **given).fit(table, y).predict(table))
    np.testing.assert_allclose(fits[1], fits[0], atol=1e-6)


def test_inducing_inputs_stay_at_their_categories():
    rng = np.random.default_rng(0)
    kinds, x = rng.integers(0, 4, 300), rng.uniform(-2, 2, 300)
    y = np.array([1.0, -1.0, 2.0, 0.0])[kinds] * np.sin(2 * x) + 0.05 * rng.normal(size=300)
    kernel = covariance.RBF(active=[1]) * covariance.Categories(active=[0])
    model = ng.SparseGPRegressor(kernel, 32, solver=Solver(batch_size=100), max_steps=60, tol=0.0, verbose=False)
    model.fit(np.column_stack([kinds, x]), y)
    np.testing.assert_allclose(model.inducing_[:, 0], np.round(model.inducing_[:, 0]), atol=1e-9)
    assert model.score(np.column_stack([kinds, x]), y) > 0.9


class Played(choosing.Trials):
    """Trials whose bounds are known before."""

    __slots__ = ()

    def tried(self, kernel, steps=choosing.STEPS):
        asked.append((str(kernel), steps))
        return choosing.Trial(self.make(kernel), kernel, Settings(kernel.theta, None, None))


asked = []


def played(bound, in_time=lambda: True):
    asked.clear()
    return Played(bound, None, 0, in_time)


def kinds_of(kernel):
    parts = kernel.parts if isinstance(kernel, covariance.Sum) else [kernel]
    return sorted({type(part).__name__ for part in parts})


@pytest.mark.parametrize("wanted", [["RBF"], ["Matern32"], ["Linear", "RBF"]])
def test_the_kernel_with_the_largest_bound_is_taken(wanted, rng):
    x = rng.normal(size=(100, 3))

    def bound(kernel):
        single = not isinstance(kernel, covariance.Sum) or kernel.parts[0].active is None
        rougher = {"RBF": 0, "Matern52": 1, "Matern32": 2, "Matern12": 3, "Linear": 0}
        away = abs(max(rougher[k] for k in kinds_of(kernel)) - max(rougher[k] for k in wanted))
        return 10.0 * (kinds_of(kernel) == wanted) + 5.0 * single - away

    kernel, _ = choosing.chosen_kernel(played(bound), x)
    assert kinds_of(kernel) == wanted
    tried = [name for name, steps in asked if steps < choosing.STEPS]
    # One that is worse ends the climb: no function of all columns is tried after it.
    assert any("Matern12" in name and "active" not in name for name in tried) == (wanted == ["Matern32"])


def test_without_time_the_usual_kernel_is_taken(rng):
    kernel, _ = choosing.chosen_kernel(played(lambda kernel: 0.0, in_time=lambda: False), rng.normal(size=(100, 3)))
    assert kernel == choosing.usual(3)
    assert asked == [(str(kernel), 1)]


def test_functions_of_a_sum_that_hardly_vary_are_idle(rng):
    x = rng.normal(size=(300, 3))
    flat, small = covariance.RBF(1.0, 1e3, active=[1]), covariance.Matern32(1e-4, active=[2])
    large, other = covariance.RBF(active=[0]), covariance.Linear(0.5)
    assert choosing.without_idle_parts(large + flat + other + small, x) == large + other
    assert choosing.without_idle_parts(large + flat, x) == large
    assert choosing.without_idle_parts(large + other, x) is None
    assert choosing.without_idle_parts(large, x) is None


def test_what_choosing_takes_is_part_of_max_seconds(monkeypatch):
    """One clock: the run has what is left."""
    from types import SimpleNamespace

    from natgrad.models.gp import run

    x, y = smooth(40)
    model, limits = ng.SparseGPRegressor(n_inducing=5, max_steps=2, max_seconds=1000.0, verbose=False), []
    later = SimpleNamespace(perf_counter=lambda: time.perf_counter() + 400.0)
    monkeypatch.setattr(run, "time", later)
    usual = model._limits
    monkeypatch.setattr(model, "_limits", lambda *a, **k: limits.append(k["max_seconds"]) or usual(*a, **k))
    model.fit(x, y)
    assert 500.0 < limits[0] <= 600.0


def test_a_column_of_labels_is_named(rng):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": rng.normal(size=30), "shop": list("abc") * 10})
    for own in (table, table.astype({"shop": "category"})):
        with pytest.raises(ValueError, match=r"X\[0, 'shop'\] = 'a' is a label.*Categories\(active=\[1\]\)"):
            ng.SparseGPRegressor(n_inducing=5, max_steps=2).fit(own, rng.normal(size=30))


def test_what_a_length_scale_explains_is_the_evidence_of_the_dense_process(rng):
    x = rng.normal(size=(30, 2))
    y = np.stack([np.sin(4 * x[:, 0]), x[:, 1]], axis=1) + 0.1 * rng.normal(size=(30, 2))
    y -= y.mean(0)
    kernel = choosing.usual(2)

    def evidence(share, column):
        correlation = (1 - share) * kernel(x) + share * np.eye(30)
        scale = column @ np.linalg.solve(correlation, column) / 30
        return stats.multivariate_normal(cov=scale * correlation).logpdf(column)

    gains = [sum(evidence(share, column) - evidence(1.0, column) for column in y.T) for share in choosing.NOISY]
    assert choosing._explained(kernel, x, y) == pytest.approx(max(gains) / 60, rel=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_waves_too_fine_for_the_first_length_scale_are_found(scale):
    """From the usual one all of y became noise, and the fit converged: R² was 0.00, as it is of others' defaults."""
    rng = np.random.default_rng(0)
    x, new = rng.uniform(0, 10, (150, 1)), rng.uniform(0, 10, (100, 1))
    y = scale * (np.sin(8 * x[:, 0]) + 0.1 * rng.normal(size=150))
    model = ng.SparseGPRegressor(n_inducing=60, max_steps=300).fit(x, y)
    assert model.score(new, scale * np.sin(8 * new[:, 0])) > 0.95


def test_noise_constants_and_what_the_usual_kernel_explains_keep_it(rng):
    x = rng.normal(size=(60, 2))
    usual = choosing.usual(2).theta
    for y in (rng.normal(size=(60, 1)), np.ones((60, 1)), x[:, :1] + 0.1 * rng.normal(size=(60, 1)), x * np.nan):
        found = choosing.fine_enough(x, y)
        assert np.array_equal(found.theta[1], usual[1])


def seasons(n=300):
    t, g = np.arange(n) / 12.0, np.random.default_rng(0)
    wave = 3 * np.sin(2 * np.pi * t) + 0.8 * np.sin(4 * np.pi * t + 0.5)
    return t[:, None], 315 + 1.2 * t + 0.012 * t**2 + wave + 0.25 * g.normal(size=n)


def test_what_a_smooth_kernel_leaves_of_a_season_has_its_period(rng):
    t, y = seasons()
    x, y = (t - t.mean()) / t.std(), (y - y.mean()) / y.std()
    wave = choosing.wave_left(x, y, covariance.RBF(lengthscale=1.0), 0.05)
    assert wave.parts[0].period == pytest.approx(1.0 / t.std(), rel=0.02)
    assert choosing.wave_left(x, x[:, 0] + rng.normal(size=300), covariance.RBF(lengthscale=1.0), 1.0) is None
    assert choosing.wave_left(x[:2], y[:2], covariance.RBF(lengthscale=1.0), 0.05) is None  # too few for any wave


@pytest.mark.slow  # compilation
@pytest.mark.parametrize("ahead", [True, False])
def test_a_season_of_a_monthly_series_is_found(ahead):
    """It was noise: the next years were off by its size (2.8), as were months between, with "converged"."""
    t, y = seasons()
    out = np.arange(300) >= 240 if ahead else np.random.default_rng(1).random(300) > 0.8
    model = ng.SparseGPRegressor("auto", n_inducing=100, verbose=False).fit(t[~out], y[~out])
    low, high = model.interval(t[out], 0.9)
    assert np.sqrt(np.mean((model.predict(t[out]) - y[out]) ** 2)) < (1.0 if ahead else 0.4)
    assert ahead or np.mean((low < y[out]) & (y[out] < high)) > 0.8
    assert model.stop_.converged
