"""A compiled loop over a range and its length in; the loop cut into runs, one for each of a few threads of our own, out.

Numba has threads of its own for `prange`. None of them is safe: those of GNU OpenMP end a process that was forked after they
began, and its simplest ones end a process in which two Python threads call at once. So loops are compiled for one thread,
without the global lock, and shared out here. A kernel's runs own what they write, so the number of threads changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, update_wrapper
from itertools import pairwise
from typing import Any

import numpy as np

from natgrad.kernels.small import is_little

__all__ = ["Shared", "at_most", "in_order", "most_threads", "n_threads"]


# Work of an element of a kernel that NumPy does as well, nearly: ten thousand of them take half a millisecond.
WORK = 0.5


class _Limit(threading.local):
    """How many threads this thread may use; None: all."""

    most: int | None = None


class _Pool:
    """The threads of this process: begun when first needed, and anew in a forked child, which has none of its parent's."""

    def __init__(self) -> None:
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self._lock, self._threads = threading.Lock(), None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any] | None:
        """None while the interpreter ends: then there are no new threads."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(max(1, most_threads() - 1), "natgrad")
            try:
                return self._threads.submit(function, *arguments)
            except RuntimeError:
                return None


_LIMIT, _POOL = _Limit(), _Pool()


@cache
def most_threads() -> int:
    """One for each core that this process may use, or the environment variable NUMBA_NUM_THREADS."""
    given = os.environ.get("NUMBA_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads() -> int:
    """How many threads a kernel that is called here is cut for."""
    most = most_threads()
    return most if _LIMIT.most is None else min(most, _LIMIT.most)


@contextmanager
def at_most(n: int | None) -> Iterator[None]:
    """So many threads for the kernels that this thread calls inside, fewer where fewer were allowed already; None: as before."""
    before = _LIMIT.most
    _LIMIT.most = min((most for most in (before, n) if most is not None), default=None)
    try:
        yield
    finally:
        _LIMIT.most = before


def _of_first(first: Any, *rest: Any) -> float:
    return float(WORK * first.size)


class Shared:
    """A kernel ``f(low, high, *arguments)`` as a function of the arguments alone, cut for the threads that are allowed.

    Parameters
    ----------
    kernel : compiled without the global lock; the turns ``low … high − 1`` of its loop write to memory of their own
    length : the length of the loop, of the arguments
    plain : the same of the arguments in NumPy, optional: called where there is so little to do that compiling does not pay
    work : what the arguments cost in NumPy, in microseconds; by default that of the numbers of the first one
    """

    def __init__(
        self,
        kernel: Any,
        length: Callable[..., int],
        plain: Callable[..., None] | None = None,
        work: Callable[..., float] | None = None,
    ) -> None:
        self.kernel, self.length, self.plain, self.work = kernel, length, plain, work or _of_first
        update_wrapper(self, getattr(kernel, "py_func", kernel))

    def __call__(self, *arguments: Any) -> None:
        """All of the loop."""
        self.run(is_little(self.work(*arguments)), *arguments)

    def run(self, little: bool, *arguments: Any) -> None:
        """All of the loop, of arguments that may be a part of what there is to do: the caller knows whether all of it is little.

        NumPy and the kernel agree to rounding, so parts are computed in the same way as the whole would be.
        """
        if self.plain is not None and little:
            with np.errstate(all="ignore"):  # as in a kernel: the caller sees what is not finite
                self.plain(*arguments)
            return
        size = self.length(*arguments)
        threads = min(n_threads(), size)
        if threads <= 1:
            self.kernel(0, size, *arguments)
            return
        runs = list(pairwise(size * part // threads for part in range(threads + 1)))
        others: list[Future[Any]] = []
        try:
            for run in runs[1:]:
                if (other := _POOL.submit(self.kernel, *run, *arguments)) is None:
                    self.kernel(*run, *arguments)
                else:
                    others.append(other)
            self.kernel(*runs[0], *arguments)
        finally:
            wait(others)  # also when the user interrupts: nothing may be written after this returned
        for other in others:
            other.result()


def in_order(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """The function of every item, by the threads that are allowed; results are in the order of the items."""
    threads = min(n_threads(), len(items))

    def run(first: int) -> list[Any]:
        return [function(item) for item in items[first::threads]]

    if threads <= 1:
        return run(0) if items else []
    others = [_POOL.submit(run, first) for first in range(1, threads)]
    try:
        parts = [run(0)]
    finally:
        wait([other for other in others if other is not None])
    parts += [run(n) if other is None else other.result() for n, other in enumerate(others, 1)]
    return [parts[place % threads][place // threads] for place in range(len(items))]
