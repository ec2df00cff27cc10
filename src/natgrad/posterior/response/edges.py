"""A problem of edges at a state in, what linear response asks for out: its targets, and their derivative by differences.

A target is a polynomial of the other blocks' moments, of low degree: central differences are exact but for its third powers,
whose share is the square of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from natgrad.inference.problem import Block, EdgeProblem, State
from natgrad.posterior.response.differences import along
from natgrad.posterior.response.operator import Linearised

__all__ = ["by_differences", "linearised_edges", "settled"]

Stats = tuple[Any, ...]
# The step, as a part of each statistic's size; rounding is divided by it.
STEP = 1e-4
# Exact sweeps towards the optimum, until one gains so many nats, at most.
SWEEPS, NEAR = 200, 1e-6


def settled(problem: EdgeProblem, state: State, order: tuple[str, ...]) -> tuple[State, float]:
    """The state after exact sweeps, and the nats that they gained."""
    first = bound = problem.bound(state)
    for _ in range(SWEEPS):
        swept = problem.sweep(state, order)
        state, gain, bound = swept.state, float(swept.bound) - bound, float(swept.bound)
        if abs(gain) < NEAR:
            break
    return state, bound - first


def linearised_edges(problem: EdgeProblem, state: State, order: tuple[str, ...]) -> Linearised:
    """A problem of edges near a state."""
    blocks = problem.blocks

    def targets(moments: dict[str, Stats]) -> dict[str, Stats]:
        at = State(state.lam, moments, 1)
        return {name: tuple(map(np.asarray, problem.target(block, at))) for name, block in blocks.items()}

    def sweep(lam: dict[str, Stats]) -> dict[str, Stats]:
        moments = {name: problem.moments(block, lam[name]) for name, block in blocks.items()}
        natural: dict[str, Stats] = problem.sweep(State(dict(lam), moments, 1), order).state.lam
        return natural

    return by_differences(blocks, state.lam, targets)._replace(
        sweep=sweep, elsewhere=lambda lam: linearised_edges(problem, State(lam, {}, 1), order)
    )


def by_differences(
    blocks: Mapping[str, Block], lam: Mapping[str, Stats], targets: Callable[[dict[str, Stats]], dict[str, Stats]]
) -> Linearised:
    """What linear response asks for, of a function from the moments of all blocks to their targets."""
    lam = {name: tuple(np.asarray(part, np.float64) for part in lam[name]) for name in blocks}
    mu = {name: tuple(map(np.asarray, block.family.expected_stats(lam[name]))) for name, block in blocks.items()}
    return Linearised(blocks, lam, targets(mu), along(blocks, mu, targets, STEP))
