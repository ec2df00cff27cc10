"""Ctrl-C in; a fit that ends after its step, is kept, and exits with 130 out. Asked twice, it ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from natgrad.inference.trace import Reason, Stop

__all__ = ["INTERRUPTED", "TERMINATED", "Interruption", "noticing_interrupts"]

# What shells expect of a program that ended because of SIGINT (2) or SIGTERM (15): 128 and the number.
INTERRUPTED, TERMINATED = 130, 143


class Interruption:
    """A callback that ends the fit once a signal has come."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, progress: Any) -> Stop | None:
        if self.signal is None:
            return None
        return Stop(Reason.CALLBACK, f"interrupted after step {progress.t}")

    @property
    def exit_code(self) -> int:
        """0, or 128 and the number of the signal."""
        return 0 if self.signal is None else 128 + self.signal

    def notice(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def noticing_interrupts() -> Iterator[Interruption]:
    """Signals that come meanwhile are noticed instead of ending the program; other threads cannot have handlers."""
    noticed = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield noticed
        return
    before = {number: signal.signal(number, noticed.notice) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noticed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
