"""Hidden Markov chains the slow, obvious way, in logarithms: the twins of `natgrad.kernels.hmm_*`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

__all__ = [
    "ChainTwin",
    "best_value",
    "by_enumeration",
    "chain",
    "column_statistics",
    "naive_filter",
    "path_value",
    "projective_diameter",
    "quadratic_statistics",
    "row_weights",
    "successive_buffer",
    "transfer_operators",
]

Floats = npt.NDArray[np.float64]


class ChainTwin(NamedTuple):
    """q of a chain: log Z, q(x_t) [T, K], Σ_t q(x_t, x_{t+1}) [K, K]."""

    log_z: float
    states: Floats
    pairs: Floats


def chain(logs: Floats, transition: Floats, before: Floats, behind: Floats | None = None) -> ChainTwin:
    """Forward–backward in logarithms: log b [T, K], A [K, K], the messages that enter at both ends [K]."""
    n_times, n_states = logs.shape
    with np.errstate(divide="ignore"):
        log_a, first = np.log(transition), np.log(before)
        last = np.zeros(n_states) if behind is None else np.log(behind)
    alpha, beta = np.empty((n_times, n_states)), np.empty((n_times, n_states))
    alpha[0] = first + logs[0]
    for t in range(1, n_times):
        alpha[t] = logsumexp(alpha[t - 1][:, None] + log_a, axis=0) + logs[t]
    beta[-1] = last
    for t in range(n_times - 2, -1, -1):
        beta[t] = logsumexp(log_a + (logs[t + 1] + beta[t + 1])[None, :], axis=1)
    log_z = float(logsumexp(alpha[-1] + beta[-1]))
    pairs = np.zeros((n_states, n_states))
    for t in range(n_times - 1):
        pairs += np.exp(alpha[t][:, None] + log_a + (logs[t + 1] + beta[t + 1])[None, :] - log_z)
    return ChainTwin(log_z, np.exp(alpha + beta - log_z), pairs)


def by_enumeration(logs: Floats, transition: Floats, initial: Floats) -> ChainTwin:
    """The same by adding up all K^T paths."""
    n_times, n_states = logs.shape
    states, pairs, total = np.zeros((n_times, n_states)), np.zeros((n_states, n_states)), 0.0
    for path in product(range(n_states), repeat=n_times):
        weight = initial[path[0]] * np.exp(sum(logs[t, k] for t, k in enumerate(path)))
        for i, j in pairwise(path):
            weight *= transition[i, j]
        total += weight
        states[np.arange(n_times), path] += weight
        for i, j in pairwise(path):
            pairs[i, j] += weight
    return ChainTwin(float(np.log(total)), states / total, pairs / total)


def path_value(path: Sequence[int], logs: Floats, transition: Floats, initial: Floats) -> float:
    """The log weight of one path, term by term."""
    with np.errstate(divide="ignore"):
        log_a, log_pi = np.log(transition), np.log(initial)
    value = log_pi[path[0]] + sum(logs[t, k] for t, k in enumerate(path))
    return float(value + sum(log_a[i, j] for i, j in pairwise(path)))


def best_value(logs: Floats, transition: Floats, initial: Floats) -> float:
    """The log weight of the likeliest path, by trying all; several paths may have it."""
    paths = product(range(logs.shape[1]), repeat=len(logs))
    return max(path_value(path, logs, transition, initial) for path in paths)


def quadratic_statistics(values: Floats) -> Floats:
    """(1, y_d, y_d y_e for d ≤ e) of each row [T, F]; zeros for a row with a NaN."""
    n_columns = values.shape[1]
    out = []
    for row in values:
        products = [row[d] * row[e] for d in range(n_columns) for e in range(d, n_columns)]
        out.append(np.array([1.0, *row, *products]) * (0.0 if np.isnan(row).any() else 1.0))
    return np.nan_to_num(np.array(out))


def column_statistics(values: Floats) -> Floats:
    """(1, y, y²) of each column, one column after the other [T, 3 D]; zeros for a NaN."""
    parts = [np.where(np.isnan(values), 0.0, power) for power in (np.ones_like(values), values, values**2)]
    return np.stack(parts, axis=2).reshape(len(values), -1)


def row_weights(statistics: Floats, weights: Floats, labels: Sequence[int] | None = None) -> Floats:
    """Log b [T, K]: a linear form in the statistics; −inf for all states but the labelled one."""
    logs = statistics @ weights.T
    for t, label in enumerate(labels if labels is not None else ()):
        if label >= 0:
            logs[t, np.arange(logs.shape[1]) != label] = -np.inf
    return logs


def transfer_operators(left: Floats, right: Floats, transition: Floats) -> tuple[Floats, Floats]:
    """M = Π D_b A over log weights [n, K] before a subchain, and R = Π A D_b over those behind it."""
    before, behind = np.eye(len(transition)), np.eye(len(transition))
    for row in left:
        before = before @ np.diag(np.exp(row - row.max())) @ transition
        before /= before.sum()
    for row in right:
        behind = behind @ transition @ np.diag(np.exp(row - row.max()))
        behind /= behind.sum()
    return before, behind


def projective_diameter(rows: Floats) -> float:
    """The largest log max(x/y) − log min(x/y) between two rows of positive numbers."""
    widest = 0.0
    for x in rows:
        for y in rows:
            ratio = np.log(x) - np.log(y)
            widest = max(widest, float(ratio.max() - ratio.min()))
    return widest


def successive_buffer(
    logs: Floats, transition: Floats, start: Floats, span: tuple[int, int], unit: int, tol: float
) -> tuple[Floats, int]:
    """Algorithm 2 as published: grow until two successive q(x_S) differ by less than tol. It can stop too early."""
    begin, end, grown = *span, 0
    old = chain(logs[begin:end], transition, start).states
    while True:
        grown += unit
        low, high = max(0, begin - grown), min(len(logs), end + grown)
        new = chain(logs[low:high], transition, start).states[begin - low : end - low]
        if np.abs(new - old).sum(1).max() < tol or (low == 0 and high == len(logs)):
            return new, grown
        old = new


def naive_filter(logs: Floats, ahead: Floats, transition: Floats) -> tuple[Floats, float]:
    """p(x_t | y_1 … y_t) [T, K] and log p(y_1 … y_T), in logarithms."""
    with np.errstate(divide="ignore"):
        message, steps, states = np.log(ahead), np.log(transition), []
    total = 0.0
    for row in logs:
        joint = message + row
        scale = float(logsumexp(joint))
        total += scale
        states.append(np.exp(joint - scale))
        message = logsumexp((joint - scale)[:, None] + steps, axis=0)
    return np.array(states), total
