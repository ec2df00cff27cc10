"""Derivatives of targets that are written out equal those of the program, for every node and structure of the capabilities."""

import numpy as np
import pytest
from capability_cases import HIDDEN, LEAVES
from capability_structures import STRUCTURES

import natgrad as ng
from natgrad.network.execute.tangent import Tangent
from natgrad.network.results.response import linearised
from natgrad.posterior.response.operator import Operator

CASES = {f"leaf {name}": make for name, make in LEAVES.items()} | {
    f"hidden {name}": make for name, make in HIDDEN.items()
}
CASES |= STRUCTURES


@pytest.mark.parametrize(
    "name", [n if i % 3 == 0 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(CASES)]
)
def test_what_is_written_out_is_the_derivative(name):
    """One direction, and all of them at once, as a column each; random moments need not be those of any q."""
    made = CASES[name]()
    network = ng.Network(made)
    fit = network.fit(max_steps=2, tol=0, seed=0, verbose=False, backend="numpy")
    problem = fit.problem
    written, plain = Tangent(problem), Tangent(problem)
    plain._is_written = False
    if not written._is_written:
        pytest.skip("weights: nothing is written out")
    rng = np.random.default_rng(0)
    mu = {n: problem.moments(block, fit.state.lam[n]) for n, block in problem.blocks.items()}
    mu = {n: tuple(np.asarray(part, float) for part in stats) for n, stats in mu.items()}
    along = [
        {n: problem.blocks[n].family.project(tuple(rng.normal(size=p.shape) for p in stats)) for n, stats in mu.items()}
        for _ in range(3)
    ]
    wanted = [plain.targets(mu, direction) for direction in along]
    together = written.all_targets(3)
    stacked = {n: tuple(np.stack(parts) for parts in zip(*(d[n] for d in along), strict=True)) for n in mu}
    found = together(mu, stacked)
    for n in mu:
        for stat, part in enumerate(wanted[0][n]):
            size = max(1.0, float(np.abs(part).max()))  # sums of the same products in another order
            np.testing.assert_allclose(written.targets(mu, along[0])[n][stat], part, atol=1e-11 * size)
            for i in range(3):
                np.testing.assert_allclose(found[n][stat][i], wanted[i][n][stat], atol=1e-11 * max(1.0, size))


def test_matrices_are_those_of_products():
    """J and V of an operator, made in one pass, have the products of unit vectors as their columns."""
    for make in (HIDDEN["Gamma"], STRUCTURES[next(iter(STRUCTURES))]):
        made = make()
        network = ng.Network(made)
        fit = network.fit(max_steps=3, tol=0, seed=0, verbose=False, backend="numpy")
        at = linearised(fit.problem, fit.state, tuple(fit.problem.blocks))
        if at.at_once is None:
            continue
        one, other = Operator(at), Operator(at._replace(at_once=None))
        eye = np.eye(one.size)
        np.testing.assert_allclose(
            one.jacobian, np.stack([other.curvature(row) for row in eye], 1), rtol=1e-9, atol=1e-9
        )
        for name, place in one.places.items():
            wide = np.stack([other.fisher(row) for row in eye], 1)[place, place]
            np.testing.assert_allclose(one.fisher_matrix(name), wide, rtol=1e-10, atol=1e-12)
