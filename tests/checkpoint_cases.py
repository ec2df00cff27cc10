"""Small fits of every model, method and controller, for tests of checkpoints: a name in, a function of ``fit``'s options out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import networks
import numpy as np

import natgrad as ng
from natgrad import covariance
from natgrad.models import hmm
from natgrad.models.gp import Solver

STEPS = 12
MONRO = ng.RobbinsMonro(4.0, 0.7)


def network(make: Any, *settings: Any, **options: Any) -> Callable[..., Any]:
    made = cache(make)  # one network, so that nothing is compiled again

    def fit(**keep: Any) -> Any:
        net, init, order = made()
        return net.fit(*settings, init=init, order=order, **{"max_steps": STEPS, "tol": 0, **options}, **keep)

    return fit


def topics(**settings: Any) -> Callable[..., Any]:
    counts = np.random.default_rng(1).poisson(0.4, size=(120, 30))
    return lambda **keep: ng.LDA(
        **{
            "n_topics": 3,
            "inference": "vb",
            "max_passes": 4,
            "tol": 0,
            "local": ng.LocalOptions(batch_size=20),
            "n_jobs": 1,
            **settings,
        }
    ).fit(counts, **keep)


def factors(values: str = "normal", **settings: Any) -> Callable[..., Any]:
    rng = np.random.default_rng(2)
    table = {
        "normal": rng.normal(size=(30, 20)),
        "likes": np.ones((30, 20)),
        "counts": rng.poisson(1.0, (30, 20)) + 1.0,
        "stars": np.random.default_rng(6).integers(1, 6, (30, 20)) * 1.0,
    }
    kept = np.where(rng.random((30, 20)) < 0.5, np.nan, table[values])
    return lambda **keep: ng.MatrixFactorization(2, **{"max_steps": 24, "tol": 0, **settings}).fit(kept, **keep)


def chains(kind: type, values: str, lengths: Any = None, **settings: Any) -> Callable[..., Any]:
    rng = np.random.default_rng(3)
    states = np.repeat(rng.integers(0, 3, 60), 10)
    data = {
        "real": states[:, None] + 0.3 * rng.normal(size=(600, 1)),
        "codes": (states + rng.integers(0, 2, 600))[:, None],
    }
    data["both"] = np.hstack([data["real"], data["codes"]])
    return lambda **keep: kind(3, **{"n_init": 2, "max_passes": STEPS, "tol": 0, "n_jobs": 1, **settings}).fit(
        data[values], lengths=lengths, **keep
    )


def rows(kind: type, outputs: str = "", **settings: Any) -> Callable[..., Any]:
    rng = np.random.default_rng(4)
    x = rng.uniform(-2, 2, size=(200, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=200)
    cuts = [-0.5, 0.5] if settings.get("likelihood") in ("softmax", "ordinal") else [0.0]
    targets = np.digitize(y, cuts) if kind is ng.SparseGPClassifier else y
    if outputs:
        targets = np.stack([y, np.where((x[:, 1] > 1) & (outputs == "gaps"), np.nan, y**2)], 1)
    return lambda **keep: kind(
        **{"n_inducing": 10, "solver": Solver(batch_size=50), "max_steps": STEPS, **settings}
    ).fit(x, targets, **keep)


def clusters(**settings: Any) -> Callable[..., Any]:
    rng = np.random.default_rng(5)
    data = np.array([[-3.0, 0.0], [3.0, 1.0]])[rng.integers(0, 2, 200)] + rng.normal(size=(200, 2))
    return lambda **keep: ng.GaussianMixture(
        3, **{"n_init": 1, "max_passes": STEPS, "tol": 0, "n_jobs": 1, **settings}
    ).fit(data, sample_weight=np.arange(200) % 3, **keep)


def documents(kind: Any, **settings: Any) -> Callable[..., Any]:
    counts = np.random.default_rng(1).poisson(0.4, size=(40, 20))
    known = {"DynamicTopics": [np.arange(40) % 2], "CorrelatedTopics": []}[kind.__name__]
    return lambda **keep: kind(2, **{"max_steps": STEPS, "tol": 0, **settings}).fit(counts, *known, **keep)


def drifting(**settings: Any) -> Callable[..., Any]:
    rng = np.random.default_rng(7)
    pairs, known = rng.integers(0, 8, (200, 2)), {"time": rng.uniform(0, 5, 200), "context": rng.integers(0, 2, 200)}
    return lambda **keep: ng.recommenders.ContextFactorization(
        2, **{"n_bins": 3, "max_steps": STEPS, "tol": 0, **settings}
    ).fit(pairs, pairs.sum(1) + known["time"], **known, **keep)


KNOWN = {
    "noise": 1.0,
    "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False),
}
SUM = covariance.RBF() + covariance.Linear()
CASES: dict[str, Callable[..., Any]] = {
    "network, accelerated": network(networks.scalar_mixture),
    "network, turned": network(networks.factorised),
    "network, VB": network(networks.pca, ng.VB()),
    "network, VB (b)": network(networks.factorised, ng.VB(option="b")),
    "network, Children": network(networks.factorised, ng.Children(2), step=MONRO),
    "network, Children (b), per node": network(networks.skills, ng.Children(2, option="b"), step=ng.PerNode()),
    "network, Children, Auto": network(networks.several, ng.Children(1)),
    "network, GlobalBatch": network(networks.counts, ng.GlobalBatch(5), step=MONRO),
    "network, GlobalBatch, Auto": network(networks.blocks, ng.GlobalBatch(10)),
    "network, SVI": network(networks.lda, ng.SVI({"doc": 2}), step=MONRO),
    "network, memoised": network(networks.lda, ng.SVI({"doc": 2})),
    "LDA, memoised": topics(),
    "LDA, VB": topics(method=ng.VB(), max_passes=8),
    "LDA, SVI": topics(method=ng.SVI({"doc": 20})),
    "LDA, learned priors": topics(doc_prior="learn", topic_prior="learn", tol=1e-3),
    "LDA, learned priors, SVI": topics(
        doc_prior="learn", topic_prior="learn", method=ng.SVI({"doc": 20}), local=ng.LocalOptions(topics="point")
    ),
    "LDA, Gibbs": topics(inference="gibbs", gibbs_sweeps=4),
    "topics, dynamic": documents(ng.topics.DynamicTopics),
    "MF, default": factors(),
    "MF, Gibbs": factors(inference="gibbs", n_sweeps=4, tol=1e-9, max_steps=20),
    "MF, noise by user": factors(noise="user"),
    "MF, VB": factors(method=ng.VB(), **KNOWN),
    "MF, messages": factors(method=ng.Children(2), **KNOWN),
    "MF, messages of a batch": factors(method=ng.GlobalBatch(20), **KNOWN),
    "MF, likes alone": factors("likes", likelihood="bernoulli", priors=ng.recommenders.FactorPriors(n_negatives=4.0)),
    "MF, stars": factors("stars", likelihood="ordinal"),
    "MF, counts": factors("counts", likelihood="poisson"),
    "ratings in time and context": drifting(max_steps=150),  # vectors start from a fit of 40 sweeps
    "HMM, Gaussian": chains(ng.GaussianHMM, "real"),
    "HMM, categories": chains(ng.CategoricalHMM, "codes", transitions=hmm.Transitions(sticky=2.0)),
    "HMM, subchains": chains(ng.GaussianHMM, "real", method=hmm.Subchains(4, 20), max_passes=2.0),
    "HMM, growing buffer": chains(ng.PoissonHMM, "codes", method=hmm.Subchains(2, 20, buffer="grow")),
    "HMM, tracks": chains(ng.HMM, "both", emissions={0: hmm.Mixture(hmm.StudentT()), 1: hmm.Poisson()}),
    "HMM, regressions of subchains": chains(
        ng.HMM, "real", emissions=hmm.Autoregressive(), method=hmm.Subchains(4, 20), max_passes=2.0
    ),
    "HMM, durations": chains(
        ng.HMM, "codes", emissions=hmm.Categorical(), transitions=hmm.Transitions(durations=hmm.NegativeBinomial(2))
    ),
    "HMM, inputs": chains(ng.HMM, "both", transitions=hmm.Transitions(inputs=1)),
    "HMM, sequences": chains(ng.GaussianHMM, "real", [60] * 10, method=ng.SVI({"sequence": 2}), max_passes=3),
    "mixture, full": clusters(),
    "mixture, tied, memoised": clusters(covariance="tied", method=ng.SVI({"row": 30}), max_passes=3),
    "mixture, spherical, SVI": clusters(covariance="spherical", method=ng.SVI({"row": 30}), step=MONRO, max_passes=3),
    "GP, regression": rows(ng.SparseGPRegressor),
    "GP, VB": rows(ng.SparseGPRegressor, solver=Solver(method=ng.VB()), fixed="kernel"),
    "GP, sum of kernels": rows(ng.SparseGPRegressor, kernel=SUM),
    "GP, all rows": rows(ng.SparseGPRegressor, solver=Solver(batch_size=1000), max_steps=120),
    "GP, Student-t": rows(ng.SparseGPRegressor, likelihood="student_t"),
    "GP, outputs": rows(ng.SparseGPRegressor, "whole"),
    "GP, outputs with gaps": rows(ng.SparseGPRegressor, "gaps"),
    "GP, classes": rows(ng.SparseGPClassifier),
    "GP, ordered classes": rows(ng.SparseGPClassifier, likelihood="ordinal"),
    "GP, noise that varies": rows(ng.SparseGPRegressor, likelihood="heteroskedastic"),
}  # fmt: skip
