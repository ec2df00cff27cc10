"""What people type who come from other libraries, and the words that they must read."""

import numpy as np
from mistakes.declarations import DATA, K, N, category, gamma, normal, vector

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

T = ng.Plate("t", 5)


def coin(name="a"):
    return ng.Bernoulli(name, 0.5)


def asked():
    return ng.Network(ng.Bernoulli("b", ng.table([0.1, 0.9])[coin()]))


def fitted():
    return ng.Network(ng.Normal("y", normal(), 1.0, plate=N, observed=DATA)).fit(max_steps=1)


def process():
    return ng.GaussianProcess("f", ng.covariance.RBF(), inducing=[[0.0], [1.0]])


def walk():
    return ng.GaussianChain("x", 0.0, 1.0, 1.0, 1.0, plate=T)


# fmt: off
HABITS = [
    # -- as if they were numbers
    (lambda: category() == 0, TypeError, "z", "Bernoulli", "Categorical"),
    (lambda: normal(plate=K)[category() == 1], TypeError, "z", "Bernoulli", "Categorical"),
    (lambda: coin() != 1, TypeError, "Bernoulli", "Categorical"),
    (lambda: normal() == np.float64(0.0), TypeError, "mu", "Bernoulli", "Categorical"),
    (lambda: np.int64(0) == category(), TypeError, "z", "Bernoulli", "Categorical"),
    (lambda: np.array([0, 1, 1]) == category(), TypeError, "z", "Bernoulli", "Categorical"),
    (lambda: category() == np.array([0, 1, 1]), TypeError, "z", "Bernoulli", "Categorical"),
    (lambda: max(normal(), normal("m")), TypeError, "m", "Bernoulli", "Categorical"),
    (lambda: coin() & coin("b"), TypeError, "a is random", "Bernoulli('both', natgrad.table([[0.0, 0.0], [0.0, 1.0]])[a, b])"),
    (lambda: coin() | coin("b"), TypeError, "a is random", "Bernoulli('both', natgrad.table([[0.0, 0.0], [0.0, 1.0]])[a, b])"),
    (lambda: ~coin(), TypeError, "a is random", "Bernoulli('both', natgrad.table([[0.0, 0.0], [0.0, 1.0]])[a, b])"),
    (lambda: coin() ^ True, TypeError, "a is random", "Bernoulli('both', natgrad.table([[0.0, 0.0], [0.0, 1.0]])[a, b])"),
    (lambda: normal() % 2, NotConjugate, "mu", "round data beforehand"),
    (lambda: normal() // 2, NotConjugate, "mu", "round data beforehand"),
    (lambda: round(normal()), NotConjugate, "mu", "round data beforehand"),
    (lambda: sum(normal(plate=K)), TypeError, "mu", "natgrad.sum_over(mu, plate)", "mu[0]"),
    (lambda: list(normal(plate=K)), TypeError, "mu", "natgrad.sum_over(mu, plate)", "mu[0]"),
    (lambda: 1 / gamma() ** 2, NotConjugate, "tau ** 2", "write tau"),
    (lambda: ng.Normal("y", 0.0, gamma() ** -2, plate=N, observed=DATA), NotConjugate, "tau ** -2", "write tau"),
    # -- as elsewhere
    (lambda: normal("y").observe(DATA), AttributeError, "y is random and has no observe", "data"),
    (lambda: normal().random(), AttributeError, "mu is random and has no random", "network", "fit['mu']", ".sample(rng, n)"),
    (lambda: normal().std(), AttributeError, "mu is random and has no std", "after"),
    (lambda: normal().log_prob(1.0), AttributeError, "mu", "fit.predictive('mu')", ".log_density(values)"),
    (lambda: normal(plate=K).reshape(2, 1), AttributeError, "mu", "declare it on"),
    (lambda: ng.Gamma("g", mu=1.0, sigma=2.0), TypeError, "g", "It takes shape,"),
    (lambda: ng.Beta("q", alpha=1.0, beta=2.0), TypeError, "q", "It takes a,"),
    (lambda: ng.GaussianChain("x", 0.0, 1.0, A=1.0, Q=1.0, plate=T), TypeError, "x", "It takes initial_mean,"),
    (lambda: ng.Normal("y", [normal("a"), normal("b"), 0.0], 1.0, plate=N, observed=DATA), TypeError,
     "y", "mean", "list", "natgrad.concatenate([…])"),
    (lambda: ng.concatenate(vector(), normal()), TypeError, "concatenate", "v"),
    (lambda: ng.block_diag([np.eye(2), np.eye(2)]), TypeError, "block_diag", "block", "(2, 2, 2)", "block_diag(A, B)"),
    # -- states and functions
    (lambda: ng.Normal("y", walk(), 1.0, plate=T, observed=np.zeros(5)), NotConjugate,
     "y", "mean", "x[:, 0]", "natgrad.dot(C, x)"),
    (lambda: ng.Normal("y", walk()[0], 1.0, plate=T, observed=np.zeros(5)), NotConjugate,
     "y", "mean", "x[…]", "x[:, 0]", "natgrad.dot(C, x)"),
    (lambda: ng.Normal("y", process(), 1.0, plate=N, observed=DATA), TypeError, "y", "mean", "GaussianProcess", "f(X)"),
    (lambda: process()[category()], TypeError, "f[…]", "f(X)[z]"),
    (lambda: process()([[0.5]])[category()], PlateMismatch, "f", "1", "GaussianProcess(plate=)"),
    (lambda: normal(plate=K)[[0, 1, 1]][[3]], IndexError, "mu[…]", "index[0]", "3"),
    (lambda: normal(plate=K)[0][0], PlateMismatch, "mu[…]", "choose"),
    # -- fits and queries
    (lambda: asked().query(["a"], given=["b"]), TypeError, "query", "given", "1}, got ['b']"),
    (lambda: fitted().mu, AttributeError, "a fit has no mu", "fit['mu']"),
    (lambda: fitted().mean("mu"), AttributeError, "a fit has no mean", "each"),
    (lambda: ng.Network(ng.Normal("y", normal(), 1.0, plate=N, observed=DATA)).fit(n_iter=10), TypeError,
     "fit() got an unexpected keyword argument 'n_iter'", "fit()", "n_iter", "max_steps="),
    (lambda: ng.Network(ng.Normal("y", normal(), 1.0, plate=N, observed=DATA)).fit(epochs=10), TypeError,
     "fit() got an unexpected keyword argument 'epochs'", "fit()", "epochs", "max_steps="),
    (lambda: ng.LDA(3, max_step=9), TypeError, "LDA()", "max_step", "max_passes="),
    (lambda: ng.MatrixFactorization(3, max_step=9), TypeError, "MatrixFactorization()", "max_step", "max_steps="),
]
