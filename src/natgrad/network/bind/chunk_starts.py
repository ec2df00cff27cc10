"""Where a run over chunks starts whose priors do not tell components apart: some rows of all chunks in; the globals out.

Rows are drawn from the whole table, since its first ones may be of one component. They are a network in memory, which finds a
start as any other does (`natgrad.network.start.restarts`); after some sweeps what it says of the globals is where chunks begin.
Sequences cannot be drawn row by row: the first chunk stands for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import State
from natgrad.network.bind.tables import Table
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.start.initial import Init, started_nodes
from natgrad.network.start.order import default_order
from natgrad.network.start.restarts import find_start
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.bind.chunks import Chunks

__all__ = ["some_rows", "start_from_rows"]

# Rows that are looked at, and sweeps over them, at most.
MOST_ROWS, SWEEPS = 2_000, 30


def start_from_rows(problem: Any, init: Init, seed: int) -> State:
    """The globals of a problem of chunks, as some rows tell them; ``init`` as the user gave it."""
    some = NetworkProblem(problem.chunks.plan_of(some_rows(problem.chunks, seed)[0]), "numpy")
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
