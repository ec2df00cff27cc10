"""Seconds per sweep of natgrad and of BayesPy: the same networks, data, starts and order of updates.

    python benchmarks/engine.py            # all seven networks, a few minutes
    python benchmarks/engine.py --quick    # three of them, about a minute
    python benchmarks/engine.py --only hmm lda

Each engine runs alone in a fresh process; BayesPy has an environment of its own, ``.bench/bayespy``, made on
the first call. Arrays travel through .npz files, results through JSON. A sweep updates every latent factor
once and computes the bound. BayesPy's seconds are the median of its sweeps without the first, natgrad's the
median of five fits, each shared out among its sweeps but the first, since several sweeps of a small network are
made in one call. natgrad's first fit
in a fresh process, compilation included, has a column of its own. The bounds of both engines are compared
after every sweep that both made, and the script fails when they differ by more than a relative 1e-8: times
of different models mean nothing.

Results: ``benchmarks/results/engine.json`` and ``benchmarks/results/engine.md``.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from problems import PROBLEMS

HERE = Path(__file__).resolve().parent
PEER_ENV = HERE.parent / ".bench" / "bayespy"
PEER_REQUIREMENTS = ["bayespy==0.6.6"]
TOLERANCE = 1e-8


class Run(NamedTuple):
    title: str
    sweeps: int  # of natgrad
    peer_sweeps: int
    quick: bool = False


RUNS = {
    "mixture": Run("mixture, 100 000 × 10, K = 20", 20, 4),
    "pca": Run("PCA 10 000 × 50, K = 10", 30, 12),
    "regression": Run("ARD regression 100 000 × 50", 200, 8),
    "factorization": Run("factorisation, 200 000 ratings, K = 5", 30, 12),
    "hmm": Run("HMM T = 10 000, D = 5, K = 8", 50, 12, quick=True),
    "lda": Run("LDA 300 documents, 5 000 tokens, K = 10", 200, 30, quick=True),
    "mixture_small": Run("mixture, 500 × 3, K = 4", 300, 50, quick=True),
}

# What a reader has to know to judge a ratio. Where BayesPy offers several ways, the fastest that we found was taken.
NOTES = {
    "regression": "natgrad multiplies known arrays once, at the first fit (XᵀX, Xᵀy), so that a sweep no longer reads "
    "the rows; BayesPy repeats the product in each sweep",
    "factorization": "BayesPy with Take nodes; the masked dense matrix needs twice the time",
    "lda": "BayesPy with Take and Mixture, somewhat faster than Gate",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the three small networks only")
    parser.add_argument("--only", nargs="+", choices=RUNS, metavar="NAME", help=f"any of {', '.join(RUNS)}")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    names = options.only or [name for name, run in RUNS.items() if run.quick or not options.quick]

    peer_python = make_peer()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            arrays = Path(folder) / f"{name}.npz"
            np.savez(arrays, **PROBLEMS[name]())
            run = RUNS[name]
            ours = measure(sys.executable, "natgrad_engine.py", name, arrays, run.sweeps)
            peer = measure(peer_python, "peers/bayespy_engine.py", name, arrays, run.peer_sweeps)
            rows.append(compare(name, ours, peer))
            print(summary(rows[-1]), flush=True)
            arrays.unlink()

    write_results(rows, options.results, complete=len(rows) == len(RUNS))
    wrong = [row["name"] for row in rows if not row["bound_difference"] <= TOLERANCE]
    if wrong:
        print(f"different bounds, so different models or starts: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def make_peer() -> Path:
    """The interpreter of BayesPy's environment, which is made when it is missing."""
    python, stamp = PEER_ENV / "bin" / "python", PEER_ENV / ".ready"
    if not stamp.exists():
        print(f"installing {' '.join(PEER_REQUIREMENTS)} into {PEER_ENV.relative_to(HERE.parent)}")
        venv.create(PEER_ENV, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(command + PEER_REQUIREMENTS, check=True)
        stamp.touch()
    return python


def measure(python: str | Path, script: str, name: str, arrays: Path, sweeps: int) -> dict:
    result = arrays.with_suffix(".json")
    result.unlink(missing_ok=True)
    command = [python, HERE / script, name, arrays, result, "--sweeps", str(sweeps)]
    subprocess.run(command, check=True)
    return json.loads(result.read_text())


def compare(name: str, ours: dict, peer: dict) -> dict:
    both = min(len(ours["elbo"]), len(peer["elbo"]))
    a, b = np.array(ours["elbo"][:both]), np.array(peer["elbo"][:both])
    seconds = float(np.median(ours["seconds"]))  # of several fits, each without its first sweep
    peer_seconds = float(np.median(peer["seconds"][1:]))
    return {
        "name": name,
        "title": RUNS[name].title,
        "seconds": seconds,
        "peer_seconds": peer_seconds,
        "ratio": peer_seconds / seconds,
        "break_even_sweeps": ours["cold_seconds"] / (peer_seconds - seconds) if peer_seconds > seconds else None,
        "cold_seconds": ours["cold_seconds"],
        "bound": float(a[-1]),
        "peer_bound": float(b[-1]),
        "bound_sweeps": both,
        "bound_difference": float(np.max(np.abs(a - b) / np.abs(b))),
        "peak_mb": ours["peak_mb"],
        "peer_peak_mb": peer["peak_mb"],
        "versions": ours["versions"],
        "peer_versions": peer["versions"],
    }


def summary(row: dict) -> str:
    return (
        f"{row['title']}: natgrad {row['seconds']:.4g} s, BayesPy {row['peer_seconds']:.4g} s, "
        f"{row['ratio']:.1f}×; first fit {row['cold_seconds']:.2f} s; "
        f"bound {row['bound']:.6f} after {row['bound_sweeps']} sweeps, "
        f"difference {row['bound_difference']:.1e}"
    )


def write_results(rows: list[dict], folder: Path, *, complete: bool) -> None:
    """A partial run is printed but does not replace the stored table."""
    table = markdown(rows)
    print(f"\n{table}")
    if complete:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "engine.json").write_text(json.dumps(rows, indent=1) + "\n")
        (folder / "engine.md").write_text(table)


