"""A problem of groups at a state in, what linear response asks for out: the local variables are differentiated through.

With the globals held, groups are independent and their optimum is found by `solve`; what they then tell the globals, m(μ), has
the Jacobian of the eliminated system (its Schur complement). It is taken by central differences of `solve`, whose error is the
square of the step, with the local variables solved to the end from where they were.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.inference.problem import GroupProblem, State
from natgrad.posterior.response.differences import along
from natgrad.posterior.response.operator import Linearised

__all__ = ["linearised_groups", "swept"]

Stats = tuple[Any, ...]
# The step, as a part of each statistic's size: what is cut off is its square; rounding, and what is left of a local optimum, its
# inverse. And the tolerance and the rounds of local variables.
STEP = 3e-4
LOCAL_TOL, LOCAL_ROUNDS = 1e-13, 5_000
# Exact sweeps towards the optimum, until Newton's step is short: so many nats, at most.
SWEEPS, NEAR = 100, 1e-3


def swept(problem: GroupProblem, state: State) -> tuple[State, float]:
    """The state after exact sweeps with the local variables solved to the end, and the nats that they gained.

    A ready model may have solved its documents in single precision, or not to the end: its optimum is a little beside.
    """
    gained, first = 0.0, None
    for _ in range(SWEEPS):
        solved = problem.solve(state, None, None, LOCAL_TOL, LOCAL_ROUNDS)
        bound = float(solved.rest + problem.global_bound(state.lam, state.mu, solved.messages))
        first = bound if first is None else first
        gained = bound - first
        new = problem.global_step(state, solved.messages).state
        if sum(_nats(problem, name, state, new) for name in problem.blocks) < NEAR:
            break
        state = new
    return state, gained


def _nats(problem: GroupProblem, name: str, old: State, new: State) -> float:
    """KL of the new factor from the old one: what a step of length one gains at least."""
    return float(np.sum(problem.blocks[name].family.kl(new.lam[name], old.lam[name])))


def linearised_groups(problem: GroupProblem, state: State) -> Linearised:
    """A problem of groups near a state, its local variables at their optimum."""
    blocks = problem.blocks
    lam = {name: tuple(np.asarray(part, np.float64) for part in state.lam[name]) for name in blocks}
    mu = {name: tuple(map(np.asarray, problem.moments(block, lam[name]))) for name, block in blocks.items()}
    here = problem.solve(state._replace(lam=lam, mu=mu), None, None, LOCAL_TOL, LOCAL_ROUNDS)
    rows = here.rows if len(here.rows) else None

    def messages(moments: dict[str, Stats]) -> dict[str, Stats]:
        moved = state._replace(lam=lam, mu=moments)
        sums: dict[str, Stats] = problem.solve(moved, None, rows, LOCAL_TOL, LOCAL_ROUNDS).messages
        return sums

    def sweep(lam: dict[str, Stats]) -> dict[str, Stats]:
        moments = {name: problem.moments(block, lam[name]) for name, block in blocks.items()}
        return problem.sweep(state._replace(lam=dict(lam), mu=moments)).state.lam

    targets = {
        name: tuple(p + m for p, m in zip(problem.prior_of(name), here.messages[name], strict=True)) for name in blocks
    }
    return Linearised(
        blocks,
        lam,
        targets,
        along(blocks, mu, messages, STEP),
        sweep=sweep,
        elsewhere=lambda lam: linearised_groups(problem, state._replace(lam=lam)),
    )
