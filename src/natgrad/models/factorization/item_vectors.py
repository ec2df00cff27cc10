"""Scores of users for all items in; vectors of few dimensions whose inner products are nearest to them, out.

Likes alone are ranked by weights between items, which have as many dimensions as there are items. Of all vectors of n dimensions
those along the leading right singular vectors of the scores S [users, items] have the least squared error,

    S ≈ (S V) Vᵀ

found by subspace iteration (Halko, Martinsson and Tropp, 2011). The scores are computed three times, some users at a time, and
never held as a whole. How many of the ten best items of some users are the same by both is counted, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.kernels.factorization.top_items import top_items

__all__ = ["NearestVectors", "nearest_vectors"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
# Dimensions beyond those asked for, and rounds, of the subspace iteration; best items that are compared, of so many users.
BEYOND, ROUNDS, COMPARED, ASKED = 16, 2, 10, 1000


class NearestVectors(NamedTuple):
    """Vectors [users, n] and [items, n], and which part of the best items is the same as by the scores themselves."""

    users: Float32s
    items: Float32s
    agreement: float


def nearest_vectors(
    scores_of: Callable[[slice], Float32s],
    shape: tuple[int, int],
    n_dimensions: int,
    batch: int,
    seen: tuple[Ints, npt.NDArray[np.int32]],
) -> NearestVectors:
    """The vectors of n dimensions, or of as many as there can be, that are nearest to the scores.

    Parameters
    ----------
    scores_of : the scores [some users, items] of a slice of users
    shape : users and items
    n_dimensions : of the vectors
    batch : users whose scores are computed in one go
    seen : of user i the items ``seen[1][seen[0][i] : …]`` are not compared
    """
    n_users, n_items = shape
    size = min(n_dimensions, n_users, n_items)
    basis = np.random.default_rng(0).standard_normal((n_items, min(size + BEYOND, *shape)), dtype=np.float32)
    runs = [slice(first, min(first + batch, n_users)) for first in range(0, n_users, batch)]
    for _ in range(ROUNDS):
        turned = np.zeros_like(basis)
        for some in runs:
            scores = scores_of(some)
            turned += scores.T @ (scores @ basis)
        basis = np.linalg.qr(turned)[0]
    told, asked = np.empty((n_users, basis.shape[1]), np.float32), -(-n_users // ASKED)
    best = []
    for some in runs:
        scores = scores_of(some)
        told[some] = scores @ basis
        rows = np.arange(some.start + (-some.start) % asked, some.stop, asked)
        best.append(_best(scores[rows - some.start], rows, seen))
    turn = np.linalg.eigh(told.T.astype(np.float64) @ told)[1][:, ::-1][:, :size].astype(np.float32)
    users, items = told @ turn, basis @ turn
    rows = np.arange(0, n_users, asked)
    again = _best(users[rows] @ items.T, rows, seen)
    return NearestVectors(users, items, _same(np.concatenate(best), again))


def _best(scores: Float32s, rows: Ints, seen: tuple[Ints, npt.NDArray[np.int32]]) -> Ints:
    """The best items of some users that they have not seen; −1 where there are no more."""
    out = np.empty((len(rows), COMPARED), np.int64), np.empty((len(rows), COMPARED), np.float32)
    start = np.concatenate([[0], np.cumsum(np.diff(seen[0])[rows])])
    own = np.concatenate([*(seen[1][seen[0][row] : seen[0][row + 1]] for row in rows), np.empty(0, np.int32)])
    top_items(np.ascontiguousarray(scores), 0, start, own, True, *out)
    return out[0]


def _same(one: Ints, other: Ints) -> float:
    """Which part of the items of one list, −1 not counted, is in the other, row by row."""
    there = ((one[:, :, None] == other[:, None, :]) & (one >= 0)[:, :, None]).any(2)
    return float(there.sum() / max((one >= 0).sum(), 1))
