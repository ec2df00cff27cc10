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
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from natgrad.errors import NotConverged
from natgrad.inference.engine import Limits, Phase, Phases, Result, run, take_steps
from natgrad.inference.options import FitOptions, all_or_nothing, estimator_at, run_settings, split_options
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.schema import Misfit, check
from natgrad.inference.steppers.groups import ONE_PASS, GroupStepper, Look
from natgrad.inference.streams import Chunk, Kept, StreamPhases
from natgrad.inference.trace import Stop, Trace
from natgrad.models.registry import EVERY_MODEL
from natgrad.models.uncertainty import UncertaintyMixin
from natgrad.posterior.files.checkpoints import checkpointer_of
from natgrad.posterior.files.container import encoded, register, write_model
from natgrad.showing import ShowMixin
from natgrad.validation import hint_for, real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.held import Held
    from natgrad.inference.group_components import GroupComponents
    from natgrad.inference.problem import GroupProblem, GroupResult, State
    from natgrad.inference.steppers.groups import Look
    from natgrad.posterior.export import Posterior, Summary

__all__ = ["Estimator", "number_of", "register", "starts_wanted"]


# What the command line remembers of the files it reads.
COLUMN_ROLES = ("authors", "column", "columns", "dates", "item", "sequence", "target", "times", "user", "value")
# Starts that are compared, if nobody says.
STARTS = 8
# The least of whole numbers by the first word of their rule; what rules of settings that are chosen from a few say.
LEAST = {"whole": 0, "natural": 1, "size": 1}
CHOICES: dict[str, list[str]] = {"flag": ["True", "False"], "none": ["None"]}


