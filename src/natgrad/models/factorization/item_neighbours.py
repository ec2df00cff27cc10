"""Likes in; the items that each like speaks for most, out: the regression on other items to first order, for any number of them.

The regression (`natgrad.models.factorization.items`) inverts a matrix of items, G + diag(rate) with G_kj the weights of those who
like both. To first order in what is off its diagonal the weights are

    B_kj = G_kj / (G_kk + ridge · mean of G_kk)

the share of those who like k who like j too, shrunk where few like k: no inverse, and sparse where likes are. Of each item those
with the largest B_kj (d_j/d)^−power are kept, d_j the likes of an item and d their mean: what everybody likes tells little.
The score of an item is the mean over the likes of a user.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy.sparse

from natgrad.kernels.factorization.neighbours import nearest_items
from natgrad.models.factorization.item_ridge import user_weights

__all__ = ["Neighbours", "found_neighbours"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Likes = Any  # a sparse matrix of ones, by rows: [users, items]
# Neighbours that are kept of each item; how busy users count less, n_i^−½; how much is shrunk where few like an item.
KEPT, EVENNESS, RIDGE = 150, 0.5, 3.0


@final
@dataclass(frozen=True)
class Neighbours:
    """Of each item: ``items`` [items, kept], and what a like of it says of them, ``values``; 0 where there are no more."""

    items: npt.NDArray[np.int32]
    values: Float32s

    def expected(self, start: Ints, liked: Any) -> Float32s:
        """Scores [users, items] of users who like ``liked[start[i] : start[i + 1]]``; no item speaks for itself."""
        n_likes = np.diff(start)
        share = np.repeat((1.0 / np.maximum(n_likes, 1)).astype(np.float32), n_likes)
        rows = scipy.sparse.csr_matrix((share, liked, start), shape=(len(n_likes), len(self.items)))
        return np.asarray((rows @ self.table).toarray())

    @cached_property
    def table(self) -> Any:
        """The same as a sparse matrix [items, items]; made once, since users are ranked some at a time."""
        known = self.values > 0.0
        start = np.concatenate([[0], np.cumsum(known.sum(1))])
        return scipy.sparse.csr_matrix((self.values[known], self.items[known], start), shape=(len(known), len(known)))

    def of(self, item: int, axis: int) -> Floats:
        """What a like of one item says of all (axis 0), or of all says of it (1)."""
        out = np.zeros(len(self.items))
        if axis == 0:
            known = self.values[item] > 0.0
            out[self.items[item][known]] = self.values[item][known]
        else:
            rows, places = np.nonzero((self.items == item) & (self.values > 0.0))
            out[rows] = self.values[rows, places]
        return out

    def with_new(self, n: int) -> Neighbours:
        """With so many items behind the others of which nothing is known."""
        if not n:
            return self
        wide = ((0, n), (0, 0))
        return Neighbours(np.pad(self.items, wide), np.pad(self.values, wide))


def found_neighbours(likes: Likes, power: float) -> Neighbours:
    """The nearest items of each."""
    n_items = likes.shape[1]
    weight = user_weights(likes, EVENNESS)
    by_item = likes.T.tocsr()
    own = np.maximum(by_item @ weight, 1e-12)
    likes_of = np.maximum(np.diff(by_item.indptr), 1.0)
    target = (likes_of / likes_of.mean()) ** -power
    out = Neighbours(*(np.empty((n_items, min(KEPT, n_items)), kind) for kind in (np.int32, np.float32)))
    nearest_items(out.items, out.values, by_item.indptr, by_item.indices, likes.indptr, likes.indices, weight, target)
    np.divide(out.values, (own + RIDGE * own.mean())[:, None], out=out.values, casting="unsafe")
    return out
