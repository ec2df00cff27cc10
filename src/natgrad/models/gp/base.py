"""What the two sparse Gaussian process estimators share: rows in, a run of the engine, and a predictor that is ready, out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from natgrad._jax import on_host
from natgrad.covariance import Covariance
from natgrad.data.held import HeldRows
from natgrad.data.rows import Rows, Scaling
from natgrad.inference.engine import take_steps
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import FOLLOWING, GroupStepper
from natgrad.inference.trace import Trace
from natgrad.models.base import register
from natgrad.models.gp.likelihood import Likelihood
from natgrad.models.gp.predictor import Predictor
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.running import given_up, optimise
from natgrad.models.gp.settings import Adam, Settings, leaves_of, settings_of
from natgrad.models.gp.starting import GPStarting, variance_unit
from natgrad.models.registry import EVERY_MODEL
from natgrad.posterior.export import Posterior as Factors
from natgrad.posterior.export import factors_of
from natgrad.posterior.fit_options import FitOptions, all_or_nothing
from natgrad.threads import one_blas_thread
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.models.gp.response import HyperResponse

__all__ = ["SparseGP"]

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
    "_correlated",
)

# Both are parts of a checkpoint.
register(Settings, "gp.Settings")
register(Adam, "gp.Adam")


class SparseGP(GPStarting):
    """The common part; abstract. `SparseGPRegressor` has the parameters."""

    kind: ClassVar[str] = "process"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {"partial_fit", "linear_response", "predict"}
    elbo_: float
    n_steps_: int
    n_rows_seen_: int

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
        began, held_rows, seed = time.perf_counter(), _as_held(rows), whole_number(self.seed, "seed", least=0)
        in_time = self._clock(began)
        rows, held = self._held_out(self._scaled(rows, standard_outputs))
        problem, settings = self._begun(rows, likelihood, seed, in_time)
        optimise(self, problem, problem.start(settings), held, Trace(), self.max_steps, options, began=began)
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
        step = FOLLOWING if self.step is None else self.step
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

    def _check_settings(self) -> None:
        self._check_choices(besides=("likelihood",))
        for name in ("n_inducing", "batch_size"):
            if name == "batch_size" or self.n_inducing != "auto":
                whole_number(getattr(self, name), name)
        for name in ("noise_variance", "learning_rate"):
            if (name, getattr(self, name)) != ("noise_variance", None) and not 0 < real_number(
                getattr(self, name), name
            ) < np.inf:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)!r}")
        if not 0 <= real_number(self.jitter, "jitter") < 1e-2:
            raise ValueError(f"jitter must lie in [0, 0.01), as a part of the kernel's variance, got {self.jitter!r}")
        if not real_number(self.tol, "tol") >= 0:
            raise ValueError(f"tol must be ≥ 0, got {self.tol!r}: 0 takes all steps")
        if not 0 <= real_number(self.validation_fraction, "validation_fraction") < 1:
            raise ValueError(f"validation_fraction must lie in [0, 1), got {self.validation_fraction!r}")

    def _in_units_of_data(self, kernel: Covariance) -> Covariance:
        """A kernel of standardised inputs and outputs as one of X and y."""
        scaling = self._x_scaling
        if kernel.units(scaling.sd) is None:  # inputs are as they were
            return kernel
        unit = variance_unit(self._y_scaling, self._likelihood)
        return kernel.in_units(-scaling.mean / scaling.sd, 1.0 / scaling.sd, 1.0 / unit)

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


def _as_held(rows: Rows) -> HeldRows:
    return HeldRows((rows.inputs, rows.outputs))
