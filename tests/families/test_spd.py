"""Inverses and log-determinants against numpy.linalg, on every branch of the dispatch."""

import jax
import numpy as np
import pytest

from natgrad import families
from natgrad._jax import compiled
from natgrad.families import spd_inverse_logdet, spd_logdet
from natgrad.families._ops import matvec

# Below and above the batch threshold, a remainder of a chunk, several plates, and too large for the sweep.
SHAPES = [(3, 3), (200, 1), (129, 5), (40, 20), (0, 3)]
OTHER_SHAPES = [(1, 1), (32, 2), (10, 7, 10), (40, 16)]


@compiled
def _compiled(p: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return *spd_inverse_logdet(p), spd_logdet(p)


def _matrices(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    root = rng.normal(size=(*shape, shape[-1] + 2))
    return root @ np.swapaxes(root, -1, -2)


@pytest.mark.parametrize("shape", SHAPES + [pytest.param(s, marks=pytest.mark.slow) for s in OTHER_SHAPES])
def test_agrees_with_numpy(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    p = _matrices(rng, shape)
    with jax.enable_x64(True):
        *compiled, alone = map(np.asarray, _compiled(jax.numpy.asarray(p)))
    for inverse, logdet in (spd_inverse_logdet(p), compiled):
        # Residual, not error: its bound is known, the condition number times the rounding.
        residual = inverse @ p - np.eye(shape[-1])
        assert np.all(abs(residual) < 1e-12 * np.linalg.cond(p)[..., None, None])
        np.testing.assert_allclose(logdet, np.linalg.slogdet(p)[1], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(alone, spd_logdet(p), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [3, 100])
@pytest.mark.parametrize("bad", [-np.eye(4), np.zeros((4, 4)), np.full((4, 4), np.nan), np.diag([1.0, -1, -1, 1])])
def test_other_matrices_are_nan_and_harm_nobody(n: int, bad: np.ndarray, rng: np.random.Generator) -> None:
    p = _matrices(rng, (n, 4))
    p[1] = bad
    with jax.enable_x64(True):
        *compiled, alone = map(np.asarray, _compiled(jax.numpy.asarray(p)))
    for inverse, logdet in (spd_inverse_logdet(p), compiled):
        assert np.all(np.isnan(np.asarray(inverse)[1]))
        assert np.flatnonzero(~np.isfinite(logdet)).tolist() == [1]
    assert np.flatnonzero(np.isnan(alone)).tolist() == [1]


def test_ill_conditioned_matrices_are_still_positive_definite(rng: np.random.Generator) -> None:
    # Condition 1e12: the pivots must not lose positivity, and the log-determinant keeps about 1e-4.
    basis = np.linalg.qr(rng.normal(size=(64, 8, 8)))[0]
    p = (basis * np.logspace(-6, 6, 8)) @ np.swapaxes(basis, -1, -2)
    p = 0.5 * (p + np.swapaxes(p, -1, -2))
    with jax.enable_x64(True):
        logdet = _compiled(jax.numpy.asarray(p))[1]
    np.testing.assert_allclose(logdet, 0.0, atol=1e-2)


@pytest.mark.parametrize("n", [3, 64])
def test_derivatives(n: int, rng: np.random.Generator) -> None:
    p = _matrices(rng, (n, 3))
    with jax.enable_x64(True):
        gradient = compiled(jax.grad(lambda q: spd_inverse_logdet(q)[1].sum()))(jax.numpy.asarray(p))
        np.testing.assert_allclose(gradient, np.linalg.inv(p), rtol=1e-8)
        direction = 0.5 * (p + np.eye(3))
        along = compiled(lambda q, d: jax.jvp(lambda q: spd_inverse_logdet(q)[0], (q,), (d,))[1])
        change = along(jax.numpy.asarray(p), jax.numpy.asarray(direction))
    inverse = np.linalg.inv(p)
    np.testing.assert_allclose(change, -inverse @ direction @ inverse, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("n", "condition"), [(1, 1e14), (40, 1e6), (40, 1e11), (40, 1e14)])
def test_fitted_values_of_an_ill_conditioned_regression_keep_their_digits(n, condition, rng) -> None:
    """Λ = I + τ x xᵀ, η = τ y x: x · Λ⁻¹η = y τ|x|² / (1 + τ|x|²), however close to singular Λ is."""
    x = rng.normal(size=(n, 3))
    scaled = condition / (x**2).sum(-1)
    p = np.eye(3) + scaled[:, None, None] * x[:, :, None] * x[:, None, :]
    eta = (scaled * 5.0)[:, None] * x
    with jax.enable_x64(True):
        in_jax = compiled(families.MultivariateNormal().expected_stats)((eta, -0.5 * p))[0]
    for mean in (families.MultivariateNormal().expected_stats((eta, -0.5 * p))[0], np.asarray(in_jax)):
        np.testing.assert_allclose((x * mean).sum(-1), 5.0 * condition / (1.0 + condition), rtol=1e-7)


def test_one_matrix_for_all_vectors_is_the_same_as_one_for_each(rng):
    one, vectors = rng.normal(size=(3, 3)), rng.normal(size=(5, 4, 3))
    each = matvec(np.broadcast_to(one, (5, 4, 3, 3)), vectors)
    for shape in ((3, 3), (1, 3, 3), (1, 1, 3, 3)):
        np.testing.assert_allclose(matvec(one.reshape(shape), vectors), each, rtol=1e-12, atol=1e-14)
    assert matvec(one.reshape(1, 1, 3, 3), vectors[0, 0]).shape == (1, 1, 3)  # more plates than the vector has
    np.testing.assert_allclose(matvec(rng.normal(size=(1, 2, 3)), vectors).shape, (5, 4, 2))
