"""Likes: stored likes and dislikes by the logistic function, or one class, where every pair counts.

P(1) = σ(m + u · v + b + c) is the model of stored likes and dislikes, ``n_negatives=0``, by the bound of
`natgrad.models.factorization.links`. By default every pair counts (`one_class`): a pair that is not stored is a zero whose log
density counts in part, by how many likes its user has,

    x_ij ~ N(u_i · v_j + b_i + c_j, 1/τ)
    weight 1 where x_ij is stored, N n_i / (N n_i + m_i) elsewhere      n_i likes and m_i pairs not stored of user i

with N = ``n_negatives``: who has many likes has looked at many items, so that a missing like tells more. This is weighted
alternating least squares (Hu, Koren and Volinsky, 2008) with weights of users, in the spirit of the exposure of Liang et al.
(2016), with a posterior in place of point estimates, and with noise and precisions learned by the bound. It costs the stored
pairs, since all rows share one sum over the other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.data.ratings import Ratings
from natgrad.inference.methods import Method
from natgrad.inference.problem import State
from natgrad.models.factorization.likelihoods import RatingSettings, VectorModel
from natgrad.models.factorization.predictors import LikesPredictor, Predictor
from natgrad.models.factorization.problem import counted_pairs, unseen_weights

__all__ = ["Likes", "one_class"]

# Dislikes that the pairs of a user which are not stored weigh as much as, for each like, where ``n_negatives`` is left out.
DEFAULT_NEGATIVES = 6.0


@final
class Likes(VectorModel):
    """Stored likes and dislikes, and no other pairs."""

    def __init__(
        self,
        settings: RatingSettings,
        ratings: Ratings,
        learned: Mapping[str, Any] | None = None,
        features: Mapping[str, npt.NDArray[np.float64]] | None = None,
    ) -> None:
        super().__init__(settings, learned or _learned(settings, ratings), features)
        self.link = self.offset

    def _check(self, ratings: Ratings, exact: bool, method: Method | None) -> None:
        _n_likes(ratings)

    def predictor(self, state: State, ratings: Ratings) -> Predictor:
        """Probabilities."""
        return LikesPredictor(state.mu["u"], state.mu["v"], self.settings.biases, self.offset)


def one_class(settings: RatingSettings, ratings: Ratings) -> dict[str, Any]:
    """What pairs that are not stored count, and the variance of all pairs with these weights."""
    negatives = DEFAULT_NEGATIVES if settings.n_negatives is None else float(settings.n_negatives)
    share = _n_likes(ratings) / counted_pairs(ratings, unseen_weights(ratings, negatives))
    return {"offset": 0.0, "variance": max(share * (1.0 - share), 1e-6), "negatives": negatives}


def _n_likes(ratings: Ratings) -> int:
    if (bad := np.flatnonzero((ratings.values != 0) & (ratings.values != 1))).size:
        raise ValueError(
            f'likelihood="bernoulli" takes 1 (like) and 0 (dislike), or 1 alone, got values[{bad[0]}] = '
            f"{ratings.values[bad[0]]:g} ({len(bad)} such)"
        )
    if not ratings.values.any():
        raise ValueError('likelihood="bernoulli": there are only dislikes (0); nothing can be learned from them')
    return int(ratings.values.sum())


def _learned(settings: RatingSettings, ratings: Ratings) -> dict[str, Any]:
    likes = _n_likes(ratings)
    if likes == len(ratings):
        raise ValueError(
            "n_negatives=0: there are only likes (1), and without other pairs nothing can be learned from them; leave out "
            "n_negatives=, so that every pair counts"
        )
    return {"offset": float(special.logit(likes / len(ratings))) if settings.biases else 0.0}
