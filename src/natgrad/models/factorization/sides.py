"""One side's ratings and the calls of its kernels: new rows, targets, errors and predictions of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.families.natural_step import blend, distance, size_of
from natgrad.inference.problem import Block, BlockInfo, State
from natgrad.kernels.factorization import blocks as kernels
from natgrad.kernels.factorization import plain
from natgrad.kernels.factorization.draws import draw_side, squared_errors
from natgrad.kernels.factorization.gather import gather_rows, pack, unpack
from natgrad.kernels.factorization.pairs import linear_forms, moments_of_columns, moments_of_rows
from natgrad.threads import Shared, at_most, is_little

__all__ = [
    "OTHER",
    "PLATE",
    "Drawn",
    "Moved",
    "SideRatings",
    "SweepInputs",
    "Zeros",
    "add_sampled",
    "aligned",
    "blended_block",
    "empty_rows",
    "owned",
    "packed",
    "pair_moments",
    "run_alone",
    "unpacked",
]

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
EVERYWHERE, NOWHERE = np.ones(1), np.zeros(1)
# Users are "u", items "v".
OTHER = {"u": "v", "v": "u"}
PLATE = {"u": "user", "v": "item"}


class Moved(NamedTuple):
    """A side after an update: λ, moments, log |Λ| and Σ E[t] E[(r − …)²] of each row."""

    lam: Pair
    mu: Pair
    log_det: Floats
    errors: Floats


class Drawn(NamedTuple):
    """A side after a draw: rows, their conditional means (or none), and M, g of what ratings say of scales c of its numbers.

    log p(r | c) = −½ cᵀ M c + gᵀ c + const, where x_k of all rows is multiplied by c_k.
    """

    x: Floats
    mean: Floats
    matrix: Floats
    vector: Floats


class SweepInputs(NamedTuple):
    """What an update of some rows reads: packed moments and noise of the other side, their own noise, the prior, τ and ρ."""

    tell: Floats
    other_weight: Floats
    own_weight: Floats
    prior: Floats
    pull: Floats
    tau: float
    rho: float


class Zeros(NamedTuple):
    """Weights with which the zeros of all pairs count, c_ij = own_i · other_j; a stored pair counts as its rating alone."""

    own: Floats
    other: Floats

    def rows(self, first: int, last: int) -> Zeros:
        """Return those of a run of rows."""
        return Zeros(self.own[first:last], self.other)

    def of_stored(self, rows: RatingsRows) -> Floats:
        """Return the weight of each stored pair."""
        return np.asarray(np.repeat(self.own, np.diff(rows.start)) * self.other[rows.other])


class RemoteSide(Protocol):
    """The same rows, computed by others."""

    def swept(self, sent: SweepInputs, lam: Pair) -> Moved:
        """Every row at its optimum given the other side, or ρ of the way to it."""
        ...

    def errors_told(self, own: Pair, tell: Floats, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        ...


class SideRatings:
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
    zeros : Zeros, optional
        What each pair that is not stored counts as an observed zero, in parts of a stored one; without it they do not count.
    n_all : int, optional
        Ratings and rows of the whole side, where these are a run of its rows: whether NumPy or a kernel computes is a matter of
        all of them, so that runs have the bits of the whole.
    """

    def __init__(
        self,
        rows: RatingsRows,
        biased: bool,
        offset: float = 0.0,
        trust: Floats | None = None,
        n_all: int | None = None,
        zeros: Zeros | None = None,
    ) -> None:
        self.rows, self.biased, self.offset, self.zeros = rows, biased, offset, zeros
        self.less = NOWHERE if zeros is None else zeros.of_stored(rows)
        self.n_all = len(rows.values) + len(rows.start) if n_all is None else n_all
        self.trust = EVERYWHERE if trust is None else trust
        # Who computes, while that is not this process.
        self.elsewhere: RemoteSide | None = None

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
        # Threads look out for more work for a while after they are done, and those who send would wait for them.
        sent = SweepInputs(
            packed(other, alone=self.elsewhere is not None), other_weight, own_weight, prior, pull, tau, rho
        )
        return self.swept(sent, lam) if self.elsewhere is None else self.elsewhere.swept(sent, lam)

    def swept(self, sent: SweepInputs, lam: Pair) -> Moved:
        """As `sweep`, here, with the moments of the other side packed."""
        new, width = empty_rows(*lam[0].shape), sent.tell.shape[1]
        numbers = sent.own_weight, sent.prior, sent.pull, sent.tau, self.biased, sent.rho
        for pieces, sums in self._gathered(sent.tell, sent.other_weight, lam[0].shape[1]):
            self._run(
                kernels.sweep_rows, width, pieces, sums, *numbers, *lam, *new.lam, *new.mu, new.log_det, new.errors
            )
        return new

    def drawn(
        self,
        other: Floats,
        other_weight: Floats,
        scale: Floats,
        prior: Floats,
        pull: Floats,
        noise: Floats,
        *,
        means: bool,
        tells: bool,
    ) -> Drawn:
        """Every row drawn given values of the other side, by standard normal numbers; ``tells``: with M and g."""
        (n_rows, size), rows, pieces = noise.shape, self.rows, self._pieces(0, self.n_rows)
        x, mean = np.empty((n_rows, size)), np.empty((n_rows if means else 0, size))
        told = np.empty((len(pieces) - 1 if tells else 0, size, size + 1))
        draw_side(
            pieces, rows.start, rows.other, rows.values, self.offset, self.trust, np.ascontiguousarray(other), other_weight,
            scale, prior, pull, self.biased, noise, x, mean, told,
        )  # fmt: skip
        total = told.sum(0)
        return Drawn(x, mean, total[:, :-1], total[:, -1])

    def squared_errors(self, own: Floats, other: Floats, other_weight: Floats) -> Floats:
        """Σ_n t (r − …)² of every row, at values of both sides."""
        out, rows = np.empty(self.n_rows), self.rows
        squared_errors(
            out, rows.start, rows.other, rows.values, self.offset, self.trust, own, other, other_weight, self.biased
        )
        return out

    def errors(self, own: Pair, other: Pair, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        where = self if self.elsewhere is None else self.elsewhere
        return where.errors_told(own, packed(other), other_weight)

    def errors_told(self, own: Pair, tell: Floats, other_weight: Floats) -> Floats:
        """As `errors`, here, with the moments of the other side packed."""
        out = np.empty(len(own[0]))
        for pieces, sums in self._gathered(tell, other_weight, own[0].shape[1]):
            self._run(kernels.errors_of_rows, tell.shape[1], pieces, sums, self.biased, *own, out)
        return out

    def add_targets(self, other: Pair, other_weight: Floats, scale: Floats, out: Pair) -> None:
        """Add the messages of all ratings."""
        tell = packed(other)
        for pieces, sums in self._gathered(tell, other_weight, other[0].shape[1]):
            self._run(kernels.targets_of_rows, tell.shape[1], pieces, sums, scale, self.biased, *out)

    def pair_moments(self, own: Floats, other: Floats, size: int, of_users: bool) -> Pair:
        """E[f] and E[f²] of every rating, in the order of the rows, where f is what a rating is expected to be.

        Moments are packed. The same sums are made for a rating from either side: forms are those of users.
        """
        user, width = unpacked(own if of_users else other, size), own.shape[1]
        out, block = (np.empty(len(self.rows.values)), np.empty(len(self.rows.values))), max(1, BLOCK // width)
        if of_users:
            for pieces, forms in self._runs(width, width):
                self._run(
                    moments_of_rows,
                    width,
                    pieces,
                    *self.rows[:2],
                    *user,
                    self.biased,
                    aligned(other),
                    block,
                    forms,
                    *out,
                )
            return out
        forms = np.empty((len(other), width))
        linear_forms(*user, self.biased, forms)
        for pieces, _ in self._runs(width, 0):
            self._run(
                moments_of_columns, width, pieces, *self.rows[:2], *user, self.biased, forms, aligned(own), block, *out
            )
        return out

    def _gathered(self, tell: Floats, other_weight: Floats, size: int) -> Iterator[tuple[Ints, Floats]]:
        """Runs of rows, cut into pieces, and the sums of their ratings; the array of the sums is used again."""
        width, shared = tell.shape[1], None
        block = max(1, BLOCK // width)
        if self.zeros is not None:  # zeros everywhere, less those in the places of ratings
            shared = np.zeros(width + size + 3)
            shared[:width], shared[width + size] = self.zeros.other @ tell, self.zeros.other.sum()
        for pieces, sums in self._runs(width, width + size + 3):
            ratings = self.rows.start, self.rows.other, self.rows.values, self.offset, self.trust, self.less
            self._run(gather_rows, width, pieces, *ratings, tell, other_weight, block, sums)
            if self.zeros is not None and shared is not None:
                sums[: pieces[-1] - pieces[0]] += self.zeros.own[pieces[0] : pieces[-1], None] * shared
            yield pieces, sums

    def _runs(self, width: int, scratch: int) -> Iterator[tuple[Ints, Floats]]:
        """Runs of rows, cut into pieces, and room for so many numbers of each of them."""
        per_run = max(1, min(self.n_rows, SCRATCH // width))
        room = np.empty((per_run, scratch))
        for first in range(0, self.n_rows, per_run):
            yield self._pieces(first, min(first + per_run, self.n_rows)), room

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

    def _run(self, kernel: Shared, width: int, *arguments: Any) -> None:
        """A kernel that reads so many numbers of each rating."""
        run = partial(kernel.run, is_little(plain.OF_A_NUMBER * self.n_all * width))
        if self._is_small:
            run_alone(run, *arguments)
        else:
            run(*arguments)


def run_alone(kernel: Callable[..., None], *arguments: Any) -> None:
    """A kernel in this thread: where there is little to do, others would only be waited for."""
    with at_most(1):
        kernel(*arguments)


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
    kernels.sampled_rows(own, other, values, scale, packed(moments), biased, *out)


def pair_moments(own: npt.NDArray[Any], other: npt.NDArray[Any], mine: Pair, theirs: Pair, biased: bool) -> Pair:
    """Mean and variance of u·v + b + c for pairs of rows."""
    out = np.empty(len(own)), np.empty(len(own))
    kernels.pair_moments(own.astype(np.int64), other.astype(np.int64), *mine, *theirs, biased, *out)
    return out


def packed(moments: Pair, alone: bool = False) -> Floats:
    """The lower triangle of each matrix, then the vector; ``alone``: in this thread."""
    n_rows, size = moments[0].shape
    tell = np.empty((n_rows, size * (size + 1) // 2 + size))
    if alone:
        run_alone(pack, *moments, tell)
    else:
        pack(*moments, tell)
    return tell


def unpacked(tell: Floats, size: int) -> Pair:
    """Vectors and symmetric matrices of what is packed."""
    out = np.empty((len(tell), size)), np.empty((len(tell), size, size))
    unpack(aligned(tell), *out)
    return out


def aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What came in a message may begin at any byte, where loops read slower and would be compiled once more."""
    return np.require(array, requirements="A")


def empty_rows(n_rows: int, size: int) -> Moved:
    """Room for so many rows."""
    lam, mu = ((np.empty((n_rows, size)), np.empty((n_rows, size, size))) for _ in range(2))
    return Moved(lam, mu, np.empty(n_rows), np.empty(n_rows))


def blended_block(
    block: Block,
    state: State,
    target: Any,
    rho: Any,
    column: int | None,
    moments: Callable[[Pair], tuple[Pair, bool]],
) -> tuple[State, BlockInfo]:
    """A block, or one column of it, moved towards its target; ρ is a number or one for each element.

    ``moments`` gives μ of some elements' λ, and whether all of these are valid.
    """
    lam, mu = owned(state.lam[block.name]), owned(state.mu[block.name])
    rates = np.asarray(rho, dtype=np.float64)
    # An element that does not step keeps its moments, those of a point mass too; a batch leaves most of them alone.
    rows = np.nonzero(rates > 0) if rates.ndim and not (rates > 0).all() else (slice(None),) * bool(lam[0].ndim)
    here = rows if column is None else (*rows, column)
    rate = rates[rows] if rates.ndim else rates
    old = (np.asarray(lam[0][here]), np.asarray(lam[1][here]))
    goal = (np.asarray(target[0])[rows], np.asarray(target[1])[rows])
    first, second = blend(old, goal, rate, tuple(part.ndim - rate.ndim for part in old))
    new = (np.asarray(first), np.asarray(second))
    fresh, inside = moments(new)
    valid = inside and all(bool(np.isfinite(part).all()) for part in new)
    size = size_of(lam if column is None else (lam[0][:, column], lam[1][:, column]))
    info = BlockInfo(valid, distance(old, new) / size)
    name = block.name
    state = state._replace(lam={**state.lam, name: _put(lam, new, here)}, mu={**state.mu, name: _put(mu, fresh, here)})
    return state, info


def owned(stats: Any) -> Pair:
    """Contiguous, writable arrays, as the kernels were compiled for; copied only if they are not."""
    first, second = (np.require(part, np.float64, ["C", "W"]) for part in stats)
    return first, second


def _put(whole: Pair, pieces: Pair, here: Any) -> Pair:
    """Copies of the arrays with some elements replaced."""
    first, second = whole[0].copy(), whole[1].copy()
    first[here], second[here] = pieces
    return first, second
