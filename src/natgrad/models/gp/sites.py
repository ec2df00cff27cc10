"""Gaussian sites of rows whose noise is not Gaussian: what rows say of f, as if each were a number seen with noise of its own.

    p(y_n | f_n) ≈ N(z_n; f_n, s_n)        1/s = −∂²/∂m² E[log p],   z = m + s ∂/∂m E[log p]     under q(f_n) = N(m, v)

At the best Gaussian q they are that for every row, and q is the exact posterior of a process that has seen z with noise s: its
natural gradient is zero there (Khan and Lin, 2017). q(f_n) is what all other sites say, the cavity, times the site itself:

    C = K + diag(s),   α = C⁻¹ z,   c = diag(C⁻¹):        cavity mean z − α/c,   variance 1/c − s

and log p(y_n | all others) is the log of E[p(y_n | f)] under the cavity. Its slopes g and h in mean and variance have, with
a = g/c and b = (g α − h)/c², the slope ½ (C⁻¹ a αᵀ + α aᵀ C⁻¹) − C⁻¹ diag(b) C⁻¹ in K, for sites that stay.
Rasmussen and Williams (2006), section 5.4.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack

from natgrad.covariance import diagonal
from natgrad.models.gp.joint import Ordinal, Softmax
from natgrad.models.gp.likelihood import Columnwise, Expected, Likelihood

__all__ = ["Cavities", "Law", "Sites", "cavities", "expected_at", "neutral", "renewed", "slope_in_k"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# How far a site moves towards the best one, each time; and how often before its cavity is asked for again.
PART, ROUNDS = 0.7, 2
# What a row says at least, and at most, of f in its unit.
LEAST_PRECISION, MOST_PRECISION = 1e-10, 1e10
# Of differences that are slopes, in units of √(1 + v) for means and of 1 + v for variances; 1 is that of the noise.
STEP = 1e-4


class Sites(NamedTuple):
    """Numbers z and variances s [F, N]."""

    z: Floats
    s: Floats

    def of(self, rows: Ints) -> Sites:
        """Those of some rows."""
        return Sites(self.z[:, rows], self.s[:, rows])


class Cavities(NamedTuple):
    """What all other sites say: means and variances [F, n]; C⁻¹ of each function, below the diagonal, and α [F, n]."""

    mean: Floats
    var: Floats
    inverse: list[Floats]
    alpha: Floats


class Law(NamedTuple):
    """p(y | f + offset) of rows y [n, P] and functions [F, n]; noise of ordered classes is N(0, 1/unit²)."""

    likelihood: Likelihood
    psi: Floats
    offset: Floats
    unit: float = 1.0

    def expected(self, y: Floats, mean: Floats, var: Floats) -> Expected:
        """E[log p(y | f)] and its slopes."""
        u = self.unit
        said = self.likelihood.expected_rows(self._psi, y, u * (mean + self.offset[:, None]), u * u * var)
        return said._replace(slope=u * said.slope, curvature=u * u * said.curvature, spread=u * u * said.spread)

    def log_densities(self, y: Floats, mean: Floats, var: Floats) -> Floats:
        """Log E[p(y_n | f_n)] [n]."""
        u = self.unit
        return self.likelihood.log_predictive_rows(self._psi, y, u * (mean + self.offset[:, None]).T, u * u * var.T)

    def in_columns(self, y: Floats, mean: Floats, var: Floats) -> Floats:
        """The same for each column of y that reads a function of its own [C, n]: one against the rest is a problem each."""
        if not isinstance(self.likelihood, Columnwise):
            return self.log_densities(y, mean, var)[None]
        parts = [self._replace(psi=self.psi[c : c + 1], offset=self.offset[c : c + 1]) for c in range(len(mean))]
        return np.array(
            [part.log_densities(y[:, c : c + 1], mean[c : c + 1], var[c : c + 1]) for c, part in enumerate(parts)]
        )

    @property
    def _psi(self) -> Floats:
        """In units of the noise."""
        return self.likelihood.widened(self.psi, self.unit) if isinstance(self.likelihood, Ordinal) else self.psi

    def slopes(self, y: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats, Floats]:
        """Log densities [n], and their slopes in means and variances [F, n]."""
        if isinstance(self.likelihood, Softmax):
            return self.likelihood.predictive_slopes(y, (mean + self.offset[:, None]).T, var.T)
        by_mean, by_var = np.empty_like(mean), np.empty_like(var)
        for f in range(len(mean)):
            here = np.arange(len(mean))[:, None] == f
            unit = 1.0 / self.unit**2 + var[f]
            step = STEP * np.sqrt(unit) * here
            by_mean[f] = self.log_densities(y, mean + step, var) - self.log_densities(y, mean - step, var)
            by_mean[f] /= 2.0 * STEP * np.sqrt(unit)
            # to one side where the other would be below zero
            down = np.minimum(STEP * unit, 0.5 * var[f])
            higher, lower = var + STEP * unit * here, var - down * here
            by_var[f] = (self.log_densities(y, mean, higher) - self.log_densities(y, mean, lower)) / (
                STEP * unit + down
            )
        return self.log_densities(y, mean, var), by_mean, by_var


def neutral(law: Law, y: Floats) -> Sites:
    """Where sites start: those of q(f) = N(0, 1), in units of the noise."""
    zeros = np.zeros((len(law.offset), len(y)))
    return _sites(law, y, zeros, zeros + 1.0 / law.unit**2)


def cavities(k: Floats, sites: Sites) -> Cavities:
    """Of all rows of a dense process with covariance ``k`` [n, n]."""
    inverse = [_inverse(k, s) for s in sites.s]
    alpha = np.array([blas.dsymv(1.0, half, z, lower=1) for half, z in zip(inverse, sites.z, strict=True)])
    c = np.array([diagonal(half) for half in inverse])
    return Cavities(sites.z - alpha / c, np.maximum(1.0 / c - sites.s, 1e-12 * diagonal(k)), inverse, alpha)


def expected_at(k: Floats, sites: Sites) -> tuple[Floats, Floats]:
    """Means and variances [F, n] of f at the first rows of ``k``, which have no sites, given the last, which have."""
    first = len(k) - sites.z.shape[1]
    mean, var = np.empty((2, len(sites.z), first))
    for f, (z, s) in enumerate(zip(*sites, strict=True)):
        w = blas.dsymm(1.0, _inverse(k[first:, first:], s), k[first:, :first], lower=1)
        mean[f], var[f] = z @ w, diagonal(k)[:first] - np.einsum("mn,mn->n", w, k[first:, :first])
    return mean, np.maximum(var, 1e-12 * diagonal(k)[:first])


def renewed(law: Law, y: Floats, mean: Floats, var: Floats, sites: Sites) -> Sites:
    """Sites [F, n] after steps towards those of q(f_n), each the cavity times the site itself."""
    now = sites
    for _ in range(ROUNDS):
        own = 1.0 / (1.0 / var + 1.0 / now.s)
        now = _between(now, _sites(law, y, own * (mean / var + now.z / now.s), own))
    return _between(sites, now)


def slope_in_k(found: Cavities, by_mean: Floats, by_var: Floats) -> Floats:
    """The slope in K [n, n] of a sum of log densities, from those in the means and variances of cavities."""
    total = np.zeros_like(found.inverse[0])
    for below, alpha, g, h in zip(found.inverse, found.alpha, by_mean, by_var, strict=True):
        c = diagonal(below).copy()
        inverse = np.tril(below) + np.tril(below, -1).T
        half = np.outer(0.5 * (inverse @ (g / c)), alpha)
        total += half + half.T - (inverse * ((g * alpha - h) / c**2)) @ inverse
    return total


def _sites(law: Law, y: Floats, mean: Floats, var: Floats) -> Sites:
    said = law.expected(y, mean, var)
    precision = np.clip(-said.curvature, LEAST_PRECISION, MOST_PRECISION)
    return Sites(mean + said.slope / precision, 1.0 / precision)


def _between(before: Sites, after: Sites) -> Sites:
    """A step in natural parameters."""
    precision = (1.0 - PART) / before.s + PART / after.s
    return Sites(((1.0 - PART) * before.z / before.s + PART * after.z / after.s) / precision, 1.0 / precision)


def _inverse(k: Floats, s: Floats) -> Floats:
    """(K + diag(s))⁻¹ on and below the diagonal."""
    c = np.array(k, order="F")
    diagonal(c)[:] += s
    factor, failed = lapack.dpotrf(c, lower=1, overwrite_a=1)
    if failed:
        raise FloatingPointError(
            f"the covariance of {len(k)} rows is not positive definite with what they say: the kernel varies too little"
        )
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    return np.asarray(lower)
