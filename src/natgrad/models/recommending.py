"""A fitted factorisation and users in; their best items, items like others, and scores on held-out ratings out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.rating_columns import pairs_in
from natgrad.data.rating_files import as_ratings
from natgrad.models.rating_metrics import ranking_scores
from natgrad.models.rating_tables import check_columns, completed
from natgrad.network.checks import whole_number

if TYPE_CHECKING:
    from natgrad.data.ratings import Ratings
    from natgrad.inference.engine import Result
    from natgrad.models.predictors import Predictor
    from natgrad.models.rating_kinds import Kind

__all__ = ["RecommendMixin", "Recommendations"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Scores of a batch of users take this many numbers, so that the best are looked for while they are in the cache.
BATCH_SCORES = 2_000_000
METRICS = ("log_likelihood", "rmse", "mae", "ndcg", "recall", "map")


class Recommendations(NamedTuple):
    """Ids of items, best first, and their scores: [n] for one user, [users, n] for several."""

    items: npt.NDArray[Any]
    scores: npt.NDArray[np.float32]


class RecommendMixin:
    """Predictions, recommendations and scores; of the estimator it needs ``ratings_`` and ``_predictor``."""

    if TYPE_CHECKING:
        ratings_: Ratings
        _predictor: Predictor
        _kind: Kind
        result_: Result

        def _check_fitted(self) -> None: ...

    def predict(self, users: Any, items: Any = None, return_std: bool = False) -> Any:
        """The mean of a new rating for each pair (the probability of a like, the expected count).

        Parameters
        ----------
        users, items : ids as they were given to `fit`, of the same length
            Without ``items``, ``users`` is a table with columns named user and item or alike, or a table [rows, items] with NaN
            for missing ratings, all of which is predicted; each row, of a known user or a new one, from its own ratings.
        return_std : bool
            Whether its standard deviation, noise included, comes with it.
        """
        self._check_fitted()
        if items is None and (named := pairs_in(users)) is not None:
            users, items = named
        if items is None:
            mean, variance = completed(self._kind, self.result_.state, self.ratings_.item_ids, users)
        else:
            mean, variance = self._predictor.pairs(*self._pairs(users, items))
        return (mean, np.sqrt(variance)) if return_std else mean

    def interval(self, users: Any, items: Any, mass: float = 0.9) -> tuple[Floats, Floats]:
        """The ends of the central interval of a new rating with probability ``mass`` (of a like: of its probability)."""
        self._check_fitted()
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie between 0 and 1, got {mass!r}")
        return self._predictor.interval(*self._pairs(users, items), float(mass))

    def recommend(self, users: Any = None, n: int = 10, exclude_seen: bool = True) -> Recommendations:
        """The best items of one user, of several, or of all (None), in batches.

        Parameters
        ----------
        users : an id, a list of ids, or None
        n : int
            How many; fewer are given if there are not as many items left, with None as the ids of the rest.
        exclude_seen : bool
            Whether items that the user has rated are left out.
        """
        self._check_fitted()
        whole_number(n, "n")
        alone = users is not None and (isinstance(users, (str, bytes)) or not hasattr(users, "__len__"))
        rows = None if users is None else self.ratings_.find_users([users] if alone else users)
        found, scores = self._best(rows, n, exclude_seen)
        ids = self.ratings_.item_ids
        named = ids[found] if (found >= 0).all() else ids.astype(object)[found]
        named[found < 0] = None if named.dtype == object else named[found < 0]
        return Recommendations(named[0], scores[0]) if alone else Recommendations(named, scores)

    def similar_items(self, item: Any, n: int = 10) -> Recommendations:
        """The items whose predicted ratings go most along with those of one, over the users: correlations, best first."""
        self._check_fitted()
        place = int(self.ratings_.find_items([item], "item")[0])
        users, items = self._predictor.vectors()
        centred = users - users.mean(0)
        spread = centred.T @ centred / len(users)
        covariance = items @ (spread @ items[place])
        lengths = np.sqrt(np.maximum(np.einsum("id,de,ie->i", items, spread, items), 1e-300))
        likeness = covariance / (lengths * lengths[place])
        likeness[place] = -np.inf
        best = np.argsort(-likeness, kind="stable")[: min(n, len(items) - 1)]
        return Recommendations(self.ratings_.item_ids[best], likeness[best].astype(np.float32))

    def score(self, X: Any, y: None = None, *, metric: str = "log_likelihood", k: int = 10) -> float:
        """How well held-out ratings were foreseen.

        Parameters
        ----------
        X : ratings, as for `fit`; users and items must be known
        metric : "log_likelihood", "rmse", "mae", "ndcg", "recall" or "map"
            The mean log predictive density (higher is better; a density also judges the uncertainty), errors of the mean, or
            how well the k best unseen items of each user match the held-out ones.
        k : int, for the last three
        """
        self._check_fitted()
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
        check_columns(X, self.ratings_.n_items)
        held = as_ratings(X)
        rows, columns = self._pairs(held.user_ids[held.users], held.item_ids[held.items])
        if metric in ("ndcg", "recall", "map"):
            return self._ranking(rows, columns, whole_number(k, "k"))[metric]
        if metric == "log_likelihood":
            return float(np.mean(self._predictor.log_density(rows, columns, held.values)))
        errors = held.values - self._predictor.pairs(rows, columns)[0]
        return float(np.sqrt(np.mean(errors**2)) if metric == "rmse" else np.mean(np.abs(errors)))

    def _ranking(self, rows: Ints, columns: Ints, k: int) -> dict[str, float]:
        users, inverse = np.unique(rows, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        start = np.searchsorted(inverse[order], np.arange(len(users) + 1))
        return ranking_scores(self._best(users, k, True)[0], start, columns[order])

    def _best(self, rows: Ints | None, n: int, exclude_seen: bool) -> tuple[Ints, npt.NDArray[np.float32]]:
        """Numbers of the best items, and their scores; ``rows`` None means all users."""
        from natgrad.kernels.top_items import top_items

        left, right = (np.ascontiguousarray(part, dtype=np.float32) for part in self._predictor.vectors())
        if rows is not None:
            left = left[rows]
        seen_start, seen = (
            self._seen(rows) if exclude_seen else (np.zeros(len(left) + 1, np.int64), np.empty(0, np.int32))
        )
        best = np.empty((len(left), n), dtype=np.int64), np.empty((len(left), n), dtype=np.float32)
        batch = max(1, BATCH_SCORES // len(right))
        turned = np.ascontiguousarray(right.T)
        for first in range(0, len(left), batch):
            some = slice(first, first + batch)
            top_items(left[some] @ turned, first, seen_start, seen, exclude_seen, best[0][some], best[1][some])
        return best

    def _seen(self, rows: Ints | None) -> tuple[Ints, npt.NDArray[np.int32]]:
        grouped = self.ratings_.sorted_by_user
        if rows is None:
            return grouped.start, grouped.other
        degree = np.diff(grouped.start)[rows]
        start = np.concatenate([[0], np.cumsum(degree)])
        places = np.repeat(grouped.start[rows] - start[:-1], degree) + np.arange(start[-1])
        return start, grouped.other[places]

    def _pairs(self, users: Any, items: Any) -> tuple[Ints, Ints]:
        rows, columns = self.ratings_.find_users(users), self.ratings_.find_items(items)
        if len(rows) != len(columns):
            raise ValueError(f"users and items must have the same length, got {len(rows)} and {len(columns)}")
        return rows, columns
