"""How weights between items are shrunk, and the algebra of items: counts, weights and the basis of few dimensions.

The prior rate of the item model (`natgrad.models.factorization.items`) is diagonal,

    ridge · mean(d) + share · d_j,    d_j: likes of item j

``share`` is what dropping likes at random would add (Steck, 2020). Users weigh n_i^−evenness, n_i: their likes. Scores are
divided by d_j^power, which ranks popular items lower if positive. There may be a bias, an item that everybody likes.

Beside it stands one of three, of which ``mix`` parts are taken: tastes in so many dimensions and of some strength
(`natgrad.models.factorization.item_tastes`), a weighted factorisation with so many ``factors``, a ``confidence`` in likes and a
``penalty`` (`natgrad.models.factorization.item_weighted`), or one of some ``rank`` without weights, whose noise grows with
popularity by the power ``flatness`` (`natgrad.models.factorization.item_leading`). ``near`` parts of all are those of the
neighbours of likes, of items as popular as ``near_power`` says (`natgrad.models.factorization.item_neighbours`). ``common`` parts
of an item's popularity, d_j over all users, are added: what a user of whom little is known will like.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from natgrad.kernels.factorization.items import liked_together, sum_weights

__all__ = [
    "ItemRidge",
    "LowRank",
    "count_together",
    "inverse_and_log_det",
    "item_weights",
    "low_rank",
    "most_liked",
    "popular_scale",
    "user_weights",
    "weights_of",
    "with_bias",
]

Floats = npt.NDArray[np.float64]
Likes = Any  # a sparse matrix of ones, by rows: [users, items]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class ItemRidge(NamedTuple):
    """How weights are shrunk; see the module."""

    ridge: float = 3.0
    share: float = 0.3
    bias: bool = False
    evenness: float = 0.0
    power: float = 0.0
    rank: int = 0
    flatness: float = 0.0
    mix: float = 0.0
    common: float = 0.0
    tastes: int = 0
    strength: float = 0.0
    factors: int = 0
    confidence: float = 0.0
    penalty: float = 0.0
    near: float = 0.0
    near_power: float = 0.0

    def rate(self, likes_of: Floats) -> Floats:
        """The diagonal of the prior rate, for items with so many likes; a bias is shrunk as little as one like can."""
        counts = np.maximum(likes_of, 1.0)
        rate = self.ridge * counts.mean() + self.share * counts
        return np.append(rate, 1.0) if self.bias else rate


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


def item_weights(precision: Floats) -> Float32s:
    """B [items, items] with E[x_j | the others] = Σ_i x_i B_ij, from a precision: −Λ_ij/Λ_jj, and zero on the diagonal."""
    weights = (precision * (-1.0 / np.diagonal(precision))).astype(np.float32)
    np.fill_diagonal(weights, 0.0)
    return weights


def popular_scale(likes_of: Floats, power: float) -> Float32s:
    """What scores are multiplied by, d_j^−power."""
    return np.asarray(np.maximum(likes_of, 1.0) ** -power, dtype=np.float32)


def most_liked(likes: Likes, n: int) -> npt.NDArray[np.int64]:
    """The n most popular items, in their own order."""
    likes_of = np.bincount(likes.indices, minlength=likes.shape[1])
    return np.sort(np.argsort(-likes_of, kind="stable")[:n])


class LowRank(NamedTuple):
    """The factorisation of all pairs: a row x of likes is fitted by x left rightᵀ."""

    left: Float32s
    right: Float32s

    def scores(self, start: Ints, items: Any) -> Float32s:
        """Fitted rows [users, items], without what an item says of itself."""
        out = self.scores_of_new(start, items)
        own = np.einsum("jk,jk->j", self.left, self.right)
        out[np.repeat(np.arange(len(start) - 1), np.diff(start)), items] -= own[items]
        return out

    def scores_of_new(self, start: Ints, items: Any) -> Float32s:
        """The same for what users do not like yet."""
        inner = np.empty((len(start) - 1, self.left.shape[1]), dtype=np.float32)
        sum_weights(inner, start, items, self.left, np.zeros(inner.shape[1], np.float32))
        return np.asarray(inner @ self.right.T)

    def chances(self, scores: Float32s) -> Float32s:
        """A score is an expectation."""
        return scores

    def parts(self, liked: Ints, item: int) -> Floats:
        """What each like adds to the fit of an item."""
        return np.asarray(self.left[liked] @ self.right[item], dtype=np.float64)

    def linear(self, popular: Float32s) -> tuple[Float32s, Float32s]:
        """Itself."""
        return self.left, self.right


def low_rank(basis: Float32s, likes_of: Floats, flatness: float) -> LowRank:
    """From a basis of what was divided by d^flatness."""
    flat = popular_scale(likes_of, flatness)[:, None]
    return LowRank(*(np.asarray(table, np.float32) for table in (basis * flat, basis / flat)))


def with_bias(counts: Floats, n_users: float) -> Floats:
    """Counts with an item behind the others that every user likes."""
    size = len(counts)
    out = np.empty((size + 1, size + 1))
    out[:size, :size] = counts
    out[size, :size] = out[:size, size] = np.diagonal(counts)
    out[size, size] = n_users
    return out


def weights_of(counts: Floats, n_users: float, ridge: ItemRidge) -> tuple[Float32s, Float32s]:
    """B of the items, and what the bias adds to the score of each."""
    size = len(counts)
    matrix = with_bias(counts, n_users) if ridge.bias else counts.copy()
    matrix[np.diag_indices(len(matrix))] += ridge.rate(np.diagonal(counts))
    weights = item_weights(inverse_and_log_det(matrix)[0])
    return weights[:size, :size], weights[size, :size] if ridge.bias else np.zeros(size, np.float32)
