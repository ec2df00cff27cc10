"""`natgrad bench`: how fast the ready models are on this machine, on generated data, beside the libraries that are installed.

After a warm-up, the median of three. scikit-learn is always there; gensim and hmmlearn take part if they can be imported.
"""

from __future__ import annotations

import importlib
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import numpy as np

import natgrad as ng
from natgrad.cli.common import Command, emit, json_option, make_table
from natgrad.data.datasets.generated.ratings import paper_ratings
from natgrad.report.format import short

__all__ = ["bench"]

REPEATS, PASSES = 3, 2


class Speed(NamedTuple):
    """What was run by whom, how many things it reads in a pass, and seconds of a pass."""

    model: str
    library: str
    what: str
    size: int
    seconds: float


class Case(NamedTuple):
    """A model and data; ``fits`` maps a library to a function that makes ``PASSES`` passes with it."""

    model: str
    what: str
    size: int
    fits: dict[str, Callable[[], Any]]


@click.command(cls=Command, example="natgrad bench mf --scale 0.01")
@click.argument("model", type=click.Choice(["all", "lda", "mf", "hmm", "gp"]), default="all")
@click.option("--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Larger or smaller data.")
@json_option
def bench(model: str, scale: float, as_json: bool) -> None:
    """Seconds of a pass over generated data, for each ready model and for other libraries that are installed.

    A pass is not the same work everywhere: what it is worth is in the benchmarks of the documentation, which compare at equal
    quality.
    """
    cases = [CASES[name](scale) for name in CASES if model in ("all", name)]
    speeds = [speed for case in cases for speed in _measured(case)]
    where = f"natgrad {ng.__version__}, Python {platform.python_version()}, {platform.machine()}"
    rows = [[s.model, s.library, s.what, f"{s.seconds:.3g}", short(s.size / s.seconds, 3)] for s in speeds]
    table = make_table(["model", "library", "data", "seconds a pass", "a second"], rows, numeric=(3, 4))
    emit({"where": where, "speeds": [s._asdict() for s in speeds]}, [where, table], as_json)


def _measured(case: Case) -> Iterator[Speed]:
    for library, fit in case.fits.items():
        fit()  # compiles, and is not counted
        seconds = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            fit()
            seconds.append((time.perf_counter() - begin) / PASSES)
        yield Speed(case.model, library, case.what, case.size, float(statistics.median(seconds)))


def _installed(module: str) -> Any:
    """A module if it is there, else None."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _lda(scale: float) -> Case:
    from scipy import sparse
    from sklearn.decomposition import LatentDirichletAllocation

    rng = np.random.default_rng(0)
    D, V, K = max(50, round(5000 * scale)), 2000, 50
    rows = np.repeat(np.arange(D), 100)
    popular = 1.0 / np.arange(1, V + 1)
    words = rng.choice(V, len(rows), p=popular / popular.sum())
    counts = sparse.csr_matrix((np.ones(len(rows)), (rows, words)), shape=(D, V))
    ours = ng.LDA(K, max_passes=PASSES, tol=0.0, verbose=False)
    theirs = LatentDirichletAllocation(K, max_iter=PASSES, learning_method="online", batch_size=256, random_state=0)
    fits: dict[str, Callable[[], Any]] = {
        "natgrad": lambda: ours.fit(counts),
        "scikit-learn": lambda: theirs.fit(counts),
    }
    if gensim := _installed("gensim.models.ldamodel"):
        bags = [list(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in counts]
        names = {v: str(v) for v in range(V)}
        fits["gensim"] = lambda: gensim.LdaModel(bags, K, names, passes=PASSES, chunksize=256, eval_every=None)
    return Case("LDA", f"{D:,} documents of 100 tokens, {K} topics", len(rows), fits)


def _mf(scale: float) -> Case:
    n = max(200, round(100_000 * scale))
    users = max(10, n // 100, math.isqrt(4 * n))
    ratings = paper_ratings(users, users, n)
    model = ng.MatrixFactorization(n_factors=5, max_steps=PASSES, tol=0.0, verbose=False)
    return Case("MatrixFactorization", f"{n:,} ratings, 5 factors", n, {"natgrad": lambda: model.fit(ratings)})


def _hmm(scale: float) -> Case:
    rng = np.random.default_rng(0)
    T, K = max(200, round(50_000 * scale)), 5
    series = rng.normal(size=(T, 3)) + 3.0 * rng.integers(0, K, T // 20 + 1).repeat(20)[:T, None]
    ours = ng.GaussianHMM(K, covariance="diag", method=ng.VB(), n_init=1, max_passes=PASSES, tol=0.0, verbose=False)
    fits: dict[str, Callable[[], Any]] = {"natgrad": lambda: ours.fit(series)}
    if hmmlearn := _installed("hmmlearn.hmm"):
        theirs = hmmlearn.GaussianHMM(K, covariance_type="diag", n_iter=PASSES, tol=-np.inf, random_state=0)
        fits["hmmlearn"] = lambda: theirs.fit(series)
    return Case("GaussianHMM", f"{T:,} times of 3 numbers, {K} states", T, fits)


def _gp(scale: float) -> Case:
    from sklearn.gaussian_process import GaussianProcessRegressor

    rng = np.random.default_rng(0)
    n = max(50, round(2000 * scale))
    X = rng.normal(size=(n, 3))
    y = np.sin(X).sum(1) + 0.1 * rng.normal(size=n)
    steps = PASSES * -(-n // 512)
    ours = ng.SparseGPRegressor(n_inducing=min(100, n), max_steps=steps, tol=0.0, verbose=False)
    exact = GaussianProcessRegressor(alpha=0.01, optimizer=None)  # factorises all rows, and learns no setting

    def solved() -> None:
        for _ in range(PASSES):
            exact.fit(X, y)

    fits: dict[str, Callable[[], Any]] = {"natgrad": lambda: ours.fit(X, y), "scikit-learn, exact": solved}
    return Case("SparseGPRegressor", f"{n:,} rows of 3 numbers, {min(100, n)} inducing", n, fits)


CASES: dict[str, Callable[[float], Case]] = {"lda": _lda, "mf": _mf, "hmm": _hmm, "gp": _gp}
