"""Which inputs are bent before a sparse Gaussian process reads them: columns of some rows in; maps that the bound prefers out.

A kernel has one length scale for a column. Where most rows lie within a thousandth of its range (amounts, counts, times) none is
right for all of them, and a monotone map is. Inputs are conditioned on, so bounds with different maps of them compare.

Only columns that are skewed or have heavy tails are tried: all as they are, all by one kind of map, and then each of them the
other way. A table without such columns costs nothing.

Where y jumps along a column no length scale is right, either, and a stair that rises at the jumps makes a smooth function of it
(`natgrad.data.jumps`). Stairs are made from y, and bounds of the same rows would favour them: one half of the rows makes them,
and the bound of the other half decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt

from natgrad.data.jumps import jumps_of, stair
from natgrad.data.warps import Kind, Warp, is_skewed, warp_of

__all__ = ["KINDS", "STAIR_MARGIN", "SURE", "chosen_warps", "jumping", "stairs_of", "warps_of"]

Floats = npt.NDArray[np.float64]
KINDS: tuple[Kind, ...] = ("log", "rank")
# Nats a row by which a map must be ahead, and columns up to which each is tried by itself.
MARGIN, MOST_ALONE = 0.005, 6
# Rows below which nothing is bent unasked.
FEWEST_ROWS = 50
# Nats by which a step is surely one, and by which others are tried along with it.
SURE, LIKELY = 10.0, 6.0
# Nats a row by which stairs must be ahead on rows that did not make them, and by `SURE` in all: 0.2 to 0.8 where functions jump,
# at most 0.07 on real tables that had a column to try (sensors, departure times), where they were no better on others.
STAIR_MARGIN = 0.1


def warps_of(x: Floats, kinds: Mapping[int, Kind]) -> tuple[Warp, ...]:
    """The maps of some columns of rows [N, D], by kind; columns with too few values have none."""
    found = (warp_of(x[:, column], column, kind) for column, kind in sorted(kinds.items()))
    return tuple(warp for warp in found if warp is not None)


def chosen_warps(
    x: Floats, bound: Callable[[tuple[Warp, ...]], float], in_time: Callable[[], bool]
) -> tuple[Warp, ...]:
    """The maps with the largest bound; ``bound`` is that of a row, after a short fit."""
    columns = [column for column in range(x.shape[1]) if is_skewed(x[:, column])]
    if not columns or len(x) < FEWEST_ROWS or not in_time():
        return ()

    def tried(kinds: Mapping[int, Kind]) -> float:
        warps = warps_of(x, kinds)
        return bound(warps) if warps or not kinds else -np.inf

    best: dict[int, Kind] = {}
    highest, kind = tried(best), KINDS[0]
    for other in KINDS:
        if in_time() and (value := tried(all_bent := dict.fromkeys(columns, other))) > highest + MARGIN:
            best, highest, kind = all_bent, value, other
    for column in columns if 1 < len(columns) <= MOST_ALONE else ():
        without: dict[int, Kind] = {name: one for name, one in best.items() if name != column}
        turned = without if column in best else {**best, column: kind}
        if in_time() and (value := tried(turned)) > highest + MARGIN:
            best, highest = turned, value
    return warps_of(x, best)


def jumping(x: Floats, y: Floats) -> list[int]:
    """Columns [N, D] along which outputs [N, P] surely jump, and others that may, if there is one."""
    nats = {column: found.nats for column, found in jumps_of(x, y).items()}
    if max(nats.values(), default=0.0) < SURE:
        return []
    return [column for column, found in nats.items() if found >= LIKELY]


def stairs_of(
    x: Floats, y: Floats, columns: Collection[int] | None = None, others: tuple[Warp, ...] = ()
) -> tuple[Warp, ...]:
    """Stairs of some columns, by default of all that have a threshold, and the other maps of the others."""
    under = {warp.column: warp for warp in others}
    found = {
        column: stair(column, x[:, column], jumps, under.get(column))
        for column, jumps in jumps_of(x, y).items()
        if columns is None or column in columns
    }
    return tuple(warp for _, warp in sorted({**under, **found}.items()))
