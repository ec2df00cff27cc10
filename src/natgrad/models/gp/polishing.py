"""The end of a fit whose rows can all be read often enough: a quasi-Newton method on the bound with q at its best.

    F(θ, Z, ψ) = max_q L₃        its slope is that of L₃ at the best q, which is one step of length one for Gaussian noise

Adam on batches is quick far from the optimum and slow near it: it moves around, along valleys of Z by its rate at most.
L-BFGS on all rows has no noise, and what it gains says what is left. Generated rows of Friedman's function, M = 50: 500 steps and
60 readings of all 4,800 rows end 0.003 nats a row higher than 50,000 steps, in a fiftieth of the time.

Titsias (2009) has F; Liu and Nocedal (1989) the method.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.engine import Phase
from natgrad.inference.methods import VB, Method
from natgrad.inference.problem import State
from natgrad.inference.steppers.stepper import NothingToFinish, StepInfo
from natgrad.models.gp.cooling import SHORTEST
from natgrad.models.gp.likelihoods import Gaussian
from natgrad.models.gp.settings import Settings, flat, shaped

if TYPE_CHECKING:
    from natgrad.models.gp.problem import GPProblem

__all__ = ["WARM", "Polishing", "polishing_of"]

Floats = npt.NDArray[np.float64]
# Batches are read until so many tolerances are left to gain, or for half of the steps.
WARM = 20.0
# Iterations between two looks at what they gain, and the pairs of slopes that L-BFGS keeps.
ROUND, PAIRS = 50, 20
# Three times the readings gain 3.8 times what the last quarter of them did where the bound grows like log t, and less where
# it settles sooner (2.7 for −1/√t, 2 for −1/t).
SLOWLY = 4.0
# Readings of all rows that the second half of the steps must pay for; numbers of K_nm that fit into memory many times (32 MB).
FEWEST_READINGS, LARGEST = 50, 4_000_000
# A row of a reading costs less than a row of a batch: kin40k, M = 50, 1.0 ms and 2.5 ms for a thousand.
CHEAPER = 2.0
# Rows whose density is watched.
JUDGES = 2_048


def polishing_of(
    problem: GPProblem, method: Method | None, tol: float, max_steps: int, seconds: float | None, begun: int
) -> Polishing | None:
    """The polishing of a run, or None: without Gaussian noise, for all rows at each step, or where they are too many."""
    size, n = problem.batch_size, problem.n_groups
    payable = CHEAPER * (max_steps // 2) * size / n
    wanted = tol > 0 and any(problem.learned) and size < n and not isinstance(method, VB)
    possible = isinstance(problem.likelihood, Gaussian) and n * problem.n_inducing <= LARGEST
    if not (wanted and possible and max_steps >= SHORTEST and payable >= FEWEST_READINGS):
        return None
    return Polishing(problem, tol, max_steps, seconds, begun)


class Polishing(NothingToFinish):
    """Rounds of L-BFGS that close a run, until less than the tolerance is left to gain."""

    monotone, steps_per_pass, batches = True, 1, 1

    def __init__(self, problem: GPProblem, tol: float, max_steps: int, seconds: float | None, begun: int) -> None:
        self.problem, self.tol, self.max_steps, self.begun = problem, tol, max_steps, begun
        self.until = np.inf if seconds is None else time.perf_counter() + seconds
        self.readings, self.most = 0, 0
        self.seen: list[tuple[float, float]] = []  # bound and density a row, after each round
        self.left, self.still, self.done = np.inf, 0, False

    @property
    def phase(self) -> Phase:
        """For the end of a run."""
        return Phase(self.problem, stepper=self, optional=True)

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """All rounds, until it is done or the steps or the seconds are used up."""
        steps = self.max_steps - min(state.t - self.begun, self.max_steps // 2)
        self.most = int(CHEAPER * steps * self.problem.batch_size / self.problem.n_groups)
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
        self.left = float(max(np.max(now * shrinks / (1.0 - shrinks)), SLOWLY * quarter))
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
        problem = self.problem
        solved = problem.solve(state, None, None, *problem.local_limits)
        messages = problem.scaled(solved.messages, problem.population / problem.n_groups)
        return problem.global_step(state, messages, 1.0).state, solved

    def _value(self, state: State, settings: Settings) -> tuple[float, Floats]:
        """−F and its slope, a row; where K_mm cannot be factorised F is −∞."""
        problem, self.readings = self.problem, self.readings + 1
        try:
            at_best, solved = self._solved(state._replace(hyper={**state.hyper, "settings": settings}))
        except FloatingPointError:
            return np.inf, np.zeros_like(flat(settings))
        scale = problem.population / problem.n_groups
        value = problem.batch_bound(at_best, solved, None, scale)
        slope = flat(problem.matrices.pulled(settings, solved.rows[0].x, problem.gradient(at_best, solved, scale)))
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return np.inf, np.zeros_like(slope)
        return -value / problem.population, -slope / problem.population

    def _judged(self, state: State) -> tuple[float, float]:
        """The bound of all rows, and the density of some of them: predictions may still move where the bound hardly does."""
        from natgrad.models.gp.predictor import Predictor

        problem, settings = self.problem, state.hyper["settings"]
        rng = np.random.default_rng(0)
        some = np.sort(rng.choice(problem.n_groups, min(problem.n_groups, JUDGES), replace=False, shuffle=False))
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
