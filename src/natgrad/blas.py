"""One thread for the matrix library while a fit runs, and the user's number of threads again when the last one ends.

The number belongs to the whole process, or, where the library's threads are those of OpenMP, to each Python thread. Fits in
several Python threads would each note what another had set and put that back, so they are counted here: the first one in sets
the number, the last one out restores what the first one found.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import cache
from types import TracebackType
from typing import Any, final

__all__ = ["ONE_BLAS_THREAD"]


@cache
def _libraries(linalg: bool) -> tuple[list[Any], list[Any]]:
    """Those whose number belongs to the process, and those whose number belongs to a thread; anew with `scipy.linalg`."""
    from threadpoolctl import ThreadpoolController

    import natgrad.special  # noqa: F401 - brings SciPy's own library, which must be there to be found

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    for library in libraries:
        library.num_threads  # noqa: B018 - the first time looks for the function, which is not for a fit to wait for
    by_thread = [library for library in libraries if getattr(library, "threading_layer", "") == "openmp"]
    return [library for library in libraries if library not in by_thread], by_thread


def _set(numbers: list[tuple[Any, int]]) -> None:
    for library, n in numbers:
        # `set_num_threads` of newer threadpoolctl does nothing, and does not say so, in all Python threads but one.
        getattr(library, "_real_set_num_threads", library.set_num_threads)(n)


def _set_to_one(libraries: list[Any]) -> list[tuple[Any, int]]:
    before = [(library, library.num_threads) for library in libraries]
    _set([(library, 1) for library in libraries])
    return before


class _Own(threading.local):
    """Of one Python thread: how many blocks it is in, and what it found in its own libraries."""

    depth = 0
    found: list[tuple[Any, int]] = []  # noqa: RUF012 - replaced, never changed


@final
class _OneThread:
    """``with ONE_BLAS_THREAD:``, in as many Python threads at once as you like."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._found: list[tuple[Any, int]] = []
        self._own = _Own()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def __enter__(self) -> None:
        if self._own.depth > 0:  # a block in a block, as every step of a run is
            self._own.depth += 1
            return
        of_process, of_thread = _libraries("scipy.linalg" in sys.modules)
        self._own.found = _set_to_one(of_thread)
        self._own.depth = 1
        with self._lock:
            if self._inside == 0:
                self._found = _set_to_one(of_process)
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own.depth = max(0, self._own.depth - 1)  # a child that was forked inside begins at zero
        if self._own.depth > 0:
            return
        with self._lock:
            self._inside = max(0, self._inside - 1)
            if self._inside == 0:
                self._restore()
        _set(self._own.found)

    def _restore(self) -> None:
        before, self._found = self._found, []
        _set(before)

    def _after_fork(self) -> None:
        """A child has none of the threads that are inside, and its lock may never be released."""
        self._lock, self._inside, self._own.depth = threading.Lock(), 0, 0
        self._restore()


_libraries("scipy.linalg" in sys.modules)  # looked for when natgrad is imported, not while somebody waits for a fit
# Small factorisations gain nothing from more threads, and two threads round differently.
ONE_BLAS_THREAD = _OneThread()
