"""What the interpreter writes out is what the program says: sweeps, priors, targets and joint solves, nothing compiled."""

import numpy as np
import pytest
from promises.networks import CASES
from trees import same

import natgrad as ng
from natgrad.network.start.initial import make_start


def test_the_prior_of_weighted_elements_is_that_of_one():
    n = ng.Plate("n", 3, weight=[0.0, 1.0, 5.0])
    x = ng.Normal("x", 2.0, 4.0, plate=n)
    network = ng.Network(ng.Normal("y", x, 1.0, plate=n, observed=[1.0, 2.0, 3.0]))
    first, second = (network.problem_on(backend).prior({}).lam["x"] for backend in ("numpy", "jax"))
    same(first, second, "λ")
    np.testing.assert_allclose(first[0], 8.0)


def test_the_joint_optimum_is_that_of_many_sweeps():
    rng = np.random.default_rng(0)
    row, column = ng.Plate("row", 6), ng.Plate("column", 5)
    a, b = ng.Normal("a", 0.0, 0.5, plate=row), ng.Normal("b", 0.0, 0.5, plate=column)
    mean = ng.Normal("mu", 0.0, 0.1) + a + b
    network = ng.Network(ng.Normal("y", mean, 1.0, plate=(row, column), observed=rng.normal(size=(6, 5)) + 3.0))
    problem = network.problem_on("numpy")
    order = tuple(problem.blocks)
    assert problem.joint.groups
    state = problem.sweep(make_start(problem, None, 0), order).state
    solved = problem.sweep_jointly(state, order)
    for _ in range(300):
        state = problem.sweep(state, order).state
    assert solved.bound == pytest.approx(problem.bound(state), abs=1e-9)
    same({n: s[0] for n, s in solved.state.mu.items()}, {n: s[0] for n, s in state.mu.items()}, "means", 1e-6)


@pytest.mark.parametrize("at_optimum", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_an_interpreted_joint_solve_is_the_compiled_one_and_takes_as_many_gradients(scale, at_optimum):
    """What is compiled compares with the rounding at once; NumPy asks for that only where a bound on it does not decide.

    A billion standard deviations from zero the optimum is reached to rounding, and no more gradients may be spent on it.
    """
    rng = np.random.default_rng(3)
    row, column = ng.Plate("row", 6), ng.Plate("column", 5)
    a, b = ng.Normal("a", 0.0, 0.5, plate=row), ng.Normal("b", 0.0, 0.5, plate=column)
    leaf = ng.Normal("y", a + b, 3.0, plate=(row, column), observed=scale * rng.normal(size=(6, 5)))
    network = ng.Network(leaf, joint=None)
    problem, twin = network.problem_on("numpy"), network.problem_on("jax")
    state = problem.sweep(make_start(problem, None, 0), tuple(problem.blocks)).state
    if at_optimum:
        state, _ = problem.joint.solved(state)
    (ours, reads), (compiled, as_many) = problem.joint.solved(state), twin.joint.solved(state)
    assert reads == as_many == (1 if at_optimum else 3) * 60  # each gradient reads 30 children of two blocks
    for name in ("a", "b"):
        np.testing.assert_allclose(ours.mu[name][0], compiled.mu[name][0], rtol=1e-12)
        np.testing.assert_allclose(ours.lam[name][0], compiled.lam[name][0], rtol=1e-12)


# -- one sweep where no block reads another --


def test_a_network_whose_blocks_do_not_meet_is_done_after_one_sweep():
    p, n = ng.Beta("p", 1.0, 1.0), ng.Plate("n", 4)
    network = ng.Network(ng.Bernoulli("y", p, plate=n, observed=[1, 0, 1, 1]))
    fit = network.fit()
    assert len(fit.trace) == 1
    assert fit.stop.converged
    assert "one sweep is exact" in str(fit.stop)
    assert fit["p"].mean() == pytest.approx(4 / 6)
    assert len(network.fit(tol=0, max_steps=5).trace) == 5
    again = fit.continue_fit(max_steps=3)
    assert again.elbo == fit.elbo


@pytest.mark.parametrize("name", ["scalar_mixture", "pca"])
def test_the_bound_that_came_with_the_last_sweep_is_the_bound(name):
    case = CASES[name]()
    for method in (None, ng.Children(3)):
        fit = case.network.fit(method, init=case.init, max_steps=7, tol=0, backend="numpy")
        assert fit.elbo == pytest.approx(fit.problem.bound(fit.state), rel=1e-12)
