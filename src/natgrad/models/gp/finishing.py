"""When a sparse Gaussian process ends with neighbours, and what is said of it: a fitted state in; a local process or none out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance, direct_of
from natgrad.inference.problem import State
from natgrad.models.gp.likelihoods import Gaussian
from natgrad.models.gp.local import JUDGES, Budget, Local, Rows, settled, sparse_log_densities
from natgrad.models.gp.neighbours import SMOOTHEST_FIRST
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.starting import GPStarting
from natgrad.random import Stream, generator
from natgrad.threads import ONE_BLAS_THREAD
from natgrad.validation import whole_number

__all__ = ["GPFinishing", "restored_local", "saved_local"]

Floats = npt.NDArray[np.float64]
# Of max_seconds, what is left to a finish.
SHARE = 0.4
# Of max_steps, steps that pay for a search of neighbours and the steps with these; the default 2,000 pays for all there are.
STEPS_A_SEARCH = 80
# Where nobody has asked for neighbours: rows that are enough to tell whether they gain, and so few that to look through them for
# a prediction takes half a millisecond; inducing inputs whose steps cost as much as those of neighbours.
FEWEST, MOST, AS_COSTLY = 1_000, 100_000, 100
# Nats a row, and standard errors of them, that neighbours must gain where they are chosen by that.
GAIN, ERRORS = 0.01, 3.0


class GPFinishing(GPStarting):
    """A finish by neighbours; abstract."""

    # Of a regressor; others have none.
    finish: str | None = None
    n_neighbors: int = 1

    def _check_finish(self, n_outputs: int) -> None:
        """Refuse a finish that cannot be."""
        whole_number(self.n_neighbors, "n_neighbors")
        law = self._own_likelihood()
        if not isinstance(law.own, Gaussian):
            self._refuse_to_finish(f"likelihood is {law.name!r}, and neighbours need Gaussian noise")
        if n_outputs > 1:
            self._refuse_to_finish(
                f"y has {n_outputs} columns, and neighbours predict one: fit each with a model of its own"
            )

    def _refuse_to_finish(self, why: str) -> None:
        if self.finish == "neighbours":
            raise ValueError(f'finish="neighbours": {why}; or leave finish out')

    def _finishes(self, problem: GPProblem) -> bool:
        """Whether there may be a finish: asked for, or possible with rows that are in memory anyway."""
        if self.finish is None or not isinstance(problem.likelihood, Gaussian) or problem.data.n_outputs > 1:
            return False
        rows = problem.data
        if self.finish == "neighbours":
            return True
        in_memory = FEWEST <= len(rows) <= MOST and not isinstance(rows.inputs, np.memmap)
        return in_memory and direct_of(problem.kernel) is not None  # others are slow, one row after the other

    def _finish_share(self, problem: GPProblem) -> float:
        """Of max_seconds, what a finish has."""
        return SHARE if self._finishes(problem) else 0.0

    def _finished(self, problem: GPProblem, state: State, began: float) -> list[str]:
        """Predict from neighbours from now on, if settings or rows say so; and words on it."""
        if not self._finishes(problem):
            return []
        until = np.inf if self.max_seconds is None else began + float(self.max_seconds)
        with ONE_BLAS_THREAD:
            local, gain, error = self._local(problem, state, until)
        taken = self.finish == "neighbours" or gain > max(GAIN, ERRORS * error)
        if taken:
            self._predictor = self._predictor.given_neighbours(local)
        return [
            f"{local.n_neighbors} neighbours expect {local.n_judges:,} rows, each without itself, {gain:+.3f} ± {error:.3f} nats "
            f"a row better than the sparse process{'' if taken else ', which predicts'}"
        ]

    def _searches(self, problem: GPProblem) -> int:
        """How often neighbours may be sought while kernel and noise settle; unasked, for no more than the fit has cost.

        A sum of kernels costs as many as it has parts, of two parameters each, once for each of many small matrices.
        """
        part = min(1.0, problem.n_inducing / AS_COSTLY * 2.0 / len(problem.kernel.theta))
        part = 1.0 if self.finish == "neighbours" else part
        return max(1, int(part * whole_number(self.max_steps, "max_steps")) // STEPS_A_SEARCH)

    def _local(self, problem: GPProblem, state: State, until: float) -> tuple[Local, float, float]:
        """The settled process, what it gains in nats a row, and the standard error of that."""
        rng = generator(whole_number(self.seed, "seed", least=0), Stream.START, 5)
        settings, kernel = state.hyper["settings"], problem.kernel
        kernel = kernel.at([np.asarray(part) for part in settings.theta])
        x, y = problem.data.take(None)
        rows = Rows.of(x, y[:, 0], rng)
        noise = problem.likelihood.noise_level(np.asarray(settings.psi))
        start = Local(kernel, noise, rows, whole_number(self.n_neighbors, "n_neighbors"))
        own = isinstance(self.kernel, Covariance)
        any_kind = self.learn_kernel and not own and type(kernel) in SMOOTHEST_FIRST
        # Half a millisecond for each of them, and a few times over: a tenth of the seconds.
        most = JUDGES if self.max_seconds is None else int(min(max(50 * float(self.max_seconds), 50), JUDGES))
        budget = Budget(self._searches(problem), lambda: time.perf_counter() < until, most)
        local, judges, densities = settled(start, (self.learn_kernel, self.learn_noise), any_kind, rng, budget)
        gains = densities - sparse_log_densities(problem, state, rows.x[judges], rows.y[judges])
        return local, float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))


def saved_local(local: Local) -> dict[str, Any]:
    """What a file keeps of a local process."""
    own = {name: value for name, value in local._asdict().items() if name != "rows"}
    return {**own, "x": local.rows.x, "y": local.rows.y}


def restored_local(saved: Mapping[str, Any]) -> Local:
    """`saved_local` undone."""
    own = {name: value for name, value in saved.items() if name not in ("x", "y")}
    return Local(rows=Rows(saved["x"], saved["y"]), **own)
