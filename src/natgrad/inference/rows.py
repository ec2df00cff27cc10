"""Rows of a table as groups: a model says what a piece of rows tells the globals; batches, weights, threads and clusters follow.

    λ* = η̃ + Σ_n w_n m(x_n)          bound = Σ_n w_n log Z_n − ⟨Σ w m, μ⟩ + …          (`natgrad.inference.problem`)

Rows are read where they lie, in pieces that fit in the cache. The cut into shards and pieces depends on the data and the model
alone, and sums are made in its order: the result is the same for any number of threads or workers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from natgrad.inference.executors import ShardSpec, shard_in_files
from natgrad.inference.problem import Block, GroupProblem, GroupResult, State, Stats
from natgrad.threads import in_order

__all__ = ["RowProblem", "RowShard", "sum_pieces"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
# Rows of a shard, and at most so many shards.
SHARD, MOST_SHARDS = 2**18, 1024
# Numbers that a piece's statistics may have, and the fewest rows of one.
PIECE, LEAST_ROWS = 2**19, 64
# Pieces whose sums are in memory at a time.
WINDOW = 256


class RowShard(NamedTuple):
    """Rows [n, D] and their weights [n]; None where all weigh one."""

    x: Array
    weight: Floats | None = None

    def rows(self, chosen: Any) -> RowShard:
        """Some of the rows."""
        return RowShard(self.x[chosen], None if self.weight is None else self.weight[chosen])


def sum_pieces(
    shard: RowShard, summarise: Callable[[RowShard, Any], Stats], sent: Any, chosen: Ints | None, size: int
) -> Stats:
    """Σ of what pieces of ``size`` rows tell, in their order; ``chosen`` are rows of the shard, None all."""

    def piece(begin: int) -> Stats:
        part = slice(begin, begin + size) if chosen is None else chosen[begin : begin + size]
        return summarise(shard.rows(part), sent)

    n_rows, total = len(shard.x) if chosen is None else len(chosen), list[Stats]()
    for first in range(0, n_rows, size * WINDOW):
        total = [_sum([*total, *in_order(piece, range(first, min(first + size * WINDOW, n_rows), size))])]
    return total[0]


class RowProblem(GroupProblem):
    """Rows that are independent given the globals, each with a weight.

    A model defines ``blocks``, ``prior_of`` and

        sent(state)               what a piece of rows must know of the globals
        summarise(shard, sent)    a function of a module: sums over the rows, (Σ w log Z, and arrays of any shape)
        told(sums)                the messages that these arrays are

    Parameters
    ----------
    x : array [N, D], read where it lies
    weight : array [N], optional
    n_statistics : int
        Numbers that `summarise` makes of a row, by which pieces are cut.
    n_readers : int
        Messages that a row sends.
    batch_size, population : as in `GroupProblem`; all rows by default
    """

    group_plate = "row"
    blocks: dict[str, Block]
    summarise: Callable[[RowShard, Any], Stats]

    def __init__(
        self,
        x: Array,
        weight: Floats | None,
        *,
        n_statistics: int,
        n_readers: int,
        batch_size: int | None = None,
        population: float | None = None,
    ) -> None:
        self.data = RowShard(x, weight)
        self.n_groups = len(x)
        self.n_statistics, self.n_readers = n_statistics, n_readers
        self.batch_size = batch_size or self.n_groups
        self.population = float(self.n_groups if population is None else population)
        n_shards = min(-(-self.n_groups // SHARD), MOST_SHARDS)
        self._cuts = np.linspace(0, self.n_groups, n_shards + 1).astype(np.int64)

    @abstractmethod
    def sent(self, state: State) -> Any:
        """What a piece of rows must know of the globals; a model may have options."""

    @abstractmethod
    def told(self, sums: Stats) -> dict[str, Stats]:
        """What sums over rows tell each block."""

    @abstractmethod
    def of_rows(self, x: Array, weight: Floats | None) -> Self:
        """The same model of other rows."""

    @property
    def total_weight(self) -> float:
        """Σ w."""
        return float(self.n_groups if self.data.weight is None else self.data.weight.sum())

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All rows."""
        return {"x": self.n_groups}

    @property
    def n_messages(self) -> int:
        """Those of all rows."""
        return self.n_groups * self.n_readers

    @property
    def piece(self) -> int:
        """Rows of a piece."""
        return max(LEAST_ROWS, PIECE // self.n_statistics)

    def at(self, lam: Mapping[str, Stats], t: int = 0) -> State:
        """The state with these natural parameters."""
        full = {name: tuple(np.array(part, dtype=np.float64) for part in lam[name]) for name in self.blocks}
        return State(full, {name: self.moments(block, full[name]) for name, block in self.blocks.items()}, t)

    def updated(self, messages: Mapping[str, Stats], scale: float = 1.0) -> State:
        """The state after an exact update from messages."""
        prior = {name: self.full_prior(name) for name in self.blocks}
        return self.at({n: tuple(p + scale * m for p, m in zip(prior[n], messages[n], strict=True)) for n in prior})

    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """What some rows tell, and log Z of them."""
        log_z, *sums = self.summed(self.sent(state), groups)
        if not np.isfinite(log_z):
            raise ValueError(
                f"log Z of the rows is {log_z}: X has values beyond what floats can hold, or groups of rows so far apart, by "
                "their own width, that no digits are left"
            )
        told = self.told(tuple(sums))
        inside = sum(float(np.sum(b.family.inner(told[n], state.mu[n]))) for n, b in self.blocks.items())
        n_rows = self.n_groups if groups is None else len(groups)
        return GroupResult((), told, float(log_z) - inside, 1, n_rows * self.n_readers)

    def summed(self, sent: Any, groups: Ints | None = None) -> Stats:
        """What `summarise` says of some rows, summed."""
        calls = []
        for number, (begin, end) in enumerate(zip(self._cuts[:-1], self._cuts[1:], strict=True)):
            chosen = None
            if groups is not None:
                low, high = np.searchsorted(groups, (begin, end))
                if low == high:
                    continue
                chosen = groups[low:high] - begin
            calls.append((number, (type(self).summarise, sent, chosen, self.piece)))
        if self.placed is not None:
            parts = list(self.placed.run(sum_pieces, calls))
        else:
            parts = [sum_pieces(self._shard(number), *arguments) for number, arguments in calls]
        return _sum(parts)

    def by_row(self, function: Callable[[Array, Any], Any], sent: Any) -> Array:
        """A function of rows [n, D] that says something of each of them, of all rows."""

        def piece(begin: int) -> Any:
            return function(self.data.x[begin : begin + self.piece], sent)

        return np.concatenate(in_order(piece, range(0, self.n_groups, self.piece)))

    def shards(self, size: int) -> list[RowShard | ShardSpec]:
        """Runs of rows; of a file that is mapped, where they lie."""
        return [shard_in_files(RowShard, *self._shard(number)) for number in range(len(self._cuts) - 1)]

    def _shard(self, number: int) -> RowShard:
        return self.data.rows(slice(self._cuts[number], self._cuts[number + 1]))


def _sum(parts: Sequence[Stats]) -> Stats:
    total = parts[0]
    for part in parts[1:]:
        total = tuple(a + b for a, b in zip(total, part, strict=True))
    return total
