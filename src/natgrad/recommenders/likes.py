"""Rank items by likes: an exact Gaussian model of items, and a weighted mean of recommenders.

`ItemWishart` is the Bayesian form of EASE (Steck, 2019): rows of likes are Gaussian with a Wishart prior on their precision,

    x_i ~ N(0, Λ⁻¹),   Λ ~ Wishart(p, r I),   so that   Λ | x ~ Wishart(p + n, r I + XᵀX)

`Stacked` weighs any recommenders by how well their mean ranks held-out likes (Wolpert, 1992).

References
----------
Steck, H. (2019). Embarrassingly shallow autoencoders for sparse data. Wolpert, D. H. (1992). Stacked generalization.
"""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse
import scipy.special
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from natgrad.data.rating_forms import as_ratings
from natgrad.data.ratings import Ratings
from natgrad.families import Wishart
from natgrad.kernels.factorization.top_items import top_items
from natgrad.models.factorization.metrics import ranking_scores
from natgrad.models.factorization.recommend import Recommendations
from natgrad.posterior.export import Posterior
from natgrad.posterior.factor import Factor
from natgrad.random import Stream, generator
from natgrad.validation import real_number, whole_number

__all__ = ["ItemWishart", "Stacked"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
# Scores that are held at once: users × items.
BATCH_SCORES = 4_000_000
# Users whose likes are predicted to choose a ridge, and the most liked items that they are predicted of.
MAX_JUDGED_USERS, MAX_JUDGED_ITEMS = 1500, 2000
# The ratio of neighbouring ridges, and the most that are tried.
RIDGE_RATIO, MAX_RIDGES = 3.0, 20
# Users × items whose scores are held for every recommender while weights are found.
STACKED_SCORES = 6_000_000
# The length of the lists that weights are judged by.
SHOWN = 20
# Parts of a recommender that are exchanged for those there are, and most exchanges.
PARTS, MAX_EXCHANGES = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8), 6


