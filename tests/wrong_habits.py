"""What people type who come from other libraries, and the whole text that they read."""

import numpy as np
from wrong_declarations import DATA, K, N, category, gamma, normal, vector

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

T = ng.Plate("t", 5)
TAKES = "It takes mean, precision, plate, observed, mask"


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


COMPARED = (
    "{} is random, and comparing it with {} is no expression: a component that depends on a "
    "condition is chosen by a Bernoulli or a "
    "Categorical, as in mu[z]"
)
TABLE = (
    "a is random: what follows from coins by and, or, not is a table of them, as in "
    "Bernoulli('both', natgrad.table([[0.0, 0.0], [0.0, 1.0]])[a, b])"
)
STATES = (
    ". mean takes a constant, a Normal, a dot, a sum or a known multiple of these. Its states "
    "are vectors: one entry of each is x[:, 0], "
    "and natgrad.dot(C, x) adds them up"
)
POWER = (
    "tau ** {}: the expectation of a power has no closed form. A Normal takes a precision: a "
    "Gamma, a HalfCauchy and a HalfNormal are "
    "precisions as they are, so write tau"
)
WHOLE = "mu: a remainder, a whole part and rounding have no closed form; round data beforehand"
ELEMENTS = (
    "mu is random and has no elements to go through: its sum along a plate is "
    "natgrad.sum_over(mu, plate), and one of its elements mu[0]"
)
# fmt: off
HABITS = [
    # -- as if they were numbers
    (lambda: category() == 0, TypeError, COMPARED.format("z", 0)),
    (lambda: normal(plate=K)[category() == 1], TypeError, COMPARED.format("z", 1)),
    (lambda: coin() != 1, TypeError, COMPARED.format("a", 1)),
    (lambda: normal() == np.float64(0.0), TypeError, COMPARED.format("mu", 0.0)),
    (lambda: max(normal(), normal("m")), TypeError, COMPARED.format("m", "mu")),
    (lambda: coin() & coin("b"), TypeError, TABLE),
    (lambda: coin() | coin("b"), TypeError, TABLE),
    (lambda: ~coin(), TypeError, TABLE),
    (lambda: coin() ^ True, TypeError, TABLE),
    (lambda: normal() % 2, NotConjugate, WHOLE),
    (lambda: normal() // 2, NotConjugate, WHOLE),
    (lambda: round(normal()), NotConjugate, WHOLE),
    (lambda: sum(normal(plate=K)), TypeError, ELEMENTS),
    (lambda: list(normal(plate=K)), TypeError, ELEMENTS),
    (lambda: 1 / gamma() ** 2, NotConjugate, POWER.format(2)),
    (lambda: ng.Normal("y", 0.0, gamma() ** -2, plate=N, observed=DATA), NotConjugate, POWER.format(-2)),
    # -- as elsewhere
    (lambda: normal("y").observe(DATA), AttributeError,
     "y is random and has no observe: data are given where it is declared: observed=values"),
    (lambda: normal().random(), AttributeError,
     "mu is random and has no random: network.simulate(seed) draws from the prior; after a fit, fit['mu'].sample(rng, n)"),
    (lambda: normal().std(), AttributeError,
     "mu is random and has no std: after a fit, fit['mu'].std() is its standard deviation"),
    (lambda: normal().log_prob(1.0), AttributeError,
     "mu is random and has no log_prob: after a fit, fit.predictive('mu').log_density(values) is that of data"),
    (lambda: normal(plate=K).reshape(2, 1), AttributeError,
     "mu is random and has no reshape: it has plates in place of axes, mu.plates: declare it on those that are needed"),
    (lambda: ng.Gamma("g", mu=1.0, sigma=2.0), TypeError,
     "'g': a Gamma has no mu: its mean is shape / rate, and its variance shape / rate². It "
     "takes shape, rate, plate, observed, mask"),
    (lambda: ng.Beta("q", alpha=1.0, beta=2.0), TypeError,
     "'q': a Beta has no alpha: write a=. It takes a, b, plate, observed, mask"),
    (lambda: ng.GaussianChain("x", 0.0, 1.0, A=1.0, Q=1.0, plate=T), TypeError,
     "'x': a GaussianChain has no A: write dynamics=. It takes initial_mean, initial_precision, "
     "dynamics, noise_precision, plate, "
     "inputs, size, lengths, observed"),
    (lambda: ng.Normal("y", [normal("a"), normal("b"), 0.0], 1.0, plate=N, observed=DATA), TypeError,
     "'y': mean must be numbers, a node or an expression, got list: several nodes in one place are one node on a plate, "
     "Normal(name, …, plate=Plate(…)); a vector of them is natgrad.concatenate([…])"),
    (lambda: ng.concatenate(vector(), normal()), TypeError,
     "concatenate takes a list, as in concatenate([a, b]), got v"),
    (lambda: ng.block_diag([np.eye(2), np.eye(2)]), TypeError,
     "block_diag: block 0 must be one matrix, got shape (2, 2, 2): several are written one "
     "after the other, as in block_diag(A, B)"),
    # -- states and functions
    (lambda: ng.Normal("y", walk(), 1.0, plate=T, observed=np.zeros(5)), NotConjugate,
     "'y': mean cannot be the GaussianChain x: the edge x → y is not conjugate" + STATES),
    (lambda: ng.Normal("y", walk()[0], 1.0, plate=T, observed=np.zeros(5)), NotConjugate,
     "'y': mean cannot be x[…], a vector: the edge x[…] → y is not conjugate" + STATES),
    (lambda: ng.Normal("y", process(), 1.0, plate=N, observed=DATA), TypeError,
     "'y': mean must be numbers, a node or an expression, got GaussianProcess: write f(X), its values at the inputs X"),
    (lambda: process()[category()], TypeError,
     "f[…]: a function is read at inputs first, and chosen then: f(X)[z]"),
    (lambda: process()([[0.5]])[category()], PlateMismatch,
     "f(X)[…] got 1 indices, and 'f' has 0 plate(s): give GaussianProcess(plate=) one for the functions to choose from"),
    (lambda: normal(plate=K)[[0, 1, 1]][[3]], IndexError,
     "mu[…]: index[0] = 3 is outside mu[…], which was read from plate 'k', with elements 0 … 2 (1 such)"),
    (lambda: normal(plate=K)[0][0], PlateMismatch,
     "mu[…]: one element of plate 'k' is chosen already, and there is none to choose from"),
    # -- fits and queries
    (lambda: asked().query(["a"], given=["b"]), TypeError,
     "query: given must be states by name, as in given={'wet': 1}, got ['b']"),
    (lambda: fitted().mu, AttributeError, "a fit has no mu: fit['mu'] is the factor of that node"),
    (lambda: fitted().mean("mu"), AttributeError, "a fit has no mean: each node has, as in fit['mu'].mean"),
    (lambda: ng.Network(ng.Normal("y", normal(), 1.0, plate=N, observed=DATA)).fit(n_iter=10), TypeError,
     "fit() has no argument 'n_iter': write max_steps="),
    (lambda: ng.Network(ng.Normal("y", normal(), 1.0, plate=N, observed=DATA)).fit(epochs=10), TypeError,
     "fit() has no argument 'epochs': write max_steps="),
]
