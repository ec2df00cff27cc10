"""Families of auxiliary variables: closed forms, quadrature, and the far tails where the textbook formulas lose their digits."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from natgrad import families as nf
from natgrad.families._truncated import sides_of


def truncated(mean, precision, lower, upper):
    low, high, sides = sides_of(np.asarray(lower, float), np.asarray(upper, float))
    return nf.TruncatedNormal().natural(mean=mean, precision=precision, lower=low, upper=high, sides=sides)


@pytest.mark.parametrize("b", [0.0, 0.4, 1.0, 7.0])
def test_polya_gamma_is_the_laplace_transform(b):
    c = np.array([0.0, 1e-9, 1e-3, 0.0999, 0.1, 0.1001, 1.0, 30.0, 1e4])
    mu, a = nf.PolyaGamma().moments(nf.PolyaGamma().natural(trials=np.full(9, b), tilt=c))
    # E[exp(−½ c² ω)] = cosh(c/2)^(−b) = (2 σ(c) e^(−c/2))^b.
    np.testing.assert_allclose(a, b * (np.log(2.0) + special.log_expit(c) - 0.5 * c), rtol=1e-9, atol=1e-13)
    with np.errstate(invalid="ignore"):
        exact = np.where(c > 0, b * np.tanh(c / 2) / (2 * c), b / 4)
    np.testing.assert_allclose(mu[0], exact, rtol=1e-9)
    assert not np.any(mu[1])


def test_laplace_weights_mix_to_a_laplace_law():
    """∫ N(r | 0, 1/u) p(u) du is ½ exp(−|r|): A is what the mixture leaves."""
    r = np.array([0.3, 2.0])

    def joint(u, x):
        prior = 0.5 * u**-2 * np.exp(-0.5 / u)
        return stats.norm.pdf(x, 0.0, u**-0.5) * prior

    found = [integrate.quad(joint, 0, np.inf, args=(x,))[0] for x in r]
    a = nf.LaplaceWeight().log_normalizer(nf.LaplaceWeight().natural(distance=r))
    np.testing.assert_allclose(np.log(found), a - np.log(2.0), rtol=1e-8)


@pytest.mark.parametrize(
    ("lower", "upper"), [(0.0, np.inf), (-np.inf, -1.0), (-0.5, 2.0), (-np.inf, np.inf), (6.0, np.inf), (5.0, 5.2)]
)
def test_truncated_normal_is_that_of_scipy(lower, upper):
    mean, precision = np.array([0.3, -2.0]), np.array([1.0, 4.0])
    sd = precision**-0.5
    lam = truncated(mean, precision, np.full(2, lower), np.full(2, upper))
    law = stats.truncnorm((lower - mean) / sd, (upper - mean) / sd, mean, sd)
    family = nf.TruncatedNormal()
    np.testing.assert_allclose(family.mean(lam), law.mean(), rtol=1e-6)
    np.testing.assert_allclose(family.interval(lam, 0.8)[0], law.ppf(0.1), rtol=1e-6)
    x = family.mean(lam)
    phi = family.stats_of(x)
    np.testing.assert_allclose(family.inner(lam, phi) - family.log_normalizer(lam), law.logpdf(x), rtol=1e-6, atol=1e-9)


def test_truncated_normal_in_the_far_tail():
    """Mills' ratio: E[x] − l = 1/l − 2/l³ + 10/l⁵ − …, and the variance 1/l² − 6/l⁴ + …, where Φ(−l) underflows."""
    lower = np.array([50.0, 1e3, 1e6])
    lam = truncated(np.zeros(3), np.ones(3), lower, np.full(3, np.inf))
    mean = nf.TruncatedNormal().mean(lam)
    np.testing.assert_allclose((mean - lower)[:2], (1 / lower - 2 / lower**3 + 10 / lower**5)[:2], rtol=1e-6)
    assert np.all(mean >= lower)
    draws = nf.TruncatedNormal().sample(lam, np.random.default_rng(0), 100)
    assert np.all(draws >= lower)
    narrow = truncated(np.zeros(1), np.ones(1), np.array([3.0]), np.array([3.0 + 1e-9]))
    np.testing.assert_allclose(nf.TruncatedNormal().mean(narrow), 3.0 + 5e-10, rtol=1e-15)


def test_a_known_number_is_a_point_mass():
    lam = truncated(np.array([0.3]), np.array([2.0]), np.array([1.7]), np.array([1.7]))
    mu, a = nf.TruncatedNormal().moments(lam)
    np.testing.assert_allclose(mu[0], 1.7)
    np.testing.assert_allclose(mu[1], 1.7**2)
    np.testing.assert_allclose(a - nf.TruncatedNormal().inner(lam, mu), 0.0, atol=1e-15)


def test_truncated_exponential_by_quadrature():
    rate, low, high = 0.7, 0.4, 1.9
    z = integrate.quad(lambda x: np.exp(-rate * x), low, high)[0]
    mean = integrate.quad(lambda x: x * np.exp(-rate * x), low, high)[0] / z
    lam = nf.TruncatedExponential().natural(rate=rate, lower=low, upper=high, sides=3.0)
    (x, *_), a = nf.TruncatedExponential().moments(lam)
    np.testing.assert_allclose([x, a], [mean, np.log(z)], rtol=1e-10)
    small = nf.TruncatedExponential().natural(rate=np.array([0.0999, 0.1001]), lower=0.0, upper=1.0, sides=3.0)
    (x, *_), a = nf.TruncatedExponential().moments(small)
    np.testing.assert_allclose(np.diff(x), -2e-4 / 12, rtol=1e-2)  # the series and the quotient meet


def test_shares_by_enumeration():
    lam = nf.Shares().natural(probs=np.array([0.2, 0.5, 0.3]), count=4.0)
    splits = [(i, j, 4 - i - j) for i in range(5) for j in range(5 - i)]
    logs = [np.dot(lam[0], s) - special.gammaln(np.add(s, 1)).sum() for s in splits]
    np.testing.assert_allclose(special.logsumexp(logs), nf.Shares().log_normalizer(lam))
    np.testing.assert_allclose(np.exp(logs - special.logsumexp(logs)) @ np.array(splits), nf.Shares().mean(lam))
