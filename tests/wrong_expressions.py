"""What people type that no network has, and the whole text that they read; `test_mistakes.py` makes them all."""

import numpy as np
from wrong_declarations import HALF, K, N, category, chain, gamma, inf, nan, normal, read, vector

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

# fmt: off
EXPRESSIONS = [
    (lambda: ng.Normal(0.0, 1.0), TypeError,
     "a node's name comes first: write Normal('name', …), got 0.0"),
    (lambda: ng.Normal(np.zeros(3), 1.0), TypeError,
     "a node's name comes first: write Normal('name', …), got an array"),
    (lambda: ng.Gamma(1.0, 1.0, plate=N), TypeError,
     "a node's name comes first: write Gamma('name', …), got 1.0"),
    (lambda: ng.GaussianChain(0.0, 1.0, 1.0, 1.0, plate=N), TypeError,
     "a node's name comes first: write GaussianChain('name', …), got 0.0"),
    (lambda: np.array([0.1, 0.9])[category()], TypeError,
     "z is random and cannot become an array: to choose from known numbers with it write natgrad.table(numbers)[z]"),
    (lambda: [0.1, 0.9][category()], TypeError,
     "z is random and cannot be an index: to choose from known numbers with it write natgrad.table(numbers)[z]"),
    (lambda: np.array([0.1, 0.9])[normal()], TypeError,
     "mu is random and cannot become an array: for X @ w write natgrad.dot(X, w)"),
    (lambda: [0.1, 0.9][normal()], TypeError,
     "mu is random and cannot be an index: only categories choose"),
    (lambda: np.exp(normal()), NotConjugate,
     "numpy.exp(mu): the expectation has no closed form; positive numbers are Gammas: put a Gamma where a rate, a "
     "precision or a scale is needed"),
    (lambda: np.log(gamma()), NotConjugate,
     "numpy.log(tau): the expectation has no closed form; logarithms of data are taken beforehand: "
     "observed=numpy.log(y)"),
    (lambda: np.sqrt(gamma()), NotConjugate,
     "numpy.sqrt(tau): the expectation has no closed form; a Normal takes a precision, which a Gamma can be, and "
     "no standard deviation"),
    (lambda: np.square(normal()), NotConjugate,
     "numpy.square(mu): the expectation has no closed form; powers of known numbers are columns: "
     "dot(numpy.stack([x, x**2], -1), w)"),
    (lambda: np.sin(normal()), NotConjugate,
     "numpy.sin(mu): the expectation has no closed form; a Categorical or a Bernoulli chooses between levels, and "
     "a GaussianProcess is a smooth function of known inputs"),
    (lambda: np.maximum(normal(), 0.0), NotConjugate,
     "numpy.maximum(mu): the expectation has no closed form; a Categorical or a Bernoulli chooses between levels, "
     "as in mu[z]"),
    (lambda: np.abs(normal()), NotConjugate,
     "numpy.absolute(mu): the expectation has no closed form; only sums, known multiples, products of two "
     "different nodes and dot have one"),
    (lambda: np.reciprocal(gamma()), NotConjugate,
     "numpy.reciprocal(tau): the expectation has no closed form; give Normal a precision and Gamma a rate, which "
     "multiply instead of divide"),
    (lambda: np.sum(normal(plate=K)), TypeError,
     "numpy.sum(mu) has no array to sum: write natgrad.sum_over(mu, plate)"),
    (lambda: np.dot(np.ones((3, 2)), vector()), TypeError,
     "v is random and cannot become an array: for X @ w write natgrad.dot(X, w)"),
    (lambda: np.tanh(normal()), NotConjugate,
     "numpy.tanh(mu): the expectation has no closed form; a Categorical or a Bernoulli chooses between levels, and"
     " a GaussianProcess is a smooth function of known inputs"),
    (lambda: abs(normal()), NotConjugate,
     "abs(mu): the expectation of an absolute value has no closed form"),
    (lambda: float(normal()), TypeError,
     "mu is random and has no single value: after a fit, fit['mu'].mean() is its expectation"),
    (lambda: normal() > 0.0, TypeError,
     "mu is random, and comparing it with 0.0 is no expression: a component that depends on a condition is chosen "
     "by a Bernoulli or a Categorical, as in mu[z]"),
    (lambda: normal("a") < normal("b"), TypeError,
     "a is random, and comparing it with b is no expression: a component that depends on a condition is chosen by "
     "a Bernoulli or a Categorical, as in mu[z]"),
    (lambda: normal("a") * ng.dot(np.ones((4, 2)), vector()) + ng.dot(np.eye(4, 2), vector()), NotConjugate,
     "dot(array[4, 2], v)·a + dot(array[4, 2], v): 'v' stands on both sides, and the product of expectations is not "
     "the expectation of the "
     "product. Write it once: 2 * a, b * (a + c), or dot(X1 + X2, w)"),
    (lambda: vector()[2], IndexError,
     "v[2]: v has entries 0 … 1"),
    (lambda: vector()[-3], IndexError,
     "v[-3]: v has entries 0 … 1"),
    (lambda: vector()[1.5], TypeError,
     "v[1.5]: entries of a vector are chosen by whole numbers or a slice, not by 1.5"),
    (lambda: vector()["first"], TypeError,
     "v[first]: entries of a vector are chosen by whole numbers or a slice, not by 'first'"),
    (lambda: vector()[5:], PlateMismatch,
     "v[slice(5, None, None)] chooses no entry of a vector with entries 0 … 1"),
    (lambda: vector()[[0, 2]], IndexError,
     "v[[0, 2]]: v has entries 0 … 1"),
    (lambda: vector(plate=N)[:, 2], IndexError,
     "v[2]: v has entries 0 … 1"),
    (lambda: vector(plate=N)[0, 0, 0], PlateMismatch,
     "v[…] got 3 indices, but 'v' has 1 plate(s): 'n', and after them its entries"),
    (lambda: normal()[0], PlateMismatch,
     "mu[…]: 'mu' has no plates, and only plates and the entries of vectors are indexed"),
    (lambda: normal(plate=K)[2:], ValueError,
     "mu[…]: index is empty: give one integer for each element of the node that reads it"),
    (lambda: gamma() * np.array([[1.0, 2.0], [2.0, 1.0]]) * -1.0, ValueError,
     "array[2, 2]·tau · x: x = -1 must be > 0, as array[2, 2]·tau is a positive number"),
    (lambda: gamma() * np.array([[1.0, 0.0], [0.5, 1.0]]), ValueError,
     "tau · x: x[0, 1] = 0 must be > 0, as tau is a positive number (1 such)"),
    (lambda: ng.MultivariateNormal("y", [0.0, 0.0], gamma() * np.array([[1.0, 2.0], [2.0, 1.0]])), ValueError,
     "array[2, 2]·tau: the matrix must be positive definite, but its smallest eigenvalue is -1"),
    (lambda: ng.MultivariateNormal("y", [0.0, 0.0], gamma() * np.eye(3)), PlateMismatch,
     "'y': precision = tau·array[3, 3] has size 3, but 2 is needed"),
    (lambda: ng.sum_over(normal(plate=K), 2), TypeError,
     "sum_over: the plate to sum over comes second, got 2"),
    (lambda: ng.sum_over(gamma(plate=K), K), TypeError,
     "sum_over takes Normals, or an expression of real numbers, and a plate, not tau, a positive number"),
    (lambda: ng.sum_over([1.0, 2.0], K), TypeError,
     "sum_over takes Normals, or an expression of real numbers, and a plate, not list"),
    (lambda: read(ng.sum_over(normal(plate=N), N)), PlateMismatch,
     "'y': dot(array[3], mu) must be summed over plate 'n', one that both sides have and 'y' has not; found none. "
     "Multiply with * if no sum is meant"),
    (lambda: ng.Network(ng.Normal("y", ng.dot(normal(plate=K)[chain()], [1.0, 2.0, 3.0]), 1.0, observed=0.0)), NotConjugate,
     "'y' sums 'z' over 'n', the time of that chain: its states are not independent of one another, and the product of "
     "expectations is not the expectation of the product. Read one state for each element, or use a node without memory"),
    (lambda: ng.concatenate([1.0, 2.0]), TypeError,
     "concatenate takes a list of vectors and real numbers, at least one of them random; NumPy joins known ones"),
    (lambda: ng.concatenate([vector(), gamma()]), NotConjugate,
     "concatenate: tau is a positive number; vectors are made of vectors and real numbers"),
    (lambda: ng.concatenate(vector()), TypeError,
     "concatenate takes a list, as in concatenate([a, b]), got v"),
    (lambda: normal(plate=K)[ng.Bernoulli("b", 0.5, plate=N)][[0, 3]], IndexError,
     "b[…]: index[1] = 3 is outside plate 'n' with elements 0 … 2 (1 such)"),
    (lambda: normal(plate=(K, N))[ng.Categorical("z", HALF, plate=(N, ng.Plate("m", 2)))][[0, 1]], PlateMismatch,
     "mu[z]: plate 'k' is already chosen by z, which has 2 plates; index the category instead, as in mu[z[i, j]]"),
    (lambda: normal(plate=ng.Plate("l", 3))[ng.Bernoulli("b", 0.5, plate=N)], PlateMismatch,
     "mu[b]: b has 2 categories, but plate 'l' of 'mu' has 3 elements"),
    (lambda: ng.table([0.1, 0.9])[normal()], TypeError,
     "table[mu]: only a Categorical, a Bernoulli or a MarkovChain can choose among components, and mu is a Normal"),
    (lambda: ng.table([0.1, 0.9, 0.2])[ng.Bernoulli("b", 0.5, plate=N)], PlateMismatch,
     "table[b]: b has 2 categories, but plate 'axis 0' of 'table' has 3 elements"),
    (lambda: ng.Categorical("y", category()), NotConjugate,
     "'y': probs cannot be the Categorical z: the edge z → y is not conjugate. probs takes constant probabilities "
     "or a Dirichlet. To choose numbers or components with a category write natgrad.table(numbers)[z] or mu[z]"),
    (lambda: ng.Normal("y", ng.Bernoulli("b", 0.5), 1.0), NotConjugate,
     "'y': mean cannot be the Bernoulli b: the edge b → y is not conjugate. mean takes a constant, a Normal, a "
     "dot, a sum or a known multiple of these. To choose numbers or components with a category write "
     "natgrad.table(numbers)[b] or mu[b]"),
    (lambda: ng.Normal("y", category(), 1.0, plate=N), NotConjugate,
     "'y': mean cannot be the Categorical z: the edge z → y is not conjugate. mean takes a constant, a Normal, a "
     "dot, a sum or a known multiple of these. To choose numbers or components with a category write "
     "natgrad.table(numbers)[z] or mu[z]"),
    (lambda: ng.Network(ng.Normal("y", normal(), 1.0)).query("y"), ValueError,
     "no node is observed among mu, y: give observed= to at least one"),
    (lambda: ng.Network(category()).query("z"), PlateMismatch,
     "query: 'z' has 1 plate(s), so one element of it is written ('z', 0)"),
    (lambda: ng.Network(category()).query(("z", 7)), IndexError,
     "query: 'z' has elements of shape [3], and (7,) is none of them"),
    (lambda: ng.Network(category()).query(("z", 0), given={("z", 0): 1}), ValueError,
     "query: z[0] is asked for and given at once"),
    (lambda: ng.Network(category()).query(("z", 0), given={("z", 1): 2}), ValueError,
     "query: given z[1] = 2, but its states are 0 … 1"),
    (lambda: ng.Network(category(observed=[0, 1, 1])).query(("z", 0)), ValueError,
     "query: 'z' is observed in the declaration already: leave out observed= to ask for it"),
    (lambda: vector("y", plate=N, observed=[[0, inf], [nan, 1], [1, 1]]), ValueError,
     "'y': observed[0, 1] = inf is not finite; NaN marks missing values"),
]
# fmt: on
