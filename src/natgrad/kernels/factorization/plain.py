"""What the kernels of Gaussian factorisations do, in plain NumPy, for few ratings: all rows at once.

The arguments are those of the kernels of the same names; the same tests hold both to the same definitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "draw_rows",
    "draw_side",
    "errors_of_rows",
    "gather_rows",
    "moments",
    "move_rows",
    "pack",
    "pair_moments",
    "squared_errors",
    "sweep_rows",
    "targets_of_rows",
    "work_of_errors",
    "work_of_ratings",
    "work_of_side",
    "work_of_sums",
]

# Microseconds of a number that is read or made.
OF_A_NUMBER = 0.1


def work_of_ratings(pieces, start, other, values, offset, trust, tell, *rest) -> float:
    """Of `gather_rows`: every rating reads a row of ``tell``."""
    return OF_A_NUMBER * len(values) * tell.shape[1]


def work_of_errors(out, start, other, values, offset, trust, own, *rest) -> float:
    """Of `squared_errors`: every rating reads two vectors."""
    return OF_A_NUMBER * 2 * len(values) * own.shape[1]


def work_of_side(pieces, start, other, values, offset, trust, theirs, *rest) -> float:
    """Of `draw_side`: as of the sums that q has."""
    return OF_A_NUMBER * len(values) * theirs.shape[1] * (theirs.shape[1] + 3) / 2


def work_of_sums(pieces, sums, *rest) -> float:
    """Of what is made of the sums of rows."""
    return OF_A_NUMBER * sums.size


def pack(mean, second, tell):
    """The lower triangle of E[y yᵀ], then E[y]."""
    size = mean.shape[1]
    k, h = np.tril_indices(size)
    tell[:, : len(k)], tell[:, len(k) :] = second[:, k, h], mean


def gather_rows(pieces, start, other, values, offset, trust, less, tell, weight, block, sums):
    """The sums of the rows ``pieces[0] … pieces[-1]``."""
    first, last = int(pieces[0]), int(pieces[-1])
    here = slice(int(start[first]), int(start[last]))
    j, rating = other[here], values[here] - offset
    w = weight[j] * (trust[0] if len(trust) == 1 else trust[here])
    rated, w = w * rating, w - (less[0] if len(less) == 1 else less[here])
    width = tell.shape[1]
    size = sums.shape[1] - 3 - width
    parts = np.empty((len(j), sums.shape[1]))
    parts[:, :width] = w[:, None] * tell[j]
    parts[:, width : width + size] = rated[:, None] * tell[j, width - size :]
    parts[:, width + size], parts[:, width + size + 1], parts[:, width + size + 2] = w, rated, rated * rating
    begin, sizes = start[first:last] - start[first], np.diff(start[first : last + 1])
    out, some = sums[: last - first], np.flatnonzero(sizes)
    out[:] = 0.0
    if len(some):
        out[some] = np.add.reduceat(parts, begin[some])


def _normal_equations(sums: Any, biased: bool, size: int) -> Any:
    """Σ t E[a aᵀ] [R, D, D], Σ t E[(r − c) a] [R, D] and Σ t E[(r − c)²] [R]."""
    k, h = np.tril_indices(size)
    means = len(k)
    linear, totals = means + size, means + 2 * size
    matrix = np.empty((len(sums), size, size))
    matrix[:, k, h] = matrix[:, h, k] = sums[:, :means]
    vector, rest = sums[:, linear:totals].copy(), sums[:, totals + 2].copy()
    if biased:
        n = size - 1
        vector[:, :n] -= matrix[:, n, :n]
        rest += matrix[:, n, n] - 2.0 * vector[:, n]
        vector[:, n] = sums[:, totals + 1] - sums[:, means + n]
        matrix[:, n, :n] = matrix[:, :n, n] = sums[:, means : means + n]
        matrix[:, n, n] = sums[:, totals]
    return matrix, vector, rest


def _fit(mean: Any, second: Any, vector: Any, matrix: Any) -> Any:
    return np.einsum("rkh,rkh->r", second, matrix) - 2.0 * np.einsum("rk,rk->r", mean, vector)


def _inverse(precision: Any) -> tuple[Any, Any]:
    """Σ = Λ⁻¹ and log |Λ| of every row; NaN where Λ is not positive definite."""
    try:
        factor = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        if len(precision) == 1:
            return np.full_like(precision, np.nan), np.full(1, np.nan)
        parts = [_inverse(row[None]) for row in precision]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    inverse = np.linalg.inv(factor)
    return inverse.transpose(0, 2, 1) @ inverse, 2.0 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)


def _write_moments(lam: Any, covariance: Any, out_mean: Any, out_second: Any) -> None:
    out_mean[:] = (covariance @ lam[:, :, None])[:, :, 0]
    np.add(covariance, out_mean[:, :, None] * out_mean[:, None, :], out=out_second)


def _drawn(precision: Any, lam: Any, noise: Any) -> tuple[Any, Any]:
    """Λ⁻¹ λ + U⁻¹ ε and Λ⁻¹ λ; NaN where a Λ is not positive definite."""
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        return np.full_like(lam, np.nan), np.full_like(lam, np.nan)
    white = np.linalg.solve(root, lam[:, :, None])
    both = np.concatenate([white + noise[:, :, None], white], axis=2)
    x, mean = np.moveaxis(np.linalg.solve(np.swapaxes(root, 1, 2), both), 2, 0)
    return x, mean


def draw_rows(lam, half, noise, out):
    """Draws of N(Λ⁻¹ λ, Λ⁻¹)."""
    out[:] = _drawn(-2.0 * half, lam, noise)[0]


def draw_side(
    pieces, start, other, values, offset, trust, theirs, weight, scale, prior, pull, biased, noise, out, out_mean, told
):
    """Draws of all rows, and what they tell of their scales; all pieces tell in the place of the first one."""
    size = out.shape[1]
    tell = np.empty((len(theirs), size * (size + 1) // 2 + size))
    pack(theirs, theirs[:, :, None] * theirs[:, None, :], tell)
    sums = np.empty((len(out), tell.shape[1] + size + 3))
    gather_rows(np.array([0, len(out)]), start, other, values, offset, trust, np.zeros(1), tell, weight, 0, sums)
    matrix, vector, _ = _normal_equations(sums, biased, size)
    own = scale[:, None]
    out[:], mean = _drawn(own[:, :, None] * matrix + np.diag(prior), own * vector + pull, noise)
    if len(out_mean):
        out_mean[:] = mean
    if len(told):
        told[:] = 0.0
        told[0, :, :-1] = np.einsum("rk,rh,rkh->kh", own * out, out, matrix)
        told[0, :, -1] = (own * out * vector).sum(0)


def squared_errors(out, start, other, values, offset, trust, own, theirs, weight, biased):
    """Weighted squares of what is left of the ratings of each row."""
    row = np.repeat(np.arange(len(out)), np.diff(start))
    inner = own.shape[1] - bool(biased)
    error = values - offset - (own[row, :inner] * theirs[other, :inner]).sum(1)
    if biased:
        error -= own[row, inner] + theirs[other, inner]
    out[:] = np.bincount(row, weight[other] * trust * error * error, len(out))


def moments(lam, half, out_mean, out_second, log_det):
    """E[x], E[x xᵀ] and log |Λ| of every row."""
    covariance, log_det[:] = _inverse(-2.0 * half)
    _write_moments(lam, covariance, out_mean, out_second)


def sweep_rows(
    pieces, sums, own_weight, prior, pull, tau, biased, rho, lam, half,
    out_lam, out_half, out_mean, out_second, log_det, errors,
):  # fmt: skip
    """Every row updated from its sums."""
    rows = slice(int(pieces[0]), int(pieces[-1]))
    size = out_lam.shape[1]
    matrix, vector, rest = _normal_equations(sums[: rows.stop - rows.start], biased, size)
    scale = tau * own_weight[rows]
    exact = scale[:, None] * vector + (pull[rows] if len(pull) > 1 else pull)
    precision = scale[:, None, None] * matrix + np.diag(prior)
    if rho != 1.0:
        exact = (1.0 - rho) * lam[rows] + rho * exact
        precision = rho * precision - 2.0 * (1.0 - rho) * half[rows]
    out_lam[rows], out_half[rows] = exact, -0.5 * precision
    covariance, log_det[rows] = _inverse(precision)
    _write_moments(exact, covariance, out_mean[rows], out_second[rows])
    errors[rows] = rest + _fit(out_mean[rows], out_second[rows], vector, matrix)


def errors_of_rows(pieces, sums, biased, mean, second, errors):
    """Σ_n t_j E[(r_n − u·v − b − c)²] of every row."""
    rows = slice(int(pieces[0]), int(pieces[-1]))
    matrix, vector, rest = _normal_equations(sums[: rows.stop - rows.start], biased, mean.shape[1])
    errors[rows] = rest + _fit(mean[rows], second[rows], vector, matrix)


def targets_of_rows(pieces, sums, scale, biased, out_lam, out_half):
    """The messages of all ratings added to the targets of every row."""
    rows = slice(int(pieces[0]), int(pieces[-1]))
    matrix, vector, _ = _normal_equations(sums[: rows.stop - rows.start], biased, out_lam.shape[1])
    out_lam[rows] += scale[rows][:, None] * vector
    out_half[rows] -= 0.5 * scale[rows][:, None, None] * matrix


def pair_moments(rows, columns, mean, second, other_mean, other_second, biased, out_mean, out_variance):
    """Mean and variance of u·v + b + c for pairs (row, column)."""
    n = mean.shape[1] - bool(biased)
    u, v, own, other = mean[rows], other_mean[columns], second[rows], other_second[columns]
    out_mean[:] = np.einsum("pk,pk->p", u[:, :n], v[:, :n])
    out_variance[:] = np.einsum("pkh,pkh->p", own[:, :n, :n], other[:, :n, :n]) - out_mean**2
    if biased:
        b, c = u[:, n], v[:, n]
        out_variance += own[:, n, n] - b * b + other[:, n, n] - c * c
        out_variance += 2.0 * np.einsum("pk,pk->p", v[:, :n], own[:, :n, n] - u[:, :n] * b[:, None])
        out_variance += 2.0 * np.einsum("pk,pk->p", u[:, :n], other[:, :n, n] - v[:, :n] * c[:, None])
        out_mean += b + c


def move_rows(matrix, back, shift, mean, second, half, out_lam, out_half, out_mean, out_second):
    """λ and moments of M x + d for every row."""
    moved = mean @ matrix.T
    crossed = moved[:, :, None] * shift
    out_second[:] = matrix @ second @ matrix.T + crossed + crossed.transpose(0, 2, 1) + np.outer(shift, shift)
    out_half[:] = back @ half @ back.T
    out_mean[:] = moved + shift
    out_lam[:] = -2.0 * (out_half @ out_mean[:, :, None])[:, :, 0]
