"""Sweep over all blocks, with the bound: one function that JAX compiles, or a list of updates that NumPy carries out.

Where a compiled sweep takes less time than a call, one call makes several. How many is an argument of the program, so that one
and many run the same code and have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, BlockInfo, State, SweepResult
from natgrad.network.compile.plan import ending_terms
from natgrad.network.execute.program import Program
from natgrad.network.execute.update import settle, shortened, updated_at_once, updated_in_turn, validity
from natgrad.network.execute.written_out import Writer

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["Interpreter", "Repeated", "all_told", "one_sweep", "repeated_sweeps", "told"]

Array = Any
Stats = tuple[Array, ...]


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


class Interpreter:
    """What is written out of a network for NumPy: sweeps in any order, priors, targets from whole terms."""

    def __init__(self, problem: NetworkProblem, known: Any) -> None:
        self.problem, self.written = problem, Writer(problem.program, known)
        self._sweeps: dict[tuple[str, ...], InterpretedSweep] = {}

    def sweep(self, state: State, order: tuple[str, ...]) -> SweepResult:
        """Every block once, exactly."""
        with self.problem.backend.running():
            compiled = self._sweeps.get(order)
            if compiled is None:
                compiled = self._sweeps[order] = InterpretedSweep(self.problem, order, self.written)
            return compiled(state)

    def target(self, block: Block, terms: tuple[str, ...] | None, mu: Any) -> Stats:
        """λ^temp of a block without weights from some of its terms, all if None."""
        with self.problem.backend.running():
            return self.written.target_of(block, terms)(mu)


class InterpretedSweep:
    """Exact updates of some blocks in an order, each from the freshest neighbours; written out at the first call."""

    def __init__(self, problem: NetworkProblem, order: tuple[str, ...], written: Writer) -> None:
        self.problem, self.written = problem, written
        ending = ending_terms(problem.plan, order)
        self.untouched = [written.value(term) for term in ending[None]]
        self.updates = [self._update(problem.blocks[name], ending[name]) for name in order]

    def __call__(self, state: State) -> SweepResult:
        lam, mu, info = dict(state.lam), dict(state.mu), {}
        total = sum([value(mu) for value in self.untouched], 0.0)
        for update in self.updates:
            name, new, fresh, seen, gained = update(lam, mu)
            lam[name], mu[name], info[name] = new, fresh, seen
            total = total + gained
        return SweepResult(State(lam, mu, state.t + 1, state.memory), float(total), info)

    def _update(self, block: Block, ending: list[str]) -> Any:
        if block.n_columns > 1 or self.problem._is_weighted(block):
            return self._in_turn(block, ending)
        return _AtOnce(self.problem, block, ending, self.written)

    def _in_turn(self, block: Block, ending: list[str]) -> Any:
        problem, known, name = self.problem, self.written.known, block.name
        # Of colours, which take turns few at a time, all messages are written out.
        written = block.colours is not None and not problem._is_weighted(block)
        target = self.written.target(block) if written else None
        values = [self.written.value(term) for term in ending] if written else []

        def value(here: Any) -> Any:
            return sum([value(here) for value in values], 0.0)

        def update(lam: Any, mu: Any) -> Any:
            given: Any = ()
            if target is not None:
                given = (lambda number, parts: target({**mu, name: parts[1]})[1]), value
            new, fresh, info, gained = updated_in_turn(
                problem.program, block, lam, mu, 1.0, known, ending, problem.late, *given
            )
            return name, new, fresh, info, gained

        return update


class _AtOnce:
    """One exact update of a block whose elements do not meet one another.

    What touches μ_i in a term is linear in it, so the value of a term that changes no more in this sweep is ⟨gradient, μ_i⟩.
    """

    def __init__(self, problem: NetworkProblem, block: Block, ending: list[str], written: Writer) -> None:
        name = block.name
        self.block, self.on, self.shared = block, problem.backend, problem.program.shared_plates(block)
        self.target = written.target(block, ending)
        values = [written.value(term, name) for term in ending]
        self.apart = [value for value in values if value.spots]
        self.known = sum([float(value.known[0]) for value in values if not value.spots], 0.0)
        self.scalar = any(not shape for shape in problem.plan.nodes[name].stat_shapes())

    def __call__(self, lam: Any, mu: Any) -> Any:
        block, name = self.block, self.block.name
        total: Any = self.known
        for value in self.apart:
            total = total + value(mu)
        ended, target = self.target(mu)
        if any(self.shared):
            fresh, entropy, info = settle(self.on, block, lam[name], target, self.shared)
            sum_of = entropy.sum()
        else:
            fresh, sum_of = block.family._moments_total_entropy(target)
            info = validity(self.on, block, lam[name], target, sum_of)
        if ended is not None:
            for gradient, stat in zip(ended, fresh, strict=True):
                total = total + (np.vdot(gradient, stat) if np.ndim(gradient) else gradient * stat)
        if self.scalar:
            target, fresh = tuple(map(np.asarray, target)), tuple(map(np.asarray, fresh))
        return name, target, fresh, info, total + float(sum_of)
