"""Standard deviations of q and of linear response beside those of reference draws, and what they cost.

    python benchmarks/uncertainty.py posteriordb            # ten posteriors, regressions as a vector and as scalars; a minute
    python benchmarks/uncertainty.py full                   # regressions with joint="full": seconds
    python benchmarks/uncertainty.py coverage --runs 100    # 90 % intervals on simulated data; ten minutes

A ratio is a standard deviation over that of the reference draws. Times are of the processor: of the fit, and of linear
response for all parameters; the best of nine declarations, the first of which imports. Needs the file of references
(``--references``).
Results: ``benchmarks/results/uncertainty-posteriordb.md`` and ``.json``, and ``uncertainty-coverage``.
"""

import argparse
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from uncertainty_coverage import CASES, coverage
from uncertainty_models import REFERENCES, declare, read_references

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"


DRAWS = 4000


def drawn(fit: Any, functions: dict[str, Any]) -> dict[str, Any]:
    """Values of functions of the hidden nodes, by draws from q."""
    values = fit.simulate(0, DRAWS)
    each = [{name: values[name][s] for name in fit} for s in range(DRAWS)]
    return {key: np.array([float(function(one)) for one in each]) for key, function in functions.items()}


def measured(name: str, record: dict[str, Any], scalars: bool, declared: str) -> dict[str, Any]:
    """One posterior: ratios by parameter, errors of means in standard deviations, seconds."""
    seconds = []
    for _ in range(9):
        posterior = declare(record, scalars)
        begin = time.process_time()
        fit = posterior.network.fit(init=posterior.init, verbose=False)
        fitted = time.process_time()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            lr = fit.linear_response()
            spread = {key: float(lr.std(f)) for key, f in posterior.quantities.items()}
        seconds.append((fitted - begin, time.process_time() - fitted))
    rows, of_q = {}, drawn(fit, posterior.quantities)
    for key, function in posterior.quantities.items():
        truth = posterior.reference[key]
        rows[key] = {
            "q": of_q[key].std() / truth["sd"],
            "linear_response": spread[key] / truth["sd"],
            "mean_off": (float(lr.mean(function)) - truth["mean"]) / truth["sd"],
        }
    return {
        "posterior": name, "declared": declared, "parameters": rows, "fit_seconds": min(s[0] for s in seconds),
        "linear_response_seconds": min(s[1] for s in seconds), "contraction": lr.contraction,
        "warnings": [str(w.message) for w in said],
    }  # fmt: skip


def table(runs: list[dict[str, Any]]) -> str:
    """The runs as Markdown."""
    head = "| posterior | declared with | sd ratio of q | of linear response | mean off by, in sd | fit, ms | response, ms |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for run in runs:
        rows = run["parameters"].values()
        q, lr = ([row[key] for row in rows] for key in ("q", "linear_response"))
        off = max(abs(row["mean_off"]) for row in rows)
        lines.append(
            f"| {run['posterior']} | {run['declared']} | {min(q):.3f}–{max(q):.3f} | {min(lr):.3f}–{max(lr):.3f} | {off:.2f} | "
            f"{1e3 * run['fit_seconds']:.1f} | {1e3 * run['linear_response_seconds']:.1f} |"
        )
    ratios = [row["linear_response"] for run in runs for row in run["parameters"].values()]
    within = np.mean(np.abs(np.array(ratios) - 1.0) <= 0.1)
    outside = sorted(
        {
            run["posterior"]
            for run in runs
            for row in run["parameters"].values()
            if abs(row["linear_response"] - 1) > 0.1
        }
    )
    where = f"; all others are of {', '.join(outside)}" if outside else ""
    lines += [
        "",
        f"Linear response is within 10 % of the reference for {within:.1%} of {len(ratios)} parameters{where}.",
    ]
    return "\n".join(lines) + "\n"


def posteriordb(path: Path) -> None:
    """All posteriors of the file."""
    runs = []
    for name, record in read_references(path).items():
        kinds = {"a vector": False, "scalars": True} if record["kind"] == "regression" else {"its nodes": True}
        for declared, scalars in kinds.items():
            runs.append(measured(name, record, scalars, declared))
            print(table(runs[-1:]).splitlines()[2], flush=True)
    about = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "natgrad": ng.__version__,
        "runs": runs,
    }
    (RESULTS / "uncertainty-posteriordb.json").write_text(json.dumps(about, indent=1) + "\n")
    (RESULTS / "uncertainty-posteriordb.md").write_text(table(runs))
    print(table(runs).splitlines()[-1])


def full(path: Path) -> None:
    """Regressions with their coefficients and the noise in one factor: q itself beside the reference draws."""
    lines = [
        "| posterior | factors of q | sd over that of reference draws | mean off by, in sd | fit, s |",
        "|---|---|---|---|---|",
    ]
    for name, record in read_references(path).items():
        if record["kind"] != "regression":
            continue
        posterior = declare(record, True)
        begin = time.process_time()
        fit = posterior.network.with_joint("full").fit(init=posterior.init, verbose=False)
        seconds = time.process_time() - begin
        ratios, off = [], []
        for key, values in drawn(fit, posterior.quantities).items():
            truth = posterior.reference[key]
            ratios.append(values.std() / truth["sd"])
            off.append(abs(values.mean() - truth["mean"]) / truth["sd"])
        lines.append(
            f"| {name} | {len(fit.problem.blocks)} | {min(ratios):.3f}–{max(ratios):.3f} | {max(off):.3f} | {seconds:.2f} |"
        )
        print(lines[-1], flush=True)
    (RESULTS / "uncertainty-full.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["posteriordb", "full", "coverage"])
    parser.add_argument("--references", type=Path, default=REFERENCES)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--draws", type=int, default=800)
    parser.add_argument("--afresh", action="store_true", help="do not go on from the simulations that were made")
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    if options.what == "coverage":
        coverage(options.runs, options.models, options.draws, options.afresh)
    elif options.what == "full":
        full(options.references)
    else:
        posteriordb(options.references)


if __name__ == "__main__":
    main()
