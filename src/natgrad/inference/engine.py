"""Run a fit: phases of steps with guards, probes, moves and restarts, until a limit is reached or nothing is left to gain."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from natgrad.inference.auto import Auto, Control, choose, largest_coupling
from natgrad.inference.callbacks import LOG, CallbackList, Progress, as_callbacks, progress_bar
from natgrad.inference.checkpoint import (
    Checkpointer,
    PhaseSource,
    RunState,
    callback_states,
    restore_callback_states,
    run_fingerprint,
)
from natgrad.inference.executors import Executor, Threads, opened, place_shards
from natgrad.inference.methods import VB, Method
from natgrad.inference.monitor import TOLERANCE, BoundEvery, Limits, RunMonitor
from natgrad.inference.moves import Moves, moves_are_due, proposed_moves
from natgrad.inference.problem import EdgeProblem, Problem, State
from natgrad.inference.proposals import Proposal, Starts, compare, judge, probes_at
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.groups import GroupStepper, schedule_of
from natgrad.inference.steppers.stepper import Stepper
from natgrad.inference.steppers.sweep import ExactStepper, concrete
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.threads import one_blas_thread

__all__ = [
    "TOLERANCE",
    "BoundEvery",
    "Limits",
    "Phase",
    "Phases",
    "Progress",
    "Result",
    "default_step",
    "few_steps",
    "run",
    "take_steps",
]


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: what is optimised, and how.

    Parameters
    ----------
    problem, method, step, order : as the steps are to be taken
    until : int, optional
        The step after which the next phase begins; such a phase does not settle. None: it lasts until a limit is reached.
    stepper : Stepper, optional
        In place of the one that follows from method and step.
    enter : function, optional
        The state of the phase before in, that of this one out.
    bound_every : how often a sampled method evaluates the exact bound
    why : str
        What comes before the strategy in words.
    optional : bool
        Of a closing phase: whether it is left out when the time is up.
    moves : Moves, optional
        The components that are born, merged and deleted between passes, by steps that cannot lower the bound.
    probed : whether a run that has settled, or creeps, is probed for a saddle
    """

    problem: Problem
    method: Method | None = None
    step: Control = Auto()  # noqa: RUF009  (frozen)
    order: tuple[str, ...] = ()
    until: int | None = None
    stepper: Stepper | None = None
    enter: Callable[[State], State] | None = None
    bound_every: BoundEvery = None
    why: str = ""
    optional: bool = False
    moves: Moves | None = None
    probed: bool = True


# The phase of the steps after a given one, or why there is none.
Phases = Callable[[int], Phase | Stop]


#     for phase in phases:                  a warm-up, the main run, a chunk of a stream, a new draw of negatives, …
#         for t in steps:
#             sample            which children or groups, with what weight
#             target            η̃_i + Σ weight · η̃_ki                         (eq. 6)
#             natural step      λ ← (1 − ρ) λ + ρ target
#             guard, trace, callbacks, stop, checkpoint
#     closing phases            an exact pass, samples
#
# The first three of a step are the stepper's; the rest is here. A whole fit is one run: it has one clock, one count of messages
# read, one trace, one guard, one list of callbacks, one reason to stop and one checkpoint.

