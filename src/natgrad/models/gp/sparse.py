"""Fit a sparse Gaussian process: what `SparseGPRegressor` and `SparseGPClassifier` share.

Rows are standardised, kernel and inducing inputs are chosen or taken as given (`natgrad.models.gp.choosing`), and `optimise` runs
the engine. What a prediction reads is made once, at the end of the fit. The second half has the tables of a model file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from natgrad._jax import on_host
from natgrad.covariance import Covariance
from natgrad.data.held import HeldRows
from natgrad.data.rows import Rows, Scaling, open_rows, rows_of_arrays, validated, validated_with_gaps
from natgrad.inference.engine import take_steps
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.inference.problem import State
from natgrad.inference.schema import check, either, record, refuse, state_of
from natgrad.inference.steppers.groups import FOLLOWING, GroupStepper
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator, register
from natgrad.models.gp import choosing
from natgrad.models.gp.likelihoods import Likelihood
from natgrad.models.gp.problem import GPProblem, Predictor
from natgrad.models.gp.run import given_up, optimise, uses_lbfgs
from natgrad.models.gp.settings import (
    FIXABLE,
    LOG,
    SPREAD,
    WIDE,
    Adam,
    Learned,
    Settings,
    Solver,
    checked_fixed,
    leaves_of,
    settings_of,
    settings_table,
    stored_kernel,
)
from natgrad.models.registry import EVERY_MODEL
from natgrad.posterior.export import Posterior as Factors
from natgrad.posterior.export import factors_of
from natgrad.posterior.files.tables import METHOD, STEP
from natgrad.random import Stream, generator
from natgrad.threads import one_blas_thread
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.models.gp.response import HyperResponse

__all__ = ["SparseGP", "variance_unit"]

Floats = npt.NDArray[np.float64]
# Fitted attributes that a file keeps as they are; the rest follows from the state.
KEPT = (
    "n_features_in_",
    "feature_names_in_",
    "classes_",
    "elbo_",
    "trace_",
    "stop_",
    "n_rows_seen_",
    "_flat",
    "_link",
    "_part",
    "n_readings_",
    "_correlated",
)

# Both are parts of a checkpoint.
register(Settings, "gp.Settings")
register(Adam, "gp.Adam")
register(Solver, "gp.Solver")
MOST_JOINT_ROWS = 5_000
# Inducing inputs, if nobody says.
INDUCING = 200
# Rows that the offset is taken from.
MOST_STARTING_ROWS = 20_000
# Rows that say whether the first kernel is fine enough: a matrix is decomposed, in a twentieth of a second.
FEW = 400
# Of the variance of y, what is noise at first; of counts, the dispersion.
FIRST_NOISE = 0.1


def variance_unit(y_scaling: Scaling, likelihood: Likelihood) -> float:
    """The square of the unit of f, which a kernel's variance has; 1 where functions of several units share a kernel."""
    alone = likelihood.standardised and likelihood.n_functions(len(y_scaling.sd)) == 1
    return float(y_scaling.sd[0]) ** 2 if alone else 1.0


