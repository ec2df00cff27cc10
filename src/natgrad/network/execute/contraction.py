"""Plan the contraction of labelled arrays once, to be carried out by NumPy as often as wanted, or traced by JAX.

It goes pair by pair in the order that takes the fewest operations, each pair a matrix product where it is one. For NumPy, what is
small is one `einsum` over everything, and what would not stay in cache is made in chunks along its longest label. XLA fuses a
product and its sum, and a batched matrix product over a long batch axis takes it much longer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from natgrad.network.polynomial import Label

__all__ = ["Contraction", "diagonals", "order_of_pairs", "product_of", "traced_product"]

Array = Any
Labels = tuple[Label, ...]
# Products up to which one loop over all labels is as fast as planning pairs.
SMALL = 1_024
# A matrix product of a batch pays if each matrix is worth a call of BLAS, or the batch is short.
LONG_BATCH, WORTH_A_CALL = 16, 1_024
# The longest batch of a matrix product that is traced.
LONG_TRACED_BATCH = 64
# Numbers of the largest intermediate; more are made in chunks.
LARGEST = 2**20
# A last axis along which NumPy's sums over the axis before it are slow.
SHORT = 16
# With so many factors all orders are compared; with more the cheapest next pair is taken.
MOST_COMPARED = 5
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Contraction:
    """The product of some arrays summed over every label that is not in ``out``, axes ordered as ``out``.

    Parameters
    ----------
    out : labels of the result
    inputs : labels of each array; a label that stands twice on one array means the diagonal of these two axes
    shapes : of the arrays
    traced : whether JAX traces it; its arrays are then multiplied whole

    Examples
    --------
    >>> product = Contraction(("i", "k"), [("i", "j"), ("j", "k")], [(2, 3), (3, 2)])
    >>> product([np.ones((2, 3)), np.ones((3, 2))]).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(
        self, out: Labels, inputs: Sequence[Labels], shapes: Sequence[tuple[int, ...]], traced: bool = False
    ) -> None:
        sizes = {
            label: n
            for labels, shape in zip(inputs, shapes, strict=True)
            for label, n in zip(labels, shape, strict=True)
        }
        self.out, self.inputs, self.sizes, self.traced = out, list(inputs), sizes, traced
        self._chunk: tuple[Label, int] | None = None
        self._call: Callable[[Sequence[Array]], Array]
        self._parts: dict[int, Contraction] = {}
        self.spec: str | None = None  # where one loop over all labels does it
        if not sizes:
            self._call = math.prod
            return
        letters = {} if traced else dict(zip(sizes, LETTERS, strict=False))
        if len(inputs) > 1 and len(letters) == len(sizes) and math.prod(sizes.values()) <= SMALL and len(inputs) < 12:
            spec = ",".join("".join(letters[label] for label in labels) for labels in inputs)
            self.spec = f"{spec}->{''.join(letters[label] for label in out)}"
            self._call = _whole(self.spec)
            return
        self._call = self._planned()

    def __call__(self, arrays: Sequence[Array]) -> Array:
        return self._call(arrays) if self._chunk is None else self._in_chunks(arrays)

    def _planned(self) -> Callable[[Sequence[Array]], Array]:
        alone = [
            _reduced(
                labels, {x for k, other in enumerate(self.inputs) if k != n for x in other}.union(self.out), self.traced
            )
            for n, labels in enumerate(self.inputs)
        ]
        parts = [labels for _, labels in alone]
        first = [function for function, _ in alone]
        order, peak = order_of_pairs(parts, self.out, self.sizes)
        if peak > LARGEST and not self.traced:
            self._chunk = _chunk_of(parts, self.out, self.sizes, peak)
        steps: list[tuple[int, int, Callable[[Array, Array], Array]]] = []
        for i, j in order:
            b, a = parts.pop(j), parts.pop(i)
            needed = set(self.out).union(*parts)
            function, labels = _pair(a, b, needed, self.sizes, self.traced)
            steps.append((i, j, function))
            parts.append(labels)
        axes = tuple(parts[0].index(label) for label in self.out)
        last = None if axes == tuple(range(len(axes))) else axes

        def call(arrays: Sequence[Array]) -> Array:
            here = [a if f is None else f(a) for f, a in zip(first, arrays, strict=True)]
            for i, j, function in steps:
                b, a = here.pop(j), here.pop(i)
                here.append(function(a, b))
            return here[0] if last is None else here[0].transpose(last)

        return call

    def _in_chunks(self, arrays: Sequence[Array]) -> Array:
        """Along one label; what has it is cut."""
        assert self._chunk is not None
        label, length = self._chunk
        size = self.sizes[label]
        pieces, total = [], None
        for start in range(0, size, length):
            part = slice(start, min(start + length, size))
            cut = [
                a[tuple(part if x == label else slice(None) for x in labels)] if label in labels else a
                for a, labels in zip(arrays, self.inputs, strict=True)
            ]
            n = part.stop - part.start
            if n not in self._parts:
                self._parts[n] = Contraction(self.out, self.inputs, [a.shape for a in cut])
                self._parts[n]._chunk = None
            piece = self._parts[n]._call(cut)
            if label in self.out:
                pieces.append(piece)
            else:
                total = piece if total is None else total + piece
        return total if total is not None else np.concatenate(pieces, axis=self.out.index(label))


