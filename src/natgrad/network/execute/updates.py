"""The natural step of one block, λ ← (1 − ρ) λ + ρ λ^temp, whole or by columns."""

from __future__ import annotations

from typing import Any

from natgrad.families.natural_step import blend, over_events
from natgrad.inference.problem import Block, BlockInfo
from natgrad.network.execute.backend import Backend

__all__ = [
    "all_valid",
    "blended_block",
    "change",
    "choose",
    "put_column",
    "relative_change",
    "settle",
    "shortened",
    "take_column",
    "write_column",
]

Array = Any
Stats = tuple[Array, ...]


def blended_block(
    on: Backend, block: Block, lam: Stats, target: Stats, rho: Array
) -> tuple[Stats, Stats, Array, BlockInfo]:
    """λ ← (1 − ρ) λ + ρ λ^temp with its moments, its entropy and what happened."""
    new = blend(lam, target, on.xp.asarray(rho), block.family.stat_ndims)
    fresh, entropy = block.family.moments_entropy(new)
    return new, fresh, entropy, BlockInfo(all_valid(on, block, new, entropy), relative_change(on, lam, new))


def settle(on: Backend, block: Block, lam: Stats, target: Stats, shared: tuple[tuple[int, ...], ...]) -> Any:
    """The step of length one: λ = λ^temp, with moments, entropy and what happened.

    ``shared`` lists, for each statistic, the plates along which its target is the same for every element (the precision of
    the scores of a PCA without missing data): one element is then factorised for all.
    """
    short, before = (shortened(target, shared), shortened(lam, shared)) if any(shared) else (target, lam)
    fresh, entropy = block.family.moments_entropy(short)
    if any(shared):
        fresh = tuple(on.xp.broadcast_to(f, t.shape) for f, t in zip(fresh, target, strict=True))
        entropy = on.xp.broadcast_to(entropy, block.shape)
    # What the elements share counts once in the distance; reading it for each of them would cost as much as the update.
    info = BlockInfo(all_valid(on, block, short, entropy), relative_change(on, before, short))
    return target, fresh, entropy, info


def shortened(stats: Stats, shared: tuple[tuple[int, ...], ...]) -> Stats:
    """One element in place of all along the shared plates of each statistic."""
    short = []
    for stat, axes in zip(stats, shared, strict=True):
        for axis in axes:
            stat = stat[(slice(None),) * axis + (slice(0, 1),)]
        short.append(stat)
    return tuple(short)


def take_column(on: Backend, block: Block, arrays: Stats, number: Array) -> Stats:
    """One column of every array, along the coupled plate."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(on.take_column(a, number, axis) for a in arrays)


def put_column(on: Backend, block: Block, arrays: Stats, pieces: Stats, number: Array) -> Stats:
    """The arrays with one column replaced."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(on.put_column(a, p, number, axis) for a, p in zip(arrays, pieces, strict=True))


def write_column(on: Backend, block: Block, arrays: Stats, pieces: Stats, number: Array) -> Stats:
    """The same for arrays that are the caller's own (`Backend.own`), in place where that can be."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(on.write_column(a, p, number, axis) for a, p in zip(arrays, pieces, strict=True))


def choose(on: Backend, block: Block, chosen: Array, new: Stats, old: Stats) -> Stats:
    """New statistics where ``chosen``, old ones elsewhere; ``chosen`` is over the plates."""
    if chosen is True:
        return new
    return tuple(
        on.xp.where(over_events(chosen, ndim), n, o)
        for n, o, ndim in zip(new, old, block.family.stat_ndims, strict=True)
    )


def all_valid(on: Backend, block: Block, lam: Stats, entropy: Array) -> Array:
    """Whether λ is inside the natural parameter space and its entropy finite, for every element."""
    return block.family.valid(lam, entropy).all() & on.xp.isfinite(entropy).all()


def relative_change(on: Backend, old: Stats, new: Stats) -> Array:
    """‖Δλ‖ / ‖λ‖."""
    steps = [a - b for a, b in zip(new, old, strict=True)]
    change = sum(on.inner(step, step) for step in steps)
    return on.xp.sqrt(change / sum(on.inner(b, b) + 1e-300 for b in old))


def change(on: Backend, new: Array, old: Array) -> Array:
    """The largest change of a statistic, relative to its largest value: the same in every unit."""
    size = on.xp.maximum(on.xp.max(on.xp.abs(new)), on.xp.max(on.xp.abs(old)))
    return on.xp.max(on.xp.abs(new - old)) / on.xp.where(size > 0, size, 1.0)
