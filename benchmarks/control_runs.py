"""The settings of runs in, their bounds against messages out; each finished run is kept in a small file and never repeated.

A record holds the exact bound wherever it was evaluated, against messages in full sweeps: a message is one pair of a hidden
variable and a child, and a full sweep of a factorisation has 2·K·|R| of them. Evaluations of the bound for the record are not
counted.
"""

import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from control_data import ROOT, load_ratings

import natgrad as ng
from natgrad.reproduce.paquet_runs import declare

CACHE = ROOT / ".bench" / "control"
# Each process computes with one thread, so that two of them share two cores; read when Numba and XLA are first used.
ONE_THREAD = {
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One fit. ``first`` > 0 means Robbins–Monro steps, otherwise `Auto`, or exact ones for full VB."""

    data: str
    method: str = "default"  # default, vb, children, batch, svi
    size: int = 0  # C, or the batch; of svi, the most local iterations
    option: str = "a"
    kappa: float = 0.0
    first: float = 0.0
    rotate: bool = True
    n_factors: int = 5
    seed: int = 0
    sweeps: float = 5.0  # messages allowed, in full sweeps
    longer: tuple[float, ...] = ()  # allowed instead, one after the other, as long as the bound is below the goal
    every: float = 0.1  # sweeps between bounds; 0 is "log"
    tol: float = 0.0
    threads: int = 1
    quick: bool = False
    goal: float = -math.inf  # follows from other runs, and is no part of the key

    @property
    def path(self) -> Path:
        settings = {name: value for name, value in asdict(self).items() if name != "goal"}
        what = json.dumps({"version": ng.__version__, **settings}, sort_keys=True)
        key = hashlib.sha256(what.encode()).hexdigest()[:12]
        return CACHE / f"{self.data}-{self.method}{self.size or ''}-{key}.json"

    def how(self) -> tuple[Any, Any]:
        """The method and the step, as the library takes them."""
        methods = {"default": lambda: None, "vb": ng.VB}
        methods["children"] = lambda: ng.Children(self.size, self.option)
        methods["batch"] = lambda: ng.inference.GlobalBatch(self.size, self.option)
        if self.first > 0:
            return methods[self.method](), ng.inference.RobbinsMonro(first=self.first, forgetting=self.kappa)
        return methods[self.method](), None if self.method in ("default", "vb") else ng.Auto(rotate=self.rotate)


def execute(runs: list[Run], jobs: int, words: str = "") -> list[Record]:
    """The records of all runs, in their order; those without a file are computed, ``jobs`` at a time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    missing = [run for run in dict.fromkeys(runs) if not run.path.exists()]
    if missing:
        print(f"{words}: {len(missing)} of {len(set(runs))} runs to do", file=sys.stderr, flush=True)
        # Long ones first, so that the last process to end is not alone for long.
        missing.sort(key=lambda run: (run.data, -run.sweeps))
        began = time.perf_counter()
        waiting = {_pool(jobs).submit(perform, run): run for run in missing}
        for number, done in enumerate(as_completed(waiting), 1):
            run, record = waiting[done], done.result()
            spent = time.perf_counter() - began
            print(f"  {number}/{len(missing)} {spent:.0f} s  {run.path.stem}: {record['words']}", file=sys.stderr)
    return [json.loads(run.path.read_text()) for run in runs]


@lru_cache(maxsize=1)
def _pool(jobs: int) -> ProcessPoolExecutor:
    """Processes that live on: importing, compiling and reading data take seconds."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_use_one_thread)


def _use_one_thread() -> None:
    os.environ.update(ONE_THREAD)


def perform(run: Run) -> Record:
    """Compute one run and keep its record."""
    began, used = time.perf_counter(), time.process_time()
    record = _ratings_run(run)
    record |= {
        "run": asdict(run),
        "wall_seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - used,
        "source": source(),
    }
    partial = run.path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(record))
    partial.rename(run.path)
    return record


@lru_cache(maxsize=1)
def source() -> str:
    """Eight digits that change with the library's code."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src" / "natgrad").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def _ratings_run(run: Run) -> Record:
    ratings = load_ratings(run.data, run.quick)
    method, step = run.how()
    full = 2 * run.n_factors * len(ratings)
    per_step = {"children": run.size * run.n_factors * (ratings.n_users + ratings.n_items)}
    per_step["batch"] = 2 * run.n_factors * run.size
    every = max(1, round(run.every * full / per_step.get(run.method, full))) if run.every else "log"
    options = {"bound_every": every} if run.method in per_step else {}
    for sweeps in (run.sweeps, *run.longer):
        limits = {"tol": run.tol, "max_steps": 10**6, "max_messages": round(sweeps * full)}
        fit = declare(ratings, run.n_factors).fit(
            method, step=step, init="random", order=["u", "v"], seed=run.seed, verbose=False, **limits, **options
        )
        if fit.elbo >= run.goal or fit.stop.diverged:
            break
    means = np.concatenate([np.ravel(fit[name].mean()) for name in "uv"])
    return _record(fit.trace, fit.elbo, fit.stop, full) | {"finite_means": bool(np.isfinite(means).all())}


def _record(trace: Any, elbo: float, stop: Any, full: int) -> Record:
    bound, messages, seconds = trace["elbo"], trace["messages_read"], trace["seconds"]
    seen = np.isfinite(bound)
    curve = [(a / full, b, s) for a, b, s in zip(messages[seen], bound[seen], seconds[seen], strict=True)]
    spent = float(messages[-1]) / full if len(messages) else 0.0
    if math.isfinite(elbo) and len(messages) and not seen[-1]:
        curve.append((spent, elbo, float(seconds[-1])))
    sweeps, bounds, times = (list(map(float, column)) for column in zip(*curve, strict=True)) if curve else ([], [], [])
    return {
        "sweeps": sweeps,
        "elbo": bounds,
        "seconds": times,
        "end": elbo if math.isfinite(elbo) else None,
        "spent": spent,
        "steps": len(messages),
        "diverged": stop.diverged,
        "words": str(stop),
        "choice": trace.strategy,
    }
