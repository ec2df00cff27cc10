"""A Gaussian mixture beside scikit-learn's `BayesianGaussianMixture`: seconds of a pass, passes to convergence, memory.

    python benchmarks/mixture.py                       # a million rows of ten columns, twenty full covariances; half an hour
    python benchmarks/mixture.py --rows 50000          # to try it
    python benchmarks/mixture.py speed                 # one of speed, convergence, memory

Both have the same priors, starts of their own and one thread. A pass of scikit-learn is its E-step, its M-step and its bound.
For convergence the rows are a fifth as many: it takes a hundred passes. scikit-learn stops when a pass gains less than 1e-6 nats
a row, natgrad when it expects all further passes together to gain less.
The stream reads a Parquet file chunk by chunk in a process that may not have as much memory as the file's numbers take.
Results: ``benchmarks/results/mixture.md`` and ``.json``.
"""

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"
D, K = 10, 20
CHUNK = 20_000
# Nats a row.
TOL = 1e-6


def make_rows(n: int, seed: int = 0) -> np.ndarray:
    """Twenty clusters that overlap, each with a covariance of its own."""
    rng = np.random.default_rng(0)
    centres, shapes = 2.0 * rng.normal(size=(K, D)), 0.5 * rng.normal(size=(K, D, D)) + np.eye(D)
    shares = rng.dirichlet(np.full(K, 2.0))
    rng = np.random.default_rng([1, seed])
    z, x = rng.choice(K, n, p=shares), rng.normal(size=(n, D))
    for k in range(K):
        x[z == k] = x[z == k] @ shapes[k] + centres[k]
    return x


def priors(x: np.ndarray) -> dict:
    own = ng.models.hmm.Gaussian("full", x.mean(0), 1.0, float(D), np.cov(x.T))
    return {"covariance": own, "weight_prior": 1.0 / K, "n_init": 1, "n_jobs": 1, "verbose": False}


def theirs(x: np.ndarray, **settings: object) -> BayesianGaussianMixture:
    return BayesianGaussianMixture(
        n_components=K, weight_concentration_prior_type="dirichlet_distribution", weight_concentration_prior=1.0 / K,
        mean_prior=x.mean(0), mean_precision_prior=1.0, degrees_of_freedom_prior=float(D), covariance_prior=np.cov(x.T),
        reg_covar=0.0, init_params="random_from_data", random_state=0, **settings,
    )  # fmt: skip


