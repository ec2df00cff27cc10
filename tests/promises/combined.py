"""Networks as users of other systems combine them: gaps, gates, censoring, links, chains, learned weights in one declaration."""

import numpy as np
from promises.nodes import BINARY, COUNT, POSITIVE, REAL, SIZE, X, gamma, gap, n

import natgrad as ng

GROUP = np.arange(SIZE) % 3
LENGTHS = [SIZE // 2, SIZE - SIZE // 2]


def normal(name, mean=0.0, **options):
    return ng.Normal(name, mean, 1.0, **options)


def k(size=2):
    return ng.Plate("k", size)


def chosen(size=2, **options):
    return ng.Categorical("z", ng.Dirichlet("w", 1.0, size=size), plate=n(), **options)


def effects(precision=None):
    return ng.Normal("u", 0.0, gamma("spread") if precision is None else precision, plate=ng.Plate("g", 3))[GROUP]


def seen(mean, precision=None):
    return ng.Normal("y", mean, gamma() if precision is None else precision, plate=n(), observed=gap(REAL))


def gaps_under_a_gate():
    age = ng.Normal("age", normal("m"), gamma("s"), plate=n(), observed=gap(REAL))
    return seen(ng.Normal("b", [-1.0, 1.0], 0.5, plate=k())[chosen()] * age)


def gaps_in_a_category_and_a_covariate():
    z = ng.Categorical("z", ng.Dirichlet("w", 1.0, size=3), plate=n(), observed=gap(GROUP.astype(float)))
    x = ng.Normal("x", ng.Normal("mx", 0.0, 1.0, plate=k(3))[z], gamma("tx"), plate=n(), observed=gap(X[:, 0]))
    return seen(ng.Normal("a", 0.0, 1.0, plate=k(3))[z] + normal("b") * x)


def censored_mixture():
    mu, tau, z = ng.Normal("mu", [-1.0, 1.0], 0.5, plate=k()), ng.Gamma("t", 2.0, 1.0, plate=k()), chosen()
    return ng.Normal("y", mu[z], tau[z], plate=n(), observed=ng.censored(REAL, right=REAL > 0.5))


def censored_lifetimes():
    rate = ng.Gamma("r", [1.0, 2.0], 1.0, plate=k())[chosen()]
    return ng.Exponential("y", rate, plate=n(), observed=ng.censored(POSITIVE, right=POSITIVE > 2.0))


def censored_sizes():
    mean = effects() + normal("a")
    return ng.LogNormal("y", mean, gamma(), plate=n(), observed=ng.censored(POSITIVE, right=POSITIVE > 2.5))


def probit_effects():
    w = ng.MultivariateNormal("w", np.zeros(2), 1.0)
    psi = ng.dot(X, w) + effects(ng.HalfCauchy("tau", 1.0))
    return ng.Bernoulli("y", probit=psi, plate=n(), observed=gap(BINARY))


def ordinal_slopes():
    slopes = ng.MultivariateNormal("u", np.zeros(2), ng.Wishart("L", 4.0, np.eye(2)), plate=ng.Plate("g", 3))
    seen_as = np.digitize(REAL, [-0.5, 0.5])
    return ng.Ordinal("y", ng.dot(X, slopes[GROUP]), 1.0, cutpoints=[-0.5, 0.5], plate=n(), observed=seen_as)


def switching_inputs():
    z = ng.MarkovChain("z", [0.5, 0.5], ng.Dirichlet("move", 1.0, size=2, plate=k()), plate=n())
    mean = np.concatenate([0.5 * np.eye(2), np.zeros((2, 1))], axis=1)
    A = ng.MultivariateNormal("A", mean, 1.0, plate=(k(), ng.Plate("row", 2)))
    return seen(ng.GaussianChain("x", np.zeros(2), 1.0, A[z], 1.0, plate=n(), inputs=X[:, :1])[:, 0])


def switching_lengths_logit():
    move = ng.Dirichlet("move", 1.0, size=2, plate=k())
    z = ng.MarkovChain("z", ng.Dirichlet("start", 1.0, size=2), move, plate=n(), lengths=LENGTHS)
    A = ng.MultivariateNormal("A", 0.5 * np.eye(2), 1.0, plate=(k(), ng.Plate("row", 2)))
    noise = ng.diag(ng.Gamma("q", 2.0, 1.0, plate=ng.Plate("entry", 2)))
    x = ng.GaussianChain("x", np.zeros(2), 1.0, A[z], noise, plate=n(), lengths=LENGTHS)
    return ng.Bernoulli("y", logit=x[:, 0], plate=n(), observed=gap(BINARY))


def weights_shared_by_rows_of_a_chain():
    shared = ng.GammaShape("shared", 2.0 / 3, 0.1, plate=ng.Plate("to", 3))
    z = ng.MarkovChain("z", [1 / 3] * 3, ng.Dirichlet("move", shared, plate=k(3)), plate=n())
    return seen(ng.Normal("mu", [-1.0, 0.0, 1.0], 0.5, plate=k(3))[z])


def sticks_as_rows_of_a_chain():
    move = ng.StickBreaking("move", gamma("alpha"), size=3, plate=k(3))
    z = ng.MarkovChain("z", [1 / 3] * 3, move, plate=n(), lengths=LENGTHS)
    return ng.Poisson("y", ng.Gamma("r", [1.0, 2.0, 3.0], 1.0, plate=k(3))[z], plate=n(), observed=gap(COUNT))


def trend_with_outliers():
    x = ng.GaussianChain("x", np.zeros(2), 1.0, [[1.0, 1.0], [0.0, 1.0]], gamma("q"), plate=n(), size=2)
    return ng.StudentT("y", x[:, 0], gamma(), df=4.0, plate=n(), observed=gap(REAL))


def learned_start_and_noises():
    first = ng.MultivariateNormal("m0", np.zeros(2), 1.0), ng.Wishart("P0", 4.0, np.eye(2))
    A = ng.MultivariateNormal("A", 0.5 * np.eye(2), 1.0, plate=ng.Plate("row", 2))
    x = ng.GaussianChain("x", *first, A, ng.Wishart("Q", 4.0, np.eye(2)), plate=n(), lengths=LENGTHS)
    C = ng.MultivariateNormal("C", np.zeros(2), 1.0, plate=(sensor := ng.Plate("sensor", 2)))
    values = np.stack([gap(REAL), REAL], -1)
    return ng.Normal("y", ng.dot(C, x), gamma(), plate=(n(), sensor), observed=values)


def two_hidden_chains():
    z, v = (
        ng.MarkovChain(
            name, [0.5, 0.5], ng.Dirichlet(f"move {name}", 1.0, size=2, plate=ng.Plate(f"k {name}", 2)), plate=n()
        )
        for name in ("z", "v")
    )
    a = ng.Normal("a", [-1.0, 1.0], 1.0, plate=ng.Plate("k z", 2))[z]
    return seen(a + ng.Normal("b", [-0.5, 0.5], 1.0, plate=ng.Plate("k v", 2))[v])


def level_slopes_and_groups():
    level = ng.GaussianChain("x", 0.0, 1.0, 1.0, gamma("q"), plate=n())
    return seen(level[:, 0] + ng.dot(X, ng.MultivariateNormal("w", np.zeros(2), 1.0)) + effects())


def counts_with_offset():
    psi = ng.dot(X, ng.MultivariateNormal("w", np.zeros(2), 1.0)) + np.log1p(POSITIVE) + normal("a")
    return ng.NegativeBinomial("y", 3.0, logit=psi, plate=n(), observed=gap(COUNT))


def zeros_of_two_kinds():
    z = ng.Bernoulli("z", ng.Beta("p", 1.0, 1.0), plate=n())
    rate = ng.table([1e-6, 1.0])[z] * ng.Gamma("r", 2.0, 1.0)
    return ng.Poisson("y", rate, plate=n(), observed=np.where(BINARY > 0, COUNT, 0))


def background_and_sources():
    rate = ng.Gamma("r", [1.0, 2.0], 1.0, plate=k())[chosen()] + ng.Gamma("background", 1.0, 1.0)
    return ng.Poisson("y", rate, plate=n(), observed=gap(COUNT))


def experts_with_labels():
    v = ng.MultivariateNormal("v", np.zeros(2), 1.0, plate=ng.Plate("cut", 2))
    z = ng.Categorical("z", logits=ng.dot(X, v), plate=n(), observed=gap(GROUP.astype(float)))
    mu = ng.MultivariateNormal("mu", np.zeros(2), 1.0, plate=k(3))
    values = np.where(np.arange(X.size).reshape(X.shape) % 7 == 3, np.nan, X)
    return ng.MultivariateNormal("y", mu[z], ng.Wishart("L", 4.0, np.eye(2)), plate=n(), observed=values)


def curve_and_groups():
    f = ng.GaussianProcess("f", ng.covariance.RBF(), inducing=np.linspace(-2.0, 2.0, 5)[:, None])
    return seen(f(X[:, :1]) + effects())


def horseshoe():
    each, all_of_them = ng.HalfCauchy("each", 1.0, plate=(d := ng.Plate("d", 2))), ng.HalfCauchy("all", 1.0)
    return seen(ng.dot(X, ng.Normal("w", 0.0, each * all_of_them, plate=d)))


COMBINED = {
    made.__name__.replace("_", " "): made
    for made in (
        gaps_under_a_gate, gaps_in_a_category_and_a_covariate, censored_mixture, censored_lifetimes, censored_sizes,
        probit_effects, ordinal_slopes, switching_inputs, switching_lengths_logit, weights_shared_by_rows_of_a_chain,
        sticks_as_rows_of_a_chain, trend_with_outliers, learned_start_and_noises, two_hidden_chains,
        level_slopes_and_groups, counts_with_offset, zeros_of_two_kinds, background_and_sources, experts_with_labels,
        curve_and_groups, horseshoe,
    )
}  # fmt: skip
COMBINED |= {
    "mixture of students": lambda: ng.StudentT(
        "y", ng.Normal("mu", [-1.0, 0.0, 1.0], 0.5, plate=k(3))[chosen(3)], gamma(), df=5.0, plate=n(), observed=gap(REAL)
    ),
    "truncated slopes under a gate": lambda: seen(
        ng.TruncatedNormal("a", 0.0, 1.0, lower=0.0, plate=k())[chosen()] * X[:, 0]
    ),
    "interactions": lambda: (lambda a, b, c: seen(a * b + b * c + a * c))(effects(), normal("b", 0.5), normal("c")),
    "scales by group": lambda: seen(normal("m"), ng.HalfNormal("t", 1.0, plate=ng.Plate("g", 3))[GROUP]),
    "learned shape by group": lambda: ng.Gamma(
        "y", ng.GammaShape("a", 1.0, 0.1), ng.Gamma("b", 1.0, 1.0, plate=ng.Plate("g", 3))[GROUP], plate=n(),
        observed=gap(POSITIVE),
    ),
}  # fmt: skip
# Those with one chain along the plate that batches would be drawn from.
ALONG_TIME = [
    "switching inputs", "switching lengths logit", "weights shared by rows of a chain", "sticks as rows of a chain",
    "trend with outliers", "learned start and noises", "two hidden chains", "level slopes and groups",
]  # fmt: skip
