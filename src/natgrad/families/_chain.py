"""λ in, moments out, for a whole path of hidden states: MarkovChain.

    q(z) ∝ exp( Σ_t potential[t, z_t] + Σ_starts initial[z_t] + Σ_{t not a start} transition[z_{t−1}, z_t] )

λ = (potentials [T, K], log initial [K], log transition [K, K]), none of them normalised; A is the log
partition function and μ = ∇A are the marginals, the counts of first states and the counts of pairs
(forward–backward).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._chain_ends import EndMessages, added_at, condensed_states, state_messages
from natgrad.families._close_messages import close_moments, is_close
from natgrad.families._discrete import category_logits
from natgrad.families._family import Family, Param, draws, numpy_stats
from natgrad.families._messages import pair_counts, run_messages, shift_of, under
from natgrad.families._ops import Array, Stats

__all__ = ["MarkovChain"]


@final
@dataclass(frozen=True)
class MarkovChain(Family):
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

    lengths: tuple[int, ...] | None = None

    name: ClassVar[str] = "MarkovChain"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "first", "pairs")
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 1, 2)
    symmetric: ClassVar[tuple[bool, ...]] = (False, False, False)
    event_ndim: ClassVar[int] = 1
    params: ClassVar[tuple[Param, ...]] = (
        Param("potentials", 2, "log"),
        Param("log_initial", 1, "log"),
        Param("log_transition", 2, "log"),
    )
    allows_minus_inf: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.lengths is None:
            return
        object.__setattr__(self, "lengths", tuple(int(n) for n in self.lengths))
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"lengths must be positive, got {self.lengths}. For one sequence use None.")

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return usual["potentials"], usual["log_initial"], usual["log_transition"]

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`marginals`, `first` and `pairs`: what a reader wants to see, not what `natural` takes."""
        return dict(zip(("marginals", "first", "pairs"), self.expected_stats(lam), strict=True))

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        close = is_close(lam[2])
        if not ops.is_jax(*lam):
            return self._close(lam) if close else self._forward_backward(lam)
        from jax import lax

        arrays = tuple(ops.namespace(*lam).asarray(g) for g in lam)
        stats, a = lax.cond(close, self._close, self._forward_backward, arrays)
        return stats, a

    def _close(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        starts = self._starts(lam[0].shape[-2])
        marginals, pairs, a = close_moments(xp.moveaxis(lam[0], -2, 0), lam[1], lam[2], starts)
        return (xp.moveaxis(marginals, 0, -2), marginals[np.flatnonzero(starts)].sum(0), pairs), a

    def _forward_backward(self, lam: Stats) -> tuple[Stats, Array]:
        xp = ops.namespace(*lam)
        potentials, initial, transition = xp.moveaxis(lam[0], -2, 0), lam[1], lam[2]
        starts = self._starts(potentials.shape[0])
        past, future = run_messages(potentials, initial, transition, starts)
        potentials = under(potentials, past.ndim)

        forward = potentials + past
        shift = shift_of(forward)
        last = np.flatnonzero(np.append(starts[1:], True))
        a = shift.sum(0) + ops.logsumexp(forward[last] - shift[last][..., None]).sum(0)

        marginals = ops.softmax(forward + future)
        first = marginals[np.flatnonzero(starts)].sum(0)
        inside = ~starts[1:].reshape((-1, *(1,) * (past.ndim - 1)))
        pairs = pair_counts(forward[:-1], transition, (potentials + future)[1:], inside)
        return (xp.moveaxis(marginals, 0, -2), first, pairs), a

    def _inside(self, lam: Stats) -> Array:
        # Every time step needs a possible state. That a whole path is possible is A > −inf, a forward pass.
        possible = (lam[0] > -np.inf).any(-1).all(-1)
        return possible & (lam[1] > -np.inf).any(-1) & ~(lam[2] == np.inf).any((-1, -2))

    # -- stretches of one chain (`_chain_ends.py`) --

    def condensed(self, lam: Stats) -> Stats:
        """What a stretch says of its first and last state: log weights [..., K, K]."""
        xp = ops.namespace(*lam)
        potentials, initial, transition = (xp.asarray(part) for part in lam)
        return (condensed_states(xp.moveaxis(potentials, -2, 0), initial, transition),)

    def end_messages(self, condensed: Stats) -> EndMessages:
        """What stretches [n, …] are told at their ends."""
        return state_messages(*numpy_stats(condensed))

    def at_ends(self, lam: Stats, before: Stats, after: Stats) -> Stats:
        """λ of a stretch with what it is told at its ends."""
        return added_at(added_at(lam[0], 0, before[0], 1), -1, after[0], 1), lam[1], lam[2]

    def without_first(self, lam: Stats) -> Stats:
        """λ of the same law without the first time of one sequence, which is summed out."""
        potentials, initial, transition = numpy_stats(lam)
        before = (potentials[..., 0, :] + initial)[..., None] + transition
        rest = added_at(potentials[..., 1:, :], 0, ops.logsumexp(before, axis=-2), 1)
        return rest, np.zeros_like(initial), transition

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """One-hot states [..., T, K], first states [..., K] and pairs [..., K, K] of integers [..., T]."""
        if size is None:
            raise ValueError("MarkovChain.stats_of needs size, the number of states K.")
        xp = ops.namespace(value)
        states = ops.one_hot(value, size)
        starts = self._starts(states.shape[-2])
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
        draw_paths(*rows, self._starts(n_times), rng.random((len(out), n_times)), out)
        return out.reshape(*shape, n_times)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """Probability of each state at each time [..., T, K]."""
        return np.asarray(self.expected_stats(numpy_stats(lam))[0])

    def var(self, lam: Stats) -> NDArray[Any]:
        """Variance p (1 − p) of each indicator [..., T, K]."""
        p = self.mean(lam)
        return np.asarray(p * (1 - p))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """States have no order: raises."""
        raise TypeError("MarkovChain has no interval: states have no order. Use mean(), their probabilities.")

    def _starts(self, n_times: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        lengths = self.lengths if self.lengths is not None else (n_times,)
        if sum(lengths) != n_times:
            raise ValueError(f"lengths sum to {sum(lengths)}, but the chain has T = {n_times} time steps.")
        starts = np.zeros(n_times, dtype=bool)
        starts[np.cumsum((0, *lengths[:-1]))] = True
        return starts
