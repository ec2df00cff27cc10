"""Classes, ordered classes and noise that varies: bounds against slow twins, their limits, and estimators as users meet them."""

from functools import cache

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import natgrad as ng
from natgrad import covariance as cov
from natgrad.data.rows import Rows
from natgrad.inference.steppers.groups import ExactPass, GroupStepper
from natgrad.models.gp import Solver
from natgrad.models.gp.joint import Heteroskedastic, Ordinal, Softmax, cutpoints, softmax
from natgrad.models.gp.likelihoods import Gaussian
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.settings import Learned, Settings

FIXED = Learned(kernel=False, noise=False, inducing=False)
LEVELS = np.array([0.0, 2.0, 1.0, 3.0, 3.0])


def one_hot(numbers, size):
    return np.where(np.asarray(numbers, int)[:, None] == np.arange(size), 1.0, -1.0)


def cases():
    """Likelihood, ψ, y [5, P], and how many functions."""
    return {
        "softmax": (Softmax(), np.zeros(4), one_hot(LEVELS, 4), 4),
        "ordinal": (Ordinal(4), np.array([-1.0, 0.2, -0.4]), LEVELS[:, None], 1),
        "heteroskedastic": (Heteroskedastic(), np.array([[-0.5, -0.3], [0.2, 0.1]]), np.c_[LEVELS, -LEVELS], 4),
    }


# -- what a likelihood says of a row, by definition --


def softmax_twin(y, mean, var):
    """The best tilts, by another optimiser."""

    def above(a):
        s = mean + (0.5 - a) * var
        return 0.5 * a @ (a * var) + np.log(np.exp(s).sum())

    best = optimize.minimize(above, softmax(mean), method="BFGS", options={"gtol": 1e-10})
    return mean[y > 0].sum() - best.fun


def ordinal_twin(psi, level, mean, var):
    ends = np.concatenate([[-np.inf], cutpoints(psi), [np.inf]])[[int(level), int(level) + 1]]

    def part(f):
        low, high = (ends - f) if ends[0] < f else (f - ends)[::-1]  # the smaller of the tails
        return np.log(stats.norm.cdf(high) - stats.norm.cdf(low)) * stats.norm.pdf(f, mean, np.sqrt(var))

    return integrate.quad(part, mean - 9 * np.sqrt(var), mean + 9 * np.sqrt(var), epsabs=1e-12)[0]


def heteroskedastic_twin(psi, y, mean, var):
    total = 0.0
    for p, (mu, log_s) in enumerate(psi):
        f, h, v_f, v_h = mean[p], mean[2 + p], var[p], var[2 + p]

        def part(x, mu=mu, log_s=log_s, p=p, f=f, v_f=v_f, h=h, v_h=v_h):
            g = mu + np.exp(log_s) * x
            value = -0.5 * (np.log(2 * np.pi) + g + ((y[p] - f) ** 2 + v_f) * np.exp(-g))
            return value * stats.norm.pdf(x, h, np.sqrt(v_h))

        total += integrate.quad(part, h - 12 * np.sqrt(v_h), h + 12 * np.sqrt(v_h), epsabs=1e-12)[0]
    return total


@pytest.mark.parametrize("name", cases())
def test_values_are_those_of_a_slow_twin(name, rng):
    likelihood, psi, y, size = cases()[name]
    mean, var = rng.normal(size=(size, 5)), rng.gamma(1.0, 0.3, size=(size, 5))
    found = likelihood.expected_rows(psi, y, mean, var).value
    found = found.sum(0) if found.ndim > 1 else found
    for n in range(5):
        wanted = {
            "softmax": lambda n=n: softmax_twin(y[n], mean[:, n], var[:, n]),
            "ordinal": lambda n=n: ordinal_twin(psi, y[n, 0], mean[0, n], var[0, n]),
            "heteroskedastic": lambda n=n: heteroskedastic_twin(psi, y[n], mean[:, n], var[:, n]),
        }[name]()
        assert found[n] == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize("name", cases())
def test_slopes_are_those_of_the_value(name, rng):
    likelihood, psi, y, size = cases()[name]
    mean, var = rng.normal(size=(size, 5)), 0.1 + rng.gamma(1.0, 0.3, size=(size, 5))
    said = likelihood.expected_rows(psi, y, mean, var)

    def total(*arguments):
        return likelihood.expected_rows(arguments[0], y, *arguments[1:]).value.sum()

    slopes = {0: said.parameter, 1: said.slope, 2: said.spread}
    for place, slope in slopes.items():
        here = (psi, mean, var)
        for index in np.ndindex(np.shape(slope)):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [part.copy() for part in here]
                moved[place][index] += step
                ends.append(total(*moved))
            assert slope[index] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=2e-6)
    # Messages are natural gradients: what a row takes off the precision is twice its slope in the variance. Sums over nodes
    # have the derivative of the law there, and are as exact as they are.
    np.testing.assert_allclose(said.curvature, 2.0 * said.spread, atol=2e-3 if name == "ordinal" else 1e-6)


