"""A Gaussian process given the nearest rows alone: rows and a kernel in; p(f(x) | y_N(x)) and its slopes out.

    C = K_NN + σ² I,   w = C⁻¹ k_Nx,   mean w·y_N,   variance k_xx − k_Nx·w,   N = the m nearest rows to x

Near is what the kernel says: E[(f(x) − f(z))²] = k(x, x) + k(z, z) − 2 k(x, z), which for a stationary kernel is least where the
scaled distance is. With m rows or fewer in all this is the exact process. The log density of an observation y with e = y − w·y_N
and variance s = k_xx − k_Nx·w + σ² has the slopes g = e/s in the mean and h = (e²/s − 1)/(2 s) in s, so that

    ∂/∂k_Nx = g α − 2 h w,   ∂/∂C = h w wᵀ − ½ g (w αᵀ + α wᵀ),   α = C⁻¹ y_N

and costs no more than the factor of C. Vecchia (1988); Datta, Banerjee, Finley and Gelfand (2016).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from natgrad.covariance import RBF, Covariance, Matern12, Matern32, Matern52, diagonal
from natgrad.models.gp.settings import Gradient, Settings, compiled

__all__ = ["SMOOTHEST_FIRST", "Slopes", "conditional", "nearest", "shuffled", "slopes"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LOG_2PI = float(np.log(2.0 * np.pi))
SMOOTHEST_FIRST = (RBF, Matern52, Matern32, Matern12)
# Distances held at once, and one row in so many that says how far the nearest are.
MOST_DISTANCES, SPARSELY = 4_000_000, 16
# Squared distances that differ by less, as a part of the squared norms, are the same: products round.
SAME = 1e-12


class Slopes(NamedTuple):
    """Mean log density of some rows, each given its neighbours, and its slopes in θ and σ²."""

    value: float
    theta: tuple[Floats, ...]
    noise: float


def shuffled(x: Floats, y: Floats, rng: np.random.Generator) -> Ints:
    """An order of rows [N, D], [N] or [N, P] that is random and does not depend on the one they came in, nor do ties."""
    return np.asarray(np.lexsort((*np.atleast_2d(y.T), *x.T))[rng.permutation(len(x))])


def nearest(kernel: Covariance, x: Floats, at: Floats, m: int, own: Ints | None = None) -> Ints:
    """Numbers [B, m] of the rows of x [N, D] that are nearest to those of ``at`` [B, D], in the metric of the kernel.

    ``own`` [B] are numbers of rows that are left out, each for one row of ``at``; among rows equally far the first are taken.
    """
    out = np.empty((len(at), m), np.int64)
    x, at, norms, scale = _prepared(kernel, x, at)
    chunk = max(1, MOST_DISTANCES // len(x))
    for begin in range(0, len(at), chunk):
        part = slice(begin, begin + chunk)
        far = _distances(kernel, x, at[part], norms)
        if own is not None:
            far[np.arange(len(far)), own[part]] = np.inf
        out[part] = _smallest(far, m, SAME * scale)
    return out


def conditional(
    kernel: Covariance, noise: float | Floats, x: Floats, y: Floats, at: Floats, near: Ints
) -> tuple[Floats, Floats]:
    """Means and variances [B] of f at some inputs [B, D], each given its neighbours [B, m]; ``noise`` of all, or of each."""
    matrices, theta = compiled(kernel), kernel.theta
    mean, var = np.empty(len(at)), np.empty(len(at))
    for n, numbers in enumerate(near):
        k_mm, k_nm, k_nn = matrices.all(Settings(theta, x[numbers], ()), at[n : n + 1])
        own = noise[numbers] if isinstance(noise, np.ndarray) else noise
        w, _ = weights(k_mm, own, k_nm[0], y[numbers])
        mean[n], var[n] = w @ y[numbers], k_nn[0] - w @ k_nm[0]
        var[n] = max(var[n], 1e-12 * k_nn[0])
    return mean, var


def slopes(kernel: Covariance, noise: float, x: Floats, y: Floats, own: Ints, near: Ints) -> Slopes:
    """The mean of log p(y_i | y_N(i)) over some rows [B] with their neighbours [B, m], and its slopes."""
    matrices, theta = compiled(kernel), kernel.theta
    value, by_noise = 0.0, 0.0
    by_theta = [np.zeros(np.shape(part)) for part in theta]
    for number, numbers in zip(own, near, strict=True):
        settings, here = Settings(theta, x[numbers], ()), x[number : number + 1]
        k_mm, k_nm, k_nn = matrices.all(settings, here)
        w, alpha = weights(k_mm, noise, k_nm[0], y[numbers])
        s = max(k_nn[0] - w @ k_nm[0], 1e-12 * k_nn[0]) + noise
        e = y[number] - w @ y[numbers]
        g, h = e / s, 0.5 * (e * e / s - 1.0) / s
        value -= 0.5 * (LOG_2PI + np.log(s) + e * g)
        half = np.outer(0.5 * h * w - 0.5 * g * alpha, w)
        by_c = half + half.T
        gradient = Gradient(by_c, (g * alpha - 2.0 * h * w)[None], np.array([h]), np.empty(0))
        for total, part in zip(by_theta, matrices.pulled(settings, here, gradient).theta, strict=True):
            total += np.asarray(part)
        by_noise += h + float(np.einsum("ii->", by_c))
    n = len(own)
    return Slopes(value / n, tuple(part / n for part in by_theta), by_noise / n)


def weights(k_mm: Floats, noise: float | Floats, k: Floats, y: Floats) -> tuple[Floats, Floats]:
    """C⁻¹ k and C⁻¹ y; ``noise``: of all neighbours, or of each."""
    if not len(k):
        return k, y
    c = np.array(k_mm, order="F")
    diagonal(c)[:] += noise
    _, solved, failed = lapack.dposv(c, np.column_stack([k, y]), lower=1, overwrite_a=1)
    if failed:
        raise FloatingPointError(
            f"the covariance of {len(k)} neighbours is not positive definite with that noise: the kernel varies too little among "
            "them; give a larger noise_variance with learn_noise=False"
        )
    return np.ascontiguousarray(solved[:, 0]), np.ascontiguousarray(solved[:, 1])


# -- parts of the search --


def _prepared(kernel: Covariance, x: Floats, at: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Inputs whose distances are wanted, k(x, x) or squared norms of all rows, and the size of rounded sums."""
    if isinstance(kernel, SMOOTHEST_FIRST):
        active = slice(None) if kernel.active is None else list(kernel.active)
        ell = np.asarray(kernel.parameters[kernel.names[1]])
        middle = x[:, active].mean(0)
        x, at = (x[:, active] - middle) / ell, (at[:, active] - middle) / ell
        norms = np.einsum("nd,nd->n", x, x)
    else:
        norms = np.asarray(kernel.diagonal(kernel.theta, x))
    return x, at, norms, float(norms.max(initial=0.0))


