"""Log potentials of a chain in, forward and backward messages out: the recursion under `MarkovChain`.

Both directions are the same recursion, so one loop runs them side by side (lane 0 forward, lane 1 backward in
reversed time): half the steps, which is what costs in `lax.scan`. With m the message including the potential,

    u_t(x) = log Σ_y exp(m_{t−1}(y) + edge(y, x)),     m_t = potential_t + u_t − max

Messages are logarithms (scaled probabilities underflow when log-weights differ by 800), normalised at each
step by the maximum (without it, they drift by 1e-8 over 100 000 steps).

The sum costs K² exponentials. Where the edges differ by less than `CLOSE` (`is_close`) it is a product of
exp(m) and a constant matrix instead, to full precision: the best state has m = 0, so the sum is at least
e^−CLOSE, and what underflows in exp(m) is below e^−708. The potentials may be anything. It is twice as fast.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from natgrad.families import _ops as ops
from natgrad.families._ops import Array

__all__ = ["CLOSE", "is_close", "pair_counts", "run_messages", "shift_of", "under"]

CLOSE = 300.0
_TINY = 1e-200  # below e^−CLOSE: never reached by close edges, keeps 0 · inf out of an unused branch's gradient
# States up to which products of steps take less time than the calls of as many steps, and numbers in all of them at once.
FEW_STATES, MOST_AT_ONCE = 8, 2**18
CLOSER, LEAST_SHRUNK = 100.0, 200.0  # a product of steps that has lost no more than e^−200 is left as it is
_CHUNK = 512  # time steps whose [K, K] pair posteriors exist at once


def is_close(transition: Array) -> Array:
    """Whether all log weights are finite and within `CLOSE` of each other: one bool."""
    return transition.max() - transition.min() < CLOSE  # false for NaN and for −inf


def run_messages(
    potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any], *, close: bool
) -> tuple[Array, Array]:
    """Messages into every time step from its past and from its future, without its own potential.

    Parameters
    ----------
    potentials : array [T, ..., K], log potentials, time first
    initial : array [..., K], log weights of the first state of each sequence
    transition : array [..., K, K], log weights of a step
    starts : bool array [T], where a sequence begins
    close : bool, what `is_close` said of the transition

    Returns
    -------
    past, future : arrays [T, ..., K]
    """
    xp = ops.namespace(potentials, initial, transition)
    batch = np.broadcast_shapes(potentials.shape[1:-1], initial.shape[:-1], transition.shape[:-2])
    n_times, n_states = potentials.shape[0], potentials.shape[-1]
    # A lane axis in front; the plates of the edge stay as they are, so a shared transition is not copied.
    edge = xp.stack([ops.transpose(transition), transition])  # [2, ..., to, from]: summed over the last axis
    edge = edge.reshape((2, *(1,) * (len(batch) + 3 - edge.ndim), *edge.shape[1:]))
    boundary = xp.stack([xp.broadcast_to(initial, (*batch, n_states)), xp.zeros((*batch, n_states))])
    wide = xp.broadcast_to(under(potentials, len(batch) + 2), (n_times, *batch, n_states))
    lanes = xp.stack([wide, xp.flip(wide, 0)], 1)  # [T, 2, ..., K]
    ends = np.append(starts[1:], True)
    resets = np.stack([starts, ends[::-1]], 1).reshape((n_times, 2, *(1,) * (len(batch) + 1)))
    top = edge.max()
    weights = xp.exp(edge - top) if close else edge

    def step(message: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        potential, reset = now
        if close:
            moved = xp.log(xp.maximum(ops.matvec(weights, xp.exp(message)), _TINY)) + top
        else:
            moved = ops.logsumexp(message[..., None, :] + edge)
        incoming = xp.where(reset, boundary, moved)
        raw = potential + incoming
        return raw - shift_of(raw)[..., None], incoming

    message = xp.zeros((2, *batch, n_states))
    if xp is np and close:
        incoming = _close_messages(lanes, resets, boundary, weights) + top
        incoming = np.where(resets, boundary, incoming)
    elif xp is np:
        incoming = np.empty(lanes.shape)
        for t in range(n_times):
            message, incoming[t] = step(message, (lanes[t], resets[t]))
    else:
        from jax import lax

        _, incoming = lax.scan(step, message, (lanes, xp.asarray(resets)))
    return incoming[:, 0], xp.flip(incoming[:, 1], 0)


def _close_messages(lanes: Array, resets: Array, boundary: Array, weights: Array) -> Array:
    """Log Σ_y exp(m_{t−1}(y)) weights(y, x) of every step, in probabilities: four calls of NumPy a step instead of ten.

    After a step between close edges the largest product is at least e^−CLOSE, so nothing that counts underflows. At the start of
    a sequence, where it could, messages are found from logarithms, for all starts at once.
    """
    raw = np.where(resets, lanes + boundary, lanes)
    inside = np.exp(raw - shift_of(raw)[..., None])
    n_states = lanes.shape[-1]
    small = n_states <= FEW_STATES and lanes.size * n_states <= MOST_AT_ONCE
    if small and weights.min() > math.exp(-CLOSER) and inside.max(-1).all():
        return np.log(np.maximum(_by_blocks(inside, resets, weights), _TINY))
    sums = np.ones(lanes.shape)
    message: Array = None
    for t, (first, second) in enumerate(resets.reshape(len(lanes), 2).tolist()):
        here = inside[t]
        if not (first and second):
            sums[t] = coming = np.matmul(weights, message[..., None])[..., 0]
            new = coming * here
            largest = np.maximum.reduce(new, axis=-1, keepdims=True)
            largest[largest == 0] = 1.0  # no state is possible
            new /= largest
            if first or second:
                new[0 if first else 1] = here[0 if first else 1]
            here = new
        message = here
    return np.log(np.maximum(sums, _TINY))


def _by_blocks(inside: Array, resets: Array, weights: Array) -> Array:
    """The same where every time has a possible state and edges are closer: 2 √T calls instead of T, which are what it costs.

    A step is a product with the matrix diag(inside) · weights, or, at the start of a sequence, with one that forgets. All blocks
    of √T steps are multiplied out side by side, then the message goes through the blocks, then to every step in each. Columns of
    such a product differ by e^CLOSER at most, a step takes as much from each, and what is smaller by as much again can still
    count: e^−300 beside the largest number, which may be e^−LEAST_SHRUNK itself.
    """
    n_times = len(inside)
    length = math.isqrt(n_times)
    n_blocks = -(-n_times // length)
    short = n_blocks * length - n_times
    steps = np.where(resets[..., None], inside[..., None], weights * inside[..., None])
    if short:
        steps = np.concatenate([steps, np.ones((short, *steps.shape[1:]))])
    steps = steps.reshape(n_blocks, length, *steps.shape[1:])
    # A step makes a product smaller by the least weight at most.
    shrinks = length * math.log(max(weights.min(), _TINY)) < -LEAST_SHRUNK
    for n in range(1, length):
        steps[:, n] = np.matmul(steps[:, n], steps[:, n - 1])
        if shrinks:
            steps[:, n] /= steps[:, n].max((-1, -2), keepdims=True)
    message = np.ones((*inside.shape[1:], 1))
    entering = [message]
    for block in steps[:-1, -1]:
        message = np.matmul(block, message)
        message /= np.maximum.reduce(message, axis=-2, keepdims=True)
        entering.append(message)
    messages = np.matmul(steps, np.stack(entering)[:, None]).reshape(-1, *message.shape)[: n_times - 1]
    messages /= np.maximum.reduce(messages, axis=-2, keepdims=True)
    return np.concatenate([np.ones((1, *inside.shape[1:])), np.matmul(weights, messages)[..., 0]])


def shift_of(x: Array) -> Array:
    """Maximum over the last axis, 0 where it is not finite: subtracting it never makes a NaN."""
    xp = ops.namespace(x)
    top = xp.max(x, axis=-1)
    top = xp.where(xp.isfinite(top), top, 0.0)
    if xp is not np:
        from jax.lax import stop_gradient

        top = stop_gradient(top)
    return top


def under(potentials: Array, ndim: int) -> Array:
    """Potentials [T, ..., K] with plate axes of length 1 inserted after time, up to `ndim` axes."""
    missing = ndim - potentials.ndim
    return potentials.reshape((potentials.shape[0], *(1,) * missing, *potentials.shape[1:]))


def pair_counts(before: Array, transition: Array, after: Array, inside: Array, *, close: bool) -> Array:
    """Σ_t P(z_{t−1} = i, z_t = j): expected transitions [..., K, K].

    Parameters
    ----------
    before : array [T', ..., K], message into the pair from its left state
    after : array [T', ..., K], message into the pair from its right state
    inside : bool array [T', 1 …], false where a sequence begins between the two
    close : bool, what `is_close` said of the transition
    """
    xp = ops.namespace(before, transition, after)
    before, after = before - shift_of(before)[..., None], after - shift_of(after)[..., None]
    if close:
        # All pairs of a step share one matrix, so the sum over time is a product [K, T'] · [T', K].
        weights = xp.exp(transition - transition.max())
        left, right = xp.exp(before), xp.exp(after)
        total = (ops.matvec(weights, right) * left).sum(-1, keepdims=True)
        share = xp.where(inside, right / xp.maximum(total, _TINY), 0.0)
        return weights * xp.einsum("t...i,t...j->...ij", left, share)

    def of_chunk(before: Array, after: Array, inside: Array) -> Array:
        joint = before[..., :, None] + transition + after[..., None, :]
        flat = joint.reshape((*joint.shape[:-2], joint.shape[-1] ** 2))
        return xp.where(inside[..., None], ops.softmax(flat).reshape(joint.shape), 0.0).sum(0)

    n_chunks = before.shape[0] // _CHUNK  # the rest is a chunk of its own: no padding, no copy
    split = n_chunks * _CHUNK
    parts = (before, after, xp.asarray(inside))
    total = of_chunk(*(a[split:] for a in parts))
    if n_chunks == 0:
        return total
    chunks = tuple(a[:split].reshape((n_chunks, _CHUNK, *a.shape[1:])) for a in parts)
    if xp is np:
        return total + sum(of_chunk(*chunk) for chunk in zip(*chunks, strict=True))
    from jax import lax

    return lax.scan(lambda c, chunk: (c + of_chunk(*chunk), None), total, chunks)[0]
