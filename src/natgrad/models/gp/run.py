"""Run a fit of a sparse Gaussian process: steps on batches, then L-BFGS on all rows or falling rates, then q from all rows.

    F(θ, Z, ψ) = max_q L₃        its slope is that of L₃ at the best q, which is one step of length one for Gaussian noise

Adam on batches is quick far from the optimum and slow near it: it moves around, along valleys of Z by its rate at most. With
``optimizer="lbfgs"`` a tenth of the steps at most are taken so, and L-BFGS on F has the rest (`Polishing`): its gains say what is
left. With "adam" the bound of some rows, always the same ones, says when the rate is to fall and when nothing is left
(`AveragedBound`); a run that has not cooled closes with steps of falling rates (`cooling_phases`).

Titsias (2009) has F; Liu and Nocedal (1989) L-BFGS.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.callbacks import Progress
from natgrad.inference.engine import Phase
from natgrad.inference.methods import SVI, VB, Method
from natgrad.inference.options import FitOptions, checked_method, checked_step, split_options
from natgrad.inference.problem import State, SweepResult
from natgrad.inference.schema import check, refuse
from natgrad.inference.steppers.groups import FOLLOWING, ExactPass, GroupStepper
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.models.gp.likelihoods import Gaussian, Likelihood
from natgrad.models.gp.outputs import Coregionalised
from natgrad.models.gp.problem import GPProblem, Predictor
from natgrad.models.gp.settings import Settings, Solver, flat, shaped
from natgrad.threads import one_blas_thread
from natgrad.validation import whole_number

__all__ = ["AveragedBound", "Polishing", "cooling_phases", "given_up", "optimise", "shrunk", "uses_lbfgs"]

Floats = npt.NDArray[np.float64]
ADVICE = "raise max_steps, or call continue_fit()"


def optimise(
    model: Any,
    problem: GPProblem,
    state: State,
    trace: Trace,
    max_steps: Any,
    options: FitOptions,
    *,
    going_on: bool = False,
    began: float | None = None,
) -> None:
    """Run, and publish the result in the estimator.

    ``going_on``: from where a fit to the same rows has ended; ``began``: when the clock of the fit did, by default now.
    """
    began = time.perf_counter() if began is None else began
    seconds = model.max_seconds
    if seconds is not None:
        # What was spent on choosing; a run that has no time left still takes a step.
        seconds = max(float(seconds) - (time.perf_counter() - began), 1e-9)
    method, most, tol = checked_method(model._solver.method), whole_number(max_steps, "max_steps"), float(model.tol)
    cooling = cooling_phases(problem, method)
    closes = uses_lbfgs(model._solver, problem.likelihood, tol) and any(problem.learned)
    polish = Polishing(problem, tol, most, seconds, state.t) if closes else None
    stop = getattr(model, "stop_", None)  # a stream has none
    settled = going_on and stop is not None and stop.converged
    watch = AveragedBound(
        problem,
        trace,
        tol if polish is None else WARM * tol,
        float(getattr(model, "_part", 1.0)) if settled else 1.0,
    )
    if polish is not None:
        watch.ends_at_once, watch.cools = settled, False
        if problem.batch_size >= problem.n_groups:  # one step of q alone: Adam would leave where the run begins
            problem.rate = 0.0
    callbacks, checkpoint = split_options(options)
    steps = most if polish is None else max(most // WARM_SHARE, 1) if problem.batch_size < problem.n_groups else 1
    limits = replace(model._limits(None, ADVICE, max_steps=steps, max_seconds=seconds), tol=0.0)
    result = model._run(
        Phase(problem, method, checked_step(model._solver.step, method, problem), ("v",), bound_every="never"),
        state, limits, problem, options={"callbacks": (watch, *callbacks), **checkpoint}, trace=trace,
        table=lambda: model._state_table(problem),
        closing=[*(cooling if polish is None else [polish.phase]), Phase(problem, stepper=ExactPass(problem))],
    )  # fmt: skip
    model.stop_ = _why(result.stop, polish, watch, most, tol)
    model._part, model.n_readings_ = watch.part, 0 if polish is None else polish.readings
    state = result.state
    if shrinks(model, problem):
        with one_blas_thread():  # as in the engine
            state, words = shrunk(problem, state)
        trace.strategy = f"{trace.strategy}; {words}"
    model._publish(problem, state)
    model.elbo_ = problem.bound(state)
    model.n_rows_seen_ = problem.n_groups


def shrinks(model: Any, problem: GPProblem) -> bool:
    """Whether nobody said how outputs go together, so that chance correlations are taken back."""
    return getattr(model, "outputs", "") is None and isinstance(problem.likelihood, Coregionalised)


def given_up(model: Any, problem: GPProblem) -> float:
    """Nats that shrinking k correlations costs at most: k/2."""
    n = problem.data.n_outputs
    return n * (n - 1) / 4.0 if shrinks(model, problem) else 0.0


def shrunk(problem: GPProblem, state: State) -> tuple[State, str]:
    """Correlations of outputs times 1 − k/(2 g), where k of them gain g nats, and none where that is negative; and words on it.

    k parameters that mean nothing gain k/2 nats on average, so that g/(k/2) − 1 is what there is of a signal beside the noise,
    and the factor the part of the whole that is signal (Stein's estimator in the form of Efron and Morris, 1973). All else
    stays as it was learned.
    """
    law, settings = problem.likelihood, state.hyper["settings"]
    assert isinstance(law, Coregionalised)
    psi, n = np.asarray(settings.psi), problem.data.n_outputs

    def at(part: float) -> SweepResult:
        other = settings._replace(psi=law.shrunk(psi, part))
        return problem.sweep(state._replace(hyper={**state.hyper, "settings": other}))

    gained = problem.bound(state) - at(0.0).bound
    part = max(0.0, 1.0 - n * (n - 1) / (4.0 * max(gained, 1e-9)))
    words = f"correlations of outputs gain {gained:.2g} nats, and {part:.0%} of them are kept"
    return at(part).state._replace(t=state.t), words


def _why(stop: Stop, polish: Polishing | None, watch: AveragedBound, most: int, tol: float) -> Stop:
    """Why the run ended, and how much is left where its steps ran out."""
    if polish is not None and polish.done:
        return Stop(Reason.TOLERANCE, f"converged: {polish.words()}, less than tol = {tol:g}")
    ran_out = stop.reason is Reason.STEPS or (polish is not None and stop.reason is Reason.TOLERANCE)
    if not ran_out or tol == 0:
        return stop
    left = watch.remaining() if polish is None else polish.words()
    words = f"stopped at max_steps = {most} before the bound converged to tol = {tol:g} ({left})"
    return Stop(Reason.STEPS, f"{words}: {ADVICE}", ran_out=True)


# -- steps on batches: when they have converged --

# Steps over which the bound is averaged before it is compared.
WINDOW = 100
# Rows of the fit that judge it, in batches of them, and steps between.
JUDGES, EVERY = 4, 25
# Parts of the rate, one after the other.
PARTS = (1.0, 1 / 3, 1 / 10, 1 / 30, 1 / 100)
# Where gains fall like 1/√t or 1/t, three times the steps gain 2.1 and 1.4 times what the last quarter of them did.
SLOWLY = 2.0


class AveragedBound:
    """A callback: the averaged bound of some rows decides when to lower the rate, and when to stop."""

    def __init__(self, problem: GPProblem, trace: Trace, tol: float, part: float = 1.0) -> None:
        self.problem, self.trace, self.tol = problem, trace, tol
        n, some = problem.n_groups, JUDGES * problem.batch_size
        sampled = problem.batch_size < n
        self.window, self.every = (WINDOW, EVERY) if sampled else (WINDOW // 4, 1)
        self.judges = None
        if sampled:  # otherwise every step says the bound of all rows
            self.judges = np.sort(np.random.default_rng(0).choice(n, min(n, some), replace=False, shuffle=False))
        self.still = 0
        self.values: list[float] = []  # at this rate
        self.rate, self.before = problem.rate, np.nan  # the whole of it, and the averaged bound at the end of the last
        self.last = -1
        # Where a fit goes on that had settled, and where others take over from here.
        self.ends_at_once, self.cools = False, self.judges is not None
        self.level = PARTS.index(part) if part in PARTS else 0

    @property
    def level(self) -> int:
        """How far the rate has fallen: a place among `PARTS`."""
        return self._level

    @level.setter
    def level(self, level: int) -> None:
        self._level = level
        self.problem.rate = PARTS[level] * self.rate

    @property
    def part(self) -> float:
        """Of the rate, with which the run ends."""
        return PARTS[self.level]

    @property
    def memory(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the state: what was seen of the rows that judge, and how much jitter it took."""
        return {
            "still": self.still,
            "values": self.values,
            "cooled": [self.level, self.before],
            "jitter": [self.problem.jitter_used, self.problem.jitter_raised],
        }

    @memory.setter
    def memory(self, kept: Mapping[str, Any]) -> None:
        rules = {"still": "whole", "values?": ["float"], "cooled?": ["float"], "jitter": ["float"]}
        check(kept, rules, where="the memory of the run")
        level, before = cooled = kept.get("cooled", [0, np.nan])
        if (len(cooled), len(kept["jitter"])) != (2, 2) or level not in range(len(PARTS)):
            refuse("the memory of the run", "is not what was seen, how far the rate fell, and how much jitter it took")
        self.still = kept["still"]
        self.values = list(kept.get("values", []))
        self.level, self.before = int(level), before
        self.problem.jitter_used, self.problem.jitter_raised = kept["jitter"]

    def __call__(self, seen: Progress) -> Stop | None:
        if self.ends_at_once:
            return Stop(Reason.TOLERANCE, "the steps on batches had settled before")
        if self.tol == 0 or seen.t % self.every or seen.t <= self.last:  # steps that close a run are not counted
            return None
        self.last = seen.t
        self.values.append(self._value(seen.state))
        if seen.t % self.window or (found := self._left()) is None:
            return None
        width, now, left = found
        if self.judges is None and now < -self.tol and self.level + 1 < len(PARTS):  # no noise: steps are too long
            self.level, self.still, self.values = self.level + 1, 0, []
            return None
        # Two in a row: a single one may be still by chance.
        self.still = self.still + 1 if left < self.tol else 0
        if self.still < 2:
            return None
        at_end = float(np.mean(self.values[-width:]))
        gained = abs(at_end - self.before) if self.level else np.inf
        if not self.cools or gained < self.tol or self.level + 1 == len(PARTS):
            words = f"converged: the averaged bound changed by {now:.1e} nats a row in {width * self.every} steps"
            words += f", by {gained:.1e} since the rate fell last" if np.isfinite(gained) else ""
            return Stop(
                Reason.TOLERANCE, f"{words}, and about {left:.1e} are left to gain, less than tol = {self.tol:g}"
            )
        self.level, self.before, self.still, self.values = self.level + 1, at_end, 0, []
        return None

    def _left(self) -> tuple[int, float, float] | None:
        """Values of an average, by how much the last two of them differ, and what is left to gain at this rate."""
        shortest = self.window // self.every
        if len(self.values) < 3 * shortest:
            return None
        # Longer and longer averages, of less and less noise; a fall is as far from the end as a gain.
        width = max(shortest, len(self.values) // 4)
        before, now = np.diff(np.mean(np.reshape(self.values[-3 * width :], (3, width)), axis=1))
        left = abs(now) if abs(now) < abs(before) / 2 else now * now / max(abs(before) - abs(now), 1e-300)
        return width, float(now), float(max(abs(now), left) * (SLOWLY if self.level else 1.0))

    def remaining(self) -> str:
        """What is left to gain, in words, where the steps have run out."""
        found = self._left()
        if found is None:
            return "too few steps at this rate to say how much is left to gain"
        width, now, left = found
        shrinking = left < 10.0 * abs(now)
        words = f"the last {width * self.every} changed the averaged bound by {now:.1e} nats a row, and "
        return words + (f"about {left:.1e} or more are left to gain" if shrinking else "gains do not shrink yet")

    def _value(self, state: State) -> float:
        """The bound a row, as the rows that judge say it."""
        problem = self.problem
        if self.judges is None:
            return float(self.trace.records[-1].elbo_estimate) / problem.population
        solved = problem.solve(state, self.judges, None, *problem.local_limits)
        return problem.batch_bound(state, solved, None, problem.population / len(self.judges)) / problem.population


# -- L-BFGS on all rows --

# Batches are read until so many tolerances are left to gain, or for a tenth of the steps; not where all rows are one batch.
WARM, WARM_SHARE = 20.0, 10
# Iterations between two looks at what they gain, and the pairs of slopes that L-BFGS keeps.
ROUND, PAIRS = 50, 20
# Three times the readings gain 3.8 times what the last quarter of them did where the bound grows like log t, and less where
# it settles sooner (2.7 for −1/√t, 2 for −1/t).
SLOWER = 4.0
# Readings of all rows that there may be, a step each, however many rows there are; fewer would not leave the start.
FEWEST_READINGS = 50
# Numbers of K_nm in memory at a time (32 MB): of more, all rows are read in pieces.
MOST_ENTRIES = 4_000_000
# A row of a reading costs less than a row of a batch: kin40k, M = 50, 1.0 ms and 2.5 ms for a thousand.
CHEAPER = 2.0
# Rows whose density is watched.
JUDGED_ROWS = 2_048


def uses_lbfgs(solver: Solver, likelihood: Likelihood, tol: float) -> bool:
    """Decide whether L-BFGS closes a fit; an error if it was asked for, and F or its end are not known."""
    possible = isinstance(likelihood, Gaussian) and not isinstance(solver.method, VB) and tol > 0
    if solver.optimizer == "lbfgs" and not possible:
        raise ValueError(
            f'optimizer="lbfgs" is for Gaussian noise of independent outputs, tol > 0 and batches, got likelihood '
            f'{likelihood.name!r}, tol = {tol:g} and method {solver.method!r}: use optimizer="adam"'
        )
    return possible and solver.optimizer != "adam"


class Polishing(Stepper):
    """Rounds of L-BFGS that close a run, until less than the tolerance is left to gain."""

    def __init__(self, problem: GPProblem, tol: float, max_steps: int, seconds: float | None, begun: int) -> None:
        self.problem, self.tol, self.max_steps, self.begun = problem, tol, max_steps, begun
        self.until = np.inf if seconds is None else time.perf_counter() + seconds
        self.readings, self.most = 0, 0
        self.seen: list[tuple[float, float]] = []  # bound and density a row, after each round
        self.left, self.still, self.done = np.inf, 0, False
        n = problem.n_groups
        parts = -(-n * problem.n_inducing // MOST_ENTRIES)
        self.pieces: list[Any] = [None] if parts == 1 else np.array_split(np.arange(n), parts)

    @property
    def phase(self) -> Phase:
        """For the end of a run."""
        return Phase(self.problem, stepper=self, optional=True)

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """All rounds, until it is done or the steps or the seconds are used up."""
        steps = self.max_steps - min(state.t - self.begun, self.max_steps // WARM_SHARE)
        payable = int(CHEAPER * steps * min(self.problem.batch_size / self.problem.n_groups, 1.0))
        self.most = max(payable, min(steps, FEWEST_READINGS))
        state = self._solved(state)[0]
        self.seen.append(self._judged(state))
        while not self._over:
            state, rounds = self._climbed(state), len(self.seen)
            if not self._over:  # it ended by itself: where it had begun, or where a slope is zero
                self._look(state)
                self.done |= rounds == len(self.seen) - 1 and self.left < self.tol
        return state, StepInfo({}, 1.0, self.readings * self.problem.n_groups, unbounded=True)

    @property
    def _over(self) -> bool:
        return self.done or self.readings >= self.most or time.perf_counter() > self.until

    def _look(self, state: State) -> None:
        """What is left to gain of bound or density: the rest of a geometric series, or of one that falls slowly."""
        self.seen.append(self._judged(state))
        seen = np.array(self.seen)
        gains = np.abs(np.diff(seen[-3:], axis=0))
        now, before = gains[-1], gains[-2] if len(gains) > 1 else 2.0 * gains[-1]
        shrinks = np.clip(now / np.maximum(before, 1e-300), 0.5, 0.95)
        quarter = seen[-1, 0] - seen[-1 - max(1, (len(seen) - 1) // 4), 0]
        self.left = float(max(np.max(now * shrinks / (1.0 - shrinks)), SLOWER * quarter))
        # Two in a row: there are flat places between two slopes.
        self.still = self.still + 1 if self.left < self.tol else 0
        self.done = self.still >= 2

    def _climbed(self, state: State) -> State:
        """L-BFGS, with a look at what it has gained now and then."""
        from scipy.optimize import minimize

        settings = state.hyper["settings"]
        moving = _moving(settings, self.problem.learned)
        best: tuple[float, Settings] = (np.inf, settings)
        made = 0

        def below(free: Floats) -> tuple[float, Floats]:
            nonlocal best
            whole = np.array(flat(settings))
            whole[moving] = free
            here = shaped(whole, settings)._replace(adam=settings.adam)
            value, slope = self._value(state, here)
            if value < best[0]:
                best = value, here
            return value, slope[moving]

        def highest() -> State:
            return self._solved(state._replace(hyper={**state.hyper, "settings": best[1]}))[0]

        def after(_: Floats) -> None:
            nonlocal made
            made += 1
            if made % ROUND == 0:
                self._look(highest())
            if self._over:
                raise StopIteration

        options = {"maxiter": self.most, "maxcor": PAIRS, "ftol": 0.0, "gtol": 0.0, "maxfun": 2 * self.most}
        minimize(below, flat(settings)[moving], jac=True, method="L-BFGS-B", callback=after, options=options)
        return highest()

    def _solved(self, state: State) -> tuple[State, Any]:
        """The state with q at its best, and what was solved for the last piece."""
        problem, total = self.problem, (0.0, 0.0)
        for piece in self.pieces:
            solved = problem.solve(state, piece, None, *problem.local_limits)
            first, second = solved.messages["v"]
            total = total[0] + first, total[1] + second
        messages = problem.scaled({"v": total}, problem.population / problem.n_groups)
        return problem.global_step(state, messages, 1.0).state, solved

    def _value(self, state: State, settings: Settings) -> tuple[float, Floats]:
        """−F and its slope, a row; where K_mm cannot be factorised F is −∞."""
        problem, self.readings = self.problem, self.readings + 1
        try:
            at_best, solved = self._solved(state._replace(hyper={**state.hyper, "settings": settings}))
        except FloatingPointError:
            return np.inf, np.zeros_like(flat(settings))
        scale = problem.population / problem.n_groups
        # KL, which is the bound of no rows, counts once.
        value = (1 - len(self.pieces)) * problem.batch_bound(at_best, solved, None, 0.0)
        slope = np.zeros_like(flat(settings))
        for piece in self.pieces:
            if len(self.pieces) > 1:
                solved = problem.solve(at_best, piece, None, *problem.local_limits)
            value += problem.batch_bound(at_best, solved, None, scale)
            slope += flat(problem.matrices.pulled(settings, solved.rows[0].x, problem.gradient(at_best, solved, scale)))
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return np.inf, np.zeros_like(slope)
        return -value / problem.population, -slope / problem.population

    def _judged(self, state: State) -> tuple[float, float]:
        """The bound of all rows, and the density of some of them: predictions may still move where the bound hardly does."""
        problem, settings = self.problem, state.hyper["settings"]
        rng = np.random.default_rng(0)
        some = np.sort(rng.choice(problem.n_groups, min(problem.n_groups, JUDGED_ROWS), replace=False, shuffle=False))
        x, y = problem.data.take(some)
        mean, var = Predictor.of(problem, state).latent(x)
        density = problem.likelihood.log_predictive_rows(np.asarray(settings.psi), y, mean, var)
        return problem.bound(state) / problem.population, float(density.mean())

    def words(self) -> str:
        """What its last round gained, and what is left."""
        bound, density = np.diff(np.array(self.seen[-2:]), axis=0)[-1] if len(self.seen) > 1 else (np.nan, np.nan)
        said = f"the last of {self.readings} readings of all rows changed bound and density by {bound:.1e} and {density:.1e}"
        return f"{said} nats a row, and about {self.left:.1e} are left to gain"


def _moving(settings: Settings, learned: Any) -> npt.NDArray[np.bool_]:
    """Which of all the numbers are learned."""
    theta = [np.full(np.size(part), learned.kernel) for part in settings.theta]
    rest = (np.full(np.size(settings.inducing), learned.inducing), np.full(np.size(settings.psi), learned.noise))
    return np.concatenate([*theta, *rest])


# -- falling rates --

# Parts of the rate, and how many steps are made with each: 40, or the thirtieth part of the run's where that is less, so that
# closing takes at most a tenth of the run. A fifth of the run costs half as much again and ends lower than as many steps before.
COOLING, STEPS, SHARE = (1 / 3, 1 / 10, 1 / 30), 40, 30


def cooling_phases(problem: GPProblem, method: Method | None) -> list[Phase]:
    """The phases that close a run; none where all rows are read at each step, or nothing is learned."""
    size = method.size if isinstance(method, SVI) else problem.batch_size
    if size >= problem.n_groups or isinstance(method, VB) or not any(problem.learned):
        return []
    phases = []
    for number, part in enumerate(COOLING):
        cooler = copy(problem)
        cooler.rate = part * problem.rate
        stepper = _Uncounted(cooler, problem, size, 1 + number * STEPS)
        phases.append(Phase(cooler, stepper=stepper, until=STEPS, optional=True))
    return phases


class _Uncounted(Stepper):
    """Steps that leave the number of steps as it is, on batches of steps to come."""

    monotone = False

    def __init__(self, cooler: GPProblem, problem: GPProblem, size: int, first: int) -> None:
        self.inner = GroupStepper(cooler, size, *problem.local_limits, FOLLOWING, remember=False)
        self.cooler, self.problem, self.first, self.made = cooler, problem, first, 0

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """One step, or none where the run had few steps for so many, or has cooled further itself."""
        if self.made >= state.t // SHARE or self.cooler.rate >= self.problem.rate:
            return state, StepInfo({}, 0.0, 0, unbounded=True)
        after, info = self.inner.step(state._replace(t=state.t + self.first + self.made), seed)
        self.made += 1
        return after._replace(t=state.t), info._replace(estimate=np.nan, unbounded=True)
