"""Stretches of one chain in; what each says of its first and last time, and what the others say to it there, out.

A chain is cut into stretches that share a time: the first of one is the last of the one before. Whatever is between the two ends
of a stretch is summed or integrated out, stretches in any order (`condensed_path`, `condensed_states`). The ends are a short
chain of their own, whose messages (`gaussian_messages`, `state_messages`) make every stretch what it is in the whole:

    q(stretch k) ∝ before_k(first) · exp⟨λ_k, φ⟩ · after_k(last),   H[q] = Σ_k H[q(stretch k)] − Σ_{k>0} H[q(first time of k)]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.families import _ops as ops
from natgrad.families._close_messages import is_close
from natgrad.families._ops import Array, Stats
from natgrad.threads import is_little

__all__ = [
    "EndMessages", "added_at", "condensed_path", "condensed_states", "gaussian_messages", "state_messages",
]  # fmt: skip

Floats = npt.NDArray[np.float64]


class EndMessages(NamedTuple):
    """What each of n stretches is told at its first and last time, [n, …]; the entropy of the times that two share [...]."""

    before: Stats
    after: Stats
    shared: Array


def added_at(array: Array, time: int, message: Array, events: int) -> Array:
    """An array [..., T, events…] with something added at one time."""
    place: Any = (..., time, *(slice(None),) * events)
    if ops.is_jax(array, message):
        xp = ops.namespace(array, message)
        return xp.asarray(array).at[place].add(message)
    fresh = np.array(array, dtype=np.float64)
    fresh[place] += message
    return fresh


# -- vectors --


def condensed_path(h: Array, diagonal: Array, beside: Array) -> Stats:
    """λ of the first and the last time of Gaussian chains, all times between them integrated out; up to a constant.

    Parameters
    ----------
    h, diagonal, beside : arrays [T, ..., D] and [T, ..., D, D], P_tt and P_{t,t−1}, time first; T ≥ 2

    Returns
    -------
    h [..., 2, D], J [..., 2, D, D] and C [..., D, D], that of the pair
    """
    xp = ops.namespace(h, diagonal, beside)
    if xp is np and not is_little(100.0 * len(h)):
        gone, ends = _condensed_by_kernel(h, diagonal, beside)
    else:
        gone, ends = _condensed_in_steps(h, diagonal, beside)
    first = h[0] - gone[0], ops.symmetrise(diagonal[0] - gone[1])
    last, precision, pair = ends
    J = xp.stack([first[1], ops.symmetrise(precision)], axis=-3)
    return xp.stack([first[0], last], axis=-2), -0.5 * J, -pair


def _condensed_in_steps(h: Array, diagonal: Array, beside: Array) -> tuple[Stats, Stats]:
    """What is taken from h and P of the first time; v, S and the coupling to the first of the last time."""

    def step(carry: Any, now: Stats) -> Any:
        v, S, pair, gone, taken = carry
        here, precision, back = now
        mean, covariance, _ = ops.spd_solve(ops.symmetrise(S), v)
        across, fold = ops.transpose(pair), back @ covariance
        gone, taken = gone + ops.matvec(across, mean), taken + across @ covariance @ pair
        return here - ops.matvec(back, mean), precision - fold @ ops.transpose(back), -(fold @ pair), gone, taken

    carry = h[1], diagonal[1], beside[1], ops.zeros(h[0]), ops.zeros(diagonal[0])
    if ops.is_jax(h, diagonal, beside):
        from jax import lax

        carry, _ = lax.scan(lambda c, now: (step(c, now), None), carry, (h[2:], diagonal[2:], beside[2:]))
    else:
        for now in zip(h[2:], diagonal[2:], beside[2:], strict=True):
            carry = step(carry, now)
    return carry[3:], carry[:3]


def _condensed_by_kernel(h: Array, diagonal: Array, beside: Array) -> tuple[Stats, Stats]:
    from natgrad.kernels.state_space.smoother import condense_paths  # compiled: not for those who have no long chain

    plates, (n_times, size) = h.shape[1:-1], (len(h), h.shape[-1])
    rows = np.ascontiguousarray(np.moveaxis(h, 0, -2).reshape(-1, n_times, size))
    squares = [
        np.ascontiguousarray(np.moveaxis(part, 0, -3).reshape(-1, n_times, size, size)) for part in (diagonal, beside)
    ]
    vectors, matrices = np.zeros((2, len(rows), size)), np.zeros((3, len(rows), size, size))
    condense_paths(rows, *squares, *vectors, *matrices)
    gone, last = (part.reshape(*plates, size) for part in vectors)
    taken, precision, pair = (part.reshape(*plates, size, size) for part in matrices)
    return (gone, taken), (last, precision, pair)


def gaussian_messages(h: Floats, J: Floats, C: Floats) -> EndMessages:
    """The messages between n stretches, from what `condensed_path` says of each [n, …]: one after the other, to and fro."""
    n, size = len(h), h.shape[-1]
    first_h, last_h = h[..., 0, :], h[..., 1, :]
    first_p, last_p, pair = -2.0 * J[..., 0, :, :], -2.0 * J[..., 1, :, :], -C
    before, after = ((np.zeros_like(first_h), np.zeros_like(first_p)) for _ in range(2))
    for k in range(n - 1):
        inverse, _ = ops.spd_inverse_logdet(first_p[k] + before[1][k])
        gain = pair[k] @ inverse
        before[0][k + 1] = last_h[k] - ops.matvec(gain, first_h[k] + before[0][k])
        before[1][k + 1] = ops.symmetrise(last_p[k] - gain @ ops.transpose(pair[k]))
    for k in range(n - 1, 0, -1):
        inverse, _ = ops.spd_inverse_logdet(last_p[k] + after[1][k])
        gain = ops.transpose(pair[k]) @ inverse
        after[0][k - 1] = first_h[k] - ops.matvec(gain, last_h[k] + after[0][k])
        after[1][k - 1] = ops.symmetrise(first_p[k] - gain @ pair[k])
    logdet = ops.spd_logdet(before[1][1:] + after[1][:-1])
    shared = (0.5 * size * (1.0 + ops.LOG_2PI) - 0.5 * logdet).sum(0)
    return EndMessages((before[0], -0.5 * before[1]), (after[0], -0.5 * after[1]), shared)


# -- categories --


def condensed_states(potentials: Array, initial: Array, transition: Array) -> Array:
    """Log weights [..., K, K] of the first and the last state of chains, all between them summed out.

    Parameters
    ----------
    potentials : array [T, ..., K], time first; T ≥ 2
    initial, transition : arrays [..., K] and [..., K, K], log weights
    """
    xp = ops.namespace(potentials, initial, transition)
    product = _close_product if xp is np and is_close(transition) else _product
    steps = transition + potentials[1:][..., None, :]
    # Neighbours in pairs, and pairs of pairs: matrices may be multiplied in any grouping.
    while len(steps) > 1:
        even = len(steps) // 2 * 2
        steps = xp.concatenate([product(steps[0:even:2], steps[1:even:2]), steps[even:]])
    return steps[0] + (potentials[0] + initial)[..., None]


def _product(a: Array, b: Array) -> Array:
    """Log of the product of matrices whose logs are given, row after row."""
    xp = ops.namespace(a, b)
    turned = xp.swapaxes(b, -1, -2)
    rows = [ops.logsumexp(a[..., i, None, :] + turned) for i in range(a.shape[-1])]
    return xp.stack(rows, axis=-2)


def _close_product(a: Floats, b: Floats) -> Floats:
    """The same where rows of b differ by less than e^300, whatever potentials are: states that underflow in a do not count."""
    rows, columns = a.max(-1, keepdims=True), b.max(-2, keepdims=True)
    with np.errstate(invalid="ignore"):
        rows, columns = np.where(np.isfinite(rows), rows, 0.0), np.where(np.isfinite(columns), columns, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(a - rows) @ np.exp(b - columns)) + rows + columns)


def state_messages(weights: Floats) -> EndMessages:
    """The messages between n stretches, from the log weights of their ends [n, ..., K, K]."""
    before, after = np.zeros(weights.shape[:-1]), np.zeros(weights.shape[:-1])
    for k in range(len(weights) - 1):
        message = ops.logsumexp(before[k][..., :, None] + weights[k], axis=-2)
        before[k + 1] = message - _finite(message)
    for k in range(len(weights) - 1, 0, -1):
        message = ops.logsumexp(after[k][..., None, :] + weights[k], axis=-1)
        after[k - 1] = message - _finite(message)
    p = ops.softmax(before[1:] + after[:-1])
    shared = -np.where(p > 0.0, p * np.log(np.where(p > 0.0, p, 1.0)), 0.0).sum((0, -1))
    return EndMessages((before,), (after,), shared)


def _finite(message: Floats) -> Any:
    largest = message.max(-1, keepdims=True)
    return np.where(np.isfinite(largest), largest, 0.0)
