"""Ratings on an ordered scale, such as stars: r_n is the level of z_n ~ N(u_i · v_j + b_i + c_j, 1) between learned cutpoints.

Nothing says that from one star to two is as far as from four to five. Given cutpoints it is the model of ratings, each with a
value that is renewed before every sweep (`natgrad.models.factorization.cutpoints`), as for likes. The cutpoints are those at
which the bound is largest: of a fit of few sweeps, between which they are moved. From then on they are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Phase, take_steps
from natgrad.inference.methods import VB, Method
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.sweep import ExactStepper
from natgrad.models.factorization.bernoulli import LikesProblem
from natgrad.models.factorization.cutpoints import Cuts, better_cuts, first_cuts, level_numbers, pulls
from natgrad.models.factorization.likelihoods import (
    WARM_UP,
    RatingSettings,
    features_of,
    folded_state,
    folded_users,
    narrowed,
    with_fresh_rows,
)
from natgrad.models.factorization.predictors import Predictor, StarsPredictor
from natgrad.models.factorization.problem import RatingPriors
from natgrad.models.factorization.sides import pair_moments

__all__ = ["Stars"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Sweeps between which the cutpoints are moved, and how often; ratings that move them.
SWEEPS, ROUNDS, JUDGES = 4, 5, 50_000
# Levels beyond which a scale is not ordinal but a number.
MOST_LEVELS = 50
# A user's vector is fitted in so many rounds, since each renews the hidden values.
FOLD_ROUNDS = 25


@final
class Stars:
    """Ratings on an ordered scale."""

    sides, offset = ("u", "v"), 0.0

    def __init__(
        self,
        settings: RatingSettings,
        ratings: Ratings,
        learned: Mapping[str, Any] | None = None,
        features: Mapping[str, Floats] | None = None,
        seed: int = 0,
    ) -> None:
        self.settings, self.n_factors = settings, settings.n_factors
        self.warm_up = WARM_UP if settings.learn_priors else 0
        known = 1.0 if settings.prior_precision is None else float(settings.prior_precision)
        self.priors = RatingPriors(settings.biases, known, 1.0, settings.learn_priors, learn_noise=False)
        if learned is not None:
            self.learned: dict[str, Any] = {**learned, "features": features or learned.get("features") or {}}
            self.cuts = Cuts(np.asarray(learned["levels"]), np.asarray(learned["cuts"]))
            return
        self.learned = {"offset": 0.0, "features": features or {}}
        self.cuts = _checked(first_cuts(ratings.values))
        self.cuts = self._learned_cuts(ratings, seed)
        self.learned |= {"levels": self.cuts.levels, "cuts": self.cuts.points}

    def _learned_cuts(self, ratings: Ratings, seed: int) -> Cuts:
        """Moved between the sweeps of a short fit."""
        some = np.random.default_rng(seed).permutation(len(ratings))[:JUDGES]
        rows, columns = ratings.users[some].astype(np.int64), ratings.items[some].astype(np.int64)
        state = self.start(ratings, seed, 1.0)
        for number in range(ROUNDS):
            problem = self._problem(ratings, hold=number < 2 and self.settings.learn_priors)
            stepper = ExactStepper(problem, VB(), Constant(1.0), problem.order)
            state = take_steps(problem, stepper, state, SWEEPS, seed).state
            mean = pair_moments(rows, columns, state.mu["u"], state.mu["v"], self.settings.biases)[0]
            self.cuts = better_cuts(self.cuts, mean, ratings.values[some])
        return self.cuts

    def _problem(self, ratings: Ratings, hold: bool = False, rows: Ints | None = None) -> LikesProblem:
        features = features_of(self.learned["features"], ratings, rows)
        return LikesProblem(ratings, self.n_factors, self.priors, self.cuts, hold, features)

    def start(self, ratings: Ratings, seed: int, scale: float) -> State:
        """Vectors drawn from the prior, biases zero."""
        return self._problem(ratings).start(seed, scale)

    def phase(self, ratings: Ratings, seed: int, t: int, method: Method | None, growing: bool) -> Phase:
        """Learned precisions of factors are held for the first sweeps, and while ratings come in."""
        level_numbers(self.cuts, ratings.values)
        exact = method is None or isinstance(method, VB)
        hold = (growing and self.settings.learn_priors) or (exact and t < self.warm_up)
        problem = self._problem(ratings, hold)
        return Phase(problem, method, order=problem.order, until=self.warm_up if hold and not growing else None)

    def extended(self, state: State, ratings: Ratings, seed: int) -> State:
        """New rows at zero, with the variance of the prior."""
        return with_fresh_rows(
            state, ratings, lambda few: self._problem(few).start(seed, 0.0), self.learned["features"]
        )

    def folded(self, state: State, some: Ratings, rows: Ints, steps: int) -> State:
        """Some users anew, from the items that they rated."""
        level_numbers(self.cuts, some.values)
        if self.learned["features"]:
            return folded_state(self._problem(some, rows=rows), ("u",), state, rows, FOLD_ROUNDS)
        some, near = narrowed(some, state)
        problem = self._problem(some, rows=rows)
        after = folded_state(problem, ("u",), near, rows, 1)
        near = self._climbed(some, near, after, rows)
        return folded_users(state, folded_state(problem, ("u",), near, rows, 1))

    def _climbed(self, some: Ratings, before: State, after: State, rows: Ints) -> State:
        """The rounds between the first and the last, in which nothing changes but E[z]: Λ m = η + Σ_j a_j (E[z_ij] − those of
        the first), a_j being how z depends on the user's vector. A sweep of the engine for each takes ten times as long.
        """  # noqa: D205
        mean, spread = (np.array(part) for part in after.mu["u"])
        eta, precision = np.asarray(after.lam["u"][0])[rows], -2.0 * np.asarray(after.lam["u"][1])[rows]
        items, users = some.items.astype(np.int64), some.users.astype(np.int64)
        own = np.asarray(before.mu["v"][0])[items]
        design = np.column_stack([own[:, :-1], np.ones(len(own))]) if self.settings.biases else own
        bias = own[:, -1] if self.settings.biases else 0.0
        inverse, level = np.linalg.inv(precision), level_numbers(self.cuts, some.values)

        def hidden(vectors: Floats) -> Floats:
            f = np.einsum("nk,nk->n", design, vectors[users]) + bias
            return np.asarray(f + pulls(self.cuts, level, f))

        first, vectors = hidden(np.asarray(before.mu["u"][0])[rows]), mean[rows]
        for _ in range(FOLD_ROUNDS - 2):
            told = eta.copy()
            np.add.at(told, users, design * (hidden(vectors) - first)[:, None])
            vectors = np.einsum("nkl,nl->nk", inverse, told)
        outer = np.einsum("nk,nl->nkl", vectors, vectors) - np.einsum("nk,nl->nkl", mean[rows], mean[rows])
        mean[rows], spread[rows] = vectors, spread[rows] + outer
        return after._replace(mu={**after.mu, "u": (mean, spread)})

    def predictor(self, state: State, ratings: Ratings) -> Predictor:
        """Probabilities of levels."""
        return StarsPredictor(state.mu["u"], state.mu["v"], self.settings.biases, self.cuts)

    def saved(self) -> dict[str, Any]:
        """Settings, levels and cutpoints."""
        return {"settings": self.settings._asdict(), "learned": dict(self.learned)}


def _checked(cuts: Cuts) -> Cuts:
    n = len(cuts.levels)
    if not 2 <= n <= MOST_LEVELS:
        raise ValueError(
            f'likelihood="ordinal" takes ratings on a scale of 2 to {MOST_LEVELS} levels, got {n} different values; '
            'likelihood="gaussian" takes any numbers'
        )
    return cuts
