"""`StateSpaceGP`: times and what was seen then in; an exact Gaussian process out, in time and memory linear in the rows.

    f ~ GP(0, Σ Matérn),   y_t ~ N(mean + f(t), σ²)

The process is a chain of states of one to three numbers a kernel: a sum of Matérn kernels of one input is Markov along time
(`natgrad.kernels.state_space.process`): log p(y), its slope and its information take one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from natgrad.covariance import Covariance, Matern12, Matern32, Matern52, Sum
from natgrad.data.dates import days_of, is_dated
from natgrad.data.held import HeldRows
from natgrad.data.rows import validated
from natgrad.inference.engine import take_steps
from natgrad.inference.options import FitOptions
from natgrad.inference.problem import State
from natgrad.inference.schema import check, refuse
from natgrad.inference.steppers.stepper import Score, ScoringStepper
from natgrad.kernels.state_space.process import draw_path, filter_path, score_path, smooth_path
from natgrad.models.gp.scored import ScoredGP, ScoredProblem
from natgrad.models.gp.settings import WIDE

__all__ = ["StateSpaceGP"]

Floats = npt.NDArray[np.float64]
# Steps on some rows before all are read.
STEPS = 20
KINDS = (Matern32, Matern52, Matern12)


@final
@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name
class StateSpaceGP(ScoredGP):
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
    Times [N] or [N, 1] come in any order, as numbers or as dates (``fit(series.index, series)``), which are read as days since
    the beginning of 1970: the unit of the kernel. Predictions read all rows of the fit again, which the model and its file hold.
    Memory is 8 (D + 6) bytes a row, D the numbers of the state: 1, 2 and 3 for the three Matérns, added up for a sum.

    Examples
    --------
    >>> t = np.arange(400.0)
    >>> y = np.sin(t / 20) + 0.1 * np.cos(97 * t)
    >>> model = StateSpaceGP().fit(t, y)
    >>> mean, sd = model.predict([100.5, 500.0], return_std=True)
    >>> bool(abs(mean[0] - np.sin(100.5 / 20)) < 0.1), bool(sd[1] > 3 * sd[0])
    (True, True)
    """

    abilities: ClassVar[frozenset[str]] = ScoredGP.abilities | {"forecast"}
    _named, _likelihood_name = "exact, natural steps on all rows", "elbo_"

    kernel: Covariance | Literal["auto"] | None = None
    _: KW_ONLY
    noise_variance: float | None = None
    fixed: str | Sequence[str] = ()
    max_steps: int = 100
    max_seconds: float | None = None
    tol: float = 1e-3
    seed: int = 0
    verbose: bool | None = None

    # -- fitting --

    def _fit_rows(
        self, x: Any, y: Any, start: Floats | None, options: FitOptions, max_steps: int | None = None
    ) -> None:
        order = np.argsort(x[:, 0], kind="stable")
        times, numbers = np.asarray(x[order, 0], dtype=np.float64), np.asarray(y[order], dtype=np.float64)
        self.mean_ = float(numbers.mean())
        centred = numbers - self.mean_
        kernel = self.kernel_ if start is not None else self._chosen(times, centred)
        h = self._started(kernel, times, centred, self._moves(len(kernel.theta) + 1))[1] if start is None else start
        problem = ChainProblem(kernel, times, centred)
        self.elbo_: float = problem.bound(self._steps(problem, h, options, max_steps, None))
        self._data = HeldRows((x, y[:, None]))

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

    def _publish(self, problem: ChainProblem, state: State) -> None:
        super()._publish(problem, state)
        self._rows = problem.times, problem.y
        self.kernel_ = problem.kernel_at(self._h)
        self.noise_variance_ = float(np.exp(self._h[-1]))

    def _scored_problem(self) -> ChainProblem:
        return ChainProblem(self.kernel_, *self._rows)

    # -- reading --

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False  # one column at most
        return tags

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        times, dated = self._days(X, reset)
        x, numbers = validated(self, times, y, reset=reset, dtype=(np.float64, np.float32), y_numeric=True)
        check_one(x)
        if reset:
            self._dated: bool = dated  # times of the fit were dates
        return x, np.asarray(numbers)

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
        times, y, seen, back = self._merged(X)
        mean, var = chains_of(self.kernel_, self._h).smoothed(times, y, seen)
        return mean[back] + self.mean_, var[back]

    def _drawn_functions(self, X: Any, n: int, rng: np.random.Generator) -> Floats:
        times, y, seen, back = self._merged(X)
        chains = chains_of(self.kernel_, self._h)
        return np.array([chains.drawn(times, y, seen, rng)[back] for _ in range(n)]) + self.mean_

    # -- files --

    @classmethod
    def _check_kernel(cls, value: Any, sizes: dict[str, int], where: str) -> None:
        super()._check_kernel(value, sizes, where)
        parts_of(value)

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        rules = cls._fitted_table("natural") | {"times": f"real [row] {WIDE}", "mean": f"real {WIDE}", "dated": "flag"}

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            check(value, rules, sizes, where)
            cls._check_theta(value, sizes, where)
            if value["fitted"]["n_features_in_"] != 1 or not (np.diff(value["times"]) >= 0).all():
                refuse(where, "has times that are not in order")

        return cls._settings_table(), of

    def _saved_rows(self) -> dict[str, Any]:
        times, y = self._rows
        return {"times": times, "y": y, "mean": self.mean_, "dated": self._dated, "kernel": self.kernel_}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        for name, value in saved["fitted"].items():
            setattr(self, name, value)
        self.mean_, self._dated = float(saved["mean"]), saved["dated"]
        problem = ChainProblem(saved["kernel"], saved["times"], saved["y"])
        self._publish(problem, problem.start(saved["h"])._replace(t=saved["t"]))
        self._data = HeldRows((problem.times[:, None], (problem.y + self.mean_)[:, None]))  # the file holds its rows


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


class ChainProblem(ScoredProblem):
    """Rows along time: sorted times [T], outputs [T] less their mean, and the structure of the kernel."""

    def __init__(self, kernel: Covariance, times: Floats, y: Floats) -> None:
        self.kernel, self.times, self.y = kernel, times, np.ascontiguousarray(y)
        self._steps = np.diff(times, prepend=times[:1])

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
