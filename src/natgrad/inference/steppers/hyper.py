"""Hyper-parameters learned along the way: a problem and a state in; the problem at its hyper-parameters, or better ones, out.

They live in ``State.hyper``, so that a run can be resumed, and a step stays a function of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard, TypeVar

from natgrad.inference.problem import State

__all__ = ["Learner", "update_hyper", "with_hyper"]

P = TypeVar("P")


class Learner(Protocol):
    """What a problem has that learns hyper-parameters."""

    def with_hyper(self, state: State) -> Any:
        """The problem at the hyper-parameters of a state."""
        ...

    def update_hyper(self, state: State, messages: Mapping[str, Any], rho: float) -> State:
        """Better hyper-parameters, a part ρ of the way to the best; the bound of these messages does not fall."""
        ...


def with_hyper(problem: P, state: State) -> P:
    """The problem at the hyper-parameters of a state, if it learns any."""
    if not _learns(problem):
        return problem
    here: P = problem.with_hyper(state)
    return here


def update_hyper(problem: Any, state: State, messages: Mapping[str, Any], rho: float) -> State:
    """The state with better hyper-parameters, if the problem learns any."""
    return problem.update_hyper(state, messages, rho) if _learns(problem) else state


def _learns(problem: Any) -> TypeGuard[Learner]:
    return hasattr(type(problem), "update_hyper")
