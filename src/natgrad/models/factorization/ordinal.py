"""Ratings on an ordered scale, such as stars: r_n is the level of z_n ~ N(u_i · v_j + b_i + c_j, 1) between learned cutpoints.

Nothing says that from one star to two is as far as from four to five. Given cutpoints it is the model of ratings, each with a
value that is renewed before every sweep (`natgrad.models.factorization.links`), as for likes. The cutpoints are those at
which the bound is largest: of a fit of few sweeps, between which they are moved. From then on they are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.engine import take_steps
from natgrad.inference.methods import VB, Method
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.sweep import ExactStepper
from natgrad.models.factorization.likelihoods import (
    RatingSettings,
    VectorModel,
    folded_state,
    folded_users,
    narrowed,
)
from natgrad.models.factorization.links import Cuts, better_cuts, first_cuts, level_numbers, pulls
from natgrad.models.factorization.predictors import Predictor, StarsPredictor
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
class Stars(VectorModel):
    """Ratings on an ordered scale."""

    link: Cuts

    def __init__(
        self,
        settings: RatingSettings,
        ratings: Ratings,
        learned: Mapping[str, Any] | None = None,
        features: Mapping[str, Floats] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(settings, learned or {"offset": 0.0}, features)
        if learned is not None:
            self.link = Cuts(np.asarray(learned["levels"]), np.asarray(learned["cuts"]))
            return
        self.link = _checked(first_cuts(ratings.values))
        self.link = self._learned_cuts(ratings, seed)
        self.learned |= {"levels": self.link.levels, "cuts": self.link.points}

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
            self.link = better_cuts(self.link, mean, ratings.values[some])
        return self.link

    def _check(self, ratings: Ratings, exact: bool, method: Method | None) -> None:
        level_numbers(self.link, ratings.values)

    def folded(self, state: State, some: Ratings, rows: Ints, steps: int) -> State:
        """Some users anew, from the items that they rated."""
        level_numbers(self.link, some.values)
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
        inverse, level = np.linalg.inv(precision), level_numbers(self.link, some.values)

        def hidden(vectors: Floats) -> Floats:
            f = np.einsum("nk,nk->n", design, vectors[users]) + bias
            return np.asarray(f + pulls(self.link, level, f))

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
        return StarsPredictor(state.mu["u"], state.mu["v"], self.settings.biases, self.link)


def _checked(cuts: Cuts) -> Cuts:
    n = len(cuts.levels)
    if not 2 <= n <= MOST_LEVELS:
        raise ValueError(
            f'likelihood="ordinal" takes ratings on a scale of 2 to {MOST_LEVELS} levels, got {n} different values; '
            'likelihood="gaussian" takes any numbers'
        )
    return cuts
