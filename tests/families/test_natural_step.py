"""The natural step λ ← (1 − ρ) λ + ρ λ^temp, and fused kernels that blend by themselves agree with it."""

import numpy as np
import pytest

from natgrad import threads
from natgrad.data.ratings import Ratings
from natgrad.families.natural_step import blend
from natgrad.models.factorization.sides import SideRatings


def test_a_step_of_each_element_of_its_own() -> None:
    lam, target = (np.ones((3, 2)), np.ones((3, 2, 2))), (np.zeros((3, 2)), np.full((3, 2, 2), 5.0))
    first, second = blend(lam, target, np.array([0.0, 0.5, 1.0]), (1, 2))
    np.testing.assert_array_equal(first, np.repeat([[1.0], [0.5], [0.0]], 2, axis=1))
    np.testing.assert_array_equal(second[:, 0, 0], [1.0, 3.0, 5.0])


@pytest.mark.parametrize("most", [-1.0, 1e300], ids=["compiled", "plain"])
@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_the_kernel_of_vectors_takes_natural_steps(rho: float, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST", most)
    rng = np.random.default_rng(1)
    ratings = _ratings(rng)
    (alpha, tau), size = (0.7, 1.9), 3
    side = SideRatings(ratings.sorted_by_user, biased=False)
    lam, _ = _vectors(rng, ratings.n_users, size)
    _, others = _vectors(rng, ratings.n_items, size)
    ones = np.ones(ratings.n_items), np.ones(ratings.n_users)
    new = side.sweep(others, *ones, np.full(size, alpha), np.zeros((1, size)), tau, rho, lam)
    target = np.zeros((ratings.n_users, size)), np.tile(-0.5 * alpha * np.eye(size), (ratings.n_users, 1, 1))
    side.add_targets(others, ones[0], np.full(ratings.n_users, tau), target)
    for found, wanted in zip(new.lam, blend(lam, target, rho), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def _ratings(rng: np.random.Generator) -> Ratings:
    cells = rng.choice(6 * 5, 17, replace=False)
    return Ratings(cells // 5, cells % 5, rng.normal(3.0, 1.0, 17), shape=(6, 5))


def _vectors(rng: np.random.Generator, n: int, size: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    roots, mean = rng.normal(size=(n, size, size + 1)), rng.normal(size=(n, size))
    precision = roots @ np.swapaxes(roots, 1, 2) + 0.5 * np.eye(size)
    lam = ((precision @ mean[..., None])[..., 0], -0.5 * precision)
    return lam, (mean, np.linalg.inv(precision) + mean[:, :, None] * mean[:, None, :])
