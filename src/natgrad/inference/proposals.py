"""Judge proposals: follow each by the run's own sweeps, keep it if the ELBO rises, and record what that took.

A proposal is a state beside the one that a run has reached, or where a run may begin:

    start     priors, values, clusters, draws: `compare` gives each some sweeps, and the best goes on
    probe     a way off a saddle, when a run has converged or is stagnating: components that have merged, factors switched off
    moves     births, merges, deletes and exchanges of components, between passes (`natgrad.inference.moves`)

A stationary point of coordinate ascent may be a saddle. Leaving one is slow and then fast, or never happens, and no gain shows
it: so a run is probed before it may say that it has converged. `judge` follows proposals one after the other until one leads
higher than the state, by more than the tolerance; a run goes on from there, and otherwise keeps its state, bit by bit. What is
proposed is a function of the state, the seed and the proposals before, which are in the trace: a resumed run makes the same ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from natgrad.families.natural_step import relative_change
from natgrad.inference.monitor import left_to_gain
from natgrad.inference.problem import Problem, State
from natgrad.inference.steppers.stepper import StepInfo, Stepper, all_valid
from natgrad.inference.trace import ProposalRecord

__all__ = ["Proposal", "Starts", "Trial", "compare", "follow", "judge", "probes_at"]

# Passes after which a proposal, or a start that is compared, is given up, if it is not clear sooner where it leads.
LONGEST = 40
# A proposal whose ELBO is within so many tolerances of the settled one is on its way back when the distance of its λ is less than
# this part of the settled λ, and has shrunk by this factor.
CLOSE, NEAR, BACK = 10.0, 0.05, 0.7
# Or already within so many where its distance has shrunk by this factor twice in a row. Of 9,000 probes of random mixtures that
# were followed to their end, 637 of which led higher, this gave up none that the rule above did not.
SOON, TWICE = 100.0, 0.5
# After one pass a probe is kept that is higher by this share of the tolerance, and by so many times what the run's own last pass
# gained: little, but nothing that the run was about to find, and no way back leads there.
AT_ONCE, OWN = 0.02, 3.0
# Nats by which a start has to be higher than the first to be worth more steps; two that lead to one optimum are not.
WORTH = 0.01
# Bounds that differ by this part of themselves are equal: a sum of a million terms loses as much.
ROUNDING = 1e-10


class Proposal(NamedTuple):
    """A state that may be tried.

    Parameters
    ----------
    kind, name : what the record calls it (`ProposalRecord`)
    state : State or None
        None where it is refused before any sweep.
    components, held : of a move, which components, and how many observations they hold
    least : float
        Nats that it must gain, beyond the tolerance.
    n_active : function, optional
        From a complete state to the number of components in it.
    """

    kind: str
    name: str
    state: State | None
    components: tuple[int, ...] = ()
    held: float = 0.0
    least: float = 0.0
    n_active: Callable[[State], int] | None = None


class Trial(NamedTuple):
    """Where a proposal has led: the state and its last step, whether that is higher than the run had come, and what it read."""

    state: State
    info: StepInfo
    higher: bool
    messages_read: int


def judge(
    problem: Problem,
    stepper: Stepper,
    proposals: Iterable[Proposal],
    state: State,
    bounds: Sequence[float],
    *,
    seed: int,
    tol: float,
    budget: float = math.inf,
    late: Callable[[], bool] = bool,
) -> tuple[Trial | None, list[ProposalRecord]]:
    """Follow proposals in turn up to the first that leads higher than a state, which is returned, with the records of all.

    Parameters
    ----------
    problem, stepper : of the run, whose ELBO cannot fall
    proposals : made one by one, as they are needed
    state : a complete state, as a stepper's ``finish`` gives it
    bounds : the ELBO after each step of the run; the last is that of the state
    seed, tol : of the run
    budget : messages after which a pass is the last
    late : whether time is up
    """
    bound, own = bounds[-1], bounds[-1] - bounds[max(-len(bounds), -1 - stepper.steps_per_pass)]
    records: list[ProposalRecord] = []
    read = 0
    for proposal, made, seconds in _made(problem, proposals):
        begun, trial = time.perf_counter() - seconds, None
        if proposal.state is not None:
            # What is remembered belongs to the state of the run; who says nothing of it has it forgotten.
            same = proposal.state.memory is state.memory
            start = proposal.state._replace(memory={}) if same else proposal.state
            sooner = max(AT_ONCE * tol, OWN * own) if proposal.kind == "probe" else math.inf
            left = budget - read - made
            trial = follow(stepper, start, state, bound, seed, max(tol, proposal.least), sooner, left)
        here = made + (0 if trial is None else trial.messages_read)
        read += here
        higher = trial is not None and trial.higher
        after = trial.state if trial is not None and higher else state
        records.append(
            ProposalRecord(
                state.t, proposal.kind, proposal.name, here / max(1, problem.n_messages), here,
                time.perf_counter() - begun, bound, -math.inf if trial is None else _gain(trial, bound), higher,
                proposal.components, 0 if proposal.n_active is None else proposal.n_active(stepper.finish(after)),
                float(proposal.held),
            )
        )  # fmt: skip
        if higher:
            return trial, records
        if late() or read >= budget:
            break
    return None, records


def probes_at(problem: Problem, state: State, order: tuple[str, ...], seed: int, number: int) -> Iterator[Proposal]:
    """What the ``probes`` of a problem propose at a complete state, in order.

    Their random numbers are those of the seed and the ``number`` of rounds of probes before, so that runs which converge to the
    same saddle are probed alike, however many steps each took.
    """
    for probe in problem.probes:
        proposed = probe(problem, state, order, seed, number)
        if proposed is not None:
            yield Proposal("probe", probe.__name__.replace("_", " "), proposed)


def _made(problem: Problem, proposals: Iterable[Proposal]) -> Iterator[tuple[Proposal, int, float]]:
    """Every proposal with the messages and seconds that it took to make it."""
    waiting = iter(proposals)
    while True:
        read, begun = problem.swept, time.perf_counter()
        if (proposal := next(waiting, None)) is None:
            return
        yield proposal, problem.swept - read, time.perf_counter() - begun


def _gain(trial: Trial, bound: float) -> float:
    reached = trial.info.bound
    return -math.inf if reached is None or math.isnan(reached) else float(reached - bound)


def follow(
    stepper: Stepper,
    state: State,
    settled: State,
    goal: float,
    seed: int,
    tol: float,
    sooner: float = math.inf,
    budget: float = math.inf,
) -> Trial:
    """Take steps from a state until the ELBO is higher than the goal by ``tol``, or it is clear that it will not be.

    After the first pass an ELBO that is higher by ``sooner`` is enough. A pass after ``budget`` messages is the last.
    """
    bounds: list[float] = []
    way_back = _WayBack(settled)
    read = 0
    margin = max(tol, 1e-12 * abs(goal))
    for number in range(1, LONGEST * stepper.steps_per_pass + 1):
        state, info = stepper.step(state, seed)
        read += info.messages_read
        if not all_valid(info):
            break
        if info.bound is None:
            continue
        if math.isnan(info.bound):
            break
        bounds.append(info.bound)
        if number % stepper.steps_per_pass:
            continue
        if info.bound > goal + (margin if len(bounds) > stepper.steps_per_pass else min(margin, sooner)):
            return Trial(state, info, True, read)
        left = left_to_gain(bounds, stepper.steps_per_pass)
        if read >= budget or (left is not None and info.bound + left.gain <= goal + margin):
            break
        if way_back.passed(state, (goal - info.bound) / margin, early=len(bounds) <= 2):
            break
    return Trial(state, info, False, read)


class _WayBack:
    """Whether a trial is near where it came from, and was farther away a pass before; of its states the last three are kept."""

    def __init__(self, settled: State) -> None:
        self.settled = settled
        self._states: list[State] = []
        self._away: list[float | None] = []

    def passed(self, state: State, behind: float, early: bool) -> bool:
        """After another pass, which ended so many tolerances below the settled bound; ``early`` is too soon to tell.

        A distance takes as long as a part of a pass: it is computed where the bound is close.
        """
        self._states, self._away = [*self._states[-2:], state], [*self._away[-2:], None]
        if early or len(self._states) < 2 or behind > SOON or self._distance(-1) > BACK * NEAR:
            return False
        if behind <= CLOSE and self._distance(-1) <= BACK * self._distance(-2):
            return True
        return len(self._states) == 3 and all(self._distance(n) <= TWICE * self._distance(n - 1) for n in (-1, -2))

    def _distance(self, number: int) -> float:
        """The largest relative distance of a block's λ."""
        away = self._away[number]
        if away is None:
            pairs = ((self._states[number].lam[name], lam) for name, lam in self.settled.lam.items())
            away = self._away[number] = max((relative_change(b, a) for a, b in pairs), default=0.0)
        return away


