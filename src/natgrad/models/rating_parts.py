"""Some rows of one side, with their ratings, and the moments of those they rated in; the rows' updates out: a part of a sweep.

A row is computed by itself, so how rows are cut changes nothing. What travels: for a part, the packed moments of the others that
its rows have ratings with; back, λ and moments of its rows. Of symmetric matrices the lower triangle travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.inference.executors import Call, Placed, Shared, even_cuts
from natgrad.models.rating_sides import ItsRatings, Moved, Sent, empty_rows, packed

__all__ = ["PlacedRows", "shard_rows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
# Ratings of a part: worth a trip to a worker.
PART = 2**19
# Where parts have ratings with more than this share of the others, the moments of all of these travel, once to each worker.
MANY = 0.5


class Told(NamedTuple):
    """What parts read of the other side: packed moments and noise of all its rows, or of those ``seen``, of so many."""

    tell: Floats
    weight: Floats
    seen: Ints | None = None
    n_others: int = 0

    @property
    def nbytes(self) -> int:
        """What travels."""
        return self.tell.nbytes

    def spread(self) -> Pair:
        """At their places among all rows: sums are made in blocks of these, and others would round differently."""
        if self.seen is None:
            return self.tell, self.weight
        tell, weight = np.zeros((self.n_others, self.tell.shape[1])), np.zeros(self.n_others)
        tell[self.seen], weight[self.seen] = self.tell, self.weight
        return tell, weight


def sweep_shard(shard: ItsRatings, told: Told, sent: Sent, lam: Floats | None) -> tuple[Floats, Floats, Floats, Floats]:
    """The rows of a shard: λ and moments packed, log |Λ|, errors; ``lam`` is None where it is not blended with."""
    size = len(sent.prior)
    tell, weight = told.spread()
    old = (np.zeros((shard.n_rows, size)), np.zeros((shard.n_rows, size, size))) if lam is None else unpacked(lam, size)
    found = shard.swept(sent._replace(tell=tell, other_weight=weight), old)
    return packed(found.lam), packed(found.mu), found.log_det, found.errors


def errors_of_shard(shard: ItsRatings, told: Told, own: Floats, size: int) -> Floats:
    """Σ_n E[t] E[(r − …)²] of the rows of a shard."""
    return shard.errors_told(unpacked(own, size), *told.spread())


def shard_rows(side: ItsRatings) -> tuple[list[ItsRatings], list[Ints], Ints]:
    """A side cut into shards of about equally many ratings; the others that each has ratings with, and the borders."""
    rows = side.rows
    cuts = even_cuts(np.diff(rows.start), max(1, len(rows.values) // PART))
    shards, others = [], []
    for a, b in pairwise(cuts):
        inside = slice(rows.start[a], rows.start[b])
        start = rows.start[a : b + 1] - rows.start[a]
        cut = RatingsRows(start, rows.other[inside], rows.values[inside], rows.place[:0])
        trust = side.trust if len(side.trust) == 1 else side.trust[inside]
        shards.append(ItsRatings(cut, side.biased, side.offset, trust))
        others.append(np.unique(rows.other[inside]).astype(np.int64))
    return shards, others, cuts


class PlacedRows(NamedTuple):
    """The shards of one side where they are computed on; the first of them has the number ``first``."""

    placed: Placed
    first: int
    others: list[Ints]
    cuts: Ints

    def swept(self, sent: Sent, lam: Pair) -> Moved:
        """Every row at its optimum given the other side, or ρ of the way to it."""
        none, told = np.empty((0, sent.tell.shape[1])), self._told(sent.tell, sent.other_weight)

        def calls() -> Iterator[Call]:
            for number, (a, b) in enumerate(pairwise(self.cuts)):
                pull = sent.pull[a:b] if len(sent.pull) > 1 else sent.pull
                part = sent._replace(tell=none, other_weight=none[:, 0], own_weight=sent.own_weight[a:b], pull=pull)
                old = None if sent.rho == 1.0 else packed((lam[0][a:b], lam[1][a:b]))
                yield self.first + number, (told(number), part, old)

        size, out = lam[0].shape[1], empty_rows(*lam[0].shape)
        for (a, b), found in zip(pairwise(self.cuts), self.placed.run(sweep_shard, calls()), strict=True):
            for whole, part in zip((out.lam, out.mu), found[:2], strict=True):
                whole[0][a:b], whole[1][a:b] = unpacked(part, size)
            out.log_det[a:b], out.errors[a:b] = found[2:]
        return out

    def errors_told(self, own: Pair, tell: Floats, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        calls, mine, told = [], packed(own), self._told(tell, other_weight)
        for number, (a, b) in enumerate(pairwise(self.cuts)):
            calls.append((self.first + number, (told(number), mine[a:b], own[0].shape[1])))
        return np.concatenate(list(self.placed.run(errors_of_shard, calls)))

    def _told(self, tell: Floats, weight: Floats) -> Callable[[int], Any]:
        """What each shard is to be told."""
        if sum(map(len, self.others)) > MANY * len(self.others) * len(tell):
            everything = Shared(Told(tell, weight))
            return lambda number: everything
        return lambda number: Told(
            tell[self.others[number]], weight[self.others[number]], self.others[number], len(tell)
        )


def unpacked(tell: Floats, size: int) -> Any:
    """Vectors and symmetric matrices of what is packed."""
    row, column = np.maximum(*np.indices((size, size))), np.minimum(*np.indices((size, size)))
    place = (row * (row + 1) // 2 + column).ravel()
    matrices = np.take(tell, place, axis=1).reshape(len(tell), size, size)
    return np.ascontiguousarray(tell[:, size * (size + 1) // 2 :]), matrices