class Estimator(UncertaintyMixin, ShowMixin, BaseEstimator):
    """What every ready model has: a fit is one run of the engine; ``save(path)`` and ``report(path)``.

    See the module for the hooks that it needs. ``_publish(subject, state)`` sets what a fit sets.
    """

    # What it finds (of `KINDS`), and what it can do with some of its options (of `ABILITIES` and `COMMANDS`).
    kind: ClassVar[str]
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL

    # What a fit sets.
    posterior_: Posterior
    n_rows_seen_: float
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
        given = {name: getattr(self, name) for name in names} | {"tol": self._tol} | others
        return Limits(share=share, advice=advice, **given)

    @property
    def _tol(self) -> float:
        """``tol``, or what None stands for."""
        return self.tol  # type: ignore[no-any-return]

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
            read, make, trace, step=self.step, rereadable=rereadable, max_passes=max_passes, tol=self._tol,
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
        trace: Trace | None = getattr(self, "trace_", None)
        return replace(self.posterior_.summary(names, **options), note="" if trace is None else trace.effort)

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

    # What the fit was made of; None after a stream or a file. Not in the file, and not in a pickle.
    _data: Any = None
    _keeps_data: ClassVar[bool] = True

    @all_or_nothing
    def update(self, X: Any, y: Any = None, **data: Any) -> Self:
        """The fit given more data: those of the fit, which are held, and these; it goes on from where it was, to ``tol``.

        Parameters
        ----------
        X, y, **data : as in `fit`
            Documents may bring new words, ratings new users and items; a pair that was rated before has its new rating.

        Where the data of the fit are gone (a model that was loaded, or fitted to a stream), ``partial_fit`` takes a step.

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> X = np.concatenate([np.zeros(40), np.full(40, 5.0)])[:, None] + np.random.default_rng(0).normal(
        ...     size=(80, 1)
        ... )
        >>> model = ng.GaussianMixture(2).fit(X[:60])
        >>> model.update(X[60:]).n_rows_seen_
        80.0
        """
        held = self._needed_data("update")
        self._go_on(held.joined(self._more(X, y, **data)))
        return self

    @all_or_nothing
    def forget(self, which: Any) -> Self:
        """The fit without some of its data: sums over the others are made anew, and it goes on from where it was, to ``tol``.

        Parameters
        ----------
        which : numbers, or a flag for each
            Of rows, documents, sequences or ratings, in the order in which they came. Ratings also by ids,
            ``{"user": ["ann"]}`` or ``{"item": [7]}``. Users and items without ratings, and words of texts that no document has
            any more, are gone: nothing of them is in the file that ``save`` writes.

        Examples
        --------
        >>> import natgrad as ng
        >>> ratings = ng.Ratings(["ann", "ann", "bob", "bob", "cid"], ["x", "y", "x", "z", "y"], [5, 3, 4, 1, 2])
        >>> model = ng.MatrixFactorization(2).fit(ratings)
        >>> model.forget({"user": ["bob"]}).ratings_.user_ids.tolist(), model.ratings_.item_ids.tolist()
        (['ann', 'cid'], ['x', 'y'])
        """
        from natgrad.data.held import chosen_elements

        held = self._needed_data("forget")
        flags = chosen_elements(held, which)
        if flags.all():
            raise ValueError(f"forget: none of the {held.n_elements} {held.noun} would be left")
        self._go_on(held.taken(np.flatnonzero(~flags)) if flags.any() else held)
        return self

    def _needed_data(self, what: str) -> Held:
        self._check_fitted()
        if not self._keeps_data:
            more = what == "update" and hasattr(self, "partial_fit")
            advice = "partial_fit() takes more of them in" if more else "fit() again, with all that count"
            raise ValueError(f"{what}: {type(self).__name__} keeps no data of its fit; {advice}")
        if self._data is None:
            advice = "partial_fit() takes a step from new ones" if what == "update" else "fit() again, without them"
            raise ValueError(
                f"{what}: the data of this {type(self).__name__} are not here: it was loaded from a file, or took a stream; "
                f"{advice}"
            )
        held: Held = self._data
        return held

    def _more(self, *data: Any, **others: Any) -> Any:
        """More data, checked as those of the fit were."""
        raise NotImplementedError

    def _go_on(self, held: Any) -> None:
        """Run to tolerance on these data, from the state of the fit; set ``_data`` at the end."""
        raise NotImplementedError

    def _components(self, problem: Any) -> GroupComponents:
        """The components of a problem."""
        raise NotImplementedError

    def _room(self, problem: Any, state: State) -> tuple[GroupProblem, dict[str, Any]] | None:
        """The same groups with room for the most components, and all hyper-parameters; None if there is none."""
        raise NotImplementedError

    def _narrowed(self, problem: Any, wide: Any, state: State) -> tuple[GroupProblem, State]:
        """The problem as it was, and the state, with the components that hold something in one with room."""
        raise NotImplementedError

    def _look(self: Any, before: float, here: float, note: Callable[[Any], None]) -> Look:
        """Looks for what came with ``here`` observations after so many ``before``; who goes on is told of a larger problem."""

        def look(
            problem: GroupProblem, state: State, solved: GroupResult, late: Callable[[], bool]
        ) -> tuple[GroupProblem, State] | None:
            from natgrad.inference.arrivals import Arrivals

            def kept(wide: Any, after: State) -> tuple[GroupProblem, State]:
                return self._narrowed(problem, wide, after)  # type: ignore[no-any-return]

            arrivals = Arrivals(self._components, self._room, kept, self._tol, int(self.seed), self.max_seconds)
            found = arrivals.look(problem, state, solved, before, here, late)
            self.trace_.proposals += found.moves
            if found.grown is not None:
                note(found.grown[0])
            return found.grown

        return look

    def _found_in(self, moves: str | None, *data: Any, **named: Any) -> Any:
        """A model of the first chunk of a stream, which is in memory: a run begins with the components that are found there."""
        first: Any = copy(self)
        first.max_passes = type(self)().max_passes  # those that were given are of the stream
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # what is to converge is the run over the stream
            first.fit(*data, moves=moves, **named)
        first._state = first._state._replace(t=0, memory={})
        self.trace_.proposals += [replace(record, t=0) for record in first.trace_.proposals]
        self.trace_.first_sizes = first.trace_.first_sizes
        return first

    def _begun_with(self, fitted: Any) -> Any:
        """After a first `partial_fit` that was a fit: one step was made, and the data are gone."""
        fitted._state = fitted._state._replace(t=1, memory={})
        fitted.n_steps_, fitted._data = 1, None
        trace = Trace([fitted.trace_.last._replace(t=1)])
        trace.strategy, trace.schedule = fitted.trace_.strategy, fitted.trace_.schedule
        trace.proposals = [replace(record, t=0) for record in fitted.trace_.proposals]
        trace.first_sizes = fitted.trace_.first_sizes
        fitted.trace_ = trace
        return fitted

    def _trace_so_far(self) -> Trace:
        """A copy of the trace, for another `partial_fit` to write to: what a fit has set is never changed in place."""
        trace, before = Trace(), getattr(self, "trace_", Trace())
        trace.take_over(before)
        trace.strategy = before.strategy
        return trace


def _check_columns(columns: Any) -> None:
    """Refuse anything but names of columns, by what they are."""
    if columns is None:
        return
    check(columns, dict, where="columns")
    for role, name in columns.items():
        names = name if isinstance(name, list) else [name]
        if role not in COLUMN_ROLES or not all(isinstance(one, str) for one in names):
            raise Misfit(f"columns: {role!r} = {name!r} is not the name of a column that is read")


def number_of(given: Any, name: str, most: int) -> tuple[int, bool]:
    """A number of components, or the most that may be found, and whether it is found."""
    if isinstance(given, str) and given == "auto":
        return most, True
    if isinstance(given, (tuple, list)) and len(given) == 2 and given[0] == "auto":
        return whole_number(given[1], f'most of {name}=("auto", most)'), True
    if isinstance(given, (str, tuple, list)):
        raise ValueError(f'{name} must be a whole number ≥ 1, "auto" or ("auto", most), got {given!r}')
    return whole_number(given, name), False


def starts_wanted(n_init: int | None, finds_number: str) -> int:
    """How many starts are compared; where the number of components is found there is one."""
    if n_init is None:
        return 1 if finds_number else STARTS
    if finds_number:
        raise ValueError(
            f"n_init={n_init!r} belongs to a number that is given, and {finds_number} begins with one start: leave it out"
        )
    return whole_number(n_init, "n_init")
