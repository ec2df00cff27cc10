"""The natural step λ ← (1 − ρ) λ + ρ λ^temp, and fused kernels that blend by themselves agree with it."""

import numpy as np
import pytest

from natgrad import threads
from natgrad.data.ratings import Ratings
from natgrad.families.natural_step import blend
from natgrad.models.factorization.rows import Numbers, Scalars, Vectors


def test_a_step_of_each_element_of_its_own() -> None:
    lam, target = (np.ones((3, 2)), np.ones((3, 2, 2))), (np.zeros((3, 2)), np.full((3, 2, 2), 5.0))
    first, second = blend(lam, target, np.array([0.0, 0.5, 1.0]), (1, 2))
    np.testing.assert_array_equal(first, np.repeat([[1.0], [0.5], [0.0]], 2, axis=1))
    np.testing.assert_array_equal(second[:, 0, 0], [1.0, 3.0, 5.0])


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_the_kernel_of_scalars_takes_natural_steps_one_factor_after_the_other(rho: float) -> None:
    rng = np.random.default_rng(0)
    ratings = _ratings(rng)
    law, numbers, size = Scalars(), Numbers(0.7, 1.9), 3
    side = law.side(ratings.sorted_by_user)
    precision, mean = rng.uniform(0.5, 4.0, (ratings.n_users, size)), rng.normal(size=(ratings.n_users, size))
    lam, mu = (precision * mean, -0.5 * precision), (mean, mean**2 + 1 / precision)
    others = rng.normal(size=(ratings.n_items, size))
    others = (others, others**2 + rng.uniform(0.1, 1.0, others.shape))
    new = law.sweep(side, lam, mu, others, numbers, rho, last=True)
    here = tuple(part.copy() for part in mu)
    for k in range(size):
        target = law.full_target(side, here, others, numbers, k)
        a, b = blend(tuple(part[:, [k]] for part in lam), target, rho)
        np.testing.assert_allclose(new.lam[0][:, [k]], a, rtol=1e-12)
        np.testing.assert_allclose(new.lam[1][:, [k]], b, rtol=1e-12)
        here[0][:, [k]] = -0.5 * a / b
        here[1][:, [k]] = (0.5 * a / b) ** 2 - 0.5 / b


@pytest.mark.parametrize("most", [-1.0, 1e300], ids=["compiled", "plain"])
@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_the_kernel_of_vectors_takes_natural_steps(rho: float, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST", most)
    rng = np.random.default_rng(1)
    ratings = _ratings(rng)
    law, numbers, size = Vectors(), Numbers(0.7, 1.9), 3
    side = law.side(ratings.sorted_by_user)
    lam, mu = _vectors(rng, ratings.n_users, size)
    _, others = _vectors(rng, ratings.n_items, size)
    new = law.sweep(side, lam, mu, others, numbers, rho, last=True)
    for found, wanted in zip(new.lam, blend(lam, law.full_target(side, mu, others, numbers, None), rho), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def _ratings(rng: np.random.Generator) -> Ratings:
    cells = rng.choice(6 * 5, 17, replace=False)
    return Ratings(cells // 5, cells % 5, rng.normal(3.0, 1.0, 17), shape=(6, 5))


def _vectors(rng: np.random.Generator, n: int, size: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    roots, mean = rng.normal(size=(n, size, size + 1)), rng.normal(size=(n, size))
    precision = roots @ np.swapaxes(roots, 1, 2) + 0.5 * np.eye(size)
    lam = ((precision @ mean[..., None])[..., 0], -0.5 * precision)
    return lam, (mean, np.linalg.inv(precision) + mean[:, :, None] * mean[:, None, :])
