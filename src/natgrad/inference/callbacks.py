"""Who is told of a fit, step by step: functions, trackers, the log, a progress bar; and `HeldOut`, a score while it goes on.

A tracker is known by what it can do, so none is imported: ``log_metrics`` or ``log_metric`` (MLflow and its likes), or
``add_scalar`` (TensorBoard's SummaryWriter). The log is that of Python's `logging`, under the name "natgrad".
"""

from __future__ import annotations

import functools
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from natgrad.compiling import is_compiling
from natgrad.inference.problem import State
from natgrad.inference.schema import check, refuse
from natgrad.inference.trace import Reason, Stop, Trace

__all__ = ["LOG", "Callback", "CallbackList", "HeldOut", "Once", "Progress", "as_callbacks", "progress_bar"]

LOG = logging.getLogger("natgrad")
LOG.addHandler(logging.NullHandler())  # silent, unless the user asks for it
for _level in (logging.INFO, logging.DEBUG):  # asked once here, so that it is known in a fit
    LOG.isEnabledFor(_level)


class Progress(NamedTuple):
    """What a callback sees after each step; a callback that returns True ends the run, and a `Stop` says why.

    ``model()`` is a copy of the estimator, or the `Fit` of a network, as it would be if the run ended here.
    """

    t: int
    elbo: float
    rho: float
    messages_read: int
    seconds: float
    state: State
    trace: Trace
    model: Callable[[], Any]

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that are known at this step, by name."""
        last = self.trace.last
        values = {name: float(getattr(last, name)) for name in Trace.columns if name != "t"}
        return {name: value for name, value in values.items() if math.isfinite(value)}


Callback = Callable[[Progress], Any]


def as_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Functions of `Progress`, of functions and trackers."""
    if isinstance(callbacks, tuple) or isinstance(callbacks, Iterable):  # noqa: SIM101  (the second asks many classes)
        adapted = [_as_callback(callback) for callback in callbacks]
        if all(adapted):
            return tuple(callback for callback in adapted if callback is not None)
    raise TypeError(
        f"callbacks must be a list of functions, got {callbacks!r}: a function of the progress, or an object with log_metrics, "
        "log_metric or add_scalar"
    )


def _as_callback(given: Any) -> Callback | None:
    if isinstance(given, type):
        return None  # a class in place of an instance
    for name, tell in (("log_metrics", _all_at_once), ("log_metric", _one_by_one), ("add_scalar", _one_by_one)):
        if callable(log := getattr(given, name, None)):
            return functools.partial(tell, log)
    return given if callable(given) else None


# Neither returns what the tracker returns: that would be taken for a wish to stop.
def _all_at_once(log: Callable[..., Any], seen: Progress) -> None:
    log(seen.metrics, step=seen.t)


def _one_by_one(log: Callable[..., Any], seen: Progress) -> None:
    for name, value in seen.metrics.items():
        log(name, value, seen.t)


class Once:
    """A callback that looks at the first step with a bound, and at none after it: without a bound the first pass is under way."""

    def __init__(self, look: Callable[[Progress], None]) -> None:
        self.look, self.waiting = look, True

    def __call__(self, seen: Progress) -> None:
        """Look, if this is the first."""
        if self.waiting and not math.isnan(seen.elbo):
            self.waiting = False
            self.look(seen)


@dataclass(frozen=True)
class CallbackList:
    """Tells the callbacks and the log of a step, and hears whether one wants the run to end."""

    callbacks: tuple[Callback, ...]
    trace: Trace
    model_at: Callable[[State], Any]

    @property
    def looks_once(self) -> bool:
        """Whether nobody looks at a step after the first."""
        return all(isinstance(callback, Once) for callback in self.callbacks)

    def __call__(self, state: State) -> Stop | None:
        if not LOG.isEnabledFor(logging.DEBUG) and not any(map(_is_waiting, self.callbacks)):
            return None
        last = self.trace.last
        LOG.debug("step %d: bound %.8g, rho %.3g, %.3f s", last.t, last.elbo, last.rho, last.seconds)
        model = functools.partial(self.model_at, state)
        seen = Progress(state.t, last.elbo, last.rho, last.messages_read, last.seconds, state, self.trace, model)
        answers = [callback(seen) for callback in self.callbacks]
        if not any(map(bool, answers)):
            return None
        words = f"a callback ended the run after step {state.t}"
        return next((a for a in answers if isinstance(a, Stop)), Stop(Reason.CALLBACK, words))


