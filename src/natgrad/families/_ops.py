"""Dispatch array functions to NumPy or JAX: the ground under every family.

Families are written once. Each call looks at its arrays: if one of them is a JAX array (traced or not) the
JAX version runs, otherwise NumPy and SciPy. JAX is never imported unless the caller already did so.

log Γ and ψ of positive numbers are branch-free, to a few units in the last place. JAX's own versions reflect negative arguments
whether there are any or not, which costs a tangent and two logarithms for every element; on a table of Dirichlet parameters
these are three and six times faster. Both shift the argument up by Γ(x) = Γ(x + n) / (x (x+1) … (x+n−1)) and use Stirling's
series there (Abramowitz & Stegun, 6.1.40 and 6.3.18).
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import scipy.special as sp

__all__ = [
    "LOG_2PI",
    "Array",
    "Stats",
    "align",
    "constant",
    "digamma",
    "digamma_positive",
    "gammaln",
    "gammaln_positive",
    "is_jax",
    "largest",
    "logsumexp",
    "matvec",
    "multidigamma",
    "multigammaln",
    "namespace",
    "one_hot",
    "outer",
    "scan",
    "sigmoid",
    "softmax",
    "softplus",
    "spd_inverse_logdet",
    "spd_logdet",
    "spd_solve",
    "summed",
    "symmetrise",
    "trace_product",
    "transpose",
    "zeros",
]

Array: TypeAlias = Any
# With n = 8 and seven terms the first neglected one is below 1e-15 for every x > 0.
SHIFT = 8
HALF_LOG_2PI = 0.9189385332046727
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def digamma_positive(x: Array, xp: Any) -> Array:
    """ψ(x) for x > 0; ``xp`` is the array namespace of x."""
    shifted = x + SHIFT
    inverse = 1.0 / shifted
    square = inverse * inverse
    series = xp.zeros_like(x)
    for k in range(len(BERNOULLI), 0, -1):
        series = square * (BERNOULLI[k - 1] / (2 * k) + series)
    steps = xp.zeros_like(x)
    for i in range(SHIFT):
        steps = steps + 1.0 / (x + i)
    return xp.log(shifted) - 0.5 * inverse - series - steps


def gammaln_positive(x: Array, xp: Any) -> Array:
    """Log Γ(x) for x > 0; ``xp`` is the array namespace of x."""
    large = x > 2 * SHIFT  # no shift needed, and the product below would overflow for the largest
    small = xp.where(large, 1.0, x)
    product = small
    for i in range(1, SHIFT):
        product = product * (small + i)
    shifted = xp.where(large, x, x + SHIFT)
    inverse = 1.0 / shifted
    square = inverse * inverse
    series = xp.zeros_like(x)
    for k in range(len(BERNOULLI), 1, -1):
        series = square * (BERNOULLI[k - 1] / (2 * k * (2 * k - 1)) + series)
    series = inverse * (BERNOULLI[0] / 2 + series)
    return (shifted - 0.5) * xp.log(shifted) - shifted + HALF_LOG_2PI + series - xp.where(large, 0.0, xp.log(product))


# A NumPy array or a JAX array. A union would make every `a + b` a type error, so it is Any with a name.
Stats: TypeAlias = tuple[Array, ...]

LOG_2PI = float(np.log(2 * np.pi))
# Columns that are taken one after the other, in place of a reduction along the last axis.
FEW = 16


def is_jax(*arrays: Array) -> bool:
    """Whether any of the arrays belongs to JAX; does not import JAX to find out.

    Examples
    --------
    >>> is_jax(np.ones(3), 2.0)
    False
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    # `jax` can be half-imported (by another thread): then nobody holds its arrays yet.
    kind = getattr(jax, "Array", None)
    return kind is not None and any(isinstance(a, kind) for a in arrays)


def namespace(*arrays: Array) -> Any:
    """`jax.numpy` if any of the arrays belongs to JAX, otherwise `numpy`."""
    if is_jax(*arrays):
        import jax.numpy as jnp

        return jnp
    return np


def digamma(x: Array) -> Array:
    """ψ(x) for x > 0, the derivative of log Γ."""
    return digamma_positive(x, namespace(x)) if is_jax(x) else sp.digamma(x)


