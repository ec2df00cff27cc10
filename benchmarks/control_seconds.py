"""The default and plain full VB in seconds, and what a sweep and a message cost; alone on the machine, all threads.

Here runs are made in this process, one after the other, with as many threads as there are cores.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from control_data import TITLES, load_ratings
from control_runs import CACHE, Record, Run, perform
from control_tables import best_of, number, spread, table, to_within, write

import natgrad as ng

References = dict[tuple[str, int], tuple[list[Record], list[Record]]]
ORDER = ("v", "u")
REPEATS = 9


def measure_seconds(options: argparse.Namespace, references: References) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    rows = [fit_row(key, known, options, records) for key, known in references.items()]
    costs, ratio = cost_rows(options)
    body = [
        "Seconds of the steps, as the trace has them, without reading the data, sorting the ratings and compiling; median "
        "and range over the starts. The best bound is that of the long runs in `control-sweeps.md`. Plain VB is cut short: "
        "its seconds are the median sweeps to 1 % and 0.1 % of the long runs times the median seconds of a sweep.",
        "",
        *table(list(rows[0]), [list(row.values()) for row in rows]),
        *table(list(costs[0]), [list(row.values()) for row in costs]),
        f"Costs: {TITLES['paper']}, K = 5; sweeps are medians of {REPEATS} after a warm-up, bound included; sampled steps over "
        "about one and a half sweeps' worth with their draws, checks and no other bound. *Ratio*: the network's scalar sweep to "
        f"the compiled one, {ratio:.3g}.",
        "",
    ]  # fmt: skip
    write("seconds", "Seconds", body, {"fits": rows, "costs": costs, "ratio": ratio}, records, options.quick)


def fit_row(key: tuple[str, int], known: Any, options: argparse.Namespace, records: list[Record]) -> dict[str, object]:
    (data, K), (default, plain) = key, known
    best = best_of([*default, *plain])
    here = Run(data, n_factors=K, sweeps=40.0, threads=0, quick=options.quick)
    perform_once(Run(**{**vars(here), "sweeps": 1.0, "seed": 99}), fresh=True)  # compiles
    mine = [perform_once(Run(**{**vars(here), "seed": record["run"]["seed"]})) for record in default]
    records += mine
    row = {"data": data, "K": K, "default to 1 %, s": _seconds(mine, best, 1), "to 0.1 %, s": _seconds(mine, best, 0.1)}
    row["s a sweep"] = number(float(np.median([np.median(np.diff(record["seconds"])) for record in mine])))
    if not plain:
        return row | {"plain VB to 1 %, s": "–", "VB to 0.1 %, s": "–", "VB s a sweep": "–"}
    timed = perform_once(Run(**{**vars(here), "method": "vb"}))
    records.append(timed)
    sweep = float(np.median(np.diff(timed["seconds"])))
    for name, percent in (("plain VB to 1 %, s", 1), ("VB to 0.1 %, s", 0.1)):
        sweeps = float(np.median([to_within(record, best, percent) for record in plain]))
        row[name] = number(sweep * sweeps, most=round(sweep * plain[0]["spent"], 1))
    return row | {"VB s a sweep": number(sweep)}


def perform_once(run: Run, fresh: bool = False) -> Record:
    return json.loads(run.path.read_text()) if run.path.exists() and not fresh else perform(run)


def _seconds(records: list[Record], best: float, percent: float) -> str:
    return spread([to_within(record, best, percent, "seconds") for record in records])


# -- costs --


def cost_rows(options: argparse.Namespace) -> tuple[list[dict[str, object]], float]:
    from natgrad.demo import factorisation
    from natgrad.models.factorization.scalar_problem import RatingsProblem
    from natgrad.network.start.initial import make_start

    ratings = load_ratings("paper", options.quick)
    full, problem = 2 * 5 * len(ratings), RatingsProblem(ratings, 5)
    network = factorisation(ratings).problem
    start, begin = problem.start(0), make_start(network, "random", 0)
    seconds = {
        "full sweep": timed(lambda: problem.sweep(start, ORDER)),
        "joint sweep (the default's)": timed(lambda: problem.sweep_jointly(start, ORDER)),
        "full sweep of the declared network": timed(lambda: network.sweep(begin, ORDER, 1.0)),
    }
    rows = [cost_row(name, value, full) for name, value in seconds.items()]
    edge = problem.messages.n_bytes / len(ratings)
    for name, method, step in (
        ("remembered messages, Children(1, a)", ng.Children(1), ng.Auto()),
        ("remembered messages, GlobalBatch(1000, a)", ng.inference.GlobalBatch(1000), ng.Auto()),
        ("per-node steps, Children(1, a)", ng.Children(1), ng.inference.PerNode()),
        ("per-node steps, GlobalBatch(1000, a)", ng.inference.GlobalBatch(1000), ng.inference.PerNode()),
    ):
        model = ng.MatrixFactorization(
            5, biases=False, learn_noise=False, learn_priors=False, factorized=True,
            method=method, step=step, tol=0, max_steps=10**8, max_messages=round(1.5 * full), bound_every=10**8,
            verbose=False,
        ).fit(ratings)  # fmt: skip
        spent, read = (np.ptp(model.trace_[column]) for column in ("seconds", "messages_read"))
        kept = f"{edge:.0f}" if isinstance(step, ng.Auto) else "0"
        rows.append(cost_row(name, float(spent / read * full), full, kept))
    ratio = seconds["full sweep of the declared network"] / seconds["full sweep"]
    return rows, ratio


def cost_row(name: str, seconds: float, full: int, kept: str = "0") -> dict[str, object]:
    return {
        "what": name,
        "s for a sweep's worth": number(seconds),
        "ns a message": number(1e9 * seconds / full),
        "bytes kept a rating": kept,
    }


def timed(call: Callable[[], Any]) -> float:
    """The median seconds of a call after a warm-up."""
    call()
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return float(np.median(found))
