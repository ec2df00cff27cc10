"""Scores of users for all items in; the best of each user, in order, out."""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import of_rows, parallel_kernel, serial_kernel

__all__ = ["top_items"]


def _plain_top_items(scores, first, seen_start, seen, exclude, out_items, out_scores):
    if exclude:
        for row in range(len(scores)):
            scores[row, seen[seen_start[first + row] : seen_start[first + row + 1]]] = -np.inf
    n = min(out_items.shape[1], scores.shape[1])
    out_items[:, :n] = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    out_scores[:, :n] = np.take_along_axis(scores, out_items[:, :n], 1)
    out_items[:, n:], out_scores[:, n:] = -1, -np.inf
    out_items[out_scores == -np.inf] = -1


@parallel_kernel(of_rows, plain=_plain_top_items)
def top_items(low, high, scores, first, seen_start, seen, exclude, out_items, out_scores):
    """The ``out_items.shape[1]`` best items of every row of ``scores`` [batch, items]; −1 where there are no more.

    Row i stands for user ``first + i``, whose items ``seen[seen_start[…] : …]`` are left out if ``exclude``; their scores are
    overwritten. A heap holds the best so far, the worst of them on top. Threads own rows.
    """
    n_best = out_items.shape[1]
    for row in range(low, high):
        if exclude:
            user = first + row
            for place in range(seen_start[user], seen_start[user + 1]):
                scores[row, seen[place]] = -np.inf
        size = 0
        best, which = out_scores[row], out_items[row]
        worst = np.float32(-np.inf)
        for item in range(scores.shape[1]):
            score = scores[row, item]
            if not score > worst:
                continue
            if size < n_best:
                best[size], which[size] = score, item
                size += 1
                if size == n_best:
                    for node in range(n_best // 2 - 1, -1, -1):
                        _sink(best, which, node, n_best)
                    worst = best[0]
            else:
                best[0], which[0] = score, item
                _sink(best, which, 0, n_best)
                worst = best[0]
        _sort_down(best, which, size)
        for place in range(size, n_best):
            best[place], which[place] = -np.inf, -1


@serial_kernel
def _sink(best, which, node, size):
    """Restore the heap below a node."""
    while True:
        child = 2 * node + 1
        if child >= size:
            return
        if child + 1 < size and best[child + 1] < best[child]:
            child += 1
        if best[node] <= best[child]:
            return
        best[node], best[child] = best[child], best[node]
        which[node], which[child] = which[child], which[node]
        node = child


@serial_kernel
def _sort_down(best, which, size):
    """Insertion sort, best first; of equal scores the first item first."""
    for place in range(1, size):
        score, item = best[place], which[place]
        back = place - 1
        while back >= 0 and (best[back] < score or (best[back] == score and which[back] > item)):
            best[back + 1], which[back + 1] = best[back], which[back]
            back -= 1
        best[back + 1], which[back + 1] = score, item
