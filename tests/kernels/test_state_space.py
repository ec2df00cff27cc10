"""The compiled smoother is the smoother in plain NumPy, which is tested against an exact Kalman smoother."""

import numpy as np
import pytest

from natgrad import families, threads


def path(rng, plates, n_times, size):
    """λ of chains whose precisions are L Lᵀ with L block-bidiagonal."""
    own = np.tril(rng.normal(size=(*plates, n_times, size, size))) + 2.0 * np.eye(size)
    back = 0.5 * rng.normal(size=own.shape)
    diagonal = own @ np.swapaxes(own, -1, -2) + back @ np.swapaxes(back, -1, -2)
    beside = np.zeros_like(back)
    beside[..., 1:, :, :] = back[..., 1:, :, :] @ np.swapaxes(own, -1, -2)[..., :-1, :, :]
    return rng.normal(size=(*plates, n_times, size)), -0.5 * diagonal, -beside


def same_as_plain(lam, lengths):
    family, most = families.GaussianChain(lengths), threads.MOST
    try:
        threads.MOST = 1e12
        wanted, a = family.moments(lam)
        entropy = family.entropy(lam)
        threads.MOST = -1.0
        found, total = family.moments(lam)
        np.testing.assert_allclose(family.entropy(lam), entropy, rtol=1e-11)
    finally:
        threads.MOST = most
    np.testing.assert_allclose(total, a, rtol=1e-11)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("plates", "n_times", "size"), [((), 1, 1), ((), 7, 3), ((2,), 5, 2), ((2, 3), 4, 1)])
def test_the_compiled_smoother_is_its_twin(plates, n_times, size):
    lam = path(np.random.default_rng(n_times), plates, n_times, size)
    for lengths in (None, (1, n_times - 1)) if n_times > 1 else (None,):
        same_as_plain(lam, lengths)


def test_covariances_that_settle_are_those_of_the_twin():
    """Nothing but data changes along time, for a while: then the precision is another one."""
    n_times = 120
    h, diagonal, beside = path(np.random.default_rng(3), (), n_times, 2)
    diagonal[:], beside[1:] = diagonal[1] - np.eye(2), beside[1]
    diagonal[70:] *= 1.5
    same_as_plain((h, diagonal, beside), None)


def test_a_precision_that_is_not_definite_is_nan():
    h, diagonal, beside = path(np.random.default_rng(0), (2,), 5, 2)
    diagonal[0, 2] *= -1.0
    family, most = families.GaussianChain(), threads.MOST
    try:
        threads.MOST = -1.0
        _, a = family.moments((h, diagonal, beside))
    finally:
        threads.MOST = most
    assert np.isnan(a[0])
    assert np.isfinite(a[1])
