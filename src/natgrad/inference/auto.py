"""`Auto`: no step size from the user. A problem and what the user fixed in; a stepper, and in words why it was chosen, out.

nothing fixed            exact sweeps with gauge rotation where there is a gauge; memoised VB where groups are
independent given the globals and there are many of them, unless Gaussian means inside and outside of them
add up (crossed effects); otherwise accelerated exact sweeps
SVI                      memoised VB
Children, GlobalBatch    per-node steps under a safeguard
method and step          exactly those
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from natgrad.errors import NotAdditive
from natgrad.inference.executors import Executor
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch, Method
from natgrad.inference.problem import EdgeProblem, GroupProblem, Problem
from natgrad.inference.step_sizes import Constant, PerNode, Step
from natgrad.inference.steppers.groups import FOLLOWING, ONE_PASS, GroupStepper, WholePasses
from natgrad.inference.steppers.sampled import ChildrenStepper, GlobalBatchStepper
from natgrad.inference.steppers.stepper import Stepper
from natgrad.inference.steppers.sweep import AcceleratedStepper, ExactStepper, PrunedStepper, SafeguardedStepper
from natgrad.validation import real_number

__all__ = ["Auto", "Choice", "Control", "choose"]

DataAccess = Literal["cheap", "expensive", "stream"]
# Observations of a batch of memoised VB, at least. A visit costs ten milliseconds whatever it reads: where access is cheap,
# batches must be worth it (on 6,000 points of a mixture sweeps are 20 times as fast as 30 batches), and may be small where they
# are not.
OBSERVATIONS = {"cheap": 20_000, "expensive": 200, "stream": 200}
# With fewer batches a pass of sampled steps has no time to forget the start.
LEAST_TO_SAMPLE = 5
# A part of the free memory that remembered messages may take.
MEMORY_SHARE = 0.5


@final
@dataclass(frozen=True, slots=True)
class Auto:
    """The default: chooses what is fastest for the data at hand, and needs no step size.

    Parameters
    ----------
    data_access : "cheap", "expensive" or "stream"
        What reading data costs: in memory they are cheap; "expensive" ones (disk, network) are read in small batches;
        "stream" is data that never come again, for which nothing is remembered.
    memory : float, optional
        Bytes that remembered messages may take; by default half of what is free. Without the room sweeps over all data are
        as exact; where batches were asked for, steps forget.
    rotate : bool
        Whether pairs of nodes that are seen only through their inner product may be rotated to where the bound is higher.

    Examples
    --------
    >>> Auto(memory=2e9)
    Auto(data_access='cheap', memory=2000000000.0, rotate=True)
    """

    data_access: DataAccess = "cheap"
    memory: float | None = None
    rotate: bool = True

    def __post_init__(self) -> None:
        if self.data_access not in ("cheap", "expensive", "stream"):
            raise ValueError(f'data_access must be "cheap", "expensive" or "stream", got {self.data_access!r}')
        if self.memory is not None and not real_number(self.memory, "memory") >= 0:
            raise ValueError(f"memory must be ≥ 0 bytes, got {self.memory!r}: 0 remembers nothing")

    @property
    def memory_budget(self) -> float:
        """Bytes for remembered messages."""
        return free_memory() * MEMORY_SHARE if self.memory is None else self.memory


Control = Step | Auto


class Choice(NamedTuple):
    """The stepper of a run, and why it is this one."""

    stepper: Stepper
    words: str


def choose(
    problem: Problem, method: Method | None, step: Control, order: tuple[str, ...], executor: Executor | None = None
) -> Choice:
    """The stepper for what the user fixed; ``Auto`` fills in the rest. An ``executor`` takes the parts of a network's batches."""
    if isinstance(problem, GroupProblem):
        fixed, auto = (None, step) if isinstance(step, Auto) else (step, Auto(memory=0.0))
        return Choice(
            *_of_groups(problem, method, fixed, auto.memory_budget, fixed is None and auto.data_access == "stream")
        )
    assert isinstance(problem, EdgeProblem)
    if executor is not None:
        return _shared_out(problem, method, step, order, executor)
    if not isinstance(step, Auto):
        chosen = VB() if method is None else method
        return Choice(_as_asked(problem, chosen, step, order), f"{chosen} with {step}, as asked")
    if isinstance(method, VB):
        if method.option == "a":
            return _accelerated(problem, order, step.rotate, "exact sweeps were asked for")
        return Choice(
            ExactStepper(problem, method, Constant(1.0 / largest_coupling(problem)), order),
            "all blocks move together, by 1/ω of the way for ω that meet in one child",
        )
    if isinstance(method, SVI):
        try:
            return _grouped(problem, method, step, order)
        except NotAdditive as reason:
            return Choice(_forgotten(problem, method, PerNode(), order), f"per-node steps: {reason}")
    if method is not None:
        return _sampled(problem, method, step, order)
    return _best(problem, step, order)


