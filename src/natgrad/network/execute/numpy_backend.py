"""The interpreter: values and gradients of polynomials by NumPy, at once. Nothing is compiled, and JAX is not imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any

import numpy as np

from natgrad.network.execute.addressing import FULL, Piece, Reader, View, segment_sum
from natgrad.network.execute.backend import BackendName, ColumnGradient
from natgrad.network.execute.column_sums import ColumnSlopes
from natgrad.network.execute.contraction import product_of
from natgrad.network.execute.lower import Jobs
from natgrad.network.polynomial import Label
from natgrad.threads import one_blas_thread

__all__ = ["HOST", "NumpyBackend"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Labels = tuple[Label, ...]


class NumpyBackend:
    """Remembers for every piece its products, and their known parts."""

    name: BackendName = "numpy"
    xp = np

    keeps = True

    def __init__(self) -> None:
        self.varies = False
        self._jobs = Jobs()
        self._columns: dict[Any, ColumnSlopes] = {}

    # -- polynomials --

    def value(self, piece: Piece, moments: Moments, known: Known, view: View = FULL) -> Array:
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
        axis, number = (None, None) if column is None else column
        job = self._jobs(piece, name, view, axis, occurrence if column is None else None)
        gradient: Stats = job.at(self, moments, known, view, number)
        return gradient

    def column_gradient(self, piece: Piece, name: str, axis: int) -> ColumnGradient:
        key = (id(piece), name, axis, get_ident())  # each thread has sums of its own
        if key not in self._columns:
            self._columns[key] = ColumnSlopes(self, piece, name, axis)  # keeps the piece, which is known by its place
        self._columns[key].begin()
        return self._columns[key].at

    def product_of(
        self, out: Labels, inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Array] | None:
        return product_of(out, inputs, shapes)

    def adjoint(self, reader: Reader, shape: tuple[int, ...], known: Known, view: View) -> Callable[[Array], Array]:
        return reader.adjoint(shape, known, view)

    def inner(self, first: Array, second: Array) -> Array:
        return np.vdot(first, second) if np.ndim(first) else first * second

    def segment_sum(self, rows: Array, index: Array, size: int) -> Array:
        return segment_sum(rows, index, size)

    # -- arrays and loops --

    def take_column(self, array: Array, number: Array, axis: int) -> Array:
        return array[(slice(None),) * axis + (number,)]

    def put_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        return self.write_column(np.array(array), piece, number, axis)

    def own(self, array: Array) -> Array:
        return np.array(array)

    def write_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        array[(slice(None),) * axis + (number,)] = piece
        return array

    def repeat(self, count: int, body: Callable[[Array, Any], Any], carry: Any) -> Any:
        for number in range(count):
            carry = body(number, carry)
        return carry

    def repeat_while(self, going: Callable[[Any], Array], body: Callable[[Any], Any], carry: Any) -> Any:
        while going(carry):
            carry = body(carry)
        return carry

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: _arrays(function(*arguments))

    def put(self, array: Array) -> Array:
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
