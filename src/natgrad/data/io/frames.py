"""A frame of some library, an Arrow table or an array with fields in; its columns by name out."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.data.io.columns import refuse_duplicates
from natgrad.data.numbers import from_arrow

__all__ = ["frame_columns", "is_frame", "table_names"]


def is_frame(data: Any) -> bool:
    """Whether something is a frame of pandas or Polars, or a table of Arrow."""
    kind = type(data)  # of a lazy frame, to ask for the names would be work
    return hasattr(kind, "columns") and any(
        hasattr(kind, name) for name in ("iloc", "get_column", "collect", "num_rows")
    )


def frame_columns(data: Any) -> dict[str, Any] | None:
    """The columns of a frame of some library, or of an array with fields; None for what is neither."""
    if isinstance(data, np.ndarray):
        return {name: data[name] for name in data.dtype.names} if data.dtype.names else None
    if not is_frame(data):
        return None
    if hasattr(data, "iloc"):
        names = [str(name) for name in data.columns]
        refuse_duplicates("the table", names)
        return {name: data.iloc[:, place].to_numpy() for place, name in enumerate(names)}
    if hasattr(data, "num_rows"):
        return {name: from_arrow(data.column(name)) for name in data.schema.names}
    if hasattr(data, "collect"):
        data = data.collect()  # a lazy frame of Polars
    return {name: data.get_column(name).to_numpy() for name in data.columns}


def table_names(data: Any) -> list[str] | None:
    """The names of the columns of a frame or of an array with fields; None where they have none, or numbers in their place.

    Examples
    --------
    >>> table_names(np.zeros(2, dtype=[("level", float), ("day", int)])), table_names(np.zeros((2, 2)))
    (['level', 'day'], None)
    """
    if isinstance(data, np.ndarray):
        return list(data.dtype.names) if data.dtype.names else None
    if not is_frame(data):
        return None
    names = list(data.schema.names if hasattr(data, "num_rows") else data.columns)
    return names if names and all(isinstance(name, str) for name in names) else None
