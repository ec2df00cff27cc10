"""Labels of one chain put back into the order that agrees best with q, in place.

How well label k of q agrees with label l of a chain is the sum of q's probabilities of k over the elements that have l. The best
order is an assignment (Kuhn 1955; Jonker and Volgenant 1987), looked for where some label agrees better with another's.
"""

from __future__ import annotations

import numpy as np

from natgrad.kernels._njit import serial_kernel

__all__ = ["assign"]


@serial_kernel
def _put_back(tables, stats, values, first, second):
    """All sets of labels; whether one of them was in another order."""
    moved = 0
    for s in range(tables.sets.shape[0]):
        size, classes, begin, end, low, high = tables.sets[s]
        agree = np.zeros((size, size))
        for c in range(begin, end):
            at, count, wanted = tables.categories[c]
            for n in range(count):
                own = int(values[at + n])
                for k in range(size):
                    agree[k, own] += tables.wanted[wanted + n * size + k]
        order = np.arange(size)
        if not _is_doubtful(agree, tables.classes, classes) or not _best_order(agree, tables.classes, classes, order):
            continue
        moved = 1
        back = np.empty(size, np.int64)
        for k in range(size):
            back[order[k]] = k
        for c in range(begin, end):
            at, count, _ = tables.categories[c]
            for n in range(count):
                values[at + n] = back[int(values[at + n])]
        for number, array in enumerate((stats, values, first, second)):
            _move(tables.moves[low:high], number, array, order)
    return moved


@serial_kernel
def _move(moves, number, array, order):
    """Every number of an array that lies along labels from where the order says."""
    old = array.copy()
    for m in range(moves.shape[0]):
        if moves[m, 0] == number:
            slot = source = moves[m, 1]
            for axis in range(2, 8, 2):
                label = moves[m, axis]
                source += (order[label] - label) * moves[m, axis + 1]
            array[slot] = old[source]


@serial_kernel
def _is_doubtful(agree, classes, begin):
    """Whether a label agrees better with another of its class than with its own."""
    for k in range(agree.shape[0]):
        for other in range(agree.shape[0]):
            if classes[begin + k] == classes[begin + other] and agree[k, other] > agree[k, k]:
                return True
    return False


@serial_kernel
def _best_order(agree, classes, begin, out):
    """Which label of the chain comes first, second, …; whether that gains anything."""
    size, most, trace = agree.shape[0], agree.sum(), 0.0
    cost = np.empty((size, size))
    for k in range(size):
        trace += agree[k, k]
        for other in range(size):
            alike = classes[begin + k] == classes[begin + other]
            cost[k, other] = -agree[k, other] if alike else 1.0 + most
    assign(cost, out)
    gain = -trace
    for k in range(size):
        gain += agree[k, out[k]]
    return gain > 1e-9 * (1.0 + trace)


@serial_kernel
def assign(cost, out):
    """The column of each row of an assignment of least cost, by shortest paths that grow it row after row."""
    n = cost.shape[0]
    of_row, of_column, owner, before = np.zeros(n + 1), np.zeros(n + 1), np.full(n + 1, n), np.empty(n + 1, np.int64)
    for row in range(n):
        owner[n], column = row, n
        least, done = np.full(n + 1, np.inf), np.zeros(n + 1, np.bool_)
        while owner[column] < n:
            done[column] = True
            here, delta, following = owner[column], np.inf, n
            for j in range(n):
                if not done[j]:
                    reduced = cost[here, j] - of_row[here] - of_column[j]
                    if reduced < least[j]:
                        least[j], before[j] = reduced, column
                    if least[j] < delta:
                        delta, following = least[j], j
            for j in range(n + 1):
                if done[j]:
                    of_row[owner[j]] += delta
                    of_column[j] -= delta
                else:
                    least[j] -= delta
            column = following
        while column != n:
            owner[column] = owner[before[column]]
            column = before[column]
    for j in range(n):
        out[owner[j]] = j
