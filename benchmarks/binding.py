"""Networks bound to tables: cost of a pass in chunks and in memory, growth, memory, ready models, serving, rows that come and go.

    python benchmarks/binding.py                    some minutes of one core, into benchmarks/results
    python benchmarks/binding.py --full             5·10⁸ rows of the mixture, 2·10⁷ ratings, 10⁶ documents: some hours
    python benchmarks/binding.py --only drift,serving    some lines, the others as they were

Seconds are those of the processor, of a pass after the first ones (compilation left out). Every line is a process of its own, so
that its peak of resident memory is its own. A row of the mixture is two nodes of the network, z and x.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from binding_clock import CHUNK

RESULTS = Path(__file__).parent / "results"
QUICK = [
    ("mixture_arrays", 1_000_000), ("mixture_chunks", 1_000_000), ("mixture_ready", 1_000_000), ("ratings_arrays", 250_000),
    ("ratings_ready", 250_000), ("topics_memory", 20_000), ("topics_ready", 20_000), ("serving", 100_000), ("touched", 200_000),
    ("come_and_go", 20_000), ("drift", 30), ("workers", 8_000_000),
]  # fmt: skip
# Chunks of 256 MB and more are not held, but read again in every pass.
FULL = [
    *QUICK, ("mixture_read_again", 100_000_000), ("mixture_read_again", 500_000_000), ("ratings_parquet", 20_000_000),
    ("topics_chunks", 1_000_000),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the large sizes, too")
    parser.add_argument("--only", help="names of lines, or name:size, with commas between")
    parser.add_argument("--one", help="one line, in this process")
    options = parser.parse_args()
    if options.one:
        name, number = options.one.split(":")
        print(json.dumps(lines()[name](int(number))))
        return
    runs = FULL if options.full else QUICK
    kept: list[dict[str, Any]] = []
    if options.only:
        wanted = options.only.split(",")
        runs = [(name, size) for name, size in FULL if name in wanted or f"{name}:{size}" in wanted]
        path = RESULTS / "binding.json"
        kept = json.loads(path.read_text())["lines"] if path.exists() else []
    for name, number in runs:
        command = [sys.executable, __file__, "--one", f"{name}:{number}"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise SystemExit(f"{name} {number}:\n{answer.stderr[-3000:]}")
        line = {"run": name, "rows": number, **json.loads(answer.stdout.splitlines()[-1])}
        print({key: value for key, value in line.items() if key != "errors"}, flush=True)
        kept = [old for old in kept if (old["run"], old["rows"]) != (name, number)] + [line]
        write(kept)


def lines() -> dict[str, Any]:
    """Every line by its name."""
    import binding_sizes
    import binding_updates

    return {**binding_sizes.LINES, **binding_updates.LINES}


def write(found: list[dict[str, Any]]) -> None:
    """After every line: what was measured is not lost."""
    import natgrad as ng

    order = {run: place for place, run in enumerate(FULL)}
    found = [line for line in found if (line["run"], line["rows"]) in order]
    found.sort(key=lambda line: order[line["run"], line["rows"]])
    versions = {"natgrad": ng.__version__, "numpy": np.__version__, "python": platform.python_version()}
    about = {**versions, "chunk_rows": CHUNK}
    (RESULTS / "binding.json").write_text(json.dumps({"about": about, "lines": found}, indent=1) + "\n")
    (RESULTS / "binding.md").write_text(table(found))


def table(found: list[dict[str, Any]]) -> str:
    """For people: seconds of the processor a pass, rows a second, and the peak of memory."""
    head = "| run | rows | CPU s a pass | million rows a CPU second | peak, MB | |\n|---|---|---|---|---|---|\n"
    rows = []
    for line in found:
        seconds = line.get("pass_seconds")
        speed = "" if not seconds else f"{line['rows'] / seconds / 1e6:.3g}"
        shown = "" if not seconds else f"{seconds:.3g}"
        rows.append(
            f"| {line['run']} | {line['rows']:,} | {shown} | {speed} | {line['peak_MB']:.0f} | {line.get('words', '')} |"
        )
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
