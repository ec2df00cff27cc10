"""Check the options of a fit, of networks and ready models alike, and choose their defaults."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, cast, final

from natgrad.inference.auto import Auto, Control
from natgrad.inference.callbacks import Callback, Progress, as_callbacks
from natgrad.inference.engine import BoundEvery, default_step
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch, Method
from natgrad.inference.problem import Problem, State
from natgrad.inference.step_sizes import Step
from natgrad.inference.trace import Stop, warn_if_ran_out
from natgrad.validation import hint_for, real_number, whole_number

__all__ = [
    "CheckpointOptions",
    "FitOptions",
    "LocalOptions",
    "all_or_nothing",
    "checked_every",
    "checked_method",
    "checked_step",
    "estimator_at",
    "refuse_unknown",
    "run_settings",
    "seeing",
    "split_options",
]

P = ParamSpec("P")
T = TypeVar("T")
# Settings that a resumed run may have changed: limits may be raised, and who computes changes nothing.
FREE = ("max_steps", "max_passes", "max_seconds", "max_messages", "tol", "n_jobs", "executor", "verbose")


# What to do about arguments that other libraries, or other models, have.
ADVICE = {
    "sample_weight": ": here every row counts once. Leave it out, and give what counts twice twice; GaussianMixture takes "
    "weights, and the counts of LDA may be any numbers ≥ 0",
    "n_jobs": ": it is a setting of the estimator, if there is one: get_params() has it",
    "executor": ": it is a setting of the estimator, if there is one: get_params() has it",
}


class CheckpointOptions(TypedDict, total=False):
    """How a fit is kept, so that nothing is lost when it is stopped; arguments of every ``fit``.

    ``checkpoint`` is a folder for its state, written there ``every`` so many steps (100) or seconds ("60s", the default),
    as a whole or not at all; the last two are kept. Ctrl-C and SIGTERM finish the step, and write it. With ``resume=True`` the
    fit goes on from there, if there is something, and ends with the bits of one that never stopped.
    """

    checkpoint: str | os.PathLike[str] | None
    every: int | str
    resume: bool


class FitOptions(CheckpointOptions, total=False):
    """The same with ``callbacks``."""

    callbacks: Sequence[Any]


def split_options(options: FitOptions) -> tuple[tuple[Callback, ...], CheckpointOptions]:
    """The callbacks, and how checkpoints are kept."""
    rest = {name: value for name, value in options.items() if name != "callbacks"}
    return as_callbacks(options.get("callbacks", ())), cast("CheckpointOptions", rest)


def all_or_nothing(method: Callable[P, T]) -> Callable[P, T]:
    """Have a method of an estimator done as a whole: whatever ends it early, Ctrl-C too, leaves the estimator as it was.

    What a fit sets is replaced, never changed in place, so the attributes that were there are enough. The reason why it ended
    names the inference that was run. One that stopped at a limit before it converged is warned of afterwards, so that it is there
    even if warnings are errors.
    """

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        (estimator, *_), before = args, dict(vars(args[0]))
        try:
            result = method(*args, **kwargs)
        except BaseException:
            estimator.__dict__ = before
            raise
        if method.__name__ != "partial_fit":  # which takes some steps, and does not ask to converge
            stop: Stop = vars(estimator)["stop_"]
            inference = estimator.inference_.split(";")[0]  # type: ignore[attr-defined]
            if inference not in stop.message:
                stop = cast("Any", estimator).stop_ = replace(stop, message=f"{stop} ({inference})")
            warn_if_ran_out(stop)
        return result

    return wrapped


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


def estimator_at(model: Any, subject: Any) -> Callable[[State], Any]:
    """Make the function that gives callbacks a copy of the estimator, as it would be if the run ended at a state.

    Parameters
    ----------
    model : the estimator, whose ``_publish(subject, state)`` sets what a fit sets
    subject : what it publishes along with the state, or a function that gives it, where it changes
    """

    def at(state: State) -> Any:
        shown = copy.copy(model)
        shown._publish(subject() if callable(subject) else subject, state)
        return shown

    return at


def seeing(callback: Callback, shown: Callable[[Any], Any]) -> Callback:
    """Wrap a callback so that ``shown(model)`` replaces the model of its progress; its memory is that of the callback."""
    return (_Remembering if hasattr(callback, "memory") else _Seeing)(callback, shown)


class _Seeing:
    def __init__(self, callback: Callback, shown: Callable[[Any], Any]) -> None:
        self._callback, self._shown = callback, shown

    def __call__(self, seen: Progress) -> Any:
        return self._callback(seen._replace(model=lambda: self._shown(seen.model())))


class _Remembering(_Seeing):
    memory = property(lambda self: self._callback.memory, lambda self, kept: setattr(self._callback, "memory", kept))


def run_settings(estimator: Any) -> dict[str, Any]:
    """The settings that make a run what it is."""
    return {name: value for name, value in estimator.get_params(deep=False).items() if name not in FREE}


def refuse_unknown(given: Iterable[str], known: Collection[str] = ()) -> None:
    """Refuse arguments of a ``fit`` that it has not, and name the one that was meant."""
    for name in given:
        if name not in CheckpointOptions.__annotations__:
            raise TypeError(
                f"fit() got an unexpected keyword argument {name!r}{ADVICE.get(name) or hint_for(name, known)}"
            )


@final
@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Options of the local (E) step, as ``local=`` of a ready model takes them; the defaults suit nearly every fit.

    Parameters
    ----------
    tol : float, default=1e-3
        A document is solved when its γ changes by less in the mean over topics.
    max_rounds : int, default=100
        Most rounds for a document.
    skip_below : float, default=1e-4
        Topics with a smaller share of the document are skipped in the inner loop; a final round updates all topics. 0 skips none.
    dtype : "float32" or "float64", default="float32"
        Precision of the inner loops; sums over documents are always double.
    batch_size : int, optional
        Documents between two updates of the topics; by default as few as keep these updates a small part of the work.
    topics : "posterior" or "point", default="posterior"
        Topic estimate used for documents by ``inference="vb"``. "posterior" uses exp(E[log φ]), and `elbo_` is a lower bound of
        log p(w). "point" uses E[φ]: EM for a point estimate of the topics under Dir(β + 1), whose `elbo_` is a lower bound of
        log p(w, φ).

    Examples
    --------
    >>> import natgrad as ng
    >>> model = ng.LDA(2, local=ng.LocalOptions(tol=1e-6, dtype="float64"))
    """

    tol: float = 1e-3
    max_rounds: int = 100
    skip_below: float = 1e-4
    dtype: Literal["float32", "float64"] = "float32"
    batch_size: int | None = None
    topics: Literal["posterior", "point"] = "posterior"

    def __post_init__(self) -> None:
        if not real_number(self.tol, "LocalOptions: tol") >= 0:
            raise ValueError(f"LocalOptions: tol must be ≥ 0, got {self.tol!r}")
        whole_number(self.max_rounds, "LocalOptions: max_rounds")
        if not 0 <= real_number(self.skip_below, "LocalOptions: skip_below") <= 0.1:
            raise ValueError(
                f"LocalOptions: skip_below must lie in [0, 0.1], got {self.skip_below!r}: a small share of a document"
            )
        if self.batch_size is not None:
            whole_number(self.batch_size, "LocalOptions: batch_size")
        for name, allowed in (("dtype", ("float32", "float64")), ("topics", ("posterior", "point"))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f'LocalOptions: {name} must be "{allowed[0]}" or "{allowed[1]}", got {getattr(self, name)!r}'
                )
