"""Run chains of draws of a fit, and draw new data from them.

Small networks take many sweeps in one call of a compiled loop. An interpreted sweep of a small network is a hundred calls of
NumPy for a few numbers each. Here the network is written out in numbers once (`natgrad.network.draws.numbers`), and a loop
that was compiled before, for all networks, draws from these. The law of the chains is that of `natgrad.network.draws.gibbs`;
their random numbers are others, functions of the seed, the chain and the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate
from natgrad.inference.options import CheckpointOptions
from natgrad.inference.problem import BlockInfo, State
from natgrad.inference.steppers.gibbs import Schedule, moves_of
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.kernels.network.gibbs import run_sweeps
from natgrad.network.compile.plan import Plan, make_plan
from natgrad.network.draws.gibbs import Gibbs, sampler_of
from natgrad.network.draws.numbers import Group, Layout, Numbers, Unsuitable, written_in_numbers
from natgrad.network.execute.backend import BackendName, make_backend
from natgrad.network.execute.program import Program
from natgrad.network.language.expressions import CATEGORY
from natgrad.network.language.missing import seen_values
from natgrad.network.results.arviz_groups import network_groups
from natgrad.network.results.predictive import Predictive, make_predictive
from natgrad.posterior.drawing import MOST_KEPT, draws_so_far, run_chains, schedule_of, stride_of
from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings
from natgrad.posterior.export import listed
from natgrad.random import Stream, generator
from natgrad.threads import threads_for

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit

__all__ = ["CompiledGibbs", "attached", "compiled_gibbs", "draw_posterior", "predictive_of_draws"]

Array = npt.NDArray[Any]
# Draws of blocks in a run below which the interpreter is done before the loop is read from disk. Products in a call of the loop,
# half a second of them, and numbers that it may keep.
FEWEST_DRAWS, MOST_WORK, MOST_RECORDED = 500, 200_000_000, 4_000_000


def compiled_gibbs(gibbs: Gibbs, plan: Plan, start: State, fewest: int = FEWEST_DRAWS) -> CompiledGibbs | None:
    """The same sweeps compiled; None where a network is not suited, or a run too short.

    Parameters
    ----------
    gibbs : Gibbs
    plan : Plan, without chains
    start : State, of ``gibbs``
    fewest : int, draws of blocks in a run that is not too short
    """
    if gibbs.schedule.sweeps * len(plan.blocks) < fewest:
        return None
    weighted = any(plate in plan.weights for block in plan.blocks.values() for plate in block.plates)
    if weighted or gibbs.copies or gibbs.classes or gibbs.redrawn or gibbs.exchanges:
        return None
    values = {name: value.shape[1:] for name, value in start.memory["values"].items()}
    averages = {name: pair[0].shape[1:] for name, pair in start.memory["sums"].items()}
    groups = [Group(g.names, tuple(scale.name for scale in gibbs.scales[g])) for g in gibbs.groups]
    try:
        layout = Layout(plan, values, averages)
        numbers = written_in_numbers(Program(plan, make_backend("numpy")), groups, layout, gibbs.relabel)
    except Unsuitable:
        return None
    return CompiledGibbs(gibbs, numbers)


class CompiledGibbs(Stepper):
    """A stepper: some sweeps of all chains; states are those of `Gibbs`.

    Parameters
    ----------
    gibbs : Gibbs, whose sweeps these are
    numbers : Numbers, the network written out

    Attributes
    ----------
    ahead : int, sweeps in a step; 1 where callbacks or checkpoints see every one
    """

    monotone = False

    def __init__(self, gibbs: Gibbs, numbers: Numbers) -> None:
        self.gibbs, self.numbers, self.schedule, self.strides = gibbs, numbers, gibbs.schedule, gibbs.strides
        work = gibbs.chains * max(1, numbers.work)
        recorded = gibbs.chains * max(1, numbers.layout.n_values)
        self.ahead = max(1, min(MOST_WORK // work, MOST_RECORDED // recorded))

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """The next sweeps; those that count are kept."""
        gibbs, layout, schedule = self.gibbs, self.numbers.layout, self.schedule
        end = min(state.t + self.ahead, schedule.sweeps)
        stats, values = np.ones((gibbs.chains, layout.n_stats)), np.zeros((gibbs.chains, layout.n_values))
        sums = np.zeros((gibbs.chains, 2, layout.n_averages))
        views = {name: layout.views(stats, values, sums, name) for name in layout.values}
        for name, (parts, value, total) in views.items():
            for part, known in zip(parts, state.mu[name], strict=True):
                part[...] = known
            value[...] = state.memory["values"][name]
            first, second = state.memory["sums"][name]
            total[:, 0] = first
            if second.shape == first.shape:  # of categories there is one
                total[:, 1] = second
        begun, done = schedule.done(state.t), schedule.done(end)
        kept = np.empty((gibbs.chains, done - begun, layout.n_values))
        moved, failed = np.zeros(gibbs.chains, np.int64), np.zeros(gibbs.chains, np.int64)
        key = generator(seed, Stream.DRAWS).integers(0, 2**64, dtype=np.uint64)
        with threads_for(gibbs.chains * (end - state.t) * self.numbers.work):
            run_sweeps(
                stats, values, sums, kept, moved, failed, self.numbers.tables, key, state.t, end, schedule.warmup,
                schedule.thin,
            )  # fmt: skip
        info = {name: BlockInfo(True, 0.0) for name in gibbs.problem.blocks}
        for operation in failed[failed >= 0].tolist():
            info[self.numbers.drawn[operation]] = BlockInfo(False, 0.0)
        read = StepInfo(info, float("nan"), (end - state.t) * gibbs.problem.n_messages, unbounded=True)
        if (failed >= 0).any():
            return state, read
        memory = {**state.memory, "relabelled": state.memory["relabelled"] + moved}
        memory["values"] = {n: v.astype(state.memory["values"][n].dtype, copy=False) for n, (_, v, _) in views.items()}
        memory["sums"] = {}
        for name, (_, _, total) in views.items():
            first, second = state.memory["sums"][name]
            memory["sums"][name] = total[:, 0], total[:, 1] if second.shape == first.shape else second
        for name, stride in self.strides.items():
            self._keep(state.memory["kept"][name], kept, name, begun, stride)
        return State({}, {name: parts for name, (parts, _, _) in views.items()}, end, memory), read

    def _keep(self, room: Array, kept: Array, name: str, begun: int, stride: int) -> None:
        """Draws ``begun, begun + 1, …`` of a block where they belong, every ``stride``-th."""
        begin = self.numbers.layout.values[name]
        skipped = -begun % stride
        part = kept[:, skipped::stride, begin : begin + math.prod(room.shape[2:])]
        first = (begun + skipped) // stride
        room[:, first : first + part.shape[1]] = part.reshape(*part.shape[:2], *room.shape[2:])


def predictive_of_draws(
    plan: Plan, draws: Draws, name: str, sizes: Mapping[Any, int], slots: Mapping[str, Any]
) -> Predictive:
    """As `make_predictive`, with draws of the posterior in the place of q: parents are at values that were drawn together."""
    return replace(make_predictive(plan, {}, name, sizes, slots), draws=draws, origins={}, members={})


def draw_posterior(
    fit: Fit,
    n: int = 1000,
    chains: int = 4,
    warmup: int | None = None,
    thin: int = 1,
    seed: int = 0,
    names: Sequence[str] | None = None,
    backend: BackendName | None = None,
    max_seconds: float | None = None,
    callbacks: Sequence[Any] = (),
    verbose: bool | None = None,
    keep: CheckpointOptions | None = None,
    begins: Sequence[Fit] = (),
    notes: Sequence[str] = (),
) -> Draws:
    """Gibbs sampling from the declaration of a fit; arguments are those of ``Fit.draws``.

    ``begins`` are fits at which chains begin in turn, this one by default; ``notes`` go into the message of the draws.
    """
    schedule, settings = schedule_of(n, chains, warmup, thin, seed)
    plan = fit.problem.plan
    for name, block in plan.blocks.items():
        if block.family.is_bound:
            raise NotConjugate(
                f"draws: the concentration of {name.removesuffix('.bound')!r} is learned by a bound of its normaliser, which has "
                f"no conditional to draw from. {block.family.instead}"
            )
    moments = {name: fit.state.mu[name] for name in plan.blocks}
    gibbs, exact = sampler_of(plan, moments, chains, schedule, fit.problem.backend.name if backend is None else backend)
    asked = {fit[name].name for name in listed(names)}  # whose error says which there are
    if lost := sorted(asked & gibbs.redrawn):
        raise ValueError(
            f"draws of {lost[0]!r} cannot be kept: it is drawn afresh for each class of a softmax, and not a part of a draw"
        )
    gibbs.strides = _strides(gibbs, fit, schedule, chains, asked)
    start = gibbs.start([begin.state.lam for begin in begins or (fit,)], settings.seed)
    quick = compiled_gibbs(gibbs, exact, start) if backend is None else None
    about = {"names": sorted(asked), "backend": "compiled sweeps" if quick else gibbs.problem.backend.name}
    if quick and (callbacks or (keep or {}).get("checkpoint")):
        quick.ahead = 1
    return run_chains(
        gibbs.problem, quick or gibbs, start, settings, about, lambda state: _collected(fit, gibbs, state, settings, notes),
        max_seconds=max_seconds, callbacks=callbacks, verbose=verbose, keep=keep,
    )  # fmt: skip


def _strides(gibbs: Gibbs, fit: Fit, schedule: Schedule, chains: int, asked: set[str]) -> dict[str, int]:
    """Every how many draws of each node one is kept: powers of two, so that those of the rarest are draws of all."""
    strides = {}
    for name in fit.problem.blocks:
        if fit.problem.plan.nodes[name].is_auxiliary and name not in asked:
            continue
        if name in gibbs.copies:
            if name in asked:
                raise ValueError(
                    f"draws of {name!r} cannot be kept: it lies on a plate with weights, and stands for several values at once"
                )
            continue
        family, shapes = fit.problem.blocks[name].family, fit.problem.plan.nodes[name].stat_shapes()
        numbers = math.prod(shapes[0][:-1] if family.is_category else shapes[0])
        strides[name] = 1 if name in asked else stride_of(numbers, schedule, chains, MOST_KEPT)
    return strides


def _collected(fit: Fit, gibbs: Gibbs, state: State, settings: DrawsSettings, notes: Sequence[str]) -> Draws:
    """What the draws up to a state say."""
    memory, made = state.memory, draws_so_far(gibbs.schedule, settings, state.t)
    factors, done = {}, made.n
    for name, block in fit.problem.blocks.items():
        if fit.problem.plan.nodes[name].is_auxiliary and name not in gibbs.strides:
            continue  # not asked for
        stride = gibbs.strides.get(name, 1)
        kept = memory["kept"][name][:, : -(-done // stride)] if name in gibbs.strides else None
        first, second = memory["sums"][name]
        node = fit.problem.plan.nodes[name]
        if node.is_observed and node.kind != CATEGORY:  # observed in part: what was seen is not drawn
            seen, values = seen_values(node)
            known = values if block.origin is None else values - block.origin
            kept = None if kept is None else np.where(seen, known, kept)
            first, second = np.where(seen, done * known, first), np.where(seen, done * known**2, second)
        factors[name] = DrawnFactor(name, block.family, block.plates, kept, first, second, done, stride, block.origin)
    return _of_network(fit.problem.plan, factors, made, *moves_of(memory), labels=fit._labels, notes=notes)


def _of_network(plan: Plan, *content: Any, **options: Any) -> Draws:
    """Draws that know their network, so that they predict, and have all groups of ArviZ."""
    predictive, groups = partial(predictive_of_draws, plan), partial(network_groups, plan)
    return Draws(*content, predictive=predictive, groups=groups, **options)


def attached(network: Any, draws: Draws) -> Draws:
    """Draws with the network that they are of."""
    plan = network.problem.plan
    if plan.members:  # draws are of the nodes that were declared
        plan = make_plan(list(plan.declared.values()))
    blocks = {name: block for name, block in plan.blocks.items() if not plan.nodes[name].is_auxiliary}
    if list(blocks) != list(draws) or any(draws[n].family != b.family for n, b in blocks.items()):
        raise ValueError(f"the network has hidden nodes {', '.join(blocks)}, and the draws {', '.join(draws)}")
    for name, block in blocks.items():
        if draws[name].first.shape[1 : 1 + len(block.shape)] != tuple(block.shape):
            raise ValueError(
                f"{name!r} has plates of sizes {tuple(block.shape)} in the network, and others in the draws"
            )
    return _of_network(plan, draws.factors, draws.settings, draws.relabelled, draws.exchanged, notes=draws.notes)
