"""`MatrixFactorization`: ratings in; factors of users and items with their uncertainty, and predictions out.

    r_n ~ N(u_i · v_j, 1/τ),   u_ik ~ N(0, 1/α),   v_jk ~ N(0, 1/α)

Paquet (2014), section 3. The loop, the samplers, the steps and the guard are those of every network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from natgrad.data.ratings import Ratings
from natgrad.inference.engine import BoundEvery, Limits, Result, run
from natgrad.inference.methods import Method
from natgrad.inference.steps import Step
from natgrad.inference.trace import Stop, Trace
from natgrad.models.saving import SaveMixin
from natgrad.models.settings import checked_every, checked_method, checked_step
from natgrad.network.checks import real_number, whole_number
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.models.ratings_problem import RatingsProblem

__all__ = ["Factors", "MatrixFactorization"]

Floats = npt.NDArray[np.float64]
# Users first, factor after factor, as the paper does.
ORDER = ("u", "v")
NOT_YET = {
    "biases": "a mean for each user and item; subtract them from the ratings for now",
    "learn_noise": "give noise_precision, or declare the network with a Gamma precision",
    "learn_priors": "give prior_precision, or declare the network with Gamma precisions",
}


class Factors(NamedTuple):
    """Means and standard deviations of a side's factors, both [rows, K]."""

    mean: Floats
    sd: Floats


