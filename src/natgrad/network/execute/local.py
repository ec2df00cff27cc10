"""The local variables of a batch, optimised with the globals held fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from natgrad.inference.problem import Block, Sampled
from natgrad.network.execute.program import Program
from natgrad.network.execute.updates import change, choose, put_column, take_column

__all__ = ["solve_rows"]

Array = Any
Stats = tuple[Array, ...]


def solve_rows(
    program: Program, blocks: Mapping[str, Block], layouts: Any, mu: Any, lam: Any, arrays: Any, tol: Any, limit: Any,
    known: Any,
) -> Any:  # fmt: skip
    """Exact updates of the batch's rows, block after block, until no moment changes by more than ``tol`` of its size.

    ``arrays`` has for each block its rows, which of them are not padding, and its samples. Rows of padding keep what they
    have: nothing tells them anything, and a q that nothing tells anything is not valid (a Normal of precision 0); a weight of
    0 would not undo that.
    """
    on, xp = program.backend, program.backend.xp

    def sweep(carry: Any) -> Any:
        lam, local, _, count = carry
        largest = xp.zeros(())
        for (name, entries), (rows, real, values) in zip(layouts, arrays, strict=True):
            samples = list(map(Sampled.rebuilt, entries, values))
            new, fresh = _update(program, blocks[name], {**mu, **local}, lam[name], rows, real, samples, known)
            changes = [change(on, a, b) for a, b in zip(fresh, local[name], strict=True)]
            largest = xp.maximum(largest, xp.max(xp.stack(changes)))
            lam, local = {**lam, name: new}, {**local, name: fresh}
        return lam, local, largest, count + 1

    def going(carry: Any) -> Any:
        return (carry[2] > tol) & (carry[3] < limit)

    start = {name: blocks[name].family.expected_stats(value) for name, value in lam.items()}
    first = sweep((lam, start, xp.zeros(()), xp.int32(0)))
    lam, local, _, count = on.repeat_while(going, sweep, first)
    entropy = {name: blocks[name].family.moments_entropy(value)[1] for name, value in lam.items()}
    return lam, local, count, entropy


def _update(
    program: Program, block: Block, mu: Any, lam: Stats, rows: Any, real: Array, samples: list[Sampled], known: Any
) -> tuple[Stats, Stats]:
    """The exact update of a batch's rows of one local block, column after column where they are coupled."""
    on = program.backend
    if block.column_axis is None:
        target = choose(on, block, real, program.target(block, mu, known, (), samples, rows=rows), lam)
        return target, block.family.expected_stats(target)
    (real,) = take_column(on, block, (real,), 0)  # the same in every column: groups are not coupled

    def column(number: Array, carry: tuple[Stats, Stats]) -> tuple[Stats, Stats]:
        old, stats = carry
        target = program.target(block, {**mu, block.name: stats}, known, (), samples, number, rows)
        target = choose(on, block, real, target, take_column(on, block, old, number))
        fresh = block.family.expected_stats(target)
        return put_column(on, block, old, target, number), put_column(on, block, stats, fresh, number)

    result: tuple[Stats, Stats] = on.repeat(block.n_columns, column, (lam, mu[block.name]))
    return result
