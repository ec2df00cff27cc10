"""Random numbers as functions of the seed and of their place in a run; draws without replacement, many rows at once."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import numpy.random  # NumPy would import it at the first draw, inside the first fit
import numpy.typing as npt

__all__ = ["Stream", "draw_rows", "generator", "sample_generator"]

Ints = npt.NDArray[np.int64]
# Floyd's method compares each draw with the earlier ones of its row: quadratic in the draws, so only for few.
MOST_FLOYD_DRAWS = 64


@enum.unique
class Stream(enum.IntEnum):
    """What random numbers are for, where that is not the step itself: each use has a number of its own, far from any step."""

    START = 2**31 - 1
    BATCH_CUT = 2**31 - 2
    BATCH_ORDER = 2**31 - 3
    GIBBS = 2**31 - 4
    OBSERVATION_ORDER = 2**31 - 5
    STREAM_ORDER = 2**31 - 6
    CHILD_ORDER = 2**31 - 8
    NEGATIVES = 2**31 - 9
    PROBE = 2**31 - 10
    DRAWS = 2**31 - 11
    SIMULATION = 2**31 - 12
    MOVES = 2**31 - 13
    HELD_OUT = 2**31 - 14


def generator(seed: int, *where: int) -> np.random.Generator:
    """The random numbers of one place in a run: the same (seed, t, block, …) gives the same numbers, always."""
    return np.random.default_rng([seed, *where])


def sample_generator(rng: Any, n: Any, what: str) -> np.random.Generator:
    """The generator of ``sample(rng, n)`` of a posterior, both checked.

    ``sample(1000)`` is refused: it reads as a thousand draws, and would be one, with a seed.

    Examples
    --------
    >>> sample_generator(0, 5, "'mu'").random() == np.random.default_rng(0).random()
    True
    """
    seeded = isinstance(rng, (int, np.integer)) and not isinstance(rng, bool)
    if n is None and seeded and rng >= 0:
        raise TypeError(
            f"{what}: sample({rng}) could be {rng} draws, or one draw with the seed {rng}: write sample(n={rng}), "
            f"sample({rng}, n=1), or sample(np.random.default_rng({rng}))"
        )
    if n is not None and (isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1):
        raise ValueError(f"{what}: n must be a whole number of draws ≥ 1, or None for a single one, got {n!r}")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise TypeError(
            f"{what}: rng must be a generator of NumPy, a whole number ≥ 0 that seeds one, or None, got {rng!r}; n= says how "
            "many draws"
        ) from None


def draw_rows(rng: np.random.Generator, start: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """For each row r, ``counts[r]`` positions of ``start[r] … start[r+1]`` without replacement.

    Parameters
    ----------
    rng : Generator
    start : ints [R + 1], row boundaries
    counts : ints [R], at most the length of each row

    Returns
    -------
    positions, rows : ints [Σ counts], in order of rows
    """
    lengths = np.diff(start)
    rows = np.repeat(np.arange(len(counts)), counts)
    if np.array_equal(lengths, counts):
        return np.arange(start[-1]), rows
    most = int(counts.max(initial=0))
    if most > MOST_FLOYD_DRAWS:
        return _by_sorting(rng, start, counts), rows
    chosen = np.full((len(counts), most), -1)
    # Floyd: draw j-th from 0 … n − c + j; if taken already, take n − c + j itself.
    for j in range(most):
        top = lengths - counts + j
        draw = np.floor(rng.random(len(counts)) * (top + 1)).astype(np.int64)
        taken = (chosen[:, :j] == draw[:, None]).any(axis=1)
        chosen[:, j] = np.where(taken, top, draw)
    wanted = np.arange(most)[None, :] < counts[:, None]
    return (chosen + start[:-1, None])[wanted], rows


def _by_sorting(rng: np.random.Generator, start: Ints, counts: Ints) -> Ints:
    lengths = np.diff(start)
    row = np.repeat(np.arange(len(lengths)), lengths)
    shuffled = np.lexsort((rng.random(int(start[-1])), row))
    rank = np.arange(int(start[-1])) - np.repeat(start[:-1], lengths)
    return shuffled[rank < np.repeat(counts, lengths)]
