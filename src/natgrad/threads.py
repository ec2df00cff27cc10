"""Who computes: plain NumPy where there is little to do, threads of ours elsewhere, and always one of the matrix library.

**Loops.** A compiled loop over a range and its length in; the loop cut into runs, one for each of a few threads of our own, out.
Numba has threads of its own for `prange`. None of them is safe: those of GNU OpenMP end a process that was forked after they
began, and its simplest ones end a process in which two Python threads call at once. So loops are compiled for one thread,
without the global lock, and shared out here. A kernel's runs own what they write, so the number of threads changes nothing.

**Little work.** Compiling the kernels of a model takes 5 to 25 seconds, once on a machine, and loading them half a second; fits
of a few dozen rows take milliseconds. Whether NumPy or a kernel runs is a function of the data alone (numbers read in a pass, no
clock), so that fits repeat; both are tested against the same slow twins and agree to rounding.

**The matrix library** has one thread while a fit runs, and the user's number of threads again when the last one ends. The number
belongs to the whole process, or, where the library's threads are those of OpenMP, to each Python thread. Fits in several Python
threads would each note what another had set and put that back, so they are counted here: the first one in sets the number, the
last one out restores what the first one found, also when one in between was interrupted on its way in or out.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, update_wrapper
from itertools import pairwise
from typing import Any, final

import numpy as np

__all__ = ["Shared", "at_most", "in_order", "is_little", "most_threads", "n_threads", "one_blas_thread", "threads_for"]

# Units of plain NumPy's work in a pass: about a microsecond each. A few hundred passes then take less than a first compilation.
# Replaced by tests only.
MOST = 5_000
# Work of an element of a kernel that NumPy does as well, nearly: ten thousand of them take half a millisecond.
WORK = 0.5
# Products below which a second thread does not pay: a millisecond of one thread.
LITTLE_WORK = 200_000


def is_little(work: float) -> bool:
    """Whether so much work in a pass, in microseconds of plain NumPy, is not worth a compiled kernel."""
    return work <= MOST


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
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

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


def threads_for(work: int) -> AbstractContextManager[None]:
    """One thread for little work: waking others takes longer, on a busy machine a thousand times. The numbers are the same."""
    return at_most(1 if work < LITTLE_WORK else None)


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
    """The function of every item, by the threads that are allowed; results are in the order of the items.

    The matrix library has one thread in each: cores are not shared twice, and the numbers are those of one thread.
    """
    threads = min(n_threads(), len(items))

    def run(first: int) -> list[Any]:
        with one_blas_thread():
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


# -- the matrix library --


@cache
def _libraries(linalg: bool) -> tuple[list[Any], list[Any]]:
    """Those whose number belongs to the process, and those whose number belongs to a thread; anew with `scipy.linalg`."""
    import scipy.special  # noqa: F401 - brings SciPy's own library, which must be there to be found
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    # The first time looks for the functions, which is not for a fit to wait for.
    _set([(library, library.num_threads) for library in libraries])
    by_thread = [library for library in libraries if getattr(library, "threading_layer", "") == "openmp"]
    return [library for library in libraries if library not in by_thread], by_thread


def _set(numbers: list[tuple[Any, int]]) -> None:
    for library, n in numbers:
        # `set_num_threads` of newer threadpoolctl does nothing, and does not say so, in all Python threads but one.
        getattr(library, "_real_set_num_threads", library.set_num_threads)(n)


class _Inside:
    """Whether one Python thread is in a block, and the numbers that it found in the libraries of its own."""

    def __init__(self) -> None:
        self.inside, self.thread = False, threading.get_ident()
        self.found: list[tuple[Any, int]] = []


class _Own(threading.local):
    """The record of the Python thread that asks."""

    def __init__(self) -> None:
        self.record = _Inside()


@final
class _OneThread:
    """The numbers of threads as the first one in found them, and who is in.

    Ctrl-C may strike at any line here. What was found is noted before anything is set, and forgotten after everything is set
    back, so that `_leave` may be called again after one that was interrupted. A block in a block does nothing: the outermost
    one restores.
    """

    def __init__(self) -> None:
        self._own = _Own()
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _begin(self) -> None:
        self._lock = threading.RLock()  # a block that nobody left is left by the collector, which may run in here
        self._inside: set[_Inside] = set()
        self._found: list[tuple[Any, int]] = []

    def __call__(self) -> AbstractContextManager[None]:
        record = self._own.record
        return _IN_A_BLOCK if record.inside else self._block(record)

    @contextmanager
    def _block(self, record: _Inside) -> Iterator[None]:
        try:
            try:
                self._enter(record)
                yield
            finally:
                self._leave(record)
        finally:
            self._leave(record)  # again: the first one may have been interrupted

    def _enter(self, record: _Inside) -> None:
        record.inside = True
        of_process, of_thread = _libraries("scipy.linalg" in sys.modules)
        record.found = record.found or [(library, library.num_threads) for library in of_thread]
        _set([(library, 1) for library in of_thread])
        with self._lock:
            self._found = self._found or [(library, library.num_threads) for library in of_process]
            self._inside.add(record)
            _set([(library, 1) for library in of_process])

    def _leave(self, record: _Inside) -> None:
        with self._lock:
            self._inside.discard(record)
            if not self._inside:
                _set(self._found)
                self._found = []
        if record.thread == threading.get_ident():
            _set(record.found)
            record.found = []
        record.inside = False

    def _after_fork(self) -> None:
        """A child has none of the threads that are inside, and its lock may never be released."""
        found = self._found
        self._begin()
        self._own.record.inside = False
        _set(found)


_IN_A_BLOCK = nullcontext()
_libraries("scipy.linalg" in sys.modules)  # looked for when natgrad is imported, not while somebody waits for a fit
# ``with one_blas_thread():``, in as many Python threads at once as you like.
# Small factorisations gain nothing from more threads, and two threads round differently.
one_blas_thread = _OneThread()
