"""Where a hidden Markov model starts: several guesses, each improved on a slice of the data and ranked by its bound there.

Local optima decide over the quality of a fit, far more than the last digits of the bound. A guess puts the times of the slice
into K clusters by k-means++ (of values; of the frequencies nearby, for categories) and counts states and
pairs as if they were known.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.sequences import Sequences
from natgrad.inference.problem import State
from natgrad.inference.proposals import Starts
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.inference.steppers.stepper import Stepper
from natgrad.kernels.hmm.emissions import BY_COLUMN, TABLE
from natgrad.kmeans import k_means, nearest, spread_out
from natgrad.models.clusters import CERTAIN, SWEEPS, scaled_natural, standard_columns
from natgrad.models.hmm.forward_backward import n_threads, pattern_statistics
from natgrad.models.hmm.priors import FORBIDDEN
from natgrad.models.hmm.problem import HMMModel, SequenceProblem
from natgrad.models.hmm.tracks import Track, Tracks
from natgrad.random import Stream, generator

__all__ = ["rows_at", "sliced", "start_of_one", "starts_of", "sums_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Times of the slice, from this many places of the data.
SLICE, PLACES = 20_000, 5
# Rows among which centres are drawn.
CANDIDATES = 4_000
# Sweeps of all guesses together, for each of them. What begins slowly may end 30 nats higher: of 36 chains, fits end 5.5 nats
# below the best of 24 guesses on average if eight guesses are means of clusters and the better half goes on each time (15 sweeps
# a guess); 2.7 nats if every other one is of points and all go on that may overtake; 2.3 without a limit (50 sweeps a guess).
SWEEPS_PER_START = 30
# Times on each side whose categories make up a row.
NEARBY = 12


def starts_of(data: Sequences, model: HMMModel, seed: int, n_init: int, n_jobs: int | None) -> Starts:
    """``n_init`` guesses from a slice of the data; the best of them is scaled to all."""
    part = sliced(data, generator(seed, Stream.START))
    problem = SequenceProblem(part, model, n_jobs=1)
    rows = rows_at(part, model.emission)

    def guess(number: int) -> State:
        return _guess(problem, rows, model.n_states, generator(seed, Stream.START, number), bool(number % 2))

    def stepper(number: int) -> Stepper:
        own = SequenceProblem(part, model, n_jobs=1)  # keeps the weights of one state: not to be shared by threads
        return GroupStepper(own, own.n_groups, *own.local_limits, remember=True)

    return Starts(
        problem,
        [partial(guess, number) for number in range(n_init)],
        stepper,
        SWEEPS,
        lambda state: _scaled(problem, state, data.n_times / part.n_times),
        SWEEPS_PER_START * n_init,
        n_threads(n_jobs),
    )


def start_of_one(problem: SequenceProblem) -> State:
    """The first of all states at every time; the others at their prior."""
    data, n_states = problem.data, problem.model.n_states
    states = np.zeros((data.n_times, n_states))
    states[:, 0] = 1.0
    heads, pairs = np.zeros(n_states), np.zeros((n_states, n_states))
    heads[0], pairs[0, 0] = len(data), data.n_times - len(data)
    return problem.from_counts(heads, pairs, sums_of(problem, states))


def sliced(data: Sequences, rng: np.random.Generator) -> Sequences:
    """A few long stretches from all over the data, at most SLICE times; everything if there is no more."""
    if data.n_times <= SLICE:
        return data
    length = SLICE // PLACES
    begins = np.linspace(0, data.n_times - length, PLACES).astype(int)
    begins[1:-1] += rng.integers(0, max(1, (data.n_times - PLACES * length) // (2 * PLACES)), PLACES - 2)
    cuts = [data.cut(int(b), int(b) + length) for b in begins]
    lengths = np.concatenate([part.lengths for part in cuts])
    codes, values, labels = (
        np.concatenate([getattr(part, name) for part in cuts]) for name in ("codes", "values", "labels")
    )
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return replace(data, codes=codes, values=values, labels=labels, ends=ends, base=sum(part.base for part in cuts))


def rows_at(part: Sequences, emission: Any = None) -> Floats:
    """A row of features for each time, columns of variance 1, missing ones at the mean."""
    if isinstance(emission, Tracks):
        return np.hstack([_track_rows(part, track, place) for track, place in emission.each()])
    if len(part.codes) == 0:
        rows = part.values.astype(np.float64)
    elif part.patterns is not None:
        rows = part.patterns[part.codes]
    else:
        rows = _nearby(part, part.codes)
    return standard_columns(rows)


def _track_rows(part: Sequences, track: Track, place: slice) -> Floats:
    values = np.asarray(part.values[:, place], np.float64)
    if track.emission.kind == TABLE:
        values = _nearby(part, values[:, 0].astype(np.int64))
    return standard_columns(values)


def _nearby(part: Sequences, codes: Any) -> Floats:
    """Frequencies of categories around each time of its own sequence, and the category itself."""
    n_codes = int(codes.max()) + 1
    here = np.zeros((part.n_times, n_codes))
    here[np.arange(part.n_times), codes] = 1.0
    sums = np.vstack([np.zeros(n_codes), np.cumsum(here, axis=0)])
    time = np.arange(part.n_times)
    first, end = (np.repeat(at, part.lengths) for at in (part.ends[:-1], part.ends[1:]))
    high, low = np.minimum(time + NEARBY + 1, end), np.maximum(time - NEARBY, first)
    return np.hstack([(sums[high] - sums[low]) / (high - low)[:, None], 0.3 * here])


def _guess(problem: SequenceProblem, rows: Floats, n_states: int, rng: np.random.Generator, points: bool) -> State:
    """Clusters as if they were states; around single ``points``, or around means, which ignore what varies little."""
    data = problem.data
    if np.tril(problem.model.transition, -1).max(initial=0.0) <= FORBIDDEN and n_states > 1:
        labels = _segments(data, n_states, rng)
    else:
        some = rows[rng.choice(len(rows), min(CANDIDATES, len(rows)), replace=False)]
        centres = spread_out(some, n_states, rng, greedy=False) if points else k_means(some, n_states, rng, trials=1)
        labels = nearest(rows, centres)
    if len(data.labels):
        labels = _labelled(labels, data.labels, n_states)
    states = np.full((data.n_times, n_states), (1.0 - CERTAIN) / n_states)
    states[np.arange(data.n_times), labels] += CERTAIN
    pairs = np.zeros((n_states, n_states))
    inside = np.ones(data.n_times, bool)
    inside[data.ends[:-1]] = False
    later = np.flatnonzero(inside)
    np.add.at(pairs, (labels[later - 1], labels[later]), CERTAIN)
    pairs += (1.0 - CERTAIN) * len(later) / n_states**2
    heads = np.where(problem.model.initial > FORBIDDEN, states[data.ends[:-1]].sum(0), 0.0)
    allowed = problem.model.transition.reshape(-1, n_states, n_states)[0] > FORBIDDEN  # the same whatever the input
    pairs = np.where(allowed, pairs, 0.0)
    return problem.from_counts(heads, pairs, sums_of(problem, states, rng))


def _segments(data: Sequences, n_states: int, rng: np.random.Generator) -> Ints:
    """Left to right: every sequence cut into one segment for each state, at random."""
    states = np.empty(data.n_times, np.int64)
    for begin, end in zip(data.ends[:-1], data.ends[1:], strict=True):
        shares = np.cumsum(rng.dirichlet(np.full(n_states, 5.0)))
        states[begin:end] = np.searchsorted(shares, (np.arange(end - begin) + 0.5) / (end - begin))
    return np.minimum(states, n_states - 1)


def _labelled(clusters: Ints, labels: npt.NDArray[np.int32], n_states: int) -> Ints:
    """Clusters renamed after the labels that they share most times with, and labels themselves where they are known."""
    from scipy.optimize import linear_sum_assignment  # a fifth of a second

    known = labels >= 0
    table = np.zeros((n_states, n_states))
    np.add.at(table, (clusters[known], labels[known]), 1.0)
    _, name = linear_sum_assignment(-table)
    return np.where(known, labels, name[clusters])


def sums_of(problem: SequenceProblem, states: Floats, rng: np.random.Generator | None = None) -> Floats:
    """Statistics weighted with states, as the kernels sum them."""
    data, emission = problem.data, problem.model.emission
    if isinstance(emission, Tracks):
        own = np.random.default_rng(0) if rng is None else rng
        told: dict[str, Any] = {}
        for track, place in emission.each():
            member = _members(track, _track_rows(data, track, place), states, own)
            told |= track.clustered(np.asarray(data.values[:, place], np.float64), member)
        return emission.flat(told)
    if len(data.codes):
        out = np.zeros((problem.n_sums, states.shape[1]))
        np.add.at(out, data.codes, states)
        return out
    if problem.model.emission.kind == BY_COLUMN:
        return np.asarray(pattern_statistics(data.values.astype(np.float64)).T @ states)
    values = data.values.astype(np.float64)
    seen = np.asarray(~np.isnan(values).any(1))
    clean = np.where(seen[:, None], values, 0.0)
    rows, columns = np.triu_indices(values.shape[1])
    return np.vstack([seen @ states, clean.T @ states, (clean[:, rows] * clean[:, columns]).T @ states])


def _members(track: Track, rows: Floats, states: Floats, rng: np.random.Generator) -> Floats:
    """Times of each state shared out among its components, by clusters of their own [T, L]."""
    m = track.n_components
    if m == 1:
        return states
    out = np.repeat(states[:, :, None] * ((1.0 - CERTAIN) / m), m, axis=2)
    for k in range(states.shape[1]):
        own = np.flatnonzero(states[:, k] > 0.5)
        if len(own) >= m:
            few = own if len(own) <= CANDIDATES else rng.choice(own, CANDIDATES, replace=False)
            cluster = nearest(rows, k_means(rows[few], m, rng, trials=1))
            out[np.arange(len(rows)), k, cluster] += CERTAIN * states[:, k]
        else:
            out[:, k] = states[:, [k]] / m
    return out.reshape(len(states), -1)


def _scaled(problem: SequenceProblem, state: State, factor: float) -> State:
    """The state that ``factor`` times as much of the same data would give."""
    lam = scaled_natural(problem, state, factor)
    lam["initial"] = state.lam["initial"]  # the number of sequences does not grow with their length
    return problem.at(lam)
