"""Wrong declarations, and the words that a user must read: class, argument, value, remedy; `test_mistakes.py` makes them all."""

import numpy as np

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

nan, inf = np.nan, np.inf
N, K = ng.Plate("n", 3), ng.Plate("k", 2)  # three observations, two components
DATA = [0.1, 0.2, 0.3]
HALF, TABLE = [0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]]


def normal(name="mu", **options):
    return ng.Normal(name, 0.0, 1.0, **options)


def gamma(name="tau", **options):
    return ng.Gamma(name, 1.0, 1.0, **options)


def beta(name="q", **options):
    return ng.Beta(name, 1.0, 1.0, **options)


def vector(name="v", size=2, **options):
    return ng.MultivariateNormal(name, np.zeros(size), np.eye(size), **options)


def wishart(name="W", size=2, **options):
    return ng.Wishart(name, 3.0, np.eye(size), **options)


def dirichlet(name="p", size=2, **options):
    return ng.Dirichlet(name, 1.0, size=size, **options)


def category(name="z", **options):
    return ng.Categorical(name, HALF, plate=N, **options)


def read(mean, **options):
    """A Normal on plate n that reads an expression."""
    return ng.Normal("y", mean, 1.0, plate=N, **options)


def chain(initial=HALF, transition=TABLE, plate=N, **options):
    return ng.MarkovChain("z", initial, transition, plate=plate, **options)


def weighted_factors():
    w = normal("w", plate=ng.Plate("f", 2, weight=[1, 2]))
    return ng.Network(read(ng.dot(np.ones((3, 2)), w), observed=DATA))


def left_out():
    w = normal("w", plate=ng.Plate("f", 2, weight=[1, 0]))
    return ng.Network(read(w[[0, 1, 0]], observed=DATA))


def scaled_by_itself():
    tau = gamma(plate=K)
    return ng.MultivariateNormal("y", [0.0, 0.0], tau[1] * ng.diag(tau), plate=N, observed=np.zeros((3, 2)))


def gated_and_indexed():
    s = ng.Categorical("s", HALF, plate=K)
    return read(normal(plate=(K, ng.Plate("l", 2)))[s[category()], s[1]])


