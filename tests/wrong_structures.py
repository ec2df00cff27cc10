"""Wrong scales, shapes, links and matrices, and parameters by the names that other libraries give them; with the whole text."""

import numpy as np
from wrong_declarations import DATA, K, N, beta, category, dirichlet, gamma, normal, read, vector, wishart

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

nan = np.nan


def shape(name="a", plate=None):
    return ng.GammaShape(name, 1.0, 1.0, plate=plate)


# fmt: off
STRUCTURES = [
    (lambda: ng.HalfNormal("t", 0.0), ValueError,
     "'t': scale = 0 must be > 0"),
    (lambda: ng.HalfNormal("t", -1.0), ValueError,
     "'t': scale = -1 must be > 0"),
    (lambda: ng.HalfNormal("t", gamma()), NotConjugate,
     "'t': scale cannot be random, but tau was given: the edge tau → t has no closed-form message. scale takes"
     " known numbers"),
    (lambda: ng.HalfNormal("t", [1.0, 2.0]), PlateMismatch,
     "'t': scale has shape (2,), but one number is needed as 't' has no plates: give plate=Plate('name', 2)"),
    (lambda: ng.HalfNormal(1.0), TypeError,
     "a node's name comes first: write HalfNormal('name', …), got 1.0"),
    (lambda: ng.HalfNormal("t", "wide"), TypeError,
     "'t': scale must be known numbers, got 'wide'"),
    (lambda: ng.HalfNormal("t", nan), ValueError,
     "'t': scale = nan must be finite"),
    (lambda: read(ng.HalfNormal("t", 1.0)), NotConjugate,
     "'y': mean cannot be the HalfNormal t: the edge t → y is not conjugate. mean takes a constant, a Normal, "
     "a dot, a sum or a known multiple of these"),
    (lambda: ng.HalfNormal("t", 1.0, observed=2.0), TypeError,
     "'t': a HalfNormal has no observed: it is hidden only. It takes scale, plate"),
    (lambda: ng.GammaShape("a", 0.0, 1.0), ValueError,
     "'a': shape = 0 must be > 0"),
    (lambda: ng.GammaShape("a", gamma(), 1.0), NotConjugate,
     "'a': shape cannot be random, but tau was given: the edge tau → a has no closed-form message. shape takes"
     " known numbers"),
    (lambda: ng.GammaShape("a", 1.0, 0.0), ValueError,
     "'a': rate = 0 must be > 0"),
    (lambda: ng.GammaShape("a", 1.0, normal()), NotConjugate,
     "'a': rate cannot be the Normal mu: the edge mu → a is not conjugate. rate takes a positive constant, a "
     "Gamma or an Exponential (a known multiple of it too)"),
    (lambda: ng.GammaShape("a", 1.0), TypeError,
     "'a': rate must be given: GammaShape(name, shape, rate)"),
    (lambda: ng.GammaShape("a", 1.0, 1.0, observed=2.0), TypeError,
     "'a': a GammaShape has no observed: it is hidden only. It takes shape, rate, plate"),
    (lambda: ng.Gamma("x", gamma("a"), 1.0), NotConjugate,
     "'x': shape cannot be the Gamma a: the edge a → x has no closed-form message. shape takes known numbers, "
     "or what is declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Gamma("x", 2 * shape(), 1.0), NotConjugate,
     "'x': shape cannot be 2·a: the edge 2·a → x has no closed-form message. shape takes known numbers, or "
     "what is declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Gamma("x", normal(), 1.0), NotConjugate,
     "'x': shape cannot be the Normal mu: the edge mu → x has no closed-form message. shape takes known "
     "numbers, or what is declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Gamma("x", shape() * gamma("b"), 1.0), NotConjugate,
     "'x': shape cannot be b·a: the edge b·a → x has no closed-form message. shape takes known numbers, or "
     "what is declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Gamma("x", shape(plate=K), 1.0), PlateMismatch,
     "'x' reads a, which repeats over plate 'k', but 'x' has no plates: index a[…] with integers or a "
     "category, sum over the plate with dot, or put 'x' on it"),
    (lambda: ng.Gamma("x", 1.0, shape(plate=K), plate=N), PlateMismatch,
     "'x' reads a, which repeats over plate 'k', but 'x' has plates {'n': 3}: index a[…] with integers or a "
     "category, sum over the plate with dot, or put 'x' on it"),
    (lambda: ng.NegativeBinomial("y", shape(), 0.5, plate=N, observed=[0, 1, 2]), NotConjugate,
     "'y': shape cannot be random, but a was given: the edge a → y has no closed-form message. shape takes "
     "known numbers"),
    (lambda: ng.StudentT("y", 0.0, 1.0, df=shape(), plate=N, observed=DATA), NotConjugate,
     "'y': df cannot be random, but a was given: the edge a → y has no closed-form message. df takes known "
     "numbers"),
    (lambda: ng.Beta("q", shape(), 1.0), NotConjugate,
     "'q': a cannot be random, but a was given: the edge a → q has no closed-form message. a takes known "
     "numbers"),
    (lambda: ng.Wishart("W", shape(), np.eye(2)), NotConjugate,
     "'W': dof cannot be random, but a was given: the edge a → W has no closed-form message. dof takes known "
     "numbers"),
    (lambda: ng.Dirichlet("p", gamma("a", plate=K)), NotConjugate,
     "'p': concentration cannot be the Gamma a: the edge a → p has no closed-form message. concentration takes"
     " known numbers, or what is declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Dirichlet("p", shape(plate=K), size=5), PlateMismatch,
     "'p': concentration = a lies along plate 'k' of size 2, but 5 is needed"),
    (lambda: ng.Dirichlet("p", shape()), PlateMismatch,
     "'p': the number of categories cannot be told from concentration: give size="),
    (lambda: ng.Dirichlet("p", ng.GammaShape("a", 1.0, 1.0, plate=(K, N))), PlateMismatch,
     "a repeats over ['k', 'n'], of which 'p' has none: index all but one"),
    (lambda: ng.Dirichlet("p", 2.0 * shape(plate=K)), NotConjugate,
     "'p': concentration cannot be 2·a: the edge 2·a → p has no closed-form message. concentration takes known"
     " numbers, or what is declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Dirichlet("p", normal(plate=K)), NotConjugate,
     "'p': concentration cannot be the Normal mu: the edge mu → p has no closed-form message. concentration "
     "takes known numbers, or what is declared for it: a GammaShape, whose q has log Γ among its statistics"),
    (lambda: ng.Dirichlet("p", dirichlet("b")), NotConjugate,
     "'p': concentration cannot be the Dirichlet b: the edge b → p is not conjugate. concentration takes a "
     "positive constant, a Gamma or an Exponential (a known multiple of it too)"),
    (lambda: ng.Dirichlet("p", gamma() * np.ones(3)), PlateMismatch,
     "'p': the number of categories cannot be told from concentration: give size="),
    (lambda: ng.Categorical("z", logits=0.5), TypeError,
     "'z': logits must be random, a dot or nodes along a plate: known ones are probs="),
    (lambda: ng.Categorical("z", logits=normal()), PlateMismatch,
     "'z': logits = mu must lie along one plate that 'z' is not on, one number for each category but the last,"
     " found none"),
    (lambda: ng.Categorical("z", logits=gamma(plate=K)), NotConjugate,
     "'z': logits cannot be the Gamma tau: the edge tau → z is not conjugate. logits takes a constant vector, "
     "a MultivariateNormal, a sum or a known multiple of these"),
    (lambda: ng.Categorical("z", logits=beta()), NotConjugate,
     "'z': logits cannot be the Beta q: the edge q → z is not conjugate. logits takes a constant vector, a "
     "MultivariateNormal, a sum or a known multiple of these"),
    (lambda: ng.Categorical("z", softmax=normal(plate=K)), TypeError,
     "'z': a Categorical with softmax= must be observed: give observed=categories; a hidden one may have "
     "logits=, by stick-breaking"),
    (lambda: ng.Categorical("z", normal(plate=K)), NotConjugate,
     "'z': probs cannot be the Normal mu: the edge mu → z is not conjugate. probs takes constant probabilities"
     " or a Dirichlet. For a link write logits=mu (stick-breaking) or softmax=mu"),
    (lambda: ng.Categorical("z", probs=vector()), NotConjugate,
     "'z': probs cannot be the MultivariateNormal v: the edge v → z is not conjugate. probs takes constant "
     "probabilities or a Dirichlet. For a link write logits=v (stick-breaking) or softmax=v"),
    (lambda: ng.Categorical("z", logits=normal("m", plate=K), softmax=normal("v", plate=K)), TypeError,
     "'z': a Categorical takes one of probs, logits, softmax, weights, but logits and softmax were given"),
    (lambda: ng.kron(wishart(), wishart()), NotConjugate,
     "kron(W, W): 'W' stands on both sides, and the product of expectations is not the expectation of the "
     "product. Use two nodes"),
    (lambda: ng.kron(np.eye(2), np.eye(2)), TypeError,
     "kron: all matrices are known, and numpy.kron makes one of them"),
    (lambda: ng.kron(gamma(), np.eye(2)), NotConjugate,
     "kron: left = tau is a positive number, not a matrix: give a Wishart, a diag or a known matrix, or tau * "
     "numpy.eye(size)"),
    (lambda: ng.kron(wishart(), normal()), NotConjugate,
     "kron: right = mu is a real number, not a matrix: give a Wishart, a diag or a known matrix"),
    (lambda: ng.kron(wishart(), [[1.0, 2.0], [2.0, 1.0]]), ValueError,
     "kron: right must be positive definite, but its smallest eigenvalue is -1"),
    (lambda: ng.kron(wishart(), [[1.0, 2.0], [0.0, 1.0]]), ValueError,
     "kron: right must be symmetric, but its element [0, 1] = 2 and [1, 0] = 0: use (m + m.T) / 2"),
    (lambda: ng.kron(wishart(), [1.0, 2.0]), PlateMismatch,
     "kron: right must be a square matrix, got shape (2,); for a diagonal one numpy.diag(values)"),
    (lambda: ng.kron(wishart(), 2.0), PlateMismatch,
     "kron: right must be a square matrix, got shape (); for a diagonal one numpy.diag(values)"),
    (lambda: ng.kron(wishart(), np.eye(2)[None]), TypeError,
     "kron: right must be one matrix, got shape (1, 2, 2)"),
    (lambda: ng.MultivariateNormal("x", np.zeros(3), ng.kron(wishart(), np.eye(2))), PlateMismatch,
     "'x': precision = kron(W, array[2, 2]) has size 4, but 3 is needed"),
    (lambda: ng.Normal("x", 0.0, ng.kron(wishart(), np.eye(2))), NotConjugate,
     "'x': precision cannot be kron(W, array[2, 2]), a precision matrix: the edge kron(W, array[2, 2]) → x is "
     "not conjugate. precision takes a positive constant, a Gamma or an Exponential (a known multiple of it "
     "too)"),
    (lambda: ng.block_diag(wishart()), TypeError,
     "block_diag takes two matrices or more, as in block_diag(A, B)"),
    (lambda: ng.block_diag(np.eye(2), np.eye(3)), TypeError,
     "block_diag: all matrices are known, and scipy.linalg.block_diag makes one of them"),
    (lambda: ng.block_diag(wishart(), wishart()), NotConjugate,
     "block_diag: 'W' stands in two blocks. For the same matrix in each write kron(numpy.eye(2), W)"),
    (lambda: ng.block_diag(wishart(), gamma()), NotConjugate,
     "block_diag: block 1 = tau is a positive number, not a matrix: give a Wishart, a diag or a known matrix, "
     "or tau * numpy.eye(size)"),
    (lambda: ng.block_diag(wishart(), -np.eye(2)), ValueError,
     "block_diag: block 1 must be positive definite, but its smallest eigenvalue is -1"),
    (lambda: ng.block_diag([wishart(), np.eye(2)]), TypeError,
     "block_diag: block 0 is a list of matrices: write block_diag(*matrices)"),
    (lambda: ng.MultivariateNormal("x", np.zeros(3), ng.block_diag(wishart(), np.eye(2))), PlateMismatch,
     "'x': precision = block_diag(W, array[2, 2]) has size 4, but 3 is needed"),
    (lambda: ng.Normal("y", normal(plate=K).mean(), 1.0), AttributeError,
     "mu is random and has no mean: after a fit, fit['mu'].mean() is its expectation; the mean of known "
     "numbers is numpy.mean"),
    (lambda: ng.Normal("y", normal(plate=K).sum(), 1.0), AttributeError,
     "mu is random and has no sum: write natgrad.sum_over(mu, plate)"),
    (lambda: ng.Normal("y", vector().T @ np.ones(2), 1.0), AttributeError,
     "v is random and has no T: a random vector is no matrix: for an inner product write natgrad.dot(v, x)"),
    (lambda: ng.Normal("y", np.ones((3, 2)) @ vector(), 1.0, plate=N, observed=DATA), NotConjugate,
     "'y': mean cannot be array[3, 2] @ v, a vector: the edge array[3, 2] @ v → y is not conjugate. mean takes"
     " a constant, a Normal, a dot, a sum or a known multiple of these. For a row of numbers for each element "
     "write natgrad.dot(rows, v)"),
    (lambda: ng.Normal("y", 0.0, tau=1.0), TypeError,
     "'y': a Normal has no tau. It takes mean, precision, plate, observed, mask"),
    (lambda: ng.Normal("y", mu=0.0, sigma=1.0), TypeError,
     "'y': a Normal has no mu: write mean=. It takes mean, precision, plate, observed, mask"),
    (lambda: ng.Normal("y", 0.0, 1.0, size=3), TypeError,
     "'y': a Normal has no size: several of them are declared with plate=Plate('name', 3). It takes mean, "
     "precision, plate, observed, mask"),
    (lambda: ng.Normal("y", 0.0, 1.0, plates=N), TypeError,
     "'y': a Normal has no plates: write plate=. It takes mean, precision, plate, observed, mask"),
    (lambda: ng.Normal("y", loc=0.0, scale=1.0), TypeError,
     "'y': a Normal has no loc: write mean=. It takes mean, precision, plate, observed, mask"),
    (lambda: ng.Bernoulli("y", p=0.5), TypeError,
     "'y': a Bernoulli has no p: write prob=. It takes prob, logit, probit, plate, observed, mask"),
    (lambda: ng.Poisson("y", mu=2.0), TypeError,
     "'y': a Poisson has no mu: write rate=. It takes rate, plate, observed, mask"),
    (lambda: ng.Bernoulli("y", logits=normal(), plate=N, observed=[0,1,1]), TypeError,
     "'y': a Bernoulli has no logits: write logit=. It takes prob, logit, probit, plate, observed, mask"),
    (lambda: ng.Poisson("y", normal(), plate=N, observed=[0, 1, 2]), NotConjugate,
     "'y': rate cannot be the Normal mu: the edge mu → y is not conjugate. rate takes a positive constant, a "
     "Gamma or an Exponential (a known multiple of it too). For a log link write NegativeBinomial(name, shape,"
     " logit=…)"),
    (lambda: ng.Poisson("y", logit=normal(), plate=N, observed=[0, 1, 2]), TypeError,
     "'y': a Poisson has no logit. It takes rate, plate, observed, mask"),
    (lambda: ng.Gamma("x", 1.0, scale=2.0), TypeError,
     "'x': a Gamma has no scale: it takes a rate, which is 1 / scale. It takes shape, rate, plate, observed, "
     "mask"),
    (lambda: ng.Normal("y", 0.0, wishart(), plate=N, observed=DATA), NotConjugate,
     "'y': precision cannot be the Wishart W: the edge W → y is not conjugate. precision takes a positive "
     "constant, a Gamma or an Exponential (a known multiple of it too)"),
    (lambda: ng.MultivariateNormal("y", 0.0, gamma()), NotConjugate,
     "'y': precision cannot be the Gamma tau: the edge tau → y is not conjugate. precision takes a "
     "positive-definite constant, a Wishart, or diag of a Gamma. For a multiple of the identity write tau * "
     "numpy.eye(size)"),
    (lambda: ng.MultivariateNormal("y", np.zeros(2), gamma()), NotConjugate,
     "'y': precision cannot be the Gamma tau: the edge tau → y is not conjugate. precision takes a "
     "positive-definite constant, a Wishart, or diag of a Gamma. For a multiple of the identity write tau * "
     "numpy.eye(size)"),
    (lambda: ng.Normal("y", dirichlet("b")[0], 1.0), PlateMismatch,
     "b[…]: 'b' has no plates, and only plates and the entries of vectors are indexed"),
    (lambda: normal(plate=K)[category(), category()], PlateMismatch,
     "mu[…] got 2 indices, but 'mu' has 1 plate(s): 'k'"),
    (lambda: normal()[category()], PlateMismatch,
     "mu[…]: 'mu' has no plates, and only plates and the entries of vectors are indexed"),
    (lambda: vector()[category()], TypeError,
     "v[z]: entries of a vector are chosen by whole numbers or a slice, not by <Categorical 'z' on n=3>"),
]
# fmt: on
