"""Forward–backward of a chain whose transitions are close to one another, in probabilities: no exponential but that of λ.

Where log weights of transitions differ by less than `CLOSE` (`is_close`), a message with a maximum of 1 has sums of at least
e^−CLOSE after a step, whatever the potentials are: nothing that counts underflows. With f_t the message from the past, its
potential included, and b_t that from the future, w the weights and h_t = exp(potential_t),

    f_t ∝ h_t · wᵀ f_{t−1},   b_t = w g_{t+1},   g_t ∝ h_t · b_t
    P(z_t) = f_t b_t / Z_t,   P(z_t = i, z_{t+1} = j) = f_t(i) w(i, j) g_{t+1}(j) / Z_t,   Z_t = Σ f_t b_t

so that pairs need no sum of their own. Both directions are the same recursion and run side by side, lane 0 forward and lane 1
backward in reversed time: half the steps, which are what costs in `lax.scan` and in NumPy.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from natgrad.families import _ops as ops
from natgrad.families._messages import shift_of, under
from natgrad.families._ops import Array

__all__ = ["close_moments", "close_pairs", "is_close"]

CLOSE = 300.0
# States up to which products of steps take less time than the calls of as many steps, and numbers in all of them at once.
FEW_STATES, MOST_AT_ONCE = 8, 2**18
CLOSER, LEAST_SHRUNK = 100.0, 200.0  # a product of steps that has lost no more than e^−200 is left as it is


def is_close(transition: Array) -> Array:
    """Whether all log weights are finite and within `CLOSE` of each other: one bool."""
    return transition.max() - transition.min() < CLOSE  # false for NaN and for −inf


def close_moments(
    potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any]
) -> tuple[Array, Array, Array]:
    """Marginals [T, ..., K], expected pairs [..., K, K] and the log partition function [...].

    Parameters
    ----------
    potentials : array [T, ..., K], log potentials, time first
    initial : array [..., K], log weights of the first state of each sequence
    transition : array [..., K, K], log weights of a step
    starts : bool array [T], where a sequence begins
    """
    found = _run(potentials, initial, transition, starts)
    xp = ops.namespace(found.forward)
    pairs = found.weights * xp.einsum("t...i,t...j->...ij", found.forward, found.share)
    return found.marginals, pairs, found.a


def close_pairs(
    potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any]
) -> tuple[Array, Array]:
    """Marginals [T, ..., K], and P(z_t, z_{t+1}) of every step [T − 1, ..., K, K], 0 where a sequence begins between the two."""
    found = _run(potentials, initial, transition, starts)
    return found.marginals, found.weights * found.forward[..., :, None] * found.share[..., None, :]


class _Close(NamedTuple):
    """Marginals; f_t and g_{t+1} / Z_t of every step; the weights of a step; the log partition function."""

    marginals: Array
    forward: Array
    share: Array
    weights: Array
    a: Array


def _run(potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any]) -> _Close:
    xp = ops.namespace(potentials, initial, transition)
    batch = np.broadcast_shapes(potentials.shape[1:-1], initial.shape[:-1], transition.shape[:-2])
    n_times, n_states = potentials.shape[0], potentials.shape[-1]
    # A lane axis in front; the plates of the edge stay as they are, so a shared transition is not copied.
    edge = xp.stack([ops.transpose(transition), transition])  # [2, ..., to, from]: summed over the last axis
    edge = edge.reshape((2, *(1,) * (len(batch) + 3 - edge.ndim), *edge.shape[1:]))
    top = edge.max()
    weights = xp.exp(edge - top)
    wide = xp.broadcast_to(under(potentials, len(batch) + 2), (n_times, *batch, n_states))
    lanes = xp.stack([xp.where(_along(starts, wide), wide + initial, wide), xp.flip(wide, 0)], 1)  # [T, 2, ..., K]
    shift = shift_of(lanes)
    inside = xp.exp(lanes - shift[..., None])
    resets = _along(np.stack([starts, np.append(starts[1:], True)[::-1]], 1), lanes)
    sums = _sums_by_numpy(inside, resets, weights) if xp is np else _scanned(inside, resets, weights)
    messages, size = _scaled(xp, xp.where(resets, inside, sums * inside))
    forward, from_future = messages[:, 0], xp.flip(messages[:, 1], 0)
    marginals = forward * xp.flip(xp.where(resets[:, 1], 1.0, sums[:, 1]), 0)
    total = ops.summed(marginals)[..., None]
    share = xp.where(_along(~starts[1:], marginals), from_future[1:] / total[:-1], 0.0)
    last = np.flatnonzero(np.append(starts[1:], True))
    a = (shift[:, 0] + _log(xp, size[:, 0])).sum(0) + _log(xp, ops.summed(forward[last])).sum(0)
    return _Close(marginals / total, forward[:-1], share, weights[1], a + top * (n_times - int(starts.sum())))


def _along(flags: np.ndarray[Any, Any], like: Array) -> np.ndarray[Any, Any]:
    """Flags for the first axes of an array, so that they broadcast over the others."""
    return flags.reshape(flags.shape + (1,) * (like.ndim - flags.ndim))


def _scaled(xp: Any, raw: Array) -> tuple[Array, Array]:
    """A message with a maximum of 1, and what it was divided by; 0 where no state is possible."""
    size = ops.largest(raw)
    return raw / xp.where(size == 0, 1.0, size)[..., None], size


def _log(xp: Any, x: Array) -> Array:
    """Log x, −inf for 0; the inner `where` keeps log 0 out of the graph, whose gradient would be 0 · inf."""
    return xp.where(x == 0, -np.inf, xp.log(xp.where(x == 0, 1.0, x)))


def _scanned(inside: Array, resets: np.ndarray[Any, Any], weights: Array) -> Array:
    """Σ_y weights(x, y) m_{t−1}(y) of every step; anything where a sequence begins."""
    import jax.numpy as jnp
    from jax import lax

    def step(message: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        here, reset = now
        coming = ops.matvec(weights, message)
        return _scaled(jnp, jnp.where(reset, here, coming * here))[0], coming

    _, sums = lax.scan(step, jnp.ones(inside.shape[1:]), (inside, jnp.asarray(resets)))
    return sums


def _sums_by_numpy(inside: Array, resets: np.ndarray[Any, Any], weights: Array) -> Array:
    """The same, in as few calls as it takes."""
    n_states = inside.shape[-1]
    small = n_states <= FEW_STATES and inside.size * n_states <= MOST_AT_ONCE
    if small and weights.min() > math.exp(-CLOSER) and inside.max(-1).all():
        return _by_blocks(inside, resets, weights)
    sums = np.ones(inside.shape)
    message: Array = None
    for t, (first, second) in enumerate(resets.reshape(len(inside), 2).tolist()):
        here = inside[t]
        if not (first and second):
            sums[t] = coming = np.matmul(weights, message[..., None])[..., 0]
            new = _scaled(np, coming * here)[0]
            if first or second:
                new[0 if first else 1] = here[0 if first else 1]
            here = new
        message = here
    return sums


def _by_blocks(inside: Array, resets: np.ndarray[Any, Any], weights: Array) -> Array:
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
    shrinks = length * math.log(weights.min()) < -LEAST_SHRUNK
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
