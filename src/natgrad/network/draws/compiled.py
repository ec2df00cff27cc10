"""Sweeps of Gibbs sampling of a small network, many in one call of one compiled loop.

An interpreted sweep of a small network is a hundred calls of NumPy for a few numbers each. Here the network is written out in
numbers once (`natgrad.network.draws.numbers`), and a loop that was compiled before, for all networks, draws from these. The law
of the chains is that of `natgrad.network.draws.gibbs`; their random numbers are others, functions of the seed, the chain and the
sweep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import BlockInfo, State
from natgrad.inference.steppers.stepper import StepInfo
from natgrad.kernels.network.gibbs import run_sweeps
from natgrad.network.compile.plan import Plan
from natgrad.network.draws.gibbs import Gibbs
from natgrad.network.draws.numbers import Group, Layout, Numbers, Unsuitable, written_in_numbers
from natgrad.network.execute.choice import make_backend
from natgrad.network.execute.program import Program
from natgrad.random import Stream, generator
from natgrad.threads import threads_for

__all__ = ["CompiledGibbs", "compiled_gibbs"]

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
    if weighted or gibbs.copies or gibbs.classes or gibbs.afresh or gibbs.exchanges:
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


class CompiledGibbs:
    """A stepper: some sweeps of all chains; states are those of `Gibbs`.

    Parameters
    ----------
    gibbs : Gibbs, whose sweeps these are
    numbers : Numbers, the network written out

    Attributes
    ----------
    ahead : int, sweeps in a step; 1 where somebody looks at every one
    """

    monotone, steps_per_pass, batches = False, 1, 1

    def __init__(self, gibbs: Gibbs, numbers: Numbers) -> None:
        self.gibbs, self.numbers, self.schedule, self.strides = gibbs, numbers, gibbs.schedule, gibbs.strides
        work = gibbs.chains * max(1, numbers.work)
        recorded = gibbs.chains * max(1, numbers.layout.n_values)
        self.ahead = max(1, min(MOST_WORK // work, MOST_RECORDED // recorded))

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """The next sweeps; those that count are kept."""
        gibbs, layout, schedule = self.gibbs, self.numbers.layout, self.schedule
        end = min(state.t + self.ahead, schedule.sweeps)
        stats, values, sums = self._packed(state.mu, state.memory)
        begun, done = schedule.done(state.t), schedule.done(end)
        kept = np.empty((gibbs.chains, done - begun, layout.n_values))
        moved, failed = np.zeros(gibbs.chains, np.int64), np.zeros(gibbs.chains, np.int64)
        key = generator(seed, Stream.DRAWS).integers(0, 2**64, dtype=np.uint64)
        with threads_for(gibbs.chains * (end - state.t) * self.numbers.work):
            run_sweeps(
                stats,
                values,
                sums,
                kept,
                moved,
                failed,
                self.numbers.tables,
                key,
                state.t,
                end,
                schedule.warmup,
                schedule.thin,
            )
        info = {name: BlockInfo(True, 0.0) for name in gibbs.problem.blocks}
        for operation in failed[failed >= 0].tolist():
            info[self.numbers.drawn[operation]] = BlockInfo(False, 0.0)
        read = StepInfo(info, float("nan"), (end - state.t) * gibbs.problem.n_messages, unbounded=True)
        if (failed >= 0).any():
            return state, read
        memory = {**state.memory, "relabelled": state.memory["relabelled"] + moved}
        mu, memory["values"], memory["sums"] = self._unpacked(stats, values, sums, state.memory)
        for name, stride in self.strides.items():
            self._keep(state.memory["kept"][name], kept, name, begun, stride)
        return State({}, mu, end, memory), read

    def finish(self, state: State) -> State:
        """The last sweep is a state like any other."""
        return state

    def _packed(self, mu: Mapping[str, Any], memory: Mapping[str, Any]) -> tuple[Array, Array, Array]:
        """Statistics, values and sums in one array each."""
        chains, layout = self.gibbs.chains, self.numbers.layout
        stats, values = np.ones((chains, layout.n_stats)), np.zeros((chains, layout.n_values))
        sums = np.zeros((chains, 2, layout.n_averages))
        for name, begin in layout.values.items():
            for number, part in enumerate(mu[name]):
                at = layout.stats[name, number]
                flat = np.asarray(part).reshape(chains, -1)
                stats[:, at : at + flat.shape[1]] = flat
            own = memory["values"][name].reshape(chains, -1)
            values[:, begin : begin + own.shape[1]] = own
            at = layout.averages[name]
            for number, total in enumerate(memory["sums"][name]):
                if total.shape == memory["sums"][name][0].shape:  # of categories there is one
                    flat = total.reshape(chains, -1)
                    sums[:, number, at : at + flat.shape[1]] = flat
        return stats, values, sums

    def _unpacked(self, stats: Array, values: Array, sums: Array, memory: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """The same by name, in the shapes that they had."""
        chains, layout = self.gibbs.chains, self.numbers.layout
        mu, own, totals = {}, {}, {}
        for name, begin in layout.values.items():
            parts = []
            for number, shape in enumerate(layout.stat_shapes[name]):
                at = layout.stats[name, number]
                parts.append(stats[:, at : at + math.prod(shape)].reshape(chains, *shape))
            mu[name] = tuple(parts)
            before = memory["values"][name]
            own[name] = values[:, begin : begin + before[0].size].reshape(before.shape).astype(before.dtype, copy=False)
            at, pair = layout.averages[name], memory["sums"][name]
            flat = [sums[:, n, at : at + pair[0][0].size].reshape(pair[0].shape) for n in (0, 1)]
            totals[name] = flat[0], flat[1] if pair[1].shape == pair[0].shape else pair[1]
        return mu, own, totals

    def _keep(self, room: Array, kept: Array, name: str, begun: int, stride: int) -> None:
        """Draws ``begun, begun + 1, …`` of a block where they belong, every ``stride``-th."""
        begin = self.numbers.layout.values[name]
        skipped = -begun % stride
        part = kept[:, skipped::stride, begin : begin + math.prod(room.shape[2:])]
        first = (begun + skipped) // stride
        room[:, first : first + part.shape[1]] = part.reshape(*part.shape[:2], *room.shape[2:])
