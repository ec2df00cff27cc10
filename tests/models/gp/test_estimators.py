"""`SparseGPRegressor` and `SparseGPClassifier` as users meet them: fits, promises, awkward data, mistakes explained."""

from functools import cache
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import natgrad as ng
from natgrad import covariance as cov
from natgrad.models.gp import Solver
from natgrad.models.gp.run import PARTS, AveragedBound


@cache
def wave(n=200):
    g = np.random.default_rng(1)
    x = g.uniform(0, 6, size=(n, 1))
    return x, np.sin(x[:, 0]) + 0.1 * g.normal(size=n)


@cache
def fitted():
    return ng.SparseGPRegressor(n_inducing=10, solver=Solver(batch_size=64), max_steps=300).fit(*wave())


def quick(**options):
    return ng.SparseGPRegressor(
        **{
            "n_inducing": None if "inducing" in options else 8,
            "solver": Solver(batch_size=32),
            "max_steps": 20,
            **options,
        }
    )


def test_a_wave_is_found_with_honest_intervals():
    x, y = wave()
    model = fitted()
    assert model.score(x, y) > 0.97
    low, high = model.interval(x, 0.9)
    assert 0.84 < np.mean((y > low) & (y < high)) < 0.96
    assert 0.05**2 < model.noise_variance_[0] < 0.2**2
    _, sd = model.predict([[3.0], [60.0]], return_std=True)
    assert sd[1] > 3 * sd[0]
    density = model.log_predictive_density(x, y)
    np.testing.assert_allclose(
        density, -0.5 * (np.log(2 * np.pi) + ((y - model.predict(x)) / model.predict(x, True)[1]) ** 2)
        - np.log(model.predict(x, True)[1]), rtol=1e-8,
    )  # fmt: skip


def test_draws_have_the_moments_of_the_predictions():
    model = fitted()
    new = np.array([[0.5], [2.5], [8.0]])
    f, y = model.sample(new, 4000), model.sample(new, 4000, what="y", seed=1)
    mean, sd = model.predict(new, return_std=True)
    np.testing.assert_allclose(f.mean(0), mean, atol=0.1)
    np.testing.assert_allclose(y.std(0), sd, rtol=0.1)
    assert (f.std(0) < y.std(0) + 0.02).all()


def test_converged_fits_stop():
    x, y = wave()
    settled = quick(max_steps=3000, tol=0.5).fit(x, y)
    assert settled.stop_.converged
    assert "readings of all rows" in str(settled.stop_)
    sampled = quick(max_steps=3000, tol=0.5, likelihood="student_t").fit(x, y)
    assert sampled.stop_.converged
    assert "averaged bound" in str(sampled.stop_)


def test_a_sampled_fit_cools_down_and_says_so_nowhere():
    """Shorter and shorter steps at the end: no lines of the trace, no steps that count, a higher bound."""
    g = np.random.default_rng(1)
    x = g.uniform(-1, 1, (800, 4))
    y = np.sin(3 * x[:, 0] * x[:, 1]) + np.cos(2 * x[:, 2]) * x[:, 3] + 0.02 * g.normal(size=800)
    options = {"n_inducing": 20, "solver": Solver(batch_size=100)}
    with mock.patch("natgrad.models.gp.run.cooling_phases", return_value=[]):
        warm = quick(max_steps=250, tol=0.0, **options).fit(x, y)
        begun = quick(max_steps=90, tol=0.0, **options).fit(x, y)
    told = []
    cool = quick(max_steps=250, tol=0.0, **options).fit(x, y, callbacks=[lambda seen: told.append(seen.t)])
    assert cool.n_steps_ == len(cool.trace_) == max(told) == 250
    np.testing.assert_array_equal(cool.trace_["elbo_estimate"], warm.trace_["elbo_estimate"])
    assert cool.elbo_ > warm.elbo_ + 0.004 * len(y)
    # A short run cools too, by fewer steps: no number of steps is one from which on it does.
    assert quick(max_steps=90, tol=0.0, **options).fit(x, y).elbo_ > begun.elbo_
    adam = Solver(batch_size=100, optimizer="adam")
    settled = quick(max_steps=3000, tol=0.5, **{**options, "solver": adam}).fit(x, y)
    steps = int(str(settled.stop_).split(" steps")[0].split()[-1])
    assert steps <= settled.n_steps_ // 3  # the steps at the end are not among those that were compared


