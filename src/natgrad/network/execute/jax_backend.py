"""The compiler: values and gradients of polynomials as JAX traces them, and its loops.

What is long is scanned in chunks, so that no array of size elements × event² is ever built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from natgrad._jax import compiled, in_64_bits
from natgrad.families import _spd  # noqa: F401  (what is traced is there before a program is named by it)
from natgrad.network.execute.addressing import FULL, Labelled, Layout, Piece, Reader, View
from natgrad.network.execute.backend import BackendName, ColumnGradient
from natgrad.network.execute.contraction import traced_product
from natgrad.network.execute.lower import Jobs, Reads
from natgrad.network.polynomial import Factor, Label, Mark, Monomial, Take

__all__ = ["JaxBackend"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Labels = tuple[Label, ...]


class JaxBackend:
    """The same methods as those of `NumpyBackend`, traced and compiled; numbers are of 64 bits."""

    name: BackendName = "jax"
    xp: Any = jnp
    keeps = False  # numbers are arguments of what is compiled

    def __init__(self) -> None:
        self.varies = False
        self._jobs = Jobs(_packed_readers)

    # -- polynomials --

    def value(self, piece: Piece, moments: Moments, known: Known, view: View = FULL) -> Array:
        if piece.window is None:
            return self._jobs(piece, None, view).at(self, moments, known, view)

        def chunk(total: Array, entry: tuple[Array, Array]) -> tuple[Array, None]:
            here = _window(piece, entry)
            return total + self._jobs(piece, None, here).at(self, moments, known, here), None

        return lax.scan(chunk, jnp.zeros(()), _windows(piece))[0]

    def gradient(
        self,
        piece: Piece,
        name: str,
        moments: Moments,
        known: Known,
        view: View = FULL,
        column: tuple[int, Array] | None = None,
        occurrence: int | None = None,
    ) -> Stats:
        axis, number = (None, None) if column is None else column
        occurrence = occurrence if column is None else None
        if piece.window is None:
            gradient: Stats = self._jobs(piece, name, view, axis, occurrence).at(self, moments, known, view, number)
            return gradient
        shapes = [part.shape for part in moments[name]]

        def chunk(sums: Stats, entry: tuple[Array, Array]) -> tuple[Stats, None]:
            here, total = _window(piece, entry), list(sums)
            reads = Reads(known, here, moments=moments)
            bound = self._jobs(piece, name, here, axis, occurrence).bind(self, reads, shapes)
            for (stat, axes, whole), value in bound.in_window([number, *reads.first[1:]]).items():
                if whole:
                    value = _add_slice(jnp.zeros(shapes[stat]), value, here, axes)
                    value, axes = self.take_column(value, number, axis or 0), ()
                total[stat] = _add_slice(total[stat], value, here, axes)
            return tuple(total), None

        kept = [s if axis is None else (*s[:axis], *s[axis + 1 :]) for s in shapes]
        scanned: Stats = lax.scan(chunk, tuple(map(jnp.zeros, kept)), _windows(piece))[0]
        return scanned

    def column_gradient(self, piece: Piece, name: str, axis: int) -> ColumnGradient:
        # A compiled loop carries arrays alone: no sums are kept between turns.
        return lambda number, moments, known: self.gradient(piece, name, moments, known, FULL, (axis, number))

    def product_of(
        self, out: Labels, inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Array] | None:
        return traced_product(out, inputs, shapes)

    def adjoint(self, reader: Reader, shape: tuple[int, ...], known: Known, view: View) -> Callable[[Array], Array]:
        def read(array: Array) -> Array:
            return reader.over(reader.read(array, known, view), reader.distinct)

        whole = jax.eval_shape(lambda: jnp.zeros(shape))
        back, wide = jax.linear_transpose(read, whole), jax.eval_shape(read, whole).shape
        return lambda gradient: back(jnp.broadcast_to(gradient, wide))[0]

    def inner(self, first: Array, second: Array) -> Array:
        return jnp.sum(first * second)

    def segment_sum(self, rows: Array, index: Array, size: int) -> Array:
        return jax.ops.segment_sum(rows, index, num_segments=size)

    # -- arrays and loops --

    def take_column(self, array: Array, number: Array, axis: int) -> Array:
        return lax.dynamic_index_in_dim(array, number, axis, keepdims=False)

    def put_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        return lax.dynamic_update_index_in_dim(array, piece, number, axis)

    def own(self, array: Array) -> Array:
        return array

    write_column = put_column

    def repeat(self, count: int, body: Callable[[Array, Any], Any], carry: Any) -> Any:
        return lax.fori_loop(0, count, body, carry)

    def repeat_while(self, going: Callable[[Any], Array], body: Callable[[Any], Any], carry: Any) -> Any:
        return lax.while_loop(going, body, carry)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(function)

    def put(self, array: Array) -> Array:
        return jax.device_put(array)

    def running(self) -> AbstractContextManager[None]:
        return in_64_bits()


def _windows(piece: Piece) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """The starts of equal windows that cover a piece, and their weights: the last one overlaps its neighbour with weight 0."""
    assert piece.window is not None
    size = piece.sizes[piece.window]
    count = math.ceil(size / piece.chunk)
    length = math.ceil(size / count)
    wanted = np.arange(count) * length
    starts = np.minimum(wanted, size - length)
    fresh = (starts[:, None] + np.arange(length)[None, :] >= wanted[:, None]).astype(np.float64)
    return starts.astype(np.int32), fresh


def _window(piece: Piece, entry: tuple[Array, Array]) -> View:
    """The view of a window, given its start and weights."""
    assert piece.window is not None
    return View(weight=Labelled(entry[1], (piece.window,)), window=(piece.window, entry[0], len(entry[1])))


def _add_slice(array: Array, piece: Array, view: View, axes: tuple[int, ...]) -> Array:
    """Add what is cut to a window along some axes where it belongs."""
    if not axes:
        return array + piece
    assert view.window is not None
    _, start, length = view.window
    starts = [start if axis in axes else jnp.zeros_like(start) for axis in range(array.ndim)]
    sizes = [length if axis in axes else size for axis, size in enumerate(array.shape)]
    return lax.dynamic_update_slice(array, lax.dynamic_slice(array, starts, sizes) + piece, starts)


# The square of known rows against a symmetric matrix is packed, each entry above the diagonal once: Σ_ij A_ij x_i x_j has
# D (D + 1) / 2 different products, not D². A is packed as A + Aᵀ above the diagonal, so that a gradient through it is the
# symmetric one. Matrices that are gathered for each element are packed before; what is gathered is shorter.

PACKED = Mark("packed")
# Longer rows are left as they are: a program that writes out each row of a triangle grows with them.
LONGEST = 64


class _Square(NamedTuple):
    """A known factor that stands twice in a monomial, along two labels, and the symmetric matrix that has both."""

    label: Label
    matrix: Factor
    first: Factor
    second: Factor


class _Squared(Reader):
    """Reads the products x_i x_j of known rows, row by row of the triangle."""

    def __init__(self, factor: Factor, layout: Layout, label: Label) -> None:
        super().__init__(factor, layout)
        self._place = self.labels.index(label)
        self.labels = self.distinct = (*(x for x in self.labels if x != label), PACKED)

    def read(self, array: Array, known: Mapping[str, Array], view: Any = None) -> Array:
        x = jnp.moveaxis(super().read(array, known, view), self._place, -1)
        return jnp.concatenate([x[..., i : i + 1] * x[..., i:] for i in range(x.shape[-1])], axis=-1)


def _packed_readers(monomial: Monomial, piece: Piece, layout: Layout) -> Sequence[Factor | Reader] | None:
    """The factors of a monomial with readers for a square and its matrix; None where there is no square."""
    square = _find_square(monomial, piece.symmetric)
    if square is None or piece.sizes[square.label] > LONGEST:
        return None
    rest = [f for f in monomial.factors if f not in (square.matrix, square.first, square.second)]
    matrix = square.matrix._replace(axes=(*square.matrix.axes[:-2], PACKED))
    return [Reader(matrix, layout, packed=_packed), _Squared(square.first, layout, square.label), *rest]


def _find_square(monomial: Monomial, symmetric: Collection[tuple[str, int]]) -> _Square | None:
    matrices = [f for f in monomial.factors if not f.known and (f.source, f.stat) in symmetric]
    if len(matrices) != 1:
        return None
    matrix = matrices[0]
    *plates, i, j = matrix.axes
    if isinstance(i, Take) or isinstance(j, Take) or i == j:
        return None
    if any({i, j} & set(axis.labels if isinstance(axis, Take) else (axis,)) for axis in plates):
        return None
    pair = [f for f in monomial.factors if f is not matrix and (i in f.labels or j in f.labels)]
    if len(pair) != 2 or not all(f.known for f in pair):
        return None
    first, second = pair if i in pair[0].axes else pair[::-1]
    if first.labels.count(i) != 1 or j in first.labels or i not in first.axes:
        return None
    return _Square(i, matrix, first, second) if first.relabelled({i: j}) == second else None


def _packed(array: Array) -> Array:
    """The upper triangle of ½ (A + Aᵀ) in the place of its last two axes, what stands off the diagonal twice.

    A matrix product with a table of zeros and ones: gathering single numbers takes longer than what packing saves.
    """
    size = array.shape[-1]
    rows, columns = np.triu_indices(size)
    table = np.zeros((size * size, len(rows)))
    table[rows * size + columns, np.arange(len(rows))] = 1.0
    table[columns * size + rows, np.arange(len(rows))] = 1.0
    return array.reshape(*array.shape[:-2], size * size) @ table
