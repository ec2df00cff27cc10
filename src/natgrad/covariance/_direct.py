"""Covariance functions in NumPy: K and the pull-back of its slopes, in closed form; sums and products of them, too.

For the usual kernel and a hundred inducing inputs a call into a compiled function takes as long as the mathematics, and compiling
a sum longer than a fit. Here is the mathematics: with s = |x/ℓ − z/ℓ|² and K = v g(s), slopes W = K̄ v g'(s) of s give those of z
and ℓ by products with W alone. The parts of a sum have the slopes of the sum, those of a product its slopes times the others.
`Covariance.matrix` in JAX is the twin that tests compare it with. What has no closed form here (`Function`, `Periodic`,
`RationalQuadratic`, and whatever contains one) is left to JAX.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.covariance._expression import Covariance, Leaf, Product, Sum
from natgrad.covariance._functions import (
    RBF,
    SAME,
    Categories,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    White,
)

__all__ = ["Direct", "Evaluated", "direct_of"]

Floats = npt.NDArray[np.float64]
Profile = Callable[[Floats], tuple[Floats, Floats]]
Theta = tuple[Any, ...]
Slopes = tuple[tuple[Floats, ...], Floats]


class Evaluated(NamedTuple):
    """K_mm, K_nm and k_nn, with what their pull-back needs."""

    k_mm: Floats
    k_nm: Floats
    k_nn: Floats
    kept: Any


class Direct(Protocol):
    """A covariance function of θ, inducing inputs [M, D] and rows [N, D]."""

    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        """All three matrices."""
        ...

    def rows(self, theta: Theta, inducing: Any, x: Floats) -> tuple[Floats, Floats]:
        """K_nm and k_nn alone."""
        ...

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        """Slopes in θ and Z from those in K_mm (symmetric), K_nm and k_nn."""
        ...


def direct_of(kernel: Covariance) -> Direct | None:
    """The closed form of a kernel, if it and all its parts have one."""
    if isinstance(kernel, (Sum, Product)):
        parts = [direct_of(part) for part in kernel.parts]
        known = [part for part in parts if part is not None]
        counts = [len(part.theta) for part in kernel.parts]
        if len(known) < len(parts):
            return None
        return _Added(known, counts) if isinstance(kernel, Sum) else _Multiplied(known, counts)
    form = FORMS.get(type(kernel))
    if form is None or not isinstance(kernel, Leaf):
        return None
    own = _Linear(np.asarray(kernel.origin)) if isinstance(kernel, Linear) else form()
    return own if kernel.active is None else _Cut(own, np.asarray(kernel.active))


# -- of one leaf --


class _Stationary:
    """v g(s)."""

    def __init__(self, profile: Profile, factor: float) -> None:
        self._profile, self._factor = profile, factor

    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        """Both matrices as one: a call takes as long as the work at small sizes."""
        variance, ell = float(np.exp(theta[0])), np.exp(np.asarray(theta[1]))
        both, size = np.concatenate([inducing, x]), len(inducing)
        both /= ell
        squared = _squared(both, both[:size])
        np.einsum("ii->i", squared[:size])[:] = 0.0
        k, slope = self._profile(squared)
        k *= variance
        if slope is not k:
            slope *= variance
        kept = variance, ell, both[:size], both[size:], slope[:size], slope[size:]
        return Evaluated(k[:size], k[size:], np.full(len(x), variance), kept)

    def rows(self, theta: Theta, inducing: Any, x: Floats) -> tuple[Floats, Floats]:
        """Without the square of M."""
        variance, ell = float(np.exp(theta[0])), np.exp(np.asarray(theta[1]))
        k_nm, _ = self._profile(_squared(x / ell, np.asarray(inducing) / ell))
        k_nm *= variance
        return k_nm, np.full(len(x), variance)

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        """Slopes in (log v, log ℓ) and Z."""
        variance, ell, z, x, slope_mm, slope_nm = at.kept
        columns = slice(1, 1 + z.shape[1])
        along_v = np.vdot(k_mm, at.k_mm) + np.vdot(k_nm, at.k_nm) + variance * k_nn.sum()
        # Sums over rows of W, of W x and of W x² are one product.
        by_z = (k_mm * slope_mm) @ _powers(z)
        both = (k_nm * slope_nm).T @ _powers(x) + by_z
        spread = both[:, columns.stop :].sum(0) + ((both[:, :1] * z - 2.0 * both[:, columns]) * z).sum(0)
        twice = both + by_z  # K_mm has Z on both sides
        slope_z = twice[:, :1] * z - twice[:, columns]
        along_ell = -2.0 * self._factor * (spread if ell.ndim else spread.sum())
        return (np.asarray(along_v), np.asarray(along_ell)), 2.0 * self._factor * slope_z / ell


class _Simple(abc.ABC):
    """A function whose K_mm is as cheap as a few rows; abstract."""

    @abc.abstractmethod
    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        """All three matrices."""

    def rows(self, theta: Theta, inducing: Any, x: Floats) -> tuple[Floats, Floats]:
        """K_nm and k_nn, of all three."""
        _, k_nm, k_nn, _ = self.evaluate(theta, inducing, x)
        return k_nm, k_nn


class _Linear(_Simple):
    """Σ_d v_d (x_d − o_d) (z_d − o_d)."""

    def __init__(self, origin: Floats) -> None:
        self._origin = origin

    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        v, z, x = np.exp(np.asarray(theta[0])), np.asarray(inducing) - self._origin, x - self._origin
        return Evaluated((z * v) @ z.T, (x * v) @ z.T, (x * x * v).sum(1), (v, z, x))

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        v, z, x = at.kept
        by_z, by_x = k_mm @ z, k_nm.T @ x
        each = v * ((by_z * z).sum(0) + (by_x * z).sum(0) + k_nn @ (x * x))
        return (np.asarray(each if v.ndim else each.sum()),), v * (by_x + 2.0 * by_z)


class _Categories(_Simple):
    """v exp(−Σ_d [x_d ≠ z_d] / ℓ_d); it does not move inducing inputs."""

    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        variance, ell = float(np.exp(theta[0])), np.exp(np.asarray(theta[1]))
        both, size = np.concatenate([inducing, x]), len(inducing)
        apart = [np.abs(np.subtract.outer(column, column[:size])) > SAME for column in both.T]
        k = variance * np.exp(
            -sum(differ / one for differ, one in zip(apart, np.broadcast_to(ell, len(apart)), strict=True))
        )
        return Evaluated(k[:size], k[size:], np.full(len(x), variance), (variance, ell, apart, np.shape(inducing)))

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        variance, ell, apart, shape = at.kept
        pulls = np.concatenate([k_mm * at.k_mm, k_nm * at.k_nm])
        each = np.array([np.vdot(pulls, differ) for differ in apart]) / ell
        along_ell = np.asarray(each if ell.ndim else each.sum())
        return (np.asarray(pulls.sum() + variance * k_nn.sum()), along_ell), np.zeros(shape)


class _Constant(_Simple):
    """v everywhere, or on the diagonal alone."""

    def __init__(self, white: bool = False) -> None:
        self._white = white

    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        variance, size = float(np.exp(theta[0])), len(inducing)
        k_mm = variance * np.eye(size) if self._white else np.full((size, size), variance)
        k_nm = np.full((len(x), size), 0.0 if self._white else variance)
        return Evaluated(k_mm, k_nm, np.full(len(x), variance), np.shape(inducing))

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        along_v = np.vdot(k_mm, at.k_mm) + np.vdot(k_nm, at.k_nm) + k_nn @ at.k_nn
        return (np.asarray(along_v),), np.zeros(at.kept)


# -- of several --


class _Cut:
    """A function of some columns."""

    def __init__(self, inner: Direct, active: npt.NDArray[np.int64]) -> None:
        self._inner, self._active = inner, active

    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        z = np.asarray(inducing)
        at = self._inner.evaluate(theta, z[:, self._active], x[:, self._active])
        return at._replace(kept=(at, z.shape))

    def rows(self, theta: Theta, inducing: Any, x: Floats) -> tuple[Floats, Floats]:
        return self._inner.rows(theta, np.asarray(inducing)[:, self._active], x[:, self._active])

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        inner, shape = at.kept
        theta, slope_z = self._inner.pulled(inner, k_mm, k_nm, k_nn)
        whole = np.zeros(shape)
        whole[:, self._active] = slope_z
        return theta, whole


class _Combined(abc.ABC):
    """Several functions, each with its share of θ; abstract."""

    def __init__(self, parts: list[Direct], counts: list[int]) -> None:
        ends = np.cumsum(counts)
        self._parts, self._shares = parts, [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]

    def evaluate(self, theta: Theta, inducing: Any, x: Floats) -> Evaluated:
        """All three matrices, with those of the parts."""
        pairs = zip(self._parts, self._shares, strict=True)
        each = [part.evaluate(theta[share], inducing, x) for part, share in pairs]
        k_mm, k_nm, k_nn = (self._of([one[number] for one in each]) for number in range(3))
        return Evaluated(k_mm, k_nm, k_nn, each)

    def rows(self, theta: Theta, inducing: Any, x: Floats) -> tuple[Floats, Floats]:
        """K_nm and k_nn."""
        pairs = zip(self._parts, self._shares, strict=True)
        k_nm, k_nn = zip(*(part.rows(theta[share], inducing, x) for part, share in pairs), strict=True)
        return self._of([*k_nm]), self._of([*k_nn])

    @staticmethod
    @abc.abstractmethod
    def _of(matrices: list[Floats]) -> Floats: ...


class _Added(_Combined):
    """Σ K_i."""

    @staticmethod
    def _of(matrices: list[Floats]) -> Floats:
        out = matrices[0].copy()
        for matrix in matrices[1:]:
            out += matrix
        return out

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        pulls = [part.pulled(own, k_mm, k_nm, k_nn) for part, own in zip(self._parts, at.kept, strict=True)]
        return tuple(slope for theta, _ in pulls for slope in theta), np.asarray(sum(slope_z for _, slope_z in pulls))


class _Multiplied(_Combined):
    """Π K_i."""

    @staticmethod
    def _of(matrices: list[Floats]) -> Floats:
        out = matrices[0].copy()
        for matrix in matrices[1:]:
            out *= matrix
        return out

    def pulled(self, at: Evaluated, k_mm: Floats, k_nm: Floats, k_nn: Floats) -> Slopes:
        """Each has the slopes times the others."""
        theta: list[Floats] = []
        along_z = np.zeros(())
        for number, (part, own) in enumerate(zip(self._parts, at.kept, strict=True)):
            others = [*at.kept[:number], *at.kept[number + 1 :]]
            mm, nm, nn = (
                self._of([slope, *(other[place] for other in others)]) for place, slope in enumerate((k_mm, k_nm, k_nn))
            )
            of_part, of_z = part.pulled(own, mm, nm, nn)
            theta.extend(of_part)
            along_z = along_z + of_z
        return tuple(theta), along_z


# -- parts --


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


# Of stationary functions g and g', the second without the factor behind it.
FORMS: dict[type, Callable[[], Direct]] = {
    RBF: lambda: _Stationary(_rbf, -0.5),
    Matern12: lambda: _Stationary(_matern12, -0.5),
    Matern32: lambda: _Stationary(_matern32, -1.5),
    Matern52: lambda: _Stationary(_matern52, -5.0 / 6.0),
    Linear: lambda: _Linear(np.zeros(())),
    Categories: _Categories,
    Constant: _Constant,
    White: lambda: _Constant(white=True),
}
