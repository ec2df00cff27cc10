"""What the two sparse Gaussian process estimators share: rows in, a run of the engine, and a predictor that is ready, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from natgrad._jax import on_host
from natgrad.covariance import RBF, Covariance
from natgrad.data.held import HeldRows
from natgrad.data.rows import Rows, Scaling
from natgrad.inference.engine import take_steps
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import FOLLOWING, GroupStepper
from natgrad.inference.trace import Trace
from natgrad.models.base import register
from natgrad.models.gp import choosing
from natgrad.models.gp.likelihood import Likelihood
from natgrad.models.gp.predictor import Predictor
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.reading import GPReading
from natgrad.models.gp.running import optimise
from natgrad.models.gp.settings import Adam, Learned, Settings, leaves_of, settings_of
from natgrad.models.scikit import check_is_fitted
from natgrad.posterior.export import Posterior as Factors
from natgrad.posterior.export import factors_of
from natgrad.posterior.fit_options import FitOptions, all_or_nothing
from natgrad.random import Stream, generator
from natgrad.renamed import OldName
from natgrad.threads import ONE_BLAS_THREAD
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.models.gp.response import HyperResponse

__all__ = ["SparseGP"]

Floats = npt.NDArray[np.float64]
# Rows that the offset is taken from.
MOST_STARTING_ROWS = 20_000
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
    "_correlated",
)

# Both are parts of a checkpoint.
register(Settings, "gp.Settings")
register(Adam, "gp.Adam")


class SparseGP(GPReading):
    """The common part; abstract. `SparseGPRegressor` has the parameters."""

    elbo_: float
    n_steps_: int
    n_rows_seen_: int

    # -- fitting --

    continue_ = OldName("continue_fit")

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
        rows, held = self._held_out(rows)
        problem = self._again(rows)
        earlier = list(self.trace_.records) if hasattr(self, "trace_") else []
        most = self.max_steps if max_steps is None else max_steps
        optimise(self, problem, problem.widened(self._state), held, Trace(earlier), most, {}, going_on=True)
        return self

    def _more(self, X: Any, y: Any = None) -> HeldRows:
        return _as_held(self._read(X, y, False))

    def _go_on(self, held: HeldRows) -> None:
        """Scales, offset and the number of inducing inputs stay; kernel, noise and inducing inputs go on being learned."""
        self._check_settings()
        x, y = held.arrays
        assert x is not None
        assert y is not None
        rows, judges = self._held_out(Rows(x, y, self._x_scaling, self._y_scaling))
        problem = self._again(rows)
        optimise(self, problem, problem.widened(self._state), judges, Trace(), self.max_steps, {})
        self._data = held

    def _fit_rows(self, rows: Rows, likelihood: Likelihood, standard_outputs: bool, options: FitOptions) -> None:
        self._check_settings()
        held_rows = _as_held(rows)
        rows, held = self._held_out(rows.standardised(standard_outputs) if self.standardize else rows)
        problem, settings = self._begun(rows, likelihood, whole_number(self.seed, "seed", least=0))
        optimise(self, problem, problem.start(settings), held, Trace(), self.max_steps, options)
        self._data = held_rows

    def _held_out(self, rows: Rows) -> tuple[Rows, Rows | None]:
        """The rows to learn from, and those that judge; the same for the same seed."""
        if not self.validation_fraction:
            return rows, None
        return rows.split(
            self.validation_fraction, generator(whole_number(self.seed, "seed", least=0), Stream.START, 1)
        )

    def _partial(self, rows: Rows, likelihood: Likelihood, standard_outputs: bool, n_total: float | None) -> None:
        self._check_settings()
        fresh = not hasattr(self, "_state")
        seed = whole_number(self.seed, "seed", least=0)
        if fresh:
            rows = rows.standardised(standard_outputs) if self.standardize else rows
        else:
            rows = rows.scaled_by(self._x_scaling, self._y_scaling)
        seen = (0 if fresh else self.n_rows_seen_) + len(rows)
        population = float(max(seen, n_total or 0))
        if fresh:
            problem, settings = self._begun(rows, likelihood, seed, population)
            state = problem.start(settings)
        else:
            problem = self._again(rows, population)
            state = problem.widened(self._state)
        size = min(problem.batch_size, len(rows))
        step = FOLLOWING if self.step is None else self.step
        stepper = GroupStepper(problem, size, *problem.local_limits, step, remember=False)
        result = take_steps(problem, stepper, state, max(1, len(rows) // size), seed)
        state = result.state
        self.n_rows_seen_, self._data = seen, None
        self._publish(problem, state)
        self.elbo_ = result.trace.last.elbo_estimate

    def _begun(
        self, rows: Rows, likelihood: Likelihood, seed: int, population: float | None = None
    ) -> tuple[GPProblem, Settings]:
        """The problem and the settings it starts with."""
        sample = rows.take(None if len(rows) <= MOST_STARTING_ROWS else np.arange(MOST_STARTING_ROWS))[1]
        offset = likelihood.offsets(sample)
        if self.kernel == "auto" or self.n_inducing == "auto":
            kernel, settings = self._chosen(rows, likelihood, seed, offset)
        else:
            kernel = self._first_kernel(rows)
            settings = self._first_settings(kernel, self._first_inducing(rows, seed), rows, likelihood)
        return self._problem(rows, kernel, likelihood, len(settings.inducing), offset, population), settings

    def _first_kernel(self, rows: Rows) -> Covariance:
        kernel = (
            RBF(lengthscale=np.full(rows.n_columns, np.sqrt(rows.n_columns))) if self.kernel is None else self.kernel
        )
        if not isinstance(kernel, Covariance):
            raise TypeError(f'kernel must be a natgrad.covariance function, "auto" or None, got {kernel!r}')
        kernel.check(rows.n_columns)
        return kernel

    def _first_settings(self, kernel: Covariance, inducing: Floats, rows: Rows, likelihood: Likelihood) -> Settings:
        some = rows.take(np.arange(min(len(rows), MOST_STARTING_ROWS)))[1]
        return Settings(kernel.theta, inducing, likelihood.first(some, float(self.noise_variance)))

    def _chosen(self, rows: Rows, likelihood: Likelihood, seed: int, offset: Floats) -> tuple[Covariance, Settings]:
        """Kernel, where it is "auto", and inducing inputs, by short fits to some rows."""
        numbers = generator(seed, Stream.START, 2).permutation(len(rows))[: choosing.ROWS]
        few = Rows(*rows.take(np.sort(numbers)))  # standardised already

        def make(kernel: Covariance, n_inducing: int) -> GPProblem:
            return self._problem(few, kernel, likelihood, n_inducing, offset, None)

        def first(kernel: Covariance, wanted: int) -> Settings:
            return self._first_settings(kernel, choosing.spread_inducing(few, seed, wanted), few, likelihood)

        if self.kernel == "auto":
            seconds = None if self.max_seconds is None else float(self.max_seconds) / 3.0
            kinds = choosing.few_valued(few)
            kernel, settings = choosing.chosen_kernel(make, rows.n_columns, first, seed, seconds, kinds)
        else:
            kernel = self._first_kernel(rows)
            settings = choosing.tried(make, kernel, first, seed)[2]
        if self.inducing is not None:
            return kernel, settings._replace(inducing=self._first_inducing(rows, seed))
        wanted = None if self.n_inducing == "auto" else whole_number(self.n_inducing, "n_inducing")
        rng = generator(seed, Stream.START, 3)
        return kernel, settings._replace(
            inducing=choosing.greedy_inducing(rows, kernel, settings, likelihood, wanted, rng)
        )

    def _again(self, rows: Rows, population: float | None = None) -> GPProblem:
        """The problem of the fit with these rows; q stays one factor for all functions, if it was."""
        whole = self._state.lam["v"][0].shape[1] > self._n_inducing
        likelihood = self._own_likelihood()
        return self._problem(rows, self.kernel_, likelihood, self._n_inducing, self._offset, population, whole)

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
        moves = (self.learn_noise or (likelihood.mixes and self.learn_kernel)) and likelihood.has_parameter
        learned = Learned(self.learn_kernel, moves, self.learn_inducing)
        return GPProblem(
            rows, kernel, likelihood, n_inducing=n_inducing, learned=learned, rate=float(self.learning_rate),
            jitter=float(self.jitter), batch_size=self.batch_size, population=population, offset=offset,
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
        return choosing.spread_inducing(rows, seed, whole_number(self.n_inducing, "n_inducing"))

    def _publish(self, problem: GPProblem, state: State) -> None:
        state = on_host(state)
        settings = state.hyper["settings"]
        self._state, self._n_inducing, self._offset = state, problem.n_inducing, problem.offset
        self._x_scaling, self._y_scaling = problem.data.x_scaling, problem.data.y_scaling
        self._likelihood, self.n_steps_ = problem.likelihood, state.t
        self.kernel_: Covariance = problem.kernel.at([np.asarray(part) for part in settings.theta])
        self.inducing_: Floats = np.asarray(settings.inducing) * self._x_scaling.sd + self._x_scaling.mean
        self.jitter_, self.jitter_raised_ = problem.jitter_used, problem.jitter_raised
        self.posterior_ = Factors(factors_of(problem.blocks, state), axes={"v": ("inducing",)})
        with ONE_BLAS_THREAD:  # as in the engine: a loaded model has the same numbers
            self._predictor = Predictor.of(problem, state)

    def _check_settings(self) -> None:
        self._check_choices(besides=("likelihood",))
        for name in ("n_inducing", "batch_size"):
            if name == "batch_size" or self.n_inducing != "auto":
                whole_number(getattr(self, name), name)
        for name in ("noise_variance", "learning_rate"):
            if not 0 < real_number(getattr(self, name), name) < np.inf:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)!r}")
        if not 0 <= real_number(self.jitter, "jitter") < 1e-2:
            raise ValueError(f"jitter must lie in [0, 0.01), as a part of the kernel's variance, got {self.jitter!r}")
        if not real_number(self.tol, "tol") >= 0:
            raise ValueError(f"tol must be ≥ 0, got {self.tol!r}: 0 takes all steps")
        if not 0 <= real_number(self.validation_fraction, "validation_fraction") < 1:
            raise ValueError(f"validation_fraction must lie in [0, 1), got {self.validation_fraction!r}")

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
        rows, _ = self._held_out(rows)
        problem = self._again(rows)
        return hyper_response(problem, self._state, np.asarray(self._y_scaling.sd) ** 2)

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
            "kernel": self.kernel_,
            "settings": tuple(np.asarray(leaf) for leaf in leaves_of(settings)),
            "x_scaling": tuple(self._x_scaling),
            "y_scaling": tuple(self._y_scaling),
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
        with ONE_BLAS_THREAD:
            moments = problem.moments(problem.blocks["v"], lam)
        self._publish(problem, State({"v": lam}, {"v": moments}, saved["t"], hyper={"settings": settings}))
        self.jitter_, self.jitter_raised_ = saved["jitter"]


def _as_held(rows: Rows) -> HeldRows:
    return HeldRows((rows.inputs, rows.outputs))
