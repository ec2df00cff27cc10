"""Find quantiles of mixtures of distributions by their distribution functions.

    F(x) = Σ_j w_j F_j(x) = p

Secant steps, within a bracket that is halved in the order of floating-point numbers where a step does not halve the error: no
scale is needed, and gaps between modes do no harm. Steps begin at the quantile and the slope of every eighth part, which are
found in the same way. Whole numbers are counted up and down in steps that double, and halved when both sides are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.network.language.cdfs import Cdf

__all__ = ["mixture_quantiles"]

Array = npt.NDArray[Any]
Mixture = Callable[[Array], Array]
# Numbers of one block of elements, which fit into a cache.
BLOCK = 200_000
# One of so many parts stands for the others, down to so many parts.
STRIDE, FEW = 8, 16
# How near F is to be to p, and evaluations of F, at most.
NEAR, MOST_STEPS = 1e-9, 300
LARGEST = float(np.finfo(float).max)
# Whole numbers above it are not counted.
MOST_COUNT = 2.0**100
# Draws that are compared before all of them are, to find elements that are equal.
COMPARED = 4


def mixture_quantiles(parts: Sequence[Cdf], weights: Any, levels: Sequence[float]) -> list[Array]:
    """Quantiles of each element, by level p.

    Parameters
    ----------
    parts : the distribution function of each component, of which the functions are the same
    weights : array [component, draw, elements], which sum to one over the first two axes
    levels : probabilities p
    """
    shape = np.shape(weights)[2:]
    columns = [_columns(arrays, np.shape(weights)) for arrays in zip(*(part.arguments for part in parts), strict=True)]
    weights = np.reshape(weights, (columns[0].shape[0], -1))
    count = weights.shape[1]
    if not count:
        return [np.empty(shape) for _ in levels]
    weights, *columns = map(_narrow, (weights, *columns))
    chosen, places = _distinct([column for column in (weights, *columns) if column.shape[1] > 1], count)
    weights, *columns = (column if column.shape[1] == 1 else column[:, chosen] for column in (weights, *columns))
    if all(
        _narrow(column.T).shape[1] == 1 for column in (weights, *columns)
    ):  # parents that are known: one distribution
        weights, columns = np.ones((1, weights.shape[1])), [column[:1] for column in columns]
    out = np.empty((len(levels), len(np.arange(count)[chosen])))
    width = max(1, BLOCK // len(weights))
    solve = _whole if parts[0].is_whole else _root
    with np.errstate(all="ignore"):  # a step may lead to where a distribution has no mass
        for begin in range(0, out.shape[1], width):
            own = slice(begin, begin + width)
            few = [column if column.shape[1] == 1 else column[:, own] for column in (weights, *columns)]
            for row, p in zip(out, levels, strict=True):
                row[own] = solve(parts[0].function, few, p, row[own].size)[0]
    out = out if parts[0].back is None else np.asarray(parts[0].back(out))
    return [(row if places is None else row[places]).reshape(shape) for row in out]


def _columns(arrays: Sequence[Any], shape: tuple[int, ...]) -> Array:
    whole = np.stack([np.broadcast_to(np.asarray(array, np.float64), shape[1:]) for array in arrays])
    return whole.reshape(shape[0] * shape[1], -1)


def _narrow(column: Array) -> Array:
    """One column of those that are all the same."""
    same = column.shape[1] > 1 and bool((column[0] == column[0, 0]).all() and (column == column[:, :1]).all())
    return column[:, :1] if same else column


def _distinct(columns: list[Array], count: int) -> tuple[Any, Array | None]:
    """The elements that differ, and which of them each one is; all of them, and None, where few are equal."""
    if not columns:
        return slice(1), np.zeros(count, np.int64)
    looked = np.concatenate([column[:: max(1, len(column) // COMPARED)] for column in columns])
    _, chosen, places = np.unique(looked, axis=1, return_index=True, return_inverse=True)
    places = places.reshape(-1)
    if 2 * len(chosen) > count:
        return slice(None), None
    same = all(bool((column == column[:, chosen[places]]).all()) for column in columns)
    return (chosen, places) if same else (slice(None), None)


def _mixture(cdf: Callable[..., Any], columns: list[Array]) -> Mixture:
    """Σ_j w_j F_j; weights, the first of the columns, that are the same for all elements are one column."""
    weights, *arguments = columns

    def value(x: Array) -> Array:
        values = np.broadcast_to(cdf(x, *arguments), (len(weights), len(x)))
        return np.asarray(weights[:, 0] @ values if weights.shape[1] == 1 else np.einsum("ij,ij->j", weights, values))

    return value


def _few(columns: list[Array]) -> list[Array] | None:
    """Every eighth part, of which some count for every element; None if there are few."""
    own = columns[0][::STRIDE]
    total = own.sum(0)
    if len(columns[0]) <= FEW or not (total > 0).all():
        return None
    return [own / total, *(column[::STRIDE] for column in columns[1:])]


def _root(cdf: Callable[..., Any], columns: list[Array], p: float, size: int) -> tuple[Array, Array]:
    """Where F is p, and its slope there."""
    value, few = _mixture(cdf, columns), _few(columns)
    x, slope = (np.zeros(size), np.ones(size)) if few is None else _root(cdf, few, p, size)
    low, high = np.full(size, -LARGEST), np.full(size, LARGEST)
    before, past, far = x, np.full(size, np.inf), np.zeros(size)
    for _ in range(MOST_STEPS):
        excess = value(x) - p
        low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
        moved = (x != before) & np.isfinite(past)
        new = (excess - past) / (x - before)
        slope = np.where(moved & (new > 0), new, slope)
        done = (np.abs(excess) <= NEAR) | (np.nextafter(low, high) >= high)
        if done.all():
            break
        step, other = x - excess / slope, _between(low, high)
        if few is not None:  # a side that is not known yet is looked for near by
            far = np.maximum(2.0 * far, np.maximum(np.abs(excess / slope), np.spacing(np.abs(x))))
            near_by = x - np.sign(excess) * far
            other = np.where(((low == -LARGEST) | (high == LARGEST)) & np.isfinite(near_by), near_by, other)
        good = (step > low) & (step < high) & (np.abs(excess) <= 0.5 * np.abs(past))
        before, past, x = x, excess, np.where(done, x, np.where(good, step, other))
    return x, slope


def _between(low: Array, high: Array) -> Array:
    """The floating-point number half way between two, counted one by one."""
    first, second = (_ordered(bound.view(np.int64)) for bound in (low, high))
    return _ordered((first >> 1) + (second >> 1) + (first & second & 1)).view(np.float64)


def _ordered(bits: Array) -> Array:
    """The bits of floating-point numbers as integers in their order, and back."""
    return np.asarray(np.where(bits < 0, np.int64(-(2**63)) - bits, bits))


def _whole(cdf: Callable[..., Any], columns: list[Array], p: float, size: int) -> tuple[Array, None]:
    """The smallest whole number with F(x) ≥ p."""
    value, few = _mixture(cdf, columns), _few(columns)
    x = np.zeros(size) if few is None else _whole(cdf, few, p, size)[0]
    low, high, far = np.full(size, -1.0), np.full(size, np.inf), 1.0
    while far < MOST_COUNT and not (high - low <= 1).all():
        reached = value(x) >= p - 1e-12
        high, low = np.where(reached, np.minimum(high, x), high), np.where(reached, low, np.maximum(low, x))
        x = np.where(np.isinf(high), low + far, np.maximum(np.floor(0.5 * (low + high)), high - far))
        x, far = np.where(high - low <= 1, high, x), 2.0 * far
    return np.where(high - low <= 1, high, np.nan), None
