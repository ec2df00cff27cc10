"""Classifiers of several classes, with and without an order, beside boosted trees: accuracies, log densities, processor seconds.

    python benchmarks/gp_several_classes.py FOLDER [name ...]

Names: "wine/quality" and "skillcraft/league" are columns of these tables that hold ordered classes (six grades, seven leagues);
"elevators/4" is y in four classes with as many rows each, or "pol/3" in three at the ends of what most rows have. Folders are as
for gp_neighbours.py. Trees are scikit-learn's, with their defaults and with early stopping, and LightGBM's where it is installed.
A process is fitted once, with its defaults: what it predicts is the default, and what its sparse process predicts has a row of
its own, whose seconds are those until the last step. Results: benchmarks/results/gp-several-classes.md and .json.
"""

import json
import re
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from gp_classes import light
from gp_neighbours import GAIN, of_folder
from sklearn.ensemble import HistGradientBoostingClassifier

import natgrad as ng

HERE = Path(__file__).resolve().parent
COLUMNS = {"wine/quality": 10, "skillcraft/league": 1}
# pol: six rows of ten have its least value, and two its largest.
CUTS = {"pol/3": (0.5, 5.5)}
NAMES = ("wine/quality", "pol/3", "elevators/4", "skillcraft/league", "sml/4", "kin40k/3")
# Those that were not looked at before the method was what it is.
BLIND = NAMES[3:]


def classes_of(folder, name):
    """Inputs, classes 0 … K − 1, and which rows judge."""
    table, part = name.split("/")
    x, y, judges = of_folder(folder, table)
    if name in COLUMNS:
        column = COLUMNS[name]
        return (
            np.column_stack([np.delete(x, column, axis=1), y]),
            np.unique(x[:, column], return_inverse=True)[1],
            judges,
        )
    if name in CUTS:
        return x, np.searchsorted(CUTS[name], np.unique(y, return_inverse=True)[1]), judges
    return x, np.searchsorted(np.quantile(y, np.arange(1, int(part)) / int(part)), y), judges


def scores(p, y, seconds, said=""):
    """Of probabilities [N, K]."""
    hit = np.eye(p.shape[1])[y]
    bins = np.clip((p * 10).astype(int), 0, 9)
    off = sum(abs((hit - p)[bins == bin_].sum()) for bin_ in range(10)) / (2 * len(y))
    return {
        "accuracy": float((p.argmax(1) == y).mean()), "off": float(np.abs(p.argmax(1) - y).mean()),
        "density": float(np.log(np.maximum(p[np.arange(len(y)), y], 1e-12)).mean()), "calibration": float(off),
        "cpu": seconds, "said": said,
    }  # fmt: skip


def trees(model, x, y, test_x, test_y):
    began = time.process_time()
    p = model.fit(x, y).predict_proba(test_x)
    return scores(p, test_y, time.process_time() - began)


def processes(likelihood, x, y, test_x, test_y):
    """The default, and the sparse process that it began with."""
    began, stepped = time.process_time(), []
    model = ng.SparseGPClassifier(likelihood=likelihood, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps may run out, as for any user
        model.fit(x, y, callbacks=[lambda *_: stepped.append(time.process_time())])
    p = model.predict_proba(test_x)
    said = model.trace_.strategy.split("; ")[-1]
    found = {f"{likelihood}, default": scores(p, test_y, time.process_time() - began, said)}
    model._predictor = model._predictor._replace(local=None)  # what finish=None ends with, without another fit
    sparse = scores(model.predict_proba(test_x), test_y, stepped[-1] - began)
    return {f"{likelihood}, sparse": sparse, **found}


def measured(folder, name):
    x, y, judges = classes_of(folder, name)
    data = x[~judges], y[~judges], x[judges], y[judges]
    found = {
        "boosted trees": trees(HistGradientBoostingClassifier(random_state=0), *data),
        "boosted trees, stopped early": trees(
            HistGradientBoostingClassifier(random_state=0, early_stopping=True), *data
        ),
    }
    if find_spec("lightgbm"):
        found["LightGBM"] = trees(light(), *data)
    for likelihood in ("softmax", "ordinal"):
        found.update(processes(likelihood, *data))
    for which, row in found.items():
        row.update(rows=int((~judges).sum()), columns=x.shape[1], classes=int(y.max()) + 1)
        print(name, which, row, flush=True)
    return found


def written(found):
    """The page that the documentation includes."""
    head = (
        "table",
        "rows, columns, classes",
        "model",
        "accuracy",
        "off by",
        "log density",
        "calibration error",
        "judges",
        "CPU s",
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in (name for name in NAMES if name in found):
        for which, row in found[name].items():
            judges = re.search(GAIN, row["said"])
            size = f"{row['rows']:,}, {row['columns']}, {row['classes']}"
            numbers = f"{row['accuracy']:.4f} | {row['off']:.3f} | {row['density']:.3f} | {row['calibration']:.3f}"
            said = (judges[0] + (", not taken" if "which predicts" in row["said"] else "")) if judges else ""
            lines.append(f"| {name} | {size} | {which} | {numbers} | {said} | {row['cpu']:.1f} |")
    blind = ", ".join(name for name in BLIND if name in found)
    lines += [
        "",
        "On rows held out, one thread, all with their defaults. wine/quality and skillcraft/league: classes with an order of "
        "their own; others: y in classes. Off by: the mean distance of the likeliest class from the true one. Judges: nats a row "
        "by which rows that neither process has seen are expected better than by the sparse one alone. "
        + (f"Nothing was chosen on {blind}." if blind else ""),
        "`python benchmarks/gp_several_classes.py FOLDER`",
    ]
    return "\n".join(lines) + "\n"


def main(arguments=()):
    folder, *names = arguments
    target = HERE / "results" / "gp-several-classes.json"
    for name in names or NAMES:
        one = measured(Path(folder), name)
        found = json.loads(target.read_text()) if target.exists() else {}
        found[name] = one
        target.write_text(json.dumps(found, indent=1) + "\n")
        target.with_suffix(".md").write_text(written(found))


if __name__ == "__main__":
    main(sys.argv[1:])
