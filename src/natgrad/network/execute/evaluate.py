"""Monomials and arrays in, a number out, for JAX to trace: a term in full, in a window, or on a sample of its elements.

Gradients are taken through it by `jax.grad`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from natgrad.network.execute.addressing import COEFFICIENTS, FULL, SAMPLE, Labelled, View, address, index_factor
from natgrad.network.execute.contraction import aligned, contract
from natgrad.network.polynomial import Factor, Label, Mark, Monomial, Take

__all__ = ["Column", "evaluate", "of_column", "packed_factors"]

# Sums of the square of known rows against symmetric matrices, for JAX to trace: each entry above the diagonal once.
#
# Σ_ij A_ij x_i x_j has D (D + 1) / 2 different products, not D². A is packed as ½ (A + Aᵀ), with weight two off the diagonal, so
# that a gradient through it is the symmetric one. Matrices that are gathered for each element are left as they are: rows of 25
# numbers are gathered and added up as fast as rows of 15.
Symmetric = frozenset[tuple[str, int]]  # node and number of each symmetric statistic
PACKED = Mark("packed")
# Longer rows are left as they are: a program that writes out each row of a triangle grows with them.
LONGEST = 64

Array = Any
Moments = Mapping[str, tuple[Array, ...]]


class Column(NamedTuple):
    """One column of a node along a coupled plate, held apart so that it alone is differentiated."""

    node: str
    axis: int
    number: Array
    stats: tuple[Array, ...]


def evaluate(
    monomials: Sequence[Monomial],
    sizes: Mapping[Label, int],
    plates: Sequence[str],
    moments: Moments,
    known: Mapping[str, Array],
    view: View = FULL,
    column: Column | None = None,
    reading: tuple[str, int, tuple[Array, ...]] | None = None,
    symmetric: Symmetric = frozenset(),
) -> Array:
    """Σ over monomials of coefficient · product of factors, summed over every axis of the view.

    ``reading`` substitutes the statistics of one node in one of its occurrences only, so that a gradient can be taken
    through that occurrence alone.
    """
    cache: dict[Factor, Labelled] = {}

    def labelled(factor: Factor) -> Labelled:
        if factor not in cache:
            cache[factor] = _read(factor, moments, known, view, column, reading)
        return cache[factor]

    def stats(factor: Factor) -> Array:
        own = _stats(factor, moments, reading)[factor.stat]
        return own if column is None or column.node != factor.source else _with_column(own, factor.stat, column)

    total: Array = 0.0
    for monomial in monomials:
        factors = packed_factors(monomial, symmetric, stats, known, view, labelled)
        if factors is None:
            factors = [labelled(factor) for factor in monomial.factors]
        if view.weight is not None:
            factors.append(view.weight)
        scale = _scale(monomial, factors, sizes, plates, known, view)
        total = total + scale * (contract((), factors) if factors else 1.0)
    return total


def of_column(
    monomials: Sequence[Monomial],
    sizes: Mapping[Label, int],
    plates: Sequence[str],
    moments: Moments,
    known: Mapping[str, Array],
    view: View,
    column: Column,
) -> Array | None:
    """A number with the gradient of `evaluate` by a column; None where a factor does not read columns as they are.

    Each factor of the node in turn is the column, and what else lies along its label is cut to it: nothing is multiplied for
    the other columns, but what is summed over them.
    """
    total: Array = 0.0
    for monomial in monomials:
        whole = [_read(factor, moments, known, view, None, None) for factor in monomial.factors]
        for place, factor in enumerate(monomial.factors):
            if factor.known or factor.source != column.node:
                continue
            label = factor.axes[column.axis]
            if isinstance(label, Take) or whole[place].labels.count(label) != 1 or _is_moved(factor, column.axis, view):
                return None
            own = _gathered_column(factor, column, known, view)
            rest = [_cut(other, label, column.number) for n, other in enumerate(whole) if n != place]
            total = total + _scale(monomial, whole, sizes, plates, known, view) * contract(
                (), [own, *rest, *([] if view.weight is None else [view.weight])]
            )
    return total


def _is_moved(factor: Factor, axis: int, view: View) -> bool:
    label = factor.axes[axis]
    window = None if view.window is None else view.window[0]
    return label in view.zipped or label == window or (factor.source, axis) in view.moved


def _cut(factor: Labelled, label: Label, number: Array) -> Labelled:
    """One element along a label, on each of its axes: a table that is read at [z, n, w] with all of these along n has two."""
    array, labels = factor
    while label in labels:
        place = labels.index(label)
        array = lax.dynamic_index_in_dim(array, number, place, keepdims=False)
        labels = (*labels[:place], *labels[place + 1 :])
    return Labelled(array, labels)


def _scale(
    monomial: Monomial,
    factors: Sequence[Labelled],
    sizes: Mapping[Label, int],
    plates: Sequence[str],
    known: Mapping[str, Array],
    view: View,
) -> Array:
    """The coefficient, times how often the monomial is there along plates that none of its factors has."""
    present = {label for factor in factors for label in factor.labels}
    present.update(() if view.weight is None else view.weight.labels)
    counted = present.union(view.zipped, monomial.counted)
    repeats = math.prod(sizes[label] for label in plates if label not in counted)
    return repeats * (monomial.coefficient if monomial.place is None else known[COEFFICIENTS][monomial.place])


def _with_column(array: Array, stat: int, column: Column) -> Array:
    return lax.dynamic_update_index_in_dim(array, column.stats[stat], column.number, column.axis)


def _read(
    factor: Factor,
    moments: Moments,
    known: Mapping[str, Array],
    view: View,
    column: Column | None,
    reading: tuple[str, int, tuple[Array, ...]] | None,
) -> Labelled:
    """One factor as an array with its labels: gathers carried out, the window cut, the column put in."""
    if factor.known:
        return address(known[factor.source], factor, known, view)
    stats = _stats(factor, moments, reading)
    whole = address(stats[factor.stat], factor, known, view)
    if column is None or column.node != factor.source:
        return whole
    if len(set(whole.labels)) < len(whole.labels):
        # A label on two axes, the diagonal of a table: the column goes in before anything is gathered.
        return address(_with_column(stats[factor.stat], factor.stat, column), factor, known, view)
    # Gather the column and the rest apart: the gradient then scatters one column instead of all of them.
    part = _gathered_column(factor, column, known, view)
    places = _places(factor, column.axis, known, view)
    if places is not None:
        chosen = aligned(places, whole.labels) == column.number
        return Labelled(jnp.where(chosen, aligned(part, whole.labels), whole.array), whole.labels)
    label = factor.axes[column.axis]
    assert not isinstance(label, Take)
    place = whole.labels.index(label)
    piece = jnp.transpose(part.array, [part.labels.index(name) for name in whole.labels if name != label])
    return Labelled(lax.dynamic_update_index_in_dim(whole.array, piece, column.number, place), whole.labels)


def _gathered_column(factor: Factor, column: Column, known: Mapping[str, Array], view: View) -> Labelled:
    """The column of a factor, gathers along its other axes carried out."""
    axes = (*factor.axes[: column.axis], *factor.axes[column.axis + 1 :])
    moved = {(s, p - (p > column.axis)): index for (s, p), index in view.moved.items() if p != column.axis}
    rest = factor.__class__(factor.source, factor.stat, axes, False)
    return address(column.stats[factor.stat], rest, known, view._replace(moved=moved))


def _stats(factor: Factor, moments: Moments, reading: tuple[str, int, tuple[Array, ...]] | None) -> tuple[Array, ...]:
    """The statistics of a random factor's node."""
    if reading is not None and reading[:2] == (factor.source, factor.occurrence):
        return reading[2]
    return moments[factor.source]


