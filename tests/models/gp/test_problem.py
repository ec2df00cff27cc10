"""The sparse GP's theorems: exact where it must be, bounds in order, gradients of every kernel and likelihood."""

import jax
import numpy as np
import optax
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import natgrad as ng
from natgrad import covariance as cov
from natgrad.data.rows import rows_of_arrays
from natgrad.inference.steppers.groups import ExactPass, GroupStepper
from natgrad.models.gp.likelihoods import Bernoulli, Gaussian, NegativeBinomial, Poisson, StudentT
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.settings import Adam, Learned, Settings, adam_step, compiled, leaves_of, settings_of

FIXED = Learned(kernel=False, noise=False, inducing=False)


def sines(n=30, seed=5):
    g = np.random.default_rng(seed)
    x = np.sort(g.uniform(0, 5, n))[:, None]
    return x, np.sin(x[:, 0]) + 0.1 * g.normal(size=n)


def begun(x, y, z, kernel=None, likelihood=None, noise=0.01, jitter=1e-10, learned=FIXED):
    kernel, likelihood = kernel or cov.RBF(), likelihood or Gaussian()
    problem = GPProblem(rows_of_arrays(x, y), kernel, likelihood, n_inducing=len(z), jitter=jitter, learned=learned)
    psi = np.full(problem.n_outputs, likelihood.start(noise))
    return problem, problem.start(Settings(kernel.theta, z, psi))


def collapsed(kernel, x, y, z, noise, jitter=1e-10):
    """L₂ by its definition: log N(y | 0, Q + σ² I) − tr(K − Q)/(2σ²)."""
    k_mm = kernel(z)
    k_mm += jitter * np.mean(np.diag(k_mm)) * np.eye(len(z))
    q = kernel(x, z) @ np.linalg.solve(k_mm, kernel(z, x))
    evidence = multivariate_normal(np.zeros(len(x)), q + noise * np.eye(len(x))).logpdf(y)
    return evidence - np.trace(kernel(x) - q) / (2.0 * noise)


def stepper_of(problem, size, step):
    return GroupStepper(problem, size, *problem.local_limits, step, remember=False)


def test_one_full_step_is_the_reference(reference):
    known = reference("exact_conjugate")["sgpr_titsias"]
    x, y = sines()
    problem, start = begun(x, y, np.linspace(0, 5, 6)[:, None])
    after, info = stepper_of(problem, 30, ng.Constant(1.0)).step(start, 0)
    assert problem.bound(after) == pytest.approx(known["bound"], abs=1e-10)
    assert info.estimate == pytest.approx(known["bound"], abs=1e-10)
    u = problem.factor(after.hyper["settings"]).factor @ after.mu["v"][0][0]
    np.testing.assert_allclose(u, known["q_u_mean"], atol=1e-10)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**16),
    n_inducing=st.sampled_from([1, 4, 8]),
    noise=st.floats(0.01, 1.0),
    ell=st.floats(0.3, 3.0),
    rho=st.floats(0.05, 1.0),
)
def test_bounds_are_in_order(seed, n_inducing, noise, ell, rho):
    x, y = sines(12, seed)
    kernel, z = cov.RBF(1.0, ell), np.random.default_rng(seed).uniform(0, 5, size=(n_inducing, 1))
    problem, state = begun(x, y, z, kernel, noise=noise, jitter=1e-8)
    evidence = multivariate_normal(np.zeros(12), kernel(x) + noise * np.eye(12)).logpdf(y)
    l_2 = collapsed(kernel, x, y, z, noise, 1e-8)
    stepper = stepper_of(problem, 12, ng.Constant(rho))
    before = problem.bound(state)
    for _ in range(3):
        state, info = stepper.step(state, 0)
        # Towards the batch's own optimum the bound rises, whatever the length of the step.
        assert info.estimate >= before - 1e-9 * abs(before)
        before = info.estimate
        assert before <= l_2 + 1e-6 * (1.0 + abs(l_2))
    best = problem.bound(ExactPass(problem).step(state, 0)[0])
    assert best == pytest.approx(l_2, rel=1e-6, abs=1e-5)
    assert l_2 <= evidence + 1e-6 * (1.0 + abs(evidence))


def test_batches_add_up_and_average_to_the_whole(rng):
    x, y = sines(24)
    problem, state = begun(x, y, x[::4])
    whole = problem.solve(state, None, None, 0.0, 1).messages["v"]
    cut = [problem.solve(state, part, None, 0.0, 1).messages["v"] for part in np.split(rng.permutation(24), 4)]
    for place in (0, 1):
        np.testing.assert_allclose(sum(part[place] for part in cut), whole[place], rtol=1e-10)
    np.testing.assert_allclose(problem.solve_all(state).messages["v"][1], whole[1], rtol=1e-10)


def outputs_for(likelihood, y):
    if isinstance(likelihood, (Poisson, NegativeBinomial)):
        return np.round(np.exp(y))
    return np.sign(y) if isinstance(likelihood, Bernoulli) else y


