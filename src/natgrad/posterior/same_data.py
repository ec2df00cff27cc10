"""Fits in; an error out if they are known to be fits of different data, whose bounds have no order.

What a fit holds of its data is compared by numbers that no order of rows or columns changes: how many there are, and sums. A
model that was loaded knows how many it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["difference_of_data"]

# Attributes of ready models that count what they have seen, and what it is called. A time is a row of a sequence.
SEEN = {"n_rows_seen_": "rows", "n_times_seen_": "rows", "n_documents_seen_": "documents"}
# Rows whose columns are summed.
ROWS = 1_000_000
# Sums of the same numbers in another order.
ROUNDING = 1e-9


class _Known(NamedTuple):
    """What a fit was made of: so many of these, and sums of what it holds, or none."""

    noun: str
    size: float
    sums: npt.NDArray[np.float64] | None


def difference_of_data(fits: Mapping[str, Any]) -> str | None:
    """A sentence on the first two fits that are of different data; None where no such are known."""
    first: tuple[str, _Known] | None = None
    for name, fit in fits.items():
        known = _known(fit)
        if known is None:
            continue
        if first is None:
            first = name, known
            continue
        one, other = f"{first[1].size:.10g} {first[1].noun}", f"{known.size:.10g} {known.noun}"
        if one != other:
            return f"{first[0]!r} is a fit of {one}, and {name!r} of {other}"
        if not _same(first[1].sums, known.sums):
            return f"{first[0]!r} and {name!r} are fits of other numbers, {one} each"
    return None


def _known(fit: Any) -> _Known | None:
    held = getattr(fit, "_data", None)
    if (ratings := getattr(fit, "ratings_", None)) is not None:
        values = np.asarray(ratings.values, np.float64)
        return _Known("ratings", len(values), np.array([values.sum(), (values**2).sum()]))
    for name, noun in SEEN.items():
        if hasattr(fit, name):
            return _Known(noun, float(getattr(fit, name)), _sums(held))
    return None


def _sums(held: Any) -> npt.NDArray[np.float64] | None:
    """Sums of columns and of their squares, in order of size; of documents their words; None of what is not held."""
    if (corpus := getattr(held, "corpus", None)) is not None:
        return np.array([corpus.counts.sum()], np.float64)
    arrays = getattr(held, "arrays", None) or (getattr(held, "columns", None),)
    if arrays[0] is None or np.ndim(arrays[0]) != 2 or np.asarray(arrays[0][:1]).dtype.kind not in "biuf":
        return None
    columns = np.asarray(arrays[0][:ROWS], np.float64)
    return np.concatenate([np.sort(np.nansum(columns, 0)), np.sort(np.nansum(columns**2, 0))])


def _same(one: npt.NDArray[np.float64] | None, other: npt.NDArray[np.float64] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return True
    return bool(np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * max(1.0, float(np.abs(one).max(initial=0.0)))))
