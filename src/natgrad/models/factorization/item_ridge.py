"""Likes in; how much weights between items are shrunk, by how well a held-out part of the likes is ranked, out.

The prior rate of the item model (`natgrad.models.factorization.items`) is diagonal,

    ridge · mean(d) + share · d_j,    d_j: likes of item j

``share`` is what dropping likes at random would add (Steck, 2020). Users weigh n_i^−evenness, n_i: their likes. Scores are
divided by d_j^power, which ranks popular items lower if positive. Whether there is a bias, an item that everybody likes, is
tried, too. A part of the likes of every user is held out, some of the users are judged by NDCG@20, and each of the numbers is
moved while that rises. Where there are many items the most popular are enough: they settle on the same numbers as all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from natgrad.kernels.factorization.items import liked_together
from natgrad.models.factorization.metrics import ranking_scores
from natgrad.random import Stream, generator

__all__ = [
    "ItemRidge",
    "count_together",
    "inverse_and_log_det",
    "item_weights",
    "learned_ridge",
    "most_liked",
    "popular_scale",
    "user_weights",
    "with_bias",
]

Floats = npt.NDArray[np.float64]
Likes = Any  # a sparse matrix of ones, by rows: [users, items]
# Held out of each user's likes; items and users that judge; how far the first steps go, and where they start.
HELD_OUT, ITEMS, USERS, RANKED = 0.2, 800, 1000, 20
FIRST, FACTOR, SHARES = 3.0, 3.0, (0.0, 0.3, 1.0)
POWERS, POWER_STEP, EVEN = (-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5), 0.1, 0.5
# Likes below which there is nothing to hold out.
LEAST = 200


class ItemRidge(NamedTuple):
    """How weights are shrunk; see the module."""

    ridge: float = FIRST
    share: float = 0.3
    bias: bool = False
    evenness: float = 0.0
    power: float = 0.0

    def rate(self, likes_of: Floats) -> Floats:
        """The diagonal of the prior rate, for items with so many likes; a bias is shrunk as little as one like can."""
        counts = np.maximum(likes_of, 1.0)
        found = self.ridge * counts.mean() + self.share * counts
        return np.append(found, 1.0) if self.bias else found


def user_weights(likes: Likes, evenness: float) -> Floats:
    """n_i^−evenness, on average one for each like; one for all without it."""
    n_likes = np.maximum(np.diff(likes.indptr), 1.0)
    return np.asarray((n_likes / n_likes.mean()) ** -evenness)


def count_together(likes: Likes, weight: Floats) -> Floats:
    """Σ of the weights of the users who like both, [items, items]."""
    by_item = likes.tocsc()
    out = np.empty((likes.shape[1], likes.shape[1]))
    liked_together(out, by_item.indptr, by_item.indices, likes.indptr, likes.indices, weight)
    return out


def inverse_and_log_det(matrix: Floats) -> tuple[Floats, float]:
    """Of a positive definite matrix, by one factorisation; NaN where it is not positive definite."""
    factor, failed = scipy.linalg.lapack.dpotrf(matrix, lower=1)
    if failed:
        return np.full_like(matrix, np.nan), np.nan
    log_det = 2.0 * float(np.log(np.diagonal(factor)).sum())
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    upper = np.triu_indices_from(inverse, 1) if len(inverse) < 64 else None
    if upper is not None:
        inverse[upper] = inverse.T[upper]
        return np.ascontiguousarray(inverse), log_det
    lower = np.tril(inverse)
    inverse = lower + lower.T
    np.fill_diagonal(inverse, 0.5 * np.diagonal(inverse))
    return inverse, log_det


def item_weights(precision: Floats) -> npt.NDArray[np.float32]:
    """B [items, items] with E[x_j | the others] = Σ_i x_i B_ij, from a precision: −Λ_ij/Λ_jj, and zero on the diagonal."""
    found = (precision * (-1.0 / np.diagonal(precision))).astype(np.float32)
    np.fill_diagonal(found, 0.0)
    return found


def learned_ridge(likes: Likes, seed: int) -> ItemRidge:
    """The numbers that rank held-out likes best, one after the other."""
    if likes.nnz < LEAST or min(likes.shape) < 8:
        return ItemRidge()
    judge = _Judge(likes, generator(seed, Stream.NEGATIVES, 0))
    best = judge(ItemRidge())
    for up in (FACTOR, 1.0 / FACTOR):
        moved = False
        while 1e-2 < best[1].ridge * up < 1e4:
            tried = judge(best[1]._replace(ridge=best[1].ridge * up))
            if tried[0] <= best[0]:
                break
            best, moved = tried, True
        if moved:
            break
    for share in SHARES:
        best = max(best, judge(best[1]._replace(share=share)))
    best = max(best, judge(best[1]._replace(bias=True)), judge(best[1]._replace(evenness=EVEN)))
    for up in (FACTOR**0.5, FACTOR**-0.5):
        best = max(best, judge(best[1]._replace(ridge=best[1].ridge * up)))
    return best[1]


class _Judge:
    """Some likes held out, and how well a ridge ranks them."""

    def __init__(self, likes: Likes, rng: np.random.Generator) -> None:
        if likes.shape[1] > ITEMS:
            likes = likes[:, most_liked(likes, ITEMS)].tocsr()
        held = rng.random(likes.nnz) < HELD_OUT
        parts = [likes.copy(), likes.copy()]
        for part, away in zip(parts, (held, ~held), strict=True):
            part.data[away] = 0.0
            part.eliminate_zeros()
        kept, wanted = parts
        self.all_kept = kept
        self.counts: dict[float, tuple[Floats, float]] = {}
        self.likes_of = np.bincount(kept.indices, minlength=kept.shape[1]).astype(np.float64)
        able = np.flatnonzero((np.diff(wanted.indptr) > 0) & (np.diff(kept.indptr) > 0))
        users = np.sort(rng.permutation(able)[:USERS])
        self.kept, self.seen = kept[users].toarray().astype(np.float32), kept[users].nonzero()
        self.start, self.wanted = wanted[users].indptr, wanted[users].indices.astype(np.int64)
        self.known: dict[ItemRidge, tuple[float, ItemRidge]] = {}

    def __call__(self, ridge: ItemRidge) -> tuple[float, ItemRidge]:
        """NDCG with the best power near that of the ridge, and the ridge with it."""
        if ridge not in self.known:
            if ridge.evenness not in self.counts:
                weight = user_weights(self.all_kept, ridge.evenness)
                self.counts[ridge.evenness] = count_together(self.all_kept, weight), float(weight.sum())
            weights, bias = weights_of(self.counts[ridge.evenness][0], self.counts[ridge.evenness][1], ridge)
            scores = self.kept @ weights + bias
            scores[self.seen] = -np.inf
            near = [power for power in POWERS if abs(power - ridge.power) < 1.5 * POWER_STEP]
            self.known[ridge] = max((self._ndcg(scores, power), ridge._replace(power=power)) for power in near)
        return self.known[ridge]

    def _ndcg(self, scores: npt.NDArray[np.float32], power: float) -> float:
        k = min(RANKED, scores.shape[1])
        scaled = scores * popular_scale(self.likes_of, power)
        best = np.argpartition(-scaled, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scaled, best, 1), axis=1, kind="stable")
        ranked = np.take_along_axis(best, order, 1)
        ranked[np.take_along_axis(scaled, ranked, 1) == -np.inf] = -1
        return ranking_scores(ranked, self.start, self.wanted)["ndcg"]


def popular_scale(likes_of: Floats, power: float) -> npt.NDArray[np.float32]:
    """What scores are multiplied by, d_j^−power."""
    return np.asarray(np.maximum(likes_of, 1.0) ** -power, dtype=np.float32)


def most_liked(likes: Likes, n: int) -> npt.NDArray[np.int64]:
    """The n most popular items, in their own order."""
    likes_of = np.bincount(likes.indices, minlength=likes.shape[1])
    return np.sort(np.argsort(-likes_of, kind="stable")[:n])


def with_bias(counts: Floats, n_users: float) -> Floats:
    """Counts with an item behind the others that every user likes."""
    size = len(counts)
    out = np.empty((size + 1, size + 1))
    out[:size, :size] = counts
    out[size, :size] = out[:size, size] = np.diagonal(counts)
    out[size, size] = n_users
    return out


def weights_of(
    counts: Floats, n_users: float, ridge: ItemRidge
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """B of the items, and what the bias adds to the score of each."""
    size = len(counts)
    matrix = with_bias(counts, n_users) if ridge.bias else counts.copy()
    matrix[np.diag_indices(len(matrix))] += ridge.rate(np.diagonal(counts))
    weights = item_weights(inverse_and_log_det(matrix)[0])
    return weights[:size, :size], weights[size, :size] if ridge.bias else np.zeros(size, np.float32)
