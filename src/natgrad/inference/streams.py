"""A stream as phases of a run: every chunk that is pulled is a problem of its own, and some steps.

    λ ← (1 − ρ) λ + ρ (η̃ + groups of the stream / groups of the chunk · messages of the chunk)

What cannot be read again is read once. Other streams are read until the mean estimates of the bound over passes say that less
than the tolerance is left to gain, or ``max_passes`` are made. While the number of groups is not known, it is taken to be that
seen so far.

A run that goes on from a checkpoint is given the stream from its beginning. Chunks that it has read are read again, since they
say which words, items or columns there are, but no step is made of them; how many groups they have must be what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from natgrad.inference.checkpoint import PhaseSource
from natgrad.inference.engine import Phase
from natgrad.inference.monitor import left_to_gain
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.step_sizes import Step
from natgrad.inference.steppers.groups import ONE_PASS, GroupStepper, Look
from natgrad.inference.trace import Reason, Stop, Trace

__all__ = ["Chunk", "Kept", "StreamPhases", "StreamPosition"]


class Chunk(NamedTuple):
    """A part of a stream, ready for a step.

    ``problem(population)`` makes the problem of a chunk that stands for so many groups; ``enter`` takes the state of the chunk
    before over, None if nothing is to be done; ``n_groups`` and ``n_observed`` count. ``arrivals(before)`` looks for components
    that come with the chunk, after so many observations; None where their number is given, or was found in these data.
    """

    problem: Callable[[float], GroupProblem]
    n_groups: int
    n_observed: float
    enter: Callable[[State], State] | None = None
    arrivals: Callable[[float], Look] | None = None


class StreamPosition(NamedTuple):
    """Where a run is in a stream.

    Chunks, groups and observations read in this pass, the mean estimates of the passes before, the groups of a pass, and what
    the model was told besides its state.
    """

    number: int
    seen: int
    n_observed: float
    means: Sequence[float]
    total: float | None
    told: dict[str, Any]


class Kept(NamedTuple):
    """What a model needs to go on, besides its state: ``told()`` gives it; ``again(told)`` takes it back, before a pass."""

    told: Callable[[], dict[str, Any]] = dict
    again: Callable[[dict[str, Any]], None] = lambda told: None


class StreamPhases(PhaseSource):
    """The phases of a stream.

    Parameters
    ----------
    read : a function that begins to read the stream, each time that it is read
    make : a chunk, as it was read, in; a `Chunk` out
    trace : Trace, of the run
    step : Step, optional
    rereadable : bool
    max_passes : int
    tol : float, nats for each observation
    n_groups : float, optional
        How many there are, if that is known.
    words : what an observation is called
    kept : Kept
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Any]],
        make: Callable[[Any], Chunk],
        trace: Trace,
        *,
        step: Step | None,
        rereadable: bool,
        max_passes: float,
        tol: float,
        n_groups: float | None,
        words: str,
        kept: Kept = Kept(),  # noqa: B008  (frozen)
    ) -> None:
        self.read, self.make, self.trace, self.step = read, make, trace, ONE_PASS if step is None else step
        self.rereadable, self.max_passes, self.tol, self.words = rereadable, max_passes if rereadable else 1, tol, words
        self.given = self.total = n_groups
        self.kept = kept
        self.means: list[float] = []
        self._waiting: Phase | None = None
        self.seen, self.n_observed = 0, 0.0
        self._begin_pass()

    problem: GroupProblem
    last: Phase

    def first(self) -> GroupProblem:
        """The problem of the first chunk, from which a run starts."""
        phase = self._next(0)
        assert isinstance(phase, Phase)
        self._waiting = phase
        return self.problem

    @property
    def elbo(self) -> float:
        """The mean estimate of the bound over the last pass, or what was read of it."""
        said = self._said() or self.means[-1:]
        return float(np.mean(said)) if said else float("nan")

    def __call__(self, t: int) -> Phase | Stop:
        """The next chunk; why there is none, when the stream was read."""
        if self._waiting is None:
            return self._next(t)
        phase, self._waiting = self._waiting, None
        return phase

    def position(self, entered: bool) -> StreamPosition:
        """Before the chunk that was read last, if no step was made of it, or after it."""
        return (self._before if entered else self._here())._replace(told=self.kept.told())

    def go_to(self, position: Any) -> None:
        """Read again what was read; of several passes the first, which says what there is, and the last."""
        if not isinstance(position, StreamPosition):
            raise ValueError("the checkpoint is of a run that read no stream: take another folder")
        if position.means and not self.rereadable:
            raise ValueError(
                f"the earlier run has read the stream {len(position.means)} times, and an iterator cannot be read again: give a "
                "list of chunks, or a source with chunks()"
            )
        self.kept.again(position.told)
        chunk = None
        if position.means:
            while (chunk := self._read()) is not None:
                pass
            self.kept.again(position.told)
            self._begin_pass()
        for _ in range(position.number):
            if (chunk := self._read()) is None:
                self._refuse(position)
        self.means, self.total = list(position.means), position.total
        if (self.number, self.seen, self.n_observed) != (position.number, position.seen, position.n_observed):
            self._refuse(position)
        self.lines = len(self.trace) - self.number
        if chunk is not None:
            self._phase(chunk, len(self.trace) - 1, None)

    def _refuse(self, position: StreamPosition) -> NoReturn:
        raise ValueError(
            f"this is not the stream of the earlier run, which had read {position.n_observed:,.0f} {self.words} in "
            f"{position.number} parts; here these have {self.n_observed:,.0f} in {self.number}: give the same stream, from its "
            "beginning, or take another folder"
        )

    def _here(self) -> StreamPosition:
        return StreamPosition(self.number, self.seen, self.n_observed, tuple(self.means), self.total, {})

    def _read(self) -> Chunk | None:
        """The next chunk of this pass, counted; None at its end."""
        try:
            raw = next(self.chunks)
        except StopIteration:
            return None
        try:
            chunk = self.make(raw)
        except (TypeError, ValueError) as error:
            raise type(error)(f"chunk {self.number} of the stream: {error}") from error
        self.number += 1
        self.seen, self.n_observed = self.seen + chunk.n_groups, self.n_observed + chunk.n_observed
        return chunk

    def _next(self, t: int) -> Phase | Stop:
        before = self._here()
        while (chunk := self._read()) is None:
            if stop := self._end_pass():
                return stop
            before = self._here()
        self._before = before
        # What is read again is no news: it is a part of the past already.
        new = chunk.arrivals is not None and not self.means and before.n_observed > 0
        return self._phase(chunk, t, chunk.arrivals(before.n_observed) if new and chunk.arrivals is not None else None)

    def _phase(self, chunk: Chunk, t: int, arrivals: Look | None) -> Phase:
        problem = self.problem = chunk.problem(float(max(self.seen, self.total or 0)))
        stepper = GroupStepper(
            problem, problem.n_groups, *problem.local_limits, self.step, remember=False, arrivals=arrivals
        )
        why = f"{self.step}: the data are a stream, nothing is remembered"
        self.last = Phase(problem, stepper=stepper, until=t + 1, enter=chunk.enter, bound_every="never", why=why)
        return self.last

    def _begin_pass(self) -> None:
        self.chunks: Iterator[Any] = iter(self.read())
        self.number, self.seen, self.n_observed, self.lines = 0, 0, 0.0, len(self.trace)

    def _said(self) -> list[float]:
        return [record.elbo_estimate for record in self.trace.records[self.lines :]]

    def _end_pass(self) -> Stop | None:
        if not self.seen:
            what = "the stream was empty when it was read again" if self.means else "the stream is empty"
            raise ValueError(f"X has no {self.words}: {what}")
        means = [*self.means, float(np.mean(self._said()))]
        self.total = max(self.seen, self.given or 0)
        left = left_to_gain(means, monotone=False)
        if self.tol > 0 and left is not None and left.below(self.tol * self.n_observed):
            words = f"converged: about {left.gain:.1e} nats left to gain in {self.n_observed:,.0f} {self.words}"
            return Stop(Reason.TOLERANCE, words)
        if len(means) >= self.max_passes:
            if not self.rereadable:
                return Stop(Reason.PASSES, "the stream was read once: an iterator cannot be read again")
            words = f"stopped at max_passes = {self.max_passes:g}"
            if self.tol == 0:
                return Stop(Reason.PASSES, f"{words}, as tol = 0 asks")
            words = f"{words} before the bound converged to tol = {self.tol:g} for each of {self.n_observed:,.0f} {self.words}"
            return Stop(Reason.PASSES, f"{words}: raise max_passes", ran_out=True)
        self.means = means  # those of a run that ends here stay as they were: it may go on when more passes are allowed
        self._begin_pass()
        return None
