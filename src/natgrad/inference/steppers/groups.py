"""Models whose groups speak to the globals by messages that add up: such a problem in, memoised or sampled steps out.

Documents, subchains and cells are independent given the global blocks, and each tells a block an additive natural parameter:

    λ*    = η̃ + Σ_g m_g                                     the exact update
    bound = Σ_g rest_g + Σ_blocks [⟨Σ_g m_g + η̃, μ⟩ + A(λ) − ⟨λ, μ⟩ + const]

`MemoisedGroups` keeps m_g of every batch of a fixed cut and exchanges it when the batch is visited; with one batch it is
coordinate ascent on all the data. `SampledGroups` forgets: λ ← (1 − ρ) λ + ρ (η̃ + groups/batch Σ_g m_g).

Neal and Hinton (1998); Hoffman et al. (2013); Hughes and Sudderth (2013).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from natgrad.inference.methods import SVI, VB, Children, GlobalBatch, Method
from natgrad.inference.problem import Block, BlockInfo, Problem, State
from natgrad.inference.step_sizes import Constant, RobbinsMonro, Step
from natgrad.inference.steppers.hyper import given, relearned
from natgrad.inference.steppers.sampled import NothingToFinish, StepInfo, Stepper
from natgrad.random import Stream, generator

__all__ = [
    "AdditiveProblem",
    "GroupResult",
    "MemoisedGroups",
    "SampledGroups",
    "additive_stepper",
    "is_additive",
    "n_remembered",
    "rows_of",
]

Stats = tuple[Any, ...]
ByBlock = Mapping[str, Stats]
Ints = npt.NDArray[np.int64]
Valid = Callable[[Block, Stats, Stats], bool]
KEY, BEFORE = "groups", "before"
# For data too large to remember: one pass has some tens to hundreds of batches, and early ones must be forgotten within it.
ONE_PASS = RobbinsMonro(delay=4.0, forgetting=0.7)
# Sampled steps before hyper-parameters are learned: what groups say to globals near their start is no evidence about them.
LEARN_AFTER = 10
# With fewer batches a pass of sampled steps has no time to forget the start.
LEAST_TO_SAMPLE = 5


class GroupResult(NamedTuple):
    """Some groups with their local variables optimised: λ of these, what they tell each block, and the rest of their bound.

    ``iterations`` is the most that a group took, ``reads`` counts the messages computed.
    """

    rows: Stats
    messages: dict[str, Stats]
    rest: float
    iterations: int
    reads: int


class AdditiveProblem(Problem, Protocol):
    """A problem with independent groups; its blocks are the global ones.

    It may have ``revived(state, seed)``, too: the state with what a sampled pass has lost, before anything is remembered.
    """

    @property
    def n_groups(self) -> int:
        """How many groups there are to read."""
        ...

    @property
    def population(self) -> float:
        """How many groups the data at hand stand for; more than ``n_groups`` if they are a part of a stream."""
        ...

    @property
    def group_plate(self) -> str:
        """What a group is called, as in ``SVI({"doc": 100})``."""
        ...

    @property
    def batch_size(self) -> int:
        """Groups in a batch, if the user does not say."""
        ...

    @property
    def local_limits(self) -> tuple[float, int]:
        """Tolerance and most rounds of the local variables, where the method does not say."""
        ...

    @property
    def row_bytes(self) -> int:
        """What remembering one group's local variables takes."""
        ...

    @property
    def message_bytes(self) -> int:
        """What remembering the messages of one batch takes."""
        ...

    def solve(self, state: State, groups: Ints | None, rows: Stats | None, tol: float, limit: int) -> GroupResult:
        """Optimise the local variables of some groups (None: all) from their ``rows`` (None: afresh), the globals fixed."""
        ...

    def prior_of(self, name: str) -> Stats:
        """η̃ of a block; it broadcasts."""
        ...

    def global_bound(self, lam: ByBlock, mu: ByBlock, messages: ByBlock) -> float:
        """Σ_blocks [⟨m + η̃, μ⟩ + A(λ) − ⟨λ, μ⟩ + const]."""
        ...


def is_additive(problem: Problem) -> TypeGuard[AdditiveProblem]:
    """Whether a problem has independent groups of its own; asks the class, so that no property is computed."""
    return all(hasattr(type(problem), name) for name in ("prior_of", "solve", "global_bound"))


class Kept(NamedTuple):
    """What is remembered of one batch."""

    rows: Stats
    messages: dict[str, Stats]
    rest: float