def _places(factor: Factor, position: int, known: Mapping[str, Array], view: View) -> Labelled | None:
    """Which element of an axis each element of the view reads; None where the axis is read as it is."""
    axis = factor.axes[position]
    if (factor.source, position) in view.moved:
        index = view.moved[factor.source, position]
        return None if index is None else Labelled(index, (SAMPLE,))
    if isinstance(axis, Take):
        return address(known[axis.index], index_factor(axis), known, view)
    if isinstance(axis, str) and axis in view.zipped:
        return Labelled(view.zipped[axis], (SAMPLE,))
    if view.window is not None and axis == view.window[0]:
        return Labelled(view.window[1] + jnp.arange(view.window[2]), (axis,))
    return None


class _Square(NamedTuple):
    """A known factor that stands twice in a monomial, along two labels, and the symmetric matrix that has both."""

    label: Label
    matrix: Factor
    first: Factor
    second: Factor


def packed_factors(
    monomial: Monomial,
    symmetric: Symmetric,
    stats: Callable[[Factor], Array],
    known: Mapping[str, Array],
    view: View,
    labelled: Callable[[Factor], Labelled],
) -> list[Labelled] | None:
    """The factors of a monomial as labelled arrays, a square and its matrix packed; None where there is no square."""
    square = _find_square(monomial, symmetric)
    if square is None or stats(square.matrix).shape[-1] > LONGEST:
        return None
    rest = [labelled(f) for f in monomial.factors if f not in (square.matrix, square.first, square.second)]
    matrix = square.matrix._replace(axes=(*square.matrix.axes[:-2], PACKED))
    packed = address(_packed(stats(square.matrix)), matrix, known, view)
    return [packed, _squared(labelled(square.first), square.label), *rest]


def _find_square(monomial: Monomial, symmetric: Symmetric) -> _Square | None:
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


def _squared(part: Labelled, label: Label) -> Labelled:
    """x_i x_j of the packed places, row by row of the triangle."""
    x = jnp.moveaxis(part.array, part.labels.index(label), -1)
    products = [x[..., i : i + 1] * x[..., i:] for i in range(x.shape[-1])]
    kept = tuple(name for name in part.labels if name != label)
    return Labelled(jnp.concatenate(products, axis=-1), (*kept, PACKED))
