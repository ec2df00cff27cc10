"""Means, variances and densities of new values: their own noise integrated out, not drawn."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit

import natgrad as ng


def _row(n: int) -> ng.Plate:
    return ng.Plate("row", n)


COUNTS, NUMBERS = np.array([3, 0, 2, 5, 1, 2]), np.array([0.3, 1.2, 0.7, 2.0, 1.1, 0.6])
PAIRS, SHARES = np.stack([COUNTS, 5 - COUNTS], 1), np.stack([NUMBERS, 3 - NUMBERS], 1) / 3
LEAVES = {
    "normal": lambda n: ng.Normal("y", ng.Normal("m", 0.0, 0.1), ng.Gamma("t", 9.0, 9.0, plate=n), plate=n, observed=NUMBERS),
    "vector": lambda n: ng.MultivariateNormal(
        "y", ng.MultivariateNormal("m", 0.0, 1.0, size=2), ng.Wishart("w", 9.0, np.eye(2)), plate=n,
        observed=np.stack([NUMBERS, COUNTS - 2.0], 1),
    ),
    "gamma": lambda n: ng.Gamma("y", 2.0, ng.Gamma("t", 9.0, 9.0), plate=n, observed=NUMBERS),
    "learned shape": lambda n: ng.Gamma("y", ng.GammaShape("a", 9.0, 3.0), ng.Gamma("t", 9.0, 9.0), plate=n, observed=NUMBERS),
    "exponential": lambda n: ng.Exponential("y", ng.Gamma("t", 9.0, 9.0), plate=n, observed=NUMBERS),
    "poisson": lambda n: ng.Poisson("y", ng.Gamma("t", 1.0, 1.0), plate=n, observed=COUNTS),
    "sum of rates": lambda n: ng.Poisson(
        "y", ng.Gamma("t", 1.0, 1.0) + NUMBERS * ng.Gamma("u", 1.0, 1.0), plate=n, observed=COUNTS
    ),
    "bernoulli": lambda n: ng.Bernoulli("y", ng.Beta("p", 1.0, 1.0), plate=n, observed=COUNTS > 1),
    "probit": lambda n: ng.Bernoulli("y", probit=ng.Normal("p", 0.0, 1.0), plate=n, observed=COUNTS > 1),
    "binomial": lambda n: ng.Binomial("y", 7, logit=ng.Normal("p", 0.0, 1.0), plate=n, observed=COUNTS),
    "negative binomial": lambda n: ng.NegativeBinomial("y", 2.5, ng.Beta("p", 9.0, 9.0), plate=n, observed=COUNTS),
    "student": lambda n: ng.StudentT("y", ng.Normal("m", 0.0, 0.1), ng.Gamma("t", 9.0, 9.0), df=7.0, plate=n, observed=NUMBERS),
    "laplace": lambda n: ng.Laplace("y", ng.Normal("m", 0.0, 0.1), ng.Gamma("t", 9.0, 9.0), plate=n, observed=NUMBERS),
    "lognormal": lambda n: ng.LogNormal("y", ng.Normal("m", 0.0, 0.1), 9.0, plate=n, observed=NUMBERS),
    "rayleigh": lambda n: ng.Rayleigh("y", ng.Gamma("t", 9.0, 9.0), plate=n, observed=NUMBERS),
    "ordinal": lambda n: ng.Ordinal("y", ng.Normal("m", 0.0, 1.0), cutpoints=[0.0, 0.5, 1.0, 1.5, 2.0], plate=n, observed=COUNTS),
    "truncated": lambda n: ng.TruncatedNormal("y", 0.5, 1.0, lower=0.0, upper=2.0, plate=n, observed=NUMBERS),
    "beta": lambda n: ng.Beta("y", 2.0, 3.0, plate=n, observed=NUMBERS / 3),
    "dirichlet": lambda n: ng.Dirichlet("y", ng.GammaShape("a", 9.0, 3.0), size=2, plate=n, observed=SHARES),
    "multinomial": lambda n: ng.Multinomial("y", 5, ng.Dirichlet("p", 1.0, size=2), plate=n, observed=PAIRS),
    "mixture": lambda n: ng.Normal(
        "y", ng.table([-2.0, 3.0])[ng.Categorical("z", ng.Dirichlet("p", 1.0, size=2), plate=n)], 1.0, plate=n,
        observed=3 * NUMBERS - 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_mean_and_variance_are_those_of_draws(name):
    """Of 10,000 draws a mean is known to a hundredth of the spread, and a variance of these laws to a few per cent."""
    p = ng.Network(LEAVES[name](_row(6))).fit(verbose=False).predictive("y")
    draws = p.sample(1, 10_000)
    assert p.mean().shape == p.var().shape == draws.shape[1:]
    np.testing.assert_allclose(p.mean(), draws.mean(0), atol=0.06 * draws.std(0).max())
    np.testing.assert_allclose(p.var(), draws.var(0), rtol=0.25)


def test_equal_rows_are_predicted_equally_and_as_by_quadrature():
    """A probability that is the share of 2,000 coins would be off by 0.01, and by another 0.01 in the next row."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    w = ng.MultivariateNormal("w", 0.0, 0.1, size=2)
    y = ng.Bernoulli("y", logit=ng.dot(ng.Columns("one", "x"), w), plate=ng.Plate("row"), observed=ng.Column("y"))
    fit = ng.Network(y).fit({"one": np.ones(60), "x": x, "y": rng.random(60) < expit(1 + x)}, verbose=False)
    p = fit.predict({"one": np.ones(4), "x": np.full(4, 0.7)})["y"]
    assert len(set(p.mean().tolist())) == len(set(p.std().tolist())) == 1
    q, at = fit["w"], np.array([1.0, 0.7])
    spread = np.sqrt(at @ np.linalg.inv(q.parameters["precision"]) @ at)
    exact = integrate.quad(lambda z: expit(at @ q.mean() + spread * z) * stats.norm.pdf(z), -8, 8)[0]
    # 2,000 draws of a probability whose standard deviation is below 0.1.
    np.testing.assert_allclose(p.mean(), exact, atol=0.005)
    np.testing.assert_allclose(p.std(), np.sqrt(exact * (1 - exact)), atol=0.005)


