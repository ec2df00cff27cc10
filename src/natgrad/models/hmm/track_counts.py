"""Expected counts where log weights of states are computed, not linear forms: several tracks, mixtures, heavy tails, durations.

The weights of a time are a row of a table that no other time has, so the kernels of codes do the rest: what they add up for a
code is then q(x_t), and what observations tell the emissions is made of that. Only times that are read have rows.

A state may be several states of the chain (`natgrad.models.hmm.expansions`), which share its emission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.sequences import read_only
from natgrad.kernels.hmm.emissions import TABLE
from natgrad.models.hmm.forward_backward import Counts, Weights
from natgrad.models.hmm.tracks import Moments, Tracks, Weighed, sum_of

if TYPE_CHECKING:
    from natgrad.models.hmm.parts import Segment, SubchainBatch, Subchains

__all__ = ["TrackWeights", "copied", "pieces"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Times whose weights are made at once, where sequences end often enough.
MOST_TIMES = 500_000


class TrackWeights(NamedTuple):
    """What a part of a step needs: weights of the chain, and the moments of the emissions.

    ``states`` [S] are the numbers of the states that the S states of the chain stand for; None if they are all, one for one.
    ``inputs`` [S] are the categories of the input at which they are possible; that of a time is the last of its values.
    """

    initial: Floats
    transition: Floats
    tracks: Tracks
    mu: Moments
    states: Ints | None = None
    inputs: Ints | None = None

    def weighed(self, segment: Segment) -> list[Weighed]:
        """Every track at all times of a segment."""
        return self.tracks.weighed(segment.values, self.mu)

    def on(self, segment: Segment, at: list[Weighed] | None = None) -> Weights:
        """The weights of all times of a segment; ``at`` are its tracks, if they are known."""
        logs = sum_of(self.weighed(segment) if at is None else at)
        labels = segment.labels
        if self.states is not None:
            logs = logs[:, self.states]
            if len(labels):  # several states of the chain may have one label
                known = np.asarray(labels)[:, None]
                logs = np.where((known < 0) | (known == self.states), logs, -np.inf)
                labels = labels[:0]
        if self.inputs is not None:
            logs = np.where(np.asarray(segment.values[:, -1:]) == self.inputs, logs, -np.inf)
        table = np.ascontiguousarray(logs)
        peak = table.max(1)
        with np.errstate(
            invalid="ignore"
        ):  # of a time that no state can explain: the caller sees that log Z is not finite
            likelihood = np.exp(table - np.where(np.isfinite(peak), peak, 0.0)[:, None])
        codes = read_only(np.arange(len(table), dtype=np.int32))
        none = np.zeros((len(self.initial), 0))
        return Weights(
            self.initial, self.transition, TABLE, codes, table, likelihood, peak, np.zeros((0, 0)), none,
            read_only(labels), True,
        )  # fmt: skip

    def told(self, at: list[Weighed], counts: Counts) -> Counts:
        """Counts whose sums are q of the chain's states at all times [T, S], with what these tell the emissions instead."""
        return counts._replace(sums=self.tracks.flat(self.tracks.messages(at, self.whole(counts.sums))))

    def whole(self, q: Floats) -> Floats:
        """Probabilities of the chain's states [T, S] as those of the states [T, K]."""
        if self.states is None:
            return q
        out = np.zeros((len(q), self.tracks.n_states))
        for place, state in enumerate(self.states):
            out[:, state] += q[:, place]
        return out


def pieces(segment: Segment, starts: Ints, lengths: Ints) -> Iterator[tuple[Segment, Ints, Ints]]:
    """Sequences of a segment, some at a time, as segments of their own."""
    if len(starts) == 0:
        return
    number = (np.cumsum(lengths) - lengths) // MOST_TIMES
    for own in np.split(np.arange(len(starts)), np.flatnonzero(np.diff(number)) + 1):
        yield _taken(segment, starts[own], lengths[own]), np.cumsum(lengths[own]) - lengths[own], lengths[own]


def copied(segment: Segment, chosen: SubchainBatch, how: Subchains) -> tuple[Segment, SubchainBatch]:
    """The times that subchains and their buffers reach, a copy for each; where a sequence goes on, its end is out of reach."""
    first = np.maximum(chosen.low, chosen.start - how.reach)
    last = np.minimum(chosen.high, chosen.start + how.length + how.reach)
    begins, lengths = [first, chosen.short], [last - first, chosen.short_lengths]
    if chosen.head is not None:
        begins.append(np.array([chosen.head[0]]))
        lengths.append(np.array([min(chosen.head[1], how.length + 2 * how.reach)]))
    begin, length = np.concatenate(begins).astype(np.int64), np.concatenate(lengths).astype(np.int64)
    at = np.cumsum(length) - length
    n, m = len(first), len(chosen.short)
    head = None if chosen.head is None else (int(at[n + m]), int(length[n + m]))
    batch = chosen._replace(
        start=at[:n] + chosen.start - first, low=at[:n] - (first > chosen.low),
        high=at[:n] + length[:n] + (last < chosen.high), short=at[n : n + m], head=head,
    )  # fmt: skip
    return _taken(segment, begin, length), batch


def _taken(segment: Segment, starts: Ints, lengths: Ints) -> Segment:
    """Stretches of a segment one after the other."""
    total = int(lengths.sum())
    if len(starts) and np.array_equal(starts[1:], (starts + lengths)[:-1]):
        rows: Any = slice(int(starts[0]), int(starts[0]) + total)
    else:
        rows = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)
    labels = segment.labels[rows] if len(segment.labels) else segment.labels
    return segment._replace(values=np.asarray(segment.values[rows]), labels=labels)
