"""Agreement with SciPy and with textbook formulas: densities, entropies, divergences, intervals."""

from typing import Any

import numpy as np
import pytest
import scipy.stats as ss

from natgrad import families as nf

RATE = np.array([[2.0, 0.5], [0.5, 1.0]])
MEAN = np.array([1.0, -2.0])
SCIPY: list[tuple[nf.Family, dict[str, Any], Any, Any]] = [
    (nf.Normal(), {"mean": 1.5, "precision": 4.0}, ss.norm(1.5, 0.5), [0.3, 2.0, -4.0]),
    (
        nf.MultivariateNormal(),
        {"mean": MEAN, "precision": RATE},
        ss.multivariate_normal(MEAN, np.linalg.inv(RATE)),
        [[0.0, 0.0], [1.0, -3.0]],
    ),
    (nf.Gamma(), {"shape": 0.7, "rate": 3.0}, ss.gamma(0.7, scale=1 / 3), [1e-3, 0.4, 5.0]),
    (
        nf.Wishart(),
        {"dof": 3.5, "rate": RATE},
        ss.wishart(3.5, np.linalg.inv(RATE)),
        [[[1.0, 0.2], [0.2, 3.0]], [[0.5, 0.0], [0.0, 0.1]]],
    ),
    (
        nf.Dirichlet(),
        {"concentration": [0.5, 2.0, 4.0]},
        ss.dirichlet([0.5, 2.0, 4.0]),
        [[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]],
    ),
    (nf.Beta(), {"a": 0.5, "b": 3.0}, ss.beta(0.5, 3.0), [0.01, 0.5, 0.99]),
    (nf.Bernoulli(), {"prob": 0.3}, ss.bernoulli(0.3), [0, 1]),
    (nf.Poisson(), {"rate": 4.5}, ss.poisson(4.5), [0, 3, 20]),
]
scipy_cases = pytest.mark.parametrize(
    ("family", "usual", "frozen", "values"), SCIPY, ids=[case[0].name for case in SCIPY]
)


@scipy_cases
def test_density_is_that_of_scipy(family: nf.Family, usual: dict[str, Any], frozen: Any, values: Any) -> None:
    lam = family.natural(**usual)
    x = np.asarray(values)
    log_q = family.inner(lam, family.stats_of(x)) - family.log_normalizer(lam)
    if isinstance(family, nf.Poisson):
        log_q = log_q - np.log([float(np.prod(np.arange(1, k + 1))) for k in x])
    is_discrete = isinstance(family, nf.Bernoulli | nf.Poisson)
    log_density = frozen.logpmf if is_discrete else frozen.logpdf
    # SciPy's Wishart and Dirichlet want their batch axis last.
    by_row = family.event_ndim > 0
    expected = [float(np.squeeze(log_density(v))) for v in x] if by_row else log_density(x)
    np.testing.assert_allclose(log_q, expected, rtol=1e-10)


@scipy_cases
def test_entropy_is_that_of_scipy(family: nf.Family, usual: dict[str, Any], frozen: Any, values: Any) -> None:
    # SciPy sums the Poisson series to 1e-10 or so.
    np.testing.assert_allclose(family.entropy(family.natural(**usual)), frozen.entropy(), rtol=1e-8)


@pytest.mark.parametrize("rate", [1e-3, 1.0, 60.0, 199.9, 200.1, 5e3])
def test_poisson_entropy_on_both_sides_of_the_series(rate: float) -> None:
    k = np.arange(int(rate + 40 * np.sqrt(rate) + 60))
    p = ss.poisson(rate).pmf(k)
    expected = -np.sum(p[p > 0] * np.log(p[p > 0]))
    # Stirling's expansion leaves out a term of order r⁻⁴, 7e-11 at 200.
    np.testing.assert_allclose(nf.Poisson().entropy(nf.Poisson().natural(rate=rate)), expected, rtol=1e-9)


def test_categorical_with_an_impossible_category() -> None:
    family = nf.Categorical()
    lam = family.natural(probs=np.array([0.0, 0.25, 0.75]))
    np.testing.assert_allclose(family.entropy(lam), ss.entropy([0.25, 0.75]))
    uniform = family.natural(probs=np.full(3, 1 / 3))
    np.testing.assert_allclose(family.kl(lam, uniform), np.log(3) - family.entropy(lam))
    np.testing.assert_allclose(family.kl(lam, lam), 0, atol=1e-15)
    assert family.kl(uniform, lam) == np.inf
    assert family.valid(lam)
    assert not family.valid((np.full(3, -np.inf),))
    assert set(family.sample(lam, np.random.default_rng(0), 500)) == {1, 2}


