"""Labels that may be put back, as tables for the compiled loop: what lies along them, and what q says of the categories."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from natgrad.network.draws.gaussian_sets import Unsuitable
from natgrad.network.draws.labels import EVENT, LabelSet, Relabelling, _places
from natgrad.network.draws.layout import Layout

__all__ = ["label_tables"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
STATS, VALUES, FIRST, SECOND = range(4)


def label_tables(relabel: Relabelling, layout: Layout) -> tuple[Ints, Ints, Ints, Floats, Ints]:
    """Sets, classes of labels, categories, what q says of these, and what moves."""
    sets: list[list[int]] = []
    classes: list[int] = []
    categories: list[list[int]] = []
    wanted: list[Floats] = [np.zeros(0)]
    moves: list[Ints] = [np.zeros((0, 8), np.int64)]
    for entry in relabel.sets:
        begin, low = len(categories), sum(map(len, moves))
        for name in entry.categories:
            at = sum(map(len, wanted))
            wanted.append(relabel.wanted[name].reshape(-1))
            categories.append([layout.values[name], math.prod(layout.value_shapes[name]), at])
        for name in entry.axes:
            if name in layout.values:
                moves += _moves(relabel, layout, entry, name)
        sets.append([entry.size, len(classes), begin, len(categories), low, sum(map(len, moves))])
        classes += entry.classes.tolist()
    return (
        np.array(sets, np.int64).reshape(-1, 6), np.array(classes, np.int64),
        np.array(categories, np.int64).reshape(-1, 3), np.concatenate(wanted), np.concatenate(moves),
    )  # fmt: skip


def _moves(relabel: Relabelling, layout: Layout, entry: LabelSet, name: str) -> list[Ints]:
    node, axes = relabel.plan.nodes[name], entry.axes[name]
    moves = []
    for number, shape in enumerate(layout.stat_shapes[name]):
        plates = len(node.plates if number == 0 else node.block_plates)
        moves.append(_along(STATS, layout.stats[name, number], shape, _places(axes, plates, len(shape))))
    value, average = layout.value_shapes[name], layout.average_shapes[name]
    is_category = name in entry.categories
    places = [axis for axis in axes if axis != EVENT] if is_category else _places(axes, len(node.plates), len(value))
    moves.append(_along(VALUES, layout.values[name], value, places))
    for buffer in (FIRST,) if is_category else (FIRST, SECOND):
        moves.append(_along(buffer, layout.averages[name], average, _places(axes, len(node.plates), len(average))))
    return moves


def _along(buffer: int, begin: int, shape: tuple[int, ...], axes: Sequence[int]) -> Ints:
    """A row for each number of an array: where it is, and its label and the distance of labels along each of up to three axes."""
    if len(axes) > 3:
        raise Unsuitable("labels lie along more than three axes of a node")
    rows = np.zeros((math.prod(shape), 8), np.int64)
    rows[:, 0], rows[:, 1] = buffer, begin + np.arange(len(rows))
    where = np.indices(shape).reshape(len(shape), -1)
    for number, axis in enumerate(axes):
        rows[:, 2 + 2 * number], rows[:, 3 + 2 * number] = where[axis], math.prod(shape[axis + 1 :])
    return rows if axes else rows[:0]
