"""The natural step of a block, or of one column of it, on plain arrays, for problems with kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.families.natural_step import blend, distance, size_of
from natgrad.inference.problem import Block, BlockInfo, State

__all__ = ["blended_block", "owned"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]


def blended_block(
    block: Block,
    state: State,
    target: Any,
    rho: Any,
    column: int | None,
    moments: Callable[[Pair], tuple[Pair, bool]],
) -> tuple[State, BlockInfo]:
    """A block, or one column of it, moved towards its target; ρ is a number or one for each element.

    ``moments`` gives μ of some elements' λ, and whether all of these are valid.
    """
    lam, mu = owned(state.lam[block.name]), owned(state.mu[block.name])
    rates = np.asarray(rho, dtype=np.float64)
    # An element that does not step keeps its moments, those of a point mass too; a batch leaves most of them alone.
    rows = np.nonzero(rates > 0) if rates.ndim and not (rates > 0).all() else (slice(None),) * bool(lam[0].ndim)
    here = rows if column is None else (*rows, column)
    rate = rates[rows] if rates.ndim else rates
    old = (np.asarray(lam[0][here]), np.asarray(lam[1][here]))
    goal = (np.asarray(target[0])[rows], np.asarray(target[1])[rows])
    first, second = blend(old, goal, rate, tuple(part.ndim - rate.ndim for part in old))
    new = (np.asarray(first), np.asarray(second))
    fresh, inside = moments(new)
    valid = inside and all(bool(np.isfinite(part).all()) for part in new)
    size = size_of(lam if column is None else (lam[0][:, column], lam[1][:, column]))
    info = BlockInfo(valid, distance(old, new) / size)
    name = block.name
    state = state._replace(lam={**state.lam, name: _put(lam, new, here)}, mu={**state.mu, name: _put(mu, fresh, here)})
    return state, info


def owned(stats: Any) -> Pair:
    """Contiguous, writable arrays, as the kernels were compiled for; copied only if they are not."""
    first, second = (np.require(part, np.float64, ["C", "W"]) for part in stats)
    return first, second


def _put(whole: Pair, pieces: Pair, here: Any) -> Pair:
    """Copies of the arrays with some elements replaced."""
    first, second = whole[0].copy(), whole[1].copy()
    first[here], second[here] = pieces
    return first, second
