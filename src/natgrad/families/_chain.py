"""Define the family of a path of hidden states, `MarkovChain`, and its forward–backward recursions.

    q(z) ∝ exp( Σ_t potential[t, z_t] + Σ_starts initial[z_t] + Σ_{t not a start} transition[z_{t−1}, z_t] )

λ = (potentials [T, K], log initial [K], log transition [K, K]), none of them normalised; A is the log
partition function and μ = ∇A are the marginals, the counts of first states and the counts of pairs
(forward–backward).

**Messages in logarithms.** Both directions are the same recursion, so one loop runs them side by side (lane 0 forward, lane 1
backward in reversed time): half the steps, which is what costs in `lax.scan`. With m the message including the potential,

    u_t(x) = log Σ_y exp(m_{t−1}(y) + edge(y, x)),     m_t = potential_t + u_t − max

Messages are logarithms (scaled probabilities underflow when log-weights differ by 800), normalised at each
step by the maximum (without it, they drift by 1e-8 over 100 000 steps).

The sum costs K² exponentials.

**Messages in probabilities**, for transitions that are close to one another: no exponential but that of λ. Where log weights of
transitions differ by less than `CLOSE` (`is_close`), a message with a maximum of 1 has sums of at least e^−CLOSE after a step,
whatever the potentials are: nothing that counts underflows. With f_t the message from the past, its potential included, and b_t
that from the future, w the weights and h_t = exp(potential_t),

    f_t ∝ h_t · wᵀ f_{t−1},   b_t = w g_{t+1},   g_t ∝ h_t · b_t
    P(z_t) = f_t b_t / Z_t,   P(z_t = i, z_{t+1} = j) = f_t(i) w(i, j) g_{t+1}(j) / Z_t,   Z_t = Σ f_t b_t

so that pairs need no sum of their own.

**Covariances.** A change of λ is a function of the path, f(z) = Σ_t v[t, z_t] + Σ_starts a[z_t] + Σ w[z_{t−1}, z_t], and dμ =
Cov(φ, f). Given z_t, what came before and what comes after are independent, so two recursions on conditional expectations of f
are enough:

    F_t(j) = v[t, j] + Σ_i P(z_{t−1} = i | z_t = j) (w[i, j] + F_{t−1}(i)),         or v[t, j] + a[j] at a start
    B_t(i) = Σ_j P(z_{t+1} = j | z_t = i) (w[i, j] + v[t+1, j] + B_{t+1}(j)),       or 0 at an end
    Cov(1[z_t = k], f) = P(z_t = k) (F_t(k) + B_t(k) − E f)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._discrete import Labels, category_logits
from natgrad.families._family import Family, Param, Times, draws, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["MarkovChain", "Path"]

# Steps of a chain above which compiling a derivative pays.
LONGEST_CHAIN = 5_000

_CHUNK = 512  # time steps whose [K, K] pair posteriors exist at once


def _lanes(
    potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any]
) -> tuple[Array, np.ndarray[Any, Any], Array]:
    """Lay both directions side by side.

    Parameters
    ----------
    potentials : array [T, ..., K], log potentials, time first
    initial : array [..., K], log weights of the first state of each sequence
    transition : array [..., K, K], log weights of a step
    starts : bool array [T], where a sequence begins

    Returns
    -------
    lanes : array [T, 2, ..., K], the log potentials of each lane, with those of first states
    resets : bool array [T, 2, 1 …], where a message begins
    edge : array [2, ..., K, K], log weights of a step from the last axis to the one before it
    """
    xp = ops.namespace(potentials, initial, transition)
    batch = np.broadcast_shapes(potentials.shape[1:-1], initial.shape[:-1], transition.shape[:-2])
    # The plates of the edge stay as they are, so a shared transition is not copied.
    edge = xp.stack([ops.transpose(transition), transition])
    edge = edge.reshape((2, *(1,) * (len(batch) + 3 - edge.ndim), *edge.shape[1:]))
    wide = _under(potentials, len(batch) + 2)
    wide = xp.broadcast_to(wide, (potentials.shape[0], *batch, potentials.shape[-1]))
    lanes = xp.stack([xp.where(_along(starts, wide), wide + initial, wide), xp.flip(wide, 0)], 1)
    return lanes, _along(np.stack([starts, np.append(starts[1:], True)[::-1]], 1), lanes), edge


def _shift_of(x: Array) -> Array:
    """Maximum over the last axis, 0 where it is not finite: subtracting it never makes a NaN."""
    xp = ops.namespace(x)
    top = xp.max(x, axis=-1)
    return ops.constant(xp.where(xp.isfinite(top), top, 0.0))


def _under(potentials: Array, ndim: int) -> Array:
    """Potentials [T, ..., K] with plate axes of length 1 inserted after time, up to `ndim` axes."""
    missing = ndim - potentials.ndim
    return potentials.reshape((potentials.shape[0], *(1,) * missing, *potentials.shape[1:]))


def _along(flags: np.ndarray[Any, Any], like: Array) -> np.ndarray[Any, Any]:
    """Flags for the first axes of an array, so that they broadcast over the others."""
    return flags.reshape(flags.shape + (1,) * (like.ndim - flags.ndim))


def in_logs(
    potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any], each: bool = False
) -> tuple[Array, Array, Array]:
    """Marginals [T, ..., K], expected pairs [..., K, K], or those of ``each`` step, and A [...]; arguments as in `_lanes`."""
    xp = ops.namespace(potentials, initial, transition)
    lanes, resets, edge = _lanes(potentials, initial, transition, starts)

    def step(message: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array]]:
        here, reset = now
        coming = xp.where(reset, 0.0, ops.logsumexp(message[..., None, :] + edge))
        raw = here + coming
        return raw - _shift_of(raw)[..., None], (coming,)

    (sums,) = ops.scan(step, xp.zeros(lanes.shape[1:]), (lanes, resets))
    messages = lanes + sums
    forward, backward = messages[:, 0], xp.flip(messages[:, 1], 0)
    shift, last = _shift_of(forward), np.flatnonzero(np.append(starts[1:], True))
    a = shift.sum(0) + ops.logsumexp(forward[last] - shift[last][..., None]).sum(0)
    sides = [part - _shift_of(part)[..., None] for part in (forward[:-1], backward[1:])]
    parts = (*sides, xp.asarray(_along(~starts[1:], forward)[..., None]))
    pairs = (_pairs if each else _pair_counts)(transition, *parts)
    return ops.softmax(forward + xp.flip(sums[:, 1], 0)), pairs, a


def _pairs(transition: Array, before: Array, after: Array, inside: Array) -> Array:
    """P(z_t, z_{t+1}) of steps from messages into the pair [T', ..., K]; 0 where a sequence begins between the two."""
    joint = before[..., :, None] + transition + after[..., None, :]
    flat = joint.reshape((*joint.shape[:-2], joint.shape[-1] ** 2))
    return ops.namespace(joint).where(inside, ops.softmax(flat).reshape(joint.shape), 0.0)


def _pair_counts(transition: Array, *parts: Array) -> Array:
    """Their sum, of some time steps after the other."""
    n_chunks = parts[0].shape[0] // _CHUNK  # the rest is a chunk of its own: no padding, no copy
    split = n_chunks * _CHUNK
    total = _pairs(transition, *(part[split:] for part in parts)).sum(0)
    if n_chunks == 0:
        return total
    chunks = tuple(part[:split].reshape((n_chunks, _CHUNK, *part.shape[1:])) for part in parts)
    if not ops.is_jax(*parts):
        return total + sum(_pairs(transition, *chunk).sum(0) for chunk in zip(*chunks, strict=True))
    from jax import lax

    return lax.scan(lambda c, chunk: (c + _pairs(transition, *chunk).sum(0), None), total, chunks)[0]


CLOSE = 300.0
# States up to which products of steps take less time than the calls of as many steps, and numbers in all of them at once.
FEW_STATES, MOST_AT_ONCE = 8, 2**18
CLOSER, LEAST_SHRUNK = 100.0, 200.0  # a product of steps that has lost no more than e^−200 is left as it is


def is_close(transition: Array) -> Array:
    """Whether all log weights are finite and within `CLOSE` of each other: one bool."""
    return transition.max() - transition.min() < CLOSE  # false for NaN and for −inf


def in_probabilities(
    potentials: Array, initial: Array, transition: Array, starts: np.ndarray[Any, Any], each: bool = False
) -> tuple[Array, Array, Array]:
    """The same where transitions are close (`is_close`)."""
    xp = ops.namespace(potentials, initial, transition)
    lanes, resets, edge = _lanes(potentials, initial, transition, starts)
    top = edge.max()
    weights, shift = xp.exp(edge - top), _shift_of(lanes)
    inside = xp.exp(lanes - shift[..., None])

    def step(message: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array]]:
        here, reset = now
        coming = ops.matvec(weights, message)
        return _scaled(xp, xp.where(reset, here, coming * here))[0], (coming,)

    if xp is np:
        sums = _sums_by_numpy(inside, resets, weights)
    else:
        (sums,) = ops.scan(step, xp.ones(inside.shape[1:]), (inside, resets))
    messages, size = _scaled(xp, xp.where(resets, inside, sums * inside))
    forward, from_future = messages[:, 0], xp.flip(messages[:, 1], 0)
    marginals = forward * xp.flip(xp.where(resets[:, 1], 1.0, sums[:, 1]), 0)
    total = ops.summed(marginals)[..., None]
    share = xp.where(_along(~starts[1:], marginals), from_future[1:] / total[:-1], 0.0)
    last = np.flatnonzero(np.append(starts[1:], True))
    a = (shift[:, 0] + _log(xp, size[:, 0])).sum(0) + _log(xp, ops.summed(forward[last])).sum(0)
    found = ops.outer(forward[:-1], share) if each else xp.einsum("t...i,t...j->...ij", forward[:-1], share)
    return marginals / total, weights[1] * found, a + top * (len(starts) - int(starts.sum()))


