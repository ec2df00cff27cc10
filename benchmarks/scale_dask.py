"""A Dask cluster of two worker processes against this process: what a step costs more, throughput, and workers that die.

    python benchmarks/scale_dask.py                   # some minutes
    python benchmarks/scale_dask.py overhead          # one of overhead, throughput, killed

overhead      `solve` of a batch that touches 1 % of the words of a 100 MB λ, on two workers less here in two threads
throughput    steps of about half a second: two workers of one thread each against two local threads
killed        a worker killed with SIGKILL at 20 random moments of a fit: the topics must be the same bits
Results: ``benchmarks/results/scale-dask.md`` and ``.json``.
"""

import argparse
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sparse
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_limits

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.executors.threads import Dask, place_shards
from natgrad.inference.step_sizes import RobbinsMonro
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.models.lda import problem as lda_problem
from natgrad.models.lda.problem import LDAProblem, Local
from natgrad.threads import at_most

RESULTS = Path(__file__).resolve().parent / "results"


def cluster() -> LocalCluster:
    return LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0)


def documents(n: int, n_words: int, length: int, seed: int = 0, among: int | None = None) -> sparse.csr_array:
    """Documents of different words, Zipf-like, among the first ``among``."""
    rng = np.random.default_rng(seed)
    among = n_words if among is None else among
    words = np.minimum((among ** rng.random((n, length))).astype(np.int64), among) - 1
    rows = np.repeat(np.arange(n), length)
    table = sparse.coo_array((np.ones(n * length), (rows, words.ravel())), shape=(n, n_words)).tocsr()
    table.sum_duplicates()
    return table


