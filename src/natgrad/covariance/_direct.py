"""A stationary function of all columns in NumPy: K and the pull-back of its slopes, in closed form.

For the usual kernel and a hundred inducing inputs a call into a compiled function takes as long as the mathematics. Here is the
mathematics: with s = |x/ℓ − z/ℓ|² and K = v g(s), slopes W = K̄ v g'(s) of s give those of z and ℓ by products with W alone.
`Covariance.matrix` in JAX is the twin that tests compare it with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.covariance._expression import Covariance, Leaf
from natgrad.covariance._functions import RBF, Matern12, Matern32, Matern52

__all__ = ["Direct", "Evaluated", "direct_of"]

Floats = npt.NDArray[np.float64]
Profile = Callable[[Floats], tuple[Floats, Floats]]


class Evaluated(NamedTuple):
    """K_mm, K_nm and k_nn, with what their pull-back needs; slopes of s up to a factor."""

    k_mm: Floats
    k_nm: Floats
    k_nn: Floats
    variance: float
    ell: Floats
    z: Floats
    x: Floats
    slope_mm: Floats
    slope_nm: Floats


def direct_of(kernel: Covariance) -> Direct | None:
    """The closed form of a kernel, if it is one of those that have it."""
    known = PROFILES.get(type(kernel))
    return Direct(*known) if known is not None and isinstance(kernel, Leaf) and kernel.active is None else None


class Direct:
    """K and its pull-back for v g(s)."""

    def __init__(self, profile: Profile, factor: float) -> None:
        self._profile, self._factor = profile, factor

    def square(self, theta: tuple[Any, ...], inducing: Any) -> Floats:
        """K_mm."""
        return self.evaluate(theta, inducing, np.empty((0, np.shape(inducing)[1]))).k_mm

    def rows(self, theta: tuple[Any, ...], inducing: Any, x: Floats) -> tuple[Floats, Floats]:
        """K_nm and k_nn."""
        variance, ell = float(np.exp(theta[0])), np.exp(np.asarray(theta[1]))
        k_nm, _ = self._profile(_squared(x / ell, np.asarray(inducing) / ell))
        k_nm *= variance
        return k_nm, np.full(len(x), variance)

    def evaluate(self, theta: tuple[Any, ...], inducing: Any, x: Floats) -> Evaluated:
        """The matrices of inducing inputs [M, D] and a batch [N, D], as one: a call takes as long as the work at small sizes."""
        variance, ell = float(np.exp(theta[0])), np.exp(np.asarray(theta[1]))
        both, size = np.concatenate([inducing, x]), len(inducing)
        both /= ell
        squared = _squared(both, both[:size])
        np.einsum("ii->i", squared[:size])[:] = 0.0
        k, slope = self._profile(squared)
        k *= variance
        if slope is not k:
            slope *= variance
        k_nn = np.full(len(x), variance)
        return Evaluated(k[:size], k[size:], k_nn, variance, ell, both[:size], both[size:], slope[:size], slope[size:])

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> tuple[tuple[Floats, Floats], Floats]:
        """Slopes in (log v, log ℓ) and Z from those in K_mm (symmetric), K_nm and k_nn."""
        z, columns = at.z, slice(1, 1 + at.z.shape[1])
        along_v = np.vdot(k_mm, at.k_mm) + np.vdot(k_nm, at.k_nm) + at.variance * k_nn.sum()
        # Sums over rows of W, of W x and of W x² are one product.
        by_z = (k_mm * at.slope_mm) @ _powers(z)
        both = (k_nm * at.slope_nm).T @ _powers(at.x) + by_z
        spread = both[:, columns.stop :].sum(0) + ((both[:, :1] * z - 2.0 * both[:, columns]) * z).sum(0)
        twice = both + by_z  # K_mm has Z on both sides
        slope_z = twice[:, :1] * z - twice[:, columns]
        along_ell = -2.0 * self._factor * (spread if at.ell.ndim else spread.sum())
        return (np.asarray(along_v), np.asarray(along_ell)), 2.0 * self._factor * slope_z / at.ell


def _squared(x: Floats, z: Floats) -> Floats:
    """|x − z|² of every pair, up to rounding also below zero: one product of (|x|², 1, −2x) and (1, |z|², z)."""
    n, width = x.shape
    left, right = np.ones((n, width + 2)), np.ones((len(z), width + 2))
    np.einsum("nd,nd->n", x, x, out=left[:, 0])
    np.einsum("nd,nd->n", z, z, out=right[:, 1])
    np.multiply(x, -2.0, out=left[:, 2:])
    right[:, 2:] = z
    s: Floats = left @ right.T
    return s


def _powers(a: Floats) -> Floats:
    """(1, a, a²)."""
    n, width = a.shape
    out = np.ones((n, 1 + 2 * width))
    out[:, 1 : 1 + width] = a
    np.multiply(a, a, out=out[:, 1 + width :])
    return out


def _rbf(s: Floats) -> tuple[Floats, Floats]:
    s *= -0.5
    value = np.exp(s, out=s)
    return value, value


def _root(s: Floats) -> Floats:
    return np.sqrt(np.maximum(s, 0.0))


def _matern12(s: Floats) -> tuple[Floats, Floats]:
    r = _root(s)
    value = np.exp(-r)
    # No slope at a distance of zero, as in the JAX twin.
    return value, np.divide(value, r, out=np.zeros_like(r), where=r > 0.0)


def _matern32(s: Floats) -> tuple[Floats, Floats]:
    r = _root(3.0 * s)
    decay = np.exp(-r)
    return (1.0 + r) * decay, decay


def _matern52(s: Floats) -> tuple[Floats, Floats]:
    r = _root(5.0 * s)
    decay = np.exp(-r)
    return (1.0 + r + r * r / 3.0) * decay, (1.0 + r) * decay


# g and g' of each, the second without the factor behind it.
PROFILES: dict[type, tuple[Profile, float]] = {
    RBF: (_rbf, -0.5),
    Matern12: (_matern12, -0.5),
    Matern32: (_matern32, -1.5),
    Matern52: (_matern52, -5.0 / 6.0),
}
