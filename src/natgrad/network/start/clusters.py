"""A start for a category from clusters of the data that it explains: a network and the category in; memberships and centres out.

K-means with as many clusters as there are components is one candidate; with fewer, the rest of the components are empty, which is
better where K is only an upper limit: pieces of one cluster do not grow together again. Where components differ in their priors,
a cluster belongs to the component that expects it. Which candidate is best, some sweeps of each tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.network.start.features import Rows, rows_of
from natgrad.network.start.kmeans import k_means, nearest, spread_out

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["cluster_starts"]

Values = dict[str, Any]
Score = Callable[[Values, int], float]
# Above this many components, clusters are matched by their means alone: all exchanges of two would take too long.
MOST_EXCHANGED = 8
# Points that k-means sees.
MOST_POINTS = 50_000


def cluster_starts(
    problem: NetworkProblem,
    gate: str,
    known: Values,
    prior: State,
    rng: np.random.Generator,
    score: Score | None,
    *,
    fewer: bool,
    seeds: bool = False,
) -> list[tuple[str, Values]]:
    """Memberships of a category, and the centres of its components where they are places; each with its name.

    Parameters
    ----------
    problem, gate : the network and the category
    known : starts that are there already: of a sum of several components, what is left when they are subtracted is clustered
    prior : the state without a start
    rng : of the first centres
    score : the bound after some sweeps from a start, to tell which component a cluster belongs to; None: by their means alone
    fewer : whether there are candidates with fewer clusters
    seeds : take the first centres, points that are far from one another, as they are
    """
    data, size = rows_of(problem, gate, known), problem.plan.nodes[gate].categories or 1
    alike = _exchangeable(problem, gate, prior)
    points = data.rows[data.whole]
    if len(points) > MOST_POINTS:
        points = points[rng.choice(len(points), MOST_POINTS, replace=False)]
    starts = []
    for n in _counts(size) if fewer else [size]:
        centres = spread_out(points, n, rng) if seeds else k_means(points, n, rng)
        values = _clustered(problem, gate, data, points, centres, None if alike else prior)
        if not alike and score is not None and size <= MOST_EXCHANGED:
            values = _exchanged(gate, values, size, score)
        starts.append((f"{n} {'points' if seeds else 'clusters'}", values))
    return starts


def _counts(size: int) -> list[int]:
    """Numbers of clusters to try: as many as components, half of them, …, and two."""
    halves = {max(2, math.ceil(size / 2**i)) for i in range(size.bit_length())}
    return sorted({n for n in halves | {2, 3} if n <= size} or {size}, reverse=True)


def _clustered(
    problem: NetworkProblem,
    gate: str,
    data: Rows,
    points: npt.NDArray[np.float64],
    clusters: npt.NDArray[np.float64],
    prior: State | None,
) -> Values:
    """Memberships and centres with these clusters; components beyond them hold nothing, and stand at the mean of all data."""
    nodes, size = problem.plan.nodes, problem.plan.nodes[gate].categories or 1
    place = np.arange(len(clusters)) if prior is None or not data.centres else _matched(problem, data, clusters, prior)
    centres = np.broadcast_to(points.mean(0), (size, points.shape[1])).copy()
    centres[place] = clusters
    labels = place[nearest(data.rows, clusters)]
    values: Values = {gate: labels.reshape([plate.size for plate in nodes[gate].plates])}
    for name, columns, shape in data.centres:
        if name in problem.blocks:
            values[name] = centres[:, columns].reshape(size, *shape)
    return values


def _matched(problem: NetworkProblem, data: Rows, centres: Any, prior: State) -> npt.NDArray[np.int64]:
    """For every cluster the component whose prior mean is nearest, in prior standard deviations, each taken once."""
    cost: Any = 0.0
    for name, columns, _ in data.centres:
        family = problem.plan.nodes[name].family
        if name in problem.blocks:
            lam, origin = tuple(np.asarray(part) for part in prior.lam[name]), problem.blocks[name].origin
            mean, var = family.mean(lam) + (0.0 if origin is None else origin), family.var(lam)
        else:
            mean = np.asarray(problem.plan.nodes[name].value, dtype=np.float64)
            var = np.broadcast_to(np.var(data.rows[data.whole][:, columns], axis=0).reshape(mean.shape[1:]), mean.shape)
        mean, var = mean.reshape(len(mean), -1), var.reshape(len(mean), -1)
        cost = cost + (((centres[:, None, columns] - mean) ** 2 / var) + np.log(var)).sum(-1)
    import scipy.optimize

    place = np.empty(len(centres), dtype=np.int64)
    rows, taken = scipy.optimize.linear_sum_assignment(cost)
    place[rows] = taken
    return place


def _exchanged(gate: str, values: Values, size: int, score: Score) -> Values:
    """Exchange two components as long as that raises the bound after one sweep."""
    best, bound = values, score(values, 1)
    risen = True
    while risen:
        risen = False
        for first, second in combinations(range(size), 2):
            order = np.arange(size)
            order[[first, second]] = second, first
            other = {name: order[value] if name == gate else value[order] for name, value in best.items()}
            higher = score(other, 1)
            if higher > bound + 1e-9 * abs(bound):
                best, bound, risen = other, higher, True
    return best


def _exchangeable(problem: NetworkProblem, gate: str, prior: State) -> bool:
    """Whether no prior tells the components of a category apart."""
    parts: list[tuple[Any, int]] = []
    for _, name, axis in problem.plan.choices[gate]:
        node = problem.plan.nodes[name]
        stats: Iterable[Any] = prior.lam[name] if name in problem.blocks else (node.value,)
        parts += [(np.asarray(part), axis) for part in stats]
    own = [np.asarray(part) for part in prior.lam[gate]]
    if problem.plan.nodes[gate].family.name == "Binary":
        own = [np.stack(own[::-1], axis=-1)]
    parts.append((own[0] if len(own) == 1 else own[1], -1))
    if len(own) == 3:  # a chain: all its states stay alike, and all its moves are alike
        moves = own[2]
        diagonal = np.eye(moves.shape[-1], dtype=bool)
        parts += [(moves[..., diagonal], -1), (moves[..., ~diagonal], -1)]
    return all(part.size == 0 or np.ptp(part, axis=axis).max() <= 1e-9 * np.abs(part).max() for part, axis in parts)
