"""A run of times, the weights of a model and places in the run in; expected counts out: a part of a step.

A part is a pure function of what it is given, so it may be computed anywhere. Counts are added up in the order of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.data.sequences import read_only
from natgrad.kernels.hmm.emissions import LANES
from natgrad.models.hmm.forward_backward import Counts, Weights, Windows, blocks_of_sequences, count, grown
from natgrad.models.hmm.tracks import TrackWeights, copied, pieces
from natgrad.posterior.files.container import register
from natgrad.validation import real_number, whole_number

__all__ = ["Segment", "SubchainBatch", "Subchains", "count_sequences", "count_subchains", "sum_counts"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
# Times by which a buffer grows.
UNIT = 8


@final
@dataclass(frozen=True)
class Subchains:
    """A method of hidden Markov models: natural steps from subchains of long sequences (Foti, Xu, Laird and Fox, 2014).

    Parameters
    ----------
    size : int
        M, how many subchains a step reads.
    length : int
        L, how many times a subchain has.
    buffer : None, int or "grow"
        Times read on both sides of a subchain and left out of its counts. "grow": as many as it takes until nothing that lies
        beyond can change q(x_S) by more than ``buffer_tol``.
    buffer_tol : float
        Total variation; of ``buffer="grow"``.
    most : int
        The most times of a buffer that grows.

    Examples
    --------
    >>> Subchains(20, length=100, buffer="grow")
    Subchains(size=20, length=100, buffer='grow', buffer_tol=0.001, most=512)
    """

    # With the head of a sequence, for π, they fill a row of lanes.
    size: int = LANES - 1
    length: int = 64
    buffer: int | Literal["grow"] | None = None
    buffer_tol: float = 1e-3
    most: int = 512

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("length", 2), ("most", 1)):
            whole_number(getattr(self, name), f"Subchains: {name}", least)
        if self.buffer is not None and self.buffer != "grow":
            whole_number(self.buffer, "Subchains: buffer", 0)
        if not 0 < real_number(self.buffer_tol, "Subchains: buffer_tol") < 1:
            raise ValueError(f"Subchains: buffer_tol must lie in (0, 1), got {self.buffer_tol!r}")
        if self.buffer_tol != Subchains.buffer_tol and self.buffer != "grow":
            raise ValueError(
                f'Subchains: buffer_tol={self.buffer_tol!r} belongs to buffer="grow", got buffer={self.buffer!r}'
            )

    @property
    def reach(self) -> int:
        """The most times beyond a subchain that are read."""
        return self.buffer if isinstance(self.buffer, int) else self.most + UNIT if self.buffer == "grow" else 0


register(Subchains, "hmm.Subchains")


class Segment(NamedTuple):
    """A run of consecutive times: codes, values and known states; those that are not there are empty."""

    codes: Array
    values: Array
    labels: Array

    def weights(self, sent: Weights) -> Weights:
        """The weights of a model over these times."""
        codes, values, labels = (read_only(part) for part in self)
        return sent._replace(codes=codes, values=values, labels=labels)


class SubchainBatch(NamedTuple):
    """Subchains [n] of a segment: where they start, where their sequences begin and end, and whole sequences that are shorter.

    ``head`` is the start and the length of a sequence whose first state is read, for π; None if another part reads one.
    """

    start: Ints
    low: Ints
    high: Ints
    short: Ints
    short_lengths: Ints
    head: tuple[int, int] | None


def count_sequences(
    segment: Segment, sent: Weights | TrackWeights, starts: Ints, lengths: Ints, n_sums: int, n_jobs: int = 1
) -> Counts:
    """Exact counts of whole sequences."""
    if isinstance(sent, TrackWeights):
        return sum_counts([_told(sent, *piece, n_jobs) for piece in pieces(segment, starts, lengths)])
    weights = segment.weights(sent)
    return count(weights, blocks_of_sequences(weights, starts, lengths, n_jobs).ordered(), n_sums, n_jobs)


def count_subchains(
    segment: Segment,
    sent: Weights | TrackWeights,
    chosen: SubchainBatch,
    how: Subchains,
    at_rest: Floats,
    n_sums: int,
    n_jobs: int = 1,
) -> tuple[Counts, Counts, int]:
    """Counts of subchains, of sequences too short for one, and the times that were read."""
    if isinstance(sent, TrackWeights):
        segment, chosen = copied(segment, chosen, how)
        at = sent.weighed(segment)
        weights = sent.on(segment, at)
    else:
        weights = segment.weights(sent)
    windows = _windows(weights, chosen, how, at_rest, n_jobs)
    short = blocks_of_sequences(weights, chosen.short, chosen.short_lengths, n_jobs)
    read = int(windows.length.sum() + chosen.short_lengths.sum())
    both = count(weights, windows, n_sums, n_jobs), count(weights, short.ordered(), n_sums, n_jobs)
    if isinstance(sent, TrackWeights):
        both = sent.told(at, both[0]), sent.told(at, both[1])
    return (*both, read)


def _told(sent: TrackWeights, segment: Segment, starts: Ints, lengths: Ints, n_jobs: int) -> Counts:
    at = sent.weighed(segment)
    weights = sent.on(segment, at)
    windows = blocks_of_sequences(weights, starts, lengths, n_jobs)
    return sent.told(at, count(weights, windows.ordered(), 0, n_jobs))


def sum_counts(parts: Sequence[Counts]) -> Counts:
    """The sum, in order."""
    total = parts[0]
    for part in parts[1:]:
        heads, pairs, sums = total.heads + part.heads, total.pairs + part.pairs, total.sums + part.sums
        total = Counts(heads, pairs, sums, total.log_z + part.log_z)
    return total


def _windows(weights: Weights, chosen: SubchainBatch, how: Subchains, at_rest: Floats, n_jobs: int) -> Windows:
    """Subchains with their buffers, and the head of one sequence, of which nothing but the first state counts."""
    start, low, high, n_states = chosen.start, chosen.low, chosen.high, len(weights.initial)
    margin = how.buffer if isinstance(how.buffer, int) else 0
    begin, end = np.maximum(low, start - margin), np.minimum(high, start + how.length + margin)
    before = np.where((begin == low)[:, None], weights.initial, at_rest)
    behind = np.ones((len(start), n_states))
    if how.buffer == "grow":
        lengths = np.full(len(start), how.length)
        buffers = grown(weights, at_rest, start, lengths, low, high, UNIT, how.buffer_tol, how.most, n_jobs)
        before, behind = buffers.before, buffers.behind
    spans = np.zeros((len(start), 4), np.int64)
    spans[:, 0], spans[:, 1], spans[:, 2] = start - begin, start - begin + how.length, how.length - 1
    windows = Windows(begin, end - begin, before, behind, spans)
    if chosen.head is None:
        return windows
    first, size = chosen.head
    longest = int((end - begin).max(initial=how.length))
    return Windows(
        np.append(begin, first), np.append(end - begin, min(longest, size)), np.vstack([before, weights.initial]),
        np.vstack([behind, np.ones(n_states)]), np.vstack([spans, [0, 0, 0, 1]]),
    )  # fmt: skip
