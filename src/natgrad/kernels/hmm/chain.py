"""One whole chain: messages at the cuts of an exact forward–backward, the likeliest path, and how much a buffer forgets.

The exact chain is cut into blocks. Two scans, one from each end, leave the message that enters each block; then all blocks are
independent, and `hmm_lanes.run_windows` takes them side by side. Nothing of size T × K is ever held.

    forward scan    a_t = (a_{t−1} ∘ b_{t−1}) A          before the first time of each block
    backward scan   β_t = A (b_{t+1} ∘ β_{t+1})          of the last time of each window
    operators       M = Π D_b A over a left buffer, R = Π A D_b over a right one

The rows of M span all messages that can leave a left buffer, whatever came before it; the columns of R those of a right one.
Their diameter in Hilbert's projective metric d(x, y) = log max_k(x_k/y_k) − log min_k(x_k/y_k) is what is still unknown, and no
factor multiplied in later makes it larger (Birkhoff, 1957).
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

__all__ = ["best_scores", "filter_rows", "grow_buffers", "scan_backward", "scan_forward", "trace_path"]

# As in `hmm_lanes`.
FLOOR, TINY = 1e-300, 1e-100
# Messages are scaled when they have become this small; above it nothing is lost.
SMALL = 1e-60


@lane_kernel
def _emissions(kind, codes, table, likelihood, peak, values, forms, labels, begin, end, n_states, rows, out):
    """Weights [quads, ROW] of the times begin … begin + lanes, those from ``end`` on a copy of the last; ``rows`` is scratch."""
    places = np.empty(LANES, np.int64)
    for lane in range(LANES):
        places[lane] = min(begin + lane, end - 1)
    raw, statistics = np.empty((values.shape[1], LANES)), np.zeros((forms.shape[1], LANES))
    if kind != TABLE:
        gather(values, places, raw)
        fill_statistics(kind, raw, statistics)
    power, shift = rows[1], rows[2]
    fill_lanes(
        kind, codes, table, likelihood, peak, forms, labels, places, statistics, n_states, power, power.view(np.int64), out,
        shift, rows[0],
    )  # fmt: skip


@serial_kernel
def _copy(source, out, row):
    """Element by element: NumPy's assignment of arrays takes seconds to compile."""
    for k in range(source.shape[0]):
        out[row, k] = source[k]


