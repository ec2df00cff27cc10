"""Find starts of a category by k-means on the data that it explains: memberships, and centres of the components."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.kmeans import k_means, nearest, spread_out
from natgrad.network.compile.joint_factors import JointNode
from natgrad.network.language.expressions import CATEGORY, REAL, VECTOR
from natgrad.network.language.nodes import Node

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["Centres", "Rows", "can_cluster", "cluster_starts", "rows_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# What a category explains, as rows of numbers that clusters are looked for in: real numbers, counts, binaries and categories.
#
# A row belongs to one element of the category. Counts enter by their square root, which has about the same variance at every
# rate; categories by one column each, or by random codes where these would be many; columns on further plates of the data (the
# items of a questionnaire) stand side by side.

Values = dict[str, Any]
# Numbers in the rows of a category with many values (the words of all documents), 128 MiB: beyond, rows are projected.
MAX_NUMBERS = 2**24


class Centres(NamedTuple):
    """A node that holds centres: its name, their columns, and the shape of one of them."""

    name: str
    columns: slice
    shape: tuple[int, ...]


class Rows(NamedTuple):
    """What a category explains: rows, which of them are whole, and the nodes that hold centres, with their columns."""

    rows: Floats
    whole: npt.NDArray[np.bool_]
    centres: list[Centres]


def rows_of(problem: NetworkProblem, gate: str, known: Values, least: int | None = None) -> Rows:
    """The rows of a category; ``known`` are starts of others, whose part of a sum is subtracted.

    There must be ``least`` of them, by default one for each component.
    """
    nodes, choices = problem.plan.nodes, problem.plan.choices
    if gate not in choices:
        raise ValueError(f'init[{gate!r}] = "kmeans" is for a category that chooses components; {gate!r} chooses none')
    plates = nodes[gate].plates
    n_rows = math.prod(plate.size for plate in plates)
    columns: list[Floats] = []
    whole, centres, width = np.ones(n_rows, dtype=bool), list[Centres](), 0
    seen: set[str] = set()
    for term, name, axis in choices[gate]:
        child, base = nodes[term], nodes[name]
        if term in seen or child.value is None or not _aligned(problem, gate, term):
            continue
        is_location = child.kind in (REAL, VECTOR)
        places = base.located if isinstance(base, JointNode) else (base,)
        if is_location and all(place.kind != child.kind for place in places):
            continue  # a precision: what it chooses is no place
        seen.add(term)
        left = child.value - _explained(problem, term, gate, known) if is_location else child.value
        block, present = _columns(child, left, n_rows)
        columns.append(block)
        whole &= present
        extra = child.plates[len(plates) :]
        same = tuple(p.name for p in base.plates[1:]) == tuple(p.name for p in extra)
        # The value of a joint factor is a mean and a precision: its start follows from the memberships alone.
        if is_location and axis == 0 and same and not isinstance(base, JointNode):
            shape = (*(p.size for p in extra), *((child.size or 0,) if child.kind == VECTOR else ()))
            centres.append(Centres(name, slice(width, width + block.shape[1]), shape))
        width += block.shape[1]
    if not columns:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs observed data on its own plates, whose mean, rate or probabilities it chooses; '
            'for others use init="random"'
        )
    size = (nodes[gate].categories or 1) if least is None else least
    if whole.sum() < size:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs at least {size} observations without missing values, one for each component, got '
            f"{whole.sum()}"
        )
    if len(columns) > 1:  # in other units each
        columns = [block / (np.sqrt(block[whole].var(0).sum()) or 1.0) for block in columns]
        centres = []
    return Rows(np.hstack(columns), whole, centres)


def can_cluster(problem: NetworkProblem, gate: str) -> bool:
    """Whether a category has rows to cluster."""
    try:
        rows_of(problem, gate, {})
    except ValueError:
        return False
    return True


def _aligned(problem: NetworkProblem, gate: str, term: str) -> bool:
    """Whether a term has the plates of the category first, and reads it there element by element."""
    names = tuple(plate.name for plate in problem.plan.nodes[gate].plates)
    planned = problem.plan.terms[term]
    return planned.plates[: len(names)] == names and all(r.axes == names for r in planned.readings[gate])


def _columns(child: Node, value: npt.NDArray[Any], n_rows: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The numbers of a child as columns, missing ones at the mean, and the rows of which something is there."""
    present = np.ones(value.shape[: len(child.plates)], bool) if child.mask is None else child.mask.astype(bool)
    is_category = child.kind == CATEGORY
    rows = (
        _codes(child.size or 1, np.size(value))[value] if is_category else child.even_values(value.astype(np.float64))
    )
    there = np.broadcast_to(present.reshape((*present.shape, *(1,) * (rows.ndim - present.ndim))), rows.shape)
    rows, there = rows.reshape(n_rows, -1), there.reshape(n_rows, -1)
    count = np.maximum(there.sum(0), 1)
    filled = np.where(there, rows, np.where(there, rows, 0.0).sum(0) / count)
    # A vector that is missing tells nothing; of several columns some are enough.
    return np.asarray(filled), np.asarray(there.any(1))


def _codes(size: int, n: int) -> Floats:
    """A row for each of ``size`` categories: indicators, or random ones about as far apart if those of ``n`` values were many."""
    width = max(8, MAX_NUMBERS // n)
    if size <= width:
        return np.eye(size)
    return np.random.default_rng(0).standard_normal((size, width)) / math.sqrt(width)


def _explained(problem: NetworkProblem, term: str, gate: str, known: Values) -> Any:
    """What the components of other categories, as far as they have a start, add to the mean of a term."""
    nodes, total = problem.plan.nodes, 0.0
    for other, choices in problem.plan.choices.items():
        for child, name, axis in choices:
            if child != term or other == gate or other not in known or name not in known or axis != 0:
                continue
            labels, centres = np.asarray(known[other]), np.asarray(known[name])
            if labels.dtype.kind == "i" and nodes[name].kind == nodes[term].kind and len(nodes[name].plates) == 1:
                total = total + centres[labels]
    return total


# K-means with as many clusters as there are components is one candidate; with fewer, the rest of the components are empty, which
# is better where K is only an upper limit: pieces of one cluster do not grow together again. Where components differ in their
# priors, a cluster belongs to the component that expects it. Which candidate is best, some sweeps of each tell.

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
    if problem.plan.nodes[gate].family.has_sides:
        own = [np.stack(own[::-1], axis=-1)]
    parts.append((own[0] if len(own) == 1 else own[1], -1))
    if len(own) == 3:  # a chain: all its states stay alike, and all its moves are alike
        moves = own[2]
        diagonal = np.eye(moves.shape[-1], dtype=bool)
        parts += [(moves[..., diagonal], -1), (moves[..., ~diagonal], -1)]
    return all(part.size == 0 or np.ptp(part, axis=axis).max() <= 1e-9 * np.abs(part).max() for part, axis in parts)