def markdown(rows: list[dict]) -> str:
    def named(versions: dict[str, str]) -> str:
        return ", ".join(f"{name} {version}" for name, version in versions.items())

    lines = [
        "# Seconds per sweep: natgrad and BayesPy",
        "",
        "The same networks, data, starts and order of updates. Seconds are without the first sweep, and include the",
        "bound: of BayesPy the median sweep, of natgrad the mean sweep of the median of five fits. *Difference* is",
        "the largest relative difference of the two bounds over all sweeps that both made; *first fit* is natgrad's",
        "`fit(max_steps=1)` in a fresh process, compilation included, and *break-even* the number of sweeps after",
        "which that first fit has paid for itself; memory is the peak of the process in MB, natgrad's and BayesPy's.",
        "",
        "| network | natgrad, s | BayesPy, s | ratio | difference | first fit, s | break-even | memory |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        even = "never" if row["break_even_sweeps"] is None else math.ceil(row["break_even_sweeps"])
        lines.append(
            f"| {row['title']} | {row['seconds']:.3g} | {row['peer_seconds']:.3g} | {row['ratio']:.1f} "
            f"| {row['bound_difference']:.0e} | {row['cold_seconds']:.2f} | {even} "
            f"| {row['peak_mb']:.0f}, {row['peer_peak_mb']:.0f} |"
        )
    six = [row["ratio"] for row in rows if row["name"] != "mixture_small"]
    lines += (
        ["", f"Geometric mean of the ratios of the large networks: {math.exp(np.log(six).mean()):.0f}×."] if six else []
    )
    ours, peers = named(rows[0]["versions"]), named(rows[0]["peer_versions"])
    lines += ["", f"{ours}; against {peers}; {os.cpu_count()} cores. Command: `python benchmarks/engine.py`."]
    notes = [f"- {row['title']}: {NOTES[row['name']]}." for row in rows if row["name"] in NOTES]
    lines += ["", *notes] if notes else []
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
