"""Propose ways off a saddle of a converged network: components shifted apart or split, shares reset, factors revived."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.network.language.expressions import VECTOR
from natgrad.network.polynomial import Take
from natgrad.network.start.order import default_order
from natgrad.network.start.products import at_points, before_relevance, governors, spread_of_children
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = [
    "memberships",
    "moved_apart",
    "probes_of",
    "put_beside",
    "revived_factors",
    "shares_anew",
    "shares_of_groups",
    "shifted_by_own",
    "shifted_components",
    "split_components",
]

# A relevance that judged a factor before it had seen data drives it to zero, from where no sweep brings it back. When a run has
# settled, the columns of a product that explain nothing are drawn anew in the units of the data; their relevances are taken from
# that draw and held for some sweeps, in which the columns find what the others have left. Whether that leads higher, the run
# finds out.

# A column whose part of the data's variance is smaller than this explains nothing.
NOTHING = 1e-4


def revived_factors(
    problem: NetworkProblem, state: State, order: tuple[str, ...], seed: int, number: int
) -> State | None:
    """The state with the columns of products that explain nothing started again; None where there are none."""
    if not problem.products:
        return None
    revived, rng = None, generator(seed, Stream.PROBE, number, 3)
    for pair in problem.products:
        large, small = sorted(pair, key=default_order(problem.plan).index)
        power = [_power(problem, state, name) for name in (large, small)]
        spread = spread_of_children(problem, pair)
        dead = power[0] * power[1] < NOTHING * spread
        if not dead.any():
            continue
        draw = rng.standard_normal(np.asarray(state.mu[small][0]).shape) * np.sqrt(spread / len(dead))
        value = np.where(_along(problem, small, dead), draw, np.asarray(state.mu[small][0]))
        started = at_points(problem, state if revived is None else revived, {small: value})
        revived = before_relevance(problem, started, governors(problem, set(pair))[1])
    return None if revived is None else revived._replace(t=state.t, memory={})


def _axis(problem: NetworkProblem, name: str) -> int:
    block = problem.blocks[name]
    if problem.plan.nodes[name].kind == VECTOR:
        return len(block.shape)
    assert block.column_axis is not None
    return block.column_axis


def _power(problem: NetworkProblem, state: State, name: str) -> npt.NDArray[np.float64]:
    """The mean square of each column's means."""
    means = np.moveaxis(np.asarray(state.mu[name][0]), _axis(problem, name), -1)
    return np.asarray((means**2).reshape(-1, means.shape[-1]).mean(0))


def _along(problem: NetworkProblem, name: str, columns: npt.NDArray[np.bool_]) -> Any:
    shape = [1] * np.asarray(problem.plan.nodes[name].stat_shapes()[0]).size
    shape[_axis(problem, name)] = -1
    return columns.reshape(shape)


# A way off a poor optimum of an admixture: the shares of all groups begun anew, given the components as they have become.
#
# A document that began while its topics were still vague has settled on a mix of them that nothing tells it to leave. Given the
# topics that the run ended with, its shares begin at their prior and its words choose again. See `natgrad.inference.proposals`.


def shares_anew(problem: NetworkProblem, state: State, order: tuple[str, ...], seed: int, number: int) -> State | None:
    """Simplices that hidden categories read through known indices, at their priors, and the categories given these."""
    pairs = shares_of_groups(problem)
    if not pairs:
        return None
    for share in dict.fromkeys(share for _, share in pairs):
        block = problem.blocks[share]
        state, _ = problem.step_block(block, state, problem.target(block, state, (share,)), 1.0)
    gates = {gate for gate, _ in pairs}
    for gate in (name for name in order if name in gates):
        block = problem.blocks[gate]
        state, _ = problem.step_block(block, state, problem.target(block, state), 1.0)
    return state


def shares_of_groups(problem: NetworkProblem) -> list[tuple[str, str]]:
    """Hidden categories that choose a component, and the simplices of groups that their probabilities are read from."""
    pairs = []
    for gate in sorted(set(problem.plan.choices) & set(problem.blocks)):
        for name, readings in problem.plan.terms[gate].readings.items():
            through = any(isinstance(axis, Take) for reading in readings for axis in reading.axes)
            if through and name in problem.blocks and problem.blocks[name].family.is_simplex:
                pairs.append((gate, name))
    return pairs


# Components that have merged are shifted apart or split; shares of groups begin anew; factors that were switched off are
# revived.

