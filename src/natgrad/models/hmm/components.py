"""The states of a hidden Markov model for `natgrad.inference.moves`: times of a state, split by what was seen at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.io.npy import RowWriter
from natgrad.data.sequences import Sequences
from natgrad.inference.group_components import Birth, GroupComponents, restricted, settled
from natgrad.inference.problem import State
from natgrad.kmeans import k_means, nearest
from natgrad.models.clusters import scaled_natural
from natgrad.models.hmm.forward_backward import count, whole_sequences
from natgrad.models.hmm.problem import HMMModel, SequenceProblem
from natgrad.models.hmm.start import rows_at, sliced, sums_of
from natgrad.models.hmm.tracks import Tracks, parts_of
from natgrad.random import Stream, generator

__all__ = ["HMMComponents", "found_states", "with_states"]

Floats = npt.NDArray[np.float64]
# Parts of a state that are tried, each with the times on either side that are averaged: states that last show in the mean of
# neighbours what no single symbol tells. Sweeps of each on a slice of the data, and the least times that are split.
WAYS, SWEEPS, LEAST_HELD = ((2, 0), (2, 4), (4, 0), (4, 4)), 8, 4.0
# Nats that a sweep gains when it is the last.
LITTLE = 0.1
# Nats that a split may be behind after these sweeps, and still be worth more of them.
BEHIND = 20.0
# Times among which clusters are looked for.
CANDIDATES = 4_000


class HMMComponents(GroupComponents):
    """States of a `SequenceProblem`; ``problem.truncated`` keeps those at their prior empty."""

    problem: SequenceProblem

    def __init__(self, problem: SequenceProblem) -> None:
        emitted = {name: part.axes for name, part in problem.emitted.items()}
        axes = {"initial": ((0,),), "transition": ((0, 1),), **emitted}
        super().__init__(problem, "state", problem.model.n_states, axes, tuple(emitted))
        self._last: tuple[State, tuple[SequenceProblem, State, Floats, Floats]] | None = None
        self._alone: tuple[State, float] | None = None

    def held(self, state: State) -> Floats:
        """Times in each state: first ones, and those that a transition led to."""
        told = self.told(state)
        return np.asarray(told["initial"][0] + told["transition"][0].sum(0))

    def split(
        self, state: State, k: int, empty: Sequence[int], number: int, seed: int, *, goal: float = -np.inf
    ) -> Birth | None:
        """The best of some ways, by the bound after some sweeps of a slice of the data."""
        held = float(self.held(state)[k])
        rng = generator(seed, Stream.MOVES, state.t, k, number)
        whole = self.problem
        part, here, states, rows = self._looked_at(state, rng)
        factor = part.data.n_times / whole.data.n_times
        own = np.flatnonzero(states[:, k] > 0.5)
        best = None
        after_merge = len(empty) == 1 and part.data is whole.data  # then the bound says all
        # One place, as after a merge: one way, and the other one next time.
        ways = WAYS if len(empty) > 1 else WAYS[1:2] if number % 2 == 0 else WAYS[:1]
        for size, width in ways:
            places = [k, *empty[: size - 1]]
            if len(places) < size or min(held, len(own)) < LEAST_HELD * size:
                continue
            seen = own if len(own) <= CANDIDATES else rng.choice(own, CANDIDATES, replace=False)
            near = _averaged(rows, part.data.ends, width)
            labels = nearest(near, k_means(near[seen], size, rng, trials=1))
            if len(np.unique(labels[own])) < size:
                continue
            begun = _split_state(part, states, places, labels)
            bound, settled_state = settled(part, begun, SWEEPS, LITTLE, goal=goal if after_merge else -np.inf)
            if best is None or bound > best[0]:
                best = bound, settled_state, places
        if best is None:
            return None
        after = whole.at(scaled_natural(part, best[1], 1.0 / factor), state.t)
        if after_merge:
            return Birth(after, float("nan"), tuple(best[2][1:]), best[0])
        base = self._unsplit(part, here)
        gain = (best[0] - base) / factor if best[0] > base else float("nan")
        return Birth(after, gain if best[0] > base - BEHIND else float("-inf"), tuple(best[2][1:]))

    def _looked_at(self, state: State, rng: np.random.Generator) -> tuple[SequenceProblem, State, Floats, Floats]:
        """A slice of the data, the state there, q(x_t) and rows of its times.

        The same for all splits of a state where everything is one slice: of the last state, kept.
        """
        if self._last is not None and self._last[0] is state:
            return self._last[1]
        whole = self.problem
        data = sliced(whole.data, rng)
        part = SequenceProblem(data, whole.model, n_jobs=whole.n_jobs, truncated=True)
        part.past = whole.past
        here = part.at(scaled_natural(part, state, data.n_times / whole.data.n_times), state.t)
        looked_at = part, here, _marginals(part, here), rows_at(data, whole.model.emission)
        self._last = (state, looked_at) if data is whole.data else None
        return looked_at

    def _unsplit(self, part: SequenceProblem, here: State) -> float:
        """The bound of a slice without a split; of the last state, kept."""
        if self._alone is None or self._alone[0] is not here:
            self._alone = here, settled(part, here, SWEEPS, LITTLE)[0]
        return self._alone[1]


def _marginals(part: SequenceProblem, state: State) -> Floats:
    """q(x_t) of all times [T, K]."""
    weights, places = part.weights(state), part.places(state)
    with RowWriter(None, (part.data.n_times, len(places)), np.float64) as rows:
        count(weights, whole_sequences(weights, part.data, None, part.n_jobs), part.n_sums, part.n_jobs, rows)
    out = np.zeros((part.data.n_times, part.model.n_states))
    out[:, places] = rows.result
    return out


def _averaged(rows: Floats, ends: Any, width: int) -> Floats:
    """The mean of each row and so many on either side, in its own sequence."""
    if width == 0:
        return rows
    sums = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, 0)])
    times, sizes = np.arange(len(rows)), np.diff(ends)
    first = np.maximum(times - width, np.repeat(ends[:-1], sizes))
    last = np.minimum(times + width + 1, np.repeat(ends[1:], sizes))
    return np.asarray((sums[last] - sums[first]) / (last - first)[:, None])


def _split_state(part: SequenceProblem, states: Floats, places: list[int], labels: Any) -> State:
    """The state in which the times of one state are shared out by their labels; pairs as if times were independent."""
    k, new = places[0], states.copy()
    new[:, places] = states[:, [k]] * (labels[:, None] == np.arange(len(places)))
    inside = np.ones(len(new), bool)
    inside[part.data.ends[:-1]] = False
    later = np.flatnonzero(inside)
    pairs = new[later - 1].T @ new[later]
    return part.from_counts(new[part.data.ends[:-1]].sum(0), pairs, sums_of(part, new))


def found_states(model: HMMModel, state: State) -> tuple[HMMModel, State]:
    """Priors and state of the states that hold something alone, the most frequent first."""
    nothing = Sequences(np.zeros(0, np.uint8), np.zeros((0, 1)), np.zeros(1, np.int64))
    components = HMMComponents(SequenceProblem(nothing, model))
    held = components.held(state)
    order = np.argsort(-held, kind="stable")
    order = order[components.active(state)[order]]
    lam = dict(state.lam)
    lam["initial"] = (state.lam["initial"][0][order],)
    lam["transition"] = (state.lam["transition"][0][np.ix_(order, order)],)
    own = with_states(model.emission, len(order))
    fewer = HMMModel(model.initial[order], model.transition[np.ix_(order, order)], own)
    after = SequenceProblem(nothing, fewer)
    for name, part in parts_of(model.emission).items():
        priors = components.problem.full_prior(name), after.full_prior(name)
        lam[name] = restricted(state.lam[name], part.axes, order, *priors)
    return fewer, after.at(lam, state.t)


def with_states(emission: Any, n_states: int) -> Any:
    """The emission with its prior, of so many states."""
    if isinstance(emission, Tracks):
        return emission.with_states(n_states)
    return type(emission)(**{**emission.arguments, "n_states": n_states})
