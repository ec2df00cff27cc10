"""Which factors are switched off, and sweeps without them: a state of all factors in; the problem and the state of the rest out.

Write f for the share of a factor's squared means in its second moments, Σ E[u]² / Σ E[u²], on either side. Where all rows of a
side have equally many ratings, and precisions are at their best, f_u = p/(1 + p) and f_v = q/(1 + q), where p and q compare what
ratings and prior say of how large a number is. The fixed points of sweeps at which a factor is in use have p q ≥ 1 (they end
where the singular value is (√L + √M) σ; Nakajima, Sugiyama, Babacan and Tomioka, 2013), and that is f_u + f_v ≥ 1. Below, a
factor fades whatever is done, and takes tens of sweeps, since it lingers near where the last fixed point was. So it is switched
off at once, and stays off if the bound after the next sweep is higher than before. Factors that the bound would rather do
without, but that sweeps would keep, are kept: what they foresee is worth more than what they cost.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.models.factorization.sides import OTHER
from natgrad.models.factorization.sweep import PRECISION, RatingSweep, off_factor

if TYPE_CHECKING:
    from natgrad.models.factorization.problem import FullRatingsProblem

__all__ = ["RatingPruning", "with_factors"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# How near the rates of precisions are to their best ones where they are learned: they are the last that a sweep updates.
AT_BEST = 1e-6
# f_u + f_v of a factor that fades: 1 where all rows have equally many ratings, and less, for safety, since they have not.
FADES = 0.9


def with_factors(problem: FullRatingsProblem, n_factors: int) -> FullRatingsProblem:
    """The problem with so many factors in sweeps, and the others off; where ratings are kept stays the same."""
    if n_factors == problem.n_factors:
        return problem
    made = copy.copy(problem)
    made.n_off = problem.n_off + problem.n_factors - n_factors
    made.n_factors, made.size = n_factors, n_factors + problem.priors.biases
    for cached in ("blocks", "_child_sets", "_meeting"):
        vars(made).pop(cached, None)
    return made


@final
class RatingPruning:
    """The factors of a `FullRatingsProblem` whose precisions are learned."""

    def __init__(self, problem: FullRatingsProblem) -> None:
        self.problem, self.n_columns = problem, problem.size

    def live(self, state: State) -> Ints:
        """The numbers of a vector that are not off: means and covariances of those that are, are zero to the last bit."""
        off = np.ones(self.problem.size, dtype=bool)
        off[self.problem.n_factors :] = False
        for side in OTHER:
            off &= ~np.asarray(state.mu[side][0]).any(0)
        for side in OTHER:
            second = np.asarray(state.mu[side][1])
            for k in np.flatnonzero(off):
                off[k] = not np.delete(second[:, k], k, axis=1).any()
        return np.flatnonzero(~off)

    def reduced(self, state: State, kept: Ints) -> tuple[FullRatingsProblem, State]:
        """The problem and the state of the numbers ``kept``; what is left out is marginalised."""
        n_factors = int((kept < self.problem.n_factors).sum())
        lam, mu = dict(state.lam), dict(state.mu)
        made = with_factors(self.problem, n_factors)
        for side in OTHER:
            mean, second = (np.asarray(part) for part in mu[side])
            inner = np.ix_(np.arange(len(mean)), kept, kept)
            mu[side] = np.ascontiguousarray(mean[:, kept]), np.ascontiguousarray(second[inner])
            lam[side] = self._marginal(state.lam[side], mean, second, mu[side], kept)
            name = PRECISION[side]
            lam[name], mu[name] = (tuple(np.asarray(part)[kept] for part in parts[name]) for parts in (lam, mu))
        return made, state._replace(lam=lam, mu=mu)

    def _marginal(self, lam: Any, mean: Floats, second: Floats, inner: Any, kept: Ints) -> tuple[Floats, Floats]:
        """λ of some numbers of every row: its own part where they are apart from the others, else by their covariance."""
        gone = np.setdiff1d(np.arange(self.problem.size), kept)
        half = np.asarray(lam[1])
        if not any(half[:, k][:, kept].any() for k in gone):
            rows = np.ix_(np.arange(len(mean)), kept, kept)
            return np.ascontiguousarray(lam[0][:, kept]), np.ascontiguousarray(half[rows])
        covariance = inner[1] - inner[0][:, :, None] * inner[0][:, None, :]
        precision = np.linalg.inv(covariance)
        return (precision @ inner[0][:, :, None])[:, :, 0], -0.5 * precision

    def fading(self, state: State) -> Ints | None:
        """The numbers that are left without factors that fade; None where none does, or precisions are held."""
        problem = self.problem
        if problem.hold:
            return None
        share = np.zeros(problem.size)
        for side in OTHER:
            mean, second = (np.asarray(part) for part in state.mu[side])
            squares, name = np.einsum("rkk->k", second), PRECISION[side]
            best = problem.prior_of(name)[0] - 0.5 * squares
            if not np.allclose(best, state.lam[name][0], rtol=AT_BEST, atol=0.0):
                return None
            share += (mean**2).sum(0) / squares
        factors = share[: problem.n_factors]
        # One stays, so that there are vectors.
        stay = factors >= min(FADES, factors.max())
        return None if stay.all() else np.flatnonzero(np.append(stay, [True] * problem.priors.biases))

    def whole(self, problem: FullRatingsProblem, state: State, kept: Ints) -> State:
        """The state of all factors: those that are off at their best."""
        factor = off_factor(problem, RatingSweep(problem, state).total_weight())
        gone = np.setdiff1d(np.arange(self.problem.size), kept)
        lam, mu = dict(state.lam), dict(state.mu)
        for side in OTHER:
            x = factor.variance[side]
            (linear, half), (mean, second) = state.lam[side], state.mu[side]
            n, size = len(mean), self.problem.size
            whole_lam, whole_mu = ((np.zeros((n, size)), np.zeros((n, size, size))) for _ in range(2))
            inner = np.ix_(np.arange(n), kept, kept)
            whole_lam[0][:, kept], whole_mu[0][:, kept] = linear, mean
            whole_lam[1][inner], whole_mu[1][inner] = half, second
            whole_lam[1][:, gone, gone], whole_mu[1][:, gone, gone] = -0.5 / x, x
            lam[side], mu[side] = whole_lam, whole_mu
            name = PRECISION[side]
            prior = self.problem.prior_of(name)
            joined = prior[0] - 0.5 * n * x, prior[1] + 0.5 * n
            for old, new in zip(state.lam[name], joined, strict=True):
                new[kept] = old
            lam[name] = joined
            mu[name] = self.problem.moments(self.problem.blocks[name], joined)
            for old, new in zip(state.mu[name], mu[name], strict=True):
                new[kept] = old
        return state._replace(lam=lam, mu=mu)