def test_counts_and_outliers_have_their_likelihoods(rng):
    x, y = wave()
    counts = rng.poisson(np.exp(1.0 + np.sin(x[:, 0])))
    model = quick(likelihood="poisson", max_steps=100).fit(x, counts)
    rate = np.exp(1.0 + np.sin(x[:, 0]))
    assert np.mean(np.abs(model.predict(x) - rate) / rate) < 0.25
    spoiled = y.copy()
    spoiled[::10] += 20.0
    robust = quick(likelihood="student_t", max_steps=200).fit(x, spoiled)
    plain = quick(max_steps=200).fit(x, spoiled)
    truth = np.sin(x[:, 0])
    assert np.mean((robust.predict(x) - truth) ** 2) < 0.1 * np.mean((plain.predict(x) - truth) ** 2)
    with pytest.raises(ValueError, match=r"y\[0, 0\] = .*whole numbers"):
        quick(likelihood="poisson").fit(x, y - 5.0)


def test_the_dispersion_of_counts_is_learned(rng):
    x = rng.uniform(0, 6, (400, 1))
    rate = np.exp(4.0 + np.sin(x[:, 0]))
    counts = rng.poisson(rate * rng.gamma(2.0, 0.5, 400))  # α = 0.5
    model = quick(likelihood="negative_binomial", max_steps=300).fit(x, counts)
    assert 0.4 < model.dispersion_[0] < 0.62
    assert np.mean(np.abs(model.predict(x) - rate) / rate) < 0.2
    low, high = model.interval(x, 0.9)
    assert 0.86 < np.mean((counts >= low) & (counts <= high)) < 0.95
    poisson = quick(likelihood="poisson", max_steps=300).fit(x, counts)
    assert model.log_predictive_density(x, counts).sum() > poisson.log_predictive_density(x, counts).sum() + 50.0
    with pytest.raises(AttributeError, match="no dispersion"):
        poisson.dispersion_  # noqa: B018


def test_two_classes_and_three(rng):
    x = rng.normal(size=(150, 2))
    two = ng.SparseGPClassifier(n_inducing=15, solver=Solver(batch_size=64), max_steps=60).fit(
        x, np.where(x[:, 0] > 0, "b", "a")
    )
    assert two.score(x, np.where(x[:, 0] > 0, "b", "a")) > 0.93
    assert two.predict_proba(x).shape == (150, 2)
    labels = np.digitize(x[:, 0], [-0.4, 0.4])
    three = ng.SparseGPClassifier(n_inducing=15, solver=Solver(batch_size=64), max_steps=60).fit(x, labels)
    proba = three.predict_proba(x)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    assert three.score(x, labels) > 0.85
    assert three.log_predictive_density(x, labels).mean() > -0.7
    assert three.sample(x[:4], 3).shape == (3, 4, 3)
    with pytest.raises(ValueError, match="none of the classes"):
        three.log_predictive_density(x[:1], [9])
    with pytest.raises(ValueError, match="one class only"):
        ng.SparseGPClassifier().fit(x, np.zeros(150))


STEPS = [ng.Constant(0.1), ng.Constant(0.5), ng.Constant(1.0), ng.RobbinsMonro(1.0, 0.6), ng.Auto()]


def awkward(number):
    """Five data sets: smooth, duplicates, a constant column, outliers of 10⁶, ten points (fewer than inducing inputs)."""
    g = np.random.default_rng(number)
    x = g.normal(size=(10 if number == 4 else 80, 2))
    f = np.sin(2.0 * x[:, 0])
    if number == 1:
        x, f = np.repeat(x[:8], 10, axis=0), np.repeat(f[:8], 10)
    if number == 2:
        x[:, 1] = 3.0
    if number == 3:
        x[0], f[0] = 1e6, 10.0
    return x, f


@pytest.mark.parametrize(
    "likelihood", ["student_t", *(pytest.param(name, marks=pytest.mark.slow) for name in ("poisson", "bernoulli"))]
)
@pytest.mark.parametrize(
    ("sets", "steps"), [((3,), STEPS[2:3]), pytest.param(range(5), STEPS, marks=pytest.mark.slow)], ids=("some", "all")
)
def test_no_step_and_no_data_break_a_fit(likelihood, sets, steps):
    for number in sets:
        x, f = awkward(number)
        g = np.random.default_rng(number)
        for step in steps:
            options = {
                "n_inducing": 16,
                "solver": Solver(batch_size=20, step=step, learning_rate=0.05),
                "max_steps": 15,
            }
            if likelihood == "bernoulli":
                model, y = ng.SparseGPClassifier(**options), np.where(f + 0.3 * g.normal(size=len(f)) > 0, 1, 0)
            else:
                model = ng.SparseGPRegressor(likelihood=likelihood, **options)
                y = g.poisson(np.exp(f)) if likelihood == "poisson" else f + 0.1 * g.standard_t(2, len(f))
                y[0] = 1_000_000 if number == 3 else y[0]
            start = clone(model).set_params(max_steps=1, solver=Solver(20, 1e-12, step=ng.Constant(1e-9)))
            model.fit(x, y)
            assert not model.stop_.diverged
            assert np.isfinite(model.elbo_)
            assert np.isfinite(model.predict(x) if likelihood != "bernoulli" else model.predict_proba(x)).all()
            assert model.elbo_ >= _bound_before(start, x, y)


