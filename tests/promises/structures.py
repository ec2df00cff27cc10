"""Networks with structure, small: mixtures of whole models, switching dynamics, links above chains, shared weights, gaps."""

import numpy as np
from promises.nodes import BINARY, CLASS, COUNT, POSITIVE, REAL, SIZE, VECTORS, X, gamma, gap, n, rng, weights

import natgrad as ng

CURVES = gap(rng.normal(size=(4, 6)).ravel()).reshape(4, 6)
INPUTS = rng.normal(size=(4, 6, 1))
TABLE = gap(rng.normal(size=SIZE * 3)).reshape(SIZE, 3)
GROUP = np.arange(SIZE) % 4


def sequences():
    return ng.Plate("sequence", 4), ng.Plate("time", 6)


def components(size=2):
    return ng.Plate("k", size)


def chosen(plate, size=2):
    return ng.Categorical("z", ng.Dirichlet("w", 1.0, size=size), plate=plate)


def seen(mean, precision=None):
    return ng.Normal("y", mean, gamma() if precision is None else precision, plate=n(), observed=gap(REAL))


def curves(mean):
    return ng.Normal("y", mean, gamma(), plate=sequences(), observed=CURVES)


def mixture_of_hidden_chains():
    z, k, state = chosen(sequences()[0]), components(), ng.Plate("state", 3)
    start, move = ng.Dirichlet("start", 1.0, size=3, plate=k), ng.Dirichlet("move", 1.0, size=3, plate=(k, state))
    return curves(
        ng.Normal("mu", [-1.0, 0.0, 1.0], 0.1, plate=state)[ng.MarkovChain("x", start[z], move[z], plate=sequences())]
    )


def mixture_of_state_spaces(plates):
    z, row = chosen(sequences()[0]), ng.Plate("row", 2)
    if plates == 2:
        A = ng.MultivariateNormal("A", 0.5 * np.eye(2), 1.0, plate=(components(), row))
    else:
        A = ng.Normal("A", 0.5, 1.0, plate=(components(), row, ng.Plate("column", 2)))
    return curves(ng.GaussianChain("x", np.zeros(2), 1.0, A[z], 1.0, plate=sequences())[:, :, 0])


def mixture_of_noises():
    q = ng.Gamma("q", 2.0, 1.0, plate=components())
    return curves(ng.GaussianChain("x", 0.0, 1.0, 0.9, q[chosen(sequences()[0])], plate=sequences())[:, :, 0])


def mixture_of_regressions():
    z, b = chosen(n()), ng.MultivariateNormal("b", np.zeros(2), 0.1, plate=components())
    return seen(ng.dot(X, b[z]), ng.Gamma("t", 2.0, 1.0, plate=components())[z])


def mixture_of_analysers():
    z, k, d = chosen(n()), components(), ng.Plate("d", 3)
    W, m = ng.MultivariateNormal("W", np.zeros(2), 0.1, plate=(k, d)), ng.Normal("m", 0.0, 0.1, plate=(k, d))
    x = ng.MultivariateNormal("x", np.zeros(2), 1.0, plate=n())
    return ng.Normal("y", ng.dot(W[z], x) + m[z], ng.Gamma("t", 2.0, 1.0, plate=d), plate=(n(), d), observed=TABLE)


def process():
    return ng.GaussianProcess("f", ng.covariance.RBF(), inducing=np.linspace(-2.0, 2.0, 4)[:, None], plate=components())


def switching(dynamics):
    state = ng.Plate("state", 2)
    z = ng.MarkovChain("z", ng.Dirichlet("p", 1.0, size=2), ng.Dirichlet("move", 1.0, size=2, plate=state), plate=n())
    if dynamics == "random":
        A = ng.MultivariateNormal("A", 0.5 * np.eye(2), 1.0, plate=(state, ng.Plate("row", 2)))[z]
        return seen(ng.GaussianChain("x", np.zeros(2), 1.0, A, 1.0, plate=n())[:, 0])
    if dynamics == "known":
        A = ng.table(np.array([[[0.9]], [[-0.9]]]))[z]
        return seen(ng.GaussianChain("x", 0.0, 1.0, A, 1.0, plate=n())[:, 0])
    q = ng.Gamma("q", [1.0, 3.0], 1.0, plate=state)[z]
    return seen(ng.GaussianChain("x", 0.0, 1.0, 0.9, q, plate=n())[:, 0])


def lengths():
    relevance = ng.Gamma("relevance", 1.0, 1.0, plate=ng.Plate("column", 2))
    A = ng.MultivariateNormal("A", np.eye(2), ng.diag(relevance), plate=ng.Plate("row", 2))
    P, Q = ng.Wishart("P", 4.0, np.eye(2)), ng.Wishart("Q", 4.0, np.eye(2))
    return seen(ng.GaussianChain("x", np.zeros(2), P, A, Q, plate=n(), lengths=[5, 4, 3])[:, 0])


