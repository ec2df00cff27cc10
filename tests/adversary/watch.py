"""Somebody who looks on: a function of the trace, called after every step of the fits inside, whoever began them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from natgrad.inference.monitor import RunMonitor
from natgrad.inference.trace import Trace
from natgrad.posterior.files.checkpoints import Checkpoints


@contextmanager
def watching(function: Callable[[Trace], None], *, saved: bool = False) -> Iterator[None]:
    """``saved``: only of runs that have a checkpoint, not of short fits that choose where they start."""
    record, enter, leave = RunMonitor.record, Checkpoints.__enter__, Checkpoints.__exit__
    inside = 0

    def told(self: RunMonitor, *args: Any) -> None:
        record(self, *args)
        if inside or not saved:
            function(self.trace)

    def entered(self: Checkpoints) -> Any:
        nonlocal inside
        inside += 1
        return enter(self)

    def left(self: Checkpoints, *error: Any) -> Any:
        nonlocal inside
        inside -= 1
        return leave(self, *error)

    with (
        mock.patch.object(RunMonitor, "record", told),
        mock.patch.multiple(Checkpoints, __enter__=entered, __exit__=left),
    ):
        yield
