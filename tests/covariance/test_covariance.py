"""Covariance functions: their definitions pair by pair, sums and products, positive matrices, data in and out, mistakes."""

import jax
import numpy as np
import pytest

from natgrad._jax import compiled
from natgrad.covariance import (
    RBF,
    Categories,
    Constant,
    Function,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    White,
    covariance_from_data,
    direct_of,
)

ELL = np.array([0.7, 2.0])


def scaled(x, z):
    return np.sqrt((((x - z) / ELL) ** 2).sum())


DEFINITIONS = [
    (RBF(1.5, ELL), lambda x, z: 1.5 * np.exp(-0.5 * scaled(x, z) ** 2)),
    (Matern12(1.5, ELL), lambda x, z: 1.5 * np.exp(-scaled(x, z))),
    (Matern32(1.5, ELL), lambda x, z: 1.5 * (1 + 3**0.5 * scaled(x, z)) * np.exp(-(3**0.5) * scaled(x, z))),
    (
        Matern52(1.5, ELL),
        lambda x, z: 1.5 * (1 + 5**0.5 * scaled(x, z) + 5 / 3 * scaled(x, z) ** 2) * np.exp(-(5**0.5) * scaled(x, z)),
    ),
    (RationalQuadratic(1.5, ELL, 0.8), lambda x, z: 1.5 * (1 + scaled(x, z) ** 2 / 1.6) ** -0.8),
    (
        Periodic(1.5, ELL, 3.0),
        lambda x, z: 1.5 * np.exp(-0.5 * (np.sin(np.pi * (x - z) / 3.0) ** 2 / ELL**2).sum()),
    ),
    (Linear(ELL), lambda x, z: (ELL * x * z).sum()),
    (Categories(1.5, ELL), lambda x, z: 1.5 * np.exp(-((np.abs(x - z) > 1e-9) / ELL).sum())),
    (Constant(2.0), lambda x, z: 2.0),
    (RBF(active=[1]), lambda x, z: np.exp(-0.5 * (x[1] - z[1]) ** 2)),
    (Linear(2.0) * RBF() + 0.3, lambda x, z: 2.0 * (x * z).sum() * np.exp(-0.5 * ((x - z) ** 2).sum()) + 0.3),
]