def test_a_softmax_is_bounded_from_below_and_closely(rng):
    mean, var = rng.normal(size=(3, 40)), rng.gamma(1.0, 0.5, size=(3, 40))
    y = one_hot(rng.integers(0, 3, 40), 3)
    f = mean[:, None] + np.sqrt(var)[:, None] * rng.standard_normal((3, 20_000, 40))
    exact = np.where(y.T > 0, mean, 0).sum(0) - np.log(np.exp(f).sum(0)).mean(0)
    found = Softmax().expected_rows(np.zeros(3), y, mean, var).value
    assert (found < exact + 0.02).all()  # up to the noise of the draws
    assert np.mean(exact - found) < 0.03
    p = Softmax().predict_rows(np.zeros(3), mean.T, var.T)[0]
    np.testing.assert_allclose(p.sum(1), 1.0)
    np.testing.assert_allclose(p, softmax(np.moveaxis(f, 0, -1)).mean(0), atol=0.012)
    # Wide functions: nothing overflows, and tilts are still found.
    wide = Softmax().expected_rows(np.zeros(3), y, 50 * mean, 200 * var)
    assert np.isfinite(wide.value).all()
    assert (wide.value < 1e-9).all()


def test_without_spread_in_the_noise_it_is_gaussian(rng):
    y, mean, var = rng.normal(size=(6, 1)), rng.normal(size=(2, 6)), rng.gamma(1.0, 0.5, size=(2, 6))
    psi, plain = np.array([[np.log(0.3), -40.0]]), Gaussian()
    known = plain.expected(np.log(0.3 - 1e-6), y[:, 0], mean[0], var[0])
    said = Heteroskedastic().expected_rows(psi, y, mean, var)
    for found, wanted in zip(said[:4], known[:4], strict=True):
        np.testing.assert_allclose(found[0], wanted, rtol=1e-10)
    f, v = mean.T, var.T
    np.testing.assert_allclose(
        Heteroskedastic().log_predictive_rows(psi, y, f, v), stats.norm.logpdf(y[:, 0], f[:, 0], np.sqrt(v[:, 0] + 0.3))
    )
    for level in (0.05, 0.5, 0.9):
        np.testing.assert_allclose(
            Heteroskedastic().quantile_rows(psi, level, f, v)[:, 0],
            stats.norm.ppf(level, f[:, 0], np.sqrt(v[:, 0] + 0.3)),
        )


@pytest.mark.parametrize("name", cases())
def test_what_is_drawn_has_the_predicted_law(name, rng):
    likelihood, psi, y, size = cases()[name]
    mean, var = rng.normal(size=(5, size)), rng.gamma(1.0, 0.2, size=(5, size))
    f = mean + np.sqrt(var) * rng.standard_normal((20_000, 5, size))
    drawn = likelihood.sample_rows(psi, f, rng)
    centre, spread = likelihood.predict_rows(psi, mean, var)
    if name == "softmax":
        np.testing.assert_allclose((drawn > 0).mean(0), centre, atol=0.02)
        return
    np.testing.assert_allclose(drawn.mean(0), centre, atol=0.05)
    np.testing.assert_allclose(drawn.var(0), spread, rtol=0.15)
    low, high = (likelihood.quantile_rows(psi, level, mean, var) for level in (0.1, 0.9))
    inside = ((drawn >= low) & (drawn <= high)).mean(0)
    assert (inside > 0.785).all()
    assert name == "ordinal" or (inside < 0.815).all()
    density = likelihood.log_predictive_rows(psi, y, mean, var)
    if name == "ordinal":
        np.testing.assert_allclose(np.exp(density), (drawn[..., 0] == y[:, 0]).mean(0), atol=0.015)


# -- the whole problem --


@cache
def curve():
    g = np.random.default_rng(3)
    x = np.sort(g.uniform(0, 5, 30))[:, None]
    return x, np.sin(2 * x[:, 0]) + 0.3 * g.normal(size=30)


def begun(likelihood, y, psi, n_inducing=3):
    x = curve()[0]
    kernel, z = cov.RBF(1.4, 0.9), np.linspace(0.5, 4.5, n_inducing)[:, None]
    problem = GPProblem(Rows(x, y), kernel, likelihood, n_inducing=n_inducing, learned=FIXED, jitter=1e-10)
    return problem, problem.start(Settings(kernel.theta, z, psi))