class Remembered(NamedTuple):
    """Messages and rest summed over the batches seen; what each batch holds, None if it was not seen."""

    messages: dict[str, Stats]
    rest: float
    batches: tuple[Kept | None, ...]


class MemoisedGroups(NothingToFinish):
    """A fixed cut of the groups into batches, visited in a new random order in each pass; no step size.

    Once every batch was seen, each visit is coordinate ascent on the exact bound. In the first pass that is remembered the sums
    are scaled by groups / groups seen. With ``first`` one pass goes before, of sampled steps of that length: what groups say
    while the globals are still poor is better forgotten than exchanged later, when local variables have settled on it. The
    groups not yet seen after it are thought to say what the globals hold: scaled sums of a few would lose what only others use.
    """

    def __init__(
        self,
        problem: AdditiveProblem,
        n_batches: int,
        tol: float,
        limit: int,
        step: Step | None = None,
        first: Step | None = None,
    ) -> None:
        self.problem, self.tol, self.limit = problem, tol, limit
        self.schedule = Constant(1.0) if step is None else step
        self.rising = self.schedule == Constant(1.0)
        self.n_batches = self.steps_per_pass = n_batches
        self.first = first
        self._batches: dict[int, list[Ints | None]] = {}

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        batches, n_groups = self._cut(seed), self.problem.n_groups
        problem = given(self.problem, state)
        if self.first is not None and state.t == self.n_batches and hasattr(problem, "revived"):
            # What a sampled pass has lost comes back before anything is remembered, so that no bound falls.
            state = problem.revived(state, seed)
        memory = state.memory.get(KEY)
        if self.first is not None and state.t < self.n_batches:
            chosen = batches[self._next(state, seed)]
            after, info = _sampled_step(self.problem, state, chosen, self.tol, self.limit, self.first)
            return after, info._replace(unbounded=True)
        if memory is None or not _fits(memory, [_length(batch, n_groups) for batch in batches]):
            memory = Remembered({}, 0.0, (None,) * len(batches))
        number = self._next(state, seed)
        before = memory.batches[number]
        rows = None if before is None else before.rows
        found = problem.solve(state, batches[number], rows, self.tol, self.limit)
        if (
            memory.messages and memory.messages.keys() != found.messages.keys()
        ):  # priors that were not learned then are now
            memory = Remembered({}, 0.0, (None,) * len(batches))
        memory = _exchanged(memory, number, found)
        seen = sum(_length(b, n_groups) for b, kept in zip(batches, memory.batches, strict=True) if kept is not None)
        scale = n_groups / seen
        rho = float(np.mean(self.schedule.rate(state.t + 1)))
        before_all = state.memory.get(BEFORE)
        if before_all is None and self.first is not None and seen < n_groups:
            before_all = {
                name: tuple(a - b for a, b in zip(state.lam[name], problem.prior_of(name), strict=True))
                for name in problem.blocks
            }
        totals = memory.messages if scale == 1.0 else _completed(memory.messages, before_all, scale)
        after, moves = move_blocks(problem, state, totals, rho)
        after = relearned(problem, after, totals, rho) if seen == n_groups and state.t >= self.n_batches else after
        bound = scale * memory.rest + given(problem, after).global_bound(after.lam, after.mu, totals)
        kept = {KEY: memory} if before_all is None or seen == n_groups else {KEY: memory, BEFORE: before_all}
        after = after._replace(t=state.t + 1, memory=kept)
        partial = seen < n_groups
        return after, StepInfo(moves, rho, found.reads, None if partial else bound, bound, unbounded=partial)

    def _cut(self, seed: int) -> list[Ints | None]:
        """The groups of each batch; with one batch nothing is copied."""
        if self.n_batches == 1:
            return [None]
        if seed not in self._batches:
            self._batches = {seed: [*_cut_of(seed, self.problem.n_groups, self.n_batches)]}
        return self._batches[seed]

    def _next(self, state: State, seed: int) -> int:
        """The batch of this step: what was not seen comes first, in the order of the pass."""
        epoch, place = divmod(state.t, self.n_batches)
        return int(generator(seed, Stream.BATCH_ORDER, epoch).permutation(self.n_batches)[place])


