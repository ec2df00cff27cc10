"""Wrong declarations of leaves by augmentation, flat priors and sticks, and the words that a user must read."""

import numpy as np
from mistakes.declarations import DATA, HALF, K, N, beta, category, gamma, normal, read, vector

import natgrad as ng
from natgrad.errors import NotConjugate, PlateMismatch

nan, inf = np.nan, np.inf
YES = [0, 1, 1]
COUNTS = [0, 3, 1]


def fit(node):
    return ng.Network(node).fit()


# fmt: off
LEAVES = [
    # -- links
    (lambda: ng.Bernoulli("y", plate=N, observed=YES), TypeError, "y", "nothing was given"),
    (lambda: ng.Bernoulli("y", 0.5, logit=normal(), plate=N, observed=YES), TypeError, "y", "prob and logit"),
    (lambda: ng.Bernoulli("y", normal(), plate=N, observed=YES), NotConjugate, "y", "prob", "mu"),
    (lambda: ng.Bernoulli("y", logit=beta(), plate=N, observed=YES), NotConjugate, "y", "logit", "q", "Normal"),
    (lambda: ng.Bernoulli("y", logit=vector(), plate=N, observed=YES), NotConjugate, "y", "logit", "v", "Normal"),
    (lambda: ng.Bernoulli("y", logit=normal(), plate=N, observed=[0, 2, 1]), ValueError, "y", "observed[1]", "2", "Bernoulli"),
    (lambda: ng.Bernoulli("y", probit=normal(), plate=N), TypeError, "y", "must"),
    (lambda: ng.Binomial("y", 5, plate=N, observed=COUNTS), TypeError, "y", "nothing was given"),
    (lambda: ng.NegativeBinomial("y", 2.0, plate=N, observed=COUNTS), TypeError, "y", "nothing was given"),
    (lambda: ng.NegativeBinomial("y", 2.0, 0.5, plate=N), TypeError, "y", "give observed=counts"),
    (lambda: ng.NegativeBinomial("y", 0.0, 0.5, plate=N, observed=COUNTS), ValueError, "y", "shape", "0"),
    (lambda: ng.NegativeBinomial("y", gamma(), 0.5, plate=N, observed=COUNTS), NotConjugate, "y", "shape takes known"),
    (lambda: ng.NegativeBinomial("y", 2.0, 0.5, plate=N, observed=[1, 2.5, 1]), ValueError,
     "y", "observed[1]", "2.5", "NegativeBinomial"),
    (lambda: ng.Categorical("y", plate=N, observed=YES), TypeError, "y", "nothing was given"),
    (lambda: ng.Categorical("y", logits=[0.0, 1.0], plate=N, observed=YES), TypeError, "y", "logits", "probs="),
    (lambda: ng.Categorical("y", logits=normal(), plate=N, observed=YES), PlateMismatch, "y", "logits", "mu"),
    (lambda: ng.Categorical("y", softmax=normal(plate=K), plate=N), TypeError, "y", "logits="),
    (lambda: ng.Categorical("y", softmax=[0.0, 1.0], plate=N, observed=YES), TypeError, "y", "softmax", "probs="),
    (lambda: ng.Categorical("y", softmax=normal(), plate=N, observed=YES), PlateMismatch, "y", "softmax", "mu"),
    (lambda: ng.Categorical("y", softmax=normal(plate=K) + ng.Normal("m", 0.0, 1.0), plate=N, observed=YES), NotConjugate,
     "y", "softmax", "k"),
    (lambda: ng.Categorical("y", logits=normal(plate=K), plate=N, observed=[0, 1, 3]), ValueError, "y", "observed[2]", "3"),
    # -- thresholds and censoring
    (lambda: ng.Ordinal("y", normal(), cutpoints=[1.0, 0.0], plate=N, observed=YES), ValueError, "y", "0", "cutpoints[1]"),
    (lambda: ng.Ordinal("y", normal(), cutpoints=0.0, plate=N, observed=YES), ValueError, "y", "cutpoints", "()"),
    (lambda: ng.Ordinal("y", normal(), cutpoints=[0.0], plate=N, observed=[0, 1, 2]), ValueError, "y", "observed[2]"),
    (lambda: ng.Ordinal("y", normal(), cutpoints=[0.0], plate=N), TypeError, "y", "give observed=categories"),
    (lambda: ng.censored(DATA), TypeError, "censored", "or", "censored(…)"),
    (lambda: ng.censored(DATA, right=[0, 1, 2]), TypeError, "censored", "right", "dtype"),
    (lambda: ng.censored(DATA, right=[True, False]), ValueError, "censored", "right", "(2,)", "(3,)"),
    (lambda: ng.censored(DATA, right=True, left=[False, True, False]), ValueError,
     "censored", "values[1]", "0.2", "it is missing,"),
    (lambda: ng.censored([1.0, 2.0], [3.0, 1.5]), ValueError, "censored", "values[1]", "2", "the lower bound"),
    (lambda: ng.censored([1.0, nan], [3.0, 1.5]), ValueError, "censored", "-inf"),
    (lambda: ng.censored(DATA, [1.0], right=True), TypeError, "censored", "and"),
    (lambda: ng.Gamma("y", 1.0, 1.0, plate=N, observed=ng.censored([1.0, 2.0, 3.0], right=True)), TypeError, "y", "censored"),
    (lambda: ng.Exponential("y", 1.0, plate=N, observed=ng.censored([-1.0, 2.0, 3.0], right=True)), ValueError,
     "y", "observed[0]", "-1", "Exponential"),
    # -- robust noise
    (lambda: ng.StudentT("y", normal(), 1.0, df=gamma(), plate=N, observed=DATA), NotConjugate, "y", "df takes known"),
    (lambda: ng.StudentT("y", normal(), 1.0, df=0.0, plate=N, observed=DATA), ValueError, "y", "df", "0"),
    (lambda: ng.StudentT("y", normal(), 1.0, plate=N, observed=DATA), TypeError, "y", "StudentT(name, mean, precision, df=…)"),
    (lambda: ng.Laplace("y", normal(), normal("s"), plate=N, observed=DATA), NotConjugate,
     "y", "precision", "s", "Gamma", "Exponential"),
    (lambda: ng.LogNormal("y", normal(), 1.0, plate=N), TypeError, "y", "Normal"),
    (lambda: ng.Rayleigh("y", gamma(), plate=N), TypeError, "y", "Rayleigh", "observed"),
    (lambda: ng.Rayleigh("y", gamma(), plate=N, observed=[1.0, -2.0, 2.0]), ValueError, "y", "observed[1]", "-2", "Rayleigh"),
    (lambda: ng.LogNormal("y", normal(), 1.0, plate=N, observed=[1.0, 0.0, 2.0]), ValueError,
     "y", "observed[1]", "0", "LogNormal"),
    (lambda: ng.TruncatedNormal("y", normal(), 1.0, lower=0.0), NotConjugate, "y", "mean takes known"),
    (lambda: ng.TruncatedNormal("y", 0.0, 1.0, lower=2.0, upper=1.0), ValueError, "y", "lower", "2"),
    (lambda: ng.TruncatedNormal("y", 0.0, 1.0, lower=0.0, observed=-1.0), ValueError, "y", "observed", "-1", "TruncatedNormal"),
    (lambda: ng.HalfCauchy("y", 0.0), ValueError, "y", "scale", "0"),
    (lambda: ng.HalfCauchy("y", gamma()), NotConjugate, "y", "scale takes known"),
    # -- sums of rates
    (lambda: ng.Poisson("y", gamma("a") + gamma("b"), plate=N), TypeError, "y", "give observed=counts"),
    (lambda: ng.Poisson("y", gamma("a") + normal("b"), plate=N, observed=COUNTS), NotConjugate, "a + b", "Gammas"),
    (lambda: ng.Poisson("y", ng.dot(gamma("a"), gamma("b")), plate=N, observed=COUNTS), PlateMismatch, "y", "dot", "over="),
    (lambda: (lambda a: ng.dot(a, a))(gamma("a", plate=K)), NotConjugate, "dot", "Use two nodes"),
    (lambda: gamma("a") + -1.0, ValueError, "a + x", "x", "-1"),
    (lambda: ng.dot([[1.0, -2.0]], gamma("a", plate=K)), ValueError, "dot", "-2"),
    (lambda: ng.Gamma("y", 1.0, gamma("a") + gamma("b")), NotConjugate, "y", "rate", "(a + b)", "Gamma", "Exponential"),
    # -- sticks and concentrations
    (lambda: ng.StickBreaking("p", 1.0, size=1), ValueError, "p", "size", "1"),
    (lambda: ng.StickBreaking("p", 1.0, size=5, discount=1.0), ValueError, "p", "discount", "1.0", "Dirichlet"),
    (lambda: ng.StickBreaking("p", gamma(), size=5, discount=gamma()), ValueError, "p", "discount", "Dirichlet"),
    (lambda: ng.Dirichlet("p", gamma()), PlateMismatch, "p", "size="),
    # -- flat priors
    (lambda: ng.Gamma("t", -2.0, 0.0), ValueError, "t", "shape", "-2"),
    (lambda: ng.Gamma("t", 0.0, 1.0, plate=N, observed=[1.0, 2.0, 3.0]), ValueError, "t", "shape", "0"),
    (lambda: fit(read(ng.Normal("m", 0.0, 0.0, plate=K)[[0, 0, 0]], observed=DATA)), ValueError, "m", "Give it a"),
    (lambda: fit(read(ng.Normal("m", 0.0, 0.0, plate=K)[category()], observed=DATA)), ValueError, "m", "Give it a"),
    (lambda: fit(ng.Normal("y", ng.Normal("m", 0.0, 0.0, plate=N), ng.Gamma("t", 0.0, 0.0), plate=N, observed=DATA)), ValueError,
     "t", "one", "Give a proper"),
    (lambda: fit(read(ng.Normal("m", 0.0, ng.Gamma("t", 0.0, 0.0), plate=N), observed=DATA)), ValueError,
     "t", "Gamma(-0.5, 0)", "HalfCauchy"),
    (lambda: ng.Categorical("y", HALF, logits=normal(plate=K), plate=N, observed=YES), TypeError, "y", "probs and logits"),
]
# fmt: on