class MatrixFactorization(SaveMixin, BaseEstimator):
    """Bayesian matrix factorisation of ratings, by variational inference.

    Parameters
    ----------
    n_factors : int
        The length K of the vectors of users and items.
    biases, learn_noise, learn_priors : bool
        Not yet; must be False.
    factorized : bool
        Whether q gives every number a factor of its own (True), or every user and item one Gaussian of K dimensions.
    noise_precision, prior_precision : float
        τ of the ratings, and α of every number of u and v.
    method, step : as in ``Network.fit``
        Which ratings each step reads, and how long the steps are; chosen for you where they are left out.
    max_steps, max_accesses, max_seconds, tol : limits
        Most steps, most messages read, most time, and the relative change of the bound that counts as converged (0 runs on).
    init_scale : float
        Where the means start: a draw from the prior, this many times as wide.
    bound_every : int, "log" or None
        How often sampled methods evaluate the exact bound.
    seed : int
        Every random choice is a function of the seed and the number of the step.
    verbose : bool, optional
        Show a progress bar; by default on a terminal.

    Attributes
    ----------
    elbo_ : float, the exact evidence lower bound
    trace_ : Trace, one entry a step: ``trace_["elbo"]``, ``["accesses"]``, ``["seconds"]``
    stop_ : Stop, why the run ended
    n_steps_ : int
    user_factors_, item_factors_ : mean and sd [rows, K], rows in the order of ``ratings_.user_ids``, ``ratings_.item_ids``
    posterior_ : {"u": Factor, "v": Factor}
    ratings_ : Ratings, what was fitted

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 15))
    >>> table[rng.random(table.shape) < 0.3] = np.nan
    >>> model = MatrixFactorization(n_factors=2, noise_precision=10.0).fit(table)
    >>> model.stop_.converged
    True
    >>> model.predict([0, 1], [3, 3]).shape
    (2,)
    """

    def __init__(
        self,
        n_factors: int = 5,
        *,
        biases: bool = False,
        learn_noise: bool = False,
        learn_priors: bool = False,
        factorized: bool = True,
        noise_precision: float = 1.0,
        prior_precision: float = 1.0,
        method: Method | None = None,
        step: Step | None = None,
        max_steps: int = 1000,
        max_accesses: int | None = None,
        max_seconds: float | None = None,
        tol: float = 1e-6,
        init_scale: float = 1.0,
        bound_every: BoundEvery = None,
        seed: int = 0,
        verbose: bool | None = None,
    ) -> None:
        self.n_factors = n_factors
        self.biases = biases
        self.learn_noise = learn_noise
        self.learn_priors = learn_priors
        self.factorized = factorized
        self.noise_precision = noise_precision
        self.prior_precision = prior_precision
        self.method = method
        self.step = step
        self.max_steps = max_steps
        self.max_accesses = max_accesses
        self.max_seconds = max_seconds
        self.tol = tol
        self.init_scale = init_scale
        self.bound_every = bound_every
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, y: None = None) -> MatrixFactorization:
        """Fit to ratings.

        Parameters
        ----------
        X : Ratings, sparse matrix, table of three columns, or array [users, items] with NaN where there is no rating
        y : ignored
        """
        self._check_settings()
        seed = whole_number(self.seed, "seed", least=0)
        limits = self._limits(self.max_steps, self.max_accesses, self.max_seconds)
        ratings = as_ratings(X)
        problem = self._problem(ratings)
        self._run(problem, problem.start(seed, float(self.init_scale)), limits, Trace())
        return self

    def continue_(
        self, max_steps: int | None = None, *, max_accesses: int | None = None, max_seconds: float | None = None
    ) -> MatrixFactorization:
        """Go on from where the last fit ended, on the same ratings; the trace continues.

        The limits are those of the additional run, by default the ones of the estimator.
        """
        self._check_fitted()
        self._check_settings()
        limits = self._limits(
            self.max_steps if max_steps is None else max_steps,
            self.max_accesses if max_accesses is None else max_accesses,
            self.max_seconds if max_seconds is None else max_seconds,
        )
        self._run(self._problem(self.ratings_), self.result_.state, limits, Trace(list(self.trace_.records)))
        return self

    def predict(self, users: Any, items: Any, return_std: bool = False) -> Any:
        """The mean of a new rating for each pair; with ``return_std``, also its standard deviation, noise included.

        Parameters
        ----------
        users, items : ids as they were given to `fit`, of the same length
        return_std : bool
        """
        self._check_fitted()
        mean, variance = self._predictive(*self._pairs(users, items))
        return (mean, np.sqrt(variance)) if return_std else mean

    def score(self, X: Any, y: None = None) -> float:
        """The mean log predictive density of held-out ratings; higher is better.

        Not R²: a density also judges the uncertainty. The predictive distribution is taken as a Gaussian with the mean and
        variance of a new rating.
        """
        self._check_fitted()
        ratings = as_ratings(X)
        users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
        mean, variance = self._predictive(*self._pairs(users, items))
        return float(-0.5 * np.mean(np.log(2 * np.pi * variance) + (ratings.values - mean) ** 2 / variance))

    # -- parts --

    def _run(self, problem: RatingsProblem, start: Any, limits: Limits, trace: Trace) -> None:
        method = checked_method(self.method)
        result = run(
            problem, start, method, checked_step(self.step, method, problem), ORDER,
            limits=limits, seed=int(self.seed), bound_every=checked_every(self.bound_every), progress=self.verbose, trace=trace,
        )  # fmt: skip
        posterior = {
            name: Factor(name, block.family, block.plates, result.state.lam[name])
            for name, block in problem.blocks.items()
        }
        # Precisions are kept apart from the parameters, which may be changed before the next fit.
        self._publish(problem.ratings, result, posterior, problem.bound(result.state), problem.numbers.noise)

    def _publish(
        self, ratings: Ratings, result: Result, posterior: Mapping[str, Factor], elbo: float, noise: float
    ) -> None:
        self.ratings_ = ratings
        self.result_: Result = result
        self.trace_: Trace = result.trace
        self.stop_: Stop = result.stop
        self.n_steps_: int = result.state.t
        self.elbo_: float = elbo
        self.posterior_: Mapping[str, Factor] = posterior
        self.user_factors_, self.item_factors_ = (Factors(q.mean(), q.std()) for q in posterior.values())
        self._noise_precision = noise

    def _saved(self) -> dict[str, Any]:
        return {
            "ratings": self.ratings_,
            "state": self.result_.state,
            "trace": self.trace_,
            "stop": self.stop_,
            "posterior": self.posterior_,
            "elbo": self.elbo_,
            "noise": self._noise_precision,
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        result = Result(saved["state"], saved["trace"], saved["stop"])
        self._publish(saved["ratings"], result, saved["posterior"], saved["elbo"], saved["noise"])

    def _problem(self, ratings: Ratings) -> RatingsProblem:
        from natgrad.models.ratings_problem import RatingsProblem  # Numba takes a while to import

        return RatingsProblem(
            ratings, self.n_factors, self.prior_precision, self.noise_precision, factorized=bool(self.factorized)
        )

    def _limits(self, steps: Any, accesses: Any, seconds: Any) -> Limits:
        if accesses is not None:
            whole_number(accesses, "max_accesses")
        if seconds is not None and not real_number(seconds, "max_seconds") > 0:
            raise ValueError(f"max_seconds must be > 0, got {seconds!r}: None means no limit")
        return Limits(whole_number(steps, "max_steps"), self.tol, seconds, accesses)

    def _check_settings(self) -> None:
        whole_number(self.n_factors, "n_factors")
        for name, instead in NOT_YET.items():
            if getattr(self, name):
                raise NotImplementedError(f"{name}={getattr(self, name)!r}: not yet; {instead}")
        for name in ("noise_precision", "prior_precision", "init_scale"):
            value = getattr(self, name)
            if not 0 < real_number(value, name) < np.inf:
                raise ValueError(f"{name} must be > 0 and finite, got {value!r}")

    def _check_fitted(self) -> None:
        if not hasattr(self, "posterior_"):
            raise NotFittedError("this MatrixFactorization is not fitted yet: call fit(ratings) first")

    def _pairs(self, users: Any, items: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        rows, columns = self.ratings_.find_users(users), self.ratings_.find_items(items)
        if len(rows) != len(columns):
            raise ValueError(f"users and items must have the same length, got {len(rows)} and {len(columns)}")
        return rows, columns

    def _predictive(self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Mean and variance of a new rating: 1/τ + E[(u·v)²] − (E[u]·E[v])²."""
        (mean_u, second_u), (mean_v, second_v) = (self.result_.state.mu[name] for name in ("u", "v"))
        products = mean_u[rows] * mean_v[columns]
        mean = products.sum(-1)
        squares = second_u[rows] * second_v[columns]
        # Of scalars the products are independent, and their variances add up.
        spread = (squares - products**2).sum(-1) if squares.ndim == 2 else squares.sum((-2, -1)) - mean**2
        return mean, spread + 1.0 / self._noise_precision


def as_ratings(X: Any) -> Ratings:
    """Ratings as they are, or made of a sparse matrix, a table of three columns, or an array with NaN for missing."""
    if isinstance(X, Ratings):
        return X
    if hasattr(X, "tocoo") or hasattr(X, "columns"):
        return Ratings(X)
    return Ratings.from_dense(X)
