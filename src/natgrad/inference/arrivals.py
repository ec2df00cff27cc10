"""Components that arrive later in a stream: a chunk, given what was learned before it, in; the components that came with it out.

    p(chunk | past)     what was learned so far is the prior of the chunk (streaming variational Bayes)

Given that prior the chunk is a problem in memory with an exact bound. Components that were there keep their places, and places
that are empty have the prior of the beginning: births, and merges and deletes of what was born with this chunk, are decided by
the moves of every run (`natgrad.inference.moves`). Two that were there before are not merged: what the past says of that is in
data that are gone.

The past counts what was seen. λ of a stream may stand for a population that is larger; it is scaled down to the observations that
were read, and never up: steps that forget have read more than they hold.

Moves are looked at only where what some component is told looks like nothing of its past: the Bayes factor of the two being one
law or two, by sums that the step has made anyway (`GroupComponents.apart`).

Broderick, Boyd, Wibisono, Wilson and Jordan (2013); Hughes and Sudderth (2013).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from natgrad.inference.engine import Limits, Phase, Result, default_step, run
from natgrad.inference.group_components import GroupComponents
from natgrad.inference.methods import VB
from natgrad.inference.moves import Moves
from natgrad.inference.problem import GroupProblem, GroupResult, State
from natgrad.inference.trace import ProposalRecord

__all__ = ["Arrivals", "Found"]

Stats = tuple[Any, ...]
# Passes over a chunk that has something new, at most.
MOST_PASSES = 200


class Found(NamedTuple):
    """The problem of a chunk and the state with the components that came, or None; and what was proposed."""

    grown: tuple[GroupProblem, State] | None
    moves: list[ProposalRecord]


class Arrivals(NamedTuple):
    """How a model looks for components that came with a chunk.

    Parameters
    ----------
    components : the components of a problem
    room : from the problem of a chunk and a state to the same groups with room for the most components, those that there are in
        the first places, and to the hyper-parameters of all; None if there is no room
    kept : from such a problem and a state of it to the problem of the groups and the state with those that hold something alone
    tol : float, nats for each observation
    seed : int
    max_seconds : float, optional
    """

    components: Callable[[Any], GroupComponents]
    room: Callable[[Any, State], tuple[GroupProblem, dict[str, Any]] | None]
    kept: Callable[[Any, State], tuple[GroupProblem, State]]
    tol: float
    seed: int
    max_seconds: float | None = None

    def look(
        self,
        problem: GroupProblem,
        state: State,
        solved: GroupResult,
        before: float,
        here: float,
        late: Callable[[], bool] = bool,
    ) -> Found:
        """What came with a chunk of ``here`` observations, ``before`` of which so many were seen, unless it is ``late``."""
        part = copy(problem if problem.hyper is None else problem.hyper.at(state))
        small = self.components(part)
        told = small.told(state)
        share = min(1.0, before / float(small.held(state).sum()))
        part.past = _scaled(told, share)
        if small.separate and not (small.apart(solved.messages) > 0.0).any():
            return Found(None, [])
        roomy = self.room(problem, state)
        if roomy is None:
            return Found(None, [])
        wide, hyper = roomy
        plain, parts = self.components(copy(wide)), self.components(wide)
        parts.known = np.arange(parts.size) < small.size
        all_told = _widened(told, plain)
        wide.past = _scaled(all_told, share)
        if not small.separate:
            apart = parts.apart(_widened({name: solved.messages[name] for name in told}, plain), small.size)
            if not (apart[: small.size] > 0.0).any():
                return Found(None, [])
        result = self._run(parts, parts.at(state._replace(t=0, hyper=hyper), _scaled(all_told, 0.0)), here, late)
        moves = [replace(record, t=state.t) for record in result.trace.proposals]
        if result.stop.diverged or not (parts.active(result.state) & ~parts.known).any():
            return Found(None, moves)
        # As the stream counts; with what all were told, for some of it may be of a precision that they share.
        now = _scaled(parts.told(result.state), 1.0 / share)
        joined = {n: tuple(a + b for a, b in zip(all_told[n], now[n], strict=True)) for n in all_told}
        learned = {n: np.where(parts.known, hyper[n], v) if np.ndim(v) else v for n, v in result.state.hyper.items()}
        after = plain.at(state._replace(hyper=learned), joined)._replace(memory={})
        return Found(self.kept(plain.problem, after), moves)

    def _run(self, parts: GroupComponents, start: State, here: float, late: Callable[[], bool]) -> Result:
        """A run with moves on the chunk; its time is that of the stream."""
        method, problem = VB(), parts.problem
        phase = Phase(problem, method, default_step(method, problem), tuple(problem.blocks), moves=Moves((parts,)))
        limits = Limits(MOST_PASSES, self.tol, self.max_seconds, share=here)
        return run(
            phase, start._replace(memory={}), limits=limits, seed=self.seed, callbacks=(lambda _: late(),), verbose=False
        )  # fmt: skip


def _scaled(told: Mapping[str, Stats], factor: float) -> dict[str, Stats]:
    return {name: tuple(factor * part for part in parts) for name, parts in told.items()}


def _widened(told: Mapping[str, Stats], room: GroupComponents) -> dict[str, Stats]:
    """What was told to some components in the first places of all; nothing to the others."""
    out = {}
    for name, parts in told.items():
        wide = [np.zeros(like.shape) for like in room.problem.empty_prior(name)]
        for part, small, own in zip(wide, parts, room.axes[name], strict=True):
            part[tuple(slice(n) if axis in own else slice(None) for axis, n in enumerate(np.shape(small)))] = small
        out[name] = tuple(wide)
    return out
