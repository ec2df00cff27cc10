"""When a fit of a sparse Gaussian process has settled: its bound on some rows that stay the same, and rows that were held out.

The bound of a batch says more of the batch than of the fit: from one to the next it changes by tenths of a nat a row,
and averages of hundreds by more than what is left to gain. So some rows, the same ones all along, judge now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.schema import check, refuse
from natgrad.inference.trace import Reason, Stop
from natgrad.models.gp.predictor import Predictor

if TYPE_CHECKING:
    from natgrad.data.rows import Rows
    from natgrad.inference.callbacks import Progress
    from natgrad.inference.problem import State
    from natgrad.inference.trace import Trace
    from natgrad.models.gp.problem import GPProblem

__all__ = ["AveragedBound"]

# Steps over which the bound is averaged before it is compared, and held-out rows that judge it.
WINDOW, MOST_HELD_OUT, PATIENCE = 100, 2_000, 3
# Rows of the fit that judge it, in batches of them, and steps between.
JUDGES, EVERY = 4, 25


class AveragedBound:
    """A callback: the averaged bound of some rows, and the density of held-out ones, say when to stop."""

    def __init__(self, problem: GPProblem, trace: Trace, held: Rows | None, tol: float) -> None:
        self.problem, self.trace, self.tol = problem, trace, tol
        n, some = problem.n_groups, JUDGES * problem.batch_size
        sampled = problem.batch_size < n
        self.window, self.every = (WINDOW, EVERY) if sampled else (WINDOW // 4, 1)
        self.judges = None
        if sampled:  # otherwise every step says the bound of all rows
            self.judges = np.sort(np.random.default_rng(0).choice(n, min(n, some), replace=False, shuffle=False))
        self.held = None if held is None else held.take(np.arange(min(len(held), MOST_HELD_OUT)))
        self.best, self.since, self.still = -np.inf, 0, 0
        self.values: list[float] = []
        self.last = -1

    @property
    def memory(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the state: what was seen of the rows that judge, and how much jitter it took."""
        return {
            "seen": [self.best, self.since, self.still],
            "values": self.values,
            "jitter": [self.problem.jitter_used, self.problem.jitter_raised],
        }

    @memory.setter
    def memory(self, kept: Mapping[str, Any]) -> None:
        check(kept, {"seen": ["float"], "values?": ["float"], "jitter": ["float"]}, where="the memory of the run")
        if (len(kept["seen"]), len(kept["jitter"])) != (3, 2):
            refuse("the memory of the run", "is not what was seen, and how much jitter it took")
        self.best, self.since, self.still = kept["seen"]
        self.values = list(kept.get("values", []))
        self.problem.jitter_used, self.problem.jitter_raised = kept["jitter"]

    def __call__(self, seen: Progress) -> Stop | None:
        if self.tol == 0 or seen.t % self.every or seen.t <= self.last:  # steps that close a run are not counted
            return None
        self.last = seen.t
        self.values.append(self._value(seen.state))
        if seen.t % self.window or len(self.values) < 3 * (self.window // self.every):
            return None
        # Longer and longer averages, of less and less noise; a fall is as far from the end as a gain.
        width = max(self.window // self.every, len(self.values) // 4)
        before, now = np.diff(np.mean(np.reshape(self.values[-3 * width :], (3, width)), axis=1))
        left = abs(now) if abs(now) < abs(before) / 2 else now * now / max(abs(before) - abs(now), 1e-300)
        # Two in a row: a single one may be still by chance.
        self.still = self.still + 1 if max(abs(now), left) < self.tol else 0
        if self.still >= 2:
            steps = width * self.every
            words = f"converged: the averaged bound changed by {now:.1e} nats a row in {steps} steps, and about {left:.1e} are"
            return Stop(Reason.TOLERANCE, f"{words} left to gain, less than tol = {self.tol:g}")
        return self._judged(seen.state)

    def _value(self, state: State) -> float:
        """The bound a row, as the rows that judge say it."""
        problem = self.problem
        if self.judges is None:
            return float(self.trace.records[-1].elbo_estimate) / problem.population
        solved = problem.solve(state, self.judges, None, *problem.local_limits)
        return problem.batch_bound(state, solved, None, problem.population / len(self.judges)) / problem.population

    def _judged(self, state: State) -> Stop | None:
        if self.held is None:
            return None
        now = float(Predictor.of(self.problem, state).log_density(*self.held).mean())
        if now > self.best + self.tol:
            self.best, self.since = now, 0
            return None
        self.since += 1
        if self.since < PATIENCE:
            return None
        words = f"converged: the held-out density has not grown for {PATIENCE * self.window} steps (best {self.best:.4f} a row)"
        return Stop(Reason.TOLERANCE, words)