def _is_waiting(callback: Callback) -> bool:
    return callback.waiting if isinstance(callback, Once) else True


class HeldOut:
    """A callback: the score of data that are not fitted, while the fit goes on, in ``trace["held_out"]``.

    Parameters
    ----------
    *data : the arguments of the estimator's ``score``
    share : float
        Part of the time that may go into scoring; after each step if 1.
    patience : int, optional
        End the fit when so many scores in a row were no better than the best before them.

    Examples
    --------
    >>> import natgrad as ng
    >>> texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
    >>> model = ng.LDA(n_topics=2, inference="vb", seed=1).fit(texts, callbacks=[ng.HeldOut(["apple pear"], share=1)])
    >>> bool(abs(model.trace_["held_out"][-1] - model.score(["apple pear"])) < 1e-6)
    True
    """

    def __init__(self, *data: Any, share: float = 0.1, patience: int | None = None) -> None:
        if not data:
            raise ValueError("HeldOut needs data: the arguments of score, as in HeldOut(X_test, y_test)")
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share!r}")
        if patience is not None and patience < 1:
            raise ValueError(f"patience must be ≥ 1, got {patience!r}")
        self.data, self.share, self.patience = data, share, patience
        self._begin()

    @property
    def memory(self) -> list[float]:
        """The best score and how many since then were no better: part of a checkpoint."""
        return [self._best, float(self._since)]

    @memory.setter
    def memory(self, kept: Any) -> None:
        check(kept, ["float"], where="the memory of HeldOut")
        if len(kept) != 2 or not 0 <= kept[1] < 2**31:
            refuse("the memory of HeldOut", "is not a score and a number of scores")
        self._best, self._since = float(kept[0]), int(kept[1])

    def _begin(self) -> None:
        self._best, self._since, self._due = -math.inf, 0, 0.0
        self._scored: State | None = None
        self._trace: Trace | None = None

    def __call__(self, seen: Progress) -> Stop | None:
        """Score, if it is time to."""
        if seen.t <= 1 and seen.trace is not self._trace:
            self._begin()  # the same object may serve several fits
        self._trace = seen.trace
        begin = time.perf_counter()
        if begin < self._due or seen.state is self._scored:  # sweeps of a sampler that do not count change nothing
            return None
        model = seen.model()
        if not hasattr(model, "score"):
            raise TypeError(f"HeldOut needs a model with a score, and {type(model).__name__} has none")
        score = float(model.score(*self.data))
        seen.trace.note(score)
        self._scored = seen.state
        now = time.perf_counter()
        self._due = now + (now - begin) * (1.0 / self.share - 1.0)
        self._since = 0 if score > self._best else self._since + 1
        self._best = max(self._best, score)
        if self.patience is not None and self._since >= self.patience:
            return Stop(
                Reason.CALLBACK, f"the held-out score has not risen above {self._best:.6g} for {self._since} scores"
            )
        return None


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
        Said("{task.fields[inference]}  bound {task.fields[bound]}  ρ {task.fields[rho]}{task.fields[held]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fit", total=steps, inference="", bound="…", rho="…", held="")

        def update(trace: Trace) -> None:
            last = trace.last if len(trace) else None
            if last is None:
                return
            bar.update(task, advance=1, inference=trace.inference, bound=f"{last.elbo:.6g}", rho=f"{last.rho:.2g}")
            if not math.isnan(last.held_out):
                bar.update(task, held=f"  held-out {last.held_out:.6g}")

        yield update
