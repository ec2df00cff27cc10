"""What a user asks of a fit in; the method, the step and how often the bound is wanted, checked, out.

Here the defaults are chosen, for networks and ready models alike.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from natgrad.inference.auto import Auto, Control
from natgrad.inference.engine import BoundEvery, default_step
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch, Method
from natgrad.inference.steps import Step
from natgrad.network.checks import whole_number
from natgrad.problem import Problem, State

__all__ = ["checked_every", "checked_method", "checked_step", "fitted_at"]


def checked_method(method: Any) -> Method | None:
    """The method; None leaves the choice to `Auto`."""
    if method is None:
        return None
    if not isinstance(method, (VB, Children, GlobalBatch, SVI)):
        raise TypeError(f"method must be VB(), Children(C), GlobalBatch(size) or SVI(batch), got {method!r}")
    return method


def checked_step(step: Any, method: Method | None, problem: Problem) -> Control:
    """The step size; `Auto` by default, but exact for a `VB` that was asked for."""
    if step is None:
        return default_step(method, problem)
    if isinstance(step, Auto):
        return step
    if isinstance(step, type) or not callable(getattr(step, "rate", None)):
        raise TypeError(
            f"step must be RobbinsMonro(…), Constant(ρ), HoldThenDecay(…), PerNode() or Auto(), got {step!r}"
        )
    rule: Step = step
    return rule


def checked_every(bound_every: Any) -> BoundEvery:
    """How often the exact bound is evaluated."""
    if bound_every is None:
        return None
    if isinstance(bound_every, str):
        if bound_every != "log":
            raise ValueError(f'bound_every must be a whole number ≥ 1, "log" or None, got {bound_every!r}')
        return "log"
    return whole_number(bound_every, "bound_every")


def fitted_at(model: Any, subject: Any) -> Callable[[State], Any]:
    """What a callback sees: a copy of the estimator as it would be if the run ended at a state.

    Parameters
    ----------
    model : the estimator, whose ``_publish(subject, state)`` sets what a fit sets
    subject : what it publishes along with the state
    """

    def at(state: State) -> Any:
        shown = copy.copy(model)
        shown._publish(subject, state)
        return shown

    return at