class SampledGroups(NothingToFinish):
    """A batch of groups at each step, nothing remembered; drawn anew, or ``in_passes`` through all of them."""

    rising, steps_per_pass = False, 1

    def __init__(
        self, problem: AdditiveProblem, size: int, tol: float, limit: int, step: Step, in_passes: bool = False
    ) -> None:
        if size > problem.n_groups:
            raise ValueError(
                f"SVI: a batch of {size} is larger than plate {problem.group_plate!r} with {problem.n_groups} elements; "
                "VB() reads all of them"
            )
        self.problem, self.size, self.tol, self.limit, self.schedule = problem, size, tol, limit, step
        self.n_batches = math.ceil(problem.n_groups / size) if in_passes else 0

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        return _sampled_step(self.problem, state, self._draw(state.t, seed), self.tol, self.limit, self.schedule)

    def _draw(self, t: int, seed: int) -> Ints:
        n_groups = self.problem.n_groups
        if self.n_batches:
            epoch, place = divmod(t, self.n_batches)
            shuffled = generator(seed, Stream.BATCH_ORDER, epoch).permutation(n_groups)
            return np.sort(np.array_split(shuffled, self.n_batches)[place])
        return np.sort(generator(seed, t).choice(n_groups, size=self.size, replace=False, shuffle=False))


def additive_stepper(
    problem: AdditiveProblem, method: Method | None, step: Step | None, room: float, stream: bool
) -> tuple[Stepper, str]:
    """The stepper for what the user fixed, and why it is this one; ``step`` is None where it is left to us.

    ``room`` is what may be remembered, in bytes.
    """
    if isinstance(method, (Children, GlobalBatch)):
        raise TypeError(
            f"{method} samples single observations; here groups are sampled: SVI({{{problem.group_plate!r}: size}})"
        )
    tol, limit = problem.local_limits
    if isinstance(method, VB) or (method is None and step is not None):
        return MemoisedGroups(problem, 1, tol, limit, step), "coordinate ascent on all groups, as asked"
    size = min(problem.batch_size, problem.n_groups)
    if isinstance(method, SVI):
        if method.plate != problem.group_plate:
            raise ValueError(
                f"SVI: batch names plate {method.plate!r}, and the groups are called {problem.group_plate!r}"
            )
        size, tol, limit = method.size, method.local_tol, method.local_steps
    if step is not None:
        return SampledGroups(problem, size, tol, limit, step), f"{method} with {step}, as asked"
    own: Step | None = getattr(problem, "step", None)
    if own is not None:
        return SampledGroups(problem, size, tol, limit, own), f"{own}: groups overlap, so nothing is remembered"
    sampled = SampledGroups(problem, size, tol, limit, ONE_PASS, in_passes=True)
    if stream:
        return sampled, f"{ONE_PASS}: the data are a stream, nothing is remembered"
    n_batches = math.ceil(problem.n_groups / size)
    needed = problem.row_bytes * problem.n_groups + problem.message_bytes * (n_batches + 1)
    if needed > room:
        return sampled, f"{ONE_PASS}: remembering {n_batches} batches takes {needed / 1e9:.2g} GB, more than there is"
    words = f"memoised VB in {n_batches} batches of {problem.group_plate!r}: given the globals they are independent"
    if n_batches < LEAST_TO_SAMPLE:
        return MemoisedGroups(problem, n_batches, tol, limit), words
    return MemoisedGroups(
        problem, n_batches, tol, limit, first=ONE_PASS
    ), f"{words}; before it one pass with {ONE_PASS}"


def rows_of(problem: AdditiveProblem, state: State, seed: int) -> list[tuple[Ints | None, Stats]]:
    """The groups and the rows of every batch that a state remembers; empty if it does not remember all of them."""
    memory = state.memory.get(KEY)
    if memory is None or any(kept is None for kept in memory.batches):
        return []
    n_batches = len(memory.batches)
    cut: list[Any] = [None] if n_batches == 1 else _cut_of(seed, problem.n_groups, n_batches)
    return [(groups, kept.rows) for groups, kept in zip(cut, memory.batches, strict=True)]


def n_remembered(state: State) -> int:
    """The groups whose rows a state remembers."""
    memory = state.memory.get(KEY)
    return 0 if memory is None else sum(len(kept.rows[0]) for kept in memory.batches if kept is not None)


