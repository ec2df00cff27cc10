"""Recommended items and held-out ones in; NDCG@k, precision@k, recall@k and MAP@k, averaged over users, out."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["ranking_scores"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MOST_FLAGS = 100_000_000


def ranking_scores(ranked: Ints, start: Ints, wanted: Ints) -> dict[str, float]:
    """Mean over users of the four measures, k = ``ranked.shape[1]``; users without held-out items do not count.

    Parameters
    ----------
    ranked : int [users, k], recommended items, best first; −1 where there are none
    start, wanted : the held-out items of user i are ``wanted[start[i] : start[i + 1]]``

    Examples
    --------
    >>> found = ranking_scores(np.array([[3, 1, 2]]), np.array([0, 2]), np.array([1, 7]))
    >>> found["recall"], round(found["ndcg"], 3), found["map"]
    (0.5, 0.387, 0.25)
    """
    k, (hits, n_wanted) = ranked.shape[1], _hits(ranked, start, wanted)
    most = np.minimum(n_wanted, k)
    precision = np.cumsum(hits, 1) / (np.arange(k) + 1.0)
    return {
        "ndcg": float(np.mean(_discounted(hits, most))),
        "precision": float(np.mean(hits.sum(1) / k)),
        "recall": float(np.mean(hits.sum(1) / n_wanted)),
        "map": float(np.mean((precision * hits).sum(1) / most)),
    }


def _discounted(hits: Floats, most: Ints) -> Floats:
    discount = 1.0 / np.log2(np.arange(hits.shape[1]) + 2.0)
    return np.asarray(hits @ discount / np.cumsum(discount)[most - 1])


def _hits(ranked: Ints, start: Ints, wanted: Ints) -> tuple[Floats, Ints]:
    """Which recommended items were held out [users, k], and how many were, of users who have any."""
    n_wanted = np.diff(start)
    n_items = int(max(ranked.max(initial=0), wanted.max(initial=0))) + 1
    keys = np.repeat(np.arange(len(n_wanted)), n_wanted) * n_items + wanted
    looked_up = np.arange(len(ranked))[:, None] * n_items + ranked
    # A table of flags is ten times as fast as sorting, where it is small.
    kind: Literal["table"] | None = "table" if len(ranked) * n_items <= MOST_FLAGS else None
    hits = np.isin(looked_up, keys, kind=kind) & (ranked >= 0)
    judged = n_wanted > 0
    return hits[judged].astype(np.float64), n_wanted[judged]
