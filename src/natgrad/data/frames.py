"""Take the columns of a table as NumPy arrays: of pandas, Polars, Arrow or any other library that narwhals knows.

No other module asks what kind of table something is. narwhals is imported only for what is none of the types of Python, NumPy,
SciPy and natgrad, so that fits to arrays begin without it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "as_column",
    "choose_columns",
    "column_names",
    "frame_columns",
    "is_frame",
    "refuse_duplicates",
    "table_names",
    "take_rows",
]

Array = npt.NDArray[Any]
# Packages whose types are no frames.
PLAIN = {"builtins", "collections", "natgrad", "numpy", "pathlib", "scipy"}


def is_frame(data: Any) -> bool:
    """Return whether something is a frame, eager or lazy, of a library that narwhals knows."""
    return hasattr(type(_narwhal(data)), "columns")  # of a lazy frame, to ask for the names would be work


def column_names(data: Any) -> list[Any] | None:
    """Return the names of the columns of a frame or of an array with fields, None for anything else.

    Examples
    --------
    >>> column_names(np.zeros(2, dtype=[("level", float), ("day", int)])), column_names(np.zeros((2, 2)))
    (['level', 'day'], None)
    """
    if isinstance(data, np.ndarray):
        return list(data.dtype.names) if data.dtype.names else None
    return _narwhal(data).collect_schema().names() if is_frame(data) else None


def table_names(data: Any) -> list[str] | None:
    """Return the names of columns as `column_names` does, None also where they are not all strings."""
    names = column_names(data)
    return names if names and all(isinstance(name, str) for name in names) else None


def frame_columns(data: Any, wanted: Iterable[Any] | None = None) -> dict[Any, Array] | None:
    """Return columns of a frame, or of an array with fields, by name; None for anything else.

    Parameters
    ----------
    data : anything
    wanted : names of columns, default=None
        All by default.
    """
    names = column_names(data)
    if names is None:
        return None
    refuse_duplicates("the table", list(map(str, names)))
    chosen = names if wanted is None else list(wanted)
    if isinstance(data, np.ndarray):
        return {name: data[name] for name in chosen}
    frame = _narwhal(data)
    columns = dict(zip(names, (frame.collect() if hasattr(frame, "collect") else frame).iter_columns(), strict=True))
    return {name: _values(columns[name]) for name in chosen}


def as_column(values: Any) -> Any:
    """Return a column of any library as an array, anything else as it is.

    A missing number is NaN, anything else that is missing None or what the library has for it.
    """
    found = _narwhal(values)
    return values if found is None or hasattr(type(found), "columns") else _values(found)


def take_rows(data: Any, places: Array) -> Any:
    """Return some rows of a frame or a column, of the same library; None for anything else."""
    found = _narwhal(data)
    return None if found is None else found[places].to_native()


def choose_columns(where: object, present: list[str], wanted: Sequence[str] | None) -> list[str]:
    """Return the wanted columns, or all; refuse one that is not there, in a message that begins with ``where``."""
    for name in wanted or ():
        if name not in present:
            near = difflib.get_close_matches(name, present, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{where}: there is no column {name!r}; it has {', '.join(map(repr, present))}{hint}")
    return present if wanted is None else list(wanted)


def refuse_duplicates(where: object, names: list[str]) -> None:
    """Refuse two columns with one name, of which only one could be read."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{where}: the column {twice!r} is there {names.count(twice)} times among {', '.join(map(repr, names))}: rename one"
        )


def _narwhal(data: Any) -> Any:
    """A frame or a column as narwhals has it, None for anything else."""
    if type(data).__module__.partition(".")[0] in PLAIN:
        return None
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    if (pyarrow := sys.modules.get("pyarrow")) is not None:  # narwhals has no parts of columns and tables
        if isinstance(data, pyarrow.Array):
            data = pyarrow.chunked_array([data])
        elif isinstance(data, pyarrow.RecordBatch):
            data = pyarrow.Table.from_batches([data])
    try:
        found = nw.from_native(data, pass_through=True, allow_series=True)
    except DuplicateError:
        refuse_duplicates("the table", [str(name) for name in data.columns])
        raise
    return found if isinstance(found, (nw.DataFrame, nw.LazyFrame, nw.Series)) else None


def _values(series: Any) -> Array:
    native = series.to_native()
    if series.implementation.is_pyarrow():
        # Arrow's conversion of a chunked dictionary takes the last word for a missing one.
        native = native.cast(native.type.value_type) if hasattr(native.type, "index_type") else native
        return np.asarray(native.to_numpy())
    return np.asarray(series.to_numpy())
