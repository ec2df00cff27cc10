"""Every node of the language in a small network, hidden and as a leaf, with a value that is missing."""

import numpy as np

import natgrad as ng

SIZE = 12
rng = np.random.default_rng(5)
REAL = rng.normal(size=SIZE)
POSITIVE = rng.gamma(2.0, 1.0, SIZE)
BINARY = (rng.random(SIZE) < 0.5).astype(float)
COUNT = rng.poisson(3.0, SIZE).astype(float)
CLASS = np.resize([0.0, 1.0, 2.0, 1.0], SIZE)
X = rng.normal(size=(SIZE, 2))
VECTORS = rng.normal(size=(SIZE, 2))
COUNTS = rng.multinomial(9, [0.5, 0.3, 0.2], SIZE).astype(float)


def n():
    return ng.Plate("n", SIZE)


def gap(values):
    """One element missing."""
    values = np.array(values, dtype=float)
    values[1] = np.nan
    return values


def weights():
    return ng.MultivariateNormal("w", np.zeros(2), 1.0)


def effect():
    return ng.Normal("m", 0.0, 1.0)


def gamma(name="t"):
    return ng.Gamma(name, 2.0, 1.0)


def reader(x):
    """A Normal that reads hidden real numbers."""
    return ng.Normal("y", x, 1.0, plate=n(), observed=gap(REAL))


def component(z, size=3):
    return ng.Normal("y", ng.table(np.arange(size) - 1.0)[z], 1.0, plate=n(), observed=gap(REAL))


def chain(**options):
    return ng.GaussianChain("x", np.zeros(2), 1.0, 0.9 * np.eye(2), gamma("q"), plate=n(), **options)