@pytest.mark.parametrize("size", [2, 3, 17, 40])
def test_categories_are_drawn_as_often_as_they_are_likely(size: int) -> None:
    """On both sides of the number from which sums are made at once; what cannot happen does not, wherever it stands."""
    probs = np.random.default_rng(size).dirichlet(np.full(size, 2.0))
    probs[[0, size - 1]] = 0.0 if size > 2 else probs[[0, size - 1]]
    probs /= probs.sum()
    n = 200_000
    drawn = nf.Categorical().sample(nf.Categorical().natural(probs=probs), np.random.default_rng(0), n)
    share = np.bincount(drawn, minlength=size) / n
    assert (share[probs == 0] == 0).all()
    assert (np.abs(share - probs) <= 5 * np.sqrt(probs / n)).all()  # five standard errors
    many = nf.Categorical().natural(probs=np.stack([probs, probs[::-1]]))
    assert nf.Categorical().sample(many, np.random.default_rng(0), 5).shape == (5, 2)


def test_kl_of_gaussians_and_gammas_in_closed_form() -> None:
    normal = nf.Normal()
    got = normal.kl(normal.natural(mean=1.0, precision=4.0), normal.natural(mean=0.0, precision=1.0))
    np.testing.assert_allclose(got, 0.5 * (0.25 + 1.0 - 1.0 - np.log(0.25)))
    gamma = nf.Gamma()
    got = gamma.kl(gamma.natural(shape=1.0, rate=2.0), gamma.natural(shape=1.0, rate=5.0))  # exponentials
    np.testing.assert_allclose(got, np.log(2 / 5) + 5 / 2 - 1)
    mvn, other = nf.MultivariateNormal(), np.array([[1.0, 0.3], [0.3, 4.0]])
    got = mvn.kl(mvn.natural(mean=MEAN, precision=RATE), mvn.natural(mean=np.zeros(2), precision=other))
    ratio = other @ np.linalg.inv(RATE)
    np.testing.assert_allclose(got, 0.5 * (np.trace(ratio) - 2 - np.log(np.linalg.det(ratio)) + MEAN @ other @ MEAN))


@pytest.mark.parametrize("offset", [1e7, 1e9])
def test_entropy_and_kl_of_gaussians_do_not_depend_on_where_they_are(offset: float) -> None:
    """With the square of the mean in A(λ) and in ⟨λ, μ⟩, both were off by up to hundreds of nats."""
    cases: list[tuple[nf.Family, Any, Any, Any]] = [(nf.Normal(), 4.0, 1.0, 0.5)]
    cases.append((nf.MultivariateNormal(), np.array([[4.0, 1.0], [1.0, 2.0]]), np.eye(2), np.array([0.5, -1.0])))
    for family, precision, broad, away in cases:
        here, there = (family.natural(mean=0.0 * away + at, precision=precision) for at in (0.0, offset))
        np.testing.assert_allclose(family.entropy(there), family.entropy(here), rtol=1e-12)
        other, moved = (family.natural(mean=away + at, precision=broad) for at in (0.0, offset))
        np.testing.assert_allclose(family.kl(there, moved), family.kl(here, other), rtol=1e-5)


def test_joint_density_is_the_product_of_its_factors() -> None:
    family = nf.NormalGamma()
    lam = family.natural(mean=1.0, scale=2.0, shape=3.0, rate=0.7)
    x, tau = 0.4, 1.9
    expected = ss.norm(1.0, 1 / np.sqrt(2.0 * tau)).logpdf(x) + ss.gamma(3.0, scale=1 / 0.7).logpdf(tau)
    log_q = family.inner(lam, family.stats_of(np.array([x, tau]))) - family.log_normalizer(lam)
    np.testing.assert_allclose(log_q, expected)

    wide = nf.NormalWishart()
    lam = wide.natural(mean=MEAN, scale=0.3, dof=4.0, rate=RATE)
    value, precision = np.array([0.2, 0.1]), np.array([[1.0, -0.4], [-0.4, 2.0]])
    expected = ss.multivariate_normal(MEAN, np.linalg.inv(0.3 * precision)).logpdf(value)
    expected += ss.wishart(4.0, np.linalg.inv(RATE)).logpdf(precision)
    packed = np.concatenate([value[:, None], precision], axis=1)
    log_q = wide.inner(lam, wide.stats_of(packed)) - wide.log_normalizer(lam)
    np.testing.assert_allclose(log_q, expected)

    tied, means, scales = nf.TiedNormalWishart(), np.array([MEAN, -MEAN]), np.array([0.3, 2.0])
    lam = tied.natural(mean=means, scale=scales, dof=4.0, rate=RATE)
    values = np.array([[0.2, 0.1], [0.5, -1.0]])
    expected = ss.wishart(4.0, np.linalg.inv(RATE)).logpdf(precision)
    for mean, scale, value in zip(means, scales, values, strict=True):
        expected += ss.multivariate_normal(mean, np.linalg.inv(scale * precision)).logpdf(value)
    packed = np.concatenate([values.T, precision], axis=1)
    log_q = tied.inner(lam, tied.stats_of(packed)) - tied.log_normalizer(lam)
    np.testing.assert_allclose(log_q, expected)


