"""A fitted factorisation in; draws of its users, items and noise by Gibbs sampling out: a closing phase of a run.

The complete conditional of a block is its target with values in the place of moments, as in networks: rows of a side are
Gaussian given the other side, x_i ~ N(Λ_i⁻¹ λ_i, Λ_i⁻¹), precisions are Gammas. All rows of a side are drawn at once, and then
the scales of their numbers (`drawn_scales`): q switches factors off that the posterior does not, and
they must come back in a few sweeps. The chain begins at a draw from q. The first third of the sweeps burns in; of the rest,
every so many draws are kept as there is room.

Salakhutdinov and Mnih (2008) is the model with Gaussian priors that have means.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.families import Gamma
from natgrad.inference.problem import BlockInfo, State
from natgrad.inference.sampler import sliced
from natgrad.inference.steppers.gibbs import TINY
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.kernels.factorization.draws import draw_rows
from natgrad.models.factorization.files import switched_off
from natgrad.models.factorization.problem import FullRatingsProblem
from natgrad.models.factorization.sides import OTHER, Drawn
from natgrad.models.factorization.sweep import MAP, NOISE, PRECISION, SIDE, RatingSweep
from natgrad.random import Stream, generator

__all__ = ["DEFAULT_SWEEPS", "KeptDraws", "RatingGibbs", "burn_in", "drawn_scales", "gibbs_problem"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
GAMMA = Gamma()
VECTORS = (*OTHER, *MAP.values())
# Sweeps of Gibbs sampling unless n_sweeps= is given.
DEFAULT_SWEEPS = 200
# Numbers of kept draws of users and items together: 256 MB in single precision.
MOST_KEPT = 2**26
# Ratings with a standard deviation beyond it, or its inverse, have biases that single precision cannot hold.
FAR = 1e25


class KeptDraws(NamedTuple):
    """Draws of vectors [draw, rows, D], of 1/τ [draw] and of 1/s, 1/t [draw, rows] (or [draw, 0]).

    Vectors are in single precision if that can hold them.
    A draw is what users are drawn given, and the users that were drawn; ``user_mean`` is E[x_i | rest], which varies less.
    ``sweeps``: how many were made.
    """

    user: npt.NDArray[np.float32]
    user_mean: npt.NDArray[np.float32]
    item: npt.NDArray[np.float32]
    noise: Floats
    user_noise: npt.NDArray[np.float32]
    item_noise: npt.NDArray[np.float32]
    sweeps: int


def burn_in(sweeps: int) -> int:
    """How many of the sweeps do not count."""
    return sweeps // 3


def gibbs_problem(kind: Any, ratings: Ratings) -> FullRatingsProblem:
    """Return the problem of the fit, whose blocks are sampled; refuse likelihoods that have bounds."""
    if kind.settings.likelihood != "gaussian":
        raise ValueError(
            f'inference="gibbs" samples Gaussian ratings, and likelihood={kind.settings.likelihood!r} has bounds in their place: '
            'say inference="vb", or declare the model as a network, whose fit has draws()'
        )
    problem: FullRatingsProblem = kind._problem(ratings)
    return problem


class RatingGibbs(Stepper):
    """A stepper: one sweep of Gibbs sampling of a Gaussian factorisation.

    Parameters
    ----------
    problem : FullRatingsProblem
    sweeps : int, of which the first third burns in
    most_kept : int, numbers of draws of users and items together
    """

    monotone = False

    def __init__(self, problem: FullRatingsProblem, sweeps: int, most_kept: int = MOST_KEPT) -> None:
        self.problem, self.sweeps, self.burn = problem, sweeps, burn_in(sweeps)
        numbers = problem.size * (2 * problem.ratings.n_users + problem.ratings.n_items)
        self.stride = max(1, -(-(sweeps - self.burn) * numbers // most_kept))
        # The side whose scales are drawn, the smaller one: products of both sides are what matters. None where precisions are
        # known, or features say where rows are.
        fixed = any(PRECISION[side] not in problem.order or side in problem.features for side in OTHER)
        self.scaled = None if fixed else "u" if problem.ratings.n_users < problem.ratings.n_items else "v"
        self.kept_as = np.float32 if 1.0 / FAR < problem.priors.unit < FAR else np.float64
        self.made = 0
        self.draws: list[tuple[Any, ...]] = []
        self._mu: dict[str, Pair] = {}

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Every block once; the state stays as it is, since it is no draw."""
        if not self._mu:
            self._begin(state, seed)
        mu, info = dict(self._mu), {}
        keeps = self.made >= self.burn and (self.sweeps - self.made - 1) % self.stride == 0
        for number, name in enumerate(self.problem.order):
            rng = generator(seed, Stream.GIBBS, self.made, 1 + number)
            if name in OTHER:
                drawn = self._side(name, mu, rng, means=keeps)
                mu[name] = drawn.x, drawn.x**2
                if name == "u" and keeps:
                    kept = self._kept(mu, drawn.mean)
                if name == self.scaled:
                    mu[name] = self._scaled(name, drawn, rng)
            else:
                mu[name] = self._value(name, self._conditional(name, mu), rng)
            valid = bool(np.isfinite(mu[name][0]).all())
            info[name] = BlockInfo(valid, 0.0)
            if not valid:
                return state, StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
        self._mu, self.made = mu, self.made + 1
        if keeps:
            self.draws.append(kept)
        return state, StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)

    def kept(self) -> KeptDraws:
        """All draws that were kept."""
        user, mean, item, noise, by_user, by_item = (np.stack(parts) for parts in zip(*self.draws, strict=True))
        return KeptDraws(user, mean, item, np.asarray(noise, np.float64), by_user, by_item, self.made)

    def _begin(self, state: State, seed: int) -> None:
        """A draw from q."""
        for number, (name, lam) in enumerate(state.lam.items()):
            rng = generator(seed, Stream.GIBBS, number)
            self._mu[name] = self._value(name, (np.asarray(lam[0]), np.asarray(lam[1])), rng)
        self._revive(state, generator(seed, Stream.GIBBS, len(state.lam)))

    def _revive(self, state: State, rng: np.random.Generator) -> None:
        """Factors that q has switched off, drawn from the prior that the fit began with.

        The chain may begin anywhere. Where vectors of both sides are next to nothing it would stay for hundreds of sweeps: each
        side says that the other does not matter. Factors that are too large are gone in a few.
        """
        problem = self.problem
        if self.scaled is None:
            return
        means = (state.mu[side][0][:, : problem.n_factors] for side in OTHER)
        off = np.append(switched_off(*means), np.zeros(int(problem.priors.biases), dtype=bool))
        alpha = problem.priors.precisions(problem.n_factors)[off]
        for side in OTHER:
            x, precision = self._mu[side][0].copy(), self._mu[PRECISION[side]][0].copy()
            x[:, off] = rng.standard_normal((len(x), int(off.sum()))) / np.sqrt(alpha)
            precision[off] = alpha
            self._mu[side], self._mu[PRECISION[side]] = (x, x**2), (precision, np.log(precision))

    def _side(self, name: str, mu: dict[str, Pair], rng: np.random.Generator, means: bool) -> Drawn:
        """All rows of a side given everything else."""
        work, other = RatingSweep(self.problem, State({}, mu, 0)), OTHER[name]
        scale = work.tau[0] * work.weight(name)
        noise = rng.standard_normal((len(scale), self.problem.size))
        return self.problem.sides[name].drawn(
            mu[other][0], work.weight(other), scale, work.precision(name)[0], work.pull(name), noise,
            means=means, tells=name == self.scaled,
        )  # fmt: skip

    def _scaled(self, name: str, drawn: Drawn, rng: np.random.Generator) -> Pair:
        """The rows with new scales of their numbers."""
        x, squares = drawn.x, drawn.x**2
        less_rate, less_one = self.problem.prior_of(PRECISION[name])
        shape = float(less_one.flat[0]) + 1.0
        scales = drawn_scales(drawn.matrix, drawn.vector, squares.sum(0), len(x), shape, -less_rate, rng)
        return x * scales, squares * scales**2

    def _conditional(self, name: str, mu: dict[str, Pair]) -> Pair:
        """λ of one block, not of a side, given values of the others."""
        work = RatingSweep(self.problem, State({}, mu, 0))
        if name == "noise" or name in NOISE.values():
            side = SIDE.get(name, "u")
            other = OTHER[side]
            own = mu[side][0], mu[other][0], work.weight(other)
            work.errors[side] = self.problem.sides[side].squared_errors(*own)
        prior = work.prior_message(name)
        lam = np.array(prior[0]), np.array(prior[1])
        work.add_all(name, lam)
        return lam

    def _value(self, name: str, lam: Pair, rng: np.random.Generator) -> Pair:
        """Statistics of a draw; of vectors x, and the diagonal of x xᵀ."""
        if name in VECTORS:
            x = np.empty(lam[0].shape)
            draw_rows(*map(np.ascontiguousarray, lam), rng.standard_normal(x.shape), x)
            return x, x**2
        value = np.maximum(GAMMA.sample(lam, rng), TINY)
        return value, np.log(value)

    def _kept(self, mu: dict[str, Pair], user_mean: Floats) -> tuple[Any, ...]:
        """Users as they were drawn, and what they were drawn given: together a draw from the posterior."""
        noise = 1.0 / float(mu["noise"][0]) if "noise" in mu else 1.0 / self.problem.priors.noise
        rows = (
            (1.0 / mu[name][0]).astype(np.float32) if name in mu else np.empty(0, np.float32)
            for name in ("user_noise", "item_noise")
        )
        return *(part.astype(self.kept_as) for part in (mu["u"][0], user_mean, mu["v"][0])), noise, *rows


