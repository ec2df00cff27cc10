"""A start for a category from clusters of the data that it explains: a network and the category in; memberships and centres out.

K-means with as many clusters as there are components is one candidate; with fewer, the rest of the components are empty, which is
better where K is only an upper limit: pieces of one cluster do not grow together again. Where components differ in their priors,
a cluster belongs to the component that expects it. A few sweeps from each candidate tell which bound is highest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.network.compile.polynomial import Take
from natgrad.network.language.expressions import REAL, VECTOR
from natgrad.network.start.kmeans import k_means, nearest

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["best_clusters", "choices_of"]

Values = dict[str, Any]
Score = Callable[[Values, int], float]
# Sweeps from every candidate, and from the best ones.
FIRST_SWEEPS, LAST_SWEEPS, FINALISTS = 5, 25, 2
# Above this many components, clusters are matched by their means alone: all exchanges of two would take too long.
MOST_EXCHANGED = 8
# Points that k-means sees.
MOST_POINTS = 50_000


class _Data(NamedTuple):
    """What a category explains: rows, which of them are whole, and the nodes that hold centres, with their columns."""

    rows: npt.NDArray[np.float64]
    whole: npt.NDArray[np.bool_]
    centres: list[tuple[str, slice]]


def choices_of(problem: NetworkProblem) -> dict[str, list[tuple[str, str, int]]]:
    """For every hidden category: (term, node it chooses from, axis of that node)."""
    found: dict[str, list[tuple[str, str, int]]] = {}
    for term in problem.plan.terms.values():
        for name, readings in term.readings.items():
            for reading in readings:
                for position, axis in enumerate(reading.axes):
                    if not isinstance(axis, Take) and axis in term.gates:
                        found.setdefault(term.gates[axis], []).append((term.node, name, position))
    return found


def best_clusters(
    problem: NetworkProblem, gate: str, known: Values, prior: State, rng: np.random.Generator, score: Score | None
) -> Values:
    """Memberships of a category, and the centres of its components.

    ``known`` are the starts that are there already: of a sum of several components, what is left when they are subtracted is
    clustered. ``prior`` is the state without a start; ``score`` gives the bound after so many sweeps from a start, without it
    there is one candidate.
    """
    data, size = _data(problem, gate, known), problem.plan.nodes[gate].size or 1
    alike = _exchangeable(problem, gate, prior)
    points = data.rows[data.whole]
    if len(points) > MOST_POINTS:
        points = points[rng.choice(len(points), MOST_POINTS, replace=False)]
    counts = [size] if score is None else _counts(size)
    found = [_clustered(problem, gate, data, points, n, rng, None if alike else prior) for n in counts]
    if score is None:
        return found[0]
    if not alike and size <= MOST_EXCHANGED:
        found = [_replace_batch(gate, values, size, score) for values in found]
    if len(found) == 1:
        return found[0]
    first = sorted(found, key=lambda values: -score(values, FIRST_SWEEPS))[:FINALISTS]
    return max(first, key=lambda values: score(values, LAST_SWEEPS))


def _counts(size: int) -> list[int]:
    """Numbers of clusters to try: as many as components, half of them, …, and two."""
    halves = {max(2, math.ceil(size / 2**i)) for i in range(size.bit_length())}
    return sorted({n for n in halves | {2, 3} if n <= size} or {size}, reverse=True)


def _data(problem: NetworkProblem, gate: str, known: Values) -> _Data:
    nodes, choices = problem.plan.nodes, choices_of(problem)
    if gate not in choices:
        raise ValueError(f'init[{gate!r}] = "kmeans" is for a category that chooses components; {gate!r} chooses none')
    columns: list[npt.NDArray[np.float64]] = []
    centres, width = [], 0
    whole = np.ones([plate.size for plate in nodes[gate].plates], dtype=bool)
    for term, name, axis in choices[gate]:
        child, base = nodes[term], nodes[name]
        if child.value is None or child.kind not in (REAL, VECTOR) or base.kind != child.kind:
            continue
        if len(child.plates) != len(nodes[gate].plates) or axis != 0 or len(base.plates) != 1:
            continue
        left = child.value - _explained(problem, term, gate, known)
        columns.append(left.reshape(math.prod(p.size for p in child.plates), -1))
        whole &= True if child.mask is None else child.mask.astype(bool)
        centres.append((name, slice(width, width + columns[-1].shape[1])))
        width = centres[-1][1].stop
    if not columns:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs observed Normal or MultivariateNormal data whose mean it chooses; for other data '
            'use init="random"'
        )
    size = nodes[gate].size or 1
    if whole.sum() < size:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs at least {size} observations without missing values, one for each component, got '
            f"{whole.sum()}"
        )
    return _Data(np.hstack(columns), whole.reshape(-1), centres)


def _explained(problem: NetworkProblem, term: str, gate: str, known: Values) -> Any:
    """What the components of other categories, as far as they have a start, add to the mean of a term."""
    nodes, total = problem.plan.nodes, 0.0
    for other, choices in choices_of(problem).items():
        for child, name, axis in choices:
            if child != term or other == gate or other not in known or name not in known or axis != 0:
                continue
            labels, centres = np.asarray(known[other]), np.asarray(known[name])
            if labels.dtype.kind == "i" and nodes[name].kind == nodes[term].kind and len(nodes[name].plates) == 1:
                total = total + centres[labels]
    return total


def _clustered(
    problem: NetworkProblem,
    gate: str,
    data: _Data,
    points: npt.NDArray[np.float64],
    n_clusters: int,
    rng: np.random.Generator,
    prior: State | None,
) -> Values:
    """Memberships and centres with so many clusters; components beyond them hold nothing, and stand at the mean of all data."""
    nodes, size = problem.plan.nodes, problem.plan.nodes[gate].size or 1
    clusters = k_means(points, n_clusters, rng)
    place = np.arange(n_clusters) if prior is None else _matched(problem, data, clusters, prior)
    centres = np.broadcast_to(points.mean(0), (size, points.shape[1])).copy()
    centres[place] = clusters
    labels = place[nearest(data.rows, clusters)]
    values: Values = {gate: labels.reshape([plate.size for plate in nodes[gate].plates])}
    for name, columns in data.centres:
        if name in problem.blocks:
            values[name] = centres[:, columns] if nodes[name].kind == VECTOR else centres[:, columns.start]
    return values


def _matched(problem: NetworkProblem, data: _Data, centres: Any, prior: State) -> npt.NDArray[np.int64]:
    """For every cluster the component whose prior mean is nearest, in prior standard deviations, each taken once."""
    cost: Any = 0.0
    for name, columns in data.centres:
        family, kind = problem.plan.nodes[name].family, problem.plan.nodes[name].kind
        if name in problem.blocks:
            lam, origin = tuple(np.asarray(part) for part in prior.lam[name]), problem.blocks[name].origin
            centre = family.mean(lam) + (0.0 if origin is None else origin)
            mean, var = (part if kind == VECTOR else part[:, None] for part in (centre, family.var(lam)))
        else:
            value = np.asarray(problem.plan.nodes[name].value, dtype=np.float64)
            mean = value if kind == VECTOR else value[:, None]
            var = np.full(mean.shape, np.var(data.rows[data.whole][:, columns], axis=0))
        cost = cost + (((centres[:, None, columns] - mean) ** 2 / var) + np.log(var)).sum(-1)
    import scipy.optimize

    place = np.empty(len(centres), dtype=np.int64)
    rows, taken = scipy.optimize.linear_sum_assignment(cost)
    place[rows] = taken
    return place


def _replace_batch(gate: str, values: Values, size: int, score: Score) -> Values:
    """Exchange two components as long as that raises the bound after one sweep."""
    best, bound = values, score(values, 1)
    risen = True
    while risen:
        risen = False
        for first, second in combinations(range(size), 2):
            order = np.arange(size)
            order[[first, second]] = second, first
            other = {name: order[value] if name == gate else value[order] for name, value in best.items()}
            found = score(other, 1)
            if found > bound + 1e-9 * abs(bound):
                best, bound, risen = other, found, True
    return best


def _exchangeable(problem: NetworkProblem, gate: str, prior: State) -> bool:
    """Whether no prior tells the components of a category apart."""
    parts: list[tuple[Any, int]] = []
    for _, name, axis in choices_of(problem)[gate]:
        node = problem.plan.nodes[name]
        stats: Iterable[Any] = prior.lam[name] if name in problem.blocks else (node.value,)
        parts += [(np.asarray(part), axis) for part in stats]
    own = [np.asarray(part) for part in prior.lam[gate]]
    parts.append((own[0] if len(own) == 1 else own[1], -1))
    if len(own) == 3:  # a chain: all its states stay alike, and all its moves are alike
        moves = own[2]
        diagonal = np.eye(moves.shape[-1], dtype=bool)
        parts += [(moves[..., diagonal], -1), (moves[..., ~diagonal], -1)]
    return all(part.size == 0 or np.ptp(part, axis=axis).max() <= 1e-9 * np.abs(part).max() for part, axis in parts)
