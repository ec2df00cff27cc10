"""Noise that differs from user to user and item to item: whether it does, and is to; and the scale that it shares with τ.

With s_i ~ Gamma(ν/2, ν/2) on the precision of the ratings of user i, and everything else as it is, the bound gains

    log ∫ Gamma(s; ν/2, ν/2) s^{n/2} e^{−s τ e/2} ds + τ e/2        n ratings with expected squared errors e in all

at once, and more by the sweeps that follow. The gain is a closed form, so a short fit of few factors tells whether it is one.

The bound measures densities. Where those whose ratings are erratic also have strong tastes, noise by user takes these for noise:
densities gain, and predictions lose. So what the bound chose is compared with what has less of it, on ratings that are held out
of short fits of all, and gives way to one whose squared error is smaller by two standard errors.

Ratings see τ, s and t through their product alone. A sweep moves what τ and the mean of s disagree on by the weight of the prior,
ν/(ν + n), which takes a hundred sweeps; `rescaled_noise` puts it where the bound is largest, in closed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special

from natgrad.data.ratings import Ratings
from natgrad.inference.engine import take_steps
from natgrad.inference.problem import State
from natgrad.inference.steppers.accelerated import AcceleratedStepper
from natgrad.models.factorization.sides import OTHER, pair_moments
from natgrad.models.factorization.sweep import NOISE, RatingSweep
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.models.factorization.likelihoods import RatingSettings
    from natgrad.models.factorization.problem import FullRatingsProblem

__all__ = ["LEAST", "NoiseChoice", "NoiseDof", "chosen_noise", "noise_gain", "rescaled_noise"]

Floats = npt.NDArray[np.float64]
# Fewer ratings than these have too little to say: noise is the same for all.
LEAST = 20_000
# Factors and sweeps of the short fits; precisions are learned in the last two.
FACTORS, SWEEPS = 4, 10
# One of so many ratings is held out; standard errors by which less must predict better.
PART, SURE = 20, 2.0
# ν that Gibbs sampling chooses from: noise that differs by orders of magnitude, to noise that is the same for all to a percent.
DOF = 2.0 ** np.arange(-1, 15)


class NoiseChoice(NamedTuple):
    """Whose noise differs in q, and whose may in draws, which find out by how much: all, unless less of it predicts better."""

    noise_per: str | None
    of_draws: str | None


def chosen_noise(settings: RatingSettings, ratings: Ratings, seed: int) -> NoiseChoice:
    """What raises the bound of a short fit, unless less than that predicts better: "user", "item", "both" or None."""
    if settings.likelihood != "gaussian" or not settings.learn_noise or settings.factorized or len(ratings) < LEAST:
        return NoiseChoice(None, None)
    short = settings._replace(n_factors=min(FACTORS, settings.n_factors), noise_per=None)
    out = np.zeros(len(ratings), dtype=bool)
    out[generator(seed, Stream.HELD_OUT).permutation(len(ratings))[: len(ratings) // PART]] = True
    rest, held = (
        Ratings.numbered(
            ratings.users[part], ratings.items[part], ratings.values[part], ratings.user_ids, ratings.item_ids
        )
        for part in (~out, out)
    )
    problem, state = _short_fit(short, rest, seed)
    by_bound = _by_bound(problem, state, float(settings.noise_dof))
    others = {None: (), "both": ("item", "user", None)}.get(by_bound, (None,))
    errors = {by: _errors(short._replace(noise_per=by), rest, held, seed) for by in (by_bound, *others) if others}
    best = min(errors, key=lambda by: float(errors[by].sum()), default=by_bound)
    if best == by_bound:
        return NoiseChoice(by_bound, "both")
    gained = np.bincount(held.users, errors[by_bound] - errors[best])  # ratings of one user go together
    surely = gained.sum() > SURE * np.sqrt((gained**2).sum())
    return NoiseChoice(best, best) if surely else NoiseChoice(by_bound, "both")


def _short_fit(settings: RatingSettings, ratings: Ratings, seed: int) -> tuple[Any, State]:
    from natgrad.models.factorization.likelihoods import Gaussian

    kind = Gaussian(settings, ratings)
    state = kind.start(ratings, seed, 1.0)
    while state.t < SWEEPS:
        phase = kind.phase(ratings, seed, state.t, None, False)
        problem: Any = phase.problem
        stepper = AcceleratedStepper(problem, problem.order)
        state = take_steps(problem, stepper, state, (phase.until or SWEEPS) - state.t, seed).state
    return problem, state


def _errors(settings: RatingSettings, ratings: Ratings, held: Ratings, seed: int) -> Floats:
    """The squared errors of a short fit on ratings that it has not seen."""
    problem, state = _short_fit(settings, ratings, seed)
    mean, _ = pair_moments(held.users, held.items, state.mu["u"], state.mu["v"], settings.biases)
    return np.asarray((held.values - problem.offset - mean) ** 2)


def _by_bound(problem: Any, state: State, nu: float) -> str | None:
    """What raises the bound of a fit with one noise, all else held."""
    work = RatingSweep(problem, state)
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


class NoiseDof:
    """How much the noise of a side's rows differs, ν, drawn with s integrated out; and s given it.

    p(ν | rest) is the exponential of what `noise_gain` says of each of the values in ``DOF``, which are equally likely before:
    where s were held, ν would hardly move.

    Parameters
    ----------
    counts : array [rows], ratings of each row
    """

    def __init__(self, counts: Any) -> None:
        self.counts = np.asarray(counts, dtype=np.float64)
        half, shapes = 0.5 * DOF, 0.5 * (DOF[:, None] + self.counts)
        known = len(self.counts) * (half * np.log(half) - scipy.special.gammaln(half))
        self._shapes, self._known = shapes, known + scipy.special.gammaln(shapes).sum(1)

    def drawn(self, errors: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """λ of s given a new ν; ``errors`` are τ Σ_n t (r − …)² of each row."""
        dof = float(rng.choice(DOF, p=self.chances(errors)))
        return -0.5 * (dof + errors), 0.5 * (dof + self.counts) - 1.0

    def chances(self, errors: Floats) -> Floats:
        """Of every value of ν."""
        logs = self._known - (self._shapes * np.log(0.5 * (DOF[:, None] + errors))).sum(1)
        chances = np.exp(logs - logs.max())
        return np.asarray(chances / chances.sum())


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
