"""Networks bound to tables: cost of a pass in chunks and in memory, growth, memory, ready models, serving, rows that come and go.

    python benchmarks/binding.py                    a table of some minutes on two cores, into benchmarks/results
    python benchmarks/binding.py --rows 100000000   the same for so many rows of the mixture

Seconds are those of the processor, of a pass after the first ones (compilation left out). Every line is a process of its own, so
that its peak of resident memory is its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
CHUNK = 100_000
K = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000, help="of the largest mixture")
    parser.add_argument("--ratings", type=int, default=1_000_000)
    parser.add_argument("--one", help="one line, in this process")
    options = parser.parse_args()
    if options.one:
        name, number = options.one.split(":")
        print(json.dumps(LINES[name](int(number))))
        return
    largest = options.rows
    runs = [
        ("mixture_arrays", largest // 10), ("mixture_chunks", largest // 10), ("mixture_read_again", largest // 10),
        ("mixture_read_again", largest), ("mixture_ready", largest // 10), ("ratings_arrays", options.ratings // 4),
        ("ratings_parquet", options.ratings // 4), ("ratings_parquet", options.ratings), ("ratings_ready", options.ratings // 4),
        ("serving", 100_000), ("come_and_go", 20_000),
    ]  # fmt: skip
    found = []
    for name, number in runs:
        command = [sys.executable, __file__, "--one", f"{name}:{number}"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise SystemExit(f"{name} {number}:\n{answer.stderr[-3000:]}")
        line = {"run": name, "rows": number, **json.loads(answer.stdout.splitlines()[-1])}
        print(line, flush=True)
        found.append(line)
    import natgrad as ng

    about = {
        "natgrad": ng.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "chunk_rows": CHUNK,
    }
    (RESULTS / "binding.json").write_text(json.dumps({"about": about, "lines": found}, indent=1) + "\n")
    (RESULTS / "binding.md").write_text(table(found))


def table(lines: list[dict[str, Any]]) -> str:
    """For people: seconds of the processor for a million rows and pass, and the peak of memory."""
    head = "| run | rows | CPU s a pass | million rows a CPU second | peak, MB | |\n|---|---|---|---|---|---|\n"
    rows = []
    for line in lines:
        seconds = line.get("pass_seconds")
        speed = "" if not seconds else f"{line['rows'] / seconds / 1e6:.3g}"
        shown = "" if not seconds else f"{seconds:.3g}"
        rows.append(
            f"| {line['run']} | {line['rows']:,} | {shown} | {speed} | {line['peak_MB']:.0f} | {line.get('words', '')} |"
        )
    return head + "\n".join(rows) + "\n"


# -- measuring --


class Clock:
    """A callback that notes the processor's time at every step."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, progress: Any) -> None:
        self.at.append(time.process_time())

    def per_pass(self) -> float:
        """The median of the passes after the first two."""
        return float(np.median(np.diff(self.at)[1:]))


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def measured(fit: Any, clock: Clock, **more: Any) -> dict[str, Any]:
    bounds = fit.trace["elbo"]
    return {"pass_seconds": clock.per_pass(), "peak_MB": peak(), "elbo": float(bounds[np.isfinite(bounds)][-1]), **more}


# -- a mixture, K = 5, D = 2 --

CENTRES = 4.0 * np.random.default_rng(0).normal(size=(K, 2))


def points(number: int, n: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([1, number])
    return CENTRES[rng.integers(0, K, n)] + rng.normal(size=(n, 2))


def mixture(row: Any, observed: Any) -> Any:
    import natgrad as ng

    part = ng.Plate("part", K)
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=K), plate=row)
    mu = ng.MultivariateNormal("mu", np.zeros(2), 0.1 * np.eye(2), plate=part)
    precision = ng.Wishart("precision", 3.0, np.eye(2), plate=part)
    return ng.Network(ng.MultivariateNormal("x", mu[z], precision[z], plate=row, observed=observed))


