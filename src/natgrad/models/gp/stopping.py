"""When a fit of a sparse Gaussian process has settled: its bound on some rows that stay the same, and rows that were held out.

The bound of a batch says more of the batch than of the fit: from one to the next it changes by tenths of a nat a row,
and averages of hundreds by more than what is left to gain. So some rows, the same ones all along, judge now and then.

Adam's steps have the length of its rate however near the optimum is, and the settings go on moving around it: what a sampled fit
can gain at one rate is not all that can be gained. So where the averages are still the rate falls, and a fit has converged
when a lower rate gains no more than the tolerance, either.
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
# Parts of the rate, one after the other.
PARTS = (1.0, 1 / 3, 1 / 10, 1 / 30, 1 / 100)
# Where gains fall like 1/√t or 1/t, three times the steps gain 2.1 and 1.4 times what the last quarter of them did.
SLOWLY = 2.0


class AveragedBound:
    """A callback: the averaged bound of some rows, and the density of held-out ones, say when to lower the rate, and to stop."""

    def __init__(self, problem: GPProblem, trace: Trace, held: Rows | None, tol: float, part: float = 1.0) -> None:
        self.problem, self.trace, self.tol = problem, trace, tol
        n, some = problem.n_groups, JUDGES * problem.batch_size
        sampled = problem.batch_size < n
        self.window, self.every = (WINDOW, EVERY) if sampled else (WINDOW // 4, 1)
        self.judges = None
        if sampled:  # otherwise every step says the bound of all rows
            self.judges = np.sort(np.random.default_rng(0).choice(n, min(n, some), replace=False, shuffle=False))
        self.held = None if held is None else held.take(np.arange(min(len(held), MOST_HELD_OUT)))
        self.best, self.since, self.still = -np.inf, 0, 0
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
            "seen": [self.best, self.since, self.still],
            "values": self.values,
            "cooled": [self.level, self.before],
            "jitter": [self.problem.jitter_used, self.problem.jitter_raised],
        }

    @memory.setter
    def memory(self, kept: Mapping[str, Any]) -> None:
        rules = {"seen": ["float"], "values?": ["float"], "cooled?": ["float"], "jitter": ["float"]}
        check(kept, rules, where="the memory of the run")
        level, before = cooled = kept.get("cooled", [0, np.nan])
        if (len(kept["seen"]), len(cooled), len(kept["jitter"])) != (3, 2, 2) or level not in range(len(PARTS)):
            refuse("the memory of the run", "is not what was seen, how far the rate fell, and how much jitter it took")
        self.best, self.since, self.still = kept["seen"]
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
        # Two in a row: a single one may be still by chance.
        self.still = self.still + 1 if left < self.tol else 0
        if self.still < 2:
            return self._judged(seen.state)
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
