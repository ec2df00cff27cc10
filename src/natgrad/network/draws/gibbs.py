"""Sweeps of Gibbs sampling as steps of the loop: the values of all hidden nodes in, each drawn anew given the others, out.

P, the expected log joint, at the statistics of values is the log joint itself, and affine in the statistics of one element. So
the complete conditional of a block has the natural parameter ∂P/∂μ_i at the statistics φ_j(x_j) of the values of its neighbours:
the target of variational inference, with values in the place of expectations. Elements that meet in a child go in turn, as there:
column after column, colour after colour. Gaussian nodes that meet are drawn together (`natgrad.network.draws.gaussian`), and
precisions of theirs with them (`natgrad.network.draws.scales`).

Chains are an axis of every array, and random numbers those of one generator for all: a sweep of a hundred chains of a small
network takes little longer than one of four.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, BlockInfo, State
from natgrad.inference.steppers.gibbs import Schedule, drawn_point, keep_draw, no_moves, point_stats, room_for
from natgrad.inference.steppers.stepper import StepInfo
from natgrad.network.draws.gaussian import GaussianDraw, drawn_together
from natgrad.network.draws.labels import Exchange, Relabelling, exchange_labels
from natgrad.network.draws.scales import ScaleDraw, scales_of
from natgrad.network.draws.softmax import ClassWeights, auxiliaries, class_weights_of
from natgrad.network.draws.weights import Copies, copies_of
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.execute.updates import choose, take_column
from natgrad.network.execute.written_out import Writer
from natgrad.random import Stream, generator

__all__ = ["Gibbs", "Schedule", "point_stats"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]


class Gibbs:
    """A stepper: one sweep of all chains.

    The state of a chain is in ``State.mu`` (statistics of the values) and in the memory: ``values`` as they are, ``sums`` of what
    is averaged, ``kept`` draws [chain, draw, …] and how often labels were put back. Kept draws are written where they belong as
    they come; those of sweeps after ``State.t`` do not count.

    Parameters
    ----------
    problem : NetworkProblem, with chains (`natgrad.network.draws.chains`)
    schedule : Schedule
    strides : {node: every how many draws one is kept}; a node that is not there keeps none
    relabel : Relabelling, optional
    exchanges : moves that have labels change places, before every sweep
    """

    monotone, steps_per_pass, batches = False, 1, 1

    def __init__(
        self,
        problem: NetworkProblem,
        schedule: Schedule,
        strides: Mapping[str, int],
        relabel: Relabelling | None = None,
        together: bool = True,
        exchanges: Sequence[Exchange] = (),
    ) -> None:
        self.problem, self.schedule, self.strides, self.relabel = problem, schedule, strides, relabel
        self.exchanges = exchanges
        self.chains = next(iter(problem.blocks.values())).shape[0]
        self.classes: list[ClassWeights] = class_weights_of(problem)
        self.afresh = auxiliaries(self.classes)
        by_class = {name for weights in self.classes for name in weights.readers}
        self.groups: Sequence[GaussianDraw] = drawn_together(problem, by_class) if together else []
        self.copies: dict[str, Copies] = copies_of(problem.plan, self.afresh)
        self.scales: dict[GaussianDraw, list[ScaleDraw]] = {}
        for group in self.groups:
            taken = [scale.name for scales in self.scales.values() for scale in scales]
            self.scales[group] = scales_of(problem, group, [*taken, *self.copies])
        self._group_of = {name: group for group in self.groups for name in group.names}
        self._with_group = {scale.name for scales in self.scales.values() for scale in scales}
        self._writer: Writer | None = None
        self.sizes = {name: problem.plan.nodes[name].size for name in problem.blocks}
        self._near = {name: (name, *sorted(problem.neighbours(name))) for name in problem.blocks}

    # -- the start --

    def start(self, lam: Mapping[str, Stats] | Sequence[Mapping[str, Stats]], seed: int) -> State:
        """Every chain at a draw of its own from factors with these natural parameters; of several, in turn."""
        begins = lam if isinstance(lam, Sequence) else [lam]
        turn = [begins[chain % len(begins)] for chain in range(self.chains)]
        rng = generator(seed, Stream.DRAWS)
        stats: dict[str, Stats] = {}
        values: dict[str, Array] = {}
        sums: dict[str, tuple[Array, Array]] = {}
        for name, block in self.problem.blocks.items():
            if name in self.afresh:
                values[name] = np.zeros(block.shape)
                stats[name] = point_stats(block.family, values[name], self.sizes[name])
                continue
            wide = tuple(np.broadcast_to(part, (self.chains, *np.shape(part))) for part in turn[0][name])
            if len(begins) > 1:
                wide = tuple(np.stack(parts) for parts in zip(*(own[name] for own in turn), strict=True))
            with np.errstate(all="ignore"):
                values[name], stats[name] = self._drawn(block, wide, rng)
                first, second = self._summand(block, wide, values[name])
            sums[name] = np.zeros_like(first), np.zeros_like(second)
        kept = room_for(values, self.strides, self.schedule)
        return State({}, stats, 0, {"values": values, "sums": sums, "kept": kept, **no_moves(self.chains)})

    # -- a sweep --

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Every block once; then, if the sweep counts, its values are kept."""
        rng = generator(seed, Stream.DRAWS, 1 + state.t)
        counts = self.schedule.number(state.t) is not None
        stats, values = dict(state.mu), dict(state.memory["values"])
        first: dict[str, Array] = {}
        second: dict[str, Array] = {}
        info: dict[str, BlockInfo] = {}
        with np.errstate(all="ignore"):
            exchanged = exchange_labels(self.exchanges, stats, values, seed, state.t)
            for name, block in self.problem.blocks.items():
                if name in info or name in self._with_group or name in self.afresh:
                    continue
                if name in self._group_of:
                    info.update(self._together(self._group_of[name], stats, values, first, second, rng))
                    continue
                lam, values[name], stats[name], good = self._in_turn(block, stats, values[name], rng)
                info[name] = BlockInfo(good, 0.0)
                if good and counts:
                    first[name], second[name] = self._summand(block, lam, values[name])
        if not all(bool(entry.valid) for entry in info.values()):
            return state, StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
        memory = {**state.memory, "values": values, "exchanged": state.memory["exchanged"] + exchanged}
        if self.relabel is not None:
            moved = self.relabel.put_back(stats, values, first, second)
            memory |= {"values": values, "relabelled": state.memory["relabelled"] + moved}
        keep_draw(memory, self.schedule, self.strides, state.t, first, second)
        done = StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
        return State({}, stats, state.t + 1, memory), done

    def _together(
        self, group: GaussianDraw, stats: dict[str, Stats], values: dict[str, Array], first: dict[str, Array],
        second: dict[str, Array], rng: np.random.Generator,
    ) -> dict[str, BlockInfo]:  # fmt: skip
        """A group of Gaussian nodes, in place, after the precisions that are drawn with them."""
        info = {}
        x: Array | None = None
        for scale in self.scales[group]:
            n = scale.name
            together = scale.sample(stats, values[n], self.conditional, rng)
            if together is None:
                return {n: BlockInfo(False, 0.0)}
            values[n], sample = together
            stats[n] = point_stats(self.problem.blocks[n].family, values[n], self.sizes[n])
            first[n], second[n], info[n] = values[n], values[n] ** 2, BlockInfo(bool(np.isfinite(values[n]).all()), 0.0)
        if info:
            x = sample(rng)  # at the last one, given the others
        drawn, good = group.sample(stats, rng) if x is None else group.named(x)
        for n, value in drawn.items():
            values[n], stats[n] = value, point_stats(self.problem.blocks[n].family, value, self.sizes[n])
            first[n], second[n] = value, value**2
        return info | {n: BlockInfo(good, 0.0) for n in group.names}

    def finish(self, state: State) -> State:
        """The last sweep is a state like any other."""
        return state

    def conditional(self, block: Block, stats: Mapping[str, Stats], column: int | None = None) -> Stats:
        """The natural parameter of a block given the values of the others; of one column, if they go in turn."""
        if column is None and self.problem.interpreter is not None and not self._is_weighted(block):
            if self._writer is None:
                self._writer = Writer(self.problem.program, self.problem.known_arrays, (self.chains,))
            return self._writer.target_of(block, None)(stats)
        function = self.problem.compiled(("conditional", block.name, column is not None), partial(self._build, block))
        near = {name: stats[name] for name in self._near[block.name]}
        lam = function(near, None if column is None else np.int32(column))
        return tuple(np.asarray(part) for part in lam)

    def _is_weighted(self, block: Block) -> bool:
        return any(plate in self.problem.plan.weights for plate in block.plates)

    def _build(self, block: Block) -> Callable[..., Any]:
        def function(stats: Any, column: Any, known: Any) -> Stats:
            return self.problem.program.target(block, stats, known, column=column)

        return function

    def _in_turn(
        self, block: Block, stats: Mapping[str, Stats], value: Array, rng: np.random.Generator
    ) -> tuple[Stats, Array, Stats, bool]:
        """Conditionals, values and statistics of a block; the conditional of each element is that at its turn."""
        on, name, here = self.problem.backend, block.name, dict(stats)
        weights = [entry for entry in self.classes if name in entry.readers]
        if block.n_columns == 1:
            for entry in weights:
                entry.refresh(here, None, rng)
            lam = self.conditional(block, here)
            good = bool(np.all(block.family.valid(lam)))
            drawn, fresh = self._drawn(block, lam, rng) if good else (value, stats[name])
            return lam, drawn, fresh, good
        lam, good = tuple(np.zeros_like(part) for part in stats[name]), True
        for number in range(block.n_columns):
            for entry in weights:
                entry.refresh(here, None if block.column_axis is None else number, rng)
            if block.column_axis is not None:
                new = self.conditional(block, here, number)
                cut = tuple(np.zeros(part.shape) for part in take_column(on, block, stats[name], number))
                new = tuple(np.broadcast_to(part, zero.shape) for part, zero in zip(new, cut, strict=True))
                good = good and bool(np.all(block.family.valid(new)))
                if not good:
                    break
                drawn, fresh = self._drawn(block, new, rng)
                lam = _put(block, lam, new, number)
                value = _put(block, (value,), (drawn,), number)[0]
                here[name] = _put(block, here[name], fresh, number)
            else:
                assert block.colours is not None
                new = self.conditional(block, here)
                chosen = block.colours == number
                good = good and bool(np.all(block.family.valid(new)))
                if not good:
                    break
                drawn, fresh = self._drawn(block, new, rng)
                here[name] = choose(on, block, chosen, fresh, here[name])
                lam = choose(on, block, chosen, new, lam)
                value = np.where(chosen.reshape(chosen.shape + (1,) * (value.ndim - chosen.ndim)), drawn, value)
        return lam, value, here[name], good

    def _drawn(self, block: Block, lam: Stats, rng: np.random.Generator) -> tuple[Array, Stats]:
        """Values of a block, of all chains, and their statistics."""
        if block.name in self.copies:
            copies, size = self.copies[block.name], self.sizes[block.name]
            if block.family.name == "Categorical":  # all chains at once
                stats = copies.drawn(block.family, lam, rng, size)
                return stats[0], stats
            parts = [tuple(part[chain] for part in lam) for chain in range(self.chains)]
            by_chain = [copies.drawn(block.family, own, rng, size) for own in parts]
            stats = tuple(np.stack(entries) for entries in zip(*by_chain, strict=True))
            return stats[0], stats
        return drawn_point(block.family, lam, rng, self.sizes[block.name])

    def _summand(self, block: Block, lam: Stats, value: Array) -> tuple[Array, Array]:
        """What is averaged over the draws: the mean and the second moment of the conditional, which vary less than its values.

        Of a chain of states the values themselves: their probabilities would take another pass along it.
        """
        family = block.family
        if family.name == "MarkovChain":
            copied = block.name in self.copies  # whose value is an average of statistics already
            return value if copied else np.eye(self.sizes[block.name] or 0)[value], np.zeros(1)
        mean = family.mean(lam)
        if family.name == "Categorical":
            return mean, np.zeros(1)
        return mean, family.var(lam) + mean**2


def _put(block: Block, arrays: Stats, pieces: Stats, number: int) -> Stats:
    updated = []
    for array, piece in zip(arrays, pieces, strict=True):
        new = np.array(array)
        new[(slice(None),) * (block.column_axis or 0) + (number,)] = piece
        updated.append(new)
    return tuple(updated)
