"""Fits in; an error out if they are known to be fits of different data, whose bounds have no order.

What a fit holds of its data is compared by numbers that no order of rows or columns changes: how many there are, and sums, with
the weights of plates. A model that was loaded knows how many it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["difference_of_data"]

# Attributes of ready models that count what they have seen, and what it is called. A time is a row of a sequence.
SEEN = {"n_rows_seen_": "rows", "n_times_seen_": "rows", "n_documents_seen_": "documents"}
OBSERVATIONS = "observations"  # of a network
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
        # A row of a ready model is as many observations of a network as it has columns: their sums tell.
        counts_alike = first[1].noun == known.noun or not {first[1].noun, known.noun} <= {"rows", OBSERVATIONS}
        if counts_alike and one != other:
            return f"{first[0]!r} is a fit of {one}, and {name!r} of {other}"
        if not _same(first[1].sums, known.sums):
            each = f", {one} each" if one == other else ""
            return f"{first[0]!r} and {name!r} are fits of other numbers{each}"
    return None


def _known(fit: Any) -> _Known | None:
    held = getattr(fit, "_data", None)
    if (ratings := getattr(fit, "ratings_", None)) is not None:
        values = np.asarray(ratings.values, np.float64)
        return _Known("ratings", len(values), np.array([values.sum(), (values**2).sum()]))
    for name, noun in SEEN.items():
        if hasattr(fit, name):
            return _Known(noun, float(getattr(fit, name)), _sums(held))
    if "log_likelihood" in (groups := getattr(fit, "children", {})):
        return _of_tree(groups)
    plan = getattr(getattr(fit, "problem", None), "plan", None)
    return None if plan is None else _of_network(plan)


def _of_network(plan: Any) -> _Known | None:
    """What was observed of all nodes, with the weights of their plates; None where some of it is not held."""
    leaves = [node for node in plan.declared.values() if node.is_observed]
    if not leaves or any(getattr(node, "value", None) is None for node in leaves):
        return None
    size, sums = 0.0, []
    for node in leaves:
        value, present = np.asarray(node.value), np.asarray(node._present(), bool)
        weight = np.ones(present.shape)
        for axis, plate in enumerate(node.plates):
            if plate.weight is not None:
                weight = weight * np.reshape(plate.weight, [-1 if here == axis else 1 for here in range(weight.ndim)])
        weight = np.where(present, weight, 0.0)
        size += float(weight.sum())
        sums.append(_weighted(value, weight))
    return _Known(OBSERVATIONS, size, _in_order(sums))


def _of_tree(groups: Mapping[str, Any]) -> _Known:
    """As many as have a log likelihood; sums of the group of observed data, where there is one."""
    likelihood = groups["log_likelihood"].dataset
    size = sum(v.size / (v.sizes["chain"] * v.sizes["draw"]) for v in likelihood.data_vars.values())
    if "observed_data" not in groups:
        return _Known(OBSERVATIONS, size, None)
    seen = groups["observed_data"].dataset
    return _Known(
        OBSERVATIONS,
        size,
        _in_order(
            [_weighted(np.asarray(v), np.ones(likelihood[n].shape[2:])) for n, v in seen.items() if n in likelihood]
        ),
    )


def _weighted(value: npt.NDArray[Any], weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weighted sums, and those of squares [2, entries of an event]; a category counts as its number."""
    columns = np.asarray(value, np.float64).reshape(weight.size, -1)
    columns = np.where(weight.reshape(-1, 1) > 0, columns, 0.0)
    return np.stack([weight.ravel() @ columns, weight.ravel() @ columns**2])


def _in_order(sums: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64] | None:
    return np.sort(np.concatenate(sums, axis=1), axis=1).ravel() if sums else None


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
    if one is None or other is None:
        return True
    if len(one) != len(other):
        return False
    return bool(np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * max(1.0, float(np.abs(one).max(initial=0.0)))))