@pytest.mark.parametrize("name", cases())
def test_the_optimum_is_that_of_the_bound_by_its_definition(name):
    """E log p − KL in dense matrices, maximised by an optimiser that knows nothing of natural gradients."""
    likelihood, psi, _, _ = cases()[name]
    x, curved = curve()
    numbers = np.digitize(curved, [-0.6, 0.0, 0.6]).astype(float)
    y = {"softmax": one_hot(numbers, 4), "ordinal": numbers[:, None], "heteroskedastic": np.c_[curved, curved**2]}[name]
    problem, state = begun(likelihood, y, psi, 2)
    stepper = GroupStepper(problem, 30, *problem.local_limits, ng.Constant(1.0), remember=False)
    for _ in range(60):
        state, _ = stepper.step(state, 0)
    kernel, z = problem.kernel, np.asarray(state.hyper["settings"].inducing)
    a = np.linalg.solve(np.linalg.cholesky(kernel(z) + 1e-10 * 1.4 * np.eye(2)), kernel(z, x))
    size = problem.n_outputs

    def minus(flat):
        parts = flat.reshape(size, 5)
        mean, var, kl = [], [], 0.0
        for m0, m1, d0, d1, lower in parts:
            m, root = np.array([m0, m1]), np.array([[np.exp(d0), 0.0], [lower, np.exp(d1)]])
            s = root @ root.T
            mean.append(m @ a)
            var.append(1.4 - (a**2).sum(0) + np.einsum("mn,mk,kn->n", a, s, a))
            kl += 0.5 * (np.trace(s) + m @ m - 2) - d0 - d1
        return kl - likelihood.expected_rows(psi, y, np.array(mean), np.array(var)).value.sum()

    best = optimize.minimize(
        minus, np.zeros(5 * size), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-7, "maxfun": 10**5}
    )
    assert problem.bound(state) == pytest.approx(-best.fun, abs=1e-6)
    assert problem.bound(state) >= -best.fun - 1e-8


def test_a_step_never_lowers_its_batchs_bound_and_the_last_pass_not_that_of_all(rng):
    for name, (likelihood, psi, _, _) in cases().items():
        curved = curve()[1]
        numbers = np.digitize(curved, [-0.6, 0.0, 0.6]).astype(float)
        y = {"softmax": one_hot(numbers, 4), "ordinal": numbers[:, None], "heteroskedastic": np.c_[curved, curved]}[
            name
        ]
        problem, state = begun(likelihood, y, psi, 5)
        stepper, before = GroupStepper(problem, 30, 0.0, 1, ng.Constant(1.0), remember=False), problem.bound(state)
        for _ in range(6):
            state, info = stepper.step(state, 0)
            assert info.estimate >= before - 1e-9 * abs(before)
            before = info.estimate
        assert problem.bound(ExactPass(problem).step(state, 0)[0]) >= before - 1e-9 * abs(before)


# -- estimators --


def quick(**options):
    return ng.SparseGPClassifier(
        **{"n_inducing": 10, "solver": Solver(batch_size=64), "max_steps": 50, "verbose": False, **options}
    )


@cache
def stars():
    g = np.random.default_rng(0)
    x = g.uniform(-2, 2, size=(300, 2))
    return x, np.digitize(2 * np.sin(2 * x[:, 0]) + x[:, 1] + 0.5 * g.normal(size=300), [-1.5, 0.0, 1.5])


@pytest.mark.parametrize("likelihood", ["softmax", "ordinal"])
def test_classes_are_found(likelihood):
    x, y = stars()
    model = quick(likelihood=likelihood).fit(x[:200], y[:200] + 1)
    p = model.predict_proba(x[200:])
    assert p.shape == (100, 4)
    np.testing.assert_allclose(p.sum(1), 1.0)
    base = np.log(np.bincount(y[:200])[y[200:]] / 200).mean()
    assert model.log_predictive_density(x[200:], y[200:] + 1).mean() > base + 0.4
    assert model.score(x[200:], y[200:] + 1) > 0.55
    draws = model.sample(x[200:205], 2000)
    np.testing.assert_allclose(draws.mean(0), p[:5], atol=0.05)
    assert model.decision_function(x).shape == ((300,) if likelihood == "ordinal" else (300, 4))
    if likelihood == "ordinal":
        assert (np.diff(model.cutpoints_) > 0).all()
        assert len(model.cutpoints_) == 3
    else:
        with pytest.raises(AttributeError, match="no cutpoints"):
            model.cutpoints_  # noqa: B018


