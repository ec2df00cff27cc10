"""Outputs that go together: the dense process of all of them, whole rows and rows with gaps, steps, units, order, mistakes."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import natgrad as ng
from natgrad import covariance as cov
from natgrad.data.rows import rows_of_arrays
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.models.gp import Solver
from natgrad.models.gp.likelihoods import Gaussian
from natgrad.models.gp.outputs import Coregionalised
from natgrad.models.gp.problem import GPProblem, Predictor
from natgrad.models.gp.run import shrunk
from natgrad.models.gp.settings import Learned, Settings

FIXED = Learned(kernel=False, noise=False, inducing=False)
KERNEL = cov.Matern52(1.3, 0.8)
LAW = Coregionalised(Gaussian())


def case(rng, n_outputs, n=14, gaps=False):
    """Rows, and ψ with any noise and any B."""
    x = (np.linspace(0, 5, n) + rng.uniform(-0.1, 0.1, n))[:, None]
    y = rng.normal(size=(n, n_outputs))
    if gaps:
        y[rng.random(y.shape) < 0.4] = np.nan
        y[0] = np.nan  # a row that says nothing
    noise, sizes, turn = (
        rng.normal(size=n_outputs) - 1.0,
        rng.normal(size=n_outputs) - 3.0,
        rng.normal(size=(n_outputs,) * 2),
    )
    return x, y, np.column_stack([noise, sizes, turn])


def begun(x, y, z, psi, *, joint=False, law=LAW, kernel=KERNEL, learned=FIXED):
    problem = GPProblem(
        rows_of_arrays(x, y), kernel, law, n_inducing=len(z), jitter=1e-12, learned=learned, joint=joint
    )
    return problem, problem.start(Settings(kernel.theta, z, psi))


def dense(psi, x, y, new=None, kernel=KERNEL):
    """Log p of what is seen, and the law of all outputs at new inputs, by the matrix of all numbers."""
    mixing = LAW.parts(psi)[1]
    b, noise = mixing @ mixing.T, LAW.noises(psi)
    seen = ~np.isnan(y.ravel())
    k = (np.kron(kernel(x), b) + np.kron(np.eye(len(x)), np.diag(noise)))[np.ix_(seen, seen)]
    evidence = multivariate_normal(np.zeros(len(k)), k).logpdf(y.ravel()[seen])
    if new is None:
        return evidence
    across = np.kron(kernel(new, x), b)[:, seen]
    mean = across @ np.linalg.solve(k, y.ravel()[seen])
    covariance = np.kron(kernel(new), b) - across @ np.linalg.solve(k, across.T)
    n, p = len(new), y.shape[1]
    rows = covariance.reshape(n, p, n, p)[np.arange(n), :, np.arange(n), :]
    return evidence, mean.reshape(n, p), rows


@pytest.mark.parametrize("n_outputs", [2, 3])
@pytest.mark.parametrize(("gaps", "joint"), [(False, False), (False, True), (True, True)])
def test_inducing_inputs_at_the_data_give_the_dense_process_of_all_outputs(n_outputs, gaps, joint, rng):
    x, y, psi = case(rng, n_outputs, gaps=gaps)
    new = rng.uniform(-1, 6, size=(7, 1))
    evidence, mean, covariance = dense(psi, x, y, new)
    problem, start = begun(x, y, x, psi, joint=joint)
    after = problem.sweep(start)
    assert after.bound == pytest.approx(evidence, abs=1e-8)
    predictor = Predictor.of(problem, after.state)
    np.testing.assert_allclose(predictor.latent(new)[0], mean, atol=1e-8)
    np.testing.assert_allclose(predictor.latent(new)[1], np.einsum("npp->np", covariance), atol=1e-7)
    np.testing.assert_allclose(predictor.covariances(new), covariance, atol=1e-7)
    drawn = predictor.draws(new[:2], 40_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(drawn[:, 1].T), covariance[1], atol=0.05)  # 4 standard errors of 40,000 draws


@pytest.mark.parametrize("gaps", [False, True])
def test_slopes_at_the_best_q_are_those_of_the_evidence(gaps, rng):
    x, y, psi = case(rng, 3, gaps=gaps)
    problem, start = begun(x, y, x, psi, joint=gaps)
    state = problem.sweep(start).state
    slope = problem.gradient(state, problem.solve(state, None, None, 0.0, 1), 1.0).psi
    near = np.zeros_like(psi)
    for place in np.ndindex(*psi.shape):
        step = np.zeros_like(psi)
        step[place] = 1e-5
        near[place] = (dense(psi + step, x, y) - dense(psi - step, x, y)) / 2e-5
    np.testing.assert_allclose(slope, near, atol=1e-5 * np.abs(near).max())


@pytest.mark.parametrize("gaps", [False, True])
def test_kernel_slopes_are_those_of_the_bound(gaps, rng):
    x, y, psi = case(rng, 2, gaps=gaps)
    problem, start = begun(x, y, x[::3], psi, joint=gaps)
    state = problem.sweep(start).state
    settings = state.hyper["settings"]
    pulled = problem.matrices.pulled(
        settings, *(lambda s: (s.rows[0].x, problem.gradient(state, s, 1.0)))(problem.solve(state, None, None, 0.0, 1))
    )

    def bound(theta):
        at = settings._replace(theta=theta)
        return begun(x, y, x[::3], psi, joint=gaps)[0].bound(state._replace(hyper={"settings": at}))

    for number, part in enumerate(settings.theta):
        moved = [tuple(p + s * 1e-5 * (n == number) for n, p in enumerate(settings.theta)) for s in (1, -1)]
        near = (bound(moved[0]) - bound(moved[1])) / 2e-5
        assert np.sum(pulled.theta[number]) == pytest.approx(near, rel=1e-5), np.shape(part)


def test_steps_with_a_factor_for_each_are_those_with_one_for_all(rng):
    """B and noise move at every step, on batches: what was said is told anew without loss."""
    x, y, psi = case(rng, 3, n=60)
    learned = Learned()
    states = []
    for joint in (False, True):
        problem, state = begun(x, y, x[::6], psi, joint=joint, learned=learned)
        stepper = GroupStepper(problem, 20, *problem.local_limits, ng.Constant(0.2), remember=False)
        for _ in range(25):
            state, info = stepper.step(state, 0)
        states.append(
            (problem.widened(state) if joint else begun(x, y, x[::6], psi, joint=True)[0].widened(state), info)
        )
    (one, first), (other, second) = states
    assert first.estimate == pytest.approx(second.estimate, abs=1e-7)
    np.testing.assert_allclose(one.hyper["settings"].psi, other.hyper["settings"].psi, atol=1e-8)
    np.testing.assert_allclose(one.lam["v"][1], other.lam["v"][1], atol=1e-6)


@cache
def pair(n=240, seed=3):
    """Two outputs that go together (ρ = −0.95), and their functions without noise."""
    g = np.random.default_rng(seed)
    x = np.sort(g.uniform(0, 8, n))[:, None]
    root = np.linalg.cholesky(cov.RBF(1.0, 0.7)(x) + 1e-9 * np.eye(n))
    f = root @ g.normal(size=(n, 2)) @ np.linalg.cholesky([[1.0, -0.95], [-0.95, 1.0]]).T
    return x, f, f + 0.2 * g.normal(size=(n, 2))


def quick(**options):
    return ng.SparseGPRegressor(
        **{
            "n_inducing": None if "inducing" in options else 20,
            "solver": Solver(method=ng.VB()),
            "max_steps": 60,
            "tol": 0.0,
            "verbose": False,
            **options,
        }
    )


@cache
def fitted():
    x, _, y = pair()
    return quick(max_steps=250).fit(x, y)


def test_a_correlation_is_found_and_better_than_none():
    x, _, y = pair()
    model = fitted()
    alone = quick(max_steps=250, outputs="independent").fit(x, y)
    assert model.elbo_ > alone.elbo_ + 3
    assert -1.0 < model.output_correlation_[0, 1] < -0.85
    np.testing.assert_allclose(np.diagonal(model.output_correlation_), 1.0)
    assert alone.output_correlation_[0, 1] == 0.0
    np.testing.assert_allclose(model.noise_variance_, 0.04, rtol=0.35)


def test_what_is_known_of_a_row_tells_of_its_other_output():
    model = fitted()
    new = np.array([[20.0], [4.0]])
    plain, sd = model.predict(new, return_std=True)
    given = np.array([[1.5, np.nan], [np.nan, np.nan]])
    mean, after = model.predict(new, return_std=True, given=given)
    covariance = model.predict_cov(new)
    expected = plain[0, 1] + covariance[0, 0, 1] / covariance[0, 0, 0] * (1.5 - plain[0, 0])
    np.testing.assert_allclose(mean[0], [1.5, expected])
    np.testing.assert_allclose(after[0, 1] ** 2, covariance[0, 1, 1] - covariance[0, 0, 1] ** 2 / covariance[0, 0, 0])
    assert after[0, 0] == 0.0
    np.testing.assert_allclose([mean[1], after[1]], [plain[1], sd[1]])
    np.testing.assert_allclose(np.sqrt(np.einsum("npp->np", covariance)), sd)
    of_f = model.predict(new, return_std=True, given=given, what="f")
    assert 0.0 < of_f[1][0, 0] < 0.25  # of the function itself the noise hides a part
    assert model.predict_cov(new, given=given)[0, 0, 0] == 0.0


def test_densities_are_of_all_outputs_together_and_chain(rng):
    model = fitted()
    x, _, y = pair()
    x, y = x[:4], y[:4]
    mean, covariance = model.predict(x), model.predict_cov(x)
    expected = [multivariate_normal(m, c).logpdf(row) for m, c, row in zip(mean, covariance, y, strict=True)]
    np.testing.assert_allclose(model.log_predictive_density(x, y), expected)
    first = np.column_stack([y[:, 0], np.full(4, np.nan)])
    conditional, sd = model.predict(x, return_std=True, given=first)
    rest = -0.5 * (np.log(2 * np.pi * sd[:, 1] ** 2) + (y[:, 1] - conditional[:, 1]) ** 2 / sd[:, 1] ** 2)
    np.testing.assert_allclose(model.log_predictive_density(x, first) + rest, expected)
    drawn = model.sample(x[:1], 40_000, what="y")[:, 0]
    np.testing.assert_allclose(np.cov(drawn.T), covariance[0], atol=4 * covariance[0].max() / 200)


def test_a_stream_may_have_gaps_that_its_first_chunk_had_not():
    x, _, y = pair()
    order = np.random.default_rng(1).permutation(len(x))
    model = ng.SparseGPRegressor(n_inducing=20, solver=Solver(batch_size=40), verbose=False)
    model.partial_fit(x[order[:120]], y[order[:120]], n_total=240)
    later = y[order[120:]].copy()
    later[:, 0] = np.nan
    for _ in range(20):
        model.partial_fit(x[order[120:]], later, n_total=240)
    assert np.isfinite(model.predict(x)).all()
    assert model.predict(x).shape == (240, 2)
    whole = quick(max_steps=5).fit(x, y)
    assert np.isfinite(whole.continue_fit(x, np.where(np.arange(240)[:, None] % 2, y, [np.nan, 0.0])).elbo_)


def test_gaps_of_outputs_that_are_independent_are_left_out():
    x, _, y = pair()
    y = y.copy()
    y[::3, 1] = np.nan
    options = {
        "max_steps": 1,
        "solver": Solver(standardize=False, method=ng.VB()),
        "fixed": ["kernel", "noise", "inducing"],
        "noise_variance": 0.1,
    }
    z = x[::12]
    both = quick(outputs="independent", inducing=z, **options).fit(x, y)
    seen = ~np.isnan(y[:, 1])
    parts = [quick(inducing=z, **options).fit(x[s], y[s, p]) for p, s in ((0, seen | True), (1, seen))]
    # A step of VB on all rows is the optimum.
    assert both.elbo_ == pytest.approx(sum(part.elbo_ for part in parts), abs=1e-8)
    counts = np.where(np.isnan(y), np.nan, np.random.default_rng(0).poisson(np.exp(np.nan_to_num(y))))
    rate = quick(likelihood="poisson", max_steps=20).fit(x, counts)
    assert np.isfinite(rate.elbo_)
    assert np.isfinite(rate.log_predictive_density(x, counts)).all()


def test_mistakes_are_explained():
    x, _, y = pair()
    unseen = np.column_stack([y, np.full(len(x), np.nan)])
    with pytest.raises(ValueError, match=r"y\[:, 2\] has no number.* leave the column out"):
        quick().fit(x, unseen)
    with pytest.raises(ValueError, match='outputs="correlated" is for likelihood="gaussian"'):
        quick(likelihood="student_t", outputs="correlated").fit(x, y)
    with pytest.raises(ValueError, match="outputs must be"):
        quick(outputs="both").fit(x, y)
    with pytest.raises(ValueError, match="'heteroskedastic' needs whole rows"):
        quick(likelihood="heteroskedastic").fit(x, np.where(y > 1, np.nan, y))
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(x, np.where(y > 1, np.inf, y))
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(x, np.where(y[:, 0] > 1, np.nan, y[:, 0]))
    with pytest.raises(ValueError, match=r"given must have shape \(2, 2\)"):
        fitted().predict(x[:2], given=[[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"given\[0, 1\] = inf"):
        fitted().predict(x[:1], given=[[1.0, np.inf]])
    with pytest.raises(ValueError, match="covariances of outputs are for Gaussian noise"):
        quick(likelihood="poisson", max_steps=2).fit(x, np.ones_like(y)).predict_cov(x)


@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
def test_of_b_a_part_beside_the_diagonal_is_kept(part, rng):
    psi = case(rng, 3)[2]
    before, after = (parts @ parts.T for parts in (LAW.parts(psi)[1], LAW.parts(LAW.shrunk(psi, part))[1]))
    np.testing.assert_allclose(after, part * before + (1 - part) * np.diag(np.diag(before)), atol=1e-9)
    np.testing.assert_array_equal(LAW.noises(LAW.shrunk(psi, part)), LAW.noises(psi))


@pytest.mark.parametrize("gaps", [False, True])
def test_correlations_are_kept_as_far_as_they_gain_more_than_chance(gaps, rng):
    """The part is 1 − k/(2 g), g from dense evidences, and the bound is the evidence of what was kept."""
    kept = []
    for correlation in (0.0, 0.99):
        x = np.linspace(0, 5, 16)[:, None]
        root = np.linalg.cholesky(KERNEL(x) + 1e-9 * np.eye(16))
        b = np.array([[1.0, correlation], [correlation, 1.0]])
        y = root @ rng.normal(size=(16, 2)) @ np.linalg.cholesky(b).T
        y[:3, 0] = np.nan if gaps else y[:3, 0]
        values, vectors = np.linalg.eigh(0.5 * (b + np.array([[1.0, 0.4], [0.4, 1.0]])))
        psi = np.column_stack([np.full(2, -3.0), np.log(values), vectors])
        problem, start = begun(x, y, x, psi, joint=gaps)
        state, words = shrunk(problem, problem.sweep(start).state)
        gained = dense(psi, x, y) - dense(LAW.shrunk(psi, 0.0), x, y)
        part = max(0.0, 1.0 - 1.0 / (2.0 * max(gained, 1e-9)))
        assert problem.bound(state) == pytest.approx(dense(LAW.shrunk(psi, part), x, y), abs=1e-7)
        assert f"{part:.0%} of them are kept" in words
        kept.append(part)
    assert kept[0] == 0.0  # there is no correlation, and one of 0.2 is worse than none
    assert kept[1] > 0.5
