"""The sweep that is compiled: λ and μ in, both after every block was updated once out, and numbers that tell what happened.

Where a sweep takes less time than a call, one call makes several. How many is an argument of the program, so that one and many
run the same code and have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import BlockInfo
from natgrad.network.compile.plan import ending_terms
from natgrad.network.execute.exact_updates import updated_at_once, updated_in_turn

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["all_told", "one_sweep", "repeated_sweeps", "told"]

Array = Any


def one_sweep(problem: NetworkProblem, order: tuple[str, ...], exact: bool) -> Callable[..., Any]:
    """Every block once, in order: λ, μ and a row of numbers; the bound, then of each block whether it is valid and its change."""
    program, xp, ending = problem.program, problem.backend.xp, ending_terms(problem.plan, order)

    def function(lam: Any, mu: Any, rho: Array, known: Any) -> Any:
        lam, mu, info = dict(lam), dict(mu), {}
        total = sum((program.log_joint(name, mu, known) for name in ending[None]), xp.zeros(()))
        for name in order:
            block = problem.blocks[name]
            if block.n_columns == 1 and not problem._is_weighted(block):
                update = updated_at_once(program, block, lam, mu, None if exact else rho, known, ending[name])
            else:
                update = updated_in_turn(program, block, lam, mu, 1.0 if exact else rho, known, ending[name])
            lam[name], mu[name], info[name], gained = update
            lam[name] = problem.repeated.shortened(name, lam[name]) if exact else lam[name]
            total = total + gained
        flat = [entry for name in order for entry in (info[name].valid.astype(total.dtype), info[name].relative_change)]
        return lam, mu, xp.stack([total, *flat])

    return function


def repeated_sweeps(problem: NetworkProblem, order: tuple[str, ...]) -> Callable[..., Any]:
    """λ, μ, how many exact sweeps and the known arrays in; λ, μ and a row of numbers of each out, after one that says how many.

    A sweep whose numbers are not finite, or after which a block is not valid, is the last.
    """
    on, sweep = problem.backend, one_sweep(problem, order, exact=True)
    xp, width = on.xp, 1 + 2 * len(order)

    def function(lam: Any, mu: Any, count: Array, known: Any) -> Any:
        def going(carry: Any) -> Array:
            return (carry[0] < count) & carry[1]

        def body(carry: Any) -> Any:
            number, _, lam, mu, rows = carry
            lam, mu, row = sweep(lam, mu, 1.0, known)
            fine = xp.isfinite(row).all() & (row[1::2] == 1.0).all()
            return number + 1, fine, lam, mu, on.put_column(rows, row, number + 1, 0)

        begin = (xp.zeros_like(count), xp.asarray(True), dict(lam), dict(mu), xp.zeros((1 + problem.ahead, width)))
        number, _, lam, mu, rows = on.repeat_while(going, body, begin)
        return lam, mu, on.put_column(rows, xp.full(width, number, rows.dtype), 0, 0)

    return function


def all_told(order: tuple[str, ...], rows: npt.NDArray[np.float64]) -> list[tuple[float, dict[str, BlockInfo]]]:
    """The same of all sweeps of a call."""
    return [told(order, row) for row in rows[1 : 1 + int(rows[0, 0])].tolist()]


def told(order: tuple[str, ...], row: list[float]) -> tuple[float, dict[str, BlockInfo]]:
    """The bound, and what happened to each block, of the numbers of a sweep."""
    return row[0], {name: BlockInfo(row[2 * i + 1] == 1.0, row[2 * i + 2]) for i, name in enumerate(order)}
