"""Draws of several chains in; how far they can be trusted out: R̂ and effective sample sizes, by arviz-stats.

R̂ (rank-normalised, split) compares chains with one another, and is 1 where they agree; the bulk ESS says how many independent
draws the mean is worth, the tail ESS the ends of intervals. Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021).
"""

from __future__ import annotations

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FEWEST", "LARGEST_R_HAT", "Diagnosis", "ess", "r_hat", "worst"]

Array = npt.NDArray[Any]
LARGEST_R_HAT, FEWEST = 1.01, 400
# Elements of a block that are looked at; of more, as many at even distances.
MOST_ELEMENTS = 24


class Diagnosis(NamedTuple):
    """The worst element of a node: its largest R̂ and its smallest effective sample sizes."""

    r_hat: float
    ess_bulk: float
    ess_tail: float


def r_hat(draws: Array) -> Array:
    """R̂ of each element of draws [chain, draw, …]; NaN where all draws are equal."""
    return _by_element(draws, lambda part: _stats().rhat(part, chain_axis=0, draw_axis=1, method="rank"))


def ess(draws: Array, kind: Literal["bulk", "tail"] = "bulk") -> Array:
    """Independent draws that those of each element are worth; NaN where all draws are equal."""
    options = {"prob": (0.05, 0.95)} if kind == "tail" else {}
    return _by_element(draws, lambda part: _stats().ess(part, chain_axis=0, draw_axis=1, method=kind, **options))


def worst(draws: Array) -> Diagnosis | None:
    """The worst element, of some if there are many; None if there is nothing to compare, or no arviz-stats."""
    if draws.shape[1] < 4 or draws.dtype.kind not in "fiu" or not draws.size:
        return None
    flat = draws.reshape(*draws.shape[:2], -1)
    if flat.shape[2] > MOST_ELEMENTS:
        flat = flat[:, :, np.linspace(0, flat.shape[2] - 1, MOST_ELEMENTS).astype(np.int64)]
    try:
        measures = r_hat(flat), ess(flat), ess(flat, "tail")
    except ImportError:
        return None
    if np.isnan(measures[0]).all():
        return None
    return Diagnosis(float(np.nanmax(measures[0])), float(np.nanmin(measures[1])), float(np.nanmin(measures[2])))


def _stats() -> Any:
    try:
        from arviz_stats.base.array import array_stats
    except ImportError:
        raise ImportError("R̂ and effective sample sizes need arviz-stats: pip install arviz-stats") from None
    return array_stats


def _by_element(draws: Array, function: Any) -> Array:
    flat = np.asarray(draws, dtype=np.float64).reshape(*draws.shape[:2], -1)
    out = np.full(flat.shape[2], np.nan)
    varies = (flat != flat[:1, :1]).any((0, 1)) & np.isfinite(flat).all((0, 1))
    if varies.any():
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out[varies] = np.asarray(function(flat[:, :, varies]))
    return out.reshape(draws.shape[2:])
