"""One factor of a monomial in, an array with a label for every axis out: gathers carried out, by NumPy or by JAX.

A `View` says which part of a term is wanted. ``zipped`` labels are read at the given positions, all together, and become
the one axis `SAMPLE`; a ``window`` is a contiguous piece of one label, for scanning long plates in chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from natgrad.network.polynomial import Factor, Label, Mark, Monomial, Take

__all__ = [
    "COEFFICIENTS",
    "FULL",
    "LONGEST_CHUNK",
    "SAMPLE",
    "Labelled",
    "Piece",
    "View",
    "address",
    "index_factor",
    "read_factor",
]

Array = Any
Moments = Mapping[str, tuple[Array, ...]]
SAMPLE = Mark("sample")
LONGEST_CHUNK = 32_768
# The known array of the coefficients that a compiled program has as arguments.
COEFFICIENTS = "coefficients"


class Labelled(NamedTuple):
    """An array and the label of each of its axes."""

    array: Array
    labels: tuple[Label, ...]


class View(NamedTuple):
    """The part of a term to evaluate. ``moved`` re-addresses axes of nodes whose arrays hold only the sampled elements."""

    zipped: Mapping[str, Array] = {}
    weight: Labelled | None = None
    window: tuple[Label, Array, int] | None = None
    moved: Mapping[tuple[str, int], Array | None] = {}
    cut: tuple[str, Label] | None = None  # (node, label): that node's arrays are cut to the window already


FULL = View()


class Piece(NamedTuple):
    """Monomials of one term that are evaluated together; ``window`` is the label they are scanned along, if long.

    ``symmetric`` are the nodes, with numbers of statistics, whose statistics are symmetric matrices.
    """

    monomials: tuple[Monomial, ...]
    sizes: Mapping[Label, int]
    plates: tuple[str, ...]
    window: str | None = None
    chunk: int = LONGEST_CHUNK
    symmetric: frozenset[tuple[str, int]] = frozenset()


def read_factor(factor: Factor, moments: Moments, known: Mapping[str, Array], view: View = FULL) -> Labelled:
    """One factor as an array with its labels: gathers carried out, the window cut."""
    array = known[factor.source] if factor.known else moments[factor.source][factor.stat]
    return address(array, factor, known, view)


def address(array: Array, factor: Factor, known: Mapping[str, Array], view: View) -> Labelled:
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
            index, names = address(known[axis.index], index_factor(axis), known, view)
            gathers.setdefault(names, []).append((position, index))
            labels.append(None)
        elif isinstance(axis, str) and axis in view.zipped:
            gathers.setdefault((SAMPLE,), []).append((position, view.zipped[axis]))
            labels.append(None)
        else:
            cut = not factor.known and view.cut == (factor.source, axis)
            if view.window is not None and axis == view.window[0] and not cut:
                from jax import lax  # windows are for what is compiled

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


def index_factor(take: Take) -> Factor:
    """The index array of an axis as a factor of its own."""
    return Factor(take.index, 0, take.labels, known=True)
