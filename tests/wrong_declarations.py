"""Wrong declarations and the whole text that a user reads; `test_mistakes.py` makes them all, with wrong data and fits."""

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
    (lambda: ng.Normal("y", gamma(), 1.0), NotConjugate,
     "'y': mean cannot be the Gamma tau: the edge tau → y is not conjugate. mean takes a constant, a Normal, a dot, a sum "
     "or a known multiple of these"),
    (lambda: ng.Normal("y", 0.0, normal()), NotConjugate,
     "'y': precision cannot be the Normal mu: the edge mu → y is not conjugate. precision takes a positive constant, a "
     "Gamma or an Exponential (a known multiple of it too)"),
    (lambda: ng.Normal("y", 0.0, wishart()), NotConjugate,
     "'y': precision cannot be the Wishart W: the edge W → y is not conjugate. precision takes a positive constant, a Gamma "
     "or an Exponential (a known multiple of it too)"),
    (lambda: ng.Normal("y", vector(), 1.0), NotConjugate,
     "'y': mean cannot be the MultivariateNormal v: the edge v → y is not conjugate. mean takes a constant, a Normal, a "
     "dot, a sum or a known multiple of these"),
    (lambda: ng.Normal("y", 2 * vector("w"), 1.0), NotConjugate,
     "'y': mean cannot be 2·w, a vector: the edge 2·w → y is not conjugate. mean takes a constant, a Normal, a dot, a sum "
     "or a known multiple of these"),
    (lambda: ng.Normal("y", category(observed=[0, 1, 0]), 1.0, plate=N), NotConjugate,
     "'y': mean cannot be the Categorical z: the edge z → y is not conjugate. mean takes a constant, a Normal, a dot, a sum "
     "or a known multiple of these. To choose numbers or components with a category write natgrad.table(numbers)[z] or mu[z]"),
    (lambda: ng.MultivariateNormal("y", normal(), np.eye(2)), NotConjugate,
     "'y': mean cannot be the Normal mu: the edge mu → y is not conjugate. mean takes a constant vector, a "
     "MultivariateNormal, a sum or a known multiple of these"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), gamma()), NotConjugate,
     "'y': precision cannot be the Gamma tau: the edge tau → y is not conjugate. precision takes a positive-definite "
     "constant, a Wishart, or diag of a Gamma. For a multiple of the identity write tau * numpy.eye(size)"),
    (lambda: ng.Gamma("y", gamma(), 1.0), NotConjugate,
     "'y': shape cannot be the Gamma tau: the edge tau → y has no closed-form message. shape takes known numbers, or what is "
     "declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Dirichlet("y", normal(), size=3), NotConjugate,
     "'y': concentration cannot be the Normal mu: the edge mu → y is not conjugate. concentration takes a positive constant, a "
     "Gamma or an Exponential (a known multiple of it too)"),
    (lambda: ng.Wishart("y", gamma(), np.eye(2)), NotConjugate,
     "'y': dof cannot be random, but tau was given: the edge tau → y has no closed-form message. dof takes known numbers"),
    (lambda: ng.Poisson("y", normal()), NotConjugate,
     "'y': rate cannot be the Normal mu: the edge mu → y is not conjugate. rate takes a positive constant, a Gamma or an "
     "Exponential (a known multiple of it too). For a log link write NegativeBinomial(name, shape, logit=…)"),
    (lambda: ng.Categorical("y", beta()), NotConjugate,
     "'y': probs cannot be the Beta q: the edge q → y is not conjugate. probs takes constant probabilities or a Dirichlet"),
    (lambda: ng.Bernoulli("y", dirichlet()), NotConjugate,
     "'y': prob cannot be the Dirichlet p: the edge p → y is not conjugate. prob takes a constant probability or a Beta"),
    (lambda: ng.Categorical("y", chain(), plate=N), NotConjugate,
     "'y': probs cannot be the MarkovChain z: the edge z → y is not conjugate. probs takes constant probabilities or a "
     "Dirichlet. To choose numbers or components with a category write natgrad.table(numbers)[z] or mu[z]"),
    (lambda: normal("a") / normal("b"), NotConjugate,
     "a / b: the expectation of a ratio has no closed form; give Normal a precision and Gamma a rate, which multiply "
     "instead of divide"),
    (lambda: 1.0 / gamma(), NotConjugate,
     "constant / tau: the expectation of a ratio has no closed form; give Normal a precision and Gamma a rate, which "
     "multiply instead of divide"),
    (lambda: normal("a") ** 2, NotConjugate,
     "a ** 2: the expectation of a power has no closed form; only sums, known multiples, products of two different nodes "
     "and dot do. Powers of known numbers are columns: dot(numpy.stack([x, x**2], -1), w)"),
    (lambda: np.ones(4) @ normal("a"), TypeError,
     "@ is not defined for a: write natgrad.dot(rows, a), one row for each element"),
    (lambda: vector() @ np.ones((2, 4)), TypeError,
     "@ is not defined for v: write natgrad.dot(rows, v), one row for each element"),
    (lambda: np.ones((4, 3)) @ vector(), PlateMismatch,
     "matrix @ v: the matrix must have shape [any, 2], got [4, 3]; for a row of numbers for each element write dot(rows, v)"),
    (lambda: ng.Normal("y", np.ones((4, 2)) @ vector(), 1.0), NotConjugate,
     "'y': mean cannot be array[4, 2] @ v, a vector: the edge array[4, 2] @ v → y is not conjugate. mean takes a constant, a "
     "Normal, a dot, a sum or a known multiple of these. For a row of numbers for each element write natgrad.dot(rows, v)"),
    (lambda: np.dot(np.ones((4, 2)), vector()), TypeError,
     "v is random and cannot become an array: for X @ w write natgrad.dot(X, w)"),
    (lambda: ng.Normal("y", 0.0, gamma("a") + gamma("b")), NotConjugate,
     "'y': precision cannot be (a + b), a sum of rates: the edge (a + b) → y is not conjugate. precision takes a positive "
     "constant, a Gamma or an Exponential (a known multiple of it too)"),
    (lambda: normal("a") + gamma("b"), NotConjugate,
     "a + b: a real number plus a positive number has no closed form; a sum is of Normal scalars and dots, or of "
     "MultivariateNormal vectors (and constants)"),
    (lambda: normal("a") * gamma("t"), NotConjugate,
     "t·a: a positive number times a real number has no closed form; a real number is multiplied by a Normal or a constant"),
    (lambda: -gamma("t"), ValueError,
     "t · x: x = -1 must be > 0, as t is a positive number"),
    (lambda: gamma() * [1.0, -2.0], ValueError,
     "tau · x: x[1] = -2 must be > 0, as tau is a positive number (1 such)"),
    (lambda: 1 - beta(), NotConjugate,
     "-1·q: a probability cannot be scaled, only Normals, vectors, Gammas and Wisharts can"),
    (lambda: ng.Normal("y", 0.0, ng.dot(gamma("a", plate=K), gamma("b", plate=K))), NotConjugate,
     "'y': precision cannot be dot(a, b), a sum of rates: the edge dot(a, b) → y is not conjugate. precision takes a positive "
     "constant, a Gamma or an Exponential (a known multiple of it too)"),
    (lambda: ng.dot(vector(), normal()), NotConjugate,
     "dot(v, mu): both sides must be MultivariateNormal vectors, or Normal scalars along a plate (or known numbers), not a "
     "real number and a vector"),
    (lambda: (lambda a: a * a)(normal("a")), NotConjugate,
     "a·a: 'a' stands on both sides, and the product of expectations is not the expectation of the product. Use two nodes"),
    (lambda: (lambda a: a + a)(normal("a")), NotConjugate,
     "a + a: 'a' stands on both sides, and the product of expectations is not the expectation of the product. Write it "
     "once: 2 * a, b * (a + c), or dot(X1 + X2, w)"),
    (lambda: (lambda a: ng.dot(a, a))(vector("a")), NotConjugate,
     "dot(a, a): 'a' stands on both sides, and the product of expectations is not the expectation of the product. Use two "
     "nodes"),
    (lambda: (lambda m: read(m[category("z")] + m[category("w")]))(normal("m", plate=K)), NotConjugate,
     "'y' reads 'm' twice through categories; one element may be read by both, and then the product of expectations is not "
     "the expectation of the product. Use two nodes"),
    (lambda: ng.Network(read((lambda m: m[[0, 1, 0]] - m[[1, 1, 1]])(normal("m", plate=K)), observed=DATA)).fit(), NotConjugate,
     "'y' reads element 1 of 'm' twice (its element 1): the product of expectations is not the expectation of the product. "
     "Remove it, or use two nodes"),
    (lambda: ng.diag(normal("a", plate=K)), NotConjugate,
     "diag(a): a precision matrix needs positive entries, a Gamma along a plate, not a real number"),
    (lambda: ng.diag(np.ones(3)), TypeError,
     "diag takes a Gamma along a plate, got ndarray: a known diagonal is written numpy.diag(values)"),
    # -- plates and shapes
    (lambda: ng.Plate(3, 3), TypeError,
     "a plate's name must be a non-empty string, got 3"),
    (lambda: ng.Plate("n", 0), ValueError,
     "plate 'n': size must be a whole number ≥ 1, got 0"),
    (lambda: ng.Plate("n", 3.0), TypeError,
     "plate 'n': size must be a whole number ≥ 1, got 3.0"),
    (lambda: ng.Plate("n", 3, weight=[1, 2]), PlateMismatch,
     "plate 'n': weight has shape (2,), but (3,) is needed: one number for each element"),
    (lambda: ng.Plate("n", 3, weight=[1, 2, -1]), ValueError,
     "plate 'n': weight[2] = -1 must be ≥ 0 (1 such): give elements that do not count weight 0"),
    (lambda: ng.Plate("n", 3, weight=[1, nan, 1]), ValueError,
     "plate 'n': weight[1] = nan must be finite (1 such)"),
    (lambda: ng.Plate("n", 3, weight=[0, 0, 0]), ValueError,
     "plate 'n': weight is 0 everywhere: there is nothing to learn from"),
    (lambda: ng.Normal("y", 0.0, 1.0, plate=3), TypeError,
     "'y': plate must be a Plate or several, got 3: write Plate('name', size)"),
    (lambda: ng.Normal("y", 0.0, 1.0, plate=(N, N)), ValueError,
     "'y': plate 'n' is given twice: use two plates with names of their own"),
    (lambda: ng.Normal("y", normal(plate=N), 1.0), PlateMismatch,
     "'y' reads mu, which repeats over plate 'n', but 'y' has no plates: index mu[…] with integers or a category, sum over "
     "the plate with dot, or put 'y' on it"),
    (lambda: read(normal(plate=K)), PlateMismatch,
     "'y' reads mu, which repeats over plate 'k', but 'y' has plates {'n': 3}: index mu[…] with integers or a category, sum "
     "over the plate with dot, or put 'y' on it"),
    (lambda: read(normal(plate=ng.Plate("n", 4))), PlateMismatch,
     "'y' reads mu: there are two plates called 'n', of sizes 4 and 3; use one Plate for both, or two names"),
    (lambda: ng.Network(read(normal(plate=ng.Plate("n", 3, weight=[1, 2, 3])), observed=DATA)), PlateMismatch,
     "'y': there are two plates called 'n', with different weights; use one Plate for both, or two names"),
    (lambda: read([0.0, 1.0]), PlateMismatch,
     "'y': mean has shape (2,), but (3,) is needed (plates {'n': 3}); leading axes may be left out or be 1"),
    (lambda: ng.Normal("y", [0.0, 1.0], 1.0), PlateMismatch,
     "'y': mean has shape (2,), but one number is needed as 'y' has no plates: give plate=Plate('name', 2)"),
    (lambda: ng.Dirichlet("y", np.ones((4, 2)), plate=N), PlateMismatch,
     "'y': concentration has shape (4, 2), but (3, 2) is needed (plates {'n': 3}); leading axes may be left out or be 1"),
    (lambda: ng.Binomial("y", [2, 3], 0.5, plate=N, observed=[1, 1, 1]), PlateMismatch,
     "'y': trials has shape (2,), but (3,) is needed (plates {'n': 3}); leading axes may be left out or be 1"),
    (lambda: read(normal() + np.array([1.0, 2.0])), PlateMismatch,
     "'y': a constant in its parameters has shape (2,), but (3,) is needed (plates {'n': 3}); leading axes may be left out "
     "or be 1"),
    (lambda: weighted_factors().fit(), PlateMismatch,
     "'w' lies on plate 'f', which has weights, and 'y' reads it there through a dot or an index: this has no exact update. "
     "Put the weights on the plates of 'y'"),
    (lambda: left_out().fit(), PlateMismatch,
     "'y' reads element 1 of 'w' along plate 'f', where its weight is 0: it is left out, and has no prior. Give it a weight > 0, "
     "or do not read it"),
    (lambda: ng.Network(scaled_by_itself()).fit(), NotConjugate,
     "'y' reads 'tau' twice, once along a whole plate; for an element in both, the product of expectations is not the "
     "expectation of the product. Use two nodes"),
    (lambda: gated_and_indexed(), NotConjugate,
     "'y' reads 's' twice through categories; one element may be read by both, and then the product of expectations is not the "
     "expectation of the product. Use two nodes"),
    (lambda: read(ng.dot(np.ones((4, 2)), vector())), PlateMismatch,
     "'y': a constant in its parameters has shape (4, 2), but (3, 2) is needed (plates {'n': 3}); leading axes may be left "
     "out or be 1"),
    (lambda: ng.dot(np.ones((5, 3)), vector()), PlateMismatch,
     "dot(array[5, 3], v): the vectors have lengths 3 and 2"),
    (lambda: ng.dot(np.ones((2, 5)), vector()), PlateMismatch,
     "dot(array[2, 5], v): the vectors have lengths 5 and 2: give the array's transpose, a row for each element"),
    (lambda: ng.dot([[1.0, 1e101]], vector()), ValueError,
     "dot: left[0, 1] = 1e+101 must be at most 1e+100 in size (1 such): squares of larger ones overflow, so give the data in "
     "another unit"),
    (lambda: normal(plate=K)[[1, 2, 1]], IndexError,
     "mu[…]: index[1] = 2 is outside plate 'k' with elements 0 … 1 (1 such): elements are counted from 0, so give index - 1"),
    (lambda: ng.dot(np.ones(2), np.ones(2)), TypeError,
     "dot needs at least one node: two known arrays can be multiplied with NumPy"),
    (lambda: ng.dot([[1.0, nan]], vector()), ValueError,
     "dot: left[0, 1] = nan must be finite (1 such)"),
    (lambda: ng.dot(["a", "b"], vector()), TypeError,
     "dot: left must be numbers, got strings such as 'a'"),
    (lambda: vector("a", 2) + vector("b", 3), PlateMismatch,
     "a + b: the vectors have lengths 2 and 3"),
    (lambda: read(ng.dot(normal("a", plate=N), normal("b", plate=N))), PlateMismatch,
     "'y': dot(a, b) must be summed over one plate that both sides have and 'y' has not; found none. Multiply with * if no "
     "sum is meant"),
    (lambda: ng.Normal("y", ng.dot(normal("a", plate=(N, K)), normal("b", plate=(N, K))), 1.0), PlateMismatch,
     "'y': dot(a, b) must be summed over one plate that both sides have and 'y' has not; found ['k', 'n']. Say which with "
     "dot(a, b, over=plate)"),
    (lambda: ng.dot(normal("a", plate=K), normal("b", plate=K), over="k"), TypeError,
     "dot: over must be the Plate to sum over, got 'k'"),
    (lambda: ng.MultivariateNormal("w", np.zeros(2), ng.diag(gamma())), PlateMismatch,
     "'w': diag(tau) must lie along one plate that 'w' is not on, found none"),
    (lambda: ng.MultivariateNormal("w", np.zeros(2), ng.diag(gamma(plate=N))), PlateMismatch,
     "'w': diag(tau) lies along plate 'n' of size 3, but 2 is needed"),
    (lambda: ng.MultivariateNormal("y", 0.0, 1.0), PlateMismatch,
     "'y': the length of the vectors cannot be told from mean or precision: give size="),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), wishart(size=3)), PlateMismatch,
     "'y': precision = W has size 3, but 2 is needed"),
    (lambda: read(ng.dot(normal("a", plate=(N, K)), normal("b", plate=(N, K)), over=N)), PlateMismatch,
     "'y': dot(a, b) must be summed over plate 'n', one that both sides have and 'y' has not; found none. Multiply with * "
     "if no sum is meant"),
    # -- indices
    (lambda: normal(plate=K)[[0, 1, 2]], IndexError,
     "mu[…]: index[2] = 2 is outside plate 'k' with elements 0 … 1 (1 such)"),
    (lambda: normal(plate=K)[[0, -1, 1]], IndexError,
     "mu[…]: index[1] = -1 is outside plate 'k' with elements 0 … 1 (1 such)"),
    (lambda: normal(plate=K)[2], IndexError,
     "mu[…]: index = 2 is outside plate 'k' with elements 0 … 1"),
    (lambda: normal(plate=K)[[0.0, 1.0]], TypeError,
     "mu[…]: index must be integers, got floats: np.unique(ids, return_inverse=True)[1] numbers ids 0, 1, …"),
    (lambda: normal(plate=K)[[0.0, nan]], TypeError,
     "mu[…]: index must be integers, got floats with nan at [1]: np.unique(ids, return_inverse=True)[1] numbers ids 0, 1, …"),
    (lambda: normal(plate=K)[["a", "b"]], TypeError,
     "mu[…]: index must be integers, got strings such as 'a': np.unique(ids, return_inverse=True)[1] numbers ids 0, 1, …"),
    (lambda: normal(plate=K)[[]], ValueError,
     "mu[…]: index is empty: give one integer for each element of the node that reads it"),
    (lambda: normal(plate=K)[np.ma.masked_equal([0, 1, 1], 0)], ValueError,
     "mu[…]: index[0] is masked: drop what has no element to read"),
    (lambda: normal()[[0, 0, 0]], PlateMismatch,
     "mu[…]: 'mu' has no plates, and only plates and the entries of vectors are indexed"),
    (lambda: (normal("a", plate=K) + normal("b", plate=K))[[0, 1]], TypeError,
     "(a + b) cannot be indexed: index the nodes inside it instead, as in a[i] + b[j]"),
    (lambda: read(normal(plate=K)[[0, 1]]), PlateMismatch,
     "'y' reads mu[…] with an index of shape (2,), which fits none of its plates {'n': 3}: give one integer for each "
     "element of 'y'"),
    (lambda: ng.Normal("y", normal(plate=K)[[0, 1, 0]], 1.0, plate=(N, ng.Plate("m", 3))), PlateMismatch,
     "'y' reads mu[…] with an index of shape (3,), which fits several of its plates {'n': 3, 'm': 3}: say on which one it "
     "lies with plate.index(values)"),
    (lambda: N.index([0, 1]), PlateMismatch,
     "plate 'n': index has shape (2,), but (3,) is needed: one integer for each element"),
    (lambda: read(normal(plate=K)[ng.Plate("m", 3).index([0, 1, 0])]), PlateMismatch,
     "'y' reads mu[…] with an index on plate 'm' of size 3, but 'y' has plates {'n': 3}"),
    (lambda: normal(plate=N)[category()], PlateMismatch,
     "mu[z]: z has 2 categories, but plate 'n' of 'mu' has 3 elements"),
    (lambda: normal(plate=K)[normal("z", plate=N)], TypeError,
     "mu[z]: only a Categorical, a Bernoulli or a MarkovChain can choose among components, and z is a Normal"),
    (lambda: normal(plate=K)[[0, 1]][category()], PlateMismatch,
     "mu[…]: plate 'k' is already chosen by integers; a category must choose from all of it"),
    (lambda: bool(normal()), TypeError,
     "mu is random: it has no truth value"),
    # -- parameters
    (lambda: ng.Normal("y", 0.0, -1.0), ValueError,
     "'y': precision = -1 must be ≥ 0"),
    (lambda: ng.Normal("y", 0.0, [1.0, 0.0, 1.0], plate=N, observed=DATA), ValueError,
     "'y': precision[1] = 0 must be > 0 (1 such)"),
    (lambda: ng.Normal("y", nan, 1.0), ValueError,
     "'y': mean = nan must be finite"),
    (lambda: ng.Normal("y", [0.0, inf, 0.0], 1.0, plate=N), ValueError,
     "'y': mean[1] = inf must be finite (1 such)"),
    (lambda: ng.Normal("y", "mu", 1.0), TypeError,
     "'y': mean must be numbers, a node or an expression, got 'mu'"),
    (lambda: ng.Normal("y", None, 1.0), TypeError,
     "'y': mean must be numbers, a node or an expression, got None"),
    (lambda: ng.Normal("y", np.ma.masked_equal([0.0, 1.0, 2.0], 1.0), 1.0, plate=N), ValueError,
     "'y': mean[1] is masked: only observed= may have missing values"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), [[1.0, 0.5], [0.2, 1.0]]), ValueError,
     "'y': precision must be symmetric, but its element [0, 1] = 0.5 and [1, 0] = 0.2: use (m + m.T) / 2"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), [[1.0, 2.0], [2.0, 1.0]]), ValueError,
     "'y': precision must be positive semidefinite, but its smallest eigenvalue is -1"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), [np.eye(2), -np.eye(2), np.eye(2)], plate=N), ValueError,
     "'y': precision[1] must be positive semidefinite, but its smallest eigenvalue is -1"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), np.ones(2)), PlateMismatch,
     "'y': precision must be a square matrix, got shape (2,); for a diagonal one numpy.diag(values)"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), np.eye(3)), PlateMismatch,
     "'y': precision has shape (3, 3), but (2, 2) is needed"),
    (lambda: ng.Wishart("y", 1.0, np.eye(2)), ValueError,
     "'y': dof = 1 must be > 1, the size of the matrix less one"),
    (lambda: ng.Wishart("y", [3.0, 1.0, 3.0], np.eye(2), plate=N), ValueError,
     "'y': dof[1] = 1 must be > 1, the size of the matrix less one (1 such)"),
    (lambda: ng.Wishart("y", 3.0, 1.0), PlateMismatch,
     "'y': the size of the matrix cannot be told from rate: give size=, or a matrix"),
    (lambda: ng.Dirichlet("y", 1.0), PlateMismatch,
     "'y': the number of categories cannot be told from concentration, the number 1: give size=, at least 2"),
    (lambda: ng.Dirichlet("y", 1.0, size=2.5), TypeError,
     "'y': size must be a whole number ≥ 2, got 2.5"),
    (lambda: ng.Dirichlet("y", [1.0, 0.0]), ValueError,
     "'y': concentration[1] = 0 must be > 0 (1 such)"),
    (lambda: ng.Dirichlet("y", [1.0, 1.0], size=3), PlateMismatch,
     "'y': concentration has shape (2,), but (3,) is needed"),
    (lambda: ng.Bernoulli("y", 2.0), ValueError,
     "'y': prob = 2 must be between 0 and 1"),
    (lambda: ng.Categorical("y", [0.5, 0.6]), ValueError,
     "'y': probs sums to 1.1, not to 1: divide by the sum"),
    (lambda: ng.Categorical("y", 0.5), ValueError,
     "'y': probs must be a vector of probabilities, got the number 0.5"),
    (lambda: ng.Binomial("y", 2.5, 0.5, observed=1), ValueError,
     "'y': trials = 2.5 must be a whole number"),
    (lambda: normal() * [1.0, nan], ValueError,
     "mu · x: x[1] = nan must be finite (1 such)"),
    (lambda: normal() + "x", TypeError,
     "mu + x: x must be numbers, got 'x'"),
    (lambda: normal() / 0, ValueError,
     "mu / x: x = 0 must be different from 0"),
]
# fmt: on
