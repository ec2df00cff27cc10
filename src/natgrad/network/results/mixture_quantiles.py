"""Quantiles of mixtures of laws: parameters and weights of their parts in; for each element the x where F(x) = p out.

    F(x) = Σ_j w_j F(x | parts of j),     x ← x − (F(x) − p) / f,     f the density half way along the step

Every eighth part stands for all until its own quantile is found, again by every eighth of them: from there Newton's steps end in
two or three evaluations of all parts. The density half way is that here times what it changes by among the few, so that a step
has no error of second order. A step whose error is below `NEAR` is not checked by another evaluation. Where steps do not settle
(two modes far apart have nothing between them), the quantile is bracketed by the smallest and the largest of the parts', and
found by the Illinois method. Whole numbers are counted up and down from where the few are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Law", "mixture_quantiles"]

Array = npt.NDArray[Any]
# Numbers of one block of elements, which fit into a cache; evaluations of F in a bracket, at most; how near to p it is to be.
BLOCK, STEPS, NEAR = 200_000, 60, 1e-9
# One part of so many stands for them, unless there are fewer than so many; Newton's steps, at most; how near to p a step begins
# that need not be checked.
STRIDE, FEW, NEWTON, CLOSE = 8, 64, 8, 1e-4
# Draws that are looked at to find elements that may be equal; a count that no law here is asked for.
LOOKED_AT, MOST = 4, 2.0**100


class Law(NamedTuple):
    """A law given its parameters: what they are, how likely values up to x are, the inverse of that, and its density.

    Whole numbers have none. ``back`` is where a value of a simpler law leads, such as exp.
    """

    parameters: Callable[[Any, dict[str, Array]], tuple[Any, ...]]
    cdf: Callable[..., Any]
    ppf: Callable[..., Any]
    pdf: Callable[..., Any] | None = None
    back: Callable[[Any], Any] | None = None


def mixture_quantiles(law: Law, parts: Sequence[tuple[Any, ...]], weights: Any, levels: Sequence[float]) -> list[Array]:
    """Quantiles of each element, by level p.

    ``parts`` are parameters [component, draw, elements], ``weights`` sum to one over the first two.
    """
    shape = np.shape(weights)[2:]
    columns = [_columns([part[place] for part in parts], np.shape(weights)) for place in range(len(parts[0]))]
    weights = np.reshape(weights, (columns[0].shape[0], -1))
    count = weights.shape[1]
    if not count:
        return [np.empty(shape) for _ in levels]
    counts = weights.max(1) > 0
    if not counts.all():
        weights, columns = weights[counts], [column[counts] for column in columns]
    weights, *columns = map(_narrow, (weights, *columns))
    chosen, places = _distinct([column for column in (weights, *columns) if column.shape[1] > 1], count)
    weights, *columns = (column if column.shape[1] == 1 else column[:, chosen] for column in (weights, *columns))
    if all(_narrow(column.T).shape[1] == 1 for column in (weights, *columns)):  # parents that are known: one law
        weights, columns = np.ones((1, weights.shape[1])), [column[:1] for column in columns]
    out = np.empty((len(levels), len(np.arange(count)[chosen])))
    width = max(1, BLOCK // len(weights))
    solve = _whole if law.pdf is None else _root
    with np.errstate(all="ignore"):  # a step may lead to where a law has no density; what is not finite is bracketed
        for begin in range(0, out.shape[1], width):
            own = slice(begin, begin + width)
            args = [column if column.shape[1] == 1 else column[:, own] for column in columns]
            mine = weights if weights.shape[1] == 1 else weights[:, own]
            for row, p in zip(out, levels, strict=True):
                row[own] = solve(law, args, mine, p)
    out = out if law.back is None else np.asarray(law.back(out))
    return [(row if places is None else row[places]).reshape(shape) for row in out]


def _columns(parts: Sequence[Any], shape: tuple[int, ...]) -> Array:
    whole = np.stack([np.broadcast_to(np.asarray(part, np.float64), shape[1:]) for part in parts])
    return whole.reshape(shape[0] * shape[1], -1)


def _narrow(column: Array) -> Array:
    """One column of those that are all the same."""
    same = column.shape[1] > 1 and bool((column[0] == column[0, 0]).all() and (column == column[:, :1]).all())
    return column[:, :1] if same else column


def _distinct(columns: list[Array], count: int) -> tuple[Any, Array | None]:
    """The elements that differ, and which of them each one is; all of them, and None, where few are equal."""
    if not columns:
        return slice(1), np.zeros(count, np.int64)
    looked = np.concatenate([column[:: max(1, len(column) // LOOKED_AT)] for column in columns])
    _, chosen, places = np.unique(looked, axis=1, return_index=True, return_inverse=True)
    places = places.reshape(-1)
    if 2 * len(chosen) > count:
        return slice(None), None
    same = all(bool((column == column[:, chosen[places]]).all()) for column in columns)
    return (chosen, places) if same else (slice(None), None)


def _mean(weights: Array, values: Any) -> Array:
    """Σ_j w_j values_j; weights that are the same for all elements are one column."""
    if weights.shape[1] == 1:
        return np.asarray(weights[:, 0] @ np.broadcast_to(values, (len(weights), np.shape(values)[-1])))
    return np.asarray(np.einsum("ij,ij->j", weights, np.broadcast_to(values, weights.shape)))


def _few(args: list[Array], weights: Array) -> tuple[list[Array], Array]:
    own = weights[::STRIDE]
    return [arg[::STRIDE] for arg in args], own / own.sum(0)


def _root(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    if len(weights) < FEW:
        return _bracketed(law, args, weights, p)
    assert law.pdf is not None
    some, own = _few(args, weights)
    x = _root(law, some, own, p)
    settled = np.zeros(len(x), bool)
    for _ in range(NEWTON):
        excess, density = _mean(weights, law.cdf(x, *args)) - p, _mean(weights, law.pdf(x, *args))
        step = -excess / density
        change = _mean(own, law.pdf(x + step, *some)) / _mean(own, law.pdf(x, *some))
        near = np.abs(excess) <= NEAR
        last = (np.abs(excess) <= CLOSE) & (np.abs(excess * (change - 1.0)) <= NEAR)
        x = np.where(near | settled, x, x + 2.0 * step / (1.0 + change))
        settled |= near | (last & np.isfinite(x))
        if settled.all():
            return x
    left = ~settled
    rest = [arg if arg.shape[1] == 1 else arg[:, left] for arg in args]
    x[left] = _bracketed(law, rest, weights if weights.shape[1] == 1 else weights[:, left], p)
    return x


def _bracket(law: Law, args: list[Array], weights: Array, p: float) -> tuple[Array, Array]:
    """The smallest and the largest quantile of the parts that count."""
    ends = np.asarray(law.ppf(p, *args), np.float64)
    return np.where(weights > 0, ends, np.inf).min(0), np.where(weights > 0, ends, -np.inf).max(0)


def _bracketed(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    def excess(x: Array) -> Array:
        return _mean(weights, law.cdf(x, *args)) - p

    low, high = _bracket(law, args, weights, p)
    at_low, at_high = excess(low), excess(high)
    x, side = low, np.zeros(len(low), np.int8)
    for _ in range(STEPS):
        step = at_high - at_low
        middle = 0.5 * (low + high)
        x = np.where(step > 0, low - at_low * (high - low) / np.where(step > 0, step, 1.0), middle)
        x = np.where((x > low) & (x < high), x, middle)
        here = excess(x)
        left = here < 0
        # An end that stays twice counts half (Illinois), so that both ends come closer.
        at_high = np.where(left, np.where(side == -1, 0.5 * at_high, at_high), here)
        at_low = np.where(left, here, np.where(side == 1, 0.5 * at_low, at_low))
        low, high, side = np.where(left, x, low), np.where(left, high, x), np.where(left, -1, 1)
        if ((np.abs(here) <= NEAR) | (high - low <= 2.0 * np.spacing(np.abs(x)))).all():
            break
    return x


def _whole(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    """The smallest whole number with F(x) ≥ p."""

    def enough(x: Array) -> Array:
        return np.asarray(_mean(weights, law.cdf(x, *args)) >= p - 1e-12)

    if len(weights) < FEW:
        low, high = _bracket(law, args, weights, p)
        while (low < high).any():
            middle = np.floor(0.5 * (low + high))
            reached = enough(middle)
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        return low
    x = _whole(law, *_few(args, weights), p)
    # F(low) < p ≤ F(high): counted up and down from x in steps that double, and halved when both are known.
    low, high, far = np.full(len(x), -1.0), np.full(len(x), np.inf), 1.0
    while far < MOST:
        reached = enough(x)
        high, low = np.where(reached, np.minimum(high, x), high), np.where(reached, low, np.maximum(low, x))
        if (high - low <= 1).all():
            return high
        x = np.where(np.isinf(high), low + far, np.maximum(np.floor(0.5 * (low + high)), high - far))
        x, far = np.where(high - low <= 1, high, x), 2.0 * far
    return np.where(high - low <= 1, high, np.nan)
