"""Lines of `binding.py`: serving, rows that come and go, streams that change, two workers."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from binding_clock import CHUNK, peak
from binding_sizes import factorisation, ratings

__all__ = ["LINES"]

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


def touched(n: int) -> dict[str, Any]:
    """One chunk more, and some rows less, of a regression in chunks: what is read, and what it takes."""
    import natgrad as ng

    rng = np.random.default_rng(0)
    x = rng.normal(size=(n + 1_000, 3))
    data = {"a": x[:, 0], "b": x[:, 1], "y": x @ [1.0, -2.0, 0.0] + rng.normal(size=len(x))}
    w, tau = ng.MultivariateNormal("w", 0.0, 1.0, size=2), ng.Gamma("tau", 1.0, 1.0)
    y = ng.Normal("y", ng.dot(ng.Columns("a", "b"), w), tau, plate=ng.Plate("row"), observed=ng.Column("y"))
    begin = time.process_time()
    fit = ng.Network(y).fit({k: v[:n] for k, v in data.items()}, chunk_rows=10_000, verbose=False, backend="numpy")
    first = time.process_time() - begin
    begin = time.process_time()
    more = fit.update({k: v[n:] for k, v in data.items()}, verbose=False)
    added = time.process_time() - begin
    begin = time.process_time()
    less = more.forget(np.arange(5_000, 5_100), verbose=False)
    removed = time.process_time() - begin
    words = (
        f"{fit.problem.source.n_read} chunks read by the fit ({first:.2f} s), "
        f"{more.problem.source.n_read} by update ({added:.2f} s), "
        f"{less.problem.source.n_read} by forget ({removed:.2f} s)"
    )
    return {"seconds": [first, added, removed], "peak_MB": peak(), "words": words}


def drift(n: int) -> dict[str, Any]:
    """A stream of ``n`` batches of 50 rows whose mean jumps twice: root mean squared error of the mean after each batch."""
    import natgrad as ng

    def network() -> Any:
        mu, tau = ng.Normal("mu", 0.0, 0.01), ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("y", mu, tau, plate=ng.Plate("row"), observed=ng.Column("y")))

    rng = np.random.default_rng(7)
    truth = np.select([np.arange(n) < n // 3, np.arange(n) < 2 * n // 3], [0.0, 3.0], 2.0)
    batches = [{"y": level + rng.normal(size=50)} for level in truth]
    ways: dict[str, dict[str, Any]] = {f"forgetting {rate}": {"forgetting": rate} for rate in (0.0, 0.1, 0.5, 0.9)}
    ways['drift="auto"'] = {"drift": "auto"}
    errors: dict[str, list[float]] = {}
    for name, how in ways.items():
        fit = network().fit(batches[0], verbose=False)
        found = [float(fit["mu"].mean())]
        for batch in batches[1:]:
            fit = fit.update(batch, verbose=False, **how)
            found.append(float(fit["mu"].mean()))
        errors[name] = np.abs(np.array(found) - truth).tolist()
    jumps = [n // 3, 2 * n // 3]
    after = [t for jump in jumps for t in range(jump, min(jump + 3, n))]
    still = [t for t in range(n) if t not in after and t > 0]
    rms = {
        name: [float(np.sqrt(np.mean(np.square([own[t] for t in times])))) for times in (after, still)]
        for name, own in errors.items()
    }
    words = "; ".join(f"{name}: {a:.3f} after jumps, {b:.3f} elsewhere" for name, (a, b) in rms.items())
    return {"errors": errors, "peak_MB": peak(), "words": words}


# -- two workers --


def workers(n: int) -> dict[str, Any]:
    """Rows a second of two Dask workers against two threads, seconds of the wall; chunks in memory."""
    import distributed
    from binding_sizes import CENTRES, factorisation, mixture, ratings, whole_points

    import natgrad as ng

    y, data = whole_points(n), ratings(n)  # half a second a step, or more
    columns = map(ng.Column, ("user", "item", "value"))
    cases = {
        "mixture": (
            mixture(ng.Plate("row"), ng.Columns("a", "b")),
            {"a": y[:, 0], "b": y[:, 1]},
            {"mu": CENTRES + 0.3},
        ),
        "factorisation": (factorisation(ng.Plate("row"), ng.Plate("user"), ng.Plate("item"), *columns), data, "random"),
    }
    ratios = {}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        for name, (network, table, start) in cases.items():
            seconds = []
            for executor in (None, cluster):
                at: list[float] = []
                network.fit(
                    table, ng.VB(), chunk_rows=CHUNK, init=start, max_steps=6, tol=0.0,
                    verbose=False, executor=executor, callbacks=[lambda p, at=at: at.append(time.perf_counter())],
                )  # fmt: skip
                seconds.append(float(np.median(np.diff(at)[1:])))
            ratios[name] = (seconds[0] / seconds[1], *seconds)
    words = "; ".join(
        f"{k}: {r:.2f} of two threads ({a:.2f} s and {b:.2f} s a pass)" for k, (r, a, b) in ratios.items()
    )
    return {"ratios": ratios, "peak_MB": peak(), "words": words}


def come_and_go(n: int) -> dict[str, Any]:
    """A tenth of the rows added and removed in 100 random pieces, against a refit from the same state."""
    import natgrad as ng

    data = ratings(n)
    columns = map(ng.Column, ("user", "item", "value"))
    network = factorisation(ng.Plate("row"), ng.Plate("user"), ng.Plate("item"), *columns)
    rng = np.random.default_rng(3)
    options: dict[str, Any] = {"verbose": False, "tol": 1e-6}
    fit = network.fit({k: v[: n - n // 10] for k, v in data.items()}, init="random", **options)
    pieces = iter(np.array_split(rng.permutation(np.arange(n - n // 10, n)), 50))
    for comes in rng.permutation(np.repeat([True, False], 50)):
        if comes:
            piece = next(pieces)
            fit = fit.update({k: v[piece] for k, v in data.items()}, **options)
        else:
            rows = len(fit.binding.tables["row"].cells("user"))
            fit = fit.forget(rng.choice(rows, n // 500, replace=False), **options)
    left = fit.binding.tables["row"]
    start = {name: fit[name].mean() for name in ("u", "v")}
    refit = network.fit({k: left.cells(k) for k in data}, init=start, max_steps=3000, verbose=False, tol=1e-8)
    after = fit.continue_fit(max_steps=3000, tol=1e-8, verbose=False)
    apart = abs(after.elbo - refit.elbo) / abs(refit.elbo)
    return {
        "apart": apart,
        "peak_MB": peak(),
        "words": f"100 pieces; bound apart from that of a refit by {apart:.1e} (relative)",
    }


LINES = {function.__name__: function for function in (serving, touched, come_and_go, drift, workers)}
