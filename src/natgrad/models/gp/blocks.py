"""Dense processes of rows that lie together: a kernel, a law and rows in; sites of all rows, or slopes in the kernel, out.

Rows are divided into blocks, and each is solved together with the nearest rows around it, its halo, whose sites stay meanwhile.
One inverse of such a matrix has the cavities of all rows of a block. With one block it is the dense process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance
from natgrad.models.gp.neighbours import SMOOTHEST_FIRST, nearest
from natgrad.models.gp.settings import Gradient, Settings, compiled
from natgrad.models.gp.sites import Law, Sites, cavities, expected_at, neutral, renewed, slope_in_k

__all__ = ["Neighbourhoods", "blocks_of", "slopes_around", "solved", "values_around"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Rows of a block and, at least, of its halo; rows of a block from which the distances to others are taken.
BLOCK, HALO, MARKS = 96, 160, 8
# Sweeps over all blocks, and solutions of a block in all, at most; solutions of a block at each sweep.
SWEEPS, SOLUTIONS, TURNS = 3, 240, 2
# Standard deviations of q(f) by which means still move, on average, when sites have settled.
SETTLED = 1e-6
# Times that sites of a neighbourhood are renewed, from neutral ones.
FRESH = 16


class Neighbourhoods(NamedTuple):
    """Numbers of rows [B, n] that lie together, of which the first ``judged`` say nothing, and are expected from the others.

    Rows that say something cannot be judged one by one: sites of the others have seen them. With large variances of f that
    flatters by as much as half a nat a row.
    """

    near: Ints
    judged: int


def blocks_of(kernel: Covariance, x: Floats, m: int) -> list[tuple[Ints, Ints]]:
    """Blocks of rows that lie together, and the nearest m rows or more around each."""
    scaled = _in_units(kernel, x)
    blocks: list[Ints] = []
    waiting = [np.arange(len(x))]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= BLOCK:
            blocks.append(rows)
            continue
        column = int(np.argmax(np.ptp(scaled[rows], axis=0)))
        order = rows[np.argsort(scaled[rows, column], kind="stable")]
        waiting.extend(np.array_split(order, 2))
    size = max(HALO, m)
    return [(rows, _halo(kernel, x, rows, min(size, len(x) - len(rows)))) for rows in blocks]


def solved(
    kernel: Covariance, law: Law, x: Floats, y: Floats, sites: Sites, m: int, in_time: Callable[[], bool]
) -> Sites:
    """Sites of all rows, each given those of the rows around it."""
    z, s = (part.copy() for part in sites)
    blocks = blocks_of(kernel, x, m)
    for sweep in range(max(SWEEPS, SOLUTIONS // (TURNS * len(blocks)))):
        moved = 0.0
        for block, halo in blocks:
            rows = np.concatenate([block, halo])
            k, n = _matrix(kernel, x[rows]), len(block)
            for _ in range(TURNS):
                now = Sites(z[:, rows], s[:, rows])
                found = cavities(k, now)
                mean, var = found.mean[:, :n], found.var[:, :n]
                after = renewed(law, y[block], mean, var, now.of(np.arange(n)))
                own = 1.0 / (1.0 / var + 1.0 / after.s)
                change = own * (after.z / after.s - z[:, block] / s[:, block]) / np.sqrt(own)
                moved += float((change**2).sum())
                z[:, block], s[:, block] = after
        if np.sqrt(moved / (TURNS * z.size)) < SETTLED or (sweep and not in_time()):
            break
    return Sites(z, s)


def values_around(kernel: Covariance, law: Law, x: Floats, y: Floats, around: Neighbourhoods) -> Floats:
    """Log densities [B · judged] of rows given the others of their neighbourhood, with sites of the neighbourhood alone."""
    values, first = [], around.judged
    for rows in around.near:
        k, sites = _matrix(kernel, x[rows]), neutral(law, y[rows[first:]])
        for _ in range(FRESH):
            found = cavities(k[first:, first:], sites)
            sites = renewed(law, y[rows[first:]], found.mean, found.var, sites)
        mean, var = expected_at(k, sites)
        values.append(law.log_densities(y[rows[:first]], mean, var))
    return np.concatenate(values)


def slopes_around(
    kernel: Covariance, law: Law, x: Floats, y: Floats, sites: Sites, near: Ints, inner: int
) -> tuple[Floats, ...]:
    """Slopes in θ of the mean log density of the first ``inner`` rows of neighbourhoods ``near`` [B, n], each given the others.

    Sites are renewed in place. They have seen all rows, so that slopes are proposals, for rows to judge that are kept apart.
    """
    matrices, theta = compiled(kernel), kernel.theta
    total = [np.zeros(np.shape(part)) for part in theta]
    for rows in near:
        k = _matrix(kernel, x[rows])
        for _ in range(TURNS):
            found = cavities(k, sites.of(rows))
            sites.z[:, rows], sites.s[:, rows] = renewed(law, y[rows], found.mean, found.var, sites.of(rows))
        found, some = cavities(k, sites.of(rows)), slice(inner)
        by_mean, by_var = np.zeros_like(found.mean), np.zeros_like(found.var)
        _, by_mean[:, some], by_var[:, some] = law.slopes(y[rows][some], found.mean[:, some], found.var[:, some])
        slope = slope_in_k(found, by_mean, by_var) / (len(near) * inner)
        gradient = Gradient(slope, np.zeros((1, len(rows))), np.zeros(1), np.empty(0))
        pulled = matrices.pulled(Settings(theta, x[rows], ()), x[rows][:1], gradient).theta
        for sum_, part in zip(total, pulled, strict=True):
            sum_ += np.asarray(part)
    return tuple(total)


def _matrix(kernel: Covariance, x: Floats) -> Floats:
    return np.asarray(compiled(kernel).all(Settings(kernel.theta, x, ()), x[:1])[0])


def _in_units(kernel: Covariance, x: Floats) -> Floats:
    """Inputs in the length scales of a stationary kernel; of others as they are."""
    if not isinstance(kernel, SMOOTHEST_FIRST):
        return x
    active = slice(None) if kernel.active is None else list(kernel.active)
    return np.asarray(x[:, active] / np.asarray(kernel.parameters[kernel.names[1]]))


def _halo(kernel: Covariance, x: Floats, block: Ints, size: int) -> Ints:
    """The nearest rows outside of a block: those that are met first by some rows of it, in turns."""
    if not size:
        return np.empty(0, np.int64)
    marks = block[np.linspace(0, len(block) - 1, MARKS).astype(np.int64)]
    ranked = nearest(kernel, x, x[marks], min(size + len(block), len(x))).T.ravel()
    outside = ranked[~np.isin(ranked, block)]
    _, first = np.unique(outside, return_index=True)
    return np.asarray(outside[np.sort(first)[:size]])
