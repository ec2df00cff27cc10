"""`Estimator`: what every ready model has, and its file.

An estimator that wants ``save`` and ``natgrad.load``

1.  derives from `Estimator` (after scikit-learn's mixins) and has ``_check_fitted()``;
2.  defines two hooks::

        def _saved(self) -> dict[str, Any]:
            \"\"\"Everything that makes the fit: what `_restore` needs, and nothing that follows from it.\"\"\"
            return {"state": self._state, "trace": self.trace_, "stop": self.stop_, "words": self.vocabulary_}

        def _restore(self, saved: Mapping[str, Any]) -> None:
            \"\"\"Set the fitted attributes; the settings are there already.\"\"\"
            self._state, self.trace_, self.stop_ = saved["state"], saved["trace"], saved["stop"]

    with values of any of these kinds, nested as you like: None, bool, int, float (also NaN), str, bytes, list, tuple, dict; NumPy
    scalars and arrays (also JAX arrays, which come back as NumPy arrays; the order in memory is kept, so sums round alike);
    arrays of strings or of objects that are strings, numbers or tuples (vocabularies, ids); methods, steps, families, `State`
    with whatever the methods remember, `Trace`, `Stop`, `Factor`, `Ratings`;
3.  gets one line in `natgrad.models.registry`;
4.  has the tables of what its file may hold (`natgrad.inference.schema`): ``_settings_table`` gives every setting with its type
    and range, ``_tables`` these for one fit and the parts of ``_saved`` with their sizes. What is chosen from a few words, or
    true or false, is checked from the same table by ``_check_choices()``, which every fit calls.

The settings (``get_params(deep=False)``) are kept by the mixin. What the tables do not list is neither written nor read. A
class of your own, a kernel for example, joins by ``register(Kernel)`` of `natgrad.posterior.files.container`, in the module that
defines it, if it is a NamedTuple or a dataclass. Raise ``SCHEMA`` there if the layout of files changes.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from natgrad.inference.engine import Limits, Phase, Phases, Result, run, take_steps
from natgrad.inference.options import FitOptions, estimator_at, run_settings, split_options
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.schema import Misfit, check
from natgrad.inference.steppers.groups import ONE_PASS, GroupStepper, Look
from natgrad.inference.streams import Chunk, Kept, StreamPhases
from natgrad.inference.trace import Stop, Trace
from natgrad.models.arriving import ArrivingMixin
from natgrad.models.registry import EVERY_MODEL
from natgrad.models.uncertainty import UncertaintyMixin
from natgrad.models.updating import UpdateMixin
from natgrad.posterior.files.checkpoints import checkpointer_of
from natgrad.posterior.files.container import encoded, register, write_model
from natgrad.showing import ShowMixin
from natgrad.validation import hint_for, real_number, whole_number

if TYPE_CHECKING:
    from natgrad.posterior.export import Posterior, Summary

__all__ = ["Estimator", "register"]


# What the command line remembers of the files it reads.
COLUMN_ROLES = ("authors", "column", "columns", "dates", "item", "sequence", "target", "times", "user", "value")
# The least of whole numbers by the first word of their rule; what rules of settings that are chosen from a few say.
LEAST = {"whole": 0, "natural": 1, "size": 1}
CHOICES: dict[str, list[str]] = {"flag": ["True", "False"], "none": ["None"]}


class Estimator(ArrivingMixin, UpdateMixin, UncertaintyMixin, ShowMixin, BaseEstimator):
    """What every ready model has: a fit is one run of the engine; ``save(path)`` and ``report(path)``.

    See the module for the hooks that it needs. ``_publish(subject, state)`` sets what a fit sets.
    """

    # What it finds (of `KINDS`), and what it can do with some of its options (of `ABILITIES` and `COMMANDS`).
    kind: ClassVar[str]
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL

    # What a fit sets.
    posterior_: Posterior
    _state: State

    # Which columns of a file were what ("target", "user", …), if the command line read it; later files are read alike.
    columns_: Mapping[str, Any] | None = None

    # Where there is no setting of that name.
    step: Any = None
    max_steps: int | None = None
    max_passes: float | None = None
    max_seconds: float | None = None
    max_messages: int | None = None
    executor: Any = None

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Refuse a setting that there is not, and name the one that was meant."""
        known = list(inspect.signature(cls.__init__).parameters)[1:] if settings else []
        for name in sorted(settings.keys() - set(known)):
            raise TypeError(f"{cls.__name__}() has no argument {name!r}{hint_for(name, known)}")
        made: Self = super().__new__(cls)
        return made

    def _limits(self, share: float | None = None, advice: str = "raise max_passes", **others: Any) -> Limits:
        """The limits of the settings, or those of a call; ``share`` is the number of observations that ``tol`` counts for."""
        names = ("max_steps", "max_passes", "max_seconds", "max_messages")
        given = {name: getattr(self, name) for name in names} | others
        return Limits(tol=self.tol, share=share, advice=advice, **given)

    def _run(
        self,
        phases: Phase | Phases,
        start: Any,
        limits: Limits,
        subject: Any,
        *,
        options: FitOptions | None = None,
        table: Callable[[], tuple[Any, Mapping[str, int]]] | None = None,
        trace: Trace | None = None,
        closing: Sequence[Phase] = (),
    ) -> Result:
        """One run of the engine; ``subject`` is what `_publish` takes along with a state, ``table`` what a state may hold."""
        callbacks, checkpoint = split_options(options or {})
        checkpointer = checkpointer_of(checkpoint, lambda: run_settings(self), table)
        self.trace_: Trace = Trace() if trace is None else trace
        result = run(
            phases, start, limits=limits, seed=whole_number(self.seed, "seed", least=0), callbacks=callbacks,
            verbose=self.verbose, trace=self.trace_, executor=self.executor,
            checkpointer=checkpointer, model_at=estimator_at(self, subject), closing=closing,
        )  # fmt: skip
        self.stop_: Stop = result.stop
        return result

    @property
    def inference_(self) -> str:
        """Which inference was run, and after a comma its schedule: "VB, memoised, 37 passes"."""
        self._check_fitted()
        if sampled := self._sampling():
            return sampled
        trace: Trace | None = getattr(self, "trace_", None)
        done = trace.last.t if trace else 0
        later = getattr(self, "n_steps_", done) - done
        steps = f"{later} step{'s' * (later != 1)} of partial_fit" if later > 0 else ""
        if not trace:
            return f"VB, {steps}"
        return trace.inference + (f", then {steps}" if steps else "")

    def __repr__(self, *args: Any) -> str:
        shown: str = super().__repr__(*args)
        try:
            return f"{shown}  # {self.inference_}"
        except ValueError:  # it is not fitted
            return shown

    def _run_stream(
        self,
        read: Callable[[], Iterable[Any]],
        make: Callable[[Any], Chunk],
        start: Callable[[Any], Any],
        subject: Callable[[], Any],
        *,
        options: FitOptions,
        rereadable: bool = False,
        max_passes: float = 1,
        n_groups: float | None = None,
        words: str = "rows",
        kept: Kept = Kept(),  # noqa: B008  (frozen)
        table: Callable[[Any], tuple[Any, Mapping[str, int]]] | None = None,
    ) -> tuple[State, StreamPhases]:
        """A run over chunks, each a step; ``start`` makes the first state from the problem of the first chunk."""
        trace = Trace()
        phases = StreamPhases(
            read, make, trace, step=self.step, rereadable=rereadable, max_passes=max_passes, tol=self.tol,
            n_groups=n_groups, words=words, kept=kept,
        )  # fmt: skip
        result = self._run(
            phases, lambda: start(phases.first()), self._limits(max_passes=None), subject, options=options, trace=trace,
            table=None if table is None else lambda: table(phases.problem),
        )  # fmt: skip
        return result.state, phases

    def _step_once(self, problem: GroupProblem, start: Any, look: Look | None = None) -> Result:
        """One forgotten step from all groups of a problem, as ``partial_fit`` takes it; ``look`` is for components that came."""
        step = ONE_PASS if self.step is None else self.step
        stepper = GroupStepper(problem, problem.n_groups, *problem.local_limits, step, remember=False, arrivals=look)
        if look is not None:
            self.trace_ = self._trace_so_far()
        result = take_steps(problem, stepper, start, 1, int(self.seed), self.executor)
        if look is not None:
            before = self.trace_.last if len(self.trace_) else None
            line = result.trace.last
            if before is not None:
                line = line._replace(
                    messages_read=line.messages_read + before.messages_read, seconds=line.seconds + before.seconds
                )
            self.trace_.append(line)
        return result

    def summary(self, names: Sequence[str] | None = None, **options: Any) -> Summary:
        """A table of means, standard deviations and intervals of the parameters: prints, and converts with ``.to_pandas()``.

        Parameters
        ----------
        names : which parameters, as in ``posterior_``; by default all but categories
        mass : float
            Probability of the intervals, 0.9 by default.
        linear_response, draws : results of ``linear_response()`` and ``draws()``, optional
            Levels to show beside q.

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> model = ng.GaussianMixture(1).fit(np.arange(8.0)[:, None])
        >>> print(f"{model.summary(['components'])['mean'][0]:.1f}")
        3.5
        """
        self._check_fitted()
        return self.posterior_.summary(names, **options)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, compact: bool = False) -> None:
        """Write the fitted model to one file, which `natgrad.load` reads; the file is there as a whole, or not at all.

        Parameters
        ----------
        path : where to; the folder must exist
        overwrite : bool
            Whether a file that is there may be replaced; otherwise it is a FileExistsError.
        compact : bool
            Whether to leave out what a method remembers between steps: of LDA, what each batch of documents said, and the topic
            shares of the documents of the fit (`transform` computes them again). A compact file predicts as before.
            `continue_fit` on it reads all data first, and does not take exactly the steps that the fit would have taken.
        """
        self._check_fitted()
        settings = self.get_params(deep=False)
        settings.pop("executor", None)  # a matter of the machine at hand, not of the model
        # A column of a table is an array in a file.
        settings = {
            name: np.asarray(v) if hasattr(v, "__array__") and np.ndim(v) else v for name, v in settings.items()
        }
        fitted = self._saved()
        if compact and "state" in fitted:
            fitted["state"] = fitted["state"]._replace(memory={})
        content = {"settings": settings, "fitted": fitted}
        if self.columns_ is not None:
            content["columns"] = dict(self.columns_)
        try:
            self._check_file(content)
        except Misfit as reason:
            encoded(type(self).__name__, content)  # what no file can hold, such as a function, is said better there
            raise ValueError(
                f"this {type(self).__name__} cannot be saved, because it could not be loaded again: {reason}"
            ) from None
        write_model(path, type(self).__name__, content, overwrite=overwrite)

    @classmethod
    def _check_file(cls, content: Any) -> None:
        """Refuse contents of a file that are not a consistent model."""
        check({**content, "columns": None}, {"settings": dict, "fitted": dict, "columns": "none"}, where="the file")
        _check_columns(content.get("columns"))
        usual = cls().get_params(deep=False)
        usual.pop("executor", None)
        given = {**usual, **content["settings"]}
        settings, fitted = cls._tables(given, content["fitted"])
        sizes = check(content["fitted"], fitted, where="fitted")
        check(given, settings, sizes, "settings")

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        """The table of the settings, ``executor`` left out; a file of one fit may allow less."""
        raise NotImplementedError

    @final
    def _check_choices(self, besides: Collection[str] = ()) -> None:
        """Refuse a flag that is neither true nor false and a word that is none of those there are.

        Python takes "False", "no" and 2 for true; every fit asks here first. ``besides`` are settings that may be objects, too.
        """
        for name, rule in self._settings_table().items():
            allowed = rule.split(" | ") if isinstance(rule, str) else []
            if name in besides or not allowed or not all(part in CHOICES or part.startswith("'") for part in allowed):
                continue
            value = getattr(self, name)
            try:
                check(value, rule)
            except Misfit:
                named = [choice for part in allowed for choice in CHOICES.get(part, [part.replace("'", '"')])]
                words = f"{name} must be {', '.join(named[:-1])} or {named[-1]}, got {value!r}"
                raise ValueError(words) from None

    @final
    def _check_from_table(self) -> None:
        """Refuse settings that the table does not allow, if they are chosen from a few or plain numbers."""
        self._check_choices()
        for name, rule in self._settings_table().items():
            kinds = [part.split()[0] for part in rule.split(" | ") if part != "none"] if isinstance(rule, str) else []
            value = getattr(self, name)
            if len(kinds) != 1 or " list " in rule or (value is None and "none" in rule):
                continue
            if kinds[0] in LEAST:
                whole_number(value, name, 1 if "[1" in rule else LEAST[kinds[0]])
            elif kinds[0] in ("positive", "nonnegative"):
                number, allowed = real_number(value, name), "> 0" if kinds[0] == "positive" else "≥ 0"
                if not (number > 0 or (number == 0 and allowed == "≥ 0")) or number == np.inf:
                    raise ValueError(f"{name} must be {allowed} and finite, got {value!r}")

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        """The tables of the settings, ``executor`` left out, and of `_saved`; both are still unchecked."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        if not hasattr(self, "_state"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(X) or partial_fit(X)")

    def __getstate__(self) -> Any:
        """For pickles and other processes: the model, without the data of its fit."""
        return {name: value for name, value in super().__getstate__().items() if name != "_data"}

    def _saved(self) -> dict[str, Any]:
        raise NotImplementedError

    def _restore(self, saved: Mapping[str, Any]) -> None:
        raise NotImplementedError


def _check_columns(columns: Any) -> None:
    """Refuse anything but names of columns, by what they are."""
    if columns is None:
        return
    check(columns, dict, where="columns")
    for role, name in columns.items():
        names = name if isinstance(name, list) else [name]
        if role not in COLUMN_ROLES or not all(isinstance(one, str) for one in names):
            raise Misfit(f"columns: {role!r} = {name!r} is not the name of a column that is read")
