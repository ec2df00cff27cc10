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


def linearised_edges(
    problem: EdgeProblem,
    state: State,
    order: tuple[str, ...],
    rows: Callable[[Any], dict[str, Any]] | None = None,
) -> Linearised:
    """A problem of edges near a state; ``rows`` is the expected log density of each observation, given moments."""
    blocks = problem.blocks

    def targets(moments: dict[str, Stats]) -> dict[str, Stats]:
        at = State(state.lam, moments, 1)
        return {name: tuple(map(np.asarray, problem.target(block, at))) for name, block in blocks.items()}

    def sweep(lam: dict[str, Stats]) -> dict[str, Stats]:
        moments = {name: problem.moments(block, lam[name]) for name, block in blocks.items()}
        natural: dict[str, Stats] = problem.sweep(State(dict(lam), moments, 1), order).state.lam
        return natural

    here = by_differences(blocks, state.lam, targets)
    mu = {name: tuple(map(np.asarray, problem.moments(block, here.lam[name]))) for name, block in blocks.items()}
    return here._replace(
        sweep=sweep,
        elsewhere=lambda lam: linearised_edges(problem, State(lam, {}, 1), order, rows),
        rows=None if rows is None else _changes(rows, mu),
    )


def _changes(rows: Callable[[Any], dict[str, Any]], mu: dict[str, Stats]) -> Any:
    """The derivative of a function of the moments along a direction, by central differences."""

    def along(direction: dict[str, Stats]) -> dict[str, Any]:
        longest = max(
            float(np.abs(d).max(initial=0.0)) / max(float(np.abs(m).max(initial=0.0)), 1e-300)
            for name in mu
            for d, m in zip(direction[name], mu[name], strict=True)
        )
        step = STEP / (longest or 1.0)
        up, down = (
            rows({n: tuple(m + s * d for m, d in zip(mu[n], direction[n], strict=True)) for n in mu})
            for s in (step, -step)
        )
        return {name: (np.asarray(up[name]) - down[name]) / (2.0 * step) for name in up}

    return along


def by_differences(
    blocks: Mapping[str, Block], lam: Mapping[str, Stats], targets: Callable[[dict[str, Stats]], dict[str, Stats]]
) -> Linearised:
    """What linear response asks for, of a function from the moments of all blocks to their targets."""
    lam = {name: tuple(np.asarray(part, np.float64) for part in lam[name]) for name in blocks}
    mu = {name: tuple(map(np.asarray, block.family.expected_stats(lam[name]))) for name, block in blocks.items()}
    return Linearised(blocks, lam, targets(mu), along(blocks, mu, targets, STEP))
