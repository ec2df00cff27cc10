"""`ContextFactorization`: ratings with times or contexts in; tastes, biases that drift, and predictions at a time out.

The network, its equations and its moments are in `natgrad.recommenders.declared`, what is asked of a fit in `asking`. Ratings are
kept: what comes later (`partial_fit`, `update`) is fitted with all that came before, from the means that were reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, Unpack, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import number_ids
from natgrad.data.ratings import Ratings
from natgrad.inference.monitor import Since
from natgrad.inference.options import FitOptions, all_or_nothing, seeing, split_options
from natgrad.inference.schema import check, refuse
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.factorization.estimator import MatrixFactorization
from natgrad.models.registry import EVERY_MODEL
from natgrad.network.network import Network
from natgrad.network.results.fit import Fit
from natgrad.posterior.export import Posterior
from natgrad.recommenders.asking import ContextQueries, width_of
from natgrad.recommenders.columns import Codes, Columns, TimeBins, label_codes
from natgrad.recommenders.declared import Moments, Shape, declared, moments_of, moments_table, table_of
from natgrad.validation import whole_number

__all__ = ["ContextFactorization"]

# Sweeps of `MatrixFactorization` that the vectors start from, of the network by which starts are compared, and of a fit to which
# ratings come.
FIRST_SWEEPS, TRIAL_SWEEPS, PARTIAL_SWEEPS = 40, 10, 10
# Bins of times, where ``n_bins`` is left out.
USUAL_BINS = 20


class _Subject(NamedTuple):
    """What is published along with a fit."""

    network: Network
    columns: Columns
    bins: TimeBins | None
    contexts: npt.NDArray[Any] | None
    shape: Shape
    offset: float


@final
@dataclass(repr=False, eq=False)  # writes __init__ with every setting by name
class ContextFactorization(ContextQueries, Estimator):
    """Ratings at times, or in contexts: biases drift along Gaussian chains, and contexts are the third mode of a tensor.

    Parameters
    ----------
    n_factors : int
        The length K of the vectors, an upper bound: their precisions are learned.
    n_bins : int, optional
        Bins of equal length that times are cut into, by default 20; only where there are times. Biases make a step from each to
        the next, of a size that is learned.
    time, context : str or int, optional
        The column of X that has them: its name in a table, its number in an array of rows. Calls may give values instead.
    max_steps, max_seconds : limits
        Most sweeps, most time.
    tol : float
        Nats a rating left to gain below which the fit has converged.
    seed : int
    chunk_rows : int, optional
        Sweeps go over so many ratings at a time. By default over all of them, and with ``executor`` over as many as suit it.
    executor : None, an address, `distributed.Client` or cluster, or `natgrad.inference.Dask`
        Who computes: this process, or the workers of a Dask cluster, which hold the chunks of ratings. With the same
        ``chunk_rows`` the result is the same.
    verbose : bool, optional

    Attributes
    ----------
    user_ids_, item_ids_, context_ids_ : ids in the order of the rows below; contexts None without
    user_factors_, item_factors_ : mean and sd [rows, K]
    user_drift_, item_drift_ : means of the biases [users, bins], [items, bins]; one column without times
    time_edges_ : array [bins + 1], where bins begin and end; None without times
    ratings_ : Ratings, what was fitted
    moments_ : means and variances of every part of a rating
    network_, fit_ : the declaration and its `Fit`, with draws and linear response; not in files and pickles
    posterior_ : the factors of q; not in files
    elbo_, trace_, stop_ : as of `natgrad.MatrixFactorization`

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

    kind: ClassVar[str] = "ratings"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {
        "partial_fit", "executor", "draws", "linear_response", "predict", "recommend",
    }  # fmt: skip

    n_factors: int = 10
    _: KW_ONLY
    n_bins: int | None = None
    time: str | int | None = None
    context: str | int | None = None
    max_steps: int = 300
    max_seconds: float | None = None
    tol: float = 1e-5
    seed: int = 0
    chunk_rows: int | None = None
    executor: Any = None
    verbose: bool | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, *, time: Any = None, context: Any = None, **keep: Unpack[FitOptions]) -> Self:
        """Fit to ratings.

        Parameters
        ----------
        X : a table of user, item and rating, the path of one, rows of user and item (an array, a table) with their ratings y,
            `Ratings`, or an iterator of tables. A pair may come several times. All ratings are held.
        y : array of numbers [n], optional
        time : numbers or dates [n], or a column of X: its name in a table, its number in an array of rows; the setting by default
        context : labels [n], or a column of X, in the same way
            An hour of the day, a device, a place: whatever tastes depend on besides users and items.
        checkpoint, every, resume, callbacks : as in ``Network.fit``
        """
        self._check_settings()
        if all(part is None for part in (time, context, self.time, self.context)):
            raise ValueError("give time= or context=; ratings with neither are what MatrixFactorization is made for")
        if hasattr(self, "n_features_in_"):
            del self.n_features_in_
        columns = self._read(X, y, time, context)
        if (width := width_of(X)) is not None:
            self.n_features_in_: int = width
        if columns.time is None and self.n_bins is not None:
            raise ValueError(
                f"n_bins={self.n_bins!r} cuts times into bins, and there are none: leave it out, or give time="
            )
        bins = None if columns.time is None else TimeBins.over(columns.time, int(self.n_bins or USUAL_BINS))
        self._learn(columns, bins, None, keep)
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, *, time: Any = None, context: Any = None) -> Self:
        """Fit to more ratings, by a few sweeps over these and all that came before, which are kept.

        New users, items and contexts may appear; times before the first or after the last have bins of their own, as long as the
        others. A pair that comes again is rated again.
        """
        if not hasattr(self, "_state"):
            return self.fit(X, y, time=time, context=context)
        self._check_settings()
        self._join(self._data.joined(self._more(X, y, time=time, context=context)), PARTIAL_SWEEPS)
        return self

    @all_or_nothing
    def continue_fit(self, max_steps: int | None = None) -> Self:
        """Go on from the means that were reached, on the same ratings, for as many sweeps as the settings say or these."""
        self._check_fitted()
        self._check_settings()
        self._join(self._data, self.max_steps if max_steps is None else whole_number(max_steps, "max_steps"))
        return self

    def _more(self, X: Any, y: Any = None, *, time: Any = None, context: Any = None) -> Columns:
        more = self._read(X, y, time, context)
        for name in ("time", "context"):
            given, known = (getattr(columns, name) is not None for columns in (more, self._data))
            if given != known:
                had, do = ("a", "give one") if known else ("no", "leave it out")
                raise ValueError(f"the fit had {had} {name}=: {do}")
        return more

    def _go_on(self, held: Columns) -> None:
        self._check_settings()
        self._join(held, self.max_steps)

    def _join(self, columns: Columns, max_steps: int | None) -> None:
        """From the means that were reached, to what users, items, bins and contexts there are now."""
        bins = self._bins if self._bins is None or columns.time is None else self._bins.extended(columns.time)
        rows = [
            label_codes(old, what, new)
            for old, what, new in (
                (self.user_ids_, "users", columns.ratings.user_ids),
                (self.item_ids_, "items", columns.ratings.item_ids),
            )
        ]
        reached: dict[str, Any] = {"u": self.moments_.u[0][rows[0]], "v": self.moments_.v[0][rows[1]]}
        if self.moments_.w is not None and self.context_ids_ is not None and columns.context is not None:
            labels = number_ids(columns.context, "context", "context")[1].array
            reached["w"] = self.moments_.w[0][label_codes(self.context_ids_, "context", labels)]
        self._learn(columns, bins, reached, {}, max_steps)

    def _learn(
        self,
        columns: Columns,
        bins: TimeBins | None,
        reached: dict[str, Any] | None,
        keep: FitOptions,
        max_steps: int | None = None,
    ) -> None:
        seconds = None if self.max_seconds is None else Since(self.max_seconds)  # of the start, too
        ratings, n = columns.ratings, len(columns.ratings)
        labels, contexts = None, np.zeros(n, np.int64)
        if columns.context is not None:
            numbers, ids = number_ids(columns.context, "context", "context")
            labels, contexts = ids.array, numbers.astype(np.int64)
        places = np.zeros(n, np.int64) if columns.time is None or bins is None else bins.of(columns.time)
        codes = Codes(ratings.users.astype(np.int64), ratings.items.astype(np.int64), places, contexts)
        values, offset = ratings.values, float(ratings.values.mean())
        unit = float(values.std()) or abs(offset) or 1.0
        sizes = ratings.n_users, ratings.n_items, 0 if bins is None else bins.n
        shape = Shape(*sizes, 0 if labels is None else len(labels), int(self.n_factors))
        in_chunks = self.chunk_rows is not None or self.executor is not None
        network = declared(codes, values - offset, shape, unit, in_chunks)
        options: dict[str, Any] = {"seed": self.seed, "max_seconds": seconds}
        if in_chunks:
            rows = table_of(codes, values - offset, shape)
            options |= {"data": rows, "chunk_rows": self.chunk_rows, "executor": self.executor}
        subject = _Subject(network, columns, bins, labels, shape, offset)
        callbacks, kept = split_options(keep)
        fit = network.fit(
            init=self._start(network, ratings, shape, unit, options) if reached is None else reached,
            max_steps=max_steps or self.max_steps or 1, tol=self.tol * len(values), verbose=self.verbose, **options,
            callbacks=[seeing(callback, partial(self._at, subject)) for callback in callbacks], **kept,
        )  # fmt: skip
        self._publish(subject, fit)

    def _at(self, subject: _Subject, fit: Fit) -> Self:
        """A copy of the model as it would be if the run ended with this fit."""
        shown = copy(self)
        shown._publish(subject, fit)
        return shown

    def _publish(self, subject: _Subject, fit: Fit) -> None:
        self.network_: Network = subject.network
        self.fit_: Fit = fit
        self._state: Any = fit.state
        self._data, self._bins = subject.columns, subject.bins
        self.ratings_: Ratings = subject.columns.ratings
        self.context_ids_: npt.NDArray[Any] | None = subject.contexts
        self.elbo_: float = fit.elbo
        self.trace_, self.stop_ = fit.trace, fit.stop
        self.posterior_ = Posterior({name: fit[name] for name in fit})
        self.moments_: Moments = moments_of(fit, subject.shape, subject.offset)

    def _start(
        self, network: Network, ratings: Ratings, shape: Shape, unit: float, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Vectors of a factorisation without context; or drawn ones, where a few sweeps from these have the higher bound."""
        first = MatrixFactorization(
            shape.factors, max_steps=FIRST_SWEEPS, tol=0, seed=self.seed, n_jobs=1,
            executor=self.executor, verbose=False, max_seconds=options["max_seconds"],
        ).fit(ratings)  # fmt: skip
        known: dict[str, Any] = {"u": first.user_factors_.mean, "v": first.item_factors_.mean}
        rng, wide = np.random.default_rng([int(self.seed), 1]), float(np.sqrt(unit))
        drawn = {name: wide * rng.normal(size=part.shape) for name, part in known.items()}
        if not shape.contexts:
            return known
        known["w"] = 1.0 + 0.1 * rng.normal(size=(shape.contexts, shape.factors))
        drawn["w"] = 1.0 + rng.normal(size=(shape.contexts, shape.factors))
        if options["max_seconds"] is not None and options["max_seconds"].over:
            return known
        short: dict[str, Any] = {"max_steps": TRIAL_SWEEPS, "tol": 0.0, "verbose": False, **options}
        return max((known, drawn), key=lambda start: network.fit(init=start, **short).elbo)

    # -- settings and files --

    def _check_settings(self) -> None:
        self._check_from_table()
        whole_number(self.seed, "seed", least=0)
        for name in ("time", "context"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int, np.integer))):
                raise TypeError(f"{name} must be the name of a column or its number, got {value!r}: values go to fit()")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.target_tags.required = True, True
        return tags

    def __getstate__(self) -> Any:
        """For pickles: the model and its ratings, without the network."""
        held = vars(self).get("_data")
        state = {name: value for name, value in super().__getstate__().items() if name not in ("network_", "fit_")}
        return state if held is None else {**state, "_data": held}

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {
            "n_factors": "natural", "n_bins": "none | natural", "time": "none | text | whole", "context": "none | text | whole",
            "max_steps": "natural", "max_seconds": "none | positive", "tol": "nonnegative", "seed": "whole",
            "chunk_rows": "none | natural", "verbose": "none | flag",
        }  # fmt: skip

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        has, timed = (isinstance(fitted, Mapping) and fitted.get(name) is not None for name in ("contexts", "bins"))
        table = {
            "users": "ids [user]", "items": "ids [item]", "contexts": "ids [context]" if has else "none",
            "codes": ("whole [rating] in [0, user)", "whole [rating] in [0, item)"), "values": "real [rating]",
            "times": "real [rating]" if timed else "none", "labels": "whole [rating] in [0, context)" if has else "none",
            "moments": moments_table(has), "bins": ("real", "real", "size bin") if timed else "none",
            "n_features": "none | natural", "elbo": "float", "trace": Trace, "stop": Stop,
        }  # fmt: skip

        def of(value: Any, sizes: Any, where: str) -> None:
            check(value, table, sizes, where)
            if timed:
                bins, times = TimeBins(*value["bins"]), np.asarray(value["times"])
                places = bins.of(times) if bins.last > bins.first else np.array([-1])
                if places.min() < 0 or places.max() >= bins.n:
                    refuse(where, "has times that are in none of its bins")

        return cls._settings_table(), of

    def _saved(self) -> dict[str, Any]:
        held, labels = self._data, None
        if held.context is not None:
            labels = number_ids(held.context, "context", "context")[0].astype(np.int64)
        return {
            "users": self.user_ids_, "items": self.item_ids_, "contexts": self.context_ids_,
            "codes": (held.ratings.users, held.ratings.items), "values": held.ratings.values, "times": held.time,
            "labels": labels, "bins": None if self._bins is None else tuple(self._bins), "moments": tuple(self.moments_),
            "n_features": getattr(self, "n_features_in_", None),
            "elbo": self.elbo_, "trace": self.trace_, "stop": self.stop_,
        }  # fmt: skip

    def _restore(self, saved: Mapping[str, Any]) -> None:
        users, items = saved["codes"]
        self.ratings_ = Ratings.numbered(users, items, saved["values"], saved["users"], saved["items"])
        self.context_ids_, self.moments_ = saved["contexts"], Moments(*saved["moments"])
        labels = None if self.context_ids_ is None else self.context_ids_[saved["labels"]]
        self._data = Columns(self.ratings_, saved["times"], labels)
        self._bins = None if saved["bins"] is None else TimeBins(*saved["bins"])
        if saved["n_features"] is not None:
            self.n_features_in_ = saved["n_features"]
        self.elbo_, self.trace_, self.stop_ = saved["elbo"], saved["trace"], saved["stop"]
        self._state = None  # there, and not fitted here: the network and its factors are not in the file