@pytest.mark.parametrize(("kernel", "definition"), DEFINITIONS, ids=lambda v: repr(v) if not callable(v) else "")
def test_matrix_is_the_definition_pair_by_pair(kernel, definition, rng):
    x, z = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    wanted = np.array([[definition(a, b) for b in z] for a in x])
    np.testing.assert_allclose(kernel(x, z), wanted, rtol=1e-12, atol=1e-14)
    square = kernel(x)
    # √ of a distance that is rounding is 1e-8, which Matérn 1/2 shows; on the diagonal distances are exactly zero.
    np.testing.assert_allclose(square, kernel(x, x), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.diag(square), kernel.diagonal(kernel.theta, x), rtol=1e-13)
    with jax.enable_x64(True):
        program = compiled(lambda t, x, z: (kernel.matrix(t, x), kernel.matrix(t, x, z), kernel.diagonal(t, x)))
        for one, two in zip(program(kernel.theta, x, z), (square, wanted, np.diag(square)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(square).min() > -1e-12 * np.abs(square).max()
    assert covariance_from_data(kernel.to_data()) == kernel


CLOSED = [
    RBF(1.5, ELL),
    Matern12(1.5, 0.7, active=[1]) + 0.4 * RBF(active=[0]) + Linear(ELL) + White(0.2),
    RBF(1.5, 0.6, active=[0]) * Matern32(0.8, 0.9, active=[1]) * (Linear(0.7, active=[1]) + 0.5) + Matern52(0.3),
    Categories(0.8, [0.9], active=[0]) * RBF(active=[1]) + Categories(0.5, 1.3, active=[0]) + RBF(0.2, active=[1]),
]


# Alone; in the sums and products above they are in every run.
ALONE = [RBF(1.5, 0.9), Matern12(1.5, ELL), Matern32(1.5, ELL), Matern52(1.5, ELL)]


@pytest.mark.parametrize(
    "kernel", [*CLOSED, *(pytest.param(kernel, marks=pytest.mark.slow) for kernel in ALONE)], ids=repr
)
def test_closed_forms_are_their_twins_in_jax(kernel, rng):
    x, z = rng.normal(size=(7, 2)), rng.normal(size=(4, 2))
    x[:3, 0] = z[:3, 0]  # the same category
    found = direct_of(kernel).evaluate(kernel.theta, z, x)
    square = rng.normal(size=(4, 4))
    slopes = square + square.T, rng.normal(size=(7, 4)), rng.normal(size=7)
    mine = direct_of(kernel).pulled(found, *slopes)

    @compiled  # kept on disk: compiling is nearly all of what this test takes
    def twin(theta, z, x, slopes):
        def matrices(theta, z):
            return kernel.matrix(theta, z), kernel.matrix(theta, x, z), kernel.diagonal(theta, x)

        values, back = jax.vjp(matrices, theta, z)
        return values, back(slopes)

    with jax.enable_x64(True):
        theirs, pulled = twin(kernel.theta, z, x, slopes)
    for one, two in zip(direct_of(kernel).rows(kernel.theta, z, x), found[1:3], strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(found[:3], theirs, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
    for one, two in zip(jax.tree.leaves(mine), jax.tree.leaves(pulled), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def test_what_has_no_closed_form_is_left_to_jax():
    for kernel in (Periodic(), RationalQuadratic(), RBF() + Periodic(), RBF() * (Linear() + RationalQuadratic())):
        assert direct_of(kernel) is None


def test_white_noise_is_shared_by_no_two_points(rng):
    x = rng.normal(size=(3, 2))
    np.testing.assert_array_equal(White(0.5)(x), 0.5 * np.eye(3))
    np.testing.assert_array_equal(White(0.5)(x, x), np.zeros((3, 3)))


def test_categories_have_no_order_and_are_numbers_to_nobody():
    k = Categories(2.0, [0.5, 1.0], active=[0, 2]) * RBF(active=[1])
    x = np.array([[0.0, 0.0, 7.0], [1.0, 0.0, 7.0], [9.0, 0.0, 7.0], [9.0, 0.0, 3.0]])
    np.testing.assert_allclose(k(x)[0], 2.0 * np.exp([0.0, -2.0, -2.0, -3.0]))
    again = np.random.default_rng(0).permutation(12)  # other numbers for the same categories
    renamed = np.column_stack([again[x[:, 0].astype(int)], x[:, 1], again[x[:, 2].astype(int)]])
    np.testing.assert_array_equal(k(renamed), k(x))
    for wrong in (k + RBF(), Categories(active=[0]) + Matern32(active=[1, 0])):
        with pytest.raises(ValueError, match=r"Categories reads column 0 as categories and (RBF|Matern32) as numbers"):
            wrong(x)


def test_theta_moves_every_parameter():
    kernel = 2.0 * RBF(lengthscale=[1.0, 3.0]) + White(0.1)
    assert kernel.names == ("Constant.variance", "RBF.variance", "RBF.lengthscale", "White.variance")
    moved = kernel.at([part + np.log(2.0) for part in kernel.theta])
    assert repr(moved) == "Constant(variance=4) * RBF(variance=2, lengthscale=[2, 6]) + White(variance=0.2)"
    assert kernel.structure == moved.structure
    assert kernel != moved
    assert (RBF() + RBF()).names == ("RBF.variance:1", "RBF.lengthscale:1", "RBF.variance:2", "RBF.lengthscale:2")


def test_a_sum_in_a_product_keeps_its_brackets():
    assert repr((RBF() + Linear()) * Constant(2.0)).startswith("(RBF(")


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: RBF(lengthscale=-1.0), "RBF: lengthscale must be a positive number"),
        (lambda: RBF(lengthscale=[[1.0]]), "positive number"),
        (lambda: RBF(active=[0, 0]), "active must be different columns"),
        (lambda: RBF(lengthscale=[1.0, 2.0])(np.zeros((3, 3))), "2 values for 3 columns"),
        (lambda: RBF(active=[5])(np.zeros((3, 3))), "column 5, and the inputs have 3"),
        (lambda: RBF()(np.array([[np.nan]])), "X must be finite"),
        (lambda: covariance_from_data({"type": "os"}), "no covariance function of type 'os'"),
        (lambda: Function(lambda x, z: x)(np.zeros((2, 3))), "expected"),
        (lambda: Function(lambda x, z: x @ z.T).to_data(), "code of its own"),
    ],
)
def test_mistakes_are_explained(mistake, words):
    with pytest.raises(ValueError, match=words):
        mistake()


def test_only_numbers_and_functions_combine():
    with pytest.raises(TypeError, match="another one or with a number"):
        RBF() + "x"
    with pytest.raises(TypeError, match="written in JAX"):
        Function(3)


def test_the_users_process_keeps_its_precision():
    before = jax.config.jax_enable_x64
    RBF()(np.zeros((2, 1)))
    assert jax.config.jax_enable_x64 == before
