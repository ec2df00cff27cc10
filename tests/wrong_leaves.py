"""Wrong declarations of leaves by augmentation, flat priors and sticks, and the whole text that a user reads."""

import numpy as np
from wrong_declarations import DATA, HALF, K, N, beta, category, gamma, normal, read, vector

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
    (lambda: ng.Bernoulli("y", plate=N, observed=YES), TypeError,
     "'y': a Bernoulli takes one of prob, logit, probit, but nothing was given"),
    (lambda: ng.Bernoulli("y", 0.5, logit=normal(), plate=N, observed=YES), TypeError,
     "'y': a Bernoulli takes one of prob, logit, probit, but prob and logit were given"),
    (lambda: ng.Bernoulli("y", normal(), plate=N, observed=YES), NotConjugate,
     "'y': prob cannot be the Normal mu: the edge mu → y is not conjugate. prob takes a constant probability or a Beta. For a "
     "logistic link write logit=mu"),
    (lambda: ng.Bernoulli("y", logit=beta(), plate=N, observed=YES), NotConjugate,
     "'y': logit cannot be the Beta q: the edge q → y is not conjugate. logit takes a constant, a Normal, a dot, a "
     "sum or a known "
     "multiple of these"),
    (lambda: ng.Bernoulli("y", logit=vector(), plate=N, observed=YES), NotConjugate,
     "'y': logit cannot be the MultivariateNormal v: the edge v → y is not conjugate. logit takes a constant, a "
     "Normal, a dot, a sum "
     "or a known multiple of these"),
    (lambda: ng.Bernoulli("y", logit=normal(), plate=N, observed=[0, 2, 1]), ValueError,
     "'y': observed[1] = 2, but a Bernoulli takes 0 or 1 (1 such)"),
    (lambda: ng.Bernoulli("y", probit=normal(), plate=N), TypeError,
     "'y': a Bernoulli with probit= must be observed: give observed=values of 0 and 1"),
    (lambda: ng.Binomial("y", 5, plate=N, observed=COUNTS), TypeError,
     "'y': a Binomial takes one of prob, logit, but nothing was given"),
    (lambda: ng.NegativeBinomial("y", 2.0, plate=N, observed=COUNTS), TypeError,
     "'y': a NegativeBinomial takes one of prob, logit, but nothing was given"),
    (lambda: ng.NegativeBinomial("y", 2.0, 0.5, plate=N), TypeError,
     "'y': a NegativeBinomial must be observed: give observed=counts"),
    (lambda: ng.NegativeBinomial("y", 0.0, 0.5, plate=N, observed=COUNTS), ValueError,
     "'y': shape = 0 must be > 0"),
    (lambda: ng.NegativeBinomial("y", gamma(), 0.5, plate=N, observed=COUNTS), NotConjugate,
     "'y': shape cannot be random, but tau was given: the edge tau → y has no closed-form message. shape takes known numbers"),
    (lambda: ng.NegativeBinomial("y", 2.0, 0.5, plate=N, observed=[1, 2.5, 1]), ValueError,
     "'y': observed[1] = 2.5, but a NegativeBinomial takes whole numbers ≥ 0 (1 such)"),
    (lambda: ng.Categorical("y", plate=N, observed=YES), TypeError,
     "'y': a Categorical takes one of probs, logits, softmax, weights, but nothing was given"),
    (lambda: ng.Categorical("y", logits=[0.0, 1.0], plate=N, observed=YES), TypeError,
     "'y': logits must be random, a dot or nodes along a plate: known ones are probs="),
    (lambda: ng.Categorical("y", logits=normal(), plate=N, observed=YES), PlateMismatch,
     "'y': logits = mu must lie along one plate that 'y' is not on, one number for each category but the last, found none"),
    (lambda: ng.Categorical("y", softmax=normal(plate=K), plate=N), TypeError,
     "'y': a Categorical with softmax= must be observed: give observed=categories; a hidden one may have logits=, by "
     "stick-breaking"),
    (lambda: ng.Categorical("y", softmax=[0.0, 1.0], plate=N, observed=YES), TypeError,
     "'y': softmax must be random, a dot or nodes along a plate: known ones are probs="),
    (lambda: ng.Categorical("y", softmax=normal(), plate=N, observed=YES), PlateMismatch,
     "'y': softmax = mu must lie along one plate that 'y' is not on, one number for each category, found none"),
    (lambda: ng.Categorical("y", softmax=normal(plate=K) + ng.Normal("m", 0.0, 1.0), plate=N, observed=YES), NotConjugate,
     "'y': softmax = (mu + m) reads m, which is the same for all categories: added, it cancels, and multiplied, the scores "
     "depend on one another. Leave it out, or give it plate 'k'"),
    (lambda: ng.Categorical("y", logits=normal(plate=K), plate=N, observed=[0, 1, 3]), ValueError,
     "'y': observed[2] = 3 is outside the categories 0 … 2 (1 such)"),
    # -- thresholds and censoring
    (lambda: ng.Ordinal("y", normal(), cutpoints=[1.0, 0.0], plate=N, observed=YES), ValueError,
     "'y': cutpoints must increase, but cutpoints[1] = 0 is not above 1"),
    (lambda: ng.Ordinal("y", normal(), cutpoints=0.0, plate=N, observed=YES), ValueError,
     "'y': cutpoints must be a list of increasing numbers, got shape ()"),
    (lambda: ng.Ordinal("y", normal(), cutpoints=[0.0], plate=N, observed=[0, 1, 2]), ValueError,
     "'y': observed[2] = 2 is outside the categories 0 … 1 (1 such)"),
    (lambda: ng.Ordinal("y", normal(), cutpoints=[0.0], plate=N), TypeError,
     "'y': an Ordinal must be observed: give observed=categories"),
    (lambda: ng.censored(DATA), TypeError,
     "censored needs upper=, right= or left=: data that were all seen need no censored(…)"),
    (lambda: ng.censored(DATA, right=[0, 1, 2]), TypeError,
     "censored: right must be booleans, True where censored, got dtype int64"),
    (lambda: ng.censored(DATA, right=[True, False]), ValueError,
     "censored: right has shape (2,), but (3,) is needed, one for each value"),
    (lambda: ng.censored(DATA, right=True, left=[False, True, False]), ValueError,
     "censored: values[1] = 0.2 is censored right and left: it is missing, NaN"),
    (lambda: ng.censored([1.0, 2.0], [3.0, 1.5]), ValueError,
     "censored: values[1] = 2 is above upper[1] = 1.5: the lower bound comes first"),
    (lambda: ng.censored([1.0, nan], [3.0, 1.5]), ValueError,
     "censored: one of the two bounds[1] is NaN: no bound is -inf or inf"),
    (lambda: ng.censored(DATA, [1.0], right=True), TypeError,
     "censored takes upper bounds, or right= and left=, not both"),
    (lambda: ng.Gamma("y", 1.0, 1.0, plate=N, observed=ng.censored([1.0, 2.0, 3.0], right=True)), TypeError,
     "'y': a Gamma cannot be censored, only a Normal, a LogNormal and an Exponential can"),
    (lambda: ng.Exponential("y", 1.0, plate=N, observed=ng.censored([-1.0, 2.0, 3.0], right=True)), ValueError,
     "'y': observed[0] = -1, but an Exponential takes values ≥ 0 (1 such)"),
    # -- robust noise
    (lambda: ng.StudentT("y", normal(), 1.0, df=gamma(), plate=N, observed=DATA), NotConjugate,
     "'y': df cannot be random, but tau was given: the edge tau → y has no closed-form message. df takes known numbers"),
    (lambda: ng.StudentT("y", normal(), 1.0, df=0.0, plate=N, observed=DATA), ValueError,
     "'y': df = 0 must be > 0"),
    (lambda: ng.StudentT("y", normal(), 1.0, plate=N, observed=DATA), TypeError,
     "'y': df must be given: StudentT(name, mean, precision, df=…)"),
    (lambda: ng.Laplace("y", normal(), normal("s"), plate=N, observed=DATA), NotConjugate,
     "'y': precision cannot be the Normal s: the edge s → y is not conjugate. precision takes a positive constant, "
     "a Gamma or an "
     "Exponential (a known multiple of it too)"),
    (lambda: ng.LogNormal("y", normal(), 1.0, plate=N), TypeError,
     "'y': a LogNormal must be observed: give observed=values; a hidden one is a Normal, its logarithm"),
    (lambda: ng.LogNormal("y", normal(), 1.0, plate=N, observed=[1.0, 0.0, 2.0]), ValueError,
     "'y': observed[1] = 0, but a LogNormal takes values > 0 (1 such)"),
    (lambda: ng.TruncatedNormal("y", normal(), 1.0, lower=0.0), NotConjugate,
     "'y': mean cannot be random, but mu was given: the edge mu → y has no closed-form message. mean takes known numbers"),
    (lambda: ng.TruncatedNormal("y", 0.0, 1.0, lower=2.0, upper=1.0), ValueError,
     "'y': lower = 2 must be below upper = 1"),
    (lambda: ng.TruncatedNormal("y", 0.0, 1.0, lower=0.0, observed=-1.0), ValueError,
     "'y': observed = -1, but a TruncatedNormal takes values between its bounds"),
    (lambda: ng.HalfCauchy("y", 0.0), ValueError,
     "'y': scale = 0 must be > 0"),
    (lambda: ng.HalfCauchy("y", gamma()), NotConjugate,
     "'y': scale cannot be random, but tau was given: the edge tau → y has no closed-form message. scale takes known numbers"),
    # -- sums of rates
    (lambda: ng.Poisson("y", gamma("a") + gamma("b"), plate=N), TypeError,
     "'y': a Poisson with the rate (a + b) must be observed: give observed=counts"),
    (lambda: ng.Poisson("y", gamma("a") + normal("b"), plate=N, observed=COUNTS), NotConjugate,
     "a + b: a positive number plus a real number has no closed form; a rate is a sum of Gammas, of dots of Gammas, "
     "and of constants"),
    (lambda: ng.Poisson("y", ng.dot(gamma("a"), gamma("b")), plate=N, observed=COUNTS), PlateMismatch,
     "'y': dot(a, b) must lie along one plate that 'y' is not on, found none: give over="),
    (lambda: (lambda a: ng.dot(a, a))(gamma("a", plate=K)), NotConjugate,
     "dot(a, a): 'a' stands on both sides, and the product of expectations is not the expectation of the product. "
     "Use two nodes"),
    (lambda: gamma("a") + -1.0, ValueError,
     "a + x: x = -1 must be ≥ 0, as a part of a rate"),
    (lambda: ng.dot([[1.0, -2.0]], gamma("a", plate=K)), ValueError,
     "dot: left[0, 1] = -2 must be ≥ 0, as a part of a rate (1 such)"),
    (lambda: ng.Gamma("y", 1.0, gamma("a") + gamma("b")), NotConjugate,
     "'y': rate cannot be (a + b), a sum of rates: the edge (a + b) → y is not conjugate. rate takes a positive "
     "constant, a Gamma or "
     "an Exponential (a known multiple of it too)"),
    # -- sticks and concentrations
    (lambda: ng.StickBreaking("p", 1.0, size=1), ValueError,
     "'p': size must be a whole number ≥ 2, got 1"),
    (lambda: ng.StickBreaking("p", 1.0, size=5, discount=1.0), ValueError,
     "'p': discount = 1.0 must lie in [0, 1); 0 is the Dirichlet process"),
    (lambda: ng.StickBreaking("p", gamma(), size=5, discount=gamma()), ValueError,
     "'p': discount = <Gamma 'tau'> must lie in [0, 1); 0 is the Dirichlet process"),
    (lambda: ng.Dirichlet("p", gamma()), PlateMismatch,
     "'p': the number of categories cannot be told from concentration: give size="),
    # -- flat priors
    (lambda: ng.Gamma("t", -2.0, 0.0), ValueError,
     "'t': shape = -2 must be ≥ -1"),
    (lambda: ng.Gamma("t", 0.0, 1.0, plate=N, observed=[1.0, 2.0, 3.0]), ValueError,
     "'t': shape = 0 must be > 0"),
    (lambda: fit(read(ng.Normal("m", 0.0, 0.0, plate=K)[[0, 0, 0]], observed=DATA)), ValueError,
     "'m': the prior is flat, and the data leave the posterior of m[1] improper: too little is observed that "
     "depends on it. Give it a "
     "proper prior, or drop it"),
    (lambda: fit(read(ng.Normal("m", 0.0, 0.0, plate=K)[category()], observed=DATA)), ValueError,
     "'m': the prior is flat, but 'z' chooses among its elements, and one that nobody chooses has no posterior. "
     "Give it a proper prior"),
    (lambda: fit(ng.Normal("y", ng.Normal("m", 0.0, 0.0, plate=N), ng.Gamma("t", 0.0, 0.0), plate=N, observed=DATA)), ValueError,
     "'t': the prior is flat, and so are those of 3 numbers that 3 observations depend on: these can be fitted "
     "exactly, and the "
     "posterior is improper. Give a proper prior to one of them"),
    (lambda: fit(read(ng.Normal("m", 0.0, ng.Gamma("t", 0.0, 0.0), plate=N), observed=DATA)), ValueError,
     "'t': Gamma(0, 0) is no prior for the precision of 'm', which is hidden: the posterior piles up at infinity. "
     "Gamma(-0.5, 0), flat "
     "in the standard deviation, is one, or HalfCauchy"),
    (lambda: ng.Categorical("y", HALF, logits=normal(plate=K), plate=N, observed=YES), TypeError,
     "'y': a Categorical takes one of probs, logits, softmax, weights, but probs and logits were given"),
]
# fmt: on
