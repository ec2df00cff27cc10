"""Why a user is expected to rate an item as high at a time, in a context: the user's ratings in; what each adds to the mean out.

Given everybody else, the means of a user's vector u and biases b(1), …, b(T) are linear in the ratings. With g = v ∘ w,

    M (u, b) = Σ_n τ (E[g_n], e_t(n)) y_n,   y_n = r_n − m − c_j(t) − d_l,
    M = [diag(α) + τ Σ_n E[g_n g_nᵀ],  τ Σ_n E[g_n] e_t(n)ᵀ;  …,  Q + τ Σ_n e_t(n) e_t(n)ᵀ]

Q being the precision of the chain b, so that m + c + d + Σ_n (E[g], e_t) · M⁻¹ τ (E[g_n], e_t(n)) y_n is the mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natgrad.recommenders.columns import Codes
from natgrad.recommenders.declared import Moments

__all__ = ["reasons_of"]

Floats = npt.NDArray[np.float64]


def reasons_of(moments: Moments, told: Codes, values: Floats, asked: Codes) -> Floats:
    """What each rating of a user (``told``, ``values``) adds to the mean of the pair that is ``asked`` for."""
    tau, (g, gg), bins = 1.0 / moments.noise, _designs(moments, told), moments.b[0].shape[1]
    k, left = g.shape[1], values - moments.offset - _others(moments, told)
    design = np.hstack([g, np.eye(bins)[np.clip(told.bins, 0, bins - 1)]])
    matrix = tau * design.T @ design
    matrix[:k, :k] = tau * gg.sum(0) + np.diag(1.0 / _prior(moments.u[1][-1]))
    matrix[k:, k:] += _chain(float(moments.b[1][-1, 0]), moments.steps[0], bins)
    wanted = np.hstack([_designs(moments, asked)[0][0], np.eye(bins)[np.clip(asked.bins[0], 0, bins - 1)]])
    return np.asarray(tau * left * (design @ np.linalg.solve(matrix, wanted)))


def _designs(moments: Moments, codes: Codes) -> tuple[Floats, Floats]:
    """E[g] [n, K] and E[g gᵀ] [n, K, K] of pairs."""
    mean, spread = (part[codes.items] for part in moments.v)
    if moments.w is None:
        return mean, spread + mean[:, :, None] * mean[:, None, :]
    of_context, its_spread = (part[codes.contexts] for part in moments.w)
    g = mean * of_context
    beside = (mean**2 + spread) * (of_context**2 + its_spread) - g**2
    return g, g[:, :, None] * g[:, None, :] + np.eye(g.shape[1]) * beside[:, None, :]


def _others(moments: Moments, codes: Codes) -> Floats:
    """c_j(t) + d_l, which are not the user's."""
    level = moments.c[0]
    mean = level[codes.items, np.clip(codes.bins, 0, level.shape[1] - 1)]
    return np.asarray(mean if moments.d is None else mean + moments.d[0][codes.contexts])


def _prior(spread: Floats) -> Floats:
    """Variances of the prior of u."""
    return np.asarray(np.diag(spread) if spread.ndim == 2 else spread)


def _chain(first: float, step: float, bins: int) -> Floats:
    """The precision of a random walk of so many bins."""
    precision = np.zeros((bins, bins))
    precision[0, 0] = 1.0 / first
    for late in range(1, bins):
        here = slice(late - 1, late + 1)
        precision[here, here] += np.array([[1.0, -1.0], [-1.0, 1.0]]) / step
    return precision
