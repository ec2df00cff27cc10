"""Model files and checkpoints with one field forged and a right digest: how many are refused or can be used, what goes wrong.

    python benchmarks/reliability_forgeries.py                # 10,000 forgeries; an hour
    python benchmarks/reliability_forgeries.py --files 320    # to try it
    python benchmarks/reliability_forgeries.py --only LDA counts

The cases and what is done with a file that loads are those of ``tests/forgery_cases.py``. Results:
``benchmarks/results/reliability-forgeries.md`` and ``.json``.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
from adversary.forgeries import outcomes

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"
CASES = Path(__file__).resolve().parents[1] / "tests" / "forgery_cases.py"
FIRST = 10_000


def main() -> None:
    sys.path.insert(0, str(CASES.parent))
    from forgery_cases import ALL

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", choices=ALL)
    chosen = parser.parse_args()
    file = RESULTS / "reliability-forgeries.json"
    found = json.loads(file.read_text())["results"] if file.exists() and chosen.only else {}
    each = -(-chosen.files // len(ALL))
    for name in chosen.only or ALL:
        begin = time.perf_counter()
        seen = outcomes(name, range(FIRST, FIRST + each), CASES)
        took = time.perf_counter() - begin
        found[name] = {"forged": each, "refused": seen.refused, "used": seen.used, "wrong": seen.wrong, "seconds": took}
        print(name, found[name], flush=True)
    write(found)
    if wrong := sum(len(row["wrong"]) for row in found.values()):
        raise SystemExit(f"{wrong} forgeries went wrong")


def write(found: dict[str, dict]) -> None:
    """The table and the numbers behind it."""
    rows = [[name, row["forged"], row["refused"], row["used"], len(row["wrong"])] for name, row in found.items()]
    rows.append(["all", *(sum(row[place] for row in rows) for place in range(1, 5))])
    lines = [f"| {row[0]} | {' | '.join(f'{value:,}' for value in row[1:])} |" for row in rows]
    head = ["| file | forged | refused | loaded and used | wrong |", "|---|--:|--:|--:|--:|"]
    (RESULTS / "reliability-forgeries.md").write_text("\n".join([*head, *lines, ""]))
    versions = {"natgrad": ng.__version__, "numpy": np.__version__, "python": platform.python_version()}
    (RESULTS / "reliability-forgeries.json").write_text(
        json.dumps({"versions": versions, "results": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
