"""Memoised VB: batches of groups whose contribution to the globals is remembered and exchanged, not averaged.

    S       = Σ_b S_b                     what all groups tell the globals, kept
    visit b : local variables of b given the globals;  S ← S + S_b(new) − S_b(old)
    globals : their exact update from S

Every visit is coordinate ascent on the exact bound, so once every batch was seen the bound never falls, for any order and
size of batches, and it costs no reads: there is no step size. During the first pass S is scaled by groups / groups seen, an
average of what was seen so far; that is as quick a start as a step size that decays like 1/t. Where the order of a sweep has
globals before local variables, the first pass is that sweep, so that a start given to the local variables counts.

A batch is visited in parts, each a pure function of the globals and the part's own local variables: an executor may compute them
anywhere. How many there are depends on the data alone, and S is summed in their order.

Neal and Hinton (1998), incremental EM; Hughes and Sudderth (2013), memoised variational inference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natgrad.inference.executors.threads import Everywhere, Executor, Threads
from natgrad.inference.methods import SVI
from natgrad.inference.problem import BlockInfo, Sampled, State
from natgrad.inference.schema import check, refuse
from natgrad.inference.steppers.sampled import StepInfo
from natgrad.network.groups.groups import Batch, Groups
from natgrad.network.groups.sampled import check_size, leading_globals
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.compile.plan import Plan
    from natgrad.network.execute.backend import BackendName
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["MemoisedStepper", "Remembered", "WholePasses"]

Stats = tuple[Any, ...]
KEY = "memoised"
# Observations of a part: worth a trip to a worker.
PART = 2**17
# Sums that were exchanged for many passes differ by rounding from sums that are made anew.
NEAR = 1e-9


class Remembered(NamedTuple):
    """S and the local entropy summed over the batches seen; the local λ of each batch, None if it was not seen.

    ``cut`` tells which batches these are: the plate, how many, and the seed.
    """

    cut: tuple[str, int, int]
    stats: dict[str, Any]
    entropy: Any
    rows: tuple[dict[str, Stats] | None, ...]


class Visit(NamedTuple):
    """What a part of a batch says after its local variables were optimised, and said before (None if it was not seen)."""

    rows: dict[str, Stats]
    iterations: int
    stats: dict[str, Any]
    entropy: float
    before: tuple[dict[str, Any], float] | None


class MemoisedStepper:
    """A fixed cut of the groups into batches, visited in a new random order in each pass."""

    rising = True

    def __init__(
        self, problem: NetworkProblem, method: SVI, order: tuple[str, ...], executor: Executor | None = None
    ) -> None:
        from natgrad.network.groups.summary import Summary

        self.problem, self.method = problem, method
        self.groups = groups = Groups(problem, method.plate, order)
        check_size(method, groups)
        self.summary = Summary(problem, groups.local, groups.globals, groups.plate_of)
        self.n_batches = self.steps_per_pass = math.ceil(len(groups) / method.size)
        # A sweep in this order updates these globals from the start of the local variables; so must the first step here. The
        # others keep their start until the local variables have seen it: it may be all that tells components apart.
        self.leading = leading_globals(order, groups)
        observed = sum(len(problem.observed[t.node]) for t in groups.grouped if t.node in problem.observed)
        self.n_parts = max(1, min(method.size, observed // self.n_batches // PART))
        # The parts of all batches, batch after batch.
        self._parts: dict[int, list[Batch]] = {}
        # What the last step remembered; anything else comes from elsewhere, perhaps from a file.
        self._mine: Remembered | None = None
        where = Threads() if executor is None else executor
        self._placed = where.place([Everywhere(_Elsewhere(problem.plan, problem.backend.name, method, order, self))])

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        parts = self._cut(seed)
        memory: Remembered | None = state.memory.get(KEY)
        reads = 0
        if memory is None or memory.cut != (self.method.plate, self.n_batches, seed):
            state, memory, reads = self._begin(state, parts, seed)
        elif memory is not self._mine:
            memory = self._checked(memory, state, parts)
        first = self._next(state, seed) * self.n_parts
        numbers = range(first, first + self.n_parts)
        for number, visit in zip(numbers, self._visited(state, memory, numbers, parts), strict=True):
            memory = _exchanged(memory, number, visit)
            reads += visit.iterations * sum(self.groups.reads(name, parts[number]) for name in self.groups.local)
            reads += sum(self.groups.reads(name, parts[number]) for name in self.groups.globals)
        self._mine = memory
        seen = sum(len(b.groups) for b, r in zip(parts, memory.rows, strict=True) if r is not None)
        if self.leading and seen < len(self.groups):
            return state._replace(t=state.t + 1, memory={KEY: memory}), StepInfo({}, 1.0, reads, unbounded=True)
        lam, mu, bound, info = self._settle(state, memory, len(self.groups) / seen, self.groups.globals)
        after = State({**state.lam, **lam}, {**state.mu, **mu}, state.t + 1, {KEY: memory})
        partial = seen < len(self.groups)
        return after, StepInfo(info, 1.0, reads, None if partial else bound, bound, unbounded=partial)

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
        if seed not in self._parts:
            shuffled = generator(seed, Stream.BATCH_CUT).permutation(len(self.groups))
            batches = [np.sort(part) for part in np.array_split(shuffled, self.n_batches)]
            parts = [part for batch in batches for part in np.array_split(batch, self.n_parts)]
            self._parts = {seed: [Batch(self.groups, part) for part in parts]}
        return self._parts[seed]

    def _checked(self, memory: Remembered, state: State, parts: list[Batch]) -> Remembered:
        """What was remembered elsewhere of this cut, its sums made anew if they are not those of these data.

        It may come from a file, or from a fit to other data of the same size; sums that are right keep their bits.
        """
        if len(memory.rows) != len(parts):
            refuse("what was remembered", f"is of {len(memory.rows)} parts of the data, and there are {len(parts)}")
        anew, sizes = Remembered(memory.cut, {}, 0.0, (None,) * len(parts)), dict[str, Any]()
        for number, (batch, rows) in enumerate(zip(parts, memory.rows, strict=True)):
            if rows is None:
                continue
            self._check_rows(rows, self.groups.rows(state, batch), f"what was remembered of part {number}")
            visit = Visit(rows, 0, *self.contribution(rows, batch), None)
            anew = _exchanged(anew, number, visit)
            sizes = {key: sizes.get(key, 0.0) + np.abs(value) for key, value in visit.stats.items()}
        shapes, wanted = ({key: np.shape(part) for key, part in of.stats.items()} for of in (memory, anew))
        if shapes != wanted:
            refuse("what was remembered", f"has sums of the shapes {shapes}, and here they are {wanted}")
        close = all(np.all(np.abs(memory.stats[key] - anew.stats[key]) <= NEAR * size) for key, size in sizes.items())
        return memory if close and abs(memory.entropy - anew.entropy) <= NEAR * (1.0 + abs(anew.entropy)) else anew

    def _check_rows(self, rows: dict[str, Stats], usual: dict[str, Stats], where: str) -> None:
        """Refuse what is no natural parameter of the local variables of a part."""
        if rows.keys() != usual.keys():
            refuse(where, f"is of {', '.join(rows) or 'no node'}, and its local nodes are {', '.join(usual)}")
        for name, stats in usual.items():
            check(rows[name], tuple(f"float {list(np.shape(part))}" for part in stats), where=f"{where}[{name!r}]")
            if not np.all(self.problem.blocks[name].family.valid(rows[name])):
                refuse(f"{where}[{name!r}]", "is outside the natural parameters of its family")

    def _next(self, state: State, seed: int) -> int:
        epoch, place = divmod(state.t, self.n_batches)
        return int(generator(seed, Stream.BATCH_ORDER, epoch).permutation(self.n_batches)[place])

    def _begin(self, state: State, parts: list[Batch], seed: int) -> tuple[State, Remembered, int]:
        """Nothing seen, and the leading globals updated from the start; going on from a fit, what its local variables say.

        Both but a start without leading globals take one reading of the data by the globals.
        """
        empty = Remembered((self.method.plate, self.n_batches, seed), {}, 0.0, (None,) * len(parts))
        if state.t == 0 and not self.leading:
            return state, empty, 0
        memory, reads = empty, 0
        names = self.groups.globals if state.t else self.leading
        for number, batch in enumerate(parts):
            rows = self.groups.rows(state, batch)
            memory = _exchanged(memory, number, Visit(rows, 0, *self.contribution(rows, batch), None))
            reads += sum(self.groups.reads(name, batch) for name in names)
        lam, mu, _, _ = self._settle(state, memory, 1.0, names)
        state = state._replace(lam={**state.lam, **lam}, mu={**state.mu, **mu})
        return state, memory if state.t else empty, reads

    def _visited(self, state: State, memory: Remembered, numbers: range, parts: list[Batch]) -> list[Visit]:
        """The parts of a batch, wherever they are computed."""
        globals_ = {name: tuple(map(np.asarray, state.mu[name])) for name in self.groups.globals}
        calls = []
        for number in numbers:
            before = memory.rows[number]
            rows = self.groups.rows(state, parts[number]) if before is None else before
            calls.append((0, (globals_, parts[number].groups, rows, before is not None)))
        return list(self._placed.run(_visit, calls))

    def visit(self, mu: dict[str, Stats], batch: Batch, rows: dict[str, Stats], seen: bool) -> Visit:
        """Optimise the local variables of a part, the globals given by their moments."""
        state = State({}, mu, 0)
        local = self.groups.solve(state, rows, batch, self.method.local_tol, self.method.local_steps)
        after = {name: tuple(map(np.asarray, value)) for name, value in local.lam.items()}
        before = self.contribution(rows, batch) if seen else None
        return Visit(after, local.iterations, *self.contribution(after, batch), before)

    # -- compiled --

    def contribution(self, rows: dict[str, Stats], batch: Batch) -> tuple[dict[str, Any], float]:
        """S and the entropy of a part whose local variables have these natural parameters."""
        samples = tuple(self.groups.sampled(t, batch, 1.0) for t in self.groups.grouped)
        layouts, arrays = tuple(s.layout for s in samples), [s.arrays for s in samples]
        weights = {name: self.groups.entropy_weights(name, batch) for name in self.groups.local}

        def build() -> Callable[..., Any]:
            def function(lam: Any, arrays: Any, weights: Any, known: Any) -> tuple[dict[str, Any], Any]:
                samples = list(map(Sampled.rebuilt, layouts, arrays))
                return self.summary.contribution(lam, weights, samples, known)

            return function

        stats, entropy = self.problem.compiled(("contribution", self.groups.plate, layouts), build)(
            rows, arrays, weights
        )
        return {key: np.asarray(value) for key, value in stats.items()}, float(entropy)

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
        lam, mu, bound, info = self.problem.compiled(("settle", self.groups.plate, names), build)(
            lam, mu, memory.stats, memory.entropy, scale
        )
        return lam, mu, float(bound), info


class WholePasses:
    """Memoised VB where the user fixed no batches: a step is a pass over all of them, as it is for a sweep."""

    rising, steps_per_pass = True, 1

    def __init__(self, inner: MemoisedStepper) -> None:
        self.inner = inner

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        here, accesses = state._replace(t=state.t * self.inner.n_batches), 0
        for _ in range(self.inner.n_batches):
            here, info = self.inner.step(here, seed)
            accesses += info.accesses
            if not all(bool(block.valid) for block in info.blocks.values()):
                break
        return here._replace(t=state.t + 1), info._replace(accesses=accesses)

    def finish(self, state: State) -> State:
        """The local variables of all batches put in their places."""
        return self.inner.finish(state)


def _exchanged(memory: Remembered, number: int, visit: Visit) -> Remembered:
    """S and the entropy with what a part said before taken out, and what it says now put in."""
    stats, entropy = visit.stats, memory.entropy + visit.entropy
    if memory.stats:
        stats = {key: memory.stats[key] + value for key, value in stats.items()}
    if visit.before is not None:
        removed, lost = visit.before
        stats, entropy = {key: value - removed[key] for key, value in stats.items()}, entropy - lost
    return Remembered(memory.cut, stats, entropy, (*memory.rows[:number], visit.rows, *memory.rows[number + 1 :]))


class _Elsewhere:
    """The network of a stepper, which another process compiles for itself when it is first asked."""

    def __init__(
        self,
        plan: Plan,
        backend: BackendName,
        method: SVI,
        order: tuple[str, ...],
        stepper: MemoisedStepper | None = None,
    ) -> None:
        self.plan, self.backend, self.method, self.order, self._stepper = plan, backend, method, order, stepper

    def __reduce__(self) -> Any:
        return _Elsewhere, (self.plan, self.backend, self.method, self.order)

    @property
    def stepper(self) -> MemoisedStepper:
        """The stepper of this process."""
        from natgrad.network.execute.problem import NetworkProblem

        if self._stepper is None:
            self._stepper = MemoisedStepper(NetworkProblem(self.plan, self.backend), self.method, self.order)
        return self._stepper


def _visit(network: _Elsewhere, mu: dict[str, Stats], chosen: Any, rows: dict[str, Stats], seen: bool) -> Visit:
    """A part, in whatever process."""
    stepper = network.stepper
    return stepper.visit(mu, Batch(stepper.groups, chosen), rows, seen)