def _distances(kernel: Covariance, x: Floats, at: Floats, norms: Floats) -> Floats:
    """Squared distances [B, N], without what is the same for all rows of x."""
    if isinstance(kernel, SMOOTHEST_FIRST):
        far = (-2.0 * at) @ x.T
    else:
        matrices, settings = compiled(kernel), Settings(kernel.theta, at, ())
        step = 4096  # what a kernel is evaluated for at once
        parts = [matrices.rows(settings, x[begin : begin + step])[0].T for begin in range(0, len(x), step)]
        far = -2.0 * np.concatenate(parts, axis=1)
    far += norms
    return np.asarray(far)


def _smallest(far: Floats, m: int, same: float) -> Ints:
    """Numbers of the m smallest of each row [B, m], in order of size; a few columns tell where to look for them."""
    n = far.shape[1]
    some = far[:, ::SPARSELY]
    place = int(1.5 * m / SPARSELY) + 8
    out = np.empty((len(far), m), np.int64)
    limits = np.partition(some, place, axis=1)[:, place] if place < some.shape[1] else np.full(len(far), np.inf)
    for row, limit, found in zip(far, limits, out, strict=True):
        few = np.flatnonzero(row <= limit + 2.0 * same)
        if len(few) < m:
            few = np.arange(n)
        found[:] = few[np.argsort(np.round(row[few] / same) if same else row[few], kind="stable")[:m]]
    return out
