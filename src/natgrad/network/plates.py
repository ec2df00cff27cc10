"""Plates: the named axes along which a node repeats, with an optional weight for each element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Index", "Plate", "as_index", "as_plates"]


class Plate:
    """A named axis with ``size`` elements; ``weight`` says how often each element counts.

    Parameters
    ----------
    name : str
        What errors, traces and results call this axis.
    size : int
        Number of elements, at least one.
    weight : array [size], optional
        Non-negative multiplicity of each element (counts of a bag of words, importance weights). An element with
        weight 2 contributes what two identical rows would.

    Examples
    --------
    >>> import natgrad as ng
    >>> ng.Plate("document", 300)
    Plate('document', 300)
    """

    def __init__(self, name: str, size: int, weight: npt.ArrayLike | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a plate's name must be a non-empty string, got {name!r}")
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"plate {name!r}: size must be an integer, got {size!r}")
        if size < 1:
            raise ValueError(f"plate {name!r}: size must be at least 1, got {size}: there is no data on it")
        self.name = name
        self.size = int(size)
        self.weight = None if weight is None else _checked_weight(name, self.size, weight)

    def index(self, values: npt.ArrayLike) -> Index:
        """An index array that is known to live on this plate, for when sizes alone do not tell."""
        array = np.asarray(values)
        if array.shape != (self.size,):
            raise ValueError(f"plate {self.name!r} has {self.size} elements, but the index has shape {array.shape}")
        return Index(as_index(array, f"index on plate {self.name!r}"), (self.name,))

    def __repr__(self) -> str:
        return f"Plate({self.name!r}, {self.size})"


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """Integers that pick elements of a plate; ``plates`` names the axes they live on, if known."""

    values: npt.NDArray[np.int64]
    plates: tuple[str, ...] | None = None


def as_plates(node: str, plate: Plate | tuple[Plate, ...] | list[Plate] | None) -> tuple[Plate, ...]:
    """The ``plate=`` argument as a tuple, checked."""
    if plate is None:
        return ()
    plates = (plate,) if isinstance(plate, Plate) else tuple(plate)
    for entry in plates:
        if not isinstance(entry, Plate):
            raise TypeError(f"{node!r}: plate must be a Plate or several, got {entry!r}: write Plate('name', size)")
    names = [entry.name for entry in plates]
    if len(set(names)) < len(names):
        raise ValueError(f"{node!r}: plate {max(names, key=names.count)!r} is given twice")
    return plates


def as_index(values: Any, what: str) -> npt.NDArray[np.int64]:
    """An integer array; whole-numbered floats are refused, because they often hide missing values."""
    array = np.asarray(values)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{what} must be an array of integers, got dtype {array.dtype}: convert ids to 0 … size − 1")
    return array.astype(np.int64)


def _checked_weight(name: str, size: int, weight: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.array(weight, dtype=np.float64)
    if array.shape != (size,):
        raise ValueError(f"plate {name!r}: weight must have shape ({size},), got {array.shape}")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if bad.size:
        raise ValueError(
            f"plate {name!r}: weights must be finite and ≥ 0, but weight[{bad[0]}] = {array[bad[0]]:g} "
            f"({bad.size} such). Drop these elements, or give them weight 0."
        )
    array.setflags(write=False)
    return array
