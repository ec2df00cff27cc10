"""Outputs that go together beside outputs that do not: entries held out of one output while the others are seen.

    python benchmarks/gp_outputs.py

Draws of processes with a known B (two outputs with correlations 0.9, 0.5 and 0, four outputs of rank two and a bit), of which
windows of the first output are hidden; and torques of the joints of an arm, 30 % of them hidden at random. Root mean square error
in standard deviations of the output, log density an entry, processor seconds; 500 rows, M = 40, at most 500 steps, else defaults;
means of three seeds. Results: benchmarks/results/gp-outputs.md and .json.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SEEDS, M, STEPS = 3, 40, 500


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


def ours(outputs, x, y, hidden):
    """Error and density of the hidden entries in standardised units, and seconds."""
    import natgrad as ng

    began = time.process_time()
    seen = np.where(hidden, np.nan, y)
    model = ng.SparseGPRegressor(n_inducing=M, outputs=outputs, max_steps=STEPS, verbose=False).fit(x, seen)
    mean, sd = model.predict(x, return_std=True)
    seconds = time.process_time() - began
    unit = np.nanstd(seen, axis=0)
    off, sd = ((y - mean) / unit)[hidden], (sd / unit)[hidden]
    density = -0.5 * (np.log(2 * np.pi * sd**2) + off**2 / sd**2)
    return [float(np.sqrt(np.mean(off**2))), float(density.mean()), seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    warnings.simplefilter("ignore")
    target = HERE / "results" / "gp-outputs.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for name, make in TABLES.items():
        for outputs in ("correlated", "independent"):
            rows = [ours(outputs, *make(seed)) for seed in range(SEEDS)]
            found[f'{name} / `outputs="{outputs}"`'] = np.mean(rows, axis=0).tolist()
            print(name, outputs, np.mean(rows, axis=0), flush=True)
            target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    lines = ["| table | model | error of hidden entries | log density an entry | CPU s |", "|---|---|---|---|---|"]
    for key, (error, density, seconds) in sorted(
        found.items(), key=lambda item: list(TABLES).index(item[0].split(" / ")[0])
    ):
        table, rival = key.split(" / ")
        lines.append(f"| {table} | {rival} | {error:.3f} | {density:.3f} | {seconds:.1f} |")
    words = (
        f"500 rows, M = {M}, {STEPS} steps at most, all else by default; errors in standard deviations of the output; "
    )
    words += f"means of {SEEDS} seeds."
    text = "\n".join([*lines, "", f"{words} `python benchmarks/gp_outputs.py`"])
    target.with_suffix(".md").write_text(text + "\n")


if __name__ == "__main__":
    main()
