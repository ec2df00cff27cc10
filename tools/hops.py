"""How far one walks through natgrad to follow a fit: files in the order in which they are first called, and changes of folder.

    python tools/hops.py            a table of all walks
    python tools/hops.py LDA        the files of one walk in order

Small fits run under `sys.setprofile`. What happens when a module is imported is not counted, nor the bodies of classes, and
compiled kernels count as the file whose Python calls them. A walk is counted twice: for a fit as users call it, and for what
lies on the path of every step, from the engine's loop down.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import natgrad as ng

SOURCE = Path(ng.__file__).resolve().parent
LOOP = "inference/engine.py"


@contextmanager
def called_files() -> Iterator[dict[str, None]]:
    """The files of natgrad whose functions are called, in the order of the first call."""
    found: dict[str, None] = {}
    prefix = str(SOURCE) + "/"
    known: dict[Any, str | None] = {}

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call":
            return
        if code not in known:
            file = code.co_filename
            inside = file.startswith(prefix) and not code.co_name.startswith("<") and _is_function(code)
            known[code] = file[len(prefix) :] if inside else None
        name = known[code]
        if name is not None and name not in found:
            found[name] = None

    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)


def _is_function(code: Any) -> bool:
    """Not the body of a module or of a class."""
    return bool(
        code.co_flags & 0x0002
    )  # CO_NEWLOCALS and fast locals: functions alone have CO_OPTIMIZED | CO_NEWLOCALS


def folder_changes(files: list[str]) -> int:
    """How often the folder is another one than that of the file before."""
    folders = [file.rpartition("/")[0] for file in files]
    return sum(a != b for a, b in itertools.pairwise(folders))


def walks() -> dict[str, Callable[[], Any]]:
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
        return ng.Network(x).fit(init={"mean": [-1.0, 1.0]}, max_steps=5, **quiet)

    found = {
        "network": network,
        "LDA": lambda: ng.LDA(3, max_passes=4, **quiet).fit(counts),
        "factorisation": lambda: ng.MatrixFactorization(2, max_steps=4, **quiet).fit(table),
        "HMM": lambda: ng.GaussianHMM(2, max_passes=4, **quiet).fit(series),
        "GP": lambda: ng.SparseGPRegressor(n_inducing=8, max_steps=4, **quiet).fit(rows, rows[:, 0]),
    }
    if (mixture := getattr(ng, "GaussianMixture", None)) is not None:
        found["mixture"] = lambda: mixture(2, max_passes=4, **quiet).fit(rows)
    return found


def walk(fit: Callable[[], Any]) -> list[str]:
    """The files of a second fit: what is imported or compiled at the first one is no part of the path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
        with called_files() as found:
            fit()
    return list(found)


def main() -> None:
    """Print the table, or one walk."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="walks to print file by file")
    names = parser.parse_args().names
    known = walks()
    if not names:
        print("| walk | files | changes of folder |\n|---|---|---|")
    for name in names or known:
        files = walk(known[name])
        if names:
            print(f"{name}: {len(files)} files, {folder_changes(files)} changes of folder")
            print("\n".join(f"    {file}" for file in files))
        else:
            print(f"| {name} | {len(files)} | {folder_changes(files)} |")


if __name__ == "__main__":
    main()
