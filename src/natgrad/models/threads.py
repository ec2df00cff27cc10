"""How many threads the compiled loops use: the user's number, and one where more would not pay. Results never depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba

__all__ = ["set_threads", "threads_for", "using_threads"]

# Products below which a second thread does not pay: a millisecond of one thread.
LITTLE_WORK = 200_000


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """One thread for little work: waking others takes longer, on a busy machine a thousand times. The numbers are the same."""
    before: int = numba.get_num_threads()
    if work < LITTLE_WORK:
        numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def set_threads(n_jobs: int | None) -> int:
    """Use this many threads from now on (None: all); the number before."""
    before: int = numba.get_num_threads()
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(most if n_jobs is None else min(n_jobs, most))
    return before


@contextmanager
def using_threads(n_jobs: int | None) -> Iterator[None]:
    """As many threads (None: all) as long as the block runs."""
    before = set_threads(n_jobs)
    try:
        yield
    finally:
        set_threads(before)
