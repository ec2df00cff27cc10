"""Paths of hidden Markov chains drawn by forward filtering and backward sampling, in logarithms: forbidden states are −inf.

forward     f_t(j) = log Σ_i exp(f_{t−1}(i) + A_ij) + b_t(j)
backward    z_T ~ f_T,   z_t ~ f_t(·) + A_{· z_{t+1}}
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import serial_kernel

__all__ = ["draw_paths"]


@serial_kernel
def _pick(logits, uniform):
    """The state that a uniform number chooses among unnormalised log probabilities."""
    top = -np.inf
    for k in range(len(logits)):
        top = max(top, logits[k])
    total = 0.0
    for k in range(len(logits)):
        total += math.exp(logits[k] - top)
    left, last = uniform * total, 0
    for k in range(len(logits)):
        weight = math.exp(logits[k] - top)
        if weight > 0.0:
            last = k
            left -= weight
            if left < 0.0:
                return k
    return last


@serial_kernel
def draw_paths(potentials, initial, transition, starts, uniforms, out):
    """One path for each chain.

    Parameters
    ----------
    potentials [B, T, K], initial [B, K], transition [B, K, K] : unnormalised log weights, of one chain for all if B is 1
    starts : bool [T], where a sequence begins
    uniforms [n, T] : one for each time of each path; path i is of chain i modulo B
    out : ints [n, T]
    """
    n_times, n_states = potentials.shape[1], potentials.shape[2]
    forward, logits = np.empty((n_times, n_states)), np.empty(n_states)
    n_chains = max(potentials.shape[0], max(initial.shape[0], transition.shape[0]))
    for chain in range(n_chains):
        b = potentials[chain % potentials.shape[0]]
        first, table = initial[chain % initial.shape[0]], transition[chain % transition.shape[0]]
        for t in range(n_times):
            for j in range(n_states):
                if starts[t]:
                    forward[t, j] = b[t, j] + first[j]
                    continue
                top, total = -np.inf, 0.0
                for i in range(n_states):
                    top = max(top, forward[t - 1, i] + table[i, j])
                if top > -np.inf:
                    for i in range(n_states):
                        total += math.exp(forward[t - 1, i] + table[i, j] - top)
                    forward[t, j] = b[t, j] + top + math.log(total)
                else:
                    forward[t, j] = -np.inf
        for path in range(chain, uniforms.shape[0], n_chains):
            for t in range(n_times - 1, -1, -1):
                tied = t + 1 < n_times and not starts[t + 1]
                for k in range(n_states):
                    logits[k] = forward[t, k] + (table[k, out[path, t + 1]] if tied else 0.0)
                out[path, t] = _pick(logits, uniforms[path, t])
