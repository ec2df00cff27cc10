"""Likelihoods of sparse Gaussian processes beside those that a user would take instead: held-out log density a row.

    python benchmarks/gp_likelihoods.py [classes ordinal noise]

Classes: the softmax against one-against-the-rest. Ordered classes: cutpoints against a softmax, and against Gaussian noise on the
numbers of the levels. Noise that varies: an impact as in Silverman's motorcycle data (or these, as gp/mcycle.csv with columns
times and accel), against one variance and against heavy tails, with the share of held-out rows inside 95 % intervals. M = 60 (30
for the curve), at most 500 steps, else defaults, means of three splits. Data: NATGRAD_DATA, or ../shared/data. Results:
benchmarks/results/gp-likelihoods.md and .json.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from scipy.stats import norm

import natgrad as ng

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("NATGRAD_DATA") or HERE.parents[1] / "shared" / "data") / "gp"
SPLITS, STEPS = 3, 500


def digits():
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def wine():
    from sklearn.datasets import load_wine

    return load_wine(return_X_y=True)


def gumbels():
    g = np.random.default_rng(0)
    x = g.normal(size=(3000, 2))
    f = np.stack([2 * np.sin(2 * x[:, 0]), 2 * np.cos(2 * x[:, 1]), x[:, 0] * x[:, 1], 0 * x[:, 0]], 1)
    return x, (f + g.gumbel(size=f.shape)).argmax(1)


def cut(x, y, n_levels=5):
    return x, np.digitize(y, np.quantile(y, np.arange(1, n_levels) / n_levels))


def kin40k():
    table = np.loadtxt(DATA / "kin40k" / "data.csv.gz", delimiter=",", max_rows=3000)
    return cut(table[:, :-1], table[:, -1])


def diabetes():
    from sklearn.datasets import load_diabetes

    return cut(*load_diabetes(return_X_y=True))


def waves():
    g = np.random.default_rng(0)
    x = g.normal(size=(1500, 2))
    z = 3 * np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + g.normal(size=1500)
    return x, np.digitize(z, [-2.0, 0.0, 1.0, 3.0])


def impact(n):
    def make():
        g = np.random.default_rng(n)
        x = np.sort(g.uniform(0, 60, n))
        f = -80 * np.exp(-0.5 * ((x - 21) / 4) ** 2) + 40 * np.exp(-0.5 * ((x - 33) / 5) ** 2)
        return x[:, None], f + (1 + 25 / (1 + np.exp(-(x - 14) / 1.5))) * g.normal(size=n)

    return make


def motorcycle():
    with open(DATA / "mcycle.csv") as file:
        names = [name.strip('" \n') for name in file.readline().split(",")]
        rows = np.loadtxt(file, delimiter=",", usecols=[names.index("times"), names.index("accel")])
    return rows[:, :1], rows[:, 1]


TABLES = {
    "classes": {"digits": digits, "wine": wine, "four of Gumbels": gumbels},
    "ordinal": {"kin40k in fifths": kin40k, "diabetes in fifths": diabetes, "waves in five": waves},
    "noise": {"impact, 200 rows": impact(200), "impact, 1,000 rows": impact(1000), "motorcycle": motorcycle},
}
RIVALS = {
    "classes": ("softmax", "probit"),
    "ordinal": ("ordinal", "softmax", "gaussian"),
    "noise": ("heteroskedastic", "gaussian", "student_t"),
}


def judged(kind, likelihood, x, y, train, test):
    """Log density a row, share inside the 95 % interval or right, and processor seconds."""
    began = time.process_time()
    if kind == "noise" or likelihood == "gaussian":
        model = ng.SparseGPRegressor(
            n_inducing=30 if kind == "noise" else 60,
            likelihood=likelihood,
            max_steps=STEPS,
            verbose=False,
        )
    else:
        model = ng.SparseGPClassifier(n_inducing=60, likelihood=likelihood, max_steps=STEPS, verbose=False)
    model.fit(x[train], y[train])
    seconds = time.process_time() - began
    if kind == "noise":
        low, high = model.interval(x[test], 0.95)
        density, right = model.log_predictive_density(x[test], y[test]), (y[test] > low) & (y[test] < high)
    elif likelihood == "gaussian":
        mean, sd = model.predict(x[test], return_std=True)
        ends = norm.cdf((np.arange(y.max())[:, None] + 0.5 - mean) / sd)
        shares = np.diff(np.concatenate([np.zeros((1, len(mean))), ends, np.ones((1, len(mean)))]), axis=0)
        density = np.log(np.maximum(shares[y[test], np.arange(len(test))], 1e-12))
        right = shares.argmax(0) == y[test]
    else:
        density, right = model.log_predictive_density(x[test], y[test]), model.predict(x[test]) == y[test]
    return [float(np.mean(density)), float(np.mean(right)), seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=list(TABLES))
    parser.add_argument("--likelihood", help="this one alone")
    given = parser.parse_args()
    target = HERE / "results" / "gp-likelihoods.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for kind in given.kinds or TABLES:
        for name, make in TABLES[kind].items():
            try:
                x, y = make()
            except FileNotFoundError:
                print(name, "has no data here")
                continue
            for likelihood in RIVALS[kind]:
                if given.likelihood not in (None, likelihood):
                    continue
                rows = []
                for split in range(SPLITS):
                    order = np.random.default_rng(split).permutation(len(y))
                    train, test = np.sort(order[len(y) // 3 :]), np.sort(order[: len(y) // 3])
                    rows.append(judged(kind, likelihood, x, y, train, test))
                found[f"{kind}|{name}|{likelihood}"] = np.mean(rows, axis=0).tolist()
                print(name, likelihood, np.mean(rows, axis=0).round(4), flush=True)
                target.write_text(json.dumps(found, indent=1) + "\n")
    lines = [
        "| table | likelihood | held-out log density | right, or inside 95 % | CPU s a fit |",
        "|---|---|---|---|---|",
    ]
    for key, (density, share, seconds) in found.items():
        _, name, likelihood = key.split("|")
        lines.append(f"| {name} | `{likelihood}` | {density:.3f} | {share:.1%} | {seconds:.1f} |")
    lines += [
        "",
        "M = 60, of the impact 30; 500 steps at most; all else by default; two thirds of the rows learn, means of three splits. "
        "`python benchmarks/gp_likelihoods.py`",
    ]
    (HERE / "results" / "gp-likelihoods.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
