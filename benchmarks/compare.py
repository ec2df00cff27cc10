"""Results of benchmarks now against those of a commit: what got slower, or larger.

    python benchmarks/compare.py                 the files on disk against HEAD
    python benchmarks/compare.py --base v0.1.0   against a tag
    python benchmarks/compare.py --limit 1.3     only what changed by more than 30 %

Every number in `benchmarks/results/*.json` whose name says that it is a time, a memory or a speed is compared with the same
number of the commit. Seconds of two runs differ by the machine as well; peers in the same file show by how much, so a change
counts against the median change of its file, and a file whose median is beyond the limit is named as a whole: the machine was
slower, or everything in it is. Exits with 1 if something is worse than the limit.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
LESS_IS_BETTER = re.compile(r"seconds|cpu|wall|peak|memory|bytes|(^|[ _])(s|ms|µs|MB|GB|mb|gb)($|[ _])|step$|fit$")
MORE_IS_BETTER = re.compile(r"a second|per second|/s\b|ratio|rate$|symbols")
# Tables without names for their columns: what their last number is.
POSITIONAL = {"hmm-speed.json": "symbols a second", "hmm-memory.json": "peak memory", "gp-share.json": "cpu seconds"}
# Settings and budgets, not measurements.
IGNORED = re.compile(r"assumed|marks|minutes|slowest|data_mb|before|break_even|lambda_bytes|(^|/)bytes$|scale/")


def numbers(value: Any, path: str, stem: str) -> Iterator[tuple[str, float]]:
    """Every number of a result with a path that says what it is; rows of a table are named by what is not a float in them."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, (int, float)):
        yield path, float(value)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from numbers(entry, f"{path}/{key}", stem)
    elif value and not isinstance(value[-1], (dict, list)) and stem in POSITIONAL:
        yield (
            f"{path}/{' '.join(str(v) for v in value[:-1] if not isinstance(v, float))}/{POSITIONAL[stem]}",
            float(value[-1]),
        )
    else:
        for number, entry in enumerate(value):
            yield from numbers(entry, f"{path}/{row_name(entry, number)}", stem)


def row_name(row: Any, number: int) -> str:
    """What tells a row of a table from the others."""
    if not isinstance(row, dict):
        return "" if isinstance(row, list) else str(number)
    told = [f"{k}={v}" for k, v in row.items() if isinstance(v, (str, int)) and not isinstance(v, bool)]
    return ", ".join(entry for entry in told if "version" not in entry and len(entry) < 80) or str(number)


def slowdown(path: str, before: float, now: float) -> float | None:
    """How many times worse; None for a number that is neither a cost nor a speed."""
    name = path.rsplit("/", 1)[-1]
    if IGNORED.search(path) or before <= 0 or now <= 0:
        return None
    if MORE_IS_BETTER.search(name):
        return before / now
    return now / before if LESS_IS_BETTER.search(name) else None


def compared(before: Any, now: Any, stem: str) -> dict[str, float]:
    """For every cost that both results have, how many times worse it is now."""
    old = dict(numbers(before, "", stem))
    found = {path: slowdown(path, old[path], value) for path, value in numbers(now, "", stem) if path in old}
    return {path: factor for path, factor in found.items() if factor is not None}


def committed(path: Path, base: str) -> Any:
    """The result at a commit; None if it had none."""
    shown = subprocess.run(
        ["git", "show", f"{base}:./{path.name}"], cwd=path.parent, capture_output=True, text=True, check=False
    )
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD", help="commit, tag or branch to compare with")
    parser.add_argument("--limit", type=float, default=1.2, help="how many times worse counts")
    options = parser.parse_args()
    worse = 0
    for path in sorted(RESULTS.glob("*.json")):
        before, now = committed(path, options.base), json.loads(path.read_text())
        if before is None or before == now:
            continue
        factors = compared(before, now, path.name)
        if not factors:
            continue
        machine = statistics.median(factors.values())
        print(f"{path.name}: {len(factors)} costs, median × {machine:.2f}")
        if machine > options.limit:
            worse += 1
            print(f"  × {machine:.2f}  all of it, or the machine: measure the base again beside it")
        for name, factor in sorted(factors.items(), key=lambda entry: -entry[1]):
            if factor > options.limit * max(machine, 1.0):
                worse += 1
                print(f"  × {factor:.2f}  {name.strip('/')}")
    print(f"{worse} worse than × {options.limit:g}" if worse else "nothing got slower")
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
