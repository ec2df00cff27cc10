"""The linear algebra of a sparse Gaussian process, in BLAS and LAPACK on arrays in column order: sums, bounds, gradients.

Where either triangle would do it is the upper one, for which OpenBLAS is a fifth faster at M = 100.

With A = L⁻¹ K_mn, q(v) = N(m, S) and q(f_n) = N(a_nᵀ m, b (k_nn − a_nᵀ a_n) + a_nᵀ S a_n), and with g_n, h_n the slopes of
E[log p(y_n | f_n)] in the mean and the variance of q(f_n),

    G = ∂/∂A = m gᵀ + 2 (S − b I) A diag(h)
    ∂/∂K_mn = L⁻ᵀ G,   ∂/∂K_mm = −½ L⁻ᵀ (T + Tᵀ − diag T) L⁻¹,   T = lower triangle of G Aᵀ

The last is the derivative of the Cholesky factor in closed form. b is 1, or the part of the kernel that an output has whose
function is a sum of several (`natgrad.models.gp.outputs`). For Gaussian noise h is the same for all rows, and A Aᵀ,
which the natural step needs anyhow, is all that is left of the rows: the bound costs nothing in N, and L⁻ᵀ G one product.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack

from natgrad.covariance import Inducing, diagonal
from natgrad.models.gp.likelihoods import Gaussian, Likelihood
from natgrad.models.gp.outputs import Marginal
from natgrad.models.gp.settings import Gradient

__all__ = [
    "Batch",
    "Evaluated",
    "Posterior",
    "Totals",
    "conjugate_gradient",
    "conjugate_value",
    "divergence",
    "evaluate",
    "gaussian_messages",
    "general_gradient",
    "posterior",
    "second_order",
    "totals",
]

Floats = npt.NDArray[np.float64]
LOG_2PI = float(np.log(2.0 * np.pi))


class Posterior(NamedTuple):
    """q(v) of each output, or of all at once: means [P, M], covariances [M, M] each, log |S⁻¹| [P]; whether all are proper."""

    mean: Floats
    covariance: tuple[Floats, ...]
    logdet: Floats
    proper: bool


class Batch(NamedTuple):
    """Rows as a step sees them: inputs [N, D], outputs [N, P], the inducing factor, A [M, N] and k_nn [N]."""

    x: Floats
    y: Floats
    inducing: Inducing
    a: Floats
    k_nn: Floats

    @property
    def left(self) -> Floats:
        """k_nn − a_n·a_n [N], what u leaves open."""
        return np.asarray(self.k_nn - np.einsum("mn,mn->n", self.a, self.a))


class Totals(NamedTuple):
    """Sums over rows, for Gaussian noise: A Aᵀ in column order, A Y [M, P], Σ y² [P], Σ (k_nn − a_n·a_n), rows."""

    outer: Floats
    by_y: Floats
    squares: Floats
    left: float
    n: int

    def __add__(self, other: Totals) -> Totals:  # type: ignore[override]
        return Totals(
            self.outer + other.outer,
            self.by_y + other.by_y,
            self.squares + other.squares,
            self.left + other.left,
            self.n + other.n,
        )


class Evaluated(NamedTuple):
    """What a likelihood says of a batch: Σ E[log p], slopes [F, N], for each function (S − b I) A, slopes in ψ, means [F, N]."""

    value: float
    slope: Floats
    curvature: Floats
    spread: Floats
    shrunk: list[Floats]
    psi: Floats
    mean: Floats


def posterior(lam: tuple[Floats, ...]) -> Posterior:
    """Moments of q(v) from natural parameters [P, M], [P, M, M]; improper ones give NaN."""
    means, covariances, logdets, proper = [], [], [], True
    for first, second in zip(lam[0], lam[1], strict=True):
        factor, failed = lapack.dpotrf(-2.0 * second.T, lower=0, clean=1, overwrite_a=1)
        proper = proper and failed == 0 and bool(np.isfinite(first).all())
        logdets.append(2.0 * np.log(diagonal(factor)).sum() if failed == 0 else np.nan)
        upper = lapack.dpotri(factor, lower=0, overwrite_c=1)[0] if failed == 0 else np.full_like(factor, np.nan)
        covariances.append(mirrored(upper))
        means.append(covariances[-1] @ first)
    return Posterior(np.array(means), tuple(covariances), np.array(logdets), proper)


def divergence(q: Posterior) -> float:
    """KL(q(v) ‖ N(0, I)), over all outputs."""
    traces = sum(float(np.einsum("ii->", s)) for s in q.covariance)
    return 0.5 * (traces + float(np.vdot(q.mean, q.mean)) - q.mean.size + float(q.logdet.sum()))


# -- Gaussian noise --


def totals(batch: Batch) -> Totals:
    """The sums that are all a Gaussian likelihood needs of some rows."""
    outer = mirrored(blas.dsyrk(1.0, batch.a))
    left = float(batch.k_nn.sum() - np.einsum("ii->", outer))
    return Totals(outer, batch.a @ batch.y, np.einsum("np,np->p", batch.y, batch.y), left, len(batch.y))


def conjugate_value(sums: Totals, q: Marginal, likelihood: Gaussian, psi: Floats) -> tuple[float, Floats]:
    """Σ_n E[log N(y_n | f_n, σ²)] over all outputs, and Σ_n E[(y_n − f_n)²] for each."""
    value, squares = 0.0, np.empty(len(psi))
    for p, (m, s, b) in enumerate(zip(*q, strict=True)):
        noise = likelihood.variance(float(psi[p]))
        fitted = float(m @ (sums.outer @ m)) - 2.0 * float(m @ sums.by_y[:, p])
        squares[p] = sums.squares[p] + fitted + b * sums.left + float(np.vdot(sums.outer.T, s.T))
        value -= 0.5 * (sums.n * (LOG_2PI + np.log(noise)) + squares[p] / noise)
    return value, squares


def conjugate_gradient(
    batch: Batch, sums: Totals, q: Marginal, likelihood: Gaussian, psi: Floats, scale: float, squares: Floats
) -> Gradient:
    """Slopes of the batch's bound; h is one number for each output, so that the outputs are summed before any product.

    ``squares`` are those of `conjugate_value`.
    """
    inverse = batch.inducing.inverse
    precision = np.array([scale / likelihood.variance(float(p)) for p in psi])
    shrink = -precision[0] * q.covariance[0]  # Σ_p β_p (b_p I − S_p)
    for beta, s in zip(precision[1:], q.covariance[1:], strict=True):
        shrink -= beta * s
    weight = float((precision * q.scale).sum())
    diagonal(shrink)[:] += weight
    residual = precision * (batch.y - batch.a.T @ q.mean.T)  # [N, P]
    by_residual = precision * (sums.by_y - sums.outer @ q.mean.T)  # A r [M, P]
    g_at = blas.dgemm(1.0, shrink, sums.outer)
    g_at = blas.dgemm(1.0, q.mean, by_residual, 1.0, g_at, trans_a=1, trans_b=1, overwrite_c=1)
    lifted = blas.dtrmm(1.0, inverse, shrink, lower=1, trans_a=1)  # L⁻ᵀ Σ β (b I − S)
    k_mn = blas.dgemm(1.0, lifted, batch.a)
    means = blas.dtrmm(1.0, inverse, np.asfortranarray(q.mean.T), lower=1, trans_a=1)
    k_mn = blas.dgemm(1.0, means, residual.T, 1.0, k_mn, overwrite_c=1)
    slopes = [scale * likelihood.slope(float(p), sums.n, float(sq)) for p, sq in zip(psi, squares, strict=True)]
    k_nn = np.full(len(batch.y), -0.5 * weight)
    return Gradient(through_cholesky(g_at, batch.inducing), k_mn.T, k_nn, np.array(slopes))


# -- any likelihood --


def gaussian_messages(batch: Batch, precision: Floats) -> tuple[Floats, Floats]:
    """The message of each output with Gaussian noise, of the entries that are seen."""
    seen = ~np.isnan(batch.y)
    first = (batch.a @ (np.where(seen, batch.y, 0.0) * precision)).T
    second = [-0.5 * p * mirrored(blas.dsyrk(1.0, batch.a * s)) for p, s in zip(precision, seen.T, strict=True)]
    return first, np.array(second)


def evaluate(batch: Batch, q: Marginal, likelihood: Likelihood, psi: Floats, offset: Floats) -> Evaluated:
    """q(f) of a batch, and what the likelihood says of it."""
    pairs = list(zip(q.covariance, q.scale, strict=True))
    shrunk = [blas.dsymm(1.0, s, batch.a, lower=1) - b * batch.a for s, b in pairs]
    var = np.array([b * batch.k_nn + np.einsum("mn,mn->n", batch.a, p) for p, b in zip(shrunk, q.scale, strict=True)])
    mean = np.array([batch.a.T @ m for m in q.mean])
    with np.errstate(over="ignore", invalid="ignore"):
        said = likelihood.expected_rows(psi, batch.y, mean + offset[:, None], np.maximum(var, 0.0))
        value = float(said.value.sum())
    return Evaluated(value, said.slope, said.curvature, said.spread, shrunk, np.asarray(said.parameter), mean)


def second_order(batch: Batch, said: Evaluated) -> tuple[Floats, Floats]:
    """The message of each output: sites with curvature cut at zero, where log p is not concave."""
    first, second = [], []
    for slope, curvature, mean in zip(said.slope, said.curvature, said.mean, strict=True):
        weight = np.maximum(-curvature, 0.0)
        first.append(batch.a @ (slope + weight * mean))
        second.append(-0.5 * mirrored(blas.dsyrk(1.0, batch.a * np.sqrt(weight))))
    return np.array(first), np.array(second)


def general_gradient(batch: Batch, said: Evaluated, q: Marginal, scale: float) -> Gradient:
    """Slopes of the batch's bound for any likelihood."""
    inverse = batch.inducing.inverse
    g = np.zeros_like(batch.a)
    k_nn = np.zeros(len(batch.y))
    for m, b, slope, spread, shrunk in zip(q.mean, q.scale, said.slope, said.spread, said.shrunk, strict=True):
        g += scale * (m[:, None] * slope + shrunk * (2.0 * spread))
        k_nn += scale * b * spread
    g_at = blas.dgemm(1.0, g, batch.a, trans_b=1)
    k_mn = blas.dtrmm(1.0, inverse, g, lower=1, trans_a=1)
    return Gradient(through_cholesky(g_at, batch.inducing), k_mn.T, k_nn, scale * said.psi)


def through_cholesky(g_at: Floats, inducing: Inducing) -> Floats:
    """∂/∂K_mm from G Aᵀ: −½ L⁻ᵀ (T + Tᵀ − diag T) L⁻¹, and what the jitter, a part of K_mm's diagonal, adds."""
    half = blas.dtrmm(-0.5, inducing.inverse, mirrored(_triangle(len(g_at)) * g_at), lower=1, trans_a=1, overwrite_b=1)
    out: Floats = blas.dtrmm(1.0, inducing.inverse, half, lower=1, side=1, overwrite_b=1)
    diagonal(out)[:] += inducing.part * np.einsum("ii->", out) / len(out)
    return out.T  # symmetric; rows are contiguous for JAX


def mirrored(triangle: Floats) -> Floats:
    """A symmetric matrix, in column order, from a triangle with zeros on the other side."""
    out: Floats = np.add(triangle, triangle.T, order="F")
    diagonal(out)[:] *= 0.5
    return out


@lru_cache(maxsize=4)
def _triangle(size: int) -> Floats:
    """Ones on and below the diagonal, in column order."""
    return np.asfortranarray(np.tri(size))