@lru_cache(maxsize=16_384)
def product_of(
    out: Labels, inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]
) -> Callable[..., Array] | None:
    """The same as a function of the arrays, the usual cases of one and two arrays as one call of NumPy; None: the array as it is.

    Examples
    --------
    >>> product_of(("j",), (("i",), ("i", "j")), ((2,), (2, 3)))(np.ones(2), np.ones((2, 3))).tolist()
    [2.0, 2.0, 2.0]
    """
    if any(len(set(labels)) < len(labels) for labels in inputs):
        return _by_contraction(out, inputs, shapes)
    if len(inputs) == 1:
        return None if inputs[0] == out else _alone(inputs[0], out)
    if len(inputs) == 2:
        of_two = _two(inputs[0], inputs[1], out)
        return _by_contraction(out, inputs, shapes) if of_two is None else of_two
    if () in inputs:
        return _with_numbers(out, inputs, shapes)
    return _by_contraction(out, inputs, shapes)


@lru_cache(maxsize=16_384)
def traced_product(
    out: Labels, inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]
) -> Callable[..., Array] | None:
    """The same for JAX."""
    if inputs == (out,):
        return None
    contraction = Contraction(out, inputs, shapes, traced=True)
    return lambda *arrays: contraction(arrays)


def diagonals(array: Array, labels: Labels) -> tuple[Array, Labels]:
    """An array with every label once: one that stands twice means the diagonal of these two axes."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            array = array.diagonal(0, i, j)
            labels = (*labels[:i], *labels[i + 1 : j], *labels[j + 1 :], label)
    return array, labels


def _with_numbers(out: Labels, inputs: Sequence[Labels], shapes: Sequence[tuple[int, ...]]) -> Callable[..., Array]:
    """Arrays and numbers: the arrays first, their product times the numbers."""
    numbers = [place for place, labels in enumerate(inputs) if not labels]
    arrays = [place for place, labels in enumerate(inputs) if labels]
    inner = product_of(out, tuple(inputs[p] for p in arrays), tuple(shapes[p] for p in arrays)) if arrays else None

    def call(*given: Array) -> Array:
        total = given[numbers[0]]
        for place in numbers[1:]:
            total = total * given[place]
        if not arrays:
            return total
        return total * (given[arrays[0]] if inner is None else inner(*[given[place] for place in arrays]))

    return call


def _by_contraction(out: Labels, inputs: Sequence[Labels], shapes: Sequence[tuple[int, ...]]) -> Callable[..., Array]:
    contraction = Contraction(out, inputs, shapes)
    if contraction.spec is not None:
        return partial(np.einsum, contraction.spec)
    return lambda *arrays: contraction(arrays)


def _alone(labels: Labels, out: Labels) -> Callable[[Array], Array]:
    """One array, summed over what is not wanted, its axes in order."""
    gone = tuple(axis for axis, label in enumerate(labels) if label not in out)
    kept = tuple(label for label in labels if label in out)
    if kept == out:
        return (lambda a: a.sum()) if not out else _sum(gone, len(labels))
    order = [kept.index(label) for label in out]
    return (lambda a: a.sum(gone).transpose(order)) if gone else (lambda a: a.transpose(order))


def _two(a: Labels, b: Labels, out: Labels) -> Callable[[Array, Array], Array] | None:
    """Two arrays in one call: a number times an array, elements times elements, inner and matrix products; None if not so."""
    if not a or not b:
        rest = (a or b) == out
        return operator.mul if rest else None
    if a == b:
        if a == out:
            return operator.mul
        if not out:
            return np.dot if len(a) == 1 else np.vdot
    summed = [label for label in a if label in b and label not in out]
    if not summed:
        if set(a) | set(b) != set(out):
            return None
        places = [[labels.index(x) for x in out if x in labels] for labels in (a, b)]
        if any(p != sorted(p) for p in places):
            return None
        left, right = (tuple(slice(None) if x in labels else None for x in out) for labels in (a, b))
        # Axes of length one in front are there by themselves.
        if None not in left[len(out) - len(a) :]:
            return operator.mul if None not in right[len(out) - len(b) :] else (lambda x, y: x * y[right])
        return (
            (lambda x, y: x[left] * y) if None not in right[len(out) - len(b) :] else (lambda x, y: x[left] * y[right])
        )
    if len(summed) > 1 or len(a) > 2 or len(b) > 2 or set(a) & set(b) & set(out):
        return None
    return _matrices(a, b, out, summed[0])


def _matrices(a: Labels, b: Labels, out: Labels, summed: Label) -> Callable[[Array, Array], Array] | None:
    """The products of vectors and matrices over one label."""
    rows, columns = (tuple(x for x in labels if x != summed) for labels in (a, b))
    if out not in ((*rows, *columns), (*columns, *rows)):
        return None
    turned = out != (*rows, *columns)
    first, second = (b, a) if turned else (a, b)
    left, right = first[-1] == summed, second[0] == summed  # as they are, or transposed
    if turned:
        if left:
            return (lambda x, y: y.dot(x)) if right else (lambda x, y: y.dot(x.T))
        return (lambda x, y: y.T.dot(x)) if right else (lambda x, y: y.T.dot(x.T))
    if left:
        return np.dot if right else (lambda x, y: x.dot(y.T))
    return (lambda x, y: x.T.dot(y)) if right else (lambda x, y: x.T.dot(y.T))


def _whole(spec: str) -> Callable[[Sequence[Array]], Array]:
    return lambda arrays: np.einsum(spec, *arrays)


def _reduced(labels: Labels, needed: set[Label], traced: bool) -> tuple[Callable[[Array], Array] | None, Labels]:
    """Diagonals taken, and the labels that nobody else has summed out."""
    kept = tuple(label for label in dict.fromkeys(labels) if label in needed)
    if kept == labels:
        return None, labels
    if len(set(labels)) == len(labels):
        gone = tuple(axis for axis, label in enumerate(labels) if label not in needed)
        return (lambda a: a.sum(gone)) if traced else _sum(gone, len(labels)), kept
    if not traced:
        numbers = {label: n for n, label in enumerate(dict.fromkeys(labels))}
        own, out = [numbers[label] for label in labels], [numbers[label] for label in kept]
        return (lambda a: np.einsum(a, own, out)), kept

    def reduced(a: Array) -> Array:
        a, left = diagonals(a, labels)
        a = a.sum(tuple(axis for axis, label in enumerate(left) if label not in needed))
        left = tuple(label for label in left if label in needed)
        return a.transpose([left.index(label) for label in kept])

    return reduced, kept


def _sum(gone: tuple[int, ...], ndim: int) -> Callable[[Array], Array]:
    """The sum over some axes; over the one before a short last one, in stacks of tables, as a product: NumPy adds row by row."""
    if ndim < 3 or gone != (ndim - 2,):
        return lambda a: a.sum(gone)

    def summed(a: Array) -> Array:
        return np.ones(a.shape[-2]) @ a if a.shape[-1] <= SHORT and a.dtype == np.float64 else a.sum(gone)

    return summed


def order_of_pairs(
    parts: Sequence[Labels], out: Labels, sizes: Mapping[Label, int]
) -> tuple[list[tuple[int, int]], int]:
    """Pairs to contract one after the other (the result goes to the end), and the largest intermediate."""

    def union(labels: frozenset[Label]) -> int:
        return math.prod(sizes[label] for label in labels)

    def after(left: list[frozenset[Label]], i: int, j: int) -> tuple[list[frozenset[Label]], frozenset[Label]]:
        rest = [part for n, part in enumerate(left) if n not in (i, j)]
        both = left[i] | left[j]
        return [*rest, both & frozenset(out).union(*rest)], both

    def best(left: list[frozenset[Label]]) -> tuple[int, list[tuple[int, int]]]:
        if len(left) == 1:
            return 0, []
        cheapest: tuple[int, list[tuple[int, int]]] | None = None
        pairs = [(i, j) for i in range(len(left)) for j in range(i + 1, len(left))]
        if len(left) > MOST_COMPARED:
            pairs = [min(pairs, key=lambda p: union(left[p[0]] | left[p[1]]))]
        for i, j in pairs:
            then, both = after(left, i, j)
            cost, order = best(then)
            cost += union(both)
            if cheapest is None or cost < cheapest[0]:
                cheapest = cost, [(i, j), *order]
        assert cheapest is not None
        return cheapest

    start = [frozenset(part) for part in parts]
    order = best(start)[1]
    peak, left = 0, start
    for i, j in order:
        shared = left[i] & left[j]
        before = left[i] | left[j]
        left, _ = after(left, i, j)
        # A matrix product makes its result alone; a product and a sum make everything first, but `einsum` does not keep it.
        peak = max(peak, union(left[-1]) if shared - left[-1] else union(before))
    return order, peak


def _chunk_of(parts: Sequence[Labels], out: Labels, sizes: Mapping[Label, int], peak: int) -> tuple[Label, int] | None:
    """The longest label and how much of it to take at a time."""
    label = max(sizes, key=lambda x: sizes[x])
    length = max(1_024, sizes[label] * LARGEST // peak)
    if length >= sizes[label] or math.prod(sizes[x] for x in out) > peak // 2:
        return None
    return label, length


def _pair(
    a: Labels, b: Labels, needed: set[Label], sizes: Mapping[Label, int], traced: bool
) -> tuple[Callable[..., Array], Labels]:
    """Two arrays contracted over the labels that nobody else needs."""
    summed = [label for label in a if label in b and label not in needed]
    batch = [label for label in a if label in b and label in needed]
    free = [label for label in a if label not in b], [label for label in b if label not in a]
    if not summed:
        return _product(a, b)
    length = math.prod(sizes[x] for x in batch)
    if traced and length > LONG_TRACED_BATCH:
        product, union = _product(a, b)
        gone = tuple(union.index(label) for label in summed)
        return (lambda x, y: product(x, y).sum(gone)), tuple(label for label in union if label not in summed)
    work = math.prod(sizes[x] for x in (*free[0], *free[1], *summed))
    if not traced and batch and length > LONG_BATCH and work < WORTH_A_CALL:
        return _summed(a, b, (*batch, *free[0], *free[1]))
    return _matrix_product(a, b, batch, free, summed, sizes)


def _product(a: Labels, b: Labels) -> tuple[Callable[..., Array], Labels]:
    union = (*a, *(label for label in b if label not in a))
    order = [b.index(label) for label in union if label in b]
    left = (..., *(None for label in union if label not in a))
    right = tuple(slice(None) if label in b else None for label in union)
    if len(union) == len(a):
        if order == list(range(len(b))) and len(b) == len(a):
            return (lambda x, y: x * y), union
        return (lambda x, y: x * y.transpose(order)[right]), union
    return (lambda x, y: x[left] * y.transpose(order)[right]), union


def _summed(a: Labels, b: Labels, out: Labels) -> tuple[Callable[..., Array], Labels]:
    letters = dict(zip(dict.fromkeys((*a, *b)), LETTERS, strict=False))
    spec = ",".join("".join(letters[x] for x in part) for part in (a, b)) + "->" + "".join(letters[x] for x in out)
    return (lambda x, y: np.einsum(spec, x, y)), out


def _matrix_product(
    a: Labels,
    b: Labels,
    batch: list[Label],
    free: tuple[list[Label], list[Label]],
    summed: list[Label],
    sizes: Mapping[Label, int],
) -> tuple[Callable[..., Array], Labels]:
    def shape(*groups: list[Label]) -> tuple[int, ...]:
        return tuple(math.prod(sizes[x] for x in group) for group in groups)

    lead = tuple(sizes[x] for x in batch)
    orders = [a.index(x) for x in (*batch, *free[0], *summed)], [b.index(x) for x in (*batch, *summed, *free[1])]
    shapes = (*lead, *shape(free[0], summed)), (*lead, *shape(summed, free[1]))
    out = (*batch, *free[0], *free[1])
    final = tuple(sizes[x] for x in out)

    def function(x: Array, y: Array) -> Array:
        left, right = x.transpose(orders[0]).reshape(shapes[0]), y.transpose(orders[1]).reshape(shapes[1])
        return (left @ right).reshape(final)

    return function, out
