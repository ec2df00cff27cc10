"""The compiled loop of Gibbs sampling, part by part: numbers have their laws, matrices their factors, labels their order."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import gamma, kstest

from natgrad.kernels.network.gaussian import factorise
from natgrad.kernels.network.gibbs import Tables
from natgrad.kernels.network.relabel import assign
from natgrad.kernels.network.rows import add_up
from natgrad.kernels.network.variates import draw_variates


def variates(kind, shape=1.0, n=20_000, key=7):
    out = np.empty(n)
    draw_variates(np.uint64(key), kind, shape, out)
    return out


def check_variates(n):
    """Each number is the first, or the second, of a generator of its own: what is tested are generators, and their beginnings."""
    assert kstest(variates(0, n=n), "uniform").pvalue > 1e-3
    normals = variates(1, n=n)
    assert kstest(normals[::2], "norm").pvalue > 1e-3
    assert kstest(normals[1::2], "norm").pvalue > 1e-3
    assert abs(np.corrcoef(normals[:-1], normals[1:])[0, 1]) < 4 / np.sqrt(n)
    for shape in (0.05, 0.7, 1.0, 3.5, 200.0):
        logs = variates(2, shape, n)
        assert np.isfinite(logs).all()
        assert kstest(logs, lambda x, a=shape: gamma.cdf(np.exp(x), a)).pvalue > 1e-3, shape


def test_random_numbers_have_their_laws():
    check_variates(20_000)


def test_keys_chains_and_sweeps_have_numbers_of_their_own():
    np.testing.assert_array_equal(variates(0, n=50), variates(0, n=50))
    assert not np.isin(variates(0, n=50), variates(0, n=50, key=8)).any()


def held(matrix, b, rng):
    """A matrix as the kernel holds it: rows from their first entry that is not 0, then b; and half of it as a slope."""
    size = len(matrix)
    first = np.array([np.flatnonzero(matrix[i, : i + 1])[0] for i in range(size)])
    begin = np.concatenate([[0], np.cumsum(np.arange(size) + 1 - first)])
    flat = np.concatenate([*(matrix[i, first[i] : i + 1] for i in range(size)), b])
    slope = rng.normal(size=len(flat))
    return np.stack([first, begin[:-1]], 1), flat - 0.3 * slope, slope


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_factor_and_its_integral(size):
    check_factor(size)


def check_factor(size):
    """Dense matrices, and arrows: numbers that meet in the last one alone."""
    rng = np.random.default_rng(size)
    for dense in (True, False):
        a = rng.normal(size=(size, size))
        matrix = a @ a.T + np.eye(size)
        if not dense:
            matrix = np.diag(np.diag(matrix)) + size
            matrix[:-1, :-1] = np.diag(np.diag(matrix[:-1, :-1]))
            matrix[-1, -1] += size**3
        b = rng.normal(size=size)
        envelope, constant, slope = held(matrix, b, rng)
        root, half = np.empty(len(constant)), np.empty(size)
        padded = np.concatenate([np.full((3, 2), -9), envelope])  # those of another set come before it
        got = factorise(constant, slope, 0.3, padded, 3, size, root, half)
        wanted = 0.5 * b @ np.linalg.solve(matrix, b) - 0.5 * np.linalg.slogdet(matrix)[1]
        assert got == pytest.approx(wanted, rel=1e-10)
        np.testing.assert_allclose(half, np.linalg.solve(np.linalg.cholesky(matrix), b), rtol=1e-8, atol=1e-10)
    assert (
        factorise(np.array([-1.0, 0.0]), np.zeros(2), 0.0, np.zeros((1, 2), np.int64), 0, 1, np.empty(2), half)
        == -np.inf
    )


def test_huge_and_tiny_matrices_have_a_factor():
    for scale in (1e-200, 1e200):
        matrix = scale * (np.eye(6) + 0.1)
        envelope = held(matrix, np.zeros(6), np.random.default_rng(0))[0]
        flat = np.concatenate([*(matrix[i, : i + 1] for i in range(6)), np.zeros(6)])
        got = factorise(flat, np.zeros(len(flat)), 0.0, envelope, 0, 6, np.empty(len(flat)), np.empty(6))
        assert got == pytest.approx(-0.5 * np.linalg.slogdet(matrix)[1], rel=1e-12)


def check_assignment(times):
    """The cost of an assignment is the least one; costs that forbid places are far larger."""
    rng = np.random.default_rng(0)
    for _ in range(times):
        size = int(rng.integers(1, 8))
        cost = rng.normal(size=(size, size)) + 1e4 * (rng.random((size, size)) < 0.2)
        out = np.empty(size, np.int64)
        assign(cost, out)
        assert sorted(out) == list(range(size))
        assert cost[np.arange(size), out].sum() == pytest.approx(cost[linear_sum_assignment(cost)].sum(), rel=1e-12)


def test_assignments_are_the_best():
    check_assignment(200)


def test_rows_add_up():
    tables = [np.empty(0, np.int64)] * len(Tables._fields)
    tables = Tables(*tables)._replace(
        starts=np.array([0, 2, 2, 3]), coefs=np.array([2.0, -1.0, 0.5]),
        factors=np.array([[0, 0, 1], [1, 2, 2], [0, 2, 2]], np.int32),
    )  # fmt: skip
    out = np.empty(3)
    add_up(tables.starts, tables.coefs, tables.factors, np.array([1.0, 3.0, 5.0]), out)
    np.testing.assert_array_equal(out, [2 * 3 - 3 * 25, 0.0, 0.5 * 25])
