"""Likes by user and by item in; how often items are liked together, and scores of all items for each user, out."""

from __future__ import annotations

from natgrad.kernels._njit import of_rows, parallel_kernel

__all__ = ["liked_together", "sum_weights"]


@parallel_kernel(of_rows)
def liked_together(low, high, out, item_start, users, user_start, items, weight):
    """``out[j, i]``: the weights of the users who like both, added up.

    ``users[item_start[j] : …]`` like item j, ``items[user_start[u] : …]`` are liked by user u. Threads own rows, so that each
    row stays in a cache while it is counted.
    """
    for item in range(low, high):
        row = out[item]
        row[:] = 0.0
        for place in range(item_start[item], item_start[item + 1]):
            user = users[place]
            heavy = weight[user]
            for other in range(user_start[user], user_start[user + 1]):
                row[items[other]] += heavy


@parallel_kernel(of_rows)
def sum_weights(low, high, out, start, items, weights, bias):
    """``out[u] = bias + Σ weights[j]`` over the items j = ``items[start[u] : start[u + 1]]``. Threads own rows."""
    for user in range(low, high):
        row = out[user]
        row[:] = bias
        for place in range(start[user], start[user + 1]):
            row += weights[items[place]]
