"""Where a process along time starts: rows in the middle, length scales and shares of noise to compare there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance
from natgrad.models.gp.chain_problem import ChainProblem

__all__ = ["FEW", "SOME", "starts", "window"]

Floats = npt.NDArray[np.float64]
# Rows on which starts are compared, and on which the best of them goes on; length scales and shares of noise that are compared.
FEW, SOME, LENGTHS, SHARES = 4_000, 20_000, 8, (0.5, 0.1, 0.01)


def window(kernel: Covariance, times: Floats, y: Floats, most: int) -> ChainProblem:
    """Rows in the middle, one after the other."""
    begin = max(0, (len(times) - most) // 2)
    return ChainProblem(kernel, times[begin : begin + most], y[begin : begin + most])


def starts(given: Floats, times: Floats, spread: float, noise: bool) -> Iterator[Floats]:
    """Length scales and shares of noise to begin with; of a sum, in the proportions that were given."""
    gaps = np.diff(times)
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return
    shortest, longest = 2.0 * float(np.median(gaps)), 0.5 * float(times[-1] - times[0])
    variances = np.exp(given[:-1:2] - given[:-1:2].max())
    for length in np.geomspace(shortest, max(longest, shortest), LENGTHS):
        for share in SHARES if noise else (None,):
            h = given.copy()
            h[1:-1:2] += np.log(length) - given[1:-1:2].mean()
            h[:-1:2] = np.log((1.0 - (share or 0.1)) * spread * variances / variances.sum())
            h[-1] = given[-1] if share is None else np.log(share * spread)
            yield h
