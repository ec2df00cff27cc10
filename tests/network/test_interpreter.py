"""What the interpreter writes out is what the program says: sweeps, priors, targets and joint solves, nothing compiled."""

from itertools import product

import numpy as np
import pytest
from networks import CASES
from random_checks import REFUSALS, Case
from random_generator import draw
from trees import same

import natgrad as ng
from natgrad.network.execute.compiled_sweep import one_sweep
from natgrad.network.execute.numpy_contraction import product_of
from natgrad.network.start.initial import make_start


def check_written(problem, state, order):
    """A sweep against the function that JAX compiles, here run as it is; priors and targets against the program."""
    found = problem.sweep(state, order)
    function = problem.compiled(("sweep", order, True), lambda: one_sweep(problem, order, True))
    lam, mu, numbers = function(problem.repeated.once(state.lam, order), state.mu, 1.0)
    same(found.state.lam, problem.repeated.for_all(lam, order), "λ")
    same(found.state.mu, mu, "μ")
    same(found.bound, numbers[0], "the bound")
    for place, name in enumerate(order):
        assert found.info[name].valid == bool(numbers[1 + 2 * place])
        np.testing.assert_allclose(found.info[name].relative_change, numbers[2 + 2 * place], rtol=1e-6, atol=1e-9)
    known = problem.known_arrays
    for name, block in problem.blocks.items():
        same(problem.target(block, state), problem.program.target(block, state.mu, known), f"target of {name!r}")
        own = problem.program.target(block, state.mu, known, (name,))
        same(problem.target(block, state, (name,)), own, f"prior of {name!r}")
    return found.state


@pytest.mark.parametrize("name", CASES)
def test_a_sweep_is_what_the_program_says(name):
    case = CASES[name]()
    problem = case.network.problem_on("numpy")
    order = tuple(case.order or problem.blocks)
    state = make_start(problem, case.init, 0)
    for turn in (order, order, order[::-1]):
        state = check_written(problem, state, turn)


@pytest.mark.parametrize(
    "seeds",
    [range(40), *(pytest.param(range(s, s + 200), marks=pytest.mark.slow) for s in range(100, 1100, 200))],
    ids=str,
)
def test_sweeps_of_random_networks_are_what_the_program_says(seeds):
    checked = 0
    for seed in seeds:
        try:
            case = Case(seed, draw(seed))
        except REFUSALS:
            continue
        check_written(case.network.problem_on("numpy"), case.state, case.order)
        checked += 1
    assert checked > len(seeds) // 2


def test_the_prior_of_weighted_elements_is_that_of_one():
    n = ng.Plate("n", 3, weight=[0.0, 1.0, 5.0])
    x = ng.Normal("x", 2.0, 4.0, plate=n)
    network = ng.Network(ng.Normal("y", x, 1.0, plate=n, observed=[1.0, 2.0, 3.0]))
    first, second = (network.problem_on(backend).prior({}).lam["x"] for backend in ("numpy", "jax"))
    same(first, second, "λ")
    np.testing.assert_allclose(first[0], 8.0)


def test_products_of_two_arrays_are_those_of_einsum():
    """Every way to share, sum and order up to three labels."""
    rng, sizes = np.random.default_rng(0), {"i": 2, "j": 3, "k": 4}
    names = ["", "i", "j", "ij", "ji", "jk", "ik", "ijk", "kij"]
    for a, b in product(names, names):
        first, second = (np.asarray(rng.normal(size=[sizes[x] for x in labels])) for labels in (a, b))
        together = sorted(set(a + b))
        for out in {"", *together, "".join(together), "".join(together[::-1]), "".join(x for x in together if x in b)}:
            function = product_of(tuple(out), [tuple(a), tuple(b)], [first.shape, second.shape])
            wanted = np.einsum(f"{a},{b}->{out}", first, second)
            np.testing.assert_allclose(
                function(first, second), wanted, rtol=1e-12, atol=1e-12, err_msg=f"{a},{b}->{out}"
            )


def test_one_array_is_summed_and_turned():
    array = np.arange(24.0).reshape(2, 3, 4)
    for out in ("", "i", "k", "ki", "jki", "ij"):
        function = product_of(tuple(out), [("i", "j", "k")], [array.shape])
        np.testing.assert_allclose(function(array), np.einsum(f"ijk->{out}", array))
    assert product_of(("i",), [("i",)], [(3,)]) is None
    diagonal = product_of(("i",), [("i", "i")], [(3, 3)])
    np.testing.assert_allclose(diagonal(np.arange(9.0).reshape(3, 3)), [0.0, 4.0, 8.0])


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
