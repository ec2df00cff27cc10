"""Hidden Markov models as the engine's Problem: blocks π, A and φ; the groups are whole sequences.

    π ~ Dir,   A_i ~ Dir,   φ_k ~ prior,   x_1 ~ Cat(π),   x_t ~ Cat(A_{x_{t−1}}),   y_t ~ p(y | φ_{x_t})
    q = q(π) q(A) q(φ) q(x)                                                          structured mean field

Given q(π) q(A) q(φ), the best q(x) is a chain with weights exp E log π, exp E log A and exp E log p(y | φ), none of which are
normalised; its log Z, less ⟨messages, moments⟩, is what a sequence adds to the bound.

Subchains (Foti, Xu, Laird and Fox, 2014): all starts of L consecutive times are equally likely, so the expected counts of one are
(L − 1)/(T − L + 1) of all pairs and L/(T − L + 1) of all times, up to the edges. Counts divided by L − 1 and L are messages
of T − L + 1 groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.sequences import Sequences
from natgrad.families import Dirichlet
from natgrad.inference.executors import Call, ShardSpec, even_cuts, shard_in_files
from natgrad.inference.problem import Block, GroupProblem, GroupResult, State
from natgrad.inference.step_sizes import RobbinsMonro, Step
from natgrad.kernels.hmm.emissions import n_statistics
from natgrad.models.hmm.emissions import Emission
from natgrad.models.hmm.expansions import Chain, InputChain
from natgrad.models.hmm.forward_backward import Counts, Weights, n_threads, pattern_statistics, weights_of
from natgrad.models.hmm.parts import Segment, SubchainBatch, Subchains, count_sequences, count_subchains, sum_counts
from natgrad.models.hmm.priors import stationary
from natgrad.models.hmm.tracks import Part, Tracks, TrackWeights, own_of, parts_of

if TYPE_CHECKING:
    from natgrad.models.hmm.sampling import PathSampler

__all__ = ["HMMModel", "SequenceProblem", "SubchainProblem", "blocks_of", "n_parts"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# A shard's part of a batch has at least so many times, if its groups are spread evenly: it is worth a trip to a worker.
PART = 2**19


def n_parts(times: int) -> int:
    """Into how many parts so many times are shared out."""
    return max(1, times // PART)


class HMMModel(NamedTuple):
    """Priors: concentrations of π [K] and of the rows of A [K, K], the emission with its own, and perhaps durations.

    With inputs there are transitions of each category of them, [C, K, K].
    """

    initial: Floats
    transition: Floats
    emission: Emission | Tracks
    chain: Chain | InputChain | None = None

    @property
    def n_states(self) -> int:
        """K."""
        return len(self.initial)


def blocks_of(model: HMMModel) -> dict[str, Block]:
    """The global variables of a model."""
    lasting = {} if model.chain is None or model.chain.part is None else {"duration": model.chain.part}
    others = {**lasting, **parts_of(model.emission)}.items()
    rows = model.transition.shape[:-1]
    return {
        "initial": Block("initial", Dirichlet(), (), ()),
        "transition": Block("transition", Dirichlet(), ("input", "state")[-len(rows) :], rows),
        **{name: Block(name, part.family, part.plates, part.shape, origin=part.origin) for name, part in others},
    }


def _places(chain: Chain | InputChain) -> tuple[Ints, Ints | None]:
    """The state, and perhaps the input, of each of the chain's states."""
    return chain.states, chain.inputs


