"""The state of a run: all that the next step, the trace and the stopping rules depend on, in one record.

A step is a function of a `State` and the seed, so a run that goes on from its `RunState` ends with the bits of one that never
stopped. Who keeps these records, and where, is a `Checkpointer`; `natgrad.posterior.files.checkpoints` is one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from natgrad.inference.problem import Problem, State
from natgrad.inference.trace import Stop, Trace

__all__ = ["Checkpointer", "PhaseSource", "RunState", "callback_states", "restore_callback_states", "run_fingerprint"]


class RunState(NamedTuple):
    """A run after a step.

    ``begun`` is the number of the step after which it began, ``unread`` counts the messages read since the exact bound was
    evaluated, ``first`` is the bound at the start, ``notes`` are what callbacks remember, ``stop`` is why the run ended: None
    while it goes on, ``phase`` the step after which its phase began, ``entered`` whether that of the next step has begun,
    which it has not where a limit was reached at the end of one, ``source`` where phases are read that come from somewhere
    (`PhaseSource`). Everything else that the loop knows follows from these.
    """

    state: State
    trace: Trace
    begun: int
    unread: int
    first: float
    notes: tuple[Any, ...]
    stop: Stop | None
    phase: int | None = None
    entered: bool = True
    source: Any = None


class PhaseSource(ABC):
    """Phases that are read from somewhere, such as chunks of a stream: a run that goes on reads again up to where it was."""

    last: Any
    """The phase that was read last."""

    @abstractmethod
    def __call__(self, t: int) -> Any:
        """The phase of the steps after ``t``, or a `Stop`."""

    @abstractmethod
    def position(self, entered: bool) -> Any:
        """What `go_to` needs, as records of files; ``entered``: whether no step was made of the phase that was read last."""

    @abstractmethod
    def go_to(self, position: Any) -> None:
        """Read again up to a position of an earlier run, whose trace is that of the run already."""


class Checkpointer(AbstractContextManager[Any], Protocol):
    """Who keeps the states of a run."""

    @property
    def earlier(self) -> RunState | None:
        """An earlier run that is to go on, before anybody has compared it; None to begin."""
        ...

    def begin(self, about: dict[str, Any]) -> RunState | None:
        """Where to go on, None to begin; ``about`` says which run this is."""
        ...

    def after(self, run: RunState) -> None:
        """Called after every step; keeps what it wants."""
        ...


def run_fingerprint(
    problem: Problem, seed: int, order: tuple[str, ...], strategy: str, in_parts: bool = False
) -> dict[str, Any]:
    """What a run is, in plain values: its blocks, the number of its data, the seed, and how its steps are taken.

    Of a problem that has but a part of the data (``in_parts``) sizes are no mark of the run.
    """
    sizes = {name: [] if in_parts else map(int, block.shape) for name, block in problem.blocks.items()}
    return {
        "blocks": {name: [block.family.name, *sizes[name]] for name, block in problem.blocks.items()},
        "observed": {} if in_parts else dict(problem.n_observed),
        "seed": seed,
        "order": list(order),
        "strategy": re.sub(r" at 0x[0-9a-f]+", "", strategy),  # a function has another address in every process
    }


def callback_states(callbacks: Sequence[Callable[..., Any]]) -> tuple[Any, ...]:
    """What callbacks remember from one step to the next: their ``memory``, None of those that have none."""
    return tuple(getattr(callback, "memory", None) for callback in callbacks)


def restore_callback_states(callbacks: Sequence[Any], notes: tuple[Any, ...]) -> None:
    """Give callbacks back what they remembered."""
    for callback, memory in zip(callbacks, notes, strict=False):
        if memory is not None and hasattr(callback, "memory"):
            callback.memory = memory