@dataclass(repr=False, eq=False)
class SparseGP(Estimator):
    """The common part; abstract. `SparseGPRegressor` has the parameters."""

    kind: ClassVar[str] = "process"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {"partial_fit", "linear_response", "predict"}

    kernel: Covariance | Literal["auto"] | None = None
    n_inducing: int | Literal["auto"] | None = None
    _: KW_ONLY
    inducing: Any = None
    fixed: str | Sequence[str] = ()
    solver: Solver | None = None
    max_steps: int = 2000
    max_seconds: float | None = None
    tol: float = 1e-3
    seed: int = 0
    verbose: bool | None = None

    @property
    def inference_(self) -> str:
        """Which inference was run: variational, its steps, and how often L-BFGS read all rows."""
        read = getattr(self, "n_readings_", 0)
        return super().inference_ + (f", then L-BFGS, {read:,} readings of all rows" if read else "")

    # -- fitting --

    @all_or_nothing
    def continue_fit(self, X: Any, y: Any = None, max_steps: int | None = None) -> Self:
        """Go on from where the last fit ended, on the same rows: scales stay, the trace and Adam's memory continue.

        Parameters
        ----------
        X, y : as in `fit`
        max_steps : int, optional
            Further steps; by default as many as in the settings.
        """
        check_is_fitted(self)
        self._check_settings()
        rows = self._read(X, y, False).scaled_by(self._x_scaling, self._y_scaling)
        if rows.n_outputs != (seen := len(self._y_scaling.sd)):
            raise ValueError(f"y has {rows.n_outputs} outputs, and the fit has {seen}: give the same rows")
        problem = self._again(rows)
        earlier = list(self.trace_.records) if hasattr(self, "trace_") else []
        most = self.max_steps if max_steps is None else max_steps
        optimise(self, problem, problem.widened(self._state), Trace(earlier), most, {}, going_on=True)
        return self

    def _more(self, X: Any, y: Any = None) -> HeldRows:
        return _as_held(self._read(X, y, False))

    def _go_on(self, held: HeldRows) -> None:
        """Scales, offset and the number of inducing inputs stay; kernel, noise and inducing inputs go on being learned."""
        self._check_settings()
        x, y = held.arrays
        assert x is not None
        assert y is not None
        problem = self._again(Rows(x, y, self._x_scaling, self._y_scaling))
        optimise(self, problem, problem.widened(self._state), Trace(), self.max_steps, {})
        self._data = held

    def _fit_rows(self, rows: Rows, likelihood: Likelihood, standard_outputs: bool, options: FitOptions) -> None:
        self._check_settings()
        uses_lbfgs(self._solver, likelihood, self.tol)
        began, held_rows, seed = time.perf_counter(), _as_held(rows), whole_number(self.seed, "seed", least=0)
        in_time = self._clock(began)
        rows = self._scaled(rows, standard_outputs)
        problem, settings = self._begun(rows, likelihood, seed, in_time)
        optimise(self, problem, problem.start(settings), Trace(), self.max_steps, options, began=began)
        self._data = held_rows

    def _partial(self, rows: Rows, likelihood: Likelihood, standard_outputs: bool, n_total: float | None) -> None:
        self._check_settings()
        fresh = not hasattr(self, "_state")
        seed = whole_number(self.seed, "seed", least=0)
        in_time = self._clock(time.perf_counter())
        rows = self._scaled(rows, standard_outputs) if fresh else rows.scaled_by(self._x_scaling, self._y_scaling)
        seen = (0 if fresh else self.n_rows_seen_) + len(rows)
        population = float(max(seen, n_total or 0))
        if fresh:
            problem, settings = self._begun(rows, likelihood, seed, in_time, population)
            state = problem.start(settings)
        else:
            problem = self._again(rows, population)
            state = problem.widened(self._state)
        size = min(problem.batch_size, len(rows))
        step = FOLLOWING if self._solver.step is None else self._solver.step
        stepper = GroupStepper(problem, size, *problem.local_limits, step, remember=False)
        result = take_steps(problem, stepper, state, max(1, len(rows) // size), seed)
        state = result.state
        self.n_rows_seen_, self._data = seen, None
        self._publish(problem, state)
        self.elbo_ = result.trace.last.elbo_estimate

    def _again(self, rows: Rows, population: float | None = None) -> GPProblem:
        """The problem of the fit with these rows; q stays one factor for all functions, if it was."""
        whole = self._state.lam["v"][0].shape[1] > self._n_inducing
        likelihood = self._own_likelihood()
        return self._problem(rows, self._kernel, likelihood, self._n_inducing, self._offset, population, whole)

    def _publish(self, problem: GPProblem, state: State) -> None:
        state = on_host(state)
        settings = state.hyper["settings"]
        self._state, self._n_inducing, self._offset = state, problem.n_inducing, problem.offset
        self._x_scaling, self._y_scaling = problem.data.x_scaling, problem.data.y_scaling
        self._likelihood, self.n_steps_ = problem.likelihood, state.t
        self._kernel: Covariance = problem.kernel.at([np.asarray(part) for part in settings.theta])
        self.kernel_: Covariance = self._in_units_of_data(self._kernel)
        self.inducing_: Floats = self._x_scaling.undo(np.asarray(settings.inducing))
        self.jitter_, self.jitter_raised_ = problem.jitter_used, problem.jitter_raised
        self.posterior_ = Factors(factors_of(problem.blocks, state), axes={"v": ("inducing",)})
        with one_blas_thread():  # as in the engine: a loaded model has the same numbers
            self._predictor = Predictor.of(problem, state)

    @property
    def _solver(self) -> Solver:
        return Solver() if self.solver is None else self.solver

    def _with_noise(self, law: Likelihood) -> Likelihood:
        """The likelihood; settings of a noise that it has not are refused."""
        if "noise" in checked_fixed(self.fixed) and not law.has_parameter:
            raise ValueError(f'fixed="noise": likelihood {law.name!r} has neither noise nor cutpoints; leave it out')
        return law

    @property
    def _n_wanted(self) -> int:
        return INDUCING if self.n_inducing is None else whole_number(self.n_inducing, "n_inducing")

    def _check_settings(self) -> None:
        self._check_choices(besides=("likelihood",))
        if not isinstance(self._solver, Solver):
            raise TypeError(
                f"solver must be a natgrad.models.gp.Solver, such as Solver(batch_size=256), got {self.solver!r}"
            )
        self._solver.check()
        checked_fixed(self.fixed)
        if self.n_inducing not in (None, "auto"):
            whole_number(self.n_inducing, "n_inducing")
        if self.n_inducing is not None and self.inducing is not None and self.n_inducing != len(self.inducing):
            raise ValueError(
                f"n_inducing={self.n_inducing!r}, and inducing has {len(self.inducing)} inputs: give one of the two"
            )
        given = self.noise_variance
        if given is not None and not 0 < real_number(given, "noise_variance") < np.inf:
            raise ValueError(f"noise_variance must be > 0, got {given!r}")
        if not real_number(self.tol, "tol") >= 0:
            raise ValueError(f"tol must be ≥ 0, got {self.tol!r}: 0 takes all steps")

    def _state_table(self, problem: GPProblem) -> tuple[Any, Mapping[str, int]]:
        """What a checkpoint may hold, and its sizes."""
        sizes = {
            "output": problem.n_outputs,
            "measured": problem.data.n_outputs,
            "inducing": problem.n_inducing,
            "column": problem.data.n_columns,
            "factor": problem.shape[0],
            "stacked": problem.shape[1],
        }
        return state_table(problem.kernel, law_of(problem.likelihood)), sizes

    def _in_units_of_data(self, kernel: Covariance) -> Covariance:
        """A kernel of standardised inputs and outputs as one of X and y."""
        scaling = self._x_scaling
        if kernel.units(scaling.sd) is None:  # inputs are as they were
            return kernel
        unit = variance_unit(self._y_scaling, self._likelihood)
        return kernel.in_units(-scaling.mean / scaling.sd, 1.0 / scaling.sd, 1.0 / unit)

    # -- where a fit starts --

    def _clock(self, began: float) -> Callable[[], bool]:
        """Whether there is time to choose among kernels: a third of all."""
        until = np.inf if self.max_seconds is None else began + float(self.max_seconds) / 3.0
        return lambda: time.perf_counter() < until

    def _scaled(self, rows: Rows, outputs: bool) -> Rows:
        """Rows with their columns standardised, as the settings say."""
        if not self._solver.standardize:
            return rows
        rows = rows.standardised(outputs)
        if not isinstance(self.kernel, Covariance):
            return rows
        # Units in which the kernel that was given is one of the same kind.
        scale = self.kernel.units(rows.x_scaling.sd)
        if scale is not None:
            return rows.scaled_by(rows.x_scaling._replace(sd=scale), rows.y_scaling)
        none = Scaling.none(rows.n_columns)
        return rows.scaled_by(none, rows.y_scaling._replace(sd=np.ones(rows.n_outputs)))

    def _begun(
        self,
        rows: Rows,
        likelihood: Likelihood,
        seed: int,
        in_time: Callable[[], bool],
        population: float | None = None,
    ) -> tuple[GPProblem, Settings]:
        """The problem and the settings it starts with."""
        sample = rows.take(None if len(rows) <= MOST_STARTING_ROWS else np.arange(MOST_STARTING_ROWS))[1]
        offset = likelihood.offsets(sample)
        if self.kernel == "auto" or self.n_inducing == "auto":
            kernel, settings = self._chosen(rows, likelihood, seed, offset, in_time)
        else:
            kernel = self._first_kernel(rows, likelihood, seed)
            settings = self._first_settings(kernel, self._first_inducing(rows, seed), rows, likelihood)
        return self._problem(rows, kernel, likelihood, len(settings.inducing), offset, population), settings

    def _first_kernel(self, rows: Rows, likelihood: Likelihood, seed: int) -> Covariance:
        kernel = choosing.usual(rows.n_columns) if self.kernel is None else self.kernel
        if self.kernel is None and "kernel" not in checked_fixed(self.fixed):
            few = generator(seed, Stream.START, 6).permutation(len(rows))[:FEW]
            with one_blas_thread():
                kernel = choosing.fine_enough(*rows.take(np.sort(few)))
        if not isinstance(kernel, Covariance):
            raise TypeError(f'kernel must be a natgrad.covariance function, "auto" or None, got {kernel!r}')
        kernel.check(rows.n_columns)
        if self.kernel is None or kernel.units(rows.x_scaling.sd) is None:
            return kernel
        return kernel.in_units(rows.x_scaling.mean, rows.x_scaling.sd, variance_unit(rows.y_scaling, likelihood))

    def _first_settings(self, kernel: Covariance, inducing: Floats, rows: Rows, likelihood: Likelihood) -> Settings:
        some = rows.take(np.arange(min(len(rows), MOST_STARTING_ROWS)))[1]
        given, sd = self.noise_variance, rows.y_scaling.sd
        if given is not None:
            noise = float(given) / float(np.mean(sd**2))  # in the units of y, squared
        else:
            noise = FIRST_NOISE
            if likelihood.standardised and (sd == 1.0).all():
                noise *= float(np.nanvar(some, axis=0).mean()) or 1.0
        return Settings(kernel.theta, inducing, likelihood.first(some, noise))

    def _trials(
        self, few: Rows, likelihood: Likelihood, seed: int, offset: Floats, in_time: Callable[[], bool]
    ) -> choosing.Trials:
        """Short fits to some rows."""

        def make(kernel: Covariance, n_inducing: int) -> GPProblem:
            return self._problem(few, kernel, likelihood, n_inducing, offset, None)

        def first(kernel: Covariance, wanted: int) -> Settings:
            return self._first_settings(kernel, choosing.spread_inducing(few, seed, wanted), few, likelihood)

        return choosing.Trials(make, first, seed, in_time)

    def _chosen(
        self, rows: Rows, likelihood: Likelihood, seed: int, offset: Floats, in_time: Callable[[], bool]
    ) -> tuple[Covariance, Settings]:
        """Kernel, where it is "auto", and inducing inputs, by short fits to some rows."""
        numbers = np.sort(generator(seed, Stream.START, 2).permutation(len(rows))[: choosing.ROWS])
        trials = self._trials(Rows(*rows.take(numbers)), likelihood, seed, offset, in_time)  # standardised already
        if self.kernel == "auto":
            bare = rows.scaled_by(Scaling.none(rows.n_columns), rows.y_scaling)
            kinds = choosing.few_valued(bare.take(numbers)[0])
            x, y = rows.take(numbers)
            one = likelihood.standardised and y.shape[1] == 1
            kernel, settings = choosing.chosen_kernel(trials, x, kinds, y[:, 0] if one else None)
        else:
            kernel = self._first_kernel(rows, likelihood, seed)
            settings = trials.tried(kernel).settings
        if self.inducing is not None:
            return kernel, settings._replace(inducing=self._first_inducing(rows, seed))
        wanted = None if self.n_inducing == "auto" else self._n_wanted
        rng = generator(seed, Stream.START, 3)
        return kernel, settings._replace(
            inducing=choosing.greedy_inducing(rows, kernel, settings, likelihood, wanted, rng)
        )

    def _problem(
        self,
        rows: Rows,
        kernel: Covariance,
        likelihood: Likelihood,
        n_inducing: int,
        offset: Floats,
        population: float | None,
        joint: bool = False,
    ) -> GPProblem:
        kernel_moves, noise_moves, inducing_moves = (name not in checked_fixed(self.fixed) for name in FIXABLE)
        moves = (noise_moves or (likelihood.mixes and kernel_moves)) and likelihood.has_parameter
        learned = Learned(kernel_moves, moves, inducing_moves)
        return GPProblem(
            rows, kernel, likelihood, n_inducing=n_inducing, learned=learned, rate=float(self._solver.learning_rate),
            jitter=float(self._solver.jitter), batch_size=self._solver.batch_size, population=population, offset=offset,
            joint=joint or (likelihood.mixes and rows.gaps),
        )  # fmt: skip

    def _first_inducing(self, rows: Rows, seed: int) -> Floats:
        """The inputs that were given, or k-means++ among some rows; never two the same."""
        if self.inducing is not None:
            given = np.asarray(self.inducing, dtype=np.float64)
            if given.ndim != 2 or given.shape[1] != rows.n_columns or not np.isfinite(given).all():
                raise ValueError(
                    f"inducing must be finite numbers [M, {rows.n_columns}], got an array of shape {given.shape}"
                )
            return rows.x_scaling.apply(given)
        return choosing.spread_inducing(rows, seed, self._n_wanted)

    # -- reading --

    def _own_likelihood(self) -> Likelihood:
        raise NotImplementedError

    def _read(self, X: Any, y: Any, reset: bool) -> Rows:
        """Checked rows with outputs as the likelihood takes them."""
        raise NotImplementedError

    def _is_stream(self, X: Any) -> bool:
        return isinstance(X, (str, Path, Iterator))

    def _rows(self, X: Any, y: Any, reset: bool, **checks: Any) -> Rows:
        """Rows of arrays, memory maps, a Parquet file or an iterator of (X, y)."""
        types = (np.float64, np.float32)

        def checked(x: Any, targets: Any) -> tuple[Any, Any]:
            return validated_with_gaps(self, x, targets, reset=reset, dtype=types, **checks)  # type: ignore[no-any-return]

        if self._is_stream(X):
            return open_rows(X, y, checked)
        arrays = checked(X, y)
        if not isinstance(X, np.memmap):  # a file stays one; elsewhere the same numbers are added up in the same order
            arrays = np.ascontiguousarray(arrays[0]), np.ascontiguousarray(arrays[1])
        return rows_of_arrays(*arrays)

    def _latent(self, X: Any) -> tuple[Floats, Floats]:
        """Means and variances of f, in standardised units."""
        x = self._inputs(X)
        return self._predictor.latent(x)

    def _inputs(self, X: Any) -> Floats:
        """Inputs of a fitted model, standardised."""
        check_is_fitted(self)
        x = validated(self, X, reset=False, dtype=(np.float64, np.float32))
        return self._x_scaling.apply(np.asarray(x, dtype=np.float64))

    def _latent_draws(self, X: Any, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of f [n, N, F], in standardised units."""
        return self._predictor.draws(self._few_inputs(X), n, rng)

    def _few_inputs(self, X: Any) -> Floats:
        """Inputs of which there may be joint draws."""
        x = self._inputs(X)
        if len(x) > MOST_JOINT_ROWS:
            raise ValueError(f"X has {len(x)} rows: joint draws are for at most {MOST_JOINT_ROWS}; draw in parts")
        return x

    # -- how sure it is --

    def linear_response(self, X: Any = None, y: Any = None) -> HyperResponse:  # type: ignore[override]
        """How well the data determine kernel and noise: standard deviations, intervals, correlations of hyper-parameters.

        From the curvature of the bound with q(u) at its best for each of them, for priors that are flat in their logarithms and
        inducing inputs that stay, as does B of several outputs; some tens of passes over the data. q(u) itself is exact for
        Gaussian noise: intervals of `predict` and draws of `sample` are those of the posterior at these hyper-parameters.

        Parameters
        ----------
        X, y : the data of the fit; by default those that the model holds (not after loading, nor for streams)

        Examples
        --------
        >>> import numpy as np, natgrad as ng
        >>> x = np.random.default_rng(0).uniform(-3, 3, (60, 1))
        >>> model = ng.SparseGPRegressor(n_inducing=12).fit(x, np.sin(2 * x[:, 0]) + 0.1 * np.cos(40 * x[:, 0]))
        >>> low, high = model.linear_response()["noise"].interval(0.9)
        >>> bool(low < model.noise_variance_ < high)
        True
        """
        from natgrad.models.gp.response import hyper_response

        self._check_fitted()
        if X is None:
            held = getattr(self, "_data", None)
            x, outputs = (None, None) if held is None else held.arrays
            if x is None or outputs is None:
                raise ValueError(
                    "linear_response() needs the data of the fit, which this model does not hold: give X, y"
                )
            rows = Rows(x, outputs, self._x_scaling, self._y_scaling)
        else:
            rows = self._read(X, y, False).scaled_by(self._x_scaling, self._y_scaling)
        problem = self._again(rows)
        pairs = zip(self._kernel.names, self.kernel_.theta, self._kernel.theta, strict=True)
        units = {name: np.asarray(ours) - np.asarray(inside) for name, ours, inside in pairs}
        units["noise"] = 2.0 * np.log(np.asarray(self._y_scaling.sd))
        return hyper_response(problem, self._state, units, given_up(self, problem))

    _draws_advice = (
        "sample(X, n) draws functions from q(u), which is exact for Gaussian noise, and linear_response().sample() "
        "hyper-parameters"
    )

    # -- files --

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    def _saved(self) -> dict[str, Any]:
        settings = self._state.hyper["settings"]
        return {
            "lam": self._state.lam["v"],
            "t": self._state.t,
            "kernel": self._kernel,
            "settings": tuple(np.asarray(leaf) for leaf in leaves_of(settings)),
            "x_scaling": (self._x_scaling.mean, self._x_scaling.sd),
            "y_scaling": (self._y_scaling.mean, self._y_scaling.sd),
            "offset": self._offset,
            "jitter": (self.jitter_, self.jitter_raised_),
            "fitted": {name: getattr(self, name) for name in KEPT if hasattr(self, name)},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._check_settings()
        for name, value in saved["fitted"].items():
            setattr(self, name, value)
        scaling, y_scaling = (Scaling(*saved[name]) for name in ("x_scaling", "y_scaling"))
        rows = Rows(np.empty((0, self.n_features_in_)), np.empty((0, len(y_scaling.sd))), scaling, y_scaling)
        lam, likelihood = saved["lam"], self._own_likelihood()
        n_inducing = len(saved["settings"][len(saved["kernel"].theta)])
        whole = lam[0].shape[1] > n_inducing
        problem = self._problem(rows, saved["kernel"], likelihood, n_inducing, saved["offset"], None, whole)
        settings = settings_of(saved["settings"], problem.matrices, saved["kernel"])
        with one_blas_thread():
            moments = problem.moments(problem.blocks["v"], lam)
        self._publish(problem, State({"v": lam}, {"v": moments}, saved["t"], hyper={"settings": settings}))
        self.jitter_, self.jitter_raised_ = saved["jitter"]

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**SETTINGS, **(CLASSIFIER if cls.__name__ == "SparseGPClassifier" else REGRESSOR)}

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        classes = cls.__name__ == "SparseGPClassifier"
        own = (
            {"classes_": "ids [class]", "_link?": "'probit' | 'softmax' | 'ordinal'"}
            if classes
            else {"_flat": "flag", "_correlated?": "flag"}
        )

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            check(value, {**FITTED, "settings": tuple, "fitted": {**ALONG, **own}}, sizes, where)
            law = str(value["fitted"].get("_link", "probit") if classes else settings.get("likelihood"))
            mixed = bool(value["fitted"].get("_correlated", False))
            check(
                value["settings"],
                _learned(value["kernel"], CORRELATED if mixed else law),
                sizes,
                f"{where}['settings']",
            )
            _check_factors(mixed, sizes)
            n = len(value["kernel"].theta) + 2
            _check_adam(value["settings"][n + 1 : 2 * n + 1], value["settings"][2 * n + 1 :])
            if ("trace_" in value["fitted"]) != ("stop_" in value["fitted"]):
                refuse(where, "has a trace without an end, or an end without a trace")
            if sizes["output"] != sizes["measured"] * (2 if law == "heteroskedastic" else 1):
                refuse(where, f"has {sizes['output']} functions of {sizes['measured']} outputs")
            if classes:
                _check_classes(value["fitted"]["classes_"], law, sizes)
            elif value["fitted"]["_flat"] and sizes["measured"] > 1:
                refuse(where, f"has one output, and {sizes['measured']} of them")

        return cls._settings_table(), of


def _as_held(rows: Rows) -> HeldRows:
    return HeldRows((rows.inputs, rows.outputs))


# -- tables of a model file --

COUNT = "whole [] in [0, 2147483647)"


def _order(value: Any, sizes: dict[str, int], where: str) -> None:
    """Classes from the lowest to the highest, or None."""
    if value is not None and not (
        isinstance(value, (list, tuple)) and all(isinstance(one, (str, int, float)) for one in value)
    ):
        refuse(where, "is no list of classes")


SETTINGS: dict[str, Any] = {
    **settings_table(),
    "n_inducing": "none | 'auto' | natural",
    "inducing": "none | real list [_, column]",
    "solver": either(
        "none",
        record(
            Solver,
            batch_size="natural",
            learning_rate="real in (0, 1]",
            method=METHOD,
            step=STEP,
            jitter="real in [0, 0.01)",
            standardize="flag",
            optimizer="none | 'adam' | 'lbfgs'",
        ),
    ),
}
# Of a regressor alone.
REGRESSOR: dict[str, Any] = {
    "likelihood": "'gaussian' | 'student_t' | 'poisson' | 'negative_binomial' | 'heteroskedastic'",
    "noise_variance": "none | real in (0, 1e100]",
    "df": "none | positive",
    "outputs": "none | 'correlated' | 'independent'",
}
CLASSIFIER: dict[str, Any] = {
    "likelihood": "none | 'probit' | 'softmax' | 'ordinal'",
    "order": _order,
}
# Parameters of a likelihood, where they are not one for each output.
CORRELATED = "correlated"
PSI = {"ordinal": "real [cut]", "heteroskedastic": "real [measured, 2]", CORRELATED: "real [measured, mixed]"}
FITTED: dict[str, Any] = {
    "lam": "MultivariateNormal [factor; stacked]",
    "x_scaling": (f"real [column] {WIDE}", f"real [column] {SPREAD}"),
    "y_scaling": (f"real [measured] {WIDE}", f"real [measured] {SPREAD}"),
    "offset": f"real [output] {WIDE}",
    "t": "whole in [0, 1e12]",
    "jitter": ("nonnegative", "whole"),
    "kernel": stored_kernel,
}
ALONG: dict[str, Any] = {
    "n_features_in_": "size column",
    "feature_names_in_?": "ids [column]",
    "elbo_": "float",
    "trace_?": Trace,
    "stop_?": Stop,
    "n_rows_seen_": "natural",
    "_part?": "real in (0, 1]",
    "n_readings_?": "whole",
}


def _learned(kernel: Covariance, law: str) -> tuple[Any, ...]:
    """The leaves of `natgrad.models.gp.settings.Settings`: θ, inducing inputs and ψ, then what Adam remembers of each."""
    moving = (*_theta(kernel), "real [inducing, column]", PSI.get(law, "real [output]"))
    here = (*(f"{rule} {LOG}" for rule in moving[:-2]), f"{moving[-2]} {WIDE}", f"{moving[-1]} {LOG}")
    squares = tuple(rule.replace("real", "nonnegative") for rule in moving)
    return (*here, COUNT, *moving, *squares)


def law_of(likelihood: Likelihood) -> str:
    """What the parameters of a likelihood go by here."""
    return CORRELATED if likelihood.mixes else likelihood.name


def _check_factors(mixed: bool, sizes: Mapping[str, int]) -> None:
    """A factor of q for each function, or, where outputs go together, one for all of them; numbers that mix functions."""
    n, size = sizes["output"], sizes["inducing"]
    kinds = [(n, size), (1, n * size)][: 2 if mixed else 1]
    if (sizes["factor"], sizes["stacked"]) not in kinds:
        refuse(
            "lam", f"is of shape [{sizes['factor']}, {sizes['stacked']}], with {n} functions and {size} inducing inputs"
        )
    if mixed and sizes["mixed"] != 2 + n:
        refuse("settings", f"has {sizes['mixed']} columns of parameters for {n} outputs that go together")


def _check_adam(mu: Any, nu: Any) -> None:
    """Averages of a slope and of its square: the first is never larger than 7.3 roots of the second, whatever the slopes."""
    for first, second in zip(mu, nu, strict=True):
        if not (np.abs(first) <= 10.0 * np.sqrt(second) + 1e-12).all():
            refuse("Adam's memory", "has averages of slopes that are larger than those of their squares allow")


def state_table(kernel: Covariance, law: str) -> Any:
    """The table of a state, in which the same numbers are in their records."""
    leaves, n = _learned(kernel, law), len(kernel.theta) + 2
    here, count, moving, squares = leaves[:n], leaves[n], leaves[n + 1 : 2 * n + 1], leaves[2 * n + 1 :]

    def settings(parts: tuple[Any, ...], adam: Any) -> Any:
        return record(Settings, theta=parts[:-2], inducing=parts[-2], psi=parts[-1], adam=adam)

    adam = record(Adam, count=count, mu=settings(moving, "none"), nu=settings(squares, "none"))
    whole = state_of({"v": FITTED["lam"]}, hyper={"settings": settings(here, adam)})

    def of(value: Any, sizes: dict[str, int], where: str) -> None:
        whole(value, sizes, where)
        kept = value.hyper["settings"].adam
        _check_adam(*((*part.theta, part.inducing, part.psi) for part in (kept.mu, kept.nu)))

    return of


def _theta(kernel: Covariance) -> tuple[str, ...]:
    return tuple(f"real {list(np.shape(part))}" for part in kernel.theta)


def _check_classes(classes: Any, law: str, sizes: Mapping[str, int]) -> None:
    """In order, and a function for each, or one for two; of an ordinal scale one function, and cutpoints between the classes."""
    ordinal = law == "ordinal"
    if sizes["output"] != (1 if ordinal or (len(classes) == 2 and law == "probit") else len(classes)):
        refuse("classes_", f"are {len(classes)}, with {sizes['output']} functions")
    if ordinal and sizes["cut"] != len(classes) - 1:
        refuse("classes_", f"are {len(classes)}, with {sizes['cut']} cutpoints")
    if len(classes) < 2 or len(np.unique(classes)) != len(classes):
        refuse("classes_", "are not two or more, each once")
    if not ordinal and not np.array_equal(np.unique(classes), classes):
        refuse("classes_", "are not in order")
