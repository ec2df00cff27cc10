"""BayesPy's demonstration of a linear state-space model: 30 sensors, 400 times, four fifths of the data and a gap missing.

    python benchmarks/state_space.py                        # BayesPy in .bench/bayespy, as benchmarks/engine.py makes it
    python benchmarks/state_space.py --bayespy PYTHON       # the interpreter of an environment that has it

Both have the same data, priors, start and order of updates, and turn the coordinates of the states after each sweep. BayesPy ends
by its own rule, natgrad when less than ``tol`` nats are left to gain. Results: ``benchmarks/results/state-space.md``.
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

import numpy as np

import natgrad as ng

HERE = Path(__file__).resolve().parent
SENSORS, TIMES, SIZE = 30, 400, 10
ORDER = ["x", "C", "gamma", "A", "alpha", "tau"]


def make_data(seed: int) -> dict[str, np.ndarray]:
    """A rotation, a walk and noise, seen by thirty sensors; and values to start from."""
    rng, angle = np.random.default_rng(seed), 0.3
    step = np.diag([np.cos(angle), np.cos(angle), 1.0, 0.0])
    step[0, 1], step[1, 0] = -np.sin(angle), np.sin(angle)
    loadings, x = rng.normal(size=(SENSORS, 4)), np.empty((TIMES, 4))
    x[0] = 10 * rng.normal(size=4)
    for t in range(1, TIMES):
        x[t] = step @ x[t - 1] + rng.normal(size=4)
    y = x @ loadings.T + 3 * rng.normal(size=(TIMES, SENSORS))
    seen = rng.random(y.shape) < 0.2
    seen[30:80] = False
    start = {"A": np.eye(SIZE), "C": rng.normal(size=(SENSORS, SIZE)), "tau": np.array(1e2)}
    return {"y": np.where(seen, y, np.nan), **start}


def make_network(y: np.ndarray) -> ng.Network:
    """Relevances on the columns of dynamics and loadings; the noise of the states has variance one."""
    times, sensor = ng.Plate("time", TIMES), ng.Plate("sensor", SENSORS)
    alpha = ng.Gamma("alpha", 1e-5, 1e-5, plate=ng.Plate("column", SIZE))
    dynamics = ng.MultivariateNormal("A", 0.0, ng.diag(alpha), plate=ng.Plate("row", SIZE), size=SIZE)
    x = ng.GaussianChain("x", np.zeros(SIZE), 1e-3, dynamics, 1.0, plate=times)
    gamma = ng.Gamma("gamma", 1e-5, 1e-5, plate=ng.Plate("factor", SIZE))
    loadings = ng.MultivariateNormal("C", 0.0, ng.diag(gamma), plate=sensor, size=SIZE)
    tau = ng.Gamma("tau", 1e-5, 1e-5)
    return ng.Network(ng.Normal("y", ng.dot(loadings, x), tau, plate=(times, sensor), observed=y))


def fit_ours(data: dict[str, np.ndarray], rotate: bool) -> tuple[Any, float, np.ndarray]:
    """The fit, seconds of the wall, and of processors after each step; declaration and start included."""
    wall, own, after = time.perf_counter(), time.process_time(), []

    def watch(_: Any) -> None:
        after.append(time.process_time() - own)

    init = {name: data[name] for name in ("A", "C", "tau")} | {"alpha": np.ones(SIZE), "gamma": np.ones(SIZE)}
    fit = make_network(data["y"]).fit(
        step=ng.Auto(rotate=rotate), init=init, order=ORDER, verbose=False, callbacks=[watch]
    )
    return fit, time.perf_counter() - wall, np.array(after)


def fit_theirs(data: dict[str, np.ndarray], python: Path) -> dict[str, object]:
    """What BayesPy does with it, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        arrays, result = Path(folder) / "arrays.npz", Path(folder) / "result.json"
        np.savez(arrays, **data)
        script = HERE / "peers" / "bayespy_state_space.py"
        subprocess.run([python, "-W", "ignore", script, arrays, result], check=True)
        return json.loads(result.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bayespy", type=Path, default=HERE.parent / ".bench" / "bayespy" / "bin" / "python")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    lines = [
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, Python {platform.python_version()}, natgrad "
        f"{ng.__version__}, BayesPy 0.6.6.",
        "",
        "| data | engine | sweeps | bound | wall, s | processor, s | until BayesPy's bound, s | BayesPy ÷ that |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for seed in range(options.seeds):
        data = make_data(seed)
        theirs = fit_theirs(data, options.bayespy) if options.bayespy.exists() else None
        if theirs is not None:
            bounds = theirs["bounds"]
            seconds = f"{theirs['wall']:.1f} | {theirs['cpu']:.1f} | {theirs['cpu']:.1f}"
            lines.append(f"| {seed} | BayesPy | {len(bounds)} | {bounds[-1]:.2f} | {seconds} | 1 |")
            print(lines[-1], flush=True)
        for name, rotate in (("natgrad", True), ("natgrad, not rotated", False)):
            fit, wall, own = fit_ours(data, rotate)
            reached = own[fit.trace["elbo"] >= bounds[-1]] if theirs is not None else own[:0]
            ratio = f"{reached[0]:.2f} | {theirs['cpu'] / reached[0]:.1f}" if reached.size else "|"
            lines.append(f"| {seed} | {name} | {len(own)} | {fit.elbo:.2f} | {wall:.1f} | {own[-1]:.1f} | {ratio} |")
            print(lines[-1], flush=True)
    (HERE / "results" / "state-space.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
