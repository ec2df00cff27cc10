"""A state that a fit ended near an optimum in; the maximum of the bound beside it out, with every group solved there.

Newton's steps by conjugate gradients, as for a response, each taken only if the bound rises; where it curves upwards along a
direction, the state is a saddle and the step goes on along it. A fit that ends at a saddle, or a long flat way before the
optimum, so comes to a maximum. Groups begin each time where they were: afresh, they would jump between optima of their own, and
no sequence of sweeps would settle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import GroupProblem, GroupResult, State
from natgrad.posterior.response.operator import Linearised, Operator
from natgrad.posterior.response.settling import unresolved_gain
from natgrad.posterior.response.solvers import FLAT, conjugate_gradients

__all__ = ["Optimum", "ascended"]

Floats = npt.NDArray[np.float64]
# Steps, and products for each; the nats below which Newton's step has arrived.
STEPS, PRODUCTS, NEAR = 60, 40, 1e-8
# Newton's step is solved to this part, and more finely where it is short: its length, in standard deviations of q.
COARSE = 0.1
# How far a step along which the bound curves upwards goes, in standard deviations of q, the first that gains.
FAR = (4.0, 1.0, 0.25)
SHORTER = (1.0, 0.5, 0.25, 0.125)


class Optimum(NamedTuple):
    """A state, its groups, the nats that it is above where it began, and the nats that Newton's step from there would gain."""

    state: State
    solved: GroupResult
    gained: float
    left: float


class _Here(NamedTuple):
    state: State
    solved: GroupResult
    bound: float


def ascended(
    problem: GroupProblem,
    state: State,
    solve: Callable[[State, Any], GroupResult],
    linearised: Callable[[State, GroupResult], Linearised],
) -> Optimum:
    """The maximum beside a state; ``solve`` is that of all groups from their rows, ``linearised`` the problem at a state."""
    here = first = _at(problem, state, solve, None)
    gain = unresolved = float("inf")
    for _ in range(STEPS):
        operator = Operator(linearised(here.state, here.solved))
        residual = operator.residual()
        length = operator.inner(residual, operator.fisher(residual)) ** 0.5
        step = conjugate_gradients(
            operator, residual, min(COARSE, length), PRODUCTS, truncate=FLAT + 1e-3 * length, rising=True
        )
        gain = 0.5 * operator.inner(residual, operator.fisher(step.x))
        unresolved = unresolved_gain(length, min(step.residual, 1.0) * length)
        if gain < NEAR and step.rising is None:
            break
        tried = (
            _at(problem, new, solve, here.solved.rows) for new in _candidates(problem, here, operator, step, solve)
        )
        better = next((there for there in tried if there.bound > here.bound), None)
        if better is None:
            break  # to rounding: a sweep, the last candidate, never lowers the bound
        here = better
    return Optimum(here.state, here.solved, here.bound - first.bound, gain + unresolved)


def _at(problem: GroupProblem, state: State, solve: Any, rows: Any) -> _Here:
    solved = solve(state, rows)
    return _Here(state, solved, float(solved.rest + problem.global_bound(state.lam, state.mu, solved.messages)))


def _candidates(problem: GroupProblem, here: _Here, operator: Operator, step: Any, solve: Any) -> Iterator[State]:
    """States to try, one after the other: along a rising direction, Newton's step and shorter ones, a sweep."""
    if step.rising is not None:
        length = operator.inner(step.rising, operator.fisher(step.rising)) ** 0.5
        for far in FAR:
            yield from _moved(problem, here, operator, step.x + (far / length) * step.rising, solve)
    for part in SHORTER:
        yield from _moved(problem, here, operator, part * step.x, solve)
    yield problem.global_step(here.state, here.solved.messages).state


def _moved(problem: GroupProblem, here: _Here, operator: Operator, change: Floats, solve: Any) -> Iterator[State]:
    """Along dλ; where that leaves the space of λ, along dμ, and a sweep from there."""
    state, along = here.state, operator.unpack(change)
    lam = _sum(state.lam, along)
    if not _valid(problem, lam):
        moments = _sum(state.mu, operator.unpack(operator.fisher(change)))
        with np.errstate(all="ignore"):
            told = solve(state._replace(mu=moments), here.solved.rows).messages
        lam = {
            name: tuple(p + np.asarray(m) for p, m in zip(problem.prior_of(name), told[name], strict=True))
            for name in problem.blocks
        }
        if not _valid(problem, lam):
            return
    yield state._replace(
        lam=lam, mu={name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
    )


def _valid(problem: GroupProblem, lam: Any) -> bool:
    return all(np.all(block.family.valid(lam[name])) for name, block in problem.blocks.items())


def _sum(first: Any, second: Any) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(a + b for a, b in zip(first[name], parts, strict=True)) for name, parts in second.items()}