def drawn_scales(
    matrix: Floats, vector: Floats, squares: Floats, n_rows: int, shape: float, rates: Floats, rng: np.random.Generator
) -> Floats:
    """Draw new scales c [D] of a side's numbers from M [D, D], g [D], Σ x² [D], N and the Gamma(a, b) [D] of the precisions.

    A chain that draws the vectors of thousands of users given their precision α_k, and α_k given them, creeps: each says almost
    exactly what the other is. So x_k of all N rows is multiplied by a number c > 0, with α_k integrated out. Multiplication is a
    group, and c is drawn from p(c x_k | rest) cᴺ dc/c (Liu and Sabatti, 2000), which is

        exp(−½ M_kk c² + (g_k − Σ_h M_kh c_h) c) · (b_k + ½ c² Σ_i x_ik²)^−(a + N/2) · c^(N − 1),

    by slice sampling of log c, for one k after the other. A vague Gamma leaves no more than 1/c of the last two factors. α_k is
    drawn again before it is read.
    """
    scales = np.ones(len(vector))
    for k in range(len(vector)):
        if not squares[k] > 0.0:
            continue
        slope = vector[k] - matrix[k] @ scales + matrix[k, k] * scales[k]
        curve, half, rate = matrix[k, k], 0.5 * squares[k], rates[k]

        def density(log_c: Floats, slope=slope, curve=curve, half=half, rate=rate) -> Floats:  # type: ignore[no-untyped-def]
            c = np.exp(log_c)
            square = c * c
            prior = -shape * np.log(rate + half * square) - 0.5 * n_rows * np.log(rate / square + half)
            return np.asarray(c * slope - 0.5 * curve * square + prior)

        scales[k] = np.exp(sliced(density, np.zeros(1), rng)[0])
    return scales
