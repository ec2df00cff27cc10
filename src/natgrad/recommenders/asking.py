"""A fitted `ContextFactorization` and users, items, times and contexts in; predictions, scores and the best items out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from natgrad.models.factorization.files import Factors
from natgrad.recommenders.columns import Codes, Columns, TimeBins, as_seconds, columns_in, label_codes
from natgrad.recommenders.declared import Moments, predicted
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.ratings import Ratings

__all__ = ["Best", "ContextQueries", "reasons_of", "width_of"]

Floats = npt.NDArray[np.float64]
LOG_2PI = float(np.log(2.0 * np.pi))


class Best(NamedTuple):
    """Ids of items, best first, and their expected ratings."""

    items: npt.NDArray[Any]
    scores: Floats


class ContextQueries:
    """What is asked of a fit; of the estimator it needs ``moments_``, ids, bins, and the data of the fit."""

    if TYPE_CHECKING:
        time: str | int | None
        context: str | int | None
        moments_: Moments
        ratings_: Ratings
        context_ids_: npt.NDArray[Any] | None
        n_features_in_: int
        _bins: TimeBins | None
        _data: Columns

        def _check_fitted(self) -> None: ...

    def predict(
        self, users: Any, items: Any = None, return_std: bool = False, *, time: Any = None, context: Any = None
    ) -> Any:
        """The mean of a new rating for each pair at a time, in a context.

        Parameters
        ----------
        users, items : ids, of the same length; who is not known is predicted from the prior that was learned
            Without ``items``, ``users`` is X as of `fit`, without its ratings.
        return_std : bool
            Whether its standard deviation, noise included, comes with it.
        time, context : one for each pair, or one for all; of X as in `fit`
            Needed where the fit had them. After the last time of the fit biases stay, and grow less sure with every bin.
        """
        self._check_fitted()
        if items is None:
            columns = self._read(users, None, time, context, rated=False)
            codes = self._codes(*columns.pairs, columns.time, columns.context)
        else:
            codes = self._codes(users, items, time, context)
        mean, variance = predicted(self.moments_, codes)
        return (mean, np.sqrt(variance)) if return_std else mean

    def interval(
        self, users: Any, items: Any = None, mass: float = 0.9, *, time: Any = None, context: Any = None
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
        return self._judged(self._read(X, y, time, context), metric)

    def recommend(
        self, users: Any, n: int = 10, exclude_seen: bool = True, *, time: Any = None, context: Any = None,
        only: Any = None, exclude: Any = None, quantile: float | None = None,
    ) -> Best:  # fmt: skip
        """The best items of a user, or of each of several, at a time and in a context.

        Parameters
        ----------
        users : an id, or a list of ids
            Of several, arrays are [users, n], with None and −∞ where fewer items are left.
        n : int
            How many at most.
        exclude_seen : bool
            Whether items that the user rated at any time are left out.
        time, context : one for all
        only, exclude : ids of items, optional
            Recommend none but these, or none of these.
        quantile : float in (0, 1), optional
            Rank by this quantile of the expected rating: 0.1 is cautious, 0.9 tries what may be good.
        """
        self._check_fitted()
        if quantile is not None and not 0 < real_number(quantile, "quantile") < 1:
            raise ValueError(f"quantile must lie in (0, 1), got {quantile!r}")
        alone = isinstance(users, (str, bytes)) or not hasattr(users, "__len__")
        who, ratings, n = [users] if alone else list(users), self.ratings_, whole_number(n, "n")
        refused = np.full(ratings.n_items, only is not None)
        if only is not None:
            refused[ratings.find_items(only, "only")] = False
        if exclude is not None:
            refused[ratings.find_items(exclude, "exclude")] = True
        lists = []
        for user, place in zip(who, label_codes(self.user_ids_, "users", who), strict=True):
            mean, variance = predicted(
                self.moments_, self._codes([user] * ratings.n_items, self.item_ids_, time, context)
            )
            if quantile is not None:  # of what is expected: noise does not count
                mean = mean + float(ndtri(quantile)) * np.sqrt(np.maximum(variance - self.moments_.noise, 0.0))
            left_out = refused.copy()
            if exclude_seen:
                left_out[ratings.items[ratings.users == place]] = True
            mean[left_out] = -np.inf
            order = np.argsort(-mean, kind="stable")[:n]
            order = order[mean[order] > -np.inf]
            lists.append(Best(self.item_ids_[order], mean[order]))
        return lists[0] if alone else _side_by_side(lists, n)

    def because(self, user: Any, item: Any, n: int = 5, *, time: Any = None, context: Any = None) -> Best:
        """What of a user's speaks most for an item at a time, in a context, with what each adds to its expected rating.

        The rest of what is expected is nobody's: the mean of all ratings, the bias of the item then, and that of the context. An
        item that was rated several times is named once, with all that it adds. Sums are those of predictions but for a small
        part, one in as many as there are users, since precisions that were learned are known that well.

        Parameters
        ----------
        user, item : ids that were fitted
        n : int
            How many at most.
        time, context : as of `recommend`
        """
        self._check_fitted()
        n = whole_number(n, "n")
        row = int(self.ratings_.find_users([user])[0])
        self.ratings_.find_items([item], "item")
        asked = self._codes([user], [item], time, context)
        here, held = np.flatnonzero(self.ratings_.users == row), self._data
        when, where = (None if part is None else part[here] for part in (held.time, held.context))
        users, rated = held.pairs
        told = self._codes(users[here], rated[here], when, where)
        parts = reasons_of(self.moments_, told, self.ratings_.values[here], asked)
        items, places = np.unique(told.items, return_inverse=True)
        adds = np.bincount(places, parts, minlength=len(items)).astype(np.float64)
        order = np.argsort(-adds, kind="stable")[:n]
        return Best(self.item_ids_[items[order]], adds[order])

    @property
    def user_ids_(self) -> npt.NDArray[Any]:
        """Ids of users, in the order of the rows of what is known of them."""
        self._check_fitted()
        return self.ratings_.user_ids

    @property
    def item_ids_(self) -> npt.NDArray[Any]:
        """Ids of items, in the order of the rows of what is known of them."""
        self._check_fitted()
        return self.ratings_.item_ids

    @property
    def user_factors_(self) -> Factors:
        """Means and standard deviations of the users' vectors, both [users, K]."""
        self._check_fitted()
        return _factors(self.moments_.u)

    @property
    def item_factors_(self) -> Factors:
        """Means and standard deviations of the items' vectors, both [items, K]."""
        self._check_fitted()
        return _factors(self.moments_.v)

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

    def _read(self, X: Any, y: Any, time: Any, context: Any, *, rated: bool = True) -> Columns:
        """What a call names, or the settings."""
        time, context = (self.time if time is None else time), (self.context if context is None else context)
        width = width_of(X)
        if width is not None and width != getattr(self, "n_features_in_", width):
            raise ValueError(
                f"X has {width} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )
        return columns_in(X, y, time, context, rated=rated)

    def _judged(self, columns: Columns, metric: str) -> float:
        mean, variance = self._foreseen(columns)
        error = columns.ratings.values - mean
        if metric == "log_likelihood":
            return float(np.mean(-0.5 * (LOG_2PI + np.log(variance) + error**2 / variance)))
        return float(np.sqrt(np.mean(error**2)) if metric == "rmse" else np.mean(np.abs(error)))

    def _foreseen(self, columns: Columns) -> tuple[Floats, Floats]:
        """Mean and variance of ratings, noise included."""
        return predicted(self.moments_, self._codes(*columns.pairs, columns.time, columns.context))

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


def width_of(X: Any) -> int | None:
    """The columns of an array of rows; None of anything whose columns have names."""
    return np.shape(X)[1] if isinstance(X, (list, np.ndarray)) and np.ndim(X) == 2 else None


def _side_by_side(lists: list[Best], n: int) -> Best:
    """Lists of several users as arrays [users, n]; where one is shorter, None and −∞."""
    items, scores = np.full((len(lists), n), None, dtype=object), np.full((len(lists), n), -np.inf)
    for row, own in enumerate(lists):
        items[row, : len(own.items)], scores[row, : len(own.items)] = own
    return Best(items, scores)


def _for_all(given: Any, n: int) -> Any:
    """One for each of n, where one is given for all."""
    alone = isinstance(given, (str, bytes)) or not hasattr(given, "__len__")
    return [given] * n if alone else given


def _factors(moments: tuple[Floats, Floats]) -> Factors:
    """Without the row of the prior."""
    mean, spread = (part[:-1] for part in moments)
    return Factors(mean, np.sqrt(spread if spread.ndim == 2 else np.einsum("rdd->rd", spread)))


def reasons_of(moments: Moments, told: Codes, values: Floats, asked: Codes) -> Floats:
    """Compute what each rating of a user (``told``, ``values``) adds to the mean of the pair that is ``asked`` for.

    Given everybody else, the means of a user's vector u and biases b(1), …, b(T) are linear in the ratings. With g = v ∘ w,

        M (u, b) = Σ_n τ (E[g_n], e_t(n)) y_n,   y_n = r_n − m − c_j(t) − d_l,
        M = [diag(α) + τ Σ_n E[g_n g_nᵀ],  τ Σ_n E[g_n] e_t(n)ᵀ;  …,  Q + τ Σ_n e_t(n) e_t(n)ᵀ]

    Q being the precision of the chain b, so that m + c + d + Σ_n (E[g], e_t) · M⁻¹ τ (E[g_n], e_t(n)) y_n is the mean.
    """
    tau, (g, gg), bins = 1.0 / moments.noise, _designs(moments, told), moments.b[0].shape[1]
    k, left = g.shape[1], values - moments.offset - _others(moments, told)
    design = np.hstack([g, np.eye(bins)[np.clip(told.bins, 0, bins - 1)]])
    matrix = tau * design.T @ design
    matrix[:k, :k] = tau * gg.sum(0) + np.diag(1.0 / _prior(moments.u[1][-1]))
    matrix[k:, k:] += _chain(float(moments.b[1][-1, 0]), moments.steps[0], bins)
    wanted = np.hstack([_designs(moments, asked)[0][0], np.eye(bins)[np.clip(asked.bins[0], 0, bins - 1)]])
    return np.asarray(tau * left * (design @ np.linalg.solve(matrix, wanted)))


def _designs(moments: Moments, codes: Codes) -> tuple[Floats, Floats]:
    """E[g] [n, K] and E[g gᵀ] [n, K, K] of pairs."""
    mean, spread = (part[codes.items] for part in moments.v)
    if moments.w is None:
        return mean, spread + mean[:, :, None] * mean[:, None, :]
    of_context, its_spread = (part[codes.contexts] for part in moments.w)
    g = mean * of_context
    beside = (mean**2 + spread) * (of_context**2 + its_spread) - g**2
    return g, g[:, :, None] * g[:, None, :] + np.eye(g.shape[1]) * beside[:, None, :]


def _others(moments: Moments, codes: Codes) -> Floats:
    """c_j(t) + d_l, which are not the user's."""
    level = moments.c[0]
    mean = level[codes.items, np.clip(codes.bins, 0, level.shape[1] - 1)]
    return np.asarray(mean if moments.d is None else mean + moments.d[0][codes.contexts])


def _prior(spread: Floats) -> Floats:
    """Variances of the prior of u."""
    return np.asarray(np.diag(spread) if spread.ndim == 2 else spread)


def _chain(first: float, step: float, bins: int) -> Floats:
    """The precision of a random walk of so many bins."""
    precision = np.zeros((bins, bins))
    precision[0, 0] = 1.0 / first
    for late in range(1, bins):
        here = slice(late - 1, late + 1)
        precision[here, here] += np.array([[1.0, -1.0], [-1.0, 1.0]]) / step
    return precision
