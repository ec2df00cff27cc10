"""Standard deviations of q and of linear response beside those of reference draws, and what they cost.

    python benchmarks/uncertainty.py posteriordb            # ten posteriors, regressions as a vector and as scalars; a minute
    python benchmarks/uncertainty.py coverage --runs 100    # 90 % intervals on simulated data; ten minutes

A ratio is a standard deviation over that of the reference draws. Seconds are processor seconds: of the fit, and of linear
response for all parameters. Needs the file of references (``--references``).
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
from uncertainty_coverage import CASES, held
from uncertainty_models import REFERENCES, Posterior, declare, read_references

import natgrad as ng
from natgrad.families.fisher import covariances
from natgrad.posterior.response.quantities import as_quantities

RESULTS = Path(__file__).resolve().parent / "results"


def spread_of_q(fit: Any, function: Any) -> float:
    """The standard deviation of a function of the means under q, by its derivative: covariances of q alone."""
    (found,) = as_quantities(function, {name: fit[name] for name in fit}).quantities
    total = 0.0
    for name, weights in found.items():
        total += float(np.vdot(weights, covariances(fit[name].family, fit[name].lam).own(weights)))
    return total**0.5


def measured(name: str, posterior: Posterior, declared: str) -> dict[str, Any]:
    """One posterior: ratios by parameter, errors of means in standard deviations, seconds."""
    begin = time.process_time()
    fit = posterior.network.fit(init=posterior.init, verbose=False)
    fitted = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lr = fit.linear_response()
        spread = {key: float(lr.std(f)) for key, f in posterior.quantities.items()}
    done = time.process_time()
    rows = {}
    for key, function in posterior.quantities.items():
        truth = posterior.reference[key]
        rows[key] = {
            "q": spread_of_q(fit, function) / truth["sd"],
            "linear_response": spread[key] / truth["sd"],
            "mean_off": (float(lr.mean(function)) - truth["mean"]) / truth["sd"],
        }
    return {
        "posterior": name, "declared": declared, "parameters": rows, "fit_seconds": fitted - begin,
        "linear_response_seconds": done - fitted, "contraction": lr.contraction, "warnings": [str(w.message) for w in said],
    }  # fmt: skip


def table(runs: list[dict[str, Any]]) -> str:
    """The runs as Markdown."""
    head = "| posterior | declared with | sd ratio of q | of linear response | mean off by, in sd | fit, s | linear response, s |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for run in runs:
        rows = run["parameters"].values()
        q, lr = ([row[key] for row in rows] for key in ("q", "linear_response"))
        off = max(abs(row["mean_off"]) for row in rows)
        lines.append(
            f"| {run['posterior']} | {run['declared']} | {min(q):.3f}–{max(q):.3f} | {min(lr):.3f}–{max(lr):.3f} | {off:.2f} | "
            f"{run['fit_seconds']:.2f} | {run['linear_response_seconds']:.2f} |"
        )
    ratios = [row["linear_response"] for run in runs for row in run["parameters"].values()]
    within = np.mean(np.abs(np.array(ratios) - 1.0) <= 0.1)
    lines += ["", f"Linear response is within 10 % of the reference for {within:.0%} of {len(ratios)} parameters."]
    return "\n".join(lines) + "\n"


def posteriordb(path: Path) -> None:
    """All posteriors of the file."""
    runs = []
    for name, record in read_references(path).items():
        kinds = {"a vector": False, "scalars": True} if record["kind"] == "regression" else {"its nodes": True}
        for declared, scalars in kinds.items():
            runs.append(measured(name, declare(record, scalars), declared))
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


def coverage(runs: int, chosen: list[str], draws: int) -> None:
    """Coverage of 90 % intervals of q, linear response and draws, by model and node."""
    lines = [
        "| model | node | simulations | numbers | q | linear response | draws | not a maximum | CPU s a simulation |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    results = []
    for key in chosen:
        words, make = CASES[key]
        begin, total, refused = time.process_time(), {}, 0
        for seed in range(runs):
            try:
                found = held(make(np.random.default_rng([seed, 7])), draws)
            except ng.errors.NotAtMaximum:
                refused += 1
                continue
            for node, counts in found.items():
                total[node] = np.add(total.get(node, 0), counts)
        seconds = (time.process_time() - begin) / runs
        for node, (n, q, lr, drawn) in total.items():
            response = "" if lr < 0 else f"{lr / n:.0%}"
            lines.append(
                f"| {words} | {node} | {runs} | {n} | {q / n:.0%} | {response} | {drawn / n:.0%} | {refused} | {seconds:.1f} |"
            )
            print(lines[-1], flush=True)
            found = {"q": q / n, "linear_response": None if lr < 0 else lr / n, "draws": drawn / n}
            results.append({"model": words, "node": node, "simulations": runs, "numbers": int(n), **found})
        results[-1]["seconds"] = time.process_time() - begin
    about = {"machine": platform.machine(), "natgrad": ng.__version__, "runs": runs, "results": results}
    (RESULTS / "uncertainty-coverage.json").write_text(json.dumps(about, indent=1) + "\n")
    (RESULTS / "uncertainty-coverage.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["posteriordb", "coverage"])
    parser.add_argument("--references", type=Path, default=REFERENCES)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--draws", type=int, default=800)
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    if options.what == "coverage":
        coverage(options.runs, options.models, options.draws)
    else:
        posteriordb(options.references)


if __name__ == "__main__":
    main()
