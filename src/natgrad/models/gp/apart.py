"""A sparse process without some of its rows: a fitted q in; q of the other rows, kernel and inducing inputs held, out.

    λ ← λ − Σ_n∈A m_n(q)            what rows kept apart (A) say is taken back
    λ ← (1 − ρ) λ + ρ (prior + Σ_n∉A m_n(q))        passes over the others, ρ so that their bound does not fall

At the best q the first line leaves the sites of the others, and passes move these to where they settle by themselves. A q that
was still on its way stays so, but knows nothing of the rows that will judge it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natgrad.data.rows import Rows
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import ExactPass
from natgrad.models.gp.predictor import Predictor
from natgrad.models.gp.problem import GPProblem

__all__ = ["without_rows"]

Floats = npt.NDArray[np.float64]
# Passes over the other rows; the second of them still moves log densities of pol in three classes by 0.002 nats a row.
PASSES = 3


def without_rows(problem: GPProblem, state: State, x: Floats, y: Floats, others: int) -> Predictor:
    """The sparse process of the first ``others`` of standardised rows x [N, D], y [N, P], which are all that q has seen."""
    kept, apart = (_of(problem, Rows(x[part], y[part])) for part in (slice(others), slice(others, None)))
    lam = tuple(q - said for q, said in zip(state.lam["v"], apart.solve_all(state).messages["v"], strict=True))
    if kept.posterior(lam).proper:
        state = state._replace(lam={"v": lam}, mu={"v": kept.moments(kept.blocks["v"], lam)})
    else:  # q is not what its rows say now: the others alone say where it is
        state = kept.sweep(state).state
    passes = ExactPass(kept)
    for _ in range(PASSES):
        state, _ = passes.step(state, 0)
    return Predictor.of(kept, state)


def _of(problem: GPProblem, rows: Rows) -> GPProblem:
    """The same process on other rows."""
    return GPProblem(
        rows,
        problem.kernel,
        problem.likelihood,
        n_inducing=problem.n_inducing,
        jitter=problem.jitter,
        offset=problem.offset,
    )
