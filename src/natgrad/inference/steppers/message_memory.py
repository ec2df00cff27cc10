"""Sampled steps with remembered messages: no N_i/C, no step size.

For each edge the problem keeps what was last read there. A node's λ is then always its prior plus a sum of messages of weight
one, some of them a little old:

    start   an unread child holds its share of the start, (λ⁰ − η̃)/N_i
    visit   the next children in the node's own shuffled order; heavy nodes read more of them, so that a pass reads every
            edge once from each side
    move    (a) λ_i = λ_new at once;  (b) λ_i += β_i (λ_new − λ_i) together, β_i = 1/(1 + (ω − 1) c/N_i), ω blocks in a child
    check   now and then one exact sweep, after rotating the gauge where there is one; all messages are fresh after it. If its
            bound fell since the last check, the state of then is restored and swept exactly until it rises

Nothing here can run away: given any memory, the means of a row solve a system whose matrix is at least its prior's. Only the
bound may fall for a while between two checks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.families.natural_step import blend
from natgrad.inference.methods import Children, GlobalBatch
from natgrad.inference.problem import BlockInfo, ChildSet, EdgeProblem, MessageMemory, State
from natgrad.inference.rotation import rotated
from natgrad.inference.steppers.checked import higher, live, next_check
from natgrad.inference.steppers.stepper import StepInfo
from natgrad.random import Stream, generator

__all__ = ["Checked", "MessageStepper"]

Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
KEY = "messages"
# Checks after these numbers of passes, then every so many more.
FIRST_CHECKS, CHECK_EVERY = (0.5, 1.0, 2.0, 4.0), 2.0
# Without a gauge to turn, means are remembered beyond what was read from the second pass on: over-relaxation of the memory.
OVER, OVER_FROM = 1.8, 2.0
# A bound that is lower by this part of its size fell by rounding (what is remembered is in single precision).
ROUNDING = 1e-7


class Checked(NamedTuple):
    """The last check: its state and bound, how many there were, passes read; whether to turn, how far to over-relax."""

    lam: dict[str, Stats]
    mu: dict[str, Stats]
    bound: float
    checks: int
    passes: float
    use_rotation: bool
    over: float
    restored: int


class MessageStepper:
    """Algorithm 1 or 2 with memory.

    A step touches few rows of large arrays, so it changes those of the state before it; a new run copies them once.
    """

    monotone, steps_per_pass, batches = False, 1, None

    def __init__(
        self,
        problem: EdgeProblem,
        messages: MessageMemory,
        method: Children | GlobalBatch,
        order: tuple[str, ...],
        use_rotation: bool = True,
    ) -> None:
        self.problem, self.messages, self.method, self.order = problem, messages, method, order
        self.use_rotation = use_rotation and bool(problem.gauges)
        self.sets: dict[str, ChildSet] = {}
        for name in order:
            (self.sets[name],) = problem.child_sets(name)
        self.sweep_messages = problem.n_messages
        self.n_edges = {name: len(edges.children) for name, edges in self.sets.items()}
        self.omega = {name: 1 + len(problem.neighbours(name)) for name in order}
        if isinstance(method, Children):
            wanted = sum(int(method.counts(s.degree).sum()) for s in self.sets.values())
            rows = sum(len(s.degree) for s in self.sets.values())
            # One round reads as many edges as there are rows; C children of each row are C rounds.
            self.rounds = max(1, round(wanted / rows))
            self.rate = rows / sum(self.n_edges.values())
        else:
            self.rounds = 1
            self.place_of = {name: np.argsort(s.children, kind="stable") for name, s in self.sets.items()}
        self._owned: Any = None
        self._shuffled: dict[Any, Any] = {}

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        here, memory, last, reads = self._mine(live(state))
        moved = {name: 0.0 for name in self.order}
        for number in range(self.rounds):
            waiting = []
            for block in self.order:
                positions = self._next(block, state.t * self.rounds + number, seed)
                reads += len(positions) * self.sets[block].n_sharing
                over = last.over if last.passes >= OVER_FROM and not last.use_rotation else 1.0
                rows, target = self.messages.read(block, here, memory, positions, over)
                beta = self._beta(block, positions, rows)
                if self.method.option == "a":
                    moved[block] += self._move(block, here, rows, target, np.ones(len(rows)))
                else:
                    waiting.append((block, rows, target, beta))
            for block, rows, target, beta in waiting:
                moved[block] += self._move(block, here, rows, target, beta)
        passes = last.passes + reads / self.sweep_messages
        info = {name: BlockInfo(True, size) for name, size in moved.items()}
        if math.floor(passes) > math.floor(last.passes):
            self.messages.rebuild(memory)
        here = here._replace(t=state.t + 1)
        last = last._replace(passes=passes)
        if passes < next_check(last.checks, FIRST_CHECKS, CHECK_EVERY):
            return self._state(here, memory, last), StepInfo(info, 1.0, reads)
        here, last, sweeps = self._check(here, memory, last)
        total = reads + sweeps * self.sweep_messages
        return self._state(here, memory, last), StepInfo(info, 1.0, total, last.bound)

    def finish(self, state: State) -> State:
        """The state of the last check, if the bound fell since then."""
        kept = live(state).memory.get(KEY)
        return state if kept is None else higher(self.problem, live(state), kept[1].lam, kept[1].mu, kept[1].bound)

    # -- memory --

    def _mine(self, state: State) -> tuple[State, Any, Checked, int]:
        """The arrays of this run: begun, or copied from an earlier run so that its state stays as it is."""
        remembered = state.memory.get(KEY)
        if remembered is None:
            here, reads = _copied(state), 0
            self._empty_to_prior(here)
            self._owned = memory = self.messages.begin(here)
            over = OVER if isinstance(self.method, Children) else 1.0
            last = Checked(state.lam, state.mu, -math.inf, 0, 0.0, self.use_rotation, over, 0)
            if state.t > 0:  # going on from another method: remember where it ended
                here, reads = self._read_all(here, memory), self.sweep_messages
            return here, memory, last, reads
        memory, last = remembered
        if memory is self._owned:
            return state, memory, last, 0
        memory = {name: {key: np.array(value) for key, value in part.items()} for name, part in memory.items()}
        self._owned = memory
        return _copied(state), memory, last, 0

    def _state(self, here: State, memory: Any, last: Checked) -> State:
        return here._replace(memory={KEY: (memory, last)})

    # -- which edges --

    def _next(self, block: str, turn: int, seed: int) -> Ints:
        """Sorted positions among the block's children that are read now; a function of the seed and the turn alone."""
        if isinstance(self.method, GlobalBatch):
            return np.sort(self.place_of[block][self._batch(turn, seed)])
        children = self.sets[block]
        shuffled, phase = self._rows(block, seed)
        before = np.floor(phase + turn * self.rate * children.degree).astype(np.int64)
        after = np.floor(phase + (turn + 1) * self.rate * children.degree).astype(np.int64)
        counts = np.minimum(after - before, children.degree)
        rows = np.repeat(np.arange(len(counts)), counts)
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = (before[rows] + offset) % children.degree[rows]
        return np.sort(shuffled[children.start[rows] + place])

    def _rows(self, block: str, seed: int) -> tuple[Ints, npt.NDArray[np.float64]]:
        key = (block, seed)
        if key not in self._shuffled:
            children, rng = self.sets[block], generator(seed, Stream.CHILD_ORDER, self.order.index(block))
            shuffled = np.lexsort((rng.random(len(children.children)), children.key_of_child))
            self._shuffled[key] = shuffled, rng.random(len(children.degree))
        rows: tuple[Ints, npt.NDArray[np.float64]] = self._shuffled[key]
        return rows

    def _batch(self, turn: int, seed: int) -> Ints:
        """The next observations of a shuffled list that is shuffled again in each pass."""
        assert isinstance(self.method, GlobalBatch)
        total, size = self.n_edges[self.order[0]], self.method.size
        epoch, start = divmod(turn * size, total)
        batch = self._epoch(epoch, total, seed)[start : start + size]
        if start + size > total:
            batch = np.unique(np.concatenate([batch, self._epoch(epoch + 1, total, seed)[: start + size - total]]))
        return batch

    def _epoch(self, epoch: int, total: int, seed: int) -> Ints:
        if (seed, epoch) not in self._shuffled:
            self._shuffled.pop((seed, epoch - 2), None)
            self._shuffled[seed, epoch] = generator(seed, Stream.OBSERVATION_ORDER, epoch).permutation(total)
        order: Ints = self._shuffled[seed, epoch]
        return order

    # -- moves --

    def _beta(self, block: str, positions: Ints, rows: Ints) -> npt.NDArray[np.float64]:
        children = self.sets[block]
        read = np.bincount(np.searchsorted(rows, children.key_of_child[positions]), minlength=len(rows))
        return np.asarray(1.0 / (1.0 + (self.omega[block] - 1) * read / children.degree[rows]))

    def _move(self, name: str, state: State, rows: Ints, target: Stats, beta: npt.NDArray[np.float64]) -> float:
        """λ_i ← (1 − β_i) λ_i + β_i λ_new for some rows, in the step's own arrays; how far they moved."""
        block = self.problem.blocks[name]
        old = tuple(part[rows] for part in state.lam[name])
        new = blend(old, target, beta, tuple(part.ndim - 1 for part in old))
        fresh = block.family.expected_stats(new)
        for arrays, parts in ((state.lam[name], new), (state.mu[name], fresh)):
            for array, part in zip(arrays, parts, strict=True):
                array[rows] = part
        change = sum(float(((a - b) ** 2).sum()) for a, b in zip(new, old, strict=True))
        return math.sqrt(change / sum(float((part**2).sum()) + 1e-300 for part in old))

    # -- the check --

    def _check(self, here: State, memory: Any, last: Checked) -> tuple[State, Checked, int]:
        """An exact sweep that refreshes all messages; back to the last check, and exactly on, if the bound fell."""
        state, sweeps = self._read_all(rotated(self.problem, here) if last.use_rotation else here, memory), 1
        bound, use_rotation, over, restored = self.problem.bound(state), last.use_rotation, last.over, last.restored
        if not bound >= last.bound - ROUNDING * abs(last.bound) and last.use_rotation:
            state, sweeps, use_rotation = self._read_all(here, memory), sweeps + 1, False
            bound = self.problem.bound(state)
        if not bound >= last.bound - ROUNDING * abs(last.bound):
            back = here._replace(lam=last.lam, mu=last.mu)
            state, sweeps = self._read_all(back, memory), sweeps + 1
            bound, over, restored = self.problem.bound(state), 1.0 + (over - 1.0) / 2, restored + 1
        saved = _copied(state)
        kept = Checked(saved.lam, saved.mu, bound, last.checks + 1, last.passes, use_rotation, over, restored)
        return state, kept, sweeps

    def _read_all(self, state: State, memory: Any) -> State:
        """An exact sweep, every block from all its children as they are now."""
        here = _copied(state)
        self._empty_to_prior(here)
        for name in self.order:
            rows, target = self.messages.read(name, here, memory, np.arange(self.n_edges[name]), 1.0)
            self._move(name, here, rows, target, np.ones(len(rows)))
        self.messages.rebuild(memory)
        return here

    def _empty_to_prior(self, here: State) -> None:
        """Rows without children hear from their prior alone, in a sweep as at the start."""
        for name, children in self.sets.items():
            rows = np.flatnonzero(children.degree == 0)
            if len(rows):
                prior = self.problem.target(self.problem.blocks[name], here, (name,))
                self._move(name, here, rows, tuple(np.asarray(part)[rows] for part in prior), np.ones(len(rows)))


def _copied(state: State) -> State:
    """The state with arrays of its own, for steps to change."""
    lam, mu = (
        {name: tuple(np.array(part, dtype=np.float64) for part in stats) for name, stats in side.items()}
        for side in (state.lam, state.mu)
    )
    return state._replace(lam=lam, mu=mu)