@lane_kernel
def scan_forward(
    kind, codes, table, likelihood, peak, values, weights, labels, transition, initial, begin, end, block, out
):  # fmt: skip
    """``out`` [blocks, K]: what is expected before the first time of each block of a chain from ``begin`` to ``end``."""
    n_states = transition.shape[0]
    quads, rows, forms = np.zeros((-(-n_states // QUAD), ROW)), np.empty((3, ROW)), padded_forms(weights)
    emitted = quads.reshape(-1, LANES)
    message, after = initial.copy(), np.empty(n_states)
    raw, statistics, logs = np.zeros((values.shape[1], 1)), np.zeros((weights.shape[1], 1)), np.empty(n_states)
    _copy(message, out, 0)
    before = 0.0
    for k in range(n_states):
        before += message[k]
    for t in range(begin, end - 1):
        lane = (t - begin) % LANES
        if lane == 0:
            _emissions(kind, codes, table, likelihood, peak, values, forms, labels, t, end, n_states, rows, quads)
        total = 0.0
        for k in range(n_states):
            after[k] = message[k] * emitted[k, lane]
            total += after[k]
        if not total >= TINY * before:
            fill_row(kind, codes, table, values, weights, labels, t, raw, statistics, logs)
            total = _careful_weights(message, logs, after)
        at_cut = (t + 1 - begin) % block == 0
        if at_cut or total < SMALL:
            for k in range(n_states):
                after[k] = after[k] / total
            total = 1.0
        _combine(after, transition, message)
        before = total
        if at_cut:
            _copy(message, out, (t + 1 - begin) // block)


@lane_kernel
def _combine(weight, matrix, out):
    """Out = weight · matrix, four rows at a time: one after the other would wait for each sum to come back from memory."""
    size = weight.shape[0]
    whole = size - size % 4
    for j in range(size):
        out[j] = 0.0
    for i in range(0, whole, 4):
        a, b, c, d = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
        for j in range(size):
            out[j] += (a * matrix[i, j] + b * matrix[i + 1, j]) + (c * matrix[i + 2, j] + d * matrix[i + 3, j])
    for i in range(whole, size):
        a = weight[i]
        for j in range(size):
            out[j] += a * matrix[i, j]


@serial_kernel
def _careful_weights(message, logs, out):
    """Message ∘ b relative to its largest entry within reach; the sum, 1 if nothing is."""
    highest = -np.inf
    for k in range(len(logs)):
        if message[k] > 0.0:
            highest = max(highest, math.log(message[k]) + logs[k])
    total = 0.0
    for k in range(len(logs)):
        out[k] = 0.0
        if message[k] > 0.0 and highest > -np.inf:
            out[k] = math.exp(math.log(message[k]) + logs[k] - highest)
        total += out[k]
    return total if total > 0.0 else 1.0


@lane_kernel
def filter_rows(logs, ahead, transition, out):
    """``out`` [T, K]: p(x_t | y_1 … y_t) from log b [T, K] and what is expected before the first; the sum of log-scales."""
    n_times, n_states = logs.shape
    message, after, log_prob = ahead.copy(), np.empty(n_states), 0.0
    for t in range(n_times):
        shift, total = logs[t, 0], 0.0
        for k in range(n_states):
            shift = max(shift, logs[t, k])
        for k in range(n_states):
            after[k] = message[k] * math.exp(logs[t, k] - shift)
            total += after[k]
        if not total >= TINY:
            shift = -np.inf
            for k in range(n_states):
                if message[k] > 0.0:
                    shift = max(shift, math.log(message[k]) + logs[t, k])
            total = _careful_weights(message, logs[t], after)
        log_prob += math.log(total) + shift
        for k in range(n_states):
            after[k] = after[k] / total
            out[t, k] = after[k]
        _combine(after, transition, message)
    return log_prob


@lane_kernel
def scan_backward(
    kind, codes, table, likelihood, peak, values, weights, labels, backward, begin, end, block, out
):  # fmt: skip
    """``out`` [blocks, K]: β of the time that follows each block, or of the last one of the chain.

    ``backward`` is the transposed transition.
    """
    n_states = backward.shape[0]
    quads, rows, forms = np.zeros((-(-n_states // QUAD), ROW)), np.empty((3, ROW)), padded_forms(weights)
    emitted = quads.reshape(-1, LANES)
    message, ahead = np.ones(n_states), np.empty(n_states)
    n_blocks = out.shape[0]
    out[n_blocks - 1] = 1.0
    for t in range(end - 1, begin, -1):
        # β of time t is in ``message``; blocks end before a multiple of ``block``.
        if (t - begin) % block == 0:
            total = 0.0
            for k in range(n_states):
                total += message[k]
            for k in range(n_states):
                message[k] = max(message[k] / total, FLOOR)
            _copy(message, out, (t - begin) // block - 1)
        lane = (t - begin) % LANES
        if lane == LANES - 1 or t == end - 1:
            _emissions(
                kind, codes, table, likelihood, peak, values, forms, labels, t - lane, end, n_states, rows, quads
            )
        for k in range(n_states):
            ahead[k] = message[k] * emitted[k, lane]
        _combine(ahead, backward, message)
        total = 0.0
        for k in range(n_states):
            total += message[k]
        if total < SMALL:
            if total == 0.0:
                message[:] = 1.0
                total = float(n_states)
            for k in range(n_states):
                message[k] = max(message[k] / total, FLOOR)


@serial_kernel
def best_scores(
    kind, codes, table, values, weights, labels, log_transition, log_initial, begin, end, block, out_kept, out_last
):  # fmt: skip
    """The log probability of the likeliest path into each state, at the first time of each block and at the last of all."""
    n_states = log_transition.shape[0]
    raw, statistics, logs = np.zeros((values.shape[1], 1)), np.zeros((weights.shape[1], 1)), np.empty(n_states)
    after, pointer = np.empty(n_states), np.empty(n_states, np.int32)
    fill_row(kind, codes, table, values, weights, labels, begin, raw, statistics, logs)
    for k in range(n_states):
        out_last[k] = log_initial[k] + logs[k]
    _copy(out_last, out_kept, 0)
    for t in range(1, end - begin):
        fill_row(kind, codes, table, values, weights, labels, begin + t, raw, statistics, logs)
        _best_step(out_last, logs, log_transition, after, pointer)
        for k in range(n_states):
            out_last[k] = after[k]
        if t % block == 0:
            _copy(out_last, out_kept, t // block)


@serial_kernel
def trace_path(
    kind, codes, table, values, weights, labels, log_transition, begin, end, block, kept, first, last, state, out
):  # fmt: skip
    """The likeliest path in the blocks ``first`` … ``last``, given the state that follows them; the state it begins with.

    ``out`` starts at the first time of the first block. The last time of a chain is no block's to decide. Pointers of one block
    are held at a time, made again from the scores that were kept.
    """
    n_states, n_times = log_transition.shape[0], end - begin
    raw, statistics, logs = np.zeros((values.shape[1], 1)), np.zeros((weights.shape[1], 1)), np.empty(n_states)
    score, after = np.empty(n_states), np.empty(n_states)
    pointers = np.empty((block, n_states), np.int32)
    for number in range(last - 1, first - 1, -1):
        start = number * block
        stop = min(start + block, n_times - 1)
        for k in range(n_states):
            score[k] = kept[number, k]
        for t in range(start + 1, stop + 1):
            fill_row(kind, codes, table, values, weights, labels, begin + t, raw, statistics, logs)
            _best_step(score, logs, log_transition, after, pointers[t - start - 1])
            for k in range(n_states):
                score[k] = after[k]
        for t in range(stop, start, -1):
            state = pointers[t - start - 1, state]
            out[t - 1 - first * block] = state
    return state


@serial_kernel
def _best_step(score, logs, log_transition, out, pointer):
    """One step of the likeliest path: the best way into each state."""
    n_states = len(score)
    for j in range(n_states):
        best, where = -np.inf, 0
        for i in range(n_states):
            value = score[i] + log_transition[i, j]
            if value > best:
                best, where = value, i
        out[j], pointer[j] = best + logs[j], where


@serial_kernel
def grow_buffers(
    kind, codes, table, values, weights, labels, transition, initial, stationary, begin, length, low, high, unit, tol, most,
    first, last, out_before, out_behind, out_size, out_error,
):  # fmt: skip
    """Buffers on both sides of each subchain, grown by ``unit`` until what they leave open is known to change q by less than tol.

    ``low, high`` [n] are the ends of the sequence that holds a subchain. ``out_before, out_behind`` [n, K] are the messages that
    enter it, ``out_size`` [n] the larger of its two buffers, ``out_error`` [n] the bound tanh(¼ (Δ_left + Δ_right)) on the total
    variation of q(x_S) from what the whole chain would give at the same q(A), q(φ).
    """
    n_states = transition.shape[0]
    left, right, product = (
        np.empty((n_states, n_states)),
        np.empty((n_states, n_states)),
        np.empty((n_states, n_states)),
    )
    raw, statistics, logs = np.zeros((values.shape[1], 1)), np.zeros((weights.shape[1], 1)), np.empty(n_states)
    for w in range(first, last):
        left[:], right[:] = 0.0, 0.0
        for k in range(n_states):
            left[k, k], right[k, k] = 1.0, 1.0
        start, stop = begin[w], begin[w] + length[w]
        while True:
            spread = 0.0 if start == low[w] else _diameter(left)
            spread += 0.0 if stop == high[w] else _diameter(right.T)
            error = math.tanh(0.25 * spread)
            size = max(begin[w] - start, stop - begin[w] - length[w])
            if error < tol or size >= most or (start == low[w] and stop == high[w]):
                break
            for _ in range(unit):
                if start > low[w]:
                    start -= 1
                    fill_row(kind, codes, table, values, weights, labels, start, raw, statistics, logs)
                    _weights_of(logs)
                    _extend(transition, left, logs, True, product)
                if stop < high[w]:
                    fill_row(kind, codes, table, values, weights, labels, stop, raw, statistics, logs)
                    _weights_of(logs)
                    _extend(transition, right, logs, False, product)
                    stop += 1
        chosen = initial if start == low[w] else stationary
        _message(chosen, left, right, out_before[w], out_behind[w])
        out_size[w], out_error[w] = size, error


@serial_kernel
def _weights_of(logs):
    """Log b replaced by b, the largest 1."""
    top = logs.max()
    for k in range(len(logs)):
        logs[k] = math.exp(logs[k] - top)


@lane_kernel
def _extend(transition, operator, weight, to_the_left, product):
    """D_b A M on the left, R A D_b on the right; scaled, since only directions count."""
    n_states = len(weight)
    product[:] = 0.0
    for i in range(n_states):
        for k in range(n_states):
            factor = transition[i, k] if to_the_left else operator[i, k]
            for j in range(n_states):
                product[i, j] += factor * (operator[k, j] if to_the_left else transition[k, j])
    total = 0.0
    for i in range(n_states):
        for j in range(n_states):
            product[i, j] *= weight[i] if to_the_left else weight[j]
            total += product[i, j]
    for i in range(n_states):
        for j in range(n_states):
            operator[i, j] = product[i, j] / total if total > 0.0 else 1.0


@serial_kernel
def _diameter(operator):
    """The largest projective distance between two rows; infinite where one has a zero that another has not.

    Rows of nothing but zeros belong to states that cannot be, and do not count.
    """
    widest = 0.0
    for a in range(operator.shape[0]):
        for b in range(a):
            if operator[a].sum() == 0.0 or operator[b].sum() == 0.0:
                continue
            high, low = 0.0, np.inf
            for k in range(operator.shape[1]):
                x, y = operator[a, k], operator[b, k]
                if x == 0.0 and y == 0.0:
                    continue
                ratio = x / y if y > 0.0 else np.inf
                high, low = max(high, ratio), min(low, ratio)
            if high > 0.0 and (low == 0.0 or high == np.inf):
                return np.inf
            if low < high:
                widest = max(widest, math.log(high) - math.log(low))
    return widest


@serial_kernel
def _message(start, left, right, out_before, out_behind):
    """Start · M, and R · 1; each with sum 1."""
    n_states = len(start)
    sums = np.zeros(2)
    for j in range(n_states):
        out_before[j], out_behind[j] = 0.0, 0.0
        for i in range(n_states):
            out_before[j] += start[i] * left[i, j]
            out_behind[j] += right[j, i]
        sums[0] += out_before[j]
        sums[1] += out_behind[j]
    for j in range(n_states):
        out_before[j] = out_before[j] / sums[0]
        out_behind[j] = max(out_behind[j] / sums[1], FLOOR)