KERNELS = [
    cov.RBF(1.2, 0.8),
    cov.Matern12(1.2, 0.8),
    cov.Matern32(1.2, 0.8),
    cov.Matern52(1.2, 0.8),
    cov.RationalQuadratic(1.2, 0.8, 0.7),
    cov.Periodic(1.2, 0.8, 2.5),
    cov.Linear(0.5) + cov.Constant(0.4) + cov.White(0.3),
    cov.Function(lambda x, z, scale, mass: mass / (1.0 + abs(x - z.T) ** 2 / scale), scale=1.1, mass=0.7),
    cov.RBF(1.2, 0.8) * cov.Periodic(1.0, 1.0, 2.0) + cov.Linear(0.2),
]
CASES = [(kernel, Gaussian()) for kernel in KERNELS]
CASES += [(KERNELS[0], likelihood) for likelihood in (StudentT(), Poisson(), Bernoulli(), NegativeBinomial())]
# Each compiles a program: a sum of products and one that is not Gaussian stand for the others.
CASES = [case if n in (8, 10) else pytest.param(*case, marks=pytest.mark.slow) for n, case in enumerate(CASES)]


@pytest.mark.parametrize(("kernel", "likelihood"), CASES, ids=lambda v: getattr(v, "name", repr(v)[:30]))
def test_gradients_are_finite_differences(kernel, likelihood, rng):
    """Of the batch's bound, in every log parameter, every inducing input and the noise, away from the optimum."""
    x, y = sines(20)
    z = np.linspace(0.3, 4.7, 4)[:, None]
    problem, state = begun(x, outputs_for(likelihood, y), z, kernel, likelihood, noise=0.05, jitter=1e-6)
    stepper = stepper_of(problem, 20, ng.Constant(0.5))
    for _ in range(2):
        state, _ = stepper.step(state, 0)
    here = state.hyper["settings"]._replace(adam=None)
    found = problem.solve(state, None, None, 0.0, 1)
    pulled = problem.matrices.pulled(here, x, problem.gradient(state, found, 2.0))
    flat, slopes = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(part)]) for part in (here, pulled))

    def bound(moved):
        ends = np.cumsum([np.size(leaf) for leaf in jax.tree.leaves(here)])[:-1]
        leaves = [
            part.reshape(np.shape(leaf))
            for part, leaf in zip(np.split(moved, ends), jax.tree.leaves(here), strict=True)
        ]
        there = state._replace(hyper={"settings": jax.tree.unflatten(jax.tree.structure(here), leaves)})
        return problem.batch_bound(there, problem.solve(there, None, None, 0.0, 1), None, 2.0)

    differences = [(bound(flat + e) - bound(flat - e)) / 2e-5 for e in 1e-5 * np.eye(len(flat))]
    if not likelihood.has_parameter:
        differences[-1] = 0.0
    np.testing.assert_allclose(slopes, differences, atol=2e-6 * np.abs(slopes).max() + 1e-7)