def _scaled(xp: Any, raw: Array) -> tuple[Array, Array]:
    """A message with a maximum of 1, and what it was divided by; 0 where no state is possible."""
    size = ops.largest(raw)
    return raw / xp.where(size == 0, 1.0, size)[..., None], size


def _log(xp: Any, x: Array) -> Array:
    """Log x, −inf for 0; the inner `where` keeps log 0 out of the graph, whose gradient would be 0 · inf."""
    return xp.where(x == 0, -np.inf, xp.log(xp.where(x == 0, 1.0, x)))


def _sums_by_numpy(inside: Array, resets: np.ndarray[Any, Any], weights: Array) -> Array:
    """Σ_y weights(x, y) m_{t−1}(y) of every step, in as few calls as it takes; anything where a sequence begins."""
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
    messages = np.matmul(steps, np.stack(entering)[:, None])
    messages = messages.reshape(n_blocks * length, *message.shape)[: n_times - 1]
    messages /= np.maximum.reduce(messages, axis=-2, keepdims=True)
    return np.concatenate([np.ones((1, *inside.shape[1:])), np.matmul(weights, messages)[..., 0]])


@dataclass(frozen=True)
class Path(Family):
    """A path along time, or several sequences that lie end to end; abstract."""

    lengths: tuple[int, ...] | None = None

    is_path: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.lengths is None:
            return
        object.__setattr__(self, "lengths", tuple(int(n) for n in self.lengths))
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"lengths must be positive, got {self.lengths}. For one sequence use None.")

    def starts(self, n_times: int) -> NDArray[np.bool_]:
        """Times at which a sequence begins."""
        lengths = self.lengths if self.lengths is not None else (n_times,)
        if sum(lengths) != n_times:
            raise ValueError(f"lengths sum to {sum(lengths)}, but the chain has T = {n_times} time steps.")
        starts = np.zeros(n_times, dtype=bool)
        starts[np.cumsum((0, *lengths[:-1]))] = True
        return starts


