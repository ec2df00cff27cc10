"""Likes in; the numbers of an `ItemRidge` that rank a held-out part of them best, out.

A tenth of the likes of every user is held out, as many users as fit into a table of a given size are judged by NDCG, and each of
the numbers is moved while that rises: those of tastes and of a weighted factorisation, then, in the mixture of the better one
with the regression on other items, those of the regression, what part of the scores is which, and how much popularity is taken
off. What the regression needs alone is not what it needs beside factors, which have the strong directions already: it is shrunk
more there. A factorisation without weights is tried in the place of the better one, where the regression has all items. Where
it has not, since they are many, the neighbours of likes are tried beside it.
Popularity is what ranks unless what was found ranks held-out likes better, and tastes make them more probable, by more than
chance, user by user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.kernels.factorization.held_out import rank_held_out
from natgrad.kernels.factorization.items import sum_weights
from natgrad.models.factorization.item_leading import Leading, leading
from natgrad.models.factorization.item_neighbours import found_neighbours
from natgrad.models.factorization.item_ridge import (
    ItemRidge,
    LowRank,
    count_together,
    low_rank,
    popular_scale,
    user_weights,
    weights_of,
)
from natgrad.models.factorization.item_tastes import Residuals, Tastes, fitted_tastes
from natgrad.models.factorization.item_weighted import Weighted, fitted_vectors
from natgrad.random import Stream, generator

__all__ = ["MOST_REGRESSED", "learned_ridge"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Likes = Any  # a sparse matrix of ones, by rows: [users, items]
Judged = tuple[float, ItemRidge]
# Held out of each user's likes, the less the more there are; how many likes are to be held out of those who are judged; the k of
# NDCG, a twentieth of the items between these: chance has less of a say in a longer list. Where users like so few of many items
# that twice as many of them would have too few held-out likes, these are judged, by the shorter one: a longer one chose too
# little of what is near.
HELD_OUT, ENOUGH, RANKED = (0.1, 0.2), 10_000, (20, 40)
# Items of the regression are so many that its inverses, a dozen, take about as long as a pass over the likes by factors, a
# microsecond each; items that are ranked; users times items that are judged.
INVERSE, FEWEST, MOST, MOST_RANKED, CELLS = 1.5e3, 500, 1500, 20_000, (12_000_000, 36_000_000)
# What is tried, in order.
SIZES, STRENGTHS = (4, 8, 16, 32, 64), (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
FACTORS, CONFIDENCES = (8, 16, 32, 64, 128), (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
RANKS, FLATNESS = (4, 8, 16, 32, 64, 96, 128), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
PENALTIES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8)
RIDGES = tuple(0.01 * 3.0**n for n in range(13))
BETWEEN = 3.0**0.5
# Where the regression begins; its ridge and its share are one number in the search: the rate is about the root of both.
FIRST_REGRESSION: dict[str, Any] = {"ridge": 1.1, "share": 1.1, "evenness": 0.5}
FIRST_MIXES = (0.1, 0.5, 0.85)
MIXES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
COMMON = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
POWERS = (-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
NEAR_POWERS, PARTS = (0.25, 0.5), (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95, 0.98, 1.0)
FIRST_TASTES: dict[str, Any] = {"tastes": 8, "strength": 0.7}
FIRST_WEIGHTED: dict[str, Any] = {"factors": 32, "confidence": 4.0, "penalty": 0.4}
# Where items are many, so that users like few of them, held-out likes say little: the search begins where such sets end.
FIRST_OF_RARE: dict[str, Any] = {"factors": 128, "confidence": 16.0, "penalty": 0.4}
BEHIND = 0.9
# Tables of scores that are kept; items beyond which some are too rare for the regression.
REMEMBERED, MOST_REGRESSED = 2, 5000
OF_FACTORS = ("tastes", "strength", "factors", "confidence", "penalty", "rank", "flatness")
# A factorisation without weights that is this near to the best at first is looked at further.
NEARLY = 0.985
# A step up a ladder of factors gains at least this part. Where a ladder of theirs ends, and what popularity takes off or adds,
# is better by this many standard errors, user by user; by more where users like few of many items: chance finds much there.
CLEARLY, ERRORS, ERRORS_OF_RARE = 1e-3, 1.0, 2.0
# Popularity alone, in all but the last digits: what items say of one another orders those that are equally popular, and
# explains. It is what ranks unless the gain of tastes in NDCG and that in the log probability of held-out likes, each in its
# standard errors, are together more than this: where likes are drawn by popularity alone the first is up to 2, because the best
# of some dozens is looked at, and the second up to 1. Tastes are faint there: their direction is judged, not their strength.
# At first sight, before anything is chosen, sets that popularity decides were between -6 and 0.1, others from 4.8 on.
ALMOST_ALL, SURELY, HARDLY, FAINT = 1.0 - 1e-9, 3.0, 1.0, 0.01
# Likes below which too few are held out to tell.
LEAST = 1000


def learned_ridge(likes: Likes, seed: int) -> ItemRidge:
    """The numbers that rank held-out likes best, one after the other."""
    if likes.nnz < LEAST or min(likes.shape) < 8:
        return ItemRidge()
    judge = _Judge(likes, seed)
    firsts = FIRST_TASTES, FIRST_OF_RARE if judge.has_rare else FIRST_WEIGHTED
    tastes, weighted = (judge(ItemRidge(mix=1.0, **first)) for first in firsts)
    if not _is_promising(judge, tastes, weighted):
        return ItemRidge(**FIRST_REGRESSION, mix=ALMOST_ALL)
    # What is far behind at first will not be ahead: its numbers are left.
    if tastes[0] > BEHIND * weighted[0]:
        tastes = _climbed(judge, tastes, "tastes", SIZES, CLEARLY)
        tastes = _climbed(judge, tastes, "strength", STRENGTHS)
    if weighted[0] > BEHIND * tastes[0]:
        for name, ladder in (("confidence", CONFIDENCES), ("penalty", PENALTIES), ("factors", FACTORS)):
            weighted = _clearly(judge, weighted, _climbed(judge, weighted, name, ladder, CLEARLY))
    alone = sorted([tastes, weighted])
    best = max(*alone, _mixed(judge, alone[1], alone[0]))
    best = _climbed(judge, _clearly(judge, best, _climbed(judge, best, "power", POWERS)), "mix", MIXES)
    if best[1].tastes:
        best = _climbed(judge, best, "strength", STRENGTHS)
    best = _beside_neighbours(judge, best) if judge.has_rare else _beside_popularity(judge, best)
    popular = judge(ItemRidge(*best[1][:4], mix=ALMOST_ALL))
    if not judge.is_better(best[1], popular[1], tastes[1], SURELY):
        return popular[1]
    # Nothing is held out any more: pairs of likes, of which the regression learns, are more by the square of what likes are.
    return _shrunk(best[1], best[1].ridge * (1.0 - judge.held_out) ** 2)


def _is_promising(judge: _Judge, tastes: Judged, weighted: Judged) -> bool:
    """Whether anything at first sight is better than popularity; if not, what is found after a hundred steps is chance."""
    popular = judge(ItemRidge(mix=1.0))[1]
    if max(judge.in_errors(alone[1], popular) for alone in (tastes, weighted)) > SURELY:
        return True
    mixed = max(judge(tastes[1]._replace(mix=mix, **FIRST_REGRESSION)) for mix in FIRST_MIXES)
    return judge.is_better(max(mixed, tastes, weighted)[1], popular, tastes[1], HARDLY)


def _shrunk(ridge: ItemRidge, rate: float) -> ItemRidge:
    return ridge._replace(ridge=rate, share=rate)


def _beside_popularity(judge: _Judge, best: Judged) -> Judged:
    """With a part of popularity, which is left out where items are many: held-out likes are too few there to tell."""
    return _clearly(judge, best, _climbed(judge, best, "common", COMMON))


def _beside_neighbours(judge: _Judge, best: Judged) -> Judged:
    """With a part of the neighbours of likes."""
    tried = max(judge(best[1]._replace(near=near, near_power=power)) for power in NEAR_POWERS for near in (0.5, 0.95))
    return max(best, _climbed(judge, tried, "near", PARTS))


def _clearly(judge: _Judge, best: Judged, tried: Judged) -> Judged:
    """What was tried, if it is better by more than chance, user by user."""
    least = ERRORS_OF_RARE if judge.has_rare else ERRORS
    return tried if judge.in_errors(tried[1], best[1]) > least else best


def _mixed(judge: _Judge, alone: Judged, other: Judged) -> Judged:
    """The best mixture of both, from the best factors; the first that was found, if that is behind factors alone."""
    best = max(judge(alone[1]._replace(mix=mix, **FIRST_REGRESSION)) for mix in FIRST_MIXES)
    best = _climbed(judge, best, "ridge", RIDGES)
    best = _climbed(judge, best, "mix", MIXES[:-1])
    if best[0] < alone[0]:
        return best
    best = max(best, judge(best[1]._replace(evenness=0.0)))
    best = max(best, judge(best[1]._replace(bias=True)))
    for up in (BETWEEN, 1.0 / BETWEEN):
        best = max(best, judge(_shrunk(best[1], best[1].ridge * up)))
    # The other factors in the place of these: beside the regression they may be the better ones.
    swapped = best[1]._replace(**{name: getattr(other[1], name) for name in OF_FACTORS})
    best = _climbed(judge, max(best, judge(swapped), judge(swapped._replace(mix=0.5))), "mix", MIXES[:-1])
    return best if judge.has_rare else max(best, _unweighted(judge, best))


def _unweighted(judge: _Judge, mixed: Judged) -> Judged:
    """A factorisation without weights in the place of other factors."""
    own: dict[str, Any] = dict.fromkeys(OF_FACTORS, 0) | {"rank": 32, "flatness": 0.3}
    plain = mixed[1]._replace(**own)
    best = max(judge(plain._replace(mix=mix)) for mix in (0.2, 0.5))
    if best[0] > NEARLY * mixed[0]:
        for name, ladder in (("rank", RANKS), ("mix", MIXES), ("flatness", FLATNESS), ("ridge", RIDGES)):
            best = _climbed(judge, best, name, ladder)
    return best


def _climbed(judge: _Judge, best: Judged, name: str, ladder: Sequence[float], least: float = 0.0) -> Judged:
    """Up or down a ladder from where one is, while the measure rises, by at least this part."""
    for way in (1, -1):
        moved = False
        at = int(np.argmin(np.abs(np.subtract(ladder, getattr(best[1], name))))) + way
        while 0 <= at < len(ladder):
            step: dict[str, Any] = {name: ladder[at]}
            tried = judge(_shrunk(best[1], ladder[at]) if name == "ridge" else best[1]._replace(**step))
            if tried[0] <= best[0] * (1.0 + least):
                break
            best, moved = tried, True
            at += way
        if moved:
            break
    return best


class _Judge:
    """Some likes held out, and how well a ridge ranks them; items are in the order of their popularity."""

    def __init__(self, likes: Likes, seed: int) -> None:
        self.seed, rng = seed, generator(seed, Stream.NEGATIVES, 0)
        popular = np.argsort(-np.bincount(likes.indices, minlength=likes.shape[1]), kind="stable")[:MOST_RANKED]
        likes = likes[:, popular].tocsr()
        likes.sort_indices()
        fewest, most = (cells // likes.shape[1] for cells in CELLS)
        wanted_users = ENOUGH * likes.shape[0] / (HELD_OUT[1] * likes.nnz)
        self.has_rare = likes.shape[1] > MOST_REGRESSED
        few = self.has_rare and wanted_users > 2 * most
        users = min(likes.shape[0], int(np.clip(wanted_users, fewest, 2 * most if few else most)))
        self.held_out = float(np.clip(ENOUGH * likes.shape[0] / (users * likes.nnz), *HELD_OUT))
        held = rng.random(likes.nnz) < self.held_out
        parts = [likes.copy(), likes.copy()]
        for part, away in zip(parts, (held, ~held), strict=True):
            part.data[away] = 0.0
            part.eliminate_zeros()
        self.kept, wanted = parts
        self.likes_of = np.bincount(self.kept.indices, minlength=likes.shape[1]).astype(np.float64)
        self.size = min(int(np.clip((INVERSE * likes.nnz) ** (1.0 / 3.0), FEWEST, MOST)), likes.shape[1])
        able = np.flatnonzero((np.diff(wanted.indptr) > 0) & (np.diff(self.kept.indptr) > 0))
        judged = np.sort(rng.permutation(able)[:users])
        self.seen, self.wanted = self.kept[judged].astype(np.float32), wanted[judged]
        shown = min(RANKED[0] if few else int(np.clip(likes.shape[1] // 20, *RANKED)), likes.shape[1])
        self.worth = 1.0 / np.log2(np.arange(shown) + 2.0)
        regressed = self.seen[:, : self.size].tocsr()
        self.regressed = regressed.indptr.astype(np.int64), regressed.indices
        self._known: dict[ItemRidge, Judged] = {}
        self._users_of: dict[ItemRidge, Floats] = {}
        self._counts: dict[float, tuple[Floats, float]] = {}
        self._tastes: dict[int, Tastes] = {}
        self._explained_by: dict[int, float] = {}
        self._bases: dict[float, Leading] = {}
        self._of_factors: dict[ItemRidge, Float32s] = {}
        self._last: dict[str, tuple[ItemRidge, Float32s]] = {}

    def __call__(self, ridge: ItemRidge) -> Judged:
        """NDCG among all items, and the ridge that has it; what is too rare for the regression has the other scores."""
        if ridge not in self._known:
            self._users_of[ridge] = self._ndcg(ridge)
            self._known[ridge] = float(self._users_of[ridge].mean()), ridge
        return self._known[ridge]

    def is_better(self, one: ItemRidge, popular: ItemRidge, tastes: ItemRidge, least: float) -> bool:
        """Whether one ranks better than popularity, and tastes explain more, by so many standard errors; both were judged."""
        if tastes.tastes not in self._explained_by:
            self._explained_by[tastes.tastes] = _in_errors(self._explained(tastes))
        return self.in_errors(one, popular) + self._explained_by[tastes.tastes] > least

    def in_errors(self, one: ItemRidge, other: ItemRidge) -> float:
        """How much better one ranks than the other, in standard errors; both were judged."""
        return _in_errors(self._users_of[one] - self._users_of[other])

    def _ndcg(self, ridge: ItemRidge) -> Floats:
        """Of each user."""
        nothing = np.empty((self.seen.shape[0], 0), np.float32)
        scores = (
            self._expected(ridge),
            self._regression(ridge) if ridge.mix < 1.0 else nothing,
            self._neighbours(ridge) if ridge.near else nothing,
            np.array([ridge.mix, ridge.near], np.float32),
            (ridge.common / self.kept.shape[0] * self.likes_of).astype(np.float32),
            popular_scale(self.likes_of, ridge.power),
        )
        out = np.empty(self.seen.shape[0])
        wanted = self.wanted.indptr, self.wanted.indices
        rank_held_out(out, *wanted, self.seen.indptr, self.seen.indices, *scores, self.worth)
        return out

    def _regression(self, ridge: ItemRidge) -> Float32s:
        """Scores from the other items; the last are kept, while other numbers are tried."""
        own = ItemRidge(ridge.ridge, ridge.share, ridge.bias, ridge.evenness)
        if self._last.get("regression", (None,))[0] != own:
            if own.evenness not in self._counts:
                likes = self.kept[:, : self.size].tocsr()
                weight = user_weights(likes, own.evenness)
                self._counts[own.evenness] = count_together(likes, weight), float(weight.sum())
            scores = np.empty((self.seen.shape[0], self.size), np.float32)
            sum_weights(scores, *self.regressed, *weights_of(*self._counts[own.evenness], own))
            self._last["regression"] = own, scores
        return self._last["regression"][1]

    def _expected(self, ridge: ItemRidge) -> Float32s:
        """Scores from tastes or a factorisation; the last few are kept."""
        if not (ridge.tastes or ridge.factors or ridge.rank):  # what is popular, for everybody
            shares = (self.likes_of / self.kept.shape[0]).astype(np.float32)
            return np.tile(shares, (self.seen.shape[0], 1))
        own = ItemRidge(**{name: getattr(ridge, name) for name in OF_FACTORS})
        if (scores := self._of_factors.pop(own, None)) is None:
            scores = self._factors(own).scores_of_new(self.seen.indptr.astype(np.int64), self.seen.indices)
        self._of_factors[own] = scores  # behind the others: the first has not been asked for longest
        if len(self._of_factors) > REMEMBERED:
            del self._of_factors[next(iter(self._of_factors))]
        return scores

    def _factors(self, own: ItemRidge) -> Tastes | Weighted | LowRank:
        rng = generator(self.seed, Stream.NEGATIVES, 1)
        if own.rank:
            if own.flatness not in self._bases:
                self._bases[own.flatness] = leading(self.kept, max(RANKS), own.flatness, rng)
            return low_rank(self._bases[own.flatness].basis(own.rank), self.likes_of, own.flatness)
        if own.tastes:
            if own.tastes not in self._tastes:
                self._tastes[own.tastes] = fitted_tastes(self._residuals, own.tastes, rng)
            return replace(self._tastes[own.tastes], strength=own.strength)
        return fitted_vectors(self.kept, own.factors, own.confidence, own.penalty, rng)

    @cached_property
    def _residuals(self) -> Residuals:
        return Residuals(self.kept)

    def _neighbours(self, ridge: ItemRidge) -> Float32s:
        """Scores from the neighbours of likes; the last are kept."""
        own = ItemRidge(near_power=ridge.near_power)
        if self._last.get("neighbours", (None,))[0] != own:
            found = found_neighbours(self.kept, own.near_power)
            scores = found.expected(self.seen.indptr.astype(np.int64), self.seen.indices)
            self._last["neighbours"] = own, scores
        return self._last["neighbours"][1]

    def _explained(self, ridge: ItemRidge) -> Floats:
        """How much more probable faint tastes make each user's held-out likes among those not seen, on a logarithmic scale."""
        chances = [self._expected(ridge._replace(strength=faint)).copy() for faint in (0.0, FAINT)]
        rows = np.repeat(np.arange(self.seen.shape[0]), np.diff(self.seen.indptr))
        held = np.repeat(np.arange(self.wanted.shape[0]), np.diff(self.wanted.indptr))
        logs = []
        for table in chances:
            table[rows, self.seen.indices] = 0.0
            total = np.log(table.sum(1, dtype=np.float64))
            logs.append(np.log(table[held, self.wanted.indices].astype(np.float64)) - total[held])
        return np.bincount(held, logs[1] - logs[0], len(chances[0])).astype(np.float64)


def _in_errors(gains: Floats) -> float:
    """The mean, in its standard errors."""
    return float(gains.mean() / max(gains.std() / np.sqrt(len(gains)), 1e-300))
