"""Numbers of bins and states in; binary tracks of marks along chromosomes, and the states that made them, out.

States follow a Markov chain of long stays; in each state a mark is present with a chance of its own (Ernst and Kellis, 2012:
the model of ChromHMM). A few states show no mark or hardly any, as most of a genome does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Chromatin", "make_chromatin"]

Floats = npt.NDArray[np.float64]
# A state shows two to four marks with these chances, the others with the chances of a stray read.
SHOWN, STRAY = (0.5, 0.95), (0.005, 0.05)


class Chromatin(NamedTuple):
    """Binary tracks of marks, and what made them.

    Attributes
    ----------
    tracks : uint8 [bins, marks], 1 where a mark is present; the chromosomes end to end
    lengths : int64 [chromosomes], bins of each
    states : int64 [bins], the hidden state
    initial : array [K], transition : array [K, K], rows sum to 1
    emissions : array [K, marks], the chance of each mark in each state
    """

    tracks: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int64]
    states: npt.NDArray[np.int64]
    initial: Floats
    transition: Floats
    emissions: Floats


def make_chromatin(
    n_bins: int = 20_000,
    n_states: int = 5,
    n_marks: int = 10,
    *,
    n_chromosomes: int = 4,
    stay: float = 20.0,
    seed: int = 0,
) -> Chromatin:
    """Tracks of marks along chromosomes with known states.

    Parameters
    ----------
    n_bins, n_states, n_marks : int
        Bins of all chromosomes together.
    n_chromosomes : int
        Chains of their own, of unequal lengths.
    stay : float
        Mean number of bins that a state lasts; the first state, without marks, lasts three times as long.
    seed : int
        The same numbers give the same data.

    Examples
    --------
    >>> genome = make_chromatin(n_bins=1000, n_states=3, n_marks=6)
    >>> genome.tracks.shape, int(genome.lengths.sum())
    ((1000, 6), 1000)
    >>> genome.transition.sum(axis=1).round(12).tolist()
    [1.0, 1.0, 1.0]
    """
    if not stay > 1:
        raise ValueError(f"stay must be > 1, got {stay!r}: it is a mean number of bins")
    rng = np.random.default_rng(seed)
    emissions = rng.uniform(*STRAY, (n_states, n_marks))
    for k in range(1, n_states):
        chosen = rng.permutation(n_marks)[: rng.integers(2, 5)]
        emissions[k, chosen] = rng.uniform(*SHOWN, len(chosen))
    leave = 1.0 / np.where(np.arange(n_states) == 0, 3.0 * stay, stay)
    transition = _transition(rng, leave)
    initial = rng.dirichlet(np.ones(n_states))
    lengths = _lengths(rng, n_bins, n_chromosomes)
    states = np.concatenate([_path(rng, initial, transition, int(length)) for length in lengths])
    tracks = (rng.random((n_bins, n_marks)) < emissions[states]).astype(np.uint8)
    return Chromatin(tracks, lengths, states, initial, transition, emissions)


def _transition(rng: np.random.Generator, leave: Floats) -> Floats:
    """Rows that stay with 1 − leave, and go elsewhere with random preferences."""
    n_states = len(leave)
    if n_states == 1:
        return np.ones((1, 1))
    away = rng.gamma(1.0, size=(n_states, n_states)) + 0.05
    np.fill_diagonal(away, 0.0)
    away *= (leave / away.sum(axis=1))[:, None]
    np.fill_diagonal(away, 1.0 - leave)
    return np.asarray(away, dtype=np.float64)


def _lengths(rng: np.random.Generator, n_bins: int, n_chromosomes: int) -> npt.NDArray[np.int64]:
    """At least one bin each, the rest shared at random."""
    shares = rng.dirichlet(np.full(n_chromosomes, 5.0))
    return np.asarray(1 + rng.multinomial(n_bins - n_chromosomes, shares), dtype=np.int64)


def _path(rng: np.random.Generator, initial: Floats, transition: Floats, length: int) -> npt.NDArray[np.int64]:
    threshold = np.cumsum(transition, axis=1)
    draws = rng.random(length)
    state = int(rng.choice(len(initial), p=initial))
    path = np.empty(length, dtype=np.int64)
    for t in range(length):
        path[t] = state
        # The last threshold may have been rounded below 1.
        state = min(int(np.searchsorted(threshold[state], draws[t], side="right")), len(initial) - 1)
    return path
