"""The natural step of one block, λ ← (1 − ρ) λ + ρ λ^temp, whole or by columns; traceable."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from natgrad.inference.problem import Block, BlockInfo

__all__ = ["all_valid", "blend", "change", "choose", "moved", "put_column", "settle", "take_column"]

Array = Any
Stats = tuple[Array, ...]


def blend(block: Block, lam: Stats, target: Stats, rho: Array) -> tuple[Stats, Stats, Array, BlockInfo]:
    """λ ← (1 − ρ) λ + ρ λ^temp with its moments, its log-normaliser and what happened."""
    new = tuple(
        (1.0 - _over_events(rho, t, ndim)) * old + _over_events(rho, t, ndim) * t
        for old, t, ndim in zip(lam, target, block.family.stat_ndims, strict=True)
    )
    fresh, normalizer = block.family.moments(new)
    return new, fresh, normalizer, BlockInfo(all_valid(block, new, normalizer), moved(lam, new))


def settle(block: Block, lam: Stats, target: Stats, shared: tuple[tuple[int, ...], ...]) -> Any:
    """The step of length one: λ = λ^temp, with moments, log-normaliser and what happened.

    ``shared`` lists, for each statistic, the plates along which its target is the same for every element (the precision of
    the scores of a PCA without missing data): one element is then factorised for all.
    """
    short, before = _shortened(target, shared), _shortened(lam, shared)
    fresh, normalizer = block.family.moments(short)
    fresh = tuple(jnp.broadcast_to(f, t.shape) for f, t in zip(fresh, target, strict=True))
    normalizer = jnp.broadcast_to(normalizer, block.shape)
    # What the elements share counts once in the distance; reading it for each of them would cost as much as the update.
    info = BlockInfo(all_valid(block, short, normalizer), moved(before, short))
    return target, fresh, normalizer, info


def _shortened(stats: Stats, shared: tuple[tuple[int, ...], ...]) -> Stats:
    """One element in place of all along the shared plates of each statistic."""
    short = []
    for stat, axes in zip(stats, shared, strict=True):
        for axis in axes:
            stat = lax.slice_in_dim(stat, 0, 1, axis=axis)
        short.append(stat)
    return tuple(short)


def _over_events(rho: Array, target: Array, event_ndim: int) -> Array:
    rho = jnp.asarray(rho)
    return rho.reshape(rho.shape + (1,) * event_ndim) if rho.ndim else rho


def take_column(block: Block, arrays: Stats, number: Array) -> Stats:
    """One column of every array, along the coupled plate."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(lax.dynamic_index_in_dim(a, number, axis, keepdims=False) for a in arrays)


def put_column(block: Block, arrays: Stats, pieces: Stats, number: Array) -> Stats:
    """The arrays with one column replaced."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(lax.dynamic_update_index_in_dim(a, p, number, axis) for a, p in zip(arrays, pieces, strict=True))


def choose(block: Block, chosen: Array, new: Stats, old: Stats) -> Stats:
    """New statistics where ``chosen``, old ones elsewhere; ``chosen`` is over the plates."""
    if chosen is True:
        return new
    return tuple(
        jnp.where(_over_events(chosen, n, ndim), n, o)
        for n, o, ndim in zip(new, old, block.family.stat_ndims, strict=True)
    )


def all_valid(block: Block, lam: Stats, log_normalizer: Array) -> Array:
    """Whether λ is inside the natural parameter space and A(λ) finite, for every element."""
    return jnp.all(block.family.valid(lam, log_normalizer)) & jnp.all(jnp.isfinite(log_normalizer))


def moved(old: Stats, new: Stats) -> Array:
    """‖Δλ‖ / ‖λ‖."""
    change = sum(jnp.sum((a - b) ** 2) for a, b in zip(new, old, strict=True))
    return jnp.sqrt(change / sum(jnp.sum(b**2) + 1e-300 for b in old))


def change(new: Array, old: Array) -> Array:
    """The largest change of a statistic, relative to its largest value: the same in every unit."""
    size = jnp.maximum(jnp.max(jnp.abs(new)), jnp.max(jnp.abs(old)))
    return jnp.max(jnp.abs(new - old)) / jnp.where(size > 0, size, 1.0)
