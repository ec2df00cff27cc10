"""What one core can do, measured, and what part of it the dense rounds of LDA reach."""

import time
from typing import Any

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from natgrad.data.corpus import Corpus
from natgrad.kernels.memory import aligned_empty
from natgrad.models.lda.parts import infer_view
from natgrad.models.lda.problem import LDAProblem, Local

ROUNDS = 40


def dense_part(corpus: Corpus, lam: Any, alpha: float, repeats: int) -> dict[str, Any]:
    """Arithmetic and loads per second of rounds over all topics, and the limits of the machine for both."""
    problem = LDAProblem(corpus, np.full(len(lam), alpha), 0.05, Local(dtype=np.float32))
    state = problem.at(lam)
    topics, view = problem._topics(state.mu["phi"][0]), problem._view(None, keep=True)
    width = topics.weights.shape[1]

    def rounds(limit: int) -> float:
        return best_of(repeats, lambda: infer_view(view, topics, problem.local, None, False, 0.0, limit))

    # The difference leaves out what is done once for a document.
    spent = (rounds(ROUNDS) - rounds(2)) / (ROUNDS - 2)
    entries = len(corpus.words)
    block = round(entries / len(corpus)) * width
    flops, loads = 4 * entries * len(lam) / spent / 1e9, 8 * entries * width / spent / 1e9
    fma, load = fma_limit(repeats), load_limit(block, repeats)
    return {
        "Gflop/s": round(flops, 1),
        "FMA limit": round(fma, 1),
        "part of it": f"{flops / fma:.0%}",
        "GB/s loaded": round(loads, 1),
        "load limit": round(load, 1),
        "part of that": f"{loads / load:.0%}",
        "block, kB": round(block * 4 / 1e3),
    }


def best_of(repeats: int, call: Any) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def fma_limit(repeats: int) -> float:
    """Gflop/s of a float32 matrix product on one thread."""
    A = np.random.default_rng(0).random((1024, 1024), dtype=np.float32)
    with threadpool_limits(1):
        return 2 * 1024**3 / best_of(repeats, lambda: A @ A) / 1e9


def load_limit(block: int, repeats: int) -> float:
    """GB/s of a sum over a block of so many float32 that stays in its cache."""
    data = aligned_empty(1, -(-block // 256) * 256, np.float32)[0]
    data[:] = 1.0
    times = max(1, 50_000_000 // len(data))
    return 4 * len(data) * times / best_of(repeats, lambda: _sum_many(data, times)) / 1e9


@njit(fastmath={"reassoc", "contract"})
def _sum_many(data, times):
    total = data[0] - data[0]
    for number in range(times):
        data[number % 16] = total  # so that no sum can be left out
        part = total - total
        for i in range(data.shape[0]):
            part += data[i]
        total = part
    return total


if __name__ == "__main__":
    print(
        f"FMA {fma_limit(5):.0f} Gflop/s; loads {load_limit(4_000, 5):.0f} GB/s (16 kB), {load_limit(14_000, 5):.0f} (56 kB)"
    )
