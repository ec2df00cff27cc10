"""Gaussian processes beside boosted trees: root mean squared error, log density and processor seconds on tables of several kinds.

    python benchmarks/gp.py boosting                         # or python benchmarks/gp_boosting.py [table ...] [--quick]
    python benchmarks/gp_boosting.py --folder UCI airfoil concrete energy yacht wine skillcraft

Smooth, with steps, additive, with interactions, with categories, with skewed inputs, and two real ones; `thresholds` and
`oblique` were made after the maps of columns that jump, and looked at once. Tables of a folder are UCI/<name>/data.csv.gz, whose
last column is y, under the names of the UCI repository; they are fitted with the default number of inducing inputs. Trees are
scikit-learn's with early stopping, and are told which columns are categories; their density is Gaussian with the variance of
their errors on a tenth of the rows, which they did not see. A fifth of the rows judges. Data: NATGRAD_DATA, or ../shared/data.
Results: benchmarks/results/gp-boosting.md and .json.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from gp_stopping import flights, friedman, kin40k
from sklearn.ensemble import HistGradientBoostingRegressor

import natgrad as ng

HERE = Path(__file__).resolve().parent
ROWS, INDUCING = 2_500, 60


def steps(n=ROWS):
    """Jumps along three of six columns."""
    rng = np.random.default_rng(1)
    x = rng.random((n, 6))
    mean = 2.0 * (x[:, 0] > 0.4) - 3.0 * (x[:, 1] > 0.7) + np.floor(4 * x[:, 2])
    return x, mean + 0.3 * rng.normal(size=n)


def additive(n=ROWS):
    """Curves of twelve columns, added up."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 12))
    mean = sum(np.sin((1 + 0.3 * d) * x[:, d] + d) / (1 + 0.2 * d) for d in range(12))
    return x, mean + 0.3 * rng.normal(size=n)


def interactions(n=ROWS):
    """Products of pairs of eight columns."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 8))
    mean = np.tanh(x[:, 0] * x[:, 1]) + np.sin(2 * x[:, 2]) * x[:, 3] + (x[:, 4] > 0) * x[:, 5]
    return x, mean + 0.3 * rng.normal(size=n)


def categories(n=ROWS):
    """A level and a slope for each of twenty groups, whose numbers have no order, and a curve."""
    rng = np.random.default_rng(4)
    group, other = rng.integers(0, 20, n), rng.integers(0, 5, n)
    x = rng.normal(size=(n, 2))
    level, slope, shift = rng.normal(size=20), rng.normal(size=20), rng.normal(size=5)
    mean = level[group] + slope[group] * x[:, 0] + shift[other] + np.sin(2 * x[:, 1])
    return np.column_stack([group, other, x]), mean + 0.3 * rng.normal(size=n)


def skewed(n=ROWS):
    """Inputs over four powers of ten, of which the logarithm matters."""
    rng = np.random.default_rng(5)
    x = np.exp(2.0 * rng.normal(size=(n, 4)))
    z = np.log(x)
    mean = np.sin(z[:, 0]) + np.cos(z[:, 1]) * z[:, 2] / 2
    return x, mean + 0.3 * rng.normal(size=n)


def plateaus(n=ROWS):
    """Levels of regions of a plane, and a column that is rounded; two columns say nothing."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(n, 5))
    mean = 2.0 * ((x[:, 0] > 0) & (x[:, 1] > -0.5)) - 1.5 * (x[:, 0] < -1) + np.round(x[:, 2])
    return x, mean + 0.3 * rng.normal(size=n)


def tariffs(n=ROWS):
    """A price by brackets of an amount that is log-normal, higher in some hours of a day, and a slope."""
    rng = np.random.default_rng(7)
    amount, hour, other = np.exp(1.5 * rng.normal(size=n)), rng.uniform(0, 24, n), rng.normal(size=n)
    peak = ((hour > 7) & (hour < 9)) | ((hour > 16) & (hour < 19))
    mean = np.digitize(amount, [0.3, 1.0, 4.0, 10.0]) + 1.5 * peak + 0.4 * other
    return np.column_stack([amount, hour, other]), mean + 0.3 * rng.normal(size=n)


def thresholds(n=ROWS):
    """A curve and a jump along the same column, which switches another column on."""
    rng = np.random.default_rng(11)
    x = rng.random((n, 4))
    mean = np.sin(6 * x[:, 0]) + (1.5 + x[:, 2]) * (x[:, 0] > 0.3) + 6 * (x[:, 1] - 0.5) ** 2
    return x, mean + 0.3 * rng.normal(size=n)