# fmt: off
DECLARATIONS = [
    # -- not conjugate: the edge, and what would fit
    (lambda: ng.Normal("y", gamma(), 1.0), NotConjugate, "y", "mean", "tau", "Normal"),
    (lambda: ng.Normal("y", 0.0, normal()), NotConjugate, "y", "precision", "mu", "Gamma", "Exponential"),
    (lambda: ng.Normal("y", 0.0, wishart()), NotConjugate, "y", "precision", "W", "Gamma", "Exponential"),
    (lambda: ng.Normal("y", vector(), 1.0), NotConjugate, "y", "mean", "v", "Normal"),
    (lambda: ng.Normal("y", 2 * vector("w"), 1.0), NotConjugate, "y", "mean", "2·w", "Normal"),
    (lambda: ng.Normal("y", category(observed=[0, 1, 0]), 1.0, plate=N), NotConjugate,
     "y", "mean", "natgrad.table(numbers)[z]", "mu[z]"),
    (lambda: ng.MultivariateNormal("y", normal(), np.eye(2)), NotConjugate, "y", "mean", "mu", "MultivariateNormal"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), gamma()), NotConjugate, "y", "precision", "tau", "numpy.eye(size)"),
    (lambda: ng.Gamma("y", gamma(), 1.0), NotConjugate, "y", "shape", "tau", "GammaShape"),
    (lambda: ng.Dirichlet("y", normal(), size=3), NotConjugate, "y", "concentration", "mu", "Gamma", "Exponential"),
    (lambda: ng.Wishart("y", gamma(), np.eye(2)), NotConjugate, "y", "dof takes known"),
    (lambda: ng.Poisson("y", normal()), NotConjugate, "y", "rate", "mu", "NegativeBinomial(name, shape, logit=…)"),
    (lambda: ng.Categorical("y", beta()), NotConjugate, "y", "probs", "q", "Dirichlet"),
    (lambda: ng.Bernoulli("y", dirichlet()), NotConjugate, "y", "prob", "p", "Beta"),
    (lambda: ng.Categorical("y", chain(), plate=N), NotConjugate, "y", "probs", "natgrad.table(numbers)[z]", "mu[z]"),
    (lambda: normal("a") / normal("b"), NotConjugate, "a / b", "Normal", "Gamma"),
    (lambda: 1.0 / gamma(), NotConjugate, "constant / tau", "Normal", "Gamma"),
    (lambda: normal("a") ** 2, NotConjugate, "a ** 2", "dot(numpy.stack([x, x**2], -1), w)"),
    (lambda: np.ones(4) @ normal("a"), TypeError, "natgrad.dot(rows, a)", "@ is not defined"),
    (lambda: vector() @ np.ones((2, 4)), TypeError, "natgrad.dot(rows, v)", "@ is not defined"),
    (lambda: np.ones((4, 3)) @ vector(), PlateMismatch, "matrix", "[4, 3]", "dot(rows, v)"),
    (lambda: ng.Normal("y", np.ones((4, 2)) @ vector(), 1.0), NotConjugate, "y", "mean", "array[4", "natgrad.dot(rows, v)"),
    (lambda: np.dot(np.ones((4, 2)), vector()), TypeError, "v", "natgrad.dot(X, w)"),
    (lambda: ng.Normal("y", 0.0, gamma("a") + gamma("b")), NotConjugate, "y", "precision", "(a + b)", "Gamma", "Exponential"),
    (lambda: normal("a") + gamma("b"), NotConjugate, "a + b", "Normal", "MultivariateNormal"),
    (lambda: normal("a") * gamma("t"), NotConjugate, "t·a", "Normal"),
    (lambda: -gamma("t"), ValueError, "t · x", "x", "-1"),
    (lambda: gamma() * [1.0, -2.0], ValueError, "tau · x", "x[1]", "-2"),
    (lambda: 1 - beta(), NotConjugate, "-1·q", "scaled"),
    (lambda: ng.Normal("y", 0.0, ng.dot(gamma("a", plate=K), gamma("b", plate=K))), NotConjugate,
     "y", "precision", "dot(a, b)", "Gamma", "Exponential"),
    (lambda: ng.dot(vector(), normal()), NotConjugate, "dot", "MultivariateNormal", "Normal"),
    (lambda: (lambda a: a * a)(normal("a")), NotConjugate, "a·a", "Use two nodes"),
    (lambda: (lambda a: a + a)(normal("a")), NotConjugate, "a + a", "dot(X1 + X2, w)"),
    (lambda: (lambda a: ng.dot(a, a))(vector("a")), NotConjugate, "dot", "Use two nodes"),
    (lambda: (lambda m: read(m[category("z")] + m[category("w")]))(normal("m", plate=K)), NotConjugate, "y", "Use two nodes"),
    (lambda: ng.Network(read((lambda m: m[[0, 1, 0]] - m[[1, 1, 1]])(normal("m", plate=K)), observed=DATA)).fit(), NotConjugate,
     "y", "Remove it, or"),
    (lambda: ng.diag(normal("a", plate=K)), NotConjugate, "diag(a)", "Gamma"),
    (lambda: ng.diag(np.ones(3)), TypeError, "diag", "ndarray", "numpy.diag(values)"),
    # -- plates and shapes
    (lambda: ng.Plate(3, 3), TypeError, "3", "a plate's name must"),
    (lambda: ng.Plate("n", 0), ValueError, "plate 'n'", "size", "0"),
    (lambda: ng.Plate("n", 3.0), TypeError, "plate 'n'", "size", "3.0"),
    (lambda: ng.Plate("n", 3, weight=[1, 2]), PlateMismatch, "plate 'n'", "weight", "(2,)", "one number for"),
    (lambda: ng.Plate("n", 3, weight=[1, 2, -1]), ValueError, "plate 'n'", "weight[2]", "-1", "give elements that"),
    (lambda: ng.Plate("n", 3, weight=[1, nan, 1]), ValueError, "plate 'n'", "weight[1]", "nan"),
    (lambda: ng.Plate("n", 3, weight=[0, 0, 0]), ValueError, "plate 'n'", "weight", "learn", "there is nothing"),
    (lambda: ng.Normal("y", 0.0, 1.0, plate=3), TypeError, "y", "plate", "3", "Plate('name', size)"),
    (lambda: ng.Normal("y", 0.0, 1.0, plate=(N, N)), ValueError, "y", "plate", "use two plates"),
    (lambda: ng.Normal("y", normal(plate=N), 1.0), PlateMismatch, "y", "mu[…]"),
    (lambda: read(normal(plate=K)), PlateMismatch, "y", "mu[…]"),
    (lambda: read(normal(plate=ng.Plate("n", 4))), PlateMismatch, "y", "Plate"),
    (lambda: ng.Network(read(normal(plate=ng.Plate("n", 3, weight=[1, 2, 3])), observed=DATA)), PlateMismatch, "y", "Plate"),
    (lambda: read([0.0, 1.0]), PlateMismatch, "y", "mean", "(2,)", "leading axes may"),
    (lambda: ng.Normal("y", [0.0, 1.0], 1.0), PlateMismatch, "y", "mean", "(2,)", "Plate('name', 2)"),
    (lambda: ng.Dirichlet("y", np.ones((4, 2)), plate=N), PlateMismatch, "y", "concentration", "(4, 2)", "leading axes may"),
    (lambda: ng.Binomial("y", [2, 3], 0.5, plate=N, observed=[1, 1, 1]), PlateMismatch,
     "y", "trials", "(2,)", "leading axes may"),
    (lambda: read(normal() + np.array([1.0, 2.0])), PlateMismatch, "y", "(2,)", "leading axes may"),
    (lambda: weighted_factors().fit(), PlateMismatch, "w", "lies", "y"),
    (lambda: left_out().fit(), PlateMismatch, "y", "Give it a"),
    (lambda: ng.Network(scaled_by_itself()).fit(), NotConjugate, "y", "Use two nodes"),
    (lambda: gated_and_indexed(), NotConjugate, "y", "Use two nodes"),
    (lambda: read(ng.dot(np.ones((4, 2)), vector())), PlateMismatch, "y", "(4, 2)", "leading axes may"),
    (lambda: ng.dot(np.ones((5, 3)), vector()), PlateMismatch, "dot", "the vectors have"),
    (lambda: ng.dot(np.ones((2, 5)), vector()), PlateMismatch, "dot", "give the array's"),
    (lambda: ng.dot([[1.0, 1e101]], vector()), ValueError, "dot", "1e+101", "give the data"),
    (lambda: normal(plate=K)[[1, 2, 1]], IndexError, "mu[…]", "index[1]", "2", "give index -"),
    (lambda: ng.dot(np.ones(2), np.ones(2)), TypeError, "dot needs at least one node", "NumPy"),
    (lambda: ng.dot([[1.0, nan]], vector()), ValueError, "dot", "nan"),
    (lambda: ng.dot(["a", "b"], vector()), TypeError, "dot", "left", "'a'"),
    (lambda: vector("a", 2) + vector("b", 3), PlateMismatch, "a + b", "a + b: the"),
    (lambda: read(ng.dot(normal("a", plate=N), normal("b", plate=N))), PlateMismatch, "y", "dot", "Multiply"),
    (lambda: ng.Normal("y", ng.dot(normal("a", plate=(N, K)), normal("b", plate=(N, K))), 1.0), PlateMismatch,
     "y", "dot(a, b, over=plate)"),
    (lambda: ng.dot(normal("a", plate=K), normal("b", plate=K), over="k"), TypeError, "dot", "over", "'k'"),
    (lambda: ng.MultivariateNormal("w", np.zeros(2), ng.diag(gamma())), PlateMismatch, "w", "diag"),
    (lambda: ng.MultivariateNormal("w", np.zeros(2), ng.diag(gamma(plate=N))), PlateMismatch, "w", "diag", "2 is needed"),
    (lambda: ng.MultivariateNormal("y", 0.0, 1.0), PlateMismatch, "y", "size="),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), wishart(size=3)), PlateMismatch, "y", "precision", "W", "2 is needed"),
    (lambda: read(ng.dot(normal("a", plate=(N, K)), normal("b", plate=(N, K)), over=N)), PlateMismatch, "y", "dot", "Multiply"),
    # -- indices
    (lambda: normal(plate=K)[[0, 1, 2]], IndexError, "mu[…]", "index[2]"),
    (lambda: normal(plate=K)[[0, -1, 1]], IndexError, "mu[…]", "index[1]", "-1"),
    (lambda: normal(plate=K)[2], IndexError, "mu[…]", "index", "2"),
    (lambda: normal(plate=K)[[0.0, 1.0]], TypeError, "mu[…]", "index", "floats", "np.unique(ids, return_inverse=True)[1]"),
    (lambda: normal(plate=K)[[0.0, nan]], TypeError, "mu[…]", "index", "floats", "np.unique(ids, return_inverse=True)[1]"),
    (lambda: normal(plate=K)[["a", "b"]], TypeError, "mu[…]", "index", "'a'", "np.unique(ids, return_inverse=True)[1]"),
    (lambda: normal(plate=K)[[]], ValueError, "mu[…]", "index", "give one integer"),
    (lambda: normal(plate=K)[np.ma.masked_equal([0, 1, 1], 0)], ValueError, "mu[…]", "index[0]", "read", "drop what has"),
    (lambda: normal()[[0, 0, 0]], PlateMismatch, "mu[…]", "mu"),
    (lambda: (normal("a", plate=K) + normal("b", plate=K))[[0, 1]], TypeError, "(a + b) cannot be indexed", "index", "indexed"),
    (lambda: read(normal(plate=K)[[0, 1]]), PlateMismatch, "y", "give one integer"),
    (lambda: ng.Normal("y", normal(plate=K)[[0, 1, 0]], 1.0, plate=(N, ng.Plate("m", 3))), PlateMismatch,
     "y", "plate.index(values)"),
    (lambda: N.index([0, 1]), PlateMismatch, "plate 'n'", "index", "(2,)", "one integer for"),
    (lambda: read(normal(plate=K)[ng.Plate("m", 3).index([0, 1, 0])]), PlateMismatch, "y", "3}"),
    (lambda: normal(plate=N)[category()], PlateMismatch, "mu[z]", "z", "n", "mu"),
    (lambda: normal(plate=K)[normal("z", plate=N)], TypeError, "mu[z]", "Categorical", "Bernoulli"),
    (lambda: normal(plate=K)[[0, 1]][category()], PlateMismatch, "mu[…]", "plate", "a category must"),
    (lambda: bool(normal()), TypeError, "mu is random", "mu is random: it"),
    # -- parameters
    (lambda: ng.Normal("y", 0.0, -1.0), ValueError, "y", "precision", "-1"),
    (lambda: ng.Normal("y", 0.0, [1.0, 0.0, 1.0], plate=N, observed=DATA), ValueError, "y", "precision[1]", "0"),
    (lambda: ng.Normal("y", nan, 1.0), ValueError, "y", "mean", "nan"),
    (lambda: ng.Normal("y", [0.0, inf, 0.0], 1.0, plate=N), ValueError, "y", "mean[1]", "inf"),
    (lambda: ng.Normal("y", "mu", 1.0), TypeError, "y", "mean", "'mu'"),
    (lambda: ng.Normal("y", None, 1.0), TypeError, "y", "mean", "None"),
    (lambda: ng.Normal("y", np.ma.masked_equal([0.0, 1.0, 2.0], 1.0), 1.0, plate=N), ValueError,
     "y", "mean[1]", "may", "observed="),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), [[1.0, 0.5], [0.2, 1.0]]), ValueError, "y", "precision", "0.5", "m.T"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), [[1.0, 2.0], [2.0, 1.0]]), ValueError, "y", "precision", "-1"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), [np.eye(2), -np.eye(2), np.eye(2)], plate=N), ValueError,
     "y", "precision[1]", "-1"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), np.ones(2)), PlateMismatch, "y", "precision", "(2,)", "numpy.diag(values)"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), np.eye(3)), PlateMismatch, "y", "precision", "(3, 3)", "(2, 2)"),
    (lambda: ng.Wishart("y", 1.0, np.eye(2)), ValueError, "y", "dof", "1"),
    (lambda: ng.Wishart("y", [3.0, 1.0, 3.0], np.eye(2), plate=N), ValueError, "y", "dof[1]"),
    (lambda: ng.Wishart("y", 3.0, 1.0), PlateMismatch, "y", "size="),
    (lambda: ng.Dirichlet("y", 1.0), PlateMismatch, "y", "size="),
    (lambda: ng.Dirichlet("y", 1.0, size=2.5), TypeError, "y", "size", "2.5"),
    (lambda: ng.Dirichlet("y", [1.0, 0.0]), ValueError, "y", "concentration[1]", "0"),
    (lambda: ng.Dirichlet("y", [1.0, 1.0], size=3), PlateMismatch, "y", "concentration", "(2,)", "(3,)"),
    (lambda: ng.Bernoulli("y", 2.0), ValueError, "y", "prob", "2"),
    (lambda: ng.Categorical("y", [0.5, 0.6]), ValueError, "y", "probs", "1.1", "divide by the"),
    (lambda: ng.Categorical("y", 0.5), ValueError, "y", "probs", "number"),
    (lambda: ng.Binomial("y", 2.5, 0.5, observed=1), ValueError, "y", "trials", "2.5"),
    (lambda: normal() * [1.0, nan], ValueError, "mu · x", "x[1]", "nan"),
    (lambda: normal() + "x", TypeError, "mu + x", "'x'"),
    (lambda: normal() / 0, ValueError, "mu / x", "x", "0"),
]
# fmt: on
