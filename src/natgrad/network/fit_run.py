"""Set up the run of a network, once for `fit`, `continue_fit`, `update`, `forget`, chunks and resumed checkpoints.

    FitRun(source, settings, options).run(start)        a run from a state, or from what finds one
    FitRun.continued(source, settings, …).run(state)    more steps: the settings of the fit before, unless others are given

A `Source` is a network with its data: in memory (`Whole`), or in chunks (`natgrad.network.bind.streaming`). It poses the problem,
chooses the stepper where the engine cannot, and makes the `Fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from natgrad.inference.callbacks import as_callbacks
from natgrad.inference.engine import TOLERANCE, Limits, Phase, Result, run
from natgrad.inference.methods import VB, Method
from natgrad.inference.moves import Moves
from natgrad.inference.options import CheckpointOptions, checked_every, checked_method, checked_step
from natgrad.inference.problem import Problem, State
from natgrad.inference.proposals import Starts
from natgrad.inference.steppers.stepper import Stepper
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.network.compile.plan import remarks
from natgrad.network.results.files import shapes_of, state_table
from natgrad.network.results.fit import Fit, Settings, warn_at_end
from natgrad.network.start.components import moves_of
from natgrad.posterior.files.checkpoints import checkpointer_of

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["FitRun", "Source", "Whole"]

# Options of a run that every fit has, and their defaults.
DEFAULTS: dict[str, Any] = {
    "max_steps": 1000, "max_passes": None, "max_seconds": None, "max_messages": None, "tol": TOLERANCE, "callbacks": (),
    "bound_every": None, "verbose": None, "moves": None, "executor": None,
}  # fmt: skip
LIMITS = ("max_steps", "tol", "max_seconds", "max_messages", "max_passes")
GOING = Stop(Reason.CALLBACK, "the run goes on")


class Source(Protocol):
    """A network with its data."""

    def problem_for(self, method: Method | None) -> Problem:
        """The problem that a method asks for; raises where it cannot have one."""
        ...

    def stepper_for(self, problem: Any, settings: Settings) -> tuple[Stepper | None, str]:
        """The stepper, or None where the engine chooses it, and why it is this one."""
        ...

    def moves_for(self, asked: Any, settings: Settings) -> Moves | None:
        """The components that move; None if none do."""
        ...

    def words(self, moving: bool) -> str:
        """What the strategy says after a run."""
        ...

    def fit_at(self, result: Result, settings: Settings) -> Fit:
        """The fit of a state."""
        ...


class Whole(NamedTuple):
    """A network whose data are in memory; ``why`` says why its backend is the one that it is."""

    problem: NetworkProblem
    why: str

    def problem_for(self, method: Method | None) -> Problem:
        """The one that there is."""
        return self.problem

    def stepper_for(self, problem: Any, settings: Settings) -> tuple[Stepper | None, str]:
        """The engine chooses."""
        return None, ""

    def moves_for(self, asked: Any, settings: Settings) -> Moves | None:
        """Components along plates that grow, or those that hidden categories choose from."""
        return moves_of(self.problem, asked, settings.order)

    def words(self, moving: bool) -> str:
        """The backend, and remarks on the plan."""
        return f"; {self.why}{remarks(self.problem.plan, moving)}"

    def fit_at(self, result: Result, settings: Settings) -> Fit:
        """The fit of a state."""
        return Fit(self.problem, result, settings, self)


@dataclass(frozen=True)
class FitRun:
    """One run of a network.

    Parameters
    ----------
    source : Source
    settings : method, step size, order and seed, checked
    options : limits, callbacks, checkpoints, … as `DEFAULTS` has them
    moves : the components that move, optional
    probed : whether a run that has converged is probed for a saddle
    trace : an earlier one to go on with, optional
    """

    source: Source
    settings: Settings
    options: Mapping[str, Any]
    moves: Moves | None = None
    probed: bool = True
    trace: Trace | None = None

    @classmethod
    def continued(
        cls, source: Source, settings: Settings, trace: Trace | None, method: Method | None, options: Mapping[str, Any]
    ) -> FitRun:
        """More steps with the settings of a fit, or with another method or step size."""
        for name in options.keys() - {*DEFAULTS, "step"}:
            raise TypeError(f"continue_fit() got an unexpected keyword argument {name!r}")
        step = options.get("step")
        chosen = settings.method if method is None else checked_method(method)
        problem = source.problem_for(chosen)
        rule = settings.step if method is None and step is None else checked_step(step, chosen, problem)
        settings = replace(settings, method=chosen, step=rule)
        moves = source.moves_for(options.get("moves") if chosen in (None, VB()) else False, settings)
        return cls(source, settings, options, moves, trace=trace)

    def run(
        self,
        start: State | Callable[[], State | Starts],
        watchers: tuple[Any, ...] = (),
        about: Mapping[str, Any] | None = None,
    ) -> Fit:
        """The fit from a start; ``about`` is what a checkpoint must agree with."""
        source, settings, given, trace = self.source, self.settings, {**DEFAULTS, **self.options}, Trace()
        if self.trace is not None:
            trace.take_over(self.trace)
        problem: Any = source.problem_for(settings.method)
        stepper, why = source.stepper_for(problem, settings)
        phase = Phase(
            problem, settings.method, settings.step, settings.order, stepper=stepper, why=why,
            bound_every=checked_every(given["bound_every"]), moves=self.moves, probed=self.probed,
        )  # fmt: skip
        keep: Any = {name: given[name] for name in CheckpointOptions.__annotations__ if name in given}
        table: Any = lambda: (state_table(shapes_of(problem), settings.seed), {})  # noqa: E731
        result = run(
            phase, start, limits=Limits(**{name: given[name] for name in LIMITS}), seed=settings.seed,
            callbacks=(*as_callbacks(given["callbacks"]), *watchers), verbose=given["verbose"], trace=trace,
            checkpointer=checkpointer_of(keep, lambda: dict(about or {}), table), executor=given["executor"],
            model_at=lambda state: source.fit_at(Result(state, trace, GOING), settings),
        )  # fmt: skip
        warn_at_end(problem, result)
        trace.strategy += source.words(self.moves is not None)
        return source.fit_at(result, settings)
