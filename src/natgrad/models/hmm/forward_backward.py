"""Data and weights in; expected counts of whole sequences or of subchains out: what is run, in which windows, by which thread.

A sequence longer than a block is cut into blocks that overlap by one time, and two scans give the messages that enter them, so
its counts are exact. Tasks are cut by the data alone and summed in order: any number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from natgrad.data.io.npy import RowWriter
from natgrad.data.sequences import ROWS, Sequences
from natgrad.kernels.hmm import plain
from natgrad.kernels.hmm.chain import best_scores, grow_buffers, scan_backward, scan_forward, trace_path
from natgrad.kernels.hmm.emissions import TABLE
from natgrad.kernels.hmm.lanes import run_windows
from natgrad.models.hmm.emissions import Emission
from natgrad.threads import at_most, in_order, is_little, most_threads

__all__ = [
    "Buffers", "Counts", "Weights", "Windows", "blocks_of_sequences", "count", "grown", "viterbi", "weights_of",
    "whole_sequences",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
S = TypeVar("S")
T = TypeVar("T")
# Compiled functions carry no types.
_run_windows: Any = run_windows
_plain_windows: Any = plain.run_windows
_plain_path: Any = plain.best_path
_scan_forward: Any = scan_forward
_scan_backward: Any = scan_backward
_grow_buffers: Any = grow_buffers
_best_scores: Any = best_scores
_trace_path: Any = trace_path
# Blocks of the exact chain: long enough that the overlap is nothing, short enough that 64 of them fit in the cache.
SHORTEST, LONGEST = 64, 1024
# Windows that a thread takes at once: two rows of lanes.
TASK = 128


class Weights(NamedTuple):
    """What the kernels read: exp E log A and exp E log π, and the emission as a table by code or as linear forms.

    ``by_time``: every time has a code of its own, so that what is summed by codes is q(x_t) [T, K], in one array for all threads.
    """

    initial: Floats
    transition: Floats
    kind: int
    codes: Any
    table: Floats
    likelihood: Floats
    peak: Floats
    values: Any
    forms: Floats
    labels: Any
    by_time: bool = False

    @property
    def little(self) -> bool:
        """Whether the data are so few that nothing is compiled."""
        return is_little(plain.work_of(max(len(self.codes), len(self.values)), len(self.initial)))

    @property
    def emission(self) -> tuple[Any, ...]:
        """As most kernels take it."""
        return self.kind, self.codes, self.table, self.likelihood, self.peak, self.values, self.forms, self.labels

    @property
    def logs(self) -> tuple[Any, ...]:
        """As kernels take it that work with logarithms."""
        return self.kind, self.codes, self.table, self.values, self.forms, self.labels


class Windows(NamedTuple):
    """Where windows are, the messages that enter them, and which of their times and pairs count (see `run_windows`)."""

    begin: Ints
    length: Ints
    before: Floats
    behind: Floats
    spans: Ints

    def ordered(self) -> Windows:
        """By length: lanes of one row take as many steps as its longest window."""
        if len(self.length) == 0 or self.length.min() == self.length.max():
            return self
        order = np.argsort(-self.length, kind="stable")
        parts = self.begin[order], self.length[order], self.before[order], self.behind[order], self.spans[order]
        return Windows(*parts)


class Counts(NamedTuple):
    """Expected first states [K], pairs [K, K], sums of statistics [F, K], and log Z."""

    heads: Floats
    pairs: Floats
    sums: Floats
    log_z: float


class Buffers(NamedTuple):
    """Messages into subchains from grown buffers, how long these are, and the bound on what they leave open."""

    before: Floats
    behind: Floats
    size: Ints
    error: Floats


def weights_of(emission: Emission, data: Sequences, initial: Floats, transition: Floats, forms: Floats) -> Weights:
    """Kernel arrays for weights π̃ [K], Ã [K, K] and the emission's linear forms [K, F]."""
    n_states = len(initial)
    none, empty = np.zeros((0, n_states)), np.zeros(0)
    initial, transition = np.ascontiguousarray(initial), np.ascontiguousarray(transition)
    if len(data.codes) == 0:
        forms = np.ascontiguousarray(forms)
        return Weights(
            initial, transition, emission.kind, data.codes, none, none, empty, data.values, forms, data.labels
        )
    table = forms.T if data.patterns is None else pattern_statistics(data.patterns) @ forms.T
    table = np.ascontiguousarray(table)
    peak = table.max(1)
    likelihood = np.exp(table - peak[:, None])
    no_forms = np.zeros((n_states, 0))
    return Weights(initial, transition, TABLE, data.codes, table, likelihood, peak, data.values, no_forms, data.labels)


