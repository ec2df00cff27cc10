"""Processor seconds that somebody waits at first: imports, first fits, commands, and networks that were compiled before.

    python benchmarks/start_up.py                       # the sources beside this script
    python benchmarks/start_up.py --before CHECKOUT     # and those of another checkout, in turn
    python benchmarks/start_up.py --only import lda

Each row is a fresh process. *Empty*: nothing was compiled before on this machine (fresh folders for Numba's files and ours).
*Again*: the same in a second process. Fits count from after the import of natgrad to the result, whatever they import
themselves; commands and imports count as a whole, the interpreter included. Networks are those of ``engine.py``, from the
declaration to the end of the first sweep; *rebuilt* is the same declaration once more in the same process. The better of two
processes, or one where something is compiled. Processor seconds depend less than others on who else uses the machine, but on
a busy one they are up to twice as many. A row that is measured replaces the one of before.

Results: ``benchmarks/results/start-up.json`` and ``benchmarks/results/start-up.md``.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NETWORKS = ["mixture", "pca", "regression", "factorization", "hmm", "lda_network"]
REPEATS = 2


def models() -> dict[str, Any]:
    """The fits of ready models: tiny data, default settings."""
    import numpy as np

    import natgrad as ng

    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    words = [[f"word{i}" for i in rng.integers(0, 30, 3)] for _ in range(60)]
    ratings = ([0, 0, 1, 1], [0, 1, 0, 1], [5.0, 3.0, 4.0, 1.0])
    return {
        "lda": lambda: ng.LDA(3, verbose=False).fit(words),
        "factorization of four ratings": lambda: ng.MatrixFactorization(2, verbose=False).fit(
            ng.data.Ratings(*ratings)
        ),
        "gaussian hmm": lambda: ng.GaussianHMM(2, verbose=False).fit(rng.normal(size=(100, 2))),
        "categorical hmm": lambda: ng.CategoricalHMM(2, verbose=False).fit(rng.integers(0, 3, 100)),
        "gaussian mixture": lambda: ng.GaussianMixture(2, verbose=False).fit(x),
        "gaussian process": lambda: ng.SparseGPRegressor(verbose=False).fit(x, np.sin(x[:, 0])),
        # Large enough that their loops are compiled.
        "lda, 2000 documents": lambda: ng.LDA(10, inference="vb", max_passes=3, verbose=False).fit(
            rng.poisson(0.1, (2000, 300))
        ),
        "gaussian hmm, 5000 times": lambda: ng.GaussianHMM(3, max_passes=3, verbose=False).fit(
            rng.normal(size=(5000, 2))
        ),
        "factorization, 20000 ratings": lambda: ng.MatrixFactorization(5, max_steps=3, verbose=False).fit(
            ng.data.Ratings(
                rng.integers(0, 500, 20_000), rng.integers(0, 400, 20_000), rng.normal(size=20_000), duplicates="keep"
            )
        ),
    }


MODELS = [
    "lda", "factorization of four ratings", "gaussian hmm", "categorical hmm", "gaussian mixture", "gaussian process",
    "lda, 2000 documents", "gaussian hmm, 5000 times", "factorization, 20000 ratings",
]  # fmt: skip


def one_model(name: str) -> dict[str, float]:
    """The first fit of this process."""
    fit = models()[name]
    begin, cpu = time.perf_counter(), time.process_time()
    fit()
    return {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - begin}


def one_network(name: str) -> dict[str, float]:
    """The first sweep of this process, JAX imported, and the same declaration again."""
    import jax
    from natgrad_engine import MODELS as CASES
    from problems import PROBLEMS

    import natgrad as ng

    name = name.removesuffix("_network")
    arrays, found = PROBLEMS[name](), {}
    jax.devices()
    for what in ("", "rebuilt_"):
        begin, cpu = time.perf_counter(), time.process_time()
        case = CASES[name](arrays)
        case.network.fit(ng.VB(), max_steps=1, tol=0, init=case.init, order=case.order, backend="jax", verbose=False)
        found |= {f"{what}cpu": time.process_time() - cpu, f"{what}seconds": time.perf_counter() - begin}
    return found


def commands(folder: Path, source: Path) -> dict[str, list[str]]:
    """Every answer of the command line of some sources, on models of tiny data that they made here once."""
    import numpy as np

    folder.mkdir()
    rng = np.random.default_rng(0)
    files = {
        "docs.csv": ["text", *(" ".join(f"word{i}" for i in rng.integers(0, 30, 3)) for _ in range(60))],
        "ratings.csv": ["user,item,rating", "ann,tea,5", "ann,jam,3", "bob,tea,4", "bob,rye,1", "cat,rye,2"],
        "series.csv": ["level", *(f"{v:.5f}" for v in rng.normal(size=100))],
        "rows.csv": ["a,b", *(f"{a:.5f},{b:.5f}" for a, b in rng.normal(size=(50, 2)))],
    }
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    fits = {
        "lda": ["docs.csv", "--n-topics", "3", "--min-documents", "1"],
        "mf": ["ratings.csv"],
        "hmm": ["series.csv", "--n-states", "2"],
        "mixture": ["rows.csv"],
    }
    for name, (file, *options) in fits.items():
        run(
            ["fit", name, str(folder / file), "-o", str(folder / name), *options],
            fresh(source, f"{folder}-warm"),
        )
    at = {name: str(folder / name) for name in (*fits, *files)}
    out = str(folder / "out")
    return {
        "help": ["--help"],
        "topics": ["topics", at["lda"]],
        "score of texts": ["score", at["lda"], at["docs.csv"]],
        "transform": ["transform", at["lda"], at["docs.csv"], "-o", out],
        "recommend": ["recommend", at["mf"], "ann"],
        "score of ratings": ["score", at["mf"], at["ratings.csv"]],
        "predict of ratings": ["predict", at["mf"], at["ratings.csv"], "-o", out],
        "decode": ["decode", at["hmm"], at["series.csv"], "-o", out],
        "predict of a mixture": ["predict", at["mixture"], at["rows.csv"], "-o", out],
        "report of topics": ["report", at["lda"], "-o", f"{out}.html", "--force"],
        "report of ratings": ["report", at["mf"], "-o", f"{out}.html", "--force"],
    }  # fmt: skip


def run(arguments: list[str], environment: dict[str, str]) -> float:
    """Processor seconds of a command, the interpreter included."""
    code = f"from natgrad.cli.main import main; main({arguments!r})"
    return child([sys.executable, "-c", code], environment)[0]


def child(command: list[str], environment: dict[str, str]) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr.strip()[-500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, ended.stdout


def fresh(source: Path, folder: str) -> dict[str, str]:
    """The environment of sources whose compiled files are in a folder."""
    return os.environ | {
        "PYTHONPATH": str(source / "src"),
        "NUMBA_CACHE_DIR": f"{folder}/numba",
        "NATGRAD_CACHE_DIR": f"{folder}/natgrad",
    }


def measured(name: str, source: Path, calls: dict[str, list[str]], warm: str) -> dict[str, float]:
    """Rows of the table for one checkout."""
    if name == "import":
        code = [sys.executable, "-c", "import natgrad"]
        nothing = min(child([sys.executable, "-c", ""], fresh(source, warm))[0] for _ in range(REPEATS))
        return {"again": min(child(code, fresh(source, warm))[0] for _ in range(REPEATS)) - nothing}
    if name in calls:
        run(calls[name], fresh(source, warm))  # what it compiles is there afterwards
        return {"again": min(run(calls[name], fresh(source, warm)) for _ in range(REPEATS))}
    command = [sys.executable, str(HERE / "start_up.py"), "--one", name]
    with tempfile.TemporaryDirectory() as folder:
        records = [json.loads(child(command, fresh(source, folder))[1].splitlines()[-1]) for _ in range(1 + REPEATS)]
    again = min(records[1:], key=lambda record: record["cpu"])
    found = {"empty": records[0]["cpu"], "again": again["cpu"], "again_seconds": again["seconds"]}
    return found | ({"rebuilt": again["rebuilt_cpu"]} if name in NETWORKS else {})


def markdown(rows: dict[str, dict[str, dict[str, float]]]) -> str:
    lines = [
        "# Start-up: processor seconds",
        "",
        "Fresh processes. *Empty*: nothing was compiled before; *again*: a second process; *rebuilt*: the same declaration once",
        "more in one process. Fits and networks count from after the import, commands and imports as a whole; *before → after*.",
        "",
        "| what | empty | again | rebuilt |",
        "|---|---:|---:|---:|",
    ]
    for name, row in rows.items():
        cells = []
        for column in ("empty", "again", "rebuilt"):
            parts = [f"{row[when][column]:.2f}" for when in ("before", "after") if column in row.get(when, {})]
            cells.append(" → ".join(parts))
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    lines += [
        "",
        f"{os.cpu_count()} cores, shared with others. Command: `python benchmarks/start_up.py --before CHECKOUT`.",
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.one:
        print(json.dumps((one_network if options.one in NETWORKS else one_model)(options.one)))
        return
    sources = {"before": options.before, "after": HERE.parent}
    rows: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        known = {when: source for when, source in sources.items() if source}
        calls = {when: commands(Path(folder) / when, source) for when, source in known.items()}
        for name in options.only or ["import", *MODELS, *calls["after"], *NETWORKS]:
            rows[name] = {
                when: measured(name, source, calls[when], f"{folder}/{when}-warm") for when, source in known.items()
            }
            print(name, rows[name], flush=True)
            write(rows, options.results, [*MODELS, *calls["after"]])
    print(markdown(rows))


def write(rows: dict[str, dict[str, dict[str, float]]], folder: Path, order: list[str]) -> None:
    """Rows that were measured replace those of before, after each of them: an interrupted run is not lost."""
    folder.mkdir(exist_ok=True)
    path = folder / "start-up.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for name, row in rows.items():
        known[name] = known.get(name, {}) | row
    known = {name: known[name] for name in ["import", *order, *NETWORKS] if name in known}
    path.write_text(json.dumps(known, indent=1) + "\n")
    (folder / "start-up.md").write_text(markdown(known))


if __name__ == "__main__":
    main()
