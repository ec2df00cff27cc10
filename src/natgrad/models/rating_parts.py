"""Some rows of one side, with their ratings, and the moments of those they rated in; the rows' updates out: a part of a sweep.

A row is computed by itself, so how rows are cut changes nothing. What travels: for a part, the packed moments of the others that
its rows have ratings with; back, λ and moments of its rows. Of symmetric matrices the lower triangle travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.inference.executors import Call, Placed, Shared, even_cuts
from natgrad.kernels.rating_gather import unpack
from natgrad.models.rating_sides import ROOM, ItsRatings, Moved, Sent, empty_rows, packed

__all__ = ["PlacedRows", "shard_rows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
# Ratings of a part, at least: worth a trip to a worker. Parts for each thread: one is computed while what the one before found
# travels; more of them cost more than they hide.
PART, EACH = 2**19, 2
# Where parts have ratings with more than this share of the others, the moments of all of these travel, once to each worker.
MANY = 0.5


@dataclass(slots=True)
class Told:
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
        if self.seen is None:  # what all parts on a worker share is aligned by the first of them
            self.tell, self.weight = _aligned(self.tell), _aligned(self.weight)
            return self.tell, self.weight
        tell, weight = np.zeros((self.n_others, self.tell.shape[1])), np.zeros(self.n_others)
        tell[self.seen], weight[self.seen] = self.tell, self.weight
        return tell, weight


def sweep_shard(shard: ItsRatings, told: Told, sent: Sent, lam: Floats | None) -> tuple[Floats, Floats, Floats, Floats]:
    """The rows of a shard: λ and moments packed, log |Λ|, errors; ``lam`` is None where it is not blended with."""
    n_rows, size = shard.n_rows, len(sent.prior)
    tell, weight = told.spread()
    shard.rows = RatingsRows(*(_aligned(part) for part in shard.rows))
    old = (np.zeros((n_rows, size)), np.zeros((n_rows, size, size))) if lam is None else unpacked(lam, size)
    new, mu = (
        (ROOM.take(f"{name}0", n_rows, size), ROOM.take(f"{name}1", n_rows, size, size)) for name in ("lam", "mu")
    )
    room = Moved(new, mu, np.empty(n_rows), np.empty(n_rows))
    found = shard.swept(sent._replace(tell=tell, other_weight=weight), old, room)
    return packed(found.lam), packed(found.mu), found.log_det, found.errors


def errors_of_shard(shard: ItsRatings, told: Told, own: Floats, size: int) -> Floats:
    """Σ_n E[t] E[(r − …)²] of the rows of a shard."""
    return shard.errors_told(unpacked(own, size), *told.spread())


def shard_rows(side: ItsRatings, n_threads: int) -> tuple[list[ItsRatings], list[Ints], Ints]:
    """A side cut for so many threads, into shards of about equally many ratings; those they have ratings with; the borders."""
    rows = side.rows
    cuts = even_cuts(np.diff(rows.start), _n_parts(len(rows.values), n_threads))
    shards, others = [], []
    for a, b in pairwise(cuts):
        inside = slice(rows.start[a], rows.start[b])
        start = rows.start[a : b + 1] - rows.start[a]
        cut = RatingsRows(start, rows.other[inside], rows.values[inside], rows.place[:0])
        trust = side.trust if len(side.trust) == 1 else side.trust[inside]
        shards.append(ItsRatings(cut, side.biased, side.offset, trust))
        others.append(np.unique(rows.other[inside]).astype(np.int64))
    return shards, others, cuts


def _n_parts(n_ratings: int, n_threads: int) -> int:
    """Equally many for every thread, if there are enough ratings to have one for each."""
    found = min(n_ratings // PART, EACH * n_threads)
    return max(1, found - found % n_threads if found > n_threads else found)


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

        out = empty_rows(*lam[0].shape)
        for (a, b), found in zip(pairwise(self.cuts), self.placed.run(sweep_shard, calls()), strict=True):
            for whole, part in zip((out.lam, out.mu), found[:2], strict=True):
                unpack(_aligned(part), whole[0][a:b], whole[1][a:b])
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


def unpacked(tell: Floats, size: int) -> Pair:
    """Vectors and symmetric matrices of what is packed."""
    out = np.empty((len(tell), size)), np.empty((len(tell), size, size))
    unpack(_aligned(tell), *out)
    return out


def _aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What came in a message may begin at any byte, where loops read slower and would be compiled once more."""
    return np.require(array, requirements="A")
