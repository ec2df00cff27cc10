"""Whether a sparse Gaussian process stops when there is nothing left to gain: held-out density at the stop, and long after it.

    python benchmarks/gp_stopping.py

Five tables, defaults but for the number of inducing inputs and a limit of steps that is out of reach. After the stop the fit goes
on for twice as many steps as it has taken. A fifth of the rows, at most 5,000, judges. Data: NATGRAD_DATA, or ../shared/data.
Results: benchmarks/results/gp-stopping.md and .json.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

import natgrad as ng

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("NATGRAD_DATA") or HERE.parents[1] / "shared" / "data") / "gp"
ROWS, INDUCING, MOST_STEPS, TIMES = 10_000, 50, 20_000, 2


def kin40k():
    table = np.loadtxt(DATA / "kin40k" / "data.csv.gz", delimiter=",")
    return table[:, :-1], table[:, -1]


def flights():
    with np.load(DATA / "nycflights_xy.npz") as data:
        names = {name.lower(): name for name in data}
        return data[names["x"]].astype(float), data[names["y"]].astype(float).ravel()


def snelson():
    return tuple(np.loadtxt(DATA / "snelson" / f"snelson_train_{part}.dat") for part in ("inputs", "outputs"))


def banana():
    x, y = (np.loadtxt(DATA / f"banana_{part}_train", delimiter="," if part == "X" else None) for part in "XY")
    return x, (y > 0).astype(int)


def friedman():
    rng = np.random.default_rng(0)
    x = rng.random((6000, 10))
    mean = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, mean + rng.normal(size=len(x))


TABLES = {"kin40k": kin40k, "flights": flights, "snelson": snelson, "banana": banana, "friedman": friedman}


def measured(name):
    x, y = TABLES[name]()
    x = x.reshape(len(y), -1)
    rows = np.random.default_rng(1).permutation(len(y))[:ROWS]
    test, train = np.split(rows, [min(len(rows) // 5, 5000)])
    kind = ng.SparseGPClassifier if name == "banana" else ng.SparseGPRegressor
    model = kind(n_inducing=INDUCING, max_steps=MOST_STEPS, verbose=False)
    began = time.process_time()
    model.fit(x[train], y[train])
    seconds, steps, words = time.process_time() - began, model.n_steps_, model.stop_.message
    at_stop = float(np.mean(density(model, x[test], y[test])))
    model.set_params(tol=0.0).continue_fit(x[train], y[train], max_steps=TIMES * steps)
    later = float(np.mean(density(model, x[test], y[test])))
    return {"rows": len(train), "steps": steps, "cpu": seconds, "at_stop": at_stop, "later": later, "words": words}


def density(model, x, y):
    if isinstance(model, ng.SparseGPRegressor):
        return model.log_predictive_density(x, y)
    return np.log(model.predict_proba(x)[np.arange(len(y)), np.searchsorted(model.classes_, y)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    target = HERE / "results" / "gp-stopping.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for name in parser.parse_args().tables:
        found[name] = measured(name)
        print(name, found[name], flush=True)
        target.write_text(json.dumps(found, indent=1) + "\n")
    lines = [
        "| table | rows | steps to the stop | CPU s | held-out log density | after three times the steps | gained |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, row in found.items():
        values = f"{row['at_stop']:.4f} | {row['later']:.4f} | {row['later'] - row['at_stop']:+.4f}"
        lines.append(f"| {name} | {row['rows']:,} | {row['steps']:,} | {row['cpu']:.1f} | {values} |")
    lines += [
        "",
        f"M = {INDUCING}, tol = 1e-3 nats a row, everything else by default. `python benchmarks/gp_stopping.py`",
    ]
    (HERE / "results" / "gp-stopping.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
