"""Mutated model files: how many are refused, how fast, and in how much memory.

    python benchmarks/reliability_files.py                # 100,000 damaged and 10,000 forged files; two minutes
    python benchmarks/reliability_files.py --files 2000   # to try it

Files of an LDA, a matrix factorisation, a hidden Markov model, a Gaussian process and a network's fit are damaged (flipped bits,
cuts, insertions, other lengths, strange and exchanged entries of the header) and forged (strange things in the header, paths,
huge sizes, with a right digest). Damaged ones must all be refused with `ModelFileError`; forged ones must load or be refused with
it. Results: ``benchmarks/results/reliability-files.md`` and ``.json``.
"""

import argparse
import json
import platform
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from adversary.files import damaged, forged

import natgrad as ng

RESULTS = Path(__file__).resolve().parent / "results"


def topics(rng):
    return ng.LDA(4, inference="vb", max_passes=2).fit(
        rng.poisson(0.5, (100, 40)), vocabulary=[f"word{v}" for v in range(40)]
    )


def factors(rng):
    users, items = rng.integers(0, 30, 300), rng.integers(0, 20, 300)
    ratings = ng.data.Ratings([f"user{n}" for n in users], items, rng.normal(size=300), duplicates="mean")
    return ng.MatrixFactorization(3, max_steps=5).fit(ratings)


def chain(rng):
    return ng.GaussianHMM(2, n_init=1, max_passes=3).fit(rng.normal(size=(100, 2)))


def process(rng):
    x = rng.uniform(size=(60, 2))
    return ng.SparseGPRegressor(n_inducing=5, max_steps=5).fit(x, x[:, 0])


def network(rng):
    mu = ng.Normal("mu", 0.0, 1.0)
    return ng.Network(ng.Normal("x", mu, 2.0, plate=ng.Plate("n", 20), observed=rng.normal(size=20))).fit()


# Each file has some ten kilobytes.
MODELS = {
    "LDA": topics,
    "MatrixFactorization": factors,
    "GaussianHMM": chain,
    "SparseGPRegressor": process,
    "Fit": network,
}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(path: Path, n_files: int, kind: str, seed: int) -> dict[str, float]:
    data, target, rng = path.read_bytes(), path.with_name("mutated"), np.random.default_rng(seed)
    change = {"damaged": damaged, "forged": forged}[kind]
    refused = loaded = 0
    longest, before = 0.0, peak()
    for _ in range(n_files):
        target.write_bytes(change(data, rng))
        begin = time.perf_counter()
        try:
            ng.load(target)
            loaded += 1
        except ng.errors.ModelFileError:
            refused += 1
        longest = max(longest, time.perf_counter() - begin)
    return {
        "files": n_files, "refused": refused, "loaded": loaded, "slowest_s": longest, "bytes": len(data),
        "peak_growth_bytes": peak() - before,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--only", nargs="*", choices=list(MODELS))
    chosen = parser.parse_args()
    file = RESULTS / "reliability-files.json"
    found = json.loads(file.read_text())["results"] if file.exists() and chosen.only else {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, fit) in enumerate(MODELS.items()):
            if chosen.only and name not in chosen.only:
                continue
            path = Path(folder) / name
            fit(np.random.default_rng(0)).save(path)
            ng.load(path)
            for kind, share in (("damaged", 1.0), ("forged", 0.1)):
                n_files = round(chosen.files * share / len(MODELS))
                found[f"{name}, {kind}"] = measure(path, n_files, kind, number)
                print(name, kind, found[f"{name}, {kind}"], flush=True)
    RESULTS.mkdir(exist_ok=True)
    rows = [
        f"| {name} | {r['bytes']:,} | {r['files']:,} | {r['refused']:,} | {r['loaded']:,} | {1000 * r['slowest_s']:.0f} | "
        f"{r['peak_growth_bytes'] / 1e6:.1f} |"
        for name, r in found.items()
    ]
    table = [
        "| file | bytes | mutated | refused | loaded | slowest, ms | growth of peak memory, MB |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *rows,
    ]
    (RESULTS / "reliability-files.md").write_text("\n".join(table) + "\n")
    versions = {"natgrad": ng.__version__, "numpy": np.__version__, "python": platform.python_version()}
    file.write_text(json.dumps({"versions": versions, "results": found}, indent=1) + "\n")
    print("\n".join(table))
    missed = sum(r["loaded"] for name, r in found.items() if name.endswith("damaged"))
    if missed:
        raise SystemExit(f"{missed} damaged files were loaded")


if __name__ == "__main__":
    main()
