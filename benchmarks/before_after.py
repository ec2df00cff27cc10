"""Two versions of natgrad side by side: processor seconds of the same fits, in turns, and what got slower.

    git worktree add ../old 71cc34a                                   # 0.1.0
    python benchmarks/before_after.py ../old/src src [--rounds 5] [--only HMM,GP]

Each round starts a process for each tree, one after the other, so that both meet the same machine; a process fits once to
compile, then measures the quickest of three. The ratio is that of the quickest of all rounds, the spread that between rounds of
one tree: a ratio beyond the spread is a difference. Ends with 1 if something is slower by more than that and a tenth.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REPEATS, LEAST = 3, 1.1
LIMITS = ("max_passes", "max_sweeps", "max_steps", "steps", "passes")


def fits() -> dict[str, Callable[[], Any]]:
    """The same fits, whatever the version calls its limits."""
    import natgrad as ng

    rng = np.random.default_rng(0)

    def model(name: str, limit: int, **settings: Any) -> Any:
        kind: Any = getattr(ng, name)
        known = inspect.signature(kind).parameters
        first = next(limits for limits in LIMITS if limits in known)
        given = {first: limit, "tol": 0, "seed": 0, "n_jobs": 1, **settings}
        return kind(**{key: value for key, value in given.items() if key in known})

    import scipy.sparse as sparse

    counts = sparse.csr_matrix(rng.poisson(0.02, size=(2000, 2000)))
    pairs = np.unique(rng.integers(0, 2000 * 1500, 100_000))
    ratings = ng.Ratings(pairs // 1500, pairs % 1500, rng.normal(size=len(pairs)))
    states = (np.arange(50_000) // 50) % 4
    series = np.column_stack([states + 0.5 * rng.normal(size=len(states)), rng.normal(size=(len(states), 2))])
    x = rng.normal(size=(4000, 4))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=len(x))
    rows = rng.normal(size=20_000) + 4.0 * rng.integers(0, 3, 20_000)

    def network() -> Any:
        point, part = ng.Plate("point", len(rows)), ng.Plate("part", 3)
        mean, tau = ng.Normal("mean", 0.0, 0.01, plate=part), ng.Gamma("tau", 1.0, 1.0, plate=part)
        z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=3), plate=point)
        declared = ng.Network(ng.Normal("x", mean[z], tau[z], plate=point, observed=rows))
        known = inspect.signature(declared.fit).parameters
        limit = next(name for name in ("max_steps", "steps") if name in known)
        start = {"mean": np.array([0.0, 4.0, 8.0])}
        return declared.fit(ng.VB(), init=start, tol=0, **{limit: 20})

    return {
        "network": network,
        "LDA": lambda: model("LDA", 3, n_topics=50).fit(counts),
        "factorisation": lambda: model("MatrixFactorization", 5, n_factors=20).fit(ratings),
        "HMM": lambda: model("GaussianHMM", 5, n_states=4, method=ng.VB(), n_init=1).fit(series),
        "GP": lambda: model("SparseGPRegressor", 100, n_inducing=80).fit(x, y),
    }


def measure(names: list[str]) -> dict[str, float]:
    """Processor seconds of each fit, the quickest of some."""
    warnings.simplefilter("ignore")
    found = {}
    for name, fit in fits().items():
        if names and name not in names:
            continue
        fit()
        seconds = []
        for _ in range(REPEATS):
            begin = time.process_time()
            fit()
            seconds.append(time.process_time() - begin)
        found[name] = min(seconds)
    return found


def in_tree(tree: Path, names: str) -> dict[str, float]:
    """What a process of its own measures with this source tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
    call = [sys.executable, __file__, "--measure", "--only", names]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Compare, and say what is slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, help="the source folders of the old and the new version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="names of fits, with commas")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure([name for name in given.only.split(",") if name])))
        return
    if len(given.trees) != 2:
        parser.error("give two source folders")
    rounds = [[in_tree(tree, given.only) for tree in given.trees] for _ in range(given.rounds)]
    print(f"{'fit':<16}{'before':>9}{'after':>9}{'ratio':>8}{'spread':>8}")
    slower = []
    for name in rounds[0][0]:
        before, after = ([both[tree][name] for both in rounds] for tree in range(2))
        ratio, spread = min(after) / min(before), max(max(t) / min(t) for t in (before, after))
        print(f"{name:<16}{min(before):9.3f}{min(after):9.3f}{ratio:8.2f}{spread:8.2f}")
        if ratio > max(LEAST, spread):
            slower.append(name)
    print(f"slower: {', '.join(slower)}" if slower else "nothing is slower by more than the noise")
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