def overhead() -> dict[str, float]:
    """λ of 131,072 words and 100 topics; a batch of documents of 1,311 different words."""
    n_words, n_topics, repeats = 131_072, 100, 30
    # Every word of the hundredth part occurs, and a part has a tenth of a second of work.
    X = documents(400, n_words, 200, among=n_words // 100) + sparse.csr_array(
        (np.ones(n_words // 100), (np.arange(n_words // 100) % 400, np.arange(n_words // 100))), shape=(400, n_words)
    )
    corpus = as_corpus(X)
    problem = LDAProblem(corpus, np.full(n_topics, 0.1), 0.05, Local(dtype=np.float32, limit=2))
    state = problem.start(0)
    lda_problem.PART, lda_problem.PART_PER_WORD = len(corpus.words) // 2, 0
    groups, limits = np.arange(len(corpus)), problem.local_limits
    seconds: dict[str, list[float]] = {}
    with cluster() as made:
        dask = Dask(made)
        for name, executor in (("threads", None), ("dask", dask)):
            with as_in_a_fit(), place_shards(problem, executor, len(corpus)):
                taken = []
                for _ in range(repeats):
                    begin = time.perf_counter()
                    problem.solve(state, groups, None, *limits)
                    taken.append(time.perf_counter() - begin)
                seconds[name] = taken[5:]
                if name == "dask":
                    begin = time.perf_counter()
                    GroupStepper(problem, len(corpus), *limits, RobbinsMonro(), remember=False).step(state, 0)
                    step = time.perf_counter() - begin
        dask.close()
    touched = len(np.unique(corpus.words))
    return {
        "lambda_bytes": float(state.lam["phi"][0].nbytes), "touched": touched / n_words,
        "threads_s": median(seconds["threads"]), "dask_s": median(seconds["dask"]),
        "overhead_s": median(seconds["dask"]) - median(seconds["threads"]), "whole_step_s": step,
    }  # fmt: skip


@contextmanager
def as_in_a_fit() -> Iterator[None]:
    """Two threads of compiled loops and one of matrix products, as in every fit: more would be in the way of the workers."""
    with at_most(2), threadpool_limits(1, user_api="blas"):
        yield


def lda_steps(executor: object, X: sparse.csr_array) -> Iterator[float]:
    """The seconds of one step after the other."""
    corpus = as_corpus(X)
    problem = LDAProblem(corpus, np.full(100, 0.1), 0.05, Local(dtype=np.float32, skip=1e-4))
    state, size = problem.start(0), len(corpus) // 4
    stepper = GroupStepper(problem, size, *problem.local_limits, RobbinsMonro(delay=4.0), remember=False)
    with as_in_a_fit(), place_shards(problem, executor, size):
        while True:
            begin = time.perf_counter()
            state, _ = stepper.step(state, 0)
            yield time.perf_counter() - begin


def factor_steps(executor: object, ratings: ng.data.Ratings) -> Iterator[float]:
    from natgrad.models.factorization.problem import FullRatingsProblem, RatingPriors

    problem = FullRatingsProblem(ratings, 15, RatingPriors())
    state = problem.start(0)
    with as_in_a_fit(), place_shards(problem, executor):
        while True:
            begin = time.perf_counter()
            state = problem.sweep(state, problem.order).state
            yield time.perf_counter() - begin


def throughput() -> dict[str, dict[str, float]]:
    """Steps here and there in turn, so that a busy minute of the machine hits both; the least of each."""
    rng = np.random.default_rng(0)
    n_users, n_items, n = 14_000, 7_000, 14_000_000
    pairs = np.unique(rng.integers(0, n_users * n_items, n))
    ratings = ng.data.Ratings(
        pairs // n_items, pairs % n_items, rng.normal(size=len(pairs)), shape=(n_users, n_items), duplicates="keep"
    )
    found = {}
    with cluster() as made:
        dask = Dask(made)
        cases = (("LDA", lda_steps, documents(100_000, 8_000, 120)), ("factorisation", factor_steps, ratings))
        for name, steps, data in cases:
            here, there = steps(None, data), steps(dask, data)
            # The first step of each places data and compiles.
            taken = [(next(here), next(there)) for _ in range(14)][1:]
            threads, workers = (min(column) for column in zip(*taken, strict=True))
            middle = [median(column) for column in zip(*taken, strict=True)]
            found[name] = {
                "threads_s": threads, "dask_s": workers, "ratio": threads / workers,
                "median_threads_s": middle[0], "median_dask_s": middle[1],
            }  # fmt: skip
            here.close()
            there.close()
        dask.close()
    return found


def alive(made: LocalCluster, client: Client) -> list[int]:
    """The processes of two workers or more; one that its nanny does not bring back within ten seconds is replaced."""
    until = time.perf_counter() + 10.0
    while len(pids := list(client.run(os.getpid, on_error="ignore").values())) < 2:
        if time.perf_counter() > until:
            made.scale(len(made.worker_spec) + 1)
            until += 10.0
        time.sleep(0.2)
    return pids


def killed() -> dict[str, float]:
    """An LDA fit of 80 steps: here, on the cluster, and on the cluster while workers are killed, until 20 were."""
    X, kills, rng = documents(6_000, 2_000, 60), 20, np.random.default_rng(0)
    lda_problem.PART, lda_problem.PART_PER_WORD = 5_000, 0
    settings = {"n_topics": 20, "max_passes": 8, "tol": 0.0, "local": ng.LocalOptions(batch_size=600), "verbose": False}
    here = ng.LDA(**settings).fit(X)
    seconds = {}
    wrong = 0
    with cluster() as made, Client(made) as client:
        for name in ("calm", "killed"):
            ended, dead = threading.Event(), []

            def kill(ended: threading.Event = ended, dead: list[float] = dead) -> None:
                begin = time.perf_counter()
                gaps = rng.exponential(max(seconds["calm"] / kills, 4.0), kills)
                for gap in gaps:
                    if ended.wait(float(gap)):
                        return
                    pids = alive(made, client)
                    os.kill(int(rng.choice(pids)), signal.SIGKILL)
                    dead.append(time.perf_counter() - begin)

            killer = threading.Thread(target=kill, daemon=True)
            begin = time.perf_counter()
            if name == "killed":
                killer.start()
            runs = 0
            while runs == 0 or (name == "killed" and len(dead) < kills):
                there = ng.LDA(**settings, inference="vb", executor=Dask(made)).fit(X)
                wrong += not np.array_equal(there.components_, here.components_)
                runs += 1
            seconds[name] = (time.perf_counter() - begin) / runs
            ended.set()
    return {
        "kills": len(dead), "fits": runs, "wrong": wrong, "steps": len(there.trace_), "calm_s": seconds["calm"],
        "killed_s": seconds["killed"], "seconds_per_kill": (seconds["killed"] - seconds["calm"]) * runs / len(dead),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="of overhead, throughput, killed")
    what = parser.parse_args().what or ["overhead", "throughput", "killed"]
    file = RESULTS / "scale-dask.json"
    for name in what:
        part = lda_problem.PART, lda_problem.PART_PER_WORD
        measured = {"overhead": overhead, "throughput": throughput, "killed": killed}[name]()
        lda_problem.PART, lda_problem.PART_PER_WORD = part
        print(name, json.dumps(measured, indent=1), flush=True)
        found = json.loads(file.read_text()) if file.exists() else {}
        found |= {name: measured, "machine": {"cores": os.cpu_count(), "python": platform.python_version()}}
        file.write_text(json.dumps(found, indent=1))
        (RESULTS / "scale-dask.md").write_text(table(found))


def table(found: dict[str, dict]) -> str:
    rows = []
    if "overhead" in found:
        o = found["overhead"]
        rows.append(
            f"| one step more than in threads, λ of {o['lambda_bytes'] / 1e6:.0f} MB of which {100 * o['touched']:.1f} % is "
            f"touched | {1000 * o['overhead_s']:.0f} ms | ≤ 50 ms |"
        )
    for name, r in found.get("throughput", {}).items():
        rows.append(
            f"| {name}: throughput against two threads, steps of {r['threads_s']:.2f} s | {r['ratio']:.2f} (medians: "
            f"{r['median_threads_s'] / r['median_dask_s']:.2f}) | ≥ 0.8 |"
        )
    if "killed" in found:
        k = found["killed"]
        rows.append(
            f"| wrong results of {k['fits']} fits of {k['steps']} steps in which {k['kills']} workers were killed | {k['wrong']} "
            "| 0 |"
        )
        rows.append(
            f"| time of such a fit ({k['calm_s']:.1f} s without) | {k['killed_s']:.1f} s, {k['seconds_per_kill']:.1f} s for each "
            "worker killed | |"
        )
    return "| two worker processes, one machine | measured | wanted |\n|---|---|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
