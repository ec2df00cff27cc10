"""The local step of LDA, documents given λ: seconds against scikit-learn and gensim, and against what the machine can do.

    python benchmarks/lda_speed.py --peers /path/to/peer/environment

ACL abstracts and CVE descriptions, K = 50 and 200, one thread and two. All systems get the same λ, α and documents, the same
tolerance (a document is done when γ changes by less than 1e-3 in the mean over topics) and the same most rounds, start from
equal shares (gensim: from its random ones) and return γ and the expected counts; ours also returns the bound. The γ of all are
judged by one evaluator: a plain round in double precision over all topics, its change of γ and its bound.
Results: ``benchmarks/results/lda-speed.json`` and ``.md``.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy.sparse as sparse
from lda_machine import dense_part

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.models.lda.parts import infer_view
from natgrad.models.lda.problem import LDAProblem, Local
from natgrad.threads import at_most

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("NATGRAD_DATA", HERE.parents[1] / "shared" / "data")) / "text"
CACHE = HERE.parent / ".bench"
CORPORA = {"ACL abstracts": "acl_abstracts.npz", "CVE": "cve.npz"}
ALPHA, BETA, TOL, LIMIT, SKIP = 0.1, 0.05, 1e-3, 100, 1e-4
# λ comes from documents that are not timed.
TRAINING, PASSES = 20_000, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="an environment with scikit-learn and gensim; without it ours alone")
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--topics", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the results")
    options = parser.parse_args()
    rows, dense = [], []
    for title, name in CORPORA.items():
        if not (DATA / name).exists():
            print(f"{title}: no {DATA / name}, left out")
            continue
        for n_topics in options.topics:
            found, limits = measured(title, sparse.load_npz(DATA / name).tocsr(), n_topics, options)
            rows += found
            dense.append(limits)
            print(*markdown(found), *markdown([limits]), sep="\n", flush=True)
    if options.write:
        report(rows, dense, options)


def measured(
    title: str, X: Any, n_topics: int, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of all systems, and of the dense part."""
    lam = trained(X[:TRAINING], n_topics, title)
    held = X[TRAINING : TRAINING + options.documents].astype(np.float64)
    corpus = as_corpus(held)
    judge = LDAProblem(corpus, np.full(n_topics, ALPHA), BETA, Local(dtype=np.float64))
    ours = LDAProblem(corpus, np.full(n_topics, ALPHA), BETA, Local(skip=SKIP, dtype=np.float32))
    rows = []
    for threads in (1, 2):
        with at_most(threads):
            seconds, gamma = timed(ours, lam, options.repeats)
        results = {"natgrad": (seconds, gamma, ng.__version__)}
        if options.peers:
            results |= {peer: asked(peer, held, lam, threads, options) for peer in ("sklearn", "gensim")}
        for system, (spent, found, number) in results.items():
            row = {"corpus": title, "K": n_topics, "threads": threads, "system": f"{system} {number}"}
            row["µs a document"] = round(1e6 * spent / options.documents, 2)
            row["ours is faster"] = round(spent / seconds, 1)
            rows.append(row | judged(judge, lam, found))
    with at_most(1):
        return rows, {"corpus": title, "K": n_topics} | dense_part(corpus, lam, ALPHA, options.repeats)


def trained(X: Any, n_topics: int, title: str) -> Any:
    kept = CACHE / f"lda-{title.split()[0]}-{n_topics}.npy"
    if kept.exists():
        return np.load(kept)
    model = ng.LDA(
        n_topics, doc_prior=ALPHA, topic_prior=BETA, inference="vb", max_passes=PASSES, tol=0, seed=0, verbose=False
    )
    lam = model.fit(X).components_
    CACHE.mkdir(exist_ok=True)
    np.save(kept, lam)
    return lam


def timed(problem: LDAProblem, lam: Any, repeats: int) -> tuple[float, Any]:
    """Median seconds of a step after a warm-up, and γ. exp E[log φ] is made once for λ, as the peers do."""
    state = problem.at(lam)
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        found = problem.solve(state, None, None, TOL, LIMIT)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[1:])), found.rows[0]


def asked(peer: str, X: Any, lam: Any, threads: int, options: argparse.Namespace) -> tuple[float, Any, str]:
    with tempfile.TemporaryDirectory() as folder:
        arrays, result = Path(folder) / "arrays.npz", Path(folder) / "result.npz"
        np.savez(
            arrays, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, lam=lam, alpha=ALPHA, beta=BETA, tol=TOL,
            limit=LIMIT,
        )  # fmt: skip
        script = HERE / "peers" / "lda_local_step.py"
        command = [options.peers / "bin" / "python", script, peer, arrays, result, "--threads", str(threads)]
        repeats = max(1, options.repeats // 2)
        # One thread is one: matrix products of the peers must not take another.
        alone = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command += ["--repeats", str(repeats)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=os.environ | alone)
        with np.load(result) as found:
            return float(np.median(found["seconds"])), found["gamma"], str(found["version"])


def judged(judge: LDAProblem, lam: Any, gamma: Any) -> dict[str, Any]:
    """A plain round over all topics from γ: how far it moves in the mean over topics, and its bound a word."""
    state = judge.at(lam)
    found = infer_view(
        judge._view(None, keep=True),
        judge._topics(state.mu["phi"][0]),
        judge.local,
        gamma.astype(np.float64),
        True,
        0.0,
        1,
    )
    moved = np.abs(found.gamma - gamma).mean(1)
    return {
        "mean change of γ": f"{moved.mean():.1e}",
        "bound a word": round(float(found.bound.sum() / judge.corpus.n_tokens), 5),
    }


def markdown(rows: list[dict[str, Any]]) -> list[str]:
    lines = [" | ".join(rows[0]), "|".join("---" for _ in rows[0])]
    return [f"| {line} |" for line in [*lines, *(" | ".join(str(value) for value in row.values()) for row in rows)]]


def report(rows: list[dict[str, Any]], dense: list[dict[str, Any]], options: argparse.Namespace) -> None:
    about = {
        "documents": options.documents, "repeats": options.repeats, "tolerance": TOL, "rounds": LIMIT, "skip": SKIP,
        "numba": numba.__version__, "numpy": np.__version__, "python": platform.python_version(), "cores": os.cpu_count(),
        "command": "python benchmarks/lda_speed.py --peers … --write",
    }  # fmt: skip
    text = [
        "# The local step of LDA", "",
        f"{options.documents} documents given λ; medians of {options.repeats} after a warm-up (peers: half as many). {about}", "",
        *markdown(rows), "",
        "*mean change of γ*: by one plain round in double precision from the γ that a system returned; the tolerance is 1e-3.",
        "", "## The dense part", "",
        "Rounds over all topics alone (skip = 0, 40 rounds for every document), one thread. A round loads every b twice for two "
        "fused multiply-adds, so loads limit it before arithmetic does. *Load limit*: a sum over a block of the same size, in "
        "the same caches. *FMA limit*: a float32 matrix product on one thread.",
        "", *markdown(dense), "",
    ]  # fmt: skip
    results = HERE / "results"
    (results / "lda-speed.md").write_text("\n".join(text))
    (results / "lda-speed.json").write_text(json.dumps({"about": about, "rows": rows, "dense": dense}, indent=1) + "\n")


if __name__ == "__main__":
    main()
