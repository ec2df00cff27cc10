"""What internet scale would take: 10⁹ documents, 10¹⁰ ratings; a model of a step, calibrated by measurements on this machine.

    python benchmarks/scale_model.py                # measures for a minute, then computes
    python benchmarks/scale_model.py --again        # computes with what was measured before

A step of W workers with n threads each takes

    entries / (rate · W · n)  +  numbers of λ · driver  +  tasks · overhead  +  bytes / bandwidth

rate (entries or ratings a second in one thread), driver (seconds for one number of λ: update, moments, weights) and overhead
(seconds for one task) are measured here; bandwidth and prices are assumptions, and are in the table as such. Words follow
Zipf's law: of n tokens in V words a part touches Σ_v 1 − (1 − p_v)ⁿ different ones, and only their rows travel. The number of
steps that SVI takes to come within 1 % of its final bound is measured, too: it depends on the batch, not on how many documents
there are.
Results: ``benchmarks/results/scale-model.md`` and ``.json``.
"""

import argparse
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.step_sizes import RobbinsMonro
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.models.factorization.problem import FullRatingsProblem, RatingPriors
from natgrad.models.lda.problem import LDAProblem, Local
from natgrad.threads import at_most

RESULTS = Path(__file__).resolve().parent / "results"
# Assumed, not measured: bytes a second into and out of the machine that drives, and the price of a core for an hour.
BANDWIDTH, PRICE = 1.2e9, 0.04


def zipf(n_words: int) -> np.ndarray:
    """The probability of the words, by rank."""
    weight = 1.0 / np.arange(1, n_words + 1)
    return weight / weight.sum()


def touched(n_words: int, tokens: float) -> float:
    """Different words among so many tokens."""
    return float((1.0 - np.exp(tokens * np.log1p(-zipf(n_words)))).sum())


def documents(n: int, n_words: int, length: int, n_topics: int, seed: int) -> object:
    """Documents of a few topics each, whose words follow Zipf's law, each topic with an order of its own."""
    rng = np.random.default_rng(seed)
    orders = np.stack([np.random.default_rng([9, k]).permutation(n_words) for k in range(n_topics)])
    topic = rng.integers(0, n_topics, (n, 3))[np.arange(n)[:, None], rng.integers(0, 3, (n, length))]
    words = orders[topic, rng.choice(n_words, (n, length), p=zipf(n_words))]
    table = np.stack([np.repeat(np.arange(n), length), words.ravel()], 1)
    import scipy.sparse as sparse

    return sparse.coo_array((np.ones(len(table)), table.T), shape=(n, n_words)).tocsr()


def lda_rates() -> dict[str, float]:
    """Entries a second in one thread with 100 topics, and the rest of a step for each number of λ."""
    n_words, n_topics = 4_000, 100
    corpus = as_corpus(documents(3_000, n_words, 100, 20, 0))
    problem = LDAProblem(corpus, np.full(n_topics, 0.1), 0.05, Local(dtype=np.float32, skip=1e-4))
    state, groups = problem.start(0), np.arange(len(corpus))
    stepper = GroupStepper(problem, len(corpus), *problem.local_limits, RobbinsMonro(delay=4.0), remember=False)
    solving, whole = [], []
    with at_most(1):
        for _ in range(6):
            begin = time.perf_counter()
            problem.solve(state, groups, None, *problem.local_limits)
            solving.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            state, _ = stepper.step(state, 0)
            whole.append(time.perf_counter() - begin)
    # The two differ in the weights, made anew by a step, and the update; a busy machine may turn the order of the two.
    rest = max(min(whole[1:]) - min(solving[1:]), 1e-4)
    return {"rate": len(corpus.words) / min(solving[1:]), "driver": rest / (n_words * n_topics)}


def lda_steps() -> dict[str, float]:
    """Steps until the mean estimate of ten steps is within 1 % of the last one, with batches of 2 n and n documents."""
    found = {}
    for size in (250, 500):
        estimates = []
        model = ng.LDA(20, local=ng.LocalOptions(batch_size=size), verbose=False)
        for number in range(120):
            model.partial_fit(documents(size, 2_000, 80, 20, 1 + number), n_documents=1e6)
            estimates.append(model.elbo_)
        mean = np.convolve(estimates, np.ones(10) / 10, "valid")
        found[str(size)] = int(np.argmax(np.abs(mean - mean[-1]) < 0.01 * abs(mean[-1]))) + 10
    return found


