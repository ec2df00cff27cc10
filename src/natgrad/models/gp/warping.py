"""Which inputs are bent before a sparse Gaussian process reads them: columns of some rows in; maps that the bound prefers out.

A kernel has one length scale for a column. Where most rows lie within a thousandth of its range (amounts, counts, times) none is
right for all of them, and a monotone map is. Inputs are conditioned on, so bounds with different maps of them compare.

Only columns that are skewed or have heavy tails are tried: all as they are, all by one kind of map, and then each of them the
other way. A table without such columns costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from natgrad.data.warps import Kind, Warp, is_skewed, warp_of

__all__ = ["KINDS", "chosen_warps", "warps_of"]

Floats = npt.NDArray[np.float64]
KINDS: tuple[Kind, ...] = ("log", "rank")
# Nats a row by which a map must be ahead, and columns up to which each is tried by itself.
MARGIN, MOST_ALONE = 0.005, 6
# Rows below which nothing is bent unasked.
FEWEST_ROWS = 50


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
