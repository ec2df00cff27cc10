"""Outputs that go together beside outputs that do not: entries held out of one output while the others are seen.

    python benchmarks/gp_outputs.py; python benchmarks/gp_outputs.py --gpytorch .bench/gpytorch/bin/python

Draws of processes with a known B (two outputs with correlations 0.9, 0.5 and 0, four outputs of rank two and a bit), of which
windows of the first output are hidden; and torques of the joints of an arm, 30 % of them hidden at random. Root mean square error
in standard deviations of the output, log density an entry, processor seconds; 500 rows, M = 40, at most 500 steps, else defaults;
means of some seeds. By default correlations are kept as far as they gain. The exact process with the settings of the draws
says what nobody beats on average, and at the optimum of its settings what is lost by inducing inputs and by stopping. GPyTorch,
where an environment has it, sees the same entries. Results: benchmarks/results/gp-outputs.md and .json.
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
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

HERE = Path(__file__).resolve().parent
SEEDS, M, STEPS, NOISE, LENGTH = 12, 40, 500, 0.1, 0.6
# Steps of GPyTorch after which it is judged, beside as many processor seconds as natgrad took.
PEER_STEPS = (50, 100)
OUTPUTS = {None: "natgrad", "correlated": '`outputs="correlated"`', "independent": '`outputs="independent"`'}
EXACT = {"best": "the exact process, all settings at their optimum", "drawn": "the exact process, settings as drawn"}
PEERS = {"equal": "GPyTorch, as many CPU s", **{str(n): f"GPyTorch, {n} steps" for n in PEER_STEPS}}


def drawn(b, n=500):
    """Processes on [0, 10] with covariance B; windows of the first output are hidden."""

    def make(seed):
        g = np.random.default_rng(seed)
        x = np.sort(g.uniform(0, 10, n))[:, None]
        k = np.exp(-0.5 * ((x - x.T) / LENGTH) ** 2) + 1e-8 * np.eye(n)
        f = np.linalg.cholesky(k) @ g.normal(size=(n, len(b))) @ np.linalg.cholesky(b).T
        y = f + np.sqrt(NOISE) * g.normal(size=f.shape)
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


DRAWN = {
    "two outputs, correlation 0.9, windows hidden": pair(0.9),
    "two outputs, correlation 0.5, windows hidden": pair(0.5),
    "two outputs, correlation 0, windows hidden": pair(0.0),
    "four outputs, windows of one hidden": four(),
}
TABLES = {**{name: drawn(b) for name, b in DRAWN.items()}, "an arm of four joints, 30 % hidden": arm}


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


def exact(b, x, y, hidden):
    """The exact process, at the settings of which y was drawn, and at those with the largest evidence, sought from there."""
    seen = np.where(hidden, np.nan, y)
    unit = np.nanstd(seen, axis=0)
    process = Exact(x[:, 0], (seen - np.nanmean(seen, axis=0)) / unit)
    at = process.settings(LENGTH, NOISE / unit**2, b / np.outer(unit, unit))
    found = {}
    for name, best in (("drawn", False), ("best", True)):
        began = time.process_time()
        mean, sd = process.predicted(process.best(at) if best else at)
        judgement = judged(mean * unit + np.nanmean(seen, axis=0), sd * unit, y, hidden, unit)
        found[name] = [*judgement, time.process_time() - began]
    return found


class Exact:
    """An exact process of several outputs with an RBF of one column; settings are log ℓ, log D [P] and a root of B."""

    def __init__(self, x, y):
        self.x, self.p = x, y.shape[1]
        self.rows, self.task = np.nonzero(~np.isnan(y))
        self.y = y[self.rows, self.task]
        self.squared = (x[self.rows][:, None] - x[self.rows]) ** 2
        self.lower = np.tril_indices(self.p)

    def settings(self, length, noise, b):
        root = np.linalg.cholesky(b + 1e-9 * np.eye(self.p))
        return np.concatenate([[np.log(length)], np.log(noise), root[self.lower]])

    def parts(self, at):
        root = np.zeros((self.p, self.p))
        root[self.lower] = at[1 + self.p :]
        return np.exp(at[0]), np.exp(at[1 : 1 + self.p]), root

    def below(self, at):
        """Minus the log evidence, and its slope."""
        length, noise, root = self.parts(at)
        across = (root @ root.T)[np.ix_(self.task, self.task)]
        k = np.exp(-0.5 * self.squared / length**2)
        factor = cho_factor(k * across + np.diag(noise[self.task] + 1e-8), lower=True)
        weights, inverse = cho_solve(factor, self.y), cho_solve(factor, np.eye(len(self.y)))
        pull = 0.5 * (inverse - np.outer(weights, weights))
        one = np.eye(self.p)[self.task]
        of_b = one.T @ (pull * k) @ one
        of_noise = noise * (one.T @ np.diagonal(pull))
        slope = [[np.vdot(pull * k * across, self.squared) / length**2], of_noise, (2.0 * of_b @ root)[self.lower]]
        value = 0.5 * (self.y @ weights + len(self.y) * np.log(2 * np.pi)) + np.log(np.diagonal(factor[0])).sum()
        return value, np.concatenate(slope)

    def best(self, at):
        return minimize(self.below, at, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x

    def predicted(self, at):
        """Means and standard deviations of y [N, P] at all rows."""
        length, noise, root = self.parts(at)
        b = root @ root.T
        k = np.exp(-0.5 * self.squared / length**2) * b[np.ix_(self.task, self.task)]
        factor = cho_factor(k + np.diag(noise[self.task] + 1e-8), lower=True)
        near = np.exp(-0.5 * ((self.x[:, None] - self.x[self.rows]) / length) ** 2)
        law = []
        for p in range(self.p):
            k_star = near * b[p, self.task]
            known = np.einsum("ns,sn->n", k_star, cho_solve(factor, k_star.T))
            law.append((k_star @ cho_solve(factor, self.y), np.sqrt(b[p, p] + noise[p] - known)))
        return np.transpose([mean for mean, _ in law]), np.transpose([sd for _, sd in law])


def theirs(python, seconds, steps, x, y, hidden):
    """Of GPyTorch, after as many processor seconds, and after so many steps."""
    seen = np.where(hidden, np.nan, y)
    centre, unit = np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)
    with tempfile.TemporaryDirectory() as folder:
        rows, found = Path(folder) / "rows.npz", Path(folder) / "found.npz"
        np.savez(rows, x=(x - x.mean(0)) / x.std(0), y=(seen - centre) / unit)
        program = HERE / "peers" / "gp_outputs_gpytorch.py"
        subprocess.run(
            [python, program, rows, found, "--seconds", f"{seconds}", "--steps", *map(str, steps)],
            check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        )  # fmt: skip
        with np.load(found) as got:
            return {
                name: [
                    *judged(got[f"mean_{name}"] * unit + centre, got[f"sd_{name}"] * unit, y, hidden, unit),
                    float(got[f"seconds_{name}"]),
                ]
                for name in ("equal", *map(str, steps))
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", type=int, default=range(len(TABLES)), help="their numbers")
    parser.add_argument("--gpytorch", help="the Python of an environment that has GPyTorch: runs that alone")
    parser.add_argument("--steps", type=int, nargs="+", choices=PEER_STEPS, default=PEER_STEPS, help="of GPyTorch")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    target = HERE / "results" / "gp-outputs.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for number in given.tables:
        name, make = list(TABLES.items())[number]
        if given.gpytorch:
            seconds = found[f"{name} / {OUTPUTS[None]}"][0][2]
            peers = [theirs(given.gpytorch, seconds, given.steps, *make(seed)) for seed in range(SEEDS)]
            runs = {PEERS[which]: [one[which] for one in peers] for which in peers[0]}
        else:
            runs = {words: [ours(outputs, *make(seed)) for seed in range(SEEDS)] for outputs, words in OUTPUTS.items()}
            if name in DRAWN:
                exacts = [exact(DRAWN[name], *make(seed)) for seed in range(SEEDS)]
                runs |= {words: [one[which] for one in exacts] for which, words in EXACT.items()}
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
        for words in (*OUTPUTS.values(), *EXACT.values(), *PEERS.values()):
            if f"{table} / {words}" in found:
                (error, density, seconds), about = found[f"{table} / {words}"]
                lines.append(f"| {table} | {words} | {error:.3f} ± {about:.3f} | {density:.3f} | {seconds:.1f} |")
    text = (
        f"500 rows, M = {M}, {STEPS} steps at most, all else by default; errors in standard deviations of the output, with the "
        f"standard error of the mean of {SEEDS} seeds. On average nobody beats the exact process with the "
        "settings of the draws. GPyTorch's process is exact (Hadamard, an IndexKernel of full rank), with Adam at 0.1. `python "
        "benchmarks/gp_outputs.py`, and then with `--gpytorch PYTHON`"
    )
    target.with_suffix(".md").write_text("\n".join([*lines, "", text]) + "\n")


if __name__ == "__main__":
    main()
