"""A probe for factors that were switched off: a settled state in; a state in which they have met the data again, or nothing, out.

A relevance that judged a factor before it had seen data drives it to zero, from where no sweep brings it back. When a run has
settled, the columns of a product that explain nothing are drawn anew in the units of the data; their relevances are taken from
that draw and held for some sweeps, in which the columns find what the others have left. Whether that leads higher, the run finds
out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.network.language.expressions import VECTOR
from natgrad.network.start.order import default_order
from natgrad.network.start.products import at_points, before_relevance, governors, spread_of_children
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["revived_factors"]

# A column whose part of the data's variance is smaller than this explains nothing.
NOTHING = 1e-4


def revived_factors(problem: NetworkProblem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """The state with the columns of products that explain nothing started again; None where there are none."""
    if not problem.products:
        return None
    revived = None
    for number, pair in enumerate(problem.products):
        large, small = sorted(pair, key=default_order(problem.plan).index)
        power = [_power(problem, state, name) for name in (large, small)]
        spread = spread_of_children(problem, pair)
        dead = power[0] * power[1] < NOTHING * spread
        if not dead.any():
            continue
        rng = generator(seed, Stream.REVIVAL, state.t, number)
        draw = rng.standard_normal(np.asarray(state.mu[small][0]).shape) * np.sqrt(spread / len(dead))
        value = np.where(_along(problem, small, dead), draw, np.asarray(state.mu[small][0]))
        started = at_points(problem, state if revived is None else revived, {small: value})
        revived = before_relevance(problem, started, governors(problem, set(pair))[1])
    return None if revived is None else revived._replace(t=state.t, memory={})


def _axis(problem: NetworkProblem, name: str) -> int:
    block = problem.blocks[name]
    if problem.plan.nodes[name].kind == VECTOR:
        return len(block.shape)
    assert block.column_axis is not None
    return block.column_axis


def _power(problem: NetworkProblem, state: State, name: str) -> npt.NDArray[np.float64]:
    """The mean square of each column's means."""
    means = np.moveaxis(np.asarray(state.mu[name][0]), _axis(problem, name), -1)
    return np.asarray((means**2).reshape(-1, means.shape[-1]).mean(0))


def _along(problem: NetworkProblem, name: str, columns: npt.NDArray[np.bool_]) -> Any:
    shape = [1] * np.asarray(problem.plan.nodes[name].stat_shapes()[0]).size
    shape[_axis(problem, name)] = -1
    return columns.reshape(shape)
