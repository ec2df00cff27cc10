"""When a fit of a sparse Gaussian process has settled: the averaged bound of its batches, and rows that were held out."""

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

# Steps over which the noisy bound is averaged before it is compared, and held-out rows that judge it.
WINDOW, MOST_HELD_OUT, PATIENCE = 100, 2_000, 3


class AveragedBound:
    """A callback: the averaged bound of the batches, and the density of held-out rows, say when to stop."""

    def __init__(self, problem: GPProblem, trace: Trace, held: Rows | None, tol: float) -> None:
        self.problem, self.trace, self.tol = problem, trace, tol
        size = min(problem.batch_size, problem.n_groups)
        self.window = WINDOW if size < problem.n_groups else WINDOW // 4
        self.held = None if held is None else held.take(np.arange(min(len(held), MOST_HELD_OUT)))
        self.best, self.since, self.still = -np.inf, 0, 0

    @property
    def memory(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the state: what was seen of held-out rows, and how much jitter it took."""
        return {
            "seen": [self.best, self.since, self.still],
            "jitter": [self.problem.jitter_used, self.problem.jitter_raised],
        }

    @memory.setter
    def memory(self, kept: Mapping[str, Any]) -> None:
        check(kept, {"seen": ["float"], "jitter": ["float"]}, where="the memory of the run")
        if (len(kept["seen"]), len(kept["jitter"])) != (3, 2):
            refuse("the memory of the run", "is not what was seen, and how much jitter it took")
        self.best, self.since, self.still = kept["seen"]
        self.problem.jitter_used, self.problem.jitter_raised = kept["jitter"]

    def __call__(self, seen: Progress) -> Stop | None:
        if self.tol == 0 or seen.t % self.window or seen.t < 3 * self.window:
            return None
        # Longer and longer averages, of less and less noise; a fall is as far from the end as a gain.
        width = max(self.window, seen.t // 4)
        recent = [record.elbo_estimate for record in self.trace.records[-3 * width :]]
        before, now = np.diff(np.mean(np.reshape(recent, (3, width)), axis=1)) / self.problem.population
        left = abs(now) if abs(now) < abs(before) / 2 else now * now / max(abs(before) - abs(now), 1e-300)
        # Two in a row: a single one may be still by chance.
        self.still = self.still + 1 if max(abs(now), left) < self.tol else 0
        if self.still >= 2:
            words = f"converged: the averaged bound changed by {now:.1e} nats a row in {width} steps, and about {left:.1e} are"
            return Stop(Reason.TOLERANCE, f"{words} left to gain, less than tol = {self.tol:g}")
        return self._judged(seen.state)

    def _judged(self, state: State) -> Stop | None:
        if self.held is None:
            return None
        problem, settings = self.problem, state.hyper["settings"]
        q, inducing = problem.posterior(state.lam["v"]), problem.factor(settings)
        mean, var = Predictor(problem.kernel, settings, inducing, q, problem.offset).latent(self.held[0])
        density = problem.likelihood.log_predictive_rows(np.asarray(settings.psi), self.held[1], mean, var)
        now = float(density.mean())
        if now > self.best + self.tol:
            self.best, self.since = now, 0
            return None
        self.since += 1
        if self.since < PATIENCE:
            return None
        words = f"converged: the held-out density has not grown for {PATIENCE * self.window} steps (best {self.best:.4f} a row)"
        return Stop(Reason.TOLERANCE, words)
