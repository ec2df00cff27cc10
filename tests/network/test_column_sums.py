"""Sums over columns that follow their turns: what they say to a column is the gradient of the polynomial at that moment."""

import numpy as np
import pytest
from networks import CASES
from random_checks import REFUSALS, Case
from random_generator import draw

import natgrad as ng
from natgrad.network.execute.addressing import FULL
from natgrad.network.execute.column_sums import ColumnSlopes
from natgrad.network.start.initial import make_start


def check_turns(problem, state):
    """Every column with others after its turn; how many sums there were."""
    n_sums, rng = 0, np.random.default_rng(0)
    for name, block in problem.blocks.items():
        if block.column_axis is None or block.n_columns == 1:
            continue
        stats = tuple(np.array(part) for part in state.mu[name])
        here, known = {**state.mu, name: stats}, problem.known_arrays
        for piece in problem.program.meeting(block):
            slopes = ColumnSlopes(problem.backend, piece, name, block.column_axis)
            n_sums += len(slopes.meetings)
            slopes.begin(here, known)
            for number in [*range(block.n_columns), 0]:
                found = slopes.at(number)
                truth = problem.backend.gradient(piece, name, here, known, FULL, (block.column_axis, number))
                for one, other in zip(found, truth, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * (1 + np.abs(other).max()))
                place = (slice(None),) * block.column_axis + (number,)
                change = tuple(rng.normal(size=part[place].shape) for part in stats)
                for part, by in zip(stats, change, strict=True):
                    part[place] += by
                slopes.follow(number, change)
    return n_sums


@pytest.mark.parametrize("name", CASES)
def test_sums_follow_the_turns(name):
    case = CASES[name]()
    problem = case.network.problem_on("numpy")
    check_turns(problem, make_start(problem, case.init, 0))


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(100, 700), marks=pytest.mark.slow)], ids=str)
def test_sums_of_random_networks_follow_the_turns(seeds):
    n_sums = 0
    for seed in seeds:
        try:
            case = Case(seed, draw(seed))
        except REFUSALS:
            continue
        n_sums += check_turns(case.network.problem_on("numpy"), case.state)
    assert n_sums > 0


def ragged_frequencies():
    rng = np.random.default_rng(1)
    doc, token = ng.Plate("doc", 5), ng.Plate("token", 4)
    z = ng.Categorical("z", [0.2, 0.3, 0.5], plate=(doc, token))
    eta = ng.MultivariateNormal("eta", np.zeros(3), np.eye(3))
    weights = rng.gamma(1.0, size=(5, 4)) * (rng.random((5, 4)) < 0.7)
    mean = ng.dot(ng.frequencies(z, token, weights), eta)
    return ng.Network(ng.Normal("y", mean, 2.0, plate=doc, observed=rng.normal(size=5)))


def crossed_factors():
    """A dot of scalars, each read through indices: the other side of the dot is in the sum."""
    rng = np.random.default_rng(2)
    user, item, rating, factor = (
        ng.Plate(name, n) for name, n in (("user", 3), ("item", 4), ("rating", 20), ("factor", 3))
    )
    u = ng.Normal("u", 0.0, 1.0, plate=(user, factor))
    v = ng.Normal("v", 0.0, 1.0, plate=(item, factor))
    who, what = rating.index(rng.integers(0, 3, 20)), rating.index(rng.integers(0, 4, 20))
    return ng.Network(ng.Normal("r", ng.dot(u[who], v[what]), 1.0, plate=rating, observed=rng.normal(size=20)))


@pytest.mark.parametrize("network", [ragged_frequencies, crossed_factors])
def test_networks_whose_columns_meet_have_sums(network):
    problem = network().problem_on("numpy")
    assert check_turns(problem, make_start(problem, {}, 0)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("network", [ragged_frequencies, crossed_factors])
def test_a_sweep_with_sums_is_that_of_the_compiler(network):
    first, second = (network().problem_on(backend) for backend in ("numpy", "jax"))
    order = tuple(first.blocks)
    state = make_start(first, {}, 0)
    ours, compiled = (problem.sweep(state, order) for problem in (first, second))
    assert ours.bound == pytest.approx(float(compiled.bound), rel=1e-10)
    for name in order:
        for one, other in zip(ours.state.lam[name], compiled.state.lam[name], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_categories_that_take_turns_alone_are_no_optimum_after_a_sweep():
    """Nothing is extrapolated here, and yet the words of a document read one another."""
    doc, token = ng.Plate("doc", 6), ng.Plate("token", 5)
    z = ng.Categorical("z", [0.5, 0.3, 0.2], plate=(doc, token))
    mean = ng.dot(ng.frequencies(z, token), [-2.0, 0.0, 2.0])
    fit = ng.Network(ng.Normal("y", mean, 50.0, plate=doc, observed=np.linspace(-2, 2, 6))).fit(tol=1e-12)
    more = fit.continue_fit(max_steps=50)
    assert len(fit.trace) > 1
    assert more.elbo == pytest.approx(fit.elbo, abs=1e-9)
