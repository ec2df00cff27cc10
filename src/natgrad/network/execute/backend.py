"""Multiply the arrays of a network: what its mathematics asks of JAX, which compiles it, or of NumPy, which does it now.

Lowered polynomials, programs, updates and loops are written once, on a `Backend`. The two have the same methods, and differ in
how labelled arrays are multiplied, how what was gathered is added up, and how loops run. Here is that of NumPy: nothing is
compiled, and JAX is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from natgrad.network.execute.addressing import FULL, Piece, Reader, View, segment_sum
from natgrad.network.execute.column_sums import ColumnSlopes
from natgrad.network.execute.contraction import product_of
from natgrad.network.execute.lower import Jobs
from natgrad.network.polynomial import Label
from natgrad.threads import one_blas_thread

if TYPE_CHECKING:
    from natgrad.network.execute.jax_backend import JaxBackend

__all__ = ["BACKENDS", "HOST", "Backend", "BackendName", "ColumnGradient", "NumpyBackend"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Labels = tuple[Label, ...]
BackendName = Literal["numpy", "jax"]
Backend: TypeAlias = "NumpyBackend | JaxBackend"
# Of a column by number, at moments and known arrays.
ColumnGradient = Callable[[Array, Moments, Known], Stats]
BACKENDS: tuple[BackendName, ...] = ("numpy", "jax")


class NumpyBackend:
    """Arrays, loops, values and gradients by NumPy; of every piece its products and their known parts are kept."""

    name: BackendName = "numpy"
    xp: Any = np  # functions of arrays
    keeps = True  # products of known arrays are multiplied once, for many calls

    def __init__(self) -> None:
        self.varies = False  # whether known arrays differ from call to call, as those of chunks do
        self._jobs = Jobs()
        self._columns: dict[Any, ColumnSlopes] = {}

    # -- polynomials --

    def value(self, piece: Piece, moments: Moments, known: Known, view: View = FULL) -> Array:
        """Σ over monomials of coefficient · product of factors, summed over every axis of the view."""
        return np.float64(self._jobs(piece, None, view).at(self, moments, known, view))

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
        """The derivative of the value by the moments of a node; of one column (axis, number), or through one occurrence."""
        axis, number = (None, None) if column is None else column
        job = self._jobs(piece, name, view, axis, occurrence if column is None else None)
        gradient: Stats = job.at(self, moments, known, view, number)
        return gradient

    def column_gradient(self, piece: Piece, name: str, axis: int) -> ColumnGradient:
        """The gradient by columns that take turns, for one round of them; sums over the others are kept between turns."""
        key = (id(piece), name, axis, get_ident())  # each thread has sums of its own
        if key not in self._columns:
            self._columns[key] = ColumnSlopes(self, piece, name, axis)  # keeps the piece, which is known by its place
        self._columns[key].begin()
        return self._columns[key].at

    def product_of(
        self, out: Labels, inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Array] | None:
        """The contraction of labelled arrays to ``out`` as a function of them; None for the one array as it is."""
        return product_of(out, inputs, shapes)

    def adjoint(self, reader: Reader, shape: tuple[int, ...], known: Known, view: View) -> Callable[[Array], Array]:
        """From a derivative by what a reader reads, over its distinct labels, to one by the array of that shape."""
        return reader.adjoint(shape, known, view)

    def inner(self, first: Array, second: Array) -> Array:
        """Σ of the products of two arrays of one shape."""
        return np.vdot(first, second) if np.ndim(first) else first * second

    def segment_sum(self, rows: Array, index: Array, size: int) -> Array:
        """Rows added up by the element that an index names."""
        return segment_sum(rows, index, size)

    # -- arrays and loops --

    def take_column(self, array: Array, number: Array, axis: int) -> Array:
        """One column along an axis, without the axis."""
        return array[(slice(None),) * axis + (number,)]

    def put_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        """The array with one column replaced."""
        return self.write_column(np.array(array), piece, number, axis)

    def own(self, array: Array) -> Array:
        """A copy for `write_column`, where arrays can be changed."""
        return np.array(array)

    def write_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        """The array with one column replaced, in place where arrays can be changed."""
        array[(slice(None),) * axis + (number,)] = piece
        return array

    def repeat(self, count: int, body: Callable[[Array, Any], Any], carry: Any) -> Any:
        """``body(number, carry)`` for 0 … count − 1."""
        for number in range(count):
            carry = body(number, carry)
        return carry

    def repeat_while(self, going: Callable[[Any], Array], body: Callable[[Any], Any], carry: Any) -> Any:
        """``body(carry)`` as long as ``going(carry)``."""
        while going(carry):
            carry = body(carry)
        return carry

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, ready to be called inside `running`."""
        return lambda *arguments: _arrays(function(*arguments))

    def put(self, array: Array) -> Array:
        """A known array where the backend wants it."""
        return array

    def running(self) -> AbstractContextManager[None]:
        """Around every call."""
        return _Running()


class _Running:
    """One thread of the matrix library, and a λ that is no more valid is told by the numbers, not by warnings."""

    def __enter__(self) -> None:
        self._one, self._quiet = one_blas_thread(), np.errstate(all="ignore")
        self._one.__enter__()
        self._quiet.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._quiet.__exit__(*error)
        self._one.__exit__(*error)


def _arrays(tree: Any) -> Any:
    """Numbers as arrays without axes, as JAX has them: a state is made of arrays, and so are files of it."""
    if isinstance(tree, dict):
        return {key: _arrays(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        parts = [_arrays(part) for part in tree]
        return tree._make(parts) if hasattr(tree, "_make") else tuple(parts)
    return np.asarray(tree) if isinstance(tree, np.generic) else tree


# For what is neither traced nor compiled, whatever backend a network has.
HOST = NumpyBackend()
