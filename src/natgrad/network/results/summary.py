"""A fit in; a table for people out: mean, standard deviation and interval of each element, by name and id."""

from __future__ import annotations

import html
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from natgrad.posterior.factor import Factor

__all__ = ["FitSummary", "summarised"]

HEAD = ("", "mean", "sd", "lower", "upper")


@dataclass(frozen=True, repr=False)
class FitSummary:
    """Rows of a table; printed, it is aligned.

    ``rows`` has for each element its name, mean, sd and the ends of its interval; ``left_out`` counts those that are not shown,
    by node; ``stop`` says why the fit ended.
    """

    rows: tuple[tuple[str, float, float, float, float], ...]
    left_out: Mapping[str, int]
    mass: float
    stop: str

    def __str__(self) -> str:
        cells = [HEAD, *((name, *(_short(value) for value in numbers)) for name, *numbers in self.rows)]
        widths = [max(len(str(row[place])) for row in cells) for place in range(len(HEAD))]
        lines = [
            "  ".join(
                str(c).ljust(w) if p == 0 else str(c).rjust(w) for p, (c, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        more = [f"… and {count:,} more elements of {name}" for name, count in self.left_out.items()]
        return "\n".join([*lines, *more, f"intervals have probability {self.mass:g}; {self.stop}"])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def summarised(fit: Any, stop: str, mass: float, most: int) -> FitSummary:
    """The first elements of every factor of a fit."""
    rows: list[tuple[str, float, float, float, float]] = []
    left_out: dict[str, int] = {}
    for name in fit:
        factor: Factor = fit[name]
        mean, sd = factor.mean(), factor.std()
        low = high = np.full(mean.shape, np.nan)
        with suppress(TypeError):  # categories have no order, hence no interval
            low, high = factor.interval(mass)
        for place in list(np.ndindex(mean.shape))[:most] if mean.size <= 10 * most else _first(mean.shape, most):
            a, b, c, d = (float(part[place]) for part in (mean, sd, low, high))
            rows.append((_called(factor, place), a, b, c, d))
        if mean.size > most:
            left_out[name] = mean.size - most
    return FitSummary(tuple(rows), left_out, mass, stop)


def _first(shape: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
    return [tuple(int(i) for i in np.unravel_index(number, shape)) for number in range(most)]


def _called(factor: Factor, place: tuple[int, ...]) -> str:
    labels = factor.labels or {}
    parts = []
    for axis, number in enumerate(place):
        known = labels.get(factor.plates[axis]) if axis < len(factor.plates) else None
        parts.append(str(number) if known is None or number >= len(known) else str(known[number]))
    return f"{factor.name}[{', '.join(parts)}]" if parts else factor.name


def _short(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"
