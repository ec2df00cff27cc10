"""Read a factor as an array with a label for every axis: gathers carried out, and their adjoints for derivatives.

A `View` says which part of a term is wanted. ``zipped`` labels are read at the given positions, all together, and become
the one axis `SAMPLE`; a ``window`` is a contiguous piece of one label, for scanning long plates in chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from natgrad.network.execute.contraction import diagonals
from natgrad.network.polynomial import Factor, Label, Mark, Monomial, Take

__all__ = [
    "COEFFICIENTS",
    "FULL",
    "LONGEST_CHUNK",
    "SAMPLE",
    "WHOLE",
    "Labelled",
    "Layout",
    "Piece",
    "Reader",
    "View",
    "layout_of",
    "segment_sum",
]

Array = Any
Labels = tuple[Label, ...]
Moments = Mapping[str, tuple[Array, ...]]
Known = Mapping[str, Array]
SAMPLE = Mark("sample")
LONGEST_CHUNK = 32_768
# The known array of the coefficients that a compiled program has as arguments.
COEFFICIENTS = "coefficients"


class Labelled(NamedTuple):
    """An array and the label of each of its axes."""

    array: Array
    labels: Labels


class View(NamedTuple):
    """The part of a term to evaluate. ``moved`` re-addresses axes of nodes whose arrays hold only the sampled elements."""

    zipped: Mapping[str, Array] = {}
    weight: Labelled | None = None
    window: tuple[Label, Array, int] | None = None  # label, first element, length
    moved: Mapping[tuple[str, int], Array | None] = {}


FULL = View()


class Layout(NamedTuple):
    """What of a view decides how factors are read; the rest are arrays."""

    zipped: tuple[str, ...] = ()
    moved: tuple[tuple[tuple[str, int], bool], ...] = ()  # an axis of a node, and whether it is the sample itself
    window: Label | None = None


WHOLE = Layout()


def layout_of(view: View) -> Layout:
    """The layout of a view."""
    if view is FULL:
        return WHOLE
    moved = tuple((key, index is None) for key, index in view.moved.items())
    return Layout(tuple(view.zipped), moved, None if view.window is None else view.window[0])


class Piece(NamedTuple):
    """Monomials of one term that are evaluated together; ``window`` is the label they are scanned along, if long.

    ``symmetric`` are the nodes, with numbers of statistics, whose statistics are symmetric matrices. Of a piece that ``varies``
    known factors differ from call to call.
    """

    monomials: tuple[Monomial, ...]
    sizes: Mapping[Label, int]
    plates: tuple[str, ...]
    window: str | None = None
    chunk: int = LONGEST_CHUNK
    symmetric: frozenset[tuple[str, int]] = frozenset()
    varies: bool = False


def segment_sum(rows: Array, index: Array, size: int) -> Array:
    """Add up rows [n, ...] by the element that ``index`` [n] names: [size, ...].

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
    """Reads one factor under a layout of views.

    ``gone`` is an axis of the node that the factor is without; a view knows its axes by their places in the whole. ``packed``
    is applied to the node's array before anything is gathered.
    """

    def __init__(
        self,
        factor: Factor,
        layout: Layout = WHOLE,
        gone: int | None = None,
        packed: Callable[[Array], Array] | None = None,
    ) -> None:
        self.factor, self.layout, self.packed = factor, layout, packed
        self.source, self.stat, self.known = factor.source, factor.stat, factor.known
        names: list[Any] = []
        entries: dict[Labels, list[tuple[int, Any]]] = {}
        moved = dict(layout.moved)
        windowed: list[int] = []
        for position, axis in enumerate(factor.axes):
            key = (factor.source, position if gone is None or position < gone else position + 1)
            if not factor.known and key in moved:
                if moved[key]:
                    names.append(SAMPLE)
                    continue
                entries.setdefault((SAMPLE,), []).append((position, key))
            elif isinstance(axis, Take):
                index = Factor(axis.index, 0, axis.labels, known=True)
                reader = Reader(index, layout)
                entries.setdefault(reader.labels, []).append((position, reader))
            elif isinstance(axis, str) and axis in layout.zipped:
                entries.setdefault((SAMPLE,), []).append((position, axis))
            else:
                if layout.window is not None and axis == layout.window:
                    windowed.append(position)
                names.append(axis)
                continue
            names.append(position)
        self.gathers: list[_Gather] = []
        for new, indexed in entries.items():
            places = [names.index(position) for position, _ in indexed]
            others = [i for i in range(len(names)) if i not in places]
            self.gathers.append(_Gather((*places, *others), tuple(index for _, index in indexed)))
            names = [*new, *(names[i] for i in others)]
        self.windowed = tuple(windowed)
        self.labels: Labels = tuple(names)
        self.distinct: Labels = tuple(dict.fromkeys(names))
        self.plain = not self.gathers and packed is None and len(self.distinct) == len(self.labels)  # read as it is
        self._way: _WayBack | None = None

    @property
    def indices(self) -> tuple[str, ...]:
        """The index arrays that it is read through."""
        return tuple(i.source for gather in self.gathers for i in gather.indices if isinstance(i, Reader))

    def array(self, moments: Moments, known: Known, view: View = FULL) -> Array:
        """The factor's array, gathers carried out."""
        array = known[self.source] if self.known else moments[self.source][self.stat]
        return self.read(self.cut(array, view), known, view)

    def cut(self, array: Array, view: View) -> Array:
        """The node's array, cut to the window."""
        if self.windowed:
            from jax import lax  # windows are for what is compiled

            assert view.window is not None
            for position in self.windowed:
                array = lax.dynamic_slice_in_dim(array, view.window[1], view.window[2], position)
        return array

    def read(self, array: Array, known: Known, view: View = FULL) -> Array:
        """Carry out gathers on the node's array, cut already."""
        if self.packed is not None:
            array = self.packed(array)
        for gather in self.gathers:
            array = array.transpose(gather.order)[tuple(_index(index, known, view) for index in gather.indices)]
        return array

    def gather(self, known: Known, view: View) -> Callable[[Array], Array] | None:
        """The function that reads the node's array, indices looked up once; None for an array that is read as it is."""
        if self.windowed or self.packed is not None:
            return lambda array: self.read(self.cut(array, view), known, view)
        if not self.gathers:
            return None
        steps = [
            (
                None if gather.order == tuple(range(len(gather.order))) else gather.order,
                tuple(_index(index, known, view) for index in gather.indices),
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

    def over(self, array: Array, labels: Labels) -> Array:
        """What was read with its axes among other labels: diagonals taken, axes of length one where it has none."""
        array, own = diagonals(array, self.labels)
        order = [own.index(label) for label in labels if label in own]
        return array.transpose(order)[tuple(slice(None) if label in self.distinct else None for label in labels)]

    def adjoint(self, shape: tuple[int, ...], known: Known, view: View) -> Callable[[Array], Array]:
        """From a derivative by what was read, over its distinct labels, to one by the array of that shape, for NumPy."""
        indices = [tuple(_index(i, known, view) for i in gather.indices) for gather in self.gathers]
        way = self._way
        if (
            way is None
            or way.start != shape
            or not all(a is b for a, b in zip(way.indices, sum(indices, ()), strict=True))
        ):
            way = self._way = self._way_back(shape, indices)
        return lambda gradient: self._back(np.asarray(gradient), way)

    def _back(self, gradient: Array, way: _WayBack) -> Array:
        if gradient.shape != way.distinct:
            gradient, part = np.empty(way.distinct), gradient
            gradient[...] = part  # a fifth of the time of np.broadcast_to, of which reshape makes a copy
        if len(self.distinct) < len(self.labels):
            gradient = self._on_diagonal(gradient, way.end)
        for flat, size, wide, order in way.steps:
            gradient = np.bincount(flat, gradient if gradient.ndim == 1 else gradient.reshape(-1), size)
            gradient = gradient if len(wide) == 1 else gradient.reshape(wide)
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
        """Put a derivative along a label that stands twice on the diagonal of zeros."""
        out = np.zeros(shape)
        grids = np.indices(gradient.shape, sparse=True)
        out[tuple(grids[self.distinct.index(label)] for label in self.labels)] = gradient
        return out


def _index(index: Any, known: Known, view: View) -> Array:
    if isinstance(index, Reader):
        return index.array({}, known, view)
    return view.zipped[index] if isinstance(index, str) else view.moved[index]
