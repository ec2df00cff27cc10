"""Linearise a problem of edges or of groups at a state: its targets, their derivative, and Newton steps to the maximum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, EdgeProblem, GroupProblem, GroupResult, State
from natgrad.posterior.response.operator import Linearised, Operator
from natgrad.posterior.response.solvers import FLAT, Solution, conjugate_gradients, unresolved_gain

__all__ = [
    "along",
    "by_differences",
    "linearised_edges",
    "linearised_groups",
    "optimum_of_groups",
    "settled",
]

# E log of a probability below which its exponential is 0, as of a transition that is forbidden (−1e8).
LEAST_LOG = -745.0
Stats = tuple[Any, ...]
Moments = dict[str, Stats]


def along(
    blocks: Mapping[str, Block],
    mu: Mapping[str, Stats],
    function: Callable[[Moments], Mapping[str, Stats]],
    size: float,
) -> Callable[[Moments], Moments]:
    """J dμ as a function of dμ; ``size`` is the step, as a part of the largest entry of each statistic."""
    live = {name: tuple(_has_weight(block, part) for part in mu[name]) for name, block in blocks.items()}

    def derivative(direction: Moments) -> Moments:
        direction = {n: tuple(d * own for d, own in zip(direction[n], live[n], strict=True)) for n in blocks}
        ends = _beside(mu, live, direction, size)
        if ends is None:
            return direction
        up, down = function(ends.up), function(ends.down)
        return {
            name: block.family.project(
                tuple((np.asarray(a, np.float64) - b) / ends.apart for a, b in zip(up[name], down[name], strict=True))
            )
            for name, block in blocks.items()
        }

    return derivative


class _Ends(NamedTuple):
    """Moments on either side of others along a direction, and how many times the direction they are apart."""

    up: Moments
    down: Moments
    apart: float


def _beside(mu: Mapping[str, Stats], live: Mapping[str, Stats], direction: Moments, size: float) -> _Ends | None:
    """Where a central difference is taken: ``size`` of the largest entry of each statistic away; None along no direction."""
    longest = 0.0
    for name, parts in mu.items():
        for part, own, d in zip(parts, live[name], direction[name], strict=True):
            scale = np.abs(part, where=own, out=np.zeros(np.shape(part))).max(initial=0.0)
            longest = max(longest, float(np.abs(d).max(initial=0.0)) / max(float(scale), 1e-300))
    if longest == 0.0:
        return None
    step = size / longest
    up, down = (
        {n: tuple(m + s * d for m, d in zip(mu[n], direction[n], strict=True)) for n in mu} for s in (step, -step)
    )
    return _Ends(up, down, 2.0 * step)


def _has_weight(block: Block, part: Any) -> Any:
    """Where moments are of something that occurs: what has no probability at all changes nothing, however it is moved."""
    return np.asarray(part) > LEAST_LOG if block.family.is_simplex else np.ones(np.shape(part), dtype=bool)


# A target is a polynomial of the other blocks' moments, of low degree: central differences are exact but for its third powers,
# whose share is the square of the step.

# The step, as a part of each statistic's size; rounding is divided by it.
STEP = 1e-4
# Exact sweeps towards the optimum, until one gains so many nats, at most.
SWEEPS, NEAR = 200, 1e-6


def settled(problem: EdgeProblem, state: State, order: tuple[str, ...]) -> tuple[State, float]:
    """The state after exact sweeps, and the nats that they gained."""
    first = bound = problem.bound(state)
    for _ in range(SWEEPS):
        swept = problem.sweep(state, order)
        state, gain, bound = swept.state, float(swept.bound) - bound, float(swept.bound)
        if abs(gain) < NEAR:
            break
    return state, bound - first


def linearised_edges(
    problem: EdgeProblem,
    state: State,
    order: tuple[str, ...],
    rows: Callable[[Any], dict[str, Any]] | None = None,
) -> Linearised:
    """A problem of edges near a state; ``rows`` is the expected log density of each observation, given moments."""
    blocks = problem.blocks

    def targets(moments: dict[str, Stats]) -> dict[str, Stats]:
        at = State(state.lam, moments, 1)
        return {name: tuple(map(np.asarray, problem.target(block, at))) for name, block in blocks.items()}

    def sweep(lam: dict[str, Stats]) -> dict[str, Stats]:
        moments = {name: problem.moments(block, lam[name]) for name, block in blocks.items()}
        natural: dict[str, Stats] = problem.sweep(State(dict(lam), moments, 1), order).state.lam
        return natural

    here = by_differences(blocks, state.lam, targets)
    mu = {name: tuple(map(np.asarray, problem.moments(block, here.lam[name]))) for name, block in blocks.items()}
    return here._replace(
        sweep=sweep,
        elsewhere=lambda lam: linearised_edges(problem, State(lam, {}, 1), order, rows),
        rows=None if rows is None else _changes(rows, mu),
    )


def _changes(rows: Callable[[Any], dict[str, Any]], mu: dict[str, Stats]) -> Any:
    """The derivative of a function of the moments along a direction, by central differences."""
    everywhere = {name: tuple(np.ones(np.shape(part), dtype=bool) for part in parts) for name, parts in mu.items()}

    def along(direction: dict[str, Stats]) -> dict[str, Any]:
        ends = _beside(mu, everywhere, direction, STEP) or _Ends(mu, mu, 1.0)
        up, down = rows(ends.up), rows(ends.down)
        return {name: (np.asarray(up[name]) - down[name]) / ends.apart for name in up}

    return along


def by_differences(
    blocks: Mapping[str, Block], lam: Mapping[str, Stats], targets: Callable[[dict[str, Stats]], dict[str, Stats]]
) -> Linearised:
    """What linear response asks for, of a function from the moments of all blocks to their targets."""
    lam = {name: tuple(np.asarray(part, np.float64) for part in lam[name]) for name in blocks}
    mu = {name: tuple(map(np.asarray, block.family.expected_stats(lam[name]))) for name, block in blocks.items()}
    return Linearised(blocks, lam, targets(mu), along(blocks, mu, targets, STEP))


# With the globals held, groups are independent and their optimum is found by `solve`; their messages to the globals, m(μ), have
# the Jacobian of the eliminated system (its Schur complement). Problems that know it have a `tangent`. Elsewhere it is taken by
# central differences of `solve`, whose error is the square of the step, with the local variables solved to the end from where
# they were.

# The step, as a part of each statistic's size: what is cut off is its square; rounding, and what is left of a local optimum, its
# inverse. And the tolerance and the rounds of local variables: where they are differentiated exactly, and by differences.
GROUPS_STEP = 3e-4
NEAR_TOL, LOCAL_TOL, LOCAL_ROUNDS = 1e-10, 1e-13, 5_000


def _solved(problem: GroupProblem, state: State, rows: Any) -> GroupResult:
    tol = LOCAL_TOL if problem.tangent is None else NEAR_TOL
    return problem.solve(state, None, rows, tol, LOCAL_ROUNDS)


def linearised_groups(problem: GroupProblem, state: State, here: GroupResult, strict: bool = True) -> Linearised:
    """A problem of groups near a state, its local variables at their optimum; if ``strict``, one at none is an error."""
    blocks = problem.blocks
    lam = {name: tuple(np.asarray(part, np.float64) for part in state.lam[name]) for name in blocks}
    mu = {name: tuple(map(np.asarray, problem.moments(block, lam[name]))) for name, block in blocks.items()}
    rows = here.rows if len(here.rows) else None

    def messages(moments: dict[str, Stats]) -> dict[str, Stats]:
        sums: dict[str, Stats] = _solved(problem, state._replace(lam=lam, mu=moments), rows).messages
        return sums

    def sweep(lam: dict[str, Stats]) -> dict[str, Stats]:
        return _targets(problem, messages({n: problem.moments(block, lam[n]) for n, block in blocks.items()}))

    exact = None if problem.tangent is None else problem.tangent(state._replace(lam=lam, mu=mu), here, strict)
    curvature = along(blocks, mu, messages, GROUPS_STEP) if exact is None else exact

    def influence(direction: dict[str, Stats]) -> dict[str, Any]:
        told_along = problem.told_along or partial(_one_by_one, problem)
        return {problem.group_plate: told_along(state._replace(lam=lam, mu=mu), rows, direction)}

    return Linearised(blocks, lam, _targets(problem, here.messages), curvature, sweep=sweep, rows=influence)


def _targets(problem: GroupProblem, messages: Mapping[str, Stats]) -> dict[str, Stats]:
    """Prior plus messages of all groups, of each block."""
    return {
        name: tuple(p + np.asarray(m) for p, m in zip(problem.prior_of(name), messages[name], strict=True))
        for name in problem.blocks
    }


def _one_by_one(problem: GroupProblem, state: State, rows: Any, direction: dict[str, Stats]) -> Any:
    """⟨m_g, dμ⟩ of every group: how what it adds to the bound changes along a direction of the moments."""
    out = np.empty(problem.n_groups)
    for group in range(problem.n_groups):
        own = None if rows is None else tuple(part[group : group + 1] for part in rows)
        messages = problem.solve(state, np.array([group]), own, LOCAL_TOL, LOCAL_ROUNDS).messages
        out[group] = sum(float(np.sum(b.family.inner(messages[n], direction[n]))) for n, b in problem.blocks.items())
    return out


# Newton's steps by conjugate gradients, as for a response, each taken only if the bound rises; where it curves upwards along a
# direction, the state is a saddle and the step goes on along it. A fit that ends at a saddle, or a long flat way before the
# optimum, so comes to a maximum. Groups begin each time where they were: reset, they would jump between optima of their own,
# and no sequence of sweeps would settle.

Floats = npt.NDArray[np.float64]
# Steps, and products for each; the nats below which Newton's step has arrived.
STEPS, PRODUCTS, ASCENT_NEAR = 60, 40, 1e-8
# Newton's step is solved to this part, and more finely where it is short: its length, in standard deviations of q.
COARSE = 0.1
# How far a step along which the bound curves upwards goes, in standard deviations of q, the first that gains.
FAR = (4.0, 1.0, 0.25)
SHORTER = (1.0, 0.5, 0.25, 0.125)


class _Here(NamedTuple):
    state: State
    solved: GroupResult
    bound: float


def optimum_of_groups(problem: GroupProblem, state: State) -> tuple[Linearised, float, float]:
    """The problem at the maximum beside a state, the nats that it is above it, and those that Newton's step there would gain.

    A ready model may have solved its documents in single precision, or not to the end: its optimum is a little beside.
    """
    here = first = _at(problem, state, None)
    gain = unresolved = float("inf")
    for _ in range(STEPS):
        operator = Operator(linearised_groups(problem, here.state, here.solved, strict=False))
        residual = operator.residual()
        length = operator.inner(residual, operator.fisher(residual)) ** 0.5
        step = conjugate_gradients(
            operator, residual, min(COARSE, length), PRODUCTS, truncate=FLAT + 1e-3 * length, rising=True
        )
        gain = 0.5 * operator.inner(residual, operator.fisher(step.x))
        unresolved = unresolved_gain(length, min(step.residual, 1.0) * length)
        if gain < ASCENT_NEAR and step.rising is None:
            break
        tried = (_at(problem, new, here.solved.rows) for new in _candidates(problem, here, operator, step))
        better = next((there for there in tried if there.bound > here.bound), None)
        if better is None:
            break  # to rounding: a sweep, the last candidate, never lowers the bound
        here = better
    return linearised_groups(problem, here.state, here.solved), here.bound - first.bound, gain + unresolved


def _at(problem: GroupProblem, state: State, rows: Any) -> _Here:
    solved = _solved(problem, state, rows)
    return _Here(state, solved, float(solved.rest + problem.global_bound(state.lam, state.mu, solved.messages)))


def _candidates(problem: GroupProblem, here: _Here, operator: Operator, step: Solution) -> Iterator[State]:
    """States to try, one after the other: along a rising direction, Newton's step and shorter ones, a sweep."""
    if step.rising is not None:
        length = operator.inner(step.rising, operator.fisher(step.rising)) ** 0.5
        for far in FAR:
            yield from _moved(problem, here, operator, step.x + (far / length) * step.rising)
    for part in SHORTER:
        yield from _moved(problem, here, operator, part * step.x)
    yield problem.global_step(here.state, here.solved.messages).state


def _moved(problem: GroupProblem, here: _Here, operator: Operator, change: Floats) -> Iterator[State]:
    """Along dλ; where that leaves the space of λ, along dμ, and a sweep from there."""
    state, along = here.state, operator.unpack(change)
    lam = _sum(state.lam, along)
    if not _valid(problem, lam):
        moments = _sum(state.mu, operator.unpack(operator.fisher(change)))
        with np.errstate(all="ignore"):
            lam = _targets(problem, _solved(problem, state._replace(mu=moments), here.solved.rows).messages)
        if not _valid(problem, lam):
            return
    yield state._replace(
        lam=lam, mu={name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
    )


def _valid(problem: GroupProblem, lam: Any) -> bool:
    return all(np.all(block.family.valid(lam[name])) for name, block in problem.blocks.items())


def _sum(first: Any, second: Any) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(a + b for a, b in zip(first[name], parts, strict=True)) for name, parts in second.items()}
