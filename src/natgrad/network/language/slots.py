"""Parameter slots of nodes: what fits into each, and the checks on known numbers, observations and masks that are put there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.language.expressions import MATRIX, POSITIVE, RATE, REAL, SIMPLEX, UNIT, VECTOR, Kind
from natgrad.network.language.plates import Plate, plates_in_words
from natgrad.validation import first, require, where

__all__ = [
    "ACCEPTED",
    "Slot",
    "check_observed_shape",
    "check_range",
    "check_slot_shape",
    "checked_categories",
    "checked_mask",
    "is_flat",
    "is_precision",
    "spread",
]

# Probabilities that were normalised in single precision, or written out with six digits, count as normalised.
SUM_TOLERANCE = 1e-6
EVENT_NDIM = {VECTOR: 1, MATRIX: 2, SIMPLEX: 1}
ACCEPTED = {
    REAL: "a constant, a Normal, a dot, a sum or a known multiple of these",
    VECTOR: "a constant vector, a MultivariateNormal, a sum or a known multiple of these",
    POSITIVE: "a positive constant, a Gamma or an Exponential (a known multiple of it too)",
    MATRIX: "a positive-definite constant, a Wishart, or diag of a Gamma",
    SIMPLEX: "constant probabilities or a Dirichlet",
    UNIT: "a constant probability or a Beta",
    RATE: "a Gamma, a dot of Gammas along a plate, or a sum of these and positive constants",
}


class Slot(NamedTuple):
    """A parameter slot: its name, what kind of expression it takes, and whether only known numbers fit.

    ``events`` is the number of event axes of a constant, where the kind alone does not tell; ``least`` the least known number
    where that is not above 0: such a prior is improper, and only for hidden nodes.
    """

    name: str
    kind: Kind
    fixed: bool = False
    events: int | None = None
    least: float | None = None  # the least known number; 0, or −1 for a shape, lets a prior be improper

    @property
    def event_ndim(self) -> int:
        """How many of the last axes of a constant belong to one element."""
        return EVENT_NDIM.get(self.kind, 0) if self.events is None else self.events


def check_range(what: str, kind: Kind, array: npt.NDArray[np.float64], least: float | None = None) -> None:
    """Constants in a slot must be possible values of what the slot stands for."""
    if least is not None and (kind == POSITIVE or array.ndim == 0):
        require(array >= least, array, what, f"≥ {least:g}")
    elif kind == POSITIVE or (kind == MATRIX and array.ndim == 0):
        require(array > 0, array, what, "> 0")
    elif kind in (UNIT, SIMPLEX):
        require((array >= 0) & (array <= 1), array, what, "between 0 and 1")
    if kind == SIMPLEX:
        if array.ndim == 0:
            raise ValueError(f"{what} must be a vector of probabilities, got the number {array:g}")
        total = np.asarray(array.sum(-1))
        if (place := first(np.abs(total - 1) > SUM_TOLERANCE)) is not None:
            raise ValueError(f"{what}{where(place)} sums to {total[place]:g}, not to 1: divide by the sum")
    if kind == MATRIX and array.ndim:
        check_precision(what, array, semidefinite=least is not None)


def check_precision(what: str, array: npt.NDArray[Any], semidefinite: bool = False) -> None:
    """Symmetric and positive definite (or semidefinite), with the first matrix that is not."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise PlateMismatch(
            f"{what} must be a square matrix, got shape {array.shape}; for a diagonal one numpy.diag(values)"
        )
    mirrored = np.swapaxes(array, -1, -2)
    if (place := first(np.abs(array - mirrored) > 1e-8 + 1e-5 * np.abs(mirrored))) is not None:
        raise ValueError(
            f"{what} must be symmetric, but its element {where(place)} = {array[place]:g} and "
            f"{where((*place[:-2], place[-1], place[-2]))} = {mirrored[place]:g}: use (m + m.T) / 2"
        )
    smallest = np.asarray(np.linalg.eigvalsh(array)[..., 0])
    # A matrix of low rank has eigenvalues that are zero to rounding.
    floor = -1e-12 * np.abs(array).max(axis=(-1, -2))
    if (place := first(smallest < floor if semidefinite else smallest <= 0)) is not None:
        raise ValueError(
            f"{what}{where(place)} must be positive {'semi' * semidefinite}definite, but its smallest eigenvalue is "
            f"{smallest[place]:g}"
        )