# Starts are compared with one another. After every round those go on that may still overtake the first, each optimum once and the
# highest first, as far as the budget of sweeps lasts. What they read is counted by the run that begins with the best of them.


class Starts(NamedTuple):
    """Where a run may begin.

    Parameters
    ----------
    problem : the one that the starts are compared on: that of the run, or a sample of it
    candidates : functions that make a state
    stepper : a function that makes the stepper of a candidate, given its number: threads share none
    rounds : steps of every candidate, and then of those that are left in each later round
    finish : makes the state that the run begins with from the best one
    budget : sweeps of all candidates together, beyond those of the first round
    n_threads : how many are tried at a time; the result does not depend on it
    names : what the candidates are called in the trace
    read : messages that were read to find the candidates
    """

    problem: Problem
    candidates: Sequence[Callable[[], State]]
    stepper: Callable[[int], Stepper]
    rounds: tuple[int, int]
    finish: Callable[[State], State]
    budget: float
    n_threads: int = 1
    names: tuple[str, ...] = ()
    read: int = 0


@dataclass
class _Candidate:
    """A start on its way."""

    number: int
    make: Callable[[], State]
    bounds: list[float] = field(default_factory=list)
    read: int = 0
    seconds: float = 0.0

    @property
    def bound(self) -> float:
        return self.bounds[-1]