def _of_groups(
    problem: GroupProblem, method: Method | None, step: Step | None, memory_budget: float, stream: bool
) -> tuple[Stepper, str]:
    """The stepper for what the user fixed, and why it is this one; ``step`` is None where it is left to us."""
    plate = problem.group_plate
    if isinstance(method, (Children, GlobalBatch)):
        raise TypeError(f"{method} samples single observations; here groups are sampled: SVI({{{plate!r}: size}})")
    tol, limit = problem.local_limits
    size = min(problem.batch_size, problem.n_groups)
    if isinstance(method, SVI):
        if method.plate != plate:
            raise ValueError(f"SVI: batch names plate {method.plate!r}, and the groups are called {plate!r}")
        size, tol, limit = method.size, method.local_tol, method.local_steps
    if problem.follows_gradient:
        size = problem.n_groups if isinstance(method, VB) else size
        rule = step or (FOLLOWING if size < problem.n_groups else Constant(1.0))
        words = f"batches of {size} {plate}s with {rule}; q first, then the hyper-parameters by their gradient"
        return GroupStepper(problem, size, tol, limit, rule, remember=False), words
    if isinstance(method, VB) or (method is None and step is not None):
        whole = GroupStepper(problem, problem.n_groups, tol, limit, step, remember=True)
        return whole, "coordinate ascent on all groups"
    if step is not None:
        return GroupStepper(problem, size, tol, limit, step, remember=False), f"{method} with {step}, as asked"
    if problem.step is not None:
        words = f"{problem.step}: groups overlap, so nothing is remembered"
        return GroupStepper(problem, size, tol, limit, problem.step, remember=False), words
    forgotten = GroupStepper(problem, size, tol, limit, ONE_PASS, remember=False, in_passes=True)
    if stream:
        return forgotten, f"{ONE_PASS}: the data are a stream, nothing is remembered"
    n_batches = forgotten.n_batches
    needed = problem.row_bytes * problem.n_groups + problem.message_bytes * (n_batches + 1)
    if needed > memory_budget:
        why = f"remembering {n_batches} batches takes {_size(needed)}, more than there is"
        if method is not None:
            return forgotten, f"{ONE_PASS}: {why}"
        # What fits decides the schedule, never whether steps are exact.
        return GroupStepper(
            problem, problem.n_groups, tol, limit, remember=True
        ), f"coordinate ascent on all groups: {why}"
    words = f"memoised VB in {n_batches} batches of {plate!r}: given the globals they are independent"
    first = None if n_batches < LEAST_TO_SAMPLE and problem.revive is None else ONE_PASS
    if first is not None:
        words += f"; before it one pass with {ONE_PASS}"
    return GroupStepper(problem, size, tol, limit, remember=True, first=first), words


def largest_coupling(problem: EdgeProblem) -> int:
    """ω of the problem: the most variables that meet in one term."""
    return max((problem.coupling(name) for name in problem.blocks), default=1)


def _best(problem: EdgeProblem, auto: Auto, order: tuple[str, ...]) -> Choice:
    """Nothing was fixed."""
    if auto.data_access == "cheap" and auto.rotate and problem.gauges:
        pairs = ", ".join(f"{a}·{b}" for a, b in problem.gauges)
        return _accelerated(problem, order, True, f"data access is cheap, and the product {pairs} has a free rotation")
    method = None if problem.grouping is None else problem.grouping.best(order, OBSERVATIONS[auto.data_access])
    if method is not None and problem.grouping is not None:
        means = problem.grouping.coupled_means(method, order) if auto.data_access == "cheap" else ()
        if means:
            return _accelerated(
                problem, order, False, f"data access is cheap, and {', '.join(means)} are solved jointly"
            )
        try:
            stepper, words = _grouped(problem, method, auto, order)
        except NotAdditive as reason:
            # Steps of batches would forget, and take as long as sweeps where elements of a group take turns.
            if auto.data_access == "cheap":
                return _accelerated(problem, order, False, f"data access is cheap, and {reason}")
            return Choice(_forgotten(problem, method, PerNode(), order), f"per-node steps: {reason}")
        whole = isinstance(stepper, GroupStepper) and stepper.remember
        if auto.data_access == "cheap" and not whole:  # what fits decides the schedule, never whether steps are exact
            return _accelerated(problem, order, False, words.removeprefix("per-node steps: "))
        return Choice(WholePasses(stepper) if whole else stepper, words)  # type: ignore[arg-type]
    if auto.data_access == "cheap":
        return _accelerated(problem, order, False, "data access is cheap, and there are few independent groups")
    return _sampled(problem, Children(1), auto, order)


