"""Observations and what q says of the states in; weights of each state at a time, for many lanes or for one row, out.

    log b_tk = Σ_j W_kj s_j(y_t)                     a linear form in sufficient statistics s of the observation

Three ways to have the statistics, told apart by ``kind``:

    TABLE      a code for each time; row v of a table holds log b, and its exponential is made once
    QUADRATIC  s = (1, y_d, y_d y_e for d ≤ e); a row with a NaN is missing
    BY_COLUMN  s = (1, y_d, y_d²) for each column d; a NaN is missing in its column alone

A time that is missing has b = 1 and statistics 0. Weights are relative to the largest of a time, whose logarithm is kept apart.
``labels`` [T] names the only possible state of a time, −1 if there is none; empty if there are no labels at all.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import lane_kernel, serial_kernel

__all__ = [
    "BY_COLUMN",
    "LANES",
    "QUADRATIC",
    "TABLE",
    "fill_lanes",
    "fill_row",
    "fill_statistics",
    "gather",
    "n_statistics",
]

TABLE, QUADRATIC, BY_COLUMN = 0, 1, 2
# Subchains that run together, one in each lane of a row; several SIMD registers, so that the overhead of a loop is shared.
LANES = 64
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
# Below e^−700 a weight is as good as none, and 2ⁿ stays a normal number.
LEAST_EXPONENT = -700.0
# 1/j! of exp, highest first: with |g| ≤ 0.347 the next one, 1/13!, is 2e-16.
E12, E11, E10, E9, E8, E7, E6, E5, E4, E3, E2 = (1.0 / math.factorial(j) for j in range(12, 1, -1))


def n_statistics(kind: int, n_columns: int, n_codes: int) -> int:
    """Rows of the table of sums: statistics, or codes."""
    if kind == TABLE:
        return n_codes
    return 3 * n_columns if kind == BY_COLUMN else 1 + n_columns + n_columns * (n_columns + 1) // 2


@lane_kernel
def gather(values, places, out):
    """The values at the time of each lane: ``out`` [D, lanes]."""
    for lane in range(places.shape[0]):
        for d in range(values.shape[1]):
            out[d, lane] = values[places[lane], d]


@lane_kernel
def fill_statistics(kind, raw, out):
    """The statistics [F, lanes] of gathered values [D, lanes]; zeros where they are missing."""
    n_columns, n_lanes = raw.shape
    if kind == BY_COLUMN:
        for d in range(n_columns):
            for lane in range(n_lanes):
                x = raw[d, lane]
                seen = 1.0 if x == x else 0.0
                x = x if x == x else 0.0
                out[3 * d, lane], out[3 * d + 1, lane], out[3 * d + 2, lane] = seen, x, x * x
        return
    for lane in range(n_lanes):
        out[0, lane] = 1.0
    for d in range(n_columns):
        for lane in range(n_lanes):
            out[0, lane] = out[0, lane] if raw[d, lane] == raw[d, lane] else 0.0
    for d in range(n_columns):
        for lane in range(n_lanes):
            out[1 + d, lane] = raw[d, lane] if out[0, lane] > 0.0 else 0.0
    place = 1 + n_columns
    for d in range(n_columns):
        for e in range(d, n_columns):
            for lane in range(n_lanes):
                out[place, lane] = out[1 + d, lane] * out[1 + e, lane]
            place += 1


@serial_kernel
def fill_row(kind, codes, table, values, weights, labels, t, raw, statistics, out):
    """Log b of time ``t`` in ``out`` [K]; ``raw`` [D, 1] and ``statistics`` [F, 1] are scratch."""
    n_states = out.shape[0]
    if kind == TABLE:
        code = codes[t]
        for k in range(n_states):
            out[k] = table[code, k]
    else:
        for d in range(values.shape[1]):
            raw[d, 0] = values[t, d]
        fill_statistics(kind, raw, statistics)
        for k in range(n_states):
            total = 0.0
            for j in range(statistics.shape[0]):
                total += weights[k, j] * statistics[j, 0]
            out[k] = total
    if labels.shape[0] > 0 and labels[t] >= 0:
        for k in range(n_states):
            if k != labels[t]:
                out[k] = -np.inf


@lane_kernel
def fill_lanes(
    kind, codes, likelihood, peak, weights, labels, places, statistics, n_states, power, bits, out, shift, top
):  # fmt: skip
    """Weights of all states at the time ``places[lane]`` of each lane: ``out`` [K, lanes] ≤ 1, their logarithm less ``shift``.

    For codes, ``likelihood`` [V, K] holds the weights and ``peak`` [V] the shift; otherwise ``statistics`` [F, lanes] are there
    already. ``power, bits`` [lanes] are one memory and, with ``top``, scratch.
    """
    width = LANES
    if kind == TABLE:
        for lane in range(width):
            code = codes[places[lane]]
            shift[lane] = peak[code]
            for k in range(n_states):
                out[k, lane] = likelihood[code, k]
    else:
        _linear_forms(weights, statistics, n_states, out)
        for lane in range(width):
            shift[lane] = out[0, lane]
        for k in range(1, n_states):
            for lane in range(width):
                shift[lane] = max(shift[lane], out[k, lane])
    if labels.shape[0] > 0:
        for lane in range(width):
            known = labels[places[lane]]
            if known >= 0:
                chosen = out[known, lane]
                shift[lane] = shift[lane] + math.log(chosen) if kind == TABLE else chosen
                for k in range(n_states):
                    out[k, lane] = (
                        (0.0 if kind == TABLE else -np.inf) if k != known else (1.0 if kind == TABLE else chosen)
                    )
    if kind != TABLE:
        for k in range(n_states):
            for lane in range(width):
                top[lane] = out[k, lane] - shift[lane]
            _exponential(top, power, bits)
            for lane in range(width):
                out[k, lane] = top[lane] * power[lane]


@lane_kernel
def _linear_forms(weights, statistics, n_states, out):
    width = LANES
    n_stats = statistics.shape[0]
    even = n_stats - n_stats % 2
    for k in range(n_states):
        for lane in range(width):
            out[k, lane] = 0.0
        for j in range(0, even, 2):
            w0, w1 = weights[k, j], weights[k, j + 1]
            for lane in range(width):
                out[k, lane] += w0 * statistics[j, lane] + w1 * statistics[j + 1, lane]
        if even < n_stats:
            w0 = weights[k, even]
            for lane in range(width):
                out[k, lane] += w0 * statistics[even, lane]


@serial_kernel
def _exponential(x, power, bits):
    """e^x = x' · power: x' replaces x; no function call, so that it runs in SIMD lanes. At least e^−700, times nothing."""
    width = LANES
    for lane in range(width):
        value = max(x[lane], LEAST_EXPONENT)
        n = np.floor(value * LOG2E + 0.5)
        g = (value - n * LN2_HIGH) - n * LN2_LOW
        p = E12 * g + E11
        p = ((((((((p * g + E10) * g + E9) * g + E8) * g + E7) * g + E6) * g + E5) * g + E4) * g + E3) * g + E2
        x[lane] = 1.0 + g + g * g * p
        bits[lane] = np.int64(n) + 1023 << 52
