"""The smoother of a `GaussianChain` beside dynamax's and statsmodels', per time step; and a million time steps in bounded memory.

    python benchmarks/chains.py --peers PYTHON     # the interpreter of an environment with dynamax and statsmodels
    python benchmarks/chains.py million            # one fit of T = 10⁶ in a process of its own, from a table in chunks
    python benchmarks/chains.py million --chunk 0  # the same with the whole chain in memory

All smooth the same series with known parameters on one thread, in double precision: means, covariances, and for natgrad those
with the time before too, which learning needs. statsmodels stops updating covariances once they have settled, which missing data
forbid: it is measured with and without. Processor seconds of the best of three calls after a first one. A sweep of a network is
the smoother, the messages of the data to it, and the bound. Results: ``benchmarks/results/chains.md``.
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

import natgrad as ng

HERE = Path(__file__).resolve().parent
TIMES, SENSORS = 20_000, 2


def make_series(size: int, times: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A stable system of rotations with two sensors."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
    given = {
        "A": 0.98 * turn,
        "C": rng.normal(size=(SENSORS, size)),
        "Q": 0.1 * np.eye(size),
        "R": 0.5 * np.eye(SENSORS),
    }
    x, y = np.zeros(size), np.empty((times, SENSORS))
    noise, error = rng.normal(size=(times, size)), rng.normal(size=(times, SENSORS))
    for t in range(times):
        x = given["A"] @ x + 0.1**0.5 * noise[t]
        y[t] = given["C"] @ x + 0.5**0.5 * error[t]
    return {**given, "y": y}


def make_network(given: dict[str, np.ndarray]) -> ng.Network:
    """The same system, with known parameters."""
    times, size = len(given["y"]), len(given["A"])
    time_, sensor = ng.Plate("time", times), ng.Plate("sensor", SENSORS)
    x = ng.GaussianChain("x", np.zeros(size), 1.0, given["A"], 10.0, plate=time_, size=size)
    return ng.Network(ng.Normal("y", ng.dot(given["C"], x), 2.0, plate=(time_, sensor), observed=given["y"]))


def best_of(function, repeats: int = 3) -> float:
    """The fewest processor seconds of several calls, after one that warms up."""
    function()
    seconds = []
    for _ in range(repeats):
        own = time.process_time()
        function()
        seconds.append(time.process_time() - own)
    return min(seconds)


def speed(peers: Path | None) -> list[str]:
    """A table: microseconds of processor time per time step."""
    names = ("natgrad, smoother", "natgrad, sweep", "dynamax", "statsmodels", "statsmodels, every step")
    lines = [f"| K | {' | '.join(names)} | largest difference of means to each |", "|---|---|---|---|---|---|---|"]
    for size in (4, 16):
        given = make_series(size, TIMES)
        fit = make_network(given).fit(max_steps=1, backend="numpy", verbose=False)
        block, lam = fit.problem.blocks["x"], fit.state.lam["x"]
        smoother = best_of(lambda block=block, lam=lam: block.family.expected_stats(lam))
        order = tuple(fit.problem.blocks)
        sweep = best_of(lambda fit=fit, order=order: fit.problem.sweep(fit.state, order))
        found: dict[str, dict[str, float]] = {}
        if peers is not None:
            with tempfile.TemporaryDirectory() as folder:
                arrays, result = Path(folder) / "arrays.npz", Path(folder) / "result.json"
                np.savez(arrays, **given, means=fit["x"].mean())
                threads = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
                command = [peers, "-W", "ignore", HERE / "peers" / "kalman_smoothers.py", arrays, result]
                subprocess.run(command, check=True, env={**os.environ, **threads})
                found = json.loads(result.read_text())
        cells = [1e6 * smoother / TIMES, 1e6 * sweep / TIMES, *(1e6 * found[p]["cpu"] / TIMES for p in found)]
        error = ", ".join(f"{record['error']:.0e}" for record in found.values())
        lines.append(f"| {size} | {' | '.join(f'{cell:.1f}' for cell in cells)} | {error} |")
        print(lines[-1], flush=True)
    return lines


def million(times: int, chunk: int) -> str:
    """A fit of a long series with learned noise: seconds and the most memory beside the series itself."""
    given = make_series(4, times)
    table = {"first": given["y"][:, 0].copy(), "second": given.pop("y")[:, 1].copy()}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    time_, sensor = ng.Plate("time"), ng.Plate("sensor", SENSORS)
    x = ng.GaussianChain("x", np.zeros(4), 1.0, given["A"], 10.0, plate=time_, size=4)
    tau, columns = ng.Gamma("tau", 1.0, 1.0), ng.Columns("first", "second")
    y = ng.Normal("y", ng.dot(given["C"], x), tau, plate=(time_, sensor), observed=columns)
    own = time.process_time()
    rows = {"chunk_rows": chunk} if chunk else {}
    fit = ng.Network(y).fit(table, ng.VB(), max_steps=3, tol=0, backend="numpy", verbose=False, **rows)
    own, peak = time.process_time() - own, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    how = f"in chunks of {chunk:,}" if chunk else "as a whole"
    return f"| {times:,} | {how} | {own:.1f} | {peak:.0f} | {before:.0f} | {fit.elbo:.3f} | {fit['tau'].mean():.9f} |"


def long_series() -> list[str]:
    """Each in a process of its own, whose memory is told."""
    head = "| T, K = 4 | | processor, s | most memory, MB | before the fit, MB | bound | E[τ] |"
    lines = [
        "Three sweeps with a learned precision, declaration and reading included.",
        "",
        head,
        "|---|---|---|---|---|---|---|",
    ]
    for times, chunk in ((100_000, 10_000), (1_000_000, 10_000), (1_000_000, 0)):
        command = [sys.executable, __file__, "million", "--times", str(times), "--chunk", str(chunk)]
        lines.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("all", "million"), default="all")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--times", type=int, default=1_000_000)
    parser.add_argument("--chunk", type=int, default=10_000)
    options = parser.parse_args()
    if options.what == "million":
        print(million(options.times, options.chunk))
        return
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    unit = f"T = {TIMES:,}, {SENSORS} sensors; microseconds of processor time per time step."
    lines = [f"{machine}, natgrad {ng.__version__}; {unit}", "", *speed(options.peers)]
    lines += ["", *long_series()]
    (HERE / "results" / "chains.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
