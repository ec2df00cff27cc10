"""How many threads the compiled loops use: the user's number, and one where more would not pay. Results never depend on it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from natgrad.kernels._threads import at_most

__all__ = ["at_most", "threads_for"]

# Products below which a second thread does not pay: a millisecond of one thread.
LITTLE_WORK = 200_000


def threads_for(work: int) -> AbstractContextManager[None]:
    """One thread for little work: waking others takes longer, on a busy machine a thousand times. The numbers are the same."""
    return at_most(1 if work < LITTLE_WORK else None)
