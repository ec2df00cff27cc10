"""Whether one run with moves that keep K ends as high as the best of 50 restarts, and what it takes.

    python benchmarks/components_restarts.py                          all, hours
    python benchmarks/components_restarts.py faithful --runs 100      some sets
    python benchmarks/components_restarts.py marks --restarts 10 --runs 10
    python benchmarks/components_restarts.py --table                  the table of what was measured so far

A restart and a run begin from one draw each, ``n_init=1``, of the seeds 0, 1, …; the run has ``moves="keep"``. It counts if its
bound is within 0.01 % of the best restart; the goals are 90 of 100 runs, and three times the processor seconds of one restart.
Every fit is a line of ``components-restarts.jsonl`` in ``benchmarks/results``; the table is ``components-restarts.md`` there.
"""

from __future__ import annotations

import argparse
import gzip
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from components import KINDS, blocks, timed
from components_files import Lines, markdown
from first_fit_data import data_of

import natgrad as ng

LINES = Lines("components-restarts")
DATA = Path(os.environ.get("NATGRAD_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
# How near the best of the restarts a run must come.
PART = 1e-4


class Case(NamedTuple):
    """Data, and the bound of one fit to them with a seed, with moves or without."""

    words: str
    data: Callable[[], Any]
    fitted: Callable[[Any, int, str | None], float]


def _given(estimator: Any, k: int, **options: Any) -> Callable[[Any, int, str | None], float]:
    own = options if estimator is ng.LDA else {"n_init": 1, **options}
    return lambda data, seed, moves: float(estimator(k, seed=seed, **own).fit(data, moves=moves).elbo_)


def _blocks(data: Any, seed: int, moves: str | None) -> float:
    return float(blocks(data, 4, False).fit(init="random", n_init=1, seed=seed, moves=moves).elbo)


def _generated(name: str) -> Callable[[], Any]:
    return lambda: KINDS[name].make(np.random.default_rng([0, 7]))


def marks() -> Any:
    """The first 5,000 bins of ten chromatin marks."""
    with gzip.open(DATA / "hmm" / "chromhmm_GM12878_chr11_binary.txt.gz", "rt") as file:
        return np.array([[int(cell) for cell in line.split()] for line in file.readlines()[2:5_002]])


def documents() -> Any:
    """The first 5,000 abstracts."""
    from scipy import sparse

    return sparse.csr_matrix(sparse.load_npz(DATA / "text" / "acl_abstracts.npz"))[:5_000]


TOPICS: dict[str, Any] = {"learn_priors": "doc", "max_passes": 200}
CASES = {
    "faithful": Case("Old Faithful, K = 6", lambda: data_of("faithful")["y"], _given(ng.GaussianMixture, 6)),
    "mixture-2": Case("mixture, D = 2, K = 8", _generated("mixture-2"), _given(ng.GaussianMixture, 8)),
    "mixture-10": Case("mixture, D = 10, K = 8", _generated("mixture-10"), _given(ng.GaussianMixture, 8)),
    "hmm-gaussian": Case("Gaussian HMM, K = 5", _generated("hmm-gaussian"), _given(ng.GaussianHMM, 5)),
    "hmm-categorical": Case("categorical HMM, K = 5", _generated("hmm-categorical"), _given(ng.CategoricalHMM, 5)),
    "blocks": Case("blocks, K = 4", _generated("blocks"), _blocks),
    "topics-bars": Case("bars, K = 10", _generated("topics-bars"), _given(ng.LDA, 10, **TOPICS)),
    "topics-dirichlet": Case("topics, K = 10", _generated("topics-dirichlet"), _given(ng.LDA, 10, **TOPICS)),
    "marks": Case("5,000 bins of ten marks, K = 6", marks, _given(ng.BernoulliHMM, 6)),
    "text": Case("5,000 abstracts, K = 20", documents, _given(ng.LDA, 20)),
}


def measure(name: str, numbers: range, part: str) -> None:
    """A line for every seed that has none yet."""
    case = CASES[name]
    data = cache(case.data)
    for seed in numbers:
        if LINES.has(case=name, part=part, seed=seed):
            continue
        moves = "keep" if part == "moves" else None
        case.fitted(data(), seed, None) if data.cache_info().misses == 0 else None  # kernels are compiled, or read
        bound, seconds = timed(lambda seed=seed, moves=moves: case.fitted(data(), seed, moves))
        LINES.add(case=name, part=part, seed=seed, bound=bound, seconds=round(seconds, 4))


def row(name: str) -> list[str]:
    """A line of the table."""
    starts, runs = LINES.all(case=name, part="restart"), LINES.all(case=name, part="moves")
    if not starts or not runs:
        return [CASES[name].words, *[""] * 7]
    best = max(line["bound"] for line in starts)
    goal, one = best - PART * abs(best), np.mean([line["seconds"] for line in starts])
    alone, reached = (sum(line["bound"] >= goal for line in lines) for lines in (starts, runs))
    ratio = np.mean([line["seconds"] for line in runs]) / one
    ahead = max(line["bound"] for line in runs) - best
    return [
        CASES[name].words, f"{best:.2f}", f"{alone} of {len(starts)}",
        f"{reached} of {len(runs)}" + ("" if reached >= 0.9 * len(runs) else " MISSED"), f"{ahead:+.2f}", f"{one:.2f}",
        f"{one * ratio:.2f}", f"{ratio:.1f}" + ("" if ratio <= 3 else " MISSED"),
    ]  # fmt: skip


HEADINGS = [
    "data",
    "best restart",
    "restarts that reach it",
    "runs with moves that do",
    "best run less best restart",
    "cpu s of a restart",
    "cpu s of a run",
    "ratio",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(CASES)}; all by default")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--restarts", type=int, default=50)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in () if given.table else given.cases or CASES:
        measure(name, range(given.restarts), "restart")
        measure(name, range(given.runs), "moves")
    LINES.write(markdown(HEADINGS, [row(name) for name in CASES]))


if __name__ == "__main__":
    main()
