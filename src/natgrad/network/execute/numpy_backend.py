"""The interpreter: values and gradients of polynomials by NumPy, at once. Nothing is compiled, and JAX is not imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from natgrad.network.execute.addressing import FULL, Labelled, Piece, View
from natgrad.network.execute.backend import BackendName
from natgrad.network.execute.column_sums import ColumnSlopes
from natgrad.network.execute.interpreter import Slopes, Values, layout_of, segment_sum
from natgrad.network.execute.numpy_contraction import Contraction
from natgrad.network.polynomial import Label
from natgrad.threads import one_blas_thread

__all__ = ["NumpyBackend"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Means = dict[str, Array]


class NumpyBackend:
    """Remembers for every piece how its factors are read and in which order they are multiplied."""

    name: BackendName = "numpy"
    xp = np

    def __init__(self) -> None:
        self._values: dict[Any, Values] = {}
        self._slopes: dict[Any, Slopes] = {}
        self._columns: dict[Any, tuple[Piece, ColumnSlopes]] = {}
        self._contractions: dict[Any, Contraction] = {}

    # -- polynomials --

    def value(self, piece: Piece, moments: Moments, known: Known, view: View = FULL) -> Array:
        key = (id(piece), layout_of(view))
        values = self._values.get(key)
        if values is None:
            values = self._values[key] = Values(piece, view)
        return values(moments, known, view)

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
        key = (id(piece), name, layout_of(view), axis, occurrence)
        slopes = self._slopes.get(key)
        if slopes is None:
            slopes = self._slopes[key] = Slopes(piece, name, view, axis, occurrence)
        return slopes(moments, known, view, number)

    def column_slopes(self, piece: Piece, name: str, axis: int) -> ColumnSlopes:
        key = (id(piece), name, axis)
        if key not in self._columns:
            self._columns[key] = piece, ColumnSlopes(piece, name, axis)  # the piece is kept: it is known by its place
        return self._columns[key][1]

    def contract(self, out: tuple[Label, ...], factors: list[Labelled]) -> Array:
        labels = tuple(factor.labels for factor in factors)
        key = (out, labels, tuple(factor.array.shape for factor in factors))
        if key not in self._contractions:
            self._contractions[key] = Contraction(out, labels, key[2])
        return self._contractions[key]([factor.array for factor in factors])

    def inner(self, first: Array, second: Array) -> Array:
        return np.vdot(first, second)

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
