"""Laws of positive numbers by quadrature, against closed forms; and tangents as blocks."""

import numpy as np
import pytest
from scipy import special

from natgrad import families as nf


@pytest.mark.parametrize("shape", [0.1, 1.0, 37.0])
def test_a_shape_that_nobody_read_is_a_gamma(shape):
    lam = nf.GammaShape().natural(shape=shape, rate=2.5, count=0.0)
    (x, log_x, _), a = nf.GammaShape().moments(lam)
    np.testing.assert_allclose(x, shape / 2.5, rtol=1e-7)
    np.testing.assert_allclose(log_x, special.digamma(shape) - np.log(2.5), rtol=1e-8)
    np.testing.assert_allclose(a, special.gammaln(shape) - shape * np.log(2.5), atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "rate", "count"), [(1.0, 1.0, 5.0), (0.1, 1.0, 1.0), (2.0, -30.0, 40.0), (1.0, 1e3, 1e4)]
)
def test_a_shape_by_a_fine_grid(shape, rate, count):
    family = nf.GammaShape()
    lam = family.natural(shape=shape, rate=rate, count=count)
    (x, _, log_gamma), a = family.moments(lam)
    t = np.linspace(np.log(x) - 60, np.log(x) + 8, 200_001)
    logs = shape * t - rate * np.exp(t) - count * special.gammaln(np.exp(t))
    weights = np.exp(logs - logs.max())
    total = weights.sum()
    np.testing.assert_allclose(a, np.log(total * (t[1] - t[0])) + logs.max(), rtol=1e-10)
    np.testing.assert_allclose(x, (weights * np.exp(t)).sum() / total, rtol=1e-9)
    np.testing.assert_allclose(log_gamma, (weights * special.gammaln(np.exp(t))).sum() / total, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("power", "rate", "inverse"), [(0.0, 1.0, 1.0), (2.5, 0.3, 2.0), (50.0, 10.0, 0.1), (-0.5, 1e-3, 0.5)]
)
def test_generalised_inverse_gaussians_have_bessel_functions(power, rate, inverse):
    family = nf.HalfNormalPrecision()
    (x, _, inverse_x), a = family.moments(family.natural(power=power, rate=rate, inverse_rate=inverse))
    omega, scale = 2 * np.sqrt(rate * inverse), np.sqrt(inverse / rate)
    kv = special.kv(power, omega)
    np.testing.assert_allclose(a, np.log(2 * scale**power * kv), atol=1e-9)
    np.testing.assert_allclose(x, scale * special.kv(power + 1, omega) / kv, rtol=1e-8)
    np.testing.assert_allclose(inverse_x, special.kv(power - 1, omega) / kv / scale, rtol=1e-8)


def test_a_logistic_bound_is_that_of_its_weight_and_touches():
    family, psi = nf.LogisticBound(), np.array([-3.0, 0.0, 1e-4, 7.0])
    for weight in (1e-6, 0.3, 1.0):
        w, value = family.expected_stats(family.natural(weight=weight, at=psi))
        np.testing.assert_allclose(
            0.5 * psi - np.log(2) - 0.5 * w * psi**2 + value, -np.log1p(np.exp(-psi)), atol=1e-12
        )
        elsewhere = 0.5 * (psi + 1.0) - np.log(2) - 0.5 * w * (psi + 1.0) ** 2 + value
        assert np.all(elsewhere <= -np.log1p(np.exp(-psi - 1.0)) + 1e-12)
        np.testing.assert_allclose(family.entropy(family.natural(weight=weight, at=psi)), 0.0, atol=1e-15)
