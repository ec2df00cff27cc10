"""The natural step λ ← (1 − ρ) λ + ρ λ^temp, and fused kernels that blend by themselves agree with it."""

import numpy as np

from natgrad.families.natural_step import blend


def test_a_step_of_each_element_of_its_own() -> None:
    lam, target = (np.ones((3, 2)), np.ones((3, 2, 2))), (np.zeros((3, 2)), np.full((3, 2, 2), 5.0))
    first, second = blend(lam, target, np.array([0.0, 0.5, 1.0]), (1, 2))
    np.testing.assert_array_equal(first, np.repeat([[1.0], [0.5], [0.0]], 2, axis=1))
    np.testing.assert_array_equal(second[:, 0, 0], [1.0, 3.0, 5.0])
