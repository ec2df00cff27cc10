"""Scores of users for all items, in parts, and their held-out likes in; NDCG of each user out."""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_rows, parallel_kernel

__all__ = ["rank_held_out"]

# Items that are compared in one go, in lanes; then one may stop.
TOGETHER = 256


@parallel_kernel(of_rows)
def rank_held_out(
    low,
    high,
    out,
    wanted_start,
    wanted,
    seen_start,
    seen,
    factors,
    regression,
    neighbours,
    parts,
    common,
    scale,
    discount,
):
    """``out[u]``: NDCG@k of the items ``wanted[wanted_start[u] : …]`` among those that are not ``seen[seen_start[u] : …]``.

    The score of an item is ``scale · (common + (1 − near) (mix · factors + (1 − mix) · regression) + near · neighbours)``, with
    mix and near the two ``parts``. ``regression`` has the first items only; of the others, or of all where it has none, factors
    are taken whole. ``neighbours`` may have no columns. ``discount`` [k] is what a place in the list is worth. Of equal scores
    the first item is first. A user's scores are mixed in a cache, and only what was held out is looked for: the place of an item
    is the number of those with a larger score. Threads own rows.
    """
    row = np.empty(factors.shape[1], np.float32)
    for user in range(low, high):
        _mix(row, factors[user], regression[user], neighbours[user], parts[0], parts[1])
        _scale(row, common, scale)
        for place in range(seen_start[user], seen_start[user + 1]):
            row[seen[place]] = -np.inf
        first, last = wanted_start[user], wanted_start[user + 1]
        gain, best = 0.0, 0.0
        for place in range(first, last):
            if place - first < len(discount):
                best += discount[place - first]
            above = _n_above(row, wanted[place], len(discount))
            if above < len(discount):
                gain += discount[above]
        out[user] = gain / best if best > 0.0 else 0.0


# Loops over a row have few arrays each: with more of them they are not compiled for lanes.
@lane_kernel
def _mix(row, factors, regression, neighbours, mix, near):
    """The scores of one user, in parts."""
    one = np.float32(1.0)
    for j in range(len(row)):
        row[j] = factors[j]
    for j in range(len(regression)):
        row[j] = mix * row[j] + (one - mix) * regression[j]
    for j in range(len(neighbours)):
        row[j] = (one - near) * row[j] + near * neighbours[j]


@lane_kernel
def _scale(row, common, scale):
    for j in range(len(row)):
        row[j] = scale[j] * (common[j] + row[j])


@lane_kernel
def _n_above(row, item, most):
    """How many come before an item; it may be any number from ``most`` on where they are as many."""
    score, above = row[item], 0
    for first in range(0, len(row), TOGETHER):
        above += _n_larger(row[first : first + TOGETHER], score)
        if above >= most:
            return above
    for j in range(item):
        if row[j] == score:
            above += 1
    return above


@lane_kernel
def _n_larger(row, score):
    found, one, none = np.int32(0), np.int32(1), np.int32(0)
    for j in range(len(row)):
        # Cast where it is added: a sum of 64 bits takes twelve times as long.
        found = np.int32(found + (one if row[j] > score else none))
    return found
