"""A progress bar, on a terminal only."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from natgrad.compiling import is_compiling
from natgrad.inference.trace import Trace

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(steps: int | None, wanted: bool | None) -> Iterator[Callable[[Trace], None]]:
    """A function to call after each step; it draws when ``wanted``, or by default when standard error is a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda trace: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Said(TextColumn):
        def render(self, task: Task) -> Text:
            return Text("compiling, once on this machine …") if is_compiling() else super().render(task)

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        Said("bound {task.fields[bound]}  ρ {task.fields[rho]}{task.fields[held]}"),
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
