"""What a sweep of each network of the engine benchmark has to do at least, and what this machine needs for that.

Counted are the products and sums of the updates themselves, symmetric matrices once, and the bytes of data and of statistics that
fit in no cache, each once for each block that reads them. Logarithms and exponentials are not counted, nor are calls: a sweep
of microseconds of arithmetic is all calls. The limit is the longer of the two times.
"""

import time
from collections.abc import Callable

import numpy as np

__all__ = ["limit_of", "machine"]

Work = tuple[float, float]  # floating point operations, bytes


def _mixture(N: int, D: int, K: int) -> Work:
    # Memberships, and statistics of the components: a packed square and a row against K components, twice.
    return 4.0 * N * K * (D * (D + 1) / 2 + D), 8.0 * (2 * N * D + 3 * N * K)


def _pca(N: int, D: int, K: int) -> Work:
    # Y W and Yᵀ X, and the second moments of the scores, which are written and read.
    return 4.0 * N * D * K + 2.0 * N * K * K, 8.0 * (2 * N * D + 3 * N * K + 2 * N * K * K)


def _regression(N: int, D: int) -> Work:
    # XᵀX is known: one factorisation and one inverse.
    return 8.0 * D**3 / 3, 8.0 * 3 * D * D


def _factorization(N: int, K: int) -> Work:
    # For each rating and each side, moments of the other are added: packed, K (K + 3) / 2 numbers, which stay in cache.
    numbers = K * (K + 3) / 2
    return 4.0 * N * numbers, 2.0 * N * (2 * 4 + 8)


def _hmm(T: int, D: int, K: int) -> Work:
    # As a mixture, and forward, backward and pairs: K² products each.
    arithmetic, traffic = _mixture(T, D, K)
    return arithmetic + 6.0 * T * K * K, traffic + 8.0 * 4 * T * K


def _lda(N: int, K: int) -> Work:
    # A token's topics from its document's and its word's, and added to both.
    return 6.0 * N * K, 0.0


WORK: dict[str, Work] = {
    "mixture": _mixture(100_000, 10, 20),
    "pca": _pca(10_000, 50, 10),
    "regression": _regression(100_000, 50),
    "factorization": _factorization(200_000, 5),
    "hmm": _hmm(10_000, 5, 8),
    "lda": _lda(5_000, 10),
    "mixture_small": _mixture(500, 3, 4),
}


def machine(clock: Callable[[], float] = time.perf_counter, repeats: int = 7) -> tuple[float, float]:
    """Operations and bytes in a second: a matrix product, and the sum of two long arrays, on as many cores as NumPy takes."""
    a = np.random.default_rng(0).random((768, 768))
    long = np.ones(8_000_000)
    out = np.empty_like(long)
    product = _best(lambda: a @ a, clock, repeats)
    total = _best(lambda: np.add(long, long, out=out), clock, repeats)
    return 2 * 768**3 / product, 3 * long.nbytes / total


def limit_of(name: str, speed: tuple[float, float]) -> tuple[float, str]:
    """Seconds that a sweep takes at least, and what of: arithmetic or memory."""
    arithmetic, memory = WORK[name][0] / speed[0], WORK[name][1] / speed[1]
    return (arithmetic, "arithmetic") if arithmetic > memory else (memory, "memory")


def _best(call: Callable[[], object], clock: Callable[[], float], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begin = clock()
        call()
        seconds.append(clock() - begin)
    return min(seconds)
