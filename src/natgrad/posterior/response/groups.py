"""A problem of groups at a state in, what linear response asks for out: the local variables are differentiated through.

With the globals held, groups are independent and their optimum is found by `solve`; what they then tell the globals, m(μ), has
the Jacobian of the eliminated system (its Schur complement). Problems that know it have a `tangent`. Elsewhere it is taken by
central differences of `solve`, whose error is the square of the step, with the local variables solved to the end from where they
were.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.inference.problem import GroupProblem, GroupResult, State
from natgrad.posterior.response.ascent import ascended
from natgrad.posterior.response.differences import along
from natgrad.posterior.response.operator import Linearised

__all__ = ["linearised_groups", "optimum_of_groups"]

Stats = tuple[Any, ...]
# The step, as a part of each statistic's size: what is cut off is its square; rounding, and what is left of a local optimum, its
# inverse. And the tolerance and the rounds of local variables: where they are differentiated exactly, and by differences.
STEP = 3e-4
NEAR_TOL, LOCAL_TOL, LOCAL_ROUNDS = 1e-10, 1e-13, 5_000


def optimum_of_groups(problem: GroupProblem, state: State) -> tuple[Linearised, float, float]:
    """The problem at the maximum beside a state, the nats that it is above it, and those that are left.

    A ready model may have solved its documents in single precision, or not to the end: its optimum is a little beside.
    """
    best = ascended(
        problem,
        state,
        lambda at, rows: _solved(problem, at, rows),
        lambda at, solved: linearised_groups(problem, at, solved, strict=False),
    )
    return linearised_groups(problem, best.state, best.solved), best.gained, best.left


def _solved(problem: GroupProblem, state: State, rows: Any) -> GroupResult:
    tol = LOCAL_TOL if problem.tangent is None else NEAR_TOL
    return problem.solve(state, None, rows, tol, LOCAL_ROUNDS)


def linearised_groups(problem: GroupProblem, state: State, here: GroupResult, strict: bool = True) -> Linearised:
    """A problem of groups near a state, its local variables at their optimum; if ``strict``, one at none is an error."""
    blocks = problem.blocks
    lam = {name: tuple(np.asarray(part, np.float64) for part in state.lam[name]) for name in blocks}
    mu = {name: tuple(map(np.asarray, problem.moments(block, lam[name]))) for name, block in blocks.items()}
    rows = here.rows if len(here.rows) else None

    def messages(moments: dict[str, Stats]) -> dict[str, Stats]:
        sums: dict[str, Stats] = _solved(problem, state._replace(lam=lam, mu=moments), rows).messages
        return sums

    def sweep(lam: dict[str, Stats]) -> dict[str, Stats]:
        return told(messages({name: problem.moments(block, lam[name]) for name, block in blocks.items()}))

    def told(sums: dict[str, Stats]) -> dict[str, Stats]:
        return {name: tuple(p + m for p, m in zip(problem.prior_of(name), sums[name], strict=True)) for name in blocks}

    exact = None if problem.tangent is None else problem.tangent(state._replace(lam=lam, mu=mu), here, strict)
    curvature = along(blocks, mu, messages, STEP) if exact is None else exact
    return Linearised(blocks, lam, told(here.messages), curvature, sweep=sweep)