def _sampled_step(
    problem: AdditiveProblem, state: State, chosen: Ints | None, tol: float, limit: int, schedule: Step
) -> tuple[State, StepInfo]:
    """λ ← (1 − ρ) λ + ρ (η̃ + groups/batch Σ_g m_g) from some groups; the estimate of the bound is theirs."""
    problem = given(problem, state)
    found = problem.solve(state, chosen, None, tol, limit)
    scale = problem.population / _length(chosen, problem.n_groups)
    rho = float(np.mean(schedule.rate(state.t + 1, scale)))
    totals = _scaled(found.messages, scale)
    after, info = move_blocks(problem, state, totals, rho)
    after = relearned(problem, after, totals, rho) if state.t >= LEARN_AFTER else after
    estimate = scale * found.rest + given(problem, after).global_bound(after.lam, after.mu, totals)
    return after._replace(t=state.t + 1, memory={}), StepInfo(info, rho, found.reads, estimate=estimate)


def _cut_of(seed: int, n_groups: int, n_batches: int) -> list[Ints]:
    shuffled = generator(seed, Stream.BATCH_CUT).permutation(n_groups)
    return [np.sort(part) for part in np.array_split(shuffled, n_batches)]


def _length(batch: Ints | None, n_groups: int) -> int:
    return n_groups if batch is None else len(batch)


def _fits(memory: Remembered, lengths: list[int]) -> bool:
    """Whether what is remembered is of batches with so many groups."""
    return len(memory.batches) == len(lengths) and all(
        kept is None or all(len(part) == length for part in kept.rows)
        for kept, length in zip(memory.batches, lengths, strict=True)
    )


def _exchanged(memory: Remembered, number: int, found: GroupResult) -> Remembered:
    """The old contribution of a batch taken out, the new one put in; of a single batch only the sums are kept."""
    old = memory.batches[number]
    alone = len(memory.batches) == 1
    kept = Kept(found.rows, {} if alone else found.messages, found.rest)
    batches = (*memory.batches[:number], kept, *memory.batches[number + 1 :])
    if alone or not memory.messages:
        return Remembered(found.messages, found.rest, batches)
    messages = {
        name: tuple(
            _swapped(total, new, None if old is None else old.messages[name][place])
            for place, (total, new) in enumerate(zip(parts, found.messages[name], strict=True))
        )
        for name, parts in memory.messages.items()
    }
    return Remembered(messages, memory.rest + found.rest - (0.0 if old is None else old.rest), batches)


def _swapped(total: Any, new: Any, old: Any) -> Any:
    """Sums in double precision, whatever the type of what is remembered; a float32 is a float64 exactly."""
    added = np.add(total, new, dtype=np.float64)
    return added if old is None else np.subtract(added, old, out=added)


def _completed(messages: ByBlock, before: ByBlock | None, scale: float) -> dict[str, Stats]:
    """The messages of some groups stand for all, ``scale`` times as many; or the others say what was said before."""
    out = _scaled(messages, scale)
    for name, parts in (before or {}).items():
        out[name] = tuple(
            np.add(new, (1.0 - 1.0 / scale) * old, dtype=np.float64)
            for new, old in zip(messages[name], parts, strict=True)
        )
    return out


def _scaled(messages: ByBlock, scale: float) -> dict[str, Stats]:
    return {
        name: tuple(np.multiply(part, scale, dtype=np.float64) for part in parts) for name, parts in messages.items()
    }


def move_blocks(
    problem: AdditiveProblem, state: State, totals: ByBlock, rho: float, valid: Valid | None = None
) -> tuple[State, dict[str, BlockInfo]]:
    """λ ← (1 − ρ) λ + ρ (η̃ + m) for every block; ``valid(block, λ, μ)`` where the problem knows better than the family."""
    lam, mu, info = dict(state.lam), dict(state.mu), {}
    for name, block in problem.blocks.items():
        target = tuple(np.asarray(p + m, np.float64) for p, m in zip(problem.prior_of(name), totals[name], strict=True))
        old = lam[name]
        new = target if rho == 1.0 else tuple((1.0 - rho) * a + rho * b for a, b in zip(old, target, strict=True))
        lam[name], mu[name] = new, problem.moments(block, new)
        moved = sum(_square(b - a) for a, b in zip(old, new, strict=True))
        size = sum(map(_square, old)) + 1e-300
        good = bool(np.all(block.family.valid(new))) if valid is None else valid(block, new, mu[name])
        info[name] = BlockInfo(good, math.sqrt(moved / size))
    return state._replace(lam=lam, mu=mu), info


def _square(a: Any) -> float:
    """Σ a², without a copy in any order."""
    flat = np.ravel(a, order="K")
    return float(np.dot(flat, flat))
