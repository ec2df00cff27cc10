"""Some rows of one side, with their ratings, and the moments of those they rated in; the rows' updates out: a part of a sweep.

A row is computed by itself, so how rows are cut changes nothing. What travels: for a part, the packed moments of the others that
its rows have ratings with; back, λ and moments of its rows. Of symmetric matrices the lower triangle travels. Likes are the
ratings that they are to moments of both sides, which travel too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.io.ratings import read_run
from natgrad.data.ratings import Ratings, RatingsRows
from natgrad.inference.executors import BroadcastArgument, Call, PlacedShards, ShardSpec, even_cuts
from natgrad.kernels.factorization.gather import unpack
from natgrad.models.factorization.links import Link, likes_as_ratings
from natgrad.models.factorization.sides import Moved, SideRatings, SweepInputs, aligned, empty_rows, packed, unpacked

__all__ = ["CutRows", "LinkedMoments", "PlacedRows", "cut_sides", "shards_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
# Ratings of a part, at least: worth a trip to a worker. Parts for each thread: one is computed while what the one before found
# travels; more of them cost more than they hide.
PART, EACH = 2**19, 2
# Where parts have ratings with more than this share of the others, the moments of all of these travel, once to each worker.
MANY = 0.5


@dataclass(slots=True)
class OtherSide:
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
            self.tell, self.weight = aligned(self.tell), aligned(self.weight)
            return self.tell, self.weight
        tell, weight = np.zeros((self.n_others, self.tell.shape[1])), np.zeros(self.n_others)
        tell[self.seen], weight[self.seen] = self.tell, self.weight
        return tell, weight


class PreviousMoments(NamedTuple):
    """Moments of a part's rows before a sweep, whether they are users, and m: by these likes are ratings in it."""

    own: Floats
    of_users: bool
    link: Link

    @property
    def nbytes(self) -> int:
        """What travels."""
        return self.own.nbytes


def sweep_shard(
    shard: SideRatings,
    told: OtherSide,
    sent: SweepInputs,
    lam: Floats | None,
    before: PreviousMoments | None = None,
    others: OtherSide | None = None,
) -> tuple[Floats, ...]:
    """The rows of a shard: λ and moments packed, log |Λ|, errors, and for likes what the bound has besides ratings.

    ``lam`` is None where it is not blended with; ``before``, ``others``: moments of both sides by which likes are ratings.
    """
    n_rows, size = shard.n_rows, len(sent.prior)
    shard, rest = _as_ratings(shard, size, before, others)
    tell, weight = told.spread()
    old = (np.zeros((n_rows, size)), np.zeros((n_rows, size, size))) if lam is None else unpacked(lam, size)
    swept = shard.swept(sent._replace(tell=tell, other_weight=weight), old)
    return packed(swept.lam), packed(swept.mu), swept.log_det, swept.errors, rest


def errors_of_shard(
    shard: SideRatings,
    told: OtherSide,
    own: Floats,
    size: int,
    before: PreviousMoments | None = None,
    others: OtherSide | None = None,
) -> Pair:
    """Σ_n E[t] E[(r − …)²] of the rows of a shard, and for likes what the bound has besides ratings."""
    shard, rest = _as_ratings(shard, size, before, others)
    return shard.errors_told(unpacked(own, size), *told.spread()), rest


def _as_ratings(
    shard: SideRatings, size: int, before: PreviousMoments | None, others: OtherSide | None
) -> tuple[SideRatings, Floats]:
    """The shard itself, or the ratings that its likes are."""
    shard.rows = RatingsRows(*(aligned(part) for part in shard.rows))
    if before is None or others is None:
        return shard, np.zeros(shard.n_rows)
    tell = before.own, others.spread()[0]
    return likes_as_ratings(shard, *tell, size=size, of_users=before.of_users, link=before.link)


class CutRows(NamedTuple):
    """One side in runs of rows: the number of its first shard, the runs, those that each has ratings with, and the borders."""

    first: int
    runs: list[RatingsRows]
    others: list[Ints]
    borders: Ints


def cut_sides(sides: Mapping[str, RatingsRows], n_threads: int) -> dict[str, CutRows]:
    """Each side for so many threads, in runs of about equally many ratings; shards are numbered through."""
    cut, first = {}, 0
    for name, rows in sides.items():
        borders = even_cuts(np.diff(rows.start), _n_parts(len(rows.values), n_threads))
        runs = []
        for a, b in pairwise(borders):
            inside = slice(rows.start[a], rows.start[b])
            start = rows.start[a : b + 1] - rows.start[a]
            runs.append(RatingsRows(start, rows.other[inside], rows.values[inside], rows.place[:0]))
        cut[name] = CutRows(first, runs, [np.unique(run.other).astype(np.int64) for run in runs], borders)
        first += len(runs)
    return cut


