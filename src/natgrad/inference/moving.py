"""A round of moves: a settled state in, the first proposal whose passes lead above it out; every one is a line of the trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from natgrad.inference.moves import Moves, Proposal, proposals
from natgrad.inference.probes import Trial, followed
from natgrad.inference.problem import State
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.inference.trace import MoveRecord, Trace

__all__ = ["Accepted", "Round", "is_due", "just_moved"]

# A pass that gains less than so many nats has found what its components are; or so many passes since the last move are enough.
LITTLE, ENOUGH = 1.0, 10
# Nats that one more component must be worth. Less than that, passes gain by themselves after a birth that came to nothing.
BIRTH = 1.0
# Moves that must gain so much: those that make more components, and those that may lead to the same ones in another order.
COSTLY = ("birth", "births", "anew", "exchange", "explore", "order")
# Nats below the run from which a state is worth passes, where its bound is known after some sweeps already.
NOT_FAR = 1.0
# Nats above the run up to which the same components in another order are no more than the same.
AS_HIGH = 0.1
# Passes between two rounds in which all proposals were refused, and after several births, which were a guess.
PATIENCE, GROWING = 5, 3


class Accepted(NamedTuple):
    """The state that a move led to, and its last step."""

    state: State
    info: StepInfo


def is_due(trace: Trace, bounds: Sequence[float], per_pass: int, tol: float, settled: bool) -> bool:
    """Whether components may move now: after a pass, when little was gained, or all of it.

    A function of the trace alone, so that a run that was stopped goes on with the same moves.
    """
    if settled:
        return True
    if len(bounds) < per_pass + 1 or trace.last.elbo != bounds[-1]:
        return False
    begun = trace.moves[-1].t if trace.moves else 0
    since = sum(record.t > begun and not math.isnan(record.elbo) for record in trace.records)
    if since == 0 or since % per_pass:
        return False
    if trace.moves and not trace.moves[-1].accepted:
        return since >= PATIENCE * per_pass
    if trace.moves and trace.moves[-1].kind in ("births", "anew") and since >= GROWING * per_pass:
        return True
    return bounds[-1] - bounds[-1 - per_pass] <= max(tol, LITTLE) or since >= ENOUGH * per_pass


def just_moved(trace: Trace, per_pass: int, t: int) -> bool:
    """Whether a move led to step ``t``: the next one is not before another step."""
    return any(m.accepted and m.kind != "start" and m.t + per_pass == t for m in trace.moves[-1:])


class Round:
    """The proposals at one state, tried one after the other.

    Parameters
    ----------
    moves : Moves
    stepper : whose bound cannot fall
    seed, tol : of the run
    late : whether time is up
    """

    def __init__(self, moves: Moves, stepper: Stepper, seed: int, tol: float, late: Callable[[], bool]) -> None:
        self.moves, self.stepper, self.seed, self.tol, self.late = moves, stepper, seed, tol, late
        self.messages_read = 0

    def first(self, state: State, bound: float, records: list[MoveRecord]) -> Accepted | None:
        """The first proposal that leads higher; None if none does. What was tried is added to the records."""
        goal = bound - NOT_FAR
        for proposal in proposals(self.moves, state, tuple(records), self.seed, goal):
            hopeless = proposal.state is None or proposal.bound < goal or _is_back(proposal, state, bound)
            trial = None if hopeless else self._tried(proposal, state, bound)
            accepted = trial is not None and trial.higher
            after = trial.state if trial is not None and accepted else state
            gain = -math.inf if trial is None else _gain(trial, bound)
            records.append(_record(proposal, state, after, self.stepper, bound, gain, accepted))
            if trial is not None and accepted:
                return Accepted(trial.state, trial.info)
            if self.late():
                break
        return None

    def _tried(self, proposal: Proposal, settled: State, bound: float) -> Trial:
        assert proposal.state is not None
        least = BIRTH * proposal.n_born if proposal.kind in COSTLY else 0.0
        margin = max(self.tol, least)
        trial = followed(self.stepper, proposal.state, settled, bound, self.seed, margin)
        self.messages_read += trial.messages_read
        return trial


def _is_back(proposal: Proposal, settled: State, bound: float) -> bool:
    """Whether an exchange has led to the components that there were, and no higher: priors may tell their order apart."""
    if proposal.kind != "exchange" or proposal.state is None or not proposal.bound < bound + AS_HIGH:
        return False
    return proposal.part.alike(proposal.state, settled)


def _record(
    proposal: Proposal, state: State, after: State, stepper: Stepper, bound: float, gain: float, accepted: bool
) -> MoveRecord:
    n_active = int(proposal.part.active(stepper.finish(after)).sum())
    return MoveRecord(
        state.t, proposal.part.plate, proposal.kind, proposal.components, bound, gain, accepted, n_active,
        float(proposal.held),
    )  # fmt: skip


def _gain(trial: Trial, bound: float) -> float:
    reached = trial.info.bound
    return -math.inf if reached is None or math.isnan(reached) else float(reached - bound)
