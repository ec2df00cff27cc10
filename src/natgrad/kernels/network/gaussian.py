"""Gaussian numbers of one chain drawn together, and a precision with these integrated out.

A of N(A⁻¹b, A⁻¹) is held row after row from the first column that is not always 0, then b. The Cholesky factor has its zeros in
the same places (George and Liu 1981), so that a common mean after its effects costs a row, not a matrix.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import serial_kernel
from natgrad.kernels.network.rows import _row
from natgrad.kernels.network.variates import _normal, _uniform

__all__ = ["factorise"]

# Those of `natgrad.inference.sampler`: slices of log t.
WIDTH, MOST_STEPS, MOST_SHRINKS = 2.0, 8, 40
TINY, HUGE = 1e-300, 1e150


@serial_kernel
def factorise(constant, slope, value, envelope, table, size, root, half):
    """L with LLᵀ = A in ``root`` and L⁻¹b in ``half``; ½ bᵀA⁻¹b − ½ log|A|, or −∞ where A is not positive definite.

    A and b are affine in a value: ``constant`` + value · ``slope``.
    """
    b = _n_held(envelope, table, size)
    log_root, product, square = 0.0, 1.0, 0.0
    for i in range(size):
        start = envelope[table + i, 0]
        at = envelope[table + i, 1] - start
        rest, left = constant[at + i] + value * slope[at + i], constant[b + i] + value * slope[b + i]
        for j in range(start, i):
            from_, total = envelope[table + j, 0], constant[at + j] + value * slope[at + j]
            other = envelope[table + j, 1] - from_
            for k in range(max(start, from_), j):
                total -= root[at + k] * root[other + k]
            total /= root[other + j]
            root[at + j] = total
            rest -= total * total
            left -= total * half[j]
        if not 0.0 < rest < np.inf:
            return -np.inf
        diagonal = math.sqrt(rest)
        root[at + i] = diagonal
        half[i] = left / diagonal
        square += half[i] * half[i]
        product *= diagonal
        if not 1.0 / HUGE < product < HUGE:
            log_root += math.log(product)
            product = 1.0
    return 0.5 * square - log_root - math.log(product)


@serial_kernel
def _n_held(envelope, table, size):
    """Numbers of A; those of b come after them."""
    return envelope[table + size - 1, 1] + size - envelope[table + size - 1, 0]


@serial_kernel
def _form(starts, coefs, factors, first_row, count, stats, out):
    """The numbers of A and b."""
    for i in range(count):
        out[i] = _row(starts, coefs, factors, first_row + i, stats)


@serial_kernel
def _drawn(envelope, table, size, root, half, x, random, spare):
    """L⁻ᵀ(L⁻¹b + ε); ``half`` is used up."""
    for i in range(size):
        half[i] += _normal(random, spare)
    for i in range(size - 1, -1, -1):
        start = envelope[table + i, 0]
        at = envelope[table + i, 1] - start
        x[i] = half[i] / root[at + i]
        for j in range(start, i):
            half[j] -= root[at + j] * x[i]


@serial_kernel
def _placed(variables, products, table, size, begin, end, x, stats, values, first, second):
    """Numbers of a group where they belong; whether they are finite."""
    good = True
    for i in range(size):
        at = variables[table + i, 2]
        stats[variables[table + i, 0]] = values[variables[table + i, 1]] = first[at] = x[i]
        second[at] = x[i] * x[i]
        good = good and math.isfinite(x[i])
    for o in range(begin, end):
        stats[products[o, 0]] = x[products[o, 1]] * x[products[o, 2]]
    return good


@serial_kernel
def _draw_gaussian(
    starts, coefs, factors, first_row, envelope, table, size, stats, constant, root, half, x, random, spare
):
    """A group of Gaussian numbers in ``x``; whether their conditional is a distribution."""
    _form(starts, coefs, factors, first_row, _n_held(envelope, table, size) + size, stats, constant)
    if factorise(constant, constant, 0.0, envelope, table, size, root, half) == -np.inf:
        return False
    _drawn(envelope, table, size, root, half, x, random, spare)
    return True


@serial_kernel
def _log_density(log_value, linear, power, constant, slope, envelope, table, size, root, half):
    """That of log t, with the Gaussian numbers integrated out; factorises A₀ + t A₁."""
    value = math.exp(log_value)
    density = linear * value + (power + 1.0) * log_value
    return density + factorise(constant, slope, value, envelope, table, size, root, half)


@serial_kernel
def _draw_scale(
    starts, coefs, factors, first_row, one, two, envelope, table, size, stats, old, constant, slope, root, half,
    random,
):  # fmt: skip
    """The logarithm of a precision, with A at it factorised; NaN where the conditional is no distribution."""
    count = _n_held(envelope, table, size) + size
    _form(starts, coefs, factors, first_row, count, stats, constant)
    _form(starts, coefs, factors, first_row + count, count, stats, slope)
    linear, power = _row(starts, coefs, factors, one, stats), _row(starts, coefs, factors, two, stats)
    start = math.log(max(old, TINY))
    height = _log_density(start, linear, power, constant, slope, envelope, table, size, root, half)
    if not math.isfinite(height):
        return np.nan
    height += math.log(_uniform(random))
    low = start - WIDTH * _uniform(random)
    high = low + WIDTH
    left = int(
        MOST_STEPS * _uniform(random)
    )  # steps are shared out at random, so that the way back has the same chance
    right = MOST_STEPS - 1 - left
    while left > 0 and (_log_density(low, linear, power, constant, slope, envelope, table, size, root, half) > height):
        low, left = low - WIDTH, left - 1
    while right > 0 and (
        _log_density(high, linear, power, constant, slope, envelope, table, size, root, half) > height
    ):
        high, right = high + WIDTH, right - 1
    for _ in range(MOST_SHRINKS):
        point = low + (high - low) * _uniform(random)
        if _log_density(point, linear, power, constant, slope, envelope, table, size, root, half) > height:
            return point
        if point < start:
            low = point
        else:
            high = point
    _log_density(start, linear, power, constant, slope, envelope, table, size, root, half)
    return start
