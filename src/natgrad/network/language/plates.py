"""Plates: the named axes along which a node repeats, with an optional weight for each element."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.validation import as_index, as_numbers, require, whole_number

__all__ = ["Index", "Plate", "as_plates", "plates_in_words"]


class Plate:
    """A named axis with ``size`` elements; ``weight`` says how often each element counts.

    Parameters
    ----------
    name : str
        What errors, traces and results call this axis.
    size : int, optional
        Number of elements, at least one. Without it the plate is as long as the table that the network is fitted to, or has an
        element for each id of the `Column` by which it is read.
    weight : array [size] or Column, optional
        Non-negative multiplicity of each element (counts of a bag of words, importance weights). An element with
        weight 2 contributes what two identical rows would.
    grow : bool
        Of components among which a category chooses: ``size`` is the most, and a fit finds how many there are. It begins with
        one, and splits, merges and deletes components as the exact bound says.

    Examples
    --------
    >>> import natgrad as ng
    >>> ng.Plate("document", 300)
    Plate('document', 300)
    """

    # Whether its elements are some of many, which come in chunks: in one of them all may be missing.
    is_part: bool = False
    # Nodes that miss values in some of these chunks: they have a mask in all of them.
    masked: frozenset[str] = frozenset()

    def __init__(self, name: str, size: int | None = None, weight: Any = None, *, grow: bool = False) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a plate's name must be a non-empty string, got {name!r}")
        if not isinstance(grow, bool):
            raise TypeError(f"plate {name!r}: grow must be True or False, got {grow!r}")
        if grow and (size is None or weight is not None):
            raise ValueError(
                f"plate {name!r}: a plate that grows has a size, the most that it may hold, and no weights"
            )
        self.name, self.grow = str(name), grow  # a string of NumPy would show in errors
        # An open plate has its size, and perhaps its weights, from a table; nothing is made on it before (`columns.py`).
        later = getattr(weight, "is_deferred", False)
        self.is_open = size is None or later
        self.size = 0 if size is None else whole_number(size, f"plate {name!r}: size")
        self.later = weight if later else None
        if weight is not None and size is None and not later:
            raise ValueError(
                f"plate {name!r}: weight is given, but no size: give Plate({name!r}, {len(weight)}, weight)"
            )
        self.weight = None if weight is None or later else _checked_weight(name, self.size, weight)

    def index(self, values: npt.ArrayLike) -> Index:
        """An index array that is known to live on this plate, for when sizes alone do not tell."""
        if self.is_open:
            raise PlateMismatch(f"plate {self.name!r} has no size before there is a table: index with a Column")
        array = as_index(values, f"plate {self.name!r}: index")
        if array.shape != (self.size,):
            raise PlateMismatch(
                f"plate {self.name!r}: index has shape {array.shape}, but ({self.size},) is needed: one integer for each element"
            )
        return Index(array, (self.name,))

    def __repr__(self) -> str:
        if self.grow:
            return f"Plate({self.name!r}, {self.size}, grow=True)"
        return f"Plate({self.name!r})" if self.is_open else f"Plate({self.name!r}, {self.size})"


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """Integers that pick elements of a plate; ``plates`` names the axes they live on, if known.

    ``categories`` are the observed nodes whose values they are: ancestors like any other. ``chosen_by`` is the reading of the one
    that chooses, where its values alone are the integers.
    """

    values: npt.NDArray[np.int64]
    plates: tuple[str, ...] | None = None
    categories: tuple[Any, ...] = ()
    chosen_by: Any = None


def as_plates(node: str, plate: Any) -> tuple[Plate, ...]:
    """The ``plate=`` argument as a tuple, checked."""
    if plate is None:
        return ()
    several = not isinstance(plate, (Plate, str)) and isinstance(plate, Iterable)
    plates = tuple(plate) if several else (plate,)
    for entry in plates:
        if not isinstance(entry, Plate):
            raise TypeError(f"{node!r}: plate must be a Plate or several, got {entry!r}: write Plate('name', size)")
    names = [entry.name for entry in plates]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{node!r}: plate {max(names, key=names.count)!r} is given twice: use two plates with names of their own"
        )
    return plates


def plates_in_words(plates: tuple[Plate, ...]) -> str:
    """Names and sizes for an error message."""
    sizes = {plate.name: plate.size for plate in plates}
    return f"plates {sizes}" if sizes else "no plates"


def _checked_weight(name: str, size: int, weight: npt.ArrayLike) -> npt.NDArray[np.float64]:
    what = f"plate {name!r}: weight"
    array = as_numbers(weight, what)
    if array.shape != (size,):
        raise PlateMismatch(f"{what} has shape {array.shape}, but ({size},) is needed: one number for each element")
    require(array >= 0, array, what, "≥ 0", ": give elements that do not count weight 0")
    if not array.any():
        raise ValueError(f"{what} is 0 everywhere: there is nothing to learn from")
    array.setflags(write=False)
    return array
