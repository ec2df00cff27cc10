"""Models on which the stopping rule is judged: fitted until it says stop, and ten times as long.

Each entry is a function that fits a model twice and returns a `Loss`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from promises.networks import CASES

import natgrad as ng

Row = Callable[[], "Loss"]
# Steps that stand for ten times as long where few were taken.
LEAST = 100


class Loss(NamedTuple):
    """A fit that ended by itself, and what it would have gained in ten times as many steps."""

    steps: int
    bound: float
    later: float
    tolerance: float
    converged: bool
    words: str

    @property
    def loss(self) -> float:
        """Nats."""
        return self.later - self.bound


def network(declared: Any, method: Any = None, step: Any = None, **start: Any) -> Row:
    """Continued from where the fit ended, so that both are on the same way up."""

    def judged() -> Loss:
        net, options = (declared() if callable(declared) else declared), start
        if hasattr(net, "network"):
            net, options = net.network, {"init": net.init, "order": net.order, **start}
        fit = net.fit(method, step=step, max_steps=3000, **options)
        later = fit.continue_fit(max_steps=max(LEAST, 9 * len(fit.trace)), tol=0)
        return Loss(len(fit.trace), fit.elbo, later.elbo, 1e-3, fit.stop.converged, str(fit.stop))

    return judged


def estimator(make: Callable[..., Any], data: Any, limit: str, observations: int, batches: int = 1) -> Row:
    """Fitted again without a tolerance: the same steps, and more of them; topics are continued, too.

    Without a tolerance nothing is probed, so that the longer run may be on another way than the one that has settled.
    """

    def judged() -> Loss:
        given = data if isinstance(data, tuple) else (data,)
        model = make(**{limit: 2000}).fit(*given)
        steps, bound, stop = len(model.trace_), model.elbo_, model.stop_
        longer = max(LEAST, 10 * steps // batches)
        later = make(tol=0.0, **{limit: longer}).fit(*given).elbo_
        if isinstance(model, ng.LDA):
            later = max(later, model.set_params(tol=0.0).continue_fit(*given, longer).elbo_)
        return Loss(steps, bound, later, make().tol * observations, stop.converged, str(stop))

    return judged


def mixed_documents(topics: int, alpha: float, seed: int) -> Row:
    """`LDA` of 120 documents of 60 words, each a mixture of all topics, continued from where the fit ended."""

    def judged() -> Loss:
        rng = np.random.default_rng(seed)
        words = rng.dirichlet(np.full(60, 0.1), topics)
        counts = np.array([rng.multinomial(60, share @ words) for share in rng.dirichlet(np.full(topics, alpha), 120)])
        model = ng.LDA(
            topics, local=ng.LocalOptions(dtype="float64"), inference="vb", tol=1e-3, max_passes=2000, verbose=False
        ).fit(counts)
        steps, bound, stop, allowed = len(model.trace_), model.elbo_, model.stop_, model.tol * counts.sum()
        later = model.set_params(tol=0.0).continue_fit(counts, max(LEAST, 10 * steps // 6)).elbo_
        return Loss(steps, bound, later, allowed, stop.converged, str(stop))

    return judged


# -- networks --


def two_components(n: int, half: float) -> ng.Network:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n) < 0.5, -half, half) + rng.normal(size=n)
    point, component = ng.Plate("point", n), ng.Plate("component", 2)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=2), plate=point)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    return ng.Network(ng.Normal("y", mu[z], ng.Gamma("tau", 1.0, 1.0), plate=point, observed=y))


def blobs(n: int, size: int, components: int, apart: float) -> ng.Network:
    rng = np.random.default_rng(0)
    centres = apart * rng.normal(size=(components, size))
    y = centres[rng.integers(0, components, n)] + rng.normal(size=(n, size))
    point, component = ng.Plate("point", n), ng.Plate("component", components)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=components), plate=point)
    mu = ng.MultivariateNormal("mu", np.zeros(size), 0.01 * np.eye(size), plate=component)
    precision = ng.Wishart("precision", size + 1.0, np.eye(size), plate=component)
    return ng.Network(ng.MultivariateNormal("y", mu[z], precision[z], plate=point, observed=y))


def chain(sequences: int, times: int, states: int, apart: float = 3.0) -> ng.Network:
    rng = np.random.default_rng(0)
    path = np.zeros((sequences, times), int)
    for t in range(1, times):
        stay = rng.random(sequences) < 0.9
        path[:, t] = np.where(stay, path[:, t - 1], rng.integers(0, states, sequences))
    y = apart * path + rng.normal(size=path.shape)
    sequence, time, state = ng.Plate("sequence", sequences), ng.Plate("time", times), ng.Plate("state", states)
    first, rows = ng.Dirichlet("first", 1.0, size=states), ng.Dirichlet("rows", 1.0, size=states, plate=state)
    z = ng.MarkovChain("z", first, rows, plate=(sequence, time))
    mu, tau = ng.Normal("mu", 0.0, 0.01, plate=state), ng.Gamma("tau", 1.0, 1.0, plate=state)
    return ng.Network(ng.Normal("y", mu[z], tau[z], plate=(sequence, time), observed=y))


def memberships(n: int = 20, groups: int = 3) -> ng.Network:
    """A mixed-membership block model of who sends to whom."""
    rng = np.random.default_rng(0)
    share, table = rng.dirichlet(np.full(groups, 0.2), n), 0.05 + 0.85 * np.eye(groups)
    one, other = np.nonzero(~np.eye(n, dtype=bool))
    drawn = [np.array([rng.choice(groups, p=share[i]) for i in side]) for side in (one, other)]
    y = (rng.random(len(one)) < table[drawn[0], drawn[1]]).astype(int)
    node, edge = ng.Plate("node", n), ng.Plate("edge", len(one))
    theta = ng.Dirichlet("theta", 0.3, size=groups, plate=node)
    sends = ng.Categorical("sends", theta[one], plate=edge)
    gets = ng.Categorical("gets", theta[other], plate=edge)
    b = ng.Beta("b", 1.0, 1.0, plate=(ng.Plate("from", groups), ng.Plate("to", groups)))
    return ng.Network(ng.Bernoulli("y", b[sends, gets], plate=edge, observed=y))


def regression(design: Any, y: Any) -> ng.Network:
    w = ng.Normal("w", 0.0, 0.01, plate=ng.Plate("column", design.shape[1]))
    noise = ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("y", ng.dot(design, w), noise, plate=ng.Plate("row", len(y)), observed=y))


def twins(n: int, apart: float) -> ng.Network:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    design = np.stack([np.ones(n), x, x + apart * rng.normal(size=n)], axis=1)
    return regression(design, design @ [1.0, 2.0, -1.0] + rng.normal(size=n))


def powers(n: int, degree: int) -> ng.Network:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, n)
    return regression(x[:, None] ** np.arange(degree + 1), np.sin(3 * x) + 0.1 * rng.normal(size=n))


def topics(docs: int = 40, words: int = 30) -> ng.Network:
    rng = np.random.default_rng(0)
    phi, theta = rng.dirichlet(np.full(words, 0.1), 4), rng.dirichlet(np.full(4, 0.3), docs)
    table = rng.poisson(30 * theta @ phi) + np.eye(docs, words, dtype=int)
    doc_of, word_of = np.nonzero(table)
    doc, topic = ng.Plate("doc", docs), ng.Plate("topic", 4)
    cell = ng.Plate("cell", len(doc_of), weight=table[doc_of, word_of])
    shares = ng.Dirichlet("shares", 0.3, size=4, plate=doc)
    z = ng.Categorical("z", shares[doc_of], plate=cell)
    spoken = ng.Dirichlet("spoken", 0.1, size=words, plate=topic)
    return ng.Network(ng.Categorical("w", spoken[z], plate=cell, observed=word_of))


# -- data of ready models --


def table_of_counts(docs: int, words: int) -> Any:
    rng = np.random.default_rng(0)
    phi, theta = rng.dirichlet(np.full(words, 0.1), 5), rng.dirichlet(np.full(5, 0.2), docs)
    return rng.poisson(60 * theta @ phi) + np.eye(docs, words, dtype=int)


def stars(users: int, items: int, count: int) -> ng.Ratings:
    rng = np.random.default_rng(0)
    who, what = rng.integers(0, users, count), rng.integers(0, items, count)
    u, v = rng.normal(size=(users, 3)), rng.normal(size=(items, 3))
    values = 3.0 + 0.6 * (u[who] * v[what]).sum(1) + 0.7 * rng.normal(size=count)
    return ng.Ratings(who, what, values, duplicates="mean")


def signal(times: int, apart: float) -> Any:
    rng = np.random.default_rng(0)
    path = np.cumsum(rng.random(times) < 0.05) % 3
    return apart * path[:, None] + rng.normal(size=(times, 2))


def wave(n: int) -> Any:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, n))
    return x[:, None], np.sin(2 * x) + 0.2 * rng.normal(size=n)


def quick(make: Any, *given: Any, **options: Any) -> Callable[..., Any]:
    return lambda **more: make(*given, verbose=False, **{**options, **more})


COUNTS, STARS = table_of_counts(120, 60), stars(60, 40, 1500)
WORDS, WAVE = int(COUNTS.sum()), wave(120)
NETWORKS: dict[str, Row] = {
    **{f"tests: {name}": network(case) for name, case in CASES.items()},
    "two components ±3": network(lambda: two_components(600, 3.0), init="random"),
    "two components ±1.5": network(lambda: two_components(600, 1.5), init="random"),
    "two components ±3, plain sweeps": network(lambda: two_components(600, 3.0), ng.VB(), init="random"),
    "two components ±3, batches": network(lambda: two_components(600, 3.0), ng.SVI({"point": 100}), init="random"),
    "5 overlapping blobs": network(lambda: blobs(400, 2, 5, 1.5), init="kmeans"),
    "5 overlapping blobs, plain sweeps": network(lambda: blobs(400, 2, 5, 1.5), ng.VB(), init="kmeans"),
    "8 components for 4 blobs": network(lambda: blobs(300, 2, 8, 3.0), init="random"),
    "chain of 3 states": network(lambda: chain(10, 40, 3), init="random"),
    "chain of 3 states, overlapping": network(lambda: chain(10, 40, 3, 1.5), init="random"),
    "one chain of 4 states": network(lambda: chain(1, 300, 4), init="random"),
    "memberships": network(memberships, init="random"),
    "nearly equal columns": network(lambda: twins(300, 1e-3)),
    "nearly equal columns, plain sweeps": network(lambda: twins(300, 0.3), ng.VB()),
    "200,000 rows": network(lambda: twins(200_000, 1e-3)),
    "polynomial": network(lambda: powers(60, 7)),
    "topics": network(topics, init="random"),
    "factorisation, all together": network(CASES["factorised"], ng.VB("b"), init="random"),
}
READY: dict[str, Row] = {
    "LDA": estimator(quick(ng.LDA, 5, inference="vb", tol=1e-3), COUNTS, "max_passes", WORDS, 6),
    "LDA in batches": estimator(
        quick(ng.LDA, 5, inference="vb", tol=1e-3, local=ng.LocalOptions(batch_size=12)),
        COUNTS,
        "max_passes",
        WORDS,
        10,
    ),
    "LDA, double precision": estimator(
        quick(ng.LDA, 5, inference="vb", tol=1e-3, local=ng.LocalOptions(dtype="float64", skip_below=0.0)),
        COUNTS,
        "max_passes",
        WORDS,
        6,
    ),
    # Documents changed their topics long after a run had settled: 1.8 to 6.4 nats came later on the first four.
    **{
        f"LDA, mixed documents, {topics} topics, {seed}": mixed_documents(topics, alpha, seed)
        for topics, alpha, seed in ((5, 1.0, 1), (5, 3.0, 0), (8, 3.0, 0), (8, 3.0, 1), (8, 1.0, 0))
    },
    "LDA, learned priors": estimator(
        quick(ng.LDA, 5, inference="vb", tol=1e-3, doc_prior="learn", topic_prior="learn"),
        COUNTS,
        "max_passes",
        WORDS,
        6,
    ),
    "MatrixFactorization": estimator(quick(ng.MatrixFactorization, 3), STARS, "max_steps", len(STARS)),
    "MatrixFactorization, known precisions": estimator(
        quick(
            ng.MatrixFactorization,
            3,
            noise=1.0,
            priors=ng.recommenders.FactorPriors(precision=1.0, biases=False),
        ),
        STARS,
        "max_steps",
        len(STARS),
    ),
    "GaussianHMM": estimator(quick(ng.GaussianHMM, 3), signal(1000, 3.0), "max_passes", 1000),
    "GaussianHMM, overlapping": estimator(quick(ng.GaussianHMM, 3), signal(1000, 1.0), "max_passes", 1000),
    "GaussianMixture": estimator(quick(ng.GaussianMixture, 3), signal(1000, 3.0), "max_passes", 1000),
    "GaussianMixture, overlapping": estimator(
        quick(ng.GaussianMixture, 5, covariance="diag"), signal(1000, 1.0), "max_passes", 1000
    ),
    "PoissonHMM": estimator(
        quick(ng.PoissonHMM, 3), np.random.default_rng(0).poisson(3 * signal(800, 3.0).clip(0.1)), "max_passes", 800
    ),
}
READY["SparseGPRegressor"] = estimator(quick(ng.SparseGPRegressor, n_inducing=12), WAVE, "max_steps", len(WAVE[1]))
MODELS = {**NETWORKS, **READY}