class SequenceProblem(GroupProblem):
    """Whole sequences as groups; exact.

    Parameters
    ----------
    data : Sequences
    model : HMMModel
    batch_size : int, optional
        Sequences in a batch of memoised VB; all by default.
    population : float, optional
        Sequences that these stand for.
    n_jobs : int, optional
    truncated : bool
        States at their prior hold no times, so that they are empty until a move fills them (decision 0040).
    """

    group_plate = "sequence"
    local_limits = (1e-6, 1)  # q(x) of a sequence is exact after one pass
    overlapping = False

    def __init__(
        self,
        data: Sequences,
        model: HMMModel,
        *,
        batch_size: int | None = None,
        population: float | None = None,
        n_jobs: int | None = None,
        truncated: bool = False,
    ) -> None:
        self.data, self.model, self.n_jobs, self.truncated = data, model, n_threads(n_jobs), truncated
        self.batch_size = batch_size or len(data)
        self.given_population = population
        self._weights: tuple[Any, Weights] | None = None

    @property
    def n_groups(self) -> int:  # type: ignore[override]
        """Sequences."""
        return len(self.data)

    @property
    def population(self) -> float:  # type: ignore[override]
        """Sequences that these stand for."""
        return float(self.n_groups if self.given_population is None else self.given_population)

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """First states, rows of transitions, emissions."""
        return blocks_of(self.model)

    @cached_property
    def emitted(self) -> Mapping[str, Part]:
        """The blocks of the emissions."""
        return parts_of(self.model.emission)

    @cached_property
    def sampler(self) -> PathSampler:  # type: ignore[override]
        """Draws paths of states."""
        from natgrad.models.hmm.sampling import PathSampler

        return PathSampler(self)

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All times."""
        return {"y": self.data.n_times}

    @property
    def n_messages(self) -> int:
        """Every state's emission and row of A are read at every time; π at the first ones."""
        return self.model.n_states * (2 * self.data.n_times + len(self.data))

    def prior_of(self, name: str) -> Stats:
        """η̃."""
        if name in self.emitted:
            return self.emitted[name].prior
        if name == "duration" and self.model.chain is not None and self.model.chain.part is not None:
            return self.model.chain.part.prior
        return ((self.model.initial if name == "initial" else self.model.transition) - 1.0,)

    def at(self, lam: Mapping[str, Stats], t: int = 0) -> State:
        """The state with these natural parameters."""
        full = {name: tuple(np.array(part, dtype=np.float64) for part in lam[name]) for name in self.blocks}
        return State(full, {name: self.moments(block, full[name]) for name, block in self.blocks.items()}, t)

    def from_counts(self, heads: Floats, pairs: Floats, sums: Floats, scale: float = 1.0) -> State:
        """The state after an update from expected counts."""
        messages = self._messages(Counts(heads, pairs, sums, 0.0), scale, scale, scale)
        if self.model.chain is not None:  # counts of states, not of the chain's
            guessed = self.model.chain.guessed(heads, pairs)
            messages |= {name: tuple(scale * part for part in parts) for name, parts in guessed.items()}
        prior = {name: self.full_prior(name) for name in self.blocks}
        return self.at({n: tuple(p + m for p, m in zip(prior[n], messages[n], strict=True)) for n in self.blocks})

    def weights(self, state: State) -> Weights:
        """Exp E log of everything; of the last moments, kept."""
        key = state.mu[next(iter(self.emitted))][0]
        if self._weights is None or self._weights[0] is not key:
            sent = self._moments_at(state, state.mu, self.truncated)
            made = sent.on(self._stretch(0, self.data.n_times)) if isinstance(sent, TrackWeights) else sent
            self._weights = (key, made)
        return self._weights[1]

    def _moments_at(self, state: State, mu: Mapping[str, Stats], truncated: bool) -> Weights | TrackWeights:
        """Exp of moments: those of q, or those of a point."""
        emission, initial, transition = self.model.emission, np.exp(mu["initial"][0]), np.exp(mu["transition"][0])
        here = self.places(state) if truncated else None
        if here is not None:
            initial, transition = initial[here], transition[np.ix_(here, here)]
        if isinstance(emission, Tracks):
            own = {name: mu[name] for name in self.emitted}
            if self.model.chain is not None:
                return TrackWeights(*self.model.chain.weights(mu), emission, own, *_places(self.model.chain))
            return TrackWeights(np.ascontiguousarray(initial), np.ascontiguousarray(transition), emission, own, here)
        forms = emission.weights(mu["emission"])
        return weights_of(emission, self.data, initial, transition, forms if here is None else forms[here])

    def places(self, state: State) -> Ints:
        """The states that are not at their prior."""
        differ = [
            np.reshape(np.moveaxis(g != p, own[0], 0), (self.model.n_states, -1)).any(1)
            for name, part in self.emitted.items()
            for g, p, own in zip(state.lam[name], self.empty_prior(name), part.axes, strict=True)
            if own
        ]
        first = (
            state.lam["initial"][0] != self.full_prior("initial")[0]
        )  # of times that are all missing nothing else says it
        return np.flatnonzero(np.logical_or.reduce([*differ, first]))

    def _spread(self, counts: Counts, places: Ints) -> Counts:
        """Counts of some states among those of all."""
        n_states, sums = self.model.n_states, counts.sums
        heads, pairs = np.zeros(n_states), np.zeros((n_states, n_states))
        heads[places], pairs[np.ix_(places, places)] = counts.heads, counts.pairs
        if not isinstance(self.model.emission, Tracks):  # what tracks are told is of all states
            sums = np.zeros((len(counts.sums), n_states))
            sums[:, places] = counts.sums
        return Counts(heads, pairs, sums, counts.log_z)

    def at_point(self, state: State) -> Weights:
        """The model itself at the mean of q."""
        sent = self.sent_at_point(state)
        return sent.on(self._stretch(0, self.data.n_times)) if isinstance(sent, TrackWeights) else sent

    def sent_at_point(self, state: State) -> Weights | TrackWeights:
        """The same without the weights of single times, where these are computed."""
        emission, lam = self.model.emission, state.lam
        point: Any = emission.point(own_of(emission, lam))
        chain = {n: b.family.mean(lam[n]) for n, b in self.blocks.items() if n not in self.emitted}
        if self.model.chain is not None and isinstance(emission, Tracks):
            stats = {name: self.blocks[name].family.stats_of(mean) for name, mean in chain.items()}
            return TrackWeights(*self.model.chain.weights(stats), emission, point, *_places(self.model.chain))
        if isinstance(emission, Tracks):
            return TrackWeights(chain["initial"], chain["transition"], emission, point)
        return weights_of(emission, self.data, chain["initial"], chain["transition"], emission.weights(point))

    def mean_transition(self, state: State) -> Floats:
        """E[A] of the chain's states."""
        if self.model.chain is not None:
            steps = self.sent_at_point(state).transition
            # With inputs: as if each came as often as the others.
            return steps if self.model.chain.inputs is None else np.asarray(steps / steps.sum(1, keepdims=True))
        return np.asarray(self.blocks["transition"].family.mean(state.lam["transition"]))

    @property
    def n_sums(self) -> int:
        """Rows of the kernels' sums."""
        if isinstance(self.model.emission, Tracks):
            return 0
        if len(self.data.codes) == 0:
            return n_statistics(self.model.emission.kind, self.data.values.shape[1], 0)
        if self.data.patterns is not None:
            return len(self.data.patterns)
        n_rows: int = self.model.emission.prior[0].shape[-1] + 2  # a missing one, and one that was never seen
        return n_rows

    def solve(self, state: State, groups: Ints | None, rows: Stats | None, tol: float, limit: int) -> GroupResult:
        """q(x) of some sequences, and what they tell."""
        numbers = np.arange(len(self.data)) if groups is None else np.asarray(groups)
        sent, calls = self._sent(state), []
        for shard, part, first in self._parts(numbers):
            calls.append((shard, (sent, self.data.ends[part] - first, self.data.lengths[part], self.n_sums)))
        counts = self._possible(sum_counts(self._counted(count_sequences, calls)))
        if self.truncated:
            counts = self._spread(counts, self.places(state))
        messages = self._messages(counts)
        times = int(self.data.lengths[numbers].sum())
        base = self.data.base * (1.0 if groups is None else times / self.data.n_times)
        return GroupResult(
            (), messages, counts.log_z + base - self._inner_with_moments(messages, state), 1, self._reads(times)
        )

    # -- shards --

    def shards(self, size: int) -> list[Segment | ShardSpec]:
        """The data cut so that batches of this many groups have enough times in each shard; a function of the data alone."""
        times = self.data.n_times * min(size, self.n_groups) // self.n_groups
        cuts = even_cuts(self.data.lengths, n_parts(times))
        self._cuts, self._begins = cuts, self.data.ends[cuts[:-1]]
        return self._cut(self._begins, self.data.ends[cuts[1:]])

    def _cut(self, begins: Ints, ends: Ints) -> list[Segment | ShardSpec]:
        """The times from each of these to each of those; of a file that is mapped, where they lie."""
        return [shard_in_files(Segment, *self._stretch(int(a), int(b))) for a, b in zip(begins, ends, strict=True)]

    def _stretch(self, begin: int, end: int) -> Segment:
        return Segment(self.data.codes[begin:end], self.data.values[begin:end], self.data.labels[begin:end])

    def _parts(self, chosen: Ints) -> Iterator[tuple[int, Ints, int]]:
        """The sorted groups of each shard that has some, and the first time of that shard."""
        if self.placed is None:
            yield 0, chosen, 0
            return
        ends = np.searchsorted(chosen, self._cuts)
        for shard, (a, b) in enumerate(pairwise(ends)):
            if a < b:
                yield shard, chosen[a:b], int(self._begins[shard])

    def _sent(self, state: State) -> Weights | TrackWeights:
        """The weights of a state without the data."""
        if isinstance(self.model.emission, Tracks):
            return self._moments_at(state, state.mu, self.truncated)
        return self.weights(state)._replace(**self._stretch(0, 0)._asdict())

    def _counted(self, function: Callable[..., Any], calls: list[Call]) -> list[Any]:
        """The function of the shards of all calls."""
        if self.placed is not None:
            return list(self.placed.run(function, calls))
        whole = self._stretch(0, self.data.n_times)
        return [function(whole, *arguments, self.n_jobs) for _, arguments in calls]

    # -- parts --

    def _messages(self, counts: Counts, heads: float = 1.0, pairs: float = 1.0, times: float = 1.0) -> dict[str, Stats]:
        """What counts tell each block, each kind of them multiplied."""
        sums, emission = counts.sums, self.model.emission
        if len(self.data.codes) and self.data.patterns is not None:
            sums = pattern_statistics(self.data.patterns).T @ sums
        told = emission.unflat(sums) if isinstance(emission, Tracks) else {"emission": emission.message(sums)}
        chain: dict[str, Stats] = {"initial": (counts.heads * heads,), "transition": (counts.pairs * pairs,)}
        if self.model.chain is not None and len(counts.heads) == len(self.model.chain.states):
            chain = self.model.chain.messages(counts.heads * heads, counts.pairs * pairs)
        return {**chain, **{name: tuple(part * times for part in parts) for name, parts in told.items()}}

    def _inner_with_moments(self, messages: Mapping[str, Stats], state: State) -> float:
        """Σ ⟨m, μ⟩."""
        return float(sum(
            np.sum(self.blocks[name].family.inner(messages[name], state.mu[name])) for name in self.blocks
        ))  # fmt: skip

    def _reads(self, times: int) -> int:
        return 2 * self.model.n_states * times

    def _possible(self, counts: Counts) -> Counts:
        """The counts, if some path is possible."""
        if not np.isfinite(counts.log_z):
            raise ValueError(
                f"no path of states is possible: log Z is {counts.log_z}. Labels contradict the transitions that "
                "Transitions forbids (zeros), or X has values beyond what floats can hold"
            )
        return counts


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
