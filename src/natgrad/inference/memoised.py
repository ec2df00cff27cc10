"""Memoised VB: batches of groups whose contribution to the globals is remembered and exchanged, not averaged.

    S       = Σ_b S_b                     what all groups tell the globals, kept
    visit b : local variables of b given the globals;  S ← S + S_b(new) − S_b(old)
    globals : their exact update from S

Every visit is coordinate ascent on the exact bound, so once every batch was seen the bound never falls, for any order and
size of batches, and it costs no reads: there is no step size. During the first pass S is scaled by groups / groups seen, an
average of what was seen so far; that is as quick a start as a step size that decays like 1/t. Where the order of a sweep has
globals before local variables, the first pass is that sweep, so that a start given to the local variables counts.

Neal and Hinton (1998), incremental EM; Hughes and Sudderth (2013), memoised variational inference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natgrad.inference.draws import generator
from natgrad.inference.groups import Batch, Groups
from natgrad.inference.local import check_size
from natgrad.inference.methods import SVI
from natgrad.inference.steppers import StepInfo
from natgrad.problem import BlockInfo, Sampled, State

if TYPE_CHECKING:
    from natgrad.network.problem import NetworkProblem

__all__ = ["MemoisedStepper", "Remembered"]

Stats = tuple[Any, ...]
KEY = "memoised"
# Streams of random numbers of their own: the cut into batches, and the order of the batches in a pass.
CUT, ORDER = 2**31 - 2, 2**31 - 3


class Remembered(NamedTuple):
    """S and the local entropy summed over the batches seen; the local λ of each batch, None if it was not seen.

    ``cut`` tells which batches these are: the plate, how many, and the seed.
    """

    cut: tuple[str, int, int]
    stats: dict[str, Any]
    entropy: Any
    rows: tuple[dict[str, Stats] | None, ...]


class MemoisedStepper:
    """A fixed cut of the groups into batches, visited in a new random order in each pass."""

    rising = True

    def __init__(self, problem: NetworkProblem, method: SVI, order: tuple[str, ...]) -> None:
        from natgrad.network.summary import Summary

        self.problem, self.method = problem, method
        self.groups = groups = Groups(problem, method.plate, order)
        check_size(method, groups)
        self.summary = Summary(problem, groups.local, groups.globals, groups.plate_of)
        self.n_batches = self.steps_per_pass = math.ceil(len(groups) / method.size)
        # A sweep in this order updates these globals from the start of the local variables; so must the first step here. The
        # others keep their start until the local variables have seen it: it may be all that tells components apart.
        local = [order.index(name) for name in groups.local]
        self.leading = tuple(name for name in order[: min(local, default=0)])
        self._batches: dict[int, list[Batch]] = {}

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        batches = self._cut(seed)
        memory, reads = state.memory.get(KEY), 0
        if memory is None or memory.cut != (self.method.plate, self.n_batches, seed):
            state, memory, reads = self._begin(state, batches, seed)
        number = self._next(state, seed)
        batch = batches[number]
        before = memory.rows[number]
        rows = self.groups.rows(state, batch) if before is None else before
        local = self.groups.solve(state, rows, batch, self.method.local_tol, self.method.local_steps)
        reads += local.iterations * sum(self.groups.reads(name, batch) for name in self.groups.local)
        reads += sum(self.groups.reads(name, batch) for name in self.groups.globals)
        memory = self._exchanged(memory, number, batch, before, local.lam)
        seen = sum(len(b.groups) for b, r in zip(batches, memory.rows, strict=True) if r is not None)
        if self.leading and seen < len(self.groups):
            return state._replace(t=state.t + 1, memory={KEY: memory}), StepInfo({}, 1.0, reads, math.nan)
        lam, mu, bound, info = self._settle(state, memory, len(self.groups) / seen, self.groups.globals)
        after = State({**state.lam, **lam}, {**state.mu, **mu}, state.t + 1, {KEY: memory})
        return after, StepInfo(info, 1.0, reads, bound if seen == len(self.groups) else math.nan, estimate=bound)

    def finish(self, state: State) -> State:
        """The local variables of all batches put in their places."""
        memory = state.memory.get(KEY)
        if memory is None:
            return state
        batches = self._cut(memory.cut[2])
        lam, mu = dict(state.lam), dict(state.mu)
        for name in self.groups.local:
            arrays = tuple(np.array(full) for full in lam[name])
            for batch, rows in zip(batches, memory.rows, strict=True):
                if rows is not None:
                    self.groups.put_rows(name, arrays, rows[name], batch)
            lam[name] = arrays
            fresh = tuple(np.array(part) for part in self.problem.moments(self.problem.blocks[name], arrays))
            for batch, rows in zip(batches, memory.rows, strict=True):
                if rows is None:  # not visited yet: it may still be a point mass
                    self.groups.put_rows(name, fresh, self.groups.take_rows(name, mu[name], batch), batch)
            mu[name] = fresh
        return state._replace(lam=lam, mu=mu)

    # -- batches --

    def _cut(self, seed: int) -> list[Batch]:
        if seed not in self._batches:
            shuffled = generator(seed, CUT).permutation(len(self.groups))
            parts = [np.sort(part) for part in np.array_split(shuffled, self.n_batches)]
            self._batches = {seed: [Batch(self.groups, part) for part in parts]}
        return self._batches[seed]

    def _next(self, state: State, seed: int) -> int:
        epoch, place = divmod(state.t, self.n_batches)
        return int(generator(seed, ORDER, epoch).permutation(self.n_batches)[place])

    def _begin(self, state: State, batches: list[Batch], seed: int) -> tuple[State, Remembered, int]:
        """Nothing seen, and the leading globals updated from the start; going on from a fit, what its local variables say.

        Both but a start without leading globals take one reading of the data by the globals.
        """
        empty = Remembered((self.method.plate, self.n_batches, seed), {}, 0.0, (None,) * len(batches))
        if state.t == 0 and not self.leading:
            return state, empty, 0
        memory, reads = empty, 0
        names = self.groups.globals if state.t else self.leading
        for number, batch in enumerate(batches):
            memory = self._exchanged(memory, number, batch, None, self.groups.rows(state, batch))
            reads += sum(self.groups.reads(name, batch) for name in names)
        lam, mu, _, _ = self._settle(state, memory, 1.0, names)
        state = state._replace(lam={**state.lam, **lam}, mu={**state.mu, **mu})
        return state, memory if state.t else empty, reads

    def _exchanged(
        self, memory: Remembered, number: int, batch: Batch, before: dict[str, Stats] | None, after: dict[str, Stats]
    ) -> Remembered:
        stats, entropy = self._exchange(memory, batch, before, after)
        return Remembered(memory.cut, stats, entropy, (*memory.rows[:number], after, *memory.rows[number + 1 :]))

    # -- compiled --

    def _exchange(
        self, memory: Remembered, batch: Batch, before: dict[str, Stats] | None, after: dict[str, Stats]
    ) -> tuple[dict[str, Any], Any]:
        """S and the entropy with a batch's old contribution taken out and the new one put in."""
        import jax.numpy as jnp

        samples = tuple(self.groups.sampled(t, batch, 1.0) for t in self.groups.grouped)
        layouts, arrays = tuple(s.layout for s in samples), [s.arrays for s in samples]
        weights = {name: self.groups.entropy_weights(name, batch)[1] for name in self.groups.local}
        axes = {name: self.groups.entropy_weights(name, batch)[0] for name in self.groups.local}

        def contribution(lam: Any, arrays: Any, weights: Any, known: Any) -> tuple[dict[str, Any], Any]:
            mu, entropy = {}, jnp.zeros(())
            for name, value in lam.items():
                family = self.problem.blocks[name].family
                mu[name], normalizer = family.moments(value)
                each = jnp.moveaxis(normalizer - family.inner(value, mu[name]), axes[name], -1)
                entropy = entropy + jnp.sum(each * weights[name])
            found = self.summary.statistics(mu, list(map(Sampled.rebuilt, layouts, arrays)), known)
            return found, entropy

        def build() -> Callable[..., Any]:
            def function(stats: Any, entropy: Any, old: Any, new: Any, arrays: Any, weights: Any, known: Any) -> Any:
                added, gained = contribution(new, arrays, weights, known)
                entropy = entropy + gained
                if stats:
                    added = {key: stats[key] + value for key, value in added.items()}
                if old is not None:
                    removed, lost = contribution(old, arrays, weights, known)
                    added = {key: value - removed[key] for key, value in added.items()}
                    entropy = entropy - lost
                return added, entropy

            return function

        key = ("exchange", layouts, before is None, bool(memory.stats))
        stats, entropy = self.problem.compiled(key, build)(memory.stats, memory.entropy, before, after, arrays, weights)
        return stats, entropy

    def _settle(
        self, state: State, memory: Remembered, scale: float, names: tuple[str, ...]
    ) -> tuple[dict[str, Stats], dict[str, Stats], float, dict[str, BlockInfo]]:
        """The named global blocks once, exactly, from S; the bound with it."""
        globals_, summary = self.groups.globals, self.summary

        def build() -> Callable[..., Any]:
            def function(lam: Any, mu: Any, stats: Any, entropy: Any, scale: Any, known: Any) -> Any:
                lam, mu, info = dict(lam), dict(mu), {}
                stats = {key: value * scale for key, value in stats.items()}
                for name in names:
                    block = self.problem.blocks[name]
                    lam[name], mu[name], info[name] = summary.update(block, lam, mu, stats, known)
                return lam, mu, summary.bound(lam, mu, stats, entropy * scale, known), info

            return function

        lam, mu = {name: state.lam[name] for name in globals_}, {name: state.mu[name] for name in globals_}
        lam, mu, bound, info = self.problem.compiled(("settle", names), build)(
            lam, mu, memory.stats, memory.entropy, scale
        )
        return lam, mu, float(bound), info