def oblique(n=ROWS):
    """A jump across two columns at once, which is one along neither of them."""
    rng = np.random.default_rng(12)
    x = rng.normal(size=(n, 5))
    return x, 2.0 * (x[:, 0] + x[:, 1] > 0.5) + np.sin(2 * x[:, 2]) + 0.3 * rng.normal(size=n)


TABLES = {
    "kin40k": kin40k, "flights": flights, "friedman": friedman, "steps": steps, "additive": additive,
    "interactions": interactions, "categories": categories, "skewed": skewed, "plateaus": plateaus, "tariffs": tariffs,
    "thresholds": thresholds, "oblique": oblique,
}  # fmt: skip
KINDS = {"categories": [0, 1]}


def boosted(x, y, test_x, test_y, name):
    """Trees, and a Gaussian with the variance of errors on rows that they did not see."""
    held = np.random.default_rng(0).random(len(y)) < 0.1
    model = HistGradientBoostingRegressor(early_stopping=True, categorical_features=KINDS.get(name))
    model.fit(x[~held], y[~held])
    var = float(np.mean((y[held] - model.predict(x[held])) ** 2))
    off = test_y - model.predict(test_x)
    return off, float(np.mean(-0.5 * (np.log(2 * np.pi * var) + off**2 / var)))


def process(x, y, test_x, test_y, name, **settings):
    most = {"n_inducing": INDUCING} if name in TABLES else {}
    model = ng.SparseGPRegressor(verbose=False, **most, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps may run out, as for any user
        model.fit(x, y)
    off = test_y - model.predict(test_x)
    return (
        off,
        float(np.mean(model.log_predictive_density(test_x, test_y))),
        str(model.kernel_),
        model.n_steps_,
        str(model.input_warps_),
    )


MODELS = {
    "boosted trees": boosted,
    "GP": process,
    'GP, kernel="auto"': lambda *data: process(*data, kernel="auto"),
}


def table_of(name, folder):
    if name in TABLES:
        return TABLES[name]()
    table = np.loadtxt(folder / name / "data.csv.gz", delimiter=",")
    return table[:, :-1], table[:, -1]


def measured(name, quick, folder=None):
    """All models, or without the one that chooses a kernel, which takes ten times as long."""
    x, y = table_of(name, folder)
    rows = np.random.default_rng(1).permutation(len(y))[:ROWS]
    test, train = np.split(rows, [len(rows) // 5])
    found = {}
    for which, fit in list(MODELS.items())[: 2 if quick else None]:
        began = time.process_time()
        off, density, *more = fit(x[train], y[train], x[test], y[test], name)
        seconds = time.process_time() - began
        rmse = float(np.sqrt(np.mean(off**2)) / y[train].std())
        found[which] = {"rmse": rmse, "density": density, "cpu": seconds, "more": more}
        print(name, which, found[which], flush=True)
    return found


def main(names=(), quick=False, folder=None):
    target = HERE / "results" / "gp-boosting.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for name in names or TABLES:
        found[name] = measured(name, quick, folder)
        target.write_text(json.dumps(found, indent=1) + "\n")
    lines = ["| table | model | RMSE | log density | CPU s |", "|---|---|---|---|---|"]
    real = [name for name in found if name not in TABLES]
    for name in [*(name for name in TABLES if name in found), *real]:
        for which, row in found[name].items():
            lines.append(f"| {name} | {which} | {row['rmse']:.3f} | {row['density']:.3f} | {row['cpu']:.1f} |")
    by_default = f" (of {', '.join(real)} the default)" if real else ""
    lines += [
        "",
        f"{ROWS:,} rows at most, a fifth of them held out; RMSE in standard deviations of y; M = {INDUCING}{by_default}, else "
        "defaults; one thread. `python benchmarks/gp.py boosting`, and then `python benchmarks/gp_boosting.py --folder`",
    ]
    (HERE / "results" / "gp-boosting.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help="of this file, or of the folder")
    parser.add_argument("--quick", action="store_true", help="without the choice of a kernel")
    parser.add_argument("--folder", type=Path, help="of tables <name>/data.csv.gz")
    given = parser.parse_args()
    main(given.tables, given.quick, given.folder)
