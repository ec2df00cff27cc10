"""Run a fit: phases of steps with guards, probes, moves and restarts, until a limit is reached or nothing is left to gain."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from natgrad.inference.moves import Moves, Proposal, proposals, records_of_start
from natgrad.inference.probes import Trial, followed, tried
from natgrad.inference.problem import EdgeProblem, Problem, State
from natgrad.inference.starts import Rivals, Starts, best_start, overtaking
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.groups import GroupStepper, schedule_of
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.inference.steppers.sweep import ExactStepper, concrete
from natgrad.inference.trace import MoveRecord, Reason, Stop, Trace
from natgrad.threads import one_blas_thread

__all__ = [
    "TOLERANCE",
    "Accepted",
    "BoundEvery",
    "Limits",
    "Phase",
    "Phases",
    "Progress",
    "Result",
    "Round",
    "default_step",
    "is_due",
    "just_moved",
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
    rivals : Rivals, optional
        Other starts, each followed to its end when the run has settled: it goes on from the highest.
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
    rivals: Rivals | None = None
    probed: bool = True


# The phase of the steps after a given one, or why there is none.
Phases = Callable[[int], Phase | Stop]


# A pass that gains less than so many nats has found what its components are; or so many passes since the last move are enough.
LITTLE, ENOUGH = 1.0, 10
# Nats that one more component must be worth. Less than that, passes gain by themselves after a birth that came to nothing.
BIRTH = 1.0
# Moves that must gain so much: those that make more components, and those that may lead to the same ones in another order.
COSTLY = ("birth", "births", "anew", "exchange", "explore", "order")
# Nats below the run from which a state is worth passes, where its bound is known after some sweeps already.
NOT_FAR = 1.0
# Nats above the run up to which the same components in another order are no more than the same.
AS_HIGH = 0.1
# Passes between two rounds in which all proposals were refused, and after several births, which were a guess.
PATIENCE, GROWING = 5, 3


class Accepted(NamedTuple):
    """The state that a move led to, and its last step."""

    state: State
    info: StepInfo


def is_due(trace: Trace, bounds: Sequence[float], per_pass: int, tol: float, settled: bool) -> bool:
    """Whether components may move now: after a pass, when little was gained, or all of it.

    A function of the trace alone, so that a run that was stopped goes on with the same moves.
    """
    if settled:
        return True
    if len(bounds) < per_pass + 1 or trace.last.elbo != bounds[-1]:
        return False
    begun = trace.moves[-1].t if trace.moves else 0
    since = sum(record.t > begun and not math.isnan(record.elbo) for record in trace.records)
    if since == 0 or since % per_pass:
        return False
    if trace.moves and not trace.moves[-1].accepted:
        return since >= PATIENCE * per_pass
    if trace.moves and trace.moves[-1].kind in ("births", "anew") and since >= GROWING * per_pass:
        return True
    return bounds[-1] - bounds[-1 - per_pass] <= max(tol, LITTLE) or since >= ENOUGH * per_pass


def just_moved(trace: Trace, per_pass: int, t: int) -> bool:
    """Whether a move led to step ``t``: the next one is not before another step."""
    return any(m.accepted and m.kind != "start" and m.t + per_pass == t for m in trace.moves[-1:])


class Round:
    """The proposals at one state, tried one after the other.

    Parameters
    ----------
    moves : Moves
    stepper : whose bound cannot fall
    seed, tol : of the run
    late : whether time is up
    """

    def __init__(self, moves: Moves, stepper: Stepper, seed: int, tol: float, late: Callable[[], bool]) -> None:
        self.moves, self.stepper, self.seed, self.tol, self.late = moves, stepper, seed, tol, late
        self.messages_read = 0

    def first(self, state: State, bound: float, records: list[MoveRecord]) -> Accepted | None:
        """The first proposal that leads higher; None if none does. What was tried is added to the records."""
        goal = bound - NOT_FAR
        for proposal in proposals(self.moves, state, tuple(records), self.seed, goal):
            hopeless = proposal.state is None or proposal.bound < goal or _is_back(proposal, state, bound)
            trial = None if hopeless else self._tried(proposal, state, bound)
            accepted = trial is not None and trial.higher
            after = trial.state if trial is not None and accepted else state
            gain = -math.inf if trial is None else _gain(trial, bound)
            records.append(_record(proposal, state, after, self.stepper, bound, gain, accepted))
            if trial is not None and accepted:
                return Accepted(trial.state, trial.info)
            if self.late():
                break
        return None

    def _tried(self, proposal: Proposal, settled: State, bound: float) -> Trial:
        assert proposal.state is not None
        least = BIRTH * proposal.n_born if proposal.kind in COSTLY else 0.0
        margin = max(self.tol, least)
        trial = followed(self.stepper, proposal.state, settled, bound, self.seed, margin)
        self.messages_read += trial.messages_read
        return trial


def _is_back(proposal: Proposal, settled: State, bound: float) -> bool:
    """Whether an exchange has led to the components that there were, and no higher: priors may tell their order apart."""
    if proposal.kind != "exchange" or proposal.state is None or not proposal.bound < bound + AS_HIGH:
        return False
    return proposal.part.alike(proposal.state, settled)


def _record(
    proposal: Proposal, state: State, after: State, stepper: Stepper, bound: float, gain: float, accepted: bool
) -> MoveRecord:
    n_active = int(proposal.part.active(stepper.finish(after)).sum())
    return MoveRecord(
        state.t, proposal.part.plate, proposal.kind, proposal.components, bound, gain, accepted, n_active,
        float(proposal.held),
    )  # fmt: skip


def _gain(trial: Trial, bound: float) -> float:
    reached = trial.info.bound
    return -math.inf if reached is None or math.isnan(reached) else float(reached - bound)


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
        moved = just_moved(self.monitor.trace, self.stepper.steps_per_pass, kept.state.t)
        stop, state = self._after(None, kept.state, moved)  # which the limit left out
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

    def _after(self, stop: Stop | None, state: State, moved: bool = False) -> tuple[Stop | None, State]:
        """Probes and moves, if they are due and were not made, the next phase if this one has ended, and a checkpoint."""
        settled = self.monitor.creeps() if stop is None else stop is self.monitor.settled
        if settled and self.phase.probed and not moved and not self.monitor.final:  # one exact sweep leaves no saddle
            stop, state = self._probed(stop, state)
        if self.phase.moves is not None and not moved and (stop is None or stop is self.monitor.settled):
            stop, state = self._moved(stop, state)
        if self.phase.rivals is not None and not moved and stop is not None and stop is self.monitor.settled:
            stop, state = self._overtaken(self.phase.rivals, stop, state)
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
        made = start if isinstance(start, Starts) else start()
        if isinstance(made, State):
            return made
        best = best_start(made, self.seed, self.monitor.late)
        self.monitor.charge(best.read)
        self._spend("starts", best.read)
        self.monitor.trace.starts = best.records
        return best.state

    def _spend(self, what: str, read: int) -> None:
        """Note in the trace what was read beside the run's own steps."""
        if read:
            spent = self.monitor.trace.spent
            spent[what] = spent.get(what, 0) + read

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
        last = phase.until is None
        self.monitor.enter(phase.problem, phase.method, phase.step, self.stepper, phase.bound_every, t, last)
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
        if phase.moves is not None and not self.monitor.trace.moves:
            self.monitor.trace.moves += records_of_start(phase.moves, state)
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
        """The run goes on from where a probe leads, if that is higher than where it has settled; what is read is counted."""
        monitor, problem, order = self.monitor, self.phase.problem, self.phase.order
        stepper: Stepper = self.stepper
        if not problem.probes or not (stepper.monotone or isinstance(problem, EdgeProblem)):
            return stop, state
        if not stepper.monotone:
            assert isinstance(problem, EdgeProblem)
            stepper = ExactStepper(problem, VB(), Constant(1.0), order)
        settled = self.stepper.finish(state)
        # About what its own steps have read: a run that was resumed has no other count of them.
        budget = max(PROBE_BUDGET, problem.n_messages * len(monitor.trace) // stepper.steps_per_pass)
        trials = tried(problem, stepper, settled, monitor.bounds, order, self.seed, monitor.limits.nats, budget)
        read = sum(trial.messages_read for trial in trials)
        self._spend("probes", read)
        if trials and trials[-1].higher:
            higher = trials[-1].state._replace(t=state.t + 1)
            info: StepInfo = trials[-1].info._replace(messages_read=read)
            monitor.record(higher, info)
            return self.tell(higher) or monitor.ended(higher), higher
        monitor.charge(read)
        return stop, state

    def _overtaken(self, rivals: Rivals, stop: Stop, state: State) -> tuple[Stop | None, State]:
        """The run goes on from where another of the starts that were compared has led, if that is higher; asked once."""
        monitor, trace = self.monitor, self.monitor.trace
        names = {start.name for start in trace.starts}
        if not (names or self.phase.moves) or set(rivals.names) & names:
            return stop, state
        ends = rivals.ends(monitor.left())
        trace.starts += tuple(end.record for end in ends)
        self._spend("restarts", sum(end.read for end in ends))
        found = overtaking(ends, state, monitor.bounds[-1], monitor.limits.nats)
        if found is None:
            monitor.charge(sum(end.read for end in ends))
            return stop, state
        monitor.record(*found)
        return self.tell(found[0]) or monitor.ended(found[0]), found[0]

    def _moved(self, stop: Stop | None, state: State) -> tuple[Stop | None, State]:
        """The run goes on from where the first move that raises the bound leads; what is read is counted."""
        monitor, trace = self.monitor, self.monitor.trace
        assert self.phase.moves is not None
        if not is_due(trace, monitor.bounds, self.stepper.steps_per_pass, monitor.limits.nats, stop is not None):
            return stop, state
        search = Round(self.phase.moves, self.stepper, self.seed, monitor.limits.nats, monitor.late)
        accepted = search.first(self.stepper.finish(state), monitor.bounds[-1], trace.moves)
        self._spend("moves", search.messages_read)
        if accepted is None:
            monitor.charge(search.messages_read)
            return stop, state
        # Whole passes were made, so that the batches of the next one are in their order.
        after = accepted.state._replace(t=state.t + self.stepper.steps_per_pass)
        monitor.record(after, accepted.info._replace(messages_read=search.messages_read))
        return self.tell(after) or monitor.ended(after), after


@contextmanager
def _told_when_late(problem: EdgeProblem, late: Callable[[], bool]) -> Iterator[None]:
    """A problem may outlive the run, and another run on it, in a callback, be over before this one."""
    before, problem.late = problem.late, late
    try:
        yield
    finally:
        problem.late = before


def take_steps(
    problem: Problem, stepper: Stepper, start: State | Starts, n: int, seed: int, executor: Any = None
) -> Result:
    """A few steps and nothing else: no bound is evaluated, nobody is told. A step that diverges is a FloatingPointError."""
    phase = Phase(problem, stepper=stepper, bound_every="never")
    result = run(phase, start, limits=Limits(n, 0.0), seed=seed, verbose=False, executor=executor)
    if result.stop.diverged:
        raise FloatingPointError(f"{result.stop} Take a smaller step=")
    return result
