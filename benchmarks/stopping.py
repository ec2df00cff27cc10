"""Is "converged" true? Models fitted until they stop by themselves, and then ten times as long.

    python benchmarks/stopping.py               # all; ten minutes
    python benchmarks/stopping.py LDA chain     # those whose names contain one of these; writes nothing

The loss is what the longer run gained. It has to be less than the tolerance that the run claimed to have reached: 1e-3 nats for a
network, and tol nats for each observation of a ready model.

Results: ``benchmarks/results/stopping.md`` and ``.json``.
"""

import json
import platform
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from promises.stopping import MODELS  # noqa: E402


def main() -> None:
    wanted = sys.argv[1:]
    chosen = {name: row for name, row in MODELS.items() if not wanted or any(part in name for part in wanted)}
    rows = []
    for name, row in chosen.items():
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = row()
        rows.append({"model": name, **found._asdict(), "loss": found.loss})
        took = time.perf_counter() - begin
        verdict = "" if found.converged and found.loss <= found.tolerance else "  <<<"
        print(
            f"{name:40} {found.steps:5} {found.bound:16.6f} {found.loss:10.2e} {found.tolerance:8.1e} {took:6.1f} s{verdict}"
        )
        print(f"    {found.words}", flush=True)
    if not wanted:
        (HERE / "results" / "stopping.json").write_text(
            json.dumps({"python": platform.python_version(), "rows": rows}, indent=1, ensure_ascii=False) + "\n"
        )
        (HERE / "results" / "stopping.md").write_text(table(rows))


def table(rows: list[dict]) -> str:
    lines = [
        "| model | steps | bound where it stopped | gained in ten times as many | tolerance, nats |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        gained = f"{max(row['loss'], 0.0):.1e}" if row["converged"] else "not converged"
        lines.append(f"| {row['model']} | {row['steps']} | {row['bound']:,.4f} | {gained} | {row['tolerance']:.1e} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
