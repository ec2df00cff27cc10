"""Pack the square of known rows against a symmetric matrix, for JAX: each entry above the diagonal once.

Σ_ij A_ij x_i x_j has D (D + 1) / 2 different products, not D². A is packed as A + Aᵀ above the diagonal, so that a gradient
through it is the symmetric one. Matrices that are gathered for each element are packed before; what is gathered is shorter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from natgrad.network.execute.addressing import Layout, Piece, Reader
from natgrad.network.polynomial import Factor, Label, Mark, Monomial, Take

__all__ = ["packed_readers"]

Array = Any
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


def packed_readers(monomial: Monomial, piece: Piece, layout: Layout) -> Sequence[Factor | Reader] | None:
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
