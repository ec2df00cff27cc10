"""Start a run over chunks from some rows of all, and warn of tables that are sorted by their components.

Where priors are the same for all components, rows are drawn from the whole table: its first ones may be of one component. They
are a network in memory, which finds a start as any other does (`natgrad.network.start.restarts`); after some sweeps what it
says of the globals is where chunks begin. Sequences cannot be drawn row by row: the first chunk stands for them.

**Sorted tables.** Steps of `SVI` with a step size read some chunks as if these had been drawn from all rows. Of a sorted table
they are not: the components of other chunks are told nothing, and shrink to their priors by 1 − ρ at every step. What is
remembered (no ``step=``) has no such steps (`ChunkSource.begin`).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import Step
from natgrad.inference.trace import levels_to_the_caller
from natgrad.network.bind.tables import Table
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.start.initial import Init, started_nodes
from natgrad.network.start.order import default_order
from natgrad.network.start.probes import memberships, probes_of
from natgrad.network.start.restarts import find_start
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.bind.chunks import Chunks

__all__ = ["share_of_chunks", "some_rows", "start_from_rows", "warn_of_sorted_rows"]

# Rows that are looked at, and sweeps over them, at most.
MOST_ROWS, SWEEPS = 2_000, 30


def start_from_rows(problem: Any, init: Init, seed: int) -> State:
    """The globals of a problem of chunks, as some rows tell them; ``init`` as the user gave it."""
    chunks = problem.source.chunks
    some = NetworkProblem(chunks.plan_of(some_rows(chunks, seed)[0]), "numpy", probes_of)
    order = default_order(some.plan, started_nodes(some, init))
    start = find_start(some, init, seed, None)
    found = run(Phase(some, order=order), start, limits=Limits(SWEEPS, 0.0), seed=seed, verbose=False).state
    lam, mu = ({name: part[name] for name in problem.blocks} for part in (found.lam, found.mu))
    return State(lam, mu, 0)


def some_rows(chunks: Chunks, seed: int) -> tuple[Table, npt.NDArray[np.int64]]:
    """As many rows of each chunk as it has of all, and the numbers of their chunks; of sequences the first chunk."""
    tables = chunks.tables()
    if chunks.chained:
        first = next(tables)
        return first, np.zeros(first.n_rows, np.int64)
    rng = generator(seed, Stream.START, chunks.n_rows)
    chosen = np.sort(rng.permutation(chunks.n_rows)[:MOST_ROWS])
    parts, numbers, begin = [], [], 0
    for number, table in enumerate(tables):
        own = chosen[(chosen >= begin) & (chosen < begin + table.n_rows)] - begin
        begin += table.n_rows
        if len(own):
            parts.append(table.take(own))
            numbers.append(np.full(len(own), number))
    return Table.joined(parts), np.concatenate(numbers)


# How likely chunks of shuffled rows would differ as much; the part of the variance of memberships that chunks must tell; and what
# must be left of a start after as many steps as there are components, lest one that no chunk told of be lost.
BY_CHANCE, TOLD_BY_CHUNKS, LEFT = 1e-6, 0.1, 0.1


def warn_of_sorted_rows(problem: Any, state: State, step: Step, batches: float, seed: int) -> None:
    """Look at some rows where they would be told from chunks, if steps of a ``batches``-th of all forget a start so soon."""
    chunks, plan = problem.source.chunks, problem.plan
    gates = [name for name in plan.choices if name in chunks.local]
    if not gates or chunks.chained or chunks.n_chunks < 2:
        return
    if _left(step, batches, max(plan.nodes[gate].categories or 1 for gate in gates)) > LEFT:
        return
    rows, numbers = some_rows(chunks, seed)
    some = NetworkProblem(chunks.plan_of(rows), "numpy")
    start = some.prior({name: state.mu[name] for name in problem.blocks})
    here = start._replace(lam={**start.lam, **{name: state.lam[name] for name in problem.blocks}})
    found = some.sweep(here, tuple(name for name in some.blocks if name not in problem.blocks)).state
    for gate in gates:
        chosen = memberships(plan.nodes[gate].family, found.mu[gate])
        if (
            chosen.shape[0] == len(numbers)
            and share_of_chunks(chosen.reshape(len(numbers), -1), numbers) > TOLD_BY_CHUNKS
        ):
            warnings.warn(
                f"rows that are read together are alike: which component of {gate!r} a row is of follows from its place in "
                f"the table, and steps with {step} go to where their chunks are and lose the other components. Leave step= out "
                "(what other chunks said is remembered), take shorter steps, or shuffle the rows",
                stacklevel=levels_to_the_caller(),
            )
            return


def share_of_chunks(chosen: npt.NDArray[np.float64], numbers: npt.NDArray[np.int64]) -> float:
    """The part of the variance of memberships [N, K] that lies between chunks, beyond chance; 0 where it may be chance.

    Pearson's χ² of chunks against components, of which (C − 1)(K − 1) are by chance, over its largest value N (K − 1).
    """
    _, place = np.unique(numbers, return_inverse=True)
    common = chosen.mean(0)
    chosen, common = chosen[:, common > 0], common[common > 0]
    size = np.bincount(place)
    shares = np.stack([np.bincount(place, part) for part in chosen.T], axis=1) / size[:, None]
    statistic = float((size[:, None] * (shares - common) ** 2 / common).sum())
    between, others = len(size) - 1, len(common) - 1
    if not between or not others or chi2.sf(statistic, between * others) > BY_CHANCE:
        return 0.0
    return (statistic - between * others) / (len(chosen) * others)


def _left(step: Step, batches: float, n_components: int) -> float:
    """What is left of a start after as many steps as there are components."""
    rates = [float(np.mean(step.rate(t, batches))) for t in range(1, n_components + 1)]
    return float(np.prod(1.0 - np.minimum(rates, 1.0)))
