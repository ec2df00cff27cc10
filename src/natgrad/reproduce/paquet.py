"""Ratings in; the figures of Paquet (2014) and a table of what converged from where out: `natgrad reproduce paquet`.

Every setting is first run from ρ₁ = 1, then from ½, ¼, … until a run is steady. A run

    diverged      if the guard stopped it, or its last bound is below its first;
    converged     if it did not diverge and its last bound is above that of the prior, which has read nothing;
    is unfinished otherwise: neither lost nor arrived within its accesses;
    is steady     if it did not diverge and its bound never fell to twice its first (bounds are negative).

A run that falls at first and comes back has converged; from where it does not even fall is said in a column of its own.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import NamedTuple

from natgrad.data.ratings import Ratings
from natgrad.inference.methods import Option
from natgrad.network.execute.problem import NetworkProblem
from natgrad.reproduce.paquet_runs import Outcome, Setting, Shelf, Trial, compute, declare, fingerprint, prior_bound
from natgrad.threads import at_most

__all__ = ["FULL", "QUICK", "Finding", "Findings", "Plan", "findings", "run_experiment"]

OPTIONS: tuple[Option, Option] = ("a", "b")
Watch = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which settings, and how many full sweeps' worth of accesses each of their runs may have."""

    children: tuple[int, ...] = tuple(range(1, 21))
    batches: tuple[int, ...] = tuple(range(100, 1001, 100))
    children_sweeps: float = 10
    batch_sweeps: float = 1
    vb_sweeps: float = 50
    most_halvings: int = 12
    seed: int = 0

    def first_trials(self) -> list[Trial]:
        """Every setting from ρ₁ = 1; those with the most steps to take first, so that none is left alone at the end."""
        batches = [Setting(2, option, size) for size in self.batches for option in OPTIONS]
        children = [Setting(1, option, size) for size in self.children for option in OPTIONS]
        sweeps = {0: self.vb_sweeps, 1: self.children_sweeps, 2: self.batch_sweeps}
        return [Trial(s, 0, sweeps[s.algorithm], self.seed) for s in [Setting(0), *batches, *children]]

    def seeded(self, seed: int) -> Plan:
        """The same with another seed."""
        return replace(self, seed=seed)

    def fitted_to(self, ratings: Ratings) -> Plan:
        """The same without batches larger than the data."""
        return replace(self, batches=tuple(size for size in self.batches if size <= len(ratings.values)))


FULL = Plan()
QUICK = Plan(children=(1, 2, 5, 10, 20), batches=(100, 500, 1000), children_sweeps=8, batch_sweeps=1, vb_sweeps=30)


class Finding(NamedTuple):
    """What is known of a setting.

    ``largest`` is the j of the largest ρ₁ = 2^−j that converged, ``steady`` of the largest that did so without a fall; None
    if there was none.
    """

    setting: Setting
    runs: Mapping[int, Outcome]
    largest: int | None
    steady: int | None

    @property
    def tuned(self) -> Outcome | None:
        """The run from the largest ρ₁ that converged."""
        return None if self.largest is None else self.runs[self.largest]


Findings = dict[Setting, Finding]


def verdict(outcome: Outcome, prior: float) -> str:
    """``diverged``, ``converged`` or ``unfinished``, as the module says."""
    if lost(outcome):
        return "diverged"
    return "converged" if outcome.end > prior else "unfinished"


def lost(outcome: Outcome) -> bool:
    """Whether the guard stopped the run, or it ended below its start."""
    return outcome.diverged or not outcome.end >= outcome.start


def steady(outcome: Outcome) -> bool:
    """Whether the bound never fell to twice its start; then no smaller ρ₁ is tried."""
    return not lost(outcome) and bool(outcome.bound.min() > 2.0 * outcome.start)


def following(trial: Trial, outcome: Outcome, most_halvings: int) -> Trial | None:
    """The same setting with half the ρ₁, if there is anything left to learn."""
    if trial.setting.algorithm == 0 or steady(outcome) or trial.halvings >= most_halvings:
        return None
    return replace(trial, halvings=trial.halvings + 1)


