"""Lines of `binding.py`: the cost of a pass over a declared mixture, a factorisation and a topic model, and of the ready ones."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from binding_clock import CHUNK, Clock, K, measured, peak

__all__ = ["LINES"]


# -- a mixture, K = 5, D = 2 --

CENTRES = 4.0 * np.random.default_rng(0).normal(size=(K, 2))


def points(number: int, n: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([1, number])
    return CENTRES[rng.integers(0, K, n)] + rng.normal(size=(n, 2))


def mixture(row: Any, observed: Any) -> Any:
    import natgrad as ng

    part = ng.Plate("part", K)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=K), plate=row)
    mu = ng.MultivariateNormal("mu", np.zeros(2), 0.1 * np.eye(2), plate=part)
    precision = ng.Wishart("precision", 3.0, np.eye(2), plate=part)
    return ng.Network(ng.MultivariateNormal("x", mu[z], precision[z], plate=row, observed=observed))


def mixture_options(clock: Clock, steps: int = 6) -> dict[str, Any]:
    start = {"mu": CENTRES + 0.3}
    return {"init": start, "max_steps": steps, "tol": 0.0, "verbose": False, "callbacks": [clock], "backend": "jax"}


def whole_points(n: int) -> np.ndarray[Any, Any]:
    return np.concatenate([points(c, min(CHUNK, n - c * CHUNK)) for c in range(-(-n // CHUNK))])


def mixture_arrays(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock = Clock()
    fit = mixture(ng.Plate("row", n), whole_points(n)).fit(ng.VB(), **mixture_options(clock))
    return measured(fit, clock, words="declared with arrays, compiled")


def mixture_chunks(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock, y = Clock(), whole_points(n)
    network = mixture(ng.Plate("row"), ng.Columns("a", "b"))
    fit = network.fit({"a": y[:, 0], "b": y[:, 1]}, ng.VB(), chunk_rows=CHUNK, **mixture_options(clock))
    return measured(fit, clock, words="chunks of a table in memory")


def mixture_read_again(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock = Clock()

    def parts() -> Any:
        for c in range(-(-n // CHUNK)):
            y = points(c, min(CHUNK, n - c * CHUNK))
            yield {"a": y[:, 0], "b": y[:, 1]}

    network = mixture(ng.Plate("row"), ng.Columns("a", "b"))
    fit = network.fit(parts, ng.VB(), chunk_rows=CHUNK, **mixture_options(clock, 4 if n < 10**8 else 3))
    return measured(fit, clock, words="generated anew in every pass, which is counted")


def mixture_ready(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock = Clock()
    model = ng.GaussianMixture(K, method=ng.VB(), n_init=1, max_passes=6, tol=0.0, verbose=False, seed=0)
    model.fit(whole_points(n), callbacks=[clock])
    return {"pass_seconds": clock.per_pass(), "peak_MB": peak(), "words": "GaussianMixture, the ready model"}


# -- ratings --


def ratings(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    users, items = rng.zipf(1.3, n) % max(10, n // 100), rng.zipf(1.2, n) % max(10, n // 400)
    u, v = rng.normal(size=(users.max() + 1, K)), rng.normal(size=(items.max() + 1, K))
    values = (u[users] * v[items]).sum(1) / np.sqrt(K) + 0.5 * rng.normal(size=n)
    return {"user": users.astype(np.int64), "item": items.astype(np.int64), "value": values}


def factorisation(row: Any, user: Any, item: Any, i: Any, j: Any, y: Any) -> Any:
    import natgrad as ng

    u = ng.MultivariateNormal("u", 0.0, 1.0, size=K, plate=user)
    v = ng.MultivariateNormal("v", 0.0, 1.0, size=K, plate=item)
    return ng.Network(ng.Normal("r", ng.dot(u[i], v[j]), ng.Gamma("tau", 1.0, 1.0), plate=row, observed=y))


def rating_options(clock: Clock) -> dict[str, Any]:
    return {"init": "random", "max_steps": 5, "tol": 0.0, "verbose": False, "callbacks": [clock], "backend": "jax"}


def ratings_arrays(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock, data = Clock(), ratings(n)
    codes = [np.unique(data[side], return_inverse=True) for side in ("user", "item")]
    plates = [ng.Plate(name, len(ids)) for name, (ids, _) in zip(("user", "item"), codes, strict=True)]
    network = factorisation(ng.Plate("row", n), *plates, codes[0][1], codes[1][1], data["value"])
    return measured(network.fit(ng.VB(), **rating_options(clock)), clock, words="declared with arrays, compiled")


def ratings_parquet(n: int) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    import natgrad as ng

    clock = Clock()
    columns = map(ng.Column, ("user", "item", "value"))
    network = factorisation(ng.Plate("row"), ng.Plate("user"), ng.Plate("item"), *columns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.parquet"
        pyarrow.parquet.write_table(pyarrow.table(ratings(n)), path, row_group_size=CHUNK)
        fit = network.fit(path, ng.VB(), chunk_rows=CHUNK, **rating_options(clock))
    return measured(fit, clock, words="from Parquet, three passes a sweep")


def ratings_ready(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock, data = Clock(), ratings(n)
    model = ng.MatrixFactorization(
        K,
        priors=ng.recommenders.FactorPriors(precision=1.0, biases=False),
        method=ng.VB(),
        max_steps=6,
        tol=0.0,
        verbose=False,
    )
    model.fit((data["user"], data["item"], data["value"]), callbacks=[clock])
    return {
        "pass_seconds": clock.per_pass(),
        "peak_MB": peak(),
        "words": "MatrixFactorization, the ready model; threads count",
    }


# -- topics --

TOPICS, WORDS, TOKENS = 10, 2_000, 50


def documents(begin: int, end: int) -> dict[str, Any]:
    """The tokens of some documents, one after the other; any part of them can be made without the others."""
    shares = np.random.default_rng(4).dirichlet(np.full(WORDS, 0.05), TOPICS).cumsum(1)
    rng = np.random.default_rng([5, begin])
    n = end - begin
    theta = rng.dirichlet(np.full(TOPICS, 0.2), n).cumsum(1)
    z = (rng.random((n, TOKENS, 1)) > theta[:, None, :-1]).sum(-1).ravel()
    draws = rng.random(n * TOKENS)
    words = np.empty(n * TOKENS, dtype=np.int64)
    for topic in range(TOPICS):
        words[z == topic] = np.searchsorted(shares[topic], draws[z == topic])
    return {"doc": np.repeat(np.arange(begin, end), TOKENS), "word": np.minimum(words, WORDS - 1)}


def topic_network(doc: Any, token: Any, d: Any, w: Any) -> Any:
    import natgrad as ng

    theta = ng.Dirichlet("theta", 0.2, size=TOPICS, plate=doc)
    phi = ng.Dirichlet("phi", 0.05, size=WORDS, plate=ng.Plate("topic", TOPICS))
    z = ng.Categorical("z", theta[d], plate=token)
    return ng.Network(ng.Categorical("w", phi[z], plate=token, observed=w))


def topics_fit(n: int, words: str) -> dict[str, Any]:
    import natgrad as ng

    clock, per_chunk = Clock(), 1_000
    network = topic_network(ng.Plate("doc"), ng.Plate("token"), ng.Column("doc"), ng.Column("word"))

    def parts() -> Any:
        for begin in range(0, n, per_chunk):
            yield documents(begin, min(n, begin + per_chunk))

    start = {"phi": np.random.default_rng(6).dirichlet(np.ones(WORDS), TOPICS)}
    options: dict[str, Any] = {"init": start, "max_steps": 4, "tol": 0.0, "verbose": False, "callbacks": [clock]}
    fit = network.fit(parts, ng.VB(), chunk_rows=per_chunk * TOKENS, backend="jax", **options)  # as many as by default
    return measured(fit, clock, words=f"documents of {TOKENS} tokens, K = {TOPICS}, V = {WORDS}; {words}")


def topics_memory(n: int) -> dict[str, Any]:
    return topics_fit(n, "chunks of a table in memory, as the ready model has it")


def topics_chunks(n: int) -> dict[str, Any]:
    return topics_fit(n, "generated anew in every pass, which is counted")


def topics_ready(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock, data = Clock(), documents(0, n)
    from scipy.sparse import coo_array

    counts = coo_array((np.ones(len(data["doc"])), (data["doc"], data["word"])), shape=(n, WORDS)).tocsr()
    model = ng.LDA(
        TOPICS,
        doc_prior=0.2,
        inference="vb",
        method=ng.VB(),
        max_passes=6,
        tol=0.0,
        local=ng.LocalOptions(max_rounds=1),
        n_jobs=1,
        verbose=False,
    )
    model.fit(counts, callbacks=[clock])
    return {
        "pass_seconds": clock.per_pass(),
        "peak_MB": peak(),
        "words": "LDA, the ready model, one local round a pass",
    }


LINES = {
    function.__name__: function
    for function in (
        mixture_arrays, mixture_chunks, mixture_read_again, mixture_ready, ratings_arrays, ratings_parquet, ratings_ready,
        topics_memory, topics_chunks, topics_ready,
    )
}  # fmt: skip
