"""λ of a chain and a change of it in, the change of its marginals and counts out, by NumPy.

The change of λ is a function of the path, f(z) = Σ_t v[t, z_t] + Σ_starts a[z_t] + Σ w[z_{t−1}, z_t], and dμ = Cov(φ, f). Given
z_t, what came before and what comes after are independent, so two recursions on conditional expectations of f are enough:

    F_t(j) = v[t, j] + Σ_i P(z_{t−1} = i | z_t = j) (w[i, j] + F_{t−1}(i)),         or v[t, j] + a[j] at a start
    B_t(i) = Σ_j P(z_{t+1} = j | z_t = i) (w[i, j] + v[t+1, j] + B_{t+1}(j)),       or 0 at an end
    Cov(1[z_t = k], f) = P(z_t = k) (F_t(k) + B_t(k) − E f)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from natgrad.families import _ops as ops
from natgrad.families._messages import run_messages, under
from natgrad.families._ops import Array, Stats

__all__ = ["chain_covariance"]


def chain_covariance(lam: Stats, starts: Any) -> Callable[[Stats], Stats]:
    """V dλ of paths; ``starts`` [T] says where sequences begin."""
    potentials, initial, transition = np.moveaxis(lam[0], -2, 0), lam[1], lam[2]
    with np.errstate(all="ignore"):
        past, future = run_messages(potentials, initial, transition, starts)
        potentials = under(potentials, past.ndim)
        forward = potentials + past
        marginals = ops.softmax(forward + future)  # [T, ..., K]
        joint = forward[:-1, ..., :, None] + transition + (potentials + future)[1:, ..., None, :]
        top = joint.max((-1, -2), keepdims=True)
        pairs = np.exp(joint - np.where(np.isfinite(top), top, 0.0))
        pairs = pairs / pairs.sum((-1, -2), keepdims=True)
    inside = ~starts[1:].reshape((-1, *(1,) * (pairs.ndim - 1)))
    pairs = np.where(inside, pairs, 0.0)
    after = _divided(pairs, marginals[:-1, ..., :, None])  # P(z_{t+1} | z_t)
    before = _divided(pairs, marginals[1:, ..., None, :])  # P(z_t | z_{t+1})
    first = np.flatnonzero(starts)

    def times(change: Stats) -> Stats:
        v, w = np.broadcast_to(under(np.moveaxis(change[0], -2, 0), marginals.ndim), marginals.shape), change[2]
        ahead, behind = np.array(v), np.zeros(marginals.shape)
        ahead[first] += change[1]
        for t in range(1, len(ahead)):
            if not starts[t]:
                ahead[t] += (before[t - 1] * (w + ahead[t - 1][..., :, None])).sum(-2)
        for t in range(len(ahead) - 2, -1, -1):
            behind[t] = (after[t] * (w + (v[t + 1] + behind[t + 1])[..., None, :])).sum(-1)
        given = ahead + behind
        mean = (marginals * given).sum(-1, keepdims=True)
        of_states = marginals * (given - mean)
        of_pairs = ahead[:-1, ..., :, None] + w + (v + behind)[1:, ..., None, :] - mean[1:, ..., None]
        return np.moveaxis(of_states, 0, -2), of_states[first].sum(0), (pairs * of_pairs).sum(0)

    return times


def _divided(pairs: Array, marginals: Array) -> Array:
    """Conditional probabilities; 0 given what never happens."""
    return np.divide(pairs, marginals, out=np.zeros_like(pairs), where=marginals > 0)
