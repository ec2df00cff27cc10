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
    """K_mm, K_nm and k_nn, with what their pull-back needs."""

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
    profile = PROFILES.get(type(kernel))
    return Direct(profile) if profile is not None and isinstance(kernel, Leaf) and kernel.active is None else None


class Direct:
    """K and its pull-back for v g(s)."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def square(self, theta: tuple[Any, ...], inducing: Any) -> Floats:
        """K_mm."""
        z = np.asarray(inducing) / np.exp(np.asarray(theta[1]))
        z_row, z_column = _sides(z)
        return self._values(theta, _without_diagonal(z_row @ z_column.T))

    def rows(self, theta: tuple[Any, ...], inducing: Any, x: Floats) -> tuple[Floats, Floats]:
        """K_nm and k_nn."""
        ell = np.exp(np.asarray(theta[1]))
        k_nm = self._values(theta, _sides(x / ell)[0] @ _sides(np.asarray(inducing) / ell)[1].T)
        return k_nm, np.full(len(x), float(np.exp(theta[0])))

    def evaluate(self, theta: tuple[Any, ...], inducing: Any, x: Floats) -> Evaluated:
        """The matrices of inducing inputs [M, D] and a batch [N, D]."""
        variance, ell = float(np.exp(theta[0])), np.exp(np.asarray(theta[1]))
        z, x = np.asarray(inducing) / ell, x / ell
        z_row, z_column = _sides(z)
        square, cross = _without_diagonal(z_row @ z_column.T), _sides(x)[0] @ z_column.T
        found = []
        for s in (square, cross):
            value, slope = self._profile(np.maximum(s, 0.0, out=s))
            value *= variance
            found += [value, slope]
        k_nn = np.full(len(x), variance)
        return Evaluated(found[0], found[2], k_nn, variance, ell, z, x, found[1], found[3])

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> tuple[tuple[Floats, Floats], Floats]:
        """Slopes in (log v, log ℓ) and Z from those in K_mm (symmetric), K_nm and k_nn."""
        z, x = at.z, at.x
        along_v = np.vdot(k_mm, at.k_mm) + np.vdot(k_nm, at.k_nm) + at.variance * k_nn.sum()
        w = k_nm * at.slope_nm
        w_square = k_mm * at.slope_mm
        by_z, by_x = w.sum(0), w.sum(1)
        moved, moved_square = w.T @ x, w_square @ z
        by_square = w_square.sum(1)
        slope_z = 2.0 * (by_z[:, None] * z - moved) + 4.0 * (by_square[:, None] * z - moved_square)
        spread = by_x @ x**2 + (by_z + 2.0 * by_square) @ z**2 - 2.0 * (z * (moved + moved_square)).sum(0)
        along_ell = -2.0 * at.variance * (spread if at.ell.ndim else spread.sum())
        return (np.asarray(along_v), np.asarray(along_ell)), at.variance * slope_z / at.ell

    def _values(self, theta: tuple[Any, ...], s: Floats) -> Floats:
        value, _ = self._profile(np.maximum(s, 0.0, out=s))
        value *= float(np.exp(theta[0]))
        return value


def _without_diagonal(s: Floats) -> Floats:
    """Distances of rows to themselves are zero exactly."""
    np.einsum("ii->i", s)[:] = 0.0
    return s


def _sides(a: Floats) -> tuple[Floats, Floats]:
    """(|a|², 1, −2a) and (1, |a|², a): their inner product is the squared distance."""
    squares, ones = (a * a).sum(1, keepdims=True), np.ones((len(a), 1))
    return np.hstack([squares, ones, -2.0 * a]), np.hstack([ones, squares, a])


def _rbf(s: Floats) -> tuple[Floats, Floats]:
    s *= -0.5
    value = np.exp(s, out=s)
    return value, -0.5 * value


def _matern12(s: Floats) -> tuple[Floats, Floats]:
    r = np.sqrt(s)
    value = np.exp(-r)
    # No slope at a distance of zero, as in the JAX twin.
    return value, np.divide(-0.5 * value, r, out=np.zeros_like(r), where=r > 0.0)


def _matern32(s: Floats) -> tuple[Floats, Floats]:
    r = np.sqrt(3.0 * s)
    decay = np.exp(-r)
    return (1.0 + r) * decay, -1.5 * decay


def _matern52(s: Floats) -> tuple[Floats, Floats]:
    r = np.sqrt(5.0 * s)
    decay = np.exp(-r)
    return (1.0 + r + r * r / 3.0) * decay, (-5.0 / 6.0) * (1.0 + r) * decay


PROFILES: dict[type, Profile] = {RBF: _rbf, Matern12: _matern12, Matern32: _matern32, Matern52: _matern52}
