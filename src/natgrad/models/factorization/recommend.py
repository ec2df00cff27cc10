"""Recommend items, rank them by uncertainty, and score a fitted factorisation on held-out ratings.

a quantile     mean + z sd of u·v + b + c under q: a low one keeps to what is known, a high one tries what is not
               of counts θ·β, by the Gamma with its mean and variance; after Gibbs sampling a quantile over the draws
a draw         u and v drawn from q, and ranked by their product: Thompson sampling; after Gibbs sampling one of its draws
vectors        (u, b + m, 1) and (v, 1, c), whose inner product is the prediction
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.data.ids import joined_ids, same_words
from natgrad.data.rating_columns import pairs_in
from natgrad.data.rating_forms import are_ids, are_pairs, as_ratings
from natgrad.data.ratings import Ratings
from natgrad.models.factorization.likelihoods import LikelihoodModel
from natgrad.models.factorization.metrics import ranking_scores
from natgrad.models.factorization.predictors import (
    GaussianPredictor,
    LikesPredictor,
    PoissonPredictor,
    StarsPredictor,
)
from natgrad.models.factorization.rows import (
    alone_with,
    check_columns,
    completed,
    halves,
    shape_of,
    visitor_scores,
    with_new,
)
from natgrad.models.factorization.sides import pair_moments
from natgrad.validation import OnlyWhere, as_numbers, real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.ratings import Ratings
    from natgrad.inference.engine import Result
    from natgrad.models.factorization.drawn import DrawnPredictor
    from natgrad.models.factorization.gibbs import KeptDraws
    from natgrad.models.factorization.likelihoods import LikelihoodModel
    from natgrad.models.factorization.predictors import Predictor

__all__ = [
    "BATCH_SCORES",
    "Alike",
    "RecommendMixin",
    "Recommendations",
    "Vectors",
    "candidates",
    "checked_diversity",
    "directions",
    "diverse",
    "drawn_scores",
    "quantile_scores",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LOG = logging.getLogger("natgrad")
METRICS = ("log_likelihood", "rmse", "mae", "ndcg", "precision", "recall", "map")


class Recommendations(NamedTuple):
    """Ids of items, best first, and their scores: [n] for one user, [users, n] for several."""

    items: npt.NDArray[Any]
    scores: npt.NDArray[Any]


class RecommendMixin:
    """Predictions, recommendations and scores; of the estimator it needs ``ratings_`` and ``_predictor``."""

    if TYPE_CHECKING:
        ratings_: Ratings
        _predictor: Any
        _kept_draws: KeptDraws | None
        _kind: LikelihoodModel
        result_: Result
        user_factors_: Any
        item_factors_: Any
        user_biases_: Any
        item_biases_: Any

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
        larger = with_new(self._kind, self.result_.state, *new, self.ratings_)
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

    @OnlyWhere(
        lambda model: model.likelihood == "ordinal",
        'needs an ordinal scale, likelihood="ordinal"; `predict` gives means',
    )
    def predict_proba(self, users: Any, items: Any) -> npt.NDArray[np.float64]:
        """The probability of each level of an ordinal scale [n, levels], in the order of `levels_`.

        Parameters
        ----------
        users, items : ids as they were given to `fit`, of the same length

        Examples
        --------
        >>> import natgrad as ng
        >>> ratings = ng.data.Ratings([0, 0, 1, 1, 2, 2], list("ababab"), [5, 1, 4, 2, 5, 2])
        >>> model = ng.MatrixFactorization(2, likelihood="ordinal").fit(ratings)
        >>> model.predict_proba([0], ["a"]).shape == (1, len(model.levels_))
        True
        """
        self._check_fitted()
        predictor: StarsPredictor = self._predictor
        return predictor.probabilities(*self._pairs(users, items))

    def vectors(self) -> Vectors:
        """Vectors whose inner products are the scores that `recommend` ranks by.

        Averages over draws (``inference="gibbs"``) have the vectors of all draws side by side, some thousand columns.

        Examples
        --------
        >>> import natgrad as ng
        >>> ratings = ng.data.Ratings([0, 0, 1, 1, 2], list("ababa"), [5.0, 1.0, 4.0, 2.0, 5.0])
        >>> model = ng.MatrixFactorization(2).fit(ratings)
        >>> users, items, user_ids, item_ids = model.vectors()
        >>> bool(np.allclose(users[0] @ items[1], model.predict([0], ["b"])[0], atol=1e-5))
        True
        """
        self._check_fitted()
        users, items = (np.ascontiguousarray(part, dtype=np.float32) for part in self._predictor.vectors())
        return Vectors(users, items, self.ratings_.user_ids, self.ratings_.item_ids)

    def scores(self, users: Any = None) -> Float32s:
        """Compute the score that `recommend` ranks by of every item for some users, or all [users, items].

        Items are in the order of ``ratings_.item_ids``.
        """
        self._check_fitted()
        rows = None if users is None else self.ratings_.find_users(users)
        n_rows = self.ratings_.n_users if rows is None else len(rows)
        return np.asarray(self._scorer(rows)(slice(0, n_rows)) + np.float32(self._centred()[1]))

    def _scorer(self, rows: Ints | None) -> Scores:
        """Scores of all items for a run of the users in ``rows``, less what all have."""
        predictor = self._centred()[0]
        if self._kept_draws is not None:
            users = np.arange(self.ratings_.n_users) if rows is None else rows
            return lambda some: predictor.scores(users[some])
        left, right = (np.ascontiguousarray(part, dtype=np.float32) for part in predictor.vectors())
        mine, turned = left if rows is None else left[rows], np.ascontiguousarray(right.T)
        return lambda some: mine[some] @ turned

    def _centred(self) -> tuple[Any, float]:
        """Who predicts scores less the number that all of them have in common, and that number.

        Scores are ranked in single precision, which would not tell those of ratings around a million from one another.
        """
        predictor = self._predictor
        if self._kept_draws is not None:
            return predictor._replace(q=predictor.q._replace(offset=0.0)), float(predictor.q.offset)
        if isinstance(predictor, (GaussianPredictor, LikesPredictor)):
            return predictor._replace(offset=0.0), float(predictor.offset)
        return predictor, 0.0

    def export_factors(self, folder: str | Path) -> tuple[Path, Path]:
        """Write ``users.parquet`` and ``items.parquet``: id, mean and sd of factors and bias, and the vector of `vectors`.

        Parameters
        ----------
        folder : made if it is not there; files of these names are replaced
        """
        self._check_fitted()
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ImportError(
                'export_factors writes Parquet, which needs PyArrow: pip install "natgrad[data]"'
            ) from None
        where, named = Path(folder), self.vectors()
        where.mkdir(parents=True, exist_ok=True)
        sides = (
            ("users", named.user_ids, named.users, self.user_factors_, self.user_biases_),
            ("items", named.item_ids, named.items, self.item_factors_, self.item_biases_),
        )
        paths = []
        for name, ids, vectors, factors, biases in sides:
            columns = {"id": pyarrow.array(ids.tolist()), "vector": pyarrow.array(list(vectors))}
            if factors is not None:
                columns |= {"mean": pyarrow.array(list(factors.mean)), "sd": pyarrow.array(list(factors.sd))}
            if biases is not None:
                columns |= {"bias": pyarrow.array(biases.mean), "bias_sd": pyarrow.array(biases.sd)}
            paths.append(where / f"{name}.parquet")
            pyarrow.parquet.write_table(pyarrow.table(columns), paths[-1])
        return paths[0], paths[1]

    def _alike(self) -> Alike:
        users, items = self._predictor.vectors()
        toward = directions(users, items - items.mean(0))  # without what a user gives all items alike
        return lambda items: toward[items] @ toward[items].T

    def _exploring(self, rows: Ints | None, quantile: Any, draw: Any) -> Scores | None:
        """Scores by a quantile or a draw; None if neither is asked for."""
        if quantile is None and draw is None:
            return None
        if quantile is not None and draw is not None:
            raise ValueError("quantile= and draw= are two ways to rank: give one of them")
        users = np.arange(self.ratings_.n_users) if rows is None else rows
        seed = None if draw is None else whole_number(draw, "draw", least=0)
        if quantile is not None and not 0 < real_number(quantile, "quantile") < 1:
            raise ValueError(f"quantile must lie in (0, 1), got {quantile!r}")
        predictor = self._centred()[0]
        if self._kept_draws is not None:
            return _of_draws(predictor, users, quantile, seed)
        if seed is not None:
            return drawn_scores(predictor, users, seed)
        return quantile_scores(predictor, users, float(quantile))


def _check_unknown(unknown: str) -> None:
    if unknown not in ("prior", "error"):
        raise ValueError(f'unknown must be "prior" or "error", got {unknown!r}')


Float32s = npt.NDArray[np.float32]
Scores = Callable[[slice], Float32s]
# Scores of a batch of users take this many numbers, so that the best are looked for while they are in the cache.
BATCH_SCORES = 2_000_000


class Vectors(NamedTuple):
    """Single-precision vectors [users, D] and [items, D] whose inner products are the scores, or near them; ids of their rows.

    As libraries of nearest neighbours take them: ``faiss.IndexFlatIP(D).add(items)``. Biases have a column of their own, against
    one of ones on the other side.
    """

    users: Float32s
    items: Float32s
    user_ids: npt.NDArray[Any]
    item_ids: npt.NDArray[Any]


def quantile_scores(predictor: Any, users: Ints, quantile: float) -> Scores:
    """The quantile of u·v + b + c of every item, for a run of the users; of counts that of θ·β."""
    items = np.arange(len(predictor.item[0]))

    def scores(some: slice) -> Float32s:
        rows = users[some]
        pairs = np.repeat(rows, len(items)), np.tile(items, len(rows))
        at = _rate_quantiles if isinstance(predictor, PoissonPredictor) else _latent_quantiles
        return at(predictor, *pairs, quantile).reshape(len(rows), len(items)).astype(np.float32)

    return scores


def _rate_quantiles(predictor: PoissonPredictor, rows: Ints, columns: Ints, quantile: float) -> Floats:
    """Of the Gamma with the mean and variance of θ·β: what the intervals of counts mix their Poissons by."""
    mean, of_counts = predictor.pairs(rows, columns)
    relative = (of_counts - mean) / mean**2
    unsure = relative > np.finfo(np.float64).eps  # below that rounding is all there is
    scale = np.where(unsure, relative, 1.0)
    return np.where(unsure, mean * scale * special.gammaincinv(1.0 / scale, quantile), mean)


def _latent_quantiles(predictor: Any, rows: Ints, columns: Ints, quantile: float) -> Floats:
    mean, variance = _latent(predictor, rows, columns)
    return np.asarray(mean + float(special.ndtri(quantile)) * np.sqrt(variance))


def _of_draws(predictor: DrawnPredictor, users: Ints, quantile: float | None, seed: int | None) -> Scores:
    """By a quantile over the draws of Gibbs sampling, or by one of them."""
    if seed is None:
        assert quantile is not None
        level = float(quantile)
        return lambda some: predictor.quantiles(users[some], level)
    left, right = predictor.one(int(np.random.default_rng(seed).integers(len(predictor.draws.noise))))
    mine, turned = left[users].astype(np.float32), np.ascontiguousarray(right.T, dtype=np.float32)
    return lambda some: mine[some] @ turned


def _latent(predictor: Any, rows: Ints, columns: Ints) -> tuple[Floats, Floats]:
    """Mean and variance without noise of what is ranked."""
    mean, variance = pair_moments(rows, columns, predictor.user, predictor.item, predictor.biased)
    return mean + predictor.offset, np.maximum(variance, 0.0)


def drawn_scores(predictor: Any, users: Ints, seed: int) -> Scores:
    """u·v + b + c with vectors drawn from q, one draw of each; the same items for all users."""
    rng = np.random.default_rng(seed)
    drawn = _drawn_gammas if isinstance(predictor, PoissonPredictor) else _drawn
    items = drawn(predictor.item, None, rng)
    everybody = drawn(predictor.user, users, rng)
    moments = {"user": (everybody, predictor.user[1]), "item": (items, predictor.item[1])}
    left, right = predictor._replace(**moments).vectors()
    left, right = left.astype(np.float32), np.ascontiguousarray(right.T, dtype=np.float32)
    return lambda some: left[some] @ right


def _drawn(moments: Any, rows: Ints | None, rng: np.random.Generator) -> Floats:
    mean, second = moments if rows is None else (part[rows] for part in moments)
    noise = rng.standard_normal(mean.shape)
    if second.ndim == mean.ndim:
        return np.asarray(mean + np.sqrt(np.maximum(second - mean**2, 0.0)) * noise)
    values, axes = np.linalg.eigh(second - mean[:, :, None] * mean[:, None, :])
    return np.asarray(mean + np.einsum("rde,re->rd", axes, np.sqrt(np.maximum(values, 0.0)) * noise))


def _drawn_gammas(moments: Any, rows: Ints | None, rng: np.random.Generator) -> Floats:
    mean, second = moments if rows is None else (part[rows] for part in moments)
    # Of counts beyond 10¹⁵ the difference is rounding, and may be 0.
    scale = np.maximum((second - mean**2) / mean, np.finfo(np.float64).eps * mean)
    return np.asarray(scale * rng.standard_gamma(mean / scale))


# Correlations [n, n] of some items.
Alike = Callable[[Ints], Floats]
# Candidates of a list: so many for each item of it, and at least so many.
FOR_EACH, LEAST = 10, 100


def checked_diversity(diversity: Any) -> float:
    """A number in [0, 1]."""
    if not 0 <= (share := real_number(diversity, "diversity")) <= 1:
        raise ValueError(
            f"diversity must lie in [0, 1], got {diversity!r}: 0 ranks by scores alone, 1 by unlikeness after the first"
        )
    return share


def candidates(n: int, n_items: int) -> int:
    """From how many of the best items a list of n is chosen."""
    return max(n, min(n_items, max(LEAST, FOR_EACH * n)))


def diverse(
    items: Ints, scores: npt.NDArray[np.float32], n: int, share: float, alike: Alike
) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Choose lists of n [users, n] among candidates [users, more], best first; −1 stands where there are no more.

    The best item is the first. Each next one has, with candidates' scores s of standard deviation σ and correlations ρ of items,

        max_j  (1 − d) (s_j − s_1)/σ − d max_{c chosen} ρ_jc

    (Carbonell and Goldstein, 1998), so that lists do not depend on the unit of scores. ρ is the correlation over the users: of
    the scores of two items less the user's mean over all items.
    """
    out = np.full((len(items), n), -1, dtype=np.int64), np.full((len(items), n), -np.inf, dtype=np.float32)
    for row, (all_of, all_scores) in enumerate(zip(items, scores, strict=True)):
        there = all_of >= 0
        mine, worth = all_of[there], all_scores[there]
        order = _order(worth.astype(np.float64), alike(mine), min(n, len(mine)), share) if len(mine) else []
        out[0][row, : len(order)], out[1][row, : len(order)] = mine[order], worth[order]
    return out


def _order(scores: Floats, alike: Floats, n: int, share: float) -> list[int]:
    spread = float(scores.std())
    worth = (1.0 - share) * (scores - scores[0]) / (spread if spread > 0.0 else 1.0)
    chosen, nearest = [0], alike[0].copy()
    left = np.ones(len(scores), dtype=bool)
    left[0] = False
    while len(chosen) < n:
        best = int(np.argmax(np.where(left, worth - share * nearest, -np.inf)))
        chosen.append(best)
        left[best] = False
        nearest = np.maximum(nearest, alike[best])
    return chosen


def directions(users: Floats, items: Floats) -> Floats:
    """Vectors of items of length 1 [items, D] whose inner products are the correlations of their scores over the users."""
    centred = users - users.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(users))
    turned = items @ (axes * np.sqrt(np.maximum(values, 0.0)))
    return np.asarray(turned / np.sqrt(np.maximum(np.einsum("id,id->i", turned, turned), 1e-300))[:, None])
