"""`RowEstimator`, what every ready model of rows shares: rows with weights in, a run of the engine, and its files, out.

A model of rows says what its priors are (`_prepared`), which problem they make of rows (`_problem`), where to start (`_starts`),
what a fit is called (`_name`), and what a file holds of the priors (`_model_table`). Arrays, tables, files, streams, batches,
weights, clusters, checkpoints and model files come from here.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

import numpy as np
import numpy.typing as npt

from natgrad.data.held import HeldRows
from natgrad.data.rows import checked_arrays
from natgrad.data.sequences import as_columns, chunks_of
from natgrad.data.stream import Stream, as_stream
from natgrad.inference.engine import Phase
from natgrad.inference.methods import VB, Method
from natgrad.inference.options import FitOptions, all_or_nothing, checked_method, checked_step
from natgrad.inference.schema import check, either
from natgrad.inference.streams import Chunk, Kept
from natgrad.inference.trace import Stop, Trace, levels_to_the_caller
from natgrad.models.base import Estimator
from natgrad.posterior.drawing import drawn_rule, saved_draws
from natgrad.posterior.export import Posterior, factors_of
from natgrad.posterior.files.tables import RUN, group_state
from natgrad.validation import is_masked, require, whole_number

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.inference.problem import State
    from natgrad.inference.rows import RowProblem
    from natgrad.inference.starts import Starts

__all__ = ["RowEstimator"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
# Fewer rows are read as a whole; more in so many batches, which takes fewer passes.
FEW_ROWS, BATCHES = 20_000, 20
# There after a fit, but not after partial_fit alone.
OF_A_RUN = ("trace_", "stop_")
SETTINGS: dict[str, Any] = {
    **{name: rule for name, rule in RUN.items() if name != "step"},
    "n_init": "natural",
    "max_passes": "none | positive",
    "max_seconds": "none | positive",
}
FITTED: dict[str, Any] = {
    "n_rows_seen": "positive",
    "n_features": "size column",
    "feature_names?": "names [column]",
    "elbo": "float",
    "run": either({}, {"trace_": Trace, "stop_": Stop}),
    "draws?": drawn_rule,
}


def number_of(given: Any, name: str, most: int) -> tuple[int, bool]:
    """A number of components, or the most that may be found, and whether it is found."""
    if isinstance(given, str) and given == "auto":
        return most, True
    if isinstance(given, (tuple, list)) and len(given) == 2 and given[0] == "auto":
        return whole_number(given[1], f'most of {name}=("auto", most)'), True
    if isinstance(given, (str, tuple, list)):
        raise ValueError(f'{name} must be a whole number ≥ 1, "auto" or ("auto", most), got {given!r}')
    return whole_number(given, name), False


class _Fitted:
    """What a fit sets, and what a model says of itself; not in the dataclass below, for which they would be settings."""

    _model_class: Any  # the NamedTuple of its priors
    _takes_nan: Any = False  # whether X may have missing entries
    _nan_advice = ""  # what to do about missing entries where they are not taken

    n_features_in_: int
    n_rows_seen_: float
    elbo_: float


@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name; the rest is scikit-learn's
class RowEstimator(_Fitted, Estimator, ABC):
    """A model whose groups are rows of numbers; abstract.

    Parameters
    ----------
    method : as in ``Network.fit``
        By default exact sweeps of up to 20,000 rows, memoised VB in batches of more; `trace_.strategy` says why. `VB()`;
        `SVI({"row": size})`.
    n_init : int
        Starts that are improved on a slice of the data; the best one goes on.
    max_passes, max_seconds : limits
        Most readings of the data, most time.
    tol : float
        Nats a row left to gain, as the last passes tell, below which the fit has converged; 0 runs all passes.
    seed : int
        Every random choice is a function of the seed and the number of the step.
    n_jobs : int, optional
        Threads; by default all. The result is the same for any number.
    executor : None, an address, `distributed.Client` or cluster, or `natgrad.Dask`
        Who computes: this process, or the workers of a Dask cluster, which hold the rows; a .npy file that they see they read
        themselves. The result is the same.
    verbose : bool, optional
        Show a progress bar; by default on a terminal.
    """

    _: KW_ONLY
    method: Method | None = None
    n_init: int = 8
    max_passes: float | None = 200
    max_seconds: float | None = None
    tol: float = 1e-6
    seed: int = 0
    n_jobs: int | None = None
    executor: Any = None
    verbose: bool | None = None

    # -- what a model says --

    @abstractmethod
    def _prepared(self, x: Array, weight: Floats | None) -> Any:
        """The priors, a NamedTuple; what the user left open follows from the rows."""

    @abstractmethod
    def _problem(self, model: Any, x: Array, weight: Floats | None, **options: Any) -> RowProblem:
        """The problem of some rows; ``options`` are ``batch_size`` and ``population``."""

    @abstractmethod
    def _starts(self, problem: Any) -> State | Starts:
        """Where a run may begin."""

    @abstractmethod
    def _name(self, problem: Any, state: State) -> None:
        """Set the attributes that users of the model expect."""

    @classmethod
    @abstractmethod
    def _model_table(cls, model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The tables of the settings that a fit allows, and of its priors, which are unchecked."""

    @property
    def _finds_number(self) -> str:
        """The setting that asks for the number of components to be found, in words; empty if it is given."""
        return ""

    def _number_in(self, model: Any) -> int:
        """How many components priors are of."""
        return 1

    def _with_number(self, model: Any, number: int) -> Any:
        """The priors of so many of the components that there is room for, which are exchangeable where they are found."""
        return model

    def _moves(self, problem: Any, keep: str | None) -> Moves:
        """The components that move, for a model that has some."""
        raise ValueError(f"moves={keep!r}: {type(self).__name__} has no components that could move")

    # -- fitting --

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        moves: Literal["keep"] | None = None,
        **keep: Unpack[FitOptions],
    ) -> Self:
        """Fit to rows.

        Parameters
        ----------
        X : array [N, D] (NumPy, memory-mapped, a table), the name of a .npy or .parquet file, or a stream of such chunks: an
            iterator is read once, a source with ``chunks()`` or a list of tables up to ``max_passes`` times, by sampled steps
        y : ignored
        sample_weight : array [N], optional
            A row of weight 2 counts as two rows; not for streams.
        moves : "keep", optional
            Leave poor optima by moves that keep the number of components: two are merged, or one deleted, and another is split,
            where that raises the exact bound. Of streams, in their first chunk.
        checkpoint, every, resume, callbacks : as in ``Network.fit``; a stream is given from its beginning to go on
        """
        stream = None if isinstance(X, (str, Path)) else as_stream(X)
        with self._threads():
            self._check_sampling(stream is not None)
            if stream is None:
                self._fit_rows(X, sample_weight, keep, moves)
            else:
                self._fit_chunks(stream, sample_weight, keep, moves)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, n_rows: float | None = None) -> Self:
        """One step from some rows of a stream: λ ← (1 − ρ) λ + ρ (η̃ + scale · messages).

        Parameters
        ----------
        X, y, sample_weight : as in `fit`
        n_rows : float, optional
            How many rows the stream stands for; by default those seen so far.
        """
        self._needs_vb("partial_fit", "update(X) adds the rows and samples again")
        fresh = not hasattr(self, "_state")
        if fresh and self._finds_number:  # the number is found in the first rows
            return cast("Self", self._begun_with(self.fit(X, sample_weight=sample_weight)))
        with self._threads():
            x, weight = self._rows(X, sample_weight, fresh)
            model = self._prepared(x, weight) if fresh else self._model_
            own = float(len(x) if weight is None else weight.sum())
            seen = own + (0.0 if fresh else self.n_rows_seen_)
            problem = self._problem(model, x, weight, population=len(x) * max(seen, n_rows or 0.0) / own)
            models = [model]
            look = self._look(seen - own, own, lambda grown: models.append(grown.model)) if self._finds_number else None
            result = self._step_once(problem, self._starts(problem) if fresh else self._state, look)
        self._publish(models[-1], result.state)
        self.n_rows_seen_, self.elbo_, self._data = seen, result.trace.last.elbo_estimate, None
        return self

    def _more(self, X: Any, y: Any = None, sample_weight: Any = None) -> HeldRows:
        return HeldRows(self._rows(X, sample_weight, False))

    def _go_on(self, held: HeldRows) -> None:
        x, weight = held.arrays
        with self._threads():
            self._run_rows(self._model_, x, weight, {}, self._state)

    def _fit_rows(self, X: Any, sample_weight: Any, options: FitOptions, keep: str | None = None) -> None:
        x, weight = self._rows(X, sample_weight, True)
        self._run_rows(self._prepared(x, weight), x, weight, options, keep=keep)

    def _run_rows(
        self,
        model: Any,
        x: Any,
        weight: Floats | None,
        options: FitOptions,
        state: State | None = None,
        keep: str | None = None,
    ) -> None:
        """A run from the start, or from a state: then by whole sweeps, which forget nothing of it."""
        method = checked_method(self.method)
        if method is None and state is not None:
            method = VB()
        if method is None and len(x) <= FEW_ROWS:
            method = VB()
        if (number := self._number_in(model)) > len(x) and state is None and not self._finds_number:
            words = (
                f'{number} components for {len(x)} rows: those without a row keep their prior; give fewer, or "auto"'
            )
            warnings.warn(words, UserWarning, stacklevel=levels_to_the_caller())
        problem = self._problem(model, x, weight, batch_size=-(-len(x) // BATCHES) if len(x) > FEW_ROWS else None)
        number_known = state is not None or not self._finds_number  # an update keeps the number that was found
        moves = None if keep is None and number_known else self._moves(problem, keep)
        phase = Phase(problem, method, checked_step(None, method, problem), tuple(problem.blocks), moves=moves)
        result = self._run(
            phase, (lambda: self._starts(problem)) if state is None else state, self._limits(problem.total_weight), model,
            options=options,
            table=lambda: (group_state(problem), {}),
        )  # fmt: skip
        self._publish(model, result.state)
        last = result.trace.last.elbo if len(result.trace) else np.nan
        self.elbo_ = last if np.isfinite(last) else problem.bound(result.state)
        self.n_rows_seen_, self._data = problem.total_weight, HeldRows((x, weight))
        if self.inference == "gibbs":
            self._sample(self._draws_problem(x, weight))

    def _fit_chunks(self, stream: Stream, sample_weight: Any, options: FitOptions, moves: str | None) -> None:
        if sample_weight is not None:
            raise ValueError("a stream takes no sample_weight: give the weights of each chunk to partial_fit")
        models: list[Any] = []
        started: list[State] = []
        resumed: list[dict[str, Any]] = []

        def chunk(part: Any) -> Chunk:
            x, weight = self._rows(part, None, not models)
            if not models and resumed:
                models.append(self._with_number(self._prepared(x, weight), resumed[0]["components"]))
            elif not models and (self._finds_number or moves is not None):
                first = self._found_in(moves, x, sample_weight=weight)
                models.append(first._model_)
                started.append(first._state)
            elif not models:
                models.append(self._prepared(x, weight))
            own = len(x) if weight is None else int(weight.sum())
            return Chunk(
                lambda n: self._problem(models[-1], x, weight, population=n * len(x) / own), own, own,
                arrivals=(lambda before: self._look(before, own, lambda grown: models.append(grown.model)))
                if self._finds_number
                else None,
            )  # fmt: skip

        def start(problem: RowProblem) -> State | Starts:
            return started[0] if started else self._starts(problem)

        state, phases = self._run_stream(
            stream.read, chunk, start, lambda: models[-1], options=options, rereadable=stream.rereadable,
            max_passes=np.inf if self.max_passes is None else self.max_passes, n_groups=stream.n_total,
            kept=Kept(lambda: {"components": self._number_in(models[-1])}, resumed.append),
            table=lambda problem: (group_state(problem), {}),
        )  # fmt: skip
        self._publish(models[-1], state)
        self.n_rows_seen_, self.elbo_, self._data = float(phases.seen), phases.elbo, None

    # -- parts --

    def _response_problem(self, X: Any, sample_weight: Any = None) -> RowProblem:
        return self._problem(self._model_, *self._rows(X, sample_weight, False))

    def _by_row(self, X: Any, function: Callable[[Array, Any], Any], **how: Any) -> Any:
        """What a function says of each of other rows, given what rows are sent (``how`` are options of the problem's `sent`)."""
        self._check_fitted()
        with self._threads():
            problem = self._problem(self._model_, self._rows(X, None, reset=False, fitting=False)[0], None)
            return problem.by_row(function, problem.sent(self._state, **how))

    def _threads(self) -> Any:
        from natgrad.threads import at_most

        self._check_from_table()
        return at_most(self.n_jobs)

    def _publish(self, model: Any, state: State) -> None:
        self._state, self._model_ = state._replace(memory={}), model
        self.__dict__.pop("draws_", None)
        empty = self._problem(model, np.empty((0, self.n_features_in_)), None)
        self.posterior_ = Posterior(factors_of(empty.blocks, state))
        self.n_steps_: int = state.t
        self._name(empty, state)

    def _rows(self, X: Any, sample_weight: Any, reset: bool, fitting: bool = True) -> tuple[Array, Floats | None]:
        """Checked rows, as they lie, and their weights; rows in which everything is missing have none."""
        if isinstance(X, (str, Path)):
            X = as_columns(X)
        if is_masked(X):
            X = np.ma.filled(X.astype(np.float64), np.nan)
        x: Array = checked_arrays(
            self, X, reset=reset, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False
        )
        weight = _checked_weight(sample_weight, len(x))
        takes_nan = self._takes_nan
        for begin, part in chunks_of(x):
            missing = np.isnan(part)
            require(~np.isinf(part), part, f"X[{begin}:]", "finite, or NaN where it is missing (no inf/infinity)")
            if missing.any() and not takes_nan:
                row, column = (int(i) for i in np.argwhere(missing)[0])
                raise ValueError(
                    f"X[{begin + row}, {column}] is NaN, which this {type(self).__name__} does not take: leave out such rows, "
                    f"or fill them in{self._nan_advice}"
                )
            if (empty := missing.all(1)).any():
                weight = np.ones(len(x)) if weight is None else weight
                weight[begin : begin + len(part)][empty] = 0.0
        if fitting and weight is not None and not weight.any():
            raise ValueError("nothing to fit to: every row of X has a weight of zero, or no entry that is not missing")
        return x, weight

    # -- files --

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        check(saved := fitted.get("model"), dict, where="fitted['model']")
        assert isinstance(saved, dict)
        own, table = cls._model_table(saved)
        sizes = check(saved, table, where="fitted['model']")
        problem = cls()._problem(cls._model_class(**saved), np.empty((0, sizes["column"])), None)
        return {**cls._settings_table(), **own}, {"model": table, "state": group_state(problem), **FITTED}

    def _saved(self) -> dict[str, Any]:
        fields = {
            "state": self._state,
            "model": self._model_._asdict(),
            "n_rows_seen": self.n_rows_seen_,
            "n_features": self.n_features_in_,
            "elbo": self.elbo_,
            "run": {name: getattr(self, name) for name in OF_A_RUN if hasattr(self, name)},
        }
        if "draws_" in vars(self):
            fields["draws"] = self.draws_.content()
        names = getattr(self, "feature_names_in_", None)
        return fields if names is None else {**fields, "feature_names": names}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self.n_features_in_ = saved["n_features"]
        if "feature_names" in saved:
            self.feature_names_in_: Array = saved["feature_names"]
        self.n_rows_seen_, self.elbo_ = saved["n_rows_seen"], saved["elbo"]
        for name, value in saved["run"].items():
            setattr(self, name, value)
        self._publish(self._model_class(**saved["model"]), saved["state"])
        if "draws" in saved:
            self._use_draws(saved_draws(saved["draws"]))


def _checked_weight(weight: Any, n_rows: int) -> Floats | None:
    """A copy of the weights, a number or one for each row."""
    if weight is None:
        return None
    try:
        weights = np.array(np.broadcast_to(np.asarray(weight, dtype=np.float64), (n_rows,)))
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight must be numbers ≥ 0, one for each of {n_rows} rows, got shape {np.shape(weight)}"
        ) from None
    require(np.isfinite(weights) & (weights >= 0), weights, "sample_weight", "finite and ≥ 0")
    return weights
