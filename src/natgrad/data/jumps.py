"""Columns and outputs in; where the outputs jump along single columns, and maps that are steep there and flat between, out.

    y ≈ c + Σ_d Σ_j h_dj [x_d > t_dj]

Stumps are added one after the other, each the one that explains most of what is left, at a part of its height (boosting,
Friedman 2001), while one explains more than the best of as many would of noise. Smooth functions take many of them, too: what is
a jump is decided near each threshold, by how much a step there adds to a cubic polynomial.

A stair rises by |h_dj| at each threshold, and a little everywhere: a function that jumps at the thresholds is a smooth one of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.warps import Warp

__all__ = ["Jumps", "jumps_of", "stair"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Of the height of a stump, the part that is added; stumps at most; rows on each side of a threshold at least.
RATE, MOST, LEAST = 0.3, 300, 20
# Of the variance of outputs, what is left is rounding below this.
NOTHING = 1e-6
# Numbers that are read for each stump, at most: of wide tables fewer rows are.
LARGEST = 400_000
# Rows on each side of a threshold that say whether it is a jump, and values of the column among them at least.
NEAR, FEWEST_VALUES = 100, 10
# A neighbour of less than this part of the height does not end the rows near a threshold.
WEAK = 0.25
# Of a stair, the part by which it rises between thresholds.
SLOPE = 0.05


class Jumps(NamedTuple):
    """Of a column: values below and above each threshold, in order, heights, and nats by which the surest is a jump."""

    below: Floats
    above: Floats
    heights: Floats
    nats: float


def jumps_of(x: Floats, y: Floats) -> dict[int, Jumps]:
    """The thresholds of columns [N, D] that outputs [N, P] show; rows with a missing output are left out.

    Examples
    --------
    >>> x = np.linspace(0.0, 1.0, 400)[:, None]
    >>> found = jumps_of(x, (x > 0.3) + 0.1 * np.sin(1e4 * x))[0]
    >>> bool(abs(found.below[np.argmax(abs(found.heights))] - 0.3) < 0.01), bool(found.nats > 20)
    (True, True)
    """
    whole = np.flatnonzero(np.isfinite(y).all(1))
    if len(whole) > (most := LARGEST // x.shape[1]):
        whole = whole[np.linspace(0, len(whole) - 1, most, dtype=np.int64)]
    x, y = x[whole], y[whole]
    spread = y.std(0) if len(y) else np.zeros(y.shape[1])
    y = y[:, spread > 0.0] / spread[spread > 0.0]
    if len(x) < 2 * LEAST or not y.size:
        return {}
    order = np.argsort(x, axis=0, kind="stable")
    values = np.take_along_axis(x, order, 0)
    heights, left = _boosted(order, values, y - y.mean(0))
    found = {}
    for column in np.flatnonzero(heights.any((0, 2))):
        places = np.flatnonzero(heights[:, column].any(1))
        own = left[order[:, column]]
        own[1:] += np.cumsum(heights[:, column], axis=0)
        size = np.sqrt(np.sum(heights[places, column] ** 2, axis=1))
        far = _apart(places, size)
        nats = max(_nats(values[:, column], own, places[far], size[far], number) for number in range(len(far)))
        found[int(column)] = Jumps(values[places, column], values[places + 1, column], size, nats)
    return found


def stair(column: int, x: Floats, jumps: Jumps, under: Warp | None = None) -> Warp:
    """The map of a column of numbers [N] that rises at its thresholds; between them as ``under`` does, or straight."""
    ends = x.min(), x.max()
    inner = np.empty(0) if under is None else under.knots
    knots = np.unique(np.concatenate([ends, inner[(inner > ends[0]) & (inner < ends[1])], jumps.below, jumps.above]))
    between = knots if under is None else under.apply(knots)
    rise = np.concatenate([[0.0], np.cumsum(jumps.heights)])[np.searchsorted(jumps.above, knots, side="right")]
    values = rise / rise[-1] + SLOPE * (between - between[0]) / (between[-1] - between[0])
    kept = [0]
    for place in range(1, len(knots)):
        if values[place] > values[kept[-1]]:
            kept.append(place)
    return Warp(column, "step", knots[kept], values[kept])


def _boosted(order: Ints, values: Floats, left: Floats) -> tuple[Floats, Floats]:
    """Heights of stumps after each row in the order of a column [N − 1, D, P], and what they leave of outputs [N, P]."""
    n = len(order)
    rows = np.arange(1, n)[:, None]
    allowed = (np.diff(values, axis=0) > 0.0) & (rows >= LEAST) & (n - rows >= LEAST)
    weights = np.where(allowed, n / (rows * (n - rows)), 0.0)
    # The best of k stumps explains 2 log k variances of the noise.
    enough = 2.0 * np.log(max(int(allowed.sum()), 2)) + 2.0
    heights = np.zeros((n - 1, order.shape[1], left.shape[1]))
    for _ in range(MOST):
        below = np.cumsum(left[order], axis=0)[:-1]
        gain = weights * np.einsum("ndp,ndp->nd", below, below)
        place, column = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[place, column] <= enough * max(float(np.mean(left**2)), NOTHING) * left.shape[1]:
            break
        total, count = below[place, column], int(place) + 1
        step = np.where(np.arange(n)[:, None] < count, total / count, -total / (n - count))
        left = left.copy()
        left[order[:, column]] -= RATE * step
        heights[place, column] += RATE * (-total / (n - count) - total / count)
    return heights, left


def _apart(places: Ints, size: Floats) -> list[int]:
    """Which of some thresholds are not among the rows beside a higher one: a jump may have several stumps."""
    kept: list[int] = []
    for number in np.argsort(-size, kind="stable"):
        if all(abs(places[number] - places[other]) > LEAST for other in kept):
            kept.append(int(number))
    return sorted(kept)


def _nats(values: Floats, own: Floats, places: Ints, size: Floats, number: int) -> float:
    """By how much a step at one of the thresholds explains outputs [N, P], in the order of the column, beyond a cubic."""
    place = int(places[number])
    strong = places[size >= WEAK * size[number]]
    begin = max([place + 1 - NEAR, 0, *(int(p) + 1 for p in strong[strong < place])])
    end = min([place + 1 + NEAR, len(own), *(int(p) + 1 for p in strong[strong > place])])
    if min(len(np.unique(values[begin : place + 1])), len(np.unique(values[place + 1 : end]))) < FEWEST_VALUES:
        return 0.0
    at = (np.arange(begin, end) - place - 0.5) / NEAR
    curve = np.linalg.qr(at[:, None] ** np.arange(4))[0]
    step = (at > 0.0).astype(np.float64)
    step -= curve @ (curve.T @ step)
    rest = own[begin:end] - curve @ (curve.T @ own[begin:end])
    explained = (step @ rest) ** 2 / (step @ step)
    noise = ((rest**2).sum(0) - explained) / (len(at) - 5)
    return float(0.5 * np.sum(explained / np.maximum(noise, 1e-12)))
