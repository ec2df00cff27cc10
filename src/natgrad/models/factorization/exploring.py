"""Ranking that knows how sure it is, and vectors for those who rank elsewhere: moments of users and items in, scores out.

a quantile     mean + z sd of u·v + b + c under q: a low one keeps to what is known, a high one tries what is not
               of counts θ·β, by the Gamma with its mean and variance; after Gibbs sampling a quantile over the draws
a draw         u and v drawn from q, and ranked by their product: Thompson sampling; after Gibbs sampling one of its draws
vectors        (u, b + m, 1) and (v, 1, c), whose inner product is the prediction
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.models.factorization.diversity import Alike, directions
from natgrad.models.factorization.predictors import (
    BernoulliPredictor,
    GaussianPredictor,
    PoissonPredictor,
    StarsPredictor,
)
from natgrad.models.factorization.sides import pair_moments
from natgrad.validation import OnlyWhere, real_number, whole_number

if TYPE_CHECKING:
    from natgrad.data.ratings import Ratings
    from natgrad.models.factorization.drawn import DrawnPredictor
    from natgrad.models.factorization.gibbs import KeptDraws
    from natgrad.models.factorization.likelihoods import LikelihoodModel

__all__ = ["BATCH_SCORES", "ExportMixin", "Vectors", "drawn_scores", "quantile_scores"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
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


class ExportMixin:
    """Levels, and vectors of a factorisation for others; of the estimator it needs ``ratings_`` and ``_predictor``."""

    if TYPE_CHECKING:
        ratings_: Ratings
        _predictor: Any
        _kept_draws: KeptDraws | None
        _kind: LikelihoodModel
        result_: Any
        user_factors_: Any
        item_factors_: Any
        user_biases_: Any
        item_biases_: Any

        def _check_fitted(self) -> None: ...

        def _pairs(self, users: Any, items: Any) -> tuple[Ints, Ints]: ...

        def _seen(self, rows: Ints | None) -> tuple[Ints, npt.NDArray[np.int32]]: ...

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
        if isinstance(predictor, (GaussianPredictor, BernoulliPredictor)):
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
