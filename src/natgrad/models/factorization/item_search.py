"""Likes in; the numbers of an `ItemRidge` that rank a held-out part of them best, out.

A fifth of the likes of every user is held out, as many users as fit into a table of a given size are judged by NDCG, and each of
the numbers is moved while that rises: those of the factorisation of all pairs, then, in the mixture of both, those of the
regression on other items, what part of the scores is which, and how much popularity is taken off. What the regression needs alone
is not what it needs beside a factorisation, which has the strong directions already: it is shrunk more there. Where there are
many items the regression is that of the most popular. What is found must rank better than popularity by more than chance, user by
user, or popularity is what ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.kernels.factorization.top_items import top_items
from natgrad.models.factorization.item_ridge import (
    ItemRidge,
    Leading,
    count_together,
    leading,
    most_liked,
    popular_scale,
    user_weights,
    weights_of,
)
from natgrad.models.factorization.metrics import ndcg_of_users
from natgrad.random import Stream, generator

__all__ = ["learned_ridge"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Likes = Any  # a sparse matrix of ones, by rows: [users, items]
Judged = tuple[float, ItemRidge]
# Held out of each user's likes; the k of NDCG, a twentieth of the items between these: chance has less of a say in a longer list.
HELD_OUT, RANKED = 0.2, (20, 40)
# Items of the regression are so many that its inverses, a dozen, take about as long as a pass over the likes by factors, a
# microsecond each; items of the factorisation; users times items that are judged.
INVERSE, FEWEST, MOST, MOST_RANKED, CELLS = 3e3, 500, 1500, 4000, 12_000_000
# What is tried, in order.
RIDGES = tuple(0.01 * 3.0**n for n in range(13))
BETWEEN = 3.0**0.5
SHARES, EVEN = (0.0, 0.3, 1.0), 0.5
RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
FLATNESS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
MIXES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0)
COMMON = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
POWERS = (-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# What popularity is taken off or added only where it helps by this part: less is chance.
CLEARLY = 1e-3
# Popularity alone is a factorisation of rank 0, in all but the last digits: what items say of one another orders those that are
# equally popular, and explains. It is what ranks unless taste is better by so many standard errors.
ALMOST_ALL, SURELY = 1.0 - 1e-9, 2.0
# Likes below which too few are held out to tell.
LEAST = 1000


def learned_ridge(likes: Likes, seed: int) -> ItemRidge:
    """The numbers that rank held-out likes best, one after the other."""
    if likes.nnz < LEAST or min(likes.shape) < 8:
        return ItemRidge()
    judge = _Judge(likes, generator(seed, Stream.NEGATIVES, 0))
    ranked = _climbed(judge, judge(ItemRidge(mix=1.0)), "rank", RANKS)
    for _ in range(2):
        before = ranked[1]
        ranked = _climbed(judge, ranked, "flatness", FLATNESS)
        ranked = _climbed(judge, ranked, "rank", RANKS)
        if ranked[1] == before:
            break
    best = max(ranked, _mixed(judge, ranked[1]))
    best = _climbed(judge, _clearly(best, _climbed(judge, best, "power", POWERS)), "mix", MIXES)
    best = _clearly(best, _climbed(judge, best, "common", COMMON))
    popular = judge(best[1]._replace(rank=0, flatness=0.0, mix=ALMOST_ALL, power=0.0, common=0.0))
    return (best if judge.is_surely_better(best[1], popular[1]) else popular)[1]


def _clearly(best: Judged, tried: Judged) -> Judged:
    """What was tried, if it is more than chance."""
    return tried if tried[0] > best[0] * (1.0 + CLEARLY) else best


def _mixed(judge: _Judge, alone: ItemRidge) -> Judged:
    """The best mixture of both, from the best factorisation."""
    # What ranks well alone is not what adds most: a middling rank is tried beside it.
    middling = alone._replace(mix=0.3, rank=16, flatness=0.3)
    best = max(judge(alone._replace(mix=0.5)), judge(alone._replace(mix=0.3)), judge(middling))
    best = _climbed(judge, best, "ridge", RIDGES)
    best = _climbed(judge, best, "mix", MIXES)
    best = _climbed(judge, best, "rank", RANKS)
    for share in SHARES:
        best = max(best, judge(best[1]._replace(share=share)))
    best = max(best, judge(best[1]._replace(evenness=EVEN)))
    best = max(best, judge(best[1]._replace(bias=True)))
    for up in (BETWEEN, 1.0 / BETWEEN):
        best = max(best, judge(best[1]._replace(ridge=best[1].ridge * up)))
    return best


def _climbed(judge: _Judge, best: Judged, name: str, ladder: Sequence[float]) -> Judged:
    """Up or down a ladder from where one is, while the measure rises."""
    for way in (1, -1):
        moved = False
        at = int(np.argmin(np.abs(np.subtract(ladder, getattr(best[1], name))))) + way
        while 0 <= at < len(ladder):
            step: dict[str, Any] = {name: ladder[at]}
            tried = judge(best[1]._replace(**step))
            if tried[0] <= best[0]:
                break
            best, moved = tried, True
            at += way
        if moved:
            break
    return best


class _Judge:
    """Some likes held out, and how well a ridge ranks them."""

    def __init__(self, likes: Likes, rng: np.random.Generator) -> None:
        self.rng = rng
        likes = likes[:, most_liked(likes, MOST_RANKED)].tocsr()
        held = rng.random(likes.nnz) < HELD_OUT
        parts = [likes.copy(), likes.copy()]
        for part, away in zip(parts, (held, ~held), strict=True):
            part.data[away] = 0.0
            part.eliminate_zeros()
        self.kept, wanted = parts
        self.likes_of = np.bincount(self.kept.indices, minlength=likes.shape[1]).astype(np.float64)
        most = int(np.clip((INVERSE * likes.nnz) ** (1.0 / 3.0), FEWEST, MOST))
        self.places = most_liked(self.kept, most)
        able = np.flatnonzero((np.diff(wanted.indptr) > 0) & (np.diff(self.kept.indptr) > 0))
        users = np.sort(rng.permutation(able)[: CELLS // likes.shape[1]])
        self.seen, self.wanted = self.kept[users].astype(np.float32), wanted[users]
        self.shown = min(int(np.clip(likes.shape[1] // 20, *RANKED)), likes.shape[1])
        self.table = self.seen[:, self.places].toarray()
        self._known: dict[ItemRidge, Judged] = {}
        self._users_of: dict[ItemRidge, Floats] = {}
        self._counts: dict[float, tuple[Floats, float]] = {}
        self._bases: dict[float, Leading] = {}
        self._last: dict[str, tuple[ItemRidge, Float32s]] = {}

    def __call__(self, ridge: ItemRidge) -> Judged:
        """NDCG among all items, and the ridge that has it; what is too rare for the regression has the other scores."""
        if ridge not in self._known:
            scores = self._factorisation(ridge).copy()
            if ridge.mix < 1.0:
                both = np.float32(1.0 - ridge.mix) * self._regression(ridge)
                both += np.float32(ridge.mix) * scores[:, self.places]
                scores[:, self.places] = both
            if ridge.common:
                scores += (ridge.common / self.kept.shape[0] * self.likes_of).astype(np.float32)
            if ridge.power:
                scores *= popular_scale(self.likes_of, ridge.power)
            self._users_of[ridge] = self._ndcg(scores)
            self._known[ridge] = float(self._users_of[ridge].mean()), ridge
        return self._known[ridge]

    def is_surely_better(self, one: ItemRidge, other: ItemRidge) -> bool:
        """Whether one ranks better by more than chance, user by user; both were judged."""
        gains = self._users_of[one] - self._users_of[other]
        return bool(gains.mean() > SURELY * gains.std() / np.sqrt(len(gains)))

    def _ndcg(self, scores: Float32s) -> Floats:
        """Of each user, by scores [users, items], which are overwritten."""
        best = np.empty((len(scores), self.shown), np.int64), np.empty((len(scores), self.shown), np.float32)
        top_items(scores, 0, self.seen.indptr.astype(np.int64), self.seen.indices, True, *best)
        return ndcg_of_users(best[0], self.wanted.indptr, self.wanted.indices.astype(np.int64))

    def _regression(self, ridge: ItemRidge) -> Float32s:
        """Scores from the other items; the last are kept, while other numbers are tried."""
        own = ridge._replace(power=0.0, rank=1, flatness=0.0, mix=0.0, common=0.0)
        if self._last.get("regression", (None,))[0] != own:
            if own.evenness not in self._counts:
                likes = self.kept[:, self.places].tocsr()
                weight = user_weights(likes, own.evenness)
                self._counts[own.evenness] = count_together(likes, weight), float(weight.sum())
            weights, bias = weights_of(*self._counts[own.evenness], own)
            self._last["regression"] = own, self.table @ weights + bias
        return self._last["regression"][1]

    def _factorisation(self, ridge: ItemRidge) -> Float32s:
        """Scores of the best fit of a rank; the last are kept."""
        own = ItemRidge(rank=ridge.rank, flatness=ridge.flatness)
        if not own.rank:  # what is popular, for everybody
            shares = (self.likes_of / self.kept.shape[0]).astype(np.float32)
            return np.broadcast_to(shares, (self.seen.shape[0], len(shares)))
        if self._last.get("factorisation", (None,))[0] != own:
            if own.flatness not in self._bases:
                self._bases[own.flatness] = leading(self.kept, max(RANKS), own.flatness, self.rng)
            basis = self._bases[own.flatness].basis(own.rank)
            scale = popular_scale(self.likes_of, own.flatness)[:, None]
            self._last["factorisation"] = own, np.asarray(self.seen @ (basis * scale) @ (basis / scale).T)
        return self._last["factorisation"][1]
