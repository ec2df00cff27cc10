"""Noise that differs from user to user and item to item: whether it does, by the bound; and the scale that it shares with τ.

With s_i ~ Gamma(ν/2, ν/2) on the precision of the ratings of user i, and everything else as it is, the bound gains

    log ∫ Gamma(s; ν/2, ν/2) s^{n/2} e^{−s τ e/2} ds + τ e/2        n ratings with expected squared errors e in all

at once, and more by the sweeps that follow. The gain is a closed form, so a short fit of few factors tells whether it is one.

Ratings see τ, s and t through their product alone. A sweep moves what τ and the mean of s disagree on by the weight of the prior,
ν/(ν + n), which takes a hundred sweeps; `rescaled_noise` puts it where the bound is largest, in closed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.special

from natgrad.data.ratings import Ratings
from natgrad.inference.engine import take_steps
from natgrad.inference.methods import VB
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.sweep import ExactStepper
from natgrad.models.factorization.sides import OTHER
from natgrad.models.factorization.sweep import NOISE, RatingSweep

if TYPE_CHECKING:
    from natgrad.models.factorization.likelihoods import RatingSettings
    from natgrad.models.factorization.problem import FullRatingsProblem

__all__ = ["chosen_noise", "noise_gain", "rescaled_noise"]

Floats = npt.NDArray[np.float64]
# Fewer ratings than these have too little to say: noise is the same for all.
LEAST = 20_000
# Factors and sweeps of the short fit.
FACTORS, SWEEPS = 4, 8


def chosen_noise(settings: RatingSettings, ratings: Ratings, seed: int) -> str | None:
    """What raises the bound of a short fit: "user", "item", "both" or None."""
    if settings.likelihood != "gaussian" or not settings.learn_noise or settings.factorized or len(ratings) < LEAST:
        return None
    from natgrad.models.factorization.likelihoods import Gaussian

    short = settings._replace(n_factors=min(FACTORS, settings.n_factors), noise_per=None)
    kind = Gaussian(short, ratings)
    problem: Any = kind.phase(ratings, seed, 0, None, False).problem
    stepper = ExactStepper(problem, VB(), Constant(1.0), problem.order)
    state = take_steps(problem, stepper, kind.start(ratings, seed, 1.0), SWEEPS, seed).state
    work, nu = RatingSweep(problem, state), float(settings.noise_dof)
    tau = work.tau[0]
    gains = {side: noise_gain(work.error(side), _counts(problem, side), tau, nu) for side in ("u", "v")}
    first = max(gains, key=lambda side: gains[side])
    if gains[first] <= 0.0:
        return None
    # The other side, given what the first one has become.
    shape, rate = 0.5 * (nu + _counts(problem, first)), 0.5 * (nu + tau * work.error(first))
    other = OTHER[first]
    errors = problem.sides[other].errors(state.mu[other], state.mu[first], np.ascontiguousarray(shape / rate))
    if noise_gain(errors, _counts(problem, other), tau, nu) > 0.0:
        return "both"
    return "user" if first == "u" else "item"


def noise_gain(errors: Floats, counts: Any, tau: float, nu: float) -> float:
    """What the bound gains, summed over the rows of a side."""
    half, shape = 0.5 * nu, 0.5 * (nu + np.asarray(counts, dtype=np.float64))
    known = half * np.log(half) - scipy.special.gammaln(half)
    gains = known + scipy.special.gammaln(shape) - shape * np.log(0.5 * (nu + tau * errors)) + 0.5 * tau * errors
    return float(gains.sum())


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
