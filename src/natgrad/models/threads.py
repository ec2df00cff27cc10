"""How many threads the compiled loops use: the user's number, and one where more would not pay. Results never depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba

__all__ = ["limited_to", "threads_for"]

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


@contextmanager
def limited_to(n_jobs: int | None) -> Iterator[None]:
    """So many threads inside; None: all."""
    before: int = numba.get_num_threads()
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(most if n_jobs is None else min(n_jobs, most))
    try:
        yield
    finally:
        numba.set_num_threads(before)