def test_the_default_is_a_softmax_of_three_and_a_probit_of_two():
    x, y = stars()
    assert quick(max_steps=2).fit(x, y)._link == "softmax"
    assert quick(max_steps=2).fit(x, y > 1)._link == "probit"
    rest = quick(max_steps=2, likelihood="probit").fit(x, y)
    np.testing.assert_allclose(rest.predict_proba(x).sum(1), 1.0)
    two = quick(likelihood="softmax").fit(x, np.where(y > 1, "up", "down"))
    assert two.predict_proba(x).shape == (300, 2)
    assert two.decision_function(x).shape == (300,)
    assert np.array_equal(two.predict(x) == "up", two.decision_function(x) > 0)


def test_words_have_the_order_that_is_given():
    x, y = stars()
    words = np.array(["low", "fair", "good", "high"])
    model = quick(likelihood="ordinal", order=words.tolist()).fit(x, words[y])
    plain = quick(likelihood="ordinal").fit(x, y)
    assert model.classes_.tolist() == words.tolist()
    np.testing.assert_allclose(model.predict_proba(x), plain.predict_proba(x))
    assert (model.predict(x) == words[plain.predict(x)]).all()
    # A level that nobody had, between others that somebody had.
    few = quick(likelihood="ordinal", order=[0, 1, 2, 3, 4]).fit(x[y != 2], y[y != 2])
    assert few.predict_proba(x)[:, [2, 4]].mean() < 0.1
    for options, message in (
        ({"likelihood": "ordinal"}, "words, which have no order: give order="),
        ({"order": words.tolist()}, 'order is for likelihood="ordinal"'),
        ({"likelihood": "ordinal", "order": ["low", "low"]}, "each once"),
        ({"likelihood": "ordinal", "order": ["low", "fair"]}, "is none of the classes"),
        ({"likelihood": "logit"}, "likelihood must be"),
    ):
        with pytest.raises(ValueError, match=message):
            quick(**options).fit(x, words[y])


@cache
def loud():
    """Quiet, then loud: an impact, as of the motorcycle."""
    g = np.random.default_rng(1)
    x = np.sort(g.uniform(0, 60, 600))
    f = -80 * np.exp(-0.5 * ((x - 21) / 4) ** 2) + 40 * np.exp(-0.5 * ((x - 33) / 5) ** 2)
    return x[:, None], f + (1 + 25 / (1 + np.exp(-(x - 14) / 1.5))) * g.normal(size=600)


def test_noise_that_varies_is_found():
    x, y = loud()
    learn, judge = np.arange(0, 600, 2), np.arange(1, 600, 2)
    model = ng.SparseGPRegressor(n_inducing=20, likelihood="heteroskedastic", verbose=False, max_steps=300).fit(
        x[learn], y[learn]
    )
    plain = ng.SparseGPRegressor(n_inducing=20, verbose=False, max_steps=300).fit(x[learn], y[learn])
    gain = (
        model.log_predictive_density(x[judge], y[judge]).mean()
        - plain.log_predictive_density(x[judge], y[judge]).mean()
    )
    assert gain > 0.3
    assert model.elbo_ > plain.elbo_ + 100
    low, high = model.interval(x[judge], 0.95)
    inside = (y[judge] > low) & (y[judge] < high)
    quiet = x[judge, 0] < 12
    assert 0.92 < inside.mean() < 0.98
    assert 0.86 < inside[quiet].mean() <= 1.0
    assert plain.interval(x[judge], 0.95)[1][quiet].mean() > 3 * high[quiet].mean()  # one size fits nobody
    start, end = model.noise_std([[3.0], [40.0]])
    assert 0.4 < start < 3.0
    assert 18 < end < 35
    mean, sd = model.predict(x, return_std=True)
    f_mean, f_sd = model.predict(x, return_std=True, what="f")
    np.testing.assert_allclose(mean, f_mean)
    np.testing.assert_allclose(sd**2, f_sd**2 + model.noise_std(x) ** 2, rtol=1e-9)
    np.testing.assert_allclose(plain.noise_std(x), np.sqrt(plain.noise_variance_[0]))
    assert model.sample(x[:4], 3, what="y").shape == (3, 4)
    drawn = model.sample([[3.0], [40.0]], 4000, what="y")
    np.testing.assert_allclose(drawn.std(0), model.predict([[3.0], [40.0]], return_std=True)[1], rtol=0.1)
    with pytest.raises(AttributeError, match=r"noise_std\(X\) has it"):
        model.noise_variance_  # noqa: B018
