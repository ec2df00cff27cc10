"""Step groups that are independent given the globals: solve a batch of them, then update the globals.

    remembered   a fixed cut into batches, visited in a new random order in each pass. What a batch told is kept, and exchanged
                 when it is visited:  S ← S + S_b(new) − S_b(old),  globals = exact update from S.  No step size
    forgotten    λ ← (1 − ρ) λ + ρ (η̃ + groups/batch Σ_g m_g)

Once every batch was seen, each remembered visit is coordinate ascent on the exact bound, whatever the order and the size of the
batches; with one batch it is coordinate ascent on all the data. In the first pass the sums are scaled by groups / groups seen,
an average of what was seen so far. With ``first`` one pass of forgotten steps goes before: what groups say while the globals are
still poor is better forgotten than exchanged later, when local variables have settled on it. The groups not yet seen after it are
thought to say what the globals hold: scaled sums of a few would lose what only others use.

Where messages depend on q (`GroupProblem.conjugate` is False), a step is taken only if the same batch's bound does not fall;
otherwise it is halved. Hyper-parameters take a step of their own after the globals.

Neal and Hinton (1998); Hoffman et al. (2013); Hughes and Sudderth (2013); Hensman, Fusi and Lawrence (2013); Salimbeni,
Eleftheriadis and Hensman (2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import BlockInfo, GlobalResult, GroupProblem, GroupResult, Hyper, State
from natgrad.inference.schema import refuse
from natgrad.inference.step_sizes import Constant, RobbinsMonro, Step
from natgrad.inference.steppers.stepper import StepInfo, Stepper, all_valid
from natgrad.random import Stream, generator

__all__ = [
    "BEFORE",
    "FOLLOWING",
    "KEY",
    "ONE_PASS",
    "BatchMemory",
    "ExactPass",
    "GroupMemory",
    "GroupStepper",
    "Look",
    "WholePasses",
    "check_shapes",
    "completed",
    "cut_of",
    "n_remembered",
    "near",
    "replace_batch",
    "rows_of",
]

Stats = tuple[Any, ...]
ByBlock = Mapping[str, Stats]
Ints = npt.NDArray[np.int64]
KEY, BEFORE = "groups", "before"
# Sums that were exchanged for many passes differ by rounding from sums that are made anew.
NEAR = 1e-9


class BatchMemory(NamedTuple):
    """What is remembered of one batch."""

    rows: Any
    messages: dict[str, Stats]
    rest: float


class GroupMemory(NamedTuple):
    """Messages and rest summed over the batches seen; what each batch holds, None if it was not seen.

    ``cut`` tells which batches these are: the plate, how many, and the seed.
    """

    messages: dict[str, Stats]
    rest: float
    batches: tuple[BatchMemory | None, ...]
    cut: tuple[str, int, int] | None = None


def rows_of(problem: GroupProblem, state: State, seed: int) -> list[tuple[Ints | None, Any]]:
    """The groups and the rows of every batch that a state remembers; empty if it does not remember all of them."""
    memory = state.memory.get(KEY)
    if memory is None or any(kept is None for kept in memory.batches):
        return []
    cut = cut_of(seed, problem.n_groups, len(memory.batches))
    return [(groups, kept.rows) for groups, kept in zip(cut, memory.batches, strict=True)]


def n_remembered(state: State) -> int:
    """The groups whose rows a state remembers."""
    memory = state.memory.get(KEY)
    return 0 if memory is None else sum(len(kept.rows[0]) for kept in memory.batches if kept is not None)


def cut_of(seed: int, n_groups: int, n_batches: int) -> list[Ints | None]:
    """The groups of each batch, a function of the seed; of a single batch nothing is copied."""
    if n_batches == 1:
        return [None]
    shuffled = generator(seed, Stream.BATCH_CUT).permutation(n_groups)
    return [np.sort(part) for part in np.array_split(shuffled, n_batches)]


def replace_batch(memory: GroupMemory, number: int, solved: GroupResult) -> GroupMemory:
    """The old contribution of a batch taken out, the new one put in; of a single batch only the sums are kept."""
    old = memory.batches[number]
    alone = len(memory.batches) == 1
    kept = BatchMemory(solved.rows, {} if alone else solved.messages, solved.rest)
    batches = (*memory.batches[:number], kept, *memory.batches[number + 1 :])
    if alone or not memory.messages:
        return memory._replace(messages=solved.messages, rest=solved.rest, batches=batches)
    messages = {
        name: tuple(
            _swapped(total, new, None if old is None else old.messages[name][place])
            for place, (total, new) in enumerate(zip(parts, solved.messages[name], strict=True))
        )
        for name, parts in memory.messages.items()
    }
    rest = memory.rest + solved.rest - (0.0 if old is None else old.rest)
    return memory._replace(messages=messages, rest=rest, batches=batches)


def near(told: Any, wanted: Any, sizes: Mapping[str, Any], where: str) -> bool:
    """Whether messages and rest are those that are wanted, but for rounding; refuses other shapes."""
    check_shapes(told, wanted, where)
    same = all(np.all(np.abs(told.messages[k][0] - wanted.messages[k][0]) <= NEAR * s) for k, s in sizes.items())
    return bool(same and abs(told.rest - wanted.rest) <= NEAR * (1.0 + abs(wanted.rest)))


def check_shapes(told: Any, wanted: Any, where: str) -> None:
    """Refuses messages of other blocks or shapes than those that are wanted."""
    shapes, right = ({key: [np.shape(p) for p in parts] for key, parts in of.messages.items()} for of in (told, wanted))
    if shapes != right:
        refuse(where, f"has sums of the shapes {shapes}, and here they are {right}")


def _swapped(total: Any, new: Any, old: Any) -> Any:
    """Sums in double precision, whatever the type of what is remembered; a float32 is a float64 exactly."""
    added = np.asarray(np.add(total, new, dtype=np.float64))
    return added if old is None else np.subtract(added, old, out=added)


def completed(problem: GroupProblem, messages: ByBlock, before: ByBlock | None, scale: float) -> Any:
    """The messages of some groups stand for all, ``scale`` times as many; or the others say what was said before."""
    out = problem.scaled(messages, scale)
    for name, parts in (before or {}).items():
        out[name] = tuple(
            np.add(new, (1.0 - 1.0 / scale) * old, dtype=np.float64)
            for new, old in zip(messages[name], parts, strict=True)
        )
    return out


Look = Callable[[GroupProblem, State, GroupResult, Callable[[], bool]], tuple[GroupProblem, State] | None]
# For data too large to remember: one pass has some tens to hundreds of batches, and early ones must be forgotten within it.
ONE_PASS = RobbinsMonro(delay=4.0, forgetting=0.7)
# While hyper-parameters follow a gradient, q must follow them; the noise of single batches is taken out by the exact pass at the
# end. kin40k, M = 100, after 400 steps: 0.2 ends 0.03 nats a row better than 0.1, and than decaying steps.
FOLLOWING = Constant(0.2)
# A step that lowers its batch's bound is halved at most so often; what is left then is not worth a factorisation.
MOST_HALVINGS = 8
# A bound computed twice may differ by rounding.
ROUNDING = 1e-12


class GroupStepper(Stepper):
    """Batches of groups, remembered or forgotten.

    Parameters
    ----------
    problem : GroupProblem
    size : int, groups in a batch
    tol, limit : of the local variables
    schedule : Step, how long steps are; remembered ones are exact by default
    remember : bool
    first : Step, optional
        Of a first pass that is forgotten.
    in_passes : bool
        Whether forgotten batches go through all groups, or are drawn anew at each step.
    arrivals : function, optional
        The problem, a state, what all groups say there, and whether time is up in; both with components that came with these
        groups out, None if there are none (`natgrad.inference.arrivals`).
    """

    def __init__(
        self,
        problem: GroupProblem,
        size: int,
        tol: float,
        limit: int,
        schedule: Step | None = None,
        *,
        remember: bool,
        first: Step | None = None,
        in_passes: bool = False,
        arrivals: Look | None = None,
    ) -> None:
        if size > problem.n_groups:
            raise ValueError(
                f"SVI: a batch of {size} is larger than plate {problem.group_plate!r} with {problem.n_groups} elements; "
                "VB() reads all of them"
            )
        self.problem, self.size, self.tol, self.limit = problem, size, tol, limit
        self.schedule: Step = Constant(1.0) if schedule is None else schedule
        self.remember, self.first, self.in_passes, self.arrivals = remember, first, in_passes, arrivals
        self.n_batches = math.ceil(problem.n_groups / size)
        self.monotone = remember and self.schedule == Constant(1.0)
        self.batches = self.n_batches
        self.steps_per_pass = self.n_batches if remember else 1
        self._cuts: dict[int, list[Ints | None]] = {}
        # Whether the time of the run is up: asked by what takes long within a step.
        self.late: Callable[[], bool] = bool  # which is False
        # What the last step remembered; anything else comes from elsewhere, perhaps from a file.
        self._mine: GroupMemory | None = None

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """A batch, then the globals."""
        if not self.remember:
            return self._forgotten(state, self._drawn(state.t, seed), self.schedule)
        if self.first is not None and state.t < self.n_batches:
            after, info = self._forgotten(state, self._cut(seed)[self._next(state, seed)], self.first)
            return after, info._replace(unbounded=True)
        if self.first is not None and state.t == self.n_batches and self.problem.revive is not None:
            # What a sampled pass has lost comes back before anything is remembered, so that no bound falls.
            state = self.problem.revive(state, seed, self.late)
        return self._remembered(state, seed)

    def finish(self, state: State) -> State:
        """The state as a user sees it: remembered local variables in their places."""
        memory = state.memory.get(KEY)
        if memory is None:
            return state
        batches = self._cut(memory.cut[2]) if memory.cut else [None] * len(memory.batches)
        rows = [None if kept is None else kept.rows for kept in memory.batches]
        return self.problem.collect(state, list(zip(batches, rows, strict=True)))

    # -- forgotten --

    def _forgotten(self, state: State, chosen: Ints | None, schedule: Step) -> tuple[State, StepInfo]:
        """λ ← (1 − ρ) λ + ρ (η̃ + groups/batch Σ_g m_g) from some groups; the estimate of the bound is theirs."""
        before = 0
        if state.t == 0:
            state, before = self.problem.begin(state)
        hyper = self.problem.hyper
        problem = self.problem if hyper is None else hyper.at(state)
        solved = problem.solve(state, chosen, problem.rows_in(state, chosen), self.tol, self.limit)
        if self.arrivals is not None and (grown := self.arrivals(problem, state, solved, self.late)) is not None:
            self.arrivals, (self.problem, state) = None, grown
            after, info = self._forgotten(state, chosen, schedule)
            return after, info._replace(messages_read=info.messages_read + solved.reads)
        scale = problem.population / _length(chosen, problem.n_groups)
        rho = float(np.mean(schedule.rate(state.t + 1, scale)))
        messages = problem.scaled(solved.messages, scale)
        result, rho = _checked_step(problem, state, solved, messages, scale, rho)
        after = result.state
        if result.bound is None:
            estimate = problem.batch_bound(after, solved, messages, scale)
        else:
            estimate = scale * solved.rest + result.bound
        if hyper is not None and state.t >= hyper.after:
            after = _hyper(problem).step(after, solved, messages, scale, rho)
        after = problem.write_rows(after, chosen, solved)
        info = StepInfo(result.info, rho, before + solved.reads, estimate=estimate)
        return after._replace(t=state.t + 1, memory={}), info

    def _drawn(self, t: int, seed: int) -> Ints | None:
        n_groups = self.problem.n_groups
        if self.size == n_groups:
            return None
        if self.in_passes:
            epoch, place = divmod(t, self.n_batches)
            shuffled = generator(seed, Stream.BATCH_ORDER, epoch).permutation(n_groups)
            return np.sort(np.array_split(shuffled, self.n_batches)[place])
        return np.sort(generator(seed, t).choice(n_groups, size=self.size, replace=False, shuffle=False))

    # -- remembered --

    def _remembered(self, state: State, seed: int) -> tuple[State, StepInfo]:
        batches, n_groups = self._cut(seed), self.problem.n_groups
        hyper = self.problem.hyper
        problem = self.problem if hyper is None else hyper.at(state)
        memory: GroupMemory | None = state.memory.get(KEY)
        reads, strange = 0, False
        if memory is None or memory.cut not in (None, self._cut_name(seed)):
            state, memory, reads = self._begin(state, batches, seed)
        elif memory is not self._mine:
            memory, strange = self._checked(memory, state, batches, seed), True
        number = self._next(state, seed)
        before = memory.batches[number]
        rows = problem.rows_in(state, batches[number]) if before is None else before.rows
        solved = problem.solve(state, batches[number], rows, self.tol, self.limit)
        if (
            memory.messages and memory.messages.keys() != solved.messages.keys()
        ):  # priors that were not learned then are now
            memory = self._nothing(seed)
        if strange and memory.messages:
            check_shapes(memory, solved, "what was remembered")
        self._mine = memory = replace_batch(memory, number, solved)
        reads += solved.reads
        seen = sum(_length(b, n_groups) for b, kept in zip(batches, memory.batches, strict=True) if kept is not None)
        if problem.leading and seen < n_groups:
            return state._replace(t=state.t + 1, memory={KEY: memory}), StepInfo({}, 1.0, reads, unbounded=True)
        scale = n_groups / seen
        rho = float(np.mean(self.schedule.rate(state.t + 1)))
        said_before = self._said_before(state, seen)
        messages = memory.messages
        if scale != 1.0:
            messages = completed(problem, messages, said_before, scale)
        result = problem.global_step(state, messages, rho)
        after, bound = result.state, result.bound
        if hyper is not None and seen == n_groups and state.t >= self.n_batches:
            after = _hyper(problem).step(after, solved, messages, 1.0, rho)
            problem, bound = hyper.at(after), None
        if bound is None:
            bound = problem.global_bound(after.lam, after.mu, messages)
        bound += scale * memory.rest
        kept = {KEY: memory} if said_before is None or seen == n_groups else {KEY: memory, BEFORE: said_before}
        after = after._replace(t=state.t + 1, memory=kept)
        partial = seen < n_groups
        return after, StepInfo(result.info, rho, reads, None if partial else bound, bound, unbounded=partial)

    def _said_before(self, state: State, seen: int) -> Any:
        """After a forgotten pass, what the globals held when remembering began."""
        remembered = state.memory.get(BEFORE)
        if remembered is None and self.first is not None and seen < self.problem.n_groups:
            return {
                name: tuple(a - b for a, b in zip(state.lam[name], self.problem.prior_of(name), strict=True))
                for name in self.problem.blocks
            }
        return remembered

    def _begin(self, state: State, batches: list[Ints | None], seed: int) -> tuple[State, GroupMemory, int]:
        """Nothing seen; or, going on from another fit, what the local variables of its state say."""
        empty = self._nothing(seed)
        if state.t == 0:
            state, reads = self.problem.begin(state)
            return state, empty, reads
        memory, reads = empty, 0
        for number, groups in enumerate(batches):
            rows = self.problem.rows_in(state, groups)
            if rows is None:
                return state, empty, 0
            solved = self.problem.solve(state, groups, rows, self.tol, 0)
            memory, reads = replace_batch(memory, number, solved), reads + solved.reads
        return self.problem.global_step(state, memory.messages).state, memory, reads

    def _nothing(self, seed: int) -> GroupMemory:
        return GroupMemory({}, 0.0, (None,) * self.n_batches, self._cut_name(seed))

    def _cut_name(self, seed: int) -> tuple[str, int, int]:
        return self.problem.group_plate, self.n_batches, seed

    def _checked(self, memory: GroupMemory, state: State, batches: list[Ints | None], seed: int) -> GroupMemory:
        """What was remembered elsewhere of this cut, its sums made anew if they are not those of these data.

        It may come from a file, or from a fit to other data of the same size; sums that are right keep their bits. Without a way
        to tell, what does not fit is forgotten.
        """
        anew = self._nothing(seed)
        if len(memory.batches) != len(batches):
            return anew
        sizes: dict[str, Any] = {}
        close = True
        for number, (groups, kept) in enumerate(zip(batches, memory.batches, strict=True)):
            if kept is None:
                continue
            where = f"what was remembered of batch {number}"
            if not self.problem.fits(kept.rows, groups, state, where):
                return anew
            if not self.problem.summarises:
                continue
            solved = self.problem.solve(state, groups, kept.rows, self.tol, 0)
            anew = replace_batch(anew, number, solved)
            size = {key: np.abs(value[0]) for key, value in solved.messages.items()}
            sizes = {key: sizes.get(key, 0.0) + part for key, part in size.items()}
            # Of a single batch only the sums are kept.
            close &= len(batches) == 1 or near(kept, solved, size, where)
        if not self.problem.summarises:
            return memory
        return memory if near(memory, anew, sizes, "what was remembered") and close else anew

    def _cut(self, seed: int) -> list[Ints | None]:
        """The groups of each batch; with one batch nothing is copied."""
        if seed not in self._cuts:
            self._cuts = {seed: cut_of(seed, self.problem.n_groups, self.n_batches)}
        return self._cuts[seed]

    def _next(self, state: State, seed: int) -> int:
        """The batch of this step: what was not seen comes first, in the order of the pass."""
        epoch, place = divmod(state.t, self.n_batches)
        return int(generator(seed, Stream.BATCH_ORDER, epoch).permutation(self.n_batches)[place])


class WholePasses(Stepper):
    """Remembered batches where the user fixed none: a step is a pass over all of them, as it is for a sweep."""

    def __init__(self, inner: GroupStepper) -> None:
        self.inner = inner

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Every batch once."""
        here, read = state._replace(t=state.t * self.inner.n_batches), 0
        for _ in range(self.inner.n_batches):
            here, info = self.inner.step(here, seed)
            read += info.messages_read
            if not all_valid(info):
                break
        return here._replace(t=state.t + 1), info._replace(messages_read=read)

    def finish(self, state: State) -> State:
        """The local variables of all batches put in their places."""
        return self.inner.finish(state)