def findings(outcomes: Mapping[Trial, Outcome], prior: float) -> Findings:
    """What the runs say of each setting, in the order of the figures."""
    by_setting: dict[Setting, dict[int, Outcome]] = {}
    for trial in sorted(outcomes, key=lambda t: (t.setting.algorithm, t.setting.size, t.setting.option, t.halvings)):
        by_setting.setdefault(trial.setting, {})[trial.halvings] = outcomes[trial]
    summaries = {}
    for setting, runs in by_setting.items():
        good = [j for j, run in runs.items() if verdict(run, prior) == "converged"]
        calm = [j for j in good if steady(runs[j])]
        summaries[setting] = Finding(setting, runs, min(good, default=None), min(calm, default=None))
    return summaries


def run_experiment(
    ratings: Ratings, plan: Plan, folder: Path, *, jobs: int = 1, watch: Watch | None = None
) -> Findings:
    """Run what is not in the folder yet, and say what is known of every setting.

    Parameters
    ----------
    ratings : Ratings
    plan : Plan
    folder : Path
        Where finished runs are kept, one file each. A second call reads them.
    jobs : int
        Processes; 1 runs everything in this one.
    watch : function of (settings finished, settings in all, what just ended)
        Called after every run.
    """
    plan = plan.fitted_to(ratings)
    shelf = Shelf(folder, fingerprint(ratings))
    outcomes: dict[Trial, Outcome] = {}
    done = 0
    trials = plan.first_trials()
    results = _results(ratings, deque(trials), shelf, plan.most_halvings, jobs)
    for trial, outcome, last in results:
        outcomes[trial] = outcome
        done += last
        if watch is not None:
            watch(done, len(trials), trial.setting.name)
    return findings(outcomes, prior_bound(ratings))


def _results(
    ratings: Ratings, waiting: deque[Trial], shelf: Shelf, most_halvings: int, jobs: int
) -> Iterator[tuple[Trial, Outcome, bool]]:
    """Every trial with its outcome, and whether it was the last of its setting; those on the shelf without running them."""
    running: dict[Future[Outcome], Trial] = {}
    pool: Executor | None = None
    others = set(active_children())
    try:
        while waiting or running:
            ended: list[tuple[Trial, Outcome]] = []
            while waiting and len(running) < jobs:
                trial = waiting.popleft()
                kept = shelf.get(trial)
                if kept is not None:
                    ended.append((trial, kept))
                    break
                pool = pool or _pool(ratings, jobs)
                running[pool.submit(_work, trial, shelf)] = trial
            if not ended:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                ended = [(running.pop(future), future.result()) for future in finished]
            for trial, outcome in ended:
                after = following(trial, outcome, most_halvings)
                # The scan of one setting goes on at once: it is the longest chain of runs that wait for one another.
                waiting.extendleft([] if after is None else [after])
                yield trial, outcome, after is None
    except KeyboardInterrupt:
        # A run may take a minute more. Whatever is finished is on the shelf, whole; the rest can go.
        for worker in set(active_children()) - others:
            worker.terminate()
        raise
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


# -- in the workers --

# The problem of a worker, made once from the ratings that its pool was started with.
_HERE: dict[str, NetworkProblem] = {}


def _pool(ratings: Ratings, jobs: int) -> Executor:
    if jobs == 1:
        return ThreadPoolExecutor(1, initializer=_begin, initargs=(ratings, False))
    # Spawned, not forked: the parent has threads of its own (BLAS, JAX, Numba).
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(ratings, True))


def _begin(ratings: Ratings, alone: bool) -> None:
    """Hand the data to a worker once."""
    _HERE["problem"] = declare(ratings).problem
    if alone:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers, without their tracebacks


def _work(trial: Trial, shelf: Shelf) -> Outcome:
    # A worker that has a process to itself keeps to one core.
    with at_most(None if parent_process() is None else 1):
        outcome = compute(_HERE["problem"], trial)
    shelf.put(trial, outcome)
    return outcome
