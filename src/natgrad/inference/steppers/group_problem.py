"""Groups that are read as a whole: what a Problem owes the engine for single blocks and whole sweeps, from `solve` alone."""

from __future__ import annotations

from typing import Any, Protocol

from natgrad.inference.problem import Block, BlockInfo, Sampled, State, SweepResult
from natgrad.inference.steppers.groups import AdditiveProblem, GroupResult, MemoisedGroups, move_blocks

__all__ = ["WholeGroups"]

Stats = tuple[Any, ...]


class _Whole(AdditiveProblem, Protocol):
    """What the methods below ask of the class they are mixed into."""

    def solve_all(self, state: State) -> GroupResult: ...


class WholeGroups:
    """A base for additive problems whose observations are never sampled one by one; `AdditiveProblem` says what is left to do.

    Where a problem has ``stays_valid(block, λ, μ)`` it is asked, otherwise the family.
    """

    def solve_all(self: _Whole, state: State) -> GroupResult:
        """As `solve` for all groups."""
        return self.solve(state, None, None, *self.local_limits)

    def sweep(self: _Whole, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """All groups, then all blocks; they do not read one another."""
        after, info = MemoisedGroups(self, 1, *self.local_limits).step(state, 0)
        assert info.bound is not None
        return SweepResult(after, info.bound, info.blocks)

    def sweep_jointly(self: _Whole, state: State, order: tuple[str, ...]) -> SweepResult:
        """As `sweep`."""
        return self.sweep(state, order)

    def target(
        self: _Whole,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Stats:
        """λ* from all groups."""
        if full is not None or sampled or column is not None:
            plate = self.group_plate
            raise NotImplementedError(f"{plate}s are sampled as a whole: SVI({{{plate!r}: size}})")
        told = self.solve_all(state).messages[block.name]
        return tuple(p + m for p, m in zip(self.prior_of(block.name), told, strict=True))

    def step_block(
        self: _Whole, block: Block, state: State, target: Any, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """λ ← (1 − ρ) λ + ρ λ^temp of one block; the others say what they hold."""
        goals = {**state.lam, block.name: target}
        told = {
            name: tuple(g - p for g, p in zip(goal, self.prior_of(name), strict=True)) for name, goal in goals.items()
        }
        after, info = move_blocks(self, state, told, float(rho), getattr(self, "stays_valid", None))
        return after, info[block.name]
