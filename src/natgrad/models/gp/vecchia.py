"""`VecchiaGPRegressor`: Gaussian process regression from the nearest rows, with Vecchia's likelihood as its objective.

Rows stand in a random order, and each is given the m nearest rows before it:

    log p(y) ≈ Σ_i log N(y_i | w·y_N, s),   w = C⁻¹ k_Ni,   s = k_ii − k_Ni·w + σ²,   C = K_NN + σ² I

A new row is given the m nearest rows of all. Near is what the kernel says: E[(f(x) − f(z))²] = k(x, x) + k(z, z) − 2 k(x, z).
With as many neighbours as rows both are those of the exact process. Kernel and noise θ take natural steps θ ← θ + ρ I⁻¹ ∇ with

    I = Σ_i ∂μ_i ∂μ_iᵀ/s_i + ½ ∂s_i ∂s_iᵀ/s_i²          μ_i = w·y_N
    ∂μ/∂k = α,   ∂μ/∂C = −½ (w αᵀ + α wᵀ),   α = C⁻¹ y_N;      ∂s/∂k = −2 w,   ∂s/∂C = w wᵀ,   ∂s/∂k_ii = 1

Vecchia (1988); Datta, Banerjee, Finley and Gelfand (2016); Guinness (2018) for the order, (2021) for the steps; Katzfuss and
Guinness (2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, Unpack, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp
from scipy.linalg import lapack
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from natgrad.covariance import RBF, Covariance, Matern12, Matern32, Matern52, diagonal
from natgrad.data.held import HeldRows
from natgrad.data.rows import Rows, Scaling, joined_pairs, validated
from natgrad.inference.engine import Phase, take_steps
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.inference.problem import Block, Problem, State
from natgrad.inference.schema import check, refuse, state_of
from natgrad.inference.steppers.stepper import Score, ScoringStepper
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.gp.likelihoods import LEAST, LOG_2PI, is_function
from natgrad.models.gp.response import NOISE, HyperResponse, information_response
from natgrad.models.gp.settings import FIXABLE, Gradient, Settings, checked_fixed, compiled, stored_fixed
from natgrad.models.registry import EVERY_MODEL
from natgrad.posterior.export import Posterior
from natgrad.posterior.files.tables import RUN
from natgrad.random import Stream, generator
from natgrad.threads import in_order, one_blas_thread
from natgrad.validation import OnlyWhere, real_number, whole_number

__all__ = ["VecchiaGPRegressor", "VecchiaProblem", "conditional", "nearest"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Kinds that "auto" compares; near rows of these are those at the least scaled distance.
STATIONARY = (RBF, Matern52, Matern32, Matern12)
# Rows that the likelihood is summed over at most, and neighbours of each: with more of these a prediction is better, the slopes
# are not, and they are most of the work.
SAMPLE, LEARNING_NEIGHBORS = 2_000, 64
# Where learning starts: the best of these, by some of the rows.
LENGTHS, NOISES, COMPARED = (1.0, 0.4, 0.15, 0.05), (0.3, 0.03, 0.003), 100
# The neighbours of a round are those in the metric it begins with: rounds before the last, their steps at most, and their rows.
ROUNDS, ROUND_STEPS, FEW = 3, 6, 400
# Rows of a piece that threads share, distances held at once, and one row in so many that says how far the nearest are.
PIECE, MOST_DISTANCES, SPARSELY = 256, 4_000_000, 16
# Squared distances that differ by less, as a part of the squared norms, are the same: products round.
SAME = 1e-12
# A variance is at least this part of the prior's; draws are known to one another to this part.
LEAST_PART, ROUNDING = 1e-12, 1e-9
MOST_JOINT_ROWS = 5_000
LOG = "in [-200, 200]"
WIDE, SPREAD = "in [-1e30, 1e30]", "in [1e-30, 1e30]"
ADVICE = "raise max_steps, or call continue_fit()"


@final
class VecchiaGPRegressor(RegressorMixin, Estimator):
    """Gaussian process regression from nearest neighbours: for functions too rough for inducing inputs.

    Each row is given its nearest rows alone (Vecchia's approximation, also called the nearest-neighbour Gaussian process).
    With at least as many neighbours as rows it is the exact process. There is no bound: `log_likelihood_` is Vecchia's.

    Parameters
    ----------
    kernel : natgrad.covariance function or "auto"
        In the units of X and y; its values are where learning starts. "auto" learns how smooth the function is, too: the one of
        RBF, Matern52, Matern32 and Matern12, with a length scale for each column, that has the largest likelihood.
    n_neighbors : int
        Rows, m, that a prediction is given; its cost grows as m³. The likelihood is given 64 at most.
    noise_variance : float, optional
        Where the noise starts, in the units of y squared.
    fixed : "kernel", "noise", or both in a list
        What is not learned and stays where it starts.
    max_steps, max_seconds : limits
    tol : float
        Nats a row left to gain below which the fit has converged.
    seed : int
    verbose : bool, optional

    Attributes
    ----------
    kernel_, noise_variance_, mean_ : as learned, in the units of the data; the mean is that of y
    log_likelihood_ : float
        Vecchia's, of all rows in their random order: a log density of y, from 2,000 of its terms where there are more.
    trace_, stop_, n_steps_, n_rows_seen_ : as for other models

    Notes
    -----
    The model and its file hold all rows of the fit. A prediction looks through all of them.

    Examples
    --------
    >>> x = np.random.default_rng(0).uniform(0, 10, (300, 1))
    >>> y = np.sin(9 * x[:, 0]) + 0.1 * np.cos(97 * x[:, 0])
    >>> model = VecchiaGPRegressor(n_neighbors=30).fit(x, y)
    >>> mean, sd = model.predict([[5.0], [50.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(45.0)) < 0.2), bool(sd[1] > 3 * sd[0])
    (True, True)
    """

    kind: ClassVar[str] = "process"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {"linear_response", "predict"}
    kernel_: Covariance
    noise_variance_: float
    mean_: float
    log_likelihood_: float
    n_steps_: int
    n_rows_seen_: int

    def __init__(
        self,
        kernel: Covariance | Literal["auto"] = "auto",
        n_neighbors: int = 128,
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
        self.n_neighbors = n_neighbors
        self.noise_variance = noise_variance
        self.fixed = fixed
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.tol = tol
        self.seed = seed
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to rows [N, D] and numbers [N], or to an iterator of such pairs, all of which are held.

        ``checkpoint``, ``every``, ``resume`` and ``callbacks`` are those of ``Network.fit``.
        """
        self._check_settings()
        if isinstance(X, Iterator):
            X, y = joined_pairs(X, y)
        self._fit_rows(*self._read(X, y, reset=True), None, keep)
        return self

    @OnlyWhere(
        lambda model: False,
        "would let rows go, and predictions need them: update(X, y) takes more rows, from what was learned",
    )
    def partial_fit(self, X: Any, y: Any) -> Self:
        """There is none: `update` takes more rows."""
        raise NotImplementedError

    @all_or_nothing
    def continue_fit(self, X: Any, y: Any, max_steps: int | None = None) -> Self:
        """Continue from the end of the last fit, on the same rows, for ``max_steps`` further steps."""
        self._check_fitted()
        self._check_settings()
        self._fit_rows(*self._read(X, y, reset=False), self._h, {}, max_steps)
        return self

    def predict(self, X: Any, return_std: bool = False, *, what: Literal["y", "f"] = "y") -> Any:
        """The mean at rows [N] (of new observations, or of the function: the same); ``return_std``: and standard deviations."""
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
        """Joint draws [n, N]: each row given its nearest rows, and the nearest of the rows drawn before it."""
        rng = np.random.default_rng(self.seed if seed is None else seed)
        x, scale = self._inputs(X), self._y_scaling
        if len(x) > MOST_JOINT_ROWS:
            raise ValueError(f"X has {len(x)} rows: joint draws are for at most {MOST_JOINT_ROWS}; draw in parts")
        with one_blas_thread():
            f = self._problem.draws(self._h, x, self.n_neighbors, whole_number(n, "n"), rng)
        draws = f * scale.sd + scale.mean
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
        problem = self._problem.around(self._h)
        moves = self._moves(len(self._h))
        at = [*self.kernel_.theta, np.log(self.noise_variance_)]
        return information_response([*self.kernel_.names, NOISE], at, moves, problem.score(self._h).information)

    _draws_advice = "sample(X, n) draws functions"

    @property
    def inference_(self) -> str:
        """Which inference was run, and after a comma its schedule."""
        self._check_fitted()
        return f"Vecchia's likelihood, natural steps, {self.n_steps_:,} steps"

    # -- fitting --

    def _fit_rows(
        self,
        x: npt.NDArray[Any],
        y: npt.NDArray[Any],
        start: Floats | None,
        options: FitOptions,
        max_steps: int | None = None,
    ) -> None:
        if start is None:
            rows = Rows(x, y[:, None]).standardised(True)
            self._x_scaling, self._y_scaling = rows.x_scaling, rows.y_scaling
            if isinstance(self.kernel, Covariance):  # units in which the kernel is one of the same kind
                scale = self.kernel.units(rows.x_scaling.sd)
                own = Scaling.none(rows.n_columns) if scale is None else rows.x_scaling._replace(sd=scale)
                unit = Scaling(rows.y_scaling.mean, np.ones(1)) if scale is None else rows.y_scaling
                self._x_scaling, self._y_scaling = own, unit
        at = (
            self._x_scaling.apply(np.asarray(x, np.float64)),
            self._y_scaling.apply(np.asarray(y, np.float64)[:, None])[:, 0],
        )
        limit = whole_number(self.max_steps if max_steps is None else max_steps, "max_steps")
        with one_blas_thread():
            problem, h = self._begun(*at) if start is None else (self._made(self._problem.kernel, *at), start)
            problem = problem.around(h)
        result = self._run(
            Phase(problem, stepper=ScoringStepper(problem, self._moves(len(h)))), problem.start(h),
            self._limits(len(x), ADVICE, max_steps=limit), problem, options=options,
            table=lambda: (state_of({}, hyper={"h": f"real [theta] {LOG}"}), {"theta": len(h)}),
        )  # fmt: skip
        self._publish(problem, result.state)
        self.log_likelihood_ = problem.bound(result.state) - len(x) * float(np.log(self._y_scaling.sd[0]))
        self._data = HeldRows((x, y[:, None]))

    @property
    def _held(self) -> tuple[str, ...]:
        return checked_fixed(self.fixed, FIXABLE[:2])

    def _moves(self, size: int) -> npt.NDArray[np.bool_]:
        return np.array(["kernel" not in self._held] * (size - 1) + ["noise" not in self._held])

    def _made(self, kernel: Covariance, x: Floats, y: Floats) -> VecchiaProblem:
        return VecchiaProblem(kernel, x, y, whole_number(self.n_neighbors, "n_neighbors"), self.seed)

    def _begun(self, x: Floats, y: Floats) -> tuple[VecchiaProblem, Floats]:
        """The problem, and parameters after some rounds: of several kinds of kernels the best."""
        if isinstance(self.kernel, Covariance):
            scaling = self._x_scaling
            given = self.kernel
            if given.units(scaling.sd) is not None:
                given = given.in_units(scaling.mean, scaling.sd, float(self._y_scaling.sd[0]) ** 2)
            return self._rounds(given, x, y)[1:]
        usual = np.full(x.shape[1], np.sqrt(x.shape[1]))
        return max((self._rounds(kind(lengthscale=usual), x, y) for kind in STATIONARY), key=lambda found: found[0])[1:]

    def _rounds(self, kernel: Covariance, x: Floats, y: Floats) -> tuple[float, VecchiaProblem, Floats]:
        """Log likelihood, problem and parameters after rounds of steps on few rows, each with the neighbours where it began."""
        problem = self._made(kernel, x, y)
        unit = float(y.var()) or 1.0
        given = None if self.noise_variance is None else float(self.noise_variance) / float(self._y_scaling.sd[0]) ** 2
        noises = [share * unit for share in NOISES] if given is None else [given]
        theta, few = np.concatenate([np.ravel(part) for part in kernel.theta]), problem.of(problem.sample[:FEW])
        starts = []
        for noise in noises:
            for part in LENGTHS if self.kernel == "auto" and "kernel" not in self._held else (1.0,):
                h = np.append(theta, np.log(max(noise - LEAST, LEAST**2)))
                h[1:-1] += np.log(part)
                starts.append(h)
        few_of_these = problem.of(problem.sample[:COMPARED])
        h = max(starts, key=lambda h: few_of_these.bound(problem.start(h))) if len(starts) > 1 else starts[0]
        moves = self._moves(len(h))
        for _ in range(ROUNDS if moves.any() else 0):
            here = few.around(h)
            h = np.asarray(
                take_steps(here, ScoringStepper(here, moves), here.start(h), ROUND_STEPS, 0).state.hyper["h"]
            )
        return problem.bound(problem.start(h)), problem, h

    def _publish(self, problem: VecchiaProblem, state: State) -> None:
        h = np.asarray(state.hyper["h"])
        self._state, self._h, self._problem, self.n_steps_ = state, h, problem, state.t
        self.n_rows_seen_, self.mean_ = len(problem.y), float(self._y_scaling.mean[0])
        scaling, variance = self._x_scaling, float(self._y_scaling.sd[0]) ** 2
        kernel = self._kernel = problem.kernel_at(h)
        plain = kernel.units(scaling.sd) is None
        self.kernel_ = (
            kernel if plain else kernel.in_units(-scaling.mean / scaling.sd, 1.0 / scaling.sd, 1.0 / variance)
        )
        self.noise_variance_ = problem.noise_at(h) * variance
        self.posterior_ = Posterior({}, axes={})

    def _more(self, X: Any, y: Any = None) -> HeldRows:
        x, numbers = self._read(X, y, reset=False)
        return HeldRows((x, numbers[:, None]))

    def _go_on(self, held: HeldRows) -> None:
        self._check_settings()
        x, y = (np.asarray(part) for part in held.arrays)
        self._fit_rows(x, y[:, 0], self._h, {})

    # -- reading --

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        x, numbers = validated(self, X, y, reset=reset, dtype=(np.float64, np.float32), y_numeric=True)
        if isinstance(self.kernel, Covariance):
            self.kernel.check(x.shape[1])
        elif self.kernel != "auto":
            raise TypeError(f'kernel must be a natgrad.covariance function or "auto", got {self.kernel!r}')
        return x, np.asarray(numbers, np.float64)

    def _inputs(self, X: Any) -> Floats:
        check_is_fitted(self)
        x = validated(self, X, reset=False, dtype=(np.float64, np.float32))
        return self._x_scaling.apply(np.asarray(x, np.float64))

    def _latent(self, X: Any) -> tuple[Floats, Floats]:
        """Mean and variance of the function, in the units of y."""
        x, scale = self._inputs(X), self._y_scaling
        pieces = [x[begin : begin + PIECE] for begin in range(0, len(x), PIECE)]
        parts = in_order(lambda piece: self._problem.latent(self._h, piece, self.n_neighbors), pieces)
        mean, var = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean * scale.sd + scale.mean, var * scale.sd**2

    def _check_settings(self) -> None:
        self._check_choices()
        for name in ("max_steps", "n_neighbors"):
            whole_number(getattr(self, name), name)
        whole_number(self.seed, "seed", least=0)
        if not real_number(self.tol, "tol") >= 0:
            raise ValueError(f"tol must be ≥ 0, got {self.tol!r}: 0 takes all steps")
        if self.noise_variance is not None and not 0 < real_number(self.noise_variance, "noise_variance") < np.inf:
            raise ValueError(f"noise_variance must be > 0, got {self.noise_variance!r}")
        checked_fixed(self.fixed, FIXABLE[:2])

    # -- files --

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {
            **{name: rule for name, rule in RUN.items() if name not in ("n_jobs", "method", "step")},
            "kernel": _check_given_kernel,
            "n_neighbors": "natural",
            "noise_variance": "none | positive",
            "fixed": stored_fixed,
            "max_steps": "natural",
            "max_seconds": "none | positive",
        }

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        along = {
            "n_features_in_": "size column",
            "feature_names_in_?": "ids [column]",
            "log_likelihood_": "float",
            "trace_": Trace,
            "stop_": Stop,
        }
        rules = {
            "h": f"real [theta] {LOG}",
            "t": "whole in [0, 1e12]",
            "x": f"real [row, column] {WIDE}",
            "y": f"real [row] {WIDE}",
            "x_scaling": (f"real [column] {WIDE}", f"real [column] {SPREAD}"),
            "y_scaling": (f"real [one] {WIDE}", f"real [one] {SPREAD}"),
            "kernel": _check_kernel,
            "fitted": along,
        }

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            check(value, rules, sizes, where)
            if sizes["theta"] != sum(map(np.size, value["kernel"].theta)) + 1 or sizes["one"] != 1:
                refuse(where, f"has {sizes['theta']} parameters of kernel and noise, and {sizes['one']} outputs")

        return cls._settings_table(), of

    def _saved(self) -> dict[str, Any]:
        kept, problem = ("n_features_in_", "feature_names_in_", "log_likelihood_", "trace_", "stop_"), self._problem
        return {
            "h": self._h,
            "t": self.n_steps_,
            "x": problem.x,
            "y": problem.y,
            "x_scaling": tuple(self._x_scaling),
            "y_scaling": tuple(self._y_scaling),
            "kernel": problem.kernel,
            "fitted": {name: getattr(self, name) for name in kept if hasattr(self, name)},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        for name, value in saved["fitted"].items():
            setattr(self, name, value)
        self._x_scaling, self._y_scaling = Scaling(*saved["x_scaling"]), Scaling(*saved["y_scaling"])
        problem = self._made(saved["kernel"], saved["x"], saved["y"])
        self._publish(problem, problem.start(saved["h"])._replace(t=saved["t"]))
        self._data = HeldRows((self._x_scaling.undo(problem.x), self._y_scaling.undo(problem.y[:, None])))


def _check_kernel(value: Any, sizes: dict[str, int], where: str) -> None:
    if not isinstance(value, Covariance):
        refuse(where, f"is no covariance function but a {type(value).__name__}")
    value.check(sizes["column"])


def _check_given_kernel(value: Any, sizes: dict[str, int], where: str) -> None:
    if not (isinstance(value, str) and value == "auto"):
        _check_kernel(value, sizes, where)


# -- the likelihood --


class Moment(NamedTuple):
    """One row given its neighbours: mean and variance of f, w and α."""

    mean: float
    var: float
    w: Floats
    alpha: Floats


class VecchiaProblem(Problem):
    """Standardised rows in a random order, the structure of the kernel, and the rows that the likelihood is summed over.

    The order does not depend on the one that rows come in. ``near`` are the neighbours of the sample, from `around`.
    """

    def __init__(
        self,
        kernel: Covariance,
        x: Floats,
        y: Floats,
        n_neighbors: int,
        seed: int,
        sample: Ints | None = None,
        near: list[Ints] | None = None,
    ) -> None:
        self.kernel, self.n_neighbors, self.seed = kernel, n_neighbors, seed
        if sample is None:
            rng = generator(seed, Stream.START, 5)
            order = np.lexsort((y, *x.T))[rng.permutation(len(x))]
            x, y, sample = x[order], y[order], rng.permutation(len(x))[:SAMPLE]
        self.x, self.y, self.sample, self.near = x, y, sample, near

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """None: the function is integrated out."""
        return {}

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All rows."""
        return {"y": len(self.y)}

    @property
    def n_messages(self) -> int:
        """An evaluation reads the rows of the sample."""
        return len(self.sample)

    def of(self, sample: Ints) -> VecchiaProblem:
        """The same with another sample."""
        return VecchiaProblem(self.kernel, self.x, self.y, self.n_neighbors, self.seed, sample)

    def around(self, h: Floats) -> VecchiaProblem:
        """The same with the neighbours of the sample in the metric of h: the nearest rows before each."""
        m = min(self.n_neighbors, LEARNING_NEIGHBORS)
        near = nearest(self.kernel_at(h), self.x, self.x[self.sample], min(m, len(self.x)), before=self.sample)
        kept = [numbers[:place] for numbers, place in zip(near, self.sample, strict=True)]
        return VecchiaProblem(self.kernel, self.x, self.y, self.n_neighbors, self.seed, self.sample, kept)

    def kernel_at(self, h: Floats) -> Covariance:
        """The kernel with the values of h."""
        parts, begin = [], 0
        for part in self.kernel.theta:
            end = begin + np.size(part)
            parts.append(h[begin:end].reshape(np.shape(part)))
            begin = end
        return self.kernel.at(parts)

    def noise_at(self, h: Floats) -> float:
        """σ² = least + exp(h_last): it never vanishes."""
        return LEAST + float(np.exp(h[-1]))

    def start(self, h: Any) -> State:
        """The state that a run begins with."""
        return State({}, {}, 0, hyper={"h": np.asarray(h, dtype=np.float64)})

    def bound(self, state: State) -> float:
        """Vecchia's log likelihood of all rows, from the sample."""
        problem = self if self.near is not None else self.around(np.asarray(state.hyper["h"]))
        return problem.score(np.asarray(state.hyper["h"])).value

    def score(self, h: Floats) -> Score:
        """The log likelihood, its slope and its information, N/B times those of the B rows of the sample."""
        assert self.near is not None
        n = len(h)
        pieces = range(0, len(self.sample), PIECE)
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                parts = in_order(lambda begin: self._scored(h, begin), pieces)
        except FloatingPointError:  # too far: what it came from stands
            return Score(-np.inf, np.zeros(n), np.eye(n))
        value, slope, information = (sum(part) for part in zip(*parts, strict=True))
        scale = len(self.x) / len(self.sample)
        if not (np.isfinite(value) and np.isfinite(slope).all() and np.isfinite(information).all()):
            return Score(-np.inf, np.zeros(n), np.eye(n))
        return Score(scale * float(value), scale * slope, scale * information)

    def _scored(self, h: Floats, begin: int) -> tuple[float, Floats, Floats]:
        """Sums over a piece of the sample."""
        assert self.near is not None
        kernel, noise = self.kernel_at(h), self.noise_at(h)
        matrices, theta, moves = compiled(kernel), kernel.theta, noise - LEAST
        value, slope, information = 0.0, np.zeros(len(h)), np.zeros((len(h), len(h)))
        for number, near in zip(self.sample[begin : begin + PIECE], self.near[begin : begin + PIECE], strict=True):
            settings, here = Settings(theta, self.x[near], ()), self.x[number : number + 1]
            k_mm, k_nm, k_nn = matrices.all(settings, here)
            row = _given(k_mm, noise, k_nm[0], float(k_nn[0]), self.y[near])
            s, e, w, alpha = row.var + noise, self.y[number] - row.mean, row.w, row.alpha
            value -= 0.5 * (LOG_2PI + np.log(s) + e * e / s)
            across = -0.5 * np.outer(w, alpha)
            of_mean = Gradient(across + across.T, alpha[None], np.zeros(1), np.empty(0))
            of_var = Gradient(np.outer(w, w), -2.0 * w[None], np.ones(1), np.empty(0))
            by_mean, by_var = (
                np.concatenate([*(np.ravel(part) for part in matrices.pulled(settings, here, g).theta), [last * moves]])
                for g, last in ((of_mean, -float(w @ alpha)), (of_var, 1.0 + float(w @ w)))
            )
            slope += e / s * by_mean + 0.5 * (e * e / s - 1.0) / s * by_var
            information += np.outer(by_mean, by_mean) / s + 0.5 * np.outer(by_var, by_var) / s**2
        return value, slope, information

    # -- predictions --

    def latent(self, h: Floats, x: Floats, m: int) -> tuple[Floats, Floats]:
        """Means and variances of f [N] at standardised inputs, each given its m nearest rows."""
        kernel = self.kernel_at(h)
        near = nearest(kernel, self.x, x, min(m, len(self.x)))
        return conditional(kernel, self.noise_at(h), self.x, self.y, x, near)

    def draws(self, h: Floats, x: Floats, m: int, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of f [n, N], each given its nearest rows, and the nearest of the inputs drawn before it."""
        kernel, noise = self.kernel_at(h), self.noise_at(h)
        near = nearest(kernel, self.x, x, min(m, len(self.x)))
        numbers_of, drawn = rng.standard_normal((len(x), n)), np.empty((len(x), n))
        for i, numbers in enumerate(near):
            before = np.sort(nearest(kernel, x[:i], x[i : i + 1], min(m, i))[0]) if i else np.empty(0, np.int64)
            given = Settings(kernel.theta, np.concatenate([self.x[numbers], x[before]]), ())
            k_mm, k_nm, k_nn = compiled(kernel).all(given, x[i : i + 1])
            own = np.repeat([noise, ROUNDING * k_nn[0]], [len(numbers), len(before)])
            row = _given(k_mm, own, k_nm[0], float(k_nn[0]), k_nm[0])
            known = np.concatenate([np.repeat(self.y[numbers][:, None], n, axis=1), drawn[before]])
            drawn[i] = row.w @ known + np.sqrt(row.var) * numbers_of[i]
        return np.ascontiguousarray(drawn.T)


def conditional(
    kernel: Covariance, noise: float, x: Floats, y: Floats, at: Floats, near: Ints
) -> tuple[Floats, Floats]:
    """Means and variances [B] of f at some inputs [B, D], each given its neighbours [B, m]."""
    matrices, theta = compiled(kernel), kernel.theta
    mean, var = np.empty(len(at)), np.empty(len(at))
    for n, numbers in enumerate(near):
        k_mm, k_nm, k_nn = matrices.all(Settings(theta, x[numbers], ()), at[n : n + 1])
        mean[n], var[n], *_ = _given(k_mm, noise, k_nm[0], float(k_nn[0]), y[numbers])
    return mean, var


def _given(k_mm: Floats, noise: float | Floats, k: Floats, prior: float, y: Floats) -> Moment:
    """A row whose covariances with its neighbours are k, given what these are; ``noise`` of all of them or of each."""
    if not len(k):
        return Moment(0.0, prior, k, k)
    c = np.array(k_mm, order="F")
    diagonal(c)[:] += noise
    _, solved, failed = lapack.dposv(c, np.column_stack([k, y]), lower=1, overwrite_a=1)
    if failed:
        raise FloatingPointError(
            f"the covariance of {len(k)} neighbours is not positive definite with that noise: the kernel varies too little among "
            'them; give a larger noise_variance with fixed=["noise"]'
        )
    w, alpha = np.ascontiguousarray(solved[:, 0]), np.ascontiguousarray(solved[:, 1])
    return Moment(float(w @ y), max(prior - float(w @ k), LEAST_PART * prior), w, alpha)


# -- the search --


def nearest(kernel: Covariance, x: Floats, at: Floats, m: int, before: Ints | None = None) -> Ints:
    """Numbers [B, m] of the rows of x [N, D] that are nearest to those of ``at`` [B, D], in the metric of the kernel.

    ``before`` [B]: of the rows that come before these numbers; where there are fewer than m, others follow them. Among rows
    equally far the first are taken.
    """
    out = np.empty((len(at), m), np.int64)
    if stationary := isinstance(kernel, STATIONARY):
        active = slice(None) if kernel.active is None else list(kernel.active)
        ell = np.asarray(kernel.parameters[kernel.names[1]])
        middle = x[:, active].mean(0)
        x, at = (x[:, active] - middle) / ell, (at[:, active] - middle) / ell
        norms = np.einsum("nd,nd->n", x, x)
    else:
        norms = np.asarray(kernel.diagonal(kernel.theta, x))
    same = SAME * float(norms.max(initial=0.0))
    chunk = max(1, MOST_DISTANCES // len(x))
    for begin in range(0, len(at), chunk):
        part = slice(begin, begin + chunk)
        # Squared distances, without what is the same for all rows of x.
        far = -2.0 * (at[part] @ x.T if stationary else _covariances(kernel, x, at[part])) + norms
        if before is not None:
            far[np.arange(len(x)) >= before[part, None]] = np.inf
        out[part] = _smallest(far, m, same)
    return out


def _covariances(kernel: Covariance, x: Floats, at: Floats) -> Floats:
    """K [B, N], in pieces that a kernel is evaluated for at once."""
    matrices, settings = compiled(kernel), Settings(kernel.theta, at, ())
    step = 4096
    return np.concatenate(
        [matrices.rows(settings, x[begin : begin + step])[0].T for begin in range(0, len(x), step)], axis=1
    )


def _smallest(far: Floats, m: int, same: float) -> Ints:
    """Numbers of the m smallest of each row [B, m], in order of size; a few columns tell where to look for them."""
    n = far.shape[1]
    some = far[:, ::SPARSELY]
    place = int(1.5 * m / SPARSELY) + 8
    out = np.empty((len(far), m), np.int64)
    limits = np.partition(some, place, axis=1)[:, place] if place < some.shape[1] else np.full(len(far), np.inf)
    for row, limit, found in zip(far, limits, out, strict=True):
        few = np.flatnonzero(row <= limit + 2.0 * same)
        if len(few) < m:
            few = np.arange(n)
        found[:] = few[np.argsort(np.round(row[few] / same) if same else row[few], kind="stable")[:m]]
    return out
