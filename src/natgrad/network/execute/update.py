"""Update a block: set it to its target, step towards it, or draw from it; all elements at once, or in turn.

Elements that are each other's co-parents take turns: columns along the plate of a sum, colours where a term reads a node
twice. `update` is the only place that goes through them; what is done at a turn is an `Act`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.families.natural_step import blend, over_events
from natgrad.inference.problem import Block, BlockInfo, Sampled
from natgrad.network.execute.backend import Backend
from natgrad.network.execute.program import Program

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = [
    "blended_block",
    "blends",
    "choose",
    "put_column",
    "relative_change",
    "sets",
    "settle",
    "shortened",
    "solve_rows",
    "take_column",
    "update",
    "updated_at_once",
    "updated_in_turn",
    "validity",
]

Array = Any
Stats = tuple[Array, ...]
Parts = tuple[Stats, ...]  # λ, μ, and whatever else an act keeps of a block
# The target of a block, or of one column, given its parts as they are at this turn.
Message = Callable[[Any, Parts], Stats]
# The parts of a block, or of one column, after a turn, given those before and the target.
Act = Callable[[Parts, Stats], Parts]


def update(
    on: Backend, block: Block, parts: Parts, message: Message, act: Act, late: Callable[[], bool] = bool
) -> Parts:
    """Update all elements of a block, in turn where they meet; turns end when it is ``late``, after the first one."""
    if block.n_columns == 1:
        return act(parts, message(None, parts))
    by_column = block.column_axis is not None
    colours = None if by_column else on.xp.asarray(block.colours)

    def turn(number: Array, carry: Parts) -> Parts:
        if late is not bool and number and late():  # a number that is traced is never late
            return carry
        target = message(number if by_column else None, carry)
        if by_column:
            new = act(tuple(take_column(on, block, part, number) for part in carry), target)
            return tuple(write_column(on, block, old, part, number) for old, part in zip(carry, new, strict=True))
        chosen = colours == number
        return tuple([choose(chosen, n, o, on.xp) for n, o in zip(act(carry, target), carry, strict=True)])

    own = tuple(tuple(map(on.own, part)) for part in parts) if by_column else parts
    updated: Parts = on.repeat(block.n_columns, turn, own)
    return updated


def sets(block: Block) -> Act:
    """The exact update: λ ← λ^temp; called where numbers that are not finite warn nobody (`Backend.running`)."""
    return lambda old, target: (target, block.family._moments(target)[0])


def blends(on: Backend, block: Block, rho: Array) -> Act:
    """The natural step: λ ← (1 − ρ) λ + ρ λ^temp."""
    return lambda old, target: blended_block(on, block, old[0], target, rho)[:2]


def blended_block(
    on: Backend, block: Block, lam: Stats, target: Stats, rho: Array
) -> tuple[Stats, Stats, Array, BlockInfo]:
    """λ ← (1 − ρ) λ + ρ λ^temp with its moments, its entropy and what happened."""
    new = blend(lam, target, on.xp.asarray(rho), block.family.stat_ndims)
    fresh, entropy = block.family.moments_entropy(new)
    return new, fresh, entropy, validity(on, block, lam, new, entropy)


def settle(
    on: Backend, block: Block, lam: Stats, target: Stats, shared: tuple[tuple[int, ...], ...]
) -> tuple[Stats, Array, BlockInfo]:
    """Moments and entropies of λ^temp, and what happened on the way from λ.

    ``shared`` lists, for each statistic, the plates along which its target is the same for every element (the precision of
    the scores of a PCA without missing data): one element is then factorised for all.
    """
    if not any(shared):
        fresh, entropy = block.family.moments_entropy(target)
        return fresh, entropy, validity(on, block, lam, target, entropy)
    short, before = shortened(target, shared), shortened(lam, shared)
    fresh, entropy = block.family.moments_entropy(short)
    fresh = tuple(on.xp.broadcast_to(f, t.shape) for f, t in zip(fresh, target, strict=True))
    entropy = on.xp.broadcast_to(entropy, block.shape)
    # What the elements share counts once in the distance; reading it for each of them would cost as much as the update.
    return fresh, entropy, validity(on, block, before, short, entropy)


def shortened(stats: Stats, shared: tuple[tuple[int, ...], ...]) -> Stats:
    """One element in place of all along the shared plates of each statistic."""
    short = []
    for stat, axes in zip(stats, shared, strict=True):
        for axis in axes:
            stat = stat[(slice(None),) * axis + (slice(0, 1),)]
        short.append(stat)
    return tuple(short)


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
    target = block.family.project(_summed([*last, *other]))
    if rho is None:
        new, (fresh, entropy, info) = target, settle(on, block, lam[name], target, shared)
    else:
        new, fresh, entropy, info = blended_block(on, block, lam[name], target, rho)
    if last:
        # Along the plates that a gradient is the same on, moments are added up first, as their children read them.
        short = shortened(_summed(last), shared)
        sums = [f.sum(axes, keepdims=True) if axes else f for f, axes in zip(fresh, shared, strict=True)]
        total = total + sum(on.inner(g, f) for g, f in zip(short, sums, strict=True))
    return new, fresh, info, total + program.entropy(block, entropy, known)


def updated_in_turn(
    program: Program, block: Block, lam: Any, mu: Any, rho: Array, known: Any, ending: list[str],
    late: Callable[[], bool] = bool, message: Message | None = None, value: Callable[[Any], Array] | None = None,
) -> Any:  # fmt: skip
    """Exact updates of one column (or colour) after the other, for elements that are each other's co-parents.

    Interpreted turns end when it is ``late``: the other columns keep their λ, and the bound is that of what came out. The
    ``message`` to the block and the ``value`` of the ending terms are found here if they are not given.
    """
    on, name = program.backend, block.name
    act = sets(block) if isinstance(rho, float) and rho == 1.0 else blends(on, block, rho)
    message = message or _message(program, block, mu, known)
    new, fresh = update(on, block, (lam[name], mu[name]), message, act, late)
    moments, entropy = block.family._moments_entropy(new)
    if late():  # a start may have given those that had no turn moments which are not those of their λ
        fresh = moments
    here = {**mu, name: fresh}
    total = (
        sum((program.log_joint(term, here, known) for term in ending), on.xp.zeros(()))
        if value is None
        else value(here)
    )
    info = validity(on, block, lam[name], new, entropy)
    return new, fresh, info, total + program.entropy(block, entropy, known)


def _message(program: Program, block: Block, mu: Any, known: Any) -> Message:
    """The target of a block at its turns. What is linear in all elements is the same at each turn, and found once."""
    on, name, axis = program.backend, block.name, block.column_axis
    if block.n_columns == 1:
        return lambda number, parts: program.target(block, {**mu, name: parts[1]}, known)
    still = program.target(block, mu, known, part=program.once)
    if axis is None:

        def of_all(number: Any, parts: Parts) -> Stats:
            rest = program.target(block, {**mu, name: parts[1]}, known, part=program.often)
            return tuple(a + b for a, b in zip(still, rest, strict=True))

        return of_all
    gradients = [on.column_gradient(piece, name, axis) for piece in program.meeting(block)]

    def of_column(number: Any, parts: Parts) -> Stats:
        here = {**mu, name: parts[1]}
        target = take_column(on, block, still, number)
        for gradient in gradients:
            rest = block.family.project(gradient(number, here, known))
            target = tuple(a + b for a, b in zip(target, rest, strict=True))
        return target

    return of_column


def _summed(parts: list[Stats]) -> Stats:
    """Statistics added up, one after the other."""
    total = parts[0]
    for part in parts[1:]:
        total = tuple(a + b for a, b in zip(total, part, strict=True))
    return total


# -- the local variables of a batch --


def solve_rows(
    problem: NetworkProblem, layouts: Any, mu: Any, lam: Any, arrays: Any, tol: Any, limit: Any, known: Any
) -> Any:
    """Update the batch's rows, block after block, until no moment changes by more than ``tol`` of its size.

    What is interpreted ends when it is late, with what there is.

    ``arrays`` has for each block its rows, which of them are not padding, and its samples. Rows of padding keep what they
    have: nothing tells them anything, and a q that nothing tells anything is not valid (a Normal of precision 0); a weight of
    0 would not undo that.
    """
    program, blocks = problem.program, problem.blocks
    on, xp = program.backend, program.backend.xp
    # What is compiled asks once, when it is traced.
    late: Callable[[], bool] = bool if problem.interpreter is None else problem.late

    def solved(name: str, entries: Any, rows: Any, real: Array, values: Any, lam: Stats, here: Any) -> Parts:
        block, samples = blocks[name], list(map(Sampled.rebuilt, entries, values))
        if block.n_columns > 1 and block.column_axis is not None:
            (real,) = take_column(on, block, (real,), 0)  # the same in every column: groups are not coupled

        def message(number: Any, parts: Parts) -> Stats:
            return program.target(block, {**here, name: parts[1]}, known, (), samples, number, rows)

        def act(old: Parts, target: Stats) -> Parts:
            return sets(block)(old, choose(real, target, old[0], xp))

        return update(on, block, (lam, here[name]), message, act, late)

    def sweep(carry: Any) -> Any:
        lam, local, _, count = carry
        largest = xp.zeros(())
        for (name, entries), (rows, real, values) in zip(layouts, arrays, strict=True):
            new, fresh = solved(name, entries, rows, real, values, lam[name], {**mu, **local})
            changes = [_largest_change(xp, a, b) for a, b in zip(fresh, local[name], strict=True)]
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


def _largest_change(xp: Any, new: Array, old: Array) -> Array:
    """The largest change of a statistic, relative to its largest value: the same in every unit."""
    size = xp.maximum(xp.max(xp.abs(new)), xp.max(xp.abs(old)))
    return xp.max(xp.abs(new - old)) / xp.where(size > 0, size, 1.0)


# -- columns, and what happened --


def take_column(on: Backend, block: Block, arrays: Stats, number: Array) -> Stats:
    """One column of every array, along the coupled plate."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(on.take_column(a, number, axis) for a in arrays)