def _bound_before(model, x, y):
    """The bound at the prior and the first settings: nothing but the start moves it, and no exact pass ends it."""
    from natgrad.inference.steppers.stepper import StepInfo
    from natgrad.models.gp import run

    with mock.patch.object(run.ExactPass, "step", lambda self, state, seed: (state, StepInfo({}, 0.0, 0))):
        return model.fit(x, y).elbo_


def test_a_kernel_without_numbers_is_named():
    def broken(x, z, scale):
        return jnp.log(-scale * jnp.ones((x.shape[0], z.shape[0])))

    with pytest.raises(FloatingPointError, match=r"kernel Function\(broken.*not finite"):
        quick(kernel=cov.Function(broken, scale=1.0)).fit(*wave())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"likelihood": "cauchy"}, 'likelihood must be "gaussian"'),
        ({"n_inducing": 0}, "n_inducing must be a whole number"),
        ({"noise_variance": -1.0}, "noise_variance must be > 0"),
        ({"df": 9.0}, "df=9.0 is no setting of likelihood='gaussian'"),
        ({"likelihood": "poisson", "noise_variance": 0.3}, "noise_variance=0.3 is no setting of likelihood='poisson'"),
        (
            {"likelihood": "poisson", "fixed": "noise"},
            "fixed=\"noise\": likelihood 'poisson' has neither noise nor cutpoints",
        ),
        ({"inducing": [[0.0]], "n_inducing": 5}, "n_inducing=5, and inducing has 1 inputs: give one of the two"),
        ({"solver": Solver(jitter=0.5)}, "jitter must lie in"),
        ({"tol": -1.0}, "tol must be ≥ 0"),
        ({"fixed": "noises"}, 'fixed must be some of "kernel", "noise", "inducing"'),
        ({"inducing": np.zeros((3, 4))}, "inducing must be finite numbers"),
        ({"kernel": cov.RBF(lengthscale=[1.0, 2.0])}, "2 values for 1 columns"),
        ({"solver": Solver(method=ng.SVI({"doc": 5}))}, "the groups are called 'row'"),
        ({"df": -1.0}, "df must be > 0"),
        ({"outputs": "independent"}, "outputs='independent' is for several columns of y, and y has one"),
    ],
)
def test_mistakes_are_explained(options, words):
    with pytest.raises(ValueError, match=words):
        quick(**options).fit(*wave())


def test_mistakes_of_type_are_explained():
    with pytest.raises(TypeError, match=r"kernel must be a natgrad\.covariance function"):
        quick(kernel="rbf").fit(*wave())
    with pytest.raises(TypeError, match="must be a pair"):
        quick().fit(iter([3]))
    with pytest.raises(ValueError, match="joint draws are for at most"):
        fitted().sample(np.zeros((6000, 1)))


def test_code_of_the_user_is_not_saved(tmp_path):
    model = quick(kernel=cov.Function(lambda x, z, scale: jnp.exp(-abs(x - z.T) / scale), scale=1.0)).fit(*wave())
    with pytest.raises((TypeError, ValueError), match="code of its own"):
        model.save(tmp_path / "own.natgrad")


