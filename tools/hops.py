"""How far one walks through natgrad to follow a fit: files, changes of folder, and the same for its steps alone.

    python tools/hops.py            count all walks, for docs/architecture.md
    python tools/hops.py LDA        one walk, file by file in the order of first calls

Small fits run under `sys.setprofile`, for the second time: what is imported and compiled at the first one is no part of the
path. Bodies of modules and classes are not counted; compiled kernels run where Python does not see them. A star marks what
the steps call.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

import natgrad as ng

SOURCE = str(Path(ng.__file__).resolve().parent) + "/"
ENGINE = "inference/engine.py"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "hops.md"


class Walk(NamedTuple):
    """Files in the order of their first call: of a whole fit, and of what a stepper calls."""

    files: list[str]
    step: list[str]


def folder_changes(files: list[str], depth: int | None = None) -> int:
    """How often the next file of a list is in another folder; ``depth`` 1 counts the folders of `src/natgrad` only."""
    folders = [file.split("/")[:-1][:depth] for file in files]
    return sum(a != b for a, b in itertools.pairwise(folders))


def walk(fit: Callable[[], Any]) -> Walk:
    """What a second fit calls."""
    files: dict[str, None] = {}
    step: dict[str, None] = {}
    known: dict[CodeType, str | None] = {}
    inside = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal inside
        code = frame.f_code
        if code not in known:
            ours = code.co_filename.startswith(SOURCE) and code.co_flags & CO_OPTIMIZED  # functions alone
            known[code] = code.co_filename[len(SOURCE) :] if ours else None
        here = known[code]
        if here is None or event not in ("call", "return"):
            return
        steps = code.co_name == "step" and here.startswith("inference/") and here != ENGINE
        if event == "return":
            inside -= steps
            return
        inside += steps
        files.setdefault(here)
        if inside:
            step.setdefault(here)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
        sys.setprofile(profile)
        try:
            fit()
        finally:
            sys.setprofile(None)
    return Walk(list(files), list(step))


def fits() -> dict[str, Callable[[], Any]]:
    """One small fit of each kind of model."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.5, size=(30, 12))
    table = np.where(rng.random((12, 9)) < 0.4, np.nan, rng.normal(size=(12, 9)))
    rows = rng.normal(size=(60, 2))
    series = np.repeat(rng.integers(0, 2, 12), 5)[:, None] + 0.2 * rng.normal(size=(60, 1))
    quiet: dict[str, Any] = {"verbose": False, "seed": 0}

    def network() -> Any:
        point, part = ng.Plate("point", 60), ng.Plate("part", 2)
        mean = ng.Normal("mean", 0.0, 0.01, plate=part)
        z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=2), plate=point)
        x = ng.Normal("x", mean[z], 1.0, plate=point, observed=rows[:, 0])
        return ng.Network(x).fit(init={"mean": np.array([-1.0, 1.0])}, max_steps=5, **quiet)

    def five_numbers() -> Any:
        mean, scatter = ng.Normal("mean", 0.0, 0.01), ng.Gamma("scatter", 1.0, 1.0)
        return ng.Network(ng.Normal("x", mean, scatter, plate=ng.Plate("n", 5), observed=rows[:5, 0])).fit(
            verbose=False
        )

    def readme() -> Any:
        data = np.random.default_rng(0).normal([-3.0, 0.0, 4.0], 1.0, (500, 3)).ravel()
        point, component = ng.Plate("point", 1500), ng.Plate("component", 3)
        z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=3), plate=point)
        mu = ng.Normal("mu", 0.0, 0.01, plate=component)
        return ng.Network(ng.Normal("x", mu[z], 1.0, plate=point, observed=data)).fit(verbose=False)

    found = {
        "five numbers": five_numbers,
        "README": readme,
        "network": network,
        "LDA": lambda: ng.LDA(3, max_passes=4, **quiet).fit(counts),
        "factorisation": lambda: ng.MatrixFactorization(2, max_steps=4, **quiet).fit(table),
        "HMM": lambda: ng.GaussianHMM(2, max_passes=4, **quiet).fit(series),
        "GP": lambda: ng.SparseGPRegressor(n_inducing=8, max_steps=4, **quiet).fit(rows, rows[:, 0]),
    }
    if (mixture := getattr(ng, "GaussianMixture", None)) is not None:
        found["mixture"] = lambda: mixture(2, max_passes=4, **quiet).fit(rows)
    return found


def table() -> str:
    """The numbers of every walk."""
    lines = [
        "| walk | files | changes of folder | of rooms | files of a step | changes of folder |",
        "|---|---|---|---|---|---|",
    ]
    for name, fit in fits().items():
        files, step = walk(fit)
        numbers = len(files), folder_changes(files), folder_changes(files, 1), len(step), folder_changes(step)
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table, or print some walks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="walks to print file by file")
    names = parser.parse_args().names
    for name in names:
        files, step = walk(fits()[name])
        print(name, *(f"    {'*' if file in step else ' '} {file}" for file in files), sep="\n")
    if not names:
        PAGE.write_text(table())
        print(PAGE.read_text(), end="")


if __name__ == "__main__":
    main()
