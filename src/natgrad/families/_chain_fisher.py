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
from natgrad.families._close_messages import close_pairs, is_close
from natgrad.families._messages import run_messages, under
from natgrad.families._ops import Array, Stats

__all__ = ["chain_covariance"]

# States up to which the products of matrices along a chain are kept: log₂ T for each step.
MOST_STATES = 8


def chain_covariance(lam: Stats, starts: Any) -> Callable[[Stats], Stats]:
    """V dλ of paths; ``starts`` [T] says where sequences begin. Changes may have an axis in front of those of λ."""
    potentials, initial, transition = np.moveaxis(lam[0], -2, 0), lam[1], lam[2]
    with np.errstate(all="ignore"):
        marginals, pairs = (close_pairs if is_close(transition) else _pairs)(potentials, initial, transition, starts)
    after = _divided(pairs, marginals[:-1, ..., :, None])  # P(z_{t+1} | z_t)
    before = _divided(pairs, marginals[1:, ..., None, :])  # P(z_t | z_{t+1})
    first = np.flatnonzero(starts)
    run, run_back = _recursion(ops.transpose(before)), _recursion(after[::-1])

    def times(change: Stats) -> Stats:
        wide = (slice(None), *(None,) * max(change[0].ndim - lam[0].ndim, 0))
        each, w = marginals[wide], change[2]
        v = under(np.moveaxis(change[0], -2, 0), each.ndim)
        v = np.broadcast_to(v, np.broadcast_shapes(v.shape, each.shape))
        ahead, behind = np.array(v), np.zeros(v.shape)
        ahead[first] += change[1]
        # What a step adds is found for all steps at once; across a start, probabilities are 0.
        ahead[1:] += (before[wide] * w).sum(-2)
        behind[:-1] = (after[wide] * (w + v[1:, ..., None, :])).sum(-1)
        ahead, behind = run(ahead, wide), run_back(behind[::-1], wide)[::-1]
        given = ahead + behind
        mean = (each * given).sum(-1, keepdims=True)
        of_states = each * (given - mean)
        of_pairs = ahead[:-1, ..., :, None] + w + (v + behind)[1:, ..., None, :] - mean[1:, ..., None]
        return np.moveaxis(of_states, 0, -2), of_states[first].sum(0), (pairs[wide] * of_pairs).sum(0)

    return times


def _pairs(potentials: Array, initial: Array, transition: Array, starts: Any) -> tuple[Array, Array]:
    """As `close_pairs`, in logarithms."""
    past, future = run_messages(potentials, initial, transition, starts)
    potentials = under(potentials, past.ndim)
    forward = potentials + past
    joint = forward[:-1, ..., :, None] + transition + (potentials + future)[1:, ..., None, :]
    top = joint.max((-1, -2), keepdims=True)
    pairs = np.exp(joint - np.where(np.isfinite(top), top, 0.0))
    inside = ~starts[1:].reshape((-1, *(1,) * (pairs.ndim - 1)))
    return ops.softmax(forward + future), np.where(inside, pairs / pairs.sum((-1, -2), keepdims=True), 0.0)


def _recursion(steps: Array) -> Callable[..., Array]:
    """The function of x [T, ..., K] that gives y with y_t = x_t + M_t y_{t−1}, for the matrices M_1 … M_{T−1}, read as x is.

    By doubling: after l rounds y_t has what comes from up to 2^l steps before, and the next round adds what y_{t−2^l} has, by the
    product of the 2^l matrices between. They are the same for every x, so a call is log₂ T products, not T.
    """
    if steps.shape[-1] > MOST_STATES:

        def one_by_one(x: Array, wide: Any = ...) -> Array:
            for t, matrix in enumerate(steps, 1):
                x[t] += (matrix @ x[t - 1][..., None])[..., 0]
            return x

        return one_by_one
    rounds, gap = [steps], 1
    while 2 * gap <= len(steps):
        last = rounds[-1]
        rounds.append(last[gap:] @ last[:-gap])
        gap *= 2

    def doubling(x: Array, wide: Any = ...) -> Array:
        for number, matrices in enumerate(rounds):
            between = 2**number
            x[between:] += (matrices[wide] @ x[:-between][..., None])[..., 0]
        return x

    return doubling


def _divided(pairs: Array, marginals: Array) -> Array:
    """Conditional probabilities; 0 given what never happens."""
    return np.divide(pairs, marginals, out=np.zeros_like(pairs), where=marginals > 0)
