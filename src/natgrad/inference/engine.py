"""The loop: a problem, a method, a step size and a start in; the last good state, the trace and the reason it ended out.

    for t in steps:
        sample            which children, with what weight
        target            η̃_i + Σ weight · η̃_ki                         (eq. 6)
        natural step      λ ← (1 − ρ) λ + ρ target
        guard, trace, stop

The first three are the stepper's; the rest is here.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from natgrad.blas import ONE_BLAS_THREAD
from natgrad.inference.auto import Auto, Control, choose, largest_coupling
from natgrad.inference.callbacks import LOG, Progress, Teller, as_callbacks, asked
from natgrad.inference.checkpoint import Keeper, RunState, about_run, noted, remind
from natgrad.inference.executors.threads import Executor
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch, Method
from natgrad.inference.probes import tried
from natgrad.inference.problem import Problem, State
from natgrad.inference.progress import progress_bar
from natgrad.inference.step_sizes import Constant, PerNode
from natgrad.inference.steppers.sampled import ExactStepper, StepInfo, Stepper, full_accesses
from natgrad.inference.stopping import left_to_gain, left_to_gain_noisy
from natgrad.inference.trace import Reason, StepRecord, Stop, Trace
from natgrad.validation import real_number, whole_number

__all__ = ["TOLERANCE", "BoundEvery", "Limits", "Progress", "Result", "default_step", "run"]

# The exact bound reads every observation. With this many or fewer it is evaluated at every step; with more, a sampled
# method evaluates it when the messages read since the last time amount to this part of a sweep.
CHEAP_BOUND = 200_000
BOUND_SHARE = 0.25
# A bound this many times further below zero than the first one has left for good; means that diverge grow exponentially.
LOST = 1e6
# Nats left to gain when a run has converged: 0.045 posterior standard deviations, if all of it is in one mean.
TOLERANCE = 1e-3
# A quarter of all passes that gains less than so many tolerances creeps.
CREEP = 100.0
BoundEvery = int | Literal["log", "never"] | None


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: after ``steps``, ``seconds`` or ``accesses``, or when less than ``tol`` nats are left to gain.

    What is left is estimated from how fast the gains of successive passes shrink (`natgrad.inference.stopping`). ``share`` is
    the number of observations where ``tol`` is for each of them: large data, of which nobody needs the last nat.
    """

    steps: int = 1000
    tol: float = TOLERANCE
    seconds: float | None = None
    accesses: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        whole_number(self.steps, "steps")
        if not real_number(self.tol, "tol") >= 0:
            raise ValueError(f"tol must be ≥ 0, got {self.tol!r}: 0 runs all steps")
        if self.seconds is not None and not real_number(self.seconds, "seconds") > 0:
            raise ValueError(f"seconds must be > 0, got {self.seconds!r}: None means no limit")
        if self.accesses is not None:
            whole_number(self.accesses, "accesses")

    @property
    def nats(self) -> float:
        """The tolerance for the whole bound."""
        return self.tol * (1.0 if self.share is None else self.share)

    @property
    def tol_words(self) -> str:
        """The tolerance as the user gave it."""
        return f"tol = {self.tol:g}" + ("" if self.share is None else f" for each of {self.share:,.0f} observations")


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run."""

    state: State
    trace: Trace
    stop: Stop


def default_step(method: Method | None, problem: Problem) -> Control:
    """For `VB`, ρ = 1 where blocks move in turn and 1/ω where all move together; otherwise nothing is fixed."""
    if not isinstance(method, VB):
        return Auto()
    return Constant(1.0 if method.option == "a" else 1.0 / largest_coupling(problem))


def run(
    problem: Problem,
    start: State | Callable[[], State],
    method: Method | None,
    step: Control,
    order: tuple[str, ...],
    *,
    limits: Limits,
    seed: int,
    callbacks: Sequence[Any] = (),
    bound_every: BoundEvery = None,
    progress: bool | None = None,
    trace: Trace | None = None,
    executor: Executor | None = None,
    keeper: Keeper | None = None,
    model_at: Callable[[State], Any] | None = None,
) -> Result:
    """Run until a limit is reached or the guard says stop.

    ``start`` is a state, or a function that makes it. ``bound_every`` is for sampled methods: the exact bound every so many
    steps, or "log": at about twenty counts of accesses for each power of ten, evenly on a logarithmic axis; "never" where a
    reading of all data is too much, and a diverging run is then seen only by its parameters; None leaves it to the cost.
    ``keeper`` is told of every step, and may know of an earlier run to go on with. ``model_at`` makes what a callback sees of a
    state; by default the state itself.
    """
    stepper, words = choose(problem, method, step, order, executor)
    trace = Trace() if trace is None else trace  # an empty one is false
    tell = Teller((*as_callbacks(callbacks), *asked()), trace, model_at or (lambda state: state))
    LOG.info("fit of %s: %s", ", ".join(problem.blocks), words)
    with (
        nullcontext() if keeper is None else keeper,
        ONE_BLAS_THREAD,
        progress_bar(limits.steps, progress) as bar,
    ):
        kept = None if keeper is None else keeper.begin(about_run(problem, seed, order, words))
        if kept is not None:
            trace.take_over(kept.trace)
            remind(tell.callbacks, kept.notes)
        trace.choice = words
        watch = _Watch(problem, method, step, stepper, limits, bound_every, trace)
        state, stop = watch.begin(start, kept)
        while stop is None:
            stop, state = _one_step(stepper, watch, state, seed, tell)
            if watch.creeps() if stop is None else stop is watch.settled:
                stop, state = _probed(watch, stop, state, order, seed, tell)
            bar(watch.trace)
            if keeper is not None:
                keeper.after(
                    RunState(state, trace, watch.begun, watch.unread, watch.first, noted(tell.callbacks), stop)
                )
        LOG.log(logging.WARNING if stop.diverged else logging.INFO, "fit ended after %d steps: %s", state.t, stop)
        return Result(stepper.finish(state), trace, stop)


def _one_step(stepper: Stepper, watch: _Watch, state: State, seed: int, tell: Teller) -> tuple[Stop | None, State]:
    new, info = stepper.step(state, seed)
    stop = watch.guard(new, info)
    if stop is not None:
        return stop, state
    watch.record(new, info)
    stop = watch.lost(state)
    if stop is not None:
        return stop, state
    return tell(new) or watch.ended(new), new


def _probed(
    watch: _Watch, stop: Stop | None, state: State, order: tuple[str, ...], seed: int, tell: Teller
) -> tuple[Stop | None, State]:
    """The run goes on from where a probe leads, if that is higher than where it has settled; what the probes read is counted."""
    stepper = watch.stepper if watch.stepper.rising else ExactStepper(watch.problem, VB(), Constant(1.0), order)
    trials = tried(
        watch.problem, stepper, watch.stepper.finish(state), watch.bounds[-1], order, seed, watch.limits.nats
    )
    accesses = sum(trial.accesses for trial in trials)
    if trials and trials[-1].higher:
        found = trials[-1].state._replace(t=state.t + 1)
        watch.record(found, trials[-1].info._replace(accesses=accesses))
        return tell(found) or watch.ended(found), found
    watch.charge(accesses)
    return stop, state


@dataclass
class _Watch:
    """The guard, the trace and the stopping rules of one run."""

    problem: Problem
    method: Method | None
    step: Control
    stepper: Stepper
    limits: Limits
    bound_every: BoundEvery
    trace: Trace
    started: float = field(default_factory=time.perf_counter)
    bounds: list[float] = field(default_factory=list)
    unread: int = 0
    first: float = math.nan
    begun: int = 0
    settled: Stop | None = None

    def __post_init__(self) -> None:
        earlier = self.trace.last if len(self.trace) else None
        self.accesses = self.accesses_before = earlier.accesses if earlier else 0
        self.started -= earlier.seconds if earlier else 0.0
        self.until = None if self.limits.seconds is None else time.perf_counter() + self.limits.seconds
        self.sweep_accesses = full_accesses(self.problem)

    def begin(self, start: State | Callable[[], State], kept: RunState | None) -> tuple[State, Stop | None]:
        """The state to go on from, and whether there is nothing to do.

        The bound at the start, against which a lost one is judged, is not evaluated for exact sweeps, which cannot lose it.
        """
        if kept is not None:
            self._remember(kept)
            # More steps may be allowed now than when they ran out.
            ended = kept.stop is not None and kept.stop.reason is not Reason.STEPS
            return kept.state, kept.stop if ended else self._out_of_steps(kept.state)
        state = start() if callable(start) else start
        self.begun = state.t
        if not self.stepper.rising and self.bound_every != "never":
            self.first = self.problem.bound(state)
        return state, None

    def _remember(self, kept: RunState) -> None:
        self.begun, self.unread, self.first = kept.begun, kept.unread, kept.first
        records = self.trace.records
        mine = [record for record in records if record.t > kept.begun]
        self.bounds = [record.elbo for record in mine if not math.isnan(record.elbo)]
        before = records[len(records) - len(mine) - 1] if len(mine) < len(records) else None
        self.accesses_before = before.accesses if before else 0
        if self.until is not None and mine:
            self.until -= mine[-1].seconds - (before.seconds if before else 0.0)

    def guard(self, state: State, info: StepInfo) -> Stop | None:
        """Refuse a step that produced an invalid or non-finite λ."""
        for name, block in info.blocks.items():
            if not bool(block.valid):
                return self._diverged(
                    f"{name!r} got a natural parameter that is not finite or not valid", state.t, info.rho
                )
        return None

    def record(self, state: State, info: StepInfo) -> None:
        """One line of the trace; the exact bound if it is due."""
        self.accesses += info.accesses
        self.unread += info.accesses
        bound = info.bound
        if bound is None and not info.unbounded and self._bound_is_due(state.t, info.accesses):
            bound, self.unread = self.problem.bound(state), 0
        if bound is not None:
            self.bounds.append(bound)
        moved = max((float(block.moved) for block in info.blocks.values()), default=0.0)
        self.trace.append(
            StepRecord(
                state.t,
                math.nan if bound is None else bound,
                info.estimate if bound is None or not math.isnan(info.estimate) else bound,
                info.rho,
                moved,
                self.accesses,
                time.perf_counter() - self.started,
            )
        )

    def charge(self, accesses: int) -> None:
        """Count what was read after the last step."""
        self.accesses += accesses
        last = self.trace.pop()
        self.trace.append(last._replace(accesses=self.accesses, seconds=time.perf_counter() - self.started))

    def lost(self, state: State) -> Stop | None:
        """A bound that is not finite, or has left for minus infinity."""
        if not self.bounds:
            return None
        first = self.first if math.isfinite(self.first) else self.bounds[0]
        last = self.bounds[-1]
        if math.isfinite(last) and last > first - LOST * (abs(first) + 1.0):
            return None
        record = self.trace.pop()
        return self._diverged(f"the bound went from {first:.6g} to {last:.6g}", record.t, record.rho)

    def ended(self, state: State) -> Stop | None:
        """Tolerance, time, accesses or steps."""
        read = self.accesses - self.accesses_before
        if self.limits.accesses is not None and read >= self.limits.accesses:
            words = f"{read:,} messages were read after step {self.trace.last.t}, of {self.limits.accesses:,} allowed"
            return Stop(Reason.ACCESSES, words)
        if self.until is not None and time.perf_counter() > self.until:
            return Stop(
                Reason.SECONDS,
                f"{self.limits.seconds:g} seconds were up after step {self.trace.last.t}",
            )
        return self._settled() or self._out_of_steps(state)

    def _settled(self) -> Stop | None:
        if self.limits.tol == 0:
            return None
        if self.stepper.rising or isinstance(self.method, VB):
            left = left_to_gain(self.bounds, self.stepper.steps_per_pass, self.stepper.rising)
        else:
            left = left_to_gain_noisy(self.bounds)
        if left is None or not left.below(self.limits.nats):
            return None
        words = f"about {left.gain:.1e} nats are left to gain, less than {self.limits.tol_words}"
        if left.noise > self.limits.nats:
            words = f"the gains are less than the rounding of the bound, {left.noise:.1e} nats; {self.limits.tol_words}"
        self.settled = Stop(Reason.TOLERANCE, words)
        return self.settled

    def creeps(self) -> bool:
        """Whether a run that has not settled gains next to nothing, as it does for very long on the flat top of a saddle.

        Asked after 32 passes, 64, 128, …, of the last quarter of them: a probe costs as much as some passes.
        """
        passes, rest = divmod(len(self.bounds), self.stepper.steps_per_pass)
        if self.limits.tol == 0 or not self.stepper.rising or rest or passes < 32 or passes & (passes - 1):
            return False
        return self.bounds[-1] - self.bounds[-1 - passes // 4 * self.stepper.steps_per_pass] <= CREEP * self.limits.nats

    def _out_of_steps(self, state: State) -> Stop | None:
        if state.t - self.begun < self.limits.steps:
            return None
        taken = f"all {self.limits.steps} steps were taken"
        if self.limits.tol == 0:
            return Stop(Reason.STEPS, f"{taken}, as tol = 0 asks")
        settled = f"before the bound settled to {self.limits.tol_words}"
        return Stop(Reason.STEPS, f"{taken} {settled}: raise steps, or continue_() the fit")

    def _bound_is_due(self, t: int, read: int) -> bool:
        if self.bound_every == "never":
            return False
        if self.bound_every == "log":
            # A function of the accesses before and after, so that a continued run has the bounds of an uninterrupted one.
            return _log_cell(self.accesses) > _log_cell(self.accesses - read)
        if self.bound_every is not None:
            return t % self.bound_every == 0
        return self.sweep_accesses <= CHEAP_BOUND or self.unread >= BOUND_SHARE * self.sweep_accesses

    def _diverged(self, what: str, t: int, rho: float) -> Stop:
        sampled, advice = (
            "",
            "Read more children at a step, use option='a', or block factors (MultivariateNormal), or VB()",
        )
        if isinstance(self.method, Children):
            sampled = f", C = {self.method.C}"
        elif isinstance(self.method, GlobalBatch):
            sampled = f", batch {self.method.size}"
        elif isinstance(self.method, SVI):
            sampled = f", batch {self.method.size} of {self.method.plate!r}"
        if not isinstance(self.step, (Auto, PerNode)):
            advice = "Leave out step= (per-node steps start gently), start with a smaller step (first=), or read more children"
            if isinstance(self.method, VB):
                advice = "Take smaller steps (step=Constant(rho)), or use option='a', which never lowers the bound"
        return Stop(
            Reason.DIVERGED,
            f"diverged at step {t} (ρ = {rho:.3g}{sampled}): {what}. The state is the last good one. {advice}.",
        )


def _log_cell(accesses: int) -> int:
    """Which of twenty parts of each power of ten a count lies in; none for a count of zero."""
    return math.floor(20.0 * math.log10(accesses)) if accesses > 0 else -1