def shards_of(
    ratings: Ratings, cuts: Mapping[str, CutRows], maker: Callable[[str, int, int], Callable[[RatingsRows], Any]]
) -> list[Any]:
    """Make the shards of both sides, each by the maker of its side and rows; of ratings in a file, where they are read."""
    shards: list[Any] = []
    for name, cut in cuts.items():
        own, other = (ratings.user_ids, ratings.item_ids)[:: 1 if name == "u" else -1]
        for run, (a, b) in zip(cut.runs, pairwise(cut.borders), strict=True):
            make = maker(name, int(a), int(b))
            held = make(run)
            if ratings.origin is None:
                shards.append(held)
            else:
                recipe = make, ratings.origin, name == "u", own[a:b], other
                shards.append(ShardSpec(_read, recipe, ratings.origin.files, held))
    return shards


def _read(make: Callable[[RatingsRows], Any], *run: Any) -> Any:
    rows = read_run(*run)
    return make(rows._replace(place=rows.place[:0]))


def _n_parts(n_ratings: int, n_threads: int) -> int:
    """Equally many for every thread, if there are enough ratings to have one for each."""
    n_parts = min(n_ratings // PART, EACH * n_threads)
    return max(1, n_parts - n_parts % n_threads if n_parts > n_threads else n_parts)


@dataclass
class LinkedMoments:
    """Packed moments of the rows of a side and of the others before a sweep, m, and what comes back of the rest of the bound."""

    own: Floats
    others: Floats
    of_users: bool
    link: Link
    rest: Floats


class PlacedRows(NamedTuple):
    """The shards of one side where they are computed on; if they are ``likes``, as the ratings that these are.

    ``whole``: every shard reads all rows of the other side, since pairs without a rating count too.
    """

    placed: PlacedShards
    cut: CutRows
    likes: LinkedMoments | None = None
    whole: bool = False

    def swept(self, sent: SweepInputs, lam: Pair) -> Moved:
        """Every row at its optimum given the other side, or ρ of the way to it."""
        none, told, before = np.empty((0, sent.tell.shape[1])), self._told(sent.tell, sent.other_weight), self._before()

        def calls() -> Iterator[Call]:
            for number, (a, b) in enumerate(pairwise(self.cut.borders)):
                pull = sent.pull[a:b] if len(sent.pull) > 1 else sent.pull
                part = sent._replace(tell=none, other_weight=none[:, 0], own_weight=sent.own_weight[a:b], pull=pull)
                old = None if sent.rho == 1.0 else packed((lam[0][a:b], lam[1][a:b]))
                yield self.cut.first + number, (told(number), part, old, *before(number))

        out = empty_rows(*lam[0].shape)
        for (a, b), swept in zip(pairwise(self.cut.borders), self.placed.run(sweep_shard, calls()), strict=True):
            for whole, part in zip((out.lam, out.mu), swept[:2], strict=True):
                unpack(aligned(part), whole[0][a:b], whole[1][a:b])
            out.log_det[a:b], out.errors[a:b] = swept[2:4]
            if self.likes is not None:
                self.likes.rest[a:b] = swept[4]
        return out

    def errors_told(self, own: Pair, tell: Floats, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        calls, mine, told, before = [], packed(own), self._told(tell, other_weight), self._before()
        for number, (a, b) in enumerate(pairwise(self.cut.borders)):
            calls.append((self.cut.first + number, (told(number), mine[a:b], own[0].shape[1], *before(number))))
        errors, rest = zip(*self.placed.run(errors_of_shard, calls), strict=True)
        if self.likes is not None:
            self.likes.rest[:] = np.concatenate(rest)
        return np.concatenate(errors)

    def _before(self) -> Callable[[int], tuple[Any, ...]]:
        """What a shard of likes is told of the moments by which they are ratings; nothing, if they are ratings."""
        if self.likes is None:
            return lambda number: ()
        likes, borders = self.likes, self.cut.borders
        told = self._told(likes.others, np.empty(len(likes.others)))
        return lambda number: (
            PreviousMoments(likes.own[borders[number] : borders[number + 1]], likes.of_users, likes.link),
            told(number),
        )

    def _told(self, tell: Floats, weight: Floats) -> Callable[[int], Any]:
        """What each shard is to be told."""
        others = self.cut.others
        if self.whole or sum(map(len, others)) > MANY * len(others) * len(tell):
            everything = BroadcastArgument(OtherSide(tell, weight))
            return lambda number: everything
        return lambda number: OtherSide(tell[others[number]], weight[others[number]], others[number], len(tell))
