"""Outputs that go together beside outputs that do not: entries held out of one output while the others are seen.

    python benchmarks/gp_outputs.py; python benchmarks/gp_outputs.py --gpytorch .bench/gpytorch/bin/python

Draws of processes with a known B (two outputs with correlations 0.9, 0.5 and 0, four outputs of rank two and a bit), of which
windows of the first output are hidden; and torques of the joints of an arm, 30 % of them hidden at random. Root mean square error
in standard deviations of the output, log density an entry, processor seconds; 500 rows, M = 40, at most 500 steps, else defaults;
means of some seeds. By default correlations are kept as far as they gain. GPyTorch, where an environment has it, sees the
same entries. Results: benchmarks/results/gp-outputs.md and .json.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SEEDS, M, STEPS = 4, 40, 500
# Steps of GPyTorch at most, and how many times as long it may take.
PEER_STEPS, LONGER = 50, 10
OUTPUTS = {None: "natgrad", "correlated": '`outputs="correlated"`', "independent": '`outputs="independent"`'}
PEERS = {"equal": "GPyTorch, as many CPU s", "all": f"GPyTorch, {LONGER} times as many, or {PEER_STEPS} steps"}


def drawn(b, n=500, noise=0.1):
    """Processes on [0, 10] with length scale 0.6; windows of the first output are hidden."""

    def make(seed):
        g = np.random.default_rng(seed)
        x = np.sort(g.uniform(0, 10, n))[:, None]
        k = np.exp(-0.5 * ((x - x.T) / 0.6) ** 2) + 1e-8 * np.eye(n)
        f = np.linalg.cholesky(k) @ g.normal(size=(n, len(b))) @ np.linalg.cholesky(b).T
        y = f + np.sqrt(noise) * g.normal(size=f.shape)
        hidden = np.zeros(y.shape, bool)
        hidden[:, 0] = x[:, 0] % 4 > 2
        return x, y, hidden

    return make


def arm(seed, n=500, joints=4):
    """Torques of the joints of a planar arm that holds itself up, from its angles; 30 % of the entries are hidden."""
    g = np.random.default_rng(seed)
    x = g.uniform(-1.2, 1.2, size=(n, joints))
    reach = np.cos(np.cumsum(x, axis=1))
    torque = np.cumsum((reach * np.arange(joints, 0, -1))[:, ::-1], axis=1)[:, ::-1]
    y = torque + 0.1 * torque.std(0) * g.normal(size=torque.shape)
    hidden = g.random(y.shape) < 0.3
    hidden[hidden.all(1)] = False
    return x, y, hidden


def pair(rho):
    return np.array([[1.0, rho], [rho, 1.0]])


def four():
    w = np.array([[1.0, 0.0], [0.8, 0.5], [-0.6, 0.7], [0.1, -1.0]])
    return w @ w.T + 0.1 * np.eye(4)


TABLES = {
    "two outputs, correlation 0.9, windows hidden": drawn(pair(0.9)),
    "two outputs, correlation 0.5, windows hidden": drawn(pair(0.5)),
    "two outputs, correlation 0, windows hidden": drawn(pair(0.0)),
    "four outputs, windows of one hidden": drawn(four()),
    "an arm of four joints, 30 % hidden": arm,
}


def judged(mean, sd, y, hidden, unit):
    """Error and density of the hidden entries in standardised units."""
    off, sd = ((y - mean) / unit)[hidden], (sd / unit)[hidden]
    density = -0.5 * (np.log(2 * np.pi * sd**2) + off**2 / sd**2)
    return [float(np.sqrt(np.mean(off**2))), float(density.mean())]


def ours(outputs, x, y, hidden):
    """Error, density, and processor seconds."""
    import natgrad as ng

    began = time.process_time()
    seen = np.where(hidden, np.nan, y)
    model = ng.SparseGPRegressor(n_inducing=M, outputs=outputs, max_steps=STEPS, verbose=False).fit(x, seen)
    mean, sd = model.predict(x, return_std=True)
    seconds = time.process_time() - began
    return [*judged(mean, sd, y, hidden, np.nanstd(seen, axis=0)), seconds]


def theirs(python, seconds, x, y, hidden):
    """Of GPyTorch, after as many processor seconds, and after all its steps."""
    seen = np.where(hidden, np.nan, y)
    centre, unit = np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)
    with tempfile.TemporaryDirectory() as folder:
        rows, found = Path(folder) / "rows.npz", Path(folder) / "found.npz"
        np.savez(rows, x=(x - x.mean(0)) / x.std(0), y=(seen - centre) / unit)
        program = HERE / "peers" / "gp_outputs_gpytorch.py"
        subprocess.run(
            [python, program, rows, found, "--seconds", f"{seconds}", "--longer", f"{LONGER}", "--steps", f"{PEER_STEPS}"],
            check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        with np.load(found) as got:
            return {
                name: [
                    *judged(got[f"mean_{name}"] * unit + centre, got[f"sd_{name}"] * unit, y, hidden, unit),
                    float(got[f"seconds_{name}"]),
                ]
                for name in ("equal", "all")
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", type=int, default=range(len(TABLES)), help="their numbers")
    parser.add_argument("--gpytorch", help="the Python of an environment that has GPyTorch: runs that alone")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    target = HERE / "results" / "gp-outputs.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for number in given.tables:
        name, make = list(TABLES.items())[number]
        if given.gpytorch:
            seconds = found[f"{name} / {OUTPUTS[None]}"][0][2]
            peers = [theirs(given.gpytorch, seconds, *make(seed)) for seed in range(SEEDS)]
            runs = {words: [one[which] for one in peers] for which, words in PEERS.items()}
        else:
            runs = {words: [ours(outputs, *make(seed)) for seed in range(SEEDS)] for outputs, words in OUTPUTS.items()}
        for words, rows in runs.items():
            found[f"{name} / {words}"] = [np.mean(rows, axis=0).tolist(), _error(rows)]
            print(name, words, np.mean(rows, axis=0), flush=True)
        target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        publish(found, target)


def _error(rows):
    """The standard error of the mean of errors."""
    return float(np.std([row[0] for row in rows], ddof=1) / np.sqrt(len(rows)))


def publish(found, target):
    """The table, in the order of tables and models."""
    lines = ["| table | model | error of hidden entries | log density an entry | CPU s |", "|---|---|---|---|---|"]
    for table in TABLES:
        for words in (*OUTPUTS.values(), *PEERS.values()):
            if f"{table} / {words}" in found:
                (error, density, seconds), about = found[f"{table} / {words}"]
                lines.append(f"| {table} | {words} | {error:.3f} ± {about:.3f} | {density:.3f} | {seconds:.1f} |")
    text = (
        f"500 rows, M = {M}, {STEPS} steps at most, all else by default; errors in standard deviations of the output, with the "
        f"standard error of the mean of {SEEDS} seeds. GPyTorch's process is exact (Hadamard, an IndexKernel of full rank), with "
        "Adam at 0.1. `python benchmarks/gp_outputs.py`, and then with `--gpytorch PYTHON`"
    )
    target.with_suffix(".md").write_text("\n".join([*lines, "", text]) + "\n")


if __name__ == "__main__":
    main()
