"""Likes of users and what was learned of items in; scores of all items, probabilities of pairs, reasons and likeness out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.kernels.factorization.items import sum_weights
from natgrad.models.factorization.item_neighbours import Neighbours
from natgrad.models.factorization.item_ridge import LowRank
from natgrad.models.factorization.item_tastes import Tastes
from natgrad.models.factorization.item_weighted import Weighted

__all__ = ["ItemPredictor"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
# Probabilities stay this far from 0 and 1: a regression can leave the interval.
EDGE = 1e-6


class ItemPredictor(NamedTuple):
    """Scores of all items for each user: ``liked`` by row, weights between items, and what ranks them.

    ``places`` are the items of the regression among all; ``weights`` and ``bias`` are 1 − mix parts of it. Of what ``factors``
    expect, or of popularity where there are none, ``part`` [items] is taken. ``scale`` is d_j^−power, ``popular`` what is
    expected of somebody of whom nothing is known, of which ``common`` parts are added to what ranks. ``near`` parts are those of
    the ``neighbours`` of likes; the others are 1 − near parts already.
    """

    start: Ints
    liked: npt.NDArray[np.int32]
    weights: Float32s
    bias: Float32s
    places: Ints
    factors: Tastes | Weighted | LowRank | None
    part: Float32s
    scale: Float32s
    popular: Float32s
    common: float
    neighbours: Neighbours | None
    near: float

    def scores(self, users: Ints, new: bool = False) -> Float32s:
        """What orders the items of some users: [users, items], larger is better; sooner if only ``new`` ones are asked for."""
        scores = self._mixed(users, new, for_chances=False)
        if self.common:
            scores += np.float32(self.common) * self.popular
        scores *= self.scale
        return scores

    def scores_for(self, liked: Ints) -> Float32s:
        """The same for somebody who likes these items: [1, items]."""
        liked = np.unique(liked)  # an item that is named twice is one like
        return self._replace(start=np.array([0, len(liked)]), liked=liked.astype(np.int32)).scores(np.array([0]), True)

    def parts(self, row: int, item: int) -> tuple[Ints, Float32s]:
        """The items that a user likes, and what each adds to the score of an item."""
        liked = self.liked[self.start[row] : self.start[row + 1]].astype(np.int64)
        added = np.zeros(len(liked)) if self.factors is None else self.factors.parts(liked, item) * self.part[item]
        added += self._weights_of(item, 1)[liked]
        if self.neighbours is not None and len(liked):
            added += self.near / len(liked) * self.neighbours.of(item, 1)[liked]
        return liked, (added * self.scale[item]).astype(np.float32)

    def expected(self, users: Ints) -> Float32s:
        """E[x_ij] of all items, given the other likes of each of some users."""
        return self._mixed(users, new=False, for_chances=True)

    def _mixed(self, users: Ints, new: bool, for_chances: bool) -> Float32s:
        """Factors, or the probabilities that they stand for, with regression and neighbours."""
        counts = np.diff(self.start)[users]
        start = np.concatenate([[0], np.cumsum(counts)])
        near = np.repeat(self.start[users] - start[:-1], counts) + np.arange(start[-1])
        items = self.liked[near]
        known = None
        if self.factors is not None:
            known = (self.factors.scores_of_new if new else self.factors.scores)(start, items)
            known = self.factors.chances(known) if for_chances else known
        out = np.tile(self.popular, (len(users), 1)) if known is None else known
        out *= self.part
        if len(self.weights):
            out[:, self.places] += self._regressed(start, items)
        if self.neighbours is not None:
            out += np.float32(self.near) * self.neighbours.expected(start, items)
        out[counts == 0] = self.popular
        return out

    def _regressed(self, start: Ints, items: npt.NDArray[np.int32]) -> Float32s:
        """Σ_k x_ik B_kj of the items of the regression."""
        column = np.full(len(self.part), -1, dtype=np.int32)
        column[self.places] = np.arange(len(self.places), dtype=np.int32)
        inside = column[items]
        known = inside >= 0
        edges = np.concatenate([[0], np.cumsum(known)])[start]
        out = np.empty((len(start) - 1, len(self.places)), dtype=np.float32)
        sum_weights(out, edges, inside[known], self.weights, self.bias)
        return out

    def _weights_of(self, item: int, axis: int) -> Floats:
        """Of the regression: weights of one item in the scores of all (axis 0), or of all in its score (1)."""
        found = np.zeros(len(self.part))
        where = np.flatnonzero(self.places == item)
        if len(where) and len(self.weights):
            found[self.places] = self.weights.take(where[0], axis)
        return found

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """The probability of a like among all pairs, and p (1 − p)."""
        users, inverse = np.unique(rows, return_inverse=True)
        chance = np.zeros(len(rows))
        known = (columns < len(self.part)) & (rows < len(self.start) - 1)
        for some in np.array_split(np.arange(len(users)), -(-len(users) // 2000)):
            here = known & (inverse >= some[0]) & (inverse <= some[-1])
            able = users[some][users[some] < len(self.start) - 1]
            if here.any():
                chance[here] = self.expected(able)[inverse[here] - some[0], columns[here]]
        stranger = (columns < len(self.part)) & (rows >= len(self.start) - 1)
        chance[stranger] = self.popular[columns[stranger]]
        chance = np.clip(chance, EDGE, 1.0 - EDGE)
        return chance, chance * (1.0 - chance)

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """Of a like or none: both ends, where neither has the mass."""
        chance = self.pairs(rows, columns)[0]
        tail = 0.5 * (1.0 - mass)
        return np.where(1.0 - chance < tail, 1.0, 0.0), np.where(chance >= tail, 1.0, 0.0)

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """Of p or 1 − p, the logarithm."""
        chance = self.pairs(rows, columns)[0]
        return np.log(np.where(values > 0.5, chance, 1.0 - chance))

    def likeness(self, item: int) -> Floats:
        """Weights from one item to every other, both ways on average."""
        there, back = self._weights_of(item, 0), self._weights_of(item, 1)
        if self.factors is not None:
            left, right = self.factors.linear(self.popular)
            there += (right @ left[item]) * self.part
            back += (left @ right[item]) * self.part[item]
        if self.neighbours is not None:
            there += self.near * self.neighbours.of(item, 0)
            back += self.near * self.neighbours.of(item, 1)
        likeness = np.sign(there) * np.sqrt(np.maximum(there * back, 0.0))  # −Λ_ij/√(Λ_ii Λ_jj) where nothing is mixed
        likeness[item] = -np.inf
        return likeness
