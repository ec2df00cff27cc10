"""Classifiers that end with neighbours, beside boosted trees: accuracies, log densities and processor seconds, y > its median.

    python benchmarks/gp.py classes                              # kin40k and generated tables
    python benchmarks/gp_classes.py [FOLDER] [table ...]         # also tables of a folder, as for gp_neighbours.py
    python benchmarks/gp_several_classes.py FOLDER [name ...]    # more classes than two

Trees are scikit-learn's and, where it is installed, LightGBM's, with their defaults. A fit with neighbours is a sparse one and
its finish; the default weighs both by what rows say. Results: benchmarks/results/gp-classes.md and .json.
"""

import re
import sys
import time
import warnings
from importlib.util import find_spec

import gp_neighbours
import numpy as np
from gp_neighbours import GAIN, wanted
from sklearn.ensemble import HistGradientBoostingClassifier

import natgrad as ng


def process(finish):
    """A classifier with its defaults but for the finish."""

    def fitted(x, y, test_x):
        model = ng.SparseGPClassifier(finish=finish, verbose=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # steps may run out, as for any user
            model.fit(x, y)
        return model.predict_proba(test_x)[:, 1], model.trace_.strategy.split("; ")[-1] if finish else ""

    return fitted


def trees(model):
    """Trees as they come."""

    def fitted(x, y, test_x):
        return model().fit(x, y).predict_proba(test_x)[:, 1], ""

    return fitted


def light():
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=1, verbose=-1)


def models():
    """Those that are installed."""
    others = {"LightGBM": trees(light)} if find_spec("lightgbm") else {}
    ours = {"sparse GP": process(None), "neighbours": process("neighbours"), "default": process("auto")}
    return {"boosted trees": trees(lambda: HistGradientBoostingClassifier(random_state=0)), **others, **ours}


def measured(x, y, judges, name, only):
    """Of all models; whether y is above its median."""
    y = (y > np.median(y)).astype(int)
    found, hit = {}, y[judges]
    for which, fit in wanted(models(), only):
        began = time.process_time()
        p, said = fit(x[~judges], y[~judges], x[judges])
        seconds = time.process_time() - began
        chance = np.clip(np.where(hit, p, 1.0 - p), 1e-12, None)
        edges = np.clip((p * 10).astype(int), 0, 9)
        off = sum(abs((hit - p)[edges == bin_].sum()) for bin_ in range(10)) / len(hit)
        found[which] = {
            "accuracy": float(np.mean((p > 0.5) == hit)), "density": float(np.mean(np.log(chance))), "calibration": float(off),
            "cpu": seconds, "rows": int((~judges).sum()), "columns": x.shape[1], "said": said,
        }  # fmt: skip
        print(name, which, found[which], flush=True)
    return found


def written(found):
    """The page that the documentation includes."""
    head = ("table", "rows, columns", "model", "accuracy", "log density", "calibration error", "judges", "CPU s")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, rows in found.items():
        for which, row in rows.items():
            judges = re.search(GAIN, row["said"])
            numbers = f"{row['accuracy']:.4f} | {row['density']:.3f} | {row['calibration']:.3f}"
            size = f"{row['rows']:,}, {row['columns']}"
            lines.append(
                f"| {name} | {size} | {which} | {numbers} | {judges[0] if judges else ''} | {row['cpu']:.1f} |"
            )
    lines += [
        "",
        "Whether y is above its median, on rows held out; defaults (M = 200, 128 neighbours; trees as they come); fitting and "
        "predicting on one thread; neighbours: the sparse fit and its finish. Calibration error: the mean difference of "
        "probabilities and frequencies in ten bins, weighted by their rows. Judges: nats a row by which rows of the fit, each "
        'without itself, are expected better than by the sparse process; default: `finish="auto"`, neighbours with a weight that '
        "is best for these rows, where that gains more than 0.01 and three standard errors.",
        "`python benchmarks/gp_classes.py FOLDER`",
    ]
    return "\n".join(lines) + "\n"


def main(arguments=()):
    gp_neighbours.main(arguments, "gp-classes", measured, written)


if __name__ == "__main__":
    main(sys.argv[1:])
