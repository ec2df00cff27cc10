"""Who multiplies the arrays: what the mathematics of a network asks of JAX, which compiles it, or of NumPy, which does it now.

Lowered polynomials, programs, updates and loops are written once, on a `Backend`. The two differ in how labelled arrays are
multiplied, how what was gathered is added up, and how loops run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from natgrad.network.execute.addressing import FULL, Piece, Reader, View
from natgrad.network.polynomial import Label

__all__ = ["BACKENDS", "Backend", "BackendName", "ColumnGradient"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Labels = tuple[Label, ...]
BackendName = Literal["numpy", "jax"]
# Of a column by number, at moments and known arrays.
ColumnGradient = Callable[[Array, Moments, Known], Stats]
BACKENDS: tuple[BackendName, ...] = ("numpy", "jax")


class Backend(Protocol):
    """Arrays, loops and the two functions of a polynomial: its value and its gradient."""

    @property
    def name(self) -> BackendName:
        """How it is asked for."""
        ...

    @property
    def xp(self) -> Any:
        """Functions of arrays."""
        ...

    def value(self, piece: Piece, moments: Moments, known: Known, view: View = FULL) -> Array:
        """Σ over monomials of coefficient · product of factors, summed over every axis of the view."""
        ...

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
        ...

    def column_gradient(self, piece: Piece, name: str, axis: int) -> ColumnGradient:
        """The gradient by columns that take turns, for one round of them; sums over the others may be kept between turns."""
        ...

    varies: bool  # whether known arrays differ from call to call, as those of chunks do

    @property
    def keeps(self) -> bool:
        """Whether products of known arrays are multiplied once, for many calls."""
        ...

    def product_of(
        self, out: Labels, inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Array] | None:
        """The contraction of labelled arrays to ``out`` as a function of them; None for the one array as it is."""
        ...

    def adjoint(self, reader: Reader, shape: tuple[int, ...], known: Known, view: View) -> Callable[[Array], Array]:
        """From a derivative by what a reader reads, over its distinct labels, to one by the array of that shape."""
        ...

    def inner(self, first: Array, second: Array) -> Array:
        """Σ of the products of two arrays of one shape."""
        ...

    def segment_sum(self, rows: Array, index: Array, size: int) -> Array:
        """Rows added up by the element that an index names."""
        ...

    def take_column(self, array: Array, number: Array, axis: int) -> Array:
        """One column along an axis, without the axis."""
        ...

    def put_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        """The array with one column replaced."""
        ...

    def own(self, array: Array) -> Array:
        """A copy for `write_column`, where arrays can be changed."""
        ...

    def write_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        """The array with one column replaced, in place where arrays can be changed."""
        ...

    def repeat(self, count: int, body: Callable[[Array, Any], Any], carry: Any) -> Any:
        """``body(number, carry)`` for 0 … count − 1."""
        ...

    def repeat_while(self, going: Callable[[Any], Array], body: Callable[[Any], Any], carry: Any) -> Any:
        """``body(carry)`` as long as ``going(carry)``."""
        ...

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, ready to be called inside `running`."""
        ...

    def put(self, array: Array) -> Array:
        """A known array where the backend wants it."""
        ...

    def running(self) -> AbstractContextManager[None]:
        """Around every call."""
        ...
