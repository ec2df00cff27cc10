"""`Auto`: no step size from the user. A problem and what the user fixed in; a stepper, and in words why it was chosen, out.

nothing fixed            exact sweeps with gauge rotation where there is a gauge; memoised VB where groups are
independent given the globals and there are many of them; otherwise accelerated exact sweeps
SVI                      memoised VB
Children, GlobalBatch    memoised messages, if the problem can and memory allows; otherwise per-node steps under a
safeguard
method and step          exactly those
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeGuard, final

from natgrad.errors import PlateMismatch
from natgrad.inference.executors.threads import Executor
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch, Method
from natgrad.inference.problem import Problem
from natgrad.inference.step_sizes import Constant, PerNode, Step
from natgrad.inference.steppers.accelerated import AcceleratedStepper
from natgrad.inference.steppers.checked import SafeguardedStepper
from natgrad.inference.steppers.groups import additive_stepper, is_additive
from natgrad.inference.steppers.message_memory import MessageStepper
from natgrad.inference.steppers.sampled import ChildrenStepper, ExactStepper, GlobalBatchStepper, Stepper
from natgrad.inference.steppers.tuned import is_tuned, tuned_stepper
from natgrad.network.groups.groups import Groups
from natgrad.network.groups.memoised import MemoisedStepper, WholePasses
from natgrad.network.groups.sampled import SVIStepper
from natgrad.renamed import says_new_names
from natgrad.validation import real_number

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["Auto", "Choice", "Control", "choose"]

DataAccess = Literal["cheap", "expensive", "stream"]
# Memoised VB cuts the groups into batches of at least this many observations and two groups, and no smaller than the globals
# that each of them updates; more batches than the most make no faster progress, and with fewer than the least a sweep of
# everything, compiled as a whole, is quicker. A visit costs ten milliseconds whatever it reads: where reads are cheap, batches
# must be worth it (on 6,000 points of a mixture sweeps are 20 times as fast as 30 batches), and may be small where they are not.
OBSERVATIONS = {"cheap": 20_000, "expensive": 200, "stream": 200}
MOST_BATCHES, LEAST_BATCHES = 50, 10
# A part of the free memory that remembered messages may take.
MEMORY_SHARE = 0.5


@final
@says_new_names
@dataclass(frozen=True, slots=True)
class Auto:
    """The default: chooses what is fastest for the data at hand, and needs no step size.

    Parameters
    ----------
    data_access : "cheap", "expensive" or "stream"
        What reading data costs: in memory they are cheap; "expensive" ones (disk, network) are spared by remembering messages;
        "stream" is data that never come again, for which nothing is remembered.
    memory : float, optional
        Bytes that remembered messages may take; by default half of what is free. Without the room, per-node steps are taken.
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
    if executor is not None:
        return _shared(problem, method, step, order, executor)
    if is_tuned(problem):
        return Choice(*tuned_stepper(problem, method, None if isinstance(step, Auto) else step))
    if is_additive(problem):
        if isinstance(step, Auto):
            return Choice(*additive_stepper(problem, method, None, step.memory_budget, step.data_access == "stream"))
        return Choice(*additive_stepper(problem, method, step, 0.0, False))
    if not isinstance(step, Auto):
        fixed = VB() if method is None else method
        return Choice(_as_asked(problem, fixed, step, order), f"{fixed} with {step}, as asked")
    if isinstance(method, VB):
        if method.option == "a":
            return _accelerated(problem, order, step.rotate, "exact sweeps were asked for")
        return Choice(
            ExactStepper(problem, method, Constant(1.0 / largest_coupling(problem)), order),
            "all blocks move together, by 1/ω of the way for ω that meet in one child",
        )
    if isinstance(method, SVI):
        return _grouped(problem, method, step, order)
    if method is not None:
        return _sampled(problem, method, step, order)
    return _best(problem, step, order)


def largest_coupling(problem: Problem) -> int:
    """ω of the problem: the most variables that meet in one term."""
    return max((problem.coupling(name) for name in problem.blocks), default=1)


def _best(problem: Problem, auto: Auto, order: tuple[str, ...]) -> Choice:
    """Nothing was fixed."""
    if auto.data_access == "cheap" and auto.rotate and problem.gauges:
        pairs = ", ".join(f"{a}·{b}" for a, b in problem.gauges)
        return _accelerated(problem, order, True, f"reads are cheap, and {pairs} can be rotated")
    method = _groups_of(problem, order, OBSERVATIONS[auto.data_access])
    if method is not None:
        stepper, words = _grouped(problem, method, auto, order)
        return Choice(WholePasses(stepper) if isinstance(stepper, MemoisedStepper) else stepper, words)
    if auto.data_access == "cheap":
        return _accelerated(problem, order, False, "reads are cheap, and there are not enough independent groups")
    return _sampled(problem, Children(1), auto, order)


def _accelerated(problem: Problem, order: tuple[str, ...], use_rotation: bool, why: str) -> Choice:
    return Choice(AcceleratedStepper(problem, order, use_rotation), f"accelerated exact sweeps: {why}")