def pattern_statistics(patterns: Floats) -> Floats:
    """(1, y, y²) of each column of what codes stand for [V, 3 D]; zeros where it is NaN."""
    seen = ~np.isnan(patterns)
    values = np.where(seen, patterns, 0.0)
    return np.stack([seen * 1.0, values, values**2], axis=2).reshape(len(patterns), -1)


def whole_sequences(weights: Weights, data: Sequences, chosen: Ints | None, n_jobs: int) -> Windows:
    """Windows that cover sequences exactly, one after the other; ``chosen`` None means all."""
    numbers = np.arange(len(data)) if chosen is None else np.asarray(chosen)
    return blocks_of_sequences(weights, data.ends[numbers], data.lengths[numbers], n_jobs)


def blocks_of_sequences(weights: Weights, starts: Ints, lengths: Ints, n_jobs: int) -> Windows:
    """Windows that cover the sequences with these starts and lengths exactly."""
    n_states = len(weights.initial)
    block = int(np.clip(np.sqrt(lengths.sum()) / 4.0, SHORTEST, LONGEST))
    n_blocks = np.where((lengths <= block + 1) | weights.little, 1, -(-lengths // block))
    first = np.concatenate([[0], np.cumsum(n_blocks)])
    number = np.arange(first[-1]) - np.repeat(first[:-1], n_blocks)
    ends = np.repeat(starts + lengths, n_blocks)
    begin = np.repeat(starts, n_blocks) + number * block
    alone = np.repeat(n_blocks == 1, n_blocks)
    length = np.where(alone, ends - begin, np.minimum(block + 1, ends - begin))
    spans = np.zeros((len(begin), 4), np.int64)
    spans[:, 1] = np.where(alone, length, np.minimum(block, ends - begin))
    spans[:, 2], spans[:, 3] = length - 1, number == 0
    before, behind = np.empty((len(begin), n_states)), np.ones((len(begin), n_states))
    before[:] = weights.initial
    backward = np.ascontiguousarray(weights.transition.T)

    def scan(task: tuple[int, bool]) -> None:
        place, from_left = task
        span = int(starts[place]), int(starts[place] + lengths[place]), block
        rows = slice(first[place], first[place + 1])
        if from_left:
            _scan_forward(*weights.emission, weights.transition, weights.initial, *span, before[rows])
        else:
            _scan_backward(*weights.emission, backward, *span, behind[rows])

    in_threads(scan, [(int(p), side) for p in np.flatnonzero(n_blocks > 1) for side in (True, False)], n_jobs)
    return Windows(begin, length, before, behind, spans)


def count(weights: Weights, windows: Windows, n_sums: int, n_jobs: int, out: RowWriter | None = None) -> Counts:
    """Expected counts of windows.

    With ``out``, rows [T, K], q(x_t) of the times that count are written there; then windows must lie one after the other.
    """
    n_states, n_windows = len(weights.initial), len(windows.begin)
    log_z = np.zeros(n_windows)
    shared = np.zeros((len(weights.codes), n_states)) if weights.by_time else None

    def task(first: int) -> Counts:
        sums = np.zeros((n_sums, n_states)) if shared is None else shared  # each time counts in one window
        counts = Counts(np.zeros(n_states), np.zeros((n_states, n_states)), sums, 0.0)
        last = min(first + TASK, n_windows)
        if first == last:  # no windows at all
            return counts
        begin, end = int(windows.begin[first]), int(windows.begin[last - 1] + windows.spans[last - 1, 1])
        states = np.empty((0 if out is None else end - begin, n_states))
        (_plain_windows if weights.little else _run_windows)(
            *weights.emission, weights.transition, windows.begin, windows.length, windows.before, windows.behind,
            windows.spans, first, last, counts.pairs, counts.sums, counts.heads, log_z, states, begin,
        )  # fmt: skip
        if out is not None:
            out.write(begin, states)
        return counts

    parts = in_threads(task, range(0, max(1, n_windows), TASK), n_jobs)
    total = parts[0]
    for part in parts[1:]:
        for whole, more in zip(total[:3], part[:3], strict=True):
            if more is not shared:
                whole += more
    return total._replace(log_z=float(log_z.sum()))


def grown(
    weights: Weights, stationary: Floats, begin: Ints, length: Ints, low: Ints, high: Ints, unit: int, tol: float,
    most: int, n_jobs: int,
) -> Buffers:  # fmt: skip
    """Buffers of subchains, each grown until what lies beyond it can change q(x_S) by no more than ``tol``."""
    n, n_states = len(begin), len(weights.initial)
    buffers = Buffers(np.empty((n, n_states)), np.empty((n, n_states)), np.empty(n, np.int64), np.empty(n))

    def task(first: int) -> None:
        _grow_buffers(
            *weights.logs, weights.transition, weights.initial, stationary, begin, length, low, high, unit, tol, most, first,
            min(first + TASK // 4, n), *buffers,
        )  # fmt: skip

    in_threads(task, range(0, n, TASK // 4), n_jobs)
    return buffers


def viterbi(weights: Weights, data: Sequences, n_jobs: int, out: RowWriter) -> float:
    """The likeliest states of all sequences are written to ``out``; the log probability of the paths is returned."""
    with np.errstate(divide="ignore"):
        log_transition, log_initial = np.log(weights.transition), np.log(weights.initial)

    def task(number: int) -> float:
        begin, end = int(data.ends[number]), int(data.ends[number + 1])
        if weights.little:
            path, log_prob = _plain_path(*weights.logs, log_transition, log_initial, begin, end)
            out.write(begin, path)
            return float(log_prob)
        block = int(np.clip(np.sqrt(end - begin), SHORTEST, LONGEST * 16))
        n_blocks, at_once = -(-(end - begin) // block), max(1, ROWS // block)
        kept, score = np.empty((n_blocks, len(log_initial))), np.empty(len(log_initial))
        _best_scores(*weights.logs, log_transition, log_initial, begin, end, block, kept, score)
        state = int(np.argmax(score))
        for first in range((n_blocks - 1) // at_once * at_once, -1, -at_once):
            last = min(first + at_once, n_blocks)
            part = np.empty(min(last * block, end - begin) - first * block, np.int64)
            part[-1] = state  # of the chain's last time; elsewhere the block decides
            state = _trace_path(*weights.logs, log_transition, begin, end, block, kept, first, last, state, part)
            out.write(begin + first * block, part)
        return float(score.max())

    return float(sum(in_threads(task, range(len(data)), n_jobs)))


def in_threads(function: Callable[[S], T], items: Sequence[S], n_jobs: int) -> list[T]:
    """The function of all items, in their order; by threads that a process has once: a pool for each call cost more than sweeps.

    A thousand short sequences (T = 200, K = 4) took 4.5 processor seconds for 60 sweeps with pools of their own, and take 1.9.
    """
    with at_most(n_jobs):
        return in_order(function, items)


def n_threads(n_jobs: int | None) -> int:
    """As many as asked for; by default one for each core that this process may use."""
    return most_threads() if n_jobs is None else n_jobs
