"""A fitted factorisation and users in; their best items, items like others, and scores on held-out ratings out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import joined_ids, same_words
from natgrad.data.rating_columns import pairs_in
from natgrad.data.rating_forms import are_ids, are_pairs, as_ratings
from natgrad.data.ratings import Ratings
from natgrad.models.factorization.diversity import candidates, checked_diversity, directions, diverse
from natgrad.models.factorization.exploring import BATCH_SCORES, ExportMixin
from natgrad.models.factorization.likelihoods import LikelihoodModel
from natgrad.models.factorization.metrics import ranking_scores
from natgrad.models.factorization.newcomers import alone_with
from natgrad.models.factorization.tables import check_columns, completed, halves, shape_of, visitor_scores, with_new
from natgrad.validation import as_numbers, whole_number

if TYPE_CHECKING:
    from natgrad.inference.engine import Result
    from natgrad.models.factorization.predictors import Predictor

__all__ = ["RecommendMixin", "Recommendations"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LOG = logging.getLogger("natgrad")
METRICS = ("log_likelihood", "rmse", "mae", "ndcg", "precision", "recall", "map")


class Recommendations(NamedTuple):
    """Ids of items, best first, and their scores: [n] for one user, [users, n] for several."""

    items: npt.NDArray[Any]
    scores: npt.NDArray[Any]


class RecommendMixin(ExportMixin):
    """Predictions, recommendations and scores; of the estimator it needs ``ratings_`` and ``_predictor``."""

    if TYPE_CHECKING:
        ratings_: Ratings
        _predictor: Predictor
        _kind: LikelihoodModel
        result_: Result

        def _check_fitted(self) -> None: ...
        def _needs_vb(self, what: str, instead: str) -> None: ...

    def predict(
        self, users: Any, items: Any = None, return_std: bool = False, *, unknown: Literal["prior", "error"] = "prior"
    ) -> Any:
        """The mean of a new rating for each pair (the probability of a like, the expected count).

        Parameters
        ----------
        users, items : ids as they were given to `fit`, of the same length
            Without ``items``, ``users`` is `Ratings`, or rows of user and item (an array [rows, 2] of ids, or a table with
            columns of such names); or a table [rows, items] with NaN for missing ratings, all of which is predicted, each row,
            of a known user or a new one, from its own ratings. An array [rows, 2] is such a table if there are two items.
        return_std : bool
            Whether its standard deviation, noise included, comes with it.
        unknown : what becomes of users and items that were not fitted
            "prior" predicts them from the prior that was learned, and logs how many there are; "error" refuses them.

        Examples
        --------
        >>> import natgrad as ng
        >>> ratings = ng.data.Ratings(["ann", "ann", "bob"], ["x", "y", "x"], [5, 3, 4])
        >>> model = ng.MatrixFactorization(2).fit(ratings)
        >>> known, new = model.predict(["ann", "zoe"], ["x", "x"], return_std=True)[1]
        >>> bool(new > known)
        True
        """
        self._check_fitted()
        if items is not None and (alone := alone_with(self, users)) is not None:
            return alone.predict(users, items, return_std, unknown=unknown)
        if isinstance(users, Ratings):
            users, items = users.user_ids[users.users], users.item_ids[users.items]
        # Two columns of whole numbers are a table of ratings where there are two items.
        if items is None and (pairs_in(users) is not None or (self.ratings_.n_items != 2 and are_ids(users))):
            predictor, rows, columns = self._found(as_ratings(users, np.zeros(len(users)), "keep"), unknown)
            mean, variance = predictor.pairs(rows, columns)
        elif items is None:
            mean, variance = completed(self._kind, self.result_.state, self.ratings_.item_ids, users)
        else:
            predictor, rows, columns = self._asked(users, items, unknown)
            mean, variance = predictor.pairs(rows, columns)
        return (mean, np.sqrt(variance)) if return_std else mean

    def interval(
        self, users: Any, items: Any, mass: float = 0.9, *, unknown: Literal["prior", "error"] = "prior"
    ) -> tuple[Floats, Floats]:
        """The ends of the central interval of a new rating with probability ``mass`` (of a like: of its probability).

        Parameters
        ----------
        users, items, unknown : as of `predict`
        mass : float
        """
        self._check_fitted()
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie between 0 and 1, got {mass!r}")
        predictor, rows, columns = self._asked(users, items, unknown)
        return predictor.interval(rows, columns, float(mass))

    def recommend(
        self, users: Any = None, n: int = 10, exclude_seen: bool = True, *, only: Any = None, exclude: Any = None,
        quantile: float | None = None, draw: int | None = None, diversity: float = 0.0,
    ) -> Recommendations:  # fmt: skip
        """The best items of one user, of several, or of all (None), in batches.

        Parameters
        ----------
        users : an id, a list of ids, or None
        n : int
            How many; fewer are given if there are not as many items left, with None as the ids of the rest.
        exclude_seen : bool
            Whether items that the user has rated are left out.
        only, exclude : ids of items, optional
            The only ones that are recommended (those in stock, of a kind), and those that are not.
        quantile : float, optional
            Rank by this quantile of what is expected instead of by its mean: 0.1 keeps to what is known to be good, 0.9 also
            tries what may be. After ``inference="gibbs"`` a quantile over its draws; of counts that of the expected count, by the
            Gamma with its mean and variance.
        draw : int, optional
            Rank by a draw from the posterior with this seed, another list for each: Thompson sampling. After
            ``inference="gibbs"`` the seed chooses one of the draws that were kept.
        diversity : float in [0, 1]
            How much likeness to the items before counts against a score: 0 is a list by scores alone. The best item is the
            first; the others are chosen one after another among the best 100, or ten times ``n``. Likeness is the correlation
            over the users of scores less each user's mean.

        Examples
        --------
        >>> import natgrad as ng
        >>> likes = ng.data.Ratings([0, 0, 1, 1, 2, 2, 3], list("abababa"))
        >>> model = ng.MatrixFactorization(likelihood="bernoulli").fit(likes)
        >>> model.recommend(3).items.tolist()[:1]
        ['b']
        >>> model.recommend(3, n=1, exclude_seen=False, exclude=["a"]).items.tolist()
        ['b']
        """
        self._check_fitted()
        share = checked_diversity(diversity)
        if not share and (few := alone_with(self, users)) is not None:
            options = {"only": only, "exclude": exclude, "quantile": quantile, "draw": draw}
            return Recommendations(*few.recommend(users, n, exclude_seen, **options))
        whole_number(n, "n")
        allowed = self._allowed(only, exclude)
        alone = users is not None and (isinstance(users, (str, bytes)) or not hasattr(users, "__len__"))
        rows = None if users is None else self.ratings_.find_users([users] if alone else users)
        among = candidates(n, self.ratings_.n_items) if share else n
        best = self._best(rows, among, exclude_seen, allowed, self._exploring(rows, quantile, draw))
        return self._named(*(diverse(*best, n, share, self._alike()) if share else best), alone)

    def recommend_for(
        self, liked: Any, n: int = 10, *, ratings: Any = None, only: Any = None, exclude: Any = None
    ) -> Recommendations:
        """The best other items of somebody who likes or rated these: a visitor whom the fit does not know, and who is not kept.

        Milliseconds, however many users there are; `fold_in` makes new users of any model known.

        Parameters
        ----------
        liked : ids of items
        ratings : numbers, optional
            What the visitor gave each of them; of likes, ones by default.
        n, only, exclude : as in `recommend`

        Examples
        --------
        >>> import natgrad as ng
        >>> likes = ng.data.Ratings([0, 0, 1, 1, 2, 2, 3], list("abababa"))
        >>> ng.MatrixFactorization(likelihood="bernoulli").fit(likes).recommend_for(["b"], n=1).items.tolist()
        ['a']
        """
        self._check_fitted()
        places = self.ratings_.find_items(liked, "liked")
        likelihood = self._kind.saved()["settings"]["likelihood"]
        if likelihood == "poisson":
            raise TypeError(
                'recommend_for is for ratings and likes, and this model has likelihood="poisson": use fold_in'
            )
        if likelihood == "bernoulli":
            values = np.ones(len(places)) if ratings is None else as_numbers(ratings, "ratings")
        else:
            if ratings is None:
                raise ValueError("a model of ratings needs ratings=, a number for each item that the visitor has rated")
            values = as_numbers(ratings, "ratings")
        if values.shape != places.shape:
            raise ValueError(f"ratings must be a number for each of {len(places)} items, got the shape {values.shape}")
        if len(np.unique(places)) < len(places):
            raise ValueError("liked names an item twice: a visitor gives one rating to each")
        scores = visitor_scores(self._kind, self.result_.state, self.ratings_.item_ids, places, values)
        scores[:, places] = -np.inf
        if (allowed := self._allowed(only, exclude)) is not None:
            scores[:, ~allowed] = -np.inf
        order = np.argsort(-scores[0], kind="stable")[: min(whole_number(n, "n"), scores.shape[1])]
        order = order[scores[0, order] > -np.inf]
        return Recommendations(self.ratings_.item_ids[order], scores[0, order])

    def because(self, user: Any, item: Any, n: int = 5) -> Recommendations:
        """What of a user's speaks most for an item, with what each adds to its score: "because you liked …".

        The remainder of a score is due to the prior and the biases, and of likes to the pairs that are not stored. Levels and
        likes are explained on the scale that they are ranked by. A fit that ended before it converged has sums beside its scores
        by as much as its next sweep would change them. It needs ``inference="vb"``.

        Examples
        --------
        >>> import natgrad as ng
        >>> likes = ng.data.Ratings([0, 0, 1, 1, 2, 2, 3], list("abababa"))
        >>> ng.MatrixFactorization(likelihood="bernoulli").fit(likes).because(3, "b").items.tolist()
        ['a']
        """
        self._check_fitted()
        self._needs_vb("because", "its draws are no sums over what a user has rated")
        if (alone := alone_with(self, user)) is not None:
            return Recommendations(*alone.because(user, item, n))
        row, place = int(self.ratings_.find_users([user])[0]), int(self.ratings_.find_items([item])[0])
        from natgrad.models.factorization.reasons import reasons

        found, parts = reasons(self._kind, self.result_.state, self.ratings_, row, place)
        order = np.argsort(-parts, kind="stable")[: whole_number(n, "n")]
        return Recommendations(self.ratings_.item_ids[found[order]], parts[order].astype(np.float32))

    def _allowed(self, only: Any, exclude: Any) -> npt.NDArray[np.bool_] | None:
        """Which items may be recommended; None if all."""
        if only is None and exclude is None:
            return None
        allowed = np.full(self.ratings_.n_items, only is None)
        if only is not None:
            allowed[self.ratings_.find_items(only, "only")] = True
        if exclude is not None:
            allowed[self.ratings_.find_items(exclude, "exclude")] = False
        return allowed

    def _named(self, items: Ints, scores: npt.NDArray[Any], alone: bool) -> Recommendations:
        ids = self.ratings_.item_ids
        named = ids[items] if (items >= 0).all() else ids.astype(object)[items]
        named[items < 0] = None if named.dtype == object else named[items < 0]
        scores = scores.astype(np.float64) + self._centred()[1]
        return Recommendations(named[0], scores[0]) if alone else Recommendations(named, scores)

    def similar_items(self, item: Any, n: int = 10) -> Recommendations:
        """The items whose predicted ratings go most along with those of one, over the users: correlations, best first."""
        self._check_fitted()
        place, n = int(self.ratings_.find_items([item], "item")[0]), whole_number(n, "n")
        toward = directions(*self._predictor.vectors())
        likeness = toward @ toward[place]
        likeness[place] = -np.inf
        best = np.argsort(-likeness, kind="stable")[: min(n, len(likeness) - 1)]
        return Recommendations(self.ratings_.item_ids[best], likeness[best].astype(np.float32))

    def score(self, X: Any, y: Any = None, *, metric: str = "log_likelihood", k: int = 10) -> float:
        """How well held-out ratings were foreseen.

        Parameters
        ----------
        X : ratings, as for `fit`
            Some users or items may be new: they are predicted from the prior. The rows of a table without ids are the users of
            the fit; more or fewer of them are new users, each half of whose ratings is predicted from the other.
        y : array of numbers [n], optional: the ratings, if X is rows of user and item
        metric : "log_likelihood", "rmse", "mae", "ndcg", "precision", "recall" or "map"
            The mean log predictive density (higher is better; a density also judges the uncertainty), errors of the mean, or
            how well the k best unseen items of each user match the held-out ones.
        k : int, for the last four
        """
        self._check_fitted()
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
        pairs = are_pairs(X, y)
        if not pairs:
            check_columns(X, self.ratings_.n_items)
        held = as_ratings(X, y)
        if metric in ("ndcg", "precision", "recall", "map"):
            known = self._pairs(held.user_ids[held.users], held.item_ids[held.items])
            return self._ranking(*known, whole_number(k, "k"))[metric]
        if not pairs and shape_of(X)[:1] not in ((), (self.ratings_.n_users,)):
            parts = list(halves(self._kind, self.result_.state, self.ratings_.item_ids, held))
        else:
            parts = [(*self._found(held), held.values)]
        by_chunk = [
            predictor.log_density(rows, columns, values)
            if metric == "log_likelihood"
            else values - predictor.pairs(rows, columns)[0]
            for predictor, rows, columns, values in parts
        ]
        each = np.concatenate(by_chunk)
        if metric == "log_likelihood":
            return float(np.mean(each))
        return float(np.sqrt(np.mean(each**2)) if metric == "rmse" else np.mean(np.abs(each)))

    def _asked(self, users: Any, items: Any, unknown: str) -> tuple[Predictor, Ints, Ints]:
        """Who predicts pairs of ids, and their numbers."""
        lists = all(hasattr(ids, "__len__") and not isinstance(ids, str) for ids in (users, items))
        if unknown == "prior" and lists and len(users) == len(items) > 0:
            return self._found(Ratings(users, items, np.zeros(len(users)), duplicates="keep"), unknown)
        _check_unknown(unknown)
        return self._predictor, *self._pairs(users, items)

    def _found(self, held: Ratings, unknown: str = "prior") -> tuple[Predictor, Ints, Ints]:
        """Who predicts, and the numbers of users and items; new ones are behind the known."""
        _check_unknown(unknown)
        known = self.ratings_
        sides = (known.user_ids, held.user_ids), (known.item_ids, held.item_ids)
        (user_ids, user), (item_ids, item) = (joined_ids(*ids) for ids in sides)
        new = len(user_ids) - known.n_users, len(item_ids) - known.n_items
        if new == (0, 0):
            return self._predictor, user[held.users], item[held.items]
        # Text for numbers, and counts, whose new rows have no prior here: an error with the first such id.
        foreign = (new[0] == held.n_users, new[1] == held.n_items)
        counts = self._kind.saved()["settings"]["likelihood"] == "poisson"
        misspelled = any(same_words(*ids) for ids, is_so in zip(sides, foreign, strict=True) if is_so)
        if unknown == "error" or counts or misspelled:
            self._pairs(held.user_ids[held.users], held.item_ids[held.items])
        LOG.info("%d users and %d items are not among those fitted: predicted from the prior", *new)
        larger = with_new(self._kind, self.result_.state, *new)
        if self._kept_draws is not None:
            from natgrad.models.factorization.drawn import PartlyDrawn

            drawn: Any = self._predictor
            larger = PartlyDrawn(larger, drawn)
        return larger, user[held.users], item[held.items]

    def _ranking(self, rows: Ints, columns: Ints, k: int) -> dict[str, float]:
        users, inverse = np.unique(rows, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        start = np.searchsorted(inverse[order], np.arange(len(users) + 1))
        return ranking_scores(self._best(users, k, True)[0], start, columns[order])

    def _best(
        self,
        rows: Ints | None,
        n: int,
        exclude_seen: bool,
        allowed: npt.NDArray[np.bool_] | None = None,
        scorer: Callable[[slice], npt.NDArray[np.float32]] | None = None,
    ) -> tuple[Ints, npt.NDArray[np.float32]]:
        """Numbers of the best items, and their scores; ``rows`` None means all users."""
        from natgrad.kernels.factorization.top_items import top_items

        n_rows = self.ratings_.n_users if rows is None else len(rows)
        scores_of = self._scorer(rows) if scorer is None else scorer
        seen_start, seen = self._seen(rows) if exclude_seen else (np.zeros(n_rows + 1, np.int64), np.empty(0, np.int32))
        best = np.empty((n_rows, n), dtype=np.int64), np.empty((n_rows, n), dtype=np.float32)
        batch = max(1, BATCH_SCORES // self.ratings_.n_items)
        for first in range(0, n_rows, batch):
            some = slice(first, first + batch)
            scores = scores_of(some)
            if allowed is not None:
                scores[:, ~allowed] = -np.inf
            top_items(scores, first, seen_start, seen, exclude_seen, best[0][some], best[1][some])
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


def _check_unknown(unknown: str) -> None:
    if unknown not in ("prior", "error"):
        raise ValueError(f'unknown must be "prior" or "error", got {unknown!r}')
