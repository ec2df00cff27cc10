"""Whether something is being compiled at this moment, for whoever shows how far a fit is: a bar that stands still says why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["begin", "compiling", "end", "is_compiling"]

_LOCK = threading.Lock()
_running = 0


def begin() -> None:
    """A compilation begins, in any thread."""
    global _running
    with _LOCK:
        _running += 1


def end() -> None:
    """One of them has ended."""
    global _running
    with _LOCK:
        _running = max(0, _running - 1)


@contextmanager
def compiling() -> Iterator[None]:
    """Around a compilation.

    Examples
    --------
    >>> with compiling():
    ...     is_compiling()
    True
    >>> is_compiling()
    False
    """
    begin()
    try:
        yield
    finally:
        end()


def is_compiling() -> bool:
    """Whether one is running."""
    return _running > 0
