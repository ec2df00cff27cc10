"""Before a run may say that it has converged it looks whether it sits on a saddle.

A stationary point of coordinate ascent may be a saddle: components that have merged, factors that were switched off. Leaving one
is slow and then fast, or never happens, and no gain tells. So when a run has settled, every probe is asked for another state to
try from,

    probe(problem, state, order, seed) → state or None

a function of these alone, None where it knows of nothing to try. The run's own steps go on from there until it is clear where
they lead. If that is higher than where the run had settled, the run goes on from it; otherwise it ends with the state that it
had. What was read is counted. `PROBES` are asked in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Problem, State
from natgrad.inference.steppers.sampled import StepInfo, Stepper
from natgrad.inference.stopping import left_to_gain
from natgrad.network.start.clusters import choices_of
from natgrad.network.start.revival import revived_factors
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["PROBES", "Probe", "Trial", "shifted_components", "split_components", "tried"]

Probe = Callable[[Problem, State, tuple[str, ...], int], State | None]
Stats = tuple[Any, ...]
# Passes of a trial before it is given up, if it is not clear sooner where it leads.
LONGEST = 40
# How far simplices are moved towards a draw, and the logarithms of rates.
SHARE, SPREAD = 0.5, 0.5


class Trial(NamedTuple):
    """Where a trial ended: the state and its step, whether that is higher than the run had come, and what it read."""

    state: State
    info: StepInfo
    higher: bool
    accesses: int


def tried(
    problem: Problem, stepper: Stepper, settled: State, bound: float, order: tuple[str, ...], seed: int, tol: float
) -> tuple[Trial, ...]:
    """The trials of all probes, up to the first that leads higher than the settled state by more than ``tol``.

    ``settled`` is a complete state, as a stepper's ``finish`` gives it.
    """
    trials: list[Trial] = []
    settled = settled._replace(memory={})
    for probe in PROBES:
        start = probe(problem, settled, order, seed)
        if start is not None:
            trials.append(_followed(stepper, start, bound, seed, tol))
            if trials[-1].higher:
                break
    return tuple(trials)


def _followed(stepper: Stepper, state: State, goal: float, seed: int, tol: float) -> Trial:
    """Steps from a state until the bound is higher than the goal, or it is clear that it will not be."""
    bounds: list[float] = []
    accesses = 0
    margin = max(tol, 1e-12 * abs(goal))
    for number in range(1, LONGEST * stepper.steps_per_pass + 1):
        state, info = stepper.step(state, seed)
        accesses += info.accesses
        if not all(bool(block.valid) for block in info.blocks.values()):
            break
        if info.bound is None:
            continue
        if math.isnan(info.bound):
            break
        bounds.append(info.bound)
        if number % stepper.steps_per_pass:
            continue
        if info.bound > goal + margin:
            return Trial(state, info, True, accesses)
        left = left_to_gain(bounds, stepper.steps_per_pass)
        if left is not None and info.bound + left.gain <= goal + margin:
            break
    return Trial(state, info, False, accesses)


# -- components of mixtures and chains --


def shifted_components(problem: Problem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """The components that hidden categories choose from, each moved by what a single child of its could tell of it.

    A mean is moved by the spread of its children, not by its own uncertainty: merged components with many children are held
    together so tightly that a small difference between them grows by almost nothing in a sweep.
    """
    if not hasattr(problem, "plan"):
        return None
    network = cast("NetworkProblem", problem)
    rng = generator(seed, Stream.PROBE, state.t)
    lam, mu = dict(state.lam), dict(state.mu)
    gates = choices_of(network)
    moved: set[str] = set()
    for gate in sorted(set(gates) & set(problem.blocks)):
        chosen = np.asarray(state.mu[gate][0])
        for name, axis in sorted({(name, axis) for _, name, axis in gates[gate] if name in problem.blocks}):
            if name in moved:
                continue
            children = max(1.0, chosen.size / chosen.shape[-1] / problem.blocks[name].shape[axis])
            new = _shifted(problem.blocks[name].family, lam[name], axis, children, rng)
            if new is not None:
                lam[name], mu[name] = new, problem.moments(problem.blocks[name], new)
                moved.add(name)
    if not moved:
        return None
    shifted = state._replace(lam=lam, mu=mu)
    for gate in (name for name in order if name in gates):
        block = problem.blocks[gate]
        # The components would be drawn back by memberships that were not told.
        shifted, _ = problem.advance(block, shifted, problem.target(block, shifted), 1.0)
    return shifted


def split_components(problem: Problem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """The lightest component of every category in the place of the heaviest, and the two moved apart as in `shifted_components`.

    A component that holds nothing has its prior, from where it meets the data by chance only.
    """
    if not hasattr(problem, "plan"):
        return None
    network = cast("NetworkProblem", problem)
    rng = generator(seed, Stream.PROBE, state.t, 1)
    gates = choices_of(network)
    lam, mu, moved = dict(state.lam), dict(state.mu), set[str]()
    pairs: dict[str, tuple[int, int]] = {}
    for gate in sorted(set(gates) & set(problem.blocks)):
        chosen = np.asarray(state.mu[gate][0])
        held = chosen.reshape(-1, chosen.shape[-1]).sum(0)
        heavy, light = pairs[gate] = int(held.argmax()), int(held.argmin())
        for name, axis in sorted({(name, axis) for _, name, axis in gates[gate] if name in problem.blocks}):
            if name in moved or heavy == light or problem.blocks[name].shape[axis] != len(held):
                continue
            twice = tuple(np.take(np.asarray(part), [heavy] * 2, axis=axis) for part in lam[name])
            apart = _shifted(problem.blocks[name].family, twice, axis, max(1.0, held[heavy]), rng)
            lam[name] = _put(lam[name], twice if apart is None else apart, [heavy, light], axis)
            mu[name] = problem.moments(problem.blocks[name], lam[name])
            moved.add(name)
    if not moved:
        return None
    split = state._replace(lam=lam, mu=mu)
    for gate in (name for name in order if name in pairs):
        split = _as_likely(network, split, gate, *pairs[gate])
    return split


def _as_likely(problem: NetworkProblem, state: State, gate: str, heavy: int, light: int) -> State:
    """Memberships given the components as they are now, as if the two were as likely; then the probabilities given these."""
    block = problem.blocks[gate]
    target, own = problem.target(block, state), problem.target(block, state, (gate,))
    even = []
    for number, part in enumerate(np.array(p) for p in own):
        part[..., light] = part[..., heavy]
        if number == 2:  # the transitions of a chain
            part[..., light, :] = part[..., heavy, :]
        even.append(part)
    goal = tuple(np.asarray(t) - np.asarray(o) + e for t, o, e in zip(target, own, even, strict=True))
    state, _ = problem.advance(block, state, goal, 1.0)
    for parent in problem.plan.nodes[gate].parents():
        if parent.name in problem.blocks:
            above = problem.blocks[parent.name]
            state, _ = problem.advance(above, state, problem.target(above, state), 1.0)
    return state


def _put(lam: Stats, rows: Stats, places: list[int], axis: int) -> Stats:
    """λ with some rows exchanged."""
    out = tuple(np.array(part) for part in lam)
    for part, new in zip(out, rows, strict=True):
        np.moveaxis(part, axis, 0)[places] = np.moveaxis(np.asarray(new), axis, 0)
    return out


def _shifted(family: Any, lam: Stats, axis: int, children: float, rng: np.random.Generator) -> Stats | None:
    """λ of the components, moved; None for families whose members are told apart by something else (precisions)."""
    lam = tuple(np.asarray(part) for part in lam)
    mean = np.asarray(family.mean(lam))
    if family.name == "Normal":
        away = np.sqrt(children * family.var(lam)) * _noise(mean.shape, axis, rng)
    elif family.name == "MultivariateNormal":
        factor = np.swapaxes(np.linalg.cholesky(-2.0 * lam[1] / children), -1, -2)
        away = np.linalg.solve(factor, _noise(mean.shape, axis, rng)[..., None])[..., 0]
    elif family.name == "Gamma":
        away = mean * np.expm1(SPREAD * _noise(mean.shape, axis, rng))
    elif family.name == "Dirichlet":
        drawn = rng.standard_exponential(mean.shape)
        away = SHARE * (drawn / drawn.sum(-1, keepdims=True) - mean)
    elif family.name == "Beta":
        away = SHARE * (rng.random(mean.shape) - mean)
    else:
        return None
    return _centred(family, mean + away, lam)


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


PROBES: list[Probe] = [shifted_components, split_components, revived_factors]
