"""Subchains side by side: windows of a long sequence in; expected counts of states, pairs and statistics, and log-scales out.

    α_t ∝ (α_{t−1} A) ∘ b_t          β_t ∝ A (b_{t+1} ∘ β_{t+1})
    q(x_t) ∝ α_t ∘ β_t               q(x_t, x_{t+1}) ∝ α_t(i) A_ij b_{t+1}(j) β_{t+1}(j)

A need not be normalised. Every window has a message from before it, ``before`` [K] (what α_{t−1} A is at its first time), and one
from behind it, ``behind`` [K] (β of its last time), so a long chain cut into windows with exact messages is exact. One window in
each lane, four states in a row (see `hmm_emissions`): [t][quad][row]. Rows beyond the states hold nothing. Numbers are scaled at
every time; a scale that is too small to trust is made again from logarithms (`_careful`). A lane owns its columns of the scratch,
a call owns its sums.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import lane_kernel, serial_kernel
from natgrad.kernels.hmm.emissions import (
    LANES,
    QUAD,
    ROW,
    TABLE,
    fill_lanes,
    fill_row,
    fill_statistics,
    gather,
    padded_forms,
)

__all__ = ["run_windows"]

# β never falls below this, relative to its sum, so that Σ α β is never 0. Nothing notices unless a state that cannot be reached
# explains the future e^690 times better than all that can.
FLOOR = 1e-300
# A scale below this is made again from logarithms; a running product is taken into the sum before it gets there.
TINY = 1e-100
# What is known of the lanes of a group: the first and last time of the window, and the steps from … to which it counts in
# statistics, and to which in pairs.
FIRST, LAST, FROM, TO, PAIRS_TO = range(5)


@serial_kernel
def run_windows(
    kind, codes, table, likelihood, peak, values, weights, labels, transition, begin, length, before, behind, spans,
    first, last, out_pairs, out_sums, out_heads, out_log, out_states, offset,
):  # fmt: skip
    """Forward–backward in the windows ``first`` … ``last``, their expected counts added to the sums.

    ``begin, length`` [n]: where each window is. ``spans`` [n, 4]: offsets from … to of the times whose statistics count, how many
    pairs count from the first of these, and whether its first time begins a sequence. ``out_pairs`` [K, K] += Σ q(x_t, x_{t+1});
    ``out_sums`` [F or V, K] += Σ s_j(y_t) q(x_t); ``out_heads`` [K] += q of first states; ``out_log`` [n] is the log of the
    scales of the times that count. ``out_states`` [n, K] gets q(x_t) of these times, from ``offset`` on, if it has rows.
    """
    n_states = transition.shape[0]
    n_quads = -(-n_states // QUAD)
    longest = 1
    for w in range(first, last):
        longest = max(longest, length[w])
    forward, backward = np.zeros((QUAD * n_quads, QUAD * n_quads)), np.zeros((QUAD * n_quads, QUAD * n_quads))
    for i in range(n_states):
        for j in range(n_states):
            forward[j, i], backward[i, j] = transition[i, j], transition[i, j]
    forms = padded_forms(weights)
    # Filling these with zeros would take a tenth of all the time; but codes do not fill the rows beyond the states.
    alpha, raw = np.empty((longest, n_quads, ROW)), np.empty((longest, values.shape[1], LANES))
    emitted = np.zeros((longest, n_quads, ROW)) if kind == TABLE else np.empty((longest, n_quads, ROW))
    alpha[0] = 0.0
    state, ahead = np.zeros((n_quads, ROW)), np.zeros((n_quads, ROW))
    statistics = np.zeros((forms.shape[1], LANES))
    counts, sums = np.zeros((QUAD * n_quads, QUAD * n_quads)), np.zeros((forms.shape[1], QUAD * n_quads))
    lanes, rows, spent = np.zeros((6, LANES)), np.zeros((2, ROW)), np.zeros((5, LANES), np.int64)
    bits = rows[1].view(np.int64)
    places = np.zeros(LANES, np.int64)
    for group in range(first, last, LANES):
        n_lanes = min(LANES, last - group)
        shortest, steps = _known_lanes(begin, length, spans, group, n_lanes, spent)
        _forward(
            kind, codes, table, likelihood, peak, values, weights, forms, labels, forward, before, group, n_lanes, steps,
            n_states, spent, alpha, emitted, raw, statistics, lanes, rows, bits, places, out_log,
        )  # fmt: skip
        _backward(
            kind, codes, backward, length, behind, spans, group, n_lanes, shortest, steps, n_states, spent, alpha, emitted,
            raw, state, ahead, statistics, lanes, places, counts, sums, out_sums, out_heads, out_states, offset,
        )  # fmt: skip
    for i in range(n_states):
        for j in range(n_states):
            out_pairs[i, j] += transition[i, j] * counts[i, j]
    if kind != TABLE:
        for j in range(out_sums.shape[0]):
            for k in range(n_states):
                out_sums[j, k] += sums[j, k]


@serial_kernel
def _known_lanes(begin, length, spans, group, n_lanes, out):
    """What is known of the lanes of a group, and the lengths of its shortest and longest window.

    Lanes without a window repeat the last one and count nowhere.
    """
    shortest, longest = length[group], length[group]
    for lane in range(LANES):
        w = group + min(lane, n_lanes - 1)
        shortest, longest = min(shortest, length[w]), max(longest, length[w])
        out[FIRST, lane], out[LAST, lane] = begin[w], begin[w] + length[w] - 1
        real = lane < n_lanes
        out[FROM, lane] = spans[w, 0]
        out[TO, lane] = spans[w, 1] if real else spans[w, 0]
        out[PAIRS_TO, lane] = spans[w, 0] + (spans[w, 2] if real else 0)
    return shortest, longest


@lane_kernel
def _locate(spent, t, places):
    """Where each lane is at step ``t``; lanes that have ended stay at the last time they have."""
    for lane in range(LANES):
        places[lane] = min(spent[FIRST, lane] + t, spent[LAST, lane])


@lane_kernel
def _forward(
    kind, codes, table, likelihood, peak, values, weights, forms, labels, forward, before, group, n_lanes, steps, n_states,
    spent, alpha, emitted, raw, statistics, lanes, rows, bits, places, out_log,
):  # fmt: skip
    """α of every step, and the log-scales."""
    shift, scale, inverse, product, total = lanes[0], lanes[1], lanes[2], lanes[3], lanes[4]
    for lane in range(LANES):
        product[lane], total[lane] = 1.0, 0.0
    for t in range(steps):
        _locate(spent, t, places)
        if kind != TABLE:
            gather(values, places, raw[t])
            fill_statistics(kind, raw[t], statistics)
        fill_lanes(
            kind, codes, table, likelihood, peak, forms, labels, places, statistics, n_states, rows[1], bits, emitted[t], shift,
            rows[0],
        )  # fmt: skip
        if t == 0:
            for lane in range(LANES):
                w = group + min(lane, n_lanes - 1)
                for k in range(n_states):
                    alpha[0, k // QUAD, k % QUAD * LANES + lane] = before[w, k]
        else:
            _multiply(forward, alpha[t - 1], alpha[t])
        small = _sum_of_products(alpha[t], emitted[t], scale)
        if small > 0:
            for lane in range(LANES):
                if not scale[lane] >= TINY:
                    _careful(
                        kind, codes, table, values, weights, labels, places[lane], alpha[t], emitted[t], lane, n_states,
                        shift, scale,
                    )  # fmt: skip
        for lane in range(LANES):
            inverse[lane] = 1.0 / scale[lane]
        _scaled_products(alpha[t], emitted[t], inverse, alpha[t])
        _gather_scales(spent, t, shift, scale, product, total)
    for lane in range(n_lanes):
        out_log[group + lane] = total[lane] + math.log(product[lane])


@lane_kernel
def _gather_scales(spent, t, shift, scale, product, total):
    """Log Π scales as a running product, whose logarithm is taken before it underflows."""
    small = 0
    for lane in range(LANES):
        counted = spent[FROM, lane] <= t < spent[TO, lane]
        product[lane] *= scale[lane] if counted else 1.0
        total[lane] += shift[lane] if counted else 0.0
        small += product[lane] < TINY
    if small > 0:
        for lane in range(LANES):
            total[lane] += math.log(product[lane])
            product[lane] = 1.0


@lane_kernel
def _multiply(matrix, vector, out):
    """Out = matrix · vector in every lane, four rows and four columns at a time."""
    for q in range(out.shape[0]):
        for p in range(out.shape[0]):
            i, j = QUAD * q, QUAD * p
            a0, a1, a2, a3 = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            b0, b1, b2, b3 = matrix[i + 1, j], matrix[i + 1, j + 1], matrix[i + 1, j + 2], matrix[i + 1, j + 3]
            c0, c1, c2, c3 = matrix[i + 2, j], matrix[i + 2, j + 1], matrix[i + 2, j + 2], matrix[i + 2, j + 3]
            d0, d1, d2, d3 = matrix[i + 3, j], matrix[i + 3, j + 1], matrix[i + 3, j + 2], matrix[i + 3, j + 3]
            if p == 0:
                for lane in range(LANES):
                    x, y = vector[p, lane], vector[p, LANES + lane]
                    z, u = vector[p, 2 * LANES + lane], vector[p, 3 * LANES + lane]
                    out[q, lane] = (a0 * x + a1 * y) + (a2 * z + a3 * u)
                    out[q, LANES + lane] = (b0 * x + b1 * y) + (b2 * z + b3 * u)
                    out[q, 2 * LANES + lane] = (c0 * x + c1 * y) + (c2 * z + c3 * u)
                    out[q, 3 * LANES + lane] = (d0 * x + d1 * y) + (d2 * z + d3 * u)
            else:
                for lane in range(LANES):
                    x, y = vector[p, lane], vector[p, LANES + lane]
                    z, u = vector[p, 2 * LANES + lane], vector[p, 3 * LANES + lane]
                    out[q, lane] += (a0 * x + a1 * y) + (a2 * z + a3 * u)
                    out[q, LANES + lane] += (b0 * x + b1 * y) + (b2 * z + b3 * u)
                    out[q, 2 * LANES + lane] += (c0 * x + c1 * y) + (c2 * z + c3 * u)
                    out[q, 3 * LANES + lane] += (d0 * x + d1 * y) + (d2 * z + d3 * u)


@lane_kernel
def _sum_of_products(left, right, out):
    """Out = Σ_k left_k right_k in every lane; in how many it is too small to trust."""
    for q in range(left.shape[0]):
        for lane in range(LANES):
            here = (left[q, lane] * right[q, lane] + left[q, LANES + lane] * right[q, LANES + lane]) + (
                left[q, 2 * LANES + lane] * right[q, 2 * LANES + lane]
                + left[q, 3 * LANES + lane] * right[q, 3 * LANES + lane]
            )
            out[lane] = here if q == 0 else out[lane] + here
    small = 0
    for lane in range(LANES):
        small += not out[lane] >= TINY
    return small


@lane_kernel
def _scaled_products(left, right, factor, out):
    """Out = left ∘ right, times a factor of the lane."""
    for q in range(left.shape[0]):
        for lane in range(LANES):
            x = factor[lane]
            out[q, lane] = left[q, lane] * right[q, lane] * x
            out[q, LANES + lane] = left[q, LANES + lane] * right[q, LANES + lane] * x
            out[q, 2 * LANES + lane] = left[q, 2 * LANES + lane] * right[q, 2 * LANES + lane] * x
            out[q, 3 * LANES + lane] = left[q, 3 * LANES + lane] * right[q, 3 * LANES + lane] * x


@serial_kernel
def _careful(kind, codes, table, values, weights, labels, t, alpha, emitted, lane, n_states, shift, scale):
    """Weights relative to the likeliest state within reach; others, however likely, get none."""
    raw, statistics, logs = np.zeros((values.shape[1], 1)), np.zeros((weights.shape[1], 1)), np.empty(n_states)
    fill_row(kind, codes, table, values, weights, labels, t, raw, statistics, logs)
    highest = -np.inf
    for k in range(n_states):
        reach = alpha[k // QUAD, k % QUAD * LANES + lane]
        if reach > 0.0:
            highest = max(highest, math.log(reach) + logs[k])
    total = 0.0
    for k in range(n_states):
        row, column = k // QUAD, k % QUAD * LANES + lane
        weight = 0.0
        if alpha[row, column] > 0.0 and highest > -np.inf:
            weight = math.exp(logs[k] - highest)
        emitted[row, column] = weight
        total += alpha[row, column] * weight
    shift[lane], scale[lane] = highest, total
    if total == 0.0:  # no state is possible: the caller sees a log-scale of −inf
        scale[lane] = 1.0


@lane_kernel
def _backward(
    kind, codes, backward, length, behind, spans, group, n_lanes, shortest, steps, n_states, spent, alpha, emitted, raw, state,
    ahead, statistics, lanes, places, counts, sums, out_sums, out_heads, out_states, offset,
):  # fmt: skip
    """β of every step and, with α, the expected counts."""
    total, inverse, rescale, whole, ones = lanes[0], lanes[1], lanes[2], lanes[3], lanes[5]
    by_state = alpha.reshape(alpha.shape[0], QUAD * alpha.shape[1], LANES)
    for lane in range(LANES):
        ones[lane] = 1.0
    for t in range(steps - 1, -1, -1):
        if t < steps - 1:
            _weighted(state, rescale, emitted[t + 1], ahead)
            _multiply(backward, ahead, state)
        if t >= shortest - 1:
            for lane in range(LANES):
                w = group + min(lane, n_lanes - 1)
                if t >= length[w] - 1:
                    for k in range(n_states):
                        state[k // QUAD, k % QUAD * LANES + lane] = behind[w, k]
        _sum_of_products(alpha[t], state, total)
        if t < steps - 1:
            # Before β is scaled: Σ_i α_i β_i is the sum of the pairs.
            for lane in range(LANES):
                inverse[lane] = 1.0 / total[lane] if spent[FROM, lane] <= t < spent[PAIRS_TO, lane] else 0.0
            _add_products(by_state[t], ahead, inverse, counts)
        for lane in range(LANES):
            inverse[lane] = 1.0 / total[lane] if spent[FROM, lane] <= t < spent[TO, lane] else 0.0
        _scaled_products(alpha[t], state, inverse, ahead)
        _locate(spent, t, places)
        if kind == TABLE:
            _add_codes(codes, places, inverse, n_states, ahead, out_sums)
        else:
            fill_statistics(kind, raw[t], statistics)
            _add_products(statistics, ahead, ones, sums)
        if out_states.shape[0] > 0:
            for lane in range(n_lanes):
                if inverse[lane] > 0.0:
                    for k in range(n_states):
                        out_states[places[lane] - offset, k] = ahead[k // QUAD, k % QUAD * LANES + lane]
        if t == 0:
            for lane in range(n_lanes):
                if spans[group + lane, 3] > 0:
                    for k in range(n_states):
                        row, column = k // QUAD, k % QUAD * LANES + lane
                        out_heads[k] += alpha[0, row, column] * state[row, column] / total[lane]
        _inverse_sums(state, whole, rescale)


@lane_kernel
def _weighted(state, rescale, emitted, out):
    """Out = b ∘ β, β relative to its sum and at least FLOOR."""
    for q in range(out.shape[0]):
        for lane in range(LANES):
            x = rescale[lane]
            out[q, lane] = max(state[q, lane] * x, FLOOR) * emitted[q, lane]
            out[q, LANES + lane] = max(state[q, LANES + lane] * x, FLOOR) * emitted[q, LANES + lane]
            out[q, 2 * LANES + lane] = max(state[q, 2 * LANES + lane] * x, FLOOR) * emitted[q, 2 * LANES + lane]
            out[q, 3 * LANES + lane] = max(state[q, 3 * LANES + lane] * x, FLOOR) * emitted[q, 3 * LANES + lane]


@lane_kernel
def _inverse_sums(state, whole, out):
    """Out = 1 / Σ_k β_k in every lane."""
    for q in range(state.shape[0]):
        for lane in range(LANES):
            here = (state[q, lane] + state[q, LANES + lane]) + (state[q, 2 * LANES + lane] + state[q, 3 * LANES + lane])
            whole[lane] = here if q == 0 else whole[lane] + here
    for lane in range(LANES):
        out[lane] = 1.0 / whole[lane]


@lane_kernel
def _add_products(left, right, factor, out):
    """out[i, k] += Σ_lanes left_i right_k, times a factor of the lane, two rows of ``left`` and four states at a time."""
    for q in range(right.shape[0]):
        k = QUAD * q
        for i in range(0, left.shape[0], 2):
            a0, a1, a2, a3, b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for lane in range(LANES):
                x, y = left[i, lane] * factor[lane], left[i + 1, lane] * factor[lane]
                r0, r1 = right[q, lane], right[q, LANES + lane]
                r2, r3 = right[q, 2 * LANES + lane], right[q, 3 * LANES + lane]
                a0 += x * r0
                a1 += x * r1
                a2 += x * r2
                a3 += x * r3
                b0 += y * r0
                b1 += y * r1
                b2 += y * r2
                b3 += y * r3
            out[i, k] += a0
            out[i, k + 1] += a1
            out[i, k + 2] += a2
            out[i, k + 3] += a3
            out[i + 1, k] += b0
            out[i + 1, k + 1] += b1
            out[i + 1, k + 2] += b2
            out[i + 1, k + 3] += b3


@lane_kernel
def _add_codes(codes, places, counted, n_states, probability, out):
    """out[code, k] += q_k of the lanes that count."""
    for lane in range(LANES):
        if counted[lane] > 0.0:
            code = codes[places[lane]]
            for k in range(n_states):
                out[code, k] += probability[k // QUAD, k % QUAD * LANES + lane]
