"""What the kernels of hidden Markov models do, in plain NumPy, for little data: all windows side by side, time after time.

The equations, scales and floors are those of `natgrad.kernels.hmm.lanes`; the same tests hold both to the same slow twins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.kernels.hmm.emissions import BY_COLUMN, TABLE
from natgrad.kernels.hmm.lanes import FLOOR, TINY

__all__ = ["best_path", "filter_rows", "log_weights", "run_windows", "statistics", "work_of"]


def work_of(n_times: int, n_states: int) -> float:
    """Microseconds of a pass, if all times were of one sequence."""
    return n_times * (12.0 + 0.02 * n_states**2)


@np.errstate(all="ignore")  # as in a kernel: the caller sees what is not finite
def run_windows(
    kind, codes, table, likelihood, peak, values, weights, labels, transition, begin, length, before, behind, spans,
    first, last, out_pairs, out_sums, out_heads, out_log, out_states, offset,
):  # fmt: skip
    """As the kernel of this name has it."""
    begin, length, spans = begin[first:last], length[first:last], spans[first:last]
    steps = np.arange(int(length.max()))[:, None]
    places = np.minimum(begin + steps, begin + length - 1)  # [t, w]
    seen, logs = log_weights(kind, codes, table, values, weights, labels, places)
    shift = logs.max(2)
    emitted = np.exp(logs - np.where(np.isfinite(shift), shift, 0.0)[:, :, None])
    alpha, scale = _forward(before[first:last], transition, logs, emitted, shift)
    beta, ahead, total = _backward(behind[first:last], transition, emitted, alpha, length)
    counted = (spans[:, 0] <= steps) & (steps < spans[:, 1])
    out_log[first:last] = np.where(counted, np.log(scale) + shift, 0.0).sum(0)
    in_pairs = (spans[:, 0] <= steps) & (steps < spans[:, 0] + spans[:, 2])
    weight = np.where(in_pairs[:-1], 1.0 / total[:-1], 0.0)[:, :, None]
    flat = (-1, alpha.shape[2])
    out_pairs += transition * ((alpha[:-1] * weight).reshape(flat).T @ ahead[:-1].reshape(flat))
    q = alpha * beta * np.where(counted, 1.0 / total, 0.0)[:, :, None]
    if kind == TABLE:
        np.add.at(out_sums, codes[places].ravel(), q.reshape(flat))
    else:
        out_sums += seen.reshape(-1, seen.shape[2]).T @ q.reshape(flat)
    if len(out_states):
        out_states[places[counted] - offset] = q[counted]
    heads = spans[:, 3] > 0
    out_heads += (alpha[0] * beta[0] / total[0][:, None])[heads].sum(0)


def log_weights(kind: int, codes: Any, table: Any, values: Any, weights: Any, labels: Any, places: Any) -> Any:
    """Statistics [t, w, F] (none of codes) and log b [t, w, K]; −∞ for states that a label rules out."""
    if kind == TABLE:
        seen, logs = None, table[codes[places]]
    else:
        seen = statistics(kind, np.asarray(values)[places])
        logs = seen @ weights.T
    if len(labels):
        known = labels[places][:, :, None]
        logs = np.where((known < 0) | (known == np.arange(logs.shape[2])), logs, -np.inf)
    return seen, logs


def statistics(kind: int, raw: Any) -> Any:
    """(1, y, y²) of each column, or (1, y_d, y_d y_e for d ≤ e) of rows [..., D]; zeros where they are missing."""
    if kind == BY_COLUMN:
        seen = raw == raw
        x = np.where(seen, raw, 0.0)
        return np.stack([seen * 1.0, x, x * x], axis=-1).reshape(*raw.shape[:-1], -1)
    seen = (raw == raw).all(-1, keepdims=True)
    x = np.where(seen, raw, 0.0)
    d, e = np.triu_indices(raw.shape[-1])
    return np.concatenate([seen * 1.0, x, x[..., d] * x[..., e]], axis=-1)


def _forward(before: Any, transition: Any, logs: Any, emitted: Any, shift: Any) -> Any:
    """α [t, w, K] with sum 1, and the scales [t, w]; a scale too small to trust is made again, with ``emitted`` and ``shift``."""
    alpha, scale = np.empty_like(emitted), np.empty(shift.shape)
    message = before
    for t in range(len(alpha)):
        product = message * emitted[t]
        total = product.sum(1)
        if not (total >= TINY).all():
            total = _careful(message, logs[t], emitted[t], shift[t], total)
            product = message * emitted[t]
        scale[t] = total
        np.divide(product, total[:, None], out=alpha[t])
        message = alpha[t] @ transition
    return alpha, scale


def _careful(message: Any, logs: Any, emitted: Any, shift: Any, total: Any) -> Any:
    """Weights relative to the likeliest state within reach, where sums are too small; others, however likely, get none."""
    small = ~(total >= TINY)
    reach = np.where(message > 0.0, np.log(message) + logs, -np.inf)
    highest = reach.max(1)
    weight = np.where((message > 0.0) & (highest > -np.inf)[:, None], np.exp(logs - highest[:, None]), 0.0)
    emitted[small], shift[small] = weight[small], highest[small]
    total = np.where(small, (message * emitted).sum(1), total)
    return np.where(small & (total == 0.0), 1.0, total)  # no state is possible: a log-scale of −∞


@np.errstate(all="ignore")
def filter_rows(logs: Any, ahead: Any, transition: Any, out: Any) -> float:
    """As the kernel of this name has it."""
    shift = logs.max(1)
    emitted = np.exp(logs - np.where(np.isfinite(shift), shift, 0.0)[:, None])
    alpha, scale = _forward(ahead[None], transition, logs[:, None], emitted[:, None], shift[:, None])
    out[:] = alpha[:, 0]
    return float((np.log(scale[:, 0]) + shift).sum())


def _backward(behind: Any, transition: Any, emitted: Any, alpha: Any, length: Any) -> Any:
    """β [t, w, K], b ∘ β of the next time, relative, and Σ_k α_k β_k [t, w]; windows that are shorter begin where they end."""
    beta, ahead = np.empty_like(alpha), np.zeros_like(alpha)
    backward, n_steps = transition.T, len(alpha)
    beta[-1] = behind
    for t in range(n_steps - 2, -1, -1):
        after = beta[t + 1]
        np.multiply(np.maximum(after / after.sum(1)[:, None], FLOOR), emitted[t + 1], out=ahead[t])
        np.matmul(ahead[t], backward, out=beta[t])
        ended = t >= length - 1
        if ended.any():
            beta[t][ended] = behind[ended]
    return beta, ahead, (alpha * beta).sum(2)


def best_path(
    kind: int, codes: Any, table: Any, values: Any, weights: Any, labels: Any, log_transition: Any, log_initial: Any, begin: int,
    end: int,
) -> tuple[Any, float]:  # fmt: skip
    """The likeliest states of the times begin … end, and the log probability of the path."""
    places = np.arange(begin, end)[:, None]
    logs = log_weights(kind, codes, table, values, weights, labels, places)[1][:, 0]
    pointers = np.zeros(logs.shape, np.int64)
    score = log_initial + logs[0]
    for t in range(1, len(logs)):
        into = score[:, None] + log_transition
        pointers[t] = into.argmax(0)
        score = into.max(0) + logs[t]
    path = np.empty(len(logs), np.int64)
    path[-1] = score.argmax()
    for t in range(len(logs) - 1, 0, -1):
        path[t - 1] = pointers[t, path[t]]
    return path, float(score.max())