def put_column(on: Backend, block: Block, arrays: Stats, pieces: Stats, number: Array) -> Stats:
    """The arrays with one column replaced."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(on.put_column(a, p, number, axis) for a, p in zip(arrays, pieces, strict=True))


def write_column(on: Backend, block: Block, arrays: Stats, pieces: Stats, number: Array) -> Stats:
    """The same for arrays that are the caller's own (`Backend.own`), in place where that can be."""
    assert block.column_axis is not None
    axis = block.column_axis
    return tuple(on.write_column(a, p, number, axis) for a, p in zip(arrays, pieces, strict=True))


def choose(chosen: Array, new: Stats, old: Stats, xp: Any = np) -> Stats:
    """New arrays where ``chosen``, old ones elsewhere; ``chosen`` is over the plates, or those without the columns'."""
    return tuple([xp.where(over_events(chosen, n.ndim - chosen.ndim), n, o) for n, o in zip(new, old, strict=True)])


def validity(on: Backend, block: Block, old: Stats, new: Stats, entropy: Array) -> BlockInfo:
    """Whether λ is inside the natural parameter space and its entropy finite, for every element; ‖Δλ‖ / ‖λ‖.

    NumPy takes the sum of the entropies as well.
    """
    family = block.family
    if on.name == "jax":
        valid = family.valid(new, entropy).all() & on.xp.isfinite(entropy).all()
        return BlockInfo(valid, relative_change(on, old, new))
    change = relative_change(on, old, new)
    # Where the sums are finite, so is everything in them; a look at each number is for those that are not.
    if math.isfinite(change) and math.isfinite(entropy.sum() if np.ndim(entropy) else entropy):
        inside = family._inside_but_finite(new)
        return BlockInfo(inside is True or bool(inside.all()), change)
    entropy = family._moments_entropy(new)[1]
    return BlockInfo(bool(family.valid(new, entropy).all() and np.isfinite(entropy).all()), change)


def relative_change(on: Backend, old: Stats, new: Stats) -> Array:
    """‖Δλ‖ / ‖λ‖."""
    moved = size = 0.0
    for a, b in zip(new, old, strict=True):
        if on.name == "numpy" and not np.ndim(b):  # Python's own numbers are quicker
            number, step = float(b), float(a) - float(b)
            moved, size = moved + step * step, size + number * number + 1e-300
            continue
        step = a - b
        moved, size = moved + on.inner(step, step), size + on.inner(b, b) + 1e-300
    if on.name == "jax":
        return on.xp.sqrt(moved / size)
    return math.sqrt(moved / size) if moved >= 0 else math.nan