def clocked(function: object) -> tuple[object, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few passes do not converge
        found = function()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def speed(n: int) -> dict:
    """Seconds of an exact sweep: between the passes of ours, and those of five more passes of theirs."""
    x = make_rows(n)
    at: list[tuple[float, float]] = []
    note = [lambda progress: at.append((time.perf_counter(), time.process_time()))]
    clocked(lambda: ng.GaussianMixture(K, method=ng.VB(), max_passes=6, tol=0, **priors(x)).fit(x, callbacks=note))
    wall, cpu = np.median(np.diff(at, axis=0)[1:], axis=0)
    runs = [clocked(lambda m=m: theirs(x, max_iter=m, tol=0.0).fit(x))[1:] for m in (1, 6)]
    their_wall, their_cpu = (np.array(runs[1]) - np.array(runs[0])) / 5
    return {
        "rows": n, "natgrad_wall_seconds": wall, "natgrad_cpu_seconds": cpu, "sklearn_wall_seconds": their_wall,
        "sklearn_cpu_seconds": their_cpu, "wall_ratio": their_wall / wall, "cpu_ratio": their_cpu / cpu,
    }  # fmt: skip


def convergence(n: int, most: int = 200) -> dict:
    """Passes and seconds until a fit ends, and the mean log density of held-out rows."""
    n = max(n // 5, 1)
    x, held = make_rows(n), make_rows(10_000, 10**9)
    models = {
        "natgrad, batches": ng.GaussianMixture(K, tol=TOL, max_passes=most, **priors(x)),
        "natgrad, sweeps": ng.GaussianMixture(K, method=ng.VB(), tol=TOL, max_passes=most, **priors(x)),
        "scikit-learn": theirs(x, tol=TOL, max_iter=most),
    }
    table = []
    for name, model in models.items():
        _, _, cpu = clocked(lambda model=model: model.fit(x))
        words = str(getattr(model, "inference_", f"{getattr(model, 'n_iter_', 0)} passes"))  # "VB, memoised, 34 passes"
        passes = re.search(r"([\d,]+) (pass|sweep)", words)[1]
        table.append(
            {"engine": name, "passes": passes, "cpu": cpu, "held_out": float(np.mean(model.score_samples(held)))}
        )
    return {"rows": n, "table": table}


def memory(n: int) -> dict:
    """A stream from a Parquet file, five times as many rows, in a process with less memory than its numbers take."""
    n *= 5
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        writer = None
        for begin in range(0, n, 100_000):
            part = make_rows(min(100_000, n - begin), begin)
            table = pa.table({f"x{d}": part[:, d] for d in range(D)})
            writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
            writer.write_table(table, row_group_size=CHUNK)
        writer.close()
        command = [sys.executable, __file__, "--worker", str(path), "--rows", str(n)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def status(name: str) -> int:
    """Bytes, as the kernel says of this process alone."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))


def worker(path: str, n: int) -> None:
    """One pass of a stream, with what is allowed on top of the imports."""
    first = ng.data.open_source(path, size=CHUNK)
    ng.GaussianMixture(2, n_init=1, max_passes=1, verbose=False).fit(
        make_rows(1000)
    )  # whatever is imported or made once
    size = 8 * D * n
    allowed = max(size // 4, 50_000_000)
    used = status("VmData")
    resource.setrlimit(resource.RLIMIT_DATA, (used + allowed, used + allowed))
    before = status("VmHWM") / 1e6
    begin = time.perf_counter()
    model = ng.GaussianMixture(K, n_init=2, max_passes=2, n_jobs=1, verbose=False).fit(first)
    seconds, peak = time.perf_counter() - begin, status("VmHWM") / 1e6
    try:
        np.ones((n, D))
        whole = "fit"
    except MemoryError:
        whole = "do not fit"
    found = {
        "rows": n, "numbers_mb": size / 1e6, "allowed_mb": allowed / 1e6, "all_at_once": whole, "resident_before_mb": before,
        "peak_resident_mb": peak,
        "seconds": seconds, "score_a_row": model.score(make_rows(10_000, 10**9)),
    }  # fmt: skip
    print(json.dumps(found))


def publish(found: dict, words: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "mixture.json"
    kept = json.loads(path.read_text()) if path.is_file() else {}
    kept = {**kept, **found, "machine": words}
    path.write_text(json.dumps(kept, indent=1, default=float) + "\n")
    lines = [f"{D} columns, K = {K}, full covariances, the same priors, one thread. {words}.", ""]
    if row := kept.get("speed"):
        lines += [
            f"| a pass over {row['rows']:,} rows | wall, s | CPU, s |", "|---|---|---|",
            f"| natgrad {ng.__version__} | {row['natgrad_wall_seconds']:.2f} | {row['natgrad_cpu_seconds']:.2f} |",
            f"| scikit-learn {sklearn.__version__} | {row['sklearn_wall_seconds']:.2f} | {row['sklearn_cpu_seconds']:.2f} |",
            f"| times faster | {row['wall_ratio']:.1f} | {row['cpu_ratio']:.1f} |", "",
        ]  # fmt: skip
    if found_rows := kept.get("convergence"):
        lines += [
            f"| {found_rows['rows']:,} rows | passes until it stopped | CPU, s | held-out log density a row |",
            "|---|---|---|---|",
            *(f"| {r['engine']} | {r['passes']} | {r['cpu']:.1f} | {r['held_out']:.4f} |" for r in found_rows["table"]),
        ]
        lines.append("")
    if row := kept.get("memory"):
        lines += [
            f"A Parquet file of {row['rows']:,} rows ({row['numbers_mb']:,.0f} MB of numbers), streamed in chunks of "
            f"{CHUNK:,} rows, twice, by a process that may take {row['allowed_mb']:,.0f} MB on top of its imports "
            f"(all rows at once {row['all_at_once']}): "
            f"{row['seconds']:.1f} s, peak resident {row['peak_resident_mb']:,.0f} MB, {row['resident_before_mb']:,.0f} MB of it "
            "before the fit.", "",
        ]  # fmt: skip
    lines.append("`python benchmarks/mixture.py`")
    (RESULTS / "mixture.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


PARTS = {"speed": speed, "convergence": convergence, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--note", default="", help="What else the machine was doing.")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.rows)
        return
    words = f"{platform.machine()}, {os.cpu_count()} cores" + (f"; {options.note}" if options.note else "")
    for name in options.parts or PARTS:
        publish({name: PARTS[name](options.rows)}, words)


if __name__ == "__main__":
    main()
