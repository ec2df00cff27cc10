"""Limit, guard, trace and stop a run: one clock and one count of messages, whatever its phases.

Near an optimum coordinate ascent contracts: the gains g of successive passes shrink by a rate r, and what is left to gain is the
rest of a geometric series, g r / (1 − r). The rate is read off at several lengths: single gains, and sums of 2, 4 and 8 of them
against the sums before. The most pessimistic of the estimates counts, after each of the last two passes, and twice as much: there
are many rates, and the slowest of them is the last to be seen. Gains that grow (r ≥ 1) are those of a run that leaves a saddle,
never of one that has converged.

A gain of less than the bound's own rounding is none that can be seen. Where bounds of a method that cannot fall do so now and
then, by rounding or because local variables are solved to a tolerance of their own, by so much they are noisy, up to a
millionth of the bound: what falls further is wrong, and ends a run. Below the noise
the steps themselves go on telling: near an optimum a gain is a quadratic form of the step that made it, so where a step moved λ
by a change c and gained g, one that moves it by c' gains g (c'/c)². Such gains count as those that are seen, until the steps no
longer shrink, which is their own rounding.

A tolerance is a number of nats. Since KL(q ‖ q*) is what is left to gain, 1e-3 nats left are a mean that is 0.045 posterior
standard deviations off, if it is off in one direction alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from natgrad.inference.auto import Auto
from natgrad.inference.checkpoint import RunState
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import PerNode
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.inference.trace import Reason, StepRecord, Stop, Trace
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.inference.engine import Phase

__all__ = [
    "ROUNDING",
    "TOLERANCE",
    "BoundEvery",
    "Left",
    "Limits",
    "RunMonitor",
    "Since",
    "is_a_fall",
    "left_to_gain",
    "left_to_gain_noisy",
]

# A sum of N terms has rounding errors of a few ε times their size; the bound is such a sum.
ROUNDING = 1e-13
# A bound of exact steps that ends lower than an earlier one by more than this part of it is wrong, not rounded.
FALL = 1e-6
# What the estimate is multiplied by, and while there are only three gains.
SAFETY, FEW_GAINS = 2.0, 200.0
# How many gains are summed before they are compared with those before.
LENGTHS = (1, 2, 4, 8)
# So many falls among the last passes are noise, and tell how much; a single one is an event.
RECENT, FALLS = 10, 3
# Evaluations of a noisy bound that are averaged.
AVERAGED = 10


class Left(NamedTuple):
    """What is left to gain, in nats: an estimate, and the noise of the bound below which nothing can be seen."""

    gain: float
    noise: float

    def below(self, tol: float) -> bool:
        """Whether it is less than a tolerance, or than what can be seen."""
        return self.gain <= max(tol, self.noise)


def is_a_fall(best: float, bound: float, rounding: float = 0.0) -> bool:
    """Whether a bound is lower than the best before it by more than a millionth and by more than its rounding error."""
    return bound < best - max(FALL * max(1.0, abs(best)), rounding)


def left_to_gain(
    bounds: Sequence[float], per_pass: int = 1, monotone: bool = True, changes: Sequence[float] = ()
) -> Left | None:
    """The pessimistic estimate after the last two passes; None while there were too few.

    Parameters
    ----------
    bounds : sequence of float
        After each step.
    per_pass : int
        Steps in a pass over all data.
    monotone : bool
        Whether the bound cannot fall but for rounding; otherwise a fall is as far from the end as a gain.
    changes : sequence of float
        How far each step moved λ, if known: then what is left is also told of gains that are smaller than the noise.
    """
    # A handful of numbers: Python's own are quicker than arrays of them.
    ends = [float(bound) for bound in bounds[::-per_pass][: 2 * LENGTHS[-1] + 2][::-1]]
    if len(ends) < 3:
        return None
    gains = [after - before for before, after in pairwise(ends)]
    falls = [-gain for gain in gains[-RECENT:] if gain < 0]
    fallen = min(max(falls), FALL * max(1.0, abs(ends[-1]))) if monotone and len(falls) >= FALLS else 0.0
    noise = max(ROUNDING * abs(ends[-1]), fallen)
    gains = [max(gain, 0.0) if monotone else abs(gain) for gain in gains]
    if max(gains[-2:]) <= noise:
        moves = [float(change) for change in changes[::-per_pass][: len(gains)][::-1]]
        unseen = _unseen(gains, moves, noise) if len(moves) == len(gains) else None
        return Left(max(gains[-2:]), noise) if unseen is None else Left(unseen, 0.0)
    if len(gains) < 3:
        return None
    # Three gains have no sums of two to compare: they count if what they leave is far below the tolerance.
    safety = SAFETY if len(gains) > 3 else FEW_GAINS
    return Left(safety * max(_rest(gains, noise), _rest(gains[:-1], noise)), noise)


def _unseen(gains: list[float], moves: list[float], noise: float) -> float | None:
    """What is left below the noise, by steps that still shrink; None where they do not."""
    seen = [k for k, gain in enumerate(gains) if gain > noise and moves[k] > 0]
    first = seen[-1] if seen else 0
    later = moves[first:]
    if len(later) < 3 or later[-1] <= 0 or not later[-1] < min(later[:-1]) or not later[-2] < later[0]:
        return None
    # Where no gain was seen, steps are as long as the noise allows; one of no length says nothing.
    scale = max((gains[k] / moves[k] ** 2 for k in seen[-4:]), default=noise / moves[0] ** 2 if moves[0] > 0 else None)
    if scale is None:
        return None
    return SAFETY * _rest([scale * move**2 for move in later], 0.0)


def _rest(gains: list[float], noise: float) -> float:
    """The rest of the series, by the slowest of the rates."""
    remaining = 0.0
    for length in LENGTHS:
        if len(gains) < 2 * length:
            break
        now, before = sum(gains[-length:]), sum(gains[-2 * length : -length])
        if now <= noise:
            continue
        remaining = max(remaining, now * now / (before - now) if now < before else math.inf)
    return remaining


def left_to_gain_noisy(bounds: Sequence[float]) -> Left | None:
    """The same for the bounds of sampled steps, from averages over them; the error of an average is counted as left."""
    if len(bounds) < 3 * AVERAGED:
        return None
    parts = np.asarray(bounds[-3 * AVERAGED :]).reshape(3, AVERAGED)
    before, now = np.abs(np.diff(parts.mean(axis=1)))
    error = float(parts[1:].std(axis=1, ddof=1).max()) / math.sqrt(AVERAGED)
    rest = float(now * now / (before - now)) if now < before else math.inf
    rest = 0.0 if now <= ROUNDING * abs(bounds[-1]) else rest
    return Left(max(rest, float(now), error), 0.0)


# The exact bound reads every observation. With this many or fewer it is evaluated at every step; with more, a sampled
# method evaluates it when the messages read since the last time amount to this part of a sweep.
CHEAP_BOUND = 200_000
BOUND_SHARE = 0.25
# A bound this many times further below zero than the first one has left for good; means that diverge grow exponentially.
DIVERGENCE_FACTOR = 1e6
# Perturbations of λ by its last digit that show the rounding error of a bound, and the machine epsilon of that digit.
LAST_DIGITS = 4
EPSILON = float(np.finfo(np.float64).eps)
# Nats left to gain when a run has converged: 0.045 posterior standard deviations, if all of it is in one mean.
TOLERANCE = 1e-3
# A quarter of all passes that gains less than so many tolerances creeps.
CREEP = 100.0
BoundEvery = int | Literal["log", "never"] | None


class Since(float):
    """So many seconds, of which some have gone by: those of a fit whose run is only a part of it."""

    begun: float

    def __new__(cls, seconds: float, begun: float | None = None) -> Since:
        """Seconds from a moment of `time.perf_counter`; by default from now."""
        new = super().__new__(cls, seconds)
        new.begun = time.perf_counter() if begun is None else begun
        return new

    @property
    def until(self) -> float:
        """When they are over."""
        return self.begun + float(self)

    @property
    def over(self) -> bool:
        """Whether all have gone by."""
        return time.perf_counter() > self.until


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: after so many steps, passes, seconds or messages, or when less than ``tol`` nats are left to gain.

    What is left is estimated from how fast the gains of successive passes shrink (`natgrad.inference.monitor`). ``share`` is
    the number of observations where ``tol`` is for each of them: large data, of which nobody needs the last nat. A pass is a
    reading of all the data: for batches that go through all groups, once through them; for others, as many messages as an exact
    sweep reads. ``max_seconds`` are counted from the begin of the run, unless they say since when (`Since`). ``advice`` is what a
    user can do when the steps run out.
    """

    max_steps: int | None = 1000
    tol: float = TOLERANCE
    max_seconds: float | None = None
    max_messages: int | None = None
    share: float | None = None
    max_passes: float | None = None
    advice: str = "raise max_steps, or call continue_fit()"

    def __post_init__(self) -> None:
        if self.max_steps is not None:
            whole_number(self.max_steps, "max_steps")
        if not real_number(self.tol, "tol") >= 0:
            raise ValueError(f"tol must be ≥ 0, got {self.tol!r}: 0 runs all steps")
        for name in ("max_seconds", "max_passes"):
            value = getattr(self, name)
            if value is not None and not real_number(value, name) > 0:
                raise ValueError(f"{name} must be > 0, got {value!r}: None means no limit")
        if self.max_messages is not None:
            whole_number(self.max_messages, "max_messages")

    @property
    def nats(self) -> float:
        """The tolerance for the whole bound."""
        return self.tol * (1.0 if self.share is None else self.share)

    @property
    def tol_words(self) -> str:
        """The tolerance as the user gave it."""
        if self.share is None:
            return f"tol = {self.tol:g}"
        return f"tol = {self.tol:g} for each of {self.share:,.0f} observations, {self.nats:.1e} nats"