class _Ranker(BaseEstimator):  # type: ignore[misc]
    """Recommendations from ``scores``."""

    ratings_: Ratings

    def scores(self, users: Any = None) -> Float32s:
        """Compute the score of every item for some users, or all [users, items], in the order of ``ratings_.item_ids``."""
        return self._scores(_rows(self, users))

    def recommend(self, users: Any = None, n: int = 10, exclude_seen: bool = True) -> Recommendations:
        """Find the best items of one user, of several, or of all (None).

        Parameters
        ----------
        users : an id, a list of ids, or None
        n : int, default=10
            How many; None stands for ids where fewer items are left.
        exclude_seen : bool, default=True
            Whether items that the user likes are left out.
        """
        rows, alone = (
            _rows(self, users),
            users is not None and (isinstance(users, str) or not hasattr(users, "__len__")),
        )
        n, likes = whole_number(n, "n"), _matrix(self.ratings_)
        items, scores = np.empty((len(rows), n), np.int64), np.empty((len(rows), n), np.float32)
        batch = max(1, BATCH_SCORES // self.ratings_.n_items)
        for first in range(0, len(rows), batch):
            some = slice(first, first + batch)
            seen = likes[rows[some]]
            start = seen.indptr.astype(np.int64), seen.indices.astype(np.int32)
            top_items(self._scores(rows[some]), 0, *start, bool(exclude_seen), items[some], scores[some])
        ids = self.ratings_.item_ids
        named: npt.NDArray[Any] = ids[items] if (items >= 0).all() else ids.astype(object)[items]
        named[items < 0] = None if named.dtype == object else named[items < 0]
        return Recommendations(named[0], scores[0]) if alone else Recommendations(named, scores)

    def _scores(self, rows: Ints) -> Float32s:
        raise NotImplementedError


@final
class ItemWishart(_Ranker):
    """Gaussian rows of likes with a Wishart posterior on the precision of items; exact, in one step.

    Given a user's other likes, E[x_j | x without j] = Σ_k x_k B_kj with B_kj = −Λ_kj/Λ_jj, which at E[Λ] is the ridge regression
    of each item on all others.

    Parameters
    ----------
    ridge : float, optional
        The rate r of the prior. By default the one with the least squared error of all pairs of a user, predicted without that
        user (exact leave-one-out). The evidence is no guide: zeros and ones are not Gaussian, and it shrinks too little.
    max_items : int, default=5000
        Most items of the model, whose precision is a matrix of so many rows; the most liked ones. Others are scored zero.

    Attributes
    ----------
    ratings_ : Ratings, the likes
    ridge_ : float
    elbo_ : float, the log evidence of the likes of the modelled items: the posterior is exact
    posterior_ : {"items": Factor}, a Wishart; rows in the order of ``items_``
    items_ : array, ids of the modelled items
    inference_ : str

    Examples
    --------
    >>> import natgrad as ng
    >>> likes = ng.data.Ratings([0, 0, 1, 1, 2, 2, 3], list("abababa"))
    >>> ng.recommenders.ItemWishart(ridge=1.0).fit(likes).recommend(3, n=1).items.tolist()
    ['b']
    """

    def __init__(self, *, ridge: float | None = None, max_items: int = 5000) -> None:
        self.ridge = ridge
        self.max_items = max_items

    def fit(self, X: Any, y: Any = None) -> Self:
        """Compute the posterior from likes: anything that `MatrixFactorization` takes; zeros are as pairs not stored."""
        ratings, most = as_ratings(X, y), whole_number(self.max_items, "max_items")
        likes = _matrix(ratings)
        counts = np.asarray(likes.sum(0)).ravel()
        places = np.sort(np.argsort(-counts, kind="stable")[:most])
        likes = likes[:, places]
        gram = (likes.T @ likes).toarray()
        if self.ridge is not None and not 0 < real_number(self.ridge, "ridge") < np.inf:
            raise ValueError(f"ridge must be > 0 and finite, got {self.ridge!r}")
        ridge = _best_ridge(likes, gram) if self.ridge is None else float(self.ridge)
        (n, p), rate = likes.shape, gram + ridge * np.eye(gram.shape[0])
        self.ratings_, self.ridge_, self._places, self._counts = ratings, ridge, places, counts
        self.items_ = ratings.item_ids[places]
        inverse, log_det = _inverse(rate)
        self._weights = (-inverse / np.diagonal(inverse)).astype(np.float32)
        np.fill_diagonal(self._weights, 0.0)
        self.elbo_ = float(
            scipy.special.multigammaln(0.5 * (p + n), p) - scipy.special.multigammaln(0.5 * p, p)
            + 0.5 * p * p * np.log(ridge) - 0.5 * (p + n) * log_det - 0.5 * n * p * np.log(np.pi)
        )  # fmt: skip
        lam = -0.5 * rate, np.asarray(0.5 * (n - 1.0))  # of −½ tr(rate Λ) + ½ (ν − p − 1) log|Λ|, ν = p + n
        self.posterior_ = Posterior({"items": Factor("items", Wishart(), (), lam)})
        return self

    @property
    def inference_(self) -> str:
        """Say what was computed."""
        _rows(self, [])
        return f"exact, a Wishart over {len(self.items_):,} items"

    def _scores(self, rows: Ints) -> Float32s:
        likes = _matrix(self.ratings_)[rows].astype(np.float32)
        out = np.zeros((len(rows), self.ratings_.n_items), np.float32)
        out[:, self._places] = likes[:, self._places] @ self._weights
        unknown = np.diff(likes.indptr) == 0
        out[unknown] = self._counts / max(self.ratings_.n_users, 1)  # nothing to go by but popularity
        return out


@final
class Stacked(_Ranker):
    """Weighted mean of the scores of recommenders, with the weights that rank held-out likes best.

    Every recommender is fitted to a part of the likes. Its scores of the items that a user has not seen are standardised, and
    weights ≥ 0 of sum 1 are chosen by the NDCG of the held-out likes. Then every recommender is fitted to all likes.

    Parameters
    ----------
    recommenders : list
        Estimators with ``fit(ratings)`` and ``scores(users)`` [users, items], in the order of the items of the ratings.
    held_out : float in (0, 1), default=0.1
        The share of likes that weights are found on.
    seed : int, default=0
        Which likes are held out.

    Attributes
    ----------
    weights_ : list of float, one for each recommender
    recommenders_ : list, the recommenders fitted to all likes
    ratings_ : Ratings

    Examples
    --------
    >>> import natgrad as ng
    >>> rng = np.random.default_rng(0)
    >>> taste = rng.integers(2, size=60)
    >>> table = (rng.random((60, 20)) < np.where(taste[:, None] == np.arange(20) % 2, 0.5, 0.05)).astype(float)
    >>> likes = ng.data.Ratings(*table.nonzero())
    >>> parts = [ng.recommenders.ItemWishart(), ng.MatrixFactorization(2, likelihood="bernoulli")]
    >>> model = ng.recommenders.Stacked(parts).fit(likes)
    >>> [weight >= 0 for weight in model.weights_]
    [True, True]
    """

    def __init__(self, recommenders: list[Any], *, held_out: float = 0.1, seed: int = 0) -> None:
        self.recommenders = recommenders
        self.held_out = held_out
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the weights, and fit every recommender to all likes."""
        if not self.recommenders:
            raise ValueError("recommenders is empty: give a list of estimators with fit(ratings) and scores(users)")
        if not 0 < real_number(self.held_out, "held_out") < 1:
            raise ValueError(f"held_out must lie in (0, 1), got {self.held_out!r}")
        ratings = as_ratings(X, y)
        rng = generator(whole_number(self.seed, "seed", least=0), Stream.HELD_OUT)
        held = (rng.random(len(ratings)) < self.held_out) & (ratings.values > 0)
        if not held.any() or not (ratings.values[~held] > 0).any():
            raise ValueError(
                f"held_out={self.held_out!r} of {len(ratings)} likes leaves none on one side: give more likes"
            )
        kept = _part(ratings, ~held)
        able = np.unique(ratings.users[held])
        judged = np.sort(rng.permutation(able)[: max(1, STACKED_SCORES // ratings.n_items)]).astype(np.int64)
        wanted, seen = _matrix(_part(ratings, held))[judged], _matrix(kept)[judged]
        tables = []
        for recommender in self.recommenders:
            tried = _copy(recommender).fit(kept)
            tables.append(_standardised(np.array(tried.scores(ratings.user_ids[judged]), np.float32), seen))
        self.weights_ = _best_weights(tables, seen, wanted)
        self.recommenders_ = [_copy(recommender).fit(ratings) for recommender in self.recommenders]
        self.ratings_ = ratings
        return self

    def _scores(self, rows: Ints) -> Float32s:
        likes, ids = _matrix(self.ratings_)[rows], self.ratings_.user_ids[rows]
        out = np.zeros((len(rows), self.ratings_.n_items), np.float32)
        for weight, recommender in zip(self.weights_, self.recommenders_, strict=True):
            if weight:
                out += np.float32(weight) * _standardised(np.array(recommender.scores(ids), np.float32), likes)
        return out


def _rows(model: Any, users: Any) -> Ints:
    """Numbers of users."""
    if not hasattr(model, "ratings_"):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet: call fit(likes) first")
    if users is None:
        return np.arange(model.ratings_.n_users)
    alone = isinstance(users, (str, bytes)) or not hasattr(users, "__len__")
    return (
        np.asarray(model.ratings_.find_users([users] if alone else users))
        if alone or len(users)
        else np.zeros(0, np.int64)
    )


def _matrix(ratings: Ratings) -> Any:
    """Likes as a sparse matrix of ones [users, items]."""
    liked = ratings.values > 0
    pairs = ratings.users[liked], ratings.items[liked]
    likes = scipy.sparse.csr_matrix((np.ones(len(pairs[0])), pairs), shape=ratings.shape)
    likes.data[:] = 1.0
    return likes


def _part(ratings: Ratings, flags: npt.NDArray[np.bool_]) -> Ratings:
    """Some ratings, among the same users and items."""
    columns = ratings.users[flags], ratings.items[flags], ratings.values[flags]
    return Ratings.numbered(*columns, ratings.user_ids, ratings.item_ids)


def _copy(recommender: Any) -> Any:
    """The estimator with the same settings, not fitted."""
    return type(recommender)(**recommender.get_params(deep=False))


def _inverse(matrix: Floats) -> tuple[Floats, float]:
    """The inverse and log-determinant of a positive definite matrix."""
    factor, _ = scipy.linalg.lapack.dpotrf(matrix, lower=1)
    lower = np.tril(scipy.linalg.lapack.dpotri(factor, lower=1)[0])
    return lower + np.tril(lower, -1).T, 2.0 * float(np.log(np.diagonal(factor)).sum())


def _best_ridge(likes: Any, gram: Floats) -> float:
    """Search a ladder of ridges for the least leave-one-user-out error, then the minimum of a parabola."""
    judged = likes[np.unique(np.linspace(0, likes.shape[0] - 1, MAX_JUDGED_USERS).astype(np.int64))]
    if len(gram) > MAX_JUDGED_ITEMS:
        popular = np.argsort(-np.diagonal(gram), kind="stable")[:MAX_JUDGED_ITEMS]
        judged, gram = judged[:, popular], gram[np.ix_(popular, popular)]
    errors: dict[int, float] = {}

    def error(step: int) -> float:
        if step not in errors:
            errors[step] = _loo_error(judged, gram, RIDGE_RATIO**step)
        return errors[step]

    best = round(np.log(max(np.diagonal(gram).mean(), 1.0)) / np.log(RIDGE_RATIO))
    for _ in range(MAX_RIDGES):
        lower = min((best - 1, best, best + 1), key=error)
        if lower == best:
            break
        best = lower
    left, here, right = (error(best + step) for step in (-1, 0, 1))
    curve = left - 2.0 * here + right
    return float(RIDGE_RATIO ** (best + (0.5 * (left - right) / curve if curve > 0.0 else 0.0)))


def _loo_error(likes: Any, gram: Floats, ridge: float) -> float:
    """Mean squared error of x_ij given the user's other items, under the posterior without user i.

    With P = (r I + XᵀX)⁻¹, y = P x_i and h = x_i · y, taking user i out adds y yᵀ/(1 − h) to P (Sherman and Morrison), so that
    the residual is y_j/(1 − h) over P_jj + y_j²/(1 − h).
    """
    inverse = _inverse(gram + ridge * np.eye(len(gram)))[0]
    total, batch = 0.0, max(1, BATCH_SCORES // len(gram))
    for first in range(0, likes.shape[0], batch):
        some = likes[first : first + batch]
        y = some @ inverse
        left = np.maximum(1.0 - np.asarray(some.multiply(y).sum(1)), 1e-12)
        total += float(((y / left / (np.diagonal(inverse) + y * y / left)) ** 2).sum())
    return float(total / (likes.shape[0] * likes.shape[1]))


def _standardised(scores: Float32s, seen: Any) -> Float32s:
    """Scores with mean 0 and variance 1 over the items that each user has not seen."""
    free = np.ones(scores.shape, bool)
    free[seen.nonzero()] = False
    n = np.maximum(free.sum(1, keepdims=True), 1)
    mean = np.where(free, scores, 0.0).sum(1, keepdims=True) / n
    spread = np.sqrt((np.where(free, scores - mean, 0.0) ** 2).sum(1, keepdims=True) / n)
    return np.asarray((scores - mean) / np.where(spread > 0.0, spread, 1.0), np.float32)


def _best_weights(tables: list[Float32s], seen: Any, wanted: Any) -> list[float]:
    """Search for the weights, of sum 1, with the highest NDCG of held-out likes: from the best alone, one exchange at a time."""
    for table in tables:
        table[seen.nonzero()] = -np.inf
    shown = min(SHOWN, wanted.shape[1])
    items, scores = np.empty((wanted.shape[0], shown), np.int64), np.empty((wanted.shape[0], shown), np.float32)
    nothing = np.zeros(wanted.shape[0] + 1, np.int64), np.empty(0, np.int32)

    def ndcg(weights: Floats) -> float:
        mixed = sum(np.float32(w) * table for w, table in zip(weights, tables, strict=True) if w)
        top_items(np.ascontiguousarray(mixed, np.float32), 0, *nothing, False, items, scores)
        return float(ranking_scores(items, wanted.indptr, wanted.indices)["ndcg"])

    alone = list(np.eye(len(tables)))
    best, weights = max(((ndcg(one), one) for one in alone), key=lambda tried: tried[0])
    for _ in range(MAX_EXCHANGES):
        tried = [(1.0 - part) * weights + part * one for one in alone for part in PARTS if weights @ one < 1.0]
        found, mixed = max(((ndcg(one), one) for one in tried), key=lambda tried: tried[0], default=(best, weights))
        if found <= best:
            break
        best, weights = found, mixed
    return [float(weight) for weight in weights]