@final
@dataclass(frozen=True)
class MarkovChain(Path, Labels):
    """A path of T states out of K, or several sequences one after the other.

    λ may hold −inf (forbidden states and transitions) as long as some path is left; if none is, A is −inf.
    Plates are independent chains; `initial` and `transition` may have fewer plates than `potentials`.

    Parameters
    ----------
    lengths : tuple of int, lengths of the sequences on the time axis, summing to T; None for one sequence

    Examples
    --------
    >>> chain = MarkovChain()
    >>> flat = {"log_initial": np.zeros(2), "log_transition": np.zeros((2, 2))}
    >>> lam = chain.natural(potentials=np.zeros((3, 2)), **flat)
    >>> round(float(np.exp(chain.log_normalizer(lam))), 9)  # the number of paths
    8.0
    """

    name: ClassVar[str] = "MarkovChain"
    is_category: ClassVar[bool] = True
    stat_names: ClassVar[tuple[str, ...]] = ("x", "first", "pairs")
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 1, 2)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (
        Param("potentials", 2, "log"),
        Param("log_initial", 1, "log"),
        Param("log_transition", 2, "log"),
    )
    allows_minus_inf: ClassVar[bool] = True

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return usual["potentials"], usual["log_initial"], usual["log_transition"]

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`marginals`, `first` and `pairs`: what a reader wants to see, not what `natural` takes."""
        return dict(zip(("marginals", "first", "pairs"), self.expected_stats(lam), strict=True))

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        xp, starts = ops.namespace(*lam), self.starts(lam[0].shape[-2])
        arrays = (xp.moveaxis(xp.asarray(lam[0]), -2, 0), *map(xp.asarray, lam[1:]))
        ways = [partial(way, starts=starts) for way in (in_probabilities, in_logs)]
        close = lam[2].size > 0 and is_close(lam[2])
        if xp is np or not lam[2].size:
            marginals, pairs, a = ways[0 if close else 1](*arrays)
        else:
            from jax import lax

            marginals, pairs, a = lax.cond(close, *ways, *arrays)
        return (xp.moveaxis(marginals, 0, -2), marginals[np.flatnonzero(starts)].sum(0), pairs), a

    def _inside(self, lam: Stats) -> Array:
        # Every time step needs a possible state. That a whole path is possible is A > −inf, a forward pass.
        possible = (lam[0] > -np.inf).any(-1).all(-1)
        return possible & (lam[1] > -np.inf).any(-1) & ~(lam[2] == np.inf).any((-1, -2))

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """One-hot states [..., T, K], first states [..., K] and pairs [..., K, K] of integers [..., T]."""
        if size is None:
            raise ValueError("MarkovChain.stats_of needs size, the number of states K.")
        xp = ops.namespace(value)
        states = ops.one_hot(value, size)
        starts = self.starts(states.shape[-2])
        left = states[..., :-1, :] * (~starts[1:])[:, None]
        pairs = xp.swapaxes(left, -1, -2) @ states[..., 1:, :]
        return states, states[..., np.flatnonzero(starts), :].sum(-2), pairs

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Potentials as in `Categorical.centred` of integers [..., T] or floats [..., T, K]; rest kept."""
        logits = category_logits(value, lam[0].shape[-1])
        return ops.align((logits + ops.zeros(lam[0]), lam[1], lam[2]), self.stat_ndims)

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Paths [n, ..., T] by forward filtering, backward sampling."""
        from natgrad.kernels.hmm.paths import draw_paths  # compiled: not for those who never draw

        potentials, initial, transition = numpy_stats(lam)
        n_times = potentials.shape[-2]
        plates = np.broadcast_shapes(potentials.shape[:-2], initial.shape[:-1], transition.shape[:-2])
        shape = draws(n, plates)
        parts = [(potentials, 2), (initial, 1), (transition, 2)]
        rows = [
            np.ascontiguousarray(np.broadcast_to(part, plates + part.shape[part.ndim - events :])).reshape(
                -1, *part.shape[part.ndim - events :]
            )
            for part, events in parts
        ]
        out = np.empty((math.prod(shape), n_times), dtype=np.int64)
        draw_paths(*rows, self.starts(n_times), rng.random((len(out), n_times)), out)
        return out.reshape(*shape, n_times)

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ by two recursions; of very long paths compiling a derivative pays."""
        if lam[0].shape[-2] > LONGEST_CHAIN:
            return super().covariance_times(lam)
        return chain_covariance(lam, self.starts(lam[0].shape[-2]))

    def takes_changes(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Of one path that is not too long."""
        return len(shapes[0]) == 2 and shapes[0][0] <= LONGEST_CHAIN


# States up to which the products of matrices along a chain are kept: log₂ T for each step.
MAX_DOUBLED_STATES = 8


def chain_covariance(lam: Stats, starts: Any) -> Callable[[Stats], Stats]:
    """V dλ of paths; ``starts`` [T] says where sequences begin. Changes may have an axis in front of those of λ."""
    potentials, initial, transition = np.moveaxis(lam[0], -2, 0), lam[1], lam[2]
    with np.errstate(all="ignore"):
        way = in_probabilities if transition.size and is_close(transition) else in_logs
        marginals, pairs, _ = way(potentials, initial, transition, starts, each=True)
    after = _divided(pairs, marginals[:-1, ..., :, None])  # P(z_{t+1} | z_t)
    before = _divided(pairs, marginals[1:, ..., None, :])  # P(z_t | z_{t+1})
    first = np.flatnonzero(starts)
    run, run_back = _recursion(ops.transpose(before)), _recursion(after[::-1])

    def times(change: Stats) -> Stats:
        wide = (slice(None), *(None,) * max(change[0].ndim - lam[0].ndim, 0))
        each, w = marginals[wide], change[2]
        v = _under(np.moveaxis(change[0], -2, 0), each.ndim)
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


def _recursion(steps: Array) -> Callable[..., Array]:
    """The function of x [T, ..., K] that gives y with y_t = x_t + M_t y_{t−1}, for the matrices M_1 … M_{T−1}, read as x is.

    By doubling: after l rounds y_t has what comes from up to 2^l steps before, and the next round adds what y_{t−2^l} has, by the
    product of the 2^l matrices between. They are the same for every x, so a call is log₂ T products, not T.
    """
    if steps.shape[-1] > MAX_DOUBLED_STATES:

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
