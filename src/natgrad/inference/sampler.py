"""Sample local variables of groups given the globals, and logarithms of scales by slice sampling (Neal, 2003)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, State

__all__ = ["GroupDraw", "GroupSampler", "alike", "best_order", "classes_of", "pairs_apart", "sliced"]

Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]


class GroupDraw(NamedTuple):
    """Local variables of all groups, drawn: what they tell the globals, their values, and their probabilities if asked for."""

    messages: Mapping[str, Stats]
    values: Mapping[str, Any]
    chances: Mapping[str, Any]


class GroupSampler(Protocol):
    """Draws the local variables of a problem whose globals are known, for Gibbs sampling.

    ``local_blocks`` are these variables, categories of ``n_labels`` each. ``classes`` [n_labels] are equal for labels that are
    alike, that is that may change places without changing the density; those that are ``known`` from data are like no other.
    """

    local_blocks: Mapping[str, Block]
    n_labels: int
    classes: Ints
    known: Ints

    def draw(self, state: State, rng: np.random.Generator, chances: bool) -> GroupDraw:
        """Values given globals whose statistics are the state's moments; ``chances``: probabilities are wanted, if at hand."""
        ...

    def probabilities(self, state: State, most: int) -> Mapping[str, Any]:
        """{local block: [n, K] under q}, of the first ``most`` elements."""
        ...

    def renumbered_message(self, name: str, message: Stats, order: Any) -> Stats:
        """What is told a global block, with the labels in another order."""
        ...


def alike(array: Any, axes: Sequence[int]) -> Ints:
    """The class of each label along some axes of known numbers: two are alike if exchanging them along all axes changes nothing.

    If exchanging i and j changes nothing, and j and k, then neither does i and k: one of each class is enough to compare with.

    Examples
    --------
    >>> alike(np.array([1.0, 2.0, 1.0]), [0])
    array([0, 1, 0])
    >>> alike(np.array([[8.0, 1.0, 1.0], [1.0, 8.0, 1.0], [1.0, 1.0, 8.0]]), [0, 1])  # states that like to stay
    array([0, 0, 0])
    """
    size = array.shape[axes[0]]
    if len(axes) == 1:
        rows = np.moveaxis(array, axes[0], 0).reshape(size, -1)
        return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))
    classes, first = np.zeros(size, dtype=np.int64), [0]
    # Labels that are alike have the same numbers along every axis: the others need no look.
    marks = [[np.sort(np.take(array, k, axis), axis=None) + 0.0 for axis in axes] for k in range(size)]
    for label in range(1, size):
        for number, other in enumerate(first):
            if not all(map(np.array_equal, marks[label], marks[other])):
                continue
            order = np.arange(size)
            order[[label, other]] = other, label
            moved = array
            for axis in axes:
                moved = np.take(moved, order, axis)
            if np.array_equal(moved, array):
                classes[label] = number
                break
        else:
            classes[label] = len(first)
            first.append(label)
    return classes


def classes_of(size: int, parts: Iterable[Ints]) -> Ints:
    """Labels that are alike in every part; a part of one class alone has the same numbers for all."""
    classes = np.zeros(size, dtype=np.int64)
    for own in parts:
        classes = np.unique(np.stack([classes, np.broadcast_to(own, size)]), axis=1, return_inverse=True)[1].reshape(-1)
    return classes


def pairs_apart(classes: Ints, known: Collection[int] = ()) -> Ints:
    """The pairs of labels [n, 2] that are not alike, none of them ``known``: those that an exchange tries."""
    first, second = np.triu_indices(len(classes), 1)
    pairs = np.stack([first, second], axis=1)
    return np.asarray(pairs[(classes[first] != classes[second]) & ~np.isin(pairs, list(known)).any(1)])


def best_order(agree: Any, classes: Ints) -> Ints | None:
    """Which label of a draw comes first, second, … so that it agrees best with q; None if all are where they belong.

    Parameters
    ----------
    agree : array [of q, of the draw], in how many elements two labels agree
    classes : labels that are alike may change places, others may not
    """
    may = classes[:, None] == classes
    # What may not change places disagrees by more than all elements together.
    from scipy.optimize import linear_sum_assignment  # a hundred modules, for Gibbs sampling alone

    _, order = linear_sum_assignment(np.where(may, agree, -1.0 - agree.sum()), maximize=True)
    gain = agree[np.arange(len(classes)), order].sum() - np.trace(agree)
    return np.asarray(order) if gain > 1e-9 * (1.0 + np.trace(agree)) else None


Array = npt.NDArray[Any]
# The width of a slice in a logarithm; how often its ends step out, and how often it shrinks before the old value is kept.
WIDTH, MOST_STEPS, MOST_SHRINKS = 2.0, 8, 40


def sliced(density: Callable[[Array], Array], start: Array, rng: np.random.Generator) -> Array:
    """One step of slice sampling for every chain: stepping out, then shrinking, all chains side by side."""
    n = len(start)
    height = density(start) + np.log(rng.random(n))
    low = start - WIDTH * rng.random(n)
    high = low + WIDTH
    left = rng.integers(0, MOST_STEPS, n)  # steps are shared out at random, so that the way back has the same chance
    right = MOST_STEPS - 1 - left
    for sign, steps in ((-1.0, left), (1.0, right)):
        end = low if sign < 0 else high
        going = steps > 0
        taken = np.zeros(n, dtype=np.int64)
        while going.any():
            going &= density(end) > height
            end += np.where(going, sign * WIDTH, 0.0)
            taken += going
            going &= taken < steps
    points, open_ = start.copy(), np.ones(n, dtype=bool)
    for _ in range(MOST_SHRINKS):
        point = low + (high - low) * rng.random(n)
        inside = density(point) > height
        points = np.where(open_ & inside, point, points)
        open_ &= ~inside
        if not open_.any():
            break
        low = np.where(open_ & (point < start), point, low)
        high = np.where(open_ & (point >= start), point, high)
    return points