def rating_rates() -> dict[str, float]:
    """Ratings a second in one thread, both sides updated, with 32 factors."""
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 3_000 * 1_000, 400_000))
    ratings = ng.data.Ratings(pairs // 1_000, pairs % 1_000, rng.normal(size=len(pairs)), shape=(3_000, 1_000))
    problem = FullRatingsProblem(ratings, 31, RatingPriors())
    state, taken = problem.start(0), []
    with at_most(1):
        for _ in range(4):
            begin = time.perf_counter()
            state = problem.sweep(state, problem.order).state
            taken.append(time.perf_counter() - begin)
    return {"rate": len(ratings) / min(taken[1:])}


@dataclass(frozen=True)
class Fleet:
    """Workers with so many threads each."""

    workers: int
    threads: int = 16

    @property
    def cores(self) -> int:
        return self.workers * self.threads


def lda_scale(measured: dict, fleet: Fleet) -> dict[str, float]:
    """10⁹ documents of 200 words, a vocabulary of 10⁵, 200 topics; a task for every thread."""
    n, length, n_words, n_topics = 1e9, 200, 100_000, 200
    # A thread gets half a minute of work, so that what does not run in parallel is a small part.
    rate = measured["lda"]["rate"] * 100 / n_topics
    batch = 30.0 * rate * fleet.cores / length
    rows = touched(n_words, batch * length / fleet.cores)
    moved = fleet.cores * rows * n_topics * 4 * 2  # rows of weights out, counts back, single precision
    parts = {
        "compute": batch * length / (rate * fleet.cores),
        "driver": n_words * n_topics * measured["lda"]["driver"],
        "tasks": fleet.cores * measured["overhead"],
        "network": moved / BANDWIDTH,
    }
    return _summed(parts, moved, batch, n / batch, max(measured["steps"].values()), fleet)


def rating_scale(measured: dict, fleet: Fleet) -> dict[str, float]:
    """10¹⁰ ratings of 10⁸ users and 10⁶ items, 32 factors, as a stream: users on workers, the sums for the items here.

    The measured rate is that of both sides; one takes half of the time.
    """
    n, n_users, n_items, size = 1e10, 1e8, 1e6, 32
    per_user, packed, rate = n / n_users, 8 * (size * (size + 1) / 2 + size), 2 * measured["ratings"]["rate"]
    batch = 30.0 * rate * fleet.threads / per_user
    rows = touched(int(n_items), batch * per_user / fleet.workers)
    # Ratings and vectors of items out, λ and moments of users back.
    moved = batch * per_user * 16 + fleet.workers * rows * packed + batch * 2 * packed
    parts = {
        "compute": batch * per_user / (rate * fleet.cores),
        "driver": batch * per_user / (rate * fleet.threads)
        + n_items * size * (size + 1) * measured["lda"]["driver"] / fleet.threads,
        "tasks": fleet.workers * measured["overhead"],
        "network": moved / BANDWIDTH,
    }
    return _summed(parts, moved, batch, n_users / batch, max(measured["steps"].values()), fleet)


def _summed(parts: dict, moved: float, batch: float, a_pass: float, steps: float, fleet: Fleet) -> dict[str, float]:
    step = sum(parts.values())
    return {
        "workers": fleet.workers, "threads": fleet.threads, "groups": batch, "bytes": moved, **parts, "step": step,
        "useful": parts["compute"] / step, "steps_to_settle": steps, "hours_to_settle": steps * step / 3600,
        "steps_of_a_pass": a_pass, "hours_of_a_pass": a_pass * step / 3600,
        "price_of_a_pass": a_pass * step / 3600 * fleet.cores * PRICE,
    }  # fmt: skip


def table(found: dict) -> str:
    m = found["measured"]
    lines = [
        f"Measured here: {m['lda']['rate'] / 1e6:.2f} million entries a second in one thread with 100 topics, "
        f"{1e9 * m['lda']['driver']:.0f} ns of the driver for a number of λ, {1000 * m['overhead']:.1f} ms for a task, "
        f"{m['ratings']['rate'] / 1e6:.2f} million ratings a second in one thread with 32 factors, "
        f"{max(m['steps'].values())} steps to settle. Assumed: {BANDWIDTH / 1e9:.1f} GB/s at the driver, {PRICE:.2f} $ for a "
        "core and an hour.",
        "",
        "| | workers × threads | groups in a step | moved in a step | step | computing | to settle | a pass | its price |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in found["scale"].items():
        lines += [
            f"| {name} | {r['workers']} × {r['threads']} | {r['groups']:,.0f} | {r['bytes'] / 1e9:.2f} GB | {r['step']:.1f} s | "
            f"{100 * r['useful']:.0f} % | {r['steps_to_settle']:.0f} steps, {60 * r['hours_to_settle']:.0f} min | "
            f"{r['steps_of_a_pass']:,.0f} steps, {r['hours_of_a_pass']:.1f} h | {r['price_of_a_pass']:,.0f} $ |"
            for r in rows
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="compute with what was measured before")
    file = RESULTS / "scale-model.json"
    again = parser.parse_args().again
    dask = json.loads((RESULTS / "scale-dask.json").read_text())
    if again:
        measured = json.loads(file.read_text())["measured"]
    else:
        measured = {"lda": lda_rates(), "ratings": rating_rates(), "steps": lda_steps()}
    # Two tasks a step were measured by scale_dask.py.
    measured["overhead"] = dask["overhead"]["overhead_s"] / 2
    fleets = [Fleet(1), Fleet(4), Fleet(16)]
    found = {
        "measured": measured,
        "assumed": {"bandwidth": BANDWIDTH, "price": PRICE},
        "scale": {
            "LDA, 10⁹ documents": [lda_scale(measured, fleet) for fleet in fleets],
            "factorisation, 10¹⁰ ratings": [rating_scale(measured, fleet) for fleet in fleets],
        },
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }
    file.write_text(json.dumps(found, indent=1))
    (RESULTS / "scale-model.md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()