@pytest.mark.parametrize(
    "likelihood", [Gaussian(), StudentT(), Poisson(), Bernoulli(), NegativeBinomial()], ids=lambda v: v.name
)
def test_a_likelihood_keeps_its_own_laws(likelihood, rng):
    """Slopes are derivatives of the value, densities integrate to one, quantiles invert the distribution of samples."""
    mean, var, psi = rng.normal(size=4), np.array([0.01, 0.1, 0.5, 1.0]), likelihood.start(0.3)
    y = outputs_for(likelihood, rng.normal(size=4))
    said = likelihood.expected(psi, y, mean, var)
    for field, change in (("slope", (1e-5, 0.0, 0.0)), ("spread", (0.0, 1e-5, 0.0))):
        up = likelihood.expected(psi, y, mean + change[0], var + change[1]).value
        down = likelihood.expected(psi, y, mean - change[0], var - change[1]).value
        np.testing.assert_allclose(getattr(said, field), (up - down) / 2e-5, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(said.curvature, 2.0 * said.spread, atol=2e-2)
    if likelihood.name != "bernoulli":
        f = mean[:, None] + np.sqrt(var)[:, None] * rng.standard_normal((4, 20_000))
        drawn = likelihood.sample(psi, f, rng)
        low, high = (likelihood.quantile(psi, level, mean, var) for level in (0.05, 0.95))
        inside = np.mean((drawn >= low[:, None]) & (drawn <= high[:, None]), axis=1)
        assert (inside > 0.885).all()
        assert isinstance(likelihood, (Poisson, NegativeBinomial)) or (inside < 0.915).all()
        np.testing.assert_allclose(drawn.mean(1), likelihood.predict(psi, mean, var)[0], rtol=0.05, atol=0.05)


def test_a_negative_binomial_is_that_of_scipy_and_ends_as_a_poisson():
    y, f = np.array([0.0, 1.0, 7.0, 40.0]), np.array([-1.0, 0.3, 2.0, 3.5])
    likelihood = NegativeBinomial()
    psi = likelihood.start(0.4)
    r = 1.0 / likelihood.variance(psi)
    law = scipy.stats.nbinom(r, r / (r + np.exp(f)))
    np.testing.assert_allclose(likelihood.log_density(psi, y, f), law.logpmf(y), rtol=1e-10)
    np.testing.assert_allclose(likelihood.cdf(psi, y, f), law.cdf(y), rtol=1e-10)
    along = likelihood.derivatives(psi, y, f)[3]
    ends = (likelihood.log_density(psi + step, y, f) for step in (1e-5, -1e-5))
    np.testing.assert_allclose(along, np.subtract(*ends) / 2e-5, rtol=1e-6, atol=1e-8)
    # α is at least 1e-6: 40²/2 of that apart.
    np.testing.assert_allclose(likelihood.log_density(-60.0, y, f), Poisson().log_density(0.0, y, f), atol=1e-3)


def test_step_of_other_likelihoods_never_lowers_its_batchs_bound(rng):
    x, y = sines(40)
    for likelihood in (StudentT(), Poisson(), Bernoulli(), NegativeBinomial()):
        problem, state = begun(x, outputs_for(likelihood, y), x[::5], None, likelihood, noise=0.01)
        stepper = stepper_of(problem, 10, ng.Constant(1.0))
        for _ in range(10):
            after, info = stepper.step(state, 0)
            rows = np.sort(np.random.default_rng([0, state.t]).choice(40, 10, replace=False, shuffle=False))
            found = problem.solve(state, rows, None, 0.0, 1)
            before = problem.batch_bound(state, found, None, 4.0)
            assert info.estimate >= before - 1e-9 * abs(before)
            state = after


def test_step_on_all_rows_of_another_likelihood_reaches_a_stationary_point():
    """At the end the target is λ itself: natural gradient zero."""
    x, y = sines(40)
    problem, state = begun(x, np.round(np.exp(y)), x[::5], None, Poisson())
    stepper = stepper_of(problem, 40, ng.Constant(1.0))
    for _ in range(15):
        state, _ = stepper.step(state, 0)
    told = problem.solve_all(state).messages["v"]
    target = [p + m for p, m in zip(problem.prior_of("v"), told, strict=True)]
    np.testing.assert_allclose(target[0], state.lam["v"][0], atol=1e-8)


def test_jitter_is_raised_and_counted():
    x = np.zeros((6, 1))
    problem, state = begun(x, np.arange(6.0), np.zeros((3, 1)), jitter=0.0)
    stepper_of(problem, 6, ng.Constant(1.0)).step(state, 0)
    assert problem.jitter_raised >= 1
    assert 0 < problem.jitter_used < 1e-8


def test_adam_is_optaxs(rng):
    here = Settings((np.array(0.3), rng.normal(size=2)), rng.normal(size=(3, 2)), rng.normal(size=1))
    mine = compiled(cov.RBF(1.0, [1.0, 1.0])).started(here)
    theirs = mine._replace(adam=None)
    optimizer = optax.scale_by_adam()
    update = jax.jit(optimizer.update)
    with jax.enable_x64(True):
        memory = mine.adam
        for _ in range(4):
            slopes = Settings((rng.normal(), rng.normal(size=2)), rng.normal(size=(3, 2)), rng.normal(size=1))
            mine = adam_step(Learned(), 0.1, mine, slopes)
            direction, memory = update(slopes, memory)
            theirs = jax.tree.map(lambda old, step: old + 0.1 * np.asarray(step), theirs, direction)
    assert jax.tree.structure(memory) == jax.tree.structure(optimizer.init(theirs))
    for one, two in zip(jax.tree.leaves(mine._replace(adam=None)), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
    spoiled = slopes._replace(psi=np.array([np.nan]))
    assert adam_step(Learned(), 0.1, mine, spoiled) is mine


def test_several_outputs_are_several_problems():
    x, y = sines(30)
    z = x[::4]
    both, state = begun(x, np.stack([y, y**2], 1), z)
    after = ExactPass(both).step(state, 0)[0]
    alone = []
    for column in (y, y**2):
        problem, start = begun(x, column, z)
        alone.append(problem.bound(ExactPass(problem).step(start, 0)[0]))
    assert both.bound(after) == pytest.approx(sum(alone), rel=1e-10)


def test_settings_come_back_from_their_leaves_with_what_adam_remembers():
    kernel = cov.RBF() + cov.White()
    numbers = iter(range(100))

    def some(adam=None):
        theta = tuple(np.array(float(next(numbers))) for _ in kernel.theta)
        return Settings(theta, np.full((3, 1), float(next(numbers))), np.full(1, float(next(numbers))), adam)

    whole = some(Adam(np.array(7), some(), some()))
    again = settings_of(leaves_of(whole), compiled(kernel), kernel)
    assert jax.tree.structure(again) == jax.tree.structure(whole)
    jax.tree.map(np.testing.assert_array_equal, again, whole)
