"""Likes as the engine's Problem: y_n ~ Bernoulli(σ(f_n)), f_n = m + u_i · v_j + b_i + c_j, through a bound that is Gaussian in f.

    log p(y | f) ≥ (y − ½) f − ½ ω (f² − ξ²) + log σ(ξ) − ½ ξ,   ω = tanh(ξ/2) / (2 ξ),   ξ² = E[f²]

(Jaakkola and Jordan, 2000; ω is the mean of a Pólya–Gamma variable.) Given ω these are ratings (y − ½)/ω − m with noise
precision ω, and the rest is `natgrad.models.factorization.problem`. ξ is renewed before each sweep, so the bound of a sweep
never falls.

That is the model of stored likes and dislikes, ``n_negatives=0``. By default every pair counts (`one_class`): a pair that is not
stored is a zero whose log density counts as ``n_negatives`` parts of the likes, spread evenly,

    x_ij ~ N(u_i · v_j + b_i + c_j, 1/τ)
    weight 1 where x_ij is stored, c = min(1, n_negatives · likes / pairs not stored) elsewhere

which is weighted alternating least squares (Hu, Koren and Volinsky, 2008) with a posterior in place of point estimates, and with
noise and precisions learned by the bound. It costs the stored pairs, since all rows share one sum over the other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Phase
from natgrad.inference.methods import VB, Method
from natgrad.inference.problem import Block, BlockInfo, ChildSet, EdgeProblem, Sampled, State, SweepResult
from natgrad.inference.rotation import Rotation
from natgrad.kernels.factorization.gather import sum_rows
from natgrad.models.factorization.blending import owned
from natgrad.models.factorization.likelihoods import (
    ROUNDS,
    WARM_UP,
    RatingSettings,
    features_of,
    folded_state,
    folded_users,
    narrowed,
    with_fresh_rows,
)
from natgrad.models.factorization.logistic import Link, linked
from natgrad.models.factorization.parts import Likes as SentLikes
from natgrad.models.factorization.parts import PlacedRows
from natgrad.models.factorization.predictors import BernoulliPredictor, Predictor
from natgrad.models.factorization.problem import FullRatingsProblem, RatingPriors
from natgrad.models.factorization.sides import OTHER, SideRatings, packed

__all__ = ["Likes", "LikesProblem", "one_class"]

Floats = npt.NDArray[np.float64]
# Dislikes that all pairs which are not stored weigh as much as, for each like, where ``n_negatives`` is left out.
DEFAULT_NEGATIVES = 6.0


@final
class LikesProblem(EdgeProblem):
    """Likes and dislikes, or levels.

    Parameters
    ----------
    ratings : Ratings of 1 and 0, or on the scale of the cutpoints
    n_factors : int, K
    priors : RatingPriors, with known noise 1
    link : float or Cuts
        m of likes, or the cutpoints of levels.
    hold, features : as in `FullRatingsProblem`
    """

    shards_by_row = True

    extrapolated = ("u", "v")

    def __init__(
        self,
        ratings: Ratings,
        n_factors: int,
        priors: RatingPriors,
        link: Link,
        hold: bool = False,
        features: Mapping[str, Floats] | None = None,
    ) -> None:
        self.ratings, self.priors, self.link = ratings, priors, link
        self.inner = FullRatingsProblem(ratings, n_factors, priors, hold, features)
        self.order = self.inner.order
        self.n_factors, self.size = n_factors, self.inner.size

    @property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """Those of ratings."""
        return self.inner.blocks

    @property
    def observed(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """All pairs."""
        return self.inner.observed

    def child_sets(self, name: str) -> list[ChildSet]:
        """Those of ratings."""
        return self.inner.child_sets(name)

    def coupling(self, name: str) -> int:
        """Those of ratings."""
        return self.inner.coupling(name)

    def neighbours(self, name: str) -> set[str]:
        """Those of ratings."""
        return self.inner.neighbours(name)

    @property
    def gauges(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        """Those of ratings."""
        return self.inner.gauges

    def rotate_pair(
        self, pair: tuple[str, str], state: State, needed: tuple[str, ...] | None = None
    ) -> Rotation | None:
        """As for ratings: the likelihood does not change. Both sides are needed, since ξ is read from them."""
        return self.inner.rotate_pair(pair, state)

    def start(self, seed: int, sd: float = 1.0) -> State:
        """As for ratings."""
        return self.inner.start(seed, sd)

    def moments(self, block: Block, lam: Any) -> Any:
        """μ = ∇A(λ)."""
        return self.inner.moments(block, lam)

    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """The best ξ, then every block once; the bound is the one with these ξ."""
        if self.placed is None:
            ratings, rest = self._as_ratings(state)
            result = ratings.sweep(state, order, rho)
            return result._replace(bound=result.bound + rest)
        ratings, likes = self._as_ratings_elsewhere(state)
        result = ratings.sweep(state, order, rho)
        if "u" not in order:
            self._ask_users(ratings, state)
        return result._replace(bound=result.bound + float(likes.rest.sum()))

    def bound(self, state: State) -> float:
        """The bound with the best ξ."""
        if self.placed is None:
            ratings, rest = self._as_ratings(state)
            return ratings.bound(state) + rest
        ratings, likes = self._as_ratings_elsewhere(state)
        self._ask_users(ratings, state)
        return ratings.bound(state) + float(likes.rest.sum())

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Any:
        """λ^temp with the best ξ."""
        return self._as_ratings(state)[0].target(block, state, full, sampled, column)

    def step_block(
        self, block: Block, state: State, target: Any, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """As for ratings."""
        return self.inner.step_block(block, state, target, rho, column)

    def _as_ratings(self, state: State) -> tuple[FullRatingsProblem, float]:
        """The ratings that the likes are to a state, and what the bound has besides theirs."""
        side, n = self.inner.sides["u"], len(self.ratings)
        user, item = (packed(owned(state.mu[name])) for name in OTHER)
        mean, square = side.pair_moments(user, item, self.size, of_users=True)
        by_user, values, trust, rest = np.empty((2, n)), np.empty(n), np.empty(n), np.empty(n)
        out = (by_user[0], by_user[1], values, trust)
        linked(self.link, (mean, square), side.rows.place, self.ratings.values, out, rest)
        rows, items = side.rows, self.inner.sides["v"].rows
        sides = {
            "u": SideRatings(rows._replace(values=by_user[0]), self.priors.biases, trust=by_user[1]),
            "v": SideRatings(items._replace(values=values[items.place]), self.priors.biases, trust=trust[items.place]),
        }
        rest_of_users = np.empty(side.n_rows)
        sum_rows(rows.start, rest, rest_of_users)
        return self.inner.at(sides, values, trust), float(rest_of_users.sum())

    def _as_ratings_elsewhere(self, state: State) -> tuple[FullRatingsProblem, SentLikes]:
        """The same where the shards are; the rest of the bound comes with what is next asked of the users."""
        assert self.placed is not None
        tell, sides, asked = {name: packed(owned(state.mu[name])) for name in OTHER}, {}, {}
        for name, other in OTHER.items():
            rows = self.inner.sides[name].rows
            asked[name] = SentLikes(tell[name], tell[other], name == "u", self.link, np.empty(len(tell[name])))
            sides[name] = SideRatings(rows, self.priors.biases)
            sides[name].elsewhere = PlacedRows(self.placed, self.inner.cuts[name], asked[name])
        return self.inner.at(sides, self.ratings.values, np.ones(1)), asked["u"]

    def _ask_users(self, ratings: FullRatingsProblem, state: State) -> None:
        """For the rest of the bound, where no sweep of theirs brings it along."""
        ratings.sides["u"].errors(owned(state.mu["u"]), owned(state.mu["v"]), np.ones(len(state.mu["v"][0])))

    def shards(self, n_threads: int) -> list[Any]:
        """Users, then items, in runs of rows."""
        return self.inner.shards(n_threads)


@final
class Likes:
    """Stored likes and dislikes, and no other pairs."""

    sides = ("u", "v")

    def __init__(
        self,
        settings: RatingSettings,
        ratings: Ratings,
        learned: Mapping[str, Any] | None = None,
        features: Mapping[str, Floats] | None = None,
    ) -> None:
        self.settings, self.n_factors = settings, settings.n_factors
        kept = learned or _learned(settings, ratings)
        self.learned, self.offset = {**kept, "features": features or kept.get("features") or {}}, float(kept["offset"])
        self.warm_up = WARM_UP if settings.learn_priors else 0
        known = 1.0 if settings.prior_precision is None else float(settings.prior_precision)
        self.priors = RatingPriors(settings.biases, known, 1.0, settings.learn_priors, learn_noise=False)

    def _problem(self, ratings: Ratings, hold: bool = False, rows: npt.NDArray[np.int64] | None = None) -> LikesProblem:
        features = features_of(self.learned["features"], ratings, rows)
        return LikesProblem(ratings, self.n_factors, self.priors, self.offset, hold, features)

    def start(self, ratings: Ratings, seed: int, scale: float) -> State:
        """Vectors drawn from the prior, biases zero."""
        return self._problem(ratings).start(seed, scale)

    def phase(self, ratings: Ratings, seed: int, t: int, method: Method | None, growing: bool) -> Phase:
        """Sweeps with precisions held at first, and while ratings come in."""
        exact = method is None or isinstance(method, VB)
        hold = (growing and self.settings.learn_priors) or (exact and t < self.warm_up)
        problem = self._problem(ratings, hold)
        return Phase(problem, method, order=problem.order, until=self.warm_up if hold and not growing else None)

    def extended(self, state: State, ratings: Ratings, seed: int) -> State:
        """New rows at zero, with the variance of the prior."""
        return with_fresh_rows(
            state, ratings, lambda few: self._problem(few).start(seed, 0.0), self.learned["features"]
        )

    def folded(self, state: State, some: Ratings, rows: npt.NDArray[np.int64], steps: int) -> State:
        """Fit the vectors of some users, with all else held."""
        if self.learned["features"]:
            return folded_state(self._problem(some, rows=rows), ("u",), state, rows, steps)
        some, near = narrowed(some, state)
        near = folded_state(self._problem(some, rows=rows), ("u",), near, rows, min(steps, ROUNDS))
        return folded_users(state, near)

    def predictor(self, state: State, ratings: Ratings) -> Predictor:
        """Probabilities."""
        return BernoulliPredictor(state.mu["u"], state.mu["v"], self.settings.biases, self.offset)

    def saved(self) -> dict[str, Any]:
        """Settings, and what was taken from the data."""
        return {"settings": self.settings._asdict(), "learned": dict(self.learned)}


def one_class(settings: RatingSettings, ratings: Ratings) -> dict[str, Any]:
    """What pairs that are not stored count, and the variance of all pairs with these weights."""
    likes = _n_likes(ratings)
    elsewhere = ratings.n_users * ratings.n_items - len(ratings)
    negatives = DEFAULT_NEGATIVES if settings.n_negatives is None else float(settings.n_negatives)
    unseen = min(1.0, negatives * likes / max(elsewhere, 1))
    share = likes / (len(ratings) + unseen * elsewhere)
    return {"offset": 0.0, "variance": max(share * (1.0 - share), 1e-6), "unseen": unseen}


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
