"""Numbers in any common form in; a new array of floats, checked, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.validation import is_masked

__all__ = ["as_numbers", "as_table", "from_arrow", "refuse_masked", "with_mask"]


def as_table(table: Any) -> npt.NDArray[np.float64]:
    """A copy of a table [users, items] of finite numbers, NaN where there is none."""
    array = as_numbers(table, "X")
    if array.ndim != 2:
        raise ValueError(
            f"X must be a table [users, items] with NaN for missing ratings, got shape {array.shape}. Reshape your data: one "
            "user is [ratings]"
        )
    if not array.shape[1]:
        raise ValueError(f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required: no items")
    if (bad := np.argwhere(np.isinf(array))).size:
        i, j = bad[0]
        raise ValueError(f"X[{i}, {j}] = {array[i, j]:g} must be finite, or NaN where there is no rating")
    return array


def as_numbers(values: Any, argument: str) -> npt.NDArray[np.float64]:
    """A copy of numbers as floats; text that looks like numbers is refused, missing and masked entries become NaN."""
    values = from_arrow(with_mask(values))
    if is_masked(values) and values.dtype.kind in "biuf":
        return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
    if hasattr(values, "to_numpy"):
        try:
            values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            values = values.to_numpy()
    try:
        array = np.array(values)
    except ValueError:
        raise TypeError(f"{argument} must be numbers, got rows of different lengths") from None
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {argument} must hold real numbers")
    refuse_masked(values, argument, f"and {array.dtype} has no NaN: give numbers")
    # As objects: in [1, "2"] the second is to blame, though NumPy makes text of both.
    array = np.array(values, dtype=object)
    for place, value in np.ndenumerate(array):
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            array[place] = np.nan if value is None or type(value).__name__ == "NAType" else float(value)
        except (TypeError, ValueError) as reason:
            where, why = f"{list(place)}" if place else "", f" ({reason})" if str(reason) else ""
            raise TypeError(
                f"{argument}{where} = {value!r} is not a number: convert it, float(…) for text{why}"
            ) from None
    return array.astype(np.float64)


def from_arrow(values: Any) -> Any:
    """A column of Arrow as an array, anything else as it is; a missing number is NaN, anything else that is missing None.

    Codes of a dictionary are replaced by what they stand for first: Arrow's own conversion of a chunked column takes the last
    word of the dictionary for a missing one.
    """
    if not (hasattr(values, "to_pylist") and hasattr(values, "null_count") and hasattr(values, "type")):
        return values
    if hasattr(values.type, "index_type"):
        values = values.cast(values.type.value_type)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def with_mask(values: Any) -> Any:
    """The same values; a list of masked arrays as one, since NumPy would drop their masks."""
    if isinstance(values, (list, tuple)) and any(is_masked(part) for part in values):
        return np.ma.array(list(values))
    return values


def refuse_masked(values: Any, argument: str, why: str) -> None:
    """An error with the first masked entry where none may be missing: NumPy would take what lies below the mask."""
    values = with_mask(values)
    if is_masked(values) and np.ma.is_masked(values):
        place = np.argwhere(np.ma.getmaskarray(values))[0].tolist()
        raise ValueError(f"{argument}{place if place else ''} is masked, {why}")
