"""The project's own ways to compile: one place for the flags.

Numba keeps compiled functions on disk until their own file changes, but what they call is compiled into them and may lie in
another file: after an edit there, results would depend on what happened to be kept. So here all files of kernels together say
whether a compiled function is still the one of the sources.

Numba itself, which takes a third of a second to import, is imported when the first kernel is called.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from natgrad.threads import Shared

__all__ = [
    "REASSOCIATE",
    "Kernel",
    "compiled",
    "inlined_kernel",
    "lane_kernel",
    "of_pieces",
    "of_rows",
    "parallel_kernel",
    "serial_kernel",
]

# Sums over the children of a row may be reordered into SIMD lanes, nothing else: NaN and infinities keep their meaning.
# The lanes are fixed at compilation, so one machine always gives the same bits, but for the one process that compiles a kernel:
# what it calls is found there as compiled for itself, not as part of the kernel, and sums of chains differ in the sixteenth
# digit. Measured on a million ratings, two cores: a sweep is 1.1 times faster with 5 factors and 1.4 with 30, the bound 2 times;
# the twins bound the error at 1e-10.
REASSOCIATE = {"reassoc", "contract"}


def stamp_of(folder: Path) -> str:
    """A number of all sources in a folder and below it that changes with any of them."""
    files = sorted(folder.rglob("*.py"))
    return sha256(
        b"".join(file.relative_to(folder).as_posix().encode() + file.read_bytes() for file in files)
    ).hexdigest()


@functools.cache
def stamp() -> str:
    """That of the kernels."""
    return stamp_of(Path(__file__).parent)


class Kernel:
    """A function that is compiled when it is first called, by Python or by another kernel that is compiled.

    Parameters
    ----------
    function : what is compiled
    flags : those of Numba's njit
    kept : whether what was compiled is kept on disk
    """

    def __init__(self, function: Any, flags: dict[str, Any], kept: bool) -> None:
        self.py_func, self._flags, self._kept = function, flags, kept
        functools.update_wrapper(self, function)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What Numba makes of the function: an object that compiles for the types it is called with."""
        from numba import njit

        _listen()
        dispatcher = njit(nogil=True, **self._flags)(self.py_func)
        if self._kept and hasattr(dispatcher, "enable_caching"):  # not there when compilation is switched off
            _keep(dispatcher)
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        """How Numba sees this object inside another kernel."""
        from numba.core.types import Dispatcher

        return Dispatcher(self.dispatcher)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    def __reduce__(self) -> Any:
        return _named_kernel, (self.__module__, self.__qualname__)


@functools.cache
def _listen() -> None:
    """Have it known while Numba compiles (not while it loads what was kept)."""
    from numba.core import event

    from natgrad import compiling

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            compiling.begin()

        def on_end(self, event: Any) -> None:
            compiling.end()

    event.register("numba:compile", Listener())


def _named_kernel(module: str, name: str) -> Any:
    """A kernel that another process named."""
    found = getattr(importlib.import_module(module), name)
    return getattr(found, "kernel", found)


def compiled(kept: bool = True, **flags: Any) -> Callable[[Any], Any]:
    """Numba's njit without the global lock, kept on disk as long as no kernel changes.

    What begins with an underscore is called by kernels alone: it is part of what is kept of these, and how Python would call it
    is not compiled, which is a quarter of the time.
    """

    def decorate(function: Any) -> Kernel:
        if function.__name__.startswith("_"):
            return Kernel(function, {**flags, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}, False)
        return Kernel(function, flags, kept)

    return decorate


def _keep(kernel: Any) -> None:
    """Have a compiled function kept on disk, if there is a place; a file that cannot be used is compiled anew."""
    try:
        kernel.enable_caching()
    except RuntimeError:
        _warn_once()
        return
    cache = kernel._cache
    cache._cache_file._source_stamp = stamp()
    load, save = cache.load_overload, cache.save_overload

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            found = load(signature, context)
        except Exception:  # a damaged file: unpickling raises anything
            return None
        # Two processes that compile at once may give two signatures one file: the later one would be called for both.
        return found if found is None or tuple(found.signature.args) == tuple(signature) else None

    def save_overload(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except Exception:  # a damaged index, which begins anew, or a full disk
            with suppress(Exception):
                cache.flush()
                save(signature, data)

    cache.load_overload, cache.save_overload = load_overload, save_overload


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        f"neither {str(Path(__file__).parent)!r} nor a cache folder in your home can be written, so the inner loops are compiled "
        "anew in every process, which takes up to a minute: set the environment variable NUMBA_CACHE_DIR to a folder that you "
        "alone can write",
        RuntimeWarning,
        stacklevel=2,
    )


# error_model "numpy": x / 0 is inf or NaN, as the guard of the engine expects, not an exception inside a thread.
serial_kernel = compiled(error_model="numpy")
# One whose sums may run in SIMD lanes (flags are not inherited by what a kernel calls).
lane_kernel = compiled(error_model="numpy", fastmath=REASSOCIATE)
# A part of a kernel, written where it can be read and compiled where it is called: a call with arrays costs more than it does.
inlined_kernel = compiled(kept=False, error_model="numpy", inline="always")


def parallel_kernel(
    length: Callable[..., int],
    kernel: Callable[[Any], Any] = lane_kernel,
    plain: Callable[..., None] | None = None,
    work: Callable[..., float] | None = None,
) -> Callable[[Any], Shared]:
    """A kernel ``f(low, high, *arguments)`` that is called without the first two: each thread gets a run of its loop.

    ``plain`` is the same in NumPy, for little ``work``.
    """
    return lambda function: Shared(kernel(function), length, plain, work)


def of_rows(rows: Any, *rest: Any) -> int:
    """The loop runs over the rows of the first argument."""
    return len(rows)


def of_pieces(edges: Any, *rest: Any) -> int:
    """The loop runs over pieces, ``edges[n] … edges[n + 1]`` of the first argument each."""
    return len(edges) - 1
