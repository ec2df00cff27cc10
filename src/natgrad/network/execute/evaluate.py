"""Monomials and arrays in, numbers out: the evaluation of a term, in full, in a window, or on a sample of its elements.

A `View` says which part of a term is wanted. ``zipped`` labels are read at the given positions, all together, and become
the one axis `SAMPLE`; a ``window`` is a contiguous piece of one label, for scanning long plates in chunks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from natgrad.network.compile.polynomial import Factor, Label, Mark, Monomial, Take
from natgrad.network.execute.contraction import Labelled, aligned, contract

__all__ = ["FULL", "SAMPLE", "Column", "View", "evaluate", "read_factor"]

Array = Any
Moments = Mapping[str, tuple[Array, ...]]
SAMPLE = Mark("sample")


class View(NamedTuple):
    """The part of a term to evaluate. ``moved`` re-addresses axes of nodes whose arrays hold only the sampled elements."""

    zipped: Mapping[str, Array] = {}
    weight: Labelled | None = None
    window: tuple[Label, Array, int] | None = None
    moved: Mapping[tuple[str, int], Array | None] = {}
    cut: tuple[str, Label] | None = None  # (node, label): that node's arrays are cut to the window already


FULL = View()


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
) -> Array:
    """Σ over monomials of coefficient · product of factors, summed over every axis of the view.

    ``reading`` substitutes the statistics of one node in one of its occurrences only, so that a gradient can be taken
    through that occurrence alone.
    """
    cache: dict[Factor, Labelled] = {}

    def labelled(factor: Factor) -> Labelled:
        if factor not in cache:
            cache[factor] = read_factor(factor, moments, known, view, column, reading)
        return cache[factor]

    total: Array = 0.0
    for monomial in monomials:
        factors = [labelled(factor) for factor in monomial.factors]
        if view.weight is not None:
            factors.append(view.weight)
        present = {label for factor in factors for label in factor.labels}
        counted = present.union(view.zipped, monomial.counted)
        repeats = math.prod(sizes[label] for label in plates if label not in counted)
        scale = monomial.coefficient * repeats
        total = total + scale * (contract((), factors) if factors else 1.0)
    return total


def read_factor(
    factor: Factor,
    moments: Moments,
    known: Mapping[str, Array],
    view: View,
    column: Column | None,
    reading: tuple[str, int, tuple[Array, ...]] | None,
) -> Labelled:
    """One factor as an array with its labels: gathers carried out, the window cut, the column put in."""
    if factor.known:
        return _address(known[factor.source], factor, known, view)
    stats = moments[factor.source]
    if reading is not None and reading[:2] == (factor.source, factor.occurrence):
        stats = reading[2]
    whole = _address(stats[factor.stat], factor, known, view)
    if column is None or column.node != factor.source:
        return whole
    if len(set(whole.labels)) < len(whole.labels):
        # A label on two axes, the diagonal of a table: the column goes in before anything is gathered.
        own = lax.dynamic_update_index_in_dim(stats[factor.stat], column.stats[factor.stat], column.number, column.axis)
        return _address(own, factor, known, view)
    # Gather the column and the rest apart: the gradient then scatters one column instead of all of them.
    axes = (*factor.axes[: column.axis], *factor.axes[column.axis + 1 :])
    moved = {(s, p - (p > column.axis)): index for (s, p), index in view.moved.items() if p != column.axis}
    part = _address(
        column.stats[factor.stat],
        factor.__class__(factor.source, factor.stat, axes, False),
        known,
        view._replace(moved=moved),
    )
    places = _places(factor, column.axis, known, view)
    if places is not None:
        chosen = aligned(places, whole.labels) == column.number
        return Labelled(jnp.where(chosen, aligned(part, whole.labels), whole.array), whole.labels)
    label = factor.axes[column.axis]
    assert not isinstance(label, Take)
    place = whole.labels.index(label)
    piece = jnp.transpose(part.array, [part.labels.index(name) for name in whole.labels if name != label])
    return Labelled(lax.dynamic_update_index_in_dim(whole.array, piece, column.number, place), whole.labels)


def _places(factor: Factor, position: int, known: Mapping[str, Array], view: View) -> Labelled | None:
    """Which element of an axis each element of the view reads; None where the axis is read as it is."""
    axis = factor.axes[position]
    if (factor.source, position) in view.moved:
        index = view.moved[factor.source, position]
        return None if index is None else Labelled(index, (SAMPLE,))
    if isinstance(axis, Take):
        return _address(known[axis.index], _index_factor(axis), known, view)
    if isinstance(axis, str) and axis in view.zipped:
        return Labelled(view.zipped[axis], (SAMPLE,))
    if view.window is not None and axis == view.window[0]:
        return Labelled(view.window[1] + jnp.arange(view.window[2]), (axis,))
    return None


def _address(array: Array, factor: Factor, known: Mapping[str, Array], view: View) -> Labelled:
    """Carry out gathers and windows on one array."""
    labels: list[Label | None] = []
    gathers: dict[tuple[Label, ...], list[tuple[int, Array]]] = {}
    for position, axis in enumerate(factor.axes):
        if not factor.known and (factor.source, position) in view.moved:
            index = view.moved[factor.source, position]
            if index is None:
                labels.append(SAMPLE)
                continue
            gathers.setdefault((SAMPLE,), []).append((position, index))
            labels.append(None)
        elif isinstance(axis, Take):
            index, names = _address(known[axis.index], _index_factor(axis), known, view)
            gathers.setdefault(names, []).append((position, index))
            labels.append(None)
        elif isinstance(axis, str) and axis in view.zipped:
            gathers.setdefault((SAMPLE,), []).append((position, view.zipped[axis]))
            labels.append(None)
        else:
            cut = not factor.known and view.cut == (factor.source, axis)
            if view.window is not None and axis == view.window[0] and not cut:
                array = lax.dynamic_slice_in_dim(array, view.window[1], view.window[2], position)
            labels.append(axis)
    return _gather(array, labels, gathers)


def _gather(
    array: Array, labels: list[Label | None], gathers: dict[tuple[Label, ...], list[tuple[int, Array]]]
) -> Labelled:
    """Joint gathers: axes that are read through indices on the same labels move together."""
    names: list[Label | int] = [position if label is None else label for position, label in enumerate(labels)]
    for new, entries in gathers.items():
        places = [names.index(position) for position, _ in entries]
        others = [i for i in range(len(names)) if i not in places]
        array = array.transpose([*places, *others])  # of NumPy or of JAX
        array = array[tuple(index for _, index in entries)]
        names = [*new, *(names[i] for i in others)]
    return Labelled(array, tuple(name for name in names if not isinstance(name, int)))


def _index_factor(take: Take) -> Factor:
    return Factor(take.index, 0, take.labels, known=True)
