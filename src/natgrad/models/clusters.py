"""Rows in; where a model with discrete hidden variables may start, out: clusters by k-means++, as if they were known.

Local optima decide over the quality of a fit, far more than the last digits of the bound. Several guesses are improved on a
slice of the data and ranked by their bound there; the best is scaled to all.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.proposals import Starts
from natgrad.inference.rows import RowProblem, RowShard
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.inference.steppers.stepper import Stepper
from natgrad.kmeans import k_means, nearest
from natgrad.random import Stream, generator

__all__ = [
    "CERTAIN",
    "SWEEPS",
    "SWEEPS_PER_START",
    "Clustered",
    "distinct_rows",
    "row_starts",
    "scaled_natural",
    "standard_columns",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Sweeps of every guess, and then, round by round, of those that may overtake the first; of all together, for each guess so many.
SWEEPS, SWEEPS_PER_START = (6, 10), 15
# Rows of the slice.
SLICE = 20_000
# A cluster's rows count this much for it, the rest for all alike: hard counts would be an optimum of their own.
CERTAIN = 0.9


class Clustered(Protocol):
    """Rows whose hidden variables may be given."""

    def clustered(self, member: Floats) -> dict[str, tuple[Any, ...]]:
        """What all rows tell the globals if their memberships [K, n] are these."""
        ...


def row_starts(problem: RowProblem, n_clusters: int, seed: int, n_init: int) -> Starts:
    """``n_init`` guesses from a slice of the rows.

    Neither the order of the rows matters nor whether a row is there twice or has twice the weight, as long as all rows are in
    the slice.

    Parameters
    ----------
    problem : RowProblem, which is `Clustered`, too
    n_clusters : int, K
    seed, n_init : ints
    """
    rng, n_rows = generator(seed, Stream.START), problem.n_groups
    chosen = slice(None) if n_rows <= SLICE else np.sort(rng.choice(n_rows, SLICE, replace=False))
    shard = distinct_rows(problem.data.rows(chosen))
    part = problem.of_rows(*shard)
    rows = standard_columns(np.asarray(shard.x, np.float64), shard.weight)

    def guess(number: int) -> State:
        centres = k_means(rows, n_clusters, generator(seed, Stream.START, number), shard.weight, trials=1)
        member = np.full((n_clusters, len(rows)), (1.0 - CERTAIN) / n_clusters)
        member[nearest(rows, centres), np.arange(len(rows))] += CERTAIN
        return part.updated(cast("Clustered", part).clustered(member))

    def stepper(number: int) -> Stepper:
        return GroupStepper(part, part.n_groups, *part.local_limits, remember=True)

    factor = problem.total_weight * problem.population / n_rows / part.total_weight
    return Starts(
        part,
        [partial(guess, number) for number in range(n_init)],
        stepper,
        SWEEPS,
        lambda state: part.at(scaled_natural(part, state, factor)),
        SWEEPS_PER_START * n_init,
    )


def distinct_rows(shard: RowShard) -> RowShard:
    """Every row once, in the order of its numbers, with the weights of all that are like it; rows without weight are left out."""
    missing = np.isnan(shard.x)
    keys = np.hstack([np.where(missing, 0.0, shard.x), missing])
    _, first, same = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(same.ravel(), shard.weight, len(first)).astype(np.float64)
    there = weight > 0
    return RowShard(shard.x[first[there]], weight[there])


def standard_columns(rows: Floats, weight: Floats | None = None) -> Floats:
    """Columns of mean 0 and variance 1, missing entries at the mean."""
    seen = ~np.isnan(rows)
    own: Any = 1.0 if weight is None else weight[:, None]
    size = np.maximum((seen * own).sum(0), 1 if weight is None else 1e-300)
    mean = (
        np.where(seen, rows, 0.0).sum(0) / size if weight is None else (np.where(seen, rows, 0.0) * own).sum(0) / size
    )
    centred = np.where(seen, rows - mean, 0.0)
    spread = np.sqrt((centred**2 * own).sum(0) / size)
    return np.asarray(centred / np.where(spread > 0, spread, 1.0))


def scaled_natural(problem: GroupProblem, state: State, factor: float) -> dict[str, tuple[Any, ...]]:
    """λ that ``factor`` times as much of the same data would give."""
    return {
        name: tuple(p + factor * (g - p) for g, p in zip(state.lam[name], problem.full_prior(name), strict=True))
        for name in problem.blocks
    }
