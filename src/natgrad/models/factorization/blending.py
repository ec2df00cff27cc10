"""λ ← (1 − ρ) λ + ρ λ^temp on plain arrays, for problems with kernels of their own; and how far a block moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, BlockInfo, State

__all__ = ["blended_block", "distance", "length", "owned"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
# Numbers that are subtracted at a time: what the cache holds.
PIECE = 2**16


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
    new = (_blend(old[0], np.asarray(target[0])[rows], rate), _blend(old[1], np.asarray(target[1])[rows], rate))
    fresh, inside = moments(new)
    valid = inside and all(bool(np.isfinite(part).all()) for part in new)
    size = length(lam if column is None else (lam[0][:, column], lam[1][:, column]))
    info = BlockInfo(valid, distance(old, new) / size)
    name = block.name
    state = state._replace(lam={**state.lam, name: _put(lam, new, here)}, mu={**state.mu, name: _put(mu, fresh, here)})
    return state, info


def owned(stats: Any) -> Pair:
    """Contiguous, writable arrays, as the kernels were compiled for; copied only if they are not."""
    first, second = (np.require(part, np.float64, ["C", "W"]) for part in stats)
    return first, second


def distance(old: Pair, new: Pair) -> float:
    """‖Δλ‖, piece by piece: the difference of large arrays is never there as a whole."""
    total = 0.0
    for a, b in zip(map(np.ravel, new), map(np.ravel, old), strict=True):
        total += sum(_square(a[n : n + PIECE] - b[n : n + PIECE]) for n in range(0, a.size, PIECE))
    return float(np.sqrt(total))


def length(lam: Pair) -> float:
    """‖λ‖; never zero, so that one can divide by it."""
    return float(np.sqrt(sum(_square(part) + 1e-300 for part in lam)))


def _square(array: Floats) -> float:
    """Σ x², without a copy."""
    return float(np.vdot(array, array))


def _over(rho: npt.NDArray[Any], part: Floats) -> npt.NDArray[Any]:
    """ρ of each element as an array that broadcasts over the event axes."""
    return rho.reshape(rho.shape + (1,) * (part.ndim - rho.ndim)) if rho.ndim else rho


def _blend(old: Floats, target: Any, rho: Floats) -> Floats:
    rate = _over(rho, old)
    return np.asarray((1.0 - rate) * old + rate * np.asarray(target))


def _put(whole: Pair, pieces: Pair, here: Any) -> Pair:
    """Copies of the arrays with some elements replaced."""
    first, second = whole[0].copy(), whole[1].copy()
    first[here], second[here] = pieces
    return first, second
