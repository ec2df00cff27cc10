"""Find clusters by k-means, and points that lie apart by greedy k-means++ (Arthur and Vassilvitskii, 2007)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["k_means", "nearest", "spread_out"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Our own, because a library of clusterings takes seconds to import, and a start need not be perfect.

TRIALS, MOST_STEPS = 5, 100
# Squared movement of the centres, relative to the variance of the points, below which they have settled.
SETTLED = 1e-4
# Centres up to which the nearest is looked for one after the other.
FEW = 16
# Distances that are in memory at a time.
MOST_DISTANCES = 2**21


def k_means(
    points: Floats, n_clusters: int, rng: np.random.Generator, weight: Floats | None = None, trials: int = TRIALS
) -> Floats:
    """The centres [n_clusters, columns] of the best of some runs; points of ``weight`` 2 count twice.

    A single run begins at plain k-means++, so that callers who compare several find different ones; others at the greedy one.

    Examples
    --------
    >>> points = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> np.sort(k_means(points, 2, np.random.default_rng(0)).ravel()).tolist()
    [0.1, 5.1]
    """
    # Distances are differences of squares, so they are measured from the middle.
    middle = points.mean(0)
    centred = points - middle
    squares = _squares(centred)
    best, lowest = None, np.inf
    for _ in range(trials):
        centres, cost = _lloyd(
            centred, squares, spread_out(centred, n_clusters, rng, squares, weight, trials > 1), weight
        )
        if best is None or cost < lowest:
            best, lowest = centres, cost
    assert best is not None
    return np.asarray(best + middle)


def nearest(points: Floats, centres: Floats) -> Ints:
    """The number of the centre that is nearest to each point."""
    middle = centres.mean(0)
    centred = points - middle
    return _assigned(centred, _squares(centred), centres - middle)[0]


def spread_out(
    points: Floats,
    n_clusters: int,
    rng: np.random.Generator,
    squares: Floats | None = None,
    weight: Floats | None = None,
    greedy: bool = True,
) -> Floats:
    """k-means++: each centre a point, drawn in proportion to its squared distance from those before; the best of a few draws."""
    squares = _squares(points) if squares is None else squares
    own = np.ones(len(points)) if weight is None else weight
    first = rng.integers(len(points)) if weight is None else rng.choice(len(points), p=weight / weight.sum())
    chosen = [int(first)]
    distance = own * _squared(points, squares, points[chosen])[:, 0]
    draws = 2 + int(np.log(n_clusters)) if greedy else 1
    while len(chosen) < n_clusters:
        total = distance.sum()
        weight = distance / total if total > 0 else np.full(len(points), 1.0 / len(points))
        drawn = rng.choice(len(points), draws, p=weight)
        shorter = np.minimum(distance[:, None], own[:, None] * _squared(points, squares, points[drawn]))
        best = int(shorter.sum(0).argmin())
        chosen.append(int(drawn[best]))
        distance = shorter[:, best]
    return points[chosen]


def _lloyd(points: Floats, squares: Floats, centres: Floats, weight: Floats | None) -> tuple[Floats, float]:
    """Steps to the nearest local optimum, and the sum of squared distances there."""
    scale = SETTLED * points.var(0).mean()
    for _ in range(MOST_STEPS):
        labels, distance = _assigned(points, squares, centres)
        new = _means(points, labels, distance, len(centres), weight)
        moved = ((new - centres) ** 2).sum()
        centres = new
        if moved <= scale:
            break
    distance = _assigned(points, squares, centres)[1]
    return centres, float(distance.sum() if weight is None else weight @ distance)


def _means(points: Floats, labels: Ints, distance: Floats, n_clusters: int, weight: Floats | None) -> Floats:
    """The mean of each cluster; one that lost all its points gets the one that is farthest from its own centre."""
    count = np.bincount(labels, weight, n_clusters)
    weighted = points if weight is None else weight[:, None] * points
    sums = np.stack([np.bincount(labels, column, n_clusters) for column in weighted.T], axis=1)
    means: Floats = sums / np.where(count > 0, count, 1)[:, None]
    empty = np.flatnonzero(count == 0)
    if len(empty):
        means[empty] = points[np.argsort(-distance, kind="stable")[: len(empty)]]
    return means


def _assigned(points: Floats, squares: Floats, centres: Floats) -> tuple[Ints, Floats]:
    """The nearest centre of each point and the squared distance to it, in chunks."""
    step = max(1, MOST_DISTANCES // len(centres))
    if len(points) <= step and len(centres) <= FEW:
        return _least(_squared(points, squares, centres))
    labels, distance = np.empty(len(points), dtype=np.int64), np.empty(len(points))
    for start in range(0, len(points), step):
        here = slice(start, start + step)
        squared = _squared(points[here], squares[here], centres)
        if len(centres) > FEW:
            labels[here] = squared.argmin(1)
            distance[here] = squared.min(1)
        else:
            labels[here], distance[here] = _least(squared)
    return labels, distance


def _least(squared: Floats) -> tuple[Ints, Floats]:
    """The smallest of a few columns and where it is: column after column, as rows this short are slow in NumPy."""
    label, least = np.zeros(len(squared), dtype=np.int64), squared[:, 0]
    for k in range(1, squared.shape[1]):
        column = squared[:, k]
        np.putmask(label, column < least, k)
        least = np.minimum(least, column)
    return label, least


def _squares(points: Floats) -> Floats:
    """|x|² of each point."""
    return np.asarray((points**2).sum(1)) if points.shape[1] > 1 else points[:, 0] ** 2


def _squared(points: Floats, squares: Floats, centres: Floats) -> Floats:
    """Squared distances [points, centres]; ``squares`` are those of the points from zero."""
    distances = squares[:, None] - 2.0 * points @ centres.T
    distances += (centres**2).sum(1)
    return np.maximum(distances, 0.0, out=distances)
