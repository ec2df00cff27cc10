"""Degrees of freedom and rate of a Wishart in; quantiles of every element of the matrix out.

    X_ij = ½ s [(1 + r) Q₁ − (1 − r) Q₂],   Q₁, Q₂ ~ χ²_dof,   s = √(V_ii V_jj),   r = V_ij / s,   V = rate⁻¹

It follows from xy = ¼ [(x + y)² − (x − y)²]. On the diagonal r = 1, a χ². Elsewhere all cumulants are known,

    κ_n(X / s) = dof (n − 1)!/2 [(1 + r)ⁿ + (−1)ⁿ (1 − r)ⁿ]

and from 30 degrees of freedom on the expansion of Cornish and Fisher (1938) with six of them has tail probabilities right to
4e-5: large matrices have as many degrees of freedom as columns, and thousands of them take no longer than their inverse. With
fewer, the law is integrated over the quantiles of Q₂ and inverted by Newton's method, safeguarded by bisection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._ops import Array

__all__ = ["element_quantile"]

Floats = NDArray[np.float64]
# Degrees of freedom from which the expansion is right: the largest error of thirteen tails (0.0005 … 0.9995) and nine r is 9e-5
# with 20 of them, 3.3e-5 with 30 and 9e-6 with 50.
ENOUGH = 30.0
# Midpoints of the quadrature, and steps to a quantile: from the expansion a dozen is enough where no bisection is needed.
NODES, STEPS, CLOSE = 2000, 60, 1e-9


def element_quantile(dof: Array, rate: Array, probability: float) -> Floats:
    """The quantile of each element [..., D, D] of matrices with dof [...] and rate [..., D, D]."""
    v = np.asarray(ops.spd_inverse_logdet(rate)[0])
    root = np.sqrt(np.diagonal(v, axis1=-2, axis2=-1))
    scale = np.asarray(ops.outer(root, root))
    r = np.clip(v / scale, -1.0, 1.0)
    freedom = np.broadcast_to(np.asarray(dof, np.float64), v.shape[:-2])
    out = _expansion(freedom[..., None, None], r, np.asarray(probability))
    for index in zip(*np.nonzero(freedom < ENOUGH), strict=True) if freedom.ndim else [()] * int(freedom < ENOUGH):
        upper = np.triu_indices(v.shape[-1], 1)
        found = _by_quadrature(float(freedom[index]), r[index][upper], probability)
        out[index][upper] = out[index].T[upper] = found
    diagonal = np.arange(v.shape[-1])
    out[..., diagonal, diagonal] = 2.0 * sp.gammaincinv(0.5 * freedom, probability)[..., None]
    return np.asarray(scale * out)


def _expansion(dof: Any, r: Floats, probability: Any) -> Floats:
    """Quantiles of X / s by the expansion of Cornish and Fisher, with six cumulants."""
    z = sp.ndtri(probability)
    sd = np.sqrt(dof * (1.0 + r * r))
    # Cumulants of (X − E[X]) / sd: dof 2ⁿ⁻¹ (n − 1)! 2⁻ⁿ [(1 + r)ⁿ ± (1 − r)ⁿ].
    plus, minus = (1.0 + r) / sd, (1.0 - r) / sd
    c3, c4 = dof * (plus**3 - minus**3), 3.0 * dof * (plus**4 + minus**4)
    c5, c6 = 12.0 * dof * (plus**5 - minus**5), 60.0 * dof * (plus**6 + minus**6)
    z2, z3 = z * z, z**3
    z4, z5 = z2 * z2, z3 * z2
    w = z + c3 * (z2 - 1) / 6
    w = w + c4 * (z3 - 3 * z) / 24 - c3**2 * (2 * z3 - 5 * z) / 36
    w += c5 * (z4 - 6 * z2 + 3) / 120 - c3 * c4 * (z4 - 5 * z2 + 2) / 24 + c3**3 * (12 * z4 - 53 * z2 + 17) / 324
    w += c6 * (z5 - 10 * z3 + 15 * z) / 720 - c4**2 * (3 * z5 - 24 * z3 + 29 * z) / 384
    w -= c3 * c5 * (2 * z5 - 17 * z3 + 21 * z) / 180
    w += c3**2 * c4 * (14 * z5 - 103 * z3 + 107 * z) / 288 - c3**4 * (252 * z5 - 1688 * z3 + 1511 * z) / 7776
    return np.asarray(dof * r + sd * w)


def _by_quadrature(dof: float, r: Floats, probability: float) -> Floats:
    """Quantiles of X / s for some correlations [n]: tail probabilities right to 1e-4."""
    half, turned = 0.5 * dof, r < 0.0
    # −X has the correlation −r: the part that is integrated out is the smaller one, so that the rest is smooth in it.
    r, wanted = np.abs(r), np.where(turned, 1.0 - probability, probability)
    nodes = 2.0 * sp.gammaincinv(half, (np.arange(NODES) + 0.5) / NODES)
    plus, minus = 0.5 * (1.0 + r), 0.5 * (1.0 - r)
    low, high = -minus * nodes[-1] - 1.0, plus * nodes[-1] + 1.0
    x = np.clip(_expansion(dof, r, wanted), low, high)
    constant = sp.gammaln(half) + half * np.log(2.0)
    for _ in range(STEPS):
        reach = np.maximum((x[:, None] + minus[:, None] * nodes) / plus[:, None], 0.0)
        above = sp.gammainc(half, 0.5 * reach).mean(-1) - wanted
        if np.abs(above).max(initial=0.0) < CLOSE:
            break
        low, high = np.where(above < 0, x, low), np.where(above > 0, x, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.exp((half - 1.0) * np.log(reach) - 0.5 * reach - constant).mean(-1) / plus
            new = x - above / slope
        x = np.where((new > low) & (new < high), new, 0.5 * (low + high))
    return np.where(turned, -x, x)
