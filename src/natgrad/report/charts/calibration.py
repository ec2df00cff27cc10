"""What was observed and what a model said of it in; figures that show whether the model knows how much it knows, out.

Judge on data that were not fitted where there are any: those of the fit flatter a model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.report.charts.svg import Axis, Line, bar_chart, line_chart
from natgrad.report.format import count
from natgrad.report.html import Html, join, tag

__all__ = ["Judged", "coverage", "inside", "places", "reliability", "verdict"]

Floats = npt.NDArray[np.float64]
MASS, BINS, LEAST_IN_BIN = 0.9, 12, 5


class Judged(NamedTuple):
    """Observations, their predicted means and standard deviations, what they are called, and whether they were not fitted."""

    values: Floats
    mean: Floats
    sd: Floats
    what: str
    fresh: bool

    @property
    def whose(self) -> str:
        """Which data these are."""
        return f"held-out {self.what}" if self.fresh else f"the {self.what} of the fit"


def places(judged: Judged) -> Floats:
    """Where each observation lies in its predicted Gaussian, from 0 to 1: uniform if the predictions are right."""
    return np.asarray(special.ndtr((judged.values - judged.mean) / judged.sd))


def inside(judged: Judged, mass: float = MASS) -> float:
    """The part of the observations in their central interval."""
    return float(np.mean(np.abs(places(judged) - 0.5) <= mass / 2))


def verdict(judged: Judged) -> Html:
    """One sentence with the number that matters, and a caution where it is needed."""
    words = f"Judged on {judged.whose} ({count(len(judged.values))}): {inside(judged):.1%} lie in their 90 % interval."
    hint = f"The {judged.what} of the fit flatter a model; held_out= judges it on others."
    return join([tag("p", words), None if judged.fresh else tag("p", hint, class_="note")])


def coverage(judged: Judged) -> list[Html]:
    """How many observations lie in intervals of each size, and where in their distributions they lie."""
    place = places(judged)
    nominal = np.linspace(0.05, 0.95, 19)
    actual = np.array([np.mean(np.abs(place - 0.5) <= mass / 2) for mass in nominal])
    diagonal = Line(np.array([0.0, 1.0]), np.array([0.0, 1.0]), "perfect", "guide")
    lines = line_chart(
        [Line(nominal, actual, "this model"), diagonal],
        Axis("central interval", low=0.0, high=1.0), Axis("part inside it", low=0.0, high=1.0),
        title="Observations inside their intervals",
        description=f"{inside(judged):.0%} of {judged.whose} lie in their 90 % interval.",
    )  # fmt: skip
    heights, edges = np.histogram(place, bins=20, range=(0.0, 1.0), density=True)
    bars = bar_chart(
        heights.astype(np.float64), Axis("place in the predicted distribution", low=0.0, high=1.0), Axis("density", low=0.0),
        title="Places of observations in their predicted distributions", edges=edges, guide=1.0,
        description="Flat if the uncertainty is right; a hump in the middle if it is too large.",
    )  # fmt: skip
    return [
        _figure(lines, "How many lie in intervals of each size; on the dashed line, as many as should."),
        _figure(bars, "Flat: the uncertainty is right. A hump: too large. A bowl: too small."),
    ]


def reliability(judged: Judged, axis: str) -> Html:
    """Means of what was observed where a mean was predicted: on the diagonal, the predictions can be taken at their word."""
    order = np.argsort(judged.mean, kind="stable")
    parts = [part for part in np.array_split(order, BINS) if len(part) >= LEAST_IN_BIN] or [order]
    said = np.array([judged.mean[part].mean() for part in parts])
    seen = np.array([judged.values[part].mean() for part in parts])
    ends = np.array([min(said.min(), seen.min()), max(said.max(), seen.max())])
    chart = line_chart(
        [Line(said, seen, "this model"), Line(ends, ends, "perfect", "guide")],
        Axis(f"predicted {axis}"), Axis(f"observed {axis}"),
        title=f"Observed against predicted {axis}", description=f"Means of {len(parts)} groups of {judged.whose}.",
    )  # fmt: skip
    return _figure(chart, f"Means of groups of {judged.whose} with like predictions.")


def _figure(chart: Html, caption: str) -> Html:
    return tag("figure", chart, tag("figcaption", caption))
