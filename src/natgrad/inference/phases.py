"""What a run is made of: a problem, a method and where it ends in; a stretch of a run, which the engine carries out, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from natgrad.inference.auto import Auto, Control
from natgrad.inference.methods import Method
from natgrad.inference.monitor import BoundEvery
from natgrad.inference.moves import Moves
from natgrad.inference.problem import Problem, State
from natgrad.inference.starts import Rivals
from natgrad.inference.steppers.stepper import Stepper
from natgrad.inference.trace import Stop

__all__ = ["Phase", "Phases"]


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: what is optimised, and how.

    Parameters
    ----------
    problem, method, step, order : as the steps are to be taken
    until : int, optional
        The step after which the next phase begins; such a phase does not settle. None: it lasts until a limit is reached.
    stepper : Stepper, optional
        In place of the one that follows from method and step.
    enter : function, optional
        The state of the phase before in, that of this one out.
    bound_every : how often a sampled method evaluates the exact bound
    why : str
        What comes before the strategy in words.
    optional : bool
        Of a closing phase: whether it is left out when the time is up.
    moves : Moves, optional
        The components that are born, merged and deleted between passes, by steps that cannot lower the bound.
    rivals : Rivals, optional
        Other starts, each followed to its end when the run has settled: it goes on from the highest.
    probed : whether a run that has settled, or creeps, is probed for a saddle
    """

    problem: Problem
    method: Method | None = None
    step: Control = Auto()  # noqa: RUF009  (frozen)
    order: tuple[str, ...] = ()
    until: int | None = None
    stepper: Stepper | None = None
    enter: Callable[[State], State] | None = None
    bound_every: BoundEvery = None
    why: str = ""
    optional: bool = False
    moves: Moves | None = None
    rivals: Rivals | None = None
    probed: bool = True


# The phase of the steps after a given one, or why there is none.
Phases = Callable[[int], Phase | Stop]
