"""One side's ratings and the calls of its kernels: new rows, targets, errors and predictions of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.kernels import rating_blocks as kernels
from natgrad.kernels.rating_gather import gather_rows, pack

__all__ = ["ItsRatings", "Moved", "add_sampled", "pair_moments", "run_alone"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
# What all threads read of the other side at a time, and what they sum up at a time, in numbers of 8 bytes: together about a
# third of what a processor's last cache holds today, since others use it too.
BLOCK, SCRATCH = 2**19, 2**20
# Runs of rows are cut into pieces of about equal work: enough to balance threads whatever their number. They depend on the data
# alone, so that results do not depend on the threads. A row's own work is that of so many ratings; fewer than
# ``LEAST_RATINGS`` in all are not worth a second thread.
PIECES, OF_A_ROW, LEAST_RATINGS = 32, 50, 10_000
EVERYWHERE = np.ones(1)


class Moved(NamedTuple):
    """A side after an update: λ, moments, log |Λ| and Σ E[t] E[(r − …)²] of each row."""

    lam: Pair
    mu: Pair
    log_det: Floats
    errors: Floats


class ItsRatings:
    """The ratings of every row of one side.

    Parameters
    ----------
    rows : RatingsRows, sorted
    biased : bool
        Whether the last number of a vector is a bias.
    offset : float
        What is taken off every rating.
    trust : array [n], optional
        A factor of the noise precision of each rating, in the order of the rows.
    """

    def __init__(self, rows: RatingsRows, biased: bool, offset: float = 0.0, trust: Floats | None = None) -> None:
        self.rows, self.biased, self.offset = rows, biased, offset
        self.trust = EVERYWHERE if trust is None else trust

    @property
    def n_rows(self) -> int:
        """Users, or items."""
        return len(self.rows.start) - 1

    def sweep(
        self,
        other: Pair,
        other_weight: Floats,
        own_weight: Floats,
        prior: Floats,
        pull: Floats,
        tau: float,
        rho: float,
        lam: Pair,
    ) -> Moved:
        """Every row at its optimum given the other side, or ρ of the way to it."""
        n_rows, size = lam[0].shape
        new = Moved(
            (np.empty((n_rows, size)), np.empty((n_rows, size, size))),
            (np.empty((n_rows, size)), np.empty((n_rows, size, size))),
            np.empty(n_rows),
            np.empty(n_rows),
        )
        numbers = own_weight, prior, pull, tau, self.biased, rho
        for pieces, sums in self._gathered(other, other_weight):
            self._run(kernels.sweep_rows, pieces, sums, *numbers, *lam, *new.lam, *new.mu, new.log_det, new.errors)
        return new

    def errors(self, own: Pair, other: Pair, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        out = np.empty(len(own[0]))
        for pieces, sums in self._gathered(other, other_weight):
            self._run(kernels.errors_of_rows, pieces, sums, self.biased, *own, out)
        return out

    def add_targets(self, other: Pair, other_weight: Floats, scale: Floats, out: Pair) -> None:
        """Add the messages of all ratings."""
        for pieces, sums in self._gathered(other, other_weight):
            self._run(kernels.targets_of_rows, pieces, sums, scale, self.biased, *out)

    def _gathered(self, other: Pair, other_weight: Floats) -> Iterator[tuple[Ints, Floats]]:
        """Runs of rows, cut into pieces, and the sums of their ratings; the array of the sums is used again."""
        tell = _packed(other)
        width, size = tell.shape[1], other[0].shape[1]
        n_rows = self.n_rows
        per_run = max(1, min(n_rows, SCRATCH // width))
        sums = np.empty((per_run, width + size + 3))
        block = max(1, BLOCK // width)
        for first in range(0, n_rows, per_run):
            pieces = self._pieces(first, min(first + per_run, n_rows))
            self._run(gather_rows, pieces, *self.rows[:3], self.offset, self.trust, tell, other_weight, block, sums)
            yield pieces, sums

    def _pieces(self, first: int, last: int) -> Ints:
        """Where a run of rows is cut."""
        if self._is_small:
            return np.array([first, last])
        work = self.rows.start[first : last + 1] + OF_A_ROW * np.arange(last - first + 1)
        inner = np.searchsorted(work, np.linspace(work[0], work[-1], PIECES + 1)[1:-1])
        return np.unique(np.concatenate([[first], first + inner, [last]]))

    @property
    def _is_small(self) -> bool:
        return len(self.rows.values) < LEAST_RATINGS

    def _run(self, kernel: Callable[..., None], *arguments: Any) -> None:
        if self._is_small:
            run_alone(kernel, *arguments)
        else:
            kernel(*arguments)


def run_alone(kernel: Callable[..., None], *arguments: Any) -> None:
    """A kernel in this thread: where there is little to do, others would only be waited for."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        kernel(*arguments)
    finally:
        numba.set_num_threads(before)


def add_sampled(
    own: npt.NDArray[Any],
    other: npt.NDArray[Any],
    values: Floats,
    scale: Floats,
    moments: Pair,
    biased: bool,
    out: Pair,
) -> None:
    """Add the scaled messages of some ratings to the targets of their rows; ``moments`` are those of the other side."""
    kernels.sampled_rows(own, other, values, scale, _packed(moments), biased, *out)


def pair_moments(own: npt.NDArray[Any], other: npt.NDArray[Any], mine: Pair, theirs: Pair, biased: bool) -> Pair:
    """Mean and variance of u·v + b + c for pairs of rows."""
    out = np.empty(len(own)), np.empty(len(own))
    kernels.pair_moments(own.astype(np.int64), other.astype(np.int64), *mine, *theirs, biased, *out)
    return out


def _packed(moments: Pair) -> Floats:
    n_rows, size = moments[0].shape
    tell = np.empty((n_rows, size * (size + 1) // 2 + size))
    pack(*moments, tell)
    return tell
