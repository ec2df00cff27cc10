"""`ContextFactorization`: ratings with times or contexts in; tastes, biases that drift, and predictions at a time out.

The network, its equations and its moments are in `natgrad.recommenders.declared`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self, Unpack, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.factorization.estimator import MatrixFactorization
from natgrad.network.network import Network
from natgrad.network.results.fit import Fit
from natgrad.posterior.export import Posterior
from natgrad.posterior.fit_options import FitOptions, all_or_nothing
from natgrad.recommenders.columns import Codes, TimeBins, as_seconds, columns_in, label_codes
from natgrad.recommenders.declared import Moments, Shape, declared, moments_of, moments_table, predicted
from natgrad.special import ndtri
from natgrad.validation import whole_number

__all__ = ["ContextFactorization"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Sweeps of `MatrixFactorization` that the vectors start from, and of the network by which starts are compared.
FIRST_SWEEPS, TRIAL_SWEEPS = 40, 10
LOG_2PI = float(np.log(2.0 * np.pi))


class Best(NamedTuple):
    """Ids of items, best first, and their expected ratings."""

    items: npt.NDArray[Any]
    scores: Floats


@final
class ContextFactorization(Estimator):
    """Ratings at times, or in contexts: biases drift along Gaussian chains, and contexts are the third mode of a tensor.

    Parameters
    ----------
    n_factors : int
        The length K of the vectors, an upper bound: their precisions are learned.
    n_bins : int
        Bins of equal length that times are cut into; biases make a step from each to the next, of a size that is learned.
    max_steps, max_seconds : limits
        Most sweeps, most time.
    tol : float
        Nats a rating left to gain below which the fit has converged.
    seed : int
    verbose : bool, optional

    Attributes
    ----------
    user_ids_, item_ids_, context_ids_ : ids in the order of the rows below; contexts None without
    user_drift_, item_drift_ : means of the biases [users, bins], [items, bins]; one column without times
    time_edges_ : array [bins + 1], where bins begin and end; None without times
    moments_ : means and variances of every part of a rating
    network_, fit_ : the declaration and its `Fit`, with draws and linear response; not in files and pickles
    elbo_, trace_, stop_, posterior_ : as of `natgrad.MatrixFactorization`

    Examples
    --------
    >>> import natgrad as ng
    >>> rng = np.random.default_rng(0)
    >>> pairs, year = np.column_stack([np.arange(600) % 20, np.arange(600) // 30]), rng.uniform(2000, 2010, 600)
    >>> stars = 3.0 + 0.2 * (year - 2005) + 0.1 * rng.normal(size=600)
    >>> model = ng.recommenders.ContextFactorization(2, n_bins=5).fit(pairs, stars, time=year)
    >>> early, late = model.predict([0, 0], [1, 1], time=[2001, 2009])
    >>> bool(early + 1 < late)
    True
    """

    network_: Network
    fit_: Fit
    _keeps_data = False

    def __init__(
        self,
        n_factors: int = 10,
        *,
        n_bins: int = 20,
        max_steps: int = 300,
        max_seconds: float | None = None,
        tol: float = 1e-5,
        seed: int = 0,
        verbose: bool | None = None,
    ) -> None:
        self.n_factors = n_factors
        self.n_bins = n_bins
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.tol = tol
        self.seed = seed
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, *, time: Any = None, context: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to ratings.

        Parameters
        ----------
        X : rows of user and item (an array [n, 2], a table) with their ratings y, a table of user, item and rating, or `Ratings`
            A pair may come several times.
        y : array of numbers [n], optional
        time : numbers or dates [n], or the name of a column of X, optional
        context : labels [n], or the name of a column of X, optional
            An hour of the day, a device, a place: whatever tastes depend on besides users and items.
        checkpoint, every, resume, callbacks : as in ``Network.fit``
        """
        self._check_from_table()
        whole_number(self.seed, "seed", least=0)
        if time is None and context is None:
            raise ValueError("give time= or context=; ratings with neither are what MatrixFactorization is made for")
        columns = columns_in(X, y, time, context)
        ratings, n = columns.ratings, len(columns.ratings)
        self._bins = (
            None if columns.time is None else TimeBins(columns.time.min(), columns.time.max(), int(self.n_bins))
        )
        self.user_ids_, self.item_ids_ = ratings.user_ids, ratings.item_ids
        self.context_ids_: npt.NDArray[Any] | None = None
        contexts = np.zeros(n, np.int64)
        if columns.context is not None:
            self.context_ids_, contexts = np.unique(columns.context, return_inverse=True)
        bins = np.zeros(n, np.int64) if columns.time is None or self._bins is None else self._bins.of(columns.time)
        codes = Codes(ratings.users.astype(np.int64), ratings.items.astype(np.int64), bins, contexts.astype(np.int64))
        self._seen = codes.users, codes.items
        self._fit_network(codes, ratings, keep)
        return self

    def _fit_network(self, codes: Codes, ratings: Ratings, keep: FitOptions) -> None:
        values, offset = ratings.values, float(ratings.values.mean())
        unit = float(values.std()) or abs(offset) or 1.0
        sizes = len(self.user_ids_), len(self.item_ids_), 0 if self._bins is None else self._bins.n
        shape = Shape(*sizes, 0 if self.context_ids_ is None else len(self.context_ids_), int(self.n_factors))
        network = declared(codes, values - offset, shape, unit)
        fit = network.fit(
            init=self._start(network, ratings, shape, unit), max_steps=self.max_steps or 1000, max_seconds=self.max_seconds,
            tol=self.tol * len(values), seed=self.seed, verbose=self.verbose, **keep,
        )  # fmt: skip
        self.network_, self.fit_, self._state = network, fit, fit.state
        self.elbo_: float = fit.elbo
        self.trace_, self.stop_ = fit.trace, fit.stop
        self.posterior_ = Posterior({name: fit[name] for name in fit})
        self.moments_: Moments = moments_of(fit, shape, offset)

    def _start(self, network: Network, ratings: Ratings, shape: Shape, unit: float) -> dict[str, Any]:
        """Vectors of a factorisation without context; or drawn ones, where a few sweeps from these have the higher bound."""
        first = MatrixFactorization(
            shape.factors, max_steps=FIRST_SWEEPS, tol=0, noise_per=None, seed=self.seed, n_jobs=1, verbose=False
        ).fit(ratings)
        known: dict[str, Any] = {"u": first.user_factors_.mean, "v": first.item_factors_.mean}
        rng, wide = np.random.default_rng([int(self.seed), 1]), float(np.sqrt(unit))
        drawn = {name: wide * rng.normal(size=part.shape) for name, part in known.items()}
        if not shape.contexts:
            return known
        known["w"] = 1.0 + 0.1 * rng.normal(size=(shape.contexts, shape.factors))
        drawn["w"] = 1.0 + rng.normal(size=(shape.contexts, shape.factors))
        short: dict[str, Any] = {"max_steps": TRIAL_SWEEPS, "tol": 0.0, "seed": self.seed, "verbose": False}
        return max((known, drawn), key=lambda start: network.fit(init=start, **short).elbo)

    def predict(
        self, users: Any, items: Any, return_std: bool = False, *, time: Any = None, context: Any = None
    ) -> Any:
        """The mean of a new rating for each pair at a time, in a context.

        Parameters
        ----------
        users, items : ids, of the same length; who is not known is predicted from the prior that was learned
        return_std : bool
            Whether its standard deviation, noise included, comes with it.
        time, context : one for each pair, or one for all
            Needed where the fit had them. After the last time of the fit biases stay, and grow less sure with every bin.
        """
        codes = self._codes(users, items, time, context)
        mean, variance = predicted(self.moments_, codes)
        return (mean, np.sqrt(variance)) if return_std else mean

    def interval(
        self, users: Any, items: Any, mass: float = 0.9, *, time: Any = None, context: Any = None
    ) -> tuple[Floats, Floats]:
        """The ends of the central interval of a new rating with probability ``mass``; the rest as of `predict`."""
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie between 0 and 1, got {mass!r}")
        mean, sd = self.predict(users, items, True, time=time, context=context)
        half = float(ndtri(0.5 + 0.5 * mass)) * sd
        return mean - half, mean + half

    def score(
        self, X: Any, y: Any = None, *, time: Any = None, context: Any = None,
        metric: Literal["log_likelihood", "rmse", "mae"] = "log_likelihood",
    ) -> float:  # fmt: skip
        """How well held-out ratings were foreseen: the mean log density of each, or the error of the mean."""
        if metric not in ("log_likelihood", "rmse", "mae"):
            raise ValueError(f"metric must be one of log_likelihood, rmse, mae, got {metric!r}")
        self._check_fitted()
        columns = columns_in(X, y, time, context)
        ratings = columns.ratings
        pairs = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
        mean, variance = predicted(self.moments_, self._codes(*pairs, columns.time, columns.context))
        error = ratings.values - mean
        if metric == "log_likelihood":
            return float(np.mean(-0.5 * (LOG_2PI + np.log(variance) + error**2 / variance)))
        return float(np.sqrt(np.mean(error**2)) if metric == "rmse" else np.mean(np.abs(error)))

    def recommend(
        self, user: Any, n: int = 10, exclude_seen: bool = True, *, time: Any = None, context: Any = None
    ) -> Best:
        """The best items of a user at a time, in a context; those rated at any time are left out if ``exclude_seen``."""
        self._check_fitted()
        items = self.item_ids_
        scores = self.predict([user] * len(items), items, time=time, context=context)
        if exclude_seen:
            place = int(label_codes(self.user_ids_, "users", [user])[0])
            scores[self._seen[1][self._seen[0] == place]] = -np.inf
        order = np.argsort(-scores, kind="stable")[: whole_number(n, "n")]
        order = order[scores[order] > -np.inf]
        return Best(items[order], scores[order])

    @property
    def user_drift_(self) -> Floats:
        """Means of the users' biases [users, bins]."""
        self._check_fitted()
        return self.moments_.b[0][:-1]

    @property
    def item_drift_(self) -> Floats:
        """Means of the items' biases [items, bins]."""
        self._check_fitted()
        return self.moments_.c[0][:-1]

    @property
    def time_edges_(self) -> Floats | None:
        """Where bins begin and end; of dates in seconds since 1970."""
        self._check_fitted()
        return None if self._bins is None else np.linspace(self._bins.first, self._bins.last, self._bins.n + 1)

    # -- parts --

    def _codes(self, users: Any, items: Any, time: Any, context: Any) -> Codes:
        self._check_fitted()
        rows, columns = label_codes(self.user_ids_, "users", users), label_codes(self.item_ids_, "items", items)
        if len(rows) != len(columns):
            raise ValueError(f"users and items must have the same length, got {len(rows)} and {len(columns)}")
        bins, contexts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for name, given, known in (("time", time, self._bins), ("context", context, self.context_ids_)):
            if (given is None) != (known is None):
                had, do = ("no", "leave it out") if known is None else ("a", "give one")
                raise ValueError(f"the fit had {had} {name}=: {do}")
        if self._bins is not None:
            bins = self._bins.of(as_seconds(_for_all(time, len(rows)), len(rows)))
        if self.context_ids_ is not None:
            contexts = label_codes(self.context_ids_, "context", _for_all(context, len(rows)))
        return Codes(rows, columns, bins, contexts)

    def __getstate__(self) -> Any:
        """For pickles: the model, without the network and its data."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("network_", "fit_")}

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {
            "n_factors": "natural", "n_bins": "natural", "max_steps": "natural", "max_seconds": "none | positive",
            "tol": "nonnegative", "seed": "whole", "verbose": "none | flag",
        }  # fmt: skip

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        has, timed = (isinstance(fitted, Mapping) and fitted.get(name) is not None for name in ("contexts", "bins"))
        return cls._settings_table(), {
            "users": "ids [user]", "items": "ids [item]", "contexts": "ids [context]" if has else "none",
            "seen": ("whole [rating] in [0, user)", "whole [rating] in [0, item)"),
            "moments": moments_table(has), "bins": ("real", "real", "size bin") if timed else "none",
            "elbo": "float", "trace": Trace, "stop": Stop,
        }  # fmt: skip

    def _saved(self) -> dict[str, Any]:
        return {
            "users": self.user_ids_, "items": self.item_ids_, "contexts": self.context_ids_,
            "bins": None if self._bins is None else tuple(self._bins), "seen": self._seen, "moments": tuple(self.moments_),
            "elbo": self.elbo_, "trace": self.trace_, "stop": self.stop_,
        }  # fmt: skip

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self.user_ids_, self.item_ids_, self.context_ids_ = saved["users"], saved["items"], saved["contexts"]
        self._bins = None if saved["bins"] is None else TimeBins(*saved["bins"])
        self._seen, self.moments_ = saved["seen"], Moments(*saved["moments"])
        self.elbo_, self.trace_, self.stop_ = saved["elbo"], saved["trace"], saved["stop"]
        self._state: Any = None  # there, and not fitted here: the network and its factors are not in the file


def _for_all(given: Any, n: int) -> Any:
    """One for each of n, where one is given for all."""
    alone = isinstance(given, (str, bytes)) or not hasattr(given, "__len__")
    return [given] * n if alone else given
