"""Positive numbers in; exp ψ(x), the geometric mean of a Gamma(x, 1), or ψ(x) itself out. No logarithm, no branches.

    exp ψ(x) = exp ψ(x + 8) · exp(−s),   s = Σ_{i<8} 1/(x + i)
    exp ψ(z + ½) = z (1 + 1/(24 z²) − 37/(5760 z⁴) + …)

The series is exp of the asymptotic one of ψ(z + ½); at z ≥ 7.5 its ninth term is 5e-16. exp(−s) is 2ⁿ eᵍ with |g| ≤ ½ log 2 and
2ⁿ written into the exponent bits, so that the loops run in SIMD lanes: math.exp would be called once for each number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as sp

from natgrad.kernels._njit import lane_kernel, of_rows, parallel_kernel, serial_kernel

__all__ = ["bits_like", "elog_columns", "exp_digamma", "lgamma", "lgamma_columns", "series_for"]

SERIES = (
    1 / 24,
    -37 / 5760,
    10313 / 2903040,
    -5509121 / 1393459200,
    2709398569 / 367873228800,
    -499769010050743 / 24103053950976000,
    47655701498228027 / 578473294823424000,
    -4150166648794176251083 / 9440684171518279680000,
)
# B_2n / (2n (2n − 1)) for n = 1, 2, …
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400, 43867 / 244188)
HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
# 1/j! of exp, highest first: with |g| ≤ 0.347 the next one, 1/13!, is 2e-16.
FACTORIALS = tuple(1.0 / float(np.prod(np.arange(1, j + 1, dtype=np.float64))) for j in range(12, 1, -1))
# Below 2⁻¹⁰⁰ (1e-30) a weight counts for nothing, and products of two stay normal numbers in float32.
SMALLEST_EXPONENT = -100.0
FIXED = (0.5, 1.0, 2.0, 3.0, 3.5, 6.0, 7.0, 7.5, 10.0, 12.0, 22.0, 1.0 / np.log(2.0), np.log(2.0), SMALLEST_EXPONENT)


def series_for(dtype: Any) -> Any:
    """The constants of `exp_digamma` in the type of its arrays: mixing types would double the width of every operation."""
    return np.array([*FIXED, *SERIES, *FACTORIALS], dtype=dtype)


def bits_like(array: Any) -> Any:
    """The same memory as whole numbers: where exponents are written."""
    return array.view(np.int32 if array.dtype == np.float32 else np.int64)


@lane_kernel
def exp_digamma(x, size, c, power, bits, out):
    """``out[i]`` = exp ψ(x[i]) for i < size; ``bits`` is `bits_like` (power), both scratch. At least 1e-30 · exp ψ(x + 8)."""
    if x.itemsize == 4:
        _exp_digamma_single(x, size, c, power, bits, out)
    else:
        _exp_digamma_double(x, size, c, power, bits, out)


@lane_kernel
def _exp_digamma_double(x, size, c, power, bits, out):
    half, one, two, six, seven, ten, twelve, more = c[0], c[1], c[2], c[5], c[6], c[8], c[9], c[10]
    shift, per_log2, log2, least = c[7], c[11], c[12], c[13]
    a1, a2, a3, a4, a5, a6, a7, a8 = c[14], c[15], c[16], c[17], c[18], c[19], c[20], c[21]
    e12, e11, e10, e9, e8, e7 = c[22], c[23], c[24], c[25], c[26], c[27]
    e6, e5, e4, e3, e2 = c[28], c[29], c[30], c[31], c[32]
    bias, place = bits.dtype.type(1023), bits.dtype.type(52)
    for i in range(size):
        value = x[i]
        u = value * (value + seven)
        # The eight reciprocals in pairs: (x + i)(x + 7 − i) = u + 0, 6, 10, 12.
        s = (two * value + seven) * ((two * u + six) / (u * (u + six)) + (two * u + more) / ((u + ten) * (u + twelve)))
        n = max(np.floor(half - s * per_log2), least)
        g = max(-s - n * log2, -one)
        p = e12 * g + e11
        p = ((((((((p * g + e10) * g + e9) * g + e8) * g + e7) * g + e6) * g + e5) * g + e4) * g + e3) * g + e2
        z = value + shift
        q = one / (z * z)
        series = (((((((a8 * q + a7) * q + a6) * q + a5) * q + a4) * q + a3) * q + a2) * q + a1) * q
        out[i] = (z + z * series) * (one + g + g * g * p)
        bits[i] = bits.dtype.type(n) + bias << place
    for i in range(size):
        out[i] *= power[i]


@lane_kernel
def _exp_digamma_single(x, size, c, power, bits, out):
    """The same by exp ψ(x + 4), four terms of the series and seven of exp: enough for 24 bits, and a third of the work."""
    half, one, two, three, shift, twelve, eleven = c[0], c[1], c[2], c[3], c[4], c[9], c[10] * c[0]
    per_log2, log2, least = c[11], c[12], c[13]
    a1, a2, a3, a4 = c[14], c[15], c[16], c[17]
    e7, e6, e5, e4, e3, e2 = c[27], c[28], c[29], c[30], c[31], c[32]
    bias, place = bits.dtype.type(127), bits.dtype.type(23)
    for i in range(size):
        value = x[i]
        # 1/x alone, since at small x its rounding is what counts; one division for the other three and for 1/z².
        z = value + shift
        product, square = (value + one) * (value + two) * (value + three), z * z
        inverse = one / (product * square)
        q = inverse * product
        s = one / value + inverse * square * ((three * value + twelve) * value + eleven)
        n = max(np.floor(half - s * per_log2), least)
        g = max(-s - n * log2, -one)
        p = ((((e7 * g + e6) * g + e5) * g + e4) * g + e3) * g + e2
        series = (((a4 * q + a3) * q + a2) * q + a1) * q
        out[i] = (z + z * series) * (one + g + g * g * p)
        bits[i] = bits.dtype.type(n) + bias << place
    for i in range(size):
        out[i] *= power[i]


def _plain_elog(alpha, totals, out):
    np.subtract(sp.digamma(alpha), totals, out=out)


def _plain_lgamma(alpha, out):
    sp.gammaln(alpha).sum(1, out=out)


@parallel_kernel(of_rows, plain=_plain_elog)
def elog_columns(low, high, alpha, totals, out):
    """E[log x] of Dirichlets stored column by column: out[v, k] = ψ(alpha[v, k]) − totals[k].

    ``totals`` is ψ of the column sums; rows v are a thread's own.
    """
    for v in range(low, high):
        for k in range(alpha.shape[1]):
            out[v, k] = _digamma(alpha[v, k]) - totals[k]


@parallel_kernel(of_rows, plain=_plain_lgamma)
def lgamma_columns(low, high, alpha, out):
    """out[v] = Σ_k log Γ(alpha[v, k]); rows are a thread's own."""
    for v in range(low, high):
        total = 0.0
        for k in range(alpha.shape[1]):
            total += lgamma(alpha[v, k])
        out[v] = total


@serial_kernel
def _digamma(value):
    u = value * (value + 7.0)
    s = (2.0 * value + 7.0) * ((2.0 * u + 6.0) / (u * (u + 6.0)) + (2.0 * u + 22.0) / ((u + 10.0) * (u + 12.0)))
    z = value + 7.5
    q = 1.0 / (z * z)
    series = SERIES[7]
    for j in range(6, -1, -1):
        series = series * q + SERIES[j]
    return np.log(z + z * series * q) - s


@serial_kernel
def lgamma(value):
    """Log Γ(x + 8) by Stirling's series, whose next term is 2e-16 at 8, less the logarithm of x (x + 1) … (x + 7); x < 1e38."""
    u = value * (value + 7.0)
    product = np.log(u * (u + 6.0) * (u + 10.0) * (u + 12.0))
    z = value + 8.0
    q = 1.0 / (z * z)
    series = STIRLING[8]
    for j in range(7, -1, -1):
        series = series * q + STIRLING[j]
    return (z - 0.5) * np.log(z) - z + HALF_LOG_2PI + series / z - product
