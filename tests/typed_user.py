"""A program as a user writes it, checked with mypy --strict: every public name has a type that helps."""

from __future__ import annotations

import numpy as np

import natgrad as ng

rng = np.random.default_rng(0)


def networks() -> float:
    """Declare, fit, read."""
    point, component = ng.Plate("point", 20), ng.Plate("component", 2)
    weight = ng.Dirichlet("weight", 1.0, size=2)
    z = ng.Categorical("z", weight, plate=point)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    x = ng.Normal("x", mu[z], ng.Gamma("tau", 1.0, 1.0), plate=point, observed=rng.normal(size=20))
    network = ng.Network(x)
    fit = network.fit(max_steps=5, init="kmeans")
    fit = network.fit(ng.SVI({"point": 5}), step=ng.inference.RobbinsMonro(), max_passes=2)
    mean = fit["mu"].mean()
    low, high = fit["mu"].interval(0.9)
    table = fit.summary()
    print(mean.shape, low, high, table["mean"], fit.stop.converged, fit.trace["elbo"], fit.stop.reason)
    print(fit.linear_response()["mu"].std(), fit.draws(n=10, verbose=False)["mu"].mean(), fit.predictive("x").mean())
    ng.Bernoulli("b", ng.Beta("p", 1.0, 1.0), observed=1)
    ng.Binomial("c", 3, 0.5, observed=1)
    ng.Poisson("d", ng.language.Exponential("rate", 1.0), observed=2)
    ng.language.Multinomial("e", 3, [0.5, 0.5], observed=[1, 2])
    ng.MultivariateNormal("f", np.zeros(2), ng.Wishart("W", 3.0, np.eye(2)))
    ng.MarkovChain("s", [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], plate=ng.Plate("time", 5))
    ng.StudentT("t", 0.0, 1.0, df=4.0)
    ng.dot(ng.Normal("w", 0.0, 1.0, plate=component), ng.Normal("v", 0.0, 1.0, plate=component), over=component)
    ng.table(np.eye(2))
    ng.diag(ng.Gamma("relevance", 1.0, 1.0, plate=component))
    process = ng.GaussianProcess("g", ng.covariance.RBF(), inducing=np.zeros((2, 1)))
    print(process, ng.language.Normal, ng.HeldOut(rng.normal(size=3)), ng.load, ng.compare)
    return fit.elbo


def models() -> None:
    """Fit the ready models; `fit` returns the estimator itself."""
    X = rng.normal(size=(30, 2))
    mixture = ng.GaussianMixture(n_components=2).fit(X)
    print(mixture.means_, mixture.predict(X), mixture.score(X))
    chain = ng.GaussianHMM(n_states=2).fit(X)
    print(chain.transmat_, chain.predict(X))
    ng.CategoricalHMM(2).fit(rng.integers(0, 3, (20, 1)))
    ng.PoissonHMM(2).fit(rng.integers(0, 3, (20, 1)))
    ng.BernoulliHMM(2).fit(rng.integers(0, 2, (20, 1)))
    topics = ng.LDA(n_topics=2).fit(["apple pear", "bolt nut", "apple plum", "nut screw"])
    print(topics.top_words(2), topics.transform(["apple"]))
    ratings = ng.data.Ratings(["ann", "bob"], ["x", "y"], [1.0, 2.0])
    factors = ng.MatrixFactorization(n_factors=1).fit(ratings)
    print(factors.predict(["ann"], ["y"]), factors.recommend("ann", n=1).items)
    process = ng.SparseGPRegressor(n_inducing=5, max_steps=5).fit(X, X[:, 0])
    print(process.predict(X), process.kernel_)
    print(ng.SparseGPClassifier(n_inducing=5, max_steps=5).fit(X, X[:, 0] > 0).predict_proba(X))
    print(ng.topics.SupervisedLDA(n_topics=2))
    train, test = ng.data.train_test_split(X, test_size=0.2)
    print(
        len(train),
        len(test),
        ng.covariance.RBF(),
        ng.families.Normal,
        ng.errors.NotConverged,
        ng.VB(),
        ng.Auto(),
        ng.Children(2),
    )


def misspelt() -> None:
    """Never called: type checkers know every public name and no other, so an unused "ignore" is an error here."""
    print(ng.Colum)  # type: ignore[attr-defined]
    print(ng.data.Rating)  # type: ignore[attr-defined]
    print(ng.Column, ng.StateSpaceGP, ng.StickBreaking, ng.recommenders, ng.language.Columns, ng.__version__)


if __name__ == "__main__":
    print(networks())
    models()
