"""The speed parts of `hmm.py`, `lda.py`, `gp.py` and `factorization.py`, as two versions of natgrad have them, in turns.

    git worktree add ../old 71cc34a                                   # 0.1.0
    python benchmarks/before_after_parts.py ../old . [--rounds 3] [--only hmm,gp]

Each tree runs its own programs with its own natgrad: one thread, and the clock of the programs is that of the processor, so that
other work on the machine counts little. λ of LDA is learned once, for both; ratings, chains and inducing inputs are equal by
their seeds. The ratio is that of the quickest of all rounds, the spread that between rounds of one tree: a ratio
beyond the spread is a difference. Results: ``benchmarks/results/before-after.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
LEAST = 1.1  # what before_after.py calls slower


def hmm(cache: Path) -> dict[str, float]:
    """Nanoseconds a symbol of one E-step, K = 8, two numbers a symbol."""
    import hmm as program

    rows: list[Any] = []
    program.write = lambda task, lines, found: rows.extend(found)
    program.speed(SimpleNamespace(hmmlearn=None, dynamax=None))
    return {
        f"{name.removeprefix('natgrad, ').removesuffix(', 1 threads')}, {covariance} covariance, ns a symbol": 1e9
        / rate
        for name, covariance, rate in rows
        if name.endswith(" 1 threads")
    }


def lda(cache: Path) -> dict[str, float]:
    """Microseconds of the local step of a document."""
    import lda_speed as program
    import scipy.sparse as sparse

    program.CACHE = cache
    options = SimpleNamespace(documents=2000, repeats=3, peers=None)
    found = {}
    for title, name in program.CORPORA.items():
        counts = sparse.load_npz(program.DATA / name).tocsr()
        for n_topics in (50, 200):
            row = program.measured(title, counts, n_topics, options)[0][0]
            found[f"{title}, {n_topics} topics, µs a document"] = float(row["µs a document"])
    return found


def gp(cache: Path) -> dict[str, float]:
    """Milliseconds of a step at two sizes."""
    import gp as program

    data, found = program.kin40k(), {}
    for n_inducing, batch in program.SIZES:
        start = cache / f"gp-{n_inducing}.npz"
        if not start.exists():
            program.write_start(start, data, n_inducing, batch)
        steps = 100 if n_inducing == 100 else 20
        row = program.run_engine("natgrad", start, None, "--steps", str(steps))
        found[f"{n_inducing} inducing inputs, {batch} rows, ms a step"] = 1e3 * row["cpu"]
    return found


def factorization(cache: Path) -> dict[str, float]:
    """Milliseconds of a pass over a million ratings."""
    import factorization as program

    drawn, made = program._drawn, []

    def at_most_a_million(n_users: int, n_items: int, n_ratings: int) -> Any:
        if n_ratings <= 1_000_000:
            made.append(drawn(n_users, n_items, n_ratings))
        return made[0]

    program._drawn = at_most_a_million
    rows = program.growth(None)["passes"]
    return {
        f"{row['factors']} factors{', independent' if row['scalar'] else ''}, ms a pass": 1e3 * row["seconds"]
        for row in rows
        if row["ratings"] == "1 M"
    }


PARTS = {"hmm": hmm, "lda": lda, "gp": gp, "factorization": factorization}


def in_tree(tree: Path, part: str, cache: str) -> dict[str, float]:
    """What a process of its own measures with the programs and the sources of this tree."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    path = os.pathsep.join(str(tree.resolve() / name) for name in ("src", "benchmarks"))
    call = [sys.executable, "-W", "ignore", __file__, "--measure", part, "--cache", cache]
    done = subprocess.run(
        call, env={**os.environ, **one, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{tree}: {part} failed")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Compare, and say what is slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, help="the folders of the old and the new version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help="names of parts, with commas")
    parser.add_argument("--measure", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--cache", help="a folder in which λ of LDA stays for the next call")
    given = parser.parse_args()
    if given.measure:
        # The folder of this script comes before PYTHONPATH, and has programs of the same names.
        sys.path.remove(str(Path(__file__).resolve().parent))
        time.perf_counter = time.process_time
        print(json.dumps(PARTS[given.measure](Path(given.cache))))
        return
    if len(given.trees) != 2:
        parser.error("give two folders")
    target = RESULTS / "before-after.json"
    rows = {row["what"]: row for row in json.loads(target.read_text())} if target.exists() else {}
    with nullcontext(given.cache) if given.cache else tempfile.TemporaryDirectory() as cache:
        for part in given.only.split(","):
            rounds = [[in_tree(tree, part, cache) for tree in given.trees] for _ in range(given.rounds)]
            for name in rounds[0][0]:
                before, after = ([both[tree][name] for both in rounds] for tree in range(2))
                spread = max(max(t) / min(t) for t in (before, after))
                row = {"what": f"{part}.py: {name}", "before": min(before), "now": min(after), "spread": spread}
                rows[row["what"]] = row
            target.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
            target.with_suffix(".md").write_text(table(list(rows.values())))
    print(target.with_suffix(".md").read_text())
    sys.exit(any(row["now"] / row["before"] > max(LEAST, row["spread"]) for row in rows.values()))


def table(rows: list[dict[str, Any]]) -> str:
    """The ratios, and what is slower."""
    lines = ["| program and part | 0.1.0 | now | now / 0.1.0 | spread |", "|---|---|---|---|---|"]
    slower = []
    for row in rows:
        ratio = row["now"] / row["before"]
        lines.append(f"| {row['what']} | {row['before']:.4g} | {row['now']:.4g} | {ratio:.2f} | {row['spread']:.2f} |")
        if ratio > max(LEAST, row["spread"]):
            slower.append(row["what"])
    said = f"Slower: {'; '.join(slower)}." if slower else "Nothing is slower by more than the noise."
    return "\n".join([*lines, "", said, "", "`python benchmarks/before_after_parts.py OLD .`"]) + "\n"


if __name__ == "__main__":
    main()