def schedule_of(stepper: Stepper) -> tuple[str, int]:
    """Return the name of the schedule of a stepper, "" for exact sweeps, and how many of its steps are a pass."""
    if isinstance(stepper, WholePasses):
        return "memoised", 1
    if isinstance(stepper, GroupStepper) and stepper.remember:
        return ("memoised" if stepper.n_batches > 1 else ""), stepper.n_batches
    if isinstance(stepper, GroupStepper) and stepper.problem.follows_gradient:
        return "by gradients", 1
    return ("" if stepper.monotone else "sampled"), 1


class ExactPass(Stepper):
    """A closing phase: the q from all groups, hyper-parameters held; where not conjugate, a step that cannot lower the bound."""

    def __init__(self, problem: GroupProblem) -> None:
        self.problem = problem

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """All groups, then the globals; the number of steps stays."""
        problem = self.problem
        solved = problem.solve_all(state)
        messages = problem.scaled(solved.messages, problem.population / problem.n_groups)
        lengths = (1.0,) if problem.conjugate else (1.0, 0.5, 0.25)
        before = None if problem.conjugate else problem.bound(state)
        for rho in lengths:
            after, info, _ = problem.global_step(state, messages, rho)
            if before is None or problem.bound(after) >= before:
                return after, StepInfo(info, rho, solved.reads, unbounded=True)
        return state, StepInfo({}, 0.0, solved.reads, unbounded=True)


def _checked_step(
    problem: GroupProblem, state: State, solved: GroupResult, messages: Any, scale: float, rho: float
) -> tuple[GlobalResult, float]:
    """The natural step of the globals, and how long it was; zero if no length was accepted."""
    if problem.conjugate:
        return problem.global_step(state, messages, rho), rho
    before = problem.batch_bound(state, solved, messages, scale)
    for _ in range(MOST_HALVINGS):
        result = problem.global_step(state, messages, rho)
        if all(info.valid for info in result.info.values()):
            now = problem.batch_bound(result.state, solved, messages, scale)
            if now >= before - ROUNDING * abs(before):
                return result, rho
        rho *= 0.5
    return GlobalResult(state, {name: BlockInfo(True, 0.0) for name in problem.blocks}), 0.0


def _hyper(problem: GroupProblem) -> Hyper:
    assert problem.hyper is not None
    return problem.hyper


def _length(batch: Ints | None, n_groups: int) -> int:
    return n_groups if batch is None else len(batch)
