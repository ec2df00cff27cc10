"""Likes in; vectors of items that, with those of users, fit every pair, likes with a larger weight, out.

Every pair counts, a like 1 + α times (α: confidence), in the Gaussian factorisation

    x_ij ~ N(u_i · v_j, σ²/w_ij),   w_ij = 1 + α x_ij,   u_i ~ N(0, σ²/κ_i),   v_j ~ N(0, σ²/κ_j)

(Hu, Koren and Volinsky, 2008), whose priors are the tighter the more is seen of a row: κ_i is in proportion to the row's weight
Σ_j w_ij (Rendle and others, 2022). Given the vectors of items a user's posterior is Gaussian, and needs the user's likes alone:

    u_i ~ N(A_i⁻¹ (1 + α) Σ v_j, σ² A_i⁻¹),   A_i = Σ_all v vᵀ + α Σ_liked v vᵀ + κ_i

The sum over all items is shared and costs the items once; in its eigenbasis it is a diagonal, and a sweep by conjugate gradients
costs the likes times the dimensions. Vectors are the best ones (modes), found by a few sweeps from a random start.

What a user's row is expected to be is not yet a probability: weights make likes 1 + α times as frequent, and a like of
probability p has s = (1 + α) p / (1 + α p). So p = s / (1 + α − α s) is told of a pair. Scores are s itself,
which ranks as p does, and beside the regression on other items a little better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy.linalg

from natgrad.kernels.factorization.weighted import solve_weighted

__all__ = ["Weighted", "fitted_vectors"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Likes = Any  # a sparse matrix of ones, by rows: [users, items]
# Of a sweep: steps of conjugate gradients, which begin at the last vectors; of a user by itself: from zero, to single precision.
# Sweeps are few: further ones fit likes better, and rank others no better.
SWEEPS, STEPS, OWN_STEPS, LEAST = 4, 3, 24, 1e-9
# The first vectors of items, large enough for weak directions to be there after few sweeps (on jokes NDCG was .546 from 0.01, and
# .558 from 0.4); what keeps a matrix without directions invertible.
FIRST, FLOOR = 0.3, 1e-12
# Likes whose vectors are looked up in one go: so many stay in a cache.
TOGETHER = 2000


@final
@dataclass(frozen=True)
class Weighted:
    """What is known of items.

    ``vectors`` v [items, K] in the basis in which Σ v vᵀ is the diagonal ``squares`` [K]; the prior precision of a user is
    ``unit`` times the weight of the row, which is ``n_items`` and ``confidence`` for every like; ``noise`` is σ².
    """

    vectors: Float32s
    squares: Floats
    unit: float
    n_items: float
    confidence: float
    noise: float

    def scores(self, start: Ints, items: Any) -> Float32s:
        """The fit s of every pair [users, items], given the other likes of each user, ``items[start[i] : start[i + 1]]``."""
        s = self.scores_of_new(start, items)
        for user in range(len(start) - 1):
            liked = items[start[user] : start[user + 1]]
            factor = self._factor(liked)
            v = self.vectors[liked].astype(np.float64)
            # Without its own like, by Sherman and Morrison: h is what a like says of itself.
            h = np.einsum("kn,nk->n", scipy.linalg.cho_solve((factor, True), v.T), v) if len(v) else np.empty(0)
            rest = np.maximum(1.0 - self.confidence * h, FLOOR)
            s[user, liked] = (s[user, liked] - (1.0 + self.confidence) * h) / rest
        return s

    def scores_of_new(self, start: Ints, items: Any) -> Float32s:
        """The same for what users do not like yet, sooner: of what they like it means nothing."""
        return np.asarray(self.users(start, items) @ self.vectors.T)

    def chances(self, s: Float32s) -> Float32s:
        """P of s, which is overwritten; beyond one, which a line may reach, on along the tangent, so that the order stays."""
        weight, one = np.float32(self.confidence), np.float32(1.0)
        inside = np.minimum(s, one)
        out = inside / (one + weight - weight * inside)
        s -= inside
        s *= one + weight
        out += s
        return np.asarray(out)

    def deviations(self, start: Ints, items: Any) -> Float32s:
        """Standard deviations of these, from each user's vector; the vectors of items are taken as known."""
        out = np.empty((len(start) - 1, len(self.vectors)), np.float32)
        for user in range(len(start) - 1):
            factor = self._factor(items[start[user] : start[user + 1]]).astype(np.float32)
            spread = scipy.linalg.solve_triangular(factor, self.vectors.T, lower=True)
            out[user] = np.sqrt(self.noise * np.einsum("kj,kj->j", spread, spread))
        return out

    def parts(self, liked: Ints, item: int) -> Floats:
        """What each like of one user adds to the score of an item: they add up to it."""
        if not len(liked):
            return np.zeros(0)
        one = scipy.linalg.cho_solve((self._factor(liked), True), self.vectors[item].astype(np.float64))
        return np.asarray((1.0 + self.confidence) * (self.vectors[liked] @ one))

    def linear(self, popular: Float32s) -> tuple[Float32s, Float32s]:
        """[items, K] whose products are what a like adds to the score of another, for somebody of whom nothing else is known."""
        gain = (1.0 + self.confidence) / (self.squares + self.unit * self.n_items + FLOOR)
        left = (self.vectors * np.sqrt(gain)).astype(np.float32)
        return left, left

    def with_new(self, n: int) -> Weighted:
        """With so many items behind the others that nobody likes."""
        return replace(self, vectors=np.pad(self.vectors, ((0, n), (0, 0)))) if n else self

    def users(self, start: Ints, items: Any) -> Float32s:
        """The vectors u of users who like these items."""
        n_likes = np.diff(start)
        out = np.zeros((len(n_likes), self.vectors.shape[1]), np.float32)
        penalty = (self.unit * (self.n_items + self.confidence * n_likes)).astype(np.float32)
        shared = self.squares.astype(np.float32)
        numbers = np.float32(self.confidence), OWN_STEPS, np.float32(LEAST)
        solve_weighted(out, start, items, self.vectors, shared, penalty, *numbers)
        return out

    def _factor(self, liked: Any) -> Floats:
        """The lower Cholesky factor of A of somebody who likes these."""
        v = self.vectors[liked].astype(np.float64)
        matrix = self.confidence * (v.T @ v)
        penalty = self.unit * (self.n_items + self.confidence * len(v))
        matrix[np.diag_indices_from(matrix)] += self.squares + penalty + FLOOR
        return np.asarray(np.linalg.cholesky(matrix))


