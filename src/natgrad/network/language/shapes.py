"""The shapes of what a node is given: numbers in its slots, observations and masks fit its plates and its vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.language.plates import Plate, plates_in_words
from natgrad.network.language.slots import Slot

__all__ = ["check_observed_shape", "check_slot_shape", "checked_mask"]


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
