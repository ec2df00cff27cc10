"""Hoffman's SVI on a network: a batch of groups, their local variables optimised, then a step of the globals.

Global targets are scaled by groups / batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from natgrad.inference.methods import SVI
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import Step
from natgrad.inference.steppers.sampled import BlockUpdates, NothingToFinish, StepInfo, step_parts
from natgrad.network.groups.groups import Batch, Groups
from natgrad.random import generator

if TYPE_CHECKING:
    from natgrad.network.execute.problem import LocalResult, NetworkProblem

__all__ = ["SVIStepper"]


class SVIStepper(NothingToFinish):
    """A batch of groups, local variables inside."""

    monotone, steps_per_pass = False, 1

    def __init__(self, problem: NetworkProblem, method: SVI, step: Step, order: tuple[str, ...]) -> None:
        self.problem, self.method, self.schedule = problem, method, step
        self.groups = Groups(problem, method.plate, order)
        check_size(method, self.groups)
        self.scale = len(self.groups) / method.size
        # Where the order has globals before local variables, the start of these counts before it is overwritten.
        self.leading = leading_globals(order, self.groups)

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        rng, groups = generator(seed, state.t), self.groups
        before = 0
        if state.t == 0 and self.leading:
            state = self.problem.sweep(state, self.leading).state._replace(t=0)
            before = sum(children.n_reads for name in self.leading for children in self.problem.child_sets(name))
        chosen = np.sort(rng.choice(len(groups), size=self.method.size, replace=False, shuffle=False))
        batch = Batch(groups, chosen)
        local = groups.solve(state, groups.rows(state, batch), batch, self.method.local_tol, self.method.local_steps)
        here = state._replace(mu={**state.mu, **local.mu})
        moves = BlockUpdates(self.problem, here, together=False)
        rho = self.schedule.rate(state.t + 1, self.scale)
        reads = local.iterations * sum(groups.reads(name, batch) for name in groups.local)
        for name in groups.globals:
            block, terms = self.problem.blocks[name], self.problem.plan.terms_of(name)
            whole = tuple(t.node for t in terms if groups.plate_of[t.node] is None)
            samples = tuple(groups.sampled(t, batch, self.scale) for t in terms if groups.plate_of[t.node] is not None)
            columns: list[int | None] = [None] if block.column_axis is None else list(range(block.n_columns))
            for column in columns:
                for part in step_parts(block, rho, column, in_turn=True):
                    target = self.problem.target(block, moves.state, whole, samples, column)
                    moves.move(block, target, part, column)
            reads += groups.reads(name, batch)
        estimate = self._estimate(moves.state, local, batch)
        after = self._written(state, moves.finish(), local, batch)
        return after, StepInfo(moves.info, moves.rho, before + int(reads), estimate=estimate)

    def _written(self, before: State, after: State, local: LocalResult, batch: Batch) -> State:
        """The rows of the batch put back among all rows."""
        lam, mu = dict(after.lam), dict(after.mu)
        for name in self.groups.local:
            for old, new, out in ((before.lam, local.lam, lam), (before.mu, local.mu, mu)):
                out[name] = tuple(np.array(full) for full in old[name])
                self.groups.put_rows(name, out[name], new[name], batch)
        return after._replace(lam=lam, mu=mu)

    def _estimate(self, state: State, local: LocalResult, batch: Batch) -> float:
        """The bound as the batch sees it: grouped terms and local entropies scaled, the rest exact."""
        groups = self.groups
        samples = tuple(groups.sampled(t, batch, self.scale) for t in groups.grouped)
        rest = self.problem.partial_bound(state, groups.whole, samples, groups.globals)
        return rest + self.scale * groups.entropy(local, batch)


def leading_globals(order: tuple[str, ...], groups: Groups) -> tuple[str, ...]:
    """The globals that a sweep in this order updates from the start of the local variables."""
    local = [order.index(name) for name in groups.local]
    return tuple(order[: min(local, default=0)])


def check_size(method: SVI, groups: Groups) -> None:
    """A batch is a part of the groups."""
    if method.size > len(groups):
        raise ValueError(
            f"SVI: a batch of {method.size} is larger than plate {method.plate!r} with {len(groups)} elements; "
            "VB() reads all of them"
        )
