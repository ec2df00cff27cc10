"""`StateSpaceGP`: times and what was seen then in; an exact Gaussian process out, in time and memory linear in the rows.

    f ~ GP(0, Σ Matérn),   y_t ~ N(mean + f(t), σ²)

The process is a chain of states of one to three numbers a kernel: a sum of Matérn kernels of one input is Markov along time
(`natgrad.kernels.state_space.process`): log p(y), its slope and its information take one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, Unpack, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from natgrad.covariance import Covariance, Matern12, Matern32, Matern52, Sum
from natgrad.data.dates import days_of, is_dated
from natgrad.data.held import HeldRows
from natgrad.data.rows import joined_pairs, validated
from natgrad.inference.engine import Phase, take_steps
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.inference.problem import Block, Problem, State
from natgrad.inference.schema import check, refuse, state_of
from natgrad.inference.steppers.stepper import Score, ScoringStepper
from natgrad.inference.trace import Stop, Trace
from natgrad.kernels.state_space.process import draw_path, filter_path, score_path, smooth_path
from natgrad.models.base import Estimator
from natgrad.models.gp.likelihoods import is_function
from natgrad.models.gp.response import NOISE, HyperResponse, information_response
from natgrad.models.gp.settings import FIXABLE, checked_fixed, stored_fixed
from natgrad.models.registry import EVERY_MODEL
from natgrad.posterior.export import Posterior
from natgrad.posterior.files.tables import RUN
from natgrad.validation import OnlyWhere, real_number, whole_number

__all__ = ["StateSpaceGP"]

Floats = npt.NDArray[np.float64]
# Steps on some rows before all are read.
STEPS = 20
# Logarithms whose exponentials are numbers.
LOG = "in [-200, 200]"
ADVICE = "raise max_steps, or call continue_fit()"
KINDS = (Matern32, Matern52, Matern12)


@final
class StateSpaceGP(RegressorMixin, Estimator):
    """Exact Gaussian process regression along one input, such as time, for millions of rows.

    Parameters
    ----------
    kernel : Matern12, Matern32, Matern52 or a sum of them, or "auto", optional
        In the units of X and y. By default a Matern32; "auto" takes the one of the three with the largest evidence on some rows.
    noise_variance : float, optional
        Where the noise starts, in units of y squared.
    fixed : "kernel", "noise", or both in a list
        What stays where it starts; the rest is learned, by natural steps on the exact log p(y). Where the kernel is learned,
        length scales from twice the distance of rows to half of their range are tried first, beside those that were given.
    max_steps, max_seconds : limits
    tol : float
        Nats of log p(y) left to gain below which the fit has converged.
    seed : int
    verbose : bool, optional

    Attributes
    ----------
    kernel_, noise_variance_, mean_ : as learned; the mean is that of y
    elbo_ : log p(y), which is exact
    trace_, stop_, n_steps_, n_rows_seen_ : as for other models

    Notes
    -----
    Predictions read all rows of the fit again, which the model and its file hold. Memory is 8 (D + 6) bytes a row, D the
    numbers of the state: 1, 2 and 3 for the three Matérns, added up for a sum.

    Examples
    --------
    >>> t = np.arange(400.0)
    >>> y = np.sin(t / 20) + 0.1 * np.cos(97 * t)
    >>> model = StateSpaceGP().fit(t, y)
    >>> mean, sd = model.predict([100.5, 500.0], return_std=True)
    >>> bool(abs(mean[0] - np.sin(100.5 / 20)) < 0.1), bool(sd[1] > 3 * sd[0])
    (True, True)
    """

    kind: ClassVar[str] = "process"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {"linear_response", "predict", "forecast"}
    noise_variance_: float
    mean_: float
    elbo_: float
    n_steps_: int
    _dated: bool  # times of the fit were dates

    def __init__(
        self,
        kernel: Covariance | Literal["auto"] | None = None,
        *,
        noise_variance: float | None = None,
        fixed: str | Sequence[str] = (),
        max_steps: int = 100,
        max_seconds: float | None = None,
        tol: float = 1e-3,
        seed: int = 0,
        verbose: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.fixed = fixed
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.tol = tol
        self.seed = seed
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to times [N] or [N, 1], in any order, and numbers [N]; or to an iterator of such pairs, all of which are held.

        Times are numbers or dates (``fit(series.index, series)``); dates are read as days since the beginning of 1970, which are
        then the unit of the kernel.

        ``checkpoint``, ``every``, ``resume`` and ``callbacks`` are those of ``Network.fit``.
        """
        self._check_settings()
        if isinstance(X, Iterator):
            X, y = joined_pairs(X, y)
        times, numbers = self._read(X, y, reset=True)
        self._fit_rows(times, numbers, None, keep)
        return self

    @OnlyWhere(
        lambda model: False,
        "would let rows go, and an exact process needs all of them: update(X, y) takes more rows, from what was learned",
    )
    def partial_fit(self, X: Any, y: Any) -> Self:
        """There is none: `update` takes more rows."""
        raise NotImplementedError

    @all_or_nothing
    def continue_fit(self, X: Any, y: Any, max_steps: int | None = None) -> Self:
        """Go on from where the last fit ended, on the same rows.

        Parameters
        ----------
        X, y : as in `fit`
        max_steps : int, optional
            Further steps; by default as many as in the settings.
        """
        self._check_fitted()
        self._check_settings()
        times, numbers = self._read(X, y, reset=False)
        self._fit_rows(times, numbers, self._h, {}, max_steps)
        return self

    def predict(self, X: Any, return_std: bool = False, *, what: Literal["y", "f"] = "y") -> Any:
        """The mean at times [N] (of new observations, or of the function: the same); ``return_std``: and standard deviations."""
        mean, var = self._latent(X)
        if not is_function(what):
            var = var + self.noise_variance_
        return (mean, np.sqrt(var)) if return_std else mean

    def interval(self, X: Any, mass: float = 0.9, *, what: Literal["y", "f"] = "y") -> tuple[Floats, Floats]:
        """Ends of the central interval of a new observation, or of the function (``what="f"``), with probability ``mass``."""
        if not 0 < real_number(mass, "mass") < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass!r}")
        mean, sd = self.predict(X, return_std=True, what=what)
        half = float(sp.ndtri(0.5 + 0.5 * mass)) * sd
        return mean - half, mean + half

    def sample(self, X: Any, n: int = 1, *, what: Literal["f", "y"] = "f", seed: int | None = None) -> Floats:
        """Joint draws of the function, or of observations, at the times of X: [n, N]."""
        rng = np.random.default_rng(self.seed if seed is None else seed)
        times, y, seen, back = self._merged(X)
        chains = self._chains
        draws = np.array([chains.drawn(times, y, seen, rng)[back] for _ in range(whole_number(n, "n"))]) + self.mean_
        if not is_function(what):
            draws = draws + np.sqrt(self.noise_variance_) * rng.standard_normal(draws.shape)
        return draws

    def log_predictive_density(self, X: Any, y: Any) -> Floats:
        """Log p(y_n | data) of each row [N]."""
        mean, sd = self.predict(X, return_std=True)
        given = np.asarray(y, dtype=np.float64)
        if given.shape != mean.shape:
            raise ValueError(f"y must have shape {mean.shape}, got {given.shape}")
        return np.asarray(-0.5 * (np.log(2.0 * np.pi * sd**2) + ((given - mean) / sd) ** 2))

    def linear_response(self, X: Any = None, y: Any = None) -> HyperResponse:  # type: ignore[override]
        """How well the data determine kernel and noise, from the information in them: logarithms are Gaussian.

        Parameters
        ----------
        X, y : not needed, since the model holds its rows
        """
        self._check_fitted()
        information = ChainProblem(self.kernel_, *self._rows).score(self._h).information
        return information_response([*self.kernel_.names, NOISE], [*self._h], self._moves(len(self._h)), information)

    _draws_advice = "sample(X, n) draws functions exactly, and linear_response().sample() hyper-parameters"

    @property
    def inference_(self) -> str:
        """Which inference was run, and after a comma its schedule."""
        self._check_fitted()
        return f"exact, natural steps on all rows, {self.n_steps_:,} steps"

    # -- fitting --

    def _fit_rows(
        self, times: Floats, y: Floats, start: Floats | None, options: FitOptions, max_steps: int | None = None
    ) -> None:
        self.mean_ = float(y.mean())
        centred = y - self.mean_
        kernel = self.kernel_ if start is not None else self._chosen(times, centred)
        problem = ChainProblem(kernel, times, centred)
        moves = self._moves(len(kernel.theta) + 1)
        h = self._started(kernel, times, centred, moves)[1] if start is None else start
        stepper = ScoringStepper(problem, moves)
        limit = whole_number(self.max_steps if max_steps is None else max_steps, "max_steps")
        result = self._run(
            Phase(problem, stepper=stepper), problem.start(h), self._limits(None, ADVICE, max_steps=limit), problem,
            options=options, table=lambda: (state_of({}, hyper={"h": f"real [theta] {LOG}"}), {"theta": len(h)}),
        )  # fmt: skip
        self._publish(problem, result.state)
        self.elbo_ = problem.bound(result.state)
        self._data = HeldRows((times[:, None], y[:, None]))

    @property
    def _held(self) -> tuple[str, ...]:
        return checked_fixed(self.fixed, FIXABLE[:2])

    def _moves(self, size: int) -> npt.NDArray[np.bool_]:
        return np.array(["kernel" not in self._held] * (size - 1) + ["noise" not in self._held])

    def _chosen(self, times: Floats, y: Floats) -> Covariance:
        """The kernel, with values to start from."""
        if self.kernel != "auto":
            kernel = Matern32() if self.kernel is None else self.kernel
            if not isinstance(kernel, Covariance):
                raise TypeError(f'kernel must be a natgrad.covariance function, "auto" or None, got {kernel!r}')
            kernel.check(1)
            parts_of(kernel)
            return kernel
        moves = self._moves(3)
        return max((kind() for kind in KINDS), key=lambda kernel: self._started(kernel, times, y, moves)[0])

    def _started(
        self, kernel: Covariance, times: Floats, y: Floats, moves: npt.NDArray[np.bool_]
    ) -> tuple[float, Floats]:
        """Parameters to start from, after some steps on some rows, and log p of these rows."""
        spread = float(y.var()) or 1.0
        noise = 0.1 * spread if self.noise_variance is None else float(self.noise_variance)
        given = np.array([*(float(np.ravel(part)[0]) for part in kernel.theta), np.log(noise)])
        some, few = (window(kernel, times, y, most) for most in (SOME, FEW))
        compared = [given]
        if "kernel" not in self._held:
            compared += list(
                starts(given, few.times, spread, self.noise_variance is None and "noise" not in self._held)
            )
        best = max(compared, key=lambda h: few.score(h).value)
        if len(times) > len(some.times) and moves.any():
            stepper = ScoringStepper(some, moves)
            best = take_steps(some, stepper, some.start(best), STEPS, 0).state.hyper["h"]
        return some.score(best).value, best

    def _publish(self, problem: ChainProblem, state: Any) -> None:
        h = np.asarray(state.hyper["h"])
        self._state, self._h, self.n_steps_ = state, h, state.t
        self._rows, self.n_rows_seen_ = (problem.times, problem.y), len(problem.y)
        self.kernel_: Covariance = kernel_of(problem.kernel, h)
        self.noise_variance_ = float(np.exp(h[-1]))
        self.posterior_ = Posterior({}, axes={})

    @property
    def _chains(self) -> Chains:
        return chains_of(self.kernel_, self._h)

    def _more(self, X: Any, y: Any = None) -> HeldRows:
        times, numbers = self._read(X, y, reset=False)
        return HeldRows((times[:, None], numbers[:, None]))

    def _go_on(self, held: HeldRows) -> None:
        self._check_settings()
        times, y = (np.asarray(part)[:, 0] for part in held.arrays)
        order = np.argsort(times, kind="stable")
        self._fit_rows(times[order], y[order], self._h, {})

    # -- reading --

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False  # one column at most
        return tags

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[Floats, Floats]:
        """Sorted times, and the numbers at them."""
        times, dated = self._days(X, reset)
        x, numbers = validated(self, times, y, reset=reset, dtype=(np.float64, np.float32), y_numeric=True)
        check_one(x)
        if reset:
            self._dated = dated
        order = np.argsort(x[:, 0], kind="stable")
        return np.asarray(x[order, 0], dtype=np.float64), np.asarray(numbers[order], dtype=np.float64)

    def _days(self, X: Any, reset: bool) -> tuple[Any, bool]:
        """Times as numbers, and whether they were dates."""
        dated = _has_dates(X)
        if dated and not reset and not self._dated:
            raise TypeError("X holds dates, and the fit had times that are numbers: give such numbers")
        return as_times(X), dated

    def _merged(self, X: Any) -> tuple[Floats, Floats, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Times of the fit and of X in order, what was seen and where, and the places of X among them."""
        check_is_fitted(self)
        x = validated(self, self._days(X, False)[0], reset=False, dtype=(np.float64, np.float32))
        times, y = self._rows
        together = np.concatenate([times, np.asarray(x[:, 0], dtype=np.float64)])
        order = np.argsort(together, kind="stable")
        seen = order < len(times)
        values = np.zeros(len(order))
        values[seen] = y[order[seen]]
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        return together[order], values, seen, places[len(times) :]

    def _latent(self, X: Any) -> tuple[Floats, Floats]:
        """Mean and variance of the function, in the units of y."""
        times, y, seen, back = self._merged(X)
        mean, var = self._chains.smoothed(times, y, seen)
        return mean[back] + self.mean_, var[back]

    def _check_settings(self) -> None:
        self._check_choices()
        checked_fixed(self.fixed, FIXABLE[:2])
        whole_number(self.max_steps, "max_steps")
        whole_number(self.seed, "seed", least=0)
        if not real_number(self.tol, "tol") >= 0:
            raise ValueError(f"tol must be ≥ 0, got {self.tol!r}: 0 takes all steps")
        if self.noise_variance is not None and not 0 < real_number(self.noise_variance, "noise_variance") < np.inf:
            raise ValueError(f"noise_variance must be > 0, got {self.noise_variance!r}")

    # -- files --

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {
            **{name: rule for name, rule in RUN.items() if name not in ("n_jobs", "method", "step")},
            "kernel": lambda value, sizes, where: _check_kernel(value, where, True),
            "noise_variance": "none | positive",
            "fixed": stored_fixed,
            "max_steps": "natural",
            "max_seconds": "none | positive",
        }

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        along = {
            "n_features_in_": "natural",
            "feature_names_in_?": "ids [_]",
            "elbo_": "float",
            "trace_": Trace,
            "stop_": Stop,
        }
        rules = {
            "h": f"real [theta] {LOG}",
            "t": "whole in [0, 1e12]",
            "times": "real [row] in [-1e30, 1e30]",
            "y": "real [row] in [-1e30, 1e30]",
            "mean": "real in [-1e30, 1e30]",
            "dated": "flag",
            "kernel": lambda value, sizes, where: _check_kernel(value, where, False),
            "fitted": along,
        }

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            check(value, rules, sizes, where)
            if sizes["theta"] != len(value["kernel"].theta) + 1:
                refuse(where, f"has {sizes['theta']} parameters of kernel and noise")
            if value["fitted"]["n_features_in_"] != 1 or not (np.diff(value["times"]) >= 0).all():
                refuse(where, "has times that are not in order")

        return cls._settings_table(), of

    def _saved(self) -> dict[str, Any]:
        kept = ("n_features_in_", "feature_names_in_", "elbo_", "trace_", "stop_")
        return {
            "h": self._h,
            "t": self.n_steps_,
            "times": self._rows[0],
            "y": self._rows[1],
            "mean": self.mean_,
            "dated": self._dated,
            "kernel": self.kernel_,
            "fitted": {name: getattr(self, name) for name in kept if hasattr(self, name)},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        for name, value in saved["fitted"].items():
            setattr(self, name, value)
        self.mean_, self._dated = float(saved["mean"]), saved["dated"]
        problem = ChainProblem(saved["kernel"], saved["times"], saved["y"])
        self._publish(problem, problem.start(saved["h"])._replace(t=saved["t"]))
        self._data = HeldRows((problem.times[:, None], (problem.y + self.mean_)[:, None]))  # the file holds its rows


def _check_kernel(value: Any, where: str, optional: bool) -> None:
    if optional and (value is None or (isinstance(value, str) and value == "auto")):
        return
    if not isinstance(value, Covariance):
        refuse(where, f"is no covariance function but a {type(value).__name__}")
    value.check(1)
    parts_of(value)


def as_times(X: Any) -> Any:
    """A list of times is a table of one column; dates are days since the beginning of 1970."""
    if _has_dates(X):
        X = days_of(X.iloc[:, 0] if hasattr(X, "columns") else np.ravel(X) if isinstance(X, np.ndarray) else X)
    return X if np.ndim(X) != 1 or isinstance(X, str) else np.asarray(X)[:, None]


def _has_dates(X: Any) -> bool:
    table = hasattr(X, "iloc") and hasattr(X, "columns") and len(X.columns) == 1
    return is_dated(X.iloc[:, 0] if table else X)


def check_one(x: npt.NDArray[Any]) -> None:
    """Refuse inputs of several columns."""
    if x.shape[1] != 1:
        raise ValueError(
            f"X has {x.shape[1]} columns, and a process along time takes one: give times [N] or [N, 1]. "
            "SparseGPRegressor takes more"
        )


# -- the chain --

SIZES: dict[type, int] = {Matern12: 1, Matern32: 2, Matern52: 3}
# √(2ν) of the sizes.
ROOTS = np.sqrt([0.0, 1.0, 3.0, 5.0])


class Chains(NamedTuple):
    """Kernels as the loops take them: sizes of states, variances, rates √(2ν)/ℓ, and the variance of the noise."""

    sizes: npt.NDArray[np.int64]
    variances: Floats
    rates: Floats
    noise: float

    @property
    def size(self) -> int:
        """D, numbers of the state of a row."""
        return int(self.sizes.sum())

    def smoothed(self, times: Floats, y: Floats, seen: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Mean and variance of f at sorted times, given the rows that are seen."""
        mean, spread, error = (np.empty(len(y)) for _ in range(3))
        held, steps = np.empty((len(y), self.size)), np.diff(times, prepend=times[:1])
        filter_path(*self, steps, y, seen, mean, spread, error, held)
        smooth_path(*self, steps, seen, mean, spread, error, held)
        return mean, spread

    def drawn(self, times: Floats, y: Floats, seen: npt.NDArray[np.bool_], rng: np.random.Generator) -> Floats:
        """A draw of f at sorted times, given the rows that are seen: one of the prior, bent to the data (Matheron's rule)."""
        f, steps = np.empty(len(y)), np.diff(times, prepend=times[:1])
        draw_path(*self[:3], steps, rng.standard_normal((len(y), self.size)), f)
        noisy = f + np.sqrt(self.noise) * rng.standard_normal(len(y))
        return np.asarray(f + self.smoothed(times, np.where(seen, y - noisy, 0.0), seen)[0])


def parts_of(kernel: Covariance) -> tuple[Covariance, ...]:
    """The kernels of a sum, or the kernel; each a Matérn of one input."""
    parts = kernel.parts if isinstance(kernel, Sum) else (kernel,)
    for part in parts:
        if type(part) not in SIZES:
            raise TypeError(
                f"kernel: {part!r} is none of Matern12, Matern32 and Matern52: a process along time takes these and sums; "
                "SparseGPRegressor takes all"
            )
    return tuple(parts)


def chains_of(kernel: Covariance, h: Floats) -> Chains:
    """The kernel with parameters h: logarithms of variance and length scale of each part, and of the noise."""
    sizes = np.array([SIZES[type(part)] for part in parts_of(kernel)], dtype=np.int64)
    return Chains(sizes, np.exp(h[:-1:2]), ROOTS[sizes] * np.exp(-h[1:-1:2]), float(np.exp(h[-1])))


def kernel_of(kernel: Covariance, h: Floats) -> Covariance:
    """The kernel with the values of h."""
    shapes = [np.shape(part) for part in kernel.theta]
    return kernel.at([np.full(shape, value) for shape, value in zip(shapes, h[:-1], strict=True)])


class ChainProblem(Problem):
    """Rows along time: sorted times [T], outputs [T] less their mean, and the structure of the kernel."""

    def __init__(self, kernel: Covariance, times: Floats, y: Floats) -> None:
        self.kernel, self.times, self.y = kernel, times, np.ascontiguousarray(y)
        self._steps = np.diff(times, prepend=times[:1])

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """None: all that is hidden is integrated out."""
        return {}

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All rows."""
        return {"y": len(self.y)}

    @property
    def n_messages(self) -> int:
        """A row is read once."""
        return len(self.y)

    def score(self, h: Floats) -> Score:
        """Log p(y | h), its slope and the information."""
        n = len(h)
        slope, information = np.empty(n), np.empty((n, n))
        value = score_path(*chains_of(self.kernel, h), self._steps, self.y, slope, information)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return Score(-np.inf, np.zeros(n), np.eye(n))
        return Score(float(value), slope, information)

    def bound(self, state: State) -> float:
        """Log p(y), which is exact."""
        return self.score(np.asarray(state.hyper["h"])).value

    def start(self, h: Any) -> State:
        """The state that a run begins with."""
        return State({}, {}, 0, hyper={"h": np.asarray(h, dtype=np.float64)})


# -- where a fit starts --

# Rows on which starts are compared, and on which the best of them goes on; length scales and shares of noise that are compared.
FEW, SOME, LENGTHS, SHARES = 4_000, 20_000, 8, (0.5, 0.1, 0.01)


def window(kernel: Covariance, times: Floats, y: Floats, most: int) -> ChainProblem:
    """Rows in the middle, one after the other."""
    begin = max(0, (len(times) - most) // 2)
    return ChainProblem(kernel, times[begin : begin + most], y[begin : begin + most])


def starts(given: Floats, times: Floats, spread: float, noise: bool) -> Iterator[Floats]:
    """Length scales and shares of noise to begin with; of a sum, in the proportions that were given."""
    gaps = np.diff(times)
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return
    shortest, longest = 2.0 * float(np.median(gaps)), 0.5 * float(times[-1] - times[0])
    variances = np.exp(given[:-1:2] - given[:-1:2].max())
    for length in np.geomspace(shortest, max(longest, shortest), LENGTHS):
        for share in SHARES if noise else (None,):
            h = given.copy()
            h[1:-1:2] += np.log(length) - given[1:-1:2].mean()
            h[:-1:2] = np.log((1.0 - (share or 0.1)) * spread * variances / variances.sum())
            h[-1] = given[-1] if share is None else np.log(share * spread)
            yield h
