"""Processes along time: seconds and memory of `StateSpaceGP` from 10⁴ to 10⁶ rows, and its density beside a sparse process.

    python benchmarks/gp_time.py

Two waves and noise of a third of them, at times that are equally far apart or not; a Matérn 3/2, all by default. The density is
that of 5,000 rows that were held out; the sparse process has 200 inducing inputs. Each row is a process of its own, whose peak of
memory is compared with that of the same process before the fit. Results: benchmarks/results/gp-time.md.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import natgrad as ng

HERE = Path(__file__).resolve().parent


def data(n, regular):
    g = np.random.default_rng(0)
    t = np.arange(float(n)) if regular else np.cumsum(g.exponential(size=n))
    f = np.sin(t / 50) + np.cos(t / 7)
    return t, f + 0.3 * g.normal(size=n), g.permutation(n)[:5000]


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(n, regular, model):
    ng.StateSpaceGP(verbose=False).fit(np.arange(9.0), np.arange(9.0)).predict([0.5])  # compiled, or read from disk
    t, y, held = data(n, regular)
    rest = np.setdiff1d(np.arange(n), held)
    before, began = megabytes(), time.process_time()
    if model == "StateSpaceGP":
        fit = ng.StateSpaceGP(verbose=False).fit(t[rest], y[rest])
    else:
        fit = ng.SparseGPRegressor(ng.covariance.Matern32(), verbose=False).fit(t[rest, None], y[rest])
    fitted, middle = time.process_time() - began, time.process_time()
    density = fit.log_predictive_density(t[held, None], y[held]).mean()
    predicted = time.process_time() - middle
    return [fitted, predicted, megabytes() - before, float(density), fit.n_steps_]


def main():
    if len(sys.argv) > 1:
        print(json.dumps(measured(int(sys.argv[1]), sys.argv[2] == "equal", sys.argv[3])))
        return
    lines = [
        "| rows | distances | model | fit, CPU s | steps | 5,000 predictions, CPU s | memory on top, MB | held-out log density |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    cases = [(n, kind, "StateSpaceGP") for n in (10**4, 10**5, 10**6) for kind in ("equal", "unequal")]
    for n, kind, model in [*cases, (10**4, "unequal", "SparseGPRegressor"), (10**5, "unequal", "SparseGPRegressor")]:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, str(n), kind, model], check=True, capture_output=True, text=True
        )
        fit, predict, memory, density, steps = json.loads(ended.stdout)
        lines.append(
            f"| {n:,} | {kind} | `{model}` | {fit:.2f} | {steps} | {predict:.2f} | {memory:.0f} | {density:.4f} |"
        )
        print(lines[-1], flush=True)
    lines += ["", "One thread. `python benchmarks/gp_time.py`"]
    (HERE / "results" / "gp-time.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
