"""Who sees a run while it goes: a progress bar, on a terminal only, and whoever asked to watch.

A watcher is a function of the trace, called after each step. It is asked for around a fit, ``with watching(function):``, so
that one page or logger serves every estimator.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from natgrad.inference.trace import Trace

__all__ = ["progress_bar", "watching"]

Watcher = Callable[[Trace], None]
_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(function: Watcher) -> Iterator[None]:
    """Have a function called with the trace after each step of the fits inside."""
    token = _watchers.set((*_watchers.get(), function))
    try:
        yield
    finally:
        _watchers.reset(token)


@contextmanager
def progress_bar(steps: int, wanted: bool | None) -> Iterator[Watcher]:
    """A function to call after each step: it draws, if a bar is wanted, and tells those who watch."""
    watchers = _watchers.get()
    with _drawn_bar(steps, wanted) as draw:

        def tell(trace: Trace) -> None:
            draw(trace)
            for watcher in watchers:
                watcher(trace)

        yield tell


@contextmanager
def _drawn_bar(steps: int, wanted: bool | None) -> Iterator[Watcher]:
    """A function to call after each step; it draws when ``wanted``, or by default when standard error is a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda trace: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("bound {task.fields[bound]}  ρ {task.fields[rho]}{task.fields[held]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fit", total=steps, bound="…", rho="…", held="")

        def update(trace: Trace) -> None:
            last = trace.last if len(trace) else None
            if last is None:
                return
            bar.update(task, advance=1, bound=f"{last.elbo:.6g}", rho=f"{last.rho:.2g}")
            if not math.isnan(last.held_out):
                bar.update(task, held=f"  held-out {last.held_out:.6g}")

        yield update
