"""What a factorisation is of: settings and ratings in; problems, starts and predictors of each kind out.

A likelihood turns ratings into the engine's problem, phase by phase of a run, and the state of one into a `Predictor`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, ClassVar, Protocol, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Phase, take_steps
from natgrad.inference.methods import VB, Method
from natgrad.inference.problem import EdgeProblem, State
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.sweep import ExactStepper
from natgrad.inference.trace import Stop
from natgrad.models.factorization.checks import RatingSettings
from natgrad.models.factorization.features import padded_features
from natgrad.models.factorization.links import Link
from natgrad.models.factorization.predictors import (
    GaussianPredictor,
    LikesPredictor,
    Predictor,
)
from natgrad.models.factorization.problem import FullRatingsProblem, RatingPriors, unseen_weights
from natgrad.validation import check_unit

__all__ = [
    "OF_USERS",
    "Gaussian",
    "LikelihoodModel",
    "RatingSettings",
    "VectorModel",
    "extended_state",
    "features_of",
    "folded_state",
    "folded_users",
    "likelihood_of",
    "narrowed",
    "with_fresh_rows",
    "with_parts",
    "with_rows",
]

Floats = npt.NDArray[np.float64]
# Sweeps with the precisions of factors held: by then the noise is known well enough to tell which factors are more than it.
WARM_UP = 8
# Blocks with a row for each user, or for each item.
OF_USERS, OF_ITEMS = ("u", "user_noise", "user_rate"), ("v", "item_noise", "item_rate")
# Of a new user's vector and noise, or of the bound of the likes: each brings a digit, and this is 1e-5 of a standard deviation.
ROUNDS = 6


class LikelihoodModel(Protocol):
    """One of the models that a factorisation can be."""

    n_factors: int
    offset: float
    warm_up: int

    @property
    def sides(self) -> tuple[str, ...]:
        """Blocks of vectors of users and items."""
        ...

    def start(self, ratings: Ratings, seed: int, scale: float) -> State:
        """The state before the first step."""
        ...

    def phase(self, ratings: Ratings, seed: int, t: int, method: Method | None, growing: bool) -> Phase | Stop:
        """The phase of the steps after t, or why there is none; ``growing``: more ratings are to come."""
        ...

    def extended(self, state: State, ratings: Ratings, seed: int) -> State:
        """A state for more users and items; those that are new are at their prior."""
        ...

    def folded(self, state: State, some: Ratings, rows: npt.NDArray[np.int64], steps: int) -> State:
        """The state with some users fitted to their ratings, all else held."""
        ...

    def predictor(self, state: State, ratings: Ratings) -> Any:
        """What a state predicts for the users of these ratings: a `Predictor`."""
        ...

    def saved(self) -> dict[str, Any]:
        """What makes it: settings, and what was taken from the data."""
        ...


def likelihood_of(
    settings: RatingSettings,
    ratings: Ratings,
    learned: Mapping[str, Any] | None = None,
    features: Mapping[str, Floats] | None = None,
    seed: int = 0,
) -> LikelihoodModel:
    """The kind that settings ask for; ``learned`` is what a saved one had taken from the data."""
    if settings.likelihood == "poisson":
        if features:
            raise ValueError('user_features, item_features: likelihood="poisson" takes none; leave them out')
        from natgrad.models.factorization.poisson import Counts

        return Counts(settings, ratings)
    if settings.likelihood == "bernoulli":
        from natgrad.models.factorization.bernoulli import Likes, one_class

        if settings.n_negatives == 0:
            return Likes(settings, ratings, learned, features)
        return Gaussian(settings, ratings, learned or one_class(settings, ratings), features)
    if settings.likelihood == "ordinal":
        from natgrad.models.factorization.ordinal import Stars

        return Stars(settings, ratings, learned, features, seed)
    if learned is None and len(ratings) > 1 and (ratings.values == 1.0).all():
        raise ValueError(
            'all ratings are 1, so that there is nothing to tell apart: for likes alone use likelihood="bernoulli"'
        )
    return Gaussian(settings, ratings, learned, features)


class VectorModel(ABC):
    """A Gaussian vector for every user and item; what is seen of their products is up to the likelihood."""

    sides: ClassVar[tuple[str, ...]] = ("u", "v")
    learned: dict[str, Any]
    priors: RatingPriors
    link: Link | None = None
    negatives = 0.0

    def __init__(
        self, settings: RatingSettings, learned: Mapping[str, Any], features: Mapping[str, Floats] | None
    ) -> None:
        self.settings, self.n_factors = settings, settings.n_factors
        self.learned = {**learned, "features": features or learned.get("features") or {}}
        self.offset = float(learned["offset"])
        self.warm_up = WARM_UP if settings.learn_priors else 0
        known = 1.0 if settings.prior_precision is None else float(settings.prior_precision)
        self.priors = RatingPriors(settings.biases, known, 1.0, settings.learn_priors, learn_noise=False)

    @abstractmethod
    def predictor(self, state: State, ratings: Ratings) -> Predictor:
        """What a state predicts."""

    @abstractmethod
    def _check(self, ratings: Ratings, exact: bool, method: Method | None) -> None:
        """Refuse ratings or a method that the likelihood cannot take."""

    def _problem(
        self, ratings: Ratings, hold: bool = False, rows: npt.NDArray[np.int64] | None = None
    ) -> FullRatingsProblem:
        features, offset = (
            features_of(self.learned["features"], ratings, rows),
            self.offset if self.link is None else 0.0,
        )
        unseen = unseen_weights(ratings, self.negatives) if self.negatives else None
        return FullRatingsProblem(ratings, self.n_factors, self.priors, hold, features, offset, unseen, self.link)

    def start(self, ratings: Ratings, seed: int, scale: float) -> State:
        """Vectors drawn from the prior, biases zero."""
        return self._problem(ratings).start(seed, scale)

    def phase(self, ratings: Ratings, seed: int, t: int, method: Method | None, growing: bool) -> Phase:
        """Learned precisions of factors are held for the first sweeps, and while ratings come in.

        What the first of many ratings cannot tell from noise, later ones may; a factor that was switched off stays so.
        """
        exact = method is None or isinstance(method, VB)
        self._check(ratings, exact, method)
        hold = self.settings.learn_priors if growing else exact and t < self.warm_up
        problem = self._problem(ratings, hold)
        return Phase(problem, method, order=problem.order, until=self.warm_up if hold and not growing else None)

    def extended(self, state: State, ratings: Ratings, seed: int) -> State:
        """New rows at zero, with the variance of the prior."""
        return with_fresh_rows(
            state, ratings, lambda few: self._problem(few).start(seed, 0.0), self.learned["features"]
        )

    def folded(self, state: State, some: Ratings, rows: npt.NDArray[np.int64], steps: int) -> State:
        """Fit the vectors of some users, and their noise, to the items that they rated, with all else held."""
        if self.learned["features"] or self.negatives:
            return self._folded(state, some, rows, steps)
        some, near = narrowed(some, state)
        return folded_users(state, self._folded(near, some, rows, min(steps, ROUNDS)))

    def _folded(self, state: State, some: Ratings, rows: npt.NDArray[np.int64], steps: int) -> State:
        problem = self._problem(some, rows=rows)
        order = tuple(name for name in ("u", "user_noise") if name in problem.blocks)
        if self.link is not None:  # which is renewed at every step
            return folded_state(problem, order, state, rows, steps)
        # All rounds are one step, so that the bound is evaluated once.
        return folded_state(problem, order * (min(steps, ROUNDS) if len(order) > 1 else 1), state, rows, 1)

    def saved(self) -> dict[str, Any]:
        """Settings, and what was taken from the data."""
        return {"settings": self.settings._asdict(), "learned": dict(self.learned)}


@final
class Gaussian(VectorModel):
    """Ratings with biases, learned precisions, and noise that may differ from user to user or item to item.

    Of likes, every pair counts: those of a user that are not stored as ``negatives`` zeros for each like (`unseen_weights`).
    """

    def __init__(
        self,
        settings: RatingSettings,
        ratings: Ratings,
        learned: Mapping[str, Any] | None = None,
        features: Mapping[str, Floats] | None = None,
    ) -> None:
        check_unit(ratings.values, "values")
        kept = learned or {
            "offset": float(ratings.values.mean()) if settings.biases else 0.0,
            "variance": _variance(ratings.values),
        }
        super().__init__(settings, kept, features)
        spread, self.negatives = kept["variance"], float(kept.get("negatives") or 0.0)
        # A product of K factors with this precision on both sides has the variance of the ratings.
        fitting = float(np.sqrt(settings.n_factors / spread))
        by, freedom = settings.noise_per, settings.noise_dof
        self.priors = RatingPriors(
            biases=settings.biases,
            precision=_known(settings.prior_precision, fitting),
            bias_precision=fitting / np.sqrt(spread) if settings.learn_priors else None,
            unit=float(np.sqrt(spread)),
            noise=_known(settings.noise_precision, 1.0 / spread if settings.learn_noise else 1.0),
            learn_precision=settings.learn_priors,
            learn_noise=settings.learn_noise,
            user_noise=freedom if by in ("user", "both") else None,
            item_noise=freedom if by in ("item", "both") else None,
        )

    def _check(self, ratings: Ratings, exact: bool, method: Method | None) -> None:
        if self.negatives and not exact:
            raise ValueError(
                f'likelihood="bernoulli" reads every pair at each step, got method={method}: leave it out, or give '
                "n_negatives=0, with which stored likes and dislikes alone count"
            )

    def predictor(self, state: State, ratings: Ratings) -> Predictor:
        """Moments, and the mean of 1/τ, 1/s and 1/t."""
        sizes = {"user_noise": len(state.mu["u"][0]), "item_noise": len(state.mu["v"][0])}
        rows = [mean_inverse(state.lam[name]) if name in state.lam else np.ones(n) for name, n in sizes.items()]
        noise = float(mean_inverse(state.lam["noise"])) if "noise" in state.lam else 1.0 / self.priors.noise
        if self.negatives:
            unseen = unseen_weights(ratings, self.negatives, least=1.0)
            return LikesPredictor(state.mu["u"], state.mu["v"], self.settings.biases, 0.0, unseen)
        return GaussianPredictor(state.mu["u"], state.mu["v"], self.settings.biases, self.offset, noise, *rows)


def features_of(
    known: Mapping[str, Floats], ratings: Ratings, rows: npt.NDArray[np.int64] | None = None
) -> dict[str, Floats]:
    """The features of every user and item of some ratings; ``rows`` says which users these are."""
    features = {}
    for side, table in known.items():
        wanted = ratings.n_items if side == "v" else ratings.n_users if rows is None else int(rows.max()) + 1
        longer = padded_features(table, wanted)
        features[side] = longer if side == "v" or rows is None else longer[rows]
    return features


def mean_inverse(lam: Any) -> Floats:
    """E[1/x] of Gammas, rate/(shape − 1); of those too vague to have one, 1/E[x]."""
    rate, less_one = -np.asarray(lam[0]), np.asarray(lam[1])
    return np.where(less_one > 0.5, rate / np.maximum(less_one, 0.5), rate / (less_one + 1.0))


def extended_state(state: State, larger: State) -> State:
    """A state with the rows of a larger one behind its own; what the method remembers is forgotten."""
    joined: dict[str, dict[str, Any]] = {"lam": {}, "mu": {}}
    for field, old, new in (("lam", state.lam, larger.lam), ("mu", state.mu, larger.mu)):
        for name, parts in new.items():
            joined[field][name] = tuple(
                b if a.shape == () else np.concatenate([a, b[len(a) :]]) if len(b) > len(a) else a
                for a, b in zip((np.asarray(part) for part in old[name]), parts, strict=True)
            )
            if np.ndim(parts[0]) == 0:
                joined[field][name] = old[name]
    return State(joined["lam"], joined["mu"], state.t)


def with_fresh_rows(state: State, ratings: Ratings, start: Callable[[Ratings], State], features: Any) -> State:
    """A state for more users and items whose new rows do not depend on their ratings: `start` makes a few of them.

    With features the rows are those of their tables, and all are made.
    """
    new = ratings.n_users - len(state.mu["u"][0]), ratings.n_items - len(state.mu["v"][0])
    if new == (0, 0):
        return State(dict(state.lam), dict(state.mu), state.t)
    if features:
        return extended_state(state, start(ratings))
    # The only rating is that of a row on both sides which is not kept.
    ids, one = [np.arange(1 + n) for n in new], np.zeros(1, np.int64)
    fresh = start(Ratings.numbered(one, one, np.ones(1), *ids))
    names = (OF_USERS if new[0] else ()) + (OF_ITEMS if new[1] else ())
    return with_parts(state, names, lambda a, b: np.concatenate([a, b[1:]]), fresh)


def narrowed(some: Ratings, state: State) -> tuple[Ratings, State]:
    """The ratings with the items that they name alone, and the state of these."""
    items, places = np.unique(some.items, return_inverse=True)
    few = Ratings.numbered(some.users, places, some.values, some.user_ids, some.item_ids[items])
    return few, with_parts(state, OF_ITEMS, lambda part: np.ascontiguousarray(part[items]))


def folded_users(state: State, near: State) -> State:
    """A state with the users of another."""
    return with_parts(state, OF_USERS, lambda _, part: part, near)


def with_parts(state: State, names: Collection[str], change: Callable[..., Floats], *others: State) -> State:
    """A state with other arrays in those of these blocks that it has: ``change`` of each, and of those of other states."""

    def changed(q: Any, *more: Any) -> dict[str, Any]:
        def of(name: str) -> tuple[Floats, ...]:
            return tuple(change(*map(np.asarray, same)) for same in zip(*(b[name] for b in (q, *more)), strict=True))

        return {**q, **{name: of(name) for name in names if name in q}}

    lam, mu = (changed(*each) for each in zip(*((s.lam, s.mu) for s in (state, *others)), strict=True))
    return State(lam, mu, state.t)


def folded_state(
    problem: EdgeProblem, order: tuple[str, ...], state: State, rows: npt.NDArray[np.int64], steps: int
) -> State:
    """The state with the blocks in ``order`` updated in some rows; ``problem`` has the ratings of these rows alone."""
    few, names = with_parts(state, set(order), lambda part: part[rows]), set(order)
    stepper = ExactStepper(problem, VB(), Constant(1.0), order)
    part = take_steps(problem, stepper, few, steps, 0).state
    return with_parts(state, names, partial(with_rows, rows), part)


def with_rows(rows: npt.NDArray[np.int64], whole: Floats, piece: Any) -> Floats:
    """An array with others in some rows."""
    out = np.array(whole)
    out[rows] = piece
    return out


def _variance(values: Floats) -> float:
    """Of the ratings; where all are the same, their square, so that it has their unit."""
    return float(values.var()) if np.ptp(values) > 0 else float(values[0]) ** 2 or 1.0


def _known(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else float(given)
