"""Sparse Gaussian processes that end with neighbours, beside boosted trees: errors, log densities and processor seconds.

    python benchmarks/gp.py neighbours                              # kin40k and generated tables
    python benchmarks/gp_neighbours.py [FOLDER] [table ...]         # also tables of a folder
    python benchmarks/gp_neighbours.py FOLDER bike --only default   # one model anew, the others as they are in the results

A folder has one for each table, with data.csv.gz (the last column is the target) and test_mask.csv.gz (the rows that judge, by
the first column). Trees are scikit-learn's with early stopping; their density is Gaussian with the variance of their errors on a
tenth of the rows, which they did not see. Where LightGBM is installed, it has rows of its own. A fit with neighbours is a sparse
one and its finish; the default weighs both by what rows say. Results: benchmarks/results/gp-neighbours.md and .json.
"""

import json
import re
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from gp_boosting import TABLES, boosted
from gp_stopping import kin40k

import natgrad as ng

GAIN = r"[+-][0-9.]+ ± [0-9.]+"
HERE = Path(__file__).resolve().parent
OWN = {"kin40k": kin40k, **{name: TABLES[name] for name in ("interactions", "plateaus", "skewed")}}


def of_folder(folder, name):
    """A table, and which rows judge."""
    data, mask = (np.loadtxt(folder / name / f"{part}.csv.gz", delimiter=",") for part in ("data", "test_mask"))
    return data[:, :-1], data[:, -1], mask[:, 0] > 0


def generated(name):
    """A table that needs no folder; a fifth of its rows, or of kin40k a tenth, judge."""
    x, y = OWN[name]()
    share = 0.1 if name == "kin40k" else 0.2
    return x, y, np.random.default_rng(1).random(len(y)) < share


def light(x, y, test_x, test_y, name):
    """Its defaults with early stopping on a tenth of the rows, which also tell the variance."""
    from lightgbm import LGBMRegressor, early_stopping

    held = np.random.default_rng(0).random(len(y)) < 0.1
    model = LGBMRegressor(n_estimators=2_000, n_jobs=1, verbose=-1)
    rounds = [early_stopping(20, verbose=False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what an argument will be called
        model.fit(x[~held], y[~held], eval_set=[(x[held], y[held])], callbacks=rounds)
    var = float(np.mean((y[held] - model.predict(x[held])) ** 2))
    off = test_y - model.predict(test_x)
    return off, float(np.mean(-0.5 * (np.log(2 * np.pi * var) + off**2 / var)))


def process(finish):
    """A regressor with its defaults but for the finish."""

    def fitted(x, y, test_x, test_y, name):
        model = ng.SparseGPRegressor(finish=finish, verbose=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # steps may run out, as for any user
            model.fit(x, y)
        off = test_y - model.predict(test_x)
        said = model.trace_.strategy.split("; ")[-1] if finish else str(model.kernel_)
        return off, float(np.mean(model.log_predictive_density(test_x, test_y))), said

    return fitted


def models():
    """Those that are installed."""
    ours = {"sparse GP": process(None), "neighbours": process("neighbours"), "default": process("auto")}
    others = {"LightGBM": light} if find_spec("lightgbm") else {}
    return {"boosted trees": boosted, **others, **ours}


def measured(x, y, judges, name, only):
    """Errors in standard deviations of y; densities in the same unit."""
    middle, unit = y[~judges].mean(), y[~judges].std()
    y = (y - middle) / unit
    found = {}
    for which, fit in wanted(models(), only):
        began = time.process_time()
        off, density, *more = fit(x[~judges], y[~judges], x[judges], y[judges], name)
        seconds = time.process_time() - began
        found[which] = {
            "rmse": float(np.sqrt(np.mean(off**2))), "density": density, "cpu": seconds,
            "rows": int((~judges).sum()), "columns": x.shape[1], "more": more,
        }  # fmt: skip
        print(name, which, found[which], flush=True)
    return found


def wanted(all_, only):
    """Models by name, all of them or one."""
    return [(which, fit) for which, fit in all_.items() if only in (None, which)]


def written(found):
    """The page that the documentation includes."""
    lines = ["| table | rows, columns | model | RMSE | log density | judges | CPU s |", "|---|---|---|---|---|---|---|"]
    for name, rows in found.items():
        for which, row in rows.items():
            size, judges = f"{row['rows']:,}, {row['columns']}", re.search(GAIN, " ".join(row["more"]))
            numbers = f"{row['rmse']:.4f} | {row['density']:.3f} | {judges[0] if judges else ''} | {row['cpu']:.1f}"
            lines.append(f"| {name} | {size} | {which} | {numbers} |")
    lines += [
        "",
        "RMSE and density in standard deviations of y, on rows held out; defaults (M = 200, 128 neighbours); fitting and "
        "predicting on one thread; neighbours: the sparse fit and its finish. Judges: nats a row by which rows of the fit, "
        'each without itself, are expected better than by the sparse process; default: `finish="auto"`, neighbours with a weight '
        "that is best for these rows, where that gains more than 0.01 and three standard errors.",
        "`python benchmarks/gp_neighbours.py FOLDER`",
    ]
    return "\n".join(lines) + "\n"


def main(arguments=(), stem="gp-neighbours", measured=measured, written=written):
    arguments, only = [*arguments], None
    if "--only" in arguments:
        at = arguments.index("--only")
        only = arguments[at + 1]
        del arguments[at : at + 2]
    folder = Path(arguments[0]) if arguments and Path(arguments[0]).is_dir() else None
    names = [*(arguments[1:] if folder else arguments)]
    if not names:
        names = [*OWN, *(sorted(path.parent.name for path in folder.glob("*/data.csv.gz")) if folder else [])]
    target = HERE / "results" / f"{stem}.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for name in names:
        table = generated(name) if name in OWN else of_folder(folder, name)
        found[name] = {**(found.get(name, {}) if only else {}), **measured(*table, name, only)}
        target.write_text(json.dumps(found, indent=1) + "\n")
        (HERE / "results" / f"{stem}.md").write_text(written(found))


if __name__ == "__main__":
    main(sys.argv[1:])