def test_intervals_of_the_function_have_no_noise(rng):
    """They hold the function, are narrower than those of observations, and agree with draws of the function."""
    x = np.linspace(0, 6, 200)[:, None]
    y = 100 + 10 * np.sin(x[:, 0]) + rng.normal(0, 2.0, 200)
    model = ng.SparseGPRegressor(n_inducing=12, max_steps=300, tol=0.0).fit(x, y)
    mean, sd = model.predict(x, return_std=True, what="f")
    np.testing.assert_allclose(mean, model.predict(x))
    np.testing.assert_allclose(model.predict(x, return_std=True)[1] ** 2, sd**2 + model.noise_variance_, rtol=1e-6)
    low, high = model.interval(x, 0.9, what="f")
    np.testing.assert_allclose((high - low) / 2, 1.6448536 * sd, rtol=1e-6)
    assert np.mean((low < 100 + 10 * np.sin(x[:, 0])) & (100 + 10 * np.sin(x[:, 0]) < high)) > 0.7
    draws = model.sample(x, 2000, what="f", seed=0)
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.1)
    for call in (model.predict, model.interval, model.sample):
        with pytest.raises(ValueError, match='what must be "f" or "y"'):
            call(x, what="g")
    counts = ng.SparseGPRegressor(n_inducing=8, likelihood="poisson", max_steps=50, tol=0.0).fit(x, rng.poisson(5, 200))
    low, high = counts.interval(x, what="f")
    assert np.mean((low < np.log(5)) & (np.log(5) < high)) > 0.5  # f is the log rate


KERNELS = {
    "periodic": lambda s, v: cov.Periodic(v, 0.8, 1.7 * s),
    "sum": lambda s, v: cov.RBF(v, 0.7 * s) + cov.Linear(0.2 * v / s**2),
    "product": lambda s, v: cov.Periodic(v, 1.0, 1.3 * s) * cov.RationalQuadratic(1.0, 3.0 * s, 0.5) + cov.White(0.1 * v),
    "function": lambda s, v: cov.Function(lambda x, z, a, b: a * jnp.exp(-abs(x - z.T) / b), a=v, b=s),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_given_kernel_is_in_the_units_of_the_data(name, rng):
    """Exact processes by definition, in any units, standardised or not."""
    x, new = rng.uniform(3.0, 9.0, (30, 1)), rng.uniform(2.0, 10.0, (6, 1))
    y = np.sin(4 * x[:, 0]) + 0.3 * rng.normal(size=30)
    y -= y.mean()
    still = {"fixed": ["kernel", "noise", "inducing"]}
    first: tuple = ()
    for s, u in ((1.0, 1.0), (1e6, 1.0), (1e-3, 1e4)) if name != "function" else ((1.0, 1.0),):
        kernel = KERNELS[name](s, u**2)
        k, cross = kernel(s * x) + 0.09 * u**2 * np.eye(30), kernel(s * new, s * x)
        for standardize in (True, False):
            model = quick(
                kernel=kernel,
                inducing=s * x,
                noise_variance=0.09 * u**2,
                solver=Solver(jitter=1e-10, standardize=standardize),
                **still,
            )
            mean, sd = model.fit(s * x, u * y).predict(s * new, return_std=True, what="f")
            if "White" not in repr(kernel):  # inducing inputs do not carry it
                assert np.allclose(mean, cross @ np.linalg.solve(k, u * y), atol=1e-4 * u)
            first = (mean / u, sd / u) if s == 1.0 and standardize else first
            assert np.allclose(mean / u, first[0], atol=1e-4)
            assert np.allclose(sd / u, first[1], atol=1e-4)
            pairs = zip(model.kernel_.theta, kernel.theta, strict=True)
            assert all(np.allclose(one, other, atol=1e-8) for one, other in pairs)


@pytest.mark.parametrize("tied", [True, False])
def test_kernels_are_in_the_units_that_their_lengths_can_follow(tied, rng):
    """One length for two columns: both have the same unit."""
    scale, shift, x = np.array([0.5, 20.0]), np.array([3.0, -1.0]), rng.normal(size=(5, 2))
    kernel = cov.RBF(2.0, 1.5 if tied else [1.5, 0.5]) + cov.Linear([0.3, 0.2], origin=[1.0, 2.0])
    unit = kernel.units(scale)
    assert np.allclose(unit, np.sqrt(np.mean(scale**2)) if tied else scale)
    assert np.allclose(kernel.in_units(shift, unit, 4.0)(x), kernel(shift + unit * x) / 4.0)


def test_steps_on_all_rows_whose_bound_falls_are_shortened_part_by_part():
    """There is no noise in it: they are too long. What is left of the rate is 1, 1/3, 1/10, … of it."""
    problem = mock.Mock(batch_size=50, n_groups=50, rate=0.06, population=50)
    trace = mock.Mock(records=[mock.Mock()])
    run, rates = AveragedBound(problem, trace, tol=1e-3), []
    for t in range(1, 2000):
        trace.records[-1].elbo_estimate = -float(t)
        if run(mock.Mock(t=t)) is not None or (rates and problem.rate == rates[-1]):
            continue
        rates.append(problem.rate)
    assert rates == pytest.approx([0.06 * part for part in PARTS])
