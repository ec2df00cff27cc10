"""Observations and what q says of the states in; weights of each state at a time, for many lanes or for one row, out.

    log b_tk = Σ_j W_kj s_j(y_t)                     a linear form in sufficient statistics s of the observation

Three ways to have the statistics, told apart by ``kind``:

    TABLE      a code for each time; row v of a table holds log b, and its exponential is made once
    QUADRATIC  s = (1, y_d, y_d y_e for d ≤ e); a row with a NaN is missing
    BY_COLUMN  s = (1, y_d, y_d²) for each column d; a NaN is missing in its column alone

A time that is missing has b = 1 and statistics 0. Weights are relative to the largest of a time, whose logarithm is kept apart.
``labels`` [T] names the only possible state of a time, −1 if there is none; empty if there are no labels at all.

Lanes lie in rows of four states, [quads, 4 · LANES]: state k of a lane is at [k // 4, k % 4 · LANES + lane]. A loop over lanes
then reads and writes four states at distances that the compiler knows, in one row of one array. A loop for each state would take
longer to begin, with its questions of which rows overlap, than to run.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import lane_kernel, serial_kernel

__all__ = [
    "BY_COLUMN",
    "LANES",
    "QUAD",
    "QUADRATIC",
    "ROW",
    "TABLE",
    "fill_lanes",
    "fill_row",
    "fill_statistics",
    "gather",
    "n_statistics",
    "padded_forms",
]

TABLE, QUADRATIC, BY_COLUMN = 0, 1, 2
# Subchains that run together, one in each lane; several SIMD registers, so that the overhead of a loop is shared.
LANES = 64
# States in a row, and the numbers of a row.
QUAD = 4
ROW = QUAD * LANES
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


@serial_kernel
def padded_forms(weights):
    """The weights [K, F] of the linear forms with whole quads of states, copies of the last one, and evenly many statistics."""
    n_states, n_stats = weights.shape
    out = np.zeros((-(-n_states // QUAD) * QUAD, n_stats + n_stats % 2))
    for k in range(out.shape[0]):
        for j in range(n_stats):
            out[k, j] = weights[min(k, n_states - 1), j]
    return out


@lane_kernel
def fill_lanes(
    kind, codes, table, likelihood, peak, forms, labels, places, statistics, n_states, power, bits, out, shift, top
):  # fmt: skip
    """Weights of all states at the time ``places[lane]`` of each lane: ``out`` [quads, ROW] ≤ 1, their logarithm less ``shift``.

    For codes, ``likelihood`` [V, K] holds the weights and ``peak`` [V] the shift of ``table``, and rows beyond the states stay as
    they are; otherwise ``statistics`` [F, lanes] are there already, and ``forms`` are padded. ``power, bits`` [ROW] are one
    memory and, with ``top`` [ROW], scratch.
    """
    if kind == TABLE:
        for lane in range(LANES):
            code = codes[places[lane]]
            shift[lane] = peak[code]
            for k in range(n_states):
                out[k // QUAD, k % QUAD * LANES + lane] = likelihood[code, k]
    else:
        _linear_forms(forms, statistics, out)
        for q in range(out.shape[0]):
            for lane in range(LANES):
                here = max(
                    max(out[q, lane], out[q, LANES + lane]), max(out[q, 2 * LANES + lane], out[q, 3 * LANES + lane])
                )
                shift[lane] = here if q == 0 else max(shift[lane], here)
    if labels.shape[0] > 0:
        _keep_labelled(kind, codes, table, labels, places, out, shift)
    if kind != TABLE:
        for q in range(out.shape[0]):
            for lane in range(LANES):
                top[lane] = out[q, lane] - shift[lane]
                top[LANES + lane] = out[q, LANES + lane] - shift[lane]
                top[2 * LANES + lane] = out[q, 2 * LANES + lane] - shift[lane]
                top[3 * LANES + lane] = out[q, 3 * LANES + lane] - shift[lane]
            _exponential(top, power, bits)
            for c in range(ROW):
                out[q, c] = top[c] * power[c]


@serial_kernel
def _keep_labelled(kind, codes, table, labels, places, out, shift):
    """Nothing for states that a label rules out: weights of codes, logarithms of the others."""
    nothing = 0.0 if kind == TABLE else -np.inf
    for lane in range(LANES):
        known = labels[places[lane]]
        if known >= 0:
            # Of codes from the table: as a weight it may have vanished beside a state that is far likelier.
            row, column = known // QUAD, known % QUAD * LANES + lane
            shift[lane] = table[codes[places[lane]], known] if kind == TABLE else out[row, column]
            for k in range(QUAD * out.shape[0]):
                out[k // QUAD, k % QUAD * LANES + lane] = nothing
            out[row, column] = 1.0 if kind == TABLE else shift[lane]


@lane_kernel
def _linear_forms(forms, statistics, out):
    """Two statistics of four states at a time."""
    for q in range(out.shape[0]):
        k = QUAD * q
        for j in range(0, forms.shape[1], 2):
            a0, a1, a2, a3 = forms[k, j], forms[k + 1, j], forms[k + 2, j], forms[k + 3, j]
            b0, b1, b2, b3 = forms[k, j + 1], forms[k + 1, j + 1], forms[k + 2, j + 1], forms[k + 3, j + 1]
            if j == 0:
                for lane in range(LANES):
                    x, y = statistics[j, lane], statistics[j + 1, lane]
                    out[q, lane] = a0 * x + b0 * y
                    out[q, LANES + lane] = a1 * x + b1 * y
                    out[q, 2 * LANES + lane] = a2 * x + b2 * y
                    out[q, 3 * LANES + lane] = a3 * x + b3 * y
            else:
                for lane in range(LANES):
                    x, y = statistics[j, lane], statistics[j + 1, lane]
                    out[q, lane] += a0 * x + b0 * y
                    out[q, LANES + lane] += a1 * x + b1 * y
                    out[q, 2 * LANES + lane] += a2 * x + b2 * y
                    out[q, 3 * LANES + lane] += a3 * x + b3 * y


@serial_kernel
def _exponential(x, power, bits):
    """e^x = x' · power: x' replaces x; no function call, so that it runs in SIMD lanes. At least e^−700, times nothing."""
    for c in range(ROW):
        value = max(x[c], LEAST_EXPONENT)
        n = np.floor(value * LOG2E + 0.5)
        g = (value - n * LN2_HIGH) - n * LN2_LOW
        p = E12 * g + E11
        p = ((((((((p * g + E10) * g + E9) * g + E8) * g + E7) * g + E6) * g + E5) * g + E4) * g + E3) * g + E2
        x[c] = 1.0 + g + g * g * p
        bits[c] = np.int64(n) + 1023 << 52
