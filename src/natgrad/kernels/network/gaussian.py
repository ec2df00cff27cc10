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

# Those of `natgrad.inference.slicing`: slices of log t.
WIDTH, MOST_STEPS, MOST_SHRINKS = 2.0, 8, 40
TINY, HUGE = 1e-300, 1e150


@serial_kernel
def _form(tables, form, stats, out):
    """The numbers of A and b."""
    starts, coefs, factors, begin = tables.starts, tables.coefs, tables.factors, tables.forms[form, 0]
    for i in range(tables.forms[form, 1]):
        out[i] = _row(starts, coefs, factors, begin + i, stats)


@serial_kernel
def factorise(held, envelope, root, half):
    """L with LLᵀ = A in ``root`` and L⁻¹b in ``half``; ½ bᵀA⁻¹b − ½ log|A|, or −∞ where A is not positive definite."""
    n = envelope.shape[0]
    b = envelope[n - 1, 1] + n - envelope[n - 1, 0]
    log_root, product, square = 0.0, 1.0, 0.0
    for i in range(n):
        start = envelope[i, 0]
        at = envelope[i, 1] - start
        rest, left = held[at + i], held[b + i]
        for j in range(start, i):
            other, total = envelope[j, 1] - envelope[j, 0], held[at + j]
            for k in range(max(start, envelope[j, 0]), j):
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
def _drawn(envelope, root, half, x, random, spare):
    """L⁻ᵀ(L⁻¹b + ε); ``half`` is used up."""
    for i in range(envelope.shape[0]):
        half[i] += _normal(random, spare)
    for i in range(envelope.shape[0] - 1, -1, -1):
        at = envelope[i, 1] - envelope[i, 0]
        x[i] = half[i] / root[at + i]
        for j in range(envelope[i, 0], i):
            half[j] -= root[at + j] * x[i]


@serial_kernel
def _placed(tables, table, outer, last, x, stats, values, first, second):
    """Numbers of a group where they belong; whether they are finite."""
    good = True
    for i in range(x.shape[0]):
        stat, value, at = tables.variables[table + i]
        stats[stat] = values[value] = first[at] = x[i]
        second[at] = x[i] * x[i]
        good = good and math.isfinite(x[i])
    for o in range(outer, last):
        slot, i, j = tables.outer[o]
        stats[slot] = x[i] * x[j]
    return good


@serial_kernel
def _draw_gaussian(tables, form, size, table, outer, last, stats, values, first, second, scratch, random, spare):
    """A group of Gaussian numbers; whether their conditional is a distribution."""
    envelope = tables.envelope[table : table + size]
    count = envelope[size - 1, 1] + 2 * size - envelope[size - 1, 0]
    held, root, half, x = scratch[0][0][:count], scratch[0][2], scratch[1][1][:size], scratch[1][2][:size]
    _form(tables, form, stats, held)
    if factorise(held, envelope, root, half) == -np.inf:
        return False
    _drawn(envelope, root, half, x, random, spare)
    return _placed(tables, table, outer, last, x, stats, values, first, second)


@serial_kernel
def _log_density(log_value, linear, power, constant, slope, envelope, held, root, half):
    """That of log t, with the Gaussian numbers integrated out; factorises A₀ + t A₁."""
    value = math.exp(log_value)
    for i in range(held.shape[0]):
        held[i] = constant[i] + value * slope[i]
    return linear * value + (power + 1.0) * log_value + factorise(held, envelope, root, half)


@serial_kernel
def _draw_scale(
    tables, form, one, two, value, at, size, table, outer, last, whole, stats, values, first, second, scratch, random, spare,
):  # fmt: skip
    """A precision, and with ``whole`` the Gaussian numbers at it; whether their conditionals are distributions."""
    envelope = tables.envelope[table : table + size]
    count = envelope[size - 1, 1] + 2 * size - envelope[size - 1, 0]
    a, s, held, root = scratch[0][0][:count], scratch[0][1][:count], scratch[0][3][:count], scratch[0][2]
    half, x = scratch[1][1][:size], scratch[1][2][:size]
    _form(tables, form, stats, a)
    _form(tables, form + 1, stats, s)
    linear = _row(tables.starts, tables.coefs, tables.factors, one, stats)
    power = _row(tables.starts, tables.coefs, tables.factors, two, stats)
    start = math.log(max(values[value], TINY))
    height = _log_density(start, linear, power, a, s, envelope, held, root, half)
    if not math.isfinite(height):
        return False
    height += math.log(_uniform(random))
    low = start - WIDTH * _uniform(random)
    high = low + WIDTH
    left = int(MOST_STEPS * _uniform(random))  # steps are shared out at random, so that the way back has the same chance
    right = MOST_STEPS - 1 - left
    while left > 0 and _log_density(low, linear, power, a, s, envelope, held, root, half) > height:
        low, left = low - WIDTH, left - 1
    while right > 0 and _log_density(high, linear, power, a, s, envelope, held, root, half) > height:
        high, right = high + WIDTH, right - 1
    point, found = start, False
    for _ in range(MOST_SHRINKS):
        point = low + (high - low) * _uniform(random)
        if _log_density(point, linear, power, a, s, envelope, held, root, half) > height:
            found = True
            break
        if point < start:
            low = point
        else:
            high = point
    if not found:
        point = start
        _log_density(point, linear, power, a, s, envelope, held, root, half)
    t = math.exp(point)
    values[value], stats[one], stats[two] = t, max(t, TINY), math.log(max(t, TINY))
    first[at], second[at] = t, t * t
    if not whole:
        return math.isfinite(t)
    _drawn(envelope, root, half, x, random, spare)
    return math.isfinite(t) and _placed(tables, table, outer, last, x, stats, values, first, second)