def compare(starts: Starts, seed: int, late: Callable[[], bool]) -> tuple[State, list[ProposalRecord]]:
    """The best of some starts, and what became of all of them, the best first."""
    left = [_Candidate(number, make) for number, make in enumerate(starts.candidates)]
    left[0].read = starts.read
    every, n_rounds = list(left), 0
    with ThreadPoolExecutor(starts.n_threads) as pool:
        while True:
            steps = starts.rounds[min(n_rounds, 1)]

            def improve(candidate: _Candidate, steps: int = steps) -> None:
                _improve(starts, candidate, steps, seed, late)

            list(pool.map(improve, left) if starts.n_threads > 1 else map(improve, left))
            ranked = _ranked(left)
            n_rounds += 1
            left = _contenders(ranked)
            taken = sum(candidate.read for candidate in every) / max(1, starts.problem.n_messages)
            del left[max(0, int((starts.budget - taken) // max(1, starts.rounds[1]))) :]
            if len(left) < 2 or late():
                best = ranked[0]
                return starts.finish(best.make()), _records(starts, best, every)


def _improve(starts: Starts, candidate: _Candidate, steps: int, seed: int, late: Callable[[], bool]) -> None:
    """Take some more steps from a start; one that leaves its space ends there, and is the last of all.

    When time is up a candidate stays where it is. Of those that have not begun only the first still takes a step.
    """
    if not candidate.bounds and candidate.number and late():
        candidate.bounds.append(-math.inf)
        return
    before, begun = starts.problem.swept, time.perf_counter()
    state, stepper = candidate.make(), starts.stepper(candidate.number)
    if not candidate.bounds and starts.n_threads == 1:
        candidate.read += starts.problem.swept - before
    for _ in range(steps):
        if candidate.bounds and (candidate.bound == -math.inf or late()):
            break
        new, info = stepper.step(state, seed)
        bound = info.estimate if info.bound is None else info.bound
        candidate.read += info.messages_read
        if not all_valid(info) or not bound > -math.inf:  # NaN too
            candidate.bounds.append(-math.inf)
            break
        state = new
        candidate.bounds.append(bound)
    candidate.make = lambda: state
    candidate.bounds = candidate.bounds or [-math.inf]
    candidate.seconds += time.perf_counter() - begun


def _ranked(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """The best first; of those that differ by rounding alone, the one that was given first.

    Starts that reach the same optimum with other labels have equal bounds but for their last digits, which depend on the machine
    and on whether a kernel was compiled or read from a cache: labels must not.
    """
    groups: list[list[_Candidate]] = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate.bound):
        top = groups[-1][0].bound if groups else -math.inf
        if groups and top - candidate.bound <= ROUNDING * abs(top):  # no inequality holds of two infinities
            groups[-1].append(candidate)
        else:
            groups.append([candidate])
    return [candidate for group in groups for candidate in sorted(group, key=lambda candidate: candidate.number)]


def _contenders(ranked: Sequence[_Candidate]) -> list[_Candidate]:
    """The first, and those that may overtake it, without those that follow another one to its optimum."""
    first, *others = ranked
    left = [first]
    for candidate in others:
        if _may_overtake(candidate, first) and not any(_is_twin(candidate, other) for other in left):
            left.append(candidate)
    return left


def _is_twin(one: _Candidate, other: _Candidate) -> bool:
    """Whether two candidates have had the same bounds after the last two steps: they differ in labels, or in little else."""
    pairs = zip(one.bounds[-2:], other.bounds[-2:], strict=False)
    return all(abs(a - b) < WORTH for a, b in pairs)


def _may_overtake(second: _Candidate, first: _Candidate) -> bool:
    left = left_to_gain(second.bounds)
    return left is None or second.bound + left.gain > first.bound + WORTH


def _records(starts: Starts, best: _Candidate, every: Sequence[_Candidate]) -> list[ProposalRecord]:
    names = starts.names or tuple(f"start {number}" for number in range(len(starts.candidates)))
    others = sorted((c for c in every if c is not best), key=lambda c: (-len(c.bounds), -c.bound))
    size = max(1, starts.problem.n_messages)
    return [
        ProposalRecord(
            0, "start", names[c.number], c.read / size, c.read, c.seconds, c.bound,
            0.0 if c is best else c.bound - best.bound if c.bound > -math.inf else -math.inf, c is best,
        )
        for c in (best, *others)
    ]  # fmt: skip