# Messages that the probes of a converged run may read, or as many as the steps of the run did.
PROBE_BUDGET = 4_000_000


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run."""

    state: State
    trace: Trace
    stop: Stop
    bound: float | None = None  # at the state, where a step has told it


def default_step(method: Method | None, problem: Problem) -> Control:
    """For `VB`, ρ = 1 where blocks move in turn and 1/ω where all move together; otherwise nothing is fixed."""
    if not isinstance(method, VB):
        return Auto()
    together = method.option == "b" and isinstance(problem, EdgeProblem)
    return Constant(1.0 / largest_coupling(problem) if together else 1.0)  # type: ignore[arg-type]


def run(
    phases: Phase | Phases,
    start: State | Starts | Callable[[], State | Starts],
    *,
    limits: Limits,
    seed: int,
    callbacks: Sequence[Any] = (),
    verbose: bool | None = None,
    trace: Trace | None = None,
    executor: Any = None,
    checkpointer: Checkpointer | None = None,
    model_at: Callable[[State], Any] | None = None,
    closing: Sequence[Phase] = (),
) -> Result:
    """Run until a limit is reached, the phases end, or the guard says stop.

    Parameters
    ----------
    phases : Phase, or a function
        One phase, or the phase of the steps after a given one; pulled when the one before has ended.
    start : State, Starts or a function that makes a state
    limits : Limits, of the whole run
    seed : int
    callbacks : functions of `Progress`
    verbose : bool, optional
        Whether there is a progress bar; by default on a terminal.
    trace : Trace, optional
        An earlier one to go on with.
    executor : optional
        Who computes the parts of a step; by default this process.
    checkpointer : Checkpointer, optional
        Told of every step; may know of an earlier run to go on with.
    model_at : function, optional
        What a callback sees of a state; by default the state itself.
    closing : phases
        Made at the end of every run that did not diverge, ``until`` steps each; no lines of the trace are theirs, but what they
        read and the time they take are counted.
    """
    trace = Trace() if trace is None else trace  # an empty one is false
    tell = CallbackList(as_callbacks(callbacks), trace, model_at or (lambda state: state))
    pull = (lambda t: phases) if isinstance(phases, Phase) else phases
    monitor = RunMonitor(limits, trace)
    with (
        nullcontext() if checkpointer is None else checkpointer,
        one_blas_thread(),
        progress_bar(limits.max_steps, verbose) as bar,
        opened(executor) as where,
        ExitStack() as shards,
    ):
        loop = _Loop(pull, monitor, tell, seed, where, checkpointer, bar, shards)
        state, stop = loop.begin(start)
        while stop is None:
            stop, state = loop.step(state)
        last = state = concrete(state)
        finished = loop.stepper.finish(state)
        state, stop = loop.close(closing, finished, stop)
        LOG.log(logging.WARNING if stop.diverged else logging.INFO, "fit ended after %d steps: %s", state.t, stop)
        return Result(state, trace, stop, loop.monitor.bound_at(state) if state is last else None)


@dataclass
class _Loop:
    """A run on its way."""

    pull: Phases
    monitor: RunMonitor
    tell: CallbackList
    seed: int
    executor: Executor
    checkpointer: Checkpointer | None
    bar: Callable[[Trace], None]
    shards: ExitStack

    def begin(self, start: State | Starts | Callable[[], State | Starts]) -> tuple[State, Stop | None]:
        """The state to go on from, and whether there is nothing to do."""
        earlier = None if self.checkpointer is None else self.checkpointer.earlier
        if earlier is None:
            state = start if isinstance(start, State) else self._made(start)
            self.monitor.begun = state.t
            if isinstance(phase := self.pull(state.t), Stop):
                raise ValueError(f"there is nothing to run: {phase}")
            return self._enter(phase, state)
        phase, ended = self._pulled_again(earlier)
        kept = self._choose(phase, earlier.state.t)
        assert kept is not None
        self.monitor.trace.take_over(kept.trace)
        self.monitor.trace.strategy = self.words
        restore_callback_states(self.tell.callbacks, kept.notes)
        self.monitor.restore(kept)
        # More steps may be allowed now than when they ran out.
        if kept.stop is not None and kept.stop.reason not in (Reason.STEPS, Reason.PASSES):
            return kept.state, kept.stop
        if stop := ended or self.monitor.out_of_steps(kept.state):
            return kept.state, stop
        if kept.stop is None or not kept.entered:
            return (kept.state, None) if kept.entered else self._enter(phase, kept.state)
        per_pass, last = self.stepper.steps_per_pass, self.monitor.trace.proposals[-1:]
        judged = any(
            record.accepted and record.kind != "start" and record.t + per_pass == kept.state.t for record in last
        )
        stop, state = self._after(None, kept.state, judged)  # which the limit left out
        return state, stop

    def _pulled_again(self, kept: RunState) -> tuple[Phase, Stop | None]:
        """The phase in which an earlier run goes on; of a stream of which all was read the last one, and why it ends."""
        source = self.pull
        if isinstance(source, PhaseSource):
            self.monitor.trace.take_over(kept.trace)
            source.go_to(kept.source)
        if not isinstance(phase := self.pull(kept.state.t), Stop):
            return phase, None
        if isinstance(source, PhaseSource):
            return source.last, phase
        raise ValueError(f"the earlier run cannot go on: {phase}")

    def step(self, state: State) -> tuple[Stop | None, State]:
        """One step, and what comes after it."""
        return self._after(*self._one_step(state))

    def _after(self, stop: Stop | None, state: State, judged: bool = False) -> tuple[Stop | None, State]:
        """Proposals, if they are due and were not judged, the next phase if this one has ended, and a checkpoint."""
        monitor, moves = self.monitor, self.phase.moves
        settled = monitor.creeps() if stop is None else stop is monitor.settled
        if settled and self.phase.probed and not judged and not monitor.final:  # one exact sweep leaves no saddle
            stop, state = self._probed(stop, state)
        if moves is not None and not judged and (stop is None or stop is monitor.settled):
            nats, per_pass = monitor.limits.nats, self.stepper.steps_per_pass
            if moves_are_due(monitor.trace, monitor.bounds, monitor.begun, per_pass, nats, stop is not None):
                here, bound = self.stepper.finish(state), monitor.bounds[-1]
                proposed = proposed_moves(moves, here, monitor.trace.moves, self.seed, bound)
                stop, state = self._judged(self.stepper, proposed, stop, state)
        self.bar(self.monitor.trace)
        if (ended := self.phase.until is not None and state.t >= self.phase.until) and stop is None:
            state, stop = self._enter(self.pull(state.t), state)
            ended = stop is not None
        if self.checkpointer is not None:
            run, notes = self.monitor, callback_states(self.tell.callbacks)
            kept = RunState(state, run.trace, run.begun, run.unread, run.first, notes, stop, run.phase_begun, not ended)
            source = self.pull.position(not ended) if isinstance(self.pull, PhaseSource) else None
            self.checkpointer.after(kept._replace(source=source))
        return stop, state

    def close(self, closing: Sequence[Phase], state: State, stop: Stop) -> tuple[State, Stop]:
        """The phases at the end of every run; a callback may still end them."""
        for phase in () if stop.diverged else closing:
            assert phase.stepper is not None
            for _ in range(phase.until or 1):
                if phase.optional and stop.reason is Reason.CALLBACK:
                    break
                if phase.optional and (late := self.monitor.out_of_time()):
                    stop = late
                    break
                new, info = phase.stepper.step(state, self.seed)
                if refused := self.monitor.guard(new, info):
                    return state, refused
                state = new
                self.monitor.charge(info.messages_read)
                if phase.optional and (wish := self.tell(state)):
                    stop = wish
            state = phase.stepper.finish(state)
        return state, stop

    # -- parts --

    def _made(self, start: Starts | Callable[[], State | Starts]) -> State:
        """The state that a run begins with, and the records of what it took to find it."""
        begun = time.perf_counter()
        made = start if isinstance(start, Starts) else start()
        if isinstance(made, State):
            return made
        seconds = time.perf_counter() - begun
        state, records = compare(made, self.seed, self.monitor.late)
        self.monitor.charge(sum(record.messages for record in records))
        first = replace(records[0], seconds=records[0].seconds + seconds)
        self.monitor.trace.proposals += [first, *records[1:]]
        return state

    def _enter(self, phase: Phase | Stop, state: State) -> tuple[State, Stop | None]:
        """The state at the beginning of a phase; why there is none, if so."""
        if isinstance(phase, Stop):
            return state, phase
        self._choose(phase, state.t)
        self.monitor.trace.strategy = self.words
        return self._started(phase, state), None

    def _choose(self, phase: Phase, t: int) -> RunState | None:
        """The stepper of a phase; what an earlier run has kept, if there is one."""
        self.phase = phase
        # A network shares out its batches by itself.
        by_itself = isinstance(phase.problem, EdgeProblem) and phase.problem.grouping is not None
        if phase.stepper is not None:
            self.stepper, words = phase.stepper, ""
        else:
            remote = None if isinstance(self.executor, Threads) or not by_itself else self.executor
            self.stepper, words = choose(phase.problem, phase.method, phase.step, phase.order, remote)
        self.monitor.trace.schedule = schedule_of(self.stepper)
        if isinstance(self.stepper, ExactStepper):
            most, settles = self.monitor.limits.max_steps, self.monitor.limits.tol > 0
            until = None if most is None else self.monitor.begun + most
            self.stepper.go_ahead(self._is_unseen(phase), until, settles)
        if isinstance(self.stepper, GroupStepper):
            self.stepper.late = self.monitor.late
        self.shards.close()  # those of the phase before
        if isinstance(phase.problem, EdgeProblem):
            self.shards.enter_context(_told_when_late(phase.problem, self.monitor.late))
        if not by_itself:
            size = self.stepper.size if isinstance(self.stepper, GroupStepper) else 1
            self.shards.enter_context(place_shards(phase.problem, self.executor, size))
        self.words = "; ".join(part for part in (phase.why, words) if part)
        LOG.info("fit of %s: %s", ", ".join(phase.problem.blocks), self.words)
        self.monitor.enter(phase, self.stepper, t)
        if self.checkpointer is None:
            return None
        in_parts = isinstance(self.pull, PhaseSource)
        return self.checkpointer.begin(run_fingerprint(phase.problem, self.seed, phase.order, self.words, in_parts))

    def _is_unseen(self, phase: Phase) -> bool:
        """Whether nobody looks at the states between steps, or at the clock."""
        unlimited = phase.until is None and self.monitor.until is None
        return unlimited and self.tell.looks_once and self.checkpointer is None and phase.moves is None

    def _started(self, phase: Phase, state: State) -> State:
        state = state if phase.enter is None else phase.enter(state)
        self.monitor.start(state)
        if phase.moves is not None and not self.stepper.monotone:
            raise TypeError(
                "moves are accepted by the exact bound, which sampled steps have not after each pass: leave out method= and "
                "step=, or give the number of components"
            )
        if phase.moves is not None and not self.monitor.trace.first_sizes:
            sizes = {part.plate: part.n_active(state) for part in phase.moves.parts}
            self.monitor.trace.first_sizes = sizes
        return state

    def _one_step(self, state: State) -> tuple[Stop | None, State]:
        monitor = self.monitor
        new, info = self.stepper.step(state, self.seed)
        if stop := monitor.guard(new, info):
            return stop, state
        monitor.record(new, info)
        if stop := monitor.bound_diverged(new):
            return stop, state
        return self.tell(new) or monitor.ended(new), new

    def _probed(self, stop: Stop | None, state: State) -> tuple[Stop | None, State]:
        """Whether there is a way up from where the run has converged, or is stagnating."""
        monitor, problem, order = self.monitor, self.phase.problem, self.phase.order
        stepper: Stepper = self.stepper
        if not problem.probes or not (stepper.monotone or isinstance(problem, EdgeProblem)):
            return stop, state
        if not stepper.monotone:
            assert isinstance(problem, EdgeProblem)
            stepper = ExactStepper(problem, VB(), Constant(1.0), order)
        # About what its own steps have read: a run that was resumed has no other count of them.
        budget = max(PROBE_BUDGET, problem.n_messages * len(monitor.trace) // self.stepper.steps_per_pass)
        rounds = len({record.t for record in monitor.trace.proposals if record.kind == "probe"})
        proposed = probes_at(problem, self.stepper.finish(state), order, self.seed, rounds)
        return self._judged(stepper, proposed, stop, state, budget)

    def _judged(
        self, stepper: Stepper, proposed: Iterable[Proposal], stop: Stop | None, state: State, budget: float = math.inf
    ) -> tuple[Stop | None, State]:
        """The run goes on from where the first proposal that raises the bound leads; what is read is counted."""
        monitor, problem = self.monitor, self.phase.problem
        kept, records = judge(
            problem, stepper, proposed, self.stepper.finish(state), monitor.bounds, seed=self.seed, tol=monitor.limits.nats,
            budget=budget, late=monitor.late,
        )  # fmt: skip
        monitor.trace.proposals += records
        read = sum(record.messages for record in records)
        if kept is None:
            monitor.charge(read)
            return stop, state
        # Whole passes were made, so that the batches of the next one are in their order.
        after = kept.state._replace(t=state.t + self.stepper.steps_per_pass)
        monitor.record(after, kept.info._replace(messages_read=read))
        return self.tell(after) or monitor.ended(after), after


@contextmanager
def _told_when_late(problem: EdgeProblem, late: Callable[[], bool]) -> Iterator[None]:
    """A problem may outlive the run, and another run on it, in a callback, be over before this one."""
    before, problem.late = problem.late, late
    try:
        yield
    finally:
        problem.late = before


def few_steps(
    problem: Problem, stepper: Stepper, start: State | Starts | Callable[[], State | Starts], n: int, seed: int,
    executor: Any = None, tol: float = 0.0,
) -> Result:  # fmt: skip
    """Take at most ``n`` steps and nothing else: no bound is evaluated, no callback is called."""
    phase = Phase(problem, stepper=stepper, bound_every="never")
    return run(phase, start, limits=Limits(n, tol), seed=seed, verbose=False, executor=executor)


def take_steps(
    problem: Problem, stepper: Stepper, start: State | Starts, n: int, seed: int, executor: Any = None
) -> Result:
    """Take ``n`` steps and nothing else; raise a FloatingPointError if one diverges."""
    result = few_steps(problem, stepper, start, n, seed, executor)
    if result.stop.diverged:
        raise FloatingPointError(f"{result.stop} Take a smaller step=")
    return result
