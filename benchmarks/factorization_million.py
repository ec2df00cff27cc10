"""Peak memory and seconds per sweep of two factorisation networks with a million ratings.

    python benchmarks/factorization_million.py
    python benchmarks/factorization_million.py --ratings 100000 --sweeps 5    # a quick look

4 805 users and 16 015 items with power-law degrees, generated; r ~ N(u·v, 1), K = 5, priors
N(0, 1). Two approximations:

- block: one factor q(u_m) per user and q(v_n) per item, each with a full K × K covariance;
- scalar: fully factorised, q(u_mk) and q(v_nk), which coordinate ascent has to visit k by k.

Each runs in a fresh process. Memory is the largest resident set of the process; *before* is the same figure
after the
imports, the data and the declaration, *data* the size of the three arrays of ratings. Results:
``benchmarks/results/factorization_million.json`` and ``.md``, written when the size is the full one.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from problems import ratings

HERE = Path(__file__).resolve().parent
N_USERS, N_ITEMS, K, FULL = 4_805, 16_015, 5, 1_000_000
VARIANTS = ("block", "scalar")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=int, default=FULL)
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)  # the measuring child process
    parser.add_argument("--arrays", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(measure(options.variant, options.arrays, options.sweeps)))
        return

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "ratings.npz"
        np.savez(arrays, **generate(options.ratings))
        for variant in VARIANTS:
            command = [sys.executable, __file__, "--variant", variant, "--arrays", arrays]
            command += ["--sweeps", str(options.sweeps)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    table = markdown(rows, options.ratings)
    print(table)
    if options.ratings == FULL:
        results = HERE / "results"
        results.mkdir(exist_ok=True)
        (results / "factorization_million.json").write_text(json.dumps(rows, indent=1) + "\n")
        (results / "factorization_million.md").write_text(table)


def generate(N: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    user, item = ratings(rng, N, N_USERS, N_ITEMS)
    u, v = rng.normal(size=(N_USERS, K)), rng.normal(size=(N_ITEMS, K))
    rating = np.einsum("nk,nk->n", u[user], v[item]) + rng.normal(size=N)
    return {"user": user, "item": item, "rating": rating, "start_v": rng.normal(size=(N_ITEMS, K))}


def measure(variant: str, path: Path, sweeps: int) -> dict:
    import jax

    import natgrad as ng

    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    index_u, index_v = arrays["user"], arrays["item"]
    user, item, factor = ng.Plate("user", N_USERS), ng.Plate("item", N_ITEMS), ng.Plate("factor", K)
    rating = ng.Plate("rating", len(arrays["rating"]))
    if variant == "block":
        u = ng.MultivariateNormal("u", np.zeros(K), np.eye(K), plate=user)
        v = ng.MultivariateNormal("v", np.zeros(K), np.eye(K), plate=item)
    else:
        u = ng.Normal("u", 0.0, 1.0, plate=(user, factor))
        v = ng.Normal("v", 0.0, 1.0, plate=(item, factor))
    r = ng.Normal("r", ng.dot(u[index_u], v[index_v]), 1.0, plate=rating, observed=arrays["rating"])
    network = ng.Network(r)
    before = _peak_mb()
    begin = time.perf_counter()
    trace = network.fit(ng.VB(), max_steps=sweeps, tol=0, init={"v": arrays["start_v"]}, order=["u", "v"]).trace
    total = time.perf_counter() - begin
    seconds = np.diff(trace["seconds"])
    return {
        "variant": variant,
        "seconds": float(np.median(seconds)),
        "first_seconds": total - float(seconds.sum()),
        "peak_mb": _peak_mb(),
        "before_mb": before,
        "data_mb": sum(arrays[name].nbytes for name in ("user", "item", "rating")) / 2**20,
        "bound": float(trace["elbo"][-1]),
        "sweeps": sweeps,
        "versions": {
            "natgrad": ng.__version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def _peak_mb() -> float:
    """The largest resident set so far; ru_maxrss is in kB, except on macOS, where it is in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def markdown(rows: list[dict], N: int) -> str:
    lines = [
        f"# Factorisation of {N:,} ratings, {N_USERS:,} users × {N_ITEMS:,} items, K = {K}",
        "",
        "| approximation | seconds per sweep | first sweep | peak memory, MB | before the fit | data |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['variant']} | {row['seconds']:.3g} | {row['first_seconds']:.2f} | {row['peak_mb']:.0f} "
        f"| {row['before_mb']:.0f} | {row['data_mb']:.0f} |"
        for row in rows
    ]
    versions = ", ".join(f"{name} {version}" for name, version in rows[0]["versions"].items())
    command = "Command: `python benchmarks/factorization_million.py`."
    lines += [
        "",
        f"Full coordinate ascent, the bound included; {versions}; {os.cpu_count()} cores. {command}",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