class _Side(NamedTuple):
    """Likes by row, and the precision of the prior of every row."""

    start: Ints
    others: Any
    penalty: Float32s


def fitted_vectors(
    likes: Likes,
    size: int,
    confidence: float,
    penalty: float,
    rng: np.random.Generator,
    with_noise: bool = False,
) -> Weighted:
    """From some sweeps over users and items.

    Parameters
    ----------
    likes : sparse matrix [users, items] of ones
    size : dimensions K
    confidence : α
    penalty : of the prior precision of a typical row, in parts of what noise reaches: a matrix of as many likes in random places
        has singular values up to about √(likes of a user) + √(likes of an item), and (1 + α) times that with weights
    rng : where the first vectors come from
    with_noise : whether σ² is found too, which ranking does not need; otherwise it is one
    """
    n_users, n_items = likes.shape
    size = max(1, min(size, n_users, n_items))
    noise = np.sqrt(likes.nnz / n_users) + np.sqrt(likes.nnz / n_items)
    typical = penalty * (1.0 + confidence) * noise
    by_item = likes.T.tocsr()
    units = [typical / (n + confidence * likes.nnz / rows) for rows, n in ((n_users, n_items), (n_items, n_users))]
    users, items = (
        _Side(
            table.indptr.astype(np.int64),
            table.indices,
            (unit * (table.shape[1] + confidence * np.diff(table.indptr))).astype(np.float32),
        )
        for table, unit in zip((likes, by_item), units, strict=True)
    )
    u = np.zeros((n_users, size), np.float32)
    v = np.float32(FIRST) * rng.standard_normal((n_items, size), dtype=np.float32)
    for _ in range(SWEEPS):
        v, u = _half(users, v, u, confidence)
        u, v = _half(items, u, v, confidence)
    squares, axes = np.linalg.eigh(_square(v))
    v, u = v @ axes.astype(np.float32), u @ axes.astype(np.float32)
    squares = np.maximum(squares, 0.0)
    sigma = _variance(likes, u, v, squares, confidence) if with_noise else 1.0
    return Weighted(np.ascontiguousarray(v), squares, units[0], float(n_items), confidence, sigma)


def _half(side: _Side, other: Float32s, own: Float32s, confidence: float) -> tuple[Float32s, Float32s]:
    """New vectors of one side, given those of the other; both in the basis in which the other's squares are diagonal."""
    squares, axes = np.linalg.eigh(_square(other))
    turn = axes.astype(np.float32)
    other, own = np.ascontiguousarray(other @ turn), np.ascontiguousarray(own @ turn)
    shared = np.maximum(squares, FLOOR).astype(np.float32)
    numbers = np.float32(confidence), STEPS, np.float32(LEAST)
    solve_weighted(own, side.start, side.others, other, shared, side.penalty, *numbers)
    return other, own


def _square(table: Float32s) -> Floats:
    return np.asarray((table.T @ table).astype(np.float64))


def _variance(likes: Likes, u: Float32s, v: Float32s, squares: Floats, confidence: float) -> float:
    """σ²: the mean of w (x − u · v)² over all pairs, by the squares of all and the likes alone."""
    total = float(np.einsum("ik,ik,k->", u, u, squares.astype(np.float32), dtype=np.float64))
    rows = np.repeat(np.arange(likes.shape[0]), np.diff(likes.indptr))
    for first in range(0, likes.nnz, TOGETHER):
        some = slice(first, first + TOGETHER)
        s = np.einsum("nk,nk->n", u[rows[some]], v[likes.indices[some]]).astype(np.float64)
        total += float(((1.0 + confidence) * (1.0 - s) ** 2 - s**2).sum())
    return float(max(total / (likes.shape[0] * likes.shape[1]), FLOOR))