def mixture_options(clock: Clock, steps: int = 6) -> dict[str, Any]:
    start = {"mu": CENTRES + 0.3}
    return {"init": start, "max_steps": steps, "tol": 0.0, "verbose": False, "callbacks": [clock], "backend": "jax"}


def whole_points(n: int) -> np.ndarray[Any, Any]:
    return np.concatenate([points(c, min(CHUNK, n - c * CHUNK)) for c in range(-(-n // CHUNK))])


def mixture_arrays(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock = Clock()
    fit = mixture(ng.Plate("row", n), whole_points(n)).fit(ng.VB(), **mixture_options(clock))
    return measured(fit, clock, words="declared with arrays, compiled")


def mixture_chunks(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock, y = Clock(), whole_points(n)
    network = mixture(ng.Plate("row"), ng.Columns("a", "b"))
    fit = network.fit({"a": y[:, 0], "b": y[:, 1]}, ng.VB(), chunk_rows=CHUNK, **mixture_options(clock))
    return measured(fit, clock, words="chunks of a table in memory")


def mixture_read_again(n: int) -> dict[str, Any]:
    import natgrad as ng
    from natgrad.network.bind import chunks

    chunks.HELD = 0
    clock = Clock()

    def parts() -> Any:
        for c in range(-(-n // CHUNK)):
            y = points(c, min(CHUNK, n - c * CHUNK))
            yield {"a": y[:, 0], "b": y[:, 1]}

    network = mixture(ng.Plate("row"), ng.Columns("a", "b"))
    fit = network.fit(parts, ng.VB(), chunk_rows=CHUNK, **mixture_options(clock, 4))
    return measured(fit, clock, words="generated anew in every pass, which is counted; nothing held")


def mixture_ready(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock = Clock()
    model = ng.GaussianMixture(K, method=ng.VB(), n_init=1, max_passes=6, tol=0.0, verbose=False, seed=0)
    model.fit(whole_points(n), callbacks=[clock])
    return {"pass_seconds": clock.per_pass(), "peak_MB": peak(), "words": "GaussianMixture, the ready model"}


# -- ratings --


def ratings(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    users, items = rng.zipf(1.3, n) % max(10, n // 100), rng.zipf(1.2, n) % max(10, n // 400)
    u, v = rng.normal(size=(users.max() + 1, K)), rng.normal(size=(items.max() + 1, K))
    values = (u[users] * v[items]).sum(1) / np.sqrt(K) + 0.5 * rng.normal(size=n)
    return {"user": users.astype(np.int64), "item": items.astype(np.int64), "value": values}


def factorisation(row: Any, user: Any, item: Any, i: Any, j: Any, y: Any) -> Any:
    import natgrad as ng

    u = ng.MultivariateNormal("u", 0.0, 1.0, size=K, plate=user)
    v = ng.MultivariateNormal("v", 0.0, 1.0, size=K, plate=item)
    return ng.Network(ng.Normal("r", ng.dot(u[i], v[j]), ng.Gamma("tau", 1.0, 1.0), plate=row, observed=y))


def rating_options(clock: Clock) -> dict[str, Any]:
    return {"init": "random", "max_steps": 5, "tol": 0.0, "verbose": False, "callbacks": [clock], "backend": "jax"}


def ratings_arrays(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock, data = Clock(), ratings(n)
    codes = [np.unique(data[side], return_inverse=True) for side in ("user", "item")]
    plates = [ng.Plate(name, len(ids)) for name, (ids, _) in zip(("user", "item"), codes, strict=True)]
    network = factorisation(ng.Plate("row", n), *plates, codes[0][1], codes[1][1], data["value"])
    return measured(network.fit(ng.VB(), **rating_options(clock)), clock, words="declared with arrays, compiled")


def ratings_parquet(n: int) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    import natgrad as ng
    from natgrad.network.bind import chunks

    chunks.HELD = 0
    clock = Clock()
    columns = map(ng.Column, ("user", "item", "value"))
    network = factorisation(ng.Plate("row"), ng.Plate("user"), ng.Plate("item"), *columns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.parquet"
        pyarrow.parquet.write_table(pyarrow.table(ratings(n)), path, row_group_size=CHUNK)
        fit = network.fit(path, ng.VB(), chunk_rows=CHUNK, **rating_options(clock))
    return measured(fit, clock, words="from Parquet, three passes a sweep; nothing held")


def ratings_ready(n: int) -> dict[str, Any]:
    import natgrad as ng

    clock, data = Clock(), ratings(n)
    model = ng.MatrixFactorization(
        K, biases=False, learn_priors=False, method=ng.VB(), max_steps=6, tol=0.0, verbose=False
    )
    model.fit((data["user"], data["item"], data["value"]), callbacks=[clock])
    return {
        "pass_seconds": clock.per_pass(),
        "peak_MB": peak(),
        "words": "MatrixFactorization, the ready model; threads count",
    }


# -- serving, rows that come and go --


def serving(n: int) -> dict[str, Any]:
    import natgrad as ng

    data = ratings(50_000)
    columns = map(ng.Column, ("user", "item", "value"))
    network = factorisation(ng.Plate("row"), ng.Plate("user"), ng.Plate("item"), *columns)
    with tempfile.TemporaryDirectory() as folder:
        network.fit(data, init="random", max_steps=5, verbose=False).save(Path(folder) / "m.natgrad")
        model = ng.load(Path(folder) / "m.natgrad")
    one = {"user": data["user"][:1], "item": data["item"][:1]}
    times = []
    for _ in range(50):
        begin = time.process_time()
        model.predict(one)["r"].mean()
        times.append(time.process_time() - begin)
    many = {"user": np.resize(data["user"], n), "item": np.resize(data["item"], n)}
    begin = time.process_time()
    found = model.predict(many)["r"]
    found.mean()
    seconds = time.process_time() - begin
    words = (
        f"one row {1000 * np.median(times):.2f} ms; {n:,} rows {seconds:.2f} s, their sds too {_spread(found):.2f} s"
    )
    return {
        "one_ms": 1000 * float(np.median(times)),
        "many_seconds": seconds,
        "peak_MB": peak(),
        "words": words,
    }


def _spread(found: Any) -> float:
    begin = time.process_time()
    found.std()
    return time.process_time() - begin


def come_and_go(n: int) -> dict[str, Any]:
    """A tenth of the rows added and removed in random pieces, against a refit from the same state."""
    import natgrad as ng

    data = ratings(n)
    columns = map(ng.Column, ("user", "item", "value"))
    network = factorisation(ng.Plate("row"), ng.Plate("user"), ng.Plate("item"), *columns)
    rng = np.random.default_rng(3)
    options: dict[str, Any] = {"verbose": False, "tol": 1e-6}
    fit = network.fit({k: v[: n - n // 10] for k, v in data.items()}, init="random", **options)
    pieces = np.array_split(rng.permutation(np.arange(n - n // 10, n)), 10)
    for piece in pieces:
        fit = fit.update({k: v[piece] for k, v in data.items()}, **options)
    for _ in range(10):
        rows = len(fit.binding.tables["row"].cells("user"))
        fit = fit.forget(rng.choice(rows, n // 100, replace=False), **options)
    left = fit.binding.tables["row"]
    start = {name: fit[name].mean() for name in ("u", "v")}
    refit = network.fit({k: left.cells(k) for k in data}, init=start, max_steps=3000, verbose=False, tol=1e-8)
    after = fit.continue_(max_steps=3000, tol=1e-8, verbose=False)
    apart = abs(after.elbo - refit.elbo) / abs(refit.elbo)
    return {"apart": apart, "peak_MB": peak(), "words": f"bound apart from that of a refit by {apart:.1e} (relative)"}


LINES = {
    function.__name__: function
    for function in (
        mixture_arrays, mixture_chunks, mixture_read_again, mixture_ready, ratings_arrays, ratings_parquet, ratings_ready,
        serving, come_and_go,
    )
}  # fmt: skip


if __name__ == "__main__":
    main()
