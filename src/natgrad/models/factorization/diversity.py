"""Lists that are not all of one kind: candidates of users, best first, in; lists that trade score for unlikeness out.

The best item is the first. Each next one has, with candidates' scores s of standard deviation σ and correlations ρ of items,

    max_j  (1 − d) (s_j − s_1)/σ − d max_{c chosen} ρ_jc

(Carbonell and Goldstein, 1998), so that lists do not depend on the unit of scores. ρ is the correlation over the users: of the
scores of two items less the user's mean over all items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.validation import real_number

__all__ = ["Alike", "candidates", "checked_diversity", "directions", "diverse"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Correlations [n, n] of some items.
Alike = Callable[[Ints], Floats]
# Candidates of a list: so many for each item of it, and at least so many.
FOR_EACH, LEAST = 10, 100


def checked_diversity(diversity: Any) -> float:
    """A number in [0, 1]."""
    if not 0 <= (share := real_number(diversity, "diversity")) <= 1:
        raise ValueError(
            f"diversity must lie in [0, 1], got {diversity!r}: 0 ranks by scores alone, 1 by unlikeness after the first"
        )
    return share


def candidates(n: int, n_items: int) -> int:
    """From how many of the best items a list of n is chosen."""
    return max(n, min(n_items, max(LEAST, FOR_EACH * n)))


def diverse(
    items: Ints, scores: npt.NDArray[np.float32], n: int, share: float, alike: Alike
) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Lists of n [users, n] among candidates [users, more], best first, behind which −1 stands where there are no more."""
    out = np.full((len(items), n), -1, dtype=np.int64), np.full((len(items), n), -np.inf, dtype=np.float32)
    for row, (all_of, all_scores) in enumerate(zip(items, scores, strict=True)):
        there = all_of >= 0
        mine, worth = all_of[there], all_scores[there]
        order = _order(worth.astype(np.float64), alike(mine), min(n, len(mine)), share) if len(mine) else []
        out[0][row, : len(order)], out[1][row, : len(order)] = mine[order], worth[order]
    return out


def _order(scores: Floats, alike: Floats, n: int, share: float) -> list[int]:
    spread = float(scores.std())
    worth = (1.0 - share) * (scores - scores[0]) / (spread if spread > 0.0 else 1.0)
    chosen, nearest = [0], alike[0].copy()
    left = np.ones(len(scores), dtype=bool)
    left[0] = False
    while len(chosen) < n:
        best = int(np.argmax(np.where(left, worth - share * nearest, -np.inf)))
        chosen.append(best)
        left[best] = False
        nearest = np.maximum(nearest, alike[best])
    return chosen


def directions(users: Floats, items: Floats) -> Floats:
    """Vectors of items of length 1 [items, D] whose inner products are the correlations of their scores over the users."""
    centred = users - users.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(users))
    turned = items @ (axes * np.sqrt(np.maximum(values, 0.0)))
    return np.asarray(turned / np.sqrt(np.maximum(np.einsum("id,id->i", turned, turned), 1e-300))[:, None])