def test_fisher_of_a_normal_in_closed_form() -> None:
    m, s = 0.7, 0.25  # mean and variance
    fisher = nf.Normal().fisher(nf.Normal().natural(mean=m, precision=1 / s))
    np.testing.assert_allclose(fisher, [[s, 2 * m * s], [2 * m * s, 2 * s**2 + 4 * m**2 * s]], rtol=1e-12)


def test_fisher_of_a_multivariate_normal_in_closed_form() -> None:
    # Cov(x_i x_j, x_k x_l) = S_ik S_jl + S_il S_jk at mean 0 (Isserlis).
    cov = np.linalg.inv(RATE)
    fisher = nf.MultivariateNormal().fisher(nf.MultivariateNormal().natural(mean=np.zeros(2), precision=RATE))
    expected = np.einsum("ik,jl->ijkl", cov, cov) + np.einsum("il,jk->ijkl", cov, cov)
    np.testing.assert_allclose(fisher[2:, 2:], expected.reshape((4, 4)), rtol=1e-10)
    np.testing.assert_allclose(fisher[:2, :2], cov, rtol=1e-10)


@pytest.mark.parametrize(
    ("family", "usual", "frozen"),
    [(f, u, z) for f, u, z, _ in SCIPY if f.name in {"Normal", "Gamma", "Beta", "Poisson"}],
    ids=["Normal", "Gamma", "Beta", "Poisson"],
)
def test_intervals_are_those_of_scipy(family: nf.Family, usual: dict[str, Any], frozen: Any) -> None:
    for mass in (0.5, 0.9, 0.99):
        got = family.interval(family.natural(**usual), mass)
        np.testing.assert_allclose(got, frozen.interval(mass), rtol=1e-8)


def test_interval_of_wishart_elements() -> None:
    family = nf.Wishart()
    # With dof 2 and rate I an off-diagonal element is the difference of two exponentials: a Laplace variable.
    low, high = family.interval(family.natural(dof=2.0, rate=np.eye(2)), 0.9)
    expected = ss.laplace.interval(0.9)
    np.testing.assert_allclose([low[0, 1], high[0, 1]], expected, rtol=1e-3)
    np.testing.assert_allclose([low[1, 1], high[1, 1]], ss.chi2(2).interval(0.9), rtol=1e-10)


@pytest.mark.parametrize("dof", [2.5, 8.0, 29.0, 30.0, 400.0])
def test_elements_of_a_wishart_are_below_their_quantiles_as_often_as_said(dof: float) -> None:
    # P(X_01 < x) = E[P(χ² < (x + m Q) / p)], by quantiles of Q; 30 and more degrees of freedom take an expansion.
    family, r = nf.Wishart(), np.array([-0.999, -0.4, 0.0, 0.7, 0.99])
    v = np.eye(2) + r[:, None, None] * (1.0 - np.eye(2))
    lam = family.natural(dof=np.full(5, dof), rate=np.linalg.inv(v))
    nodes = ss.chi2(dof).ppf((np.arange(20_000) + 0.5) / 20_000)
    for mass in (0.5, 0.9, 0.99):
        for x, tail in zip(family.interval(lam, mass), (0.5 - 0.5 * mass, 0.5 + 0.5 * mass), strict=True):
            reach = (x[:, 0, 1, None] + 0.5 * (1 - r[:, None]) * nodes) / (0.5 * (1 + r[:, None]))
            np.testing.assert_allclose(ss.chi2(dof).cdf(reach).mean(1), tail, atol=1e-4)
            np.testing.assert_allclose(x, np.swapaxes(x, 1, 2))


def test_intervals_of_a_large_wishart_take_no_longer_than_its_inverse() -> None:
    # The weights between items of likes are such a matrix; element by element, 80 columns took minutes.
    family, size = nf.Wishart(), 300
    lam = family.natural(dof=500.0, rate=np.eye(size) + 0.1)
    low, high = family.interval(lam, 0.9)
    mean, sd = family.mean(lam), np.sqrt(family.var(lam))
    np.testing.assert_allclose(0.5 * (low + high), mean, atol=0.1 * sd.max())
    np.testing.assert_allclose(high - low, 2 * 1.6449 * sd, rtol=0.01)
