"""Symbols that are no numbers: words, letters, codes of any kind in; numbers 0 … V − 1 out, and back.

Numbers stay what they are. None, NaN and pandas' NA are missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import as_column, frame_columns
from natgrad.validation import is_missing

__all__ = ["as_categories", "categories_in", "encoded", "flat_labels", "holds_labels", "is_several"]

Array = npt.NDArray[Any]


def holds_labels(X: Any) -> bool:
    """Whether X, a list of symbols or one of sequences, holds something else than numbers.

    Examples
    --------
    >>> holds_labels(["a", "b"]), holds_labels(np.arange(3)), holds_labels([["a"], ["b", "a"]]), holds_labels("a.npy")
    (True, False, True, False)
    """
    if isinstance(X, str) or hasattr(X, "__fspath__") or hasattr(X, "__next__"):
        return False
    if is_several(X):
        return any(holds_labels(part) for part in X)
    array = _plain(X)
    if array.dtype.kind == "O":
        return any(isinstance(v, (str, bytes, bool, tuple)) for v in array.ravel())
    return array.dtype.kind in "USM"


def is_several(X: Any) -> bool:
    """Whether X is a list of sequences."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and not isinstance(X[0], (str, bytes)) and np.ndim(X[0]) > 0


def as_categories(given: Any) -> Array:
    """The labels that the user names, all different."""
    categories = np.empty(len(given), dtype=object)
    categories[:] = list(given)
    if not len(categories):
        raise ValueError("categories is empty: name the labels that may occur")
    if len(seen := dict.fromkeys(categories.tolist())) < len(categories):
        twice = next(v for v in seen if categories.tolist().count(v) > 1)
        raise ValueError(f"categories names {twice!r} twice: labels differ")
    return categories


def categories_in(X: Array) -> Array:
    """The labels that occur, in order where they have one."""
    seen = dict.fromkeys(v for v in X.ravel().tolist() if not is_missing(v))
    try:
        order = sorted(seen)
    except TypeError:  # labels of several types
        order = sorted(seen, key=lambda v: (type(v).__name__, str(v)))
    return as_categories(order) if order else np.zeros(0, dtype=object)


def encoded(X: Any, categories: Array) -> Array:
    """Numbers of labels [T, 1]: NaN where one is missing, V where it is none of the categories."""
    array = flat_labels(X)
    numbers = {label: float(code) for code, label in enumerate(categories.tolist())}
    other = float(len(categories))
    codes = [np.nan if is_missing(v) else numbers.get(v, other) for v in array.ravel().tolist()]
    return np.asarray(codes, dtype=np.float64)[:, None]


def flat_labels(X: Any) -> Array:
    """A column of labels."""
    array = _plain(X)
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1):
        raise ValueError(f"X must have one column of categories, got an array of shape {array.shape}")
    if array.size == 0:
        raise ValueError("X is empty: there is nothing to fit to (minimum of 1 is required)")
    return array.ravel()


def _plain(X: Any) -> Array:
    if (table := frame_columns(X)) is not None and len(table) == 1:
        X = next(iter(table.values()))
    X = as_column(X)
    array = np.asarray(X)
    if array.dtype.kind in "US" and isinstance(X, (list, tuple)):  # 1 beside "a" would become "1"
        return np.asarray(X, dtype=object)
    # Nanoseconds, as pandas has them, would become whole numbers; finer than microseconds no date of Python is.
    return array.astype("M8[us]") if array.dtype.kind == "M" and array.dtype.str.endswith("[ns]") else array
