"""Rows that were found and rows that are true in; the order of the first that fits the second best, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

__all__ = ["match_rows"]


def match_rows(found: Any, truth: Any) -> npt.NDArray[np.int64]:
    """The order in which ``found[order]`` lies nearest to ``truth``, row by row, no row used twice.

    Components of a mixture have no names: a fit finds them in an order of its own. Nearest is the smallest sum of absolute
    differences; for distributions that is twice the total variation.

    Parameters
    ----------
    found : array [K or more, V]
    truth : array [K, V]

    Examples
    --------
    >>> match_rows([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]], [[0.0, 1.0], [1.0, 0.0]]).tolist()
    [2, 0]
    """
    here, there = np.asarray(found, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if here.ndim != 2 or there.ndim != 2 or here.shape[1] != there.shape[1] or len(here) < len(there):
        raise ValueError(
            f"found must have the columns of truth and at least its rows, got shapes {here.shape} and {there.shape}"
        )
    cost = np.abs(there[:, None, :] - here[None, :, :]).sum(axis=2)
    return np.asarray(linear_sum_assignment(cost)[1], dtype=np.int64)
