"""Update a block: set it to its target, step towards it, or draw from it; a sweep updates every block, with the bound.

Elements that are each other's co-parents take turns: columns along the plate of a sum, colours where a term reads a node
twice. `update` is the only place that goes through them; what is done at a turn is an `Act`. NumPy carries a sweep out, JAX
compiles it; where a compiled sweep takes less time than a call, one call makes several. How many is an argument of the program,
so that one and many run the same code and have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.families.natural_step import blend, over_events
from natgrad.inference.problem import Block, BlockInfo, Sampled
from natgrad.network.compile.plan import ending_terms
from natgrad.network.execute.backend import Backend
from natgrad.network.execute.program import BoundProgram, Program

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = [
    "Repeated",
    "Sweep",
    "all_told",
    "blended_block",
    "blends",
    "block_update",
    "choose",
    "one_sweep",
    "put_column",
    "relative_change",
    "repeated_sweeps",
    "sets",
    "settle",
    "solve_rows",
    "take_column",
    "told",
    "update",
    "validity",
]

Array = Any
Stats = tuple[Array, ...]
Parts = tuple[Stats, ...]  # λ, μ, and whatever else an act keeps of a block
# The target of a block, or of one column, given its parts as they are at this turn.
Message = Callable[[Any, Parts], Stats]
# The parts of a block, or of one column, after a turn, given those before and the target.
Act = Callable[[Parts, Stats], Parts]
# λ, μ, what happened, and what is added to the bound.
Updated = tuple[Stats, Stats, BlockInfo, Array]


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
    """Moments and entropies of λ^temp, for NumPy their sum alone, and what happened on the way from λ.

    ``shared`` lists, for each statistic, the plates along which its target is the same for every element (the precision of
    the scores of a PCA without missing data): one element is then factorised for all.
    """
    if not any(shared):
        of = block.family._moments_total_entropy if on.keeps else block.family.moments_entropy
        fresh, entropy = of(target)
        return fresh, entropy, validity(on, block, lam, target, entropy)
    short, before = shortened(target, shared), shortened(lam, shared)
    fresh, entropy = block.family.moments_entropy(short)
    fresh = tuple(on.xp.broadcast_to(f, t.shape) for f, t in zip(fresh, target, strict=True))
    entropy = on.xp.broadcast_to(entropy, block.shape)
    # What the elements share counts once in the distance; reading it for each of them would cost as much as the update.
    return fresh, entropy, validity(on, block, before, short, entropy)


def shortened(stats: Sequence[Array], shared: tuple[tuple[int, ...], ...]) -> Stats:
    """One element in place of all along the shared plates of each statistic."""
    short = []
    for stat, axes in zip(stats, shared, strict=True):
        for axis in axes:
            stat = stat[(slice(None),) * axis + (slice(0, 1),)]
        short.append(stat)
    return tuple(short)


class _AtOnce:
    """The update of a block whose elements do not meet one another.

    What touches μ_i in a term is linear in it, so the value of an ``ending`` term, which changes no more in this sweep, is
    ⟨gradient, μ_i⟩ and what does not touch it: nothing is read again.
    """

    def __init__(self, bound: BoundProgram, block: Block, ending: Sequence[str]) -> None:
        name = block.name
        self.block, self.on, self.shared = block, bound.on, bound.program.shared_plates(block)
        self.target = bound.target(block, ending)
        values = [bound.value(term, name) for term in ending]
        self.values = [value for value in values if value.spots]
        self.known = sum([float(value.known[0]) for value in values if not value.spots], 0.0)
        self.scalar = any(not shape for shape in bound.shapes(name))

    def __call__(self, lam: Any, mu: Any, rho: Array | None = None) -> Updated:
        block, on, shared, total = self.block, self.on, self.shared, self.known
        for value in self.values:
            total = total + value(mu)
        ended, target = self.target(mu)
        if rho is None:
            new, (fresh, entropy, info) = target, settle(on, block, lam[block.name], target, shared)
        else:
            new, fresh, entropy, info = blended_block(on, block, lam[block.name], target, rho)
        if ended is not None:
            means: Sequence[Array] = fresh
            if any(shared):  # where a gradient is the same along plates, moments are added up first
                ended = shortened(ended, shared)
                means = [f.sum(axes, keepdims=True) if axes else f for f, axes in zip(fresh, shared, strict=True)]
            for gradient, mean in zip(ended, means, strict=True):
                total = total + on.inner(gradient, mean)
        if self.scalar:
            new, fresh = tuple(map(on.xp.asarray, new)), tuple(map(on.xp.asarray, fresh))
        return new, fresh, info, total + (entropy.sum() if np.ndim(entropy) else entropy)


class _InTurn:
    """The update of one column (or colour) after the other, for elements that are each other's co-parents.

    What is linear in all elements is the same at each turn, and found once. Interpreted turns end when it is ``late``: the
    other columns keep their λ, and the bound is that of what came out.
    """

    def __init__(self, bound: BoundProgram, block: Block, ending: Sequence[str], late: Callable[[], bool]) -> None:
        program = bound.program
        self.bound, self.block, self.late = bound, block, late
        self.values = [bound.value(term) for term in ending]
        in_turn = block.n_columns > 1
        self.still = bound.target(block, part=program.once) if in_turn else None
        by_column = in_turn and block.column_axis is not None  # a single column is the whole block
        self.moving = None if by_column else bound.target(block, part=program.often if in_turn else None)

    def __call__(self, lam: Any, mu: Any, rho: Array | None = None) -> Updated:
        bound, block, on, name = self.bound, self.block, self.bound.on, self.block.name
        act = sets(block) if rho is None else blends(on, block, rho)
        new, fresh = update(on, block, (lam[name], mu[name]), self._message(mu), act, self.late)
        moments, entropy = block.family._moments_entropy(new)
        if self.late():  # a start may have given those that had no turn moments which are not those of their λ
            fresh = moments
        here = {**mu, name: fresh}
        total = sum([value(here) for value in self.values], on.xp.zeros(()))
        info = validity(on, block, lam[name], new, entropy)
        return new, fresh, info, total + bound.program.entropy(block, entropy, bound.known)

    def _message(self, mu: Any) -> Message:
        on, block, moving, axis = self.bound.on, self.block, self.moving, self.block.column_axis
        name = block.name
        still = None if self.still is None else self.still(mu)[1]
        if moving is not None:

            def of_all(number: Any, parts: Parts) -> Stats:
                rest = moving({**mu, name: parts[1]})[1]
                return rest if still is None else tuple(a + b for a, b in zip(still, rest, strict=True))

            return of_all
        assert still is not None
        assert axis is not None
        gradients = [on.column_gradient(piece, name, axis) for piece in self.bound.program.meeting(block)]

        def of_column(number: Any, parts: Parts) -> Stats:
            here = {**mu, name: parts[1]}
            target = take_column(on, block, still, number)
            for gradient in gradients:
                rest = block.family.project(gradient(number, here, self.bound.known))
                target = tuple(a + b for a, b in zip(target, rest, strict=True))
            return target

        return of_column


def block_update(
    bound: BoundProgram, block: Block, ending: Sequence[str] = (), late: Callable[[], bool] = bool
) -> Callable[..., Updated]:
    """The update of a block in a sweep, given all λ and μ: exact, or a step of length ρ.

    It returns λ, μ, what happened, and what the block adds to the bound: its entropy and the values of the ``ending`` terms.
    """
    if block.n_columns == 1 and not any(plate in bound.program.plan.weights for plate in block.plates):
        return _AtOnce(bound, block, ending)
    return _InTurn(bound, block, ending, late)


# -- a sweep --


class Sweep:
    """Every block once, in order, each from the freshest neighbours, with the bound.

    ``shared`` are the plates along which λ of a block goes in and out once (`Repeated`).
    """

    def __init__(
        self,
        bound: BoundProgram,
        order: tuple[str, ...],
        late: Callable[[], bool] = bool,
        shared: Mapping[str, tuple[tuple[int, ...], ...]] = {},
    ) -> None:
        plan = bound.program.plan
        ending = ending_terms(plan, order)
        self.shared, self.untouched = shared, [bound.value(term) for term in ending[None]]
        self.updates = {name: block_update(bound, plan.blocks[name], ending[name], late) for name in order}

    def __call__(self, lam: Any, mu: Any, rho: Array | None = None) -> tuple[Any, Any, dict[str, BlockInfo], Array]:
        lam, mu, info = dict(lam), dict(mu), {}
        total: Array = sum([value(mu) for value in self.untouched], 0.0)
        for name, update in self.updates.items():
            new, mu[name], info[name], gained = update(lam, mu, rho)
            lam[name] = shortened(new, self.shared[name]) if name in self.shared else new
            total = total + gained
        return lam, mu, info, total


def one_sweep(problem: NetworkProblem, order: tuple[str, ...], exact: bool) -> Callable[..., Any]:
    """A sweep as a function to compile, which returns λ, μ and a row of numbers.

    The numbers are the bound, then of each block whether it is valid and its relative change.
    """
    xp = problem.backend.xp

    def function(lam: Any, mu: Any, rho: Array, known: Any) -> Any:
        bound = BoundProgram(problem.program, known)
        sweep = Sweep(bound, order, shared=problem.repeated.plates if exact else {})
        lam, mu, info, total = sweep(lam, mu, None if exact else rho)
        flat = [
            entry for name in order for entry in (xp.asarray(info[name].valid, dtype=float), info[name].relative_change)
        ]
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


# The precision of the scores of a PCA without missing data is one matrix. A sweep reads of the old one how far it moved, and
# makes one new one; writing it for every row, and reading it in the next sweep, would take as long as the update.


class Repeated:
    """Blocks of a program with plates along which λ of an exact update is the same."""

    def __init__(self, program: Program) -> None:
        self.plan = plan = program.plan
        # Elements that are updated in turn differ, and weights are each element's own.
        at_once = {
            name: block
            for name, block in plan.blocks.items()
            if block.n_columns == 1 and not any(plate in plan.weights for plate in block.plates)
        }
        by_block = {name: program.shared_plates(block) for name, block in at_once.items()}
        self.plates = {name: shared for name, shared in by_block.items() if any(shared)}

    def shortened(self, name: str, lam: Stats) -> Stats:
        """λ of one block, one element in place of all that share it."""
        return shortened(lam, self.plates[name]) if name in self.plates else lam

    def once(self, lam: Mapping[str, Stats], order: tuple[str, ...]) -> dict[str, Stats]:
        """λ as a sweep in this order takes it; blocks that it does not update are as they are."""
        own = {name: shared for name, shared in self.plates.items() if name in order}
        arrays = {  # NumPy cuts without a call of JAX
            name: tuple(np.asarray(p) if axes else p for p, axes in zip(lam[name], shared, strict=True))
            for name, shared in own.items()
        }
        return {**lam, **{name: shortened(arrays[name], shared) for name, shared in own.items()}}

    def for_all(self, lam: Mapping[str, Stats], order: tuple[str, ...]) -> dict[str, Stats]:
        """λ as a state has it: views, which take no memory."""
        full = {
            name: tuple(
                np.broadcast_to(np.asarray(part), shape) if axes else part
                for part, axes, shape in zip(lam[name], shared, self.plan.nodes[name].stat_shapes(), strict=True)
            )
            for name, shared in self.plates.items()
            if name in order
        }
        return {**lam, **full}


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