def is_precision(array: npt.NDArray[np.float64]) -> bool:
    """Whether numbers that are not all positive are a precision matrix: ``tau * np.eye(3)``."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or bool((array > 0).all()):
        return False
    return np.allclose(array, np.swapaxes(array, -1, -2)) and bool((np.linalg.eigvalsh(array) > 0).all())


def checked_categories(
    what: str, value: npt.NDArray[Any], size: int, present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Integer categories 0 … size − 1, with the first offender named."""
    value = np.where(present, value, 0)
    if (place := first(value != np.round(value))) is not None:
        raise ValueError(f"{what}{where(place)} = {value[place]:g}, but categories are whole numbers 0 … {size - 1}")
    outside = (value < 0) | (value >= size)
    if (place := first(outside)) is not None:
        more = f" ({int(outside.sum())} such)" if value.ndim else ""
        raise ValueError(f"{what}{where(place)} = {value[place]:g} is outside the categories 0 … {size - 1}{more}")
    return value.astype(np.int64)


def spread(present: npt.NDArray[np.bool_], ndim: int) -> npt.NDArray[np.bool_]:
    """A flag for each element of the plates as an array that broadcasts over the event axes."""
    return present.reshape(present.shape + (1,) * (ndim - present.ndim))


def is_flat(constant: Any) -> bool:
    """Whether known parameters make a prior improper: a number ≤ 0, or a precision matrix that is not of full rank."""
    value = constant.value
    if constant.kind == MATRIX and value.ndim:
        smallest = np.linalg.eigvalsh(value)[..., 0]
        return bool((smallest <= 1e-12 * np.abs(value).max(axis=(-1, -2))).any())
    return bool((value <= 0).any())


def check_slot_shape(
    name: str, slot: Slot, shape: tuple[int, ...], plates: tuple[Plate, ...], size: int | None
) -> None:
    """Numbers in a slot broadcast over the plates, and have the node's size where they are vectors."""
    sizes = tuple(plate.size for plate in plates)
    events = (size or 0,) * slot.event_ndim if shape else ()
    wanted = sizes + events
    short = len(shape) < len(events) or len(shape) > len(wanted)
    ends = zip(shape[::-1], wanted[::-1], strict=False)
    # A concentration of length 1 is the same for all categories; other event axes are written out.
    if not short and all(n == m or (n == 1 and (i >= len(events) or slot.fixed)) for i, (n, m) in enumerate(ends)):
        return
    reason = f"({plates_in_words(plates)}); leading axes may be left out or be 1"
    if not sizes:
        reason = "" if events else f"as {name!r} has no plates: give plate=Plate('name', {shape[0]})"
    raise PlateMismatch(
        f"{name!r}: {slot.name} has shape {shape}, but {wanted or 'one number'} is needed {reason}".rstrip()
    )


def check_observed_shape(
    name: str, shape: tuple[int, ...], plates: tuple[Plate, ...], event_ndim: int, size: int | None
) -> None:
    """Observations have every axis of the plates, and then those of the events."""
    wanted = (*(plate.size for plate in plates), *(size or 0,) * event_ndim)
    if shape == wanted:
        return
    event = ("", f", vectors of length {size}", f", matrices of size {size}")[event_ndim]
    advice = f": give plate=Plate('name', {shape[0]})" if not plates and len(shape) == 1 + event_ndim else ""
    advice = ": give observed[..., 0]" if plates and shape == (*wanted, 1) else advice
    raise PlateMismatch(
        f"{name!r}: observed has shape {shape}, but {wanted or 'one number'} is needed "
        f"({plates_in_words(plates)}{event}){advice}"
    )


def checked_mask(name: str, mask: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Which elements count: all of them where there is no mask."""
    if mask is None:
        return np.ones(shape, dtype=bool)
    array = np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"{name!r}: mask must be booleans, True where observed, got dtype {array.dtype}")
    if array.shape != shape:
        raise PlateMismatch(f"{name!r}: mask has shape {array.shape}, but {shape} is needed, one for each element")
    return array
