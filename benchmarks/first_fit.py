"""Seconds from after the import to the result of small models, natgrad beside BayesPy: what somebody waits who tries one.

    python benchmarks/first_fit.py                    # all models, a few minutes
    python benchmarks/first_fit.py --only coin pca
    python benchmarks/first_fit.py --bayespy PYTHON   # the interpreter of an environment that has BayesPy

Every fit is the first of a fresh process: the model is declared, fitted until the library says that it has converged, and
the bound evaluated. Three processes each, the quickest counts; processor seconds are beside, since they depend less on who else
uses the machine. Bounds are printed so that a reader sees whether both libraries did the same; starts of mixtures differ.
The last rows are networks that are large in another way: 2,000 nodes, ten levels of parents, and ten million elements.

Results: ``benchmarks/results/first-fit.json`` and ``benchmarks/results/first-fit.md``.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PEER = HERE.parent / ".bench" / "bayespy" / "bin" / "python"
REPEATS = 3
# Where the two libraries do not have the same q or the same start.
NOTES = {
    "skills": "one Gaussian over all players in BayesPy, one for each in natgrad",
    "sprinkler": "two optima of the same q",
    "lda": "random starts",
    "faithful": "k-means in natgrad, random in BayesPy",
}


def one(name: str) -> dict[str, Any]:
    """The first fit of this process."""
    import warnings

    warnings.simplefilter("ignore")
    from first_fit_data import data_of
    from first_fit_models import LARGE, MODELS

    import natgrad as ng

    data, _ = data_of(name) if name in MODELS else {}, ng.Network  # the import ends with the language of networks
    begin, cpu = time.perf_counter(), time.process_time()
    fit = {**MODELS, **LARGE}[name](data)
    bound = fit.elbo
    return {
        "seconds": time.perf_counter() - begin,
        "cpu": time.process_time() - cpu,
        "bound": bound,
        "steps": len(fit.trace),
        "backend": fit.problem.backend.name,
        "jax": "jax" in sys.modules,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def quickest(command: list[str], environment: dict[str, str], repeats: int) -> dict[str, Any] | None:
    """The quickest of a few fresh processes; None if the library has no such model."""
    found = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
        if found[-1] is None:
            return None
    return min(found, key=lambda record: record["cpu"])


def import_seconds(environment: dict[str, str]) -> float:
    """Processor seconds of ``import natgrad`` and of its networks in a fresh process."""
    code = "import time; t = time.process_time(); import natgrad; natgrad.Network; print(time.process_time() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment) for _ in range(5)
    ]
    return min(float(run.stdout) for run in runs)


def table(rows: list[dict[str, Any]], imported: float) -> str:
    """The rows as Markdown, and a sentence."""
    lines = [
        "| model | natgrad s | cpu s | bound | BayesPy s | cpu s | bound | cpu ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ours, theirs = row["natgrad"], row["bayespy"]
        cells = [row["model"], f"{ours['seconds']:.3f}", f"{ours['cpu']:.3f}", f"{ours['bound']:.3f}"]
        if theirs is None:
            cells += ["", "", "", ""]
        else:
            ratio = f"{theirs['cpu'] / ours['cpu']:.1f}"
            cells += [f"{theirs['seconds']:.3f}", f"{theirs['cpu']:.3f}", f"{theirs['bound']:.3f}", ratio]
        lines.append(f"| {' | '.join(cells)} |")
    ratios = [r["bayespy"]["cpu"] / r["natgrad"]["cpu"] for r in rows if r["bayespy"] is not None]
    lines.append("")
    if ratios:
        slower = [r["model"] for r in rows if r["bayespy"] and r["bayespy"]["cpu"] < r["natgrad"]["cpu"]]
        lines.append(
            f"{len(rows)} models, {len(ratios)} of them in both: natgrad is {statistics.median(ratios):.1f}× as fast in the "
            f"median, slower in {', '.join(slower) or 'none'}. `import natgrad` with its networks takes"
            f" {imported:.2f} processor seconds."
        )
    alone = [r["natgrad"]["cpu"] for r in rows if r["bayespy"] is None and not r["large"]]
    if alone:
        lines.append(f"Models without a counterpart: at most {max(alone):.2f} processor seconds.")
    lines += [f"- {row['model']}: {NOTES[row['model']]}." for row in rows if row["model"] in NOTES]
    big = [row for row in rows if row["large"]]
    lines += [
        f"- {r['model']}: {r['natgrad']['peak_mb']:.0f} MB at the most, {r['natgrad']['steps']} sweeps." for r in big
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--bayespy", default=str(PEER), help="the interpreter of an environment that has BayesPy")
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="fresh processes of each, of which the quickest counts"
    )
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return
    from first_fit_models import LARGE, MODELS

    # Compiled files of Python are written, as they are where a package is installed.
    ours = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    theirs = {k: v for k, v in ours.items() if k != "PYTHONPATH"}
    peer = options.bayespy if Path(options.bayespy).exists() else None
    rows = []
    for name in options.only or [*MODELS, *LARGE]:
        mine = quickest([sys.executable, str(HERE / "first_fit.py"), "--one", name], ours, options.repeats)
        other = None
        if peer and name in MODELS:
            other = quickest([peer, str(HERE / "peers" / "first_fit_bayespy.py"), name], theirs, options.repeats)
        rows.append({"model": name, "large": name in LARGE, "natgrad": mine, "bayespy": other})
        print(table(rows[-1:], 0.0).splitlines()[2], flush=True)
    text = table(rows, import_seconds(ours))
    print(text)
    if options.only is None:
        RESULTS.joinpath("first-fit.json").write_text(json.dumps(rows, indent=1) + "\n")
        RESULTS.joinpath("first-fit.md").write_text(text)


if __name__ == "__main__":
    main()
