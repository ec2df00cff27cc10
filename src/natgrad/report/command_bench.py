"""`natgrad bench`: how fast the ready models are on this machine, on generated data; after a warm-up, the median of three."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import numpy as np

import natgrad as ng
from natgrad.data.generate import paper_ratings
from natgrad.report.command_common import Command, emit, json_option, make_table
from natgrad.report.numbers import short

__all__ = ["bench"]

REPEATS = 3


class Speed(NamedTuple):
    """What was run, how many things it reads in a pass, and seconds of a pass."""

    model: str
    what: str
    size: int
    seconds: float


@click.command(cls=Command, example="natgrad bench mf --scale 0.01")
@click.argument("model", type=click.Choice(["all", "lda", "mf"]), default="all")
@click.option("--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Larger or smaller data.")
@json_option
def bench(model: str, scale: float, as_json: bool) -> None:
    """Seconds of a pass over generated data, for each ready model.

    Comparisons with other libraries are in the benchmarks of the documentation.
    """
    chosen = [name for name in RUNS if model in ("all", name)]
    speeds = [RUNS[name](scale) for name in chosen]
    where = f"natgrad {ng.__version__}, Python {platform.python_version()}, {platform.machine()}"
    rows = [[s.model, s.what, f"{s.seconds:.3g}", short(s.size / s.seconds, 3)] for s in speeds]
    table = make_table(["model", "data", "seconds a pass", "a second"], rows, numeric=(2, 3))
    emit({"where": where, "speeds": [s._asdict() for s in speeds]}, [where, table], as_json)


def _lda(scale: float) -> Speed:
    from scipy import sparse

    rng = np.random.default_rng(0)
    D, V, K = max(50, round(5000 * scale)), 2000, 50
    rows = np.repeat(np.arange(D), 100)
    popular = 1.0 / np.arange(1, V + 1)
    words = rng.choice(V, len(rows), p=popular / popular.sum())
    counts = sparse.csr_array((np.ones(len(rows)), (rows, words)), shape=(D, V))
    model = ng.LDA(K, max_passes=2, tol=0.0, verbose=False)
    return Speed("LDA", f"{D:,} documents of 100 tokens, {K} topics", len(rows), _median(lambda: model.fit(counts)) / 2)


def _mf(scale: float) -> Speed:
    n = max(200, round(100_000 * scale))
    users = max(10, n // 100, math.isqrt(4 * n))
    ratings = paper_ratings(users, users, n)
    model = ng.MatrixFactorization(n_factors=5, max_steps=2, tol=0.0, verbose=False)
    return Speed("MatrixFactorization", f"{n:,} ratings, 5 factors", n, _median(lambda: model.fit(ratings)) / 2)


def _median(fit: Callable[[], Any]) -> float:
    """Seconds that the steps took; the first run compiles and is not counted."""
    fit()
    return float(statistics.median(fit().trace_.last.seconds for _ in range(REPEATS)))


RUNS = {"lda": _lda, "mf": _mf}
