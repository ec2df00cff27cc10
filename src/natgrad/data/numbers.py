"""Numbers in any common form in; a new array of floats, checked, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["as_numbers", "as_table"]


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
    """A copy of numbers as floats; text that looks like numbers is refused, a table's missing entries become NaN."""
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
    # As objects: in [1, "2"] the second is to blame, though NumPy makes text of both.
    array = np.array(values, dtype=object)
    for place, value in np.ndenumerate(array):
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            array[place] = np.nan if value is None else float(value)
        except (TypeError, ValueError) as reason:
            where, why = f"{list(place)}" if place else "", f" ({reason})" if str(reason) else ""
            raise TypeError(
                f"{argument}{where} = {value!r} is not a number: convert it, float(…) for text{why}"
            ) from None
    return array.astype(np.float64)
