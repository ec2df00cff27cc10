"""A factor that is switched off: the precision of all ratings in; its q, and what it adds to the bound, out.

q(u_k) = N(0, x) for every user and q(v_k) = N(0, y) for every item, apart from all other factors. It says nothing to the rest but
x y to the variance of each rating, so sweeps without it are those with it. With Gamma(a, b) on its precisions it adds to the
bound, for each side of N rows, F_N of its variance, and −½ W x y:

    F_N(x) = log Γ(a + N/2) − log Γ(a) + a log b − (a + N/2) log(b + N x/2) + N/2 (1 + log x),        W = Σ_n E[τ s_i t_j]

For given y the sum is largest at the root of (½ W y N) x² + (W y b + N a) x − N b = 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.special

from natgrad.models.factorization.sides import OTHER

if TYPE_CHECKING:
    from natgrad.models.factorization.problem import FullRatingsProblem

__all__ = ["OffFactor", "off_factor"]

# Roots of one variance given the other, in turn: each round leaves a quarter of the error of log x.
ROUNDS = 40


class OffFactor(NamedTuple):
    """q of a factor that is off: the variance of its numbers, by side, and what it adds to the bound."""

    variance: dict[str, float]
    bound: float


def off_factor(problem: FullRatingsProblem, weight: float) -> OffFactor:
    """The best one, where all ratings together have the precision W = ``weight``."""
    a, b = problem.priors.shape, problem.priors.rate * problem.priors.unit
    rows = {side: float(problem.blocks[side].shape[0]) for side in OTHER}
    x = dict.fromkeys(OTHER, problem.priors.unit)
    for _ in range(ROUNDS):
        for side, other in OTHER.items():
            square, linear = 0.5 * weight * x[other] * rows[side], weight * x[other] * b + rows[side] * a
            # The root without cancellation.
            x[side] = 2.0 * rows[side] * b / (linear + np.sqrt(linear**2 + 4.0 * square * rows[side] * b))
    bound = -0.5 * weight * x["u"] * x["v"]
    for side, n in rows.items():
        shape = a + 0.5 * n
        known = scipy.special.gammaln(shape) - scipy.special.gammaln(a) + a * np.log(b)
        bound += known - shape * np.log(b + 0.5 * n * x[side]) + 0.5 * n * (1.0 + np.log(x[side]))
    return OffFactor(x, float(bound))
