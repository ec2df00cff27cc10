"""The scale that noise of users and items shares with τ.

Ratings see τ, s and t through their product alone. A sweep moves what τ and the mean of s disagree on by the weight of the prior,
ν/(ν + n), which takes a hundred sweeps; `rescaled_noise` puts it where the bound is largest, in closed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.problem import State
from natgrad.models.factorization.sweep import NOISE

if TYPE_CHECKING:
    from natgrad.models.factorization.problem import FullRatingsProblem

__all__ = ["rescaled_noise"]


def rescaled_noise(problem: FullRatingsProblem, state: State) -> State:
    """The state with s and t multiplied by numbers, and τ divided by them, where the bound is largest; products stay.

    Of a number c and the N rows that have ratings, with S = Σ E[s], the bound is N ν/2 log c − ν/2 c S − a log c − b E[τ]/c.
    """
    own, lam, mu = problem.priors, dict(state.lam), dict(state.mu)
    for side, nu in (("u", own.user_noise), ("v", own.item_noise)):
        if nu is None or not own.learn_noise:
            continue
        name = NOISE[side]
        rated = _counts(problem, side) > 0
        total, tau = float(np.asarray(mu[name][0])[rated].sum()), float(mu["noise"][0])
        rate = own.rate * own.unit**2
        linear = 0.5 * nu * float(rated.sum()) - own.shape
        scale = (linear + np.sqrt(linear**2 + 2.0 * nu * total * rate * tau)) / (nu * total)
        if not (np.isfinite(scale) and scale > 0.0):
            continue
        lam[name] = np.where(rated, lam[name][0] / scale, lam[name][0]), lam[name][1]
        lam["noise"] = np.asarray(lam["noise"][0] * scale), lam["noise"][1]
        for changed in (name, "noise"):
            mu[changed] = problem.moments(problem.blocks[changed], lam[changed])
    return state._replace(lam=lam, mu=mu)


def _counts(problem: FullRatingsProblem, side: str) -> Any:
    return np.diff(problem.sides[side].rows.start)