def _is_network(problem: Problem) -> TypeGuard[NetworkProblem]:
    """Whether a problem was declared; without the class, because ready models need no JAX and should not wait for it."""
    return hasattr(problem, "plan")


def _grouped(problem: Problem, method: SVI, auto: Auto, order: tuple[str, ...]) -> Choice:
    if not _is_network(problem):
        raise TypeError("SVI(batch) needs a declared network")
    from natgrad.network.groups.summary import NotAdditive

    plain = SVIStepper(problem, method, PerNode(), order)
    if auto.data_access == "stream":
        return Choice(plain, "per-node steps: the data are a stream, nothing is remembered")
    needed = sum(8 * _numbers(problem, name) for name in plain.groups.local)
    if needed > auto.memory_budget:
        return Choice(plain, f"per-node steps: remembering local variables takes {_size(needed)}, more than there is")
    try:
        memoised = MemoisedStepper(problem, method, order)
    except NotAdditive as reason:
        return Choice(plain, f"per-node steps: {reason}")
    words = f"memoised VB in {memoised.n_batches} batches of {method.plate!r}: given the globals they are independent"
    return Choice(memoised, words)


def _shared(
    problem: Problem, method: Method | None, step: Control, order: tuple[str, ...], executor: Executor
) -> Choice:
    """Memoised VB, whose batches are visited in parts."""
    from natgrad.network.groups.summary import NotAdditive

    found = _groups_of(problem, order, OBSERVATIONS["expensive"]) if method is None else method
    if not (_is_network(problem) and isinstance(found, SVI) and isinstance(step, Auto)):
        raise TypeError(
            f"executor={executor!r} shares out batches of independent groups, SVI({{plate: size}}) without step=; here are "
            f"method={method!r}, step={step!r}{'' if found else ', and no plate has enough groups'}: leave executor= out"
        )
    try:
        memoised = MemoisedStepper(problem, found, order, executor)
    except NotAdditive as reason:
        raise TypeError(f"executor={executor!r}: {reason}; leave executor= out") from None
    words = f"memoised VB in {memoised.n_batches} batches of {found.plate!r}, each in {memoised.n_parts} parts by {executor!r}"
    return Choice(WholePasses(memoised) if method is None else memoised, words)


def _sampled(problem: Problem, method: Children | GlobalBatch, auto: Auto, order: tuple[str, ...]) -> Choice:
    inner = (
        ChildrenStepper(problem, method, PerNode(), order)
        if isinstance(method, Children)
        else GlobalBatchStepper(problem, method, PerNode(), order)
    )
    if auto.data_access == "stream":
        return Choice(inner, "per-node steps: the data are a stream, nothing is remembered")
    messages, why = problem.messages, "this problem remembers no messages"
    if messages is not None:
        if messages.n_bytes <= auto.memory_budget:
            words = f"remembered messages, {_size(messages.n_bytes)}, checked by exact sweeps"
            words += " with rotation" if auto.rotate and problem.gauges else ""
            return Choice(MessageStepper(problem, messages, method, order, auto.rotate), words)
        why = f"remembering messages takes {_size(messages.n_bytes)}, and there are {_size(auto.memory_budget)} for it"
    return Choice(
        SafeguardedStepper(problem, inner, order, auto.rotate), f"per-node steps, checked by exact sweeps: {why}"
    )


def _as_asked(problem: Problem, method: Method, step: Step, order: tuple[str, ...]) -> Stepper:
    if isinstance(method, VB):
        return ExactStepper(problem, method, step, order)
    if isinstance(method, Children):
        return ChildrenStepper(problem, method, step, order)
    if isinstance(method, GlobalBatch):
        return GlobalBatchStepper(problem, method, step, order)
    if not _is_network(problem):
        raise TypeError("SVI(batch) needs a declared network")
    return SVIStepper(problem, method, step, order)


def _groups_of(problem: Problem, order: tuple[str, ...], observations: int) -> SVI | None:
    """The plate whose groups hold the most local variables, if there are enough groups to cut into batches."""
    if not _is_network(problem):
        return None
    best: tuple[int, int, str] | None = None
    for plate in {plate for block in problem.blocks.values() for plate in block.plates}:
        try:
            groups = Groups(problem, plate, order)
        except (PlateMismatch, ValueError):
            continue
        seen = sum(len(problem.observed[term.node]) for term in groups.grouped if term.node in problem.observed)
        held, shared = (sum(_numbers(problem, n) for n in names) for names in (groups.local, groups.globals))
        batches = min(MOST_BATCHES, len(groups) // 2, seen // observations, held // max(1, shared))
        if groups.local and groups.globals and batches >= LEAST_BATCHES:
            best = max(best or (0, 0, ""), (held, -math.ceil(len(groups) / batches), plate))
    return None if best is None else SVI({best[2]: -best[1]}, local_steps=1)


def _numbers(problem: NetworkProblem, name: str) -> int:
    """How many numbers λ of a block has."""
    return sum(math.prod(shape) for shape in problem.plan.nodes[name].stat_shapes())


def free_memory() -> float:
    """Bytes of memory that are free now; a gigabyte where the system does not tell."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 1e9


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2g} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.2g} MB"
