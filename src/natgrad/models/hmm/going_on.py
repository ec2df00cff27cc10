"""Rows that were seen in; what draws of the next ones begin with out.

An autoregression needs the rows before the next one. Where the last of them are missing altogether, draws begin after the last
row that is there, and go through those that are missing: what they might have been is then drawn, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.inputs import Ahead

__all__ = ["GoingOn", "after_rows", "named_row"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


class GoingOn(NamedTuple):
    """Probabilities of the chain's state after the last row that is there (with inputs of all to come), the rows before, how
    many are missing between, and the dates of those to come.
    """  # noqa: D205

    first: Floats | Ahead
    before: Array | None = None
    missing: int = 0
    dates: Any = None


def after_rows(last: GoingOn, before: Array, columns: Array, states: Floats, transition: Floats, order: int) -> GoingOn:
    """The same after more rows [n, D], with these filtered states of the chain [n, S]; ``before`` are rows before them."""
    there = np.flatnonzero(~np.isnan(columns).all(1))
    if not len(there):
        return last._replace(missing=last.missing + len(columns))
    end = int(there[-1]) + 1
    rows = np.vstack([before, columns[:end]])
    return GoingOn(states[end - 1] @ transition, rows[len(rows) - min(order, len(rows)) :], len(columns) - end)


def named_row(row: Any) -> Array:
    """A row {name: entry} as a table of one row."""
    names = [str(name) for name in row.keys()]  # noqa: SIM118, a row of pandas is iterated by its entries
    return np.array([tuple(row[name] for name in row.keys())], dtype=[(name, object) for name in names])  # noqa: SIM118
