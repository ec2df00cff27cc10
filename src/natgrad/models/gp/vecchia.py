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

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from sklearn.utils.validation import check_is_fitted

from natgrad.covariance import RBF, Covariance, Matern12, Matern32, Matern52, diagonal
from natgrad.data.held import HeldRows
from natgrad.data.rows import Rows, Scaling, validated
from natgrad.inference.engine import take_steps
from natgrad.inference.options import FitOptions
from natgrad.inference.problem import State
from natgrad.inference.schema import check, refuse
from natgrad.inference.steppers.stepper import Score, ScoringStepper
from natgrad.models.gp.likelihoods import LEAST, LOG_2PI
from natgrad.models.gp.scored import ScoredGP, ScoredProblem
from natgrad.models.gp.settings import SPREAD, WIDE, Gradient, Settings, compiled
from natgrad.random import Stream, generator
from natgrad.threads import in_order, one_blas_thread
from natgrad.validation import whole_number

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


@final
@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name
class VecchiaGPRegressor(ScoredGP):
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

    _named, _likelihood_name = "Vecchia's likelihood, natural steps", "log_likelihood_"

    kernel: Covariance | Literal["auto"] = "auto"
    n_neighbors: int = 128
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
        with one_blas_thread():
            problem, h = self._begun(*at) if start is None else (self._made(self._problem.kernel, *at), start)
            problem = problem.around(h)
        state = self._steps(problem, h, options, max_steps, len(x))
        self.log_likelihood_: float = problem.bound(state) - len(x) * float(np.log(self._y_scaling.sd[0]))
        self._data = HeldRows((x, y[:, None]))

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
        super()._publish(problem, state)
        h, self._problem, self.mean_ = self._h, problem, float(self._y_scaling.mean[0])
        scaling, variance = self._x_scaling, float(self._y_scaling.sd[0]) ** 2
        kernel = self._kernel = problem.kernel_at(h)
        plain = kernel.units(scaling.sd) is None
        self.kernel_ = (
            kernel if plain else kernel.in_units(-scaling.mean / scaling.sd, 1.0 / scaling.sd, 1.0 / variance)
        )
        self.noise_variance_ = problem.noise_at(h) * variance

    def _scored_problem(self) -> VecchiaProblem:
        return self._problem.around(self._h)

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

    def _drawn_functions(self, X: Any, n: int, rng: np.random.Generator) -> Floats:
        """Each row is given its nearest rows, and the nearest of the rows drawn before it."""
        x, scale = self._inputs(X), self._y_scaling
        if len(x) > MOST_JOINT_ROWS:
            raise ValueError(f"X has {len(x)} rows: joint draws are for at most {MOST_JOINT_ROWS}; draw in parts")
        with one_blas_thread():
            return self._problem.draws(self._h, x, self.n_neighbors, n, rng) * scale.sd + scale.mean

    # -- files --

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**super()._settings_table(), "n_neighbors": "natural"}

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        scalings = {
            f"{part}_scaling": (f"real [{n}] {WIDE}", f"real [{n}] {SPREAD}")
            for part, n in (("x", "column"), ("y", "one"))
        }
        rules = {
            "x": f"real [row, column] {WIDE}",
            **cls._fitted_table(),
            **scalings,
        }  # the rows have the size that the others name

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            check(value, rules, sizes, where)
            cls._check_theta(value, sizes, where)
            if sizes["one"] != 1:
                refuse(where, f"has {sizes['one']} outputs")

        return cls._settings_table(), of

    def _saved_rows(self) -> dict[str, Any]:
        problem, scalings = self._problem, {"x_scaling": tuple(self._x_scaling), "y_scaling": tuple(self._y_scaling)}
        return {"x": problem.x, "y": problem.y, "kernel": problem.kernel, **scalings}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        for name, value in saved["fitted"].items():
            setattr(self, name, value)
        self._x_scaling, self._y_scaling = Scaling(*saved["x_scaling"]), Scaling(*saved["y_scaling"])
        problem = self._made(saved["kernel"], saved["x"], saved["y"])
        self._publish(problem, problem.start(saved["h"])._replace(t=saved["t"]))
        self._data = HeldRows((self._x_scaling.undo(problem.x), self._y_scaling.undo(problem.y[:, None])))


# -- the likelihood --


class Moment(NamedTuple):
    """One row given its neighbours: mean and variance of f, w and α."""

    mean: float
    var: float
    w: Floats
    alpha: Floats


class VecchiaProblem(ScoredProblem):
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

    def noise_at(self, h: Floats) -> float:
        """σ² = least + exp(h_last): it never vanishes."""
        return LEAST + float(np.exp(h[-1]))

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
