"""A sweep of the interpreter: a state in, the state after every block was updated once out, with the bound.

The same as the function that is compiled (`NetworkProblem`), block by block, in as few calls of NumPy as it takes: for a small
network these, and not the numbers, are what a sweep costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.problem import Block, BlockInfo, State, SweepResult
from natgrad.network.compile.plan import ending_terms
from natgrad.network.execute.addressing import Piece
from natgrad.network.execute.exact_updates import updated_in_turn
from natgrad.network.execute.interpreted_joint import InterpretedMeans
from natgrad.network.execute.updates import all_valid, choose, settle
from natgrad.network.execute.written_out import Writer

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["InterpretedSweep", "Interpreter"]

Array = Any
Stats = tuple[Array, ...]


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

    def means(self, names: tuple[str, ...], pieces: Sequence[Piece]) -> Callable[..., Any]:
        """λ and moments of a group whose means meet in these pieces, after they were solved together."""
        solve = InterpretedMeans(self.written, names, pieces)

        def solved(lam: Any, mu: Any) -> Any:
            with self.problem.backend.running():
                return solve(lam, mu)

        return solved

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
        program = self.problem.program
        if block.column_axis is not None or any(plate in program.plan.weights for plate in block.plates):
            return self._by_program(block, ending)
        if block.n_columns > 1:
            return _InTurn(self.problem, block, ending, self.written)
        return _AtOnce(self.problem, block, ending, self.written)

    def _by_program(self, block: Block, ending: list[str]) -> Any:
        """Columns and weights, as the compiler has them."""
        problem, known, name = self.problem, self.written.known, block.name

        def update(lam: Any, mu: Any) -> Any:
            new, fresh, info, gained = updated_in_turn(
                problem.program, block, lam, mu, 1.0, known, ending, problem.late
            )
            return name, new, fresh, BlockInfo(bool(info.valid), float(info.relative_change)), gained

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
            _, fresh, entropy, info = settle(self.on, block, lam[name], target, self.shared)
            sum_of = float(entropy.sum())
            info = BlockInfo(bool(info.valid), float(info.relative_change))
        else:
            fresh, sum_of, info = _settled(self.on, block, lam[name], target)
        if ended is not None:
            for gradient, stat in zip(ended, fresh, strict=True):
                total = total + (np.vdot(gradient, stat) if np.ndim(gradient) else gradient * stat)
        if self.scalar:
            target, fresh = tuple(map(np.asarray, target)), tuple(map(np.asarray, fresh))
        return name, target, fresh, info, total + sum_of


def _settled(on: Any, block: Block, old: Stats, new: Stats) -> tuple[Stats, float, BlockInfo]:
    """Moments and entropy of λ^temp; whether it is valid, and how far it is from λ."""
    family = block.family
    fresh, total = family._moments_total_entropy(new)
    sum_of = float(total)
    moved = size = 0.0
    for a, b in zip(new, old, strict=True):
        if not np.ndim(b):  # Python's own numbers are quicker
            number, step = float(b), float(a) - float(b)
            moved += step * step
            size += number * number + 1e-300
            continue
        step = a - b
        moved += float(np.vdot(step, step))
        size += float(np.vdot(b, b)) + 1e-300
    change = math.sqrt(moved / size) if moved >= 0 else math.nan
    # Where the sums are finite, so is everything in them; a look at each number is for those that are not.
    valid = math.isfinite(change) and math.isfinite(sum_of)
    if valid:
        inside = family._inside_but_finite(new)
        valid = inside is True or bool(inside.all())
    else:
        valid = bool(all_valid(on, block, new, family._moments_entropy(new)[1]))
    return fresh, sum_of, BlockInfo(valid, change)


class _InTurn:
    """Exact updates of one colour after the other, for elements that are each other's co-parents."""

    def __init__(self, problem: NetworkProblem, block: Block, ending: list[str], written: Writer) -> None:
        self.block, self.on = block, problem.backend
        assert block.colours is not None
        self.chosen = [block.colours == number for number in range(block.n_columns)]
        self.target = written.target(block)
        self.ended = [written.value(term) for term in ending]

    def __call__(self, lam: Any, mu: Any) -> Any:
        block, name, here = self.block, self.block.name, dict(mu)
        new = lam[name]
        for chosen in self.chosen:
            _, target = self.target(here)
            new = choose(self.on, block, chosen, target, new)
            here[name] = choose(self.on, block, chosen, block.family._moments_entropy(target)[0], here[name])
        _, sum_of, info = _settled(self.on, block, lam[name], new)
        return name, new, here[name], info, sum([value(here) for value in self.ended], sum_of)
