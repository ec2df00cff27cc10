"""Likes by user and by item in; the items that are liked together with each most, out."""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import of_rows, parallel_kernel
from natgrad.kernels.factorization.top_items import _sink, _sort_down

__all__ = ["nearest_items"]


@parallel_kernel(of_rows)
def nearest_items(low, high, out_items, out_values, item_start, users, user_start, items, weight, target):
    """Of every item k the ``out_items.shape[1]`` others j with the largest ``target[j] · Σ weight`` of those who like both.

    ``users[item_start[k] : …]`` like item k, ``items[user_start[u] : …]`` are liked by user u. Itself, and 0, where there
    are no more. Equal ones are in the order in which they are met. Only items that are met are looked at, so that a row
    costs the likes of those who like it. Threads own rows.
    """
    n_kept = out_items.shape[1]
    sums, met = np.zeros(len(target)), np.empty(len(target), np.int32)
    for item in range(low, high):
        n_met = 0
        for place in range(item_start[item], item_start[item + 1]):
            user = users[place]
            heavy = weight[user]
            for other in range(user_start[user], user_start[user + 1]):
                one = items[other]
                if sums[one] == 0.0:
                    met[n_met] = one
                    n_met += 1
                sums[one] += heavy
        best, which, size = out_values[item], out_items[item], 0
        for place in range(n_met):
            one = met[place]
            value = np.float32(sums[one] * target[one])
            sums[one] = 0.0
            if one == item:
                continue
            if size < n_kept:
                best[size], which[size] = value, one
                size += 1
                if size == n_kept:
                    for node in range(n_kept // 2 - 1, -1, -1):
                        _sink(best, which, node, n_kept)
            elif value > best[0]:
                best[0], which[0] = value, one
                _sink(best, which, 0, n_kept)
        _sort_down(best, which, size)
        for place in range(size, n_kept):
            best[place], which[place] = np.float32(0.0), item
