"""Subchains side by side: windows of a long sequence in; expected counts of states, pairs and statistics, and log-scales out.

    α_t ∝ (α_{t−1} A) ∘ b_t          β_t ∝ A (b_{t+1} ∘ β_{t+1})
    q(x_t) ∝ α_t ∘ β_t               q(x_t, x_{t+1}) ∝ α_t(i) A_ij b_{t+1}(j) β_{t+1}(j)

A need not be normalised. Every window has a message from before it, ``before`` [K] (what α_{t−1} A is at its first time), and one
from behind it, ``behind`` [K] (β of its last time), so a long chain cut into windows with exact messages is exact. Layout
[t][k][lane]: one window in each lane. Numbers are scaled at every time; a scale that is too small to trust is made again from
logarithms (`_careful`). A lane owns its columns of the scratch, a call owns its sums.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import lane_kernel, serial_kernel
from natgrad.kernels.hmm_emissions import LANES, TABLE, fill_lanes, fill_row, fill_statistics, gather

__all__ = ["run_windows"]

# β never falls below this, relative to its sum, so that Σ α β is never 0. Nothing notices unless a state that cannot be reached
# explains the future e^690 times better than all that can.
FLOOR = 1e-300
# A scale below this is made again from logarithms; a running product is taken into the sum before it gets there.
TINY = 1e-100
# Sums run over four rows at a time: a load of an accumulator for each of them would take longer than the product.
UNROLLED = 4


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
    padded = (n_states + UNROLLED - 1) // UNROLLED * UNROLLED
    longest = 1
    for w in range(first, last):
        longest = max(longest, length[w])
    forward, backward = np.zeros((padded, padded)), np.zeros((padded, padded))
    for i in range(n_states):
        for j in range(n_states):
            forward[j, i], backward[i, j] = transition[i, j], transition[i, j]
    n_stats = 1 if kind == TABLE else weights.shape[1]
    alpha, emitted = np.zeros((longest, padded, LANES)), np.zeros((longest, padded, LANES))
    raw = np.zeros((longest, values.shape[1], LANES))
    state = np.zeros((padded, LANES))
    ahead = np.zeros((padded, LANES))
    statistics = np.zeros((n_stats, LANES))
    counts = np.zeros((padded, padded))
    lanes = np.zeros((8, LANES))
    power = np.zeros(LANES)
    bits = power.view(np.int64)
    places = np.zeros(LANES, np.int64)
    for group in range(first, last, LANES):
        n_lanes = min(LANES, last - group)
        steps = length[group]
        for w in range(group, group + n_lanes):
            steps = max(steps, length[w])
        _forward(
            kind, codes, table, likelihood, peak, values, weights, labels, forward, begin, length, before, spans, group,
            n_lanes, steps, n_states, alpha, emitted, raw, statistics, lanes, power, bits, places, out_log,
        )  # fmt: skip
        counts[:] = 0.0
        _backward(
            kind, codes, backward, begin, length, behind, spans, group, n_lanes, steps, n_states, alpha, emitted,
            raw, state, ahead, statistics, lanes, places, counts, out_sums, out_heads, out_states, offset,
        )  # fmt: skip
        for i in range(n_states):
            for j in range(n_states):
                out_pairs[i, j] += transition[i, j] * counts[i, j]


@serial_kernel
def _locate(begin, length, group, n_lanes, t, places):
    """Where each lane is at step ``t``; lanes that have ended, or hold nothing, stay at the last time they have."""
    width = LANES
    for lane in range(width):
        w = group + min(lane, n_lanes - 1)
        places[lane] = begin[w] + min(t, length[w] - 1)


@lane_kernel
def _forward(
    kind, codes, table, likelihood, peak, values, weights, labels, forward, begin, length, before, spans, group, n_lanes,
    steps, n_states, alpha, emitted, raw, statistics, lanes, power, bits, places, out_log,
):  # fmt: skip
    """α of every step, and the log-scales."""
    width = LANES
    forward.shape[0]
    shift, scale, top, product, total, counted = lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5]
    for lane in range(width):
        product[lane], total[lane] = 1.0, 0.0
    for t in range(steps):
        _locate(begin, length, group, n_lanes, t, places)
        if kind != TABLE:
            gather(values, places, raw[t])
            fill_statistics(kind, raw[t], statistics)
        fill_lanes(
            kind, codes, likelihood, peak, weights, labels, places, statistics, n_states, power, bits, emitted[t], shift, top
        )  # fmt: skip
        if t == 0:
            for lane in range(width):
                w = group + min(lane, n_lanes - 1)
                for k in range(n_states):
                    alpha[0, k, lane] = before[w, k]
        else:
            _multiply(forward, alpha[t - 1], n_states, alpha[t])
        for lane in range(width):
            scale[lane] = 0.0
        for k in range(n_states):
            for lane in range(width):
                top[lane] = alpha[t, k, lane] * emitted[t, k, lane]
                scale[lane] += top[lane]
        small = 0
        for lane in range(width):
            small += not scale[lane] >= TINY
        if small > 0:
            for lane in range(width):
                if not scale[lane] >= TINY:
                    _careful(
                        kind, codes, table, values, weights, labels, places[lane], alpha[t], emitted[t], lane, n_states,
                        shift, scale,
                    )  # fmt: skip
        for lane in range(width):
            top[lane] = 1.0 / scale[lane]
        for k in range(n_states):
            for lane in range(width):
                alpha[t, k, lane] = alpha[t, k, lane] * emitted[t, k, lane] * top[lane]
        _gather_scales(spans, group, n_lanes, t, shift, scale, product, total, counted)
    for lane in range(n_lanes):
        out_log[group + lane] = total[lane] + math.log(product[lane])


@lane_kernel
def _gather_scales(spans, group, n_lanes, t, shift, scale, product, total, counted):
    """Log Π scales as a running product, whose logarithm is taken before it underflows."""
    width = LANES
    for lane in range(width):
        w = group + min(lane, n_lanes - 1)
        counted[lane] = 1.0 if spans[w, 0] <= t < spans[w, 1] else 0.0
    small = 0
    for lane in range(width):
        product[lane] *= scale[lane] * counted[lane] + (1.0 - counted[lane])
        total[lane] += shift[lane] * counted[lane]
        small += product[lane] < TINY
    if small > 0:
        for lane in range(width):
            total[lane] += math.log(product[lane])
            product[lane] = 1.0


@lane_kernel
def _multiply(matrix, vector, n_rows, out):
    """out[j] = Σ_i matrix[j, i] vector[i], in every lane."""
    width = LANES
    for j in range(n_rows):
        for i in range(0, matrix.shape[1], UNROLLED):
            w0, w1, w2, w3 = matrix[j, i], matrix[j, i + 1], matrix[j, i + 2], matrix[j, i + 3]
            if i == 0:
                for lane in range(width):
                    out[j, lane] = (
                        w0 * vector[i, lane]
                        + w1 * vector[i + 1, lane]
                        + w2 * vector[i + 2, lane]
                        + w3 * vector[i + 3, lane]
                    )
            else:
                for lane in range(width):
                    out[j, lane] += (
                        w0 * vector[i, lane]
                        + w1 * vector[i + 1, lane]
                        + w2 * vector[i + 2, lane]
                        + w3 * vector[i + 3, lane]
                    )


@serial_kernel
def _careful(kind, codes, table, values, weights, labels, t, alpha, emitted, lane, n_states, shift, scale):
    """Weights relative to the likeliest state within reach; others, however likely, get none."""
    raw, statistics, logs = np.zeros((values.shape[1], 1)), np.zeros((weights.shape[1], 1)), np.empty(n_states)
    fill_row(kind, codes, table, values, weights, labels, t, raw, statistics, logs)
    highest = -np.inf
    for k in range(n_states):
        if alpha[k, lane] > 0.0:
            highest = max(highest, math.log(alpha[k, lane]) + logs[k])
    total = 0.0
    for k in range(n_states):
        weight = 0.0
        if alpha[k, lane] > 0.0 and highest > -np.inf:
            weight = math.exp(logs[k] - highest)
        emitted[k, lane] = weight
        total += alpha[k, lane] * weight
    shift[lane], scale[lane] = highest, total
    if total == 0.0:  # no state is possible: the caller sees a log-scale of −inf
        scale[lane] = 1.0


@lane_kernel
def _backward(
    kind, codes, backward, begin, length, behind, spans, group, n_lanes, steps, n_states, alpha, emitted, raw, state, ahead,
    statistics, lanes, places, counts, out_sums, out_heads, out_states, offset,
):  # fmt: skip
    """β of every step and, with α, the expected counts."""
    width = LANES
    total, inverse, counted, paired = lanes[0], lanes[1], lanes[2], lanes[3]
    n_windows = group + n_lanes - 1
    for t in range(steps - 1, -1, -1):
        if t < steps - 1:
            for k in range(n_states):
                for lane in range(width):
                    ahead[k, lane] = state[k, lane] * emitted[t + 1, k, lane]
            _multiply(backward, ahead, n_states, state)
        for lane in range(width):
            w = min(group + lane, n_windows)
            if t >= length[w] - 1:
                for k in range(n_states):
                    state[k, lane] = behind[w, k]
            real = lane < n_lanes
            counted[lane] = 1.0 if real and spans[w, 0] <= t < spans[w, 1] else 0.0
            paired[lane] = 1.0 if real and spans[w, 0] <= t < spans[w, 0] + spans[w, 2] else 0.0
        _balance(alpha[t], state, n_states, total, inverse)
        if t < steps - 1:
            # Before β is scaled: Σ_i α_i β_i is the sum of the pairs.
            for lane in range(width):
                inverse[lane] = paired[lane] / total[lane]
            for k in range(n_states):
                for lane in range(width):
                    ahead[k, lane] *= inverse[lane]
            _outer(alpha[t], ahead, n_states, counts)
        for lane in range(width):
            inverse[lane] = counted[lane] / total[lane]
        for k in range(n_states):
            for lane in range(width):
                ahead[k, lane] = alpha[t, k, lane] * state[k, lane] * inverse[lane]
        _locate(begin, length, group, n_lanes, t, places)
        _add_sums(kind, codes, raw[t], places, n_lanes, n_states, ahead, counted, statistics, out_sums)
        if out_states.shape[0] > 0:
            for lane in range(n_lanes):
                if counted[lane] > 0.0:
                    for k in range(n_states):
                        out_states[places[lane] - offset, k] = ahead[k, lane]
        if t == 0:
            for lane in range(n_lanes):
                if spans[group + lane, 3] > 0:
                    for k in range(n_states):
                        out_heads[k] += alpha[0, k, lane] * state[k, lane] / total[lane]
        _rescale(state, n_states, total)


@lane_kernel
def _balance(alpha, state, n_states, total, inverse):
    """Total = Σ_k α_k β_k in every lane."""
    width = LANES
    for lane in range(width):
        total[lane] = 0.0
    for k in range(n_states):
        for lane in range(width):
            total[lane] += alpha[k, lane] * state[k, lane]


@lane_kernel
def _rescale(state, n_states, total):
    """β relative to its sum, and at least FLOOR."""
    width = LANES
    for lane in range(width):
        total[lane] = 0.0
    for k in range(n_states):
        for lane in range(width):
            total[lane] += state[k, lane]
    for lane in range(width):
        total[lane] = 1.0 / total[lane]
    for k in range(n_states):
        for lane in range(width):
            state[k, lane] = max(state[k, lane] * total[lane], FLOOR)


@lane_kernel
def _outer(left, right, n_states, out):
    """out[i, j] += Σ_lanes left[i] right[j]; rows beyond the states hold nothing."""
    width = LANES
    for i in range(n_states):
        for j in range(0, out.shape[1], UNROLLED):
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for lane in range(width):
                x = left[i, lane]
                a += x * right[j, lane]
                b += x * right[j + 1, lane]
                c += x * right[j + 2, lane]
                d += x * right[j + 3, lane]
            out[i, j] += a
            out[i, j + 1] += b
            out[i, j + 2] += c
            out[i, j + 3] += d


@lane_kernel
def _add_sums(kind, codes, raw, places, n_lanes, n_states, probability, counted, statistics, out):
    """out[j, k] += Σ_lanes s_j q_k."""
    width = LANES
    if kind == TABLE:
        for lane in range(n_lanes):
            if counted[lane] > 0.0:
                code = codes[places[lane]]
                for k in range(n_states):
                    out[code, k] += probability[k, lane]
        return
    fill_statistics(kind, raw, statistics)
    for j in range(statistics.shape[0]):
        for k in range(n_states):
            total = 0.0
            for lane in range(width):
                total += statistics[j, lane] * probability[k, lane]
            out[j, k] += total
