"""A fit of a sparse Gaussian process as one run: steps on batches, then shorter ones or all rows, then q from all rows.

Where all rows can be read often enough, half of the steps at most are taken on batches, and a quasi-Newton method has the rest
(`natgrad.models.gp.polishing`); elsewhere the rate falls where nothing more is gained (`natgrad.models.gp.stopping`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.engine import Phase
from natgrad.inference.steppers.groups import ExactPass
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.models.gp.cooling import cooling_phases
from natgrad.models.gp.files import law_of, state_table
from natgrad.models.gp.outputs import Coregionalised
from natgrad.models.gp.polishing import WARM, Polishing, polishing_of
from natgrad.models.gp.stopping import AveragedBound
from natgrad.posterior.fit_options import FitOptions, checked_method, checked_step, split_options
from natgrad.threads import one_blas_thread
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.data.rows import Rows
    from natgrad.inference.problem import State, SweepResult
    from natgrad.models.gp.problem import GPProblem

__all__ = ["given_up", "optimise"]

ADVICE = "raise max_steps, or call continue_fit()"


def optimise(
    model: Any,
    problem: GPProblem,
    state: State,
    held: Rows | None,
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
    method, most, tol = checked_method(model.method), whole_number(max_steps, "max_steps"), float(model.tol)
    cooling = cooling_phases(problem, method)
    polish = None if held is not None else polishing_of(problem, method, tol, most, seconds, state.t)
    stop = getattr(model, "stop_", None)  # a stream has none
    settled = going_on and stop is not None and stop.converged
    watch = AveragedBound(
        problem,
        trace,
        held,
        tol if polish is None else WARM * tol,
        float(getattr(model, "_part", 1.0)) if settled else 1.0,
    )
    if polish is not None:
        watch.ends_at_once, watch.cools = settled, False
    callbacks, checkpoint = split_options(options)
    steps = most if polish is None else most // 2
    limits = replace(model._limits(None, ADVICE, max_steps=steps, max_seconds=seconds), tol=0.0)
    sizes = {
        "output": problem.n_outputs,
        "measured": problem.data.n_outputs,
        "inducing": problem.n_inducing,
        "column": problem.data.n_columns,
        "factor": problem.shape[0],
        "stacked": problem.shape[1],
    }
    result = model._run(
        Phase(problem, method, checked_step(model.step, method, problem), ("v",), bound_every="never"), state, limits, problem,
        options={"callbacks": (watch, *callbacks), **checkpoint}, trace=trace,
        table=lambda: (state_table(problem.kernel, law_of(problem.likelihood)), sizes),
        closing=[*(cooling if polish is None else [polish.phase]), Phase(problem, stepper=ExactPass(problem))],
    )  # fmt: skip
    model.stop_ = _why(result.stop, polish, watch, most, tol)
    model._part = watch.part
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