LEAVES = {
    "Normal": lambda: ng.Normal("y", effect(), gamma(), plate=n(), observed=gap(REAL)),
    "Normal, censored": lambda: ng.Normal(
        "y", effect(), gamma(), plate=n(), observed=ng.censored(gap(REAL), right=REAL > 1.0)
    ),
    "MultivariateNormal": lambda: ng.MultivariateNormal(
        "y", weights(), ng.Wishart("W", 4.0, np.eye(2)), plate=n(), observed=gap(VECTORS)
    ),
    "MultivariateNormal, Kronecker": lambda: ng.MultivariateNormal(
        "y",
        np.zeros(4),
        ng.kron(ng.Wishart("W", 4.0, np.eye(2)), np.eye(2)),
        plate=n(),
        observed=gap(np.c_[VECTORS, X]),
    ),
    "MultivariateNormal, blocks": lambda: ng.MultivariateNormal(
        "y",
        np.zeros(3),
        ng.block_diag([[2.0]], ng.Wishart("W", 4.0, np.eye(2))),
        plate=n(),
        observed=gap(np.c_[REAL, X]),
    ),
    "Gamma": lambda: ng.Gamma("y", 2.0, gamma(), plate=n(), observed=gap(POSITIVE)),
    "Gamma, learned shape": lambda: ng.Gamma("y", ng.GammaShape("a", 1.0, 1.0), 1.0, plate=n(), observed=gap(POSITIVE)),
    "Exponential": lambda: ng.Exponential("y", gamma(), plate=n(), observed=gap(POSITIVE)),
    "StudentT": lambda: ng.StudentT("y", effect(), gamma(), df=4.0, plate=n(), observed=gap(REAL)),
    "Laplace": lambda: ng.Laplace("y", effect(), gamma(), plate=n(), observed=gap(REAL)),
    "LogNormal": lambda: ng.LogNormal("y", effect(), gamma(), plate=n(), observed=gap(POSITIVE)),
    "Rayleigh": lambda: ng.Rayleigh("y", gamma(), plate=n(), observed=gap(POSITIVE)),
    "Bernoulli": lambda: ng.Bernoulli("y", ng.Beta("p", 1.0, 1.0), plate=n(), observed=gap(BINARY)),
    "Bernoulli, logit": lambda: ng.Bernoulli("y", logit=ng.dot(X, weights()), plate=n(), observed=gap(BINARY)),
    "Bernoulli, probit": lambda: ng.Bernoulli("y", probit=ng.dot(X, weights()), plate=n(), observed=gap(BINARY)),
    "Binomial": lambda: ng.Binomial("y", 20, ng.Beta("p", 1.0, 1.0), plate=n(), observed=gap(COUNT)),
    "Binomial, logit": lambda: ng.Binomial("y", 20, logit=ng.dot(X, weights()), plate=n(), observed=gap(COUNT)),
    "NegativeBinomial": lambda: ng.NegativeBinomial("y", 2.0, ng.Beta("p", 1.0, 1.0), plate=n(), observed=gap(COUNT)),
    "NegativeBinomial, logit": lambda: ng.NegativeBinomial(
        "y", 2.0, logit=ng.dot(X, weights()), plate=n(), observed=gap(COUNT)
    ),
    "Poisson": lambda: ng.Poisson("y", gamma(), plate=n(), observed=gap(COUNT)),
    "Poisson, sum": lambda: ng.Poisson("y", gamma("a") + gamma("b"), plate=n(), observed=gap(COUNT)),
    "Ordinal": lambda: ng.Ordinal(
        "y", ng.dot(X, weights()), 1.0, cutpoints=[-0.5, 0.5], plate=n(), observed=gap(CLASS)
    ),
    "Categorical": lambda: ng.Categorical("y", ng.Dirichlet("p", 1.0, size=3), plate=n(), observed=gap(CLASS)),
    "Categorical, logits": lambda: ng.Categorical(
        "y", logits=ng.Normal("l", 0.0, 1.0, plate=ng.Plate("cut", 2)), plate=n(), observed=gap(CLASS)
    ),
    "Categorical, softmax": lambda: ng.Categorical(
        "y", softmax=ng.Normal("l", 0.0, 1.0, plate=ng.Plate("kind", 3)), plate=n(), observed=gap(CLASS)
    ),
    "Multinomial": lambda: ng.Multinomial("y", 9, ng.Dirichlet("p", 1.0, size=3), plate=n(), observed=gap(COUNTS)),
}
HIDDEN = {
    "Normal": lambda: reader(ng.Normal("x", effect(), gamma(), plate=n())),
    "Normal, gap": lambda: ng.Normal(
        "y", 2.0 * ng.Normal("x", effect(), gamma(), plate=n(), observed=gap(X[:, 0])), 1.0, plate=n(), observed=REAL
    ),
    "MultivariateNormal": lambda: reader(
        ng.dot(
            X,
            ng.MultivariateNormal(
                "x", np.zeros(2), ng.diag(ng.Gamma("t", 2.0, 1.0, plate=ng.Plate("d", 2))), plate=n()
            ),
        )
    ),
    "Gamma": lambda: ng.Normal("y", 0.0, ng.Gamma("x", 2.0, 1.0, plate=n()), plate=n(), observed=gap(REAL)),
    "GammaShape": lambda: ng.Gamma(
        "y", ng.GammaShape("x", 1.0, 1.0), ng.Gamma("b", 1.0, 1.0), plate=n(), observed=gap(POSITIVE)
    ),
    "Exponential": lambda: ng.Normal("y", 0.0, ng.Exponential("x", 1.0, plate=n()), plate=n(), observed=gap(REAL)),
    "HalfCauchy": lambda: ng.Normal("y", 0.0, ng.HalfCauchy("x", 1.0), plate=n(), observed=gap(REAL)),
    "HalfNormal": lambda: ng.Normal("y", 0.0, ng.HalfNormal("x", 1.0), plate=n(), observed=gap(REAL)),
    "StudentT": lambda: reader(ng.StudentT("x", effect(), 1.0, df=4.0, plate=n())),
    "Laplace": lambda: reader(ng.Laplace("x", effect(), 1.0, plate=n())),
    "TruncatedNormal": lambda: reader(ng.TruncatedNormal("x", 0.5, 1.0, lower=0.0)),
    "Wishart": lambda: ng.MultivariateNormal(
        "y", np.zeros(2), ng.Wishart("x", 4.0, np.eye(2)), plate=n(), observed=gap(VECTORS)
    ),
    "Dirichlet": lambda: ng.Categorical("y", ng.Dirichlet("x", 1.0, size=3), plate=n(), observed=gap(CLASS)),
    "Dirichlet, learned": lambda: ng.Categorical(
        "y", ng.Dirichlet("x", gamma(), size=3), plate=n(), observed=gap(CLASS)
    ),
    "Dirichlet, shape": lambda: ng.Categorical(
        "y", ng.Dirichlet("x", ng.GammaShape("a", 1.0, 1.0), size=3), plate=n(), observed=gap(CLASS)
    ),
    "Dirichlet, shared": lambda: ng.Multinomial(
        "y",
        9,
        ng.Dirichlet("x", ng.GammaShape("a", 1.0, 1.0, plate=ng.Plate("k", 3)), plate=n()),
        plate=n(),
        observed=gap(COUNTS),
    ),
    "StickBreaking": lambda: ng.Categorical(
        "y", ng.StickBreaking("x", gamma(), size=3), plate=n(), observed=gap(CLASS)
    ),
    "Beta": lambda: ng.Bernoulli("y", ng.Beta("x", 1.0, 1.0), plate=n(), observed=gap(BINARY)),
    "Categorical": lambda: component(ng.Categorical("x", ng.Dirichlet("p", 1.0, size=3), plate=n())),
    "Categorical, gap": lambda: component(
        ng.Categorical("x", ng.Dirichlet("p", 1.0, size=3), plate=n(), observed=gap(CLASS))
    ),
    "Categorical, logits": lambda: component(
        ng.Categorical("x", logits=ng.Normal("l", 0.0, 1.0, plate=ng.Plate("cut", 2)), plate=n())
    ),
    "Bernoulli": lambda: component(ng.Bernoulli("x", ng.Beta("p", 1.0, 1.0), plate=n()), 2),
    "Bernoulli, logit": lambda: component(ng.Bernoulli("x", logit=ng.dot(X, weights()), plate=n()), 2),
    "MarkovChain": lambda: component(
        ng.MarkovChain(
            "x",
            ng.Dirichlet("p", 1.0, size=3),
            ng.Dirichlet("move", 1.0, size=3, plate=ng.Plate("state", 3)),
            plate=n(),
        )
    ),
    "GaussianChain": lambda: reader(chain()[:, 0]),
    "GaussianChain, inputs": lambda: reader(
        ng.GaussianChain("x", np.zeros(2), 1.0, np.c_[0.9 * np.eye(2), [1.0, 0.0]], 1.0, inputs=X[:, :1], plate=n())[
            :, 0
        ]
    ),
    "GaussianProcess": lambda: reader(
        ng.GaussianProcess("x", ng.covariance.RBF(), inducing=np.linspace(-2, 2, 4)[:, None])(X[:, :1])
    ),
}
