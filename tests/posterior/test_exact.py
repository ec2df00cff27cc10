"""Linear response and draws of every node of the language, in tiny networks whose posterior is known exactly.

q is exact in `CONJUGATE`, which have one factor each; in `GAUSSIAN`, where several nodes are jointly Gaussian, linear response
is; in `AUGMENTED` draws alone are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import integrate, stats

import natgrad as ng

L = ng.language
Y = np.array([0.7, -0.4, 1.9, 0.3])
COUNTS = np.array([2.0, 0.0, 3.0, 1.0])
CLASSES = np.array([0, 2, 1, 0, 0, 2, 0])
n = ng.Plate("n", 4)


class Exact(NamedTuple):
    """A network, and {node: (mean, standard deviation)} of its posterior."""

    network: ng.Network
    known: dict[str, tuple[Any, Any]]


def of(law: Any, node: Any, name: str = "x") -> Exact:
    """A network whose only hidden node has a law of SciPy."""
    return Exact(ng.Network(node), {name: (law.mean(), law.std())})


def on_grid(log_density: Callable[[Any], Any], node: Any, low: float, high: float) -> Exact:
    """A network whose only hidden node is a number with this log density, by quadrature."""
    peak = max(log_density(x) for x in np.linspace(low, high, 2001)[1:-1])
    moment = [
        integrate.quad(lambda x, k=k: x**k * np.exp(log_density(x) - peak), low, high, limit=500)[0] for k in range(3)
    ]
    mean = moment[1] / moment[0]
    return Exact(ng.Network(node), {"x": (mean, np.sqrt(moment[2] / moment[0] - mean**2))})


def normal() -> Exact:
    precision = 0.5 + 4 * 2.0
    law = stats.norm((0.5 * 1.0 + 2.0 * Y.sum()) / precision, precision**-0.5)
    return of(law, ng.Normal("y", ng.Normal("x", 1.0, 0.5), 2.0, plate=n, observed=Y))


def multivariate() -> Exact:
    prior, noise = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.5, -0.3], [-0.3, 0.8]])
    data = np.column_stack([Y, Y[::-1] + 1.0])
    covariance = np.linalg.inv(prior + 4 * noise)
    x = ng.MultivariateNormal("x", np.array([1.0, -1.0]), prior)
    known = covariance @ (prior @ [1.0, -1.0] + noise @ data.sum(0)), np.sqrt(np.diag(covariance))
    return Exact(ng.Network(ng.MultivariateNormal("y", x, noise, plate=n, observed=data)), {"x": known})


def gamma() -> Exact:
    law = stats.gamma(1.5 + 2.0, scale=1.0 / (0.7 + 0.5 * (Y**2).sum()))
    return of(law, ng.Normal("y", 0.0, ng.Gamma("x", 1.5, 0.7), plate=n, observed=Y))


def rate() -> Exact:
    law = stats.gamma(1.5 + COUNTS.sum(), scale=1.0 / (0.7 + 4.0))
    return of(law, ng.Poisson("y", ng.Gamma("x", 1.5, 0.7), plate=n, observed=COUNTS))


def rayleigh() -> Exact:
    lengths = COUNTS + 0.5
    law = stats.gamma(1.5 + 4.0, scale=1.0 / (0.7 + 0.5 * (lengths**2).sum()))
    return of(law, ng.Rayleigh("y", ng.Gamma("x", 1.5, 0.7), plate=n, observed=lengths))


def exponential() -> Exact:
    law = stats.gamma(1.0 + COUNTS.sum(), scale=1.0 / (0.7 + 4.0))
    return of(law, ng.Poisson("y", L.Exponential("x", 0.7), plate=n, observed=COUNTS))


def wishart() -> Exact:
    data = np.column_stack([Y, Y[::-1] ** 2])
    dof, inverse = 4.0 + 4, np.linalg.inv(np.array([[2.0, 0.4], [0.4, 1.0]]) + data.T @ data)
    variance = dof * (inverse**2 + np.outer(np.diag(inverse), np.diag(inverse)))
    x = ng.Wishart("x", 4.0, np.array([[2.0, 0.4], [0.4, 1.0]]))
    node = ng.MultivariateNormal("y", np.zeros(2), x, plate=n, observed=data)
    return Exact(ng.Network(node), {"x": (dof * inverse, np.sqrt(variance))})


def beta() -> Exact:
    node = ng.Bernoulli("y", ng.Beta("x", 1.5, 2.5), plate=n, observed=[1, 0, 1, 1])
    return of(stats.beta(4.5, 3.5), node)


def dirichlet() -> Exact:
    concentration = np.array([0.5, 1.0, 2.0]) + np.bincount(CLASSES)
    total = concentration.sum()
    mean = concentration / total
    x = ng.Dirichlet("x", np.array([0.5, 1.0, 2.0]))
    node = ng.Categorical("y", x, plate=ng.Plate("m", len(CLASSES)), observed=CLASSES)
    return Exact(ng.Network(node), {"x": (mean, np.sqrt(mean * (1 - mean) / (total + 1)))})


def sticks() -> Exact:
    """π_k = v_k Π (1 − v_j), v_k ~ Beta(1 + N_k, α + Σ_{j>k} N_j): moments of products of independent numbers."""
    counts = np.bincount(CLASSES)
    one, two = stats.beta(1.0 + counts[0], 1.3 + counts[1:].sum()), stats.beta(1.0 + counts[1], 1.3 + counts[2])

    def moment(k: int) -> np.ndarray:
        def rest(law: Any) -> float:
            return 1 - law.mean() if k == 1 else 1 - 2 * law.mean() + law.moment(2)

        return np.array([one.moment(k), rest(one) * two.moment(k), rest(one) * rest(two)])

    x = L.StickBreaking("x", 1.3, size=3, grow=False)
    node = ng.Categorical("y", x, plate=ng.Plate("m", len(CLASSES)), observed=CLASSES)
    return Exact(ng.Network(node), {"x": (moment(1), np.sqrt(moment(2) - moment(1) ** 2))})


def half_normal() -> Exact:
    """A standard deviation, as the precision that a Normal reads: τ = 1/σ², p(τ) = p(σ) σ³ / 2."""

    def log_density(tau: float) -> float:
        sigma2 = 1.0 / tau
        return -1.5 * np.log(tau) - 0.5 * sigma2 + 2.0 * np.log(tau) - 0.5 * tau * (Y**2).sum()

    return on_grid(log_density, ng.Normal("y", 0.0, L.HalfNormal("x", 1.0), plate=n, observed=Y), 0.0, 60.0)


def gamma_shape() -> Exact:
    """Γ(a) of a random shape: the complete conditional, by quadrature."""
    positive = np.abs(Y) + 0.2

    def log_density(a: float) -> float:
        return 0.5 * np.log(a) - a + stats.gamma(a, scale=0.5).logpdf(positive).sum()

    return on_grid(log_density, ng.Gamma("y", L.GammaShape("x", 1.5, 1.0), 2.0, plate=n, observed=positive), 1e-9, 30.0)


def truncated() -> Exact:
    def log_density(x: float) -> float:
        return -0.5 * (x - 0.5) ** 2 - ((Y - x) ** 2).sum()

    x = L.TruncatedNormal("x", 0.5, 1.0, lower=0.6)
    return on_grid(log_density, ng.Normal("y", x, 2.0, plate=n, observed=Y), 0.6, 12.0)


def categories() -> Exact:
    mean = np.array([-1.0, 0.0, 1.0])
    log = np.log([0.2, 0.5, 0.3]) - 0.5 * ((Y[:, None] - mean) ** 2).sum(0)
    probs = np.exp(log - np.logaddexp.reduce(log))
    node = ng.Normal("y", ng.table(mean)[ng.Categorical("x", [0.2, 0.5, 0.3])], 1.0, plate=n, observed=Y)
    return Exact(ng.Network(node), {"x": (probs, np.sqrt(probs * (1 - probs)))})


def coin() -> Exact:
    odds = 0.4 / 0.6 * np.exp(-0.5 * ((Y - 1.0) ** 2 - Y**2).sum())
    p = odds / (1 + odds)
    node = ng.Normal("y", ng.table(np.array([0.0, 1.0]))[ng.Bernoulli("x", 0.4)], 1.0, plate=n, observed=Y)
    return Exact(ng.Network(node), {"x": (p, np.sqrt(p * (1 - p)))})


def states() -> Exact:
    start, move, mean = np.array([0.6, 0.4]), np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0.0, 1.0])
    paths = np.array(np.meshgrid(*[[0, 1]] * 4, indexing="ij")).reshape(4, -1).T
    weight = start[paths[:, 0]] * np.prod(move[paths[:, :-1], paths[:, 1:]], 1)
    weight = weight * np.exp(-((Y - mean[paths]) ** 2).sum(1))
    one = (weight[:, None] * paths).sum(0) / weight.sum()
    probs = np.stack([1 - one, one], -1)
    z = ng.MarkovChain("x", start, move, plate=n)
    node = ng.Normal("y", ng.table(mean)[z], 2.0, plate=n, observed=Y)
    return Exact(ng.Network(node), {"x": (probs, np.sqrt(probs * (1 - probs)))})


def path() -> Exact:
    """x_t = 0.9 x_{t−1} + noise, y_t = x_t + noise: a Gaussian of four numbers."""
    step = np.eye(4) - np.diag([0.9] * 3, -1)
    precision = step.T @ np.diag([1.0, 2.0, 2.0, 2.0]) @ step + 3.0 * np.eye(4)
    covariance = np.linalg.inv(precision)
    x = L.GaussianChain("x", np.zeros(1), 1.0, 0.9 * np.eye(1), 2.0, plate=n)
    known = (covariance @ (3.0 * Y))[:, None], np.sqrt(np.diag(covariance))[:, None]
    return Exact(ng.Network(ng.Normal("y", x[:, 0], 3.0, plate=n, observed=Y)), {"x": known})


def mean_and_precision() -> Exact:
    """Normal and Gamma in one factor, with conjugate priors."""
    scale, shape = 0.5 + 4, 1.5 + 2.0
    mean = Y.sum() / scale
    rate = 0.7 + 0.5 * ((Y**2).sum() - scale * mean**2)
    tau = ng.Gamma("t", 1.5, 0.7)
    node = ng.Normal("y", ng.Normal("x", 0.0, 0.5 * tau), tau, plate=n, observed=Y)
    law, precision = stats.t(2 * shape, mean, np.sqrt(rate / (scale * shape))), stats.gamma(shape, scale=1 / rate)
    known = {"x": (law.mean(), law.std()), "t": (precision.mean(), precision.std())}
    return Exact(ng.Network(node, joint=[("x", "t")]), known)


def share() -> Exact:
    """A missing count of a sum: given the total, a Binomial by hand."""
    node = ng.Binomial("y", 10, ng.Beta("x", 2.0, 3.0), plate=n, observed=[3, 4, 2, 5])
    return of(stats.beta(2.0 + 14, 3.0 + 26), node)


CONJUGATE = {
    "Normal": normal,
    "MultivariateNormal": multivariate,
    "Gamma": gamma,
    "Gamma of Poisson": rate,
    "Rayleigh": rayleigh,
    "Exponential": exponential,
    "Wishart": wishart,
    "Beta": beta,
    "Beta of Binomial": share,
    "Dirichlet": dirichlet,
    "StickBreaking": sticks,
    "HalfNormal": half_normal,
    "GammaShape": gamma_shape,
    "TruncatedNormal": truncated,
    "Categorical": categories,
    "Bernoulli": coin,
    "MarkovChain": states,
    "GaussianChain": path,
    "NormalGamma": mean_and_precision,
}


def two_numbers() -> Exact:
    X = np.column_stack([np.ones(4), 2.0 + Y[::-1]])
    covariance = np.linalg.inv(np.diag([0.1, 0.2]) + 2.0 * X.T @ X)
    a, b = ng.Normal("a", 0.0, 0.1), ng.Normal("b", 0.0, 0.2)
    mean, sd = covariance @ (2.0 * X.T @ Y), np.sqrt(np.diag(covariance))
    node = ng.Normal("y", a + X[:, 1] * b, 2.0, plate=n, observed=Y)
    return Exact(ng.Network(node, joint=None), {"a": (mean[0], sd[0]), "b": (mean[1], sd[1])})


def two_vectors() -> Exact:
    """A vector whose mean is another."""
    P, Q, R = np.array([[1.0, 0.2], [0.2, 0.5]]), np.array([[1.0, -0.4], [-0.4, 2.0]]), 1.5 * np.eye(2)
    precision = np.block([[P + Q, -Q], [-Q, Q + 4 * R]])
    data = np.column_stack([Y, Y[::-1] + 1.0])
    covariance = np.linalg.inv(precision)
    mean, sd = covariance @ np.concatenate([np.zeros(2), R @ data.sum(0)]), np.sqrt(np.diag(covariance))
    v = ng.MultivariateNormal("v", ng.MultivariateNormal("u", np.zeros(2), P), Q)
    node = ng.MultivariateNormal("y", v, R, plate=n, observed=data)
    return Exact(ng.Network(node, joint=None), {"u": (mean[:2], sd[:2]), "v": (mean[2:], sd[2:])})


def level_and_path() -> Exact:
    """A level beside a chain."""
    step = np.eye(4) - np.diag([0.9] * 3, -1)
    chain = step.T @ np.diag([1.0, 2.0, 2.0, 2.0]) @ step
    precision = np.zeros((5, 5))
    precision[0, 0], precision[0, 1:], precision[1:, 0] = 0.3 + 12.0, 3.0, 3.0
    precision[1:, 1:] = chain + 3.0 * np.eye(4)
    covariance = np.linalg.inv(precision)
    mean, sd = covariance @ (3.0 * np.concatenate([[Y.sum()], Y])), np.sqrt(np.diag(covariance))
    a, x = ng.Normal("a", 0.0, 0.3), L.GaussianChain("x", np.zeros(1), 1.0, 0.9 * np.eye(1), 2.0, plate=n)
    node = ng.Normal("y", a + x[:, 0], 3.0, plate=n, observed=Y)
    return Exact(ng.Network(node, joint=None), {"a": (mean[0], sd[0]), "x": (mean[1:, None], sd[1:, None])})


GAUSSIAN = {"two Normals": two_numbers, "two vectors": two_vectors, "Normal and chain": level_and_path}


def half_cauchy() -> Exact:
    def log_density(tau: float) -> float:
        return -1.5 * np.log(tau) - np.log1p(1.0 / tau) + 2.0 * np.log(tau) - 0.5 * tau * (Y**2).sum()

    return on_grid(log_density, ng.Normal("y", 0.0, L.HalfCauchy("x", 1.0), plate=n, observed=Y), 0.0, 60.0)


def heavy_prior(node: Any, log_prior: Callable[[float], float]) -> Exact:
    def log_density(x: float) -> float:
        return log_prior(x) - ((Y - x) ** 2).sum()

    return on_grid(log_density, ng.Normal("y", node, 2.0, plate=n, observed=Y), -10.0, 10.0)


def laplace() -> Exact:
    return heavy_prior(L.Laplace("x", 0.0, 4.0), lambda x: stats.laplace(0.0, 0.5).logpdf(x))


def student() -> Exact:
    return heavy_prior(L.StudentT("x", 0.0, 4.0, df=3.0), lambda x: stats.t(3.0, 0.0, 0.5).logpdf(x))


def logit() -> Exact:
    def log_density(x: float) -> float:
        return -0.25 * x**2 + stats.binom(5, 1 / (1 + np.exp(-x))).logpmf([4, 5, 3, 5]).sum()

    node = ng.Binomial("y", 5, logit=ng.Normal("x", 0.0, 0.5), plate=n, observed=[4, 5, 3, 5])
    return on_grid(log_density, node, -10.0, 10.0)


def negative_binomial() -> Exact:
    def log_density(x: float) -> float:
        return -0.25 * x**2 + stats.nbinom(3.0, 1 / (1 + np.exp(x))).logpmf(COUNTS).sum()

    node = L.NegativeBinomial("y", 3.0, logit=ng.Normal("x", 0.0, 0.5), plate=n, observed=COUNTS)
    return on_grid(log_density, node, -10.0, 10.0)


# Where neither q nor linear response is exact, and draws are.
AUGMENTED = {
    "HalfCauchy": half_cauchy,
    "Laplace": laplace,
    "StudentT": student,
    "logit": logit,
    "NegativeBinomial": negative_binomial,
}


SLOW = {"GammaShape": pytest.mark.slow}  # derivatives that take seconds to compile


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW.get(n, ())) for n in (*CONJUGATE, *GAUSSIAN)])
def test_linear_response_is_exact(name):
    network, known = (CONJUGATE | GAUSSIAN)[name]()
    fit = network.fit(tol=1e-13, verbose=False)
    lr = fit.linear_response()
    for node, (mean, sd) in known.items():
        np.testing.assert_allclose(fit[node].mean(), mean, atol=1e-5 * np.min(sd), err_msg=node)
        np.testing.assert_allclose(lr[node].std(), sd, rtol=1e-8, err_msg=node)
        covariance = np.reshape(lr.cov(node, node), (np.size(sd), np.size(sd)))
        np.testing.assert_allclose(np.diag(covariance), np.ravel(sd) ** 2, rtol=1e-7)
        assert np.linalg.eigvalsh(covariance).min() > -1e-9 * np.max(sd) ** 2
        # The covariance of a function is that of its derivative, whichever way it is asked for.
        first = (0,) * np.ndim(sd)
        np.testing.assert_allclose(lr.std(lambda m, node=node, at=first: m[node][at]), np.asarray(sd)[first], rtol=1e-5)
        if (
            name in CONJUGATE
            and node not in ("t",)
            and fit[node].family.name not in ("Categorical", "Binary", "MarkovChain")
        ):
            low, high = lr[node].interval(0.9)
            wanted = fit[node].interval(0.9)  # of the exact posterior
            assert (np.abs(low - wanted[0]) < 0.35 * sd).all()
            assert (np.abs(high - wanted[1]) < 0.35 * sd).all()
            draws = lr[node].sample(0, 4000)
            np.testing.assert_allclose(draws.mean(0), mean, atol=0.1 * np.max(sd))
            np.testing.assert_allclose(draws.std(0), sd, rtol=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
@pytest.mark.parametrize("name", {**CONJUGATE, **GAUSSIAN, **AUGMENTED})
def test_draws_are_those_of_the_exact_posterior(name):
    network, known = (CONJUGATE | GAUSSIAN | AUGMENTED)[name]()
    draws = network.fit(verbose=False).draws(500, chains=4, seed=1, verbose=False)
    for node, (mean, sd) in known.items():
        values = draws[node].values
        if np.ndim(values) - 2 < np.ndim(mean):  # categories are averaged as indicators
            values = (values[..., None] == np.arange(np.shape(mean)[-1])).astype(float)
        found = np.asarray(values, float)
        each = found.mean(1)  # of each chain, and their spread, which sees how far draws depend on one another
        n = found.shape[0] * found.shape[1]
        error = np.maximum(each.std(0, ddof=1) / 2.0, np.asarray(sd) / np.sqrt(n))
        assert (np.abs(found.mean((0, 1)) - mean) < 6.0 * error).all(), (node, found.mean((0, 1)), mean, error)
        spread = ((found - mean) ** 2).mean(1)
        error = np.maximum(spread.std(0, ddof=1) / 2.0, np.asarray(sd) ** 2 * np.sqrt(2.0 / n))
        assert (np.abs(spread.mean(0) - np.asarray(sd) ** 2) < 6.0 * error).all(), (node, np.sqrt(spread.mean(0)), sd)


def test_every_node_of_the_language_has_an_exact_posterior():
    """A node that is added is added to the table, or named here with the reason."""
    always_observed = {"Multinomial", "Ordinal", "LogNormal", "Poisson", "Binomial", "GaussianProcess"}
    nodes = {n for n in ng.language.__all__ if n[0].isupper()} - {"Column", "Columns", "Plate"} - always_observed
    assert nodes <= set(CONJUGATE) | set(AUGMENTED), sorted(nodes - set(CONJUGATE) - set(AUGMENTED))
