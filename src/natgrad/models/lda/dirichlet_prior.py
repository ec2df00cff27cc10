"""Sums of E[log x] over Dirichlet variables in; the concentrations that maximise their expected log prior out.

    f(α) = n [log Γ(Σ α) − Σ_k log Γ(α_k)] + Σ_k α_k s_k,     s_k = Σ_d E[log θ_dk]

is concave, and its Hessian is a diagonal plus a constant: a Newton step costs as much as a gradient (Blei, Ng and Jordan 2003,
appendix A.4; Minka 2000). Steps are halved until f rises, so the result never is worse than the start; concentrations stay in
`RANGE`, where a prior that wants to run away stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.kernels.special import elog_columns
from natgrad.threads import threads_for

__all__ = ["RANGE", "best_concentrations", "best_symmetric", "log_prior", "log_shares"]

Floats = npt.NDArray[np.float64]
# Below the least, exp ψ(α) is nothing in float32 and a topic could never come back; above the most, all shares are the same.
RANGE = (1e-3, 1e3)
NEWTON_STEPS, HALVINGS, ENOUGH = 50, 30, 1e-10


def log_prior(alpha: Floats, sums: Floats, n: float) -> float:
    """f(α)."""
    return float(n * (sp.gammaln(alpha.sum()) - sp.gammaln(alpha).sum()) + alpha @ sums)


def best_concentrations(alpha: Floats, sums: Floats, n: float) -> Floats:
    """The α [K] within `RANGE` with the largest f, by Newton steps from ``alpha``; ``alpha`` itself if n is 0 or K is 1.

    Examples
    --------
    >>> theta = np.random.default_rng(0).dirichlet([0.5, 2.0], 5000)
    >>> best_concentrations(np.ones(2), np.log(theta).sum(0), 5000).round(1)
    array([0.5, 2. ])
    """

    def step(x: Floats) -> Floats:
        gradient = n * (sp.digamma(x.sum()) - sp.digamma(x)) + sums
        diagonal, constant = -n * sp.polygamma(1, x), n * float(sp.polygamma(1, x.sum()))
        common = (gradient / diagonal).sum() / (1.0 / constant + (1.0 / diagonal).sum())
        move: Floats = -(gradient - common) / diagonal
        return move

    if not n > 0 or len(alpha) < 2:
        return alpha
    return _climb(np.clip(alpha, *RANGE), lambda x: log_prior(x, sums, n), step, log_prior(alpha, sums, n), alpha)


def best_symmetric(beta: float, total: float, n: float, size: int, shift: float = 0.0) -> float:
    """The β of n symmetric Dirichlet priors over ``size`` categories; ``total`` is Σ E[log x] over all of them.

    With ``shift`` the prior is Dir(β + shift): the point estimates of topics have 1.
    """

    def value(x: Floats) -> float:
        b = float(x[0]) + shift
        return n * float(sp.gammaln(size * b) - size * sp.gammaln(b)) + b * total

    def step(x: Floats) -> Floats:
        b = x + shift
        gradient = n * size * (sp.digamma(size * b) - sp.digamma(b)) + total
        curvature = n * size * (size * sp.polygamma(1, size * b) - sp.polygamma(1, b))
        move: Floats = -gradient / curvature
        return move

    start = np.array([beta])
    if not n > 0 or size < 2:
        return beta
    return float(_climb(np.clip(start, *RANGE), value, step, value(start), start)[0])


def _climb(
    x: Floats, value: Callable[[Floats], float], step: Callable[[Floats], Floats], least: float, given: Any
) -> Floats:
    """Newton steps, clipped to `RANGE` and halved until the value rises; what was given, if all of it ends lower."""
    height = value(x)
    for _ in range(NEWTON_STEPS):
        move, length = step(x), 1.0
        for _ in range(HALVINGS):
            # No step takes more than nine tenths of a concentration: Newton overshoots below zero from far above.
            new = np.clip(np.maximum(x + length * move, 0.1 * x), *RANGE)
            reached = value(new)
            if reached > height:
                break
            length *= 0.5
        else:
            break
        gain, x, height = reached - height, new, reached
        if gain <= ENOUGH * (abs(height) + 1.0) and np.abs(length * move).max() <= 1e-6 * float(x.max()):
            break
    return x if height >= least else given


def log_shares(gamma: npt.NDArray[Any]) -> Floats:
    """Σ_d E[log θ_d] [K] under Dir(γ_d)."""
    elog = np.empty(gamma.shape)
    with threads_for(gamma.size):
        elog_columns(gamma.astype(np.float64), np.zeros(gamma.shape[1]), elog)
    sums: Floats = elog.sum(0)
    return sums - float(sp.digamma(gamma.sum(1, dtype=np.float64)).sum())