def gammaln(x: Array) -> Array:
    """Log Γ(x) for x > 0."""
    return gammaln_positive(x, namespace(x)) if is_jax(x) else sp.gammaln(x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e⁻ˣ)."""
    if is_jax(x):
        import jax.scipy.special as jsp

        return jsp.expit(x)
    return sp.expit(x)


def softplus(x: Array) -> Array:
    """Log(1 + eˣ)."""
    return namespace(x).logaddexp(0.0, x)


def multigammaln(a: Array, d: int) -> Array:
    """Log Γ_d(a) = d(d−1)/4 · log π + Σ_j log Γ(a − j/2), j = 0 … d−1; NaN-free only for a > (d−1)/2.

    SciPy's own raises outside the domain; here `valid` decides, so nothing may raise.
    """
    shifts = np.arange(d) / 2
    return d * (d - 1) / 4 * np.log(np.pi) + gammaln(a[..., None] - shifts).sum(-1)


def multidigamma(a: Array, d: int) -> Array:
    """The derivative of `multigammaln`: Σ_j ψ(a − j/2)."""
    return digamma(a[..., None] - np.arange(d) / 2).sum(-1)


def largest(x: Array) -> Array:
    """The maximum along the last axis; NaN for any NaN."""
    if is_jax(x) or not 0 < x.shape[-1] <= FEW or x.ndim == 1:
        return namespace(x).max(x, axis=-1)
    maximum = x[..., 0]
    for k in range(1, x.shape[-1]):
        maximum = np.maximum(maximum, x[..., k])  # NumPy reduces a short last axis row by row
    return maximum


def summed(x: Array) -> Array:
    """The sum along the last axis."""
    if is_jax(x) or not 0 < x.shape[-1] <= FEW or x.ndim == 1:
        return x.sum(-1)
    total = x[..., 0]
    for k in range(1, x.shape[-1]):
        total = total + x[..., k]
    return total


def logsumexp(x: Array, axis: int = -1) -> Array:
    """Log Σ exp(x) along an axis; −inf for nothing but −inf, NaN for any NaN, safe to differentiate.

    Examples
    --------
    >>> float(logsumexp(np.array([-np.inf, 1000.0])))
    1000.0
    """
    xp = namespace(x)
    last = xp is np and axis in (-1, x.ndim - 1)
    top = largest(x)[..., None] if last else xp.max(x, axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0.0)
    if xp is not np:
        from jax.lax import stop_gradient

        top = stop_gradient(top)
    weights = xp.exp(x - top)
    total = summed(weights) if last else weights.sum(axis)
    empty = total == 0
    # The inner `where` keeps log(0) out of the graph: its gradient would be 0 · inf.
    return xp.where(empty, -np.inf, xp.log(xp.where(empty, 1.0, total))) + xp.squeeze(top, axis)


def softmax(x: Array) -> Array:
    """exp(x) / Σ exp(x) along the last axis."""
    xp = namespace(x)
    return xp.exp(x - logsumexp(x)[..., None])


def transpose(m: Array) -> Array:
    """The matrices of a batch, transposed."""
    return namespace(m).swapaxes(m, -1, -2)


def symmetrise(m: Array) -> Array:
    """½ (m + mᵀ) for a batch of matrices."""
    return 0.5 * (m + transpose(m))


def matvec(m: Array, v: Array) -> Array:
    """M v for batches: [..., D, D], [..., D] → [..., D]."""
    if v.size > v.shape[-1] and m.size == m.shape[-2] * m.shape[-1] and m.ndim <= v.ndim + 1:
        # One matrix for all vectors: a product of two matrices.
        return v @ m.reshape(m.shape[-2:]).T
    # A product and a sum fuse into one loop in XLA; a batched dot of tiny matrices does not.
    return (m * v[..., None, :]).sum(-1)


def outer(v: Array, w: Array) -> Array:
    """V wᵀ for batches: [..., D], [..., D] → [..., D, D]."""
    return v[..., :, None] * w[..., None, :]


def trace_product(a: Array, b: Array) -> Array:
    """tr(aᵀ b) for batches: [..., D, D], [..., D, D] → [...]."""
    return (a * b).sum((-1, -2))


def one_hot(value: Array, size: int) -> Array:
    """Integers [...] → 0/1 floats [..., size]."""
    return (namespace(value).asarray(value)[..., None] == np.arange(size)) * 1.0


def constant(g: Array) -> Array:
    """The same numbers, which no gradient moves: settings that travel in λ beside what is learned."""
    if is_jax(g):
        from jax.lax import stop_gradient

        return stop_gradient(g)
    return g


def zeros(g: Array) -> Array:
    """Zeros like g; added to a start, they broadcast it to the plates of λ (0 · λ would not do: 0 · −inf)."""
    return namespace(g).zeros_like(g)


def scan(step: Any, carry: Any, xs: tuple[Array, ...], reverse: bool = False) -> Any:
    """`lax.scan` over the first axis for JAX arrays, a loop for NumPy; results are tuples."""
    if is_jax(*xs):
        from jax import lax

        return lax.scan(step, carry, xs, reverse=reverse)[1]
    n_times = len(xs[0])
    outputs: Any = None
    for t in range(n_times - 1, -1, -1) if reverse else range(n_times):
        carry, out = step(carry, tuple(x[t] for x in xs))
        if outputs is None:
            outputs = [np.empty((n_times, *np.shape(part))) for part in out]
        for array, part in zip(outputs, out, strict=True):
            array[t] = part
    return type(out)(*outputs) if hasattr(out, "_fields") else tuple(outputs)


def align(stats: Stats, ndims: tuple[int, ...]) -> Stats:
    """The same statistics, all broadcast to the common plate shape.

    Parameters
    ----------
    stats : tuple of arrays [..., event]
    ndims : tuple of int, number of event axes of each statistic

    Examples
    --------
    >>> [a.shape for a in align((np.zeros(3), np.zeros(())), (0, 0))]
    [(3,), (3,)]
    """
    xp = namespace(*stats)
    plates = [s.shape[: s.ndim - d] for s, d in zip(stats, ndims, strict=True)]
    common = np.broadcast_shapes(*plates)
    aligned = []
    for s, plate, d in zip(stats, plates, ndims, strict=True):
        if plate == common:
            aligned.append(s)
            continue
        wide = xp.broadcast_to(s, common + s.shape[s.ndim - d :])
        # A read-only view with zero strides would surprise whoever updates λ in place.
        aligned.append(wide.copy() if xp is np else wide)
    return tuple(aligned)


def spd_inverse_logdet(p: Array) -> tuple[Array, Array]:
    """Inverse and log-determinant of symmetric positive definite matrices; NaN for any other matrix.

    Parameters
    ----------
    p : array [..., D, D], symmetric

    Returns
    -------
    inverse : array [..., D, D]
    logdet : array [...]

    Examples
    --------
    >>> inverse, logdet = spd_inverse_logdet(np.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> inverse.tolist(), round(float(logdet), 6)
    ([[0.5, 0.0], [0.0, 0.25]], 2.079442)
    """
    if is_jax(p):
        from natgrad.families._spd import inverse_logdet

        inverse, logdet = inverse_logdet(p)
        return inverse, logdet
    factor = _numpy_cholesky(p)
    half = np.linalg.inv(factor)
    return transpose(half) @ half, _logdet_of(factor)


def spd_solve(p: Array, v: Array) -> tuple[Array, Array, Array]:
    """p⁻¹ v, p⁻¹ and log|p| of symmetric positive definite matrices; NaN for any other matrix.

    The product of p⁻¹ and v has an error of κ(p) ε in every direction. A regression of fewer rows than columns has a κ of 1e14,
    and its fitted values, in the direction that the data fix, would be wrong by percents. Solving keeps them: what is lost is
    lost where p is nearly singular, which is where nothing depends on it.

    Parameters
    ----------
    p : array [..., D, D], symmetric
    v : array [..., D]

    Examples
    --------
    >>> x = np.array([1e5, 3e5])
    >>> mean, inverse, _ = spd_solve(np.eye(2) + np.outer(x, x), 1e5 * x)
    >>> bool(abs(x @ mean - 1e5) < 1e-5), bool(abs(x @ (inverse @ (1e5 * x)) - 1e5) < 1e-5)
    (True, False)
    """
    if is_jax(p) or is_jax(v):
        from natgrad.families._spd import solve

        return solve(p, v)
    factor = _numpy_cholesky(p)
    half = np.linalg.inv(factor)
    back = transpose(half)
    return matvec(back, matvec(half, v)), back @ half, _logdet_of(factor)


def spd_logdet(p: Array) -> Array:
    """Log-determinant alone: the cheap test for positive definiteness (NaN when not)."""
    if is_jax(p):
        from natgrad.families._spd import logdet

        return logdet(p)
    return _logdet_of(_numpy_cholesky(p))


def _logdet_of(factor: Array) -> Array:
    return 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def _numpy_cholesky(p: Array) -> Array:
    try:
        return np.linalg.cholesky(p)
    except np.linalg.LinAlgError:
        # NumPy refuses the whole batch for one bad matrix and does not say which: look at each.
        flat = p.reshape((-1, *p.shape[-2:]))
        factors = np.full(flat.shape, np.nan)
        for k, matrix in enumerate(flat):
            try:
                factors[k] = np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                continue
        return factors.reshape(p.shape)
