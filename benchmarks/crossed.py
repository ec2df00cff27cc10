"""A crossed logistic mixed model: an intercept, three slopes, and effects of two crossed factors with learned precisions.

    python benchmarks/crossed.py                       # a million rows, 55,000 levels; ten minutes
    python benchmarks/crossed.py --levels 2000 200     # fewer levels, each with more rows, creep longer in turn
    python benchmarks/crossed.py --rows 100000         # to try it

Beside the default stands memoised VB along the larger factor, which updates the effects of the two factors in turn. Seconds
are of the wall and of processors; both run until less than ``tol`` nats are left to gain, or until the limit. Results:
``benchmarks/results/crossed-<levels>.md``.
"""

import argparse
import os
import platform
import time
from pathlib import Path

import numpy as np

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"


def make_network(rows: int, levels: tuple[int, int], seed: int = 0) -> ng.Network:
    """Rows with three covariates, each with a level of both factors; standard deviations of the effects 1 and 0.7."""
    rng = np.random.default_rng(seed)
    one, other = (rng.integers(0, size, rows) for size in levels)
    x = rng.normal(size=(rows, 3))
    effects = rng.normal(0, 1.0, levels[0]), rng.normal(0, 0.7, levels[1])
    eta = -0.3 + x @ [0.5, -1.0, 0.25] + effects[0][one] + effects[1][other]
    seen = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(float)
    a, b = ng.Plate("a", levels[0]), ng.Plate("b", levels[1])
    mu, w = ng.Normal("mu", 0.0, 0.01), ng.MultivariateNormal("w", np.zeros(3), 0.01)
    first = ng.Normal("first", 0.0, ng.Gamma("tau_a", 1.0, 1.0), plate=a)
    second = ng.Normal("second", 0.0, ng.Gamma("tau_b", 1.0, 1.0), plate=b)
    logit = mu + ng.dot(x, w) + first[one] + second[other]
    return ng.Network(ng.Bernoulli("y", logit=logit, plate=ng.Plate("row", rows), observed=seen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--levels", type=int, nargs=2, default=(50_000, 5_000))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of each run at most")
    options = parser.parse_args()
    lines = [
        f"{options.rows:,} rows, {options.levels[0]:,} and {options.levels[1]:,} levels; {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} at the start, Python {platform.python_version()}, natgrad {ng.__version__}.",
        "",
        "| method | backend | wall, s | processor, s | steps | bound | ended | means of w | sd of the effects |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    batch = ng.SVI({"a": -(-options.levels[0] // 50)}, local_steps=1)
    for name, method, backend in (("default", None, None), ("default", None, "numpy"), ("memoised", batch, None)):
        network = make_network(options.rows, tuple(options.levels))
        wall, own = time.perf_counter(), time.process_time()
        fit = network.fit(method, backend=backend, max_seconds=options.limit, max_steps=10_000, verbose=False)
        wall, own = time.perf_counter() - wall, time.process_time() - own
        used = "NumPy" if "interpreted" in fit.trace.strategy else "JAX"
        sd = ", ".join(f"{fit[tau].mean() ** -0.5:.3f}" for tau in ("tau_a", "tau_b"))
        slopes = ", ".join(f"{value:.3f}" for value in fit["w"].mean())
        seconds, steps = f"{wall:.1f} | {own:.1f}", len(fit.trace.records)
        lines.append(f"| {name} | {used} | {seconds} | {steps} | {fit.elbo:.3f} | {fit.stop} | {slopes} | {sd} |")
        print(lines[-1], flush=True)
    (RESULTS / f"crossed-{options.levels[0]}-{options.levels[1]}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
