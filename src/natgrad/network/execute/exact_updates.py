"""Update every block exactly, columns and colours in turn, and a whole sweep as one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, BlockInfo
from natgrad.network.compile.plan import ending_terms
from natgrad.network.execute.addressing import FULL
from natgrad.network.execute.column_sums import ColumnSlopes
from natgrad.network.execute.program import Program
from natgrad.network.execute.updates import (
    all_valid,
    blended_block,
    choose,
    relative_change,
    settle,
    shortened,
    take_column,
    write_column,
)

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["all_told", "one_sweep", "repeated_sweeps", "told", "updated_at_once", "updated_in_turn"]

Array = Any
Stats = tuple[Array, ...]


def updated_at_once(
    program: Program, block: Block, lam: Any, mu: Any, rho: Array | None, known: Any, ending: list[str]
) -> Any:
    """One exact update; the terms that change no more in this sweep hand over their value for free.

    What touches μ_i in a term is linear in it, so its value after the update is ⟨gradient, μ_i⟩: nothing is read again.
    """
    on, name, shared = program.backend, block.name, program.shared_plates(block)
    total: Array = on.xp.zeros(())
    last: list[Stats] = []
    other: list[Stats] = []
    for term in program.plan.terms_of(name):
        for piece in program.pieces(term):
            gradient = program.gradient(piece, block, mu, known)
            if term.node not in ending:
                other.append(gradient)
                continue
            last.append(gradient)
            total = total + on.value(program.apart(piece, name), mu, known)
    ended, target = _summed(last), _summed([*last, *other])
    assert target is not None  # its own term is there
    target = block.family.project(target)
    if rho is None:
        new, fresh, entropy, info = settle(on, block, lam[name], target, shared)
    else:
        new, fresh, entropy, info = blended_block(on, block, lam[name], target, rho)
    if ended is not None:
        # Along the plates that a gradient is the same on, moments are added up first, as their children read them.
        short = shortened(ended, shared)
        sums = [f.sum(axes, keepdims=True) if axes else f for f, axes in zip(fresh, shared, strict=True)]
        total = total + sum(on.inner(g, f) for g, f in zip(short, sums, strict=True))
    return new, fresh, info, total + program.entropy(block, entropy, known)


def updated_in_turn(
    program: Program, block: Block, lam: Any, mu: Any, rho: Array, known: Any, ending: list[str],
    late: Callable[[], bool] = bool,
) -> Any:  # fmt: skip
    """Exact updates of one column (or colour) after the other, for elements that are each other's co-parents.

    What is linear in all elements says the same to each while they take turns, and is asked once. Interpreted turns end when it
    is ``late``: the other columns keep their λ, and the bound is that of what came out.
    """
    on, name = program.backend, block.name
    begin = _own(on, lam[name]), _own(on, mu[name])
    slopes = _column_slopes(program, block, rho)
    if slopes is not None:
        new, fresh = _with_sums(program, block, begin, mu, known, slopes, late)
    else:
        turns = _turns(program, block, mu, rho, known, late)
        new, fresh = turns(0, begin) if block.n_columns == 1 else on.repeat(block.n_columns, turns, begin)
    moments, entropy = block.family.moments_entropy(new)
    if late():  # a start may have given those that had no turn moments which are not those of their λ
        fresh = moments
    here = {**mu, name: fresh}
    total = sum((program.log_joint(term, here, known) for term in ending), on.xp.zeros(()))
    info = BlockInfo(all_valid(on, block, new, entropy), relative_change(on, lam[name], new))
    return new, fresh, info, total + program.entropy(block, entropy, known)


def _column_slopes(program: Program, block: Block, rho: Array) -> list[ColumnSlopes] | None:
    """What says to each column what the others say, if sums over these are kept between its turns."""
    if block.column_axis is None or block.n_columns == 1 or not (isinstance(rho, float) and rho == 1.0):
        return None
    found = [program.backend.column_slopes(piece, block.name, block.column_axis) for piece in program.meeting(block)]
    slopes = [part for part in found if part is not None]
    return slopes if len(slopes) == len(found) else None


def _with_sums(
    program: Program, block: Block, begin: tuple[Stats, Stats], mu: Any, known: Any, slopes: list[ColumnSlopes],
    late: Callable[[], bool],
) -> tuple[Stats, Stats]:  # fmt: skip
    """λ and μ, the caller's own, after every column had its turn, or as many as there was time for."""
    on, family = program.backend, block.family
    new, stats = begin
    still, here = program.target(block, mu, known, part=program.once), {**mu, block.name: stats}
    for part in slopes:
        part.begin(here, known)
    for number in range(block.n_columns):
        if number and late():
            break
        target = take_column(on, block, still, number)
        for part in slopes:
            target = tuple(a + b for a, b in zip(target, family.project(part.at(number)), strict=True))
        fresh = family.expected_stats(target)
        change = tuple(a - b for a, b in zip(fresh, take_column(on, block, stats, number), strict=True))
        for part in slopes:
            part.follow(number, change)
        write_column(on, block, new, target, number)
        write_column(on, block, stats, fresh, number)
    return new, stats


def _turns(program: Program, block: Block, mu: Any, rho: Array, known: Any, late: Callable[[], bool]) -> Any:
    """One turn: its number, λ and μ in, both after it out."""
    on, name = program.backend, block.name
    by_column = block.column_axis is not None
    still = program.target(block, mu, known, part=program.once) if block.n_columns > 1 else None
    meeting = program.meeting(block) if by_column and still is not None else []
    exact = isinstance(rho, float) and rho == 1.0

    def moved(old: Stats, target: Stats) -> tuple[Stats, Stats]:
        if exact:
            return target, block.family.expected_stats(target)
        return blended_block(on, block, old, target, rho)[:2]

    def turn(number: Array, carry: tuple[Stats, Stats]) -> tuple[Stats, Stats]:
        if late():
            return carry
        old, stats = carry
        here = {**mu, name: stats}
        column = number if by_column else None
        if still is None:
            target = program.target(block, here, known, column=column)
        elif column is None:
            rest = program.target(block, here, known, part=program.often)
            target = tuple(a + b for a, b in zip(still, rest, strict=True))
        else:
            target = take_column(on, block, still, column)
            for piece in meeting:
                rest = on.gradient(piece, name, here, known, FULL, (block.column_axis, column))  # type: ignore[arg-type]
                target = tuple(a + b for a, b in zip(target, block.family.project(rest), strict=True))
        if column is not None:
            new, fresh = moved(take_column(on, block, old, column), target)
            return write_column(on, block, old, new, column), write_column(on, block, stats, fresh, column)
        new, fresh = moved(old, target)
        chosen = True if block.colours is None else on.xp.asarray(block.colours) == number
        return choose(on, block, chosen, new, old), choose(on, block, chosen, fresh, stats)

    return turn


def _own(on: Any, stats: Stats) -> Stats:
    return tuple(on.own(part) for part in stats)


def _summed(parts: list[Stats]) -> Stats | None:
    """Statistics added up, one after the other; None for nothing."""
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = tuple(a + b for a, b in zip(total, part, strict=True))
    return total


# Where a sweep takes less time than a call, one call makes several. How many is an argument of the program, so that one and many
# run the same code and have the same bits.


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