Stats = tuple[Any, ...]
Probe = Callable[..., State | None]
# A component that holds less than this part of an equal share may be better used elsewhere.
LIGHT = 0.25
# Components are moved by their own elements as well where one holds less than this part of an equal share.
UNEQUAL = 0.5


def shifted_components(
    problem: NetworkProblem, state: State, order: tuple[str, ...], seed: int, number: int
) -> State | None:
    """The components that hidden categories choose from, each moved by what a single child of its could tell of it.

    A mean is moved by the spread of its children, not by its own uncertainty: merged components with many children are held
    together so tightly that a small difference between them grows by almost nothing in a sweep.
    """
    chosen = _chosen(problem, state)
    return _shifted_by(problem, state, order, chosen, generator(seed, Stream.PROBE, number), even=True)


def shifted_by_own(
    problem: NetworkProblem, state: State, order: tuple[str, ...], seed: int, number: int
) -> State | None:
    """The same where some hold much less than others, each moved by what one of its own elements could tell.

    By that of an average element a light one would be thrown out of the data: a way on for many components, none for two.
    """
    chosen = _chosen(problem, state)
    held = [part.reshape(-1, part.shape[-1]).sum(0) for part in chosen.values()]
    if all(part.min() > UNEQUAL * part.mean() for part in held):
        return None
    return _shifted_by(problem, state, order, chosen, generator(seed, Stream.PROBE, number, 2))


def _chosen(problem: NetworkProblem, state: State) -> dict[str, npt.NDArray[np.float64]]:
    """Memberships by hidden category."""
    blocks = problem.blocks
    return {g: memberships(blocks[g].family, state.mu[g]) for g in problem.plan.merging if g in state.mu}


def memberships(family: Any, moments: Stats) -> npt.NDArray[np.float64]:
    """Probabilities of the categories of q along the last axis; those of 0 and 1 of a coin, which has no such axis."""
    chosen = np.asarray(moments[0], np.float64)
    return chosen if family.stat_ndims[0] else np.stack([1.0 - chosen, chosen], axis=-1)


def _shifted_by(
    problem: NetworkProblem,
    state: State,
    order: tuple[str, ...],
    chosen: dict[str, npt.NDArray[np.float64]],
    rng: np.random.Generator,
    even: bool = False,
) -> State | None:
    shifted = moved_apart(problem, state, chosen, rng, even=even)
    if shifted is None:
        return None
    for gate in (name for name in order if name in chosen):
        block = problem.blocks[gate]
        # The components would be drawn back by memberships that were not told.
        shifted, _ = problem.step_block(block, shifted, problem.target(block, shifted), 1.0)
    return shifted


def moved_apart(
    problem: NetworkProblem,
    state: State,
    chosen: dict[str, npt.NDArray[np.float64]],
    rng: np.random.Generator,
    times: float = 1.0,
    even: bool = False,
) -> State | None:
    """A state whose components are moved, given memberships by category that stand for ``times`` as many; None if none can be.

    With ``even`` all are moved as if they had equally many elements.
    """
    gates, lam, mu, moved = problem.plan.merging, dict(state.lam), dict(state.mu), set[str]()
    for gate in sorted(chosen):
        for name, axis in sorted({(name, axis) for _, name, axis in gates[gate] if name in state.lam}):
            if name in moved:
                continue
            block = problem.blocks[name]
            children = _children(times * chosen[gate], block.shape, axis, even)
            new = _shifted(block.family, lam[name], axis, children, rng)
            if new is not None:
                lam[name], mu[name] = new, problem.moments(block, new)
                moved.add(name)
    return state._replace(lam=lam, mu=mu) if moved else None


def split_components(
    problem: NetworkProblem, state: State, order: tuple[str, ...], seed: int, number: int
) -> State | None:
    """The lightest component of a category in the place of the heaviest, and the two moved apart as in `shifted_components`.

    A component that holds nothing has its prior, from where it meets the data by chance only.
    """
    found = put_beside(problem, state, _chosen(problem, state), generator(seed, Stream.PROBE, number, 1))
    if found is None:
        return None
    split, pairs = found
    for gate in (name for name in order if name in pairs):
        split = _as_likely(problem, split, gate, *pairs[gate])
    return split


