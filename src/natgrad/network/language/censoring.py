"""Censored data: each element is known to lie between two bounds, of which one may be missing and both may agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate
from natgrad.network.language.columns import records
from natgrad.validation import as_observed, first, where

__all__ = ["Censored", "as_censored", "censored"]

Floats = npt.NDArray[np.float64]


class Censored:
    """What is known of each element: ``lower`` ≤ x ≤ ``upper``; made by `censored`."""

    def __init__(self, lower: Floats, upper: Floats) -> None:
        self.lower, self.upper = lower, upper

    @property
    def is_exact(self) -> npt.NDArray[np.bool_]:
        """Where the number itself was seen."""
        return np.asarray(self.lower == self.upper)

    @property
    def values(self) -> Floats:
        """A number inside the bounds for each element, NaN where nothing is known: what stands in for the data."""
        inside = np.where(np.isfinite(self.lower), self.lower, self.upper)
        return np.where(np.isfinite(inside), inside, np.nan)

    def refuse_reading(self, name: str) -> NotConjugate:
        """The error for a node that would read censored data as if they were seen."""
        return NotConjugate(
            f"{name!r} is censored, and its values are not known: it cannot stand in another node. Declare what was not seen "
            "as a hidden Normal of its own"
        )


def as_censored(observed: Any, least: float = -np.inf) -> tuple[Censored | None, Any]:
    """Bounds, if data are censored, and a number for each element; ``least`` is where the support begins."""
    if not isinstance(observed, Censored):
        return None, observed
    bounds = Censored(np.where(observed.lower == -np.inf, least, observed.lower), observed.upper)
    return bounds, bounds.values if np.isinf(least) else observed.values


@records
def censored(values: Any, upper: Any = None, *, right: Any = None, left: Any = None) -> Censored:
    """Data of which only bounds were seen, for ``observed=`` of a `Normal`, `LogNormal` or `Exponential`.

    Parameters
    ----------
    values : numbers
        What was seen; the lower bounds where ``upper`` is given. NaN is missing, −inf no bound.
    upper : numbers, optional
        Upper bounds: inf where there is none (right censored), equal to ``values`` where the number itself was seen.
    right, left : booleans (or 0 and 1), optional
        Instead of ``upper``: True where the true value lies above (``right``) or below (``left``) the one that was seen.

    Examples
    --------
    >>> import natgrad as ng
    >>> rate = ng.Gamma("rate", 1.0, 1.0)
    >>> months = ng.censored([3.0, 8.0, 12.0, 12.0], right=[False, False, True, True])
    >>> t = ng.Exponential("t", rate, plate=ng.Plate("patient", 4), observed=months)
    >>> print(ng.Network(t).fit()["rate"].mean().round(4))  # (1 + 2 deaths) / (1 + 35 months)
    0.0833
    """
    low = as_observed(values, "censored: values").astype(np.float64)
    if upper is not None:
        if right is not None or left is not None:
            raise TypeError("censored takes upper bounds, or right= and left=, not both")
        high = as_observed(upper, "censored: upper").astype(np.float64)
        if high.shape not in ((), low.shape):
            raise ValueError(
                f"censored: values have shape {low.shape}, upper has {high.shape}: give one for each element"
            )
        high = np.broadcast_to(high, low.shape)
        if (place := first(low > high)) is not None:
            raise ValueError(
                f"censored: values{where(place)} = {low[place]:g} is above upper{where(place)} = {high[place]:g}: the lower "
                "bound comes first"
            )
        missing = np.isnan(low) & np.isnan(high)
        if (place := first((np.isnan(low) | np.isnan(high)) & ~missing)) is not None:
            raise ValueError(f"censored: one of the two bounds{where(place)} is NaN: no bound is -inf or inf")
        return Censored(np.where(missing, -np.inf, low), np.where(missing, np.inf, high))
    if right is None and left is None:
        raise TypeError("censored needs upper=, right= or left=: data that were all seen need no censored(…)")
    flags = {name: _flags(flag, name, low.shape) for name, flag in (("right", right), ("left", left))}
    if (place := first(flags["right"] & flags["left"])) is not None:
        raise ValueError(
            f"censored: values{where(place)} = {low[place]:g} is censored right and left: it is missing, NaN"
        )
    missing = np.isnan(low)
    return Censored(np.where(flags["left"] | missing, -np.inf, low), np.where(flags["right"] | missing, np.inf, low))


def _flags(flag: Any, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    if flag is None:
        return np.zeros(shape, dtype=bool)
    array = np.asarray(flag)
    if array.dtype != bool:
        if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
            raise TypeError(f"censored: {name} must be booleans, True where censored, got dtype {array.dtype}")
        array = array == 1
    if array.shape not in ((), shape):
        raise ValueError(f"censored: {name} has shape {array.shape}, but {shape} is needed, one for each value")
    return np.broadcast_to(array, shape)
