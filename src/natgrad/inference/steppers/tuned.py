"""Models with settings that no family describes: natural steps for q from a batch, then a gradient step for the settings.

    λ ← (1 − ρ) λ + ρ (η̃ + groups/batch Σ_g m_g)        the blocks, as everywhere
    θ ← θ + ascent direction of the same batch's bound   the settings (kernel, noise, inducing inputs), after it

For a conjugate likelihood the target maximises the batch's bound, and every step towards it raises it. For others messages
are of second order, and a step is taken only if the same batch's bound does not fall; otherwise it is halved.

Hensman, Fusi and Lawrence (2013); Salimbeni, Eleftheriadis and Hensman (2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard

import numpy as np

from natgrad.inference.methods import SVI, VB, Method
from natgrad.inference.problem import Block, BlockInfo, Problem, State
from natgrad.inference.step_sizes import Constant, Step
from natgrad.inference.steppers.groups import AdditiveProblem, GroupResult, move_blocks
from natgrad.inference.steppers.sampled import StepInfo, Stepper
from natgrad.random import generator

__all__ = ["TunedGroups", "TunedProblem", "is_tuned", "tuned_stepper"]

# While the settings move, q must follow them; the noise of single batches is taken out by the exact pass at the end.
# kin40k, M = 100, after 400 steps: 0.2 ends 0.03 nats a row better than 0.1, and than decaying steps.
SAMPLED = Constant(0.2)
# A step that lowers its batch's bound is halved at most so often; what is left then is not worth a factorisation.
MOST_HALVINGS = 8
# A bound computed twice may differ by rounding.
ROUNDING = 1e-12


class TunedProblem(AdditiveProblem, Protocol):
    """An additive problem with settings; they are in ``state.hyper["settings"]``, and no step of a block touches them."""

    @property
    def conjugate(self) -> bool:
        """Whether messages do not depend on q, so that η̃ + Σ m is the exact optimum."""
        ...

    def batch_bound(self, state: State, found: GroupResult, scale: float) -> float:
        """The bound as the groups that were read estimate it: scale Σ_g E[log p] − KL."""
        ...

    def tune(self, state: State, found: GroupResult, scale: float) -> State:
        """One gradient step of the settings on `batch_bound`; the blocks stay."""
        ...

    def solve_all(self, state: State) -> GroupResult:
        """As `solve` for all groups, read in pieces that fit in memory."""
        ...

    def stays_valid(self, block: Block, lam: Any, mu: Any) -> bool:
        """Whether a new λ with these moments is valid; known from their computation."""
        ...


def is_tuned(problem: Problem) -> TypeGuard[TunedProblem]:
    """Whether a problem has settings to tune; asks the class, so that no property is computed."""
    return all(hasattr(type(problem), name) for name in ("tune", "solve_all", "batch_bound"))


class TunedGroups:
    """A batch at each step: q first, then the settings; at the end one exact pass for q."""

    # No exact bound comes with a step, and none is asked for: it would read all the data.
    rising, steps_per_pass = True, 1

    def __init__(self, problem: TunedProblem, size: int, step: Step) -> None:
        if size > problem.n_groups:
            raise ValueError(
                f"SVI: a batch of {size} is larger than plate {problem.group_plate!r} with {problem.n_groups} elements; "
                "VB() reads all of them"
            )
        self.problem, self.size, self.schedule = problem, size, step

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        problem = self.problem
        n_groups = problem.n_groups
        chosen = None
        if self.size < n_groups:
            chosen = np.sort(generator(seed, state.t).choice(n_groups, size=self.size, replace=False, shuffle=False))
        found = problem.solve(state, chosen, None, 0.0, 1)
        scale = problem.population / self.size
        rho = float(np.mean(self.schedule.rate(state.t + 1, scale)))
        after, moves, rho = self._moved(state, found, scale, rho)
        estimate = problem.batch_bound(after, found, scale)
        after = problem.tune(after, found, scale)
        return after._replace(t=state.t + 1), StepInfo(moves, rho, found.reads, None, estimate, unbounded=True)

    def finish(self, state: State) -> State:
        """The q from all groups, given the settings: exact if conjugate, otherwise a step that cannot lower the bound."""
        problem = self.problem
        found = problem.solve_all(state)
        scale = problem.population / problem.n_groups
        if problem.conjugate:
            return move_blocks(problem, state, _scaled(found.messages, scale), 1.0, problem.stays_valid)[0]
        before = problem.bound(state)
        for halvings in range(3):
            after, _ = move_blocks(problem, state, _scaled(found.messages, scale), 0.5**halvings, problem.stays_valid)
            if problem.bound(after) >= before:
                return after
        return state

    def _moved(
        self, state: State, found: GroupResult, scale: float, rho: float
    ) -> tuple[State, dict[str, BlockInfo], float]:
        """The natural step, and how long it was; zero if no length was accepted."""
        problem, totals = self.problem, _scaled(found.messages, scale)
        if problem.conjugate:
            after, moves = move_blocks(problem, state, totals, rho, problem.stays_valid)
            return after, moves, rho
        before = problem.batch_bound(state, found, scale)
        for _ in range(MOST_HALVINGS):
            after, moves = move_blocks(problem, state, totals, rho, problem.stays_valid)
            if all(info.valid for info in moves.values()):
                now = problem.batch_bound(after, found, scale)
                if now >= before - ROUNDING * abs(before):
                    return after, moves, rho
            rho *= 0.5
        return state, {name: BlockInfo(True, 0.0) for name in problem.blocks}, 0.0


def tuned_stepper(problem: TunedProblem, method: Method | None, step: Step | None) -> tuple[Stepper, str]:
    """The stepper for what the user fixed, and why it is this one; ``step`` is None where it is left to us."""
    size, asked = min(problem.batch_size, problem.n_groups), "batches"
    if isinstance(method, SVI):
        if method.plate != problem.group_plate:
            raise ValueError(
                f"SVI: batch names plate {method.plate!r}, and the data are called {problem.group_plate!r}"
            )
        size, asked = method.size, "batches, as asked"
    elif isinstance(method, VB):
        size, asked = problem.n_groups, "all the data at each step, as asked"
    elif method is not None:
        raise TypeError(f"{method} samples children of single variables; here SVI({{{problem.group_plate!r}: size}})")
    if step is None:
        step = SAMPLED if size < problem.n_groups else Constant(1.0)
    words = f"{asked} of {size} {problem.group_plate}s with {step}"
    return TunedGroups(problem, size, step), f"{words}; q first, then the settings by their gradient"


def _scaled(messages: Mapping[str, tuple[Any, ...]], scale: float) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(scale * part for part in parts) for name, parts in messages.items()}