def inputs():
    A = ng.MultivariateNormal("A", np.zeros(3), 1.0, plate=ng.Plate("row", 2))
    return curves(ng.GaussianChain("x", np.zeros(2), 1.0, A, 1.0, inputs=INPUTS, plate=sequences())[:, :, 0])


def state():
    return ng.GaussianChain("x", 0.0, 1.0, 1.0, gamma("q"), plate=n())[:, 0]


def shared_weights():
    a = ng.GammaShape("a", 2.0 / 3, 0.1, plate=components(3))
    z = ng.Categorical("z", ng.Dirichlet("p", a, plate=ng.Plate("group", 4))[GROUP], plate=n())
    return seen(ng.Normal("mu", [-1.0, 0.0, 1.0], 0.1, plate=components(3))[z])


def sticks(**options):
    z = ng.Categorical("z", ng.StickBreaking("p", size=4, **options), plate=n())
    return seen(ng.Normal("mu", [-1.0, 0.0, 1.0, 2.0], 0.1, plate=components(4))[z])


def coins():
    a, b = ng.Bernoulli("a", 0.3, plate=n()), ng.Bernoulli("b", ng.Beta("p", 1.0, 1.0), plate=n())
    return seen(ng.Normal("mu", [[-2.0, -1.0], [1.0, 2.0]], 1.0, plate=(components(), ng.Plate("j", 2)))[a, b])


def vectors_with_gaps(mixed):
    data = TABLE.copy()
    data[3, :2], data[4] = np.nan, np.nan
    if not mixed:
        m, W = ng.MultivariateNormal("m", np.zeros(3), 0.1), ng.Wishart("W", 5.0, np.eye(3))
        return ng.MultivariateNormal("y", m, W, plate=n(), observed=data)
    z, k = chosen(n()), components()
    m = ng.MultivariateNormal("m", [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], 0.1, plate=k)
    return ng.MultivariateNormal("y", m[z], ng.Wishart("W", 5.0, np.eye(3), plate=k)[z], plate=n(), observed=data)


def covariates_with_gaps():
    known = VECTORS.copy()
    known[0, 1], known[4] = np.nan, np.nan
    v = ng.MultivariateNormal(
        "v", ng.MultivariateNormal("m", np.zeros(2), 0.1), ng.Wishart("W", 4.0, np.eye(2)), plate=n(), observed=known
    )
    return seen(ng.dot(weights(), v))


def labels_with_gaps():
    z = ng.Categorical(
        "z",
        logits=ng.dot(X, ng.MultivariateNormal("b", np.zeros(2), 1.0, plate=ng.Plate("cut", 2))),
        plate=n(),
        observed=gap(CLASS),
    )
    return seen(ng.Normal("mu", [-1.0, 0.0, 1.0], 1.0, plate=components(3))[z])


def mixed(leaf):
    """A leaf whose parameter a category chooses."""
    z, k = chosen(n()), components()
    m, t = ng.Normal("m", [-1.0, 1.0], 1.0, plate=k)[z], ng.Gamma("t", [1.0, 3.0], 1.0, plate=k)[z]
    return leaf(m, t, z, k)


