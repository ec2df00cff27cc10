"""Subchains of long sequences as groups of the engine's Problem.

Foti, Xu, Laird and Fox (2014): all starts of L consecutive times are equally likely, so the expected counts of one are
(L − 1)/(T − L + 1) of all pairs and L/(T − L + 1) of all times, up to the edges. Counts divided by L − 1 and L are messages
of T − L + 1 groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.sequences import Sequences
from natgrad.inference.executors.threads import ShardSpec
from natgrad.inference.problem import GroupResult, State
from natgrad.inference.step_sizes import RobbinsMonro, Step
from natgrad.models.hmm.parts import Segment, SubchainBatch, Subchains, count_subchains, sum_counts
from natgrad.models.hmm.priors import stationary
from natgrad.models.hmm.problem import HMMModel, SequenceProblem, n_parts

__all__ = ["SubchainProblem"]

Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]


class SubchainProblem(SequenceProblem):
    """Subchains as groups: all T − L + 1 places where one can begin; sequences shorter than L are groups as they are."""

    group_plate = "subchain"
    overlapping = True
    # Noise averages out, and the first steps, of a random start, are forgotten quickly.
    step: Step = RobbinsMonro(delay=1.0, forgetting=0.6)

    def __init__(self, data: Sequences, model: HMMModel, subchains: Subchains, n_jobs: int | None = None) -> None:
        super().__init__(data, model, batch_size=subchains.size, n_jobs=n_jobs)
        self.subchains = subchains
        self.n_starts = np.maximum(data.lengths - subchains.length + 1, 1)
        self._first = np.concatenate([[0], np.cumsum(self.n_starts)])

    @property
    def n_groups(self) -> int:  # type: ignore[override]
        """Starts of subchains."""
        return int(self._first[-1])

    def solve(self, state: State, groups: Ints | None, rows: Stats | None, tol: float, limit: int) -> GroupResult:
        """q(x_S) of subchains, and what each of them tells as one of all that there could be."""
        if groups is None:
            return super().solve(state, None, rows, tol, limit)
        chosen, length = np.asarray(groups), self.subchains.length
        at_rest = stationary(self.mean_transition(state))
        sent, head, calls = self._sent(state), self._head(chosen), []
        start = self._first[head]
        alone = start not in chosen
        for shard, part, first in self._parts(np.union1d(chosen, [start])):
            own = part[part != start] if alone else part
            here = self._chosen(own, first, head if start in part else None)
            calls.append((shard, (sent, here, self.subchains, at_rest, self.n_sums)))
        parts = self._counted(count_subchains, calls)
        counts, short = (self._possible(sum_counts([part[place] for part in parts])) for place in (0, 1))
        scale = len(chosen) / self.n_groups
        messages = self._messages(counts, len(self.data) * scale, 1.0 / (length - 1), 1.0 / length)
        rest = (counts.log_z - self._inner_with_moments(self._messages(counts, 0.0), state)) / length
        if (self.data.lengths[self._number(chosen)] < length).any():
            more = self._messages(short, 0.0)
            rest += short.log_z - self._inner_with_moments(more, state)
            messages = {n: tuple(a + b for a, b in zip(messages[n], more[n], strict=True)) for n in messages}
        reads = self._reads(sum(part[2] for part in parts))
        return GroupResult((), messages, rest + self.data.base * scale, 1, reads)

    def shards(self, size: int) -> list[Segment | ShardSpec]:
        """Runs of starts, each with the times that its subchains and their buffers reach."""
        n_shards = n_parts(min(size, self.n_groups) * self.subchains.length)
        self._cuts = np.unique(np.linspace(0, self.n_groups, n_shards + 1).astype(np.int64))
        # The head of a sequence is as long as a subchain with both its buffers.
        reach = 2 * self.subchains.reach
        first, last = self._time(self._cuts[:-1]), self._time(self._cuts[1:] - 1)
        self._begins = np.maximum(first - reach, 0)
        ends = np.minimum(last + self.subchains.length + reach, self.data.n_times)
        return self._cut(self._begins, ends)

    def _number(self, groups: Ints) -> Ints:
        """The sequence that each group lies in."""
        return np.asarray(np.searchsorted(self._first, groups, side="right") - 1)

    def _time(self, groups: Ints) -> Ints:
        """Where each group starts."""
        number = self._number(groups)
        return np.asarray(self.data.ends[number] + groups - self._first[number])

    def _chosen(self, groups: Ints, first: int, head: int | None) -> SubchainBatch:
        """Groups, and perhaps the head of a sequence, in times of the shard."""
        number, start = self._number(groups), self._time(groups)
        whole = self.data.lengths[number] < self.subchains.length
        low, high = self.data.ends[number], self.data.ends[number + 1]
        begin = None if head is None else (int(self.data.ends[head]) - first, int(self.data.lengths[head]))
        long, lengths = ~whole, self.data.lengths[number[whole]]
        return SubchainBatch(
            start[long] - first, low[long] - first, high[long] - first, start[whole] - first, lengths, begin
        )

    def _head(self, chosen: Ints) -> int:
        """A sequence whose first state is read, for π: a function of the sample, as likely as any other."""
        return int(chosen.sum() % len(self.data))
