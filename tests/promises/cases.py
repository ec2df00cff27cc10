"""Every option of the ready models on a few rows: a name in; an estimator, its data and its command out.

`test_promises.py` tries all that the models can do on each of them; the table of `docs/abilities.md` is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import natgrad as ng
from natgrad.models import hmm
from natgrad.models.gp import Solver
from natgrad.models.registry import NETWORK_MODELS
from natgrad.recommenders import FactorPriors

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """An option: how its estimator is made, what it is fitted to, and how a shell says the same.

    ``data`` and ``more`` are arguments of ``fit``, ``named`` those with names; ``limit`` is the setting that counts steps.
    ``table`` has the columns of ``data`` by name, and ``command`` the words of ``natgrad fit``; ``role`` is the argument that
    says what is known of documents. With the settings ``shared``, work is cut alike here and on workers.
    """

    kind: Callable[..., Any]
    settings: Table
    data: tuple[Any, ...]
    more: tuple[Any, ...] = ()
    named: Table = field(default_factory=dict)
    limit: str = "max_steps"
    table: Table = field(default_factory=dict)
    command: tuple[str, ...] = ()
    role: str | None = None
    shared: Table = field(default_factory=dict)

    @property
    def made_with(self) -> dict[str, Any]:
        """Settings that the estimator is made with: few steps, nothing shown."""
        return {self.limit: 4, "tol": 0, "verbose": False, **self.settings}

    @property
    def names(self) -> tuple[str, ...]:
        """Arguments of ``fit`` that are data."""
        return ("lengths", self.role or "y", *self.named)

    @property
    def of_network(self) -> bool:
        """Whether the model is a declared network, whose fit is its ``fit_``."""
        return self.kind.__name__ in NETWORK_MODELS

    @property
    def least(self) -> int:
        """The fewest rows that a batch of its own, or durations, can be drawn from."""
        return 100 if "method" in self.settings else 10

    @property
    def resolved(self) -> dict[str, Any]:
        """What None stands for, where another argument does not say."""
        found = RESOLVED.get(self.kind.__name__, {}) if self.settings.get("inference") != "gibbs" else {}
        found = found | (RESOLVED["auto topics"] if self.settings.get("n_topics") == "auto" else {})
        return {name: value for name, value in found.items() if name not in self.made_with}

    @property
    def others(self) -> dict[str, list[Any]]:
        """Other values of arguments whose default does not tell their kind."""
        return OTHERS

    def made(self, **others: Any) -> Any:
        """The estimator, for a few steps."""
        return self.kind(**{**self.made_with, **others})

    def fitted(self, options: Table | None = None, **others: Any) -> Any:
        """The same after its fit; ``options`` are those of ``fit``."""
        return self.made(**others).fit(*self.data, **self.named, **(options or {}))

    def of_size(self, n: int) -> tuple[tuple[Any, ...], Table]:
        """Data of this kind with n rows, and those with names."""
        first, *others = self.data
        named = {name: np.resize(value, n) for name, value in self.named.items() if name in ("time", "context")}
        if isinstance(first, ng.Ratings):
            side = int(np.ceil(np.sqrt(2 * n)))
            cells = np.random.default_rng(n).permutation(side * side)[:n]
            pairs = ([f"u{cell // side}" for cell in cells], [f"i{cell % side}" for cell in cells])
            return (ng.Ratings(*pairs, np.resize(first.values, n)),), {}
        rows = [np.resize(part, (n, *part.shape[1:])) for part in (first, *others) if isinstance(part, np.ndarray)]
        return (*rows, None, [n // 2, n - n // 2]) if len(self.data) == 3 else tuple(rows), named


# What None, or a word, stands for: written out, it gives the same bits.
RESOLVED: dict[str, dict[str, Any]] = {
    "LDA": {"topic_prior": 0.05, "doc_prior": 0.1, "gibbs_sweeps": 100, "local": ng.LocalOptions()},
    "auto topics": {"topic_prior": "learn", "doc_prior": "learn", "gibbs_sweeps": 0},
    "GaussianMixture": {"covariance": "full"},
    "GaussianHMM": {"covariance": "full", "transitions": hmm.Transitions()},
}
OTHERS: dict[str, list[Any]] = {
    "transitions": [hmm.Transitions(topology="left-to-right"), hmm.Transitions(0.3), hmm.Transitions(sticky=2.0)],
    "covariance": ["diag"], "weight_prior": [3.0], "mean_prior": [1.0],
    "dof_prior": [9.0], "rate_prior": [(2.0, 3.0)], "track_prior": [(2.0, 3.0)], "doc_prior": [0.7], "topic_prior": [0.7],
    "gibbs_sweeps": [3], "n_sweeps": [3], "n_init": [3], "df": [9.0],
    "inducing": [np.zeros((3, 2))], "subchain_length": [11], "n_subchains": [3], "buffer": [2],
    "noise": [0.3], "priors": [FactorPriors(n_negatives=0.5), FactorPriors(precision=0.3)],
    "noise_variance": [0.3], "order": [["b", "a"]],
    "local": [ng.LocalOptions(topics="point"), ng.LocalOptions(dtype="float64")],
    "response": ["bernoulli"], "batch_size": [7], "method": [ng.SVI({"nowhere": 2})],
    "solver": [Solver(batch_size=7)], "fixed": ["kernel"],
}  # fmt: skip
# -- sequences --

LENGTHS = [30, 50]


@cache
def series() -> dict[str, Any]:
    """Columns of one hidden path of two states, in two sequences."""
    rng = np.random.default_rng(0)
    state = np.repeat([0, 1] * 4, 10)
    level = np.column_stack([3.0 * state, -2.0 * state]) + rng.normal(size=(80, 2))
    return {
        "level": level,
        "counts": rng.poisson(2 + 6 * state[:, None], (80, 2)),
        "flags": (rng.random((80, 2)) < 0.2 + 0.6 * state[:, None]).astype(int),
        "codes": (rng.integers(0, 2, 80) + 2 * state)[:, None],
        "regime": rng.integers(0, 2, 80),
    }


def _chain(kind: Callable[..., Any], what: str, command: str, *words: str, **settings: Any) -> Case:
    columns = _columns(what)
    X = np.column_stack(list(columns.values()))
    if what == "labels":
        X = columns["c0"]
    own = {"n_states": 2, "n_jobs": 1, **settings}
    own |= {"n_init": 2} if isinstance(own["n_states"], int) else {}
    return Case(
        kind, own, (X, None, LENGTHS), (X[30:],), limit="max_passes", table=columns,
        command=(command, "--n-states", str(own["n_states"]), "--sequence", "run", *words),
    )  # fmt: skip


def _columns(what: str) -> dict[str, Any]:
    own = series()
    if what == "labels":
        return {"c0": np.array(["sun", "rain", "fog", "snow"])[own["codes"][:, 0]]}
    if what == "tracks":
        parts = own["level"][:, 0], own["counts"][:, 0], own["flags"][:, 0], own["codes"][:, 0]
        return dict(zip(("level", "n", "on", "code"), parts, strict=True))
    if what == "inputs":
        return {"c0": own["level"][:, 0], "c1": own["level"][:, 1], "regime": own["regime"]}
    return {f"c{d}": own[what][:, d] for d in range(own[what].shape[1])}


TRACKS = (hmm.Gaussian(), hmm.Poisson(), hmm.Bernoulli(), hmm.Categorical())


def _emitting(emission: str, what: str = "level", **settings: Any) -> Case:
    words = ("--emissions", emission)
    made = eval(emission, {name: getattr(hmm, name) for name in hmm.__all__})
    return _chain(hmm.HMM, what, "hmm-tracks", *words, emissions=made, **settings)


def _lasting(durations: Any, words: str) -> Case:
    return _chain(
        hmm.HMM, "level", "hmm-tracks", "--transitions", words, transitions=hmm.Transitions(durations=durations)
    )


CHAINS = {
    'GaussianHMM("full")': _chain(ng.GaussianHMM, "level", "hmm"),
    **{
        f'GaussianHMM("{kind}")': _chain(ng.GaussianHMM, "level", "hmm", "--covariance", kind, covariance=kind)
        for kind in ("diag", "tied", "spherical")
    },
    "CategoricalHMM": _chain(ng.CategoricalHMM, "codes", "hmm-categorical"),
    "CategoricalHMM of labels": _chain(ng.CategoricalHMM, "labels", "hmm-categorical"),
    "PoissonHMM": _chain(ng.PoissonHMM, "counts", "hmm-poisson"),
    "BernoulliHMM": _chain(ng.BernoulliHMM, "flags", "hmm-bernoulli"),
    "StudentT()": _emitting("StudentT()"),
    **{f'StudentT("{kind}")': _emitting(f"StudentT('{kind}')") for kind in ("diag", "tied", "spherical")},
    "Mixture(Gaussian())": _emitting("Mixture(Gaussian())"),
    "Mixture(StudentT())": _emitting("Mixture(StudentT('diag'))"),
    "Mixture(Poisson())": _emitting("Mixture(Poisson())", "counts"),
    "Autoregressive()": _emitting("Autoregressive()"),
    "Autoregressive(2, dof=4)": _emitting("Autoregressive(2, dof=4.0)"),
    "several tracks": _chain(
        hmm.HMM, "tracks", "hmm-tracks", "--emissions",
        '{"level": Gaussian(), "n": Poisson(), "on": Bernoulli(), "code": Categorical()}',
        emissions=dict(enumerate(TRACKS)),
    ),
    "durations=NegativeBinomial": _lasting(hmm.NegativeBinomial(3), "Transitions(durations=NegativeBinomial(3))"),
    "durations=Explicit": _lasting(hmm.Explicit(12), "Transitions(durations=Explicit(12))"),
    "inputs": _chain(
        hmm.HMM, "inputs", "hmm-tracks", "--transitions", "Transitions(inputs='regime')",
        transitions=hmm.Transitions(inputs=2),
    ),
    'topology="left-to-right"': _chain(
        ng.GaussianHMM, "level", "hmm", "--transitions", "Transitions(topology='left-to-right')",
        transitions=hmm.Transitions(topology="left-to-right"),
    ),
    'GaussianHMM("auto")': _chain(ng.GaussianHMM, "level", "hmm", n_states=("auto", 4)),
    'HMM("auto") of StudentT': _emitting("StudentT()", n_states=("auto", 4)),
    "subchains": _chain(
        ng.GaussianHMM, "level", "hmm", "--method", "Subchains(2, 8)",
        method=hmm.Subchains(2, 8),
    ),
    "batches of sequences": _chain(
        ng.GaussianHMM, "level", "hmm", "--method", "SVI({'sequence': 1})", method=ng.SVI({"sequence": 1})
    ),
}  # fmt: skip


# -- rows --


@cache
def points() -> Any:
    rng = np.random.default_rng(1)
    return np.array([[-3.0, 0.0], [3.0, 1.0]])[rng.integers(0, 2, 80)] + rng.normal(size=(80, 2))


def _mixture(*words: str, **settings: Any) -> Case:
    X = points()
    own = {"n_components": 2, "n_jobs": 1, **settings}
    own |= {"n_init": 2} if isinstance(own["n_components"], int) else {}
    return Case(
        ng.GaussianMixture, own, (X[:60],), (X[60:],), limit="max_passes", table={"x": X[:60, 0], "y": X[:60, 1]},
        command=("mixture", "--n-components", str(own["n_components"]), *words),
    )  # fmt: skip


MIXTURES = {
    **{
        f'covariance="{kind}"': _mixture("--covariance", kind, covariance=kind)
        for kind in ("full", "diag", "tied", "spherical")
    },
    'GaussianMixture("auto")': _mixture(n_components=("auto", 4)),
    "batches of rows": _mixture("--method", "SVI({'row': 20})", method=ng.SVI({"row": 20})),
}


# -- documents --


@cache
def counts() -> Any:
    rng = np.random.default_rng(2)
    themes = np.array([[4.0] * 6 + [0.3] * 6, [0.3] * 6 + [4.0] * 6])
    return rng.poisson(themes[rng.integers(0, 2, 50)])


def _topics(*words: str, **settings: Any) -> Case:
    X = counts()
    own = {"n_topics": 2, "n_jobs": 1, "inference": "vb", **settings}
    table = {f"w{v}": X[:40, v] for v in range(12)}
    inference = ("--inference", own["inference"])
    command = ("lda", "--n-topics", str(own["n_topics"]), "--column", "text", *inference, *words)
    return Case(ng.LDA, own, (X[:40],), (X[40:],), limit="max_passes", table=table, command=command)


@cache
def known_documents() -> dict[str, Any]:
    """Counts of two topics in forty short documents, and what is known of each besides."""
    rng = np.random.default_rng(0)
    topics = np.random.default_rng(3).dirichlet(np.full(20, 0.2), 2)
    shares = rng.dirichlet([0.3, 0.3], 40)
    authors = np.empty(40, dtype=object)
    authors[:] = [["ann"] if share[0] > 0.5 else ["bob", "eve"][: 1 + d % 2] for d, share in enumerate(shares)]
    counts = np.array([rng.multinomial(20, share @ topics) for share in shares])
    return {"X": counts, "y": shares[:, 0] * 3.0 + 100.0, "authors": authors, "times": 2020 + np.arange(40) % 3}


def of_documents(role: str | None, begin: int = 0, end: int = 40) -> tuple[Any, ...]:
    """Some documents, and what is known of them in a role."""
    known = known_documents()
    return tuple(known[name][begin:end] for name in ("X", *([role] if role else [])))


def _declared(kind: Callable[..., Any], role: str | None, command: str, option: str = "") -> Case:
    counts, *known = of_documents(role)
    table = {f"w{v}": counts[:, v] for v in range(20)}
    words = (f"--{option}", role) if role else ()
    batch = {"cell": 100} if role == "authors" else {"doc": 10}
    return Case(
        kind, {"n_topics": 2}, (counts, *known), of_documents(role, 0, 15), table=table, role=role,
        shared={"method": ng.SVI(batch)}, command=(command, "--n-topics", "2", "--column", "text", *words),
    )  # fmt: skip


DECLARED_TOPICS = {
    "SupervisedLDA": _declared(ng.topics.SupervisedLDA, "y", "supervised", "target"),
    "CorrelatedTopics": _declared(ng.topics.CorrelatedTopics, None, "correlated"),
    "DynamicTopics": _declared(ng.topics.DynamicTopics, "times", "dynamic", "times"),
    "AuthorTopics": _declared(ng.topics.AuthorTopics, "authors", "author", "authors"),
}
TOPICS = {
    "LDA": _topics(),
    "learned priors": _topics("--doc-prior", "learn", "--topic-prior", "learn", doc_prior="learn", topic_prior="learn"),
    'inference="gibbs"': _topics("--gibbs-sweeps", "6", inference="gibbs", gibbs_sweeps=6),
    'LDA("auto")': _topics(n_topics="auto"),
    "batches of documents": _topics("--method", "SVI({'doc': 10})", method=ng.SVI({"doc": 10})),
}


# -- ratings --


@cache
def rated() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    users, items = np.nonzero(rng.random((20, 12)) < 0.5)
    users, items = np.append(users, 0), np.append(items, 11)
    keep = np.unique(users * 12 + items, return_index=True)[1]
    users, items = users[keep], items[keep]
    taste = (rng.normal(size=(20, 2)) @ rng.normal(size=(2, 12)))[users, items]
    return {
        "user": users,
        "item": items,
        "gaussian": taste + 0.3 * rng.normal(size=len(users)),
        "dislikes": (taste > 0).astype(float),
        "likes": np.ones(len(users)),
        "ordinal": np.digitize(taste, [-1.5, -0.5, 0.5, 1.5]) + 1.0,
        "poisson": rng.poisson(np.exp(0.5 * taste)) + 1.0,
        "time": rng.uniform(2000, 2010, len(users)),
        "context": np.array(["home", "work"])[rng.integers(0, 2, len(users))],
        "features": rng.normal(size=(20, 2)),
    }


def _ratings(what: str, rows: Any = slice(None)) -> ng.Ratings:
    own = rated()
    return ng.Ratings([f"u{u}" for u in own["user"][rows]], [f"i{i}" for i in own["item"][rows]], own[what][rows])


def _rating_table(what: str) -> dict[str, Any]:
    own = rated()
    pairs = {"user": [f"u{u}" for u in own["user"]], "item": [f"i{i}" for i in own["item"]]}
    return {**pairs, "rating": own[what]}


def _factors(what: str, *words: str, named: Table | None = None, **settings: Any) -> Case:
    own = {"n_factors": 2, "n_jobs": 1, **settings}
    return Case(
        ng.MatrixFactorization, own, (_ratings(what),), (_ratings(what, slice(30, 50)),), named or {},
        table=_rating_table(what), command=("mf", "--n-factors", "2", *words),
    )  # fmt: skip


def _features() -> Table:
    return {"user_features": {f"u{u}": row for u, row in enumerate(rated()["features"])}}


def _contexts(*roles: str) -> Case:
    own = rated()
    table = {**_rating_table("gaussian"), **{role: own[role] for role in roles}}
    pairs = np.column_stack([table["user"], table["item"]])
    named = {role: own[role] for role in roles}
    words = [word for role in roles for word in (f"--{role}", role)]
    bins = {"n_bins": 3} if "time" in roles else {}
    return Case(
        ng.recommenders.ContextFactorization, {"n_factors": 2, **bins}, (pairs, own["gaussian"]),
        (pairs[:20], own["gaussian"][:20]), named, table=table, shared={"chunk_rows": 50},
        command=("context", "--n-factors", "2", *(["--n-bins", "3"] if bins else []), *words),
    )  # fmt: skip


RATINGS = {
    "gaussian": _factors("gaussian"),
    **{
        f'noise="{whose}"': _factors("gaussian", "--noise", whose, noise=whose)
        for whose in ("user", "item", "both")
    },
    "without biases": _factors("gaussian", "--priors", "FactorPriors(biases=False)", priors=FactorPriors(biases=False)),
    "known precisions": _factors(
        "gaussian", "--noise", "1.0", "--priors", "FactorPriors(1.0, False)",
        noise=1.0, priors=FactorPriors(1.0, False),
    ),
    "features": _factors("gaussian", "--user-features", "users.csv", named=_features()),
    'ratings, inference="gibbs"': _factors(
        "gaussian", "--inference", "gibbs", "--n-sweeps", "6", inference="gibbs", n_sweeps=6
    ),
    "sampled children": _factors("gaussian", "--method", "Children(3)", method=ng.Children(3)),
    "likes and dislikes": _factors(
        "dislikes", "--likelihood", "bernoulli", "--priors", "FactorPriors(n_negatives=0)",
        likelihood="bernoulli", priors=FactorPriors(n_negatives=0),
    ),
    "likes alone": _factors("likes", "--likelihood", "bernoulli", likelihood="bernoulli"),
    "likes, n_negatives=2": _factors(
        "likes", "--likelihood", "bernoulli", "--priors", "FactorPriors(n_negatives=2)",
        likelihood="bernoulli", priors=FactorPriors(n_negatives=2),
    ),
    "likes, features": _factors(
        "likes", "--likelihood", "bernoulli", "--user-features", "users.csv", named=_features(), likelihood="bernoulli"
    ),
    "ordinal": _factors("ordinal", "--likelihood", "ordinal", likelihood="ordinal"),
    "poisson": _factors("poisson", "--likelihood", "poisson", likelihood="poisson"),
    "times": _contexts("time"),
    "contexts": _contexts("context"),
    "times and contexts": _contexts("time", "context"),
}  # fmt: skip


# -- functions --


@cache
def functions() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.uniform(-2, 2, 60), rng.lognormal(0.0, 1.0, 60)])
    f = np.sin(2 * X[:, 0])
    y = f + 0.1 * rng.normal(size=60)
    return {
        "X": X,
        "y": y,
        "counts": rng.poisson(np.exp(f)) * 1.0,
        "two": np.column_stack([y, 0.5 * y + 0.1 * rng.normal(size=60)]),
        "classes": np.where(f > 0, "yes", "no"),
        "three": np.array(["a", "b", "c"])[np.digitize(f, [-0.5, 0.5])],
        "stars": np.digitize(f, [-0.5, 0.5]) + 1,
    }


def _process(kind: Callable[..., Any], what: str, *words: str, **settings: Any) -> Case:
    own = functions()
    X, y = own["X"], own[what]
    settings = {"n_inducing": 8, "solver": Solver(batch_size=30), **settings}
    targets = {"target": y} if y.ndim == 1 else {f"target{p}": y[:, p] for p in range(y.shape[1])}
    command = "gp-classifier" if kind is ng.SparseGPClassifier else "gp"
    return Case(
        kind, settings, (X, y), (X[:20], y[:20]), table={"x": X[:, 0], "z": X[:, 1], **targets},
        command=(command, "--target", ",".join(targets), "--n-inducing", str(settings["n_inducing"]), *words),
    )  # fmt: skip


def _along(*words: str, **settings: Any) -> Case:
    rng = np.random.default_rng(5)
    t = np.sort(rng.uniform(0, 20, 80))
    y = np.sin(t) + 0.2 * rng.normal(size=80)
    return Case(
        ng.StateSpaceGP, settings, (t[:, None], y), (t[:20, None] + 20.0, y[:20]), table={"t": t, "target": y},
        command=("gp-time", "--target", "target", *words),
    )  # fmt: skip


def _nearest(**settings: Any) -> Case:
    own = functions()
    X, y = own["X"][:30], own["y"][:30]
    return Case(
        ng.VecchiaGPRegressor, settings, (X, y), (X[:10], y[:10]), table={"x": X[:, 0], "z": X[:, 1], "target": y},
        command=("gp-neighbours", "--target", "target", "--n-neighbors", "8"),
    )  # fmt: skip


def _likelihood(name: str, what: str = "y", kind: Any = ng.SparseGPRegressor) -> Case:
    return _process(kind, what, "--likelihood", name, likelihood=name)


def _outputs(name: str) -> Case:
    return _process(ng.SparseGPRegressor, "two", "--outputs", name, outputs=name)


PROCESSES = {
    "SparseGPRegressor": _process(ng.SparseGPRegressor, "y"),
    "a sum of kernels": _process(
        ng.SparseGPRegressor,
        "y",
        "--kernel",
        "RBF() + 0.2 * Linear()",
        kernel=ng.covariance.RBF() + 0.2 * ng.covariance.Linear(),
        solver=Solver(step=ng.Constant(0.3)),
    ),
    "student_t": _likelihood("student_t"),
    "heteroskedastic": _likelihood("heteroskedastic"),
    "poisson counts": _likelihood("poisson", "counts"),
    "negative_binomial": _likelihood("negative_binomial", "counts"),
    'outputs="correlated"': _outputs("correlated"),
    'outputs="independent"': _outputs("independent"),
    'kernel="auto"': _process(ng.SparseGPRegressor, "y", "--kernel", "auto", kernel="auto"),
    'n_inducing="auto"': _process(ng.SparseGPRegressor, "y", n_inducing="auto"),
    "probit": _likelihood("probit", "classes", ng.SparseGPClassifier),
    "softmax": _likelihood("softmax", "three", ng.SparseGPClassifier),
    "probit of three classes": _likelihood("probit", "three", ng.SparseGPClassifier),
    "ordinal classes": _likelihood("ordinal", "stars", ng.SparseGPClassifier),
    "StateSpaceGP": _along(),
    'StateSpaceGP("auto")': _along("--kernel", "auto", kernel="auto"),
    "VecchiaGPRegressor": _nearest(n_neighbors=8),
}

CASES: dict[str, dict[str, Case]] = {
    "Hidden Markov models": CHAINS,
    "Mixtures": MIXTURES,
    "Topics": TOPICS,
    "Topic networks": DECLARED_TOPICS,
    "Ratings": RATINGS,
    "Gaussian processes": PROCESSES,
}
# The first option of each estimator.
FIRST = {case.kind.__name__: case for cases in reversed(CASES.values()) for case in reversed(cases.values())}
