"""Log potentials of a chain in, forward and backward messages out: the recursion under `MarkovChain`.

Both directions are the same recursion, so one loop runs them side by side (lane 0 forward, lane 1 backward in
reversed time): half the steps, which is what costs in `lax.scan`. With m the message including the potential,

    u_t(x) = log Σ_y exp(m_{t−1}(y) + edge(y, x)),     m_t = potential_t + u_t − max

Messages are logarithms (scaled probabilities underflow when log-weights differ by 800), normalised at each
step by the maximum (without it, they drift by 1e-8 over 100 000 steps).

The sum costs K² exponentials. Where the edges differ by little, `_close_messages.py` has the same in probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.families import _ops as ops
from natgrad.families._ops import Array

__all__ = ["pair_counts", "run_messages", "shift_of", "under"]

_CHUNK = 512  # time steps whose [K, K] pair posteriors exist at once


def run_messages(
    potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any]
) -> tuple[Array, Array]:
    """Messages into every time step from its past and from its future, without its own potential.

    Parameters
    ----------
    potentials : array [T, ..., K], log potentials, time first
    initial : array [..., K], log weights of the first state of each sequence
    transition : array [..., K, K], log weights of a step
    starts : bool array [T], where a sequence begins

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

    def step(message: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        potential, reset = now
        incoming = xp.where(reset, boundary, ops.logsumexp(message[..., None, :] + edge))
        raw = potential + incoming
        return raw - shift_of(raw)[..., None], incoming

    message = xp.zeros((2, *batch, n_states))
    if xp is np:
        incoming = np.empty(lanes.shape)
        for t in range(n_times):
            message, incoming[t] = step(message, (lanes[t], resets[t]))
    else:
        from jax import lax

        _, incoming = lax.scan(step, message, (lanes, xp.asarray(resets)))
    return incoming[:, 0], xp.flip(incoming[:, 1], 0)


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


def pair_counts(before: Array, transition: Array, after: Array, inside: Array) -> Array:
    """Σ_t P(z_{t−1} = i, z_t = j): expected transitions [..., K, K].

    Parameters
    ----------
    before : array [T', ..., K], message into the pair from its left state
    after : array [T', ..., K], message into the pair from its right state
    inside : bool array [T', 1 …], false where a sequence begins between the two
    """
    xp = ops.namespace(before, transition, after)
    before, after = before - shift_of(before)[..., None], after - shift_of(after)[..., None]

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
