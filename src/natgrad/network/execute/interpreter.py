"""A polynomial in, its value and its gradient out, by NumPy alone: the terms as they are declared, nothing compiled.

P is a sum of products of factors. The derivative by a factor is the product of the others, contracted to the axes of this one;
where the factor was read through an index, what its readers say is added up by the element that they read.

What does not change between calls is found once and kept: where each factor is read, in which order arrays are multiplied,
and the product of the known ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from natgrad.network.execute.addressing import FULL, SAMPLE, Piece, View, index_factor
from natgrad.network.execute.numpy_contraction import Contraction
from natgrad.network.polynomial import Factor, Label, Monomial, Take, readings

__all__ = ["MOST_KEPT", "Product", "Reader", "Slopes", "Values", "layout_of", "scale_of", "segment_sum"]

Array = Any
Labels = tuple[Label, ...]
Moments = Mapping[str, tuple[Array, ...]]
Known = Mapping[str, Array]
# Numbers that the product of known arrays may have; a larger one is multiplied anew.
MOST_KEPT = 2**16


def layout_of(view: View) -> tuple[Any, ...]:
    """What of a view decides how factors are read; the rest are arrays."""
    if view is FULL:
        return ()
    return tuple(view.zipped), tuple((key, index is None) for key, index in view.moved.items())


def segment_sum(rows: Array, index: Array, size: int) -> Array:
    """Rows [n, ...] added up by the element that ``index`` [n] names: [size, ...].

    Examples
    --------
    >>> segment_sum(np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), 3).tolist()
    [2.0, 5.0, 0.0]
    """
    width = math.prod(rows.shape[1:])
    if width != 1:
        index = (index[:, None] * width + np.arange(width)).reshape(-1)
    return np.bincount(index, rows.reshape(-1), size * width).reshape((size, *rows.shape[1:]))


class _Gather(NamedTuple):
    """Axes that are read together: they come first, then the indices take their place."""

    order: tuple[int, ...]
    indices: tuple[Reader | str | tuple[str, int], ...]  # an index array, a zipped label, or an axis that was moved


class _WayBack(NamedTuple):
    """From an array of shape ``start`` to what was read of it, ``end``, and the sums that lead back, for these index arrays."""

    start: tuple[int, ...]
    indices: tuple[Array, ...]
    end: tuple[int, ...]
    distinct: tuple[int, ...]
    steps: list[tuple[Array, int, list[int], Array | None]]


class Reader:
    """How a factor is read under a layout of views.

    ``gone`` is an axis of the node that the factor is without; a view knows its axes by their places in the whole.
    """

    def __init__(
        self, factor: Factor, zipped: Collection[str], moved: Mapping[tuple[str, int], bool], gone: int | None = None
    ) -> None:
        self.source, self.stat, self.known = factor.source, factor.stat, factor.known
        names: list[Any] = []
        entries: dict[Labels, list[tuple[int, Any]]] = {}
        for position, axis in enumerate(factor.axes):
            key = (factor.source, position if gone is None or position < gone else position + 1)
            if not factor.known and key in moved:
                if moved[key]:
                    names.append(SAMPLE)
                    continue
                entries.setdefault((SAMPLE,), []).append((position, key))
            elif isinstance(axis, Take):
                reader = Reader(index_factor(axis), zipped, {})
                entries.setdefault(reader.labels, []).append((position, reader))
            elif isinstance(axis, str) and axis in zipped:
                entries.setdefault((SAMPLE,), []).append((position, axis))
            else:
                names.append(axis)
                continue
            names.append(position)
        self.gathers: list[_Gather] = []
        for new, indexed in entries.items():
            places = [names.index(position) for position, _ in indexed]
            others = [i for i in range(len(names)) if i not in places]
            self.gathers.append(_Gather((*places, *others), tuple(index for _, index in indexed)))
            names = [*new, *(names[i] for i in others)]
        self.labels: Labels = tuple(names)
        self.distinct: Labels = tuple(dict.fromkeys(names))
        self.plain = not self.gathers and len(self.distinct) == len(self.labels)  # read as it is
        self._way: _WayBack | None = None

    def array(self, moments: Moments, known: Known, view: View) -> Array:
        """The factor with its gathers carried out."""
        array = known[self.source] if self.known else moments[self.source][self.stat]
        for gather in self.gathers:
            array = array.transpose(gather.order)[tuple(_index(index, known, view) for index in gather.indices)]
        return array

    def gather(self, known: Known) -> Callable[[Array], Array] | None:
        """How an array is read in full; None for as it is. Diagonals stay."""
        if not self.gathers:
            return None
        steps = [
            (
                None if gather.order == tuple(range(len(gather.order))) else gather.order,
                tuple(_index(index, known, FULL) for index in gather.indices),
            )
            for gather in self.gathers
        ]
        if len(steps) == 1 and steps[0][0] is None and len(steps[0][1]) == 1:
            ((_, (index,)),) = steps
            return lambda array: array[index]

        def read(array: Array) -> Array:
            for order, indices in steps:
                array = (array if order is None else array.transpose(order))[indices]
            return array

        return read

    def shape(self, shape: tuple[int, ...], known: Known) -> tuple[int, ...]:
        """The shape of what is read in full of an array of this shape."""
        for gather in self.gathers:
            rest = [shape[axis] for axis in gather.order[len(gather.indices) :]]
            shape = (*np.broadcast_shapes(*(_index(i, known, FULL).shape for i in gather.indices)), *rest)
        return shape

    def way_back(self, shape: tuple[int, ...], known: Known) -> Callable[[Array], Array]:
        """From a derivative by what was read in full, over its distinct labels, to one by the array of that shape."""
        way = self._way_back(shape, [tuple(_index(i, known, FULL) for i in gather.indices) for gather in self.gathers])
        return lambda gradient: self._back(np.asarray(gradient), way)

    def scattered(self, gradient: Array, shape: tuple[int, ...], known: Known, view: View) -> Array:
        """A derivative by what was read, over its distinct labels, as one by the array of that shape that it was read from."""
        indices = [tuple(_index(index, known, view) for index in gather.indices) for gather in self.gathers]
        way = self._way
        if (
            way is None
            or way.start != shape
            or not all(a is b for a, b in zip(way.indices, sum(indices, ()), strict=True))
        ):
            way = self._way = self._way_back(shape, indices)
        return self._back(gradient, way)

    def _back(self, gradient: Array, way: _WayBack) -> Array:
        if gradient.shape != way.distinct:
            gradient, part = np.empty(way.distinct), gradient
            gradient[...] = part  # a fifth of the time of np.broadcast_to, of which reshape makes a copy
        if len(self.distinct) < len(self.labels):
            gradient = self._on_diagonal(gradient, way.end)
        for flat, size, wide, order in way.steps:
            gradient = np.bincount(flat, gradient.reshape(-1), size).reshape(wide)
            gradient = gradient if order is None else gradient.transpose(order)
        return gradient

    def _way_back(self, shape: tuple[int, ...], indices: list[tuple[Array, ...]]) -> _WayBack:
        steps, start = [], shape
        for (order, _), own in zip(self.gathers, indices, strict=True):
            permuted = [shape[axis] for axis in order]
            dims, rest = permuted[: len(own)], permuted[len(own) :]
            flat = np.zeros((), dtype=np.int64)
            for index, size in zip(own, dims, strict=True):
                flat = flat * size + index
            width, shape = math.prod(rest), (*flat.shape, *rest)
            rows = flat.reshape(-1, 1) * width + np.arange(width)
            back = None if order == tuple(range(len(order))) else np.argsort(order)
            steps.append((rows.reshape(-1), math.prod(permuted), permuted, back))
        sizes = dict(zip(self.labels, shape, strict=True))
        distinct = tuple(sizes[label] for label in self.distinct)
        return _WayBack(start, sum(indices, ()), shape, distinct, steps[::-1])

    def _on_diagonal(self, gradient: Array, shape: tuple[int, ...]) -> Array:
        """A label that stands twice was read along a diagonal: zeros elsewhere."""
        out = np.zeros(shape)
        grids = np.indices(gradient.shape, sparse=True)
        out[tuple(grids[self.distinct.index(label)] for label in self.labels)] = gradient
        return out


def _index(index: Any, known: Known, view: View) -> Array:
    if isinstance(index, Reader):
        return index.array({}, known, view)
    return view.zipped[index] if isinstance(index, str) else view.moved[index]


class Product:
    """The product of factors of one monomial, summed to some labels; those that are always the same are multiplied once.

    ``cut`` is a label of which one element is wanted.
    """

    def __init__(
        self, readers: Sequence[Reader], weight: Labels | None, scale: float, out: Labels, cut: Label | None
    ) -> None:
        self.random = [reader for reader in readers if not reader.known]
        self.known = [reader for reader in readers if reader.known]
        self.weight, self.scale, self.cut = weight, scale, cut
        present = {label for reader in readers for label in reader.labels}.union(weight or ())
        self.out = tuple(label for label in out if label in present and label != cut)
        self._kept: tuple[list[tuple[str, Array]], list[Array], list[Labels], float] | None = None
        self._shapes: Any = None
        self._contraction: Contraction | None = None

    def array(self, arrays: Mapping[Any, Array], known: Known, view: View, number: Array) -> Array:
        """The product over ``out``; a number if nothing is left."""
        operands, labels, scale = self._constant(known, view)
        operands, labels = list(operands), list(labels)
        for reader in self.random:
            operands.append(arrays[reader])
            labels.append(reader.labels)
        if self.weight is not None:
            assert view.weight is not None
            operands.append(view.weight.array)
            labels.append(self.weight)
        if not operands:
            return scale
        if self.cut is not None:
            operands, labels = _cut(operands, labels, self.cut, number)
        if len(operands) == 1 and labels[0] == self.out:
            return operands[0] if scale == 1.0 else scale * operands[0]
        shapes = [array.shape for array in operands]
        if shapes != self._shapes:
            self._shapes, self._contraction = shapes, Contraction(self.out, labels, shapes)
        assert self._contraction is not None
        product = self._contraction(operands)
        return product if scale == 1.0 else scale * product

    def _constant(self, known: Known, view: View) -> tuple[list[Array], list[Labels], float]:
        """The known factors: multiplied with one another, and with the scale, where they are read in full."""
        if not self.known:
            return [], [], self.scale
        kept = self._kept
        if view is FULL and kept is not None:
            for source, array in kept[0]:
                if known[source] is not array:
                    break
            else:
                return kept[1], kept[2], kept[3]
        arrays = [np.asarray(reader.array({}, known, view), dtype=np.float64) for reader in self.known]
        labels, scale = [reader.labels for reader in self.known], self.scale
        if view is FULL:
            arrays, labels, scale = self._multiplied(arrays, labels)
            self._kept = [(reader.source, known[reader.source]) for reader in self.known], arrays, labels, scale
        return arrays, labels, scale

    def _multiplied(self, arrays: list[Array], labels: list[Labels]) -> tuple[list[Array], list[Labels], float]:
        needed = {label for reader in self.random for label in reader.labels}.union(self.out, self.weight or ())
        needed |= set() if self.cut is None else {self.cut}
        sizes = {x: n for a, names in zip(arrays, labels, strict=True) for x, n in zip(names, a.shape, strict=True)}
        together = tuple(label for label in sizes if label in needed)
        if len(arrays) > 1 and math.prod(sizes[x] for x in together) > max(MOST_KEPT, 2 * max(a.size for a in arrays)):
            return arrays, labels, self.scale
        product = Contraction(together, labels, [a.shape for a in arrays])(arrays)
        return [self.scale * product], [together], 1.0


def _cut(arrays: list[Array], labels: list[Labels], label: Label, number: Array) -> tuple[list[Array], list[Labels]]:
    """One element of a label, everywhere."""
    cut = [
        (a[tuple(number if x == label else slice(None) for x in names)], tuple(x for x in names if x != label))
        if label in names
        else (a, names)
        for a, names in zip(arrays, labels, strict=True)
    ]
    return [a for a, _ in cut], [names for _, names in cut]


def scale_of(monomial: Monomial, readers: Sequence[Reader], piece: Piece, zipped: Collection[str]) -> float:
    """The coefficient, times how often the monomial is there along plates that none of its factors has."""
    counted = {label for reader in readers for label in reader.labels}.union(zipped, monomial.counted)
    return monomial.coefficient * math.prod(piece.sizes[label] for label in piece.plates if label not in counted)


class _Reading:
    """The readers of a piece under a layout: each factor once."""

    def __init__(self, piece: Piece, view: View) -> None:
        self.zipped = tuple(view.zipped)
        self.moved = {key: index is None for key, index in view.moved.items()}
        self.weight = None if view.weight is None else view.weight.labels
        self._readers: dict[Factor, Reader] = {}
        self.monomials = [
            (m, readers := [self._reader(f) for f in m.factors], scale_of(m, readers, piece, self.zipped))
            for m in piece.monomials
        ]

    def _reader(self, factor: Factor) -> Reader:
        if factor not in self._readers:
            self._readers[factor] = Reader(factor, self.zipped, self.moved)
        return self._readers[factor]

    def arrays(self, used: Collection[Reader], moments: Moments, known: Known, view: View) -> dict[Reader, Array]:
        """The random factors, read."""
        return {reader: reader.array(moments, known, view) for reader in used}


class Values(_Reading):
    """The value of a piece under a layout of views."""

    def __init__(self, piece: Piece, view: View) -> None:
        super().__init__(piece, view)
        self.piece = piece  # kept, because it is known by its place in memory
        self.products = [Product(readers, self.weight, scale, (), None) for _, readers, scale in self.monomials]
        self.used = dict.fromkeys(reader for product in self.products for reader in product.random)

    def __call__(self, moments: Moments, known: Known, view: View) -> Array:
        arrays = self.arrays(self.used, moments, known, view)
        return np.float64(sum(product.array(arrays, known, view, None) for product in self.products))


class _Slope(NamedTuple):
    """One factor left out of one monomial: the others, and where what they say goes.

    ``whole`` says that the column is taken from the derivative by all of them, where a label does not single it out.
    """

    reader: Reader  # of the factor, without the axis of the column
    others: Product
    spread: tuple[Any, ...]  # axes of length one for labels that the others do not have
    whole: bool


class Slopes(_Reading):
    """The gradient of a piece by the moments of a node, or by one column of them along ``axis``."""

    def __init__(self, piece: Piece, name: str, view: View, axis: int | None, occurrence: int | None) -> None:
        super().__init__(piece, view)
        self.piece, self.name, self.axis = piece, name, axis
        self._cut_readers: dict[Factor, Reader] = {}
        self.slopes = [
            self._slope(
                monomial.factors[place], readers[place], [*readers[:place], *readers[place + 1 :]], scale * times
            )
            for monomial, readers, scale in self.monomials
            for place, times in readings(monomial, name, occurrence, piece.symmetric)
        ]
        self.used = dict.fromkeys(reader for slope in self.slopes for reader in slope.others.random)

    def _slope(self, factor: Factor, reader: Reader, others: list[Reader], scale: float) -> _Slope:
        cut = None if self.axis is None else self._column_label(factor, reader)
        if cut is not None:
            assert self.axis is not None
            reader = self._without(factor, self.axis)
        product = Product(others, self.weight, scale, reader.distinct, cut)
        spread = tuple(slice(None) if label in product.out else None for label in reader.distinct)
        return _Slope(reader, product, spread, self.axis is not None and cut is None)

    def _column_label(self, factor: Factor, reader: Reader) -> Label | None:
        """The label along which columns lie in a factor, if it reads them as they are."""
        assert self.axis is not None
        label = factor.axes[self.axis]
        if isinstance(label, Take) or label in self.zipped or (factor.source, self.axis) in self.moved:
            return None
        return label if reader.labels.count(label) == 1 else None

    def _without(self, factor: Factor, gone: int) -> Reader:
        axes = (*factor.axes[:gone], *factor.axes[gone + 1 :])
        rest = Factor(factor.source, factor.stat, axes, False)
        if rest not in self._cut_readers:
            self._cut_readers[rest] = Reader(rest, self.zipped, self.moved, gone)
        return self._cut_readers[rest]

    def __call__(self, moments: Moments, known: Known, view: View, number: Array) -> tuple[Array, ...]:
        arrays = self.arrays(self.used, moments, known, view)
        shapes = [stat.shape for stat in moments[self.name]]
        small = shapes if self.axis is None else [(*s[: self.axis], *s[self.axis + 1 :]) for s in shapes]
        total = [np.zeros(shape) for shape in small]
        # What goes back through the same indices is added up first.
        waiting: dict[tuple[Reader, bool], Array] = {}
        for reader, others, spread, whole in self.slopes:
            slope = others.array(arrays, known, view, number)
            if spread:
                slope = np.asarray(slope)[spread]
            if reader.plain and not whole:
                total[reader.stat] += slope
            else:
                key = reader, whole
                waiting[key] = waiting[key] + slope if key in waiting else np.asarray(slope)
        for (reader, whole), slope in waiting.items():
            stat = reader.stat
            scattered = reader.scattered(slope, shapes[stat] if whole else small[stat], known, view)
            total[stat] += np.take(scattered, number, axis=self.axis) if whole else scattered
        return tuple(total)
