"""Derivatives of targets that are written out equal those of the program, for every node and structure of the capabilities."""

import numpy as np
import pytest
from promises.nodes import HIDDEN, LEAVES
from promises.structures import STRUCTURES

import natgrad as ng
from natgrad.network.execute import tangent as second_derivatives
from natgrad.network.execute.tangent import Tangent
from natgrad.network.results.fit import linearised
from natgrad.posterior.response.operator import Operator

CASES = {f"leaf {name}": make for name, make in LEAVES.items()} | {
    f"hidden {name}": make for name, make in HIDDEN.items()
}
CASES |= STRUCTURES


@pytest.mark.parametrize(
    "name", [n if i % 3 == 0 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(CASES)]
)
def test_the_matrix_is_that_of_products(name):
    """H times a direction is the derivative of the targets; random moments need not be those of any q."""
    fit = ng.Network(CASES[name]()).fit(max_steps=2, tol=0, seed=0, verbose=False, backend="numpy")
    problem, tangent = fit.problem, Tangent(fit.problem)
    if not tangent.has_matrix:
        assert problem.plan.weights
        return
    rng = np.random.default_rng(0)
    mu = {
        n: tuple(np.asarray(part, float) for part in problem.moments(block, fit.state.lam[n]))
        for n, block in problem.blocks.items()
    }
    at = linearised(problem, fit.state, tuple(problem.blocks))
    operator = Operator(at)
    for _ in range(2):
        direction = {
            n: problem.blocks[n].family.project(tuple(rng.normal(size=p.shape) for p in stats))
            for n, stats in mu.items()
        }
        wanted = operator._centred(tangent.targets(mu, direction))
        vector = operator.pack(direction)
        size = max(1.0, float(np.abs(wanted).max()))  # sums of the same products in another order
        np.testing.assert_allclose(operator.curvature(vector), wanted, atol=1e-11 * size)
        np.testing.assert_allclose(operator.jacobian @ vector, wanted, atol=1e-11 * size)


def test_a_sparse_matrix_is_the_dense_one(monkeypatch):
    for name in list(CASES)[::7]:
        fit = ng.Network(CASES[name]()).fit(max_steps=2, tol=0, seed=0, verbose=False, backend="numpy")
        tangent = Tangent(fit.problem)
        if tangent.has_matrix:
            mu = {n: fit.problem.moments(b, fit.state.lam[n]) for n, b in fit.problem.blocks.items()}
            dense = tangent.matrix(mu)
            monkeypatch.setattr(second_derivatives, "DENSE", 0)
            sparse = tangent.matrix(mu)
            monkeypatch.undo()
            np.testing.assert_allclose(sparse.toarray(), dense, rtol=1e-12, atol=1e-12, err_msg=name)
            vector = np.random.default_rng(0).normal(size=len(dense))
            np.testing.assert_allclose(sparse @ vector, dense @ vector, rtol=1e-9, atol=1e-9 * np.abs(dense).max())


def test_matrices_are_those_of_products():
    """J and V of an operator, made in one pass, have the products of unit vectors as their columns."""
    for make in (HIDDEN["Gamma"], STRUCTURES[next(iter(STRUCTURES))]):
        made = make()
        network = ng.Network(made)
        fit = network.fit(max_steps=3, tol=0, seed=0, verbose=False, backend="numpy")
        at = linearised(fit.problem, fit.state, tuple(fit.problem.blocks))
        if at.matrix is None:
            continue
        one, other = Operator(at), Operator(at._replace(matrix=None))
        eye = np.eye(one.size)
        np.testing.assert_allclose(
            one.jacobian, np.stack([other.curvature(row) for row in eye], 1), rtol=1e-9, atol=1e-9
        )
        for name, place in one.places.items():
            wide = np.stack([other.fisher(row) for row in eye], 1)[place, place]
            np.testing.assert_allclose(one.fisher_matrix(name), wide, rtol=1e-10, atol=1e-12)
