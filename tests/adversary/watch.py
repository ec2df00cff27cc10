"""Somebody who looks on: a function of the trace, called after every step of the fits inside, whoever began them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from natgrad.inference.monitor import RunMonitor
from natgrad.inference.trace import Trace


@contextmanager
def watching(function: Callable[[Trace], None]) -> Iterator[None]:
    record = RunMonitor.record

    def told(self: RunMonitor, *args: Any) -> None:
        record(self, *args)
        function(self.trace)

    with mock.patch.object(RunMonitor, "record", told):
        yield
