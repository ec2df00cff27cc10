"""The local variables of a batch, optimised with the globals held fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from natgrad.inference.problem import Block, Sampled
from natgrad.network.execute.program import Program
from natgrad.network.execute.updates import change, choose, take_column, write_column

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["solve_rows"]

Array = Any
Stats = tuple[Array, ...]


def solve_rows(
    problem: NetworkProblem, layouts: Any, mu: Any, lam: Any, arrays: Any, tol: Any, limit: Any, known: Any
) -> Any:
    """Exact updates of the batch's rows, block after block, until no moment changes by more than ``tol`` of its size.

    What is interpreted ends when it is late, with what there is.

    ``arrays`` has for each block its rows, which of them are not padding, and its samples. Rows of padding keep what they
    have: nothing tells them anything, and a q that nothing tells anything is not valid (a Normal of precision 0); a weight of
    0 would not undo that.
    """
    program, blocks = problem.program, problem.blocks
    on, xp = program.backend, program.backend.xp
    # What is compiled asks once, when it is traced.
    late: Callable[[], bool] = bool if problem.interpreter is None else problem.late

    def sweep(carry: Any) -> Any:
        lam, local, _, count = carry
        largest = xp.zeros(())
        for (name, entries), (rows, real, values) in zip(layouts, arrays, strict=True):
            samples = list(map(Sampled.rebuilt, entries, values))
            new, fresh = _update(program, blocks[name], {**mu, **local}, lam[name], rows, real, samples, known, late)
            changes = [change(on, a, b) for a, b in zip(fresh, local[name], strict=True)]
            largest = xp.maximum(largest, xp.max(xp.stack(changes)))
            lam, local = {**lam, name: new}, {**local, name: fresh}
        return lam, local, largest, count + 1

    def going(carry: Any) -> Any:
        return (carry[2] > tol) & (carry[3] < limit) & (not late())

    start = {name: blocks[name].family.expected_stats(value) for name, value in lam.items()}
    first = sweep((lam, start, xp.zeros(()), xp.int32(0)))
    lam, local, _, count = on.repeat_while(going, sweep, first)
    entropy = {name: blocks[name].family.moments_entropy(value)[1] for name, value in lam.items()}
    return lam, local, count, entropy


def _update(
    program: Program, block: Block, mu: Any, lam: Stats, rows: Any, real: Array, samples: list[Sampled], known: Any,
    late: Callable[[], bool],
) -> tuple[Stats, Stats]:  # fmt: skip
    """The exact update of a batch's rows of one local block, column after column where they are coupled."""
    on = program.backend
    if block.column_axis is None:
        target = choose(on, block, real, program.target(block, mu, known, (), samples, rows=rows), lam)
        return target, block.family.expected_stats(target)
    (real,) = take_column(on, block, (real,), 0)  # the same in every column: groups are not coupled

    def column(number: Array, carry: tuple[Stats, Stats]) -> tuple[Stats, Stats]:
        if late():
            return carry
        old, stats = carry
        target = program.target(block, {**mu, block.name: stats}, known, (), samples, number, rows)
        target = choose(on, block, real, target, take_column(on, block, old, number))
        fresh = block.family.expected_stats(target)
        return write_column(on, block, old, target, number), write_column(on, block, stats, fresh, number)

    own: tuple[Stats, Stats] = tuple(map(on.own, lam)), tuple(map(on.own, mu[block.name]))
    result: tuple[Stats, Stats] = on.repeat(block.n_columns, column, own)
    return result