def _accelerated(problem: EdgeProblem, order: tuple[str, ...], use_rotation: bool, why: str) -> Choice:
    kind = AcceleratedStepper if problem.pruning is None else PrunedStepper
    return Choice(kind(problem, order, use_rotation), f"accelerated exact sweeps: {why}")


def _grouped(problem: EdgeProblem, method: SVI, auto: Auto, order: tuple[str, ...]) -> Choice:
    """Batches of groups; raises `NotAdditive` where what they say could be remembered if it added up."""
    plain = _forgotten(problem, method, PerNode(), order)
    if auto.data_access == "stream":
        return Choice(plain, "per-node steps: the data are a stream, nothing is remembered")
    needed = plain.problem.row_bytes * plain.problem.n_groups
    if needed > auto.memory_budget:
        return Choice(plain, f"per-node steps: remembering local variables takes {_size(needed)}, more than there is")
    memoised = _remembered(problem, method, order)
    return Choice(
        memoised,
        f"memoised VB in {memoised.n_batches} batches of {method.plate!r}: given the globals they are independent",
    )


def _shared_out(
    problem: EdgeProblem, method: Method | None, step: Control, order: tuple[str, ...], executor: Executor
) -> Choice:
    """Memoised VB, whose batches are visited in parts."""
    sampled = method
    if method is None and problem.grouping is not None:
        sampled = problem.grouping.best(order, OBSERVATIONS["expensive"])
    if problem.grouping is None or not isinstance(sampled, SVI) or not isinstance(step, Auto):
        raise TypeError(
            f"executor={executor!r} shares out batches of independent groups, SVI({{plate: size}}) without step=; here are "
            f"method={method!r}, step={step!r}{'' if sampled else ', and no plate has enough groups'}. Data that come by name, "
            "observed=Column(…), are shared out whatever the network and the method; or leave executor= out"
        )
    try:
        memoised = _remembered(problem, sampled, order, executor)
    except NotAdditive as reason:
        raise TypeError(f"executor={executor!r}: {reason}; leave executor= out") from None
    words = f"memoised VB in {memoised.n_batches} batches of {sampled.plate!r}, shared out by {executor!r}"
    return Choice(WholePasses(memoised) if method is None else memoised, words)


def _remembered(
    problem: EdgeProblem, method: SVI, order: tuple[str, ...], executor: Executor | None = None
) -> GroupStepper:
    assert problem.grouping is not None
    groups = problem.grouping.remembered(method, order, executor)
    return GroupStepper(groups, method.size, method.local_tol, method.local_steps, remember=True)


def _forgotten(problem: EdgeProblem, method: SVI, step: Step, order: tuple[str, ...]) -> GroupStepper:
    if problem.grouping is None:
        raise TypeError("SVI(batch) needs a declared network, or a model with groups of its own")
    groups = problem.grouping.along(method, order)
    return GroupStepper(groups, method.size, method.local_tol, method.local_steps, step, remember=False)


def _sampled(problem: EdgeProblem, method: Children | GlobalBatch, auto: Auto, order: tuple[str, ...]) -> Choice:
    inner = (
        ChildrenStepper(problem, method, PerNode(), order)
        if isinstance(method, Children)
        else GlobalBatchStepper(problem, method, PerNode(), order)
    )
    if auto.data_access == "stream":
        return Choice(inner, "per-node steps: the data are a stream, nothing is remembered")
    return Choice(SafeguardedStepper(problem, inner, order, auto.rotate), "per-node steps, checked by exact sweeps")


def _as_asked(problem: EdgeProblem, method: Method, step: Step, order: tuple[str, ...]) -> Stepper:
    if isinstance(method, VB):
        return ExactStepper(problem, method, step, order)
    if isinstance(method, Children):
        return ChildrenStepper(problem, method, step, order)
    if isinstance(method, GlobalBatch):
        return GlobalBatchStepper(problem, method, step, order)
    return _forgotten(problem, method, step, order)


def free_memory() -> float:
    """Bytes of memory that are free now; a gigabyte where the system does not tell."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 1e9


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2g} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.2g} MB"