@pytest.mark.parametrize("read", ["one", "gathered"])
def test_densities_of_outliers_are_those_of_a_student_t(read):
    """With drawn precisions the density five standard deviations away was off by half a nat, for all rows alike."""
    rng = np.random.default_rng(0)
    group = np.arange(30) % 2
    tau = ng.Gamma("tau", 1.0, 1.0, plate=ng.Plate("group", 2) if read == "gathered" else None)
    own = tau[group] if read == "gathered" else tau
    fit = ng.Network(ng.Normal("y", 2.0, own, plate=_row(30), observed=rng.normal(2.0, 1.5 + group))).fit(verbose=False)
    q = {name: np.broadcast_to(part, (2,))[group] for name, part in fit["tau"].parameters.items()}
    far = 2.0 + np.linspace(0.0, 12.0, 30)
    exact = stats.t.logpdf(far, 2 * q["shape"], 2.0, np.sqrt(q["rate"] / q["shape"]))
    np.testing.assert_allclose(fit.predictive("y").log_density(far), exact, rtol=1e-12)


@pytest.mark.parametrize("read", ["one", "gathered"])
def test_densities_of_vectors_are_those_of_a_student_t(read):
    rng = np.random.default_rng(0)
    group = np.arange(20) % 2
    precision = ng.Wishart("precision", 3.0, np.eye(2), plate=ng.Plate("group", 2) if read == "gathered" else None)
    own = precision[group] if read == "gathered" else precision
    y = ng.MultivariateNormal(
        "y", np.ones(2), own, plate=_row(20), observed=rng.normal(1.0, 1.0 + group[:, None], (20, 2))
    )
    fit = ng.Network(y).fit(verbose=False)
    far = 1.0 + np.linspace([0.0, 0.0], [9.0, -4.0], 20)
    found = fit.predictive("y").log_density(far)
    q = fit["precision"].parameters
    dof, rate = np.broadcast_to(q["dof"], (2,))[group], np.broadcast_to(q["rate"], (2, 2, 2))[group]
    for x, nu, scale, log_density in zip(far, dof, rate, found, strict=True):
        exact = stats.multivariate_t(np.ones(2), scale / (nu - 1), df=nu - 1).logpdf(x)
        np.testing.assert_allclose(log_density, exact, rtol=1e-10)


def test_moments_that_do_not_exist_are_said_to_be_so():
    y = ng.Normal("y", 0.0, ng.Gamma("tau", 0.25, 1.0), plate=_row(1), observed=[0.3])
    assert np.isinf(ng.Network(y).fit(verbose=False).predictive("y").std()).all()
    cauchy = ng.StudentT("y", ng.Normal("m", 0.0, 1.0), 1.0, df=1.0, plate=_row(2), observed=[0.3, 9.0])
    p = ng.Network(cauchy).fit(verbose=False).predictive("y")
    assert np.isnan(p.mean()).all()
    assert np.isnan(p.var()).all()