def put_beside(
    problem: NetworkProblem,
    state: State,
    chosen: dict[str, npt.NDArray[np.float64]],
    rng: np.random.Generator,
    times: float = 1.0,
) -> tuple[State, dict[str, tuple[int, int]]] | None:
    """A state with the lightest component of each category beside the heaviest, and who these are; None if nobody is light.

    Memberships by category stand for ``times`` as many.
    """
    gates, lam, mu, moved = problem.plan.merging, dict(state.lam), dict(state.mu), set[str]()
    pairs: dict[str, tuple[int, int]] = {}
    for gate in sorted(chosen):
        held = times * chosen[gate].reshape(-1, chosen[gate].shape[-1]).sum(0)
        if held.min() > LIGHT * held.mean():
            continue
        heavy, light = pairs[gate] = int(held.argmax()), int(held.argmin())
        for name, axis in sorted({(name, axis) for _, name, axis in gates[gate] if name in state.lam}):
            if name in moved or heavy == light or problem.blocks[name].shape[axis] != len(held):
                continue
            twice = tuple(np.take(np.asarray(part), [heavy] * 2, axis=axis) for part in lam[name])
            apart = _shifted(problem.blocks[name].family, twice, axis, np.array(max(1.0, held[heavy])), rng)
            lam[name] = _put(lam[name], twice if apart is None else apart, [heavy, light], axis)
            mu[name] = problem.moments(problem.blocks[name], lam[name])
            moved.add(name)
    return (state._replace(lam=lam, mu=mu), pairs) if moved else None


def _as_likely(problem: NetworkProblem, state: State, gate: str, heavy: int, light: int) -> State:
    """Memberships given the components as they are now, as if the two were as likely; then the probabilities given these."""
    block = problem.blocks[gate]
    target, own = problem.target(block, state), problem.target(block, state, (gate,))
    even = []
    for number, part in enumerate(np.array(p) for p in own):
        if block.family.stat_ndims[0] == 0:  # a coin: log-odds of zero
            part[...] = 0.0
        else:
            part[..., light] = part[..., heavy]
        if number == 2:  # the transitions of a chain
            part[..., light, :] = part[..., heavy, :]
        even.append(part)
    goal = tuple(np.asarray(t) - np.asarray(o) + e for t, o, e in zip(target, own, even, strict=True))
    state, _ = problem.step_block(block, state, goal, 1.0)
    for parent in problem.plan.parents_of(gate):
        if parent in problem.blocks:
            above = problem.blocks[parent]
            state, _ = problem.step_block(above, state, problem.target(above, state), 1.0)
    return state


def _children(
    chosen: npt.NDArray[np.float64], shape: tuple[int, ...], axis: int, even: bool
) -> npt.NDArray[np.float64]:
    """How many elements choose each component, along its axis."""
    held = chosen.reshape(-1, chosen.shape[-1]).sum(0)
    if even or len(held) != shape[axis]:  # or an axis of something else
        held = np.full(shape[axis], held.sum() / shape[axis])
    return np.asarray(np.maximum(1.0, held).reshape([-1 if place == axis else 1 for place in range(len(shape))]))


def _put(lam: Stats, rows: Stats, places: list[int], axis: int) -> Stats:
    """λ with some rows exchanged."""
    out = tuple(np.array(part) for part in lam)
    for part, new in zip(out, rows, strict=True):
        np.moveaxis(part, axis, 0)[places] = np.moveaxis(np.asarray(new), axis, 0)
    return out


def _shifted(family: Any, lam: Stats, axis: int, children: Any, rng: np.random.Generator) -> Stats | None:
    """λ of components with so many children each, moved; None for families that something else tells apart (precisions)."""
    lam = tuple(np.asarray(part) for part in lam)
    away = family.disturbance(lam, children, lambda shape: _noise(shape, axis, rng), rng)
    if away is None:
        return None
    return _centred(family, np.asarray(family.mean(lam)) + away, lam)


def _noise(shape: tuple[int, ...], axis: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Noise with mean zero and variance one along the components: two of them are never alike by chance."""
    noise = rng.standard_normal(shape)
    if shape[axis] == 1:
        return noise
    noise -= noise.mean(axis=axis, keepdims=True)
    return np.asarray(noise / noise.std(axis=axis, keepdims=True))


def _centred(family: Any, value: npt.NDArray[np.float64], lam: Stats) -> Stats:
    centre = family.centred(value, lam)
    return tuple(np.broadcast_to(c, part.shape) for c, part in zip(centre, lam, strict=True))


def probes_of(problem: NetworkProblem) -> tuple[Probe, ...]:
    """The ways that there are in a network: of those that hidden categories choose from, and of factors of products."""
    of_choices = (shifted_components, shifted_by_own, split_components, shares_anew) if problem.plan.choices else ()
    return (*of_choices, revived_factors) if problem.products else of_choices
