"""Gibbs sampling as steps of the loop: which sweeps count, what is kept of them, and sweeps of problems of groups.

Given the values of the globals, the local variables of groups are independent and are drawn by the problem (its ``sampler``).
Given these, each tells every global block an additive natural parameter, so the conditional of a block is η̃ + Σ_g m_g exactly,
and all blocks are drawn at once: the three verbs of variational inference, with draws in the place of expectations.

Networks sweep block after block (`natgrad.network.draws`); what counts and what is kept is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.families import Dirichlet, Family
from natgrad.inference.problem import Block, BlockInfo, GroupProblem, State
from natgrad.inference.sampler import GroupDraw, GroupSampler, best_order, pairs_apart
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.random import Stream, generator

__all__ = ["GroupGibbs", "Schedule", "drawn_point", "keep_draw", "moves_of", "no_moves", "point_stats", "room_for"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# A positive number below it has no reciprocal; a share that underflows has the logarithm of an impossible one, as in networks.
TINY, IMPOSSIBLE = 1e-300, -1e100


class Schedule(NamedTuple):
    """Which sweeps count: the first ``warmup`` do not, then every ``thin``-th of ``n · thin`` does."""

    warmup: int
    n: int
    thin: int

    def number(self, t: int) -> int | None:
        """The number of the draw that sweep ``t`` (from 0) gives, if it gives one."""
        number, rest = divmod(t - self.warmup, self.thin)
        return number if t >= self.warmup and rest == self.thin - 1 else None

    def done(self, t: int) -> int:
        """Draws that ``t`` sweeps have given."""
        return max(0, (t - self.warmup) // self.thin)

    @property
    def sweeps(self) -> int:
        """All sweeps."""
        return self.warmup + self.n * self.thin


def point_stats(family: Family, value: Array, size: int | None) -> Stats:
    """φ(value) in finite numbers: what underflowed counts as impossible, not as −inf, which times 0 would be NaN."""
    if family.support == "positive" and not family.event_ndim:
        value = np.maximum(value, TINY)
    with np.errstate(divide="ignore"):
        return tuple(np.maximum(part, IMPOSSIBLE) for part in family.stats_of(value, size))


def drawn_point(family: Family, lam: Stats, rng: np.random.Generator, size: int | None) -> tuple[Array, Stats]:
    """A value of a factor and φ of it; probabilities that are 0 to rounding keep their logarithms, which learned shapes read."""
    if isinstance(family, Dirichlet):
        value, logs = family.sample_with_logs(lam, rng)
        return value, (np.maximum(logs, IMPOSSIBLE),)
    value = family.sample(lam, rng)
    return value, point_stats(family, value, size)


def room_for(values: Mapping[str, Array], strides: Mapping[str, int], schedule: Schedule) -> dict[str, Array]:
    """Zeros for the draws that are kept of each block [chain, draw, …]."""
    arrays = {}
    for name, stride in strides.items():
        chains, *shape = values[name].shape
        arrays[name] = np.zeros((chains, -(-schedule.n // stride), *shape), dtype=values[name].dtype)
    return arrays


def no_moves(chains: int) -> dict[str, Array]:
    """In how many sweeps labels were put back, and changed places on purpose, at the start [chain]."""
    return {name: np.zeros(chains, dtype=np.int64) for name in ("relabelled", "exchanged")}


def moves_of(memory: Mapping[str, Any]) -> tuple[Array, Array]:
    """The same, at a state with this memory."""
    return memory["relabelled"], memory["exchanged"]


def keep_draw(
    memory: dict[str, Any], schedule: Schedule, strides: Mapping[str, int], t: int, first: Mapping[str, Array],
    second: Mapping[str, Array],
) -> None:  # fmt: skip
    """Have sweep ``t`` count, if it does: sums of what is averaged are replaced, kept draws are written where they belong.

    ``memory`` has the new values; draws of sweeps after the one of a state do not count, so writing in place does no harm.
    """
    number = schedule.number(t)
    if number is None:
        return
    memory["sums"] = {n: (one + first[n], two + second[n]) for n, (one, two) in memory["sums"].items()}
    for name, stride in strides.items():
        if number % stride == 0:
            memory["kept"][name][:, number // stride] = memory["values"][name]


class GroupGibbs(Stepper):
    """A stepper: one sweep of all chains of a problem whose groups are independent given its globals.

    The state of the chains is in the memory, arrays with the chains first: ``values`` of globals and local variables, ``sums``
    of what is averaged, ``kept`` draws, and how often labels were put back (``relabelled``).

    Parameters
    ----------
    problem : GroupProblem that has a ``sampler``
    schedule : Schedule
    chains : int
    strides : {block: every how many draws one is kept}; a block that is not there keeps none
    wanted : {local block: probabilities [groups…, K] under q}
        By which labels are put back; none are where it is empty.
    averaged : local blocks whose probabilities are averaged
    """

    monotone = False

    def __init__(
        self,
        problem: GroupProblem,
        schedule: Schedule,
        chains: int,
        strides: Mapping[str, int],
        wanted: Mapping[str, Array],
        averaged: Sequence[str] = (),
    ) -> None:
        assert problem.sampler is not None
        self.problem, self.schedule, self.chains, self.strides = problem, schedule, chains, strides
        self.sampler: GroupSampler = problem.sampler
        self.wanted, self.averaged = wanted, tuple(averaged)
        self.pairs = pairs_apart(self.sampler.classes, self.sampler.known)
        self.blocks: dict[str, Block] = {**problem.blocks, **self.sampler.local_blocks}

    def start(self, lam: Mapping[str, Stats] | Sequence[Mapping[str, Stats]], seed: int) -> State:
        """Every chain at a draw of its own from factors with these natural parameters; of several, in turn."""
        begins = lam if isinstance(lam, Sequence) else [lam]
        rngs = [generator(seed, Stream.DRAWS, chain) for chain in range(self.chains)]
        values: dict[str, Array] = {}
        sums: dict[str, tuple[Array, Array]] = {}
        for name, block in self.problem.blocks.items():
            turn = [begins[chain % len(begins)][name] for chain in range(self.chains)]
            values[name] = np.stack([block.family.sample(own, rng) for own, rng in zip(turn, rngs, strict=True)])
            sums[name] = np.zeros(values[name].shape), np.zeros(values[name].shape)
        for name, block in self.sampler.local_blocks.items():
            values[name] = np.zeros((self.chains, *block.shape), dtype=np.int64)
            if name in self.averaged:
                # Chains are added up: one array of the size of all probabilities is enough.
                sums[name] = np.zeros((1, *block.shape, self.sampler.n_labels)), np.zeros(1)
        memory = {
            "values": values,
            "sums": sums,
            "kept": room_for(values, self.strides, self.schedule),
            **no_moves(self.chains),
        }
        return State({}, {}, 0, memory)

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Local variables of one chain after the other, then globals of all chains."""
        old, blocks = state.memory, self.problem.blocks
        values = {name: np.array(value) for name, value in old["values"].items()}
        first, second = (
            {n: np.zeros(pair[i].shape) for n, pair in old["sums"].items() if n in self.averaged} for i in (0, 1)
        )
        moved, exchanged = no_moves(self.chains).values()
        counts = self.schedule.number(state.t) is not None
        messages: dict[str, list[Stats]] = {name: [] for name in blocks}
        with np.errstate(all="ignore"):
            stats = {name: point_stats(block.family, values[name], None) for name, block in blocks.items()}
            for chain in range(self.chains):
                rng = generator(seed, Stream.DRAWS, state.t, 1 + chain)
                own = {name: tuple(part[chain] for part in parts) for name, parts in stats.items()}
                exchanged[chain], own = self._exchanged(own, rng)
                here = State({}, own, 0)
                drawn = self.sampler.draw(here, rng, counts and bool(self.averaged))
                order = self._order(drawn.values)
                moved[chain] = order is not None
                for name in blocks:
                    messages[name].append(self._message(name, drawn, order))
                for name, own in drawn.values.items():
                    values[name][chain] = own if order is None else np.argsort(order)[own]
                    if counts and name in self.averaged:
                        first[name][0] += self._chances(drawn, name, order) / self.chains
            rng = generator(seed, Stream.DRAWS, state.t, 0)
            info = {name: self._drawn(name, messages[name], rng, values, first, second) for name in blocks}
        done = StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
        if not all(bool(entry.valid) for entry in info.values()):
            return state, done
        moves = {"relabelled": old["relabelled"] + moved, "exchanged": old["exchanged"] + exchanged}
        memory = {**old, "values": values, **moves}
        keep_draw(memory, self.schedule, self.strides, state.t, first, second)
        return State({}, {}, state.t + 1, memory), done

    def _exchanged(self, stats: dict[str, Stats], rng: np.random.Generator) -> tuple[bool, dict[str, Stats]]:
        """The globals of one chain with two labels exchanged, if a step of Metropolis accepts it, and whether it did.

        Local variables are drawn after it: given the globals they and the data do not care how these are numbered.
        """
        if not len(self.pairs):
            return False, stats
        order, pair = np.arange(self.sampler.n_labels), self.pairs[rng.integers(len(self.pairs))]
        order[pair] = pair[::-1]
        other = {name: self.sampler.renumbered_message(name, parts, order) for name, parts in stats.items()}
        gain = sum(
            float(np.sum(eta * (new - old)))
            for name, parts in stats.items()
            for eta, new, old in zip(self.problem.prior_of(name), other[name], parts, strict=True)
        )
        accepted = bool(np.log(rng.random()) < gain)
        return accepted, other if accepted else stats

    def _message(self, name: str, drawn: GroupDraw, order: Array | None) -> Stats:
        """What the local variables of one chain tell a block, with the labels of q."""
        message = drawn.messages[name]
        return message if order is None else self.sampler.renumbered_message(name, message, order)

    def _drawn(
        self, name: str, messages: Sequence[Stats], rng: np.random.Generator, values: dict[str, Array],
        first: dict[str, Array], second: dict[str, Array],
    ) -> BlockInfo:  # fmt: skip
        """A block of all chains, in place of its values, and what is averaged of it."""
        family, prior = self.problem.blocks[name].family, self.problem.prior_of(name)
        lam = tuple(p + np.stack(parts) for p, parts in zip(prior, zip(*messages, strict=True), strict=True))
        if not np.all(family.valid(lam)):
            return BlockInfo(False, 0.0)
        values[name] = value = family.sample(lam, rng)
        if self.strides.get(name) == 1:  # all draws are kept: nothing else is read
            first[name], second[name] = value, value**2
        else:
            mean = family.mean(lam)
            first[name], second[name] = mean, family.var(lam) + mean**2
        return BlockInfo(True, 0.0)

    def _chances(self, drawn: GroupDraw, name: str, order: Array | None) -> Array:
        """The probabilities that local variables had; where they are not at hand, what was drawn."""
        chances = drawn.chances.get(name)
        if chances is None:
            chances = np.eye(self.sampler.n_labels)[drawn.values[name]]
        return np.asarray(chances if order is None else chances[..., order])

    def _order(self, values: Mapping[str, Array]) -> Array | None:
        """Which label comes first, second, … so that local variables agree best with q; None if they are where they belong."""
        if not self.wanted:
            return None
        size = self.sampler.n_labels
        agree = np.zeros((size, size))
        for name, wanted in self.wanted.items():
            own = values[name].ravel()[: len(wanted)]
            for label in range(size):
                agree[label] += np.bincount(own, wanted[:, label], size)
        return best_order(agree, self.sampler.classes)