STRUCTURES = {
    "mixture of Markov chains": mixture_of_hidden_chains,
    "mixture of state spaces, rows": lambda: mixture_of_state_spaces(2),
    "mixture of state spaces, numbers": lambda: mixture_of_state_spaces(3),
    "mixture of state spaces, noise": mixture_of_noises,
    "mixture of regressions": mixture_of_regressions,
    "mixture of factor analysers": mixture_of_analysers,
    "mixture of processes": lambda: seen(process()(X[:, :1])[chosen(n())]),
    "mixture of curves": lambda: curves(process()(np.linspace(-2.0, 2.0, 6))[chosen(sequences()[0])]),
    "switching dynamics": lambda: switching("random"),
    "switching dynamics, known": lambda: switching("known"),
    "switching noise": lambda: switching("noise"),
    "state space, lengths": lengths,
    "state space, inputs": inputs,
    "state space, logit": lambda: ng.Bernoulli("y", logit=state(), plate=n(), observed=gap(BINARY)),
    "state space, probit": lambda: ng.Bernoulli("y", probit=state(), plate=n(), observed=gap(BINARY)),
    "state space, counts": lambda: ng.NegativeBinomial("y", 3.0, logit=state(), plate=n(), observed=gap(COUNT)),
    "state space, Student": lambda: ng.StudentT("y", state(), gamma(), df=4.0, plate=n(), observed=gap(REAL)),
    "process, logit": lambda: ng.Bernoulli("y", logit=process()(X[:, :1])[GROUP % 2], plate=n(), observed=gap(BINARY)),
    "nested readings": lambda: seen(
        ng.Normal("mu", 0.0, 1.0, plate=components(3))[[0, 1, 2, 0]][GROUP] + ng.Normal("m", 0.0, 1.0)
    ),
    "a·b + b·c": lambda: (lambda a, b, c: seen(a * b + b * c))(
        *(ng.Normal(name, mean, 1.0) for name, mean in (("a", 1.0), ("b", 0.5), ("c", -0.2)))
    ),
    "a·b + b·c + a·c": lambda: (lambda a, b, c: seen(a * b + b * c + a * c))(
        *(ng.Normal(name, mean, 1.0) for name, mean in (("a", 1.0), ("b", 0.5), ("c", -0.2)))
    ),
    "parts of a vector": lambda: (lambda w: seen(ng.dot(X, w[:2]) + w[2]))(
        ng.MultivariateNormal("w", np.zeros(3), 1.0)
    ),
    "shared weights": shared_weights,
    "Pitman–Yor": lambda: sticks(concentration=1.0, discount=0.2),
    "Pitman–Yor, learned": lambda: sticks(concentration=gamma("alpha"), discount=0.2),
    "Dirichlet process": lambda: sticks(concentration=gamma("alpha")),
    "left to right": lambda: seen(
        ng.Normal("mu", [-1.0, 0.0, 1.0], 0.1, plate=components(3))[
            ng.MarkovChain("z", [1.0, 0.0, 0.0], [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]], plate=n())
        ]
    ),
    "coins as parents": coins,
    "vectors with gaps": lambda: vectors_with_gaps(False),
    "mixture of vectors with gaps": lambda: vectors_with_gaps(True),
    "covariates with gaps": covariates_with_gaps,
    "labels with gaps and logits": labels_with_gaps,
    "interval-censored Normal": lambda: ng.Normal(
        "y", ng.Normal("m", 0.0, 1.0), gamma(), plate=n(), observed=ng.censored(np.floor(REAL), np.floor(REAL) + 1)
    ),
    "interval-censored Exponential": lambda: mixed(
        lambda m, t, z, k: ng.Exponential(
            "y", t, plate=n(), observed=ng.censored(np.floor(POSITIVE), np.floor(POSITIVE) + 1)
        )
    ),
    "censored LogNormal": lambda: ng.LogNormal(
        "y", ng.Normal("m", 0.0, 1.0), gamma(), plate=n(), observed=ng.censored(POSITIVE, right=POSITIVE > 2)
    ),
    "mixture, logit": lambda: mixed(lambda m, t, z, k: ng.Bernoulli("y", logit=m, plate=n(), observed=gap(BINARY))),
    "mixture, probit": lambda: mixed(lambda m, t, z, k: ng.Bernoulli("y", probit=m, plate=n(), observed=gap(BINARY))),
    "mixture, Student": lambda: mixed(lambda m, t, z, k: ng.StudentT("y", m, t, df=4.0, plate=n(), observed=gap(REAL))),
    "mixture, Laplace": lambda: mixed(lambda m, t, z, k: ng.Laplace("y", m, t, plate=n(), observed=gap(REAL))),
    "mixture, ordinal": lambda: mixed(
        lambda m, t, z, k: ng.Ordinal("y", m, t, cutpoints=[-0.5, 0.5], plate=n(), observed=gap(CLASS))
    ),
    "mixture, counts": lambda: mixed(
        lambda m, t, z, k: ng.NegativeBinomial("y", 2.0, logit=m, plate=n(), observed=gap(COUNT))
    ),
    "mixture, sums of rates": lambda: mixed(
        lambda m, t, z, k: ng.Poisson("y", t + gamma("u"), plate=n(), observed=gap(COUNT))
    ),
    "mixture, shapes": lambda: mixed(
        lambda m, t, z, k: ng.Gamma("y", ng.GammaShape("a", 1.0, 1.0, plate=k)[z], t, plate=n(), observed=gap(POSITIVE))
    ),
    "mixture, logits": lambda: mixed(
        lambda m, t, z, k: ng.Categorical(
            "y", logits=ng.Normal("s", 0.0, 1.0, plate=(k, ng.Plate("cut", 2)))[z], plate=n(), observed=gap(CLASS)
        )
    ),
    "softmax regression": lambda: ng.Categorical(
        "y",
        softmax=ng.dot(X, ng.MultivariateNormal("b", np.zeros(2), 1.0, plate=ng.Plate("kind", 3))),
        plate=n(),
        observed=gap(CLASS),
    ),
}
