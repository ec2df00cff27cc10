"""A factorisation about to be fitted in; whether Gibbs sampling ends its fit, with how many sweeps and whose noise, out.

Draws predict better than q where rows have ratings enough to tell factors that q switches off, and cost a sweep each. So with
``finish="auto"`` they are made where that takes a few seconds, and never by the clock: a sweep is so much work,

    ratings (K + 10) + 20 rows K        about 4.5 nanoseconds each on one thread; rows are users and items

and little work leaves room for more sweeps. What is said here of little data also holds for ``finish="gibbs"``, where it goes on
from a short run of q, and is made of any data.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from natgrad.data.ratings import Ratings
from natgrad.inference.problem import State
from natgrad.models.factorization.gibbs import RatingGibbs, gibbs_problem
from natgrad.models.factorization.likelihoods import Gaussian
from natgrad.models.factorization.noise import LEAST

__all__ = ["sampled_from"]

# Sweeps of a fit that is asked to end so: with precisions held, and until sampling takes over. Draws are as good after 5 as after
# 10, and a sweep of Gibbs sampling takes a quarter of the time of one of q; but q is what `fold_in` goes back to.
WARM_UP, TAKES_OVER = 5, 7
# What a fit has unless it is told, of what says how far q is to go, or how: who says so gets q.
OF_PASSES: dict[str, Any] = {
    "method": None, "step": None, "max_steps": 1000, "max_passes": None, "max_messages": None, "max_seconds": None, "tol": 1e-5,
    "executor": None, "bound_every": None,
}  # fmt: skip
NOISE_DOF = 4.0
# Of finish_sweeps=None: for other data; the least and the most for few, and the work between them. On 25,000 to 100,000 ratings
# 120 sweeps were within 0.1 % of the error of 200 where tastes have a long tail, 0.3 % behind where they have few factors, and
# 300 were no better.
OTHERS, FEWEST, MOST, WORK = 40, 120, 200, 5e8
# The most work of the fewest sweeps: about five seconds. Below ten ratings a row, and below 20,000 at all, draws were no better
# than q, or worse. Scores of all pairs are as many products as there are draws: beyond so many pairs they take longer than q.
MOST_WORK, RATINGS_A_ROW, MOST_PAIRS = 1e9, 10, 20_000_000
# Numbers that are kept of draws where nobody asked for them: 64 MB.
KEPT_UNASKED = 2**24


def sampled_from(
    model: Any, kind: Any, ratings: Ratings, state: State | None, noise: str | None
) -> tuple[RatingGibbs | None, int | None]:
    """Who samples at the end of a fit, and after how many sweeps of q, if these are not to go on until they have converged.

    ``state``: where the fit begins; None if it is the first. ``noise``: whose noise draws of a first fit may have.
    """
    sampler = _sampler_of(model, kind, ratings, noise if state is None else _noise_of_draws(model))
    if model.finish != "gibbs" or state is not None or not model.tol or not model._exact():
        return sampler, None
    kind.warm_up = min(kind.warm_up, WARM_UP)
    return sampler, TAKES_OVER


def _sampler_of(model: Any, kind: Any, ratings: Ratings, noise: str | None) -> RatingGibbs | None:
    """Who samples, if somebody does; ``noise``: whose noise draws may have, "user", "item", "both" or None."""
    little = _is_little(kind, ratings)
    told = any(getattr(model, name) != value for name, value in OF_PASSES.items())
    if model.finish == "auto" and (told or not little):
        return None
    sweeps = model.finish_sweeps
    if sweeps is None:
        sweeps = int(min(max(WORK // _work(kind, ratings), FEWEST), MOST)) if little else OTHERS
    # ν is drawn where nobody has said whose noise differs, or how much.
    free = little and model.noise_per == "auto" and model.noise_dof == NOISE_DOF
    problem = gibbs_problem(_with_noise(kind, noise) if free else kind, ratings)
    if model.finish == "gibbs":
        return RatingGibbs(problem, int(sweeps), draws_dof=free)
    sampler = RatingGibbs(problem, int(sweeps), KEPT_UNASKED, free)
    sampler.least = sampler.sweeps  # a part of draws that nobody asked for is not surely better than q
    return sampler


def _noise_of_draws(model: Any) -> str | None:
    """Whose noise the draws of a fit have; without draws, that of q."""
    kept = model._kept_draws
    if kept is None:
        return str(model.noise_per_) if model.noise_per_ else None
    sides = [name for name, own in (("user", kept.user_noise), ("item", kept.item_noise)) if own.shape[1]]
    return "both" if len(sides) == 2 else sides[0] if sides else None


def _is_little(kind: Any, ratings: Ratings) -> bool:
    """Whether draws cost little, and ratings are enough for them to be better than q."""
    if not isinstance(kind, Gaussian) or kind.learned["features"]:
        return False
    if not (kind.settings.learn_priors and kind.settings.learn_noise):
        return False
    rows, n = ratings.n_users + ratings.n_items, len(ratings)
    enough = n >= LEAST and n >= RATINGS_A_ROW * rows
    return enough and FEWEST * _work(kind, ratings) <= MOST_WORK and ratings.n_users * ratings.n_items <= MOST_PAIRS


def _work(kind: Any, ratings: Ratings) -> int:
    """Of one sweep."""
    n_factors = int(kind.n_factors)
    return len(ratings) * (n_factors + 10) + 20 * (ratings.n_users + ratings.n_items) * n_factors


def _with_noise(kind: Gaussian, noise: str | None) -> Gaussian:
    """The same with noise of its own for each user or item, or both."""
    made, dof = copy.copy(kind), float(kind.settings.noise_dof)
    made.priors = replace(
        kind.priors,
        user_noise=dof if noise in ("user", "both") else None,
        item_noise=dof if noise in ("item", "both") else None,
    )
    return made