class RunMonitor:
    """The guard, the trace and the stopping rules of one run, from its first phase to its last."""

    def __init__(self, limits: Limits, trace: Trace) -> None:
        earlier = trace.last if len(trace) else None
        self.limits, self.trace = limits, trace
        self.started = time.perf_counter() - (earlier.seconds if earlier else 0.0)
        seconds = limits.max_seconds
        self.until: float | None = None
        if seconds is not None:
            self.until = (seconds if isinstance(seconds, Since) else Since(seconds)).until
        self.messages_read = self.messages_before = earlier.messages_read if earlier else 0
        self.begun = 0
        self.bound_every: BoundEvery = None
        self.settled: Stop | None = None
        self.final = ""

    def enter(self, phase: Phase, stepper: Stepper, t: int) -> None:
        """Another phase begins after step ``t``; only one without an end may settle. Bounds of different phases differ."""
        self.problem, self.method, self.step, self.stepper = phase.problem, phase.method, phase.step, stepper
        self.bound_every, self.phase_begun, self.may_settle = phase.bound_every, t, phase.until is None
        self.bounds: list[float] = []
        self.changes: list[float] = []
        self.unread, self.first, self.best = 0, math.nan, -math.inf

    def start(self, state: State) -> None:
        """The bound at the start of a phase, against which one that diverges is judged; exact sweeps cannot lose it."""
        if not self.stepper.monotone and self.bound_every != "never":
            self.first = self.problem.bound(state)

    def restore(self, kept: RunState) -> None:
        """Go on as if the run had never stopped; the phase was entered."""
        self.begun, self.unread, self.first = kept.begun, kept.unread, kept.first
        self.phase_begun = kept.begun if kept.phase is None else kept.phase
        records = self.trace.records
        mine = [record for record in records if record.t > kept.begun]
        bounded = [record for record in mine if record.t > self.phase_begun and not math.isnan(record.elbo)]
        self.bounds = [record.elbo for record in bounded]
        self.changes = [record.relative_change for record in bounded]
        self.best = max(self.bounds, default=-math.inf)
        before = records[len(records) - len(mine) - 1] if len(mine) < len(records) else None
        self.messages_before = before.messages_read if before else 0
        self.messages_read = records[-1].messages_read if records else 0
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
        """One line of the trace; the exact bound if it is time for it."""
        self.messages_read += info.messages_read
        self.unread += info.messages_read
        bound = info.bound
        if bound is None and not info.unbounded and self._bound_is_wanted(state.t, info.messages_read):
            bound, self.unread = self.problem.bound(state), 0
        change = max((float(block.relative_change) for block in info.blocks.values()), default=0.0)
        if bound is not None:
            self.bounds.append(bound)
            self.changes.append(change)
        self.final = info.final
        estimate = info.estimate if bound is None or not math.isnan(info.estimate) else bound
        seconds, elbo = time.perf_counter() - self.started, math.nan if bound is None else bound
        self.trace.append(StepRecord(state.t, elbo, estimate, info.rho, change, self.messages_read, seconds))

    def bound_at(self, state: State) -> float | None:
        """The exact bound at a state, if the last step has told it."""
        if not len(self.trace) or self.trace.last.t != state.t or math.isnan(self.trace.last.elbo):
            return None
        return self.trace.last.elbo

    def charge(self, messages: int) -> None:
        """Count what was read beside the steps: by the ranking of starts, by probes, by phases at the end."""
        self.messages_read += messages
        if len(self.trace) and self.trace.last.t > self.begun:
            last = self.trace.pop()
            now = time.perf_counter() - self.started
            self.trace.append(last._replace(messages_read=self.messages_read, seconds=now))

    def bound_diverged(self, state: State) -> Stop | None:
        """A bound that is not finite, has left for minus infinity, or fell although it cannot."""
        if not self.bounds:
            return None
        first = self.first if math.isfinite(self.first) else self.bounds[0]
        last = self.bounds[-1]
        fell = self.stepper.monotone and is_a_fall(self.best, last)
        fell = fell and is_a_fall(self.best, last, self._rounding(state))
        if math.isfinite(last) and last > first - DIVERGENCE_FACTOR * (abs(first) + 1.0) and not fell:
            self.best = max(self.best, last)
            return None
        record = self.trace.pop()
        words = f"the bound went from {first:.6g} to {last:.6g}"
        if fell:
            del self.bounds[-1], self.changes[-1]
            words = f"the bound fell from {self.best:.10g} to {last:.10g}, which is more than rounding"
        return self._diverged(words, record.t, record.rho)

    def _rounding(self, state: State) -> float:
        """Estimate the rounding error of a network's bound at a state.

        Its parts are rounded, and so is λ: where a precision matrix has a condition number of 1e14, moving λ by its last digit
        moves the bound by far more than the sum of the parts does. No computation in double precision is better than that.
        """
        by_node = getattr(self.problem, "bound_by_node", None)
        if by_node is None:
            return 0.0
        # Of the bound as it is now: one that a step hands over may be wrong, which is no rounding.
        problem, rng, bounds = self.problem, np.random.default_rng(0), [self.problem.bound(state)]
        for _ in range(LAST_DIGITS):
            lam = {
                name: problem.blocks[name].family.project(
                    tuple(s * (1 + EPSILON * rng.integers(-1, 2, np.shape(s))) for s in map(np.asarray, stats))
                )
                for name, stats in state.lam.items()
            }
            mu = {name: problem.moments(problem.blocks[name], stats) for name, stats in lam.items()}
            bounds.append(problem.bound(state._replace(lam=lam, mu=mu)))
        spread = float(max(bounds) - min(bounds))
        try:
            summed = float(sum(map(abs, by_node(state).values())))
        except NotImplementedError:  # of chunks only the sum is known
            summed = abs(bounds[0])
        return ROUNDING * summed + (LAST_DIGITS * spread if math.isfinite(spread) else 0.0)

    def ended(self, state: State) -> Stop | None:
        """Messages, time, tolerance, passes or steps."""
        return self.out_of_time() or self._settled() or self.out_of_steps(state)

    def late(self) -> bool:
        """Whether what takes long within a step, or before the first one, is to end."""
        return self.out_of_time() is not None

    def out_of_time(self) -> Stop | None:
        """Whether as many messages were read, or as many seconds went by, as allowed."""
        read = self.messages_read - self.messages_before
        after = f"after step {self.trace.last.t if len(self.trace) else 0}"
        if self.limits.max_messages is not None and read >= self.limits.max_messages:
            words = f"stopped at max_messages = {self.limits.max_messages:,} {after} ({read:,} were read)"
            return Stop(Reason.MESSAGES, words, self._may_converge)
        if self.until is not None and time.perf_counter() > self.until:
            words = f"stopped at max_seconds = {self.limits.max_seconds:g} {after}"
            return Stop(Reason.SECONDS, words, self._may_converge)
        return None

    def out_of_steps(self, state: State) -> Stop | None:
        """Whether all steps, or all passes, were made."""
        taken, passes = state.t - self.begun, self._passes(state)
        if self.limits.max_passes is not None and passes >= self.limits.max_passes:
            made = f"stopped at max_passes = {self.limits.max_passes:g} after {taken} steps"
            return Stop(Reason.PASSES, self._unsettled(made), self._may_converge)
        if self.limits.max_steps is None or taken < self.limits.max_steps:
            return None
        made = f"stopped at max_steps = {self.limits.max_steps}"
        return Stop(Reason.STEPS, self._unsettled(made), self._may_converge)

    def creeps(self) -> bool:
        """Whether a run that has not settled gains next to nothing, as it does for very long on the flat top of a saddle.

        Asked after 32 passes, 64, 128, …, of the last quarter of them: a probe costs as much as some passes.
        """
        passes, rest = divmod(len(self.bounds), self.stepper.steps_per_pass)
        settles = self.limits.tol > 0 and self.may_settle
        if not settles or not self.stepper.monotone or rest or passes < 32 or passes & (passes - 1):
            return False
        return self.bounds[-1] - self.bounds[-1 - passes // 4 * self.stepper.steps_per_pass] <= CREEP * self.limits.nats

    def _passes(self, state: State) -> float:
        """Readings of the data so far, in this run."""
        if self.stepper.batches is not None:
            return (state.t - self.begun) / self.stepper.batches
        return (self.messages_read - self.messages_before) / max(1, self.problem.n_messages)

    @property
    def _may_converge(self) -> bool:
        return self.limits.tol > 0 and self.bound_every != "never"

    def _unsettled(self, taken: str) -> str:
        if self.limits.tol == 0:
            return f"{taken}, as tol = 0 asks"
        if self.bound_every == "never":
            return taken
        left = self._left()
        seen = left is not None and math.isfinite(left.gain)
        words = f" (about {left.gain:.1e} nats left to gain)" if left is not None and seen else ""
        return f"{taken} before the bound converged to {self.limits.tol_words}{words}: {self.limits.advice}"

    def _left(self) -> Left | None:
        """What is left to gain, as the bounds so far tell."""
        if self.stepper.monotone or isinstance(self.method, VB):
            return left_to_gain(self.bounds, self.stepper.steps_per_pass, self.stepper.monotone, self.changes)
        return left_to_gain_noisy(self.bounds)

    def _settled(self) -> Stop | None:
        if self.limits.tol == 0 or not self.may_settle:
            return None
        if self.final:
            self.settled = Stop(Reason.TOLERANCE, f"converged: {self.final}")
            return self.settled
        left = self._left()
        if left is None or not left.below(self.limits.nats):
            return None
        words = f"converged: about {left.gain:.1e} nats left to gain, less than {self.limits.tol_words}"
        if left.noise > self.limits.nats:
            words = (
                f"converged: gains are smaller than the rounding error of the bound, {left.noise:.1e} nats; "
                f"{self.limits.tol_words}"
            )
        self.settled = Stop(Reason.TOLERANCE, words)
        return self.settled

    def _bound_is_wanted(self, t: int, read: int) -> bool:
        if self.bound_every == "never":
            return False
        if self.bound_every == "log":
            # A function of the messages before and after, so that a continued run has the bounds of an uninterrupted one.
            return _log_cell(self.messages_read) > _log_cell(self.messages_read - read)
        if self.bound_every is not None:
            return t % self.bound_every == 0
        sweep = self.problem.n_messages
        return sweep <= CHEAP_BOUND or self.unread >= BOUND_SHARE * sweep

    def _diverged(self, what: str, t: int, rho: float) -> Stop:
        sampled = ""
        advice = "Read more children at a step, use option='a', or block factors (MultivariateNormal), or VB()"
        if self.stepper.monotone:
            advice = "Exact sweeps fail where numbers of very different sizes meet: centre the columns of data, and scale them"
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
            self._may_converge,
        )


def _log_cell(messages: int) -> int:
    """Which of twenty parts of each power of ten a count lies in; none for a count of zero."""
    return math.floor(20.0 * math.log10(messages)) if messages > 0 else -1
