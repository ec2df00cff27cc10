"""Some rows of one side, with their ratings, and the moments of those they rated in; the rows' updates out: a part of a sweep.

A row is computed by itself, so how rows are cut changes nothing. What travels: for a part, the packed moments of the others that
its rows have ratings with; back, λ and moments of its rows. Of symmetric matrices the lower triangle travels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.inference.executors import Call, Placed, even_cuts
from natgrad.kernels import rating_blocks as kernels
from natgrad.models.rating_rows import make_side, run_kernel

__all__ = ["Moved", "PlacedRows", "RowShard", "Sent", "packed", "shard_rows", "sweep_side", "unpacked"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
# Ratings of a part, and ratings for each of the others whose moments travel to it: worth a trip to a worker.
PART, PART_PER_OTHER = 2**19, 256


class Moved(NamedTuple):
    """A side after an update: λ, moments, log |Λ| and Σ E[t] E[(r − …)²] of each row."""

    lam: Pair
    mu: Pair
    log_det: Floats
    errors: Floats


class RowShard(NamedTuple):
    """Consecutive rows of a side: their ratings, with ``other`` numbered among those that occur, and the trust in each rating."""

    rows: RatingsRows
    trust: Floats
    biased: bool


class Sent(NamedTuple):
    """What an update reads besides ratings; ``lam`` is None where it is not blended with."""

    tell: Floats
    other_weight: Floats
    own_weight: Floats
    prior: Floats
    pull: Floats
    tau: float
    rho: float
    lam: Floats | None

    @property
    def nbytes(self) -> int:
        """What travels."""
        return self.tell.nbytes + self.pull.nbytes + (0 if self.lam is None else self.lam.nbytes)


def sweep_side(side: Any, trust: Floats, biased: bool, sent: Sent, lam: Pair) -> Moved:
    """Every row at its optimum given the other side, or ρ of the way to it."""
    new = _empty(*lam[0].shape)
    run_kernel(
        kernels.sweep_rows, side, trust, sent.tell, sent.other_weight, sent.own_weight, sent.prior, sent.pull,
        sent.tau, biased, sent.rho, *lam, *new.lam, *new.mu, new.log_det, new.errors,
    )  # fmt: skip
    return new


def sweep_shard(shard: RowShard, sent: Sent) -> tuple[Floats, Floats, Floats, Floats]:
    """The rows of a shard: λ and moments packed, log |Λ|, errors."""
    n_rows, size = len(shard.rows.start) - 1, len(sent.prior)
    lam = (np.zeros((n_rows, size)), np.zeros((n_rows, size, size))) if sent.lam is None else unpacked(sent.lam, size)
    found = sweep_side(make_side(shard.rows), shard.trust, shard.biased, sent, lam)
    return packed(found.lam), packed(found.mu), found.log_det, found.errors


def errors_of_shard(shard: RowShard, own: Floats, tell: Floats, other_weight: Floats, size: int) -> Floats:
    """Σ_n E[t] E[(r − …)²] of the rows of a shard."""
    out, side = np.empty(len(own)), make_side(shard.rows)
    moments = unpacked(own, size)
    run_kernel(kernels.errors_of_rows, side, shard.trust, tell, other_weight, shard.biased, *moments, out)
    return out


def shard_rows(rows: RatingsRows, trust: Floats, biased: bool) -> tuple[list[RowShard], list[Any], Any]:
    """A side cut into shards of about equally many ratings; the others that each has ratings with, and the borders."""
    least = max(PART, PART_PER_OTHER * (int(rows.other.max()) + 1))
    cuts = even_cuts(np.diff(rows.start), max(1, len(rows.values) // least))
    shards, others = [], []
    for a, b in pairwise(cuts):
        inside = slice(rows.start[a], rows.start[b])
        seen, number = np.unique(rows.other[inside], return_inverse=True)
        cut = RatingsRows(
            rows.start[a : b + 1] - rows.start[a], number.astype(np.int32), rows.values[inside], rows.place[:0]
        )
        shards.append(RowShard(cut, trust[inside], biased))
        others.append(seen)
    return shards, others, cuts


class PlacedRows(NamedTuple):
    """The shards of one side where they are computed on; the first of them has the number ``first``."""

    placed: Placed
    first: int
    others: list[Any]
    cuts: Any

    def sweep(self, sent: Sent, lam: Pair) -> Moved:
        """As `sweep_side`, shard by shard."""

        def calls() -> Iterator[Call]:
            for number, (a, b) in enumerate(pairwise(self.cuts)):
                seen = self.others[number]
                part = sent._replace(
                    tell=sent.tell[seen],
                    other_weight=sent.other_weight[seen],
                    own_weight=sent.own_weight[a:b],
                    pull=sent.pull[a:b] if len(sent.pull) > 1 else sent.pull,
                    lam=None if sent.rho == 1.0 else packed((lam[0][a:b], lam[1][a:b])),
                )
                yield self.first + number, (part,)

        size, out = lam[0].shape[1], _empty(*lam[0].shape)
        for (a, b), found in zip(pairwise(self.cuts), self.placed.run(sweep_shard, calls()), strict=True):
            for whole, part in zip((out.lam, out.mu), found[:2], strict=True):
                whole[0][a:b], whole[1][a:b] = unpacked(part, size)
            out.log_det[a:b], out.errors[a:b] = found[2:]
        return out

    def errors(self, own: Pair, tell: Floats, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        calls, mine = [], packed(own)
        for number, (a, b) in enumerate(pairwise(self.cuts)):
            seen = self.others[number]
            calls.append((self.first + number, (mine[a:b], tell[seen], other_weight[seen], own[0].shape[1])))
        return np.concatenate(list(self.placed.run(errors_of_shard, calls)))


def packed(moments: Pair) -> Floats:
    """The lower triangle of each matrix, then the vector."""
    n_rows, size = moments[0].shape
    tell = np.empty((n_rows, size * (size + 1) // 2 + size))
    kernels.pack(*moments, tell)
    return tell


def unpacked(tell: Floats, size: int) -> Pair:
    """Vectors and symmetric matrices again."""
    row, column = np.maximum(*np.indices((size, size))), np.minimum(*np.indices((size, size)))
    place = (row * (row + 1) // 2 + column).ravel()
    matrices = np.take(tell, place, axis=1).reshape(len(tell), size, size)
    return np.ascontiguousarray(tell[:, size * (size + 1) // 2 :]), matrices


def _empty(n_rows: int, size: int) -> Moved:
    lam, mu = ((np.empty((n_rows, size)), np.empty((n_rows, size, size))) for _ in range(2))
    return Moved(lam, mu, np.empty(n_rows), np.empty(n_rows))
