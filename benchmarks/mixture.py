"""A Gaussian mixture beside scikit-learn's `BayesianGaussianMixture`: seconds of a pass, passes to convergence, memory.

    python benchmarks/mixture.py                       # a million rows of ten columns, twenty full covariances; half an hour
    python benchmarks/mixture.py --rows 50000          # to try it
    python benchmarks/mixture.py speed                 # one of speed, convergence, memory

Both have the same priors and the same start, memberships by the nearest of twenty rows, and one thread. A pass of scikit-learn is
its E-step, its M-step and its bound. For convergence the rows are a fifth as many: it takes a hundred passes. scikit-learn stops
when a pass gains less than 1e-6 nats a row, natgrad when it expects all further passes together to gain less.
The stream reads a Parquet file chunk by chunk in a process that may not have as much memory as the file's numbers take.
Results: ``benchmarks/results/mixture.md`` and ``.json``.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import sklearn
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

import natgrad as ng
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.methods import VB
from natgrad.inference.step_sizes import Constant

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


def start_of(x: np.ndarray) -> np.ndarray:
    """Memberships [N, K]: 0.9 for the nearest of K rows, the rest for all alike."""
    centres = x[np.random.default_rng(2).choice(len(x), K, replace=False)]
    nearest = np.argmin((centres**2).sum(1) - 2.0 * x @ centres.T, axis=1)
    member = np.full((len(x), K), 0.1 / K)
    member[np.arange(len(x)), nearest] += 0.9
    return member


def ours(x: np.ndarray, **settings: object) -> ng.GaussianMixture:
    own = ng.models.hmm.Gaussian("full", x.mean(0), 1.0, float(D), np.cov(x.T))
    given = {"covariance": own, "weight_prior": 1.0 / K, "n_jobs": 1, "verbose": False}
    return ng.GaussianMixture(K, **{**given, **settings})


def theirs(x: np.ndarray) -> BayesianGaussianMixture:
    """Begun, but not yet updated: fitting is one pass from a start of its own, which is then replaced."""
    model = BayesianGaussianMixture(
        n_components=K, weight_concentration_prior_type="dirichlet_distribution", weight_concentration_prior=1.0 / K,
        mean_prior=x.mean(0), mean_precision_prior=1.0, degrees_of_freedom_prior=float(D), covariance_prior=np.cov(x.T),
        reg_covar=0.0, max_iter=1, init_params="random", random_state=0,
    )  # fmt: skip
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[: 20 * K])
    return model


def clocked(function: object) -> tuple[object, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = function()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def both(x: np.ndarray, member: np.ndarray) -> tuple[object, object, object]:
    """Our problem and its first state, and their model in the same."""
    model = ours(x)
    model.n_features_in_ = D
    problem = model._problem(model._prepared(x, None), x, None, batch_size=-(-len(x) // 20))
    size, total = 100_000, None
    for begin in range(0, len(x), size):
        part = problem.of_rows(x[begin : begin + size], None).clustered(member[begin : begin + size].T)
        total = (
            part if total is None else {n: tuple(a + b for a, b in zip(total[n], part[n], strict=True)) for n in part}
        )
    other = theirs(x)
    other._m_step(x, np.log(member))
    return problem, problem.updated(total), other


def their_pass(model: BayesianGaussianMixture, x: np.ndarray) -> float:
    log_z, log_member = model._e_step(x)
    model._m_step(x, log_member)
    return float(model._compute_lower_bound(log_member, log_z))


def speed(n: int) -> dict:
    """Seconds of exact sweeps, in turn, and the difference of the bounds."""
    x = make_rows(n)
    problem, state, other = both(x, start_of(x))
    rows, gaps = [], []
    with threadpool_limits(1):
        for _ in range(4):
            result, wall, cpu = clocked(lambda state=state: problem.sweep(state))
            state = result.state
            bound, their_wall, their_cpu = clocked(lambda: their_pass(other, x))
            rows.append((wall, cpu, their_wall, their_cpu))
            gaps.append(result.bound - bound)
    wall, cpu, their_wall, their_cpu = np.median(rows[1:], axis=0)
    return {
        "rows": n, "natgrad_wall_seconds": wall, "natgrad_cpu_seconds": cpu, "sklearn_wall_seconds": their_wall,
        "sklearn_cpu_seconds": their_cpu, "wall_ratio": their_wall / wall, "cpu_ratio": their_cpu / cpu,
        "largest_change_of_the_difference_of_bounds": float(np.ptp(gaps)), "bound": result.bound,
    }  # fmt: skip


def convergence(n: int, most: int = 200) -> dict:
    """Passes until nothing is left to gain, from one start."""
    n = max(n // 5, 1)
    x = make_rows(n)
    problem, state, other = both(x, start_of(x))
    limits = Limits(None, TOL, max_passes=most, share=n)
    found = {}
    with threadpool_limits(1):
        for name, method, step in (("natgrad, batches", None, None), ("natgrad, sweeps", VB(), Constant(1.0))):
            phase = Phase(problem, method, order=tuple(problem.blocks), **({} if step is None else {"step": step}))
            result, wall, _ = clocked(lambda phase=phase: run(phase, state, limits=limits, seed=0, verbose=False))
            each = 20 if step is None else 1
            bounds = result.trace["elbo"][each - 1 :: each]
            found[name] = {"bounds": bounds, "stopped": len(bounds), "seconds": wall}
        bounds, begin = [], time.perf_counter()
        offset = None
        for _ in range(most):
            bounds.append(their_pass(other, x))
            if offset is None:  # the first sweeps are the same
                offset = found["natgrad, sweeps"]["bounds"][0] - bounds[0]
            if len(bounds) > 1 and bounds[-1] - bounds[-2] < TOL * n:
                break
        their_bounds = np.array(bounds) + offset
        found["scikit-learn"] = {"bounds": their_bounds, "stopped": len(bounds), "seconds": time.perf_counter() - begin}
    best = max(np.nanmax(row["bounds"]) for row in found.values())
    wanted, table = found["scikit-learn"]["bounds"][-1], []
    for name, row in found.items():
        near = np.flatnonzero(row["bounds"] >= wanted - 1e-9 * abs(wanted))
        table.append({
            "engine": name, "passes_until_level": int(near[0]) + 1 if len(near) else None, "passes_until_stopped": row["stopped"],
            "seconds": row["seconds"], "nats_a_row_below_the_best": float((best - np.nanmax(row["bounds"])) / n),
        })  # fmt: skip
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
    lines = [f"{D} columns, K = {K}, full covariances, the same priors and the same start, one thread. {words}.", ""]
    if row := kept.get("speed"):
        lines += [
            f"| a pass over {row['rows']:,} rows | wall, s | CPU, s |", "|---|---|---|",
            f"| natgrad {ng.__version__} | {row['natgrad_wall_seconds']:.2f} | {row['natgrad_cpu_seconds']:.2f} |",
            f"| scikit-learn {sklearn.__version__} | {row['sklearn_wall_seconds']:.2f} | {row['sklearn_cpu_seconds']:.2f} |",
            f"| times faster | {row['wall_ratio']:.1f} | {row['cpu_ratio']:.1f} |", "",
            "The difference of the two bounds, their constants, changes by "
            f"{row['largest_change_of_the_difference_of_bounds']:.1e} nats in four passes, of {row['bound']:.4g}.", "",
        ]  # fmt: skip
    if found_rows := kept.get("convergence"):
        lines += [
            f"| {found_rows['rows']:,} rows | passes until scikit-learn's last bound | passes until it stopped | seconds | "
            "nats a row below the best |", "|---|---|---|---|---|",
        ]  # fmt: skip
        lines += [
            f"| {r['engine']} | {r['passes_until_level'] or 'never'} | {r['passes_until_stopped']} | {r['seconds']:.1f} | "
            f"{r['nats_a_row_below_the_best']:.1e} |"
            for r in found_rows["table"]
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
